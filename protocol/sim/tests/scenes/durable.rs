//! What must be on disk when a process ends in the middle of something: R1, R13, R19–R21.

use intellect_protocol::machine::event::Event;
use intellect_protocol::message::{Message, Phase};
use intellect_protocol_sim::disk::{Damage, Kept};

use super::*;

/// What happens to the disk of the crashed host before each of its starts.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Back {
    WithLog,
    WithoutLog,
    WithoutLogTwice,
    Blank,
}

fn bring_back(world: &mut World, host: usize, back: Back) -> Played {
    let lost = match back {
        Back::WithLog => Damage::None,
        Back::WithoutLog | Back::WithoutLogTwice => Damage::Votes,
        Back::Blank => Damage::All,
    };
    world.damage(host, lost);
    world.start(&[host]);
    if back == Back::WithoutLogTwice {
        world.play(200)?;
        world.kill(&[host]);
        world.damage(host, Damage::Votes);
        world.start(&[host]);
    }
    Ok(())
}

/// One of three peers crashes at its `point`-th chance to lose something in epoch 2, and comes back
/// a second later. Returns whether there was such a point.
fn crash_and_return(role: usize, point: u64, kept: Kept, back: Back) -> Result<bool, Violation> {
    let (mut world, all) = founded(3, 0, None)?;
    let host = all[role];
    world.crash(host, point, kept);
    if !world.until(END_MS, |world| world.epoch(host) != 1)? || world.epoch(host) > 0 {
        ends(world, &[Trains])?;
        return Ok(false);
    }
    assert_eq!(world.crashed(), [host]);
    world.play(1_000)?;
    bring_back(&mut world, host, back)?;
    reach(&mut world, &all, 5)?;
    assert!(all.iter().all(|host| forks(&world, *host).is_empty()));
    assert!(world.until(END_MS, |world| world.same(&all))?);
    let report = &world.report;
    let blank = match back {
        Back::WithLog => 0,
        Back::WithoutLog | Back::Blank => 1,
        Back::WithoutLogTwice => 2,
    };
    assert_eq!((report.of(Count::Crashes), report.of(Count::Blank)), (1, blank), "R19");
    ends(world, &[Trains])?;
    Ok(true)
}

/// Each part of what may wait for a flush: never more than one vote, a decision with its
/// head, an update and a checkpoint.
fn parts() -> impl Iterator<Item = Kept> {
    (0..18).map(|n| Kept { votes: n % 2, receipts: n / 2 % 3, files: n / 6 })
}

/// Crashes at every point of an epoch, with each part of the unflushed writes;
/// returns the number of points.
fn crash_everywhere(role: usize, back: Back) -> Result<u64, Violation> {
    for point in 0.. {
        for kept in parts() {
            if !crash_and_return(role, point, kept, back)? {
                return Ok(point);
            }
        }
    }
    unreachable!()
}

/// R1, R2, R3, R5, R16, R20: a peer loses power at any point, with any part of its
/// unflushed writes. It comes back, is bound by what it had said, and all commit on one
/// lineage; no vote is given twice.
#[test]
fn kill_between_log_and_send() -> Played {
    for role in 0..3 {
        let points = crash_everywhere(role, Back::WithLog)?;
        // Promise or roster, update, vote, decision, head: each has one point
        // before and one after its flush.
        assert!(points >= 12, "{points} points only");
    }
    Ok(())
}

/// R19: the same with the log deleted, deleted twice, and with the whole disk gone: the peer is a
/// new voter then, and the old one never speaks again.
#[test]
fn kill_between_log_and_send_and_lose_the_log() -> Played {
    for (role, back) in [(0, Back::WithoutLog), (1, Back::WithoutLogTwice), (2, Back::Blank)] {
        assert!(crash_everywhere(role, back)? >= 12);
    }
    Ok(())
}

/// R8, R19: `a` and `b` have voted, and `a` has committed and never comes back. `c` was too slow
/// for the ring and has heard nothing. The disk of `b` alone decides what epoch 2 becomes.
fn voter_restarts(damage: Damage, without: Option<Rule>) -> Result<bool, Violation> {
    let (mut world, all) = founded(3, 0, without)?;
    let [a, b, c] = all[..] else { unreachable!() };
    world.train_in(c, END_MS);
    world.flush_in(b, 200);
    let votes = Votes::default();
    let noted = votes.clone();
    world.direct(move |from, to, message| match message {
        Message::Done(done) => {
            noted.borrow_mut().insert(from, done.update);
            if to == a { Fate::Deliver } else { Fate::Drop }
        }
        Message::Commit(_) if from == a => Fate::Drop,
        Message::Query(_) => Fate::Drop,
        Message::Heartbeat(_) if from == a => Fate::Delay(400),
        _ => Fate::Deliver,
    });
    assert!(world.until(END_MS, |world| world.epoch(a) == 2)?);
    world.kill(&[a, b]);
    world.damage(b, damage);
    world.start(&[b]);
    world.train_in(b, 50);
    world.train_in(c, 50);
    world.let_through();
    reach(&mut world, &[b, c], 3)?;
    let is_kept = commit(&world, b, 2).receipt.update == votes.borrow()[&a];
    ends_amid(world, &[Trains, Training, PassedOver, Voters])?;
    Ok(is_kept)
}

#[test]
fn a_vote_survives_its_voter() -> Played {
    assert!(voter_restarts(Damage::None, None)?, "what was decided is found");
    assert!(!voter_restarts(Damage::Votes, None)?, "a fork, with a Regroup at its root");
    Ok(())
}

#[test]
fn r19_is_missed() {
    let broken = voter_restarts(Damage::Votes, Some(Rule::R19)).unwrap_err();
    // It accepts another roster at the same attempt, or proposes one that
    // does not adopt its own vote.
    assert!(["S2", "S5"].contains(&broken.invariant), "{broken:?}");
}

/// R19: `x` has voted for the value of its ring and is cut off before any peer hears that; the
/// others decide another value. The update that `x` voted for may go only when the other one is
/// committed on its disk. Earlier, `x` could not prove or serve what it had voted for.
fn voted_for_another(x: usize, after_ms: u64, without: Option<Rule>) -> Played {
    let (mut world, all) = founded(4, 0, without)?;
    let ring = |world: &mut World| {
        all.iter().all(|host| world.phase(*host).is_some_and(|(phase, _)| phase == Phase::Reduce))
    };
    assert!(world.until(END_MS, ring)?);
    world.play(after_ms)?;
    world.cut(&[all[x]], 1);
    let others: Vec<usize> = all.iter().copied().filter(|host| *host != all[x]).collect();
    reach(&mut world, &others, 2)?;
    world.mend();
    reach(&mut world, &all, 4)?;
    ends(world, &[Trains])
}

#[test]
fn bound_is_missed() {
    let stories = || (0..4).flat_map(|x| (15..40).map(move |after_ms| (x, after_ms)));
    let broken =
        stories().find_map(|(x, at)| voted_for_another(x, at, Some(Rule::Bound)).err()).unwrap();
    assert_eq!(broken.invariant, "R19");
    assert_eq!(stories().find_map(|(x, at)| voted_for_another(x, at, None).err()), None);
}

/// R13: two of four regroup; one of them, or both, lose power at any point on the way. They find
/// each other again and open one series, not two.
#[test]
fn regroup_survives_a_power_cut() -> Played {
    for both in [false, true] {
        let mut points = 0;
        'points: loop {
            for kept in parts().filter(|kept| kept.files == 0) {
                let (mut world, all) = founded(4, 0, None)?;
                let [a, b, c, d] = all[..] else { unreachable!() };
                world.play(100)?;
                world.kill(&[a, b]);
                world.play(GRACE_MS - 1_000)?;
                world.crash(c, points, kept);
                let over = |world: &mut World| world.head(c).is_none() || world.epoch(c) > 2;
                assert!(world.until(END_MS, over)?);
                if world.crashed().is_empty() {
                    ends(world, &[Trains])?;
                    break 'points;
                }
                if both {
                    world.play(5)?;
                    world.kill(&[d]);
                }
                world.play(500)?;
                world.start(&[c, d]);
                reach(&mut world, &[c, d], 4)?;
                assert!(world.until(END_MS, |world| world.same(&[c, d]))?);
                let committed = [c, d].into_iter().find_map(|host| world.commit(host, 4));
                assert!(committed.is_some_and(|committed| committed.forkable_since.is_some()));
                assert!(forks(&world, c).is_empty() && forks(&world, d).is_empty());
                assert_eq!(world.report.of(Count::Blank), 0);
                ends(world, &[Trains])?;
            }
            points += 1;
        }
        assert!(points >= 12, "{points} points only");
    }
    Ok(())
}

/// R13, R20: the only peer that has joined a Regroup loses power before any other heard of it.
/// After its restart it is still bound and does not vote in the old series.
#[test]
fn a_join_binds_after_a_restart() -> Played {
    let (mut world, all) = founded(4, 0, None)?;
    let [a, b, c, d] = all[..] else { unreachable!() };
    let joined = hide_joins(&mut world);
    world.play(100)?;
    world.kill(&[a, b]);
    assert!(world.until(END_MS, |_| joined.borrow().is_some())?);
    let p = joined.borrow().unwrap();
    world.kill(&[p]);
    world.start(&[a, b, p]);
    world.play(400)?;
    assert_eq!(world.phase(p).map(|(phase, _)| phase), Some(Phase::Regrouping), "still bound");
    world.let_through();
    reach(&mut world, &all, 4)?;
    assert!(world.until(END_MS, |world| world.same(&all))?);
    assert!([a, b, c, d].iter().all(|host| forks(&world, *host).is_empty()));
    ends(world, &[Trains])
}

/// All are killed once every peer has voted and none has heard of that. After the restart they
/// decide the value that they voted for.
#[test]
fn everybody_restarts_from_the_last_epoch() -> Played {
    for voted in [false, true] {
        let (mut world, all) = founded(3, 0, None)?;
        reach(&mut world, &all, 4)?;
        let epoch = all.iter().map(|host| world.epoch(*host)).max().unwrap() + 1;
        let votes = Votes::default();
        let noted = votes.clone();
        world.direct(move |from, _, message| match message {
            Message::Done(done) if epoch_of(message) == epoch => {
                noted.borrow_mut().insert(from, done.update);
                Fate::Drop
            }
            _ => Fate::Deliver,
        });
        let wanted = if voted { 3 } else { 0 };
        let ready = |world: &mut World| {
            all_at(world, &all, epoch - 1)
                && votes.borrow().len() >= wanted
                && all.iter().all(|host| !accepted(world, *host, epoch).is_empty())
        };
        assert!(world.until(END_MS, ready)?);
        world.kill(&all);
        world.play(60_000)?;
        world.let_through();
        world.start(&all);
        assert!(all.iter().all(|host| world.epoch(*host) == epoch - 1), "nothing is lost");
        reach(&mut world, &all, epoch + 2)?;
        let committed = commit(&world, all[0], epoch);
        if voted {
            assert_eq!(committed.receipt.update, votes.borrow()[&all[0]]);
        }
        assert!(!committed.regrouped && world.report.of(Count::Blank) == 0);
        assert!(all.iter().all(|host| forks(&world, *host).is_empty()));
        ends(world, &[Trains])?;
    }
    Ok(())
}

/// R21: an older checkpoint and the updates after it give the same state. Without these updates the
/// head is that of the newest checkpoint, and the rest comes from other peers.
#[test]
fn a_damaged_checkpoint_costs_nothing() -> Played {
    for (damage, whole) in [(Damage::Checkpoint, true), (Damage::Updates, false)] {
        let (mut world, all) = founded(3, 0, None)?;
        reach(&mut world, &all, 9)?;
        // Waits until its commit is on disk.
        world.play(200)?;
        let c = all[2];
        let before = world.head(c).unwrap();
        world.kill(&[c]);
        world.damage(c, damage);
        world.start(&[c]);
        let after = world.head(c).unwrap();
        assert_eq!(after == before, whole, "{before:?} {after:?}");
        assert!(after.epoch > 0, "the checkpoint is there");
        let epoch = before.epoch + 2;
        reach(&mut world, &all, epoch)?;
        assert!(world.until(END_MS, |world| world.same(&all))?);
        assert!(forks(&world, c).is_empty());
        ends(world, &[Trains])?;
    }
    Ok(())
}

/// R19: a peer that cannot read back the update it voted for comes back as another voter.
#[test]
fn a_vote_without_bytes_loses_the_log() -> Played {
    let (mut world, all) = founded(3, 0, None)?;
    let [a, b, c] = all[..] else { unreachable!() };
    let voted = counter();
    let noted = voted.clone();
    world.direct(move |from, _, message| match message {
        Message::Done(_) => {
            if from == c {
                count(&noted);
            }
            Fate::Drop
        }
        _ => Fate::Deliver,
    });
    assert!(world.until(END_MS, |_| voted.get() > 0)?);
    world.kill(&[c]);
    world.damage(c, Damage::Updates);
    world.start(&[c]);
    assert_eq!((world.report.of(Count::Resumed), world.report.of(Count::Blank)), (0, 1));
    world.let_through();
    reach(&mut world, &all, 5)?;
    assert!(world.voters(a).contains(&c) && regroups(&world, b).is_empty());
    let lost = |event: &Event| matches!(event, Event::Diverged { .. });
    assert!(!all.iter().any(|host| reported(&world, *host, lost)));
    ends(world, &[Trains])
}
