//! Which parts of a long lineage stay in memory, and what an answer says of it.

use std::time::Duration;

use super::*;
use crate::access::admit::Level;
use crate::base::id::{LogId, RunId};
use crate::base::rule::Rules;
use crate::base::sign::Keypair;
use crate::history::lineage::Capacity;
use crate::message::{Certificate, Member, QuorumRule, Roster, Series};

const EPOCHS: u64 = 5 * LINKS_KEPT as u64;

pub(in crate::consensus::sync) fn lineage(genesis: Head) -> Vec<(Head, Link)> {
    let mut head = genesis;
    let next = |epoch: u64| {
        let members =
            vec![Member { peer: PeerId([1; 32]), log: LogId([1; 16]), incarnation: 1, weight: 7 }];
        let roster = Roster {
            series: Series::after(&head),
            attempt: 1,
            proposer: PeerId([1; 32]),
            members,
            heard: Vec::new(),
            adopt: None,
            trust: None,
            keep: Vec::new(),
        };
        let receipt = roster.receipt(Digest::derive("update", &epoch.to_le_bytes()));
        let state = Digest::derive("state", &epoch.to_le_bytes());
        head = Head { epoch, tokens: 7 * epoch, state };
        let certificate = Certificate { roster, dones: Vec::new() };
        (head, Link { receipt, certificate, openings: Vec::new() })
    };
    (1..=EPOCHS).map(next).collect()
}

pub(in crate::consensus::sync) fn setup() -> (Validator, LocalPeer, Config) {
    let key = Keypair::from_seed(&[1; 32]);
    let me = LocalPeer { peer: key.peer(), log: LogId([1; 16]), incarnation: 1 };
    let run = RunId([2; 32]);
    let validator = Validator {
        run,
        key,
        peers_min: 1,
        quorum: QuorumRule::Available,
        elements: 1,
        capacity: Capacity::Counted(1),
        level: Level::Open,
        organiser: PeerId([9; 32]),
        rules: Rules::ALL,
    };
    let config = Config {
        genesis: Digest([3; 32]),
        founders: Vec::new(),
        replay_max: 0,
        undo_max: 64,
        undo_time: Duration::ZERO,
        unix: 0,
        follow: None,
        notices: Vec::new(),
    };
    (validator, me, config)
}

fn state() -> (Lineage, Vec<(Head, Link)>) {
    let (validator, me, config) = setup();
    let mut state = Lineage::new(validator, me, config);
    let lineage = lineage(state.head);
    lineage.iter().for_each(|(head, link)| state.push(Arc::new(link.clone()), *head));
    (state, lineage)
}

#[test]
fn of_a_long_lineage_the_last_links_are_in_memory_and_every_digest() {
    let (state, lineage) = state();
    let in_memory = (1..=EPOCHS).filter(|epoch| state.link(*epoch).is_some());
    let last = EPOCHS + 1 - LINKS_KEPT as u64..=EPOCHS;
    assert_eq!(in_memory.collect::<Vec<_>>(), last.collect::<Vec<_>>());
    for (head, link) in &lineage {
        assert_eq!(state.state_after(head.epoch), Some(head.state));
        assert!(state.has(&link.receipt));
    }
    assert_eq!(state.tip().0, lineage[lineage.len() - 1].0);
}

#[test]
fn an_answer_names_the_links_that_the_log_has() {
    let (state, lineage) = state();
    for from_epoch in 1..=EPOCHS {
        let (answer, logged) = state.answer(&Ask::Lineage { from_epoch }, &[]);
        let Answer::Lineage { links, head, .. } = answer else { unreachable!() };
        let of = |(epoch, r): &(u64, Digest)| {
            let (_, link) = &lineage[usize::try_from(*epoch - 1).unwrap()];
            assert_eq!(wire::receipt_digest(&state.validator.run, &link.receipt), *r);
            link.clone()
        };
        let told = logged.iter().map(of).chain(links);
        let next = lineage.iter().skip(usize::try_from(from_epoch - 1).unwrap());
        assert!(told.eq(next.map(|(_, link)| link.clone()).take(LINKS_MAX)), "{from_epoch}");
        assert_eq!(head.epoch, EPOCHS);
    }
    // A question for the end of all epochs gets an empty answer, and breaks nothing.
    for from_epoch in [EPOCHS + 1, u64::MAX] {
        let (answer, logged) = state.answer(&Ask::Lineage { from_epoch }, &[]);
        assert!(
            matches!(answer, Answer::Lineage { links, .. } if links.is_empty())
                && logged.is_empty()
        );
        let (chain, _) = state.answer(&Ask::Chain { from_epoch }, &[]);
        assert!(matches!(chain, Answer::Chain(chain) if chain.is_empty()));
    }
    let (chain, logged) = state.answer(&Ask::Chain { from_epoch: 1 }, &[]);
    assert!(matches!(chain, Answer::Chain(chain) if chain.len() as u64 == EPOCHS));
    assert!(logged.is_empty());
}

#[test]
fn epochs_whose_links_are_in_the_log_only_follow_on_a_rewound_head() {
    let (mut state, lineage) = state();
    let at = lineage.len() - 4;
    let logged = [1, 2].map(|after| state.entry(lineage[at + after].0.epoch).unwrap());
    state.rewind(lineage[at].0.epoch);
    assert!(state.head == lineage[at].0 && state.link(state.head.epoch).is_some());
    assert!(
        state.head_at(state.head.epoch + 1).is_none() && !state.has(&lineage[at + 1].1.receipt)
    );
    state.push_logged(logged.to_vec(), &[]);
    assert!(state.head == lineage[at + 2].0 && state.has(&lineage[at + 2].1.receipt));
    assert!(state.link(state.head.epoch).is_none());
    state.push(Arc::new(lineage[at + 3].1.clone()), lineage[at + 3].0);
    assert!(state.head == lineage[at + 3].0 && state.link(state.head.epoch).is_some());
    assert!(state.link(state.head.epoch - 1).is_none());
}
