//! Sentences about two lineages that met. The protocol reports a fork each time it hears the other lineage; people
//! see it once, and again each minute while it lasts.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use intellect_protocol::base::id::Digest;
use intellect_protocol::message::Head;

use super::{Console, events};
use crate::figures::number_of;
use crate::name::Hex;

/// Time between two sentences about the same fork.
const AGAIN: Duration = Duration::from_secs(60);

/// How many forks are remembered with the time of their last sentence.
const FORKS_MAX: usize = 64;

/// Two lineages; this node goes on with one of them. It follows the greater one by the rule, unless
/// that is `held`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fork {
    /// The first epoch in which the two differ.
    pub(super) first_epoch: u64,
    /// The head of this node's lineage.
    pub(super) mine: Head,
    /// The head of the other lineage, as far as it is known.
    pub(super) theirs: Head,
    /// Epochs of our lineage that are undone.
    pub(super) undone: u64,
    /// Whether the other lineage is greater and a person has to decide.
    pub(super) held: bool,
}

impl Fork {
    /// The sentence for people. It names the state for `--follow`, since only a person can decide
    /// against the rule.
    fn sentence(&self) -> String {
        let Self { first_epoch, mine, theirs, undone, held } = self;
        if *held {
            let undone = number_of(mine.epoch.saturating_sub(*first_epoch) + 1, "epoch");
            return format!(
                "fork: from epoch {first_epoch} on another lineage is greater and would undo {undone} of ours; \
                 few of the earlier voters have signed it, so ours goes on. If the other one is the run's, \
                 start this node again with --follow {}",
                theirs.state.hex()
            );
        }
        let what = if *undone == 0 {
            let mine = mine.state.hex();
            format!("ours goes on; a node that stays on the other one needs --follow {mine}")
        } else {
            format!("the other one is greater: {} of ours undone", number_of(*undone, "epoch"))
        };
        let (mine, theirs) = (mine.state, theirs.state);
        format!("fork: from epoch {first_epoch} on two lineages ({mine} and {theirs}); {what}")
    }
}

/// When each fork was last reported, by its first epoch and whether a person has to decide. At most
/// [`FORKS_MAX`] of them: the one that began first makes room, and would be reported once more.
#[derive(Clone, Debug, Default)]
pub(super) struct Forks(BTreeMap<(u64, bool), Instant>);

impl Forks {
    /// Whether to report a fork now. A fork that undoes epochs is always reported.
    fn is_due(&mut self, fork: &Fork, now: Instant) -> bool {
        let key = (fork.first_epoch, fork.held);
        let is_recent = |at: &Instant| now.saturating_duration_since(*at) < AGAIN;
        if fork.undone == 0 && self.0.get(&key).is_some_and(is_recent) {
            return false;
        }
        if self.0.len() >= FORKS_MAX && !self.0.contains_key(&key) {
            self.0.pop_first();
        }
        self.0.insert(key, now);
        true
    }
}

impl Console {
    /// Reports the state that `--follow` names, if it names one: nothing is seen of it until a peer has it.
    pub(crate) fn follows(&self, state: Option<Digest>) {
        if let Some(state) = state {
            self.say(&format!(
                "--follow: looking for a peer whose lineage has state {state}; until one is here, this node keeps its own"
            ));
        }
    }

    /// Reports a fork, unless it was reported within the last minute. The event is as seldom as the
    /// sentence.
    pub(super) fn fork(&mut self, fork: Fork) {
        if !self.forks.is_due(&fork, Instant::now()) {
            return;
        }
        self.say(&fork.sentence());
        let Fork { first_epoch, mine, theirs, undone, held } = fork;
        let (mine, theirs) = (Hex::from(mine.state), Hex::from(theirs.state));
        self.emit(None, events::Event::Fork { first_epoch, mine, theirs, undone, held });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fork(first_epoch: u64, undone: u64, held: bool) -> Fork {
        let head = |byte| Head { epoch: 300, tokens: 1, state: Digest([byte; 32]) };
        Fork { first_epoch, mine: head(0xaa), theirs: head(0xbb), undone, held }
    }

    #[test]
    fn a_fork_that_lasts_is_reported_once_and_then_each_minute() {
        let (mut forks, start) = (Forks::default(), Instant::now());
        let second = Duration::from_secs(1);
        for held in [false, true] {
            let due = (0..130).filter(|at| forks.is_due(&fork(7, 0, held), start + second * *at));
            assert_eq!(due.count(), 3, "at 0, 60 and 120 s");
        }
        assert!(forks.is_due(&fork(8, 0, false), start + second), "another one");
        assert!(forks.is_due(&fork(7, 5, false), start + second * 121), "now something is undone");
        for epoch in 0..1_000 {
            forks.is_due(&fork(epoch, 0, false), start);
        }
        assert_eq!(forks.0.len(), FORKS_MAX);
    }

    #[test]
    fn the_sentence_says_what_a_person_has_to_type() {
        let held = fork(234, 0, true).sentence();
        assert!(held.contains("would undo 67 epochs") && held.contains(&"bb".repeat(32)), "{held}");
        let ours = fork(234, 0, false).sentence();
        assert!(ours.contains("ours goes on") && ours.contains(&"aa".repeat(32)), "{ours}");
        assert!(fork(234, 1, false).sentence().ends_with("1 epoch of ours undone"));
    }
}
