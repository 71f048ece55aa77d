//! Sentences and events about the disk.
//!
//! Programs get the error alone, and each time. People get it with its outcome and the remedy: what
//! cannot be written decides whether training goes on, and what this node may still say to others.
//! Paths in both leave out the run's folder.

use std::path::Path;
use std::time::Instant;

use super::{Console, events};
use crate::checkpoint::CheckpointError;
use crate::figures::number_of;
use crate::store::StoreError;

impl Console {
    /// A checkpoint could not be written, which is said once and then every minute. Without one of a state that was
    /// fetched this node cannot take part.
    pub(crate) fn checkpoint_refused(&mut self, error: &StoreError, is_fetched: bool) {
        let error = self.explain(error);
        if let Some(count) = self.later.refused_checkpoints.note(Instant::now()) {
            let again = if count > 1 {
                format!(" ({} refused)", number_of(count, "checkpoint"))
            } else {
                String::new()
            };
            let meanwhile = if is_fetched { FREE_SPACE_TO_JOIN } else { FREE_SPACE };
            self.say(&format!("disk: {error}{again}{meanwhile}"));
        }
        self.emit(None, events::Event::Disk { error });
    }

    /// A checkpoint was written: if others were refused before, the disk has room again, unless it `refuses` votes.
    pub(crate) fn checkpoint_saved(&mut self, refuses: bool) {
        if self.later.refused_checkpoints.end() && !refuses {
            self.disk_again();
        }
    }

    /// A checkpoint could not be written; training goes on.
    pub(crate) fn disk(&self, error: &StoreError) {
        self.trouble(self.explain(error), FREE_SPACE);
    }

    /// The logs could not be written: no message may leave that says what they do not hold.
    pub(crate) fn journal(&self, error: &StoreError) {
        let meanwhile = "; until it can be written this node sends no votes and no results. It goes on \
            training, and pauses once too much waits to be written: free some disk space";
        self.trouble(self.explain(error), meanwhile);
    }

    /// An update could not be written: the others decide without this node's vote, and it follows them.
    pub(crate) fn update(&self, error: &StoreError) {
        let meanwhile = "; this node votes for no update that it cannot store, and sends nothing once \
            the others have decided it: free some disk space";
        self.trouble(self.explain(error), meanwhile);
    }

    /// Reports a fault of the disk: to programs the error alone, to people also its outcome.
    fn trouble(&self, error: String, outcome: &str) {
        self.say(&format!("disk: {error}{outcome}"));
        self.emit(None, events::Event::Disk { error });
    }

    /// What could not be written before is written now. Nothing was lost, since it waited in memory
    /// or is made again.
    pub(crate) fn disk_again(&self) {
        self.say("disk: it can be written again; nothing is lost");
    }

    /// A damaged file was moved to `damaged/`.
    pub(crate) fn damaged(&self, path: &Path, why: &str) {
        let text = format!("{} is damaged ({why}) and was set aside", path.display());
        self.trouble(self.without_folder(text), "");
    }

    /// Reports a checkpoint that cannot be used, and that an older one is tried.
    pub(crate) fn unusable(&self, error: &CheckpointError) {
        let what = if error.is_damage() { "set aside" } else { "skipped" };
        let outcome = format!(": it was {what}; the next older one is used");
        self.trouble(self.explain(error), &outcome);
    }
}

/// The outcome where a checkpoint is missing that a restart could begin with.
const FREE_SPACE: &str = "; training goes on: free some disk space";
/// The outcome where the state is missing without which this node has no part in the run.
const FREE_SPACE_TO_JOIN: &str =
    "; this node takes part once the state that it has fetched is written: free some disk space";
