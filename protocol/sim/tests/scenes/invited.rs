//! Runs of invited peers: admission, notices and revocation (T1–T11, S8–S10).

use intellect_protocol::access::admit::Denied;
use intellect_protocol::base::id::RunId;
use intellect_protocol::message::{Clause, Invite, Notice, Phase, Terms, Ticket};
use intellect_protocol_sim::world::invited::key;

use super::*;

/// The keys of the organiser of these runs, and of the founders' invite.
const ORGANISER: u8 = 0x0e;
const FOUNDERS: u8 = 0xf0;
/// When the runs begin, in Unix seconds.
const NOW: u64 = 1_000_000_000;

/// `count` invited peers that have founded the run, and `spare` hosts without a ticket.
fn run(
    count: usize,
    spare: usize,
    without: Option<Rule>,
) -> Result<(World, Vec<usize>), Violation> {
    let mut world = scene(count + spare, 0, without);
    world.invite(NOW);
    let hosts: Vec<usize> = (0..count).collect();
    let invite = world.new_invite(FOUNDERS, ORGANISER, |terms| terms.uses = 100);
    world.hand_all(&hosts, FOUNDERS, &invite);
    world.start(&hosts);
    assert!(world.until(END_MS, |world| all_at(world, &hosts, 1))?, "nobody founds");
    let order = world.voters(0);
    assert_eq!(order.len(), count, "everyone founds");
    Ok((world, order))
}

/// Whether `host` has a position or a vote in what `other` committed as that epoch.
fn is_member(world: &World, other: usize, epoch: u64, host: usize) -> bool {
    world.commit(other, epoch).is_some_and(|c| weight(world, c, host).is_some())
}

/// Whether any of these hosts has reported a roster, a Regroup or a commit that names `host`.
fn was_named(world: &World, hosts: &[usize], host: usize) -> bool {
    let who = world.name(host);
    hosts.iter().any(|other| {
        reported(world, *other, |event| match event {
            Event::Roster { members, .. } | Event::Regroup { members, .. } => {
                members.contains(&who)
            }
            Event::Committed(c) => c.receipt.members.iter().any(|m| m.peer == who),
            _ => false,
        })
    })
}

/// The sentences with which `host` refuses `other`.
fn refusals(world: &World, host: usize, other: usize) -> Vec<String> {
    let who = world.name(other);
    let told = world.events(host).filter_map(|event| match event {
        Event::Refused { who: peer, why } if *peer == who => Some(why.to_string()),
        _ => None,
    });
    told.collect()
}

fn digests(world: &World, hosts: &[usize]) -> Vec<Digest> {
    hosts.iter().filter_map(|host| world.ledger(*host)).map(|l| l.digest()).collect()
}

/// Plays until notice `number` is in force at all hosts. Returns the
/// epoch whose receipt carries it.
fn carried(world: &mut World, hosts: &[usize], number: u64) -> Result<u64, Violation> {
    let there = |world: &World, host: usize| {
        world.ledger(host).is_some_and(|ledger| ledger.last().0 >= number)
    };
    let done = world.until(END_MS, |world| hosts.iter().all(|host| there(world, *host)))?;
    assert!(done, "notice {number} never came into force");
    // The event comes once its record is on disk.
    world.play(1_000)?;
    let carries = |c: &Committed| {
        c.receipt.trust.iter().flat_map(|t| &t.notices).any(|notice| notice.number == number)
    };
    let epochs: BTreeSet<u64> = hosts
        .iter()
        .flat_map(|host| world.events(*host))
        .filter_map(|event| match event {
            Event::Committed(c) if carries(c) => Some(c.head.epoch),
            _ => None,
        })
        .collect();
    assert_eq!(epochs.len(), 1, "one receipt carries notice {number}: {epochs:?}");
    Ok(epochs.first().copied().unwrap())
}

/// T2, T3: four peers show tickets. Each is a member at most two epochs later, several can be
/// admitted at once, and a heartbeat no longer shows a ticket that the ledger has.
#[test]
fn joiner_with_a_ticket_is_a_member_within_two_epochs() -> Played {
    let (mut world, all) = run(3, 4, None)?;
    reach(&mut world, &all, 3)?;
    let invite = world.new_invite(0xf1, ORGANISER, |terms| terms.uses = 4);
    world.hand_all(&[3, 4, 5, 6], 0xf1, &invite);
    world.start(&[3, 4, 5, 6]);
    let joined =
        |world: &World, host| reported(world, host, |e| matches!(e, Event::CaughtUp { .. }));
    assert!(world.until(END_MS, |world| (3..7).all(|host| joined(world, host)))?);
    let there = world.epoch(all[0]);
    reach(&mut world, &all, there + 3)?;
    for host in 3..7 {
        let member = (there..=there + 2).any(|epoch| is_member(&world, all[0], epoch, host));
        assert!(member, "host {host} is no member from epoch {there} on");
        let who = world.name(host);
        assert!(reported(
            &world,
            all[0],
            |e| matches!(e, Event::Admitted { who: w, .. } if *w == who)
        ));
    }
    let ledger = world.ledger(all[0]).unwrap();
    assert_eq!(ledger.invites()[&key(0xf1).peer()].spent, 4);
    reach(&mut world, &[3, 4, 5, 6], there + 3)?;
    for host in 3..7 {
        let judged = all.iter().flat_map(|member| refusals(&world, host, *member));
        assert_eq!(judged.count(), 0, "a newcomer judges no member by its empty ledger");
    }
    ends(world, &[Trains])
}

/// T2: a peer without a ticket is never named. It gets one sentence of refusal,
/// and costs the others no time.
#[test]
fn stranger_without_a_ticket_is_never_named() -> Played {
    let (mut world, all) = run(3, 1, None)?;
    reach(&mut world, &all, 3)?;
    let pace = |world: &mut World| -> Result<u64, Violation> {
        let (from_ms, from) = (world.now_ms, world.epoch(all[0]));
        reach(world, &all, from + 10)?;
        Ok((world.now_ms - from_ms) / 10)
    };
    let alone_ms = pace(&mut world)?;
    world.start(&[3]);
    let beside_ms = pace(&mut world)?;
    assert!(!was_named(&world, &all, 3));
    assert!(beside_ms <= alone_ms + alone_ms / 10, "{beside_ms} ms an epoch, {alone_ms} before");
    let told = refusals(&world, all[0], 3);
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].contains("invited peers only") && told[0].contains("--invite"), "{told:?}");
    ends_amid(world, &[Trains, Update])
}

#[test]
fn t2_is_missed() {
    missed(Rule::T2, stranger_without_a_ticket_is_never_named);
}

/// T3, S10: twenty peers race for five uses of one invite, and exactly five are admitted.
#[test]
fn uses_are_exact() -> Played {
    let (mut world, all) = run(3, 20, None)?;
    reach(&mut world, &all, 2)?;
    let invite = world.new_invite(0xf1, ORGANISER, |terms| terms.uses = 5);
    let racers: Vec<usize> = (3..23).collect();
    world.hand_all(&racers, 0xf1, &invite);
    world.start(&racers);
    let spent = |world: &World| {
        let ledger = world.ledger(all[0]).unwrap();
        ledger.invites().get(&key(0xf1).peer()).map_or(0, |account| account.spent)
    };
    assert!(world.until(END_MS, |world| spent(world) == 5)?, "{} came", spent(&world));
    let from = world.epoch(all[0]);
    reach(&mut world, &all, from + 10)?;
    assert_eq!(spent(&world), 5);
    let came = racers
        .iter()
        .filter(|host| world.ledger(all[0]).unwrap().admits(&world.name(**host)).is_ok());
    assert_eq!(came.count(), 5);
    let told: Vec<String> =
        racers.iter().flat_map(|host| refusals(&world, all[0], *host)).collect();
    assert!(told.iter().any(|told| told.contains("used 5 of 5 times")), "{told:?}");
    ends_amid(world, &[Trains, Update])
}

/// The refusal of a peer that shows this ticket from epoch 3 on; it must never be named.
fn refused(count: usize, ticket: impl Fn(&World) -> Ticket) -> Result<String, Violation> {
    let (mut world, all) = run(count, 1, None)?;
    reach(&mut world, &all, 3)?;
    let ticket = ticket(&world);
    world.hand(count, ticket);
    world.start(&[count]);
    let from = world.epoch(all[0]);
    reach(&mut world, &all, from + 4)?;
    assert!(!was_named(&world, &all, count));
    let told = refusals(&world, all[0], count);
    assert_eq!(told.len(), 1, "{told:?}");
    ends_amid(world, &[Trains, Update])?;
    Ok(told[0].clone())
}

/// T2–T4: each kind of bad ticket has its own sentence.
#[test]
fn bad_tickets_are_refused_with_their_sentences() -> Played {
    let by =
        |world: &World, invite: Invite, host| Ticket::invited(invite, &key(0xf1), world.name(host));
    let of = |world: &World, change: &dyn Fn(&mut Terms)| {
        by(world, world.new_invite(0xf1, ORGANISER, change), 2)
    };
    let told = refused(2, |world| {
        let invite = world.new_invite(0xf1, ORGANISER, |_| {});
        by(world, Invite { run: RunId([7; 32]), ..invite }, 2)
    })?;
    assert!(told.contains("this invite is for run 07070707"), "{told}");
    let told = refused(2, |world| by(world, world.new_invite(0xf1, ORGANISER, |_| {}), 0))?;
    assert!(told.contains("this ticket is for peer"), "{told}");
    let told = refused(2, |world| of(world, &|terms| terms.expires = NOW - 3_700))?;
    assert!(told.contains("expired at"), "{told}");
    let told = refused(2, |world| of(world, &|terms| terms.until_epoch = 2))?;
    assert!(told.contains("valid until epoch 2"), "{told}");
    let told = refused(2, |world| by(world, world.new_invite(0xf1, 0xbb, |_| {}), 2))?;
    assert!(told.contains("has not signed this"), "{told}");
    Ok(())
}

/// T4: a clock that is an hour ahead refuses no ticket. One that is hours ahead does,
/// and costs itself its position: only a majority of the voters can keep a peer out by
/// their clocks. The run goes on.
#[test]
fn the_clock_of_one_voter_keeps_nobody_out() -> Played {
    let expires = NOW + 60;
    for (ahead, off, comes) in [(1, 3_600, true), (1, 20_000, true), (2, 20_000, false)] {
        let mut world = World::scene(4, 0, None);
        world.invite(NOW);
        let founders = world.new_invite(FOUNDERS, ORGANISER, |terms| terms.uses = 3);
        world.hand_all(&[0, 1, 2], FOUNDERS, &founders);
        (0..ahead).for_each(|host| world.set_clock(host, off));
        world.start(&[0, 1, 2]);
        reach(&mut world, &[0, 1, 2], 2)?;
        let invite = world.new_invite(0xf1, ORGANISER, |terms| terms.expires = expires);
        world.hand_all(&[3], 0xf1, &invite);
        world.start(&[3]);
        reach(&mut world, &[0, 1, 2], 8)?;
        let came = (2..=8).any(|epoch| is_member(&world, 2, epoch, 3));
        assert_eq!(came, comes, "{ahead} clocks off by {off} s");
        assert!(regroups(&world, 2).is_empty());
        ends_amid(world, &[Trains, Update])?;
    }
    Ok(())
}

/// T5, T8: a notice that is not the next one, or that another key has signed, counts for nothing.
#[test]
fn bad_notices_count_for_nothing() -> Played {
    let (mut world, all) = run(3, 0, None)?;
    let revoke = || vec![Clause::RevokePeer(world.name(all[2]))];
    let none = (0, Digest::ZERO);
    let forged = world.update(none, 0xbb, revoke());
    let late = world.update((1, Digest([1; 32])), ORGANISER, revoke());
    let beside = world.update((0, Digest([1; 32])), ORGANISER, revoke());
    let good = world.update(none, ORGANISER, revoke());
    for notice in [&forged, &late, &beside] {
        world.hand_notice(&all, notice);
    }
    reach(&mut world, &all, 5)?;
    assert_eq!(world.ledger(0).unwrap().last(), none);
    let ledger = world.ledger(0).unwrap();
    let why = |notice: &Notice| ledger.check_notice(notice).map_err(|why| why.to_string());
    assert!(why(&forged).unwrap_err().contains("notice 1 is not signed"));
    assert!(why(&late).unwrap_err().contains("notice 2 contradicts notice 0"));
    assert!(why(&beside).unwrap_err().contains("notice 1 contradicts notice 0"));
    assert_eq!(why(&good), Ok(()));
    world.hand_notice(&all[..1], &good);
    carried(&mut world, &all[..2], 1)?;
    ends(world, &[Trains])
}

/// T5, T6, S8, S9: a notice is brought to one peer and is in force at all of them from the same
/// epoch on. The revoked peer votes on that epoch, without a position, and on no other.
#[test]
fn revoked_at_the_same_epoch_for_everybody() -> Played {
    let (mut world, all) = run(4, 0, None)?;
    reach(&mut world, &all, 3)?;
    let [a, b, c, d] = all[..] else { unreachable!() };
    let notice =
        world.update((0, Digest::ZERO), ORGANISER, vec![Clause::RevokePeer(world.name(d))]);
    world.hand_notice(&[b], &notice);
    let epoch = carried(&mut world, &[a, b, c], 1)?;
    let of = commit(&world, a, epoch);
    assert_eq!(weight(&world, &of, d), Some(0), "it votes on this epoch, without a place");
    reach(&mut world, &[a, b, c], epoch + 5)?;
    assert!((epoch + 1..epoch + 5).all(|later| !is_member(&world, a, later, d)));
    let ledgers = digests(&world, &[a, b, c]);
    assert!(ledgers.windows(2).all(|pair| pair[0] == pair[1]), "{ledgers:?}");
    for host in [a, b, c] {
        let in_force =
            |e: &Event| matches!(e, Event::Notice { in_force: Some(at), .. } if *at == epoch);
        let revoked = |e: &Event| {
            matches!(e, Event::Revoked { who, notice: 1, epoch: at }
                if (*who, *at) == (world.name(d), epoch))
        };
        assert!(reported(&world, host, in_force) && reported(&world, host, revoked));
        let gone = |e: &Event| matches!(e, Event::Admitted { .. });
        assert!(reported(&world, host, gone));
    }
    assert!(regroups(&world, a).is_empty(), "the others are a majority");
    ends_amid(world, &[Trains, Update])
}

#[test]
fn t6_is_missed() {
    missed(Rule::T6, revoked_at_the_same_epoch_for_everybody);
}

/// T5: one acceptor knows a notice, and the proposer carries it. Without the rule the proposer,
/// which has not heard of it, goes on without it.
#[test]
fn t5_proposers_carry_what_any_acceptor_knows() -> Played {
    let played = |without| -> Result<bool, Violation> {
        let (mut world, all) = run(4, 0, without)?;
        reach(&mut world, &all, 3)?;
        let (knows, others) = all.split_last().unwrap();
        // It hears of the notice, and can report it by a refusal only.
        let mute = *knows;
        world.direct(move |from, _, message| match message {
            Message::Notice(_) if from == mute && without.is_some() => Fate::Drop,
            Message::Roster(_) if from == mute => Fate::Drop,
            _ => Fate::Deliver,
        });
        let target = world.name(others[0]);
        let notice = world.update((0, Digest::ZERO), ORGANISER, vec![Clause::RevokePeer(target)]);
        world.hand_notice(&[mute], &notice);
        let from = world.epoch(mute);
        reach(&mut world, &others[1..], from + 4)?;
        let is_carried = world.ledger(others[1]).unwrap().last().0 == 1;
        ends_amid(world, &[Trains, Update])?;
        Ok(is_carried)
    };
    assert!(played(None)?);
    assert!(!played(Some(Rule::T5))?);
    Ok(())
}

/// T7: a value that was voted for is adopted unchanged; the notice comes with the next epoch.
#[test]
fn notice_and_adoption() -> Played {
    let (mut world, all) = run(3, 0, None)?;
    let [a, b, c] = all[..] else { unreachable!() };
    reach(&mut world, &all, 2)?;
    // Votes on epoch 3 reach no peer until one of them queries.
    world.direct(move |_, _, message| match message {
        Message::Done(done) if done.series.epoch == 3 => Fate::Drop,
        Message::Commit(_) => Fate::Drop,
        _ => Fate::Deliver,
    });
    let voted = |world: &World| world.phase(a).is_some_and(|(phase, _)| phase == Phase::Finished);
    assert!(world.until(END_MS, |world| world.epoch(a) == 2 && voted(world))?);
    let notice =
        world.update((0, Digest::ZERO), ORGANISER, vec![Clause::RevokePeer(world.name(c))]);
    world.hand_notice(&[a, b, c], &notice);
    let adopts = |world: &World| accepted(world, a, 3).iter().any(|(_, adopt)| adopt.is_some());
    assert!(world.until(END_MS, |world| adopts(world))?, "nobody adopts");
    world.let_through();
    let epoch = carried(&mut world, &[a, b], 1)?;
    assert_eq!(epoch, 4);
    let of = |epoch| all.iter().find_map(|host| world.commit(*host, epoch)).unwrap();
    assert!(of(3).receipt.trust.is_none());
    assert_eq!(weight(&world, of(4), c), Some(0));
    ends(world, &[Trains])
}

/// T5: of five notices that are due, four are carried, and the fifth one epoch later.
#[test]
fn five_notices() -> Played {
    let (mut world, all) = run(3, 0, None)?;
    reach(&mut world, &all, 2)?;
    let mut last = (0, Digest::ZERO);
    for name in 1..=5 {
        let notice = world.update(last, ORGANISER, vec![Clause::Admit(PeerId([name; 32]))]);
        last = notice.place();
        world.hand_notice(&[all[1]], &notice);
    }
    let fourth = carried(&mut world, &all, 4)?;
    let fifth = carried(&mut world, &all, 5)?;
    let first = carried(&mut world, &all, 1)?;
    assert_eq!((first, fifth), (fourth, fourth + 1));
    assert_eq!(world.ledger(all[0]).unwrap().last(), last);
    ends(world, &[Trains])
}

/// T8: of two notices with one number, the one in the lineage stays.
#[test]
fn two_notices_of_one_number() -> Played {
    let (mut world, all) = run(4, 0, None)?;
    let [a, b, c, d] = all[..] else { unreachable!() };
    reach(&mut world, &all, 2)?;
    let none = (0, Digest::ZERO);
    let [one, other] =
        [c, d].map(|who| world.update(none, ORGANISER, vec![Clause::RevokePeer(world.name(who))]));
    world.hand_notice(&[a], &one);
    world.hand_notice(&[b], &other);
    carried(&mut world, &[a, b], 1)?;
    let from = world.epoch(a);
    reach(&mut world, &[a, b], from + 3)?;
    let ledger = world.ledger(a).unwrap();
    let stands = ledger.last();
    assert!(stands == one.place() || stands == (1, other.place().1));
    assert_eq!([c, d].iter().filter(|host| ledger.revokes(&world.name(**host))).count(), 1);
    // The next notice follows on it, whatever other notice a peer has heard of.
    let next = world.update(stands, ORGANISER, vec![Clause::Admit(PeerId([1; 32]))]);
    world.hand_notice(&[b], &next);
    carried(&mut world, &[a, b], 2)?;
    ends(world, &[Trains])
}

/// T10: three of four are revoked. The one that is left goes on without them.
#[test]
fn revoked_are_the_majority() -> Played {
    let (mut world, all) = run(4, 0, None)?;
    reach(&mut world, &all, 2)?;
    let (left, gone) = all.split_last().unwrap();
    // The revoked peers do not hear of the notice.
    let deaf = gone.to_vec();
    world.direct(move |_, to, message| match message {
        Message::Notice(_) if deaf.contains(&to) => Fate::Drop,
        _ => Fate::Deliver,
    });
    let clauses = gone.iter().map(|host| Clause::RevokePeer(world.name(*host))).collect();
    let notice = world.update((0, Digest::ZERO), ORGANISER, clauses);
    world.hand_notice(&[*left], &notice);
    let alone = |world: &World| world.ledger(*left).is_some_and(|ledger| ledger.last().0 == 1);
    assert!(world.until(END_MS, |world| alone(world))?, "{:?}", world.head(*left));
    assert_eq!(world.voters(*left), [*left]);
    let entered = regroups(&world, *left);
    assert!(entered.iter().any(|(members, absent)| members == &[*left] && *absent == sorted(gone)));
    ends_amid(world, &[Trains, End::Roster, Accepts])
}

/// T10: four of seven voters die and one of the others is revoked, which one of the last two does not
/// hear. The proposer calls it silent; the other one hears it, and joins because of the notice that
/// the Regroup brings. It joins none that does not bring that notice.
#[test]
fn t10_who_is_silent_to_one_and_revoked_to_another() -> Played {
    let mut proposals = Vec::new();
    for (deaf, knows) in [(0, true), (0, false), (1, true), (1, false)] {
        for first in 0..7 {
            proposals.push(revoked_and_silent(first, deaf, knows)?);
        }
    }
    assert!(proposals.contains(&(true, true)), "never proposed where it is silent");
    assert!(proposals.contains(&(true, false)), "the notice was always known");
    Ok(())
}

/// Plays with two voters, of which the first one is at place `first` in the ring and the `deaf` one `knows` the notice
/// or not. Returns whether that one proposed a Regroup, and whether its first one brought the notice.
fn revoked_and_silent(first: usize, deaf: usize, knows: bool) -> Result<(bool, bool), Violation> {
    let (mut world, mut all) = run(7, 0, None)?;
    all.rotate_left(first);
    let (pair, revoked) = ([all[0], all[1]], all[2]);
    let [deaf, other] = [pair[deaf], pair[1 - deaf]];
    let brought: Noted<Option<bool>> = Rc::default();
    let noted = brought.clone();
    world.direct(move |from, to, message| match message {
        Message::Regroup(regroup) if from == deaf => {
            noted.borrow_mut().get_or_insert(regroup.trust.is_some());
            Fate::Deliver
        }
        // A roster would bring the notice too.
        Message::Notice(_) | Message::Roster(_)
            if to == deaf && noted.borrow().is_none() && !knows =>
        {
            Fate::Drop
        }
        _ if from == revoked && to == deaf => Fate::Drop,
        _ => Fate::Deliver,
    });
    world.play(100)?;
    world.kill(&all[3..]);
    let clauses = vec![Clause::RevokePeer(world.name(revoked))];
    let notice = world.update((0, Digest::ZERO), ORGANISER, clauses);
    world.hand_notice(&[other], &notice);
    reach(&mut world, &pair, 3)?;
    for host in pair {
        assert_eq!(regroups(&world, host), [(sorted(&pair), sorted(&all[2..]))]);
        assert!(world.ledger(host).unwrap().revokes(&world.name(revoked)));
    }
    ends_amid(world, &[Trains, Update])?;
    Ok((brought.borrow().is_some(), brought.borrow().unwrap_or_default()))
}

/// T6: a revoked peer cannot use its invite code again with another key. A peer that joined with
/// the same code stays, until the organiser revokes the invite with all peers that joined with it.
#[test]
fn an_invite_is_closed_with_its_peer_and_its_peers_with_it() -> Played {
    let (mut world, all) = run(3, 3, None)?;
    reach(&mut world, &all, 2)?;
    let invite = world.new_invite(0xf1, ORGANISER, |terms| terms.uses = 5);
    world.hand_all(&[3, 4, 5], 0xf1, &invite);
    world.start(&[3, 4]);
    let came = |world: &World| {
        let ledger = world.ledger(all[0]).unwrap();
        (3..6).filter(|host| ledger.admits(&world.name(*host)).is_ok()).collect::<Vec<_>>()
    };
    assert!(world.until(END_MS, |world| came(world) == [3, 4])?, "{:?} came", came(&world));
    let none = (0, Digest::ZERO);
    let one = world.update(none, ORGANISER, vec![Clause::RevokePeer(world.name(3))]);
    world.hand_notice(&[all[0]], &one);
    carried(&mut world, &all, 1)?;
    world.start(&[5]);
    let from = world.epoch(all[0]);
    reach(&mut world, &all, from + 4)?;
    assert_eq!(came(&world), [4]);
    let told = refusals(&world, all[0], 5);
    assert!(told.iter().any(|told| told.contains("revoked by notice 1")), "{told:?}");
    let clause = Clause::RevokeInvite { key: key(0xf1).peer(), admitted: true };
    let two = world.update(one.place(), ORGANISER, vec![clause]);
    world.hand_notice(&[all[0]], &two);
    carried(&mut world, &all, 2)?;
    assert!(came(&world).is_empty());
    // The organiser can admit the first one again by name.
    let last = two.place();
    let three = world.update(last, ORGANISER, vec![Clause::Admit(world.name(3))]);
    world.hand_notice(&[all[0]], &three);
    carried(&mut world, &all, 3)?;
    assert_eq!(came(&world), [3]);
    ends(world, &[Trains])
}

/// T2: three strangers found a run of their own under its id, by a forged manifest with their own
/// organiser. No member follows it, whatever its tokens.
#[test]
fn a_lineage_of_strangers_does_not_verify() -> Played {
    let (mut world, all) = run(2, 3, None)?;
    reach(&mut world, &all, 3)?;
    world.cut(&[2, 3, 4], 1);
    for host in [2, 3, 4] {
        world.forge_manifest(host, 0xee);
    }
    let invite = world.new_invite(0xf1, 0xee, |terms| terms.uses = 3);
    world.hand_all(&[2, 3, 4], 0xf1, &invite);
    world.start(&[2, 3, 4]);
    reach(&mut world, &[2, 3, 4], 6)?;
    let theirs = world.epoch(2);
    world.mend();
    world.cut(&[2, 3, 4], 0);
    reach(&mut world, &all, theirs + 20)?;
    assert!(forks(&world, all[0]).is_empty() && forks(&world, all[1]).is_empty());
    assert!(!was_named(&world, &all, 2));
    let blamed = world.blamed.iter().any(|(who, _)| *who == world.name(2));
    assert!(blamed || world.blamed.iter().any(|(who, _)| *who == world.name(3)), "nobody looked");
    ends(world, &[Trains])
}

/// T9: a founding admits as many peers as the invite has uses. A peer
/// without a ticket is no founder.
#[test]
fn founding_with_tickets() -> Played {
    let mut world = World::scene(6, 0, None);
    world.invite(NOW);
    let invite = world.new_invite(FOUNDERS, ORGANISER, |terms| terms.uses = 3);
    world.hand_all(&[0, 1, 2, 3], FOUNDERS, &invite);
    let named = Ticket::named(world.validator().run, world.name(4), 0, &key(ORGANISER));
    world.hand(4, named);
    world.start(&[0, 1, 2, 3, 4, 5]);
    let founded = |world: &World| (0..6).filter(|host| world.epoch(*host) >= 2).count() >= 4;
    assert!(world.until(END_MS, |world| founded(world))?, "nobody founds");
    let any = (0..6).find(|host| !world.voters(*host).is_empty()).unwrap();
    let ledger = world.ledger(any).unwrap();
    let came = (0..6).filter(|host| ledger.admits(&world.name(*host)).is_ok()).count();
    assert_eq!((came, ledger.invites()[&key(FOUNDERS).peer()].spent), (4, 3));
    assert!(ledger.admits(&world.name(4)).is_ok() && ledger.admits(&world.name(5)).is_err());
    assert!(matches!(ledger.admits(&world.name(5)), Err(Denied::Uninvited { .. })));
    ends_amid(world, &[Trains, Update])
}

/// T9: an invite of two uses brings three friends, and the run begins with three. Nobody is blamed for a founding that
/// their tickets make too small.
#[test]
fn founding_that_tickets_make_too_small() -> Played {
    let mut world = World::scene(3, 0, None);
    world.needs(3);
    world.invite(NOW);
    let invite = world.new_invite(FOUNDERS, ORGANISER, |terms| terms.uses = 2);
    world.hand_all(&[0, 1, 2], FOUNDERS, &invite);
    world.start(&[0, 1, 2]);
    world.play(5 * GRACE_MS)?;
    assert!((0..3).all(|host| world.epoch(host) == 0) && world.blamed.is_empty());
    for host in 0..3 {
        assert_eq!(world.wait(host), Some(Wait::Founders { here: 2, needed: 3 }));
    }
    ends(world, &[Founders])
}

/// S8: a joiner that loads a checkpoint has the same ledger as the others, though it saw none of
/// the epochs. So has a peer that restarts.
#[test]
fn joiner_has_the_whole_ledger() -> Played {
    let (mut world, all) = run(3, 2, None)?;
    reach(&mut world, &all, 2)?;
    let notice = world.update((0, Digest::ZERO), ORGANISER, vec![Clause::Admit(world.name(3))]);
    world.hand_notice(&[all[0]], &notice);
    while world.epoch(all[0]) < 2 * LINKS_KEPT as u64 {
        world.play(GRACE_MS)?;
    }
    world.start(&[3]);
    let is_voter = |world: &World| world.voters(all[0]).contains(&3);
    assert!(world.until(END_MS, |world| is_voter(world))?, "{:?}", world.head(3));
    world.kill(&all[..1]);
    world.start(&all[..1]);
    let hosts: Vec<usize> = all.iter().copied().chain([3]).collect();
    assert!(world.until(END_MS, |world| world.same(&hosts) && world.epoch(3) > 0)?);
    let ledgers = digests(&world, &hosts);
    assert!(ledgers.len() == 4 && ledgers.windows(2).all(|pair| pair[0] == pair[1]));
    ends(world, &[Trains, Alone])
}
