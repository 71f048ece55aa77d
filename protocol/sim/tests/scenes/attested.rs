//! The organiser attests states: which lineage is the run's after that, and what forged
//! attestations and false claims about them cost (G11).

use intellect_protocol::base::fault::{CertificateFault, Fault};
use intellect_protocol::base::sign::Keypair;
use intellect_protocol::message::{Body, Link, Notice};

use super::minted::{WEIGHT_MAX, claim, five, mint, set_out, tell_of, voter};
use super::*;

/// The number of the newest notice that each of these hosts has reported.
fn known(world: &World, hosts: &[usize]) -> Vec<u64> {
    let newest = |host: &usize| {
        let told = world.events(*host).filter_map(|event| match event {
            Event::Notice { notice, .. } => Some(notice.number),
            _ => None,
        });
        told.max().unwrap_or(0)
    };
    hosts.iter().map(newest).collect()
}

/// A lineage after epoch 2 that one voter has minted, with more tokens than
/// any honest lineage of `world`.
fn minted(world: &World) -> (Vec<Link>, intellect_protocol::message::Head) {
    let base = commit(world, 0, 2);
    mint(world, &base, &[voter(world, &base, 4)], 40, WEIGHT_MAX)
}

/// The second notice, after one for epoch 5: it attests a state of epoch
/// 8 that no peer has any more.
fn lost(world: &World) -> Notice {
    let mut committed = commit(world, 0, 5);
    let low = world.attest(None, &committed);
    (committed.head.epoch, committed.head.state) = (8, Digest([0x77; 32]));
    world.attest(Some(&low), &committed)
}

/// G11: the peers hold an attestation for their own lineage. A voter mints another one
/// with more tokens, which undoes few epochs. Nobody follows it; without the rule tokens
/// would decide, and they would.
#[test]
fn g11_a_minted_lineage_of_more_tokens_loses_to_the_attested() -> Played {
    for without in [None, Some(Rule::G11)] {
        let (mut world, honest, liar) = five(64, without)?;
        (0..5).for_each(|host| world.train_in(host, 3_000));
        let notice = world.attest(None, &commit(&world, 0, 5));
        world.bring_notice(honest[0], &notice);
        world.play(1_000)?;
        assert_eq!(known(&world, &honest), [1; 4], "it is gossiped");
        let (links, head) = minted(&world);
        assert!(head.rank(0) > world.head(0).unwrap().rank(0));
        tell_of(&mut world, liar, &honest, &links, head)?;
        assert_eq!(set_out(&world, &honest, head), without.is_some());
        if without.is_none() {
            let epoch = world.epoch(0);
            reach(&mut world, &honest, epoch + 3)?;
            assert!(honest.iter().all(|host| forks(&world, *host).iter().all(|n| *n == 0)));
        }
        ends_amid(world, &[Trains, Update])?;
    }
    Ok(())
}

/// G11: a peer starts without a state and knows an attestation. It follows no lineage
/// without the attested state, although that is all it hears of, and founds no run. It goes
/// on once it meets the attested one.
#[test]
fn g11_who_begins_follows_no_lineage_that_lacks_the_attested_state() -> Played {
    for without in [None, Some(Rule::G11)] {
        let mut world = World::scene(5, 0, without);
        world.start(&[0, 1]);
        reach(&mut world, &[0, 1], 6)?;
        let notice = world.attest(None, &commit(&world, 0, 5));
        // Two other peers, which never met these, have founded a run of
        // their own and have more tokens.
        world.cut(&[2, 3, 4], 1);
        world.start(&[2, 3]);
        reach(&mut world, &[2, 3], 9)?;
        world.bring_notice(4, &notice);
        world.start(&[4]);
        world.play(30_000)?;
        assert_eq!(world.epoch(4) > 0, without.is_some(), "{:?}", world.head(4));
        if without.is_some() {
            ends(world, &[Trains])?;
            continue;
        }
        assert!(!reported(&world, 4, |event| matches!(event, Event::Behind { .. })));
        world.mend();
        let (all, bound) = ([0, 1, 2, 3, 4], 2 * END_MS);
        assert!(world.until(bound, |world| world.same(&all))?);
        assert_eq!(known(&world, &all), [1, 1, 1, 1, 0], "the last one has begun with it");
        let descends = commit(&world, 0, 5).head.state == notice.attests().unwrap().state;
        assert!(descends && world.epoch(4) > 5);
        ends(world, &[Trains])?;
    }
    Ok(())
}

/// G11: peers that know an attestation do not found the run again, even if no other peer is there.
/// Without the rule a second run would start under the same id.
#[test]
fn g11_where_there_is_an_attestation_nobody_founds() -> Played {
    for without in [None, Some(Rule::G11)] {
        let mut world = World::scene(4, 0, without);
        world.start(&[0, 1]);
        reach(&mut world, &[0, 1], 3)?;
        let notice = world.attest(None, &commit(&world, 0, 2));
        world.kill(&[0, 1]);
        [2, 3].iter().for_each(|host| world.bring_notice(*host, &notice));
        world.start(&[2, 3]);
        world.play(60_000)?;
        assert_eq!(world.epoch(2) > 0, without.is_some(), "{:?}", world.head(2));
        if without.is_none() {
            assert_eq!(world.wait(2), Some(Wait::Behind), "for a peer that has the state");
            world.start(&[0, 1]);
            reach(&mut world, &[0, 1, 2, 3], 5)?;
        }
        ends(world, &[Trains])?;
    }
    Ok(())
}

/// Two halves of a run that have gone on alone, to epoch 8 at least.
fn halves(without: Option<Rule>) -> Result<(World, [usize; 2], [usize; 2]), Violation> {
    let (mut world, all) = founded(4, 0, without)?;
    let [a, b, c, d] = all[..] else { unreachable!() };
    world.cut(&[c, d], 1);
    reach(&mut world, &all, 8)?;
    Ok((world, [a, b], [c, d]))
}

/// G11: of two lineages the one with the higher attestation is the greater, whatever its
/// tokens. Here each half is attested, the second half later; the first half gives up
/// its attested epochs for that.
#[test]
fn g11_of_two_attestations_the_higher_number_wins() -> Played {
    let (mut world, one, other) = halves(None)?;
    let (first, far) = (commit(&world, one[0], 6), commit(&world, other[0], 7));
    let low = world.attest(None, &first);
    // The organiser has changed its mind, which it may: the later notice counts.
    let high = world.attest(Some(&low), &far);
    for host in one {
        world.bring_notice(host, &low);
    }
    for host in other {
        world.bring_notice(host, &high);
    }
    let all = [one, other].concat();
    world.mend();
    assert!(world.until(END_MS, |world| world.same(&all))?);
    world.play(1_000)?;
    assert_eq!(known(&world, &all), [2; 4]);
    for host in other {
        assert!(forks(&world, host).iter().all(|undone| *undone == 0), "{host} stays");
    }
    for host in one {
        assert!(forks(&world, host).iter().any(|undone| *undone > 0), "{host} withdraws");
    }
    ends(world, &[Trains])
}

/// G11: the smaller side, in voters and in tokens, holds the attestation. When the sides meet, all
/// end on it, though that undoes more epochs than so few voters could without one.
#[test]
fn g11_the_side_that_holds_the_attestation_is_the_run() -> Played {
    for without in [None, Some(Rule::G11)] {
        let mut world = World::scene(5, 0, without);
        world.undo_at_most(2);
        let all = [0, 1, 2, 3, 4];
        world.start(&all);
        reach(&mut world, &all, 1)?;
        let order = world.voters(0);
        let (few, many) = (&order[4..], &order[..4]);
        world.cut(few, 1);
        many.iter().for_each(|host| world.train_in(*host, 300));
        few.iter().for_each(|host| world.train_in(*host, 2_000));
        reach(&mut world, few, 6)?;
        let (less, more) = (world.head(few[0]).unwrap(), world.head(many[0]).unwrap());
        assert!(less.tokens < more.tokens && more.epoch > 6);
        let notice = world.attest(None, &commit(&world, few[0], 4));
        world.bring_notice(few[0], &notice);
        world.play(2_000)?;
        assert_eq!(known(&world, many), [0; 4]);
        world.kill(&[few[0]]);
        world.start(&[few[0]]);
        world.mend();
        let met = world.until(2 * END_MS, |world| world.same(&all));
        if without.is_some() {
            assert_eq!(met.unwrap_err().invariant, "S3");
            continue;
        }
        assert!(met?);
        world.play(1_000)?;
        let withdrew = |host: &usize| forks(&world, *host).iter().any(|undone| *undone > 2);
        assert!(many.iter().all(withdrew) && !few.iter().any(withdrew));
        assert_eq!(commit(&world, few[0], 4).head.state, notice.attests().unwrap().state);
        ends_amid(world, &[Trains, Training, End::Roster])?;
    }
    Ok(())
}

/// What two peers do before they are led back to an epoch in which they have voted.
#[derive(Clone, Copy, PartialEq)]
enum Meanwhile {
    /// They follow a greater head, and do nothing else.
    Follow,
    /// And decide epochs there, so that what they had voted for is gone from their disks.
    GoOn,
    /// And are restarted there, before they are led back.
    Restart,
}

/// R20, G11: three of four vote on an epoch; one of them hears it and commits alone. The two others follow a greater
/// head, and an attestation leads them back to the fourth, which never voted. Their votes bind them.
#[test]
fn r20_votes_bind_a_peer_that_is_led_back() -> Played {
    led_back(Meanwhile::Follow)
}

/// The same, but their logs are lost, since what they had voted for is gone. The fourth goes on by a Regroup.
#[test]
fn r19_a_peer_that_is_led_back_from_beyond_is_another_voter() -> Played {
    led_back(Meanwhile::GoOn)?;
    led_back(Meanwhile::Restart)
}

fn led_back(meanwhile: Meanwhile) -> Played {
    let mut world = World::scene(9, 0, None);
    let hosts: Vec<usize> = (0..9).collect();
    world.start(&hosts);
    reach(&mut world, &hosts, 1)?;
    let (few, many) = (&hosts[..4], &hosts[4..]);
    world.cut(many, 1);
    many.iter().for_each(|host| world.train_in(*host, 3_000));
    reach(&mut world, few, 4)?;
    // The first voter is the one that stays: the two others are no majority without it.
    let order = world.voters(few[0]);
    let [d, a, b, c] = order[..] else { unreachable!("{order:?}") };
    let base = world.epoch(a);
    reach(&mut world, &[a, b, c, d], base)?;
    let votes: Votes = Rc::default();
    let noted = votes.clone();
    world.train_in(d, 600_000);
    world.direct(move |from, to, message| match message {
        _ if to == d && epoch_of(message) == base + 1 => Fate::Drop,
        Message::Done(vote) if [a, b, c].contains(&from) && epoch_of(message) == base + 1 => {
            noted.borrow_mut().insert(from, vote.update);
            if to == c { Fate::Deliver } else { Fate::Drop }
        }
        Message::Commit(_) | Message::Heartbeat(_) if from == c => Fate::Drop,
        _ => Fate::Deliver,
    });
    reach(&mut world, &[c], base + 1)?;
    let (first, attested) = (commit(&world, c, base + 1), commit(&world, d, base));
    world.kill(&[c, d]);
    world.train_in(d, 300);
    let voted = votes.borrow().clone();
    assert_eq!((voted[&a], voted[&b]), (first.receipt.update, first.receipt.update));
    world.let_through();
    reach(&mut world, many, base)?;
    many.iter().for_each(|host| world.train_in(*host, 3_600_000));
    world.cut(&[a, b], 1);
    assert!(world.until(END_MS, |world| world.same(&[a, b, many[0]]))?);
    let beyond = meanwhile != Meanwhile::Follow;
    if beyond {
        many.iter().for_each(|host| world.train_in(*host, 300));
        reach(&mut world, &[a, b], base + 3)?;
    }
    if meanwhile == Meanwhile::Restart {
        world.kill(&[a, b]);
        world.start(&[a, b]);
    }
    world.kill(many);
    let notice = world.attest(None, &attested);
    world.cut(&[a, b, d], 2);
    world.start(&[d]);
    [a, b, d].iter().for_each(|host| world.bring_notice(*host, &notice));
    reach(&mut world, &[a, b, d], base + 1)?;
    let again = commit(&world, a, base + 1);
    assert_eq!(world.report.of(Count::Blank), if beyond { 2 } else { 0 });
    assert_eq!((again.head == first.head, again.regrouped), (!beyond, beyond));
    world.start(&[c]);
    world.cut(&[c], 2);
    let is_one = |world: &mut World| world.epoch(c) > base + 3 && world.same(&[a, b, c, d]);
    assert!(world.until(END_MS, is_one)?);
    ends(world, &[Trains])
}

/// R20, G11: one of three decides two epochs alone, follows a greater head, and is led back to the peer that has neither
/// epoch. Its log binds it in both, and it still has the updates of both: nobody else does.
#[test]
fn r20_votes_of_two_epochs_bind_a_peer_that_is_led_back() -> Played {
    let (mut world, all) = founded(3, 0, None)?;
    let [a, b, c] = all[..] else { unreachable!() };
    world.cut(&[a], 1);
    world.train_in(a, 600_000);
    let base = world.epoch(b);
    reach(&mut world, &[b, c], base + 2)?;
    let attested = commit(&world, c, world.epoch(c));
    world.kill(&[c]);
    reach(&mut world, &[b], attested.head.epoch + 2)?;
    let alone = commit(&world, b, attested.head.epoch + 2).head;
    world.train_in(b, 600_000);
    world.train_in(a, 100);
    let beyond = world.epoch(b) + 20;
    reach(&mut world, &[a], beyond)?;
    world.mend();
    assert!(world.until(END_MS, |world| world.same(&[a, b]))?);
    assert!(world.epoch(b) > alone.epoch);
    world.kill(&[a]);
    let notice = world.attest(None, &attested);
    [b, c].iter().for_each(|host| world.bring_notice(*host, &notice));
    [b, c].iter().for_each(|host| world.train_in(*host, 300));
    world.start(&[c]);
    let far = |world: &mut World| [b, c].iter().all(|host| world.epoch(*host) > alone.epoch);
    assert!(world.until(END_MS, |world| world.same(&[b, c]) && far(world))?);
    // What they do next rests on what was done alone.
    let next = commit(&world, c, alone.epoch + 1);
    assert_eq!(next.receipt.series.parent, alone.state);
    ends(world, &[Trains])
}

/// G11: a notice that the organiser has not signed for this run counts for nothing, and
/// is a fault of the peer that sends it. An attestation that does not extend the known
/// one is ignored without a fault.
#[test]
fn g11_a_notice_that_is_none_is_refused() -> Played {
    let (mut world, honest, liar) = five(64, None)?;
    let (third, fifth) = (commit(&world, 0, 3), commit(&world, 0, 5));
    let good = world.attest(None, &third);
    let forger = Keypair::from_seed(&[0x66; 32]);
    let forged = Notice::after(world.run, (0, Digest::ZERO), good.body.clone(), &forger);
    let other_run = Notice { run: intellect_protocol::base::id::RunId([9; 32]), ..good.clone() };
    let Body::Attestation(mut state) = good.body else { unreachable!() };
    state.epoch = 4;
    let moved = Notice { body: Body::Attestation(state), ..good.clone() };
    for (bad, count) in [(forged, 4), (other_run, 8), (moved, 12)] {
        world.say_as(&honest, world.name(liar), &Message::Notice(bad.clone()));
        // With the manifest it counts as little, and no peer is there to be blamed.
        world.bring_notice(honest[0], &bad);
        world.play(1_000)?;
        assert_eq!(world.blamed.len(), count);
        assert_eq!(known(&world, &honest), [0; 4]);
    }
    world.bring_notice(honest[0], &good);
    world.play(1_000)?;
    let beside = world.attest(None, &commit(&world, 0, 4));
    let astray = world.attest(Some(&beside), &fifth);
    world.say_as(&honest, world.name(liar), &Message::Notice(astray));
    world.play(1_000)?;
    assert_eq!((known(&world, &honest), world.blamed.len()), (vec![1; 4], 12));
    ends(world, &[Trains])
}

/// G11: the organiser attests a state that no peer has any more. Nothing stops, and an
/// earlier attestation still protects against a minted lineage; only a peer that starts
/// without a state has to wait.
#[test]
fn g11_an_attestation_of_an_unknown_state_stops_nothing() -> Played {
    let (mut world, honest, liar) = five(64, None)?;
    (0..5).for_each(|host| world.train_in(host, 3_000));
    let low = world.attest(None, &commit(&world, 0, 5));
    for notice in [&low, &lost(&world)] {
        world.bring_notice(honest[0], notice);
        world.play(61_000)?;
    }
    assert_eq!(known(&world, &honest), [2; 4]);
    let (links, head) = minted(&world);
    tell_of(&mut world, liar, &honest, &links, head)?;
    assert!(!set_out(&world, &honest, head));
    let epoch = world.epoch(0);
    reach(&mut world, &honest, epoch + 3)?;
    assert!(honest.iter().all(|host| forks(&world, *host).iter().all(|undone| *undone == 0)));
    ends_amid(world, &[Trains, Update])
}

/// G11: a peer missed a notice when it was gossiped. Others send it once the peer's heartbeats show
/// an older one, but not more often than once a minute.
#[test]
fn g11_who_has_missed_a_notice_is_told() -> Played {
    let (mut world, honest, _) = five(64, None)?;
    let notice = world.attest(None, &commit(&world, 0, 5));
    let (deaf, told_it) = (honest[3], counter());
    let seen = told_it.clone();
    world.direct(move |_, to, message| match message {
        Message::Notice(_) if to == deaf => {
            count(&seen);
            Fate::Drop
        }
        _ => Fate::Deliver,
    });
    world.bring_notice(honest[0], &notice);
    world.play(30_000)?;
    assert_eq!(known(&world, &honest), [1, 1, 1, 0]);
    // Each of the other three gossips it once, and each of the four sends it once.
    assert_eq!(told_it.get(), 8);
    world.let_through();
    world.play(61_000)?;
    assert_eq!(known(&world, &honest), [1; 4]);
    ends_amid(world, &[Ring, End::Votes])
}

/// G11, G12: a liar claims that its lineage lies on the newest notice, which no other lineage does.
/// It is asked, its chain or links do not lead there, and that head is set aside. Otherwise a claim
/// alone would keep all peers busy.
#[test]
fn g11_a_claim_that_is_a_lie_costs_little() -> Played {
    for in_chain in [false, true] {
        let (mut world, honest, liar) = five(64, None)?;
        (0..5).for_each(|host| world.train_in(host, 3_000));
        let notice = lost(&world);
        world.bring_notice(honest[0], &notice);
        world.play(1_000)?;
        let base = commit(&world, 0, 2);
        // It has fewer tokens than ours, so that only the claim speaks for it.
        let (links, head) = mint(&world, &base, &[voter(&world, &base, liar)], 10, 1);
        assert!(head.rank(0) < world.head(0).unwrap().rank(0));
        let lie = in_chain.then(|| *notice.attests().unwrap());
        let answers = claim(&mut world, liar, &honest, &links, head, notice.number, lie)?;
        assert!(!set_out(&world, &honest, head));
        // Each asks for its links, for its chain, and for the links at the fork,
        // to report at least the fork.
        assert!((4..=4 * 3).contains(&answers), "{answers} answers, {in_chain}");
        // Its Regroup may deny a vote that our link of the epoch contains.
        let denies = (world.name(liar), Fault::Certificate(CertificateFault::HidesVote));
        assert!(world.blamed.iter().all(|blamed| *blamed == denies), "{:?}", world.blamed);
        let epoch = world.epoch(0);
        reach(&mut world, &honest, epoch + 3)?;
        ends_amid(world, &[Trains, Update])?;
    }
    Ok(())
}
