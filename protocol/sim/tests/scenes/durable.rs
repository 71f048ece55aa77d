//! What a disk must hold when a process ends in the middle of something: R1, R13, R19–R21.

use intellect_protocol::machine::event::Event;
use intellect_protocol::message::{Message, Phase};
use intellect_protocol_sim::disk::{Damage, Kept};

use super::*;

/// What happens to the disk of who crashed, before each of its starts.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Back {
    WithLog,
    WithoutLog,
    WithoutLogTwice,
    Blank,
}

fn bring_back(stage: &mut World, host: usize, back: Back) -> Played {
    let lost = match back {
        Back::WithLog => Damage::None,
        Back::WithoutLog | Back::WithoutLogTwice => Damage::Votes,
        Back::Blank => Damage::All,
    };
    stage.damage(host, lost);
    stage.start(&[host]);
    if back == Back::WithoutLogTwice {
        stage.play(200)?;
        stage.kill(&[host]);
        stage.damage(host, Damage::Votes);
        stage.start(&[host]);
    }
    Ok(())
}

/// Of three peers one crashes at its `point`-th chance to lose something in epoch 2, and comes back a
/// second later. Whether it came to that.
fn crash_and_return(role: usize, point: u64, kept: Kept, back: Back) -> Result<bool, Violation> {
    let (mut stage, all) = founded(3, 0, None)?;
    let host = all[role];
    stage.crash(host, point, kept);
    if !stage.until(END_MS, |stage| stage.epoch(host) != 1)? || stage.epoch(host) > 0 {
        return Ok(false);
    }
    assert_eq!(stage.crashed(), [host]);
    stage.play(1_000)?;
    bring_back(&mut stage, host, back)?;
    reach(&mut stage, &all, 5)?;
    assert!(all.iter().all(|host| forks(&stage, *host).is_empty()));
    assert!(stage.until(END_MS, |stage| stage.same(&all))?);
    let report = stage.report;
    let blank = match back {
        Back::WithLog => 0,
        Back::WithoutLog | Back::Blank => 1,
        Back::WithoutLogTwice => 2,
    };
    assert_eq!((report.of(Count::Crashes), report.of(Count::Blank)), (1, blank), "R19");
    Ok(true)
}

/// Each part of what may wait to be flushed: more than a vote, a decision with its head, an
/// update and a checkpoint is never waiting.
fn parts() -> impl Iterator<Item = Kept> {
    (0..18).map(|n| Kept { votes: n % 2, receipts: n / 2 % 3, files: n / 6 })
}

/// Every point of an epoch, with each part of what was not flushed; how many points there are.
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

/// R1, R2, R3, R5, R16, R20.
#[test]
fn kill_between_log_and_send() -> Played {
    for role in 0..3 {
        let points = crash_everywhere(role, Back::WithLog)?;
        // Promise or roster, update, vote, decision, head: each has one before and one after its flush.
        assert!(points >= 12, "{points} points only");
    }
    Ok(())
}

/// R19: with the log deleted, deleted twice, and with the whole disk gone.
#[test]
fn kill_between_log_and_send_and_lose_the_log() -> Played {
    for (role, back) in [(0, Back::WithoutLog), (1, Back::WithoutLogTwice), (2, Back::Blank)] {
        assert!(crash_everywhere(role, back)? >= 12);
    }
    Ok(())
}

/// R8, R19: `a` and `b` have voted, `a` has committed and is away for good, `c` was too slow for the ring
/// and has heard nothing. All depends on the disk of `b`.
fn voter_restarts(damage: Damage, without: Option<Rule>) -> Result<bool, Violation> {
    let (mut stage, all) = founded(3, 0, without)?;
    let [a, b, c] = all[..] else { unreachable!() };
    stage.train_in(c, END_MS);
    stage.flush_in(b, 500);
    let votes = Votes::default();
    let noted = votes.clone();
    stage.direct(move |from, to, message| match message {
        Message::Done(done) => {
            noted.borrow_mut().insert(from, done.update);
            if to == a { Fate::Deliver } else { Fate::Drop }
        }
        Message::Commit(_) if from == a => Fate::Drop,
        Message::Query(_) => Fate::Drop,
        Message::Heartbeat(_) if from == a => Fate::Delay(400),
        _ => Fate::Deliver,
    });
    assert!(stage.until(END_MS, |stage| stage.epoch(a) == 2)?);
    stage.kill(&[a, b]);
    stage.damage(b, damage);
    stage.start(&[b]);
    stage.train_in(b, 50);
    stage.train_in(c, 50);
    stage.relent();
    reach(&mut stage, &[b, c], 3)?;
    Ok(commit(&stage, b, 2).receipt.update == votes.borrow()[&a])
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
    // It accepts another roster at the same attempt, or proposes one that does not adopt what it voted for.
    assert!(["S2", "S5"].contains(&broken.invariant), "{broken:?}");
}

/// R19: `x` has voted for what its ring gave, and is cut off before anybody hears it; the others decide on
/// another value. What it voted for goes when the other one is committed, on its disk, and not before.
fn voted_for_another(x: usize, after_ms: u64, without: Option<Rule>) -> Played {
    let (mut stage, all) = founded(4, 0, without)?;
    let ring = |stage: &mut World| {
        all.iter().all(|host| stage.phase(*host).is_some_and(|(phase, _)| phase == Phase::Reduce))
    };
    assert!(stage.until(END_MS, ring)?);
    stage.play(after_ms)?;
    stage.cut(&[all[x]], 1);
    let others: Vec<usize> = all.iter().copied().filter(|host| *host != all[x]).collect();
    reach(&mut stage, &others, 2)?;
    stage.mend();
    reach(&mut stage, &all, 4)
}

#[test]
fn bound_is_missed() {
    let stories = || (0..4).flat_map(|x| (15..40).map(move |after_ms| (x, after_ms)));
    let broken =
        stories().find_map(|(x, at)| voted_for_another(x, at, Some(Rule::Bound)).err()).unwrap();
    assert_eq!(broken.invariant, "R19");
    assert_eq!(stories().find_map(|(x, at)| voted_for_another(x, at, None).err()), None);
}

/// R13: two of four regroup; one of them, or both, lose power at any point on the way.
#[test]
fn regroup_survives_a_power_cut() -> Played {
    for both in [false, true] {
        let mut points = 0;
        'points: loop {
            for kept in parts().filter(|kept| kept.files == 0) {
                let (mut stage, all) = founded(4, 0, None)?;
                let [a, b, c, d] = all[..] else { unreachable!() };
                stage.play(100)?;
                stage.kill(&[a, b]);
                stage.play(GRACE_MS - 1_000)?;
                stage.crash(c, points, kept);
                let over = |stage: &mut World| stage.head(c).is_none() || stage.epoch(c) > 2;
                assert!(stage.until(END_MS, over)?);
                if stage.crashed().is_empty() {
                    break 'points;
                }
                if both {
                    stage.play(5)?;
                    stage.kill(&[d]);
                }
                stage.play(500)?;
                stage.start(&[c, d]);
                reach(&mut stage, &[c, d], 4)?;
                assert!(stage.until(END_MS, |stage| stage.same(&[c, d]))?);
                let committed = [c, d].into_iter().find_map(|host| stage.commit(host, 4));
                assert!(committed.is_some_and(|committed| committed.forkable_since.is_some()));
                assert!(forks(&stage, c).is_empty() && forks(&stage, d).is_empty());
                assert_eq!(stage.report.of(Count::Blank), 0);
            }
            points += 1;
        }
        assert!(points >= 12, "{points} points only");
    }
    Ok(())
}

/// R13, R20: the only one that has joined loses power before anybody else heard it; it is bound still.
#[test]
fn a_join_binds_after_a_restart() -> Played {
    let (mut stage, all) = founded(4, 0, None)?;
    let [a, b, c, d] = all[..] else { unreachable!() };
    let joined = hide_joins(&mut stage);
    stage.play(100)?;
    stage.kill(&[a, b]);
    assert!(stage.until(END_MS, |_| joined.borrow().is_some())?);
    let p = joined.borrow().unwrap();
    stage.kill(&[p]);
    stage.start(&[a, b, p]);
    stage.play(400)?;
    assert_eq!(stage.phase(p).map(|(phase, _)| phase), Some(Phase::Regrouping), "still bound");
    stage.relent();
    reach(&mut stage, &all, 4)?;
    assert!(stage.until(END_MS, |stage| stage.same(&all))?);
    assert!([a, b, c, d].iter().all(|host| forks(&stage, *host).is_empty()));
    Ok(())
}

/// All are killed once everybody has voted and nobody has heard it: what was voted for is decided.
#[test]
fn everybody_restarts_from_the_last_epoch() -> Played {
    for voted in [false, true] {
        let (mut stage, all) = founded(3, 0, None)?;
        reach(&mut stage, &all, 4)?;
        let epoch = all.iter().map(|host| stage.epoch(*host)).max().unwrap() + 1;
        let votes = Votes::default();
        let noted = votes.clone();
        stage.direct(move |from, _, message| match message {
            Message::Done(done) if epoch_of(message) == epoch => {
                noted.borrow_mut().insert(from, done.update);
                Fate::Drop
            }
            _ => Fate::Deliver,
        });
        let wanted = if voted { 3 } else { 0 };
        let ready = |stage: &mut World| {
            all_at(stage, &all, epoch - 1)
                && votes.borrow().len() >= wanted
                && all.iter().all(|host| !accepted(stage, *host, epoch).is_empty())
        };
        assert!(stage.until(END_MS, ready)?);
        stage.kill(&all);
        stage.play(60_000)?;
        stage.relent();
        stage.start(&all);
        assert!(all.iter().all(|host| stage.epoch(*host) == epoch - 1), "nothing is lost");
        reach(&mut stage, &all, epoch + 2)?;
        let committed = commit(&stage, all[0], epoch);
        if voted {
            assert_eq!(committed.receipt.update, votes.borrow()[&all[0]]);
        }
        assert!(!committed.regrouped && stage.report.of(Count::Blank) == 0);
        assert!(all.iter().all(|host| forks(&stage, *host).is_empty()));
    }
    Ok(())
}

/// R21: an older checkpoint and the updates after it give the same state; without those, the state of
/// the newest checkpoint, and the rest comes from others.
#[test]
fn a_damaged_checkpoint_costs_nothing() -> Played {
    for (damage, whole) in [(Damage::Checkpoint, true), (Damage::Updates, false)] {
        let (mut stage, all) = founded(3, 0, None)?;
        reach(&mut stage, &all, 9)?;
        // Its commit reaches the disk.
        stage.play(200)?;
        let c = all[2];
        let before = stage.head(c).unwrap();
        stage.kill(&[c]);
        stage.damage(c, damage);
        stage.start(&[c]);
        let after = stage.head(c).unwrap();
        assert_eq!(after == before, whole, "{before:?} {after:?}");
        assert!(after.epoch > 0, "the checkpoint is there");
        let epoch = before.epoch + 2;
        reach(&mut stage, &all, epoch)?;
        assert!(stage.until(END_MS, |stage| stage.same(&all))?);
        assert!(forks(&stage, c).is_empty());
    }
    Ok(())
}

/// R19: who cannot read back what it voted for is another voter.
#[test]
fn a_vote_without_bytes_loses_the_log() -> Played {
    let (mut stage, all) = founded(3, 0, None)?;
    let [a, b, c] = all[..] else { unreachable!() };
    let voted = counter();
    let noted = voted.clone();
    stage.direct(move |from, _, message| match message {
        Message::Done(_) => {
            if from == c {
                count(&noted);
            }
            Fate::Drop
        }
        _ => Fate::Deliver,
    });
    assert!(stage.until(END_MS, |_| voted.get() > 0)?);
    stage.kill(&[c]);
    stage.damage(c, Damage::Updates);
    stage.start(&[c]);
    assert_eq!((stage.report.of(Count::Resumed), stage.report.of(Count::Blank)), (0, 1));
    stage.relent();
    reach(&mut stage, &all, 5)?;
    assert!(stage.voters(a).contains(&c) && regroups(&stage, b).is_empty());
    let lost = |event: &Event| matches!(event, Event::Diverged { .. });
    assert!(!all.iter().any(|host| told(&stage, *host, lost)));
    Ok(())
}
