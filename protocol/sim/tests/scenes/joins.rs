//! Newcomers and returners on their way to the run's head: R25, R28.

use intellect_protocol::message::{Answer, Head};

use super::*;

/// The heads that a host reached by an update of others, in order.
fn replayed(stage: &Stage, host: usize) -> Vec<Head> {
    let heads = stage.told(host).filter_map(|event| match event {
        Event::Replayed { head, .. } => Some(*head),
        _ => None,
    });
    heads.collect()
}

fn arrivals(stage: &Stage, host: usize) -> usize {
    stage.told(host).filter(|event| matches!(event, Event::CaughtUp { .. })).count()
}

/// Whether `host` has a place in what `other` committed as that epoch.
fn has_place(stage: &Stage, other: usize, epoch: u64, host: usize) -> bool {
    stage.commit(other, epoch).is_some_and(|c| weight(stage, c, host).is_some_and(|w| w > 0))
}

/// R28: the voters of epoch 3 seem to have signed another parent than the state after epoch 2. The
/// newcomer takes the updates up to there, and not that one; told the truth, it goes on from there.
#[test]
fn replay_refuses_foreign_parent() -> Played {
    let (mut stage, all) = founded(3, 1, None)?;
    reach(&mut stage, &all, 4)?;
    stage.forge(|_, _, answer| {
        let Answer::Lineage { links, .. } = answer else { return };
        for link in links.iter_mut().filter(|link| link.receipt.series.epoch == 3) {
            let roster = &mut link.certificate.roster;
            roster.series.parent = Digest([7; 32]);
            // Simulated signatures hold whatever they are of.
            link.receipt = roster.receipt(link.receipt.update);
        }
    });
    stage.start(&[3]);
    let found = stage.play(END_MS).unwrap_err();
    assert_eq!(found.invariant, "diverged", "{found:?}");
    let (second, _) = (commit(&stage, all[0], 2).head, stage.relent());
    assert_eq!((stage.head(3), replayed(&stage, 3).len()), (Some(second), 2));
    reach(&mut stage, &[3], 6)?;
    assert_eq!((arrivals(&stage, 3), stage.same(&[3])), (1, true));
    Ok(())
}

/// A checkpoint takes five epochs to arrive. By updates of an eighth each the newcomer overtakes the
/// run, says once that it has, and has a place soon, although each update that it is late for takes most of
/// an epoch.
#[test]
fn joiner_slower_than_the_epochs_arrives() -> Played {
    let (mut stage, all) = founded(4, 1, None)?;
    (0..5).for_each(|host| stage.train_in(host, 4_000));
    reach(&mut stage, &all, 8)?;
    let epoch_ms = {
        let from_ms = stage.now_ms();
        reach(&mut stage, &all, 12)?;
        (stage.now_ms() - from_ms) / 4
    };
    stage.load_in(4, 5 * epoch_ms);
    stage.start(&[4]);
    assert!(stage.until(END_MS, |stage| arrivals(stage, 4) > 0)?);
    let (there, by_updates) = (stage.epoch(4), replayed(&stage, 4).len());
    assert!(there >= 17 && by_updates >= 4, "{by_updates} updates to epoch {there}");
    assert_eq!(stage.report().loaded, 1);
    reach(&mut stage, &all, there + 3)?;
    assert!((there + 1..=there + 3).any(|epoch| has_place(&stage, all[0], epoch, 4)));
    assert_eq!(arrivals(&stage, 4), 1);
    Ok(())
}

/// R12: an update takes longer than the grace after which a majority counts as gone. Who waits for it sees
/// that the others live and are further; it founds nothing of its own.
#[test]
fn who_is_slow_to_follow_does_not_go_on_alone() -> Played {
    let (mut stage, all) = founded(3, 1, None)?;
    reach(&mut stage, &all, 2)?;
    (0..4).for_each(|host| stage.train_in(host, 3 * GRACE_MS));
    stage.start(&[3]);
    reach(&mut stage, &[3], 2)?;
    stage.load_in(3, 8 * 2 * GRACE_MS);
    reach(&mut stage, &all, 6)?;
    let followed = |stage: &mut Stage| stage.epoch(3) >= 5;
    assert!(stage.until(END_MS, followed)?, "{:?}", stage.head(3));
    assert!(regroups(&stage, 3).is_empty() && forks(&stage, 3).is_empty());
    Ok(())
}

/// R25: of four donors two die after the first update; the others serve the rest.
#[test]
fn donors_die_in_the_middle_of_a_replay() -> Played {
    let (mut stage, all) = founded(4, 1, None)?;
    reach(&mut stage, &all, 5)?;
    stage.load_in(4, 2_000);
    stage.start(&[4]);
    assert!(stage.until(END_MS, |stage| !replayed(stage, 4).is_empty())?);
    stage.kill(&all[2..]);
    assert!(stage.until(END_MS, |stage| arrivals(stage, 4) > 0)?);
    assert_eq!(stage.report().loaded, 0);
    let there = stage.epoch(4);
    reach(&mut stage, &[all[0], all[1], 4], there + 2)?;
    assert!(has_place(&stage, 4, there + 2, 4));
    Ok(())
}

/// R21, R25: `d` is away for a few epochs, and comes back when nobody is left who has kept their
/// updates: a checkpoint of the same head takes their place.
#[test]
fn updates_that_nobody_has_kept() -> Played {
    let (mut stage, all) = founded(4, 1, None)?;
    let [a, b, c, d] = all[..] else { unreachable!() };
    reach(&mut stage, &all, 8)?;
    stage.pause(d);
    reach(&mut stage, &[a, b, c], 11)?;
    stage.start(&[4]);
    let caught_up = |stage: &mut Stage| arrivals(stage, 4) > 0;
    assert!(stage.until(END_MS, caught_up)?);
    let there = stage.epoch(4);
    reach(&mut stage, &[a, b, c, 4], there + 1)?;
    let loaded = stage.report().loaded;
    stage.kill(&[a, b, c]);
    stage.resume(d);
    let met = |stage: &mut Stage| stage.epoch(4) > 14 && stage.same(&[d, 4]);
    assert!(stage.until(END_MS, met)?, "{:?} {:?}", stage.head(4), stage.head(d));
    assert_eq!(stage.report().loaded - loaded, 1);
    let on_top = replayed(&stage, d);
    assert!(on_top.iter().all(|head| head.epoch > there), "{there} {on_top:?}");
    Ok(())
}
