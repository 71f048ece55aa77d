//! People who stop and come back: a goodbye is kept, whoever was restarted hears the others first, and what was
//! trained apart for a while is undone by itself (R12, R20, R29, G11).

use super::*;

use std::time::Duration;

/// How long a peer that said goodbye waits for the others once it is back.
const RETURN_MS: u64 = 60_000;

/// Two peers at epoch 3 at least, in the order of their votes.
fn two() -> Result<(World, [usize; 2]), Violation> {
    let (mut stage, order) = founded(2, 0, None)?;
    reach(&mut stage, &order, 3)?;
    Ok((stage, [order[0], order[1]]))
}

/// The same: one of them left, and the other one has gone on for some epochs since.
fn one_went_on(first: usize) -> Result<(World, [usize; 2]), Violation> {
    let (mut stage, order) = two()?;
    let [gone, stays] = [order[first], order[1 - first]];
    leave(&mut stage, gone)?;
    let epoch = stage.epoch(stays);
    reach(&mut stage, &[stays], epoch + 3)?;
    Ok((stage, [gone, stays]))
}

fn leave(stage: &mut World, host: usize) -> Played {
    stage.leave(host);
    stage.play(5_000)
}

/// Nobody tells of a fork, and all are in one ring again.
fn together(stage: &mut World, hosts: &[usize]) -> Played {
    let in_one_ring = |stage: &mut World| {
        let newest = stage.commit(hosts[0], stage.epoch(hosts[0]));
        let placed = |host: &usize| newest.and_then(|newest| weight(stage, newest, *host));
        hosts.iter().all(|host| placed(host).is_some_and(|weight| weight > 0))
    };
    assert!(stage.until(END_MS, in_one_ring)?, "apart");
    let epoch = hosts.iter().map(|host| stage.epoch(*host)).max().unwrap();
    reach(stage, hosts, epoch + 2)?;
    assert!(stage.until(END_MS, |stage| stage.same(hosts))?);
    for host in hosts {
        assert_eq!(forks(stage, *host), [] as [u64; 0], "{host}");
    }
    Ok(())
}

/// One leaves, the other one goes on and leaves too. The first one comes back alone: it decides nothing that
/// the other one may have decided otherwise.
#[test]
fn r29_whoever_said_goodbye_waits_for_those_who_went_on() -> Played {
    for first in 0..2 {
        let (mut stage, [gone, stays]) = one_went_on(first)?;
        leave(&mut stage, stays)?;
        stage.start(&[gone]);
        let before = stage.epoch(gone);
        stage.play(RETURN_MS - 5_000)?;
        assert_eq!(stage.epoch(gone), before, "it trains, and decides nothing");
        stage.start(&[stays]);
        together(&mut stage, &[gone, stays])?;
    }
    Ok(())
}

/// The same, and the one that went on never left.
#[test]
fn r29_whoever_comes_back_finds_those_who_went_on() -> Played {
    for first in 0..2 {
        let (mut stage, [gone, stays]) = one_went_on(first)?;
        stage.start(&[gone]);
        together(&mut stage, &[gone, stays])?;
    }
    Ok(())
}

/// Both leave at once, each while the other one is here: both have closed the series, and open the next one
/// as soon as they have heard each other.
#[test]
fn r29_two_that_left_at_once_go_on_as_soon_as_both_are_back() -> Played {
    let (mut stage, [a, b]) = two()?;
    stage.leave(a);
    stage.leave(b);
    stage.play(10_000)?;
    stage.start(&[a, b]);
    let (before, since_ms) = (stage.epoch(a).max(stage.epoch(b)), stage.now_ms);
    reach(&mut stage, &[a, b], before + 1)?;
    assert!(stage.now_ms - since_ms < GRACE_MS, "nobody is waited for in vain");
    together(&mut stage, &[a, b])
}

/// The other one never comes back: after a minute whoever said goodbye goes on alone.
#[test]
fn r29_after_a_minute_it_goes_on_alone() -> Played {
    let (mut stage, [a, b]) = two()?;
    leave(&mut stage, a)?;
    leave(&mut stage, b)?;
    stage.start(&[a]);
    let before = stage.epoch(a);
    stage.play(RETURN_MS - 5_000)?;
    assert_eq!(stage.epoch(a), before);
    stage.play(20_000)?;
    assert!(stage.epoch(a) > before + 1);
    Ok(())
}

/// Whoever was killed has said nothing to anybody, and waits as long as it would have for a silent one.
#[test]
fn r20_whoever_was_killed_waits_for_the_grace() -> Played {
    for first in 0..2 {
        let (mut stage, order) = two()?;
        stage.kill(&order);
        let back = order[first];
        stage.start(&[back]);
        let before = stage.epoch(back);
        stage.play(GRACE_MS - 500)?;
        assert_eq!(stage.epoch(back), before, "the other one may be on its way");
        stage.play(5_000)?;
        assert!(stage.epoch(back) > before);
    }
    Ok(())
}

/// Whoever leaves last has left nobody.
#[test]
fn r29_the_last_one_goes_on_at_once() -> Played {
    let (mut stage, [a, b]) = two()?;
    leave(&mut stage, a)?;
    leave(&mut stage, b)?;
    stage.start(&[b]);
    let before = stage.epoch(b);
    stage.play(GRACE_MS)?;
    assert!(stage.epoch(b) > before);
    stage.start(&[a]);
    together(&mut stage, &[a, b])
}

/// Where it takes a majority of the founders nothing could open a closed series again: nobody closes it.
#[test]
fn r29_founders_of_a_majority_all_leave_and_all_come_back() -> Played {
    let mut stage = scene(3, 3, None);
    let all = [0, 1, 2];
    stage.start(&all);
    reach(&mut stage, &all, 3)?;
    for host in all {
        leave(&mut stage, host)?;
    }
    stage.start(&all);
    together(&mut stage, &all)
}

/// A peer without a vote finds the voters in the series of a Regroup: it goes along, and opens none of its own.
#[test]
fn r12_a_peer_without_a_vote_goes_along() -> Played {
    let (mut stage, order) = founded(3, 0, None)?;
    let [a, b, c] = [order[0], order[1], order[2]];
    leave(&mut stage, c)?;
    let epoch = stage.epoch(a);
    reach(&mut stage, &[a, b], epoch + 3)?;
    leave(&mut stage, a)?;
    leave(&mut stage, b)?;
    stage.start(&[a, b, c]);
    together(&mut stage, &order)
}

/// Two that miss each other's Joins for long do not give each other up: there is nobody else to found with.
#[test]
fn r15_two_on_a_bad_line_found_as_soon_as_it_is_good() -> Played {
    let mut stage = scene(2, 0, None);
    let bad = Rc::new(Cell::new(true));
    let is_bad = Rc::clone(&bad);
    stage.direct(move |_, _, message| {
        let lost = is_bad.get() && matches!(message, Message::Join(_));
        if lost { Fate::Drop } else { Fate::Deliver }
    });
    stage.start(&[0, 1]);
    stage.play(100_000)?;
    assert_eq!((stage.epoch(0), stage.epoch(1)), (0, 0));
    bad.set(false);
    reach(&mut stage, &[0, 1], 2)
}

/// G11: one of four trained alone for some minutes, and is greater. What the others took meanwhile is young: they
/// follow by themselves, a restart among them, though a third of the voters did not sign.
#[test]
fn g11_what_was_taken_within_ten_minutes_is_undone() -> Played {
    for (minutes, follows) in [(10, true), (0, false)] {
        let mut stage = scene(4, 0, None);
        stage.undo_within(3, Duration::from_secs(60 * minutes));
        let all = [0, 1, 2, 3];
        stage.start(&all);
        assert!(stage.until(END_MS, |stage| all_at(stage, &all, 1))?);
        stage.play(12_000)?;
        let others = [0, 1, 2];
        others.iter().for_each(|host| stage.train_in(*host, 5_000));
        stage.cut(&[3], 1);
        let since_ms = stage.now_ms;
        let epoch = stage.epoch(0);
        reach(&mut stage, &others, epoch + 6)?;
        let greater = |stage: &mut World| {
            stage.head(3).unwrap().tokens > stage.head(0).unwrap().tokens + 2_000
        };
        assert!(stage.until(4 * END_MS, greater)?);
        assert!(stage.now_ms - since_ms < 9 * 60_000);
        stage.train_in(3, 600_000);
        // What was taken when is in the log.
        stage.kill(&[1]);
        stage.start(&[1]);
        stage.mend();
        stage.play(30_000)?;
        let undone = forks(&stage, 0).into_iter().max().unwrap_or(0);
        assert_eq!(undone > 3, follows, "{minutes} minutes: {undone}");
        assert_eq!(stage.same(&all), follows);
    }
    Ok(())
}
