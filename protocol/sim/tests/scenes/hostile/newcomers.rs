//! Fresh keys while a run is founded, or survivors regroup.

use super::*;

const STRANGER: u8 = 230;

fn fresh(n: u64) -> PeerId {
    let mut key = [0xee; 32];
    key[..8].copy_from_slice(&n.to_le_bytes());
    PeerId(key)
}

/// Each `period_ms` so many fresh keys are heard once; whether all `hosts` reach `epoch` within 10 minutes.
fn fresh_keys(
    stage: &mut World,
    hosts: &[usize],
    epoch: u64,
    (period_ms, each): (u64, u64),
) -> Played {
    let (start_ms, mut keys) = (stage.now_ms, 0);
    while stage.now_ms < start_ms + 10 * MINUTE_MS && !all_at(stage, hosts, epoch) {
        for _ in 0..each {
            keys += 1;
            Liar::new(fresh(keys), LogId([9; 16]), 1).live(stage, hosts);
        }
        stage.play(period_ms)?;
    }
    let epochs: Vec<u64> = hosts.iter().map(|host| stage.epoch(*host)).collect();
    let minutes = (stage.now_ms - start_ms) / MINUTE_MS;
    assert!(all_at(stage, hosts, epoch), "after {minutes} minutes and {keys} keys: {epochs:?}");
    Ok(())
}

/// H5.
#[test]
pub(super) fn fresh_keys_hold_up_no_founding() -> Played {
    for period_ms in [1_500, 1_000, 300] {
        let mut stage = scene(8, 0, None);
        let hosts: Vec<usize> = (0..8).collect();
        stage.start(&hosts);
        stage.play(5)?;
        fresh_keys(&mut stage, &hosts, 1, (period_ms, 1))?;
    }
    Ok(())
}

/// H6: the survivors of a lost majority.
#[test]
fn fresh_keys_hold_up_no_regroup() -> Played {
    for flood in [(1_000, 1), (300, 1), (300, 4)] {
        let (mut stage, all) = founded(8, 0, None)?;
        let (gone, left) = all.split_at(5);
        stage.kill(gone);
        fresh_keys(&mut stage, left, 2, flood)?;
        assert_eq!(regroups(&stage, left[0])[0], (sorted(left), sorted(gone)));
    }
    Ok(())
}

/// H5: four keys that are as old as everybody else never join what they are named in.
#[test]
fn sybils_age_then_never_join() -> Played {
    let mut stage = scene(8, 0, None);
    let hosts: Vec<usize> = (0..8).collect();
    stage.start(&hosts);
    stage.play(5)?;
    let mut liars: Vec<Liar> = (0..4).map(|n| Liar::stranger(220 + n)).collect();
    lie(&mut stage, &hosts, &mut liars, 2 * MINUTE_MS, |_, _, _| {})?;
    let epochs: Vec<u64> = hosts.iter().map(|host| stage.epoch(*host)).collect();
    assert!(all_at(&stage, &hosts, 1), "after 2 minutes: {epochs:?}");
    assert_voters(&stage, &hosts);
    Ok(())
}

/// R12: eight keys tell of greater heads, each of another one, and answer nobody. Four are left of eight, and go
/// on within two minutes.
#[test]
fn who_tells_of_greater_heads_holds_up_no_regroup() -> Played {
    let (mut stage, all) = founded(8, 0, None)?;
    let (gone, left) = all.split_at(5);
    stage.kill(gone);
    let mut beat_ms = 0;
    lie(&mut stage, left, &mut [], 2 * MINUTE_MS, |stage, _, _| {
        if stage.now_ms < beat_ms {
            return;
        }
        beat_ms = stage.now_ms + BEAT_MS;
        for n in 0..8 {
            let mut liar = Liar { count: stage.now_ms, ..Liar::stranger(STRANGER + n) };
            liar.ahead = 1 + u64::from(n);
            left.iter().for_each(|host| liar.beat(stage, *host));
        }
    })?;
    let epochs: Vec<u64> = left.iter().map(|host| stage.epoch(*host)).collect();
    assert!(all_at(&stage, left, 2), "after 2 minutes: {epochs:?}");
    assert_eq!(regroups(&stage, left[0])[0], (sorted(left), sorted(gone)));
    Ok(())
}
