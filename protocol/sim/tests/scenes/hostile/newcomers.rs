//! Fresh keys that appear while a run is founded, or while survivors regroup.

use super::*;

const STRANGER: u8 = 230;

fn fresh(n: u64) -> PeerId {
    let mut key = [0xee; 32];
    key[..8].copy_from_slice(&n.to_le_bytes());
    PeerId(key)
}

/// Every `period_ms`, `each` fresh keys are heard once. All `hosts` must
/// reach `epoch` within 10 minutes.
fn fresh_keys(world: &mut World, hosts: &[usize], epoch: u64, period_ms: u64, each: u64) -> Played {
    let (start_ms, mut keys) = (world.now_ms, 0);
    while world.now_ms < start_ms + 10 * MINUTE_MS && !all_at(world, hosts, epoch) {
        for _ in 0..each {
            keys += 1;
            Liar::new(fresh(keys), LogId([9; 16]), 1).live(world, hosts);
        }
        world.play(period_ms)?;
    }
    let epochs: Vec<u64> = hosts.iter().map(|host| world.epoch(*host)).collect();
    let minutes = (world.now_ms - start_ms) / MINUTE_MS;
    assert!(all_at(world, hosts, epoch), "after {minutes} minutes and {keys} keys: {epochs:?}");
    Ok(())
}

/// G8: a fresh key a second must not move the founders' turns, or nobody would ever found.
#[test]
pub(super) fn fresh_keys_hold_up_no_founding() -> Played {
    for period_ms in [1_500, 1_000, 300] {
        let mut world = scene(8, 0, None);
        let hosts: Vec<usize> = (0..8).collect();
        world.start(&hosts);
        world.play(5)?;
        fresh_keys(&mut world, &hosts, 1, period_ms, 1)?;
        ends_amid(world, &[Trains, Accepts])?;
    }
    Ok(())
}

/// G8: the same with the survivors of a lost majority.
#[test]
fn fresh_keys_hold_up_no_regroup() -> Played {
    for (period_ms, each) in [(1_000, 1), (300, 1), (300, 4)] {
        let (mut world, all) = founded(8, 0, None)?;
        let (gone, left) = all.split_at(5);
        world.kill(gone);
        fresh_keys(&mut world, left, 2, period_ms, each)?;
        assert_eq!(regroups(&world, left[0])[0], (sorted(left), sorted(gone)));
        ends(world, &[Trains])?;
    }
    Ok(())
}

/// G8: four keys as old as all the others never join a Regroup that names them.
/// The founding leaves them out.
#[test]
fn sybils_age_then_never_join() -> Played {
    let mut world = scene(8, 0, None);
    let hosts: Vec<usize> = (0..8).collect();
    world.start(&hosts);
    world.play(5)?;
    let mut liars: Vec<Liar> = (0..4).map(|n| Liar::stranger(220 + n)).collect();
    lie(&mut world, &hosts, &mut liars, 2 * MINUTE_MS, |_, _, _| {})?;
    let epochs: Vec<u64> = hosts.iter().map(|host| world.epoch(*host)).collect();
    assert!(all_at(&world, &hosts, 1), "after 2 minutes: {epochs:?}");
    assert_voters(&world, &hosts);
    ends_amid(world, &[Trains, End::Roster, Accepts])
}

/// R12: eight keys announce greater heads, each another one, and answer no request. The four
/// survivors of eight must go on within two minutes.
#[test]
fn who_tells_of_greater_heads_holds_up_no_regroup() -> Played {
    let (mut world, all) = founded(8, 0, None)?;
    let (gone, left) = all.split_at(5);
    world.kill(gone);
    let mut beat_ms = 0;
    lie(&mut world, left, &mut [], 2 * MINUTE_MS, |world, _, _| {
        if world.now_ms < beat_ms {
            return;
        }
        beat_ms = world.now_ms + BEAT_MS;
        for n in 0..8 {
            let mut liar = Liar { count: world.now_ms, ..Liar::stranger(STRANGER + n) };
            liar.ahead = 1 + u64::from(n);
            left.iter().for_each(|host| liar.beat(world, *host));
        }
    })?;
    let epochs: Vec<u64> = left.iter().map(|host| world.epoch(*host)).collect();
    assert!(all_at(&world, left, 2), "after 2 minutes: {epochs:?}");
    assert_eq!(regroups(&world, left[0])[0], (sorted(left), sorted(gone)));
    ends_amid(world, &[Trains, Training, Ring])
}
