//! What keeps a peer out of a ring, as it reads it itself: one scene for each cause that it can
//! know of.

use intellect_protocol::machine::wait::Obstacle;

use super::*;

/// The organiser's key in runs of invited peers, and when these begin, in Unix seconds.
const ORGANISER: u8 = 0x0e;
const NOW: u64 = 1_000_000_000;

/// `count` voters and `spare` hosts that have not started; each trains for three seconds.
fn slow(count: usize, spare: usize) -> Result<(World, Vec<usize>), Violation> {
    let (mut world, all) = founded(count, spare, None)?;
    (0..count + spare).for_each(|host| world.train_in(host, 3_000));
    Ok((world, all))
}

/// Whether this keeps `host` out at some moment, as it reads it.
fn reads(world: &mut World, host: usize, obstacle: Obstacle) -> Result<bool, Violation> {
    world.until(END_MS, |world| world.wait(host) == Some(Wait::LeftOut(obstacle)))
}

/// R41, R42: of three voters none is joined with the newcomer, or one. A ring of three has no place
/// for it in either case, and only in the first one nobody at all reaches it.
#[test]
fn a_newcomer_reads_with_how_many_voters_it_is_joined() -> Played {
    for linked in 0..2 {
        let (mut world, all) = slow(3, 1)?;
        world.set_undialable(&[3]);
        all[linked..].iter().for_each(|host| world.unlink(*host, 3));
        world.start(&[3]);
        let few = Obstacle::FewLinks { linked, voters: 3 };
        let obstacle = if linked == 0 { Obstacle::NotDirect } else { few };
        assert!(reads(&mut world, 3, obstacle)?, "{obstacle:?}");
        ends_amid(world, &[Accepts, LeftOut])?;
    }
    Ok(())
}

/// R36: the others wait for a newcomer, but not for a minute.
#[test]
fn a_slow_newcomer_reads_that_it_was_late() -> Played {
    let (mut world, _) = slow(3, 1)?;
    world.train_in(3, 60_000);
    world.start(&[3]);
    assert!(reads(&mut world, 3, Obstacle::Late)?);
    ends_amid(world, &[Accepts, LeftOut])
}

/// G5: a ring of two voters takes one newcomer at a time, and four come at once.
#[test]
fn newcomers_read_that_others_have_the_places() -> Played {
    let (mut world, _) = slow(2, 4)?;
    world.start(&[2, 3, 4, 5]);
    let full = Some(Wait::LeftOut(Obstacle::NoPlace));
    assert!(world.until(END_MS, |world| (2..6).any(|host| world.wait(host) == full))?);
    ends_amid(world, &[End::Roster, Accepts, LeftOut])
}

/// G6: a voter hears the others, and they do not hear it. After a grace their rosters do not name it.
#[test]
fn a_voter_reads_that_it_is_not_heard() -> Played {
    let mut read = 0;
    for mute in 0..3 {
        let (mut world, _) = slow(3, 0)?;
        world.direct(move |from, _, _| if from == mute { Fate::Drop } else { Fate::Deliver });
        read += u32::from(reads(&mut world, mute, Obstacle::Unheard)?);
        ends_amid(world, &[Trains, Training, End::Roster, Accepts, LeftOut])?;
    }
    // A voter whose turn it is at that moment has accepted a roster of its own.
    assert!(read > 0);
    Ok(())
}

/// T4: a voter whose clock is hours ahead refuses the ring that brings a ticket along, which the
/// clocks of the others still accept.
#[test]
fn a_voter_whose_clock_is_ahead_reads_so() -> Played {
    let mut world = scene(4, 0, None);
    world.invite(NOW);
    let founders = world.new_invite(0xf0, ORGANISER, |terms| terms.uses = 3);
    world.hand_all(&[0, 1, 2], 0xf0, &founders);
    world.set_clock(0, 20_000);
    world.start(&[0, 1, 2]);
    reach(&mut world, &[0, 1, 2], 2)?;
    let invite = world.new_invite(0xf1, ORGANISER, |terms| terms.expires = NOW + 60);
    world.hand_all(&[3], 0xf1, &invite);
    world.start(&[3]);
    assert!(reads(&mut world, 0, Obstacle::Clock)?);
    ends_amid(world, &[End::Roster, Accepts, LeftOut])
}

/// R15: it hears how far the run is before anybody answers it. From then on it must not read that the
/// run has not begun.
#[test]
fn a_newcomer_that_hears_a_head_reads_that_the_others_are_further() -> Played {
    let (mut world, all) = founded(3, 1, None)?;
    reach(&mut world, &all, 3)?;
    world.start(&[3]);
    world.drop_requests(3);
    let mut hears = false;
    for _ in 0..GRACE_MS / 20 {
        world.play(20)?;
        hears |= world.wait(3) == Some(Wait::PassedOver);
        assert!(!(hears && matches!(world.wait(3), Some(Wait::Founders { .. }))));
    }
    assert!(hears);
    world.let_through();
    let epoch = world.epoch(all[0]);
    reach(&mut world, &[3], epoch + 2)?;
    let own = [Trains, Training, LeftOut, PassedOver, Behind];
    let shared = [End::Roster, Accepts, Ring, End::Votes, Update];
    ends_amid(world, &[&own[..], &shared].concat())
}
