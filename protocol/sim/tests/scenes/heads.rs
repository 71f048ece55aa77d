//! Lineages that part and meet, and links that carry one way: R23–R27, R35.

use intellect_protocol::machine::event::Event;
use intellect_protocol::message::Message;

use super::*;

/// R35: `b` never hears `a` directly; the ring keeps them apart, and no fork appears.
#[test]
fn one_way_link() -> Played {
    for count in [3, 5] {
        let (mut stage, all) = founded(count, 0, None)?;
        let [a, b, ..] = all[..] else { unreachable!() };
        stage.break_link(a, b);
        reach(&mut stage, &all, 6)?;
        let mut counted = Vec::new();
        for epoch in 2..=6 {
            let committed = commit(&stage, a, epoch);
            // Nobody was taken for dead because of one bad link.
            assert_eq!(committed.receipt.members.len(), count, "{committed:?}");
            let members = committed.receipt.members.iter().filter(|m| m.weight > 0);
            let ring: Vec<usize> = members.map(|m| stage.host(&m.peer).unwrap()).collect();
            let next = ring.iter().cycle().skip(1);
            let beside = ring.iter().zip(next).any(|(i, j)| sorted(&[*i, *j]) == sorted(&[a, b]));
            assert!(!beside, "{a} and {b} are neighbours in {ring:?}");
            counted.extend(ring);
        }
        // Among three one of the two has no place; which one, the hash of the epoch decides.
        let least = if count == 3 { 2 } else { count };
        let contributed = all.iter().filter(|host| counted.contains(host)).count();
        assert!(contributed >= least, "{counted:?}");
        for host in &all {
            assert!(forks(&stage, *host).is_empty() && regroups(&stage, *host).is_empty());
        }
    }
    Ok(())
}

/// R7, R12, R23, R26: voters count, not peers; and when the halves meet, everyone says so.
#[test]
fn halves_with_joiners() -> Played {
    let (mut stage, all) = founded(4, 6, None)?;
    let [a, b, c, d] = all[..] else { unreachable!() };
    let (one, other) = ([a, b, 4, 5, 6], [c, d, 7, 8, 9]);
    stage.play(100)?;
    stage.cut(&other, 1);
    stage.start(&[4, 5, 6, 7, 8, 9]);
    stage.play(GRACE_MS - 1_000)?;
    assert!(stage.epoch(a) > 1 && stage.epoch(c) == 1, "only the half with the first voter");
    let members = |stage: &World, of: &[usize]| {
        of.iter().all(|host| stage.epoch(*host) > 2 && sorted(&stage.voters(*host)) == sorted(of))
    };
    let grown = |stage: &mut World| members(stage, &one) && members(stage, &other);
    assert!(stage.until(END_MS, grown)?);
    assert!(regroups(&stage, a).is_empty());
    // Newcomers that know the head by then take part.
    let [(voters, absent)] = &regroups(&stage, c)[..] else { unreachable!() };
    assert!(voters.contains(&c) && voters.contains(&d) && *absent == sorted(&[a, b]));
    let parted = one.iter().chain(&other).copied().collect::<Vec<_>>();
    // The greater side hears of the other first; who withdraws does so within milliseconds here.
    let greater = stage.head(a).unwrap().rank(0) > stage.head(c).unwrap().rank(0);
    let (kept, lost) = if greater { (one, other) } else { (other, one) };
    stage.direct(move |from, _, message| match message {
        Message::Heartbeat(_) if kept.contains(&from) => Fate::Delay(600),
        _ => Fate::Deliver,
    });
    stage.mend();
    let heard = |stage: &mut World| parted.iter().all(|host| !forks(stage, *host).is_empty());
    assert!(stage.until(END_MS, heard)?, "someone is silent");
    stage.relent();
    let met = |stage: &mut World| {
        stage.same(&parted) && stage.voters(a).len() == 10 && members(stage, &parted)
    };
    assert!(stage.until(END_MS, met)?);
    for host in kept {
        assert!(forks(&stage, host).iter().all(|undone| *undone == 0), "{host} stays");
    }
    for host in lost {
        assert!(matches!(forks(&stage, host)[..], [undone] if undone > 0), "{host} withdraws");
    }
    Ok(())
}

/// R23, R26: the halves part for so long that neither has the link of their last common epoch in memory
/// any more. Who withdraws is served it, and knows it by its digest; what it gives up is all it had since.
#[test]
fn lineages_that_parted_long_ago_meet() -> Played {
    let (mut stage, all) = founded(4, 0, None)?;
    let [a, b, c, d] = all[..] else { unreachable!() };
    stage.cut(&[c, d], 1);
    let far = 2 + 2 * LINKS_KEPT as u64;
    while stage.epoch(a).min(stage.epoch(c)) < far {
        stage.play(GRACE_MS)?;
    }
    let parted: BTreeMap<usize, u64> = all.iter().map(|host| (*host, stage.epoch(*host))).collect();
    stage.mend();
    assert!(stage.until(END_MS, |stage| stage.same(&all))?);
    // It is told once its record is on the disk.
    stage.play(10)?;
    let kept = |host: &&usize| forks(&stage, **host).iter().all(|undone| *undone == 0);
    let (stayed, withdrew): (Vec<usize>, Vec<usize>) = all.iter().partition(kept);
    assert_eq!((sorted(&stayed) == sorted(&[a, b]), withdrew.len()), (stayed.contains(&a), 2));
    for host in withdrew {
        let undone = forks(&stage, host).into_iter().sum::<u64>();
        assert!(undone + 3 >= parted[&host] && undone < stage.epoch(host), "{undone} epochs");
    }
    Ok(())
}

/// R25: `c` alone has gone further than the others; it stops just as they want to follow it.
#[test]
fn greater_head_that_nobody_serves() -> Played {
    let (mut stage, all) = founded(3, 0, None)?;
    let [a, b, c] = all[..] else { unreachable!() };
    stage.train_in(a, 20_000);
    stage.train_in(b, 20_000);
    stage.cut(&[c], 1);
    stage.play(60_000)?;
    let far = stage.head(c).unwrap();
    assert!(far.rank(0) > stage.head(a).unwrap().rank(0) && stage.epoch(a) >= 2, "{far:?}");
    stage.mend();
    let behind = |stage: &mut World| {
        [a, b].iter().any(|host| told(stage, *host, |e| matches!(e, Event::Behind { .. })))
    };
    assert!(stage.until(END_MS, behind)?);
    stage.pause(c);
    let epoch = stage.epoch(a).max(stage.epoch(b));
    reach(&mut stage, &[a, b], epoch + 2)?;
    assert!(forks(&stage, a).is_empty() && forks(&stage, b).is_empty(), "they went on");
    stage.resume(c);
    let taken = |stage: &mut World| stage.same(&all) && stage.epoch(a) > far.epoch;
    assert!(stage.until(END_MS, taken)?);
    for host in [a, b] {
        assert!(forks(&stage, host).iter().sum::<u64>() > 0, "{host} left its lineage silently");
        assert!(told(&stage, host, |e| matches!(e, Event::CaughtUp { .. })));
    }
    Ok(())
}
