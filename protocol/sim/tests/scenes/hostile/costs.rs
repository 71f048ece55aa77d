//! Voters that lie: how many attempts one of them may cost, and what it may claim about votes.

use intellect_protocol::message::{Accept, Loss, Ranked, Ready, Report};

use super::*;

/// One of five voters queries for the next attempt every `every_ms`, or `after_ms` after each
/// roster. It is never Ready, which costs each epoch a wait of 4 s for it. Few attempts may fail.
fn one_voter_asks(every_ms: Option<u64>, after_ms: Option<u64>) -> Played {
    let length_ms = 3 * MINUTE_MS;
    let (mut world, all) = founded(5, 0, None)?;
    let (x, honest) = all.split_last().unwrap();
    let mut liars = [Liar::voter(&world, *x, honest[0])];
    world.kill(&[*x]);
    let (mut next_ms, mut attempt, mut series) = (0, 2, None);
    let mut due = Vec::new();
    lie(&mut world, honest, &mut liars, length_ms, |world, liars, said| {
        let now_ms = world.now_ms;
        match &said {
            Some((_, Message::Roster(roster))) => {
                if series.replace(roster.series) != Some(roster.series) {
                    attempt = 2;
                }
                attempt = attempt.max(roster.attempt + 1);
                let digest = wire::roster_digest(&world.run, roster);
                let accept = Accept { series: roster.series, roster: digest };
                world.say_as(honest, liars[0].name, &Message::Accept(accept));
                due.extend(after_ms.map(|after| now_ms + after));
            }
            Some((_, Message::Query(query))) if Some(query.series) == series => {
                attempt = attempt.max(query.attempt + 1);
            }
            _ => {}
        }
        let mut asks = due.extract_if(.., |at_ms| *at_ms <= now_ms).count() > 0;
        if now_ms >= next_ms
            && let Some(every_ms) = every_ms
        {
            next_ms = now_ms + every_ms;
            asks = true;
        }
        if asks && let Some(series) = series {
            liars[0].ask(world, honest, series, attempt);
            attempt += 1;
        }
    })?;
    let epochs = least_epoch(&world, honest) - 1;
    let attempts = world.report.of(Count::Attempts);
    let due = length_ms / 6_000;
    assert!(epochs >= due, "{epochs} epochs instead of {due}, {attempts} attempts");
    assert!(attempts <= epochs, "{attempts} attempts for {epochs} epochs");
    assert_voters(&world, honest);
    ends_amid(world, &[Trains, Training, Ring])
}

/// G2: queries all the time must not interrupt running rings, or no epoch would commit.
#[test]
fn a_voter_that_asks_all_the_time_costs_few_attempts() -> Played {
    one_voter_asks(Some(20), None)
}

/// G2: the same with queries sent just after each roster, while its ring runs.
#[test]
fn a_voter_that_asks_while_rings_run_costs_few_attempts() -> Played {
    one_voter_asks(None, Some(6))
}

/// G4: one of five voters is Ready and refuses each roster that names it. It may cost each epoch
/// two attempts, and then has no position; otherwise no ring would ever open.
#[test]
pub(super) fn a_voter_that_refuses_every_roster_has_no_place() -> Played {
    let (mut world, all) = founded(5, 0, None)?;
    let (x, honest) = all.split_last().unwrap();
    let mut liars = [Liar { ready: 100, ..Liar::voter(&world, *x, honest[0]) }];
    world.kill(&[*x]);
    let mut told = BTreeSet::new();
    lie(&mut world, honest, &mut liars, MINUTE_MS, |world, liars, said| {
        let Some((_, Message::Roster(roster))) = said else { return };
        let digest = wire::roster_digest(&world.run, &roster);
        let place = roster.member(&liars[0].name).is_some_and(|member| member.weight > 0);
        if place && told.insert(digest.0) {
            liars[0].refuse(world, &roster);
        }
    })?;
    let (epochs, attempts) = (least_epoch(&world, honest) - 1, world.report.of(Count::Attempts));
    assert!(!told.is_empty(), "it never had a place");
    assert!(epochs >= 10 && attempts <= 3 * epochs, "{epochs} epochs, {attempts} attempts");
    assert_voters(&world, honest);
    ends(world, &[Trains])
}

/// G13: one of six accepts rosters and never sends. Soon it has no
/// position, and few epochs wait for it.
#[test]
pub(super) fn who_never_sends_is_remembered() -> Played {
    let (mut world, all) = founded(6, 0, None)?;
    let (x, honest) = all.split_last().unwrap();
    world.send_in_rings(*x, Sends::Never);
    reach(&mut world, honest, 20)?;
    let places = (2..=20)
        .filter(|epoch| weight(&world, &commit(&world, honest[0], *epoch), *x).unwrap_or(0) > 0);
    let (places, attempts) = (places.count(), world.report.of(Count::Attempts));
    assert!(places == 0 && attempts <= 30, "{places} places, {attempts} attempts");
    ends_amid(world, &[Trains, Update])
}

/// R40: two of nine accept rosters and never send. Their rings show where each stands still, so the
/// first epoch needs at most four more, and the others keep their positions.
#[test]
pub(super) fn two_that_never_send_cost_few_rings() -> Played {
    let (mut world, all) = founded(9, 0, None)?;
    let (honest, silent) = all.split_at(7);
    let before = world.report.of(Count::Attempts);
    silent.iter().for_each(|host| world.send_in_rings(*host, Sends::Never));
    reach(&mut world, honest, 2)?;
    let link = commit(&world, honest[0], 2);
    let placed = honest.iter().filter(|host| weight(&world, &link, **host).unwrap_or(0) > 0);
    let (placed, failed) = (placed.count(), world.report.of(Count::Attempts) - before);
    assert!(placed >= 5 && failed <= 4, "{placed} of 7 have a position after {failed} attempts");
    ends(world, &[Trains])
}

/// G14: a majority of five has voted, but `c` and `d` heard of `x`'s vote only. `x` lies and claims
/// that it has not voted. They take no other value, and what was decided stays.
#[test]
pub(super) fn who_hides_its_vote_is_not_heard() -> Played {
    let (mut world, all) = founded(5, 0, None)?;
    let [a, b, c, d, x] = all[..] else { unreachable!() };
    for host in [c, d] {
        world.train_in(host, 60_000);
        world.load_in(host, 8 * 60_000);
    }
    let votes = Votes::default();
    let noted = votes.clone();
    world.direct(move |from, to, message| match message {
        Message::Done(done) if epoch_of(message) == 2 => {
            noted.borrow_mut().insert(from, done.update);
            let shown = from == x || ![c, d].contains(&to);
            if shown && [c, d, x].contains(&to) { Fate::Deliver } else { Fate::Drop }
        }
        Message::Commit(_) => Fate::Drop,
        _ => Fate::Deliver,
    });
    let voted = |votes: &Votes| [a, b, x].iter().all(|host| votes.borrow().contains_key(host));
    assert!(world.until(END_MS, |_| voted(&votes))?, "{:?}", votes.borrow());
    let decided = votes.borrow()[&x];
    let mut liars = [Liar::voter(&world, x, c)];
    world.kill(&[a, b, x]);
    [c, d].iter().for_each(|host| world.train_in(*host, 400));
    lie(&mut world, &[c, d], &mut liars, 7_000, |world, liars, said| match said {
        Some((from, Message::Query(Query { series, attempt, .. }))) => {
            let log = liars[0].log;
            let status = Status { series, log, attempt, done: None, holds_forced: false };
            world.say_as(&[c, d], liars[0].name, &Message::Status(status));
            let (chunks, ready, present) = (Vec::new(), None, Vec::new());
            let report = Report { series, attempt, chunks, ready, present };
            world.say_as(&[from], liars[0].name, &Message::Report(report));
        }
        Some((_, Message::Roster(roster))) => {
            let (series, roster) = (roster.series, wire::roster_digest(&world.run, &roster));
            let accept = Accept { series, roster };
            world.say_as(&[c, d], liars[0].name, &Message::Accept(accept));
        }
        _ => {}
    })?;
    let taken = [c, d].map(|host| world.commit(host, 2).map(|committed| committed.receipt.update));
    assert!(taken.iter().flatten().all(|update| *update == decided), "{taken:?}, not {decided}");
    world.start(&[a, b]);
    [c, d].iter().for_each(|host| world.load_in(*host, 0));
    reach(&mut world, &[a, b, c, d], 2)?;
    assert_eq!(commit(&world, c, 2).receipt.update, decided);
    ends(world, &[Trains, Voters])
}

/// D1, G14: a lying voter shows votes of its own above every attempt, in its Status and in a roster
/// that adopts a value no ring computed. Both are faults, and neither forces a value.
#[test]
fn a_vote_above_its_own_attempt_forces_nothing() -> Played {
    for above in [1, u64::MAX] {
        let (mut world, all) = founded(4, 0, None)?;
        let (x, honest) = all.split_last().unwrap();
        let liar = Liar::voter(&world, *x, honest[0]);
        world.kill(&[*x]);
        let series = world.series(honest[0]).unwrap();
        let attempt = its_attempt(&world, honest[0], liar.name, 2);
        let high = attempt.saturating_add(above);
        let members = members(&world, honest[0], &[(honest[0], 0), (*x, 100)], |voters| voters);
        let mut roster = free_roster(&world, series, attempt, liar.name, members);
        let receipt = roster.receipt(Digest([7; 32]));
        let r = wire::receipt_digest(&world.run, &receipt);
        roster.adopt = Some(receipt);
        let done = Some(Ranked { depth: 0, attempt: high, r });
        let status = Status { series, log: liar.log, attempt, done, holds_forced: false };
        let key = Keypair::simulated(liar.name);
        let signed = wire::seal(&key, &world.run, Message::Status(status)).signature();
        for heard in roster.heard.iter_mut().filter(|heard| heard.voter.peer == liar.name) {
            (heard.done, heard.signature) = (done, signed);
        }
        liar.ask(&mut world, honest, series, attempt);
        world.play(5)?;
        world.say_as(honest, liar.name, &Message::Status(status));
        world.say_as(honest, liar.name, &Message::Roster(roster));
        reach(&mut world, honest, 2)?;
        assert_ne!(commit(&world, honest[0], 2).receipt.update, Digest([7; 32]));
        let of_it = world.blamed.iter().filter(|(who, fault)| {
            *who == liar.name && fault.to_string().contains("no voter can have given")
        });
        assert_eq!(of_it.count(), 2 * honest.len(), "{:?}", world.blamed);
        ends(world, &[Trains])?;
    }
    Ok(())
}

/// G5: training takes a minute, and one of six voters is alive and never Ready. In an hour the
/// others commit nine tenths of what they commit with it; the wait for it grows rare.
#[test]
fn g5_a_voter_that_is_never_ready_costs_little() -> Played {
    let mut committed = Vec::new();
    for ready in [true, false] {
        let (mut world, all) = founded(6, 0, None)?;
        let (slow, others) = all.split_last().unwrap();
        all.iter().for_each(|host| world.train_in(*host, MINUTE_MS));
        let before = least_epoch(&world, others);
        if !ready {
            world.train_in(*slow, u64::MAX / 4);
        }
        world.play(60 * MINUTE_MS)?;
        committed.push(least_epoch(&world, others) - before);
        assert_voters(&world, &all);
        ends(world, &[Trains])?;
    }
    assert!(10 * committed[1] >= 9 * committed[0], "{committed:?}");
    Ok(())
}

/// Five voters train for four to six seconds, and `act` speaks for a sixth key every 20 ms: that of a
/// voter, or of a stranger. After some minutes they keep four fifths of their pace without it.
fn costs_a_fifth(stranger: bool, mut act: impl FnMut(&mut World, &[usize], &mut Liar)) -> Played {
    let mut pace = |lies: bool| -> Result<u64, Violation> {
        let (mut world, all) = founded(if stranger { 5 } else { 6 }, 0, None)?;
        let others = &all[..5];
        others.iter().for_each(|host| world.train_in(*host, 4_000));
        world.train_in(others[4], 5_600);
        let mut liar = if stranger {
            Liar::stranger(STRANGER)
        } else {
            world.kill(&all[5..]);
            Liar::voter(&world, all[5], others[0])
        };
        let mut play = |world: &mut World, length_ms: u64| -> Result<u64, Violation> {
            let (begin, end_ms) = (least_epoch(world, others), world.now_ms + length_ms);
            while world.now_ms < end_ms {
                if lies {
                    act(world, others, &mut liar);
                    liar.live(world, others);
                }
                world.play(20)?;
            }
            Ok(least_epoch(world, others) - begin)
        };
        play(&mut world, 3 * MINUTE_MS)?;
        let epochs = play(&mut world, 5 * MINUTE_MS)?;
        ends_amid(world, &[Trains, Training, PassedOver, Ring, End::Votes, End::Roster])?;
        Ok(epochs)
    };
    let (without, with) = (pace(false)?, pace(true)?);
    assert!(10 * with >= 8 * without, "{with} epochs, and {without} without it");
    Ok(())
}

const STRANGER: u8 = 231;

/// What a key declares: that it is Ready in the open epoch of `host`, for this start.
fn declare(world: &mut World, to: &[usize], liar: &Liar, incarnation: u64) {
    let series = world.series(to[0]).unwrap();
    let ready = Ready { series, incarnation, weight: 100, norm: 1.0, loss: Loss(2.0) };
    world.say_as(to, liar.name, &Message::Ready(ready));
}

/// G5: in each epoch it declares Ready for a start that its heartbeats do not name.
#[test]
fn g5_ready_for_another_start() -> Played {
    for stranger in [true, false] {
        let mut declared = None;
        costs_a_fifth(stranger, |world, others, liar| {
            let series = world.series(others[0]);
            if declared.replace(series) != Some(series) {
                declare(world, others, liar, liar.incarnation + 1);
            }
        })?;
    }
    Ok(())
}

/// G5: it is behind until the others have lost their patience, and then trains.
#[test]
fn g5_here_only_after_the_patience_of_others() -> Played {
    let mut began = (None, 0);
    costs_a_fifth(true, |world, others, liar| {
        let series = world.series(others[0]);
        if began.0 != series {
            began = (series, world.now_ms);
        }
        let is_over = world.now_ms > began.1 + 5_200;
        liar.phase = if is_over { Phase::Train } else { Phase::Behind };
    })
}

/// G5: a newcomer is never Ready, and a voter declares Ready for one start after another: the wait for the newcomer
/// begins with the last voter that is Ready, and does not begin again.
#[test]
fn g5_ready_again_and_again() -> Played {
    let mut newcomer = Liar::stranger(STRANGER);
    costs_a_fifth(false, |world, others, liar| {
        if world.now_ms % 200 < 20 {
            liar.incarnation += 1;
            declare(world, others, liar, liar.incarnation);
        }
        newcomer.live(world, others);
    })
}
