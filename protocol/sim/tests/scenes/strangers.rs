//! Well-signed and well-formed messages of strangers about things in which they have no part: they
//! change nothing, fill no table, and no honest peer is blamed for them.

use std::iter::once;

use intellect_protocol::base::blocks::Blocks;
use intellect_protocol::base::id::{Digest, LogId};
use intellect_protocol::base::sign::Signature;
use intellect_protocol::message::seal::Seal;
use intellect_protocol::message::wire;
use intellect_protocol::message::{
    Accept, Heartbeat, Join, Keep, Kept, Member, Phase, Refusal, Refuse, Regroup, Roster, Series,
    Voter,
};
use intellect_protocol_sim::network::Fate;
use intellect_protocol_sim::world::scene::stranger;

use super::*;

const STRANGER: u8 = 200;
const OTHER_STRANGER: u8 = 201;

fn digest(n: u32) -> Digest {
    Digest::derive("a stranger's", &n.to_le_bytes())
}

/// Plays until a roster of `epoch` has been sent, and returns it.
fn next_roster(world: &mut World, epoch: u64) -> Result<Roster, Violation> {
    let seen: Noted<Option<Roster>> = Rc::default();
    let note = Rc::clone(&seen);
    world.direct(move |_, _, message| {
        if let Message::Roster(roster) = message
            && roster.series.epoch == epoch
        {
            note.borrow_mut().get_or_insert_with(|| roster.clone());
        }
        Fate::Deliver
    });
    assert!(world.until(END_MS, |_| seen.borrow().is_some())?);
    world.let_through();
    let roster = seen.borrow().clone();
    Ok(roster.unwrap())
}

/// A heartbeat of the stranger, with the head of `host`.
fn heartbeat(world: &World, host: usize, count: u64) -> Message {
    let head = world.head(host).unwrap();
    Message::Heartbeat(Heartbeat {
        count,
        head,
        series: Series::after(&head),
        joined: None,
        closed: false,
        log: LogId([STRANGER; 16]),
        incarnation: 1,
        phase: Phase::Train,
        attempt: 0,
        ready: 0,
        direct: true,
        unlinked: Vec::new(),
        round_trips: Vec::new(),
        send_rate: 1,
        serves: head.epoch,
        notice: 0,
        attested: 0,
        ticket: None,
    })
}

/// All commit `epoch` at the first attempt, and no peer is blamed.
fn undisturbed(world: &mut World, all: &[usize], epoch: u64) -> Played {
    reach(world, all, epoch)?;
    for host in all {
        assert_eq!(commit(world, *host, epoch).attempt, 1);
    }
    assert!(world.same(all) && world.blamed.is_empty());
    Ok(())
}

/// R11: a stranger votes for another value before the ring has ended. Its vote must not count.
#[test]
fn a_stranger_votes_for_another_value() -> Played {
    let (mut world, all) = founded(4, 0, None)?;
    let roster = next_roster(&mut world, 2)?;
    let receipt = roster.receipt(digest(1));
    let (roster_digest, r) =
        (wire::roster_digest(&world.run, &roster), wire::receipt_digest(&world.run, &receipt));
    let done = Done { series: roster.series, roster: roster_digest, r, update: receipt.update };
    world.say(&all, STRANGER, &heartbeat(&world, all[0], 1));
    world.say(&all, STRANGER, &Message::Done(done));
    undisturbed(&mut world, &all, 2)?;
    ends(world, &[Trains])
}

/// R37: a stranger refuses a roster. Only a member that was asked can refuse.
#[test]
fn a_stranger_refuses_a_roster() -> Played {
    let (mut world, all) = founded(4, 0, None)?;
    let roster = next_roster(&mut world, 2)?;
    let what = wire::roster_digest(&world.run, &roster);
    let head = world.head(all[0]).unwrap();
    for promised in [1, 7, u64::MAX] {
        let refuse =
            Refuse { series: roster.series, what, promised, head, reason: Refusal::Promised };
        world.say(&all, STRANGER, &Message::Refuse(refuse));
    }
    undisturbed(&mut world, &all, 2)?;
    ends(world, &[Trains])
}

/// G5, R41: anybody can make a key that says that it is Ready and reached. Where no connection joins it with the
/// proposer, it gets no position, and nobody waits for it.
#[test]
fn a_key_that_only_gossip_brings_costs_no_attempt() -> Played {
    let (mut world, all) = founded(4, 0, None)?;
    world.set_undialable(&[]);
    let first = world.epoch(all[0]) + 1;
    for count in 1..=60 {
        let Message::Heartbeat(beat) = heartbeat(&world, all[0], count) else { unreachable!() };
        world.say(&all, STRANGER, &Message::Heartbeat(Heartbeat { ready: 50, ..beat }));
        world.play(500)?;
    }
    let last = world.epoch(all[0]);
    assert!(last > first + 10, "{last}");
    (first..=last).try_for_each(|epoch| undisturbed(&mut world, &all, epoch))?;
    ends(world, &[Trains])
}

/// Votes on rosters and Regroups that do not exist must leave room for those that do.
#[test]
fn strangers_fill_no_table() -> Played {
    let (mut world, all) = founded(4, 0, None)?;
    let head = world.head(all[0]).unwrap();
    let series = Series::after(&head);
    world.say(&all, STRANGER, &heartbeat(&world, all[0], 1));
    for n in 0..700 {
        let (roster, log) = (digest(n), LogId([STRANGER; 16]));
        let done = Done { series, roster, r: digest(n + 1), update: digest(n) };
        world.say(&all, STRANGER, &Message::Done(done));
        world.say(&all, STRANGER, &Message::Accept(Accept { series, roster }));
        let join = Join { series, regroup: roster, log, done: None };
        world.say(&all, STRANGER, &Message::Join(join));
    }
    undisturbed(&mut world, &all, 2)?;
    ends(world, &[Trains])
}

/// D1, R32: a roster claims to keep impossible blocks. They are compared with their bounds
/// before use, and are a fault.
#[test]
fn a_stranger_keeps_blocks_that_do_not_exist() -> Played {
    let (mut world, all) = founded(4, 0, None)?;
    let head = world.head(all[0]).unwrap();
    let (peer, log) = (stranger(STRANGER), LogId([STRANGER; 16]));
    let member = Member { peer, log, incarnation: 1, weight: 1 };
    let seal = Seal { digest: digest(1), signature: Signature([1; 64]) };
    let kept = |chunk: u32, blocks: Blocks| Kept { chunk, seal, blocks, holders: vec![peer] };
    let keeps = [
        vec![kept(0, Blocks::of(once(0..u64::MAX - 1))), kept(1, Blocks::of(once(1..u64::MAX)))],
        vec![kept(0, Blocks::of(once(0..1))), kept(0, Blocks::of(once(1..2)))],
        (0..4_000).map(|n| kept(n, Blocks::of(once(u64::from(n)..u64::from(n) + 1)))).collect(),
        vec![kept(u32::MAX, Blocks::of(once(0..1)))],
    ];
    for (n, chunks) in (0..).zip(keeps) {
        let keep = vec![Keep { roster: digest(n), members: vec![member], chunks }];
        let roster = Roster {
            series: Series::after(&head),
            attempt: 2,
            proposer: peer,
            members: vec![member],
            heard: Vec::new(),
            adopt: None,
            trust: None,
            keep,
        };
        world.say(&all, STRANGER, &Message::Roster(roster));
        world.play(1)?;
    }
    assert!(world.blamed.len() >= 4 * all.len(), "{:?}", world.blamed);
    reach(&mut world, &all, 2)?;
    assert!(world.same(&all));
    ends(world, &[Trains])
}

/// R12, R13: a stranger proposes Regroups with the greatest number, never joins, and
/// announces a greater head that it never shows. Numbers cannot be used up, and the
/// survivors regroup without it.
#[test]
fn a_stranger_stops_no_regroup() -> Played {
    let (mut world, all) = founded(4, 0, None)?;
    let [a, b, c, d] = all[..] else { unreachable!() };
    let head = world.head(a).unwrap();
    world.kill(&[a, b]);
    let members: Vec<Voter> = commit(&world, c, 1).receipt.voters();
    let regroup = Regroup {
        series: Series::after(&head),
        number: u64::MAX - 1,
        proposer: stranger(STRANGER),
        members,
        absent: Vec::new(),
        trust: None,
    };
    for count in 1..240 {
        let mut beat = heartbeat(&world, c, count);
        world.say(&[c, d], STRANGER, &beat);
        if let Message::Heartbeat(beat) = &mut beat {
            beat.count += 1_000;
            beat.head.tokens += 1_000_000;
        }
        world.say(&[c, d], OTHER_STRANGER, &beat);
        world.say(&[c, d], STRANGER, &Message::Regroup(regroup.clone()));
        world.play(500)?;
    }
    assert!(all_at(&world, &[c, d], 3), "{:?}", [world.head(c), world.head(d)]);
    assert_eq!(regroups(&world, c), [(sorted(&[c, d]), sorted(&[a, b]))]);
    assert!(world.blamed.is_empty());
    ends_amid(world, &[Trains, Training, Update])
}

/// R12, R14: a Regroup that hides an absent voter, or names a member twice, is a fault of its
/// proposer. That of a peer without a vote is not even read (G8).
#[test]
fn a_regroup_that_hides_a_voter_is_a_fault() -> Played {
    let (mut world, all) = founded(4, 0, None)?;
    let series = Series::after(&world.head(all[0]).unwrap());
    let voters = commit(&world, all[0], 1).receipt.voters();
    let proposer = stranger(STRANGER);
    world.say(&all, STRANGER, &heartbeat(&world, all[0], 1));
    world.play(10)?;
    let mut why = Vec::new();
    for members in [voters[..2].to_vec(), [voters.clone(), voters[..1].to_vec()].concat()] {
        let regroup =
            Regroup { series, number: 1, proposer, members, absent: Vec::new(), trust: None };
        let judged = world.validator().check_regroup(&voters, None, &regroup, |_| false);
        why.push(judged.unwrap_err().to_string());
        world.say(&all[..1], STRANGER, &Message::Regroup(regroup));
    }
    assert!(why[0].contains("absent") && why[1].contains("twice"), "{why:?}");
    undisturbed(&mut world, &all, 2)?;
    ends(world, &[Trains])
}
