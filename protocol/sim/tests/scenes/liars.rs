//! A quorum that tolerates liars (`tolerate = "liars"`): when peers go on, and when they wait.

use intellect_protocol::message::{Accept, Prepared, QuorumRule, Ready, Refusal, Roster, wire};

use intellect_protocol_sim::liars::Liar;

use super::*;

fn run(count: usize) -> Result<(World, Vec<usize>), Violation> {
    found(World::scene_with(count, 0, QuorumRule::Byzantine, OFF.get()), count)
}

/// Five of seven voters decide. With four of them they wait, without a Regroup,
/// and go on when a fifth is back.
#[test]
fn four_of_seven_wait() -> Played {
    let (mut world, all) = run(7)?;
    world.kill(&all[5..]);
    world.play(3 * GRACE_MS)?;
    let epoch = world.epoch(all[0]) + 2;
    reach(&mut world, &all[..5], epoch)?;
    // The next voters are the five that were there; four of them decide.
    assert_eq!(world.voters(all[0]).len(), 5);
    world.kill(&all[3..5]);
    let epoch = world.epoch(all[0]);
    world.play(4 * GRACE_MS)?;
    assert!(all[..3].iter().all(|host| world.epoch(*host) <= epoch + 1));
    let epoch = world.epoch(all[0]);
    world.play(4 * GRACE_MS)?;
    assert!(all[..3].iter().all(|host| world.epoch(*host) == epoch));
    assert!(all[..3].iter().all(|host| regroups(&world, *host).is_empty()));
    let missing = all[3..5].iter().map(|host| world.name(*host)).collect();
    let (enough, regroups, rule) = (false, false, QuorumRule::Byzantine);
    let waits = Wait::Voters { missing, all: 5, enough, regroups, rule };
    assert_eq!(world.wait(all[0]), Some(waits));
    world.start(&all[3..4]);
    reach(&mut world, &all[..4], epoch + 2)?;
    ends(world, &[Trains])
}

/// R15: two Regroups at once split seven founders into three and four. None of them may found the run
/// without the others: of three, a liar would be a third.
#[test]
fn r15_a_founding_that_was_split_names_all_of_them_again() -> Played {
    let mut world = World::scene_with(7, 0, QuorumRule::Byzantine, None);
    let joined: Noted<BTreeSet<usize>> = Rc::default();
    let noted = joined.clone();
    world.direct(move |from, to, message| match message {
        Message::Regroup(_) | Message::Join(_) => {
            let is_split = noted.borrow().len() < 7 && (from < 3) != (to < 3);
            if matches!(message, Message::Join(_)) {
                noted.borrow_mut().insert(from);
            }
            if is_split { Fate::Drop } else { Fate::Deliver }
        }
        _ => Fate::Deliver,
    });
    let all: Vec<usize> = (0..7).collect();
    world.start(&all);
    reach(&mut world, &all, 1)?;
    let members = |host: usize| {
        let founded = world.events(host).find_map(|event| match event {
            Event::Regroup { members, number, .. } => Some((members.len(), *number > 1)),
            _ => None,
        });
        founded.unwrap()
    };
    assert!(all.iter().all(|host| members(*host) == (7, true)), "{:?}", members(0));
    ends(world, &[Trains])
}

/// R5: no voter votes on a free roster before a quorum has said that it holds the update.
#[test]
fn a_vote_waits_until_a_quorum_is_prepared() -> Played {
    let (mut world, all) = run(4)?;
    let votes = counter();
    let voted = votes.clone();
    world.direct(move |_, _, message| match message {
        Message::Prepared(Prepared { series, .. }) if series.epoch == 3 => Fate::Drop,
        Message::Done(done) if done.series.epoch == 3 => {
            count(&voted);
            Fate::Deliver
        }
        _ => Fate::Deliver,
    });
    reach(&mut world, &all, 2)?;
    world.play(4_000)?;
    let waits = all.iter().all(|host| world.epoch(*host) == 2);
    assert!(waits && votes.get() == 0, "{} votes", votes.get());
    let missing = |host: usize| match world.wait(host) {
        Some(Wait::Votes(missing)) => missing.len(),
        other => panic!("{other:?}"),
    };
    assert_eq!(all.iter().map(|host| missing(*host)).collect::<Vec<_>>(), [3; 4]);
    world.let_through();
    reach(&mut world, &all, 4)?;
    ends(world, &[Trains])
}

/// R5: the owner of the last chunk seals it twice, so one of four voters computes another update
/// than the others. All of them have accepted the roster, and nobody votes on it, since no quorum
/// holds one update. A later attempt decides.
#[test]
fn an_owner_that_seals_twice() -> Played {
    let (mut world, all) = run(4)?;
    let id = world.run;
    let first: Noted<Option<(Digest, Roster)>> = Rc::default();
    let held: Noted<BTreeMap<usize, Digest>> = Rc::default();
    let liar: Rc<Cell<Option<usize>>> = Rc::default();
    let votes = counter();
    let (made, holds, owner, voted) = (first.clone(), held.clone(), liar.clone(), votes.clone());
    world.direct(move |from, _, message| {
        let is_first = |roster: &Digest| made.borrow().as_ref().is_some_and(|(of, _)| of == roster);
        match message {
            // Nobody hears what the owner holds or votes for: the three others are a quorum.
            Message::Prepared(_) | Message::Done(_) if owner.get() == Some(from) => {
                return Fate::Drop;
            }
            Message::Prepared(prepared) if is_first(&prepared.roster) => {
                holds.borrow_mut().insert(from, prepared.update);
            }
            Message::Done(done) if is_first(&done.roster) => count(&voted),
            Message::Roster(roster) if roster.series.epoch == 2 && made.borrow().is_none() => {
                *made.borrow_mut() = Some((wire::roster_digest(&id, roster), roster.clone()));
            }
            _ => {}
        }
        Fate::Deliver
    });
    assert!(world.until(END_MS, |_| first.borrow().is_some())?);
    let members = first.borrow().as_ref().unwrap().1.members.clone();
    assert!(members.iter().all(|member| member.weight > 0), "{members:?}");
    let ring: Vec<usize> = members.iter().map(|m| world.host(&m.peer).unwrap()).collect();
    let [a, b, seals, other] = ring[..] else { panic!("{} of {all:?}", ring.len()) };
    world.call_liar(seals);
    liar.set(Some(seals));
    world.deceive(Some(other));
    let honest = [a, b, other];
    assert!(world.until(END_MS, |_| held.borrow().len() == honest.len())?, "{held:?}");
    let updates: BTreeSet<Digest> = held.borrow().values().copied().collect();
    assert_eq!(updates.len(), 2, "{updates:?}");
    world.deceive(None);
    reach(&mut world, &honest, 3)?;
    assert_eq!(votes.get(), 0, "votes on a roster of two updates");
    assert!(commit(&world, a, 2).attempt > 1 && regroups(&world, a).is_empty());
    ends(world, &[Trains])
}

#[test]
fn prepared_is_missed() {
    missed(Rule::Prepared, an_owner_that_seals_twice);
}

/// R5, R20: a voter that has said `Prepared` is killed. After its restart it
/// says the same again, and votes.
#[test]
fn a_voter_that_was_prepared_comes_back() -> Played {
    let (mut world, all) = run(4)?;
    let prepared = counter();
    let said = prepared.clone();
    let first = all[0];
    world.direct(move |from, _, message| match message {
        Message::Prepared(prepared) if prepared.series.epoch == 2 && from == first => {
            count(&said);
            Fate::Deliver
        }
        Message::Done(done) if done.series.epoch == 2 => Fate::Drop,
        Message::Commit(_) => Fate::Drop,
        _ => Fate::Deliver,
    });
    assert!(world.until(END_MS, |_| prepared.get() > 0)?);
    world.kill(&[first]);
    world.play(1_000)?;
    world.start(&[first]);
    world.let_through();
    reach(&mut world, &all, 3)?;
    assert!(world.same(&all) || world.until(END_MS, |world| world.same(&all))?);
    ends(world, &[Trains])
}

/// R37: the Accepts of attempt 1 do not reach one voter, so the ring of the others stands still.
/// That voter comes to attempt 2 alone, and waits there until others come to it.
#[test]
fn a_hasty_voter_waits_for_the_others() -> Played {
    let (mut world, all) = run(7)?;
    let hasty = all[6];
    let (alone, highest) = (Rc::new(Cell::new(true)), Rc::new(Cell::new(0)));
    let (is_alone, reached) = (alone.clone(), highest.clone());
    world.direct(move |from, to, message| match message {
        Message::Accept(accept) if accept.series.epoch == 2 && to == hasty && is_alone.get() => {
            Fate::Drop
        }
        Message::Heartbeat(beat) if beat.series.epoch == 2 && beat.attempt > 1 => {
            is_alone.set(is_alone.get() && from == hasty);
            if is_alone.get() {
                reached.set(beat.attempt.max(reached.get()));
            }
            Fate::Deliver
        }
        _ => Fate::Deliver,
    });
    reach(&mut world, &all, 3)?;
    assert_eq!((alone.get(), highest.get()), (false, 2));
    assert!(world.same(&all) && regroups(&world, all[0]).is_empty());
    ends(world, &[Trains])
}

/// G6: nine of ten voters have been Ready for longer than anybody's patience, and wait for the tenth. Then
/// one of them proposes that only so many voters have a position. Returns how many of the other
/// eight accept that, and how many refuse it because positions are missing.
fn answers_to_a_late_roster(places: usize) -> Result<(World, usize, usize), Violation> {
    let (mut world, all) = run(10)?;
    let [liar, ready @ .., slow] = &all[..] else { unreachable!() };
    let (id, epoch) = (world.run, world.epoch(*slow) + 2);
    let (accepts, refusals): (Noted<BTreeSet<usize>>, Noted<BTreeSet<usize>>) = Default::default();
    let (accepted, refused) = (accepts.clone(), refusals.clone());
    let readies: Noted<BTreeMap<usize, Ready>> = Rc::default();
    let said: Rc<Cell<Option<Digest>>> = Rc::default();
    let (note, judged) = (readies.clone(), said.clone());
    world.direct(move |from, _, message| {
        match message {
            Message::Ready(declared) if declared.series.epoch == epoch => {
                note.borrow_mut().insert(from, declared.clone());
            }
            Message::Accept(Accept { roster, .. }) if judged.get() == Some(*roster) => {
                accepted.borrow_mut().insert(from);
            }
            Message::Refuse(refuse) if judged.get() == Some(refuse.what) => {
                assert_eq!(refuse.reason, Refusal::Places);
                refused.borrow_mut().insert(from);
            }
            _ => {}
        }
        Fate::Deliver
    });
    reach(&mut world, &[*slow], epoch - 1)?;
    world.train_in(*slow, 20_000);
    assert!(world.until(END_MS, |_| readies.borrow().len() == 9)?);
    world.play(1_500)?;
    let mut members = commit(&world, *liar, epoch - 1).receipt.members;
    for member in &mut members {
        let host = world.host(&member.peer).unwrap();
        member.weight =
            if all[..places].contains(&host) { readies.borrow()[&host].weight } else { 0 };
    }
    members.sort_by_key(|member| member.weight == 0);
    let (series, proposer) = (world.series(*liar).unwrap(), world.name(*liar));
    let (heard, adopt, trust, keep) = (Vec::new(), None, None, Vec::new());
    let roster = Roster { series, attempt: 1, proposer, members, heard, adopt, trust, keep };
    said.set(Some(wire::roster_digest(&id, &roster)));
    world.say_as(ready, proposer, &Message::Roster(roster));
    world.play(500)?;
    world.let_through();
    reach(&mut world, ready, epoch + 1)?;
    // The tenth voter may get the roster along with the Accepts.
    accepts.borrow_mut().remove(slow);
    let (accepts, refusals) = (accepts.borrow().len(), refusals.borrow().len());
    Ok((world, accepts, refusals))
}

/// G6: three of ten voters may lie and have a position each, so a third of the others have one only
/// where five have one in all.
#[test]
fn g6_liars_with_positions_leave_a_third_to_the_others() -> Played {
    let (world, accepts, refusals) = answers_to_a_late_roster(4)?;
    assert_eq!((accepts, refusals), (0, 8));
    ends_amid(world, &[Trains, Update])?;
    let (world, accepts, refusals) = answers_to_a_late_roster(5)?;
    assert_eq!((accepts, refusals), (8, 0));
    ends_amid(world, &[Trains, Update])
}

/// G6: the first ring of each epoch stands still, as another honest voter sends nothing in it. A liar leaves out of
/// its own roster a neighbour that it reports lost just before. However often it does, that neighbour
/// keeps its vote.
#[test]
fn g6_whom_a_liar_calls_lost_keeps_its_vote() -> Played {
    let (mut world, all) = run(7)?;
    let (honest, liar) = (&all[..6], all[6]);
    world.lie_as(liar, Liar::named("leaves out one that it calls lost", 1).unwrap());
    let (begin, end_ms) = (world.epoch(honest[0]), world.now_ms + END_MS);
    while world.epoch(honest[0]) < begin + 40 && world.now_ms < end_ms {
        let epoch = world.epoch(honest[0]);
        let still = honest[usize::try_from(epoch).unwrap() % honest.len()];
        for host in honest {
            let first = world.phase(*host).is_some_and(|(_, attempt)| attempt < 2);
            let sends = if *host == still && first { Sends::Never } else { Sends::AsItShould };
            world.send_in_rings(*host, sends);
        }
        world.play(20)?;
        let voters = world.voters(honest[0]);
        let out: Vec<&usize> = honest.iter().filter(|host| !voters.contains(host)).collect();
        assert!(out.is_empty(), "{out:?} of {honest:?} do not vote after epoch {epoch}");
    }
    assert!(world.epoch(honest[0]) >= begin + 40, "{}", world.epoch(honest[0]));
    ends_amid(world, &[Trains, Training, Ring, Update, End::Votes, End::Roster])
}

/// R37: a liar proposes with a wrong start of one honest member, which that cannot accept. The others
/// do not take it for late.
#[test]
fn r37_whom_a_liar_names_wrongly_is_not_late() -> Played {
    let (mut world, all) = run(7)?;
    let (honest, liar) = (&all[..6], all[6]);
    world.lie_as(liar, Liar::named("names another start", 1).unwrap());
    // All wait until it is Ready too, and it is the first to know.
    world.train_in(liar, 3_000);
    let (begin, mut idle) = (world.epoch(honest[0]), 0);
    reach(&mut world, honest, begin + 20)?;
    for epoch in begin + 1..=begin + 20 {
        let committed = commit(&world, honest[0], epoch);
        let has_none = |host: &&usize| weight(&world, &committed, **host).unwrap_or(0) == 0;
        idle += honest.iter().filter(has_none).count();
    }
    assert_eq!(idle, 0);
    ends_amid(world, &[Trains, Training, Ring, Update, End::Votes, End::Roster])
}
