//! Lineages that follow all rules of a link and are not what they claim, and lies about honest ones: what
//! is held for a person, what is told, and what stays in memory (G11, G12).

use intellect_protocol::base::id::LogId;
use intellect_protocol::base::sign::{Keypair, Signature};
use intellect_protocol::consensus::sync::LINKS_BYTES_MAX;
use intellect_protocol::message::wire;
use intellect_protocol::message::{
    Absence, Answer, Attestation, Certificate, ChainLink, Head, Heartbeat, Join, Link, Member,
    Opening, Regroup, Roster, Series, Voter,
};
use intellect_protocol_sim::world::scene::stranger;

use super::*;

/// The greatest weight of the simulated run.
pub(crate) const WEIGHT_MAX: u64 = 800;

/// A key that has never had a vote.
pub(crate) fn newcomer(name: u8) -> Voter {
    let peer = stranger(name);
    Voter { peer, log: LogId([name; 16]) }
}

/// The liar of [`five`] as a voter of the epoch after `base`.
pub(crate) fn voter(stage: &World, base: &Committed, liar: usize) -> Voter {
    let name = stage.name(liar);
    base.receipt.voters().into_iter().find(|voter| voter.peer == name).unwrap()
}

/// A lineage of so many epochs after `base`, which `members` have signed alone; and its head.
pub(crate) fn mint(
    stage: &World,
    base: &Committed,
    members: &[Voter],
    count: u64,
    weight: u64,
) -> (Vec<Link>, Head) {
    let run = stage.run;
    let seal = |peer: PeerId, message: Message| {
        wire::seal(&Keypair::simulated(peer), &run, message).signature()
    };
    let voters = base.receipt.voters();
    let base = base.head;
    let (mut head, mut links) = (base, Vec::new());
    for epoch in base.epoch + 1..=base.epoch + count {
        let mut series = Series::after(&head);
        let mut openings = Vec::new();
        if links.is_empty() {
            let silent = voters.iter().filter(|voter| !members.contains(voter));
            let absent = silent.map(|voter| (*voter, Absence::Silent)).collect();
            let (number, proposer, members) = (1, members[0].peer, members.to_vec());
            let regroup = Regroup { series, number, proposer, members, absent, trust: None };
            let digest = wire::regroup_digest(&run, &regroup);
            let join = |member: &Voter| {
                let join = Join { series, regroup: digest, log: member.log, done: None };
                (member.peer, join.clone(), seal(member.peer, Message::Join(join)))
            };
            let joins = regroup.members.iter().map(join).collect();
            openings = vec![Opening { regroup, joins, ground: None }];
            series = stage.law().opened(&openings[0]);
        }
        let member = |v: &Voter| Member { peer: v.peer, log: v.log, incarnation: 1, weight };
        let roster = Roster {
            series,
            attempt: 1,
            proposer: members[0].peer,
            members: members.iter().map(member).collect(),
            heard: Vec::new(),
            adopt: None,
            trust: None,
            keep: Vec::new(),
        };
        let receipt = roster.receipt(Digest::derive("minted", &epoch.to_le_bytes()));
        let (digest, r) =
            (wire::roster_digest(&run, &roster), wire::receipt_digest(&run, &receipt));
        let done = Message::Done(Done { series, roster: digest, r, update: receipt.update });
        let dones = members.iter().map(|m| (m.peer, seal(m.peer, done.clone())));
        let certificate = Certificate { roster, dones: dones.collect() };
        let tokens = head.tokens + receipt.tokens();
        head = Head { epoch, tokens, state: receipt.update };
        links.push(Link { receipt, certificate, openings });
    }
    (links, head)
}

/// From now on `liar` tells everyone of that lineage, and answers with it.
pub(crate) fn tell_of(
    stage: &mut World,
    liar: usize,
    honest: &[usize],
    links: &[Link],
    head: Head,
) -> Played {
    claim(stage, liar, honest, links, (head, 0, None)).map(|_| ())
}

/// The same, and it says that the lineage lies on the attestation of that number; its chain says so too if that is
/// given. Returns how often it was asked.
pub(crate) fn claim(
    stage: &mut World,
    liar: usize,
    honest: &[usize],
    links: &[Link],
    (head, attested, lie): (Head, u64, Option<Attestation>),
) -> Result<u32, Violation> {
    let answers = counter();
    let asked = answers.clone();
    let (run, minted) = (stage.run, links.to_vec());
    let name = stage.name(liar);
    stage.forge(move |from, _, answer| {
        let states = minted[1..].iter().map(|link| link.receipt.series.parent).chain([head.state]);
        match answer {
            _ if from != liar => return,
            Answer::Lineage { links, head: told, .. } => {
                let first = links.first().map_or(told.epoch + 1, |l| l.receipt.series.epoch);
                let after = minted.iter().filter(|link| link.receipt.series.epoch >= first);
                (*links, *told) = (after.take(64).cloned().collect(), head);
            }
            Answer::Chain(chain) => {
                let parted = minted[0].receipt.series.epoch;
                chain.retain(|link| link.epoch < parted);
                chain.extend(minted.iter().zip(states).map(|(link, state)| ChainLink {
                    epoch: link.receipt.series.epoch,
                    state,
                    r: wire::receipt_digest(&run, &link.receipt),
                }));
                if let Some(Attestation { epoch, state, r }) = lie {
                    let lied = chain.iter_mut().find(|link| link.epoch == epoch);
                    *lied.unwrap() = ChainLink { epoch, state, r };
                }
            }
        }
        count(&asked);
    });
    stage.direct(move |from, _, message| match message {
        Message::Heartbeat(_) if from == liar => Fate::Drop,
        _ => Fate::Deliver,
    });
    for count in 0..60 {
        let beat = Heartbeat {
            count: 100_000 + count,
            head,
            series: Series::after(&head),
            joined: None,
            closed: false,
            log: newcomer(210).log,
            incarnation: 1,
            phase: intellect_protocol::message::Phase::Train,
            attempt: 0,
            ready: 0,
            direct: true,
            unlinked: Vec::new(),
            round_trips: Vec::new(),
            send_rate: 1,
            serves: head.epoch,
            notice: attested,
            attested,
            ticket: None,
        };
        stage.say_as(honest, name, &Message::Heartbeat(beat));
        stage.play(500)?;
    }
    Ok(answers.get())
}

/// Whether somebody set out for that head, or one before it on its way.
pub(crate) fn set_out(stage: &World, honest: &[usize], head: Head) -> bool {
    let behind =
        |event: &Event| matches!(event, Event::Behind { to_epoch, .. } if *to_epoch == head.epoch);
    honest.iter().any(|host| told(stage, *host, behind))
}

pub(crate) fn held(stage: &World, host: usize) -> Vec<Head> {
    let held = stage.told(host).filter_map(|event| match event {
        Event::Fork { theirs, held: true, .. } => Some(*theirs),
        _ => None,
    });
    held.collect()
}

/// Four peers, and a fifth one that lies: founded, and at epoch 6 at least.
pub(crate) fn five(
    undo_max: u64,
    without: Option<Rule>,
) -> Result<(World, Vec<usize>, usize), Violation> {
    let mut stage = World::scene(5, 0, without);
    stage.undo_at_most(undo_max);
    stage.start(&[0, 1, 2, 3, 4]);
    assert!(stage.until(END_MS, |stage| all_at(stage, &[0, 1, 2, 3, 4], 6))?);
    Ok((stage, vec![0, 1, 2, 3], 4))
}

/// M1: weights that no epoch can hold make no greater lineage, or nothing else would count ever after.
#[test]
fn g11_one_voter_mints_tokens() -> Played {
    for without in [None, Some(Rule::G11)] {
        let (mut stage, honest, liar) = five(64, without)?;
        let base = commit(&stage, 0, 5);
        let by = voter(&stage, &base, liar);
        let (links, head) = mint(&stage, &base, &[by], 2, u64::MAX / 16);
        tell_of(&mut stage, liar, &honest, &links, head)?;
        assert_eq!(set_out(&stage, &honest, head), without.is_some());
        if without.is_none() {
            let (epoch, blamed) = (stage.epoch(0), stage.name(liar));
            assert!(stage.blamed.iter().any(|(who, _)| *who == blamed));
            reach(&mut stage, &honest, epoch + 3)?;
        }
    }
    Ok(())
}

/// M1: so much is not undone for one voter of five. A person may decide so.
#[test]
fn g11_one_voter_mints_epochs_and_a_person_decides() -> Played {
    for without in [None, Some(Rule::G11)] {
        let (mut stage, honest, liar) = five(2, without)?;
        (0..5).for_each(|host| stage.train_in(host, 3_000));
        let first = commit(&stage, 0, 1);
        let count = 40;
        let by = voter(&stage, &first, liar);
        let (links, head) = mint(&stage, &first, &[by], count, WEIGHT_MAX);
        tell_of(&mut stage, liar, &honest, &links, head)?;
        assert_eq!(set_out(&stage, &honest, head), without.is_some());
        if without.is_some() {
            continue;
        }
        for host in &honest {
            assert_eq!(held(&stage, *host), [head], "told once");
            assert_eq!(forks(&stage, *host), [0], "and nothing else");
        }
        let (asked, epoch) = (honest[0], stage.epoch(0));
        reach(&mut stage, &honest, epoch + 2)?;
        stage.kill(&[asked]);
        stage.follow(asked, head.state);
        stage.start(&[asked]);
        tell_of(&mut stage, liar, &[asked], &links, head)?;
        assert!(set_out(&stage, &[asked], head), "a person has decided");
    }
    Ok(())
}

/// G11: one of four went on alone, and is greater. Nobody follows it by itself, since it is less than a third of the
/// voters, however little that would undo; a peer that is told to does, however much that undoes.
#[test]
fn g11_what_one_of_four_did_alone_is_held() -> Played {
    for undo_max in [3, 64] {
        one_of_four_alone(undo_max)?;
    }
    Ok(())
}

fn one_of_four_alone(undo_max: u64) -> Played {
    let mut stage = World::scene(4, 0, None);
    stage.undo_at_most(undo_max);
    let all = [0, 1, 2, 3];
    stage.start(&all);
    assert!(stage.until(END_MS, |stage| all_at(stage, &all, 1))?);
    let others = [0, 1, 2];
    others.iter().for_each(|host| stage.train_in(*host, 5_000));
    stage.cut(&[3], 1);
    reach(&mut stage, &others, 6)?;
    let alone =
        |stage: &mut World| stage.head(3).unwrap().tokens > stage.head(0).unwrap().tokens + 10_000;
    assert!(stage.until(10 * END_MS, alone)?);
    stage.train_in(3, 600_000);
    stage.mend();
    let epoch = stage.epoch(0);
    reach(&mut stage, &others, epoch + 4)?;
    let greater = stage.head(3).unwrap();
    for host in others {
        assert_eq!(held(&stage, host).len(), 1, "{host}");
        assert!(forks(&stage, host).iter().all(|undone| *undone == 0));
    }
    for host in others {
        stage.kill(&[host]);
        stage.follow(host, greater.state);
        stage.start(&[host]);
    }
    stage.train_in(3, 400);
    assert!(stage.until(2 * END_MS, |stage| stage.same(&all))?);
    assert!(stage.epoch(0) >= greater.epoch);
    Ok(())
}

/// G11: two halves of the voters have both signed what came after they parted: they meet by themselves,
/// whatever that undoes.
#[test]
fn g11_halves_that_parted_for_long_meet_by_themselves() -> Played {
    let mut stage = World::scene(4, 0, None);
    stage.undo_at_most(3);
    let all = [0, 1, 2, 3];
    stage.start(&all);
    assert!(stage.until(END_MS, |stage| all_at(stage, &all, 1))?);
    let order = stage.voters(0);
    stage.cut(&order[2..], 1);
    assert!(stage.until(END_MS, |stage| all_at(stage, &all, 12))?);
    stage.mend();
    assert!(stage.until(END_MS, |stage| stage.same(&all))?);
    stage.play(10)?;
    let undone: Vec<u64> = all.iter().flat_map(|host| forks(&stage, *host)).collect();
    assert!(undone.iter().any(|undone| *undone > 3), "{undone:?}");
    assert!(all.iter().all(|host| held(&stage, *host).is_empty()));
    Ok(())
}

/// A lie about a chain is no state of anybody's.
#[test]
fn g12_a_lie_about_another_state_is_believed_of_nobody() -> Played {
    for without in [None, Some(Rule::G12)] {
        let (mut stage, honest, liar) = five(64, without)?;
        let (v, base) = (honest[0], stage.epoch(honest[0]));
        stage.kill(&[v]);
        let others: Vec<usize> = (0..5).filter(|host| *host != v).collect();
        reach(&mut stage, &others, base + 8)?;
        others.iter().for_each(|host| stage.train_in(*host, 3_000));
        stage.forge(move |from, to, answer| match answer {
            _ if from != liar || to != v => {}
            Answer::Lineage { links, .. } => {
                let first = links.first_mut().into_iter();
                first.for_each(|link| link.receipt.series.parent = Digest([1; 32]));
            }
            Answer::Chain(chain) => {
                let common = chain.iter_mut().filter(|link| link.epoch >= base);
                common.for_each(|link| link.state = Digest([2; 32]));
            }
        });
        let (only, others_late) = (liar, 3_000);
        stage.direct(move |from, to, message| match message {
            Message::Heartbeat(_) if to == v && from != only => Fate::Delay(others_late),
            _ => Fate::Deliver,
        });
        stage.call_liar(liar);
        stage.start(&[v]);
        let met = stage.until(20_000, |stage| stage.epoch(v) + 1 >= stage.epoch(others[0]));
        match (without, met) {
            (None, met) => {
                assert!(met?, "{v} is at {:?}", stage.head(v));
                assert!(!told(&stage, v, |event| matches!(event, Event::Diverged { .. })));
                assert!(forks(&stage, v).is_empty());
            }
            (Some(_), met) => assert_eq!(met.unwrap_err().invariant, "diverged"),
        }
    }
    Ok(())
}

/// Whatever the length of a lineage, and the size of its links, little of it is in memory while it is judged;
/// and whoever follows it has all of it in the end, also after a restart.
#[test]
fn g12_a_long_lineage_is_judged_in_little_memory() -> Played {
    const EPOCHS: u64 = 24;
    let room = LINKS_BYTES_MAX + (1 << 20);
    for without in [None, Some(Rule::G12)] {
        let mut stage = World::scene(3, 0, without);
        stage.start(&[0, 1]);
        reach(&mut stage, &[0, 1], EPOCHS)?;
        [0, 1].iter().for_each(|host| stage.train_in(*host, 3_000));
        // Votes of nobody prove nothing, and weigh as much as those of voters.
        stage.forge(move |_, to, answer| {
            if let (Answer::Lineage { links, .. }, 2) = (answer, to) {
                links.truncate(1);
                let link = links.iter_mut().find(|link| link.receipt.series.epoch <= EPOCHS);
                let junk = |n: u32| {
                    (PeerId(Digest::derive("junk", &n.to_le_bytes()).0), Signature([7; 64]))
                };
                link.into_iter()
                    .for_each(|link| link.certificate.dones.extend((0..9_500).map(junk)));
            }
        });
        stage.start(&[2]);
        let mut most = 0;
        let there = stage.until(END_MS, |stage| {
            most = most.max(stage.judged_bytes(2));
            stage.epoch(2) >= EPOCHS
        })?;
        assert!(there && most > room / 2, "{most} bytes, {:?}", stage.head(2));
        assert_eq!(most <= room, without.is_none(), "{most} bytes");
        stage.relent();
        stage.play(10_000)?;
        let epoch = stage.epoch(2);
        stage.kill(&[2]);
        stage.start(&[2]);
        assert!(stage.epoch(2) + 1 >= epoch, "{} after {epoch}", stage.epoch(2));
        reach(&mut stage, &[0, 1, 2], epoch + 2)?;
        assert!(forks(&stage, 2).is_empty());
    }
    Ok(())
}
