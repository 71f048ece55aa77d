//! A peer that is alive, accepts rosters, and holds up the ring: the others go on without it,
//! each time within a bounded time.

use intellect_protocol::message::Phase;

use super::*;

/// From epoch 2 on, one of `count` peers sends in this way. The others must commit three more
/// epochs on one lineage, some of them without its work, and each in less than 45 s.
fn held_up(count: usize, sends: Sends) -> Played {
    let (mut world, all) = founded(count, 0, None)?;
    let holder = all[count - 1];
    world.send_in_rings(holder, sends);
    let honest: Vec<usize> = all.iter().copied().filter(|host| *host != holder).collect();
    let mut without = 0;
    for epoch in 2..=4 {
        let since_ms = world.now_ms;
        reach(&mut world, &honest, epoch)?;
        let committed = commit(&world, honest[0], epoch);
        let took_ms = world.now_ms - since_ms;
        assert!(took_ms < 45_000, "{count} peers, {sends:?}: {took_ms} ms");
        without += u32::from(weight(&world, &committed, holder).unwrap_or(0) == 0);
    }
    assert!(world.same(&honest));
    assert!(without > 0, "it never held up anything");
    world.send_in_rings(holder, Sends::AsItShould);
    reach(&mut world, &all, 6)?;
    assert!(world.same(&all) && regroups(&world, honest[0]).is_empty());
    ends(world, &[Trains])
}

#[test]
fn one_that_accepts_and_never_sends_is_left_out() -> Played {
    (3..=6).try_for_each(|count| held_up(count, Sends::Never))
}

#[test]
fn one_that_sends_slowly_on_purpose_is_left_out() -> Played {
    (3..=6).try_for_each(|count| held_up(count, Sends::Slowly))
}

/// R40: it says first that the ring stopped, accuses nobody, and leaves no gap.
#[test]
fn r40_one_that_breaks_off_its_rings_is_left_out() -> Played {
    (3..=7).try_for_each(|count| held_up(count, Sends::UntilItBreaks))
}

/// R37: a voter is cut off in a ring, for less than a grace. It hears nobody, so it comes to no further attempts: its
/// promises there would shut it out of those of the others.
#[test]
fn a_voter_that_hears_nobody_uses_up_no_attempts() -> Played {
    let (mut world, all) = founded(3, 0, None)?;
    let alone = all[2];
    let rings = |world: &mut World| world.phase(alone).is_some_and(|(p, _)| p == Phase::Reduce);
    assert!(world.until(END_MS, rings)?);
    world.cut(&[alone], 1);
    world.play(GRACE_MS * 7 / 8)?;
    let (phase, attempt) = world.phase(alone).unwrap();
    assert!(phase == Phase::Recover && attempt <= 3, "{phase:?}, {attempt}");
    world.mend();
    let epoch = world.epoch(all[0]);
    reach(&mut world, &all, epoch + 3)?;
    ends(world, &[Trains])
}

/// Where the attempt stands that committed an epoch, and which of the hosts had a position in it.
fn worked(world: &World, at: usize, epoch: u64, hosts: &[usize]) -> (u64, Vec<usize>) {
    let committed = commit(world, at, epoch);
    let worked = |host: &&usize| weight(world, &committed, **host).is_some_and(|w| w > 0);
    let attempt = accepted(world, at, epoch).last().map_or(0, |(attempt, _)| *attempt);
    (attempt, sorted(&hosts.iter().filter(worked).copied().collect::<Vec<_>>()))
}

/// R36: a voter is Ready before all others, and is cut off for less than a grace. It proposes nothing alone, which
/// would use up the first attempt and shut it out of that of the others. Updates are large, so that a peer that a
/// roster leaves out would wait long.
#[test]
fn a_ready_voter_that_hears_nobody_proposes_nothing() -> Played {
    let mut world = scene(3, 0, None);
    world.update_of(1_000_000_000);
    let (mut world, all) = found(world, 3)?;
    let epoch = world.epoch(all[0]) + 2;
    all.iter().for_each(|host| world.train_in(*host, 20_000));
    reach(&mut world, &all, epoch - 1)?;
    world.train_in(all[2], 1_000);
    world.cut(&[all[2]], 1);
    world.play(3_000)?;
    world.mend();
    let since_ms = world.now_ms;
    reach(&mut world, &all, epoch)?;
    assert!(world.now_ms - since_ms < 25_000, "{} ms", world.now_ms - since_ms);
    assert_eq!(worked(&world, all[0], epoch, &all), (1, sorted(&all)));
    ends(world, &[Trains])
}

/// R12: the outer step of half of the voters takes longer than a grace, when the others are Ready already. They are
/// on their way, so no Regroup leaves them behind.
#[test]
fn a_slow_outer_step_is_no_absence() -> Played {
    for (count, slow) in [(2, 1), (3, 2), (4, 2)] {
        let (mut world, all) = founded(count, 0, None)?;
        all.iter().for_each(|host| world.train_in(*host, 4_000));
        let epoch = world.epoch(all[0]);
        all[..slow].iter().for_each(|host| world.apply_in(*host, 2 * GRACE_MS));
        reach(&mut world, &all, epoch + 3)?;
        assert!(all.iter().all(|host| regroups(&world, *host).is_empty()), "{slow} of {count}");
        ends_amid(world, &[Trains, Training, Behind, PassedOver, End::Roster])?;
    }
    Ok(())
}

/// R12: two friends lose each other for longer than a grace, in the middle of their training. Nothing is due yet, so
/// neither goes on alone.
#[test]
fn a_cut_while_all_train_costs_nothing() -> Played {
    for count in [2, 3] {
        let (mut world, all) = founded(count, 0, None)?;
        let epoch = world.epoch(all[0]) + 1;
        all.iter().for_each(|host| world.train_in(*host, 60_000));
        world.play(5_000)?;
        (0..count).for_each(|side| world.cut(&[all[side]], side as u32));
        world.play(4 * GRACE_MS)?;
        world.mend();
        reach(&mut world, &all, epoch)?;
        assert_eq!(worked(&world, all[0], epoch, &all), (1, sorted(&all)), "of {count}");
        assert!(all.iter().all(|host| regroups(&world, *host).is_empty()));
        ends(world, &[Trains])?;
    }
    Ok(())
}

/// R37: one voter has not heard another one for a grace, and its roster lacks it. The others refuse that roster, and
/// do not wait for a ring that cannot begin: one of these large updates would take hours.
#[test]
fn a_roster_that_is_refused_costs_seconds() -> Played {
    for deaf in 0..4 {
        let mut world = scene(4, 0, None);
        world.update_of(1_000_000_000);
        let (mut world, all) = found(world, 4)?;
        let epoch = world.epoch(all[0]) + 2;
        all.iter().for_each(|host| world.train_in(*host, 20_000));
        reach(&mut world, &all, epoch - 1)?;
        let (deaf, unheard) = (all[deaf], all[(deaf + 1) % 4]);
        world.direct(move |from, to, _| match (from, to) == (unheard, deaf) {
            true => Fate::Drop,
            false => Fate::Deliver,
        });
        world.play(20_500)?;
        world.let_through();
        let since_ms = world.now_ms;
        reach(&mut world, &all, epoch)?;
        assert!(world.now_ms - since_ms < 10_000, "{deaf}: {} ms", world.now_ms - since_ms);
        ends(world, &[Trains])?;
    }
    Ok(())
}

/// R20: the power fails in the midst of a ring. Its deltas are lost, so nobody waits for it.
#[test]
fn a_ring_that_a_power_cut_ended_is_not_waited_for() -> Played {
    let mut world = scene(3, 0, None);
    world.update_of(1_000_000_000);
    let (mut world, all) = found(world, 3)?;
    let epoch = world.epoch(all[0]) + 1;
    let in_ring = |world: &World, host: &usize| {
        world.phase(*host).is_some_and(|(phase, _)| phase == Phase::Reduce)
    };
    assert!(world.until(END_MS, |world| all.iter().all(|host| in_ring(world, host)))?);
    world.kill(&all);
    world.start(&all);
    let since_ms = world.now_ms;
    reach(&mut world, &all, epoch)?;
    assert!(world.now_ms - since_ms < 60_000, "{} ms", world.now_ms - since_ms);
    ends(world, &[Trains])
}

/// R37: the disk of one voter needs long for a flush, without which it accepts nothing. It is not late for that.
#[test]
fn a_slow_disk_costs_no_position() -> Played {
    let (mut world, all) = founded(3, 0, None)?;
    world.flush_in(all[1], 700);
    let epoch = world.epoch(all[0]) + 1;
    reach(&mut world, &all, epoch + 4)?;
    for epoch in epoch + 1..=epoch + 4 {
        assert_eq!(worked(&world, all[0], epoch, &all), (1, sorted(&all)), "epoch {epoch}");
    }
    ends_amid(world, &[Trains, Training])
}
