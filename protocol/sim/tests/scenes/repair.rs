//! Rings that do not end: finished chunks are kept, and every delta counts once in each chunk (R10,
//! R30–R34). S4 checks at each commit what is in each sum, and that no peer offers it again.

use intellect_protocol::base::blocks::Blocks;
use intellect_protocol::message::Phase;

use super::*;

/// The elements of the toy's parameters.
const ELEMENTS: u64 = 4_000;

/// Plays until all `hosts` are in the ring of attempt `attempt` or a higher one.
fn in_the_ring(world: &mut World, hosts: &[usize], attempt: u64) -> Result<bool, Violation> {
    let here = |world: &World, host: usize| {
        world.phase(host).is_some_and(|(phase, k)| phase == Phase::Reduce && k >= attempt)
    };
    world.until(20_000, |world| hosts.iter().all(|host| here(world, *host)))
}

fn without(hosts: &[usize], dead: &[usize]) -> Vec<usize> {
    hosts.iter().copied().filter(|host| !dead.contains(host)).collect()
}

/// What the stories of deaths have shown, in counts.
#[derive(Default)]
struct Tally {
    stories: u32,
    /// Committed epochs that contain kept chunks.
    mended: u32,
    /// Those of them that keep work of a dead peer.
    of_the_dead: u32,
    /// Second deaths, which struck the completing ring itself.
    second: u32,
}

/// One member dies some time after the ring has opened, and perhaps a second one in the ring that
/// completes it. The others commit the epoch.
fn story(
    tally: &mut Tally,
    count: usize,
    first: (usize, u64),
    second: Option<u64>,
    without_rule: Option<Rule>,
) -> Played {
    let (mut world, all) = founded(count, 0, without_rule)?;
    assert!(in_the_ring(&mut world, &all, 1)?);
    world.play(first.1)?;
    if !all_at(&world, &all, 1) || all_at(&world, &all, 2) {
        return ends(world, &[Trains]);
    }
    let mut dead = vec![all[first.0]];
    world.kill(&dead);
    let mut rest = without(&all, &dead);
    if let Some(after_ms) = second
        && rest.len() > 1
        && in_the_ring(&mut world, &rest, 2)?
    {
        world.play(after_ms)?;
        tally.second += 1;
        dead.push(rest[0]);
        world.kill(&rest[..1]);
        rest.remove(0);
    }
    reach(&mut world, &rest, 2)?;
    let second = commit(&world, rest[0], 2);
    assert!(rest.iter().all(|host| commit(&world, *host, 2).head == second.head));
    tally.stories += 1;
    let receipt = second.receipt;
    if !receipt.parts.is_empty() {
        tally.mended += 1;
        let dead: Vec<PeerId> = dead.iter().map(|host| world.name(*host)).collect();
        let members = |blocks: &[intellect_protocol::message::Member]| {
            blocks.iter().any(|m| dead.contains(&m.peer))
        };
        tally.of_the_dead += u32::from(receipt.parts.iter().any(|part| members(&part.members)));
    }
    // S4 in the next epoch as well: no peer offers work that is spent.
    reach(&mut world, &rest, 3)?;
    ends(world, &[if rest.len() == 1 { Alone } else { Trains }])
}

/// R33: each member dies at each hop of both halves, in rings of two to six.
#[test]
fn owner_dies_with_its_chunk() -> Played {
    let mut tally = Tally::default();
    for count in 2..=6 {
        for victim in 0..count {
            // A hop takes 4 ms; a ring has 2(n − 1) of them, and the
            // last member ends somewhat later.
            for hop in 0..3 * count as u64 {
                story(&mut tally, count, (victim, 1 + 4 * hop), None, None)?;
            }
        }
    }
    let Tally { stories, mended, of_the_dead, .. } = tally;
    assert!(stories > 150 && mended > 50 && of_the_dead > 50, "{stories} {mended} {of_the_dead}");
    Ok(())
}

/// R10, R33: a second member dies while the first ring is being completed.
#[test]
fn a_second_owner_dies_during_the_repair() -> Played {
    let mut tally = Tally::default();
    for count in 4..=6 {
        for victim in 0..count {
            for hop in count as u64 - 1..2 * count as u64 {
                for second in 0..4 {
                    let after_ms = 1 + 8 * second;
                    story(&mut tally, count, (victim, 1 + 4 * hop), Some(after_ms), None)?;
                }
            }
        }
    }
    let Tally { stories, mended, second, .. } = tally;
    assert!(second > 100 && mended > 50, "{stories} {mended} {second}");
    Ok(())
}

/// R30: the divisor of a kept chunk is that of the ring which computed it.
#[test]
fn r30_is_missed() {
    let broken = (3..12).find_map(|hop| {
        story(&mut Tally::default(), 4, (1, 1 + 4 * hop), None, Some(Rule::R30)).err()
    });
    assert_eq!(broken.unwrap().invariant, "S4");
}

/// R34: `c` is cut off in the middle of the ring, and stays alive. The others keep chunks with its
/// work and compute the rest without it; its work must count once in each block. It comes back when
/// they have committed epoch `missed`. Returns whether its work is in a kept part.
fn declared_dead_but_alive(
    after_ms: u64,
    missed: u64,
    rule: Option<Rule>,
) -> Result<bool, Violation> {
    let (mut world, all) = founded(4, 0, rule)?;
    let c = all[2];
    assert!(in_the_ring(&mut world, &all, 1)?);
    world.play(after_ms)?;
    world.cut(&[c], 1);
    let others = without(&all, &[c]);
    reach(&mut world, &others, 2)?;
    let receipt = commit(&world, others[0], 2).receipt;
    let spent = receipt.spent(&world.name(c), 1, ELEMENTS);
    let in_part = !spent.is_empty() && spent != Blocks::all(ELEMENTS);
    reach(&mut world, &others, missed)?;
    world.mend();
    let end = missed + 3;
    reach(&mut world, &all, end)?;
    assert!(world.same(&all) && regroups(&world, c).is_empty());
    assert_eq!(world.report.of(Count::Loaded) > 0, missed > 2, "by updates, or by a checkpoint");
    let mut later = missed + 1..=end;
    let again = later.any(|epoch| weight(&world, &commit(&world, all[0], epoch), c) > Some(0));
    assert!(again, "it takes part again");
    ends(world, &[Trains])?;
    Ok(in_part)
}

#[test]
fn declared_dead_but_alive_counts_once() -> Played {
    counts_once(2)
}

/// The same with a checkpoint of its own lineage: work in blocks that no
/// sum contains is offered again.
#[test]
fn declared_dead_and_long_away_counts_once() -> Played {
    counts_once(9)
}

fn counts_once(missed: u64) -> Played {
    let in_part = (0..12).map(|hop| declared_dead_but_alive(1 + 2 * hop, missed, None));
    let in_part = in_part.collect::<Result<Vec<bool>, Violation>>()?;
    assert!(in_part.iter().filter(|part| **part).count() >= 3, "{in_part:?}");
    Ok(())
}

/// The same, but `c` is suspended, and learns from their Commit what the others did without it.
fn stopped_in_the_ring(after_ms: u64, rule: Option<Rule>) -> Played {
    let (mut world, all) = founded(4, 0, rule)?;
    let c = all[2];
    assert!(in_the_ring(&mut world, &all, 1)?);
    world.play(after_ms)?;
    world.pause(c);
    reach(&mut world, &without(&all, &[c]), 2)?;
    world.resume(c);
    reach(&mut world, &all, 4)?;
    ends(world, &[Trains])
}

#[test]
fn r34_is_missed() {
    let stories = || (0..12).map(|hop| 1 + 2 * hop);
    let broken = stories().find_map(|ms| stopped_in_the_ring(ms, Some(Rule::R34)).err()).unwrap();
    assert_eq!(broken.invariant, "S4");
    assert_eq!(stories().find_map(|ms| stopped_in_the_ring(ms, None).err()), None);
}

/// R32: peers claim finished chunks and do not serve them. That costs attempts, but no epoch.
#[test]
fn a_kept_chunk_that_nobody_serves_is_redone() -> Played {
    let (mut world, all) = founded(4, 0, None)?;
    assert!(in_the_ring(&mut world, &all, 1)?);
    // The reduce half is over: each owner alone has its chunk.
    world.play(13)?;
    all.iter().for_each(|host| world.withhold_chunks(*host));
    world.kill(&all[3..]);
    let rest = without(&all, &all[3..]);
    reach(&mut world, &rest, 2)?;
    let aborted =
        |event: &Event| matches!(event, Event::Aborted { reason: Reason::KeptUnserved, .. });
    assert!(rest.iter().any(|host| reported(&world, *host, aborted)), "nobody missed a chunk");
    assert!(world.same(&rest));
    ends(world, &[Trains])
}
