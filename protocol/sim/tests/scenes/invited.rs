//! Runs of invited peers: T1–T11, S8–S10.

use intellect_protocol::access::admit::Denied;
use intellect_protocol::base::id::RunId;
use intellect_protocol::message::{Clause, Invite, Notice, Phase, Terms, Ticket};
use intellect_protocol_sim::world::invited::key;

use super::*;

/// The organiser of these runs, and the founders' invite.
const ORGANISER: u8 = 0x0e;
const FOUNDERS: u8 = 0xf0;
/// When they begin, in Unix seconds.
const NOW: u64 = 1_000_000_000;

/// `count` invited peers that have founded the run, with `spare` hosts that have no ticket.
fn run(
    count: usize,
    spare: usize,
    without: Option<Rule>,
) -> Result<(World, Vec<usize>), Violation> {
    let mut stage = World::scene(count + spare, 0, without);
    stage.invite(NOW);
    let hosts: Vec<usize> = (0..count).collect();
    let invite = stage.new_invite(FOUNDERS, ORGANISER, |terms| terms.uses = 100);
    stage.hand_all(&hosts, FOUNDERS, &invite);
    stage.start(&hosts);
    assert!(stage.until(END_MS, |stage| all_at(stage, &hosts, 1))?, "nobody founds");
    let order = stage.voters(0);
    assert_eq!(order.len(), count, "everyone founds");
    Ok((stage, order))
}

/// Whether `host` has a place or a vote in what `other` committed as that epoch.
fn is_member(stage: &World, other: usize, epoch: u64, host: usize) -> bool {
    stage.commit(other, epoch).is_some_and(|c| weight(stage, c, host).is_some())
}

/// Whether any process told of a roster, a Regroup or a commit that names a host.
fn was_named(stage: &World, hosts: &[usize], host: usize) -> bool {
    let who = stage.name(host);
    hosts.iter().any(|other| {
        told(stage, *other, |event| match event {
            Event::Roster { members, .. } | Event::Regroup { members, .. } => {
                members.contains(&who)
            }
            Event::Committed(c) => c.receipt.members.iter().any(|m| m.peer == who),
            _ => false,
        })
    })
}

/// The sentences with which a host refuses another one.
fn refusals(stage: &World, host: usize, other: usize) -> Vec<String> {
    let who = stage.name(other);
    let told = stage.told(host).filter_map(|event| match event {
        Event::Refused { who: peer, why } if *peer == who => Some(why.to_string()),
        _ => None,
    });
    told.collect()
}

fn digests(stage: &World, hosts: &[usize]) -> Vec<Digest> {
    hosts.iter().filter_map(|host| stage.ledger(*host)).map(|l| l.digest()).collect()
}

/// Hands a notice to one host, and plays until its revocations are in force; the epoch whose receipt carries it.
fn carried(stage: &mut World, hosts: &[usize], number: u64) -> Result<u64, Violation> {
    let there = |stage: &World, host: usize| {
        stage.ledger(host).is_some_and(|ledger| ledger.last().0 >= number)
    };
    let done = stage.until(END_MS, |stage| hosts.iter().all(|host| there(stage, *host)))?;
    assert!(done, "notice {number} never came into force");
    // The event waits for the disk.
    stage.play(1_000)?;
    let carries = |c: &Committed| {
        c.receipt.trust.iter().flat_map(|t| &t.notices).any(|notice| notice.number == number)
    };
    let epochs: BTreeSet<u64> = hosts
        .iter()
        .flat_map(|host| stage.told(*host))
        .filter_map(|event| match event {
            Event::Committed(c) if carries(c) => Some(c.head.epoch),
            _ => None,
        })
        .collect();
    assert_eq!(epochs.len(), 1, "one receipt carries notice {number}: {epochs:?}");
    Ok(epochs.first().copied().unwrap())
}

/// T2, T3: who shows a ticket is a member two epochs later at most, voters admit several at once, and its
/// heartbeats show it no longer once the ledger has it.
#[test]
fn joiner_with_a_ticket_is_a_member_within_two_epochs() -> Played {
    let (mut stage, all) = run(3, 4, None)?;
    reach(&mut stage, &all, 3)?;
    let invite = stage.new_invite(0xf1, ORGANISER, |terms| terms.uses = 4);
    stage.hand_all(&[3, 4, 5, 6], 0xf1, &invite);
    stage.start(&[3, 4, 5, 6]);
    let joined = |stage: &World, host| told(stage, host, |e| matches!(e, Event::CaughtUp { .. }));
    assert!(stage.until(END_MS, |stage| (3..7).all(|host| joined(stage, host)))?);
    let there = stage.epoch(all[0]);
    reach(&mut stage, &all, there + 3)?;
    for host in 3..7 {
        let member = (there..=there + 2).any(|epoch| is_member(&stage, all[0], epoch, host));
        assert!(member, "host {host} is no member from epoch {there} on");
        let who = stage.name(host);
        assert!(told(&stage, all[0], |e| matches!(e, Event::Admitted { who: w, .. } if *w == who)));
    }
    let ledger = stage.ledger(all[0]).unwrap();
    assert_eq!(ledger.invites()[&key(0xf1).peer()].spent, 4);
    reach(&mut stage, &[3, 4, 5, 6], there + 3)
}

/// T2: without one it is never named, refused with its sentence, and costs nobody time.
#[test]
fn stranger_without_a_ticket_is_never_named() -> Played {
    let played = |without| {
        let (mut stage, all) = run(3, 1, without)?;
        reach(&mut stage, &all, 3)?;
        let pace = |stage: &mut World| {
            let (from_ms, from) = (stage.now_ms, stage.epoch(all[0]));
            reach(stage, &all, from + 10)?;
            Ok((stage.now_ms - from_ms) / 10)
        };
        let alone_ms = pace(&mut stage)?;
        stage.start(&[3]);
        let beside_ms = pace(&mut stage)?;
        Ok((stage, all, alone_ms, beside_ms))
    };
    let (stage, all, alone_ms, beside_ms) = played(None)?;
    assert!(!was_named(&stage, &all, 3));
    assert!(beside_ms <= alone_ms + alone_ms / 10, "{beside_ms} ms an epoch, {alone_ms} before");
    let told = refusals(&stage, all[0], 3);
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].contains("invited peers only") && told[0].contains("--invite"), "{told:?}");
    Ok(())
}

/// T3, S10: twenty peers race for five uses of one invite.
#[test]
fn uses_are_exact() -> Played {
    let (mut stage, all) = run(3, 20, None)?;
    reach(&mut stage, &all, 2)?;
    let invite = stage.new_invite(0xf1, ORGANISER, |terms| terms.uses = 5);
    let racers: Vec<usize> = (3..23).collect();
    stage.hand_all(&racers, 0xf1, &invite);
    stage.start(&racers);
    let spent = |stage: &World| {
        let ledger = stage.ledger(all[0]).unwrap();
        ledger.invites().get(&key(0xf1).peer()).map_or(0, |account| account.spent)
    };
    assert!(stage.until(END_MS, |stage| spent(stage) == 5)?, "{} came", spent(&stage));
    let from = stage.epoch(all[0]);
    reach(&mut stage, &all, from + 10)?;
    assert_eq!(spent(&stage), 5);
    let came = racers
        .iter()
        .filter(|host| stage.ledger(all[0]).unwrap().admits(&stage.name(**host)).is_ok());
    assert_eq!(came.count(), 5);
    let told: Vec<String> =
        racers.iter().flat_map(|host| refusals(&stage, all[0], *host)).collect();
    assert!(told.iter().any(|told| told.contains("used 5 of 5 times")), "{told:?}");
    Ok(())
}

/// What refuses a peer that shows this ticket, at epoch 3 or later; it is never named.
fn refused(count: usize, ticket: impl Fn(&World) -> Ticket) -> Result<String, Violation> {
    let (mut stage, all) = run(count, 1, None)?;
    reach(&mut stage, &all, 3)?;
    let ticket = ticket(&stage);
    stage.hand(count, ticket);
    stage.start(&[count]);
    let from = stage.epoch(all[0]);
    reach(&mut stage, &all, from + 4)?;
    assert!(!was_named(&stage, &all, count));
    let told = refusals(&stage, all[0], count);
    assert_eq!(told.len(), 1, "{told:?}");
    Ok(told[0].clone())
}

/// T2–T4: each bad ticket has its sentence.
#[test]
fn bad_tickets_are_refused_with_their_sentences() -> Played {
    let by =
        |stage: &World, invite: Invite, host| Ticket::invited(invite, &key(0xf1), stage.name(host));
    let of = |stage: &World, change: &dyn Fn(&mut Terms)| {
        by(stage, stage.new_invite(0xf1, ORGANISER, change), 2)
    };
    let told = refused(2, |stage| {
        let invite = stage.new_invite(0xf1, ORGANISER, |_| {});
        by(stage, Invite { run: RunId([7; 32]), ..invite }, 2)
    })?;
    assert!(told.contains("this invite is for run 07070707"), "{told}");
    let told = refused(2, |stage| by(stage, stage.new_invite(0xf1, ORGANISER, |_| {}), 0))?;
    assert!(told.contains("this ticket is for peer"), "{told}");
    let told = refused(2, |stage| of(stage, &|terms| terms.expires = NOW - 3_700))?;
    assert!(told.contains("expired at"), "{told}");
    let told = refused(2, |stage| of(stage, &|terms| terms.until_epoch = 2))?;
    assert!(told.contains("good until epoch 2"), "{told}");
    let told = refused(2, |stage| by(stage, stage.new_invite(0xf1, 0xbb, |_| {}), 2))?;
    assert!(told.contains("has not signed this"), "{told}");
    Ok(())
}

/// T4: a clock that is an hour ahead refuses nobody. One that is hours ahead does, or whoever says so, and costs itself
/// its place: only most of the voters keep somebody out by their clocks. The run goes on.
#[test]
fn the_clock_of_one_voter_keeps_nobody_out() -> Played {
    let expires = NOW + 60;
    for (ahead, off, comes) in [(1, 3_600, true), (1, 20_000, true), (2, 20_000, false)] {
        let mut stage = World::scene(4, 0, None);
        stage.invite(NOW);
        let founders = stage.new_invite(FOUNDERS, ORGANISER, |terms| terms.uses = 3);
        stage.hand_all(&[0, 1, 2], FOUNDERS, &founders);
        (0..ahead).for_each(|host| stage.set_clock(host, off));
        stage.start(&[0, 1, 2]);
        reach(&mut stage, &[0, 1, 2], 2)?;
        let invite = stage.new_invite(0xf1, ORGANISER, |terms| terms.expires = expires);
        stage.hand_all(&[3], 0xf1, &invite);
        stage.start(&[3]);
        reach(&mut stage, &[0, 1, 2], 8)?;
        let came = (2..=8).any(|epoch| is_member(&stage, 2, epoch, 3));
        assert_eq!(came, comes, "{ahead} clocks off by {off} s");
        assert!(regroups(&stage, 2).is_empty());
    }
    Ok(())
}

/// A notice that is not the next one, or that somebody else has signed, is no notice.
#[test]
fn bad_notices_count_for_nothing() -> Played {
    let (mut stage, all) = run(3, 0, None)?;
    let revoke = || vec![Clause::RevokePeer(stage.name(all[2]))];
    let none = (0, Digest::ZERO);
    let forged = stage.update(none, 0xbb, revoke());
    let late = stage.update((1, Digest([1; 32])), ORGANISER, revoke());
    let beside = stage.update((0, Digest([1; 32])), ORGANISER, revoke());
    let good = stage.update(none, ORGANISER, revoke());
    for notice in [&forged, &late, &beside] {
        stage.hand_notice(&all, notice);
    }
    reach(&mut stage, &all, 5)?;
    assert_eq!(stage.ledger(0).unwrap().last(), none);
    let ledger = stage.ledger(0).unwrap();
    let why = |notice: &Notice| ledger.check_notice(notice).map_err(|why| why.to_string());
    assert!(why(&forged).unwrap_err().contains("notice 1 is not signed"));
    assert!(why(&late).unwrap_err().contains("notice 2 contradicts notice 0"));
    assert!(why(&beside).unwrap_err().contains("notice 1 contradicts notice 0"));
    assert_eq!(why(&good), Ok(()));
    stage.hand_notice(&all[..1], &good);
    carried(&mut stage, &all[..2], 1)?;
    Ok(())
}

/// T5, T6, S8, S9: brought to one peer, a notice is in force for all at the same epoch: the revoked votes on that
/// one, without a place, and on no other.
#[test]
fn revoked_at_the_same_epoch_for_everybody() -> Played {
    let (mut stage, all) = run(4, 0, None)?;
    reach(&mut stage, &all, 3)?;
    let [a, b, c, d] = all[..] else { unreachable!() };
    let notice =
        stage.update((0, Digest::ZERO), ORGANISER, vec![Clause::RevokePeer(stage.name(d))]);
    stage.hand_notice(&[b], &notice);
    let epoch = carried(&mut stage, &[a, b, c], 1)?;
    let of = commit(&stage, a, epoch);
    assert_eq!(weight(&stage, &of, d), Some(0), "it votes on this epoch, without a place");
    reach(&mut stage, &[a, b, c], epoch + 5)?;
    assert!((epoch + 1..epoch + 5).all(|later| !is_member(&stage, a, later, d)));
    let ledgers = digests(&stage, &[a, b, c]);
    assert!(ledgers.windows(2).all(|pair| pair[0] == pair[1]), "{ledgers:?}");
    for host in [a, b, c] {
        let in_force =
            |e: &Event| matches!(e, Event::Notice { in_force: Some(at), .. } if *at == epoch);
        let revoked = |e: &Event| {
            matches!(e, Event::Revoked { who, notice: 1, epoch: at }
                if (*who, *at) == (stage.name(d), epoch))
        };
        assert!(told(&stage, host, in_force) && told(&stage, host, revoked));
        let gone = |e: &Event| matches!(e, Event::Admitted { .. });
        assert!(told(&stage, host, gone));
    }
    assert!(regroups(&stage, a).is_empty(), "the others are a majority");
    Ok(())
}

/// T5: without the rule, who has not heard of a notice goes on without it.
#[test]
fn t5_proposers_carry_what_any_acceptor_knows() -> Played {
    let played = |without| -> Result<bool, Violation> {
        let (mut stage, all) = run(4, 0, without)?;
        reach(&mut stage, &all, 3)?;
        let (knows, others) = all.split_last().unwrap();
        // It hears of the notice, and what it says of it reaches nobody but by a refusal.
        let mute = *knows;
        stage.direct(move |from, _, message| match message {
            Message::Notice(_) if from == mute && without.is_some() => Fate::Drop,
            Message::Roster(_) if from == mute => Fate::Drop,
            _ => Fate::Deliver,
        });
        let target = stage.name(others[0]);
        let notice = stage.update((0, Digest::ZERO), ORGANISER, vec![Clause::RevokePeer(target)]);
        stage.hand_notice(&[mute], &notice);
        let from = stage.epoch(mute);
        reach(&mut stage, &others[1..], from + 4)?;
        Ok(stage.ledger(others[1]).unwrap().last().0 == 1)
    };
    assert!(played(None)?);
    assert!(!played(Some(Rule::T5))?);
    Ok(())
}

/// T7: a value that is voted for is adopted as it is; the notice comes with the next epoch.
#[test]
fn notice_and_adoption() -> Played {
    let (mut stage, all) = run(3, 0, None)?;
    let [a, b, c] = all[..] else { unreachable!() };
    reach(&mut stage, &all, 2)?;
    // Votes on epoch 3 reach nobody, until somebody asks.
    stage.direct(move |_, _, message| match message {
        Message::Done(done) if done.series.epoch == 3 => Fate::Drop,
        Message::Commit(_) => Fate::Drop,
        _ => Fate::Deliver,
    });
    let voted = |stage: &World| stage.phase(a).is_some_and(|(phase, _)| phase == Phase::Finished);
    assert!(stage.until(END_MS, |stage| stage.epoch(a) == 2 && voted(stage))?);
    let notice =
        stage.update((0, Digest::ZERO), ORGANISER, vec![Clause::RevokePeer(stage.name(c))]);
    stage.hand_notice(&[a, b, c], &notice);
    let adopts = |stage: &World| accepted(stage, a, 3).iter().any(|(_, adopt)| adopt.is_some());
    assert!(stage.until(END_MS, |stage| adopts(stage))?, "nobody adopts");
    stage.relent();
    let epoch = carried(&mut stage, &[a, b], 1)?;
    assert_eq!(epoch, 4);
    let of = |epoch| all.iter().find_map(|host| stage.commit(*host, epoch)).unwrap();
    assert!(of(3).receipt.trust.is_none());
    assert_eq!(weight(&stage, of(4), c), Some(0));
    Ok(())
}

/// T5: of five that are due four are carried, and the fifth one epoch later.
#[test]
fn five_notices() -> Played {
    let (mut stage, all) = run(3, 0, None)?;
    reach(&mut stage, &all, 2)?;
    let mut last = (0, Digest::ZERO);
    for name in 1..=5 {
        let notice = stage.update(last, ORGANISER, vec![Clause::Admit(PeerId([name; 32]))]);
        last = notice.place();
        stage.hand_notice(&[all[1]], &notice);
    }
    let fourth = carried(&mut stage, &all, 4)?;
    let fifth = carried(&mut stage, &all, 5)?;
    let first = carried(&mut stage, &all, 1)?;
    assert_eq!((first, fifth), (fourth, fourth + 1));
    assert_eq!(stage.ledger(all[0]).unwrap().last(), last);
    Ok(())
}

/// T8: of two with one number the one in the lineage stands.
#[test]
fn two_notices_of_one_number() -> Played {
    let (mut stage, all) = run(4, 0, None)?;
    let [a, b, c, d] = all[..] else { unreachable!() };
    reach(&mut stage, &all, 2)?;
    let none = (0, Digest::ZERO);
    let [one, other] =
        [c, d].map(|who| stage.update(none, ORGANISER, vec![Clause::RevokePeer(stage.name(who))]));
    stage.hand_notice(&[a], &one);
    stage.hand_notice(&[b], &other);
    carried(&mut stage, &[a, b], 1)?;
    let from = stage.epoch(a);
    reach(&mut stage, &[a, b], from + 3)?;
    let ledger = stage.ledger(a).unwrap();
    let stands = ledger.last();
    assert!(stands == one.place() || stands == (1, other.place().1));
    assert_eq!([c, d].iter().filter(|host| ledger.revokes(&stage.name(**host))).count(), 1);
    // The next one follows on it, whatever else somebody has heard of.
    let next = stage.update(stands, ORGANISER, vec![Clause::Admit(PeerId([1; 32]))]);
    stage.hand_notice(&[b], &next);
    carried(&mut stage, &[a, b], 2)?;
    Ok(())
}

/// T10: three of four are revoked. The one that is left goes on without them.
#[test]
fn revoked_are_the_majority() -> Played {
    let (mut stage, all) = run(4, 0, None)?;
    reach(&mut stage, &all, 2)?;
    let (left, gone) = all.split_last().unwrap();
    // Those who are revoked take no part in it.
    let deaf = gone.to_vec();
    stage.direct(move |_, to, message| match message {
        Message::Notice(_) if deaf.contains(&to) => Fate::Drop,
        _ => Fate::Deliver,
    });
    let clauses = gone.iter().map(|host| Clause::RevokePeer(stage.name(*host))).collect();
    let notice = stage.update((0, Digest::ZERO), ORGANISER, clauses);
    stage.hand_notice(&[*left], &notice);
    let alone = |stage: &World| stage.ledger(*left).is_some_and(|ledger| ledger.last().0 == 1);
    assert!(stage.until(END_MS, |stage| alone(stage))?, "{:?}", stage.head(*left));
    assert_eq!(stage.voters(*left), [*left]);
    let entered = regroups(&stage, *left);
    assert!(entered.iter().any(|(members, absent)| members == &[*left] && *absent == sorted(gone)));
    Ok(())
}

/// T6: whoever is revoked, and holds the code by which it came, comes with another key by that no more; who came by it as
/// well stays, until the organiser revokes the invite with all that came by it.
#[test]
fn an_invite_is_closed_with_its_peer_and_its_peers_with_it() -> Played {
    let (mut stage, all) = run(3, 3, None)?;
    reach(&mut stage, &all, 2)?;
    let invite = stage.new_invite(0xf1, ORGANISER, |terms| terms.uses = 5);
    stage.hand_all(&[3, 4, 5], 0xf1, &invite);
    stage.start(&[3, 4]);
    let came = |stage: &World| {
        let ledger = stage.ledger(all[0]).unwrap();
        (3..6).filter(|host| ledger.admits(&stage.name(*host)).is_ok()).collect::<Vec<_>>()
    };
    assert!(stage.until(END_MS, |stage| came(stage) == [3, 4])?, "{:?} came", came(&stage));
    let none = (0, Digest::ZERO);
    let one = stage.update(none, ORGANISER, vec![Clause::RevokePeer(stage.name(3))]);
    stage.hand_notice(&[all[0]], &one);
    carried(&mut stage, &all, 1)?;
    stage.start(&[5]);
    let from = stage.epoch(all[0]);
    reach(&mut stage, &all, from + 4)?;
    assert_eq!(came(&stage), [4]);
    let told = refusals(&stage, all[0], 5);
    assert!(told.iter().any(|told| told.contains("revoked by notice 1")), "{told:?}");
    let clause = Clause::RevokeInvite { key: key(0xf1).peer(), admitted: true };
    let two = stage.update(one.place(), ORGANISER, vec![clause]);
    stage.hand_notice(&[all[0]], &two);
    carried(&mut stage, &all, 2)?;
    assert!(came(&stage).is_empty());
    // By name the first one may come again.
    let last = two.place();
    let three = stage.update(last, ORGANISER, vec![Clause::Admit(stage.name(3))]);
    stage.hand_notice(&[all[0]], &three);
    carried(&mut stage, &all, 3)?;
    assert_eq!(came(&stage), [3]);
    Ok(())
}

/// T2: two strangers found a run of their own under its name; nobody follows it, whatever its tokens. They are
/// hosts that believe an organiser of their own.
#[test]
fn a_lineage_of_strangers_does_not_verify() -> Played {
    let (mut stage, all) = run(2, 3, None)?;
    reach(&mut stage, &all, 3)?;
    stage.cut(&[2, 3, 4], 1);
    [2, 3, 4].into_iter().for_each(|host| stage.betray(host, 0xee));
    let invite = stage.new_invite(0xf1, 0xee, |terms| terms.uses = 3);
    stage.hand_all(&[2, 3, 4], 0xf1, &invite);
    stage.start(&[2, 3, 4]);
    reach(&mut stage, &[2, 3, 4], 6)?;
    let theirs = stage.epoch(2);
    stage.mend();
    stage.cut(&[2, 3, 4], 0);
    reach(&mut stage, &all, theirs + 20)?;
    assert!(forks(&stage, all[0]).is_empty() && forks(&stage, all[1]).is_empty());
    assert!(!was_named(&stage, &all, 2));
    let blamed = stage.blamed.iter().any(|(who, _)| *who == stage.name(2));
    assert!(blamed || stage.blamed.iter().any(|(who, _)| *who == stage.name(3)), "nobody looked");
    Ok(())
}

/// T9: a founding admits as many as the uses of an invite; who lacks one is no founder.
#[test]
fn founding_with_tickets() -> Played {
    let mut stage = World::scene(6, 0, None);
    stage.invite(NOW);
    let invite = stage.new_invite(FOUNDERS, ORGANISER, |terms| terms.uses = 3);
    stage.hand_all(&[0, 1, 2, 3], FOUNDERS, &invite);
    let named = Ticket::named(stage.law().run, stage.name(4), 0, &key(ORGANISER));
    stage.hand(4, named);
    stage.start(&[0, 1, 2, 3, 4, 5]);
    let founded = |stage: &World| (0..6).filter(|host| stage.epoch(*host) >= 2).count() >= 4;
    assert!(stage.until(END_MS, |stage| founded(stage))?, "nobody founds");
    let any = (0..6).find(|host| !stage.voters(*host).is_empty()).unwrap();
    let ledger = stage.ledger(any).unwrap();
    let came = (0..6).filter(|host| ledger.admits(&stage.name(*host)).is_ok()).count();
    assert_eq!((came, ledger.invites()[&key(FOUNDERS).peer()].spent), (4, 3));
    assert!(ledger.admits(&stage.name(4)).is_ok() && ledger.admits(&stage.name(5)).is_err());
    assert!(matches!(ledger.admits(&stage.name(5)), Err(Denied::Uninvited { .. })));
    Ok(())
}

/// A joiner that follows a checkpoint has the ledger of those who were there (S8), though it saw no epoch of it; and
/// so has who starts anew.
#[test]
fn joiner_has_the_whole_ledger() -> Played {
    let (mut stage, all) = run(3, 2, None)?;
    reach(&mut stage, &all, 2)?;
    let notice = stage.update((0, Digest::ZERO), ORGANISER, vec![Clause::Admit(stage.name(3))]);
    stage.hand_notice(&[all[0]], &notice);
    while stage.epoch(all[0]) < 2 * LINKS_KEPT as u64 {
        stage.play(GRACE_MS)?;
    }
    stage.start(&[3]);
    let is_voter = |stage: &World| stage.voters(all[0]).contains(&3);
    assert!(stage.until(END_MS, |stage| is_voter(stage))?, "{:?}", stage.head(3));
    stage.kill(&all[..1]);
    stage.start(&all[..1]);
    let hosts: Vec<usize> = all.iter().copied().chain([3]).collect();
    assert!(stage.until(END_MS, |stage| stage.same(&hosts) && stage.epoch(3) > 0)?);
    let ledgers = digests(&stage, &hosts);
    assert!(ledgers.len() == 4 && ledgers.windows(2).all(|pair| pair[0] == pair[1]));
    Ok(())
}
