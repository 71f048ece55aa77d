//! Sentences and events about the disk.

use std::path::Path;

use super::{Teller, events};
use crate::checkpoint::CheckpointError;
use crate::store::StoreError;

impl Teller {
    pub(crate) fn disk(&self, error: &StoreError) {
        let text = self.explain(error);
        self.say(&format!("disk: {text}; training goes on, free some space"));
        self.emit(None, events::Event::Disk { error: text });
    }

    /// The logs could not be written: nobody must hear what they do not hold.
    pub(crate) fn journal(&self, error: &StoreError) {
        let text = self.explain(error);
        self.say(&format!(
            "disk: {text}; until it can be written this node sends no votes and no results, \
             trains on, and stands still once too much waits: free some space"
        ));
        self.emit(None, events::Event::Disk { error: text });
    }

    /// An update could not be written: others go on, and this node follows them.
    pub(crate) fn update(&self, error: &StoreError) {
        let text = self.explain(error);
        self.say(&format!(
            "disk: {text}; this node votes for no update that it cannot keep, and is silent once \
             others have decided it: free some space"
        ));
        self.emit(None, events::Event::Disk { error: text });
    }

    pub(crate) fn disk_again(&self) {
        self.say("disk: it can be written again, nothing is lost");
    }

    /// A file was set aside.
    pub(crate) fn damaged(&self, path: &Path, why: &str) {
        let text = format!("{} is damaged ({why}), and was set aside", path.display());
        let text = self.without_folder(text);
        self.say(&format!("disk: {text}"));
        self.emit(None, events::Event::Disk { error: text });
    }

    /// A checkpoint cannot be used.
    pub(crate) fn unusable(&self, error: &CheckpointError) {
        let text = self.explain(error);
        let what = if error.is_damage() { "set aside" } else { "passed over" };
        self.say(&format!("disk: {text}: it was {what}, and the next older one is used"));
        self.emit(None, events::Event::Disk { error: text });
    }
}
