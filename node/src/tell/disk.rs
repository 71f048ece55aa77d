//! Sentences and events about the disk.

use std::path::Path;

use super::{Teller, events};
use crate::checkpoint::CheckpointError;
use crate::store::StoreError;

impl Teller {
    /// Something could not be written; training goes on.
    pub(crate) fn disk(&self, error: &StoreError) {
        self.trouble(self.explain(error), "; training goes on, free some space");
    }

    /// The logs could not be written: nobody must hear what they do not hold.
    pub(crate) fn journal(&self, error: &StoreError) {
        let meanwhile = "; until it can be written this node sends no votes and no results, \
            trains on, and stands still once too much waits: free some space";
        self.trouble(self.explain(error), meanwhile);
    }

    /// An update could not be written: others go on, and this node follows them.
    pub(crate) fn update(&self, error: &StoreError) {
        let meanwhile = "; this node votes for no update that it cannot keep, and is silent once \
            others have decided it: free some space";
        self.trouble(self.explain(error), meanwhile);
    }

    /// Tells programs what has gone wrong with the disk, and people also what becomes of it.
    fn trouble(&self, error: String, outcome: &str) {
        self.say(&format!("disk: {error}{outcome}"));
        self.emit(None, events::Event::Disk { error });
    }

    /// What could not be written can be.
    pub(crate) fn disk_again(&self) {
        self.say("disk: it can be written again, nothing is lost");
    }

    /// A file was set aside.
    pub(crate) fn damaged(&self, path: &Path, why: &str) {
        let text = format!("{} is damaged ({why}), and was set aside", path.display());
        self.trouble(self.without_folder(text), "");
    }

    /// A checkpoint cannot be used.
    pub(crate) fn unusable(&self, error: &CheckpointError) {
        let what = if error.is_damage() { "set aside" } else { "passed over" };
        let outcome = format!(": it was {what}, and the next older one is used");
        self.trouble(self.explain(error), &outcome);
    }
}
