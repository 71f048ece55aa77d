//! Folders that an earlier start left, whole and damaged.

use std::fs;
use std::path::PathBuf;

use intellect_protocol::base::id::{LogId, PeerId};
use intellect_protocol::history::log::Record;
use intellect_protocol::message::{Certificate, Member, Roster, Series, Voted};

use super::*;
use crate::config::Voice;
use crate::identity::Origin;
use crate::store::tests::write_bad;
use crate::tell::events::Sink;

const RUN: RunId = RunId([7; 32]);
const FIRST: LogId = LogId([1; 16]);
const PARAMETERS: usize = 10;
const MEMBER: Member = Member { peer: PeerId([2; 32]), log: FIRST, incarnation: 1, weight: 5 };

/// A run of some epochs, and what each epoch left.
struct Past {
    folder: tempfile::TempDir,
    store: Store,
    rules: Rules,
    /// The states by epoch, with genesis first.
    states: Vec<Snapshot>,
    links: Vec<(Head, Link)>,
    updates: Vec<Vec<u8>>,
}

fn snapshot(epoch: u64, tokens: u64, r: Digest, state: State) -> Snapshot {
    let header = Header { run: RUN, epoch, tokens, r, parameters: PARAMETERS as u64 };
    let table = Table::of(header, state.theta(), state.momentum()).unwrap();
    Snapshot { table: Arc::new(table), state: Arc::new(state) }
}

fn roster(epoch: u64, parent: Digest) -> Roster {
    Roster {
        series: Series { epoch, parent, regroup: None },
        attempt: 1,
        proposer: MEMBER.peer,
        members: vec![MEMBER],
        heard: Vec::new(),
        adopt: None,
        trust: None,
        keep: Vec::new(),
    }
}

fn digest_of(update: &[u8]) -> Digest {
    Digest(*blake3::hash(update).as_bytes())
}

fn encoded(epoch: u64) -> Vec<u8> {
    let delta: Vec<f32> = (0..PARAMETERS).map(|i| (i as f32 + epoch as f32) / 8.0).collect();
    let mut update = vec![0; Codec::F32.encoded_bytes(PARAMETERS)];
    Codec::F32.encode(&delta, &mut update).unwrap();
    update
}

impl Past {
    /// A folder with all receipts and updates, and the checkpoints of `checkpoints`.
    fn new(epochs: u64, checkpoints: &[u64]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path(), RUN).unwrap();
        let outer = Outer { lr: 0.5, momentum: 0.25, momentum_ramp_epochs: 2 };
        let genesis = State::genesis((0..PARAMETERS).map(|i| i as f32).collect());
        let genesis = snapshot(0, 0, Digest::ZERO, genesis);
        let rules =
            Rules { run: RUN, codec: Codec::F32, outer, genesis: Arc::new(genesis.clone()) };
        let states = vec![genesis];
        let mut past =
            Self { folder, store, rules, states, links: Vec::new(), updates: Vec::new() };
        for epoch in 1..=epochs {
            past.step(epoch);
        }
        for epoch in checkpoints {
            past.save(*epoch);
        }
        let mut journal = past.store.begin(Some(FIRST), Origin::Random, 1).unwrap().journal;
        for (head, link) in &past.links {
            let link = Box::new(link.clone());
            let epoch = [Record::Decided { link }, Record::Committed { head: *head }];
            journal.append(&epoch).unwrap();
        }
        past
    }

    fn step(&mut self, epoch: u64) {
        let before = self.states.last().unwrap();
        let update = encoded(epoch);
        let roster = roster(epoch, before.table.state());
        let receipt = roster.receipt(digest_of(&update));
        let mut delta = vec![0.0; PARAMETERS];
        Codec::F32.decode(&update, &mut delta).unwrap();
        let mut state = State::clone(&before.state);
        state.step(&self.rules.outer, epoch, &delta);
        let tokens = before.table.header().tokens + receipt.tokens();
        let r = wire::receipt_digest(&RUN, &receipt);
        let after = snapshot(epoch, tokens, r, state);
        let head = Head { epoch, tokens, state: after.table.state() };
        let certificate = Certificate { roster, dones: Vec::new() };
        self.links.push((head, Link { receipt, certificate, openings: Vec::new() }));
        self.keep(epoch, &update);
        self.updates.push(update);
        self.states.push(after);
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join("runs").join(RUN.hex()).join(name)
    }

    fn update_path(&self, epoch: u64, update: &[u8]) -> PathBuf {
        self.path("updates").join(format!("{epoch}-{}.update", digest_of(update).hex()))
    }

    fn keep(&self, epoch: u64, update: &[u8]) {
        fs::create_dir_all(self.path("updates")).unwrap();
        fs::write(self.update_path(epoch, update), update).unwrap();
    }

    fn save(&self, epoch: u64) {
        let Snapshot { table, state } = &self.states[usize::try_from(epoch).unwrap()];
        self.store.save(Arc::clone(table), state.theta(), state.momentum()).unwrap();
    }

    fn vote(&self, epoch: u64, update: &[u8]) {
        let parent = self.states.last().unwrap().table.state();
        let (roster, update) = (roster(epoch, parent), digest_of(update));
        let voted = Box::new(Voted { depth: 0, roster, update, accepts: Vec::new() });
        let voted = Record::Voted { voted };
        self.store.begin(Some(FIRST), Origin::Random, 1).unwrap().journal.append(&[voted]).unwrap();
    }

    /// The epoch that a restart resumes at, after checking that its state is the one of that epoch.
    fn recover(&self) -> (u64, Recovery) {
        let console =
            Console::new(Sink::new(None, MEMBER.peer.into()), Voice::Quiet, PathBuf::new());
        let begun = self.store.begin(Some(FIRST), Origin::Random, 1).unwrap();
        let recovery = recover(&self.store, &self.rules, begun, &console).unwrap();
        let table = &recovery.snapshot.table;
        let epoch = table.header().epoch;
        let index = usize::try_from(epoch).unwrap();
        assert_eq!(table, &self.states[index].table);
        assert_eq!(recovery.snapshot.state, self.states[index].state);
        assert_eq!(recovery.recovered.lineage, self.links[..index]);
        (epoch, recovery)
    }

    fn is_same_voter(&self) -> bool {
        self.store.begin(Some(FIRST), Origin::Random, 1).unwrap().journal.start().log == FIRST
    }
}

#[test]
fn an_empty_folder_begins_at_genesis() {
    let past = Past::new(0, &[]);
    let (epoch, recovery) = past.recover();
    assert!(epoch == 0 && recovery.saved.is_none() && recovery.held.is_empty());
}

#[test]
fn r21_the_head_is_the_newest_checkpoint_and_all_later_updates() {
    for checkpoints in [&[][..], &[1], &[2, 3], &[4, 5], &[5]] {
        let past = Past::new(5, checkpoints);
        let (epoch, recovery) = past.recover();
        assert_eq!(epoch, 5, "{checkpoints:?}");
        let saved = recovery.saved.map(|saved| saved.table.header().epoch);
        assert_eq!(saved, checkpoints.last().copied(), "{checkpoints:?}");
        assert!(past.is_same_voter());
    }
}

#[test]
fn r21_without_an_update_the_head_is_the_one_before() {
    let past = Past::new(5, &[2]);
    fs::remove_file(past.update_path(4, &past.updates[3])).unwrap();
    assert_eq!(past.recover().0, 3);
    // A damaged update is as good as none, and is not read twice.
    let third = past.update_path(3, &past.updates[2]);
    write_bad(&third, &past.updates[2], 3);
    assert_eq!(past.recover().0, 2);
    assert!(!third.exists() && past.path("damaged").is_dir());
    assert!(past.is_same_voter());
}

/// Another program, or faulty memory, would take these epochs elsewhere.
#[test]
fn r21_an_outer_step_that_leads_elsewhere_is_not_taken() {
    let mut past = Past::new(3, &[1]);
    past.rules.outer.lr = 0.75;
    assert_eq!(past.recover().0, 1);
}

#[test]
fn a_damaged_checkpoint_costs_only_the_outer_steps_after_the_one_before() {
    let past = Past::new(5, &[3, 5]);
    let path = past.path("checkpoints/5.ckpt");
    let bytes = fs::read(&path).unwrap();
    write_bad(&path, &bytes, bytes.len() - 1);
    let (epoch, recovery) = past.recover();
    assert_eq!((epoch, recovery.saved.unwrap().table.header().epoch), (5, 3));
    assert!(!path.exists());
}

/// A state that the receipts do not lead to is not used until they do.
#[test]
fn damaged_receipts_take_the_head_back_to_what_they_prove() {
    let past = Past::new(5, &[2, 5]);
    let path = past.path("receipts.log");
    let mut bytes = fs::read(&path).unwrap();
    // Roughly in the record of epoch 4.
    let at = bytes.len() * 7 / 10;
    bytes[at] ^= 1;
    fs::write(&path, bytes).unwrap();
    assert_eq!(past.recover().0, 3);
    assert!(past.path("checkpoints/5.ckpt").exists(), "nothing is wrong with it");
    // R1: the votes bind, whatever happened to the receipts.
    assert!(past.is_same_voter());
}

/// R19: it has voted, and a peer that asks for the bytes would not get them.
#[test]
fn r19_a_vote_for_what_cannot_be_read_back_makes_another_voter() {
    let vote = encoded(99);
    for kept in [true, false] {
        let past = Past::new(2, &[2]);
        past.vote(3, &vote);
        if kept {
            past.keep(3, &vote);
        }
        let (_, recovery) = past.recover();
        assert_eq!(recovery.held.len(), usize::from(kept));
        assert_eq!(recovery.recovered.votes.len(), usize::from(kept));
        assert_eq!(recovery.journal.start().log == FIRST, kept);
        assert_eq!(past.is_same_voter(), kept);
    }
    // For a committed epoch no peer asks for the vote.
    let past = Past::new(2, &[2]);
    past.vote(2, &vote);
    past.recover();
    assert!(past.is_same_voter());
}

/// R19: it may have voted in epochs whose votes were cut from its log.
#[test]
fn r19_a_head_behind_what_the_votes_go_back_to_makes_another_voter() {
    let past = Past::new(50, &[50]);
    let many: Vec<Record> = (0..40_000)
        .map(|attempt| Record::Promised {
            series: Series { epoch: 50, parent: Digest::ZERO, regroup: None },
            attempt,
        })
        .chain([Record::Committed { head: past.links[49].0 }])
        .collect();
    let mut begun = past.store.begin(Some(FIRST), Origin::Random, 1).unwrap();
    begun.journal.append(&many).unwrap();
    assert!(begun.journal.forgotten() > 0);
    assert_eq!(past.recover().0, 50);
    assert!(past.is_same_voter());
    fs::remove_dir_all(past.path("checkpoints")).unwrap();
    fs::create_dir(past.path("checkpoints")).unwrap();
    fs::remove_file(past.update_path(5, &past.updates[4])).unwrap();
    assert_eq!(past.recover().0, 4);
    assert!(!past.is_same_voter());
}
