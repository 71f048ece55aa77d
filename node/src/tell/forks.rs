//! What is told of two lineages that have met. The protocol reports it as often as the other one is heard; a person
//! hears it once, and again each minute while it lasts.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use intellect_protocol::message::Head;

use super::{Teller, events};
use crate::figures::number_of;
use crate::name::Hex;

/// Between two sentences about the same fork.
const AGAIN: Duration = Duration::from_secs(60);

/// Forks of which it is known when they were told.
const FORKS_MAX: usize = 64;

/// Two lineages, of which one goes on here.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fork {
    pub(super) first_epoch: u64,
    pub(super) mine: Head,
    pub(super) theirs: Head,
    /// Epochs of ours that are undone.
    pub(super) undone: u64,
    /// Whether the other lineage is greater, and waits for a person.
    pub(super) held: bool,
}

impl Fork {
    fn sentence(&self) -> String {
        let Self { first_epoch, mine, theirs, undone, held } = self;
        if *held {
            let undone = number_of(mine.epoch.saturating_sub(*first_epoch) + 1, "epoch");
            return format!(
                "fork: from epoch {first_epoch} on another lineage is greater, and would undo {undone}; \
                 few of those who voted before have signed it, so ours goes on. If it is the run's, \
                 start again with --follow {}",
                theirs.state.hex()
            );
        }
        let what = if *undone == 0 {
            let mine = mine.state.hex();
            format!(
                "ours goes on; whoever stays on the other one starts again with --follow {mine}"
            )
        } else {
            format!("the other one is greater: {} of ours undone", number_of(*undone, "epoch"))
        };
        let (mine, theirs) = (mine.state, theirs.state);
        format!("fork: from epoch {first_epoch} on two lineages ({mine} and {theirs}); {what}")
    }
}

/// When each fork was told last.
#[derive(Clone, Debug, Default)]
pub(super) struct Forks(BTreeMap<(u64, bool), Instant>);

impl Forks {
    /// Whether a fork is to be told now. One that undoes something is always news.
    fn is_due(&mut self, fork: &Fork, now: Instant) -> bool {
        let key = (fork.first_epoch, fork.held);
        let told = self.0.get(&key).is_some_and(|at| now.saturating_duration_since(*at) < AGAIN);
        if fork.undone == 0 && told {
            return false;
        }
        if self.0.len() >= FORKS_MAX && !self.0.contains_key(&key) {
            self.0.pop_first();
        }
        self.0.insert(key, now);
        true
    }
}

impl Teller {
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
    use intellect_protocol::base::id::Digest;

    use super::*;

    fn fork(first_epoch: u64, undone: u64, held: bool) -> Fork {
        let head = |byte| Head { epoch: 300, tokens: 1, state: Digest([byte; 32]) };
        Fork { first_epoch, mine: head(0xaa), theirs: head(0xbb), undone, held }
    }

    #[test]
    fn a_fork_that_lasts_is_told_once_and_then_each_minute() {
        let (mut forks, start) = (Forks::default(), Instant::now());
        let second = Duration::from_secs(1);
        for held in [false, true] {
            let told = (0..130).filter(|at| forks.is_due(&fork(7, 0, held), start + second * *at));
            assert_eq!(told.count(), 3, "at 0, 60 and 120 s");
        }
        assert!(forks.is_due(&fork(8, 0, false), start + second), "another one");
        assert!(forks.is_due(&fork(7, 5, false), start + second * 121), "now something is undone");
        for epoch in 0..1_000 {
            forks.is_due(&fork(epoch, 0, false), start);
        }
        assert_eq!(forks.0.len(), FORKS_MAX);
    }

    #[test]
    fn whoever_has_to_do_something_is_told_what() {
        let held = fork(234, 0, true).sentence();
        assert!(held.contains("would undo 67 epochs") && held.contains(&"bb".repeat(32)), "{held}");
        let ours = fork(234, 0, false).sentence();
        assert!(ours.contains("ours goes on") && ours.contains(&"aa".repeat(32)), "{ours}");
        assert!(fork(234, 1, false).sentence().ends_with("1 epoch of ours undone"));
    }
}
