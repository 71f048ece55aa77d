//! The organiser attests states: which lineage is the run's then, whatever others have minted, and
//! what an attestation that is none, or a claim that is a lie, comes to (G11).

use intellect_protocol::base::sign::Keypair;
use intellect_protocol::message::{Body, Link, Notice};

use super::minted::{WEIGHT_MAX, claim, five, mint, set_out, tell_of, voter};
use super::*;

/// The newest notice that each of these hosts has told of.
fn known(stage: &World, hosts: &[usize]) -> Vec<u64> {
    let newest = |host: &usize| {
        let told = stage.told(*host).filter_map(|event| match event {
            Event::Notice { notice, .. } => Some(notice.number),
            _ => None,
        });
        told.max().unwrap_or(0)
    };
    hosts.iter().map(newest).collect()
}

/// A lineage after epoch 2 that one voter has minted, and that has more tokens than any of `stage` will have.
fn minted(stage: &World) -> (Vec<Link>, intellect_protocol::message::Head) {
    let base = commit(stage, 0, 2);
    mint(stage, &base, &[voter(stage, &base, 4)], 40, WEIGHT_MAX)
}

/// The second notice, after one for epoch 5, for a state of epoch 8 that nobody has any more.
fn lost(stage: &World) -> Notice {
    let mut committed = commit(stage, 0, 5);
    let low = stage.attest(None, &committed);
    (committed.head.epoch, committed.head.state) = (8, Digest([0x77; 32]));
    stage.attest(Some(&low), &committed)
}

/// G11: with an attestation for what they have, nobody leaves it for a minted lineage, though that has more tokens and
/// undoes little. Without the rule they set out for it.
#[test]
fn g11_a_minted_lineage_of_more_tokens_loses_to_the_attested() -> Played {
    for without in [None, Some(Rule::G11)] {
        let (mut stage, honest, liar) = five(64, without)?;
        (0..5).for_each(|host| stage.train_in(host, 3_000));
        let notice = stage.attest(None, &commit(&stage, 0, 5));
        stage.bring_notice(honest[0], &notice);
        stage.play(1_000)?;
        assert_eq!(known(&stage, &honest), [1; 4], "it is gossiped");
        let (links, head) = minted(&stage);
        assert!(head.rank(0) > stage.head(0).unwrap().rank(0));
        tell_of(&mut stage, liar, &honest, &links, head)?;
        assert_eq!(set_out(&stage, &honest, head), without.is_some());
        if without.is_none() {
            let epoch = stage.epoch(0);
            reach(&mut stage, &honest, epoch + 3)?;
            assert!(honest.iter().all(|host| forks(&stage, *host).iter().all(|n| *n == 0)));
        }
    }
    Ok(())
}

/// G11: who begins without a state follows none that lacks the attestation, and founds none; it goes on as soon as
/// somebody has one that does not.
#[test]
fn g11_who_begins_follows_no_lineage_that_lacks_the_attested_state() -> Played {
    for without in [None, Some(Rule::G11)] {
        let mut stage = World::scene(5, 0, without);
        stage.start(&[0, 1]);
        reach(&mut stage, &[0, 1], 6)?;
        let notice = stage.attest(None, &commit(&stage, 0, 5));
        // Strangers to these two have founded a run of their own, and have more tokens.
        stage.cut(&[2, 3, 4], 1);
        stage.start(&[2, 3]);
        reach(&mut stage, &[2, 3], 9)?;
        stage.bring_notice(4, &notice);
        stage.start(&[4]);
        stage.play(30_000)?;
        assert_eq!(stage.epoch(4) > 0, without.is_some(), "{:?}", stage.head(4));
        if without.is_some() {
            continue;
        }
        assert!(!told(&stage, 4, |event| matches!(event, Event::Behind { .. })));
        stage.mend();
        let (all, bound) = ([0, 1, 2, 3, 4], 2 * END_MS);
        assert!(stage.until(bound, |stage| stage.same(&all))?);
        assert_eq!(known(&stage, &all), [1, 1, 1, 1, 0], "the last one has begun with it");
        let descends = commit(&stage, 0, 5).head.state == notice.attests().unwrap().state;
        assert!(descends && stage.epoch(4) > 5);
    }
    Ok(())
}

/// G11: a run is not founded anew where there is an attestation, whoever else begins.
#[test]
fn g11_where_there_is_an_attestation_nobody_founds() -> Played {
    for without in [None, Some(Rule::G11)] {
        let mut stage = World::scene(4, 0, without);
        stage.start(&[0, 1]);
        reach(&mut stage, &[0, 1], 3)?;
        let notice = stage.attest(None, &commit(&stage, 0, 2));
        stage.kill(&[0, 1]);
        [2, 3].iter().for_each(|host| stage.bring_notice(*host, &notice));
        stage.start(&[2, 3]);
        stage.play(60_000)?;
        assert_eq!(stage.epoch(2) > 0, without.is_some(), "{:?}", stage.head(2));
        if without.is_none() {
            stage.start(&[0, 1]);
            reach(&mut stage, &[0, 1, 2, 3], 5)?;
        }
    }
    Ok(())
}

/// Two halves of a run that go on alone, and what each has committed as that epoch.
fn halves(without: Option<Rule>) -> Result<(World, [usize; 2], [usize; 2]), Violation> {
    let (mut stage, all) = founded(4, 0, without)?;
    let [a, b, c, d] = all[..] else { unreachable!() };
    stage.cut(&[c, d], 1);
    reach(&mut stage, &all, 8)?;
    Ok((stage, [a, b], [c, d]))
}

/// G11: of two lineages the one with the higher attestation is the greater: here first one half has an attestation, then
/// the other one has a later one. Of those that undo attested epochs nobody does so for tokens.
#[test]
fn g11_of_two_attestations_the_higher_number_wins() -> Played {
    let (mut stage, one, other) = halves(None)?;
    let (first, far) = (commit(&stage, one[0], 6), commit(&stage, other[0], 7));
    let low = stage.attest(None, &first);
    // The organiser has changed its mind: it may, for each is its word.
    let high = stage.attest(Some(&low), &far);
    for host in one {
        stage.bring_notice(host, &low);
    }
    for host in other {
        stage.bring_notice(host, &high);
    }
    let all = [one, other].concat();
    stage.mend();
    assert!(stage.until(END_MS, |stage| stage.same(&all))?);
    stage.play(1_000)?;
    assert_eq!(known(&stage, &all), [2; 4]);
    for host in other {
        assert!(forks(&stage, host).iter().all(|undone| *undone == 0), "{host} stays");
    }
    for host in one {
        assert!(forks(&stage, host).iter().any(|undone| *undone > 0), "{host} withdraws");
    }
    Ok(())
}

/// G11: the smaller side, in voters and in tokens, holds the attestation. Its own disk has it, and the others hear of
/// it as they meet: all end there, though that undoes more epochs than is allowed to so few without one.
#[test]
fn g11_the_side_that_holds_the_attestation_is_the_run() -> Played {
    for without in [None, Some(Rule::G11)] {
        let mut stage = World::scene(5, 0, without);
        stage.undo_at_most(2);
        let all = [0, 1, 2, 3, 4];
        stage.start(&all);
        reach(&mut stage, &all, 1)?;
        let order = stage.voters(0);
        let (few, many) = (&order[4..], &order[..4]);
        stage.cut(few, 1);
        many.iter().for_each(|host| stage.train_in(*host, 300));
        few.iter().for_each(|host| stage.train_in(*host, 2_000));
        reach(&mut stage, few, 6)?;
        let (less, more) = (stage.head(few[0]).unwrap(), stage.head(many[0]).unwrap());
        assert!(less.tokens < more.tokens && more.epoch > 6);
        let notice = stage.attest(None, &commit(&stage, few[0], 4));
        stage.bring_notice(few[0], &notice);
        stage.play(2_000)?;
        assert_eq!(known(&stage, many), [0; 4]);
        stage.kill(&[few[0]]);
        stage.start(&[few[0]]);
        stage.mend();
        let met = stage.until(2 * END_MS, |stage| stage.same(&all));
        if without.is_some() {
            assert_eq!(met.unwrap_err().invariant, "S3");
            continue;
        }
        assert!(met?);
        stage.play(1_000)?;
        let withdrew = |host: &usize| forks(&stage, *host).iter().any(|undone| *undone > 2);
        assert!(many.iter().all(withdrew) && !few.iter().any(withdrew));
        assert_eq!(commit(&stage, few[0], 4).head.state, notice.attests().unwrap().state);
    }
    Ok(())
}

/// G11: what the organiser has not signed for this run counts for nothing, and costs whoever brings it; an attestation that
/// does not extend the one that is known is left alone, and costs nobody.
#[test]
fn g11_a_notice_that_is_none_is_refused() -> Played {
    let (mut stage, honest, liar) = five(64, None)?;
    let (third, fifth) = (commit(&stage, 0, 3), commit(&stage, 0, 5));
    let good = stage.attest(None, &third);
    let forger = Keypair::from_seed(&[0x66; 32]);
    let forged = Notice::after(stage.run, (0, Digest::ZERO), good.body.clone(), &forger);
    let other_run = Notice { run: intellect_protocol::base::id::RunId([9; 32]), ..good.clone() };
    let Body::Attestation(mut state) = good.body else { unreachable!() };
    state.epoch = 4;
    let moved = Notice { body: Body::Attestation(state), ..good.clone() };
    for (bad, count) in [(forged, 4), (other_run, 8), (moved, 12)] {
        stage.say_as(&honest, stage.name(liar), &Message::Notice(bad.clone()));
        // With the manifest it counts as little, and nobody is there to be blamed.
        stage.bring_notice(honest[0], &bad);
        stage.play(1_000)?;
        assert_eq!(stage.blamed.len(), count);
        assert_eq!(known(&stage, &honest), [0; 4]);
    }
    stage.bring_notice(honest[0], &good);
    stage.play(1_000)?;
    let beside = stage.attest(None, &commit(&stage, 0, 4));
    let astray = stage.attest(Some(&beside), &fifth);
    stage.say_as(&honest, stage.name(liar), &Message::Notice(astray));
    stage.play(1_000)?;
    assert_eq!((known(&stage, &honest), stage.blamed.len()), (vec![1; 4], 12));
    Ok(())
}

/// G11: the organiser has attested a state that nobody has any more. Nothing stops, and an earlier one counts
/// on; only who begins has nothing to follow.
#[test]
fn g11_an_attestation_of_an_unknown_state_stops_nothing() -> Played {
    let (mut stage, honest, liar) = five(64, None)?;
    (0..5).for_each(|host| stage.train_in(host, 3_000));
    let low = stage.attest(None, &commit(&stage, 0, 5));
    for notice in [&low, &lost(&stage)] {
        stage.bring_notice(honest[0], notice);
        stage.play(61_000)?;
    }
    assert_eq!(known(&stage, &honest), [2; 4]);
    let (links, head) = minted(&stage);
    tell_of(&mut stage, liar, &honest, &links, head)?;
    assert!(!set_out(&stage, &honest, head));
    let epoch = stage.epoch(0);
    reach(&mut stage, &honest, epoch + 3)?;
    assert!(honest.iter().all(|host| forks(&stage, *host).iter().all(|undone| *undone == 0)));
    Ok(())
}

/// G11: an attestation reaches who was away as it was gossiped, once it says that it knows of none; not more often than
/// once a minute.
#[test]
fn g11_who_has_missed_a_notice_is_told() -> Played {
    let (mut stage, honest, _) = five(64, None)?;
    let notice = stage.attest(None, &commit(&stage, 0, 5));
    let (deaf, told_it) = (honest[3], counter());
    let seen = told_it.clone();
    stage.direct(move |_, to, message| match message {
        Message::Notice(_) if to == deaf => {
            count(&seen);
            Fate::Drop
        }
        _ => Fate::Deliver,
    });
    stage.bring_notice(honest[0], &notice);
    stage.play(30_000)?;
    assert_eq!(known(&stage, &honest), [1, 1, 1, 0]);
    // One that each of the others gossips, and one that each sends.
    assert_eq!(told_it.get(), 8);
    stage.relent();
    stage.play(61_000)?;
    assert_eq!(known(&stage, &honest), [1; 4]);
    Ok(())
}

/// G11, G12: a liar says that its lineage lies on the newest notice, which nobody else's does. It is asked, its chain or
/// its links do not lead there, and it is left alone with that head; the others lose nothing.
#[test]
fn g11_a_claim_that_is_a_lie_costs_little() -> Played {
    for in_chain in [false, true] {
        let (mut stage, honest, liar) = five(64, None)?;
        (0..5).for_each(|host| stage.train_in(host, 3_000));
        let notice = lost(&stage);
        stage.bring_notice(honest[0], &notice);
        stage.play(1_000)?;
        let base = commit(&stage, 0, 2);
        // With fewer tokens than ours nothing but the claim speaks for it.
        let (links, head) = mint(&stage, &base, &[voter(&stage, &base, liar)], 10, 1);
        assert!(head.rank(0) < stage.head(0).unwrap().rank(0));
        let lie = in_chain.then(|| *notice.attests().unwrap());
        let answers = claim(&mut stage, liar, &honest, &links, (head, notice.number, lie))?;
        assert!(!set_out(&stage, &honest, head));
        // Each asks for its links, for its chain, and for the links where it parts, to tell of the fork at least.
        assert!((4..=4 * 3).contains(&answers), "{answers} answers, {in_chain}");
        assert!(stage.blamed.is_empty(), "{:?}", stage.blamed);
        let epoch = stage.epoch(0);
        reach(&mut stage, &honest, epoch + 3)?;
    }
    Ok(())
}
