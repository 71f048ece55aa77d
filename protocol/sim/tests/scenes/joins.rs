//! Newcomers and returning peers on their way to the run's head: R25, R28.

use intellect_protocol::message::{Answer, Head};

use super::*;

/// The heads that a host reached by updates of other peers, in order.
fn replayed(world: &World, host: usize) -> Vec<Head> {
    let heads = world.events(host).filter_map(|event| match event {
        Event::Replayed { head, .. } => Some(*head),
        _ => None,
    });
    heads.collect()
}

fn arrivals(world: &World, host: usize) -> usize {
    world.events(host).filter(|event| matches!(event, Event::CaughtUp { .. })).count()
}

/// Whether `host` has a position in what `other` committed as that epoch.
fn has_place(world: &World, other: usize, epoch: u64, host: usize) -> bool {
    world.commit(other, epoch).is_some_and(|c| weight(world, c, host).is_some_and(|w| w > 0))
}

/// R28: the voters of epoch 3 seem to have signed another parent than the state after
/// epoch 2. The newcomer takes the updates before that and not that one. Once the answers
/// are true it goes on from there.
#[test]
fn replay_refuses_foreign_parent() -> Played {
    let (mut world, all) = founded(3, 1, None)?;
    reach(&mut world, &all, 4)?;
    world.forge(|_, _, answer| {
        let Answer::Lineage { links, .. } = answer else { return };
        for link in links.iter_mut().filter(|link| link.receipt.series.epoch == 3) {
            let roster = &mut link.certificate.roster;
            roster.series.parent = Digest([7; 32]);
            // Simulated signatures are valid for any content.
            link.receipt = roster.receipt(link.receipt.update);
        }
    });
    world.start(&[3]);
    let found = world.play(END_MS).unwrap_err();
    assert_eq!(found.invariant, "diverged", "{found:?}");
    let (second, _) = (commit(&world, all[0], 2).head, world.let_through());
    assert_eq!((world.head(3), replayed(&world, 3).len()), (Some(second), 2));
    reach(&mut world, &[3], 6)?;
    assert_eq!((arrivals(&world, 3), world.same(&[3])), (1, true));
    ends(world, &[Trains])
}

/// A checkpoint takes four epochs to arrive. Updates take an eighth of that, two at a time on its
/// link, so the newcomer catches up with the run and soon has a position, although each update that
/// it misses takes half an epoch.
#[test]
fn joiner_slower_than_the_epochs_arrives() -> Played {
    let (mut world, all) = founded(4, 1, None)?;
    (0..5).for_each(|host| world.train_in(host, 4_000));
    reach(&mut world, &all, 8)?;
    let epoch_ms = {
        let from_ms = world.now_ms;
        reach(&mut world, &all, 12)?;
        (world.now_ms - from_ms) / 4
    };
    world.load_in(4, 4 * epoch_ms);
    world.start(&[4]);
    assert!(world.until(END_MS, |world| arrivals(world, 4) > 0)?);
    let (there, by_updates) = (world.epoch(4), replayed(&world, 4).len());
    assert!(there >= 17 && by_updates >= 4, "{by_updates} updates to epoch {there}");
    assert_eq!(world.report.of(Count::Loaded), 1);
    reach(&mut world, &all, there + 4)?;
    assert!((there + 1..=there + 4).any(|epoch| has_place(&world, all[0], epoch, 4)));
    assert!(arrivals(&world, 4) <= 2, "it says so when it is there, and hardly before");
    ends(world, &[Trains])
}

/// R28: the run is longer than the links that its peers have in memory. A newcomer gets the older
/// links from their logs, even after all of them were restarted.
#[test]
fn joiner_of_a_long_run_verifies_all_of_it() -> Played {
    let (mut world, all) = founded(3, 2, None)?;
    let joins = |world: &mut World, host| {
        let others = all.iter().copied().chain([host]).collect::<Vec<_>>();
        world.start(&[host]);
        world.until(END_MS, |world| world.epoch(host) > 0 && world.same(&others))
    };
    while world.epoch(all[0]) < 3 * LINKS_KEPT as u64 {
        world.play(GRACE_MS)?;
    }
    assert!(joins(&mut world, 3)?, "{:?}", world.head(3));
    world.kill(&all);
    world.start(&all);
    assert!(joins(&mut world, 4)?, "{:?}", world.head(4));
    assert_eq!(world.report.of(Count::Loaded), 2);
    ends(world, &[Trains])
}

/// R12: an update takes longer than the grace after which a majority counts as gone. The peer that
/// fetches it sees that the others are alive and ahead, and proposes no Regroup.
#[test]
fn who_is_slow_to_follow_does_not_go_on_alone() -> Played {
    let (mut world, all) = founded(3, 1, None)?;
    reach(&mut world, &all, 2)?;
    (0..4).for_each(|host| world.train_in(host, 3 * GRACE_MS));
    world.start(&[3]);
    reach(&mut world, &[3], 2)?;
    world.load_in(3, 8 * 4 * GRACE_MS);
    reach(&mut world, &all, 6)?;
    let followed = |world: &mut World| world.epoch(3) >= 5;
    assert!(world.until(END_MS, followed)?, "{:?}", world.head(3));
    assert!(regroups(&world, 3).is_empty() && forks(&world, 3).is_empty());
    ends(world, &[Trains])
}

/// R25: two of four donors die after the first update; the others serve the rest.
#[test]
fn donors_die_in_the_middle_of_a_replay() -> Played {
    let (mut world, all) = founded(4, 1, None)?;
    (0..5).for_each(|host| world.train_in(host, 2_000));
    reach(&mut world, &all, 5)?;
    world.load_in(4, 2_000);
    world.start(&[4]);
    assert!(world.until(END_MS, |world| !replayed(world, 4).is_empty())?);
    world.kill(&all[2..]);
    assert!(world.until(END_MS, |world| arrivals(world, 4) > 0)?);
    assert_eq!(world.report.of(Count::Loaded), 0);
    let there = world.epoch(4);
    reach(&mut world, &[all[0], all[1], 4], there + 3)?;
    assert!((there + 1..=there + 3).any(|epoch| has_place(&world, 4, epoch, 4)));
    ends(world, &[Trains])
}

/// R21, R25: `d` is away for a few epochs, and comes back when no peer has kept their updates. A
/// checkpoint of the same head takes their place.
#[test]
fn updates_that_nobody_has_kept() -> Played {
    let (mut world, all) = founded(4, 1, None)?;
    let [a, b, c, d] = all[..] else { unreachable!() };
    reach(&mut world, &all, 8)?;
    world.pause(d);
    reach(&mut world, &[a, b, c], 13)?;
    world.start(&[4]);
    let caught_up = |world: &mut World| arrivals(world, 4) > 0;
    assert!(world.until(END_MS, caught_up)?);
    let there = world.epoch(4);
    reach(&mut world, &[a, b, c, 4], there + 1)?;
    let loaded = world.report.of(Count::Loaded);
    world.kill(&[a, b, c]);
    world.resume(d);
    let met = |world: &mut World| world.epoch(4) > 14 && world.same(&[d, 4]);
    assert!(world.until(END_MS, met)?, "{:?} {:?}", world.head(4), world.head(d));
    assert_eq!(world.report.of(Count::Loaded) - loaded, 1);
    let on_top = replayed(&world, d);
    assert!(on_top.iter().all(|head| head.epoch > there), "{there} {on_top:?}");
    ends(world, &[Trains])
}

/// What happens to a newcomer on its way.
#[derive(Clone, Copy)]
enum Mishap {
    Killed,
    /// All its connections close, for longer than a grace.
    CutOff,
}

/// A newcomer fetches a state of 16 pieces over a slow link, and something happens to it twice on the
/// way. Returns how many pieces it has fetched in all.
fn held_up_on_the_way(mishap: Mishap, without: Option<Rule>) -> Result<u64, Violation> {
    let (mut world, all) = founded(3, 1, without)?;
    (0..4).for_each(|host| world.train_in(host, 8_000));
    reach(&mut world, &all, 10)?;
    world.load_in(3, 8_000);
    for pieces in [5, 11, 16] {
        world.start(&[3]);
        let there = |world: &mut World| world.report.of(Count::Pieces) >= pieces;
        assert!(world.until(END_MS, there)?);
        match mishap {
            Mishap::Killed if pieces < 16 => world.kill(&[3]),
            Mishap::CutOff if pieces < 16 => {
                all.iter().for_each(|donor| world.break_link(3, *donor));
                all.iter().for_each(|donor| world.break_link(*donor, 3));
                world.play(12_000)?;
                world.mend();
            }
            _ => {}
        }
    }
    assert!(world.until(END_MS, |world| world.report.of(Count::Loaded) > 0)?);
    let pieces = world.report.of(Count::Pieces);
    ends(world, &[Trains, PassedOver])?;
    Ok(pieces)
}

#[test]
fn a_newcomer_that_is_killed_goes_on_where_it_was() -> Played {
    assert_eq!(held_up_on_the_way(Mishap::Killed, None)?, 16);
    Ok(())
}

#[test]
fn a_newcomer_that_is_cut_off_goes_on_where_it_was() -> Played {
    assert_eq!(held_up_on_the_way(Mishap::CutOff, None)?, 16);
    Ok(())
}

#[test]
fn resumed_is_missed() -> Played {
    let pieces = held_up_on_the_way(Mishap::Killed, Some(Rule::Resumed))?;
    assert!(pieces > 16, "{pieces}: it begins anew, and nobody sees it");
    Ok(())
}

/// One of four donors answers every request of a newcomer for bytes with wrong ones, of a state and
/// of updates. It is blamed, and the newcomer takes part on the common lineage.
fn donors_of_whom_one_lies(epoch: u64, without: Option<Rule>) -> Played {
    let (mut world, all) = founded(4, 1, without)?;
    reach(&mut world, &all, epoch)?;
    world.lie(all[0]);
    world.start(&[4]);
    let there = |world: &mut World| arrivals(world, 4) > 0;
    assert!(world.until(END_MS, there)?);
    let epoch = world.epoch(4);
    reach(&mut world, &[all[1], all[2], all[3], 4], epoch + 3)?;
    assert!((epoch + 1..=epoch + 3).any(|epoch| has_place(&world, 4, epoch, 4)));
    let liars: Vec<_> = world.blamed.iter().map(|(who, _)| *who).collect();
    assert!(!liars.is_empty() && liars.iter().all(|who| *who == world.name(all[0])));
    ends(world, &[Trains])
}

#[test]
fn a_donor_that_lies_keeps_nobody_away() -> Played {
    // By updates in epoch 4, and by a checkpoint in epoch 10.
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
