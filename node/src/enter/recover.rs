//! Reads what an earlier start of this node left on its disk, for [`holdings::restore`], which decides
//! how much of it counts (R19–R21).
//!
//! Runs before the network is joined, on a thread of its own: it takes as long as the disk.
//!
//! The receipts give the lineage. The newest whole checkpoint on it is a state, and each receipt
//! beyond that leads one epoch further, if its update is on the disk too and its outer step gives
//! the state that the lineage names. So a node that was killed between a decision and the next
//! checkpoint comes back to the epoch that was decided. What is missing is fetched from others
//! later.
//!
//! Nothing on the disk is believed for its name: updates and states count by their digests.

use std::sync::Arc;
use std::time::{Duration, Instant};

use intellect_model::outer::Outer;
use intellect_model::state::State;
use intellect_protocol::base::id::{Digest, RunId};
use intellect_protocol::history::checkpoint::{Header, Table};
use intellect_protocol::history::log::{self, Recovered};
use intellect_protocol::holdings::{self, Name, Restored};
use intellect_protocol::message::{Head, Link, wire};
use intellect_protocol::ring::codec::Codec;

use crate::store::{Begun, Journal, Look, Saved, Store, StoreError};
use crate::tell::Console;
use crate::worker::Snapshot;

/// What the run prescribes for its states.
#[derive(Clone, Debug)]
pub(crate) struct Rules {
    /// The run that every record and checkpoint must name.
    pub(crate) run: RunId,
    /// The codec with which stored updates are decoded.
    pub(crate) codec: Codec,
    /// The outer optimiser, with which epochs are repeated.
    pub(crate) outer: Outer,
    /// The state before epoch 1, from which replays start.
    pub(crate) genesis: Arc<Snapshot>,
}

/// What this node resumes from.
pub(crate) struct Recovery {
    /// The logs, open for more records.
    pub(crate) journal: Journal,
    /// What the state machine restarts with.
    pub(crate) recovered: Recovered,
    /// The state at the head of the lineage.
    pub(crate) snapshot: Snapshot,
    /// The checkpoint that this state was computed from, if any.
    pub(crate) saved: Option<Saved>,
    /// The updates on disk, whole or not checked yet.
    pub(crate) updates: Vec<Name>,
    /// The updates on disk that this node has voted for in the open epoch.
    pub(crate) held: Vec<Digest>,
}

impl Rules {
    /// The number of parameters, by which files of another model are recognised.
    fn parameters(&self) -> usize {
        self.genesis.state.theta().len()
    }
}

/// Reads all that `begun` and the folder have.
///
/// A vote promises to others that this node has the update. If it cannot be read any more, the log
/// of votes is given up, and the node goes on as another voter (R19).
///
/// # Errors
/// The disk refuses to read or to move a file. What is damaged is no error: it is reported, moved
/// aside, and counts as missing.
pub(crate) fn recover(
    store: &Store,
    rules: &Rules,
    begun: Begun,
    console: &Console,
) -> Result<Recovery, StoreError> {
    let Begun { mut journal, votes, receipts, damaged } = begun;
    for path in &damaged {
        console.damaged(path, "a record does not match its checksum");
    }
    let marks = log::marks(&receipts);
    let lineage = log::lineage(rules.genesis.head(), receipts);
    let (from, saved) = newest(store, rules, &lineage, console)?;
    let mut progress = Progress::new();
    let restored = holdings::restore(
        Recovered { lineage, marks, votes, forgotten: journal.forgotten() },
        from.table.header().epoch,
        from,
        |at, head, link| {
            progress.show(|| {
                console.say(&format!("repeating the outer steps from disk: epoch {}", head.epoch));
            });
            step(store, rules, at, head, link, console)
        },
        |name| {
            let update = read(store, name, console);
            update.is_some_and(|update| rules.codec.validate(&update, rules.parameters()).is_ok())
        },
    );
    let Restored { state: snapshot, recovered, known, held, is_lost } = restored;
    let epoch = snapshot.table.header().epoch;
    if epoch < known {
        console.say(&format!(
            "the state on disk is that of epoch {epoch}, and {known} epochs are known to be decided: \
             the rest is fetched from other peers"
        ));
    }
    if is_lost {
        console.say(
            "this node can no longer read what it has voted for: it goes on as a new voter, and \
             its old log of votes is set aside",
        );
        store.renew(&mut journal)?;
    }
    let (updates, held) = (store.updates()?, held.into_iter().collect());
    Ok(Recovery { journal, recovered, snapshot, saved, updates, held })
}

/// The newest whole checkpoint on `lineage`; genesis if there is none.
/// A checkpoint of another lineage stays where it is: after a fork it may be needed again.
fn newest(
    store: &Store,
    rules: &Rules,
    lineage: &[(Head, Link)],
    console: &Console,
) -> Result<(Snapshot, Option<Saved>), StoreError> {
    let of_lineage = |header: &Header, state: &Digest| {
        let head = Head { epoch: header.epoch, tokens: header.tokens, state: *state };
        lineage.iter().any(|(known, _)| *known == head)
    };
    let mut progress = Progress::new();
    let mut look = |look| match look {
        Look::Unusable(error) => console.unusable(&error),
        Look::Read { epoch, done, all } => progress.show(|| {
            console.say(&format!("reading the state of epoch {epoch}: {} %", 100 * done / all));
        }),
    };
    let parameters = rules.parameters() as u64;
    let found = store.newest_whole(rules.run, parameters, of_lineage, &mut look)?;
    let Some((checkpoint, saved)) = found else {
        return Ok((Snapshot::clone(&rules.genesis), None));
    };
    let state = Arc::new(State::new(checkpoint.theta, checkpoint.momentum));
    Ok((Snapshot { table: Arc::clone(&saved.table), state }, Some(saved)))
}

/// The state after the outer step of `link`, if its update is there and leads to that state.
/// It is computed on the host from θ and v, as every peer computes it, so the digests have to be
/// equal.
fn step(
    store: &Store,
    rules: &Rules,
    at: &Snapshot,
    head: &Head,
    link: &Link,
    console: &Console,
) -> Option<Snapshot> {
    let name = Name { epoch: head.epoch, digest: link.receipt.update };
    let update = read(store, name, console)?;
    let mut delta = vec![0.0; rules.parameters()];
    rules.codec.decode(&update, &mut delta).ok()?;
    let mut state = State::clone(&at.state);
    state.step(&rules.outer, head.epoch, &delta);
    let r = wire::receipt_digest(&rules.run, &link.receipt);
    let header = Header { epoch: head.epoch, tokens: head.tokens, r, ..*at.table.header() };
    let table = Table::of(header, state.theta(), state.momentum()).ok()?;
    if table.state() != head.state {
        let epoch = head.epoch;
        console.say(&format!("the outer step of epoch {epoch} gives another state than it did"));
        return None;
    }
    Some(Snapshot { table: Arc::new(table), state: Arc::new(state) })
}

/// Reads an update from disk; a damaged one is set aside.
fn read(store: &Store, name: Name, console: &Console) -> Option<Vec<u8>> {
    match store.read_update(name) {
        Ok(update) => Some(update),
        Err(StoreError::ReadBack { path }) => {
            console.damaged(&path, "its bytes do not match the digest in its name");
            // A file that cannot be moved is not used either.
            if let Err(error) = store.set_aside(&path) {
                tracing::warn!(%error, "a damaged update stays");
            }
            None
        }
        // Mostly the update was never stored here.
        Err(_) => None,
    }
}

/// Reports progress only where the work takes long.
struct Progress(Instant);

/// A person who sees no output for longer takes the program for stuck.
const QUIET: Duration = Duration::from_secs(2);

impl Progress {
    /// Nothing is reported before [`QUIET`] has passed.
    fn new() -> Self {
        Self(Instant::now())
    }

    /// Calls `say` if the last report is long enough ago.
    fn show(&mut self, say: impl FnOnce()) {
        if self.0.elapsed() >= QUIET {
            self.0 = Instant::now();
            say();
        }
    }
}

#[cfg(test)]
mod tests;
