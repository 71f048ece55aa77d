//! Who lives, accepts, and holds up the ring: the others go on without it, and each time in bounded
//! time.

use super::*;

/// From each of `count` peers' second epoch on, one of them sends as it likes; the others must commit
/// three more, some of them without its work, and on one lineage.
fn held_up(count: usize, sends: Sends) -> Played {
    let (mut stage, all) = founded(count, 0, None)?;
    let holder = all[count - 1];
    stage.send_in_rings(holder, sends);
    let honest: Vec<usize> = all.iter().copied().filter(|host| *host != holder).collect();
    let mut without = 0;
    for epoch in 2..=4 {
        let since_ms = stage.now_ms;
        reach(&mut stage, &honest, epoch)?;
        let committed = commit(&stage, honest[0], epoch);
        let took_ms = stage.now_ms - since_ms;
        assert!(took_ms < 45_000, "{count} peers, {sends:?}: {took_ms} ms");
        without += u32::from(weight(&stage, &committed, holder).unwrap_or(0) == 0);
    }
    assert!(stage.same(&honest));
    assert!(without > 0, "it never held up anything");
    stage.send_in_rings(holder, Sends::AsItShould);
    reach(&mut stage, &all, 6)?;
    assert!(stage.same(&all) && regroups(&stage, honest[0]).is_empty());
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
