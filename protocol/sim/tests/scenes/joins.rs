//! Newcomers and returners on their way to the run's head: R25, R28.

use intellect_protocol::message::{Answer, Head};

use super::*;

/// The heads that a host reached by an update of others, in order.
fn replayed(stage: &World, host: usize) -> Vec<Head> {
    let heads = stage.told(host).filter_map(|event| match event {
        Event::Replayed { head, .. } => Some(*head),
        _ => None,
    });
    heads.collect()
}

fn arrivals(stage: &World, host: usize) -> usize {
    stage.told(host).filter(|event| matches!(event, Event::CaughtUp { .. })).count()
}

/// Whether `host` has a place in what `other` committed as that epoch.
fn has_place(stage: &World, other: usize, epoch: u64, host: usize) -> bool {
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

/// A checkpoint takes four epochs to arrive. By updates of an eighth each, two of which share its line, the
/// newcomer overtakes the run, and has a place soon, although each update that it is late for takes half an
/// epoch.
#[test]
fn joiner_slower_than_the_epochs_arrives() -> Played {
    let (mut stage, all) = founded(4, 1, None)?;
    (0..5).for_each(|host| stage.train_in(host, 4_000));
    reach(&mut stage, &all, 8)?;
    let epoch_ms = {
        let from_ms = stage.now_ms;
        reach(&mut stage, &all, 12)?;
        (stage.now_ms - from_ms) / 4
    };
    stage.load_in(4, 4 * epoch_ms);
    stage.start(&[4]);
    assert!(stage.until(END_MS, |stage| arrivals(stage, 4) > 0)?);
    let (there, by_updates) = (stage.epoch(4), replayed(&stage, 4).len());
    assert!(there >= 17 && by_updates >= 4, "{by_updates} updates to epoch {there}");
    assert_eq!(stage.report.of(Count::Loaded), 1);
    reach(&mut stage, &all, there + 4)?;
    assert!((there + 1..=there + 4).any(|epoch| has_place(&stage, all[0], epoch, 4)));
    assert!(arrivals(&stage, 4) <= 2, "it says so when it is there, and hardly before");
    Ok(())
}

/// R28: the run is longer than what its peers have links of in memory; the older ones come from their logs,
/// after all have started anew too.
#[test]
fn joiner_of_a_long_run_verifies_all_of_it() -> Played {
    let (mut stage, all) = founded(3, 2, None)?;
    let joins = |stage: &mut World, host| {
        let others = all.iter().copied().chain([host]).collect::<Vec<_>>();
        stage.start(&[host]);
        stage.until(END_MS, |stage| stage.epoch(host) > 0 && stage.same(&others))
    };
    while stage.epoch(all[0]) < 3 * LINKS_KEPT as u64 {
        stage.play(GRACE_MS)?;
    }
    assert!(joins(&mut stage, 3)?, "{:?}", stage.head(3));
    stage.kill(&all);
    stage.start(&all);
    assert!(joins(&mut stage, 4)?, "{:?}", stage.head(4));
    assert_eq!(stage.report.of(Count::Loaded), 2);
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
    stage.load_in(3, 8 * 4 * GRACE_MS);
    reach(&mut stage, &all, 6)?;
    let followed = |stage: &mut World| stage.epoch(3) >= 5;
    assert!(stage.until(END_MS, followed)?, "{:?}", stage.head(3));
    assert!(regroups(&stage, 3).is_empty() && forks(&stage, 3).is_empty());
    Ok(())
}

/// R25: of four donors two die after the first update; the others serve the rest.
#[test]
fn donors_die_in_the_middle_of_a_replay() -> Played {
    let (mut stage, all) = founded(4, 1, None)?;
    (0..5).for_each(|host| stage.train_in(host, 2_000));
    reach(&mut stage, &all, 5)?;
    stage.load_in(4, 2_000);
    stage.start(&[4]);
    assert!(stage.until(END_MS, |stage| !replayed(stage, 4).is_empty())?);
    stage.kill(&all[2..]);
    assert!(stage.until(END_MS, |stage| arrivals(stage, 4) > 0)?);
    assert_eq!(stage.report.of(Count::Loaded), 0);
    let there = stage.epoch(4);
    reach(&mut stage, &[all[0], all[1], 4], there + 3)?;
    assert!((there + 1..=there + 3).any(|epoch| has_place(&stage, 4, epoch, 4)));
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
    let caught_up = |stage: &mut World| arrivals(stage, 4) > 0;
    assert!(stage.until(END_MS, caught_up)?);
    let there = stage.epoch(4);
    reach(&mut stage, &[a, b, c, 4], there + 1)?;
    let loaded = stage.report.of(Count::Loaded);
    stage.kill(&[a, b, c]);
    stage.resume(d);
    let met = |stage: &mut World| stage.epoch(4) > 14 && stage.same(&[d, 4]);
    assert!(stage.until(END_MS, met)?, "{:?} {:?}", stage.head(4), stage.head(d));
    assert_eq!(stage.report.of(Count::Loaded) - loaded, 1);
    let on_top = replayed(&stage, d);
    assert!(on_top.iter().all(|head| head.epoch > there), "{there} {on_top:?}");
    Ok(())
}

/// A newcomer fetches a state of 16 pieces over a slow line, and is killed twice on the way: how many
/// pieces it has fetched when it is there.
fn killed_on_the_way(without: Option<Rule>) -> Result<u64, Violation> {
    let (mut stage, all) = founded(3, 1, without)?;
    (0..4).for_each(|host| stage.train_in(host, 8_000));
    reach(&mut stage, &all, 10)?;
    stage.load_in(3, 8_000);
    for pieces in [5, 11, 16] {
        stage.start(&[3]);
        let there = |stage: &mut World| stage.report.of(Count::Pieces) >= pieces;
        assert!(stage.until(END_MS, there)?);
        if pieces < 16 {
            stage.kill(&[3]);
        }
    }
    assert!(stage.until(END_MS, |stage| stage.report.of(Count::Loaded) > 0)?);
    Ok(stage.report.of(Count::Pieces))
}

#[test]
fn a_newcomer_that_is_killed_goes_on_where_it_was() -> Played {
    assert_eq!(killed_on_the_way(None)?, 16);
    Ok(())
}

#[test]
fn resumed_is_missed() -> Played {
    let pieces = killed_on_the_way(Some(Rule::Resumed))?;
    assert!(pieces > 16, "{pieces}: it begins anew, and nobody sees it");
    Ok(())
}

/// One of four lies about every byte that a newcomer asks it for: of a state, and of updates. It is
/// named, and the newcomer takes part on the lineage of all.
fn donors_of_whom_one_lies(epoch: u64, without: Option<Rule>) -> Played {
    let (mut stage, all) = founded(4, 1, without)?;
    reach(&mut stage, &all, epoch)?;
    stage.lie(all[0]);
    stage.start(&[4]);
    let there = |stage: &mut World| arrivals(stage, 4) > 0;
    assert!(stage.until(END_MS, there)?);
    let epoch = stage.epoch(4);
    reach(&mut stage, &[all[1], all[2], all[3], 4], epoch + 3)?;
    assert!((epoch + 1..=epoch + 3).any(|epoch| has_place(&stage, 4, epoch, 4)));
    let liars: Vec<_> = stage.blamed.iter().map(|(who, _)| *who).collect();
    assert!(!liars.is_empty() && liars.iter().all(|who| *who == stage.name(all[0])));
    Ok(())
}

#[test]
fn a_donor_that_lies_keeps_nobody_away() -> Played {
    // By its updates, and by a checkpoint.
    donors_of_whom_one_lies(4, None)?;
    donors_of_whom_one_lies(10, None)
}

#[test]
fn checked_is_missed() {
    for epoch in [4, 10] {
        let broken = donors_of_whom_one_lies(epoch, Some(Rule::Checked)).unwrap_err();
        assert!(["S3", "S4", "diverged"].contains(&broken.invariant), "{broken:?}");
    }
}
