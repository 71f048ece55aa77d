//! Ballots that fail, meet, and are taken up again: R2–R9, R16–R18.

use intellect_protocol::message::{Message, Roster};

use super::*;

/// R3: whose turn comes next proposes as well, since the first roster is late.
#[test]
fn two_proposers_one_attempt() -> Played {
    let (mut stage, all) = founded(3, 0, None)?;
    stage.direct(|_, _, message| match message {
        Message::Roster(Roster { attempt: 1, .. }) => Fate::Delay(200),
        _ => Fate::Deliver,
    });
    let duels = stage.report.of(Count::Duels);
    reach(&mut stage, &all, 2)?;
    assert!(stage.report.of(Count::Duels) > duels, "one proposed alone");
    assert!(stage.same(&all) && commit(&stage, all[0], 2).attempt >= 2);
    Ok(())
}

/// R4, R37: a survivor takes up the next attempt, whoever had proposed the last one.
#[test]
fn proposer_dies_after_one_roster_sent() -> Played {
    let (mut stage, all) = founded(3, 0, None)?;
    let proposer: Noted<Option<usize>> = Rc::default();
    let noted = proposer.clone();
    stage.direct(move |from, to, message| match message {
        Message::Roster(_) if noted.borrow().is_none() => {
            *noted.borrow_mut() = Some(from);
            assert_ne!(from, to);
            Fate::Deliver
        }
        _ if *noted.borrow() == Some(from) => Fate::Drop,
        _ => Fate::Deliver,
    });
    assert!(stage.until(END_MS, |_| proposer.borrow().is_some())?);
    let dead = proposer.borrow().unwrap();
    stage.kill(&[dead]);
    let rest: Vec<usize> = all.iter().copied().filter(|host| *host != dead).collect();
    stage.play(20)?;
    let reached = rest.iter().filter(|host| !accepted(&stage, **host, 2).is_empty()).count();
    assert_eq!(reached, 1, "its roster reached one");
    reach(&mut stage, &rest, 2)?;
    let second = commit(&stage, rest[0], 2);
    assert!(second.attempt >= 2 && weight(&stage, &second, dead) == Some(0), "{second:?}");
    assert!(stage.same(&rest) && regroups(&stage, rest[0]).is_empty());
    Ok(())
}

/// R37: `c` lives, answers and never accepts. It costs one attempt, and has no place in the next.
#[test]
fn who_does_not_accept_costs_one_attempt() -> Played {
    let (mut stage, all) = founded(4, 0, None)?;
    let c = all[2];
    stage.direct(move |from, _, message| match message {
        Message::Accept(_) if from == c => Fate::Drop,
        _ => Fate::Deliver,
    });
    let before = stage.now_ms;
    reach(&mut stage, &all, 3)?;
    let second = commit(&stage, all[0], 2);
    assert_eq!((second.attempt, weight(&stage, &second, c)), (2, Some(0)), "{second:?}");
    assert!(stage.now_ms - before < 10_000, "an epoch must not wait for one that only lives");
    stage.relent();
    reach(&mut stage, &all, 4)?;
    let fourth = commit(&stage, all[0], 4);
    assert!(weight(&stage, &fourth, c) > Some(0) && stage.same(&all), "{fourth:?}");
    Ok(())
}

/// R7: `a` and `b` have decided, and nobody heard it. They live and are heard by `c`, but their
/// answers do not come: it proposes nothing without them.
fn status_from_a_minority(without: Option<Rule>) -> Played {
    let (mut stage, all) = founded(3, 0, without)?;
    let [a, b, c] = all[..] else { unreachable!() };
    stage.train_in(c, 5_500);
    let votes = Votes::default();
    let (asked, proposed) = (counter(), counter());
    let (noted, queries, rosters) = (votes.clone(), asked.clone(), proposed.clone());
    stage.direct(move |from, _, message| match message {
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
    assert!(stage.until(END_MS, |_| votes.borrow().len() == 2)?);
    stage.play(5_000)?;
    assert!(asked.get() > 0 && !votes.borrow().contains_key(&c));
    assert_eq!(proposed.get(), 0, "a roster from Statuses of a minority");
    assert!(all_at(&stage, &all, 1) && !all_at(&stage, &[a], 2));
    stage.relent();
    reach(&mut stage, &all, 2)?;
    assert_eq!(commit(&stage, c, 2).receipt.update, votes.borrow()[&b]);
    assert!(stage.same(&all));
    Ok(())
}

#[test]
fn r7_status_from_a_minority_proposes_nothing() -> Played {
    status_from_a_minority(None)
}

#[test]
fn r7_is_missed() {
    assert_eq!(status_from_a_minority(Some(Rule::R7)).unwrap_err().invariant, "S2");
}

/// R16: `a` hears the last Done, commits alone and is gone; the others come to the same value.
#[test]
fn last_done_reaches_one_peer() -> Played {
    for returns in [false, true] {
        let (mut stage, all) = founded(3, 0, None)?;
        let [a, b, c] = all[..] else { unreachable!() };
        stage.direct(move |from, to, message| match message {
            Message::Done(_) if to != a => Fate::Drop,
            Message::Commit(_) | Message::Heartbeat(_) if from == a => Fate::Drop,
            _ => Fate::Deliver,
        });
        reach(&mut stage, &[a], 2)?;
        let head = stage.head(a);
        assert!(stage.epoch(b) == 1 && stage.epoch(c) == 1, "{a} is alone");
        if returns {
            stage.pause(a);
        } else {
            stage.kill(&[a]);
        }
        stage.relent();
        stage.train_in(b, 60_000);
        stage.train_in(c, 60_000);
        reach(&mut stage, &[b, c], 2)?;
        assert_eq!((stage.head(b), stage.head(c)), (head, head));
        let second = commit(&stage, b, 2);
        assert!(!second.regrouped);
        if returns {
            stage.play(3_600_000)?;
            assert!(stage.epoch(b) > 30);
            stage.resume(a);
            let together = stage.until(END_MS, |stage| stage.epoch(a) > 30 && stage.same(&all))?;
            assert!(together && forks(&stage, a).iter().all(|undone| *undone == 0));
        }
    }
    Ok(())
}

/// R8, R9: `b` asks, adopts what `a` voted for, and is cut off as it votes.
#[test]
fn adopter_cut_off() -> Played {
    let (mut stage, all) = founded(3, 0, None)?;
    let [a, b, c] = all[..] else { unreachable!() };
    // Only `a` computes; its vote for that is heard in its Status alone, and only `b` asks.
    stage.train_in(b, 60_000);
    stage.train_in(c, 60_000);
    let votes = Votes::default();
    let noted = votes.clone();
    stage.direct(move |from, _, message| match message {
        Message::Done(done) => {
            noted.borrow_mut().insert(from, done.update);
            Fate::Drop
        }
        Message::Query(_) if from != b => Fate::Drop,
        _ => Fate::Deliver,
    });
    assert!(stage.until(END_MS, |_| votes.borrow().contains_key(&b))?);
    let adopted = accepted(&stage, b, 2);
    assert!(adopted.iter().any(|(attempt, adopt)| *attempt >= 2 && adopt.is_some()), "{adopted:?}");
    stage.cut(&[b], 1);
    stage.relent();
    reach(&mut stage, &[a, c], 2)?;
    let second = commit(&stage, c, 2);
    assert_eq!(second.receipt.update, votes.borrow()[&a]);
    assert_eq!(weight(&stage, &second, c), Some(0), "{c} did not compute it");
    assert!(stage.epoch(b) == 1 && !second.regrouped);
    stage.mend();
    reach(&mut stage, &all, 3)?;
    assert!(all.iter().all(|host| forks(&stage, *host).is_empty()));
    Ok(())
}

/// R8: `a` voted for its value alone; `b` and `c`, who did not hear of it, decided another one.
/// The next attempt hears `a` and `b`.
fn adopted_at_three(without: Option<Rule>) -> Played {
    let (mut stage, all) = founded(3, 0, without)?;
    let [a, b, c] = all[..] else { unreachable!() };
    stage.train_in(b, 5_500);
    stage.train_in(c, 5_500);
    let votes = Votes::default();
    let noted = votes.clone();
    stage.direct(move |from, _, message| match message {
        Message::Done(done) => {
            noted.borrow_mut().insert(from, done.update);
            Fate::Drop
        }
        _ => Fate::Deliver,
    });
    assert!(stage.until(END_MS, |_| votes.borrow().contains_key(&a))?);
    stage.cut(&[a], 1);
    assert!(stage.until(END_MS, |_| votes.borrow().len() == 3)?);
    let (first, decided) = (votes.borrow()[&a], votes.borrow()[&b]);
    assert!(decided == votes.borrow()[&c] && decided != first);
    let highest = accepted(&stage, b, 2).iter().map(|(attempt, _)| *attempt).max();
    stage.kill(&[c]);
    stage.mend();
    stage.relent();
    reach(&mut stage, &[a, b], 2)?;
    let second = commit(&stage, a, 2);
    assert_eq!(second.receipt.update, decided);
    assert!(Some(second.attempt) > highest && highest > Some(1), "{highest:?}, {second:?}");
    assert!(stage.same(&[a, b]) && !second.regrouped);
    Ok(())
}

#[test]
fn adopted_at_three_decided_at_one() -> Played {
    adopted_at_three(None)
}

#[test]
fn r8_is_missed() {
    assert_eq!(adopted_at_three(Some(Rule::R8)).unwrap_err().invariant, "S2");
}

/// R18: all five vote for one value; `a` commits it by the first certificate, `b` by that of a
/// later roster without `a` and `e`. Then a partition parts them.
#[test]
fn two_certificates_one_update() -> Played {
    let (mut stage, all) = founded(5, 0, None)?;
    let [a, b, c, d, e] = all[..] else { unreachable!() };
    let first: Noted<BTreeMap<Digest, Vec<usize>>> = Rc::default();
    let (asking, noted) = (counter(), first.clone());
    let may_ask = asking.clone();
    // Votes of the first attempt reach `a` only, also when they are repeated.
    stage.direct(move |from, to, message| match message {
        Message::Done(done) if noted.borrow().keys().all(|roster| *roster == done.roster) => {
            noted.borrow_mut().entry(done.roster).or_default().push(from);
            if to == a { Fate::Deliver } else { Fate::Drop }
        }
        Message::Commit(_) if from == a => Fate::Drop,
        Message::Query(_) if may_ask.get() == 0 => Fate::Drop,
        _ => Fate::Deliver,
    });
    reach(&mut stage, &[a], 2)?;
    assert!(first.borrow().values().all(|from| all.iter().all(|host| from.contains(host))));
    stage.cut(&[a, e], 1);
    stage.play(1_000)?;
    count(&asking);
    reach(&mut stage, &[b, c, d], 2)?;
    stage.relent();
    let (first, second) = (commit(&stage, a, 2), commit(&stage, b, 2));
    assert!(first.attempt == 1 && second.attempt > 1, "two certificates");
    assert_eq!((first.head, first.receipt.members.len()), (second.head, 5));
    // One epoch later {a, d, e} are three of the five voters, {b, c} are two.
    stage.cut(&[d], 1);
    stage.play(5_000)?;
    assert!(stage.epoch(b) == 2 && stage.epoch(c) == 2);
    reach(&mut stage, &[a, d, e], 3)?;
    assert_eq!(sorted(&stage.voters(b)), sorted(&all));
    assert!(!commit(&stage, a, 3).regrouped);
    stage.mend();
    let epoch = stage.epoch(a) + 1;
    reach(&mut stage, &all, epoch)?;
    assert!(all.iter().all(|host| forks(&stage, *host).is_empty()));
    Ok(())
}

#[test]
fn r18_is_missed() {
    missed(Rule::R18, two_certificates_one_update);
}

/// R5: `x` had voted alone for one value, `y` for another; both ask `z` at one attempt, and each
/// proposes to adopt what it voted for. Then `z` takes part in the roster of `y`.
fn two_rosters_adopting(without: Option<Rule>) -> Played {
    let (mut stage, all) = founded(3, 0, without)?;
    // Where both votes counted alike, that of the later voter would be adopted.
    let [y, z, x] = all[..] else { unreachable!() };
    stage.train_in(y, 5_500);
    stage.train_in(z, 90_000);
    let votes = Votes::default();
    let noted = votes.clone();
    // First `x` computes alone, and nobody hears its vote.
    let hidden = move |from: usize, message: &Message| {
        done(message).is_some_and(|done| {
            noted.borrow_mut().insert(from, done.update);
            true
        })
    };
    let silent = hidden.clone();
    stage.direct(move |from, _, m| if silent(from, m) { Fate::Drop } else { Fate::Deliver });
    assert!(stage.until(END_MS, |_| votes.borrow().contains_key(&x))?);
    // Then `y` does, in a roster that `z` accepts.
    stage.pause(x);
    assert!(stage.until(END_MS, |_| votes.borrow().contains_key(&y))?);
    assert_ne!(votes.borrow()[&x], votes.borrow()[&y]);
    // `x` and `y` hear `z`, but not each other; `z` hears their questions, and the roster of `y`.
    let rosters: Noted<BTreeMap<(usize, u64), Digest>> = Rc::default();
    let proposed = rosters.clone();
    let apart = move |from: usize, to: usize| from != z && to != z;
    stage.direct(move |from, to, message| match message {
        Message::Roster(roster) if epoch_of(message) == 2 && roster.adopt.is_some() => {
            let adopted = roster.adopt.as_ref().unwrap().update;
            proposed.borrow_mut().insert((from, roster.attempt), adopted);
            if from == x || apart(from, to) { Fate::Drop } else { Fate::Deliver }
        }
        _ if hidden(from, message) || apart(from, to) => Fate::Drop,
        // One question takes `z` out of its ring, the next that it hears are both for attempt 6.
        Message::Query(q) if q.attempt != 6 && (from, q.attempt) != (y, 2) => Fate::Drop,
        Message::Status(status) if status.attempt != 6 => Fate::Drop,
        _ => Fate::Deliver,
    });
    stage.resume(x);
    let votes_of_z = |votes: &Votes| votes.borrow().get(&z).copied();
    assert!(stage.until(END_MS, |_| votes_of_z(&votes).is_some())?);
    let both = rosters
        .borrow()
        .keys()
        .any(|(from, attempt)| *from == x && rosters.borrow().contains_key(&(y, *attempt)));
    assert!(both, "two rosters at one attempt: {:?}", rosters.borrow());
    let decided = votes_of_z(&votes).unwrap();
    stage.kill(&[z]);
    stage.relent();
    reach(&mut stage, &[x, y], 2)?;
    assert_eq!(commit(&stage, x, 2).receipt.update, decided);
    assert!(stage.same(&[x, y]));
    Ok(())
}

#[test]
fn same_attempt_two_rosters_adopting() -> Played {
    two_rosters_adopting(None)
}

#[test]
fn r5_is_missed() {
    // Who votes without a majority's Accepts cannot prove it, and is found out.
    assert_eq!(two_rosters_adopting(Some(Rule::R5)).unwrap_err().invariant, "fault");
}

/// R8: whose value was adopted, and came, withholds nothing: another one's that does not come later is no
/// reason not to hear it. `b` adopts what `a` voted for in one epoch; in the next one what `c` voted for
/// reaches `b` too late.
#[test]
fn who_delivered_is_not_mute_for_another() -> Played {
    let (mut stage, all) = founded(5, 0, None)?;
    let [a, b, c, d, _] = all[..] else { unreachable!() };
    let votes = Votes::default();
    // In both epochs one computes alone, `b` does not hear of its vote, and one asks.
    let alone =
        |stage: &mut World, voter: usize, asks: usize, epoch: u64, hidden: bool| -> Played {
            all.iter()
                .filter(|host| **host != voter)
                .for_each(|host| stage.train_in(*host, 60_000));
            stage.train_in(voter, 400);
            votes.borrow_mut().clear();
            let noted = votes.clone();
            stage.direct(move |from, to, message| match message {
                Message::Done(done) if done.series.epoch == epoch => {
                    noted.borrow_mut().insert(from, done.update);
                    if hidden || from != voter || to == b { Fate::Drop } else { Fate::Deliver }
                }
                Message::Query(_) if from != asks => Fate::Drop,
                _ => Fate::Deliver,
            });
            let adopts =
                |stage: &World| accepted(stage, b, epoch).iter().any(|(_, value)| value.is_some());
            let there = |stage: &mut World| votes.borrow().len() >= 4 && adopts(stage);
            assert!(stage.until(END_MS, there)?, "{:?}", votes.borrow());
            Ok(())
        };
    alone(&mut stage, a, b, 2, true)?;
    stage.relent();
    reach(&mut stage, &all, 2)?;
    stage.load_in(b, 8 * 60_000);
    alone(&mut stage, c, d, 3, false)?;
    assert!(!votes.borrow().contains_key(&b), "its bytes came to {b}");
    // Now `b` asks: a roster of it names `a`, once that is bound by no other one.
    let heard: Noted<Option<Vec<PeerId>>> = Rc::default();
    let noted = heard.clone();
    stage.direct(move |from, _, message| match message {
        Message::Roster(roster) if from == b && epoch_of(message) == 3 => {
            let voters = roster.heard.iter().map(|heard| heard.voter.peer);
            *noted.borrow_mut() = Some(voters.collect());
            Fate::Deliver
        }
        Message::Query(_) if from != b => Fate::Drop,
        Message::Done(_) => Fate::Drop,
        _ => Fate::Deliver,
    });
    let name = stage.name(a);
    let hears = |heard: &Option<Vec<PeerId>>| heard.iter().flatten().any(|peer| *peer == name);
    assert!(stage.until(END_MS, |_| hears(&heard.borrow()))?, "{a} was not heard: {heard:?}");
    stage.relent();
    stage.load_in(b, 0);
    reach(&mut stage, &all, 3)?;
    Ok(())
}

/// R8: who votes for what it does not deliver is asked no second time.
#[test]
fn who_withholds_is_not_heard() -> Played {
    let (mut stage, all) = founded(5, 0, None)?;
    let (a, b) = (all[0], all[1]);
    for host in all.iter().filter(|host| **host != a) {
        stage.train_in(*host, 60_000);
        stage.load_in(*host, 8 * 60_000);
    }
    let rosters: Noted<Vec<Roster>> = Rc::default();
    let noted = rosters.clone();
    stage.direct(move |from, _, message| match message {
        Message::Roster(roster) if from == b && roster.attempt > 1 => {
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
    assert!(stage.until(END_MS, |_| rosters.borrow().len() >= 2)?);
    let name = stage.name(a);
    let hears = |roster: &Roster| roster.heard.iter().any(|heard| heard.voter.peer == name);
    let said: Vec<_> =
        rosters.borrow().iter().map(|roster| (hears(roster), roster.adopt.is_some())).collect();
    assert_eq!(said, [(true, true), (false, false)]);
    stage.relent();
    all.iter().for_each(|host| stage.load_in(*host, 0));
    reach(&mut stage, &all, 2)?;
    assert!(stage.same(&all));
    Ok(())
}
