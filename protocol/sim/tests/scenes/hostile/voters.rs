//! Voters that lie: what fewer than half of the votes may cost the others.

use intellect_protocol::message::Accept;

use super::*;

const LENGTH_MS: u64 = 10 * MINUTE_MS;

/// Nine of 17 voters send heartbeats and never vote; `answer` answers each message to them. The
/// others must go on without them within 20 minutes.
fn nine_of_seventeen(answer: impl Fn(&mut World, &Liar, usize, &Message)) -> Played {
    let (mut world, all) = founded(17, 0, None)?;
    let (bad, good) = all.split_at(9);
    let mut liars: Vec<Liar> = bad.iter().map(|host| Liar::voter(&world, *host, good[0])).collect();
    world.kill(bad);
    lie(&mut world, good, &mut liars, 2 * LENGTH_MS, |world, liars, said| {
        if let Some((from, message)) = &said {
            liars.iter().for_each(|liar| answer(world, liar, *from, message));
        }
    })?;
    let epochs: Vec<u64> = good.iter().map(|host| world.epoch(*host)).collect();
    assert!(all_at(&world, good, 3), "{epochs:?}; {:?}", world.phase(good[0]));
    assert_voters(&world, good);
    ends_amid(world, &[Trains, Training, Ring])
}

/// G9: they say nothing else. A majority that is alive and does nothing must not stop a run.
#[test]
pub(super) fn mute_voters_are_left_behind() -> Played {
    nine_of_seventeen(|_, _, _, _| {})
}

/// G9: they refuse each roster and each query, and prove nothing.
#[test]
fn mute_by_refusing() -> Played {
    nine_of_seventeen(|world, liar, from, message| match message {
        Message::Roster(roster) if roster.member(&liar.name).is_some() => {
            liar.refuse(world, roster);
        }
        Message::Query(query) => {
            let Some(head) = world.head(from) else { return };
            let (series, what, reason) = (query.series, Digest::ZERO, Refusal::Promised);
            let refuse = Refuse { series, what, promised: query.attempt, head, reason };
            world.say_as(&[from], liar.name, &Message::Refuse(refuse));
        }
        _ => {}
    })
}

/// Two voters of nine lie: `x`, whose process trains in no time, and `y`, which has none. In each
/// epoch up to 5 `y` proposes its own roster once `x` has been Ready for 0.1 s; `x` alone has a
/// weight in it, and `count` of the voters are members. With `later` it does so at its first later
/// attempt, for which it asks all along. No honest work may be left out. Afterwards
/// both send heartbeats and do not vote, and the others go on.
fn two_propose(later: bool, count: impl Fn(usize) -> usize) -> Played {
    let (mut world, all) = founded(9, 0, None)?;
    let [.., y, x] = all[..] else { unreachable!() };
    let honest = &all[..7];
    let mut liars = [Liar::voter(&world, y, x)];
    world.kill(&[y]);
    world.train_in(x, 1);
    honest.iter().for_each(|host| world.train_in(*host, 3_000));
    let mut ready: BTreeMap<Series, (u64, u64)> = BTreeMap::new();
    let mut answers: BTreeMap<(Series, PeerId), Heard> = BTreeMap::new();
    let mut said: Option<Digest> = None;
    lie(&mut world, &all, &mut liars, MINUTE_MS, |world, liars, heard| match heard {
        Some((from, Message::Heartbeat(beat))) if from == x && beat.ready > 0 => {
            ready.entry(beat.series).or_insert((world.now_ms + 100, beat.ready));
        }
        Some((from, Message::Done(done))) if from == x && said == Some(done.roster) => {
            world.say_as(&all, liars[0].name, &Message::Done(done));
        }
        Some((from, Message::Status(status))) => {
            if status.attempt == its_attempt(world, x, liars[0].name, 2) {
                answers.insert((status.series, world.name(from)), shown(world, from, status));
            }
        }
        Some(_) => {}
        None => {
            let series = world.series(x).unwrap();
            let Some((due_ms, weight)) = ready.get(&series).copied() else { return };
            let attempt = if later { its_attempt(world, x, liars[0].name, 2) } else { 1 };
            let of_series = answers.iter().filter(|((of, _), _)| *of == series);
            let answers: Vec<Heard> = of_series.map(|(_, heard)| *heard).collect();
            if later && series.epoch <= 5 && world.now_ms + 20 >= due_ms {
                liars[0].ask(world, &all, series, attempt);
            }
            let able = !later || answers.len() >= 5;
            if world.now_ms >= due_ms && series.epoch <= 5 && able {
                ready.insert(series, (u64::MAX, weight));
                let members = members(world, x, &[(x, weight), (y, 0)], &count);
                let mut roster = free_roster(world, series, attempt, liars[0].name, members);
                if later {
                    roster.heard = answers;
                }
                let digest = wire::roster_digest(&world.run, &roster);
                said = Some(digest);
                let accept = Accept { series, roster: digest };
                world.say_as(&all, liars[0].name, &Message::Roster(roster));
                world.say_as(&all, liars[0].name, &Message::Accept(accept));
            }
        }
    })?;
    let last = least_epoch(&world, honest);
    assert!(last >= 5, "epoch {last}; {:?}", world.phase(honest[0]));
    let left_out = |epoch: u64| {
        let committed = commit(&world, x, epoch);
        honest.iter().filter(|h| weight(&world, &committed, **h).unwrap_or(0) == 0).count()
    };
    let left_out: Vec<usize> = (2..=5).map(left_out).collect();
    let voters = world.voters(honest[0]);
    assert!(
        left_out.iter().all(|count| *count == 0),
        "of 7 honest peers' work left out: {left_out:?}; {x} and {y} lie, voters are {voters:?}"
    );
    assert_voters(&world, honest);
    let mut liars = [y, x].map(|host| Liar::voter(&world, host, honest[0]));
    world.kill(&[x]);
    lie(&mut world, honest, &mut liars, MINUTE_MS, |_, _, _| {})?;
    assert!(all_at(&world, honest, last + 4), "{last}, then {}", least_epoch(&world, honest));
    ends_amid(world, &[Trains, Ring, End::Votes, Update])
}

/// What a roster shows of a Status that a host has sent.
fn shown(world: &World, from: usize, status: Status) -> Heard {
    let Status { log, done, holds_forced, .. } = status;
    let voter = Voter { peer: world.name(from), log };
    let sealed = wire::seal(&Keypair::simulated(voter.peer), &world.run, Message::Status(status));
    Heard { voter, done, holds_forced, signature: sealed.signature() }
}

/// G6: the roster names no more members than a majority needs.
#[test]
fn a_bare_majority_takes_nothing_over() -> Played {
    two_propose(false, |voters| voters / 2 + 1)
}

/// G6: the roster names all voters, as soon as the epoch opens.
#[test]
pub(super) fn weights_zero_at_once() -> Played {
    two_propose(false, |voters| voters)
}

/// G2, G6: the same at a higher attempt, for which no voter has to wait.
#[test]
pub(super) fn weights_zero_at_a_later_attempt() -> Played {
    two_propose(true, |voters| voters)
}

/// G7: a voter that is alone takes a newcomer in. The first one of two voters is a majority
/// by itself, and it must be the old one.
#[test]
fn stranger_named_first_beside_one_voter() -> Played {
    let mut beside = 0;
    for newcomer in 2..10 {
        let (mut world, all) = founded(2, 8, None)?;
        let [a, b] = all[..] else { unreachable!() };
        world.kill(&[b]);
        assert!(world.until(END_MS, |world| world.voters(a) == [a])?);
        world.start(&[newcomer]);
        assert!(world.until(END_MS, |world| world.voters(a).len() == 2)?);
        let epoch = world.epoch(a);
        assert_eq!(world.voters(a)[0], a, "{newcomer} decides alone after epoch {epoch}");
        beside += 1;
        ends(world, &[Trains, Ring])?;
    }
    assert_eq!(beside, 8);
    Ok(())
}

/// G9: a liar keeps one of three voters busy by sending queries to it alone. That voter must not
/// count as absent, and an epoch commits every 15 s.
#[test]
fn busy_victim_is_not_mute() -> Played {
    let (mut world, all) = founded(3, 0, None)?;
    let [a, v, x] = all[..] else { unreachable!() };
    let mut liars = [Liar::voter(&world, x, a)];
    world.kill(&[x]);
    let (mut attempt, mut next_ms) = (2, 0);
    lie(&mut world, &[a, v], &mut liars, LENGTH_MS, |world, liars, said| {
        if let Some((_, Message::Query(query))) = &said {
            attempt = attempt.max(query.attempt + 1);
        }
        if world.now_ms >= next_ms {
            next_ms = world.now_ms + 50;
            let series = world.series(v).unwrap();
            liars[0].ask(world, &[v], series, attempt);
            attempt += 1;
        }
    })?;
    let alone = regroups(&world, a).iter().any(|(_, absent)| absent.contains(&v));
    assert!(!alone, "{a} goes on without {v}: {:?}", regroups(&world, a));
    assert_share(&world, &[a, v], LENGTH_MS / 15_000, 100);
    ends_amid(world, &[Trains, End::Roster])
}

/// The epochs that `count` voters commit in 10 minutes with one more that sends queries to all of
/// them every 20 ms, over a link with a round trip of 300 ms, and never proposes.
fn beside_an_asker(count: usize, ready: u64) -> Played {
    let (mut world, all) = founded(count + 1, 0, None)?;
    let (x, honest) = all.split_last().unwrap();
    let mut liars = [Liar { ready, ..Liar::voter(&world, *x, honest[0]) }];
    world.kill(&[*x]);
    let mut heard: VecDeque<(u64, Series, Attempt)> = VecDeque::new();
    let mut asked: VecDeque<(u64, Series, Attempt)> = VecDeque::new();
    let (mut series, mut attempt, mut next_ms) = (world.series(honest[0]).unwrap(), 2, 0);
    lie(&mut world, honest, &mut liars, LENGTH_MS, |world, liars, said| {
        let now_ms = world.now_ms;
        let later_ms = now_ms + ONE_WAY_MS;
        match said {
            Some((from, Message::Query(query))) if from != *x => {
                heard.push_back((later_ms, query.series, query.attempt + 1));
            }
            Some((from, Message::Heartbeat(beat))) if from != *x => {
                heard.push_back((later_ms, beat.series, 2));
            }
            _ => {}
        }
        while let Some((_, of, at_least)) = heard.pop_front_if(|(at_ms, ..)| *at_ms <= now_ms) {
            if of.epoch > series.epoch {
                (series, attempt) = (of, 2);
            } else if of == series {
                attempt = attempt.max(at_least);
            }
        }
        while let Some((_, of, attempt)) = asked.pop_front_if(|(at_ms, ..)| *at_ms <= now_ms) {
            liars[0].ask(world, honest, of, attempt);
        }
        if now_ms >= next_ms {
            next_ms = now_ms + 20;
            asked.push_back((later_ms, series, attempt));
            attempt += 1;
            for host in honest {
                world.round_trip(*host, liars[0].name, 2 * ONE_WAY_MS as u32);
            }
        }
    })?;
    assert_share(&world, honest, LENGTH_MS / 15_000, 100);
    ends(world, &[Trains])
}

const ONE_WAY_MS: u64 = 150;

/// G2: three other voters; the liar is never Ready, so each epoch waits for it.
#[test]
fn asker_on_a_300_ms_link() -> Played {
    beside_an_asker(3, 0)
}

/// G2: seven other voters; the liar claims to be Ready.
#[test]
pub(super) fn ready_asker_on_a_300_ms_link() -> Played {
    beside_an_asker(7, 100)
}

/// G6: four of nine voters are Ready at once and four a second later. The last one queries for
/// every attempt as soon as an epoch opens, and proposes rosters with positions for the first four
/// only. Epochs must commit, with at least half of the work in each.
#[test]
fn late_half_while_a_voter_burns() -> Played {
    let (mut world, all) = founded(9, 0, None)?;
    let (x, honest) = all.split_last().unwrap();
    let mut liars = [Liar::voter(&world, *x, honest[0])];
    world.kill(&[*x]);
    let (early, late) = honest.split_at(4);
    late.iter().for_each(|host| world.train_in(*host, 1_300));
    let mut ready: BTreeMap<(Series, usize), u64> = BTreeMap::new();
    // A proposer that hides a known vote would be found out.
    let mut voted: BTreeSet<Series> = BTreeSet::new();
    let (mut attempt, mut next_ms) = (2, 0);
    let first = least_epoch(&world, honest);
    let mut proposed = 0;
    lie(&mut world, honest, &mut liars, MINUTE_MS, |world, liars, said| match said {
        Some((from, Message::Heartbeat(beat))) if from != *x && beat.ready > 0 => {
            ready.insert((beat.series, from), beat.ready);
        }
        Some((_, Message::Query(query))) => attempt = attempt.max(query.attempt + 1),
        Some((_, Message::Done(done))) => voted.extend([done.series]),
        Some(_) => {}
        None if world.now_ms < next_ms => {}
        None => {
            next_ms = world.now_ms + 50;
            let series = world.series(early[0]).unwrap();
            liars[0].ask(world, honest, series, attempt);
            let places: Vec<(usize, u64)> =
                early.iter().filter_map(|h| Some((*h, *ready.get(&(series, *h))?))).collect();
            if !voted.contains(&series) && places.len() == early.len() {
                proposed += 1;
                let members = members(world, early[0], &places, |voters| voters);
                let roster = free_roster(world, series, attempt, liars[0].name, members);
                world.say_as(honest, liars[0].name, &Message::Roster(roster));
            }
            attempt += 1;
        }
    })?;
    assert!(proposed > 0, "it never had whom to propose");
    let last = least_epoch(&world, honest);
    let left_out = |epoch: u64| {
        let committed = commit(&world, early[0], epoch);
        honest.iter().filter(|h| weight(&world, &committed, **h).unwrap_or(0) == 0).count()
    };
    let left_out: Vec<usize> = (first + 1..=last).map(left_out).collect();
    let epochs = left_out.len();
    assert!(epochs >= 4, "{epochs} epochs in a minute");
    assert!(left_out.iter().all(|count| 2 * count <= honest.len()), "left out: {left_out:?}");
    assert_voters(&world, honest);
    ends(world, &[End::Roster])
}
