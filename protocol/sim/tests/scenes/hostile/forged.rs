//! A voter that claims a vote for a value that never was.

use intellect_protocol::base::fault::{CertificateFault, DoneFault, Fault, RosterFault};
use intellect_protocol::base::sign::Signature;
use intellect_protocol::message::seal::Seal;
use intellect_protocol::message::{
    Accept, Ground, Join, Keep, Kept, Prepared, QuorumRule, Ranked, Receipt, Voted,
};
use intellect_protocol::ring::Layout;

use super::*;
use crate::minted::{WEIGHT_MAX, five, mint, newcomer, set_out, tell_of, voter};

/// A value of the liar alone: a sum of its own work, with bytes that every peer has.
fn forged(liar: &Liar, series: Series, update: Digest) -> Receipt {
    let Liar { name: peer, log, incarnation, ready: weight, .. } = *liar;
    let members = vec![Member { peer, log, incarnation, weight }];
    Receipt { series, trust: None, update, members, parts: Vec::new() }
}

fn signed(world: &World, peer: PeerId, status: Status) -> Heard {
    let key = Keypair::simulated(peer);
    let signature = wire::seal(&key, &world.run, Message::Status(status)).signature();
    let Status { log, done, holds_forced, .. } = status;
    Heard { voter: Voter { peer, log }, done, holds_forced, signature }
}

/// `count` voters in epoch 2. The scene acts for the one that owns attempt 2, which has trained; the
/// others still train. Returns the liar, the others, and the update of epoch 1, which every peer has.
fn one_liar(count: usize) -> Result<(World, Vec<usize>, Liar, Digest), Violation> {
    let (mut world, mut honest) = founded(count, 0, None)?;
    let owns_two = |host: &usize| its_attempt(&world, honest[0], world.name(*host), 2) == 2;
    let x = honest.remove(honest.iter().position(owns_two).unwrap());
    let old = commit(&world, honest[0], 1).receipt.update;
    honest.iter().for_each(|host| world.train_in(*host, 3_000));
    let ready: Noted<u64> = Rc::default();
    let noted = Rc::clone(&ready);
    world.direct(move |from, _, message| {
        if let Message::Heartbeat(beat) = message
            && from == x
            && beat.series.epoch == 2
        {
            *noted.borrow_mut() = beat.ready;
        }
        Fate::Deliver
    });
    assert!(world.until(END_MS, |_| *ready.borrow() > 0)?);
    world.let_through();
    let (ready, incarnation, count) = (*ready.borrow(), 1, 1_000_000);
    let liar = Liar { ready, incarnation, count, ..Liar::voter(&world, x, honest[0]) };
    world.kill(&[x]);
    Ok((world, honest, liar, old))
}

/// Sends a roster that adopts a value, and accepts it.
fn propose(
    world: &mut World,
    honest: &[usize],
    liar: &Liar,
    attempt: Attempt,
    heard: Vec<Heard>,
    receipt: Receipt,
) -> Roster {
    let (series, proposer) = (receipt.series, liar.name);
    let members = members(world, honest[0], &[], |voters| voters);
    let (adopt, trust, keep) = (Some(receipt), None, Vec::new());
    let roster = Roster { series, attempt, proposer, members, heard, adopt, trust, keep };
    world.say_as(honest, proposer, &Message::Roster(roster.clone()));
    let digest = wire::roster_digest(&world.run, &roster);
    let accept = Accept { series, roster: digest };
    world.say_as(honest, proposer, &Message::Accept(accept));
    roster
}

/// R8: while the others train, one voter proposes attempt 1, which queries nobody, and adopts a
/// value of its own. It must be refused, or the liar would be the only voter of the next epoch.
fn the_first_attempt_adopts(count: usize) -> Played {
    let (mut world, honest, liar, old) = one_liar(count)?;
    let mut said = false;
    lie(&mut world, &honest, &mut [liar], MINUTE_MS / 2, |world, liars, heard| {
        let series = world.series(honest[0]).unwrap();
        if heard.is_none() && !said && series.epoch == 2 {
            said = true;
            let receipt = forged(&liars[0], series, old);
            propose(world, &honest, &liars[0], 1, Vec::new(), receipt);
        }
    })?;
    assert!(said && all_at(&world, &honest, 2), "{:?}", world.phase(honest[0]));
    assert_voters(&world, &honest);
    ends(world, &[Trains])
}

#[test]
fn r8_one_of_five_adopts_at_the_first_attempt() -> Played {
    the_first_attempt_adopts(5)
}

#[test]
fn r8_one_of_sixteen_adopts_at_the_first_attempt() -> Played {
    the_first_attempt_adopts(16)
}

/// R8: one voter accepts attempt 1, queries for attempt 2 while its ring is awaited,
/// and shows a Status with a vote for a value of its own at attempt 2. Without a
/// ground that vote must not count.
fn one_forges_a_vote(count: usize) -> Played {
    let (mut world, honest, liar, old) = one_liar(count)?;
    let mut statuses: BTreeMap<PeerId, Status> = BTreeMap::new();
    let (mut due, mut asked, mut said) = (None, false, false);
    lie(&mut world, &honest, &mut [liar], 12_000, |world, liars, heard| match heard {
        Some((_, Message::Roster(roster))) if roster.attempt == 1 && roster.series.epoch == 2 => {
            let series = roster.series;
            let digest = wire::roster_digest(&world.run, &roster);
            let accept = Accept { series, roster: digest };
            world.say_as(&honest, liars[0].name, &Message::Accept(accept));
            due.get_or_insert((world.now_ms + 20, series));
        }
        Some((from, Message::Status(status)))
            if (status.attempt, Some(status.series)) == (2, due.map(|(_, series)| series)) =>
        {
            statuses.insert(world.name(from), status);
        }
        Some(_) => {}
        None => {
            let Some((_, series)) = due.filter(|(at_ms, _)| world.now_ms >= *at_ms) else { return };
            if !asked {
                asked = true;
                liars[0].ask(world, &honest, series, 2);
            }
            if statuses.len() == honest.len() && !said {
                said = true;
                let mut heard: Vec<Heard> =
                    statuses.iter().map(|(peer, status)| signed(world, *peer, *status)).collect();
                let receipt = forged(&liars[0], series, old);
                heard.push(signed(world, liars[0].name, vote(world, &liars[0], &receipt)));
                propose(world, &honest, &liars[0], 2, heard, receipt);
            }
        }
    })?;
    assert!(said, "nobody answered: {:?}", world.phase(honest[0]));
    assert_voters(&world, &honest);
    ends(world, &[Accepts])
}

/// The Status of a liar for attempt 2, with a vote at 2 for `receipt`.
fn vote(world: &World, liar: &Liar, receipt: &Receipt) -> Status {
    let r = wire::receipt_digest(&world.run, receipt);
    let done = Some(Ranked { depth: 0, attempt: 2, r });
    Status { series: receipt.series, log: liar.log, attempt: 2, done, holds_forced: false }
}

#[test]
pub(super) fn r8_one_of_five_forges_a_vote() -> Played {
    one_forges_a_vote(5)
}

#[test]
fn r8_one_of_sixteen_forges_a_vote() -> Played {
    one_forges_a_vote(16)
}

/// S1: all four honest voters of five have voted for r, and two have committed it, which the other
/// two have not heard. The fifth voter tries to have these two decide another value.
#[test]
fn s1_one_of_five_makes_two_certificates() -> Played {
    let (mut world, all) = founded(5, 0, None)?;
    let [a, b, c, d, x] = all[..] else { unreachable!() };
    let old = commit(&world, a, 1).receipt.update;
    let voted: Noted<BTreeSet<usize>> = Rc::default();
    let noted = Rc::clone(&voted);
    world.direct(move |from, to, message| match message {
        Message::Done(_) if epoch_of(message) == 2 => {
            noted.borrow_mut().insert(from);
            if [c, d].contains(&to) { Fate::Drop } else { Fate::Deliver }
        }
        Message::Commit(_) => Fate::Drop,
        _ => Fate::Deliver,
    });
    assert!(world.until(END_MS, |world| {
        let voted = [a, b, c, d].iter().all(|host| voted.borrow().contains(host));
        voted && all_at(world, &[a, b], 2)
    })?);
    assert!(world.epoch(c) == 1 && world.epoch(d) == 1);
    let liar = Liar { ready: 100, ..Liar::voter(&world, x, c) };
    // The two that have committed are out of reach for a while.
    world.kill(&[a, b, x]);
    let series = world.series(c).unwrap();
    let mut statuses: BTreeMap<PeerId, Status> = BTreeMap::new();
    let (mut said, mut next_ms) = (false, 0);
    lie(&mut world, &[c, d], &mut [liar], 6_000, |world, liars, heard| match heard {
        Some((from, Message::Status(status))) if (status.series, status.attempt) == (series, 2) => {
            statuses.insert(world.name(from), status);
        }
        Some(_) => {}
        None => {
            if world.now_ms >= next_ms && !said {
                next_ms = world.now_ms + 100;
                liars[0].ask(world, &[c, d], series, 2);
            }
            if statuses.len() == 2 && !said {
                said = true;
                let receipt = forged(&liars[0], series, old);
                let mut heard: Vec<Heard> =
                    statuses.iter().map(|(peer, s)| signed(world, *peer, *s)).collect();
                heard.push(signed(world, liars[0].name, vote(world, &liars[0], &receipt)));
                let roster = propose(world, &[c, d], &liars[0], 2, heard, receipt.clone());
                let done = Message::Done(world.validator().done(&roster, &receipt));
                world.say_as(&[c, d], liars[0].name, &done);
            }
        }
    })?;
    assert!(said, "nobody answered");
    assert_voters(&world, &[c, d]);
    ends(world, &[End::Roster])
}

/// R32: a voter proposes to keep all chunks but one, of rings that never were and with itself as
/// the owner: the epoch's update would be its own. No peer may accept that.
#[test]
pub(super) fn r32_one_of_five_keeps_chunks_of_rings_that_never_were() -> Played {
    let (mut world, honest, liar, _) = one_liar(5)?;
    let (mut first, mut said): (Option<(u64, Roster)>, bool) = (None, false);
    lie(&mut world, &honest, &mut [liar], 12_000, |world, liars, heard| match heard {
        Some((_, Message::Roster(roster))) if roster.attempt == 1 && roster.series.epoch == 2 => {
            first.get_or_insert((world.now_ms + 20, roster));
        }
        Some(_) => {}
        None => {
            let Some((at_ms, roster)) = &first else { return };
            if world.now_ms == *at_ms || world.now_ms == at_ms + 1 {
                liars[0].ask(world, &honest, roster.series, 2);
            }
            if world.now_ms >= at_ms + 200 && !said {
                said = true;
                keep_what_never_was(world, &honest, &liars[0], roster);
            }
        }
    })?;
    assert!(said, "nobody proposed: {:?}", world.phase(honest[0]));
    for host in &honest {
        let kept =
            |event: &Event| matches!(event, Event::Roster { epoch: 2, kept, .. } if *kept > 0);
        assert!(!reported(&world, *host, kept), "{host} keeps what the liar made up");
    }
    reach(&mut world, &honest, 3)?;
    ends(world, &[Trains])
}

fn keep_what_never_was(world: &mut World, honest: &[usize], liar: &Liar, first: &Roster) {
    let key = Keypair::simulated(liar.name);
    let ring: Vec<Member> = first.ring().copied().collect();
    let mine = ring.iter().position(|member| member.peer == liar.name).unwrap();
    let elements = world.validator().elements;
    let keep = (0..ring.len() - 1).map(|chunk| {
        let mut members = ring.clone();
        // The liar owns this chunk in a ring of its own.
        members.rotate_left(mine);
        members.rotate_right((chunk + ring.len() - 1) % ring.len());
        let made_up = Roster { members: members.clone(), proposer: liar.name, ..first.clone() };
        let blocks = Layout::of(&made_up, elements).unwrap().chunk(chunk);
        let roster = wire::roster_digest(&world.run, &made_up);
        let number = u32::try_from(chunk).unwrap();
        let seal = Seal::new(&key, &world.run, &roster, number, Digest([7; 32]));
        let chunks = vec![Kept { chunk: number, seal, blocks, holders: vec![liar.name] }];
        Keep { roster, members, chunks }
    });
    let keep = keep.collect();
    let free = free_roster(world, first.series, 2, liar.name, first.members.clone());
    world.say_as(honest, liar.name, &Message::Roster(Roster { keep, ..free }));
}

/// R12: two keys without a vote mint a lineage that undoes fewer epochs than a peer undoes by
/// itself. Its Regroup names no peer that had a vote, so it does not verify.
#[test]
fn r12_peers_without_a_vote_mint_a_few_epochs() -> Played {
    let (mut world, honest, liar) = five(64, None)?;
    let (base, name) = (commit(&world, 0, 5), world.name(liar));
    let (links, head) = mint(&world, &base, &[210, 211].map(newcomer), 3, WEIGHT_MAX);
    tell_of(&mut world, liar, &honest, &links, head)?;
    assert!(!set_out(&world, &honest, head), "they give up their own lineage");
    assert!(world.blamed.iter().any(|(who, _)| *who == name));
    let epoch = world.epoch(0);
    reach(&mut world, &honest, epoch + 3)?;
    ends_amid(world, &[Trains, Update])
}

/// R26: a voter votes on an epoch, and then mints another one by a Regroup whose Join denies that vote.
/// Each peer that holds both links names it once, and nobody else.
#[test]
fn r26_two_links_of_one_epoch_name_the_voter_that_denies_its_vote() -> Played {
    let (mut world, all, liar) = five(2, None)?;
    let base = commit(&world, 0, world.epoch(0));
    assert!(all.iter().all(|host| world.epoch(*host) == base.head.epoch));
    // Three of the five voters are left, so a certificate needs each of them.
    world.kill(&[2, 3]);
    reach(&mut world, &[0, 1, liar], base.head.epoch + 1)?;
    [0, 1].iter().for_each(|host| world.train_in(*host, 3_000));
    let (links, head) = mint(&world, &base, &[voter(&world, &base, liar)], 40, WEIGHT_MAX);
    tell_of(&mut world, liar, &[0, 1], &links, head)?;
    assert!(!set_out(&world, &[0, 1], head));
    let denies = (world.name(liar), Fault::Certificate(CertificateFault::HidesVote));
    assert_eq!((&world.blamed[..], world.report.of(Count::Proven)), (&[denies; 2][..], 2));
    ends_amid(world, &[Trains, Training])
}

/// R1: one voter signs two rosters of the first attempt, and another one accepts two. The peers that
/// hold both signatures blame it, and nobody else.
#[test]
fn r1_two_rosters_and_two_accepts_of_one_attempt_are_faults() -> Played {
    let (mut world, mut honest, x, _) = one_liar(5)?;
    let y = honest.pop().unwrap();
    let other = Liar::voter(&world, y, honest[0]);
    world.kill(&[y]);
    let series = world.series(honest[0]).unwrap();
    let places = [(world.host(&x.name).unwrap(), x.ready)];
    let named = members(&world, honest[0], &places, |voters| voters);
    let mut turned = named.clone();
    turned.swap(3, 4);
    let first = |proposer: PeerId, members: Vec<Member>| Roster {
        heard: Vec::new(),
        ..free_roster(&world, series, 1, proposer, members)
    };
    let ours = first(other.name, named.clone());
    let [one, two] = [named, turned].map(|members| first(x.name, members));
    for roster in [&one, &ours] {
        world.say_as(&honest, roster.proposer, &Message::Roster(roster.clone()));
        let roster = wire::roster_digest(&world.run, roster);
        world.say_as(&honest, other.name, &Message::Accept(Accept { series, roster }));
    }
    world.say_as(&honest, x.name, &Message::Roster(two));
    world.play(1_000)?;
    let times = |who: PeerId, fault: Fault| {
        world.blamed.iter().filter(|blamed| **blamed == (who, fault)).count()
    };
    assert_eq!(times(x.name, Fault::Roster(RosterFault::TwoOfOneAttempt)), honest.len());
    assert_eq!(times(other.name, Fault::Done(DoneFault::AcceptsTwo)), honest.len());
    assert_eq!(world.blamed.len(), 2 * honest.len(), "{:?}", world.blamed);
    assert_eq!(world.report.of(Count::Proven), world.blamed.len() as u64);
    ends(world, &[LeftOut])
}

/// The peers that the honest ones blame, each with its fault, once a key has said this to them.
fn blamed(
    world: &mut World,
    honest: &[usize],
    who: PeerId,
    said: &Message,
) -> Result<Vec<(PeerId, Fault)>, Violation> {
    world.say_as(honest, who, said);
    world.play(20)?;
    Ok(std::mem::take(&mut world.blamed))
}

/// R8: one of five voters names a vote in its Status, and proves it with the Accepts of one, two or
/// three voters. One or two are no majority, and each peer that gets such a proof blames it.
#[test]
fn r8_a_status_with_a_bad_ground_is_a_fault() -> Played {
    let (mut world, honest, liar, old) = one_liar(5)?;
    let series = world.series(honest[0]).unwrap();
    let receipt = forged(&liar, series, old);
    let status = Message::Status(vote(&world, &liar, &receipt));
    assert!(blamed(&mut world, &honest, liar.name, &status)?.is_empty());
    let members = members(&world, honest[0], &[], |voters| voters);
    let (attempt, proposer, heard) = (2, liar.name, Vec::new());
    let (adopt, trust, keep) = (Some(receipt), None, Vec::new());
    let roster = Roster { series, attempt, proposer, members, heard, adopt, trust, keep };
    for (count, proves) in [(1, false), (2, false), (3, true)] {
        let by = roster.members.iter().take(count).map(|m| (m.peer, Signature([0; 64])));
        let (depth, update, accepts) = (0, old, by.collect());
        let voted = Voted { depth, roster: roster.clone(), update, accepts };
        let ground = Message::Ground(Ground { series, voted });
        let blames = if proves { 0 } else { honest.len() };
        let expected = vec![(liar.name, Fault::Done(DoneFault::NoGround)); blames];
        let blamed = blamed(&mut world, &honest, liar.name, &ground)?;
        assert_eq!(blamed, expected, "{count} Accepts");
    }
    ends(world, &[Trains])
}

/// G14: a roster shows the Status of a peer without a vote beside those of all voters. Each peer
/// blames its proposer.
#[test]
fn g14_a_roster_that_heard_a_stranger_is_a_fault() -> Played {
    let (mut world, honest, liar, _) = one_liar(5)?;
    let series = world.series(honest[0]).unwrap();
    let places = [(world.host(&liar.name).unwrap(), liar.ready)];
    let members = members(&world, honest[0], &places, |voters| voters);
    let mut roster = free_roster(&world, series, 2, liar.name, members);
    let voter = Voter { peer: stranger(9), log: LogId([9; 16]) };
    let heard = Heard { voter, ..roster.heard[0] };
    roster.heard.push(heard);
    let expected = vec![(liar.name, Fault::Roster(RosterFault::HeardNoVoter)); honest.len()];
    let blamed = blamed(&mut world, &honest, liar.name, &Message::Roster(roster))?;
    assert_eq!(blamed, expected);
    ends(world, &[Trains])
}

/// R5, R11, R13: one of four voters votes for two values of its roster, says that it holds two, and
/// joins a Regroup with two votes. Each peer that has both messages blames it, for that alone.
#[test]
fn r11_a_voter_that_says_two_things_is_blamed() -> Played {
    let world = World::scene_with(4, 0, QuorumRule::Byzantine, OFF.get());
    let (mut world, mut honest) = found(world, 4)?;
    let x = honest.pop().unwrap();
    let liar = Liar::voter(&world, x, honest[0]);
    world.kill(&[x]);
    let series = world.series(honest[0]).unwrap();
    let members = members(&world, honest[0], &[(x, 100)], |voters| voters);
    let roster = free_roster(&world, series, 1, liar.name, members);
    let named = Message::Roster(roster.clone());
    assert!(blamed(&mut world, &honest, liar.name, &named)?.is_empty());
    let digest = wire::roster_digest(&world.run, &roster);
    let value = |n: u8| Digest([n; 32]);
    let done = |n| Message::Done(world.validator().done(&roster, &roster.receipt(value(n))));
    let prepared = |n| Message::Prepared(Prepared { series, roster: digest, update: value(n) });
    let join = |n| {
        let done = Some(Ranked { depth: 0, attempt: 1, r: value(n) });
        Message::Join(Join { series, regroup: value(9), log: liar.log, done })
    };
    let twice = [
        ([1, 2].map(done), Fault::Done(DoneFault::TwoValues)),
        ([1, 2].map(prepared), Fault::Done(DoneFault::HoldsTwo)),
        ([1, 2].map(join), Fault::Certificate(CertificateFault::TwoJoins)),
    ];
    for ([one, other], fault) in twice {
        assert!(blamed(&mut world, &honest, liar.name, &one)?.is_empty());
        let blamed = blamed(&mut world, &honest, liar.name, &other)?;
        assert_eq!(blamed, vec![(liar.name, fault); honest.len()]);
    }
    ends(world, &[LeftOut])
}
