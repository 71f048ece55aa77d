//! Lineages that keep all rules of a link but were minted by liars, and lies about honest ones:
//! what is held for a person's decision, what is reported, and what stays in memory (G11, G12).

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

/// The greatest weight in the simulated run.
pub(crate) const WEIGHT_MAX: u64 = 800;

/// A key that has never had a vote.
pub(crate) fn newcomer(name: u8) -> Voter {
    let peer = stranger(name);
    Voter { peer, log: LogId([name; 16]) }
}

/// The liar of [`five`] as a voter of the epoch after `base`.
pub(crate) fn voter(world: &World, base: &Committed, liar: usize) -> Voter {
    let name = world.name(liar);
    base.receipt.voters().into_iter().find(|voter| voter.peer == name).unwrap()
}

/// A lineage of `count` epochs after `base` that `members` have signed alone, and its head.
pub(crate) fn mint(
    world: &World,
    base: &Committed,
    members: &[Voter],
    count: u64,
    weight: u64,
) -> (Vec<Link>, Head) {
    let run = world.run;
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
            series = world.validator().opened(&openings[0]);
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

/// Lets `liar` announce that lineage to all, and answer with it.
pub(crate) fn tell_of(
    world: &mut World,
    liar: usize,
    honest: &[usize],
    links: &[Link],
    head: Head,
) -> Played {
    claim(world, liar, honest, links, head, 0, None).map(|_| ())
}

/// The same, and the liar claims that the lineage lies on the attestation of this number; its chain
/// says so too if `lie` is given. Returns how often it was asked.
pub(crate) fn claim(
    world: &mut World,
    liar: usize,
    honest: &[usize],
    links: &[Link],
    head: Head,
    attested: u64,
    lie: Option<Attestation>,
) -> Result<u32, Violation> {
    let answers = counter();
    let asked = answers.clone();
    let (run, minted) = (world.run, links.to_vec());
    let name = world.name(liar);
    world.forge(move |from, _, answer| {
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
            Answer::Picture(_) => {}
        }
        count(&asked);
    });
    world.direct(move |from, _, message| match message {
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
            phase: Phase::Train,
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
        world.say_as(honest, name, &Message::Heartbeat(beat));
        world.play(500)?;
    }
    Ok(answers.get())
}

/// Whether a host started to fetch that head, or one before it on the way.
pub(crate) fn set_out(world: &World, honest: &[usize], head: Head) -> bool {
    let behind =
        |event: &Event| matches!(event, Event::Behind { to_epoch, .. } if *to_epoch == head.epoch);
    honest.iter().any(|host| reported(world, *host, behind))
}

pub(crate) fn held(world: &World, host: usize) -> Vec<Head> {
    let held = world.events(host).filter_map(|event| match event {
        Event::Fork { theirs, held: true, .. } => Some(*theirs),
        _ => None,
    });
    held.collect()
}

/// Four honest peers and a fifth one that lies, at epoch 6 or later.
pub(crate) fn five(
    undo_max: u64,
    without: Option<Rule>,
) -> Result<(World, Vec<usize>, usize), Violation> {
    let mut world = World::scene(5, 0, without);
    world.undo_at_most(undo_max);
    world.start(&[0, 1, 2, 3, 4]);
    assert!(world.until(END_MS, |world| all_at(world, &[0, 1, 2, 3, 4], 6))?);
    Ok((world, vec![0, 1, 2, 3], 4))
}

/// G11: one voter mints weights that no epoch can hold. Its lineage is not greater; otherwise no
/// honest head would ever count again.
#[test]
fn g11_one_voter_mints_tokens() -> Played {
    for without in [None, Some(Rule::G11)] {
        let (mut world, honest, liar) = five(64, without)?;
        let base = commit(&world, 0, 5);
        let by = voter(&world, &base, liar);
        let (links, head) = mint(&world, &base, &[by], 2, u64::MAX / 16);
        tell_of(&mut world, liar, &honest, &links, head)?;
        assert_eq!(set_out(&world, &honest, head), without.is_some());
        if without.is_none() {
            let (epoch, blamed) = (world.epoch(0), world.name(liar));
            assert!(world.blamed.iter().any(|(who, _)| *who == blamed));
            reach(&mut world, &honest, epoch + 3)?;
        }
        ends_amid(world, &[Trains, Update, End::Votes, LeftOut])?;
    }
    Ok(())
}

/// G11: one voter of five mints 40 epochs. No peer undoes that many for
/// it, unless a person decides so.
#[test]
fn g11_one_voter_mints_epochs_and_a_person_decides() -> Played {
    for without in [None, Some(Rule::G11)] {
        let (mut world, honest, liar) = five(2, without)?;
        (0..5).for_each(|host| world.train_in(host, 3_000));
        let first = commit(&world, 0, 1);
        let count = 40;
        let by = voter(&world, &first, liar);
        let (links, head) = mint(&world, &first, &[by], count, WEIGHT_MAX);
        tell_of(&mut world, liar, &honest, &links, head)?;
        assert_eq!(set_out(&world, &honest, head), without.is_some());
        if without.is_some() {
            ends_amid(world, &[End::Votes, LeftOut])?;
            continue;
        }
        for host in &honest {
            assert_eq!(held(&world, *host), [head], "told once");
            assert_eq!(forks(&world, *host), [0], "and nothing else");
        }
        let (asked, epoch) = (honest[0], world.epoch(0));
        reach(&mut world, &honest, epoch + 2)?;
        world.kill(&[asked]);
        world.follow(asked, head.state);
        world.start(&[asked]);
        tell_of(&mut world, liar, &[asked], &links, head)?;
        assert!(set_out(&world, &[asked], head), "a person has decided");
        ends(world, &[Trains])?;
    }
    Ok(())
}

/// G11: one of four went on alone and has the greater head. No peer follows it automatically, since
/// fewer than a third of the voters signed it, however little that would undo. A peer whose owner
/// decides so follows, however much that undoes.
#[test]
fn g11_what_one_of_four_did_alone_is_held() -> Played {
    for undo_max in [3, 64] {
        one_of_four_alone(undo_max, &[0, 1, 2])?;
    }
    Ok(())
}

/// G11: the owner of one of the other three decides. That peer signs the held lineage from then on,
/// and with it half of the voters have: the other two follow by themselves.
#[test]
fn g11_what_was_held_is_followed_once_enough_have_signed_it() -> Played {
    one_of_four_alone(64, &[0])
}

/// The owners of the peers `deciding` follow what the fourth did alone, and all meet.
fn one_of_four_alone(undo_max: u64, deciding: &[usize]) -> Played {
    let mut world = World::scene(4, 0, None);
    world.undo_at_most(undo_max);
    let all = [0, 1, 2, 3];
    world.start(&all);
    assert!(world.until(END_MS, |world| all_at(world, &all, 1))?);
    let others = [0, 1, 2];
    others.iter().for_each(|host| world.train_in(*host, 5_000));
    world.cut(&[3], 1);
    reach(&mut world, &others, 6)?;
    let alone =
        |world: &mut World| world.head(3).unwrap().tokens > world.head(0).unwrap().tokens + 10_000;
    assert!(world.until(10 * END_MS, alone)?);
    world.train_in(3, 600_000);
    world.mend();
    let epoch = world.epoch(0);
    reach(&mut world, &others, epoch + 4)?;
    let greater = world.head(3).unwrap();
    for host in others {
        assert_eq!(held(&world, host).len(), 1, "{host}");
        assert!(forks(&world, host).iter().all(|undone| *undone == 0));
    }
    for host in deciding {
        world.kill(&[*host]);
        world.follow(*host, greater.state);
        world.start(&[*host]);
    }
    world.train_in(3, 400);
    assert!(world.until(2 * END_MS, |world| world.same(&all))?);
    assert!(world.epoch(0) >= greater.epoch);
    ends_amid(world, &[Trains, Training])
}

/// G11: two halves of the voters have both signed epochs since they parted. They meet without a
/// person's decision, however much that undoes.
#[test]
fn g11_halves_that_parted_for_long_meet_by_themselves() -> Played {
    let mut world = World::scene(4, 0, None);
    world.undo_at_most(3);
    let all = [0, 1, 2, 3];
    world.start(&all);
    assert!(world.until(END_MS, |world| all_at(world, &all, 1))?);
    let order = world.voters(0);
    world.cut(&order[2..], 1);
    assert!(world.until(END_MS, |world| all_at(world, &all, 12))?);
    world.mend();
    assert!(world.until(END_MS, |world| world.same(&all))?);
    world.play(10)?;
    let undone: Vec<u64> = all.iter().flat_map(|host| forks(&world, *host)).collect();
    assert!(undone.iter().any(|undone| *undone > 3), "{undone:?}");
    assert!(all.iter().all(|host| held(&world, *host).is_empty()));
    ends(world, &[Trains])
}

/// G12: a liar's chain names a state that no peer has. A returning peer must not report a
/// divergence for that, and still follows the honest peers.
#[test]
fn g12_a_lie_about_another_state_is_believed_of_nobody() -> Played {
    for without in [None, Some(Rule::G12)] {
        let (mut world, honest, liar) = five(64, without)?;
        let (v, base) = (honest[0], world.epoch(honest[0]));
        world.kill(&[v]);
        let others: Vec<usize> = (0..5).filter(|host| *host != v).collect();
        reach(&mut world, &others, base + 8)?;
        others.iter().for_each(|host| world.train_in(*host, 3_000));
        world.forge(move |from, to, answer| match answer {
            _ if from != liar || to != v => {}
            Answer::Lineage { links, .. } => {
                if let Some(link) = links.first_mut() {
                    link.receipt.series.parent = Digest([1; 32]);
                }
            }
            Answer::Chain(chain) => {
                let common = chain.iter_mut().filter(|link| link.epoch >= base);
                common.for_each(|link| link.state = Digest([2; 32]));
            }
            Answer::Picture(_) => {}
        });
        let (only, others_late) = (liar, 3_000);
        world.direct(move |from, to, message| match message {
            Message::Heartbeat(_) if to == v && from != only => Fate::Delay(others_late),
            _ => Fate::Deliver,
        });
        world.call_liar(liar);
        world.start(&[v]);
        let met = world.until(20_000, |world| world.epoch(v) + 1 >= world.epoch(others[0]));
        match (without, met) {
            (None, met) => {
                assert!(met?, "{v} is at {:?}", world.head(v));
                assert!(!reported(&world, v, |event| matches!(event, Event::Diverged { .. })));
                assert!(forks(&world, v).is_empty());
            }
            (Some(_), met) => assert_eq!(met.unwrap_err().invariant, "diverged"),
        }
        ends_amid(world, &[Trains, Training, Voters])?;
    }
    Ok(())
}

/// G12: a lineage with very large links is verified in little memory, whatever its length. The peer
/// that follows it has all of it in the end, even after a restart.
#[test]
fn g12_a_long_lineage_is_judged_in_little_memory() -> Played {
    const EPOCHS: u64 = 24;
    let room = LINKS_BYTES_MAX + (1 << 20);
    for without in [None, Some(Rule::G12)] {
        let mut world = World::scene(3, 0, without);
        world.start(&[0, 1]);
        reach(&mut world, &[0, 1], EPOCHS)?;
        [0, 1].iter().for_each(|host| world.train_in(*host, 3_000));
        // Votes of unknown keys prove nothing, and are as large as those of voters.
        world.forge(move |_, to, answer| {
            if let (Answer::Lineage { links, .. }, 2) = (answer, to) {
                links.truncate(1);
                let link = links.iter_mut().find(|link| link.receipt.series.epoch <= EPOCHS);
                let junk = |n: u32| {
                    (PeerId(Digest::derive("junk", &n.to_le_bytes()).0), Signature([7; 64]))
                };
                if let Some(link) = link {
                    link.certificate.dones.extend((0..9_500).map(junk));
                }
            }
        });
        world.start(&[2]);
        let mut most = 0;
        let there = world.until(END_MS, |world| {
            most = most.max(world.judged_bytes(2));
            world.epoch(2) >= EPOCHS
        })?;
        assert!(there && most > room / 2, "{most} bytes, {:?}", world.head(2));
        assert_eq!(most <= room, without.is_none(), "{most} bytes");
        world.let_through();
        world.play(10_000)?;
        let epoch = world.epoch(2);
        world.kill(&[2]);
        world.start(&[2]);
        assert!(world.epoch(2) + 1 >= epoch, "{} after {epoch}", world.epoch(2));
        reach(&mut world, &[0, 1, 2], epoch + 2)?;
        assert!(forks(&world, 2).is_empty());
        ends(world, &[Trains])?;
    }
    Ok(())
}
