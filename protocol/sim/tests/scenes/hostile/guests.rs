//! Strangers that are Ready: what a key without a vote may cost the voters.

use intellect_protocol::message::{Accept, Leaving, Loss, Ready};

use super::*;

const STRANGER: u8 = 210;
const LENGTH_MS: u64 = 10 * MINUTE_MS;

/// One key is Ready by its heartbeats and refuses every roster that names it, to its proposer. The
/// voters must still commit 80 % of what they commit without it.
fn one_refuses(count: usize, named: bool) -> Played {
    let undisturbed = undisturbed(count, named, LENGTH_MS)?;
    let (mut world, all) = a_run(count, named)?;
    let mut liars = [Liar { ready: 100, ..Liar::stranger(STRANGER) }];
    let (mut told, mut refused) = (BTreeSet::new(), 0);
    lie(&mut world, &all, &mut liars, LENGTH_MS, |world, liars, said| {
        let Some((_, Message::Roster(roster))) = said else { return };
        let digest = wire::roster_digest(&world.run, &roster);
        if roster.member(&liars[0].name).is_some() && told.insert(digest.0) {
            refused += 1;
            liars[0].refuse(world, &roster);
        }
    })?;
    assert!(refused > 0, "it was never asked");
    assert_share(&world, &all, undisturbed, 80);
    ends_amid(world, &[Trains, Ring])
}

/// G4, R37: a run of three voters, of which two are a majority.
#[test]
fn who_refuses_every_roster_stops_no_three() -> Played {
    one_refuses(3, false)
}

/// G4, R37: eight voters, the size of a larger run.
#[test]
fn who_refuses_every_roster_stops_no_eight() -> Played {
    one_refuses(8, false)
}

/// G4: four voters that are named founders.
#[test]
fn who_refuses_every_roster_stops_no_named_founders() -> Played {
    one_refuses(4, true)
}

/// One key accepts every roster that names it, and queries for the next attempt 6 ms later. A query
/// of a peer without a vote must not count, or no ring would ever end.
fn one_asks(count: usize) -> Played {
    let undisturbed = undisturbed(count, false, LENGTH_MS)?;
    let (mut world, all) = a_run(count, false)?;
    let mut liars = [Liar { ready: 100, ..Liar::stranger(STRANGER) }];
    let (mut told, mut due) = (BTreeSet::new(), Vec::new());
    lie(&mut world, &all, &mut liars, LENGTH_MS, |world, liars, said| {
        let now_ms = world.now_ms;
        if let Some((_, Message::Roster(roster))) = said {
            let (series, digest) = (roster.series, wire::roster_digest(&world.run, &roster));
            if roster.member(&liars[0].name).is_some() && told.insert(digest.0) {
                let accept = Accept { series, roster: digest };
                world.say_as(&all, liars[0].name, &Message::Accept(accept));
                due.push((now_ms + 6, series, roster.attempt + 1));
            }
        }
        for (_, series, attempt) in due.extract_if(.., |(at_ms, ..)| *at_ms <= now_ms) {
            liars[0].ask(world, &all, series, attempt);
        }
    })?;
    assert!(!told.is_empty(), "it was never named");
    assert_share(&world, &all, undisturbed, 80);
    ends_amid(world, &[Trains, Ring])
}

/// G1: a run of three voters, of which two are a majority.
#[test]
pub(super) fn who_asks_for_the_next_attempt_stops_no_three() -> Played {
    one_asks(3)
}

/// G1: eight voters, the size of a larger run.
#[test]
fn who_asks_for_the_next_attempt_stops_no_eight() -> Played {
    one_asks(8)
}

/// One key queries for ever higher attempts, in steps that a peer may have missed, up to the
/// greatest number of 32 bits, and leaves. After that come 10 minutes, with a restart of all peers
/// first if `restarted`. The founders are named, since others could regroup once no number is left.
fn attempts_are_used_up(restarted: bool) -> Played {
    let (mut world, all) = a_run(4, true)?;
    for host in &all {
        world.train_in(*host, MINUTE_MS);
    }
    let mut liar = Liar { ready: 100, ..Liar::stranger(STRANGER) };
    liar.live(&mut world, &all);
    world.play(10)?;
    let series = world.series(all[0]).unwrap();
    for step in 1..=u32::MAX >> 16 {
        liar.ask(&mut world, &all, series, Attempt::from(step) << 16);
        if step % 64 == 0 {
            liar.live(&mut world, &all);
            world.play(1)?;
        }
    }
    liar.ask(&mut world, &all, series, Attempt::from(u32::MAX) - 1);
    world.play(1_000)?;
    let leaving = Leaving { head: world.head(all[0]).unwrap(), incarnation: liar.incarnation };
    world.say_as(&all, liar.name, &Message::Leaving(leaving));
    if restarted {
        world.kill(&all);
        world.play(20_000)?;
        world.start(&all);
    }
    world.play(LENGTH_MS)?;
    let epoch = least_epoch(&world, &all);
    // Each epoch takes a minute of training.
    let phase = world.phase(all[0]);
    assert!(epoch >= 6, "epoch {epoch} after 10 minutes; {phase:?}");
    ends(world, &[Trains])
}

/// G1, G2: the attempts of a series cannot be used up.
#[test]
fn attempts_cannot_be_used_up() -> Played {
    attempts_are_used_up(false)
}

/// G1, G2: not even with a restart, although the promises of voters are on their disks.
#[test]
fn attempts_cannot_be_used_up_for_ever() -> Played {
    attempts_are_used_up(true)
}

/// The epochs that seven of eight peers commit in 4 minutes, in which the eighth dies in the middle
/// of an epoch. With `late` a key that is neither Ready nor a voter answers their pings 19 s late.
fn one_of_eight_dies(late: bool) -> Result<u64, Violation> {
    let (mut world, all) = a_run(8, false)?;
    let (victim, others) = all.split_last().unwrap();
    let mut liars = vec![Liar { phase: Phase::Behind, ..Liar::stranger(STRANGER) }];
    liars.retain(|_| late);
    let mut next_ms = 0;
    let mut kill_ms = None;
    lie(&mut world, &all, &mut liars, 4 * MINUTE_MS, |world, liars, _| {
        if world.now_ms >= next_ms {
            next_ms = world.now_ms + 100;
            for (liar, host) in liars.iter().flat_map(|liar| all.iter().map(move |h| (liar, h))) {
                world.round_trip(*host, liar.name, 19_000);
            }
        }
        if kill_ms.is_none() && all_at(world, &all, 4) {
            kill_ms = Some(world.now_ms + 420);
        }
        if kill_ms.is_some_and(|at_ms| world.now_ms >= at_ms) {
            world.kill(&[*victim]);
        }
    })?;
    assert!(kill_ms.is_some(), "nobody died");
    let epochs = least_epoch(&world, others);
    ends_amid(world, &[Trains, Update])?;
    Ok(epochs)
}

/// G10: a late answer to pings must not stretch the timers of honest peers.
#[test]
pub(super) fn who_answers_pings_late_slows_nobody() -> Played {
    let (without, with) = (one_of_eight_dies(false)?, one_of_eight_dies(true)?);
    assert!(100 * with >= 95 * without, "{with} epochs instead of {without}");
    Ok(())
}

/// G4: a newcomer declares one weight to half of the voters and another one to the other half, so
/// some voters refuse whatever roster is proposed. It loses its position, and the run goes on.
#[test]
fn two_weights_of_one_guest() -> Played {
    let undisturbed = undisturbed(4, false, LENGTH_MS)?;
    let (mut world, all) = a_run(4, false)?;
    let (one, other) = all.split_at(2);
    let mut liar = Liar::stranger(STRANGER);
    let mut said = 0;
    lie(&mut world, &[], &mut [], LENGTH_MS, |world, _, _| {
        for (half, weight) in [(one, 100), (other, 200)] {
            liar.ready = weight;
            let Some(series) = world.series(half[0]) else { continue };
            if series.epoch > said {
                let (incarnation, norm, loss) = (liar.incarnation, 1.0, Loss::NONE);
                let ready = Ready { series, incarnation, weight, norm, loss };
                world.say_as(half, liar.name, &Message::Ready(ready));
            }
            if world.now_ms >= liar.beat_ms {
                liar.count += 1;
                half.iter().for_each(|host| liar.beat(world, *host));
            }
        }
        said = least_epoch(world, &all);
        if world.now_ms >= liar.beat_ms {
            liar.beat_ms = world.now_ms + BEAT_MS;
        }
    })?;
    assert_share(&world, &all, undisturbed, 80);
    ends(world, &[Trains])
}

/// G5: sixteen keys are Ready and never accept. An honest newcomer gets a position within three
/// minutes in spite of them, and the run goes on.
#[test]
pub(super) fn old_sybils_hold_the_guest_places() -> Played {
    let undisturbed = undisturbed(4, false, 4 * MINUTE_MS)?;
    let (mut world, all) = founded(4, 1, None)?;
    let mut liars: Vec<Liar> =
        (0..16).map(|n| Liar { ready: 100, ..Liar::stranger(STRANGER + n) }).collect();
    lie(&mut world, &all, &mut liars, MINUTE_MS, |_, _, _| {})?;
    world.start(&[4]);
    let everyone = [&all[..], &[4]].concat();
    lie(&mut world, &everyone, &mut liars, 3 * MINUTE_MS, |_, _, _| {})?;
    assert!(
        world.voters(all[0]).contains(&4),
        "the newcomer is none of {:?}",
        world.voters(all[0])
    );
    // At first each epoch may name one of them.
    assert_share(&world, &all, undisturbed, 20);
    ends(world, &[End::Roster])
}

/// G7: one of three voters lies. While another one still trains, it proposes all
/// three together with five Ready newcomers, before any other proposal. The next
/// voters must still be mostly old ones.
#[test]
pub(super) fn a_roster_of_more_newcomers_than_voters_is_refused() -> Played {
    let (mut world, old) = founded(3, 5, None)?;
    let all: Vec<usize> = (0..8).collect();
    let [a, slow, x] = old[..] else { unreachable!() };
    reach(&mut world, &old, 2)?;
    for (host, training_ms) in [(a, 10_000), (x, 10_000), (slow, MINUTE_MS)] {
        world.train_in(host, training_ms);
    }
    world.start(&all[3..]);
    let epoch = world.epoch(a) + 1;
    let ready: Noted<BTreeMap<usize, (u64, LogId, u64)>> = Rc::default();
    let noted = Rc::clone(&ready);
    world.direct(move |from, _, message| {
        if let Message::Heartbeat(beat) = message
            && (beat.ready > 0 || from == slow)
            && beat.series.epoch == epoch
        {
            noted.borrow_mut().insert(from, (beat.incarnation, beat.log, beat.ready));
        }
        Fate::Deliver
    });
    assert!(world.until(END_MS, |_| ready.borrow().len() == all.len())?, "{:?}", ready.borrow());
    // Longer than a voter's patience, and shorter than a proposer's.
    world.play(2_000)?;
    let member = |host: &usize| {
        let (incarnation, log, weight) = ready.borrow()[host];
        Member { peer: world.name(*host), log, incarnation, weight }
    };
    let others = all.iter().filter(|host| !old.contains(host));
    let mut members: Vec<Member> =
        [a].iter().chain(others).chain([&slow, &x]).map(member).collect();
    members.last_mut().unwrap().weight = 0;
    let roster = free_roster(&world, world.series(a).unwrap(), 1, world.name(x), members);
    world.say_as(&all, world.name(x), &Message::Roster(roster));
    reach(&mut world, &[a, slow], epoch)?;
    let voters = world.voters(a);
    let new = voters.iter().filter(|host| !old.contains(host)).count();
    assert!(new < 3, "{new} of {} voters are new", voters.len());
    ends(world, &[Trains])
}
