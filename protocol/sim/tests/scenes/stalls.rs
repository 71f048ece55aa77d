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
    Ok(())
}

#[test]
fn one_that_accepts_and_never_sends_is_left_out() -> Played {
    (3..=6).try_for_each(|count| held_up(count, Sends::Never))
}

#[test]
fn one_that_sends_slowly_on_purpose_is_left_out() -> Played {
    (3..=6).try_for_each(|count| held_up(count, Sends::Slowly))
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
    reach(&mut world, &all, epoch + 3)
}
