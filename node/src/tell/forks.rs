//! Sentences about two lineages that met. The protocol reports a fork each time it hears the other lineage; people
//! see it once, and again each minute while it lasts.
//!
//! A fork about which a person has to decide is a [`Reason`], and is said for as long as nobody has decided.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use intellect_protocol::base::id::Digest;
use intellect_protocol::message::Head;

use super::{Console, Reason, events};
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
    /// The sentence for people about a fork that the rule decides. It names the state for
    /// `--follow`, since only a person can decide against the rule.
    fn sentence(&self) -> String {
        let Self { first_epoch, mine, theirs, undone, .. } = self;
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

/// The forks that were reported, and the one that is left for a person to decide about.
#[derive(Clone, Debug, Default)]
pub(super) struct Forks {
    /// When each was last reported, by its first epoch and whether a person has to decide. At most
    /// [`FORKS_MAX`] of them: the one that began first makes room, and would be reported once more.
    reported: BTreeMap<(u64, bool), Instant>,
    /// The newest one about which a person has to decide.
    held: Option<Fork>,
}

impl Forks {
    /// Leaves nothing for a person: the organiser has decided, or no other lineage exists any more.
    pub(super) fn hold_none(&mut self) {
        self.held = None;
    }

    /// Takes a fork, and returns whether to report it now. A fork that undoes epochs is always reported.
    fn is_due(&mut self, fork: &Fork, now: Instant) -> bool {
        let key = (fork.first_epoch, fork.held);
        let is_recent = |at: &Instant| now.saturating_duration_since(*at) < AGAIN;
        if fork.held || fork.undone > 0 {
            // This node has gone over to a lineage, or has met one that it may not follow.
            self.held = fork.held.then_some(*fork);
        }
        if fork.undone == 0 && self.reported.get(&key).is_some_and(is_recent) {
            return false;
        }
        if self.reported.len() >= FORKS_MAX && !self.reported.contains_key(&key) {
            self.reported.pop_first();
        }
        self.reported.insert(key, now);
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

    /// Why a person has to decide which lineage this node follows; `None` if the rule decides.
    pub(crate) fn forked(&self) -> Option<Reason> {
        let Fork { first_epoch, theirs, .. } = self.forks.held?;
        let undone = self.epoch.saturating_sub(first_epoch).saturating_add(1);
        Some(Reason::Forked { first_epoch, undone, theirs: theirs.state })
    }

    /// No other lineage than ours can exist any more.
    pub(super) fn fork_excluded(&mut self, first_epoch: u64) {
        self.forks.hold_none();
        self.emit(None, events::Event::ForkExcluded { first_epoch });
    }

    /// Reports a fork, unless it was reported within the last minute. The event is as seldom as the
    /// sentence. Where a person has to decide, the sentence is that of the [`Reason`].
    pub(super) fn fork(&mut self, fork: Fork) {
        if !self.forks.is_due(&fork, Instant::now()) {
            return;
        }
        if !fork.held {
            self.say(&fork.sentence());
        }
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
        assert_eq!(forks.reported.len(), FORKS_MAX);
    }

    /// What is held stays so until another lineage is followed, or the organiser decides.
    #[test]
    fn a_fork_that_a_person_decides_about_is_held_until_it_is_decided() {
        let (mut forks, now) = (Forks::default(), Instant::now());
        let mut held_after = |fork: &Fork| {
            forks.is_due(fork, now);
            forks.held.map(|fork| fork.first_epoch)
        };
        assert_eq!(held_after(&fork(5, 0, false)), None, "the rule decides");
        assert_eq!(held_after(&fork(7, 0, true)), Some(7));
        assert_eq!(held_after(&fork(5, 0, false)), Some(7), "ours goes on beside both");
        assert_eq!(held_after(&fork(7, 3, false)), None, "this node has gone over");
        assert_eq!(held_after(&fork(9, 0, true)), Some(9));
        forks.hold_none();
        assert!(forks.held.is_none());
    }

    #[test]
    fn the_sentence_says_what_a_person_has_to_type() {
        let ours = fork(234, 0, false).sentence();
        assert!(ours.contains("ours goes on") && ours.contains(&"aa".repeat(32)), "{ours}");
        assert!(fork(234, 1, false).sentence().ends_with("1 epoch of ours undone"));
    }
}
