//! Tests of `observations`: a good run passes, and each way to fail is detected.

use intellect_protocol::base::id::{Digest, PeerId, RunId};

use super::*;
use crate::sim::{
    judge::{self, Outcome},
    process::Exit,
    scenario::{Moment, Scenario},
};
use crate::tell::events::Times;

fn name(peer: usize) -> PeerName {
    PeerId([u8::try_from(peer).unwrap(); 32]).into()
}

fn state(byte: u8) -> Hex {
    Digest([byte; 32]).into()
}

pub(in crate::sim) fn record(peer: usize, epoch: u64, event: Event) -> Record {
    let (t_ms, run) = (1_000 * epoch, Some(RunId([1; 32]).into()));
    Record { event, t_ms, peer: name(peer), run, epoch: Some(epoch) }
}

pub(in crate::sim) fn committed(peer: usize, epoch: u64, byte: u8) -> Record {
    let event = Event::Committed {
        attempt: 1,
        members: vec![name(0), name(1)],
        weights: vec![10, 20],
        state: state(byte),
        update: state(0),
        tokens: 30 * epoch,
        loss: Some(peer as f64),
        sync_ms: 5,
        sent_bytes: 7,
        received_bytes: 8,
        forkable_since: None,
        times: Times::default(),
    };
    record(peer, epoch, event)
}

/// The event that a peer has accepted a roster.
pub(in crate::sim) fn roster(peer: usize, epoch: u64, t_ms: u64) -> Record {
    let (members, weights) = (Vec::new(), Vec::new());
    let event = Event::Roster { attempt: 1, members, adopt: None, kept_chunks: 0, weights };
    Record { t_ms, ..record(peer, epoch, event) }
}

fn fork(first_epoch: u64, undone: u64) -> Event {
    Event::Fork { first_epoch, mine: state(1), theirs: state(2), undone, held: false }
}

/// So many peers, of which two commit two epochs.
fn good(peers: usize) -> Observations {
    let mut observations = Observations::new(peers);
    for epoch in 1..=2 {
        for peer in 0..2 {
            observations.record(peer, committed(peer, epoch, u8::try_from(epoch).unwrap()));
        }
    }
    observations
}

#[test]
fn a_run_is_complete_with_the_epoch_that_has_its_last_token() {
    let observations = good(2);
    let [first, second] = [1, 2].map(|epoch| observations.epochs[&epoch].tokens);
    assert!(first > 0 && second > 0);
    let last = |tokens| observations.completed(tokens);
    assert_eq!((last(0), last(1), last(first)), (None, Some(1), Some(1)));
    assert_eq!((last(first + 1), last(first + second + 1)), (Some(2), None));
}

const DONE: Outcome = Outcome { exit: Some(Exit::Code(0)), killed: false };

fn judge(observations: &Observations, outcomes: &[Outcome]) -> Vec<String> {
    judge::reasons(observations, outcomes, &Scenario::default(), 2)
}

fn regroup(members: Vec<PeerName>, absent: Vec<PeerName>) -> Event {
    Event::Regroup { number: 1, proposer: name(0), members, absent }
}

fn scenario(text: &str) -> Scenario {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s.toml");
    std::fs::write(&path, text).unwrap();
    Scenario::load(&path, 2).unwrap()
}

#[test]
fn a_good_run_has_no_reason_to_fail() {
    let observations = good(2);
    assert_eq!(judge(&observations, &[DONE; 2]), Vec::<String>::new());
    let epoch = &observations.epochs[&2];
    let loss = epoch.branches[&state(2)].loss();
    assert_eq!((epoch.tokens, loss, epoch.reports()), (30, Some(0.5), 2));
    assert_eq!(epoch.state(), Some((&state(2), 2)));
    assert_eq!(observations.bytes(1), (14, 16));
    assert_eq!(observations.committed(), 2);
}

#[test]
fn different_states_of_one_epoch_fail_at_once() {
    let mut observations = Observations::new(2);
    observations.record(0, committed(0, 1, 1));
    assert_eq!(judge::disagreement(&observations, &Scenario::default()), None);
    observations.record(1, committed(1, 1, 9));
    let reason = judge::disagreement(&observations, &Scenario::default()).unwrap();
    assert!(reason.contains("epoch 1") && reason.contains("09090909"), "{reason}");
    assert_eq!(judge::disagreement(&observations, &scenario("allow = [\"fork\"]")), None);
}

/// A joiner that fetched another state than the others committed is wrong as well.
#[test]
fn a_state_that_was_fetched_must_be_the_one_that_was_committed() {
    let mut observations = good(2);
    observations.record(1, record(1, 2, Event::CaughtUp { state: state(9), tokens: 0 }));
    assert!(judge::disagreement(&observations, &Scenario::default()).is_some());
}

#[test]
fn every_process_must_end_well() {
    for (exit, words) in [
        (Some(Exit::Code(1)), "exited with 1"),
        (Some(Exit::Signal), "signal"),
        (None, "did not end"),
    ] {
        let reasons = judge(&good(2), &[DONE, Outcome { exit, killed: false }]);
        assert!(reasons.len() == 1 && reasons[0].contains(words), "{reasons:?}");
    }
    assert!(
        judge(&good(2), &[DONE, Outcome { exit: Some(Exit::Signal), killed: true }]).is_empty()
    );
}

#[test]
fn survivors_end_together_at_the_last_epoch() {
    let mut short = Observations::new(2);
    short.record(0, committed(0, 1, 1));
    let reasons = judge(&short, &[DONE; 2]);
    assert!(reasons[0].contains("ended at epoch 1, not 2"), "{reasons:?}");
    assert!(reasons[1].contains("peer 1 committed nothing"), "{reasons:?}");
    let reasons = judge(&Observations::new(4), &[DONE; 4]);
    assert_eq!(reasons, ["peers 0-3 committed nothing"]);

    // A peer that the scenario stops for good need not reach the end.
    let mut scenario = scenario("[[step]]\ndo = \"interrupt\"\npeer = 1\nsecond = 0");
    let mut observations = Observations::new(2);
    for epoch in 1..=2 {
        observations.record(0, committed(0, epoch, 1));
    }
    assert!(judge::reasons(&observations, &[DONE; 2], &scenario, 2)[0].contains("steps [1]"));
    let (elapsed, unix_ms) = (std::time::Duration::ZERO, 0);
    scenario.take_due(Moment { elapsed, unix_ms, observations: &observations });
    assert!(judge::reasons(&observations, &[DONE; 2], &scenario, 2).is_empty());
}

#[test]
fn faults_forks_and_divergence_fail_unless_the_scenario_provokes_them() {
    let events = [
        ("fault", Event::Fault { who: name(0), why: "garbage".to_owned(), proof: None }),
        ("fork", fork(1, 0)),
        ("diverged", Event::Diverged { who: name(0), mine: state(1), theirs: state(2) }),
    ];
    for (kind, event) in events {
        let mut observations = good(2);
        observations.record(1, record(1, 2, event));
        assert_eq!(judge(&observations, &[DONE; 2]).len(), 1, "{kind}");
        let allowing = scenario(&format!("allow = [\"{kind}\"]"));
        assert!(judge::reasons(&observations, &[DONE; 2], &allowing, 2).is_empty(), "{kind}");
    }
}

#[test]
fn rosters_are_found_by_epoch() {
    let mut observations = Observations::new(2);
    observations.record(1, roster(1, 4, 4_000));
    assert_eq!(observations.roster_ms(1, 3), Some(4_000));
    assert_eq!(observations.roster_ms(1, 5), None);
    assert_eq!(observations.roster_ms(0, 4), None);
}

#[test]
fn a_peer_that_chaos_killed_need_not_reach_the_end() {
    let mut observations = good(3);
    observations.record(2, committed(2, 1, 1));
    let killed = Outcome { exit: Some(Exit::Signal), killed: true };
    assert_eq!(judge(&observations, &[DONE, DONE, killed]), Vec::<String>::new());
    assert_eq!(judge(&observations, &[DONE; 3]).len(), 2, "else it ended early, and elsewhere");
}

#[test]
fn the_time_of_a_ring_is_the_median_of_those_before() {
    let mut observations = Observations::new(1);
    for (epoch, ring_ms) in [(1, 900), (2, 100), (3, 300), (4, 5)] {
        observations.record(0, roster(0, epoch, 1_000 * epoch - ring_ms));
        observations.record(0, committed(0, epoch, 1));
    }
    assert_eq!(observations.ring_ms(0, 1), None);
    assert_eq!(observations.ring_ms(0, 4), Some(300));
    assert_eq!(observations.ring_ms(1, 4), None);
}

#[test]
fn what_does_not_go_smoothly_is_counted_once() {
    let mut observations = Observations::new(2);
    for peer in 0..2 {
        let aborted = Event::Aborted { attempt: 1, phase: String::new(), reason: String::new() };
        observations.record(peer, record(peer, 3, aborted));
        let mut members = vec![name(0), name(1)];
        members.rotate_left(peer);
        for epoch in [1, 3] {
            observations.record(peer, record(peer, epoch, regroup(members.clone(), Vec::new())));
        }
        observations.record(peer, record(peer, 3, Event::LeftOut { carried_tokens: 1 }));
    }
    let tally = &observations.tally;
    assert_eq!((tally.aborted.len(), tally.regroups.len()), (1, 1));
    assert_eq!((tally.forks, tally.left_out), (0, 2));
}

/// Commits at 1, 2, 4 and 6 s, of 30, 30, 15 and 30 tokens.
#[test]
fn goodput_is_compared_with_the_last_calm_epoch() {
    let mut observations = Observations::new(2);
    for (epoch, second, weight) in [(1, 1, 10), (2, 2, 10), (3, 4, 5), (4, 6, 10)] {
        let mut line = committed(0, epoch, 1);
        line.t_ms = 1_000 * second;
        let Event::Committed { weights, .. } = &mut line.event else { panic!("a commit") };
        *weights = vec![weight, 2 * weight];
        observations.record(0, line);
    }
    let mut cost = crate::sim::chaos::cost::ChaosCost::default();
    cost.count(&observations);
    let report = serde_json::to_value(&cost).unwrap();
    assert_eq!((&report["goodput"], &report["pace"]), (&0.75.into(), &0.375.into()));
}

#[test]
fn a_founding_is_reported_as_peers_come_and_once_it_is_done() {
    let mut observations = Observations::new(3);
    assert!(observations.news().is_empty());
    let started = || Event::Started {
        version: String::new(),
        device: String::new(),
        micro_batch: 1,
        parameters: 1,
        incarnation: 1,
        log: String::new(),
        tokens: 0,
    };
    for peer in [0, 2] {
        observations.record(peer, record(peer, 0, started()));
    }
    assert_eq!(observations.news(), ["founding: 2 of 3 here"]);
    observations.record(0, record(0, 0, started()));
    assert!(observations.news().is_empty(), "it is still the same two");
    for peer in [0, 2] {
        let event = regroup(vec![name(0), name(2)], Vec::new());
        observations.record(peer, record(peer, 1, event));
    }
    observations.record(1, record(1, 0, started()));
    assert_eq!(observations.news(), ["founded: the run begins with 2 peers"]);
}

/// Peer 1 commits epoch 3 five seconds after peer 0, and epoch 4 one second later, on a lineage of its own.
#[test]
fn the_time_of_an_epoch_is_that_of_its_own_lineage() {
    let mut observations = good(2);
    for (peer, epoch, second, byte) in [(0, 3, 3, 3), (1, 3, 8, 13), (0, 4, 4, 4), (1, 4, 9, 14)] {
        let t_ms = 1_000 * second;
        observations.record(peer, Record { t_ms, ..committed(peer, epoch, byte) });
    }
    let took = |epoch: u64, byte| {
        let branch = &observations.epochs[&epoch].branches[&state(byte)];
        observations.took_ms(epoch, branch, 400)
    };
    assert_eq!((took(1, 1), took(3, 3), took(3, 13)), (600, 1_000, 6_000));
    assert_eq!((took(4, 4), took(4, 14)), (1_000, 1_000));
}

#[test]
fn a_regroup_is_reported_once() {
    let mut observations = good(2);
    let regroup = |peer| record(peer, 3, regroup(vec![name(0)], vec![name(1)]));
    observations.record(0, regroup(0));
    observations.record(0, regroup(0));
    observations.record(1, record(1, 5, fork(3, 2)));
    assert_eq!(
        observations.news(),
        [
            "peer 0 goes on without peer 1: the run may fork from epoch 3 on",
            "peer 1 meets a greater lineage: 2 epochs undone"
        ]
    );
    assert!(observations.news().is_empty());
}

#[test]
fn lineages_that_have_not_met_at_the_end_are_named_with_the_remedy() {
    let mut observations = good(2);
    observations.record(1, committed(1, 2, 9));
    let reasons = judge::reasons(&observations, &[DONE; 2], &scenario("allow = [\"fork\"]"), 2);
    assert!(reasons.join(" ").contains("2 lineages had not met"), "{reasons:?}");
    assert!(reasons.join(" ").contains("more --epochs"), "{reasons:?}");
    assert_eq!(observations.epochs[&2].lineages(), 2);
}

/// Two peers part after epoch 1; peer 1 meets the greater lineage, and both end on it.
#[test]
fn a_lineage_that_was_given_up_has_a_number_of_its_own() {
    let mut observations = good(2);
    for (epoch, byte) in [(3, 13), (4, 14)] {
        observations.record(1, committed(1, epoch, byte));
        observations.record(0, committed(0, epoch, byte + 10));
    }
    observations.record(1, record(1, 4, Event::CaughtUp { state: state(24), tokens: 0 }));
    for peer in 0..2 {
        observations.record(peer, committed(peer, 5, 5));
    }
    let found = branch::lineages(&observations.epochs);
    let of = |lineage: usize| -> Vec<(u64, Hex)> {
        let rows = found.iter().filter(|((_, number), _)| *number == lineage);
        rows.map(|((epoch, _), (state, _))| (*epoch, (*state).clone())).collect()
    };
    let rows = |rows: &[(u64, u8)]| -> Vec<(u64, Hex)> {
        rows.iter().map(|(epoch, byte)| (*epoch, state(*byte))).collect()
    };
    assert_eq!(of(0), rows(&[(1, 1), (2, 2), (3, 23), (4, 24), (5, 5)]));
    assert_eq!(of(1), rows(&[(3, 13), (4, 14)]));
    assert_eq!(found.len(), 7);
    let (_, kept) = found[&(4, 0)];
    assert_eq!((kept.tokens(), kept.loss(), kept.by.len()), (30, Some(0.0), 2));
    assert_eq!(kept.shares.keys().copied().collect::<Vec<_>>(), [0]);
}
