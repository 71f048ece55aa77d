//! Sentences and events about the disk.
//!
//! Programs get the error alone. People get it with its outcome and the remedy: what cannot be
//! written decides whether training goes on, and what this node may still say to others. Of checkpoints,
//! logs and updates both get one in a minute, however often the disk is tried. Paths leave out the
//! run's folder.

use std::path::Path;
use std::time::Instant;

use super::{Console, events};
use crate::checkpoint::CheckpointError;
use crate::figures::number_of;
use crate::store::StoreError;

impl Console {
    /// A checkpoint was written, or the disk refused it. Without one of a state that was fetched this node cannot take
    /// part.
    pub(crate) fn checkpoint(&mut self, refused: Option<&StoreError>, is_fetched: bool) {
        let meanwhile = if is_fetched { FREE_SPACE_TO_JOIN } else { FREE_SPACE };
        self.wrote("checkpoint", refused, meanwhile);
    }

    /// The logs were written or refused; then no message may leave that says what they do not hold.
    pub(crate) fn journal(&mut self, refused: Option<&StoreError>) {
        let meanwhile = "; until it can be written this node sends no votes and no results. It goes on \
            training, and pauses once too much waits to be written: free some disk space";
        self.wrote("write", refused, meanwhile);
    }

    /// An update was written or refused; then the others decide without this node's vote, and it follows them.
    pub(crate) fn update(&mut self, refused: Option<&StoreError>) {
        let meanwhile = "; this node votes for no update that it cannot store, and sends nothing once \
            the others have decided it: free some disk space";
        self.wrote("update", refused, meanwhile);
    }

    /// Reports what was refused, and later that all of it can be written again. Nothing was lost then, since it waited
    /// in memory or is made again.
    fn wrote(&mut self, what: &'static str, refused: Option<&StoreError>, meanwhile: &str) {
        let (now, all) = (Instant::now(), &mut self.later.refused);
        let Some(error) = refused else {
            if all.get(what).is_some_and(|refusals| refusals.end(now)) {
                all.remove(what);
                if all.is_empty() {
                    self.say("disk: it can be written again; nothing is lost");
                }
            }
            return;
        };
        let again = match all.entry(what).or_default().note(now) {
            None => return,
            Some(1) => String::new(),
            Some(count) => format!(" ({} refused)", number_of(count, what)),
        };
        self.trouble(self.explain(error), &format!("{again}{meanwhile}"));
    }

    /// A file could not be written that training does not need.
    pub(crate) fn disk(&self, error: &StoreError) {
        self.trouble(self.explain(error), FREE_SPACE);
    }

    /// Reports a fault of the disk: to programs the error alone, to people also its outcome.
    fn trouble(&self, error: String, outcome: &str) {
        self.say(&format!("disk: {error}{outcome}"));
        self.emit(None, events::Event::Disk { error });
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

#[cfg(test)]
mod tests {
    use intellect_protocol::base::id::PeerId;

    use super::*;
    use crate::config::Voice;
    use crate::tell::Sink;

    #[test]
    fn a_disk_that_takes_every_other_file_is_reported_once_for_each_kind() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("events.jsonl");
        let sink = Sink::open(Some(&path), PeerId([1; 32]).into()).unwrap();
        let mut console = Console::new(sink, Voice::Quiet, folder.path().to_owned());
        let full = StoreError::Removed { path: path.clone() };
        for refused in [Some(&full), None].into_iter().cycle().take(62) {
            console.checkpoint(refused, false);
        }
        console.update(Some(&full));
        console.update(None);
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(text.lines().count(), 2, "{text}");
        assert_eq!(console.later.refused.len(), 2, "it is not over yet");
    }
}
