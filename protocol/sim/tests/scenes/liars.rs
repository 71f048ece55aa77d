//! A quorum that outlasts liars (`tolerate = "liars"`): who goes on, and who waits.

use intellect_protocol::message::{Prepared, QuorumRule};

use super::*;

fn run(count: usize) -> Result<(World, Vec<usize>), Violation> {
    found(World::scene_with(count, 0, QuorumRule::Byzantine, OFF.get()), count)
}

/// Five of seven decide; four wait, without a Regroup, and go on once a fifth is back.
#[test]
fn four_of_seven_wait() -> Played {
    let (mut stage, all) = run(7)?;
    stage.kill(&all[5..]);
    stage.play(3 * GRACE_MS)?;
    let epoch = stage.epoch(all[0]) + 2;
    reach(&mut stage, &all[..5], epoch)?;
    // The next voters are those who were there: five, of whom four decide.
    assert_eq!(stage.voters(all[0]).len(), 5);
    stage.kill(&all[3..5]);
    let epoch = stage.epoch(all[0]);
    stage.play(4 * GRACE_MS)?;
    assert!(all[..3].iter().all(|host| stage.epoch(*host) <= epoch + 1));
    let epoch = stage.epoch(all[0]);
    stage.play(4 * GRACE_MS)?;
    assert!(all[..3].iter().all(|host| stage.epoch(*host) == epoch));
    assert!(all[..3].iter().all(|host| regroups(&stage, *host).is_empty()));
    stage.start(&all[3..4]);
    reach(&mut stage, &all[..4], epoch + 2)
}

/// R5: nobody votes on a free roster before a quorum says to hold its update.
#[test]
fn a_vote_waits_until_a_quorum_is_prepared() -> Played {
    let (mut stage, all) = run(4)?;
    let votes = counter();
    let voted = votes.clone();
    stage.direct(move |_, _, message| match message {
        Message::Prepared(Prepared { series, .. }) if series.epoch == 3 => Fate::Drop,
        Message::Done(done) if done.series.epoch == 3 => {
            count(&voted);
            Fate::Deliver
        }
        _ => Fate::Deliver,
    });
    reach(&mut stage, &all, 2)?;
    stage.play(4_000)?;
    let waits = all.iter().all(|host| stage.epoch(*host) == 2);
    assert!(waits && votes.get() == 0, "{} votes", votes.get());
    stage.relent();
    reach(&mut stage, &all, 4)
}

/// A restart says what it said, and votes.
#[test]
fn a_voter_that_was_prepared_comes_back() -> Played {
    let (mut stage, all) = run(4)?;
    let prepared = counter();
    let said = prepared.clone();
    let first = all[0];
    stage.direct(move |from, _, message| match message {
        Message::Prepared(prepared) if prepared.series.epoch == 2 && from == first => {
            count(&said);
            Fate::Deliver
        }
        Message::Done(done) if done.series.epoch == 2 => Fate::Drop,
        Message::Commit(_) => Fate::Drop,
        _ => Fate::Deliver,
    });
    assert!(stage.until(END_MS, |_| prepared.get() > 0)?);
    stage.kill(&[first]);
    stage.play(1_000)?;
    stage.start(&[first]);
    stage.relent();
    reach(&mut stage, &all, 3)?;
    assert!(stage.same(&all) || stage.until(END_MS, |stage| stage.same(&all))?);
    Ok(())
}
