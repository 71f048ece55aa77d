//! Voters that are alive and not Ready in time: the others wait for them ever more rarely (G5).

use super::*;

/// The voters that are Ready in every epoch.
const HONEST: usize = 5;

/// Longer than any of these scenes.
const NEVER_MS: u64 = 3_600_000;

/// Plays some minutes beside a voter that `act` moves every 20 ms, and fails unless the others keep
/// four fifths of the pace that they have without it.
fn costs_little(act: impl Fn(&mut World, usize)) -> Played {
    let pace = |spoiled: bool| -> Result<u64, Violation> {
        let (mut world, all) = founded(HONEST + usize::from(spoiled), 0, None)?;
        all.iter().for_each(|host| world.train_in(*host, 2_000));
        let late = all.get(HONEST).copied();
        world.direct(slow_votes(None));
        let play = |world: &mut World, length_ms: u64| -> Result<u64, Violation> {
            let (begin, end_ms) = (world.epoch(all[0]), world.now_ms + length_ms);
            while world.now_ms < end_ms {
                if let Some(late) = late {
                    act(world, late);
                }
                world.play(20)?;
            }
            Ok(world.epoch(all[0]) - begin)
        };
        // Until then it has been awaited in vain several times.
        play(&mut world, 120_000)?;
        let epochs = play(&mut world, 240_000)?;
        ends_amid(world, &[Trains, Training, PassedOver, Update, Ring, End::Votes, End::Roster])?;
        Ok(epochs)
    };
    let (without, with) = (pace(false)?, pace(true)?);
    assert!(10 * with >= 8 * without, "{with} epochs, and {without} without it");
    Ok(())
}

/// Votes take 0.5 s, except those to `first`.
fn slow_votes(first: Option<usize>) -> impl Fn(usize, usize, &Message) -> Fate {
    move |_, to, message| match message {
        Message::Done(_) | Message::Commit(_) if Some(to) != first => Fate::Delay(500),
        _ => Fate::Deliver,
    }
}

/// It computes for ever, and hears of each commit first: when the others commit, its heartbeats already name the next
/// epoch. They still count that they have waited for it.
#[test]
fn g5_a_voter_that_is_never_ready_and_goes_on_first() -> Played {
    costs_little(|world, late| {
        world.train_in(late, NEVER_MS);
        world.direct(slow_votes(Some(late)));
    })
}

/// It hears nothing but heartbeats, and stays in an epoch that the others have left. They hear it all the time.
#[test]
fn g5_a_voter_that_stays_behind() -> Played {
    costs_little(|world, deaf| {
        world.direct(move |_, to, message| match message {
            Message::Heartbeat(_) => Fate::Deliver,
            _ if to == deaf => Fate::Drop,
            _ => Fate::Deliver,
        });
        world.drop_requests(deaf);
    })
}

/// In each epoch it is Ready once it knows the roster that has no position for it. That is too late.
#[test]
fn g5_a_voter_that_is_ready_too_late() -> Played {
    // The epoch in which it computes, and whether it may still end that.
    let open: Cell<(u64, bool)> = Cell::default();
    costs_little(|world, late| {
        let next = world.epoch(late) + 1;
        match open.get() {
            (epoch, true) if epoch == next && !accepted(world, late, next).is_empty() => {
                world.train_in(late, 1);
                open.set((next, false));
            }
            (epoch, _) if epoch != next => {
                world.train_in(late, NEVER_MS);
                open.set((next, true));
            }
            _ => {}
        }
    })
}
