//! Ballots that fail, meet, and are resumed: R2–R9, R16–R18.

use intellect_protocol::message::{Message, Roster};

use super::*;

/// R3: the first roster is late, so the next peers in turn propose as well. None of them can
/// collect all Accepts. Each peer has accepted one of the rosters in time, so all have a position
/// at the next attempt (R37).
#[test]
fn two_proposers_one_attempt() -> Played {
    for count in [3, 4, 6, 8] {
        let (mut world, all) = founded(count, 0, None)?;
        world.direct(|_, _, message| match message {
            Message::Roster(Roster { attempt: 1, .. }) => Fate::Delay(200),
            _ => Fate::Deliver,
        });
        let duels = world.report.of(Count::Duels);
        reach(&mut world, &all, 2)?;
        assert!(world.report.of(Count::Duels) > duels, "one proposed alone");
        let second = commit(&world, all[0], 2);
        let placed = all.iter().filter(|host| weight(&world, &second, **host) > Some(0));
        assert_eq!(placed.count(), count, "{second:?}");
        assert!(world.same(&all) && second.attempt >= 2);
        ends(world, &[Trains])?;
    }
    Ok(())
}

/// R4, R37: the proposer dies when its roster has reached one peer. A
/// survivor starts the next attempt.
#[test]
fn proposer_dies_after_one_roster_sent() -> Played {
    let (mut world, all) = founded(3, 0, None)?;
    let proposer: Noted<Option<usize>> = Rc::default();
    let noted = proposer.clone();
    world.direct(move |from, to, message| match message {
        Message::Roster(_) if noted.borrow().is_none() => {
            *noted.borrow_mut() = Some(from);
            assert_ne!(from, to);
            Fate::Deliver
        }
        _ if *noted.borrow() == Some(from) => Fate::Drop,
        _ => Fate::Deliver,
    });
    assert!(world.until(END_MS, |_| proposer.borrow().is_some())?);
    let dead = proposer.borrow().unwrap();
    world.kill(&[dead]);
    let rest: Vec<usize> = all.iter().copied().filter(|host| *host != dead).collect();
    world.play(20)?;
    let reached = rest.iter().filter(|host| !accepted(&world, **host, 2).is_empty()).count();
    assert_eq!(reached, 1, "its roster reached one");
    reach(&mut world, &rest, 2)?;
    let second = commit(&world, rest[0], 2);
    assert!(second.attempt >= 2 && weight(&world, &second, dead) == Some(0), "{second:?}");
    assert!(world.same(&rest) && regroups(&world, rest[0]).is_empty());
    ends(world, &[Trains])
}

/// R37: `c` is alive, answers and never accepts. It costs one attempt, and has
/// no position in the next one.
#[test]
fn who_does_not_accept_costs_one_attempt() -> Played {
    let (mut world, all) = founded(4, 0, None)?;
    let c = all[2];
    world.direct(move |from, _, message| match message {
        Message::Accept(_) if from == c => Fate::Drop,
        _ => Fate::Deliver,
    });
    let before = world.now_ms;
    reach(&mut world, &all, 3)?;
    let second = commit(&world, all[0], 2);
    assert_eq!((second.attempt, weight(&world, &second, c)), (2, Some(0)), "{second:?}");
    assert!(world.now_ms - before < 10_000, "an epoch must not wait for one that only lives");
    world.let_through();
    reach(&mut world, &all, 4)?;
    let fourth = commit(&world, all[0], 4);
    assert!(weight(&world, &fourth, c) > Some(0) && world.same(&all), "{fourth:?}");
    ends(world, &[Trains])
}

/// R7: `a` and `b` have decided, and no peer heard of it. `c` hears their heartbeats, but not their
/// Statuses: it must not propose without them, or two values would be decided.
fn status_from_a_minority(without: Option<Rule>) -> Played {
    let (mut world, all) = founded(3, 0, without)?;
    let [a, b, c] = all[..] else { unreachable!() };
    world.train_in(c, 5_500);
    let votes = Votes::default();
    let (asked, proposed) = (counter(), counter());
    let (noted, queries, rosters) = (votes.clone(), asked.clone(), proposed.clone());
    world.direct(move |from, _, message| match message {
        Message::Done(done) => {
            noted.borrow_mut().insert(from, done.update);
            Fate::Drop
        }
        Message::Query(_) => {
            count(&queries);
            if from == c { Fate::Deliver } else { Fate::Drop }
        }
        Message::Roster(roster) if roster.attempt > 1 => {
            count(&rosters);
            if from == c { Fate::Deliver } else { Fate::Drop }
        }
        Message::Status(_) => Fate::Drop,
        _ => Fate::Deliver,
    });
    assert!(world.until(END_MS, |_| votes.borrow().len() == 2)?);
    world.play(5_000)?;
    assert!(asked.get() > 0 && !votes.borrow().contains_key(&c));
    assert_eq!(proposed.get(), 0, "a roster from Statuses of a minority");
    assert!(all_at(&world, &all, 1) && !all_at(&world, &[a], 2));
    world.let_through();
    reach(&mut world, &all, 2)?;
    assert_eq!(commit(&world, c, 2).receipt.update, votes.borrow()[&b]);
    assert!(world.same(&all));
    ends(world, &[Trains])
}

#[test]
fn r7_status_from_a_minority_proposes_nothing() -> Played {
    status_from_a_minority(None)
}

#[test]
fn r7_is_missed() {
    assert_eq!(status_from_a_minority(Some(Rule::R7)).unwrap_err().invariant, "S2");
}

/// R16: `a` hears the last Done, commits alone and is gone. The others must come to the same value.
#[test]
fn last_done_reaches_one_peer() -> Played {
    for returns in [false, true] {
        let (mut world, all) = founded(3, 0, None)?;
        let [a, b, c] = all[..] else { unreachable!() };
        world.direct(move |from, to, message| match message {
            Message::Done(_) if to != a => Fate::Drop,
            Message::Commit(_) | Message::Heartbeat(_) if from == a => Fate::Drop,
            _ => Fate::Deliver,
        });
        reach(&mut world, &[a], 2)?;
        let head = world.head(a);
        assert!(world.epoch(b) == 1 && world.epoch(c) == 1, "{a} is alone");
        if returns {
            world.pause(a);
        } else {
            world.kill(&[a]);
        }
        world.let_through();
        world.train_in(b, 60_000);
        world.train_in(c, 60_000);
        reach(&mut world, &[b, c], 2)?;
        assert_eq!((world.head(b), world.head(c)), (head, head));
        let second = commit(&world, b, 2);
        assert!(!second.regrouped);
        if returns {
            world.play(3_600_000)?;
            assert!(world.epoch(b) > 30);
            world.resume(a);
            let together = world.until(END_MS, |world| world.epoch(a) > 30 && world.same(&all))?;
            assert!(together && forks(&world, a).iter().all(|undone| *undone == 0));
        }
        ends(world, &[Trains])?;
    }
    Ok(())
}

/// R8, R9: `b` queries, adopts the value that `a` voted for, and is cut off when it votes.
#[test]
fn adopter_cut_off() -> Played {
    let (mut world, all) = founded(3, 0, None)?;
    let [a, b, c] = all[..] else { unreachable!() };
    // Only `a` computes; its vote is heard in its Status alone, and only `b` queries.
    world.train_in(b, 60_000);
    world.train_in(c, 60_000);
    let votes = Votes::default();
    let noted = votes.clone();
    world.direct(move |from, _, message| match message {
        Message::Done(done) => {
            noted.borrow_mut().insert(from, done.update);
            Fate::Drop
        }
        Message::Query(_) if from != b => Fate::Drop,
        _ => Fate::Deliver,
    });
    assert!(world.until(END_MS, |_| votes.borrow().contains_key(&b))?);
    let adopted = accepted(&world, b, 2);
    assert!(adopted.iter().any(|(attempt, adopt)| *attempt >= 2 && adopt.is_some()), "{adopted:?}");
    world.cut(&[b], 1);
    world.let_through();
    reach(&mut world, &[a, c], 2)?;
    let second = commit(&world, c, 2);
    assert_eq!(second.receipt.update, votes.borrow()[&a]);
    assert_eq!(weight(&world, &second, c), Some(0), "{c} did not compute it");
    assert!(world.epoch(b) == 1 && !second.regrouped);
    world.mend();
    reach(&mut world, &all, 3)?;
    assert!(all.iter().all(|host| forks(&world, *host).is_empty()));
    ends(world, &[Trains])
}

/// R8: `a` alone voted for its value; `b` and `c`, which did not hear of that, decided another one.
/// The next attempt hears `a` and `b`, and must adopt the decided value.
fn adopted_at_three(without: Option<Rule>) -> Played {
    let (mut world, all) = founded(3, 0, without)?;
    let [a, b, c] = all[..] else { unreachable!() };
    world.train_in(b, 5_500);
    world.train_in(c, 5_500);
    let votes = Votes::default();
    let noted = votes.clone();
    world.direct(move |from, _, message| match message {
        Message::Done(done) => {
            noted.borrow_mut().insert(from, done.update);
            Fate::Drop
        }
        _ => Fate::Deliver,
    });
    assert!(world.until(END_MS, |_| votes.borrow().contains_key(&a))?);
    world.cut(&[a], 1);
    assert!(world.until(END_MS, |_| votes.borrow().len() == 3)?);
    let (first, decided) = (votes.borrow()[&a], votes.borrow()[&b]);
    assert!(decided == votes.borrow()[&c] && decided != first);
    let highest = accepted(&world, b, 2).iter().map(|(attempt, _)| *attempt).max();
    world.kill(&[c]);
    world.mend();
    world.let_through();
    reach(&mut world, &[a, b], 2)?;
    let second = commit(&world, a, 2);
    assert_eq!(second.receipt.update, decided);
    assert!(Some(second.attempt) > highest && highest > Some(1), "{highest:?}, {second:?}");
    assert!(world.same(&[a, b]) && !second.regrouped);
    ends(world, &[Trains])
}

#[test]
fn adopted_at_three_decided_at_one() -> Played {
    adopted_at_three(None)
}

#[test]
fn r8_is_missed() {
    assert_eq!(adopted_at_three(Some(Rule::R8)).unwrap_err().invariant, "S2");
}

/// R18: all five vote for one value. `a` commits it by the first certificate, `b` by that of
/// a later roster without `a` and `e`. The next voters must be the same at both, or a
/// partition would give two majorities.
#[test]
fn two_certificates_one_update() -> Played {
    let (mut world, all) = founded(5, 0, None)?;
    let [a, b, c, d, e] = all[..] else { unreachable!() };
    let first: Noted<BTreeMap<Digest, Vec<usize>>> = Rc::default();
    let (asking, noted) = (counter(), first.clone());
    let may_ask = asking.clone();
    // Votes of the first attempt reach `a` only, even when they are repeated.
    world.direct(move |from, to, message| match message {
        Message::Done(done) if noted.borrow().keys().all(|roster| *roster == done.roster) => {
            noted.borrow_mut().entry(done.roster).or_default().push(from);
            if to == a { Fate::Deliver } else { Fate::Drop }
        }
        Message::Commit(_) if from == a => Fate::Drop,
        Message::Query(_) if may_ask.get() == 0 => Fate::Drop,
        _ => Fate::Deliver,
    });
    reach(&mut world, &[a], 2)?;
    assert!(first.borrow().values().all(|from| all.iter().all(|host| from.contains(host))));
    world.cut(&[a, e], 1);
    world.play(1_000)?;
    count(&asking);
    reach(&mut world, &[b, c, d], 2)?;
    world.let_through();
    let (first, second) = (commit(&world, a, 2), commit(&world, b, 2));
    assert!(first.attempt == 1 && second.attempt > 1, "two certificates");
    assert_eq!((first.head, first.receipt.members.len()), (second.head, 5));
    // One epoch later {a, d, e} are three of the five voters, {b, c} are two.
    world.cut(&[d], 1);
    world.play(5_000)?;
    assert!(world.epoch(b) == 2 && world.epoch(c) == 2);
    reach(&mut world, &[a, d, e], 3)?;
    assert_eq!(sorted(&world.voters(b)), sorted(&all));
    assert!(!commit(&world, a, 3).regrouped);
    world.mend();
    let epoch = world.epoch(a) + 1;
    reach(&mut world, &all, epoch)?;
    assert!(all.iter().all(|host| forks(&world, *host).is_empty()));
    ends_amid(world, &[Trains, Behind])
}

#[test]
fn r18_is_missed() {
    missed(Rule::R18, two_certificates_one_update);
}

/// R5: `x` had voted alone for one value, `y` for another. Each hears `z`, and not the other. `z`
/// takes part in a roster of `y` that adopts a value; only one value may be decided.
fn two_that_voted_alone(without: Option<Rule>) -> Played {
    let (mut world, all) = founded(3, 0, without)?;
    // If both votes counted alike, that of the later voter would be adopted.
    let [y, z, x] = all[..] else { unreachable!() };
    world.train_in(y, 5_500);
    world.train_in(z, 90_000);
    let votes = Votes::default();
    let noted = votes.clone();
    // First `x` computes alone, and no peer hears its vote.
    let hidden = move |from: usize, message: &Message| {
        done(message).is_some_and(|done| {
            noted.borrow_mut().insert(from, done.update);
            true
        })
    };
    let silent = hidden.clone();
    world.direct(move |from, _, m| if silent(from, m) { Fate::Drop } else { Fate::Deliver });
    assert!(world.until(END_MS, |_| votes.borrow().contains_key(&x))?);
    // Then `y` does, in a roster that `z` accepts.
    world.pause(x);
    assert!(world.until(END_MS, |_| votes.borrow().contains_key(&y))?);
    assert_ne!(votes.borrow()[&x], votes.borrow()[&y]);
    // `x` and `y` hear `z`, but not each other; `z` hears their queries, and the rosters of `y`.
    let rosters: Noted<BTreeMap<(usize, u64), Digest>> = Rc::default();
    let proposed = rosters.clone();
    let apart = move |from: usize, to: usize| from != z && to != z;
    world.direct(move |from, to, message| match message {
        Message::Roster(roster) if epoch_of(message) == 2 && roster.adopt.is_some() => {
            let adopted = roster.adopt.as_ref().unwrap().update;
            proposed.borrow_mut().insert((from, roster.attempt), adopted);
            if from == x || apart(from, to) { Fate::Drop } else { Fate::Deliver }
        }
        _ if hidden(from, message) || apart(from, to) => Fate::Drop,
        _ => Fate::Deliver,
    });
    world.resume(x);
    let votes_of_z = |votes: &Votes| votes.borrow().get(&z).copied();
    assert!(world.until(END_MS, |_| votes_of_z(&votes).is_some())?);
    assert!(rosters.borrow().keys().any(|(from, _)| *from == y), "{:?}", rosters.borrow());
    let decided = votes_of_z(&votes).unwrap();
    world.kill(&[z]);
    world.let_through();
    reach(&mut world, &[x, y], 2)?;
    assert_eq!(commit(&world, x, 2).receipt.update, decided);
    assert!(world.same(&[x, y]));
    ends(world, &[Trains])
}

#[test]
fn two_that_voted_alone_decide_one_value() -> Played {
    two_that_voted_alone(None)
}

#[test]
fn r5_is_missed() {
    // A peer that votes without a majority's Accepts cannot prove its vote, and is found out.
    assert_eq!(two_that_voted_alone(Some(Rule::R5)).unwrap_err().invariant, "fault");
}

/// R8: `a`'s value was adopted, and its bytes arrived, so `a` withholds nothing. In the next epoch
/// `c`'s value does not reach `b` in time. That is no reason for `b` not to count `a`.
#[test]
fn who_delivered_is_not_mute_for_another() -> Played {
    let (mut world, all) = founded(5, 0, None)?;
    let [a, b, c, d, _] = all[..] else { unreachable!() };
    let votes = Votes::default();
    // In both epochs one peer computes alone, `b` does not hear of its vote, and one peer queries.
    let alone =
        |world: &mut World, voter: usize, asks: usize, epoch: u64, hidden: bool| -> Played {
            all.iter()
                .filter(|host| **host != voter)
                .for_each(|host| world.train_in(*host, 60_000));
            world.train_in(voter, 400);
            votes.borrow_mut().clear();
            let noted = votes.clone();
            world.direct(move |from, to, message| match message {
                Message::Done(done) if done.series.epoch == epoch => {
                    noted.borrow_mut().insert(from, done.update);
                    if hidden || from != voter || to == b { Fate::Drop } else { Fate::Deliver }
                }
                Message::Query(_) if from != asks => Fate::Drop,
                _ => Fate::Deliver,
            });
            let adopts =
                |world: &World| accepted(world, b, epoch).iter().any(|(_, value)| value.is_some());
            let there = |world: &mut World| votes.borrow().len() >= 4 && adopts(world);
            assert!(world.until(END_MS, there)?, "{:?}", votes.borrow());
            Ok(())
        };
    alone(&mut world, a, b, 2, true)?;
    world.let_through();
    reach(&mut world, &all, 2)?;
    world.load_in(b, 8 * 60_000);
    alone(&mut world, c, d, 3, false)?;
    assert!(!votes.borrow().contains_key(&b), "its bytes came to {b}");
    // Now `b` queries: a roster of it names `a`, once that is bound by no other one.
    let heard: Noted<Option<Vec<PeerId>>> = Rc::default();
    let noted = heard.clone();
    world.direct(move |from, _, message| match message {
        Message::Roster(roster) if from == b && epoch_of(message) == 3 => {
            let voters = roster.heard.iter().map(|heard| heard.voter.peer);
            *noted.borrow_mut() = Some(voters.collect());
            Fate::Deliver
        }
        Message::Query(_) if from != b => Fate::Drop,
        Message::Done(_) => Fate::Drop,
        _ => Fate::Deliver,
    });
    let name = world.name(a);
    let hears = |heard: &Option<Vec<PeerId>>| heard.iter().flatten().any(|peer| *peer == name);
    assert!(world.until(END_MS, |_| hears(&heard.borrow()))?, "{a} was not heard: {heard:?}");
    world.let_through();
    world.load_in(b, 0);
    reach(&mut world, &all, 3)?;
    ends_amid(world, &[Trains, Training, LeftOut, End::Votes, Behind])
}

/// R8: a peer that votes for an update and does not deliver it is not counted a second time.
#[test]
fn who_withholds_is_not_heard() -> Played {
    let (mut world, all) = founded(5, 0, None)?;
    let (a, b) = (all[0], all[1]);
    for host in all.iter().filter(|host| **host != a) {
        world.train_in(*host, 2 * END_MS);
        world.load_in(*host, 8 * 60_000);
    }
    let rosters: Noted<Vec<Roster>> = Rc::default();
    let noted = rosters.clone();
    world.direct(move |from, _, message| match message {
        Message::Roster(roster) if roster.attempt > 1 => {
            let mut rosters = noted.borrow_mut();
            if !rosters.contains(roster) {
                rosters.push(roster.clone());
            }
            Fate::Deliver
        }
        Message::Query(_) if from != b => Fate::Drop,
        Message::Done(_) => Fate::Drop,
        _ => Fate::Deliver,
    });
    let name = world.name(a);
    let hears = |roster: &Roster| roster.heard.iter().any(|heard| heard.voter.peer == name);
    let said = |rosters: &[Roster]| -> Vec<(bool, bool)> {
        rosters.iter().map(|roster| (hears(roster), roster.adopt.is_some())).collect()
    };
    // `a` may ask at the same attempts as others, and is not heard then either.
    let tries = |rosters: &[Roster]| said(rosters).ends_with(&[(true, true), (false, false)]);
    assert!(world.until(END_MS, |_| tries(&rosters.borrow()))?, "{:?}", said(&rosters.borrow()));
    world.let_through();
    all.iter().for_each(|host| world.load_in(*host, 0));
    reach(&mut world, &all, 2)?;
    assert!(world.same(&all));
    ends(world, &[Trains])
}
