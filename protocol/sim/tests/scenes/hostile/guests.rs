//! Strangers that are Ready: what a key that has no vote may cost those that have one.

use intellect_protocol::message::{Accept, Leaving, Ready};

use super::*;

const STRANGER: u8 = 210;
const LENGTH_MS: u64 = 10 * MINUTE_MS;

/// One key is Ready by its heartbeat and refuses every roster that names it, to its proposer.
fn one_refuses(count: usize, named: bool) -> Played {
    let undisturbed = undisturbed(count, named, LENGTH_MS)?;
    let (mut stage, all) = a_run(count, named)?;
    let mut liars = [Liar { ready: 100, ..Liar::stranger(STRANGER) }];
    let (mut told, mut refused) = (BTreeSet::new(), 0);
    lie(&mut stage, &all, &mut liars, LENGTH_MS, |stage, liars, said| {
        let Some((_, Message::Roster(roster))) = said else { return };
        let digest = wire::roster_digest(&stage.run, &roster);
        if roster.member(&liars[0].name).is_some() && told.insert(digest.0) {
            refused += 1;
            liars[0].refuse(stage, &roster);
        }
    })?;
    assert!(refused > 0, "it was never asked");
    assert_share(&stage, &all, undisturbed, 80);
    Ok(())
}

/// H1.
#[test]
fn who_refuses_every_roster_stops_no_three() -> Played {
    one_refuses(3, false)
}

/// H1.
#[test]
fn who_refuses_every_roster_stops_no_eight() -> Played {
    one_refuses(8, false)
}

/// H8: H1 where the founders are named.
#[test]
fn who_refuses_every_roster_stops_no_named_founders() -> Played {
    one_refuses(4, true)
}

/// One key accepts every roster that names it, and asks for the next attempt 6 ms later.
fn one_asks(count: usize) -> Played {
    let undisturbed = undisturbed(count, false, LENGTH_MS)?;
    let (mut stage, all) = a_run(count, false)?;
    let mut liars = [Liar { ready: 100, ..Liar::stranger(STRANGER) }];
    let (mut told, mut due) = (BTreeSet::new(), Vec::new());
    lie(&mut stage, &all, &mut liars, LENGTH_MS, |stage, liars, said| {
        let now_ms = stage.now_ms;
        if let Some((_, Message::Roster(roster))) = said {
            let (series, digest) = (roster.series, wire::roster_digest(&stage.run, &roster));
            if roster.member(&liars[0].name).is_some() && told.insert(digest.0) {
                let accept = Accept { series, roster: digest };
                stage.say_as(&all, liars[0].name, &Message::Accept(accept));
                due.push((now_ms + 6, series, roster.attempt + 1));
            }
        }
        for (_, series, attempt) in due.extract_if(.., |(at_ms, ..)| *at_ms <= now_ms) {
            liars[0].ask(stage, &all, series, attempt);
        }
    })?;
    assert!(!told.is_empty(), "it was never named");
    assert_share(&stage, &all, undisturbed, 80);
    Ok(())
}

/// H2.
#[test]
pub(super) fn who_asks_for_the_next_attempt_stops_no_three() -> Played {
    one_asks(3)
}

/// H2.
#[test]
fn who_asks_for_the_next_attempt_stops_no_eight() -> Played {
    one_asks(8)
}

/// One key asks for attempts in steps of what a peer can have missed, up to the greatest number of 32 bits, and
/// leaves. Then 10 minutes, with a restart of all before them where `restarted`. The founders are named: others
/// might regroup once no number is left.
fn attempts_are_used_up(restarted: bool) -> Played {
    let (mut stage, all) = a_run(4, true)?;
    for host in &all {
        stage.train_in(*host, MINUTE_MS);
    }
    let mut liar = Liar { ready: 100, ..Liar::stranger(STRANGER) };
    liar.live(&mut stage, &all);
    stage.play(10)?;
    let series = stage.series(all[0]).unwrap();
    for step in 1..=u32::MAX >> 16 {
        liar.ask(&mut stage, &all, series, Attempt::from(step) << 16);
        if step % 64 == 0 {
            liar.live(&mut stage, &all);
            stage.play(1)?;
        }
    }
    liar.ask(&mut stage, &all, series, Attempt::from(u32::MAX) - 1);
    stage.play(1_000)?;
    let leaving = Leaving { head: stage.head(all[0]).unwrap(), incarnation: liar.incarnation };
    stage.say_as(&all, liar.name, &Message::Leaving(leaving));
    if restarted {
        stage.kill(&all);
        stage.play(20_000)?;
        stage.start(&all);
    }
    stage.play(LENGTH_MS)?;
    let epoch = least_epoch(&stage, &all);
    // Each trains for a minute.
    let phase = stage.phase(all[0]);
    assert!(epoch >= 6, "epoch {epoch} after 10 minutes; {phase:?}");
    Ok(())
}

/// H3.
#[test]
fn attempts_cannot_be_used_up() -> Played {
    attempts_are_used_up(false)
}

/// H3: what the voters have promised is on their disks.
#[test]
fn attempts_cannot_be_used_up_for_ever() -> Played {
    attempts_are_used_up(true)
}

/// The epochs that seven of eight peers commit in 4 minutes in which the eighth dies as an epoch is under
/// way. Beside them may be one key, neither Ready nor a voter, that answers pings 19 s late.
fn one_of_eight_dies(late: bool) -> Result<u64, Violation> {
    let (mut stage, all) = a_run(8, false)?;
    let (victim, others) = all.split_last().unwrap();
    let mut liars = vec![Liar { phase: Phase::Behind, ..Liar::stranger(STRANGER) }];
    liars.retain(|_| late);
    let mut next_ms = 0;
    let mut kill_ms = None;
    lie(&mut stage, &all, &mut liars, 4 * MINUTE_MS, |stage, liars, _| {
        if stage.now_ms >= next_ms {
            next_ms = stage.now_ms + 100;
            for (liar, host) in liars.iter().flat_map(|liar| all.iter().map(move |h| (liar, h))) {
                stage.round_trip(*host, liar.name, 19_000);
            }
        }
        if kill_ms.is_none() && all_at(stage, &all, 4) {
            kill_ms = Some(stage.now_ms + 420);
        }
        if kill_ms.is_some_and(|at_ms| stage.now_ms >= at_ms) {
            stage.kill(&[*victim]);
        }
    })?;
    assert!(kill_ms.is_some(), "nobody died");
    Ok(least_epoch(&stage, others))
}

/// H9.
#[test]
pub(super) fn who_answers_pings_late_slows_nobody() -> Played {
    let (without, with) = (one_of_eight_dies(false)?, one_of_eight_dies(true)?);
    assert!(100 * with >= 95 * without, "{with} epochs instead of {without}");
    Ok(())
}

/// A guest tells one half of the voters another weight than the other half: whoever proposes, the others
/// refuse.
#[test]
fn two_weights_of_one_guest() -> Played {
    let undisturbed = undisturbed(4, false, LENGTH_MS)?;
    let (mut stage, all) = a_run(4, false)?;
    let (one, other) = all.split_at(2);
    let mut liar = Liar::stranger(STRANGER);
    let mut said = 0;
    lie(&mut stage, &[], &mut [], LENGTH_MS, |stage, _, _| {
        for (half, weight) in [(one, 100), (other, 200)] {
            liar.ready = weight;
            let Some(series) = stage.series(half[0]) else { continue };
            if series.epoch > said {
                let (incarnation, norm) = (liar.incarnation, 1.0);
                let ready = Ready { series, incarnation, weight, norm };
                stage.say_as(half, liar.name, &Message::Ready(ready));
            }
            if stage.now_ms >= liar.beat_ms {
                liar.count += 1;
                half.iter().for_each(|host| liar.beat(stage, *host));
            }
        }
        said = least_epoch(stage, &all);
        if stage.now_ms >= liar.beat_ms {
            liar.beat_ms = stage.now_ms + BEAT_MS;
        }
    })?;
    assert_share(&stage, &all, undisturbed, 80);
    Ok(())
}

/// Sixteen keys are Ready and never accept; an honest newcomer finds a place beside them within three
/// minutes, and the run goes on.
#[test]
pub(super) fn old_sybils_hold_the_guest_places() -> Played {
    let undisturbed = undisturbed(4, false, 4 * MINUTE_MS)?;
    let (mut stage, all) = founded(4, 1, None)?;
    let mut liars: Vec<Liar> =
        (0..16).map(|n| Liar { ready: 100, ..Liar::stranger(STRANGER + n) }).collect();
    lie(&mut stage, &all, &mut liars, MINUTE_MS, |_, _, _| {})?;
    stage.start(&[4]);
    let everyone = [&all[..], &[4]].concat();
    lie(&mut stage, &everyone, &mut liars, 3 * MINUTE_MS, |_, _, _| {})?;
    assert!(
        stage.voters(all[0]).contains(&4),
        "the newcomer is none of {:?}",
        stage.voters(all[0])
    );
    // Each epoch may name one of them at first.
    assert_share(&stage, &all, undisturbed, 20);
    Ok(())
}

/// One of three voters lies. While another one still trains it proposes all of them beside five newcomers that are
/// Ready, before anybody else would. The voters of the next epoch are the old ones and a minority of new ones.
#[test]
pub(super) fn a_roster_of_more_newcomers_than_voters_is_refused() -> Played {
    let (mut stage, old) = founded(3, 5, None)?;
    let all: Vec<usize> = (0..8).collect();
    let [a, slow, x] = old[..] else { unreachable!() };
    reach(&mut stage, &old, 2)?;
    for (host, training_ms) in [(a, 10_000), (x, 10_000), (slow, MINUTE_MS)] {
        stage.train_in(host, training_ms);
    }
    stage.start(&all[3..]);
    let epoch = stage.epoch(a) + 1;
    let ready: Noted<BTreeMap<usize, (u64, LogId, u64)>> = Rc::default();
    let noted = Rc::clone(&ready);
    stage.direct(move |from, _, message| {
        if let Message::Heartbeat(beat) = message
            && (beat.ready > 0 || from == slow)
            && beat.series.epoch == epoch
        {
            noted.borrow_mut().insert(from, (beat.incarnation, beat.log, beat.ready));
        }
        Fate::Deliver
    });
    assert!(stage.until(END_MS, |_| ready.borrow().len() == all.len())?, "{:?}", ready.borrow());
    // Longer than a voter's patience, and shorter than a proposer's.
    stage.play(2_000)?;
    let member = |host: &usize| {
        let (incarnation, log, weight) = ready.borrow()[host];
        Member { peer: stage.name(*host), log, incarnation, weight }
    };
    let others = all.iter().filter(|host| !old.contains(host));
    let mut members: Vec<Member> =
        [a].iter().chain(others).chain([&slow, &x]).map(member).collect();
    members.last_mut().unwrap().weight = 0;
    let roster = free_roster(&stage, stage.series(a).unwrap(), 1, stage.name(x), members);
    stage.say_as(&all, stage.name(x), &Message::Roster(roster));
    reach(&mut stage, &[a, slow], epoch)?;
    let voters = stage.voters(a);
    let new = voters.iter().filter(|host| !old.contains(host)).count();
    assert!(new < 3, "{new} of {} voters are new", voters.len());
    Ok(())
}
