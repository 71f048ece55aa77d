//! Voters that lie: what fewer than half of the votes may cost the others.

use intellect_protocol::message::Accept;

use super::*;

const LENGTH_MS: u64 = 10 * MINUTE_MS;

/// Nine of 17 voters live and never vote; each message that is said to them is answered by `answer`. The
/// others go on without them within 20 minutes.
fn nine_of_seventeen(answer: impl Fn(&mut World, &Liar, usize, &Message)) -> Played {
    let (mut stage, all) = founded(17, 0, None)?;
    let (bad, good) = all.split_at(9);
    let mut liars: Vec<Liar> = bad.iter().map(|host| Liar::voter(&stage, *host, good[0])).collect();
    stage.kill(bad);
    lie(&mut stage, good, &mut liars, 2 * LENGTH_MS, |stage, liars, said| {
        if let Some((from, message)) = &said {
            liars.iter().for_each(|liar| answer(stage, liar, *from, message));
        }
    })?;
    let epochs: Vec<u64> = good.iter().map(|host| stage.epoch(*host)).collect();
    assert!(all_at(&stage, good, 3), "{epochs:?}; {:?}", stage.phase(good[0]));
    assert_voters(&stage, good);
    Ok(())
}

/// H4.
#[test]
pub(super) fn mute_voters_are_left_behind() -> Played {
    nine_of_seventeen(|_, _, _, _| {})
}

/// H4: they refuse each roster and each question, and prove nothing.
#[test]
fn mute_by_refusing() -> Played {
    nine_of_seventeen(|stage, liar, from, message| match message {
        Message::Roster(roster) if roster.member(&liar.name).is_some() => {
            liar.refuse(stage, roster);
        }
        Message::Query(query) => {
            let Some(head) = stage.head(from) else { return };
            let (series, what, reason) = (query.series, Digest::ZERO, Refusal::Promised);
            let refuse = Refuse { series, what, promised: query.attempt, head, reason };
            stage.say_as(&[from], liar.name, &Message::Refuse(refuse));
        }
        _ => {}
    })
}

/// Two voters of nine lie: `x`, whose process trains in no time, and `y`, which has none. In each of the epochs
/// up to 5 `y` says a roster of its own once `x` has been Ready for 0.1 s, in which `x` alone has a weight:
/// `count` of them are its members, of so many voters. Afterwards both live, and do not vote.
fn two_propose(attempt: Attempt, count: impl Fn(usize) -> usize) -> Played {
    let (mut stage, all) = founded(9, 0, None)?;
    let [.., y, x] = all[..] else { unreachable!() };
    let honest = &all[..7];
    let mut liars = [Liar::voter(&stage, y, x)];
    stage.kill(&[y]);
    stage.train_in(x, 1);
    honest.iter().for_each(|host| stage.train_in(*host, 5_000));
    let mut ready: BTreeMap<Series, (u64, u64)> = BTreeMap::new();
    let mut said: Option<Digest> = None;
    lie(&mut stage, &all, &mut liars, MINUTE_MS, |stage, liars, heard| match heard {
        Some((from, Message::Heartbeat(beat))) if from == x && beat.ready > 0 => {
            ready.entry(beat.series).or_insert((stage.now_ms + 100, beat.ready));
        }
        Some((from, Message::Done(done))) if from == x && said == Some(done.roster) => {
            stage.say_as(&all, liars[0].name, &Message::Done(done));
        }
        Some(_) => {}
        None => {
            let series = stage.series(x).unwrap();
            let Some((due_ms, weight)) = ready.get(&series).copied() else { return };
            if attempt > 1 && (due_ms - 20..due_ms - 18).contains(&stage.now_ms) {
                liars[0].ask(stage, &all, series, attempt);
            }
            if stage.now_ms >= due_ms && series.epoch <= 5 {
                ready.insert(series, (u64::MAX, weight));
                let members = members(stage, x, &[(x, weight), (y, 0)], &count);
                let roster = free_roster(stage, series, attempt, liars[0].name, members);
                let digest = wire::roster_digest(&stage.run, &roster);
                said = Some(digest);
                let accept = Accept { series, roster: digest };
                stage.say_as(&all, liars[0].name, &Message::Roster(roster));
                stage.say_as(&all, liars[0].name, &Message::Accept(accept));
            }
        }
    })?;
    let last = least_epoch(&stage, honest);
    assert!(last >= 5, "epoch {last}; {:?}", stage.phase(honest[0]));
    let left_out = |epoch: u64| {
        let committed = commit(&stage, x, epoch);
        honest.iter().filter(|h| weight(&stage, &committed, **h).unwrap_or(0) == 0).count()
    };
    let left_out: Vec<usize> = (2..=5).map(left_out).collect();
    let voters = stage.voters(honest[0]);
    assert!(
        left_out.iter().all(|count| *count == 0),
        "of 7 honest peers' work left out: {left_out:?}; {x} and {y} lie, voters are {voters:?}"
    );
    assert_voters(&stage, honest);
    let mut liars = [y, x].map(|host| Liar::voter(&stage, host, honest[0]));
    stage.kill(&[x]);
    lie(&mut stage, honest, &mut liars, MINUTE_MS, |_, _, _| {})?;
    assert!(all_at(&stage, honest, last + 4), "{last}, then {}", least_epoch(&stage, honest));
    Ok(())
}

/// H7: no more members than can vote.
#[test]
fn a_bare_majority_takes_nothing_over() -> Played {
    two_propose(1, |voters| voters / 2 + 1)
}

/// H7: all voters are members, as the epoch opens.
#[test]
pub(super) fn weights_zero_at_once() -> Played {
    two_propose(1, |voters| voters)
}

/// H7: at a higher attempt, which nobody has to have waited for.
#[test]
pub(super) fn weights_zero_at_attempt_three() -> Played {
    two_propose(3, |voters| voters)
}

/// A voter that is alone takes a newcomer in. Who is named first of two is a majority by itself, and that
/// is one who voted before.
#[test]
fn stranger_named_first_beside_one_voter() -> Played {
    let mut beside = 0;
    for newcomer in 2..10 {
        let (mut stage, all) = founded(2, 8, None)?;
        let [a, b] = all[..] else { unreachable!() };
        stage.kill(&[b]);
        assert!(stage.until(END_MS, |stage| stage.voters(a) == [a])?);
        stage.start(&[newcomer]);
        assert!(stage.until(END_MS, |stage| stage.voters(a).len() == 2)?);
        let epoch = stage.epoch(a);
        assert_eq!(stage.voters(a)[0], a, "{newcomer} decides alone after epoch {epoch}");
        beside += 1;
    }
    assert_eq!(beside, 8);
    Ok(())
}

/// H4: a liar keeps one voter busy, of three, by asking nobody else. That voter is not taken for mute, and an
/// epoch commits every 15 s.
#[test]
fn busy_victim_is_not_mute() -> Played {
    let (mut stage, all) = founded(3, 0, None)?;
    let [a, v, x] = all[..] else { unreachable!() };
    let mut liars = [Liar::voter(&stage, x, a)];
    stage.kill(&[x]);
    let (mut attempt, mut next_ms) = (2, 0);
    lie(&mut stage, &[a, v], &mut liars, LENGTH_MS, |stage, liars, said| {
        if let Some((_, Message::Query(query))) = &said {
            attempt = attempt.max(query.attempt + 1);
        }
        if stage.now_ms >= next_ms {
            next_ms = stage.now_ms + 50;
            let series = stage.series(v).unwrap();
            liars[0].ask(stage, &[v], series, attempt);
            attempt += 1;
        }
    })?;
    let alone = regroups(&stage, a).iter().any(|(_, absent)| absent.contains(&v));
    assert!(!alone, "{a} goes on without {v}: {:?}", regroups(&stage, a));
    assert_share(&stage, &[a, v], LENGTH_MS / 15_000, 100);
    Ok(())
}

/// The epochs that `count` voters commit in 10 minutes beside one more that asks all of them every 20 ms, over a
/// line whose round trip is 300 ms, and proposes nothing.
fn beside_an_asker(count: usize, ready: u64) -> Played {
    let (mut stage, all) = founded(count + 1, 0, None)?;
    let (x, honest) = all.split_last().unwrap();
    let mut liars = [Liar { ready, ..Liar::voter(&stage, *x, honest[0]) }];
    stage.kill(&[*x]);
    let mut heard: VecDeque<(u64, Series, Attempt)> = VecDeque::new();
    let mut asked: VecDeque<(u64, Series, Attempt)> = VecDeque::new();
    let (mut series, mut attempt, mut next_ms) = (stage.series(honest[0]).unwrap(), 2, 0);
    lie(&mut stage, honest, &mut liars, LENGTH_MS, |stage, liars, said| {
        let now_ms = stage.now_ms;
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
            liars[0].ask(stage, honest, of, attempt);
        }
        if now_ms >= next_ms {
            next_ms = now_ms + 20;
            asked.push_back((later_ms, series, attempt));
            attempt += 1;
            for host in honest {
                stage.round_trip(*host, liars[0].name, 2 * ONE_WAY_MS as u32);
            }
        }
    })?;
    assert_share(&stage, honest, LENGTH_MS / 15_000, 100);
    Ok(())
}

const ONE_WAY_MS: u64 = 150;

/// G3: three others, and the one that asks is never Ready: each epoch waits for it.
#[test]
fn asker_on_a_300_ms_link() -> Played {
    beside_an_asker(3, 0)
}

/// G3: the same beside seven, and it says that it has work.
#[test]
pub(super) fn ready_asker_on_a_300_ms_link() -> Played {
    beside_an_asker(7, 100)
}

/// G6: four of nine voters are Ready at once, four a second later, and the last one burns attempts as soon as an
/// epoch opens: it asks for each, and proposes that only those are members with a place who were Ready first.
/// Epochs commit, and at least half of the work has a place in each.
#[test]
fn late_half_while_a_voter_burns() -> Played {
    let (mut stage, all) = founded(9, 0, None)?;
    let (x, honest) = all.split_last().unwrap();
    let mut liars = [Liar::voter(&stage, *x, honest[0])];
    stage.kill(&[*x]);
    let (early, late) = honest.split_at(4);
    late.iter().for_each(|host| stage.train_in(*host, 1_300));
    let mut ready: BTreeMap<(Series, usize), u64> = BTreeMap::new();
    // Who hides a vote that is known is found out.
    let mut voted: BTreeSet<Series> = BTreeSet::new();
    let (mut attempt, mut next_ms) = (2, 0);
    let first = least_epoch(&stage, honest);
    let mut proposed = 0;
    lie(&mut stage, honest, &mut liars, MINUTE_MS, |stage, liars, said| match said {
        Some((from, Message::Heartbeat(beat))) if from != *x && beat.ready > 0 => {
            ready.insert((beat.series, from), beat.ready);
        }
        Some((_, Message::Query(query))) => attempt = attempt.max(query.attempt + 1),
        Some((_, Message::Done(done))) => voted.extend([done.series]),
        Some(_) => {}
        None if stage.now_ms < next_ms => {}
        None => {
            next_ms = stage.now_ms + 50;
            let series = stage.series(early[0]).unwrap();
            liars[0].ask(stage, honest, series, attempt);
            let places: Vec<(usize, u64)> =
                early.iter().filter_map(|h| Some((*h, *ready.get(&(series, *h))?))).collect();
            if !voted.contains(&series) && places.len() == early.len() {
                proposed += 1;
                let members = members(stage, early[0], &places, |voters| voters);
                let roster = free_roster(stage, series, attempt, liars[0].name, members);
                stage.say_as(honest, liars[0].name, &Message::Roster(roster));
            }
            attempt += 1;
        }
    })?;
    assert!(proposed > 0, "it never had whom to propose");
    let last = least_epoch(&stage, honest);
    let left_out = |epoch: u64| {
        let committed = commit(&stage, early[0], epoch);
        honest.iter().filter(|h| weight(&stage, &committed, **h).unwrap_or(0) == 0).count()
    };
    let left_out: Vec<usize> = (first + 1..=last).map(left_out).collect();
    let epochs = left_out.len();
    assert!(epochs >= 4, "{epochs} epochs in a minute");
    assert!(left_out.iter().all(|count| 2 * count <= honest.len()), "left out: {left_out:?}");
    assert_voters(&stage, honest);
    Ok(())
}
