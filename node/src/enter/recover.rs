//! What an earlier start of this node left on its disk, read for [`holdings::restore`], which says
//! how much of it counts (R19–R21).
//!
//! Runs before the network is joined, on a thread of its own: it takes as long as the disk.

use std::sync::Arc;
use std::time::{Duration, Instant};

use intellect_model::outer::Outer;
use intellect_model::state::State;
use intellect_protocol::base::id::{Digest, RunId};
use intellect_protocol::history::checkpoint::{Header, Table};
use intellect_protocol::history::log::{self, Recovered};
use intellect_protocol::holdings::{self, Name, Restored};
use intellect_protocol::message::wire;
use intellect_protocol::message::{Head, Link};
use intellect_protocol::ring::codec::Codec;

use crate::store::{Begun, Journal, Look, Saved, Store, StoreError};
use crate::tell::Teller;
use crate::worker::Snapshot;

/// What the run says about its states.
#[derive(Clone, Debug)]
pub(crate) struct Rules {
    pub(crate) run: RunId,
    pub(crate) codec: Codec,
    pub(crate) outer: Outer,
    /// The state before epoch 1.
    pub(crate) genesis: Arc<Snapshot>,
}

/// What this node goes on from.
pub(crate) struct Recovery {
    /// Open for more.
    pub(crate) journal: Journal,
    /// For the state machine.
    pub(crate) recovered: Recovered,
    /// The state at the head.
    pub(crate) snapshot: Snapshot,
    /// The checkpoint that it comes from.
    pub(crate) saved: Option<Saved>,
    /// The updates on disk.
    pub(crate) updates: Vec<Name>,
    /// Those of the open epoch that this node has voted for.
    pub(crate) held: Vec<Digest>,
}

impl Rules {
    fn parameters(&self) -> usize {
        self.genesis.state.theta().len()
    }
}

/// Reads all that `begun` and the folder have.
pub(crate) fn recover(
    store: &Store,
    rules: &Rules,
    begun: Begun,
    tell: &Teller,
) -> Result<Recovery, StoreError> {
    let Begun { mut journal, votes, receipts, damaged } = begun;
    damaged.iter().for_each(|path| tell.damaged(path, "a record does not fit its check"));
    let marks = log::marks(&receipts);
    let lineage = log::lineage(rules.genesis.head(), receipts);
    let (from, saved) = newest(store, rules, &lineage, tell)?;
    let mut progress = Progress::new();
    let restored = holdings::restore(
        Recovered { lineage, marks, votes },
        journal.forgotten(),
        from.table.header().epoch,
        from,
        |at, head, link| {
            progress.show(|| {
                tell.say(&format!("taking the outer steps on disk again: epoch {}", head.epoch));
            });
            step(store, rules, at, head, link, tell)
        },
        |name| {
            let update = read(store, name, tell);
            update.is_some_and(|update| rules.codec.validate(&update, rules.parameters()).is_ok())
        },
    );
    let Restored { state: snapshot, recovered, known, held, is_lost } = restored;
    let epoch = snapshot.table.header().epoch;
    if epoch < known {
        tell.say(&format!(
            "the state on disk is that of epoch {epoch}, of {known} that are known to be decided: \
             the rest is fetched from others"
        ));
    }
    if is_lost {
        tell.say(
            "this node has voted for what it cannot read any more: it goes on as a new voter, and \
             its old log of votes is set aside",
        );
        store.renew(&mut journal)?;
    }
    let (updates, held) = (store.updates()?, held.into_iter().collect());
    Ok(Recovery { journal, recovered, snapshot, saved, updates, held })
}

/// The newest whole checkpoint on `lineage`; genesis where there is none.
fn newest(
    store: &Store,
    rules: &Rules,
    lineage: &[(Head, Link)],
    tell: &Teller,
) -> Result<(Snapshot, Option<Saved>), StoreError> {
    let of_lineage = |header: &Header, state: &Digest| {
        let head = Head { epoch: header.epoch, tokens: header.tokens, state: *state };
        lineage.iter().any(|(known, _)| *known == head)
    };
    let mut progress = Progress::new();
    let mut look = |look| match look {
        Look::Unusable(error) => tell.unusable(&error),
        Look::Read { epoch, done, all } => progress.show(|| {
            tell.say(&format!("reading the state of epoch {epoch}: {} %", 100 * done / all));
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

/// The state that the outer step of `link` leads to, if its update is there and right.
fn step(
    store: &Store,
    rules: &Rules,
    at: &Snapshot,
    head: &Head,
    link: &Link,
    tell: &Teller,
) -> Option<Snapshot> {
    let name = Name { epoch: head.epoch, digest: link.receipt.update };
    let update = read(store, name, tell)?;
    let mut delta = vec![0.0; rules.parameters()];
    rules.codec.decode(&update, &mut delta).ok()?;
    let mut state = State::clone(&at.state);
    state.step(&rules.outer, head.epoch, &delta);
    let r = wire::receipt_digest(&rules.run, &link.receipt);
    let header = Header { epoch: head.epoch, tokens: head.tokens, r, ..*at.table.header() };
    let table = Table::of(header, state.theta(), state.momentum()).ok()?;
    if table.state() != head.state {
        tell.say(&format!("the outer step of epoch {} does not lead where it did", head.epoch));
        return None;
    }
    Some(Snapshot { table: Arc::new(table), state: Arc::new(state) })
}

/// An update that was kept; one that is damaged is set aside.
fn read(store: &Store, name: Name, tell: &Teller) -> Option<Vec<u8>> {
    match store.read_update(name) {
        Ok(update) => Some(update),
        Err(StoreError::ReadBack { path }) => {
            tell.damaged(&path, "its bytes are not those of its name");
            // What cannot be moved is not used either.
            if let Err(error) = store.set_aside(&path) {
                tracing::warn!(%error, "a damaged update stays");
            }
            None
        }
        // Most often it is one that was not kept.
        Err(_) => None,
    }
}

/// Says something only when it takes long.
struct Progress(Instant);

/// Whoever looks at a screen that stands still for longer takes the program for stuck.
const QUIET: Duration = Duration::from_secs(2);

impl Progress {
    fn new() -> Self {
        Self(Instant::now())
    }

    fn show(&mut self, say: impl FnOnce()) {
        if self.0.elapsed() >= QUIET {
            self.0 = Instant::now();
            say();
        }
    }
}

#[cfg(test)]
mod tests;
