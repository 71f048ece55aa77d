//! The replies that voters have missed (G9): some voters say that they live, and answer neither a
//! Query nor a roster.
//!
//! A heartbeat costs nothing, so it proves no will to take part. A voter that has missed a reply at
//! several deadlines of one epoch, over long enough, counts as absent for a Regroup until it
//! replies. Each peer keeps its own account; reports of others do not count.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::base::id::PeerId;
use crate::base::time::Time;

/// The missed replies of the open epoch, by voter.
#[derive(Clone, Debug, Default)]
pub(super) struct MissedReplies(BTreeMap<PeerId, Missed>);

/// How many deadlines a voter has missed, and since when: since the first of them.
#[derive(Clone, Copy, Debug)]
struct Missed {
    count: u32,
    since: Time,
    /// Whether it did answer that something else binds it.
    bound: bool,
}

/// Deadlines at which a voter must have missed a reply: one may pass by bad luck, two on a slow
/// link.
const DEADLINES: u32 = 3;

impl MissedReplies {
    /// A deadline passed at which this voter had not replied.
    pub(super) fn note(&mut self, who: PeerId, now: Time) {
        let missed = self.0.entry(who).or_insert(Missed { count: 0, since: now, bound: false });
        missed.count += 1;
    }

    /// The voter has sent the reply, or a message that costs it as much.
    pub(super) fn clear(&mut self, who: &PeerId) {
        self.0.remove(who);
    }

    /// The voter has answered that something else binds it. That may be true, and lasts as long as
    /// a ring.
    pub(super) fn note_bound(&mut self, who: &PeerId) {
        if let Some(missed) = self.0.get_mut(who) {
            missed.bound = true;
        }
    }

    /// Whether it counts as unresponsive: for longer than `grace`, plus `ring` if it says that it
    /// is bound.
    pub(super) fn is_unresponsive(
        &self,
        who: &PeerId,
        now: Time,
        grace: Duration,
        ring: impl FnOnce() -> Duration,
    ) -> bool {
        self.0.get(who).filter(|missed| missed.count >= DEADLINES).is_some_and(|missed| {
            let bound = if missed.bound { ring() } else { Duration::ZERO };
            now.since(missed.since) >= grace + bound
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRACE: Duration = Duration::from_secs(8);
    const RING: Duration = Duration::from_secs(60);
    const WHO: PeerId = PeerId([1; 32]);

    fn at(seconds: u64) -> Time {
        Time::ZERO + Duration::from_secs(seconds)
    }

    #[test]
    fn g9_three_missed_replies_over_the_grace_count_until_a_reply() {
        let mut replies = MissedReplies::default();
        for second in [0, 1, 2] {
            replies.note(WHO, at(second));
        }
        assert!(!replies.is_unresponsive(&WHO, at(7), GRACE, || RING));
        assert!(replies.is_unresponsive(&WHO, at(8), GRACE, || RING));
        replies.clear(&WHO);
        assert!(!replies.is_unresponsive(&WHO, at(8), GRACE, || RING));
        for second in [10, 30] {
            replies.note(WHO, at(second));
        }
        assert!(
            !replies.is_unresponsive(&WHO, at(40), GRACE, || RING),
            "two deadlines may be bad luck"
        );
    }

    #[test]
    fn g9_a_voter_bound_elsewhere_has_as_long_as_a_ring() {
        let mut replies = MissedReplies::default();
        for second in [0, 1, 2] {
            replies.note(WHO, at(second));
        }
        replies.note_bound(&WHO);
        assert!(!replies.is_unresponsive(&WHO, at(67), GRACE, || RING));
        assert!(replies.is_unresponsive(&WHO, at(68), GRACE, || RING));
    }
}
