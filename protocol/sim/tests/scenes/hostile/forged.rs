//! A voter that says that it has voted for what never was.

use intellect_protocol::message::seal::Seal;
use intellect_protocol::message::{Accept, Keep, Kept, Ranked, Receipt};
use intellect_protocol::ring::Layout;

use super::*;
use crate::minted::{WEIGHT_MAX, five, mint, newcomer, set_out, tell_of};

/// A value that the liar alone has made: its own work, as bytes that everybody has.
fn forged(liar: &Liar, series: Series, update: Digest) -> Receipt {
    let Liar { name: peer, log, incarnation, ready: weight, .. } = *liar;
    let members = vec![Member { peer, log, incarnation, weight }];
    Receipt { series, trust: None, update, members, parts: Vec::new() }
}

fn signed(stage: &World, peer: PeerId, status: Status) -> Heard {
    let key = Keypair::simulated(peer);
    let signature = wire::seal(&key, &stage.run, Message::Status(status)).signature();
    let Status { log, done, holds_forced, .. } = status;
    Heard { voter: Voter { peer, log }, done, holds_forced, signature }
}

/// `count` voters in epoch 2, of whom the last one is in the hands of the scene: it has trained, and the others still
/// do. Returns it, the others, and the update of epoch 1, which everybody has.
fn one_liar(count: usize) -> Result<(World, Vec<usize>, Liar, Digest), Violation> {
    let (mut stage, mut honest) = founded(count, 0, None)?;
    let x = honest.pop().unwrap();
    let old = commit(&stage, honest[0], 1).receipt.update;
    honest.iter().for_each(|host| stage.train_in(*host, 3_000));
    let ready: Noted<u64> = Rc::default();
    let noted = Rc::clone(&ready);
    stage.direct(move |from, _, message| {
        if let Message::Heartbeat(beat) = message
            && from == x
            && beat.series.epoch == 2
        {
            *noted.borrow_mut() = beat.ready;
        }
        Fate::Deliver
    });
    assert!(stage.until(END_MS, |_| *ready.borrow() > 0)?);
    stage.relent();
    let (ready, incarnation, count) = (*ready.borrow(), 1, 1_000_000);
    let liar = Liar { ready, incarnation, count, ..Liar::voter(&stage, x, honest[0]) };
    stage.kill(&[x]);
    Ok((stage, honest, liar, old))
}

/// Says a roster that adopts a value, and accepts it.
fn propose(
    stage: &mut World,
    honest: &[usize],
    liar: &Liar,
    attempt: Attempt,
    (heard, receipt): (Vec<Heard>, Receipt),
) -> Roster {
    let (series, proposer) = (receipt.series, liar.name);
    let members = members(stage, honest[0], &[], |voters| voters);
    let (adopt, trust, keep) = (Some(receipt), None, Vec::new());
    let roster = Roster { series, attempt, proposer, members, heard, adopt, trust, keep };
    stage.say_as(honest, proposer, &Message::Roster(roster.clone()));
    let digest = wire::roster_digest(&stage.run, &roster);
    let accept = Accept { series, roster: digest };
    stage.say_as(honest, proposer, &Message::Accept(accept));
    roster
}

/// While the others train, one voter proposes attempt 1, which asks nobody, and adopts a value of its own.
fn the_first_attempt_adopts(count: usize) -> Played {
    let (mut stage, honest, liar, old) = one_liar(count)?;
    let mut said = false;
    lie(&mut stage, &honest, &mut [liar], MINUTE_MS / 2, |stage, liars, heard| {
        let series = stage.series(honest[0]).unwrap();
        if heard.is_none() && !said && series.epoch == 2 {
            said = true;
            let receipt = forged(&liars[0], series, old);
            propose(stage, &honest, &liars[0], 1, (Vec::new(), receipt));
        }
    })?;
    assert!(said && all_at(&stage, &honest, 2), "{:?}", stage.phase(honest[0]));
    assert_voters(&stage, &honest);
    Ok(())
}

#[test]
fn r8_one_of_five_adopts_at_the_first_attempt() -> Played {
    the_first_attempt_adopts(5)
}

#[test]
fn r8_one_of_sixteen_adopts_at_the_first_attempt() -> Played {
    the_first_attempt_adopts(16)
}

/// One voter accepts attempt 1, asks for attempt 2 while its ring is waited for, and shows a Status of its own in which
/// it has voted, at attempt 2, for a value of its own.
fn one_forges_a_vote(count: usize) -> Played {
    let (mut stage, honest, liar, old) = one_liar(count)?;
    let mut statuses: BTreeMap<PeerId, Status> = BTreeMap::new();
    let (mut due, mut asked, mut said) = (None, false, false);
    lie(&mut stage, &honest, &mut [liar], 12_000, |stage, liars, heard| match heard {
        Some((_, Message::Roster(roster))) if roster.attempt == 1 && roster.series.epoch == 2 => {
            let series = roster.series;
            let digest = wire::roster_digest(&stage.run, &roster);
            let accept = Accept { series, roster: digest };
            stage.say_as(&honest, liars[0].name, &Message::Accept(accept));
            due.get_or_insert((stage.now_ms + 20, series));
        }
        Some((from, Message::Status(status)))
            if (status.attempt, Some(status.series)) == (2, due.map(|(_, series)| series)) =>
        {
            statuses.insert(stage.name(from), status);
        }
        Some(_) => {}
        None => {
            let Some((_, series)) = due.filter(|(at_ms, _)| stage.now_ms >= *at_ms) else { return };
            if !asked {
                asked = true;
                liars[0].ask(stage, &honest, series, 2);
            }
            if statuses.len() == honest.len() && !said {
                said = true;
                let mut heard: Vec<Heard> =
                    statuses.iter().map(|(peer, status)| signed(stage, *peer, *status)).collect();
                let receipt = forged(&liars[0], series, old);
                heard.push(signed(stage, liars[0].name, vote(stage, &liars[0], &receipt)));
                propose(stage, &honest, &liars[0], 2, (heard, receipt));
            }
        }
    })?;
    assert!(said, "nobody answered: {:?}", stage.phase(honest[0]));
    assert_voters(&stage, &honest);
    Ok(())
}

/// The Status for attempt 2 of a liar that says that it has voted at 2 for `receipt`.
fn vote(stage: &World, liar: &Liar, receipt: &Receipt) -> Status {
    let r = wire::receipt_digest(&stage.run, receipt);
    let done = Some(Ranked { depth: 0, attempt: 2, r });
    Status { series: receipt.series, log: liar.log, attempt: 2, done, holds_forced: false }
}

#[test]
fn r8_one_of_five_forges_a_vote() -> Played {
    one_forges_a_vote(5)
}

#[test]
fn r8_one_of_sixteen_forges_a_vote() -> Played {
    one_forges_a_vote(16)
}

/// All four honest ones of five have voted for r, and two of them have committed it; the others have not heard of that.
/// The fifth gets the other two to decide something else.
#[test]
fn s1_one_of_five_makes_two_certificates() -> Played {
    let (mut stage, all) = founded(5, 0, None)?;
    let [a, b, c, d, x] = all[..] else { unreachable!() };
    let old = commit(&stage, a, 1).receipt.update;
    let voted: Noted<BTreeSet<usize>> = Rc::default();
    let noted = Rc::clone(&voted);
    stage.direct(move |from, to, message| match message {
        Message::Done(_) if epoch_of(message) == 2 => {
            noted.borrow_mut().insert(from);
            if [c, d].contains(&to) { Fate::Drop } else { Fate::Deliver }
        }
        Message::Commit(_) => Fate::Drop,
        _ => Fate::Deliver,
    });
    assert!(stage.until(END_MS, |stage| {
        let voted = [a, b, c, d].iter().all(|host| voted.borrow().contains(host));
        voted && all_at(stage, &[a, b], 2)
    })?);
    assert!(stage.epoch(c) == 1 && stage.epoch(d) == 1);
    let liar = Liar { ready: 100, ..Liar::voter(&stage, x, c) };
    // Those two are out of reach for a while.
    stage.kill(&[a, b, x]);
    let series = stage.series(c).unwrap();
    let mut statuses: BTreeMap<PeerId, Status> = BTreeMap::new();
    let (mut said, mut next_ms) = (false, 0);
    lie(&mut stage, &[c, d], &mut [liar], 6_000, |stage, liars, heard| match heard {
        Some((from, Message::Status(status))) if (status.series, status.attempt) == (series, 2) => {
            statuses.insert(stage.name(from), status);
        }
        Some(_) => {}
        None => {
            if stage.now_ms >= next_ms && !said {
                next_ms = stage.now_ms + 100;
                liars[0].ask(stage, &[c, d], series, 2);
            }
            if statuses.len() == 2 && !said {
                said = true;
                let receipt = forged(&liars[0], series, old);
                let mut heard: Vec<Heard> =
                    statuses.iter().map(|(peer, s)| signed(stage, *peer, *s)).collect();
                heard.push(signed(stage, liars[0].name, vote(stage, &liars[0], &receipt)));
                let roster = propose(stage, &[c, d], &liars[0], 2, (heard, receipt.clone()));
                let done = Message::Done(stage.law().done(&roster, &receipt));
                stage.say_as(&[c, d], liars[0].name, &done);
            }
        }
    })?;
    assert!(said, "nobody answered");
    assert_voters(&stage, &[c, d]);
    Ok(())
}

/// A voter proposes to keep all but one chunk of rings that never were, each with itself as the owner: the bytes of the
/// epoch would be its own.
#[test]
pub(super) fn r32_one_of_five_keeps_chunks_of_rings_that_never_were() -> Played {
    let (mut stage, honest, liar, _) = one_liar(5)?;
    let (mut first, mut said): (Option<(u64, Roster)>, bool) = (None, false);
    lie(&mut stage, &honest, &mut [liar], 12_000, |stage, liars, heard| match heard {
        Some((_, Message::Roster(roster))) if roster.attempt == 1 && roster.series.epoch == 2 => {
            first.get_or_insert((stage.now_ms + 20, roster));
        }
        Some(_) => {}
        None => {
            let Some((at_ms, roster)) = &first else { return };
            if stage.now_ms == *at_ms || stage.now_ms == at_ms + 1 {
                liars[0].ask(stage, &honest, roster.series, 2);
            }
            if stage.now_ms >= at_ms + 200 && !said {
                said = true;
                keep_what_never_was(stage, &honest, &liars[0], roster);
            }
        }
    })?;
    assert!(said, "nobody proposed: {:?}", stage.phase(honest[0]));
    for host in &honest {
        let kept =
            |event: &Event| matches!(event, Event::Roster { epoch: 2, kept, .. } if *kept > 0);
        assert!(!told(&stage, *host, kept), "{host} keeps what the liar made up");
    }
    reach(&mut stage, &honest, 3)
}

fn keep_what_never_was(stage: &mut World, honest: &[usize], liar: &Liar, first: &Roster) {
    let key = Keypair::simulated(liar.name);
    let ring: Vec<Member> = first.ring().copied().collect();
    let mine = ring.iter().position(|member| member.peer == liar.name).unwrap();
    let elements = stage.law().elements;
    let keep = (0..ring.len() - 1).map(|chunk| {
        let mut members = ring.clone();
        // The liar owns this chunk in a ring of its own.
        members.rotate_left(mine);
        members.rotate_right((chunk + ring.len() - 1) % ring.len());
        let made_up = Roster { members: members.clone(), proposer: liar.name, ..first.clone() };
        let blocks = Layout::of(&made_up, elements).unwrap().chunk(chunk);
        let roster = wire::roster_digest(&stage.run, &made_up);
        let number = u32::try_from(chunk).unwrap();
        let seal = Seal::new(&key, &stage.run, &roster, number, Digest([7; 32]));
        let chunks = vec![Kept { chunk: number, seal, blocks, holders: vec![liar.name] }];
        Keep { roster, members, chunks }
    });
    let keep = keep.collect();
    let free = free_roster(stage, first.series, 2, liar.name, first.members.clone());
    stage.say_as(honest, liar.name, &Message::Roster(Roster { keep, ..free }));
}

/// R12: two keys that are no voters mint a lineage that undoes fewer epochs than a peer undoes by itself. Its
/// Regroup names nobody that had a vote, so it does not verify.
#[test]
fn r12_peers_without_a_vote_mint_a_few_epochs() -> Played {
    let (mut stage, honest, liar) = five(64, None)?;
    let (base, name) = (commit(&stage, 0, 5), stage.name(liar));
    let (links, head) = mint(&stage, &base, &[210, 211].map(newcomer), 3, WEIGHT_MAX);
    tell_of(&mut stage, liar, &honest, &links, head)?;
    assert!(!set_out(&stage, &honest, head), "they give up their own lineage");
    assert!(stage.blamed.iter().any(|(who, _)| *who == name));
    let epoch = stage.epoch(0);
    reach(&mut stage, &honest, epoch + 3)
}
