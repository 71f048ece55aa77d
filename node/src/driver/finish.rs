//! How a node ends: at its last epoch it lingers until the others are there too, and for as long as
//! somebody who is behind comes nearer; on Ctrl-C it takes leave (R29), in under 5 s.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use intellect_protocol::base::id::PeerId;

use crate::net::FETCH_TIMEOUT;

/// How long a peer that is behind the last epoch may neither ask for anything nor get on, before
/// this node leaves. A fetch takes no longer, so no answer is under way any more then.
const LINGER: Duration = FETCH_TIMEOUT;

/// The longest time for which a node waits for those who are behind, however busy they are.
const LINGER_MAX: Duration = Duration::from_mins(10);

/// How long the open ring or vote is waited for after Ctrl-C; the state gives up before.
const LEAVE: Duration = Duration::from_millis(4_300);

/// What is fulfilled at the last epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Goal {
    /// The run has the tokens that its manifest asks for (`stop_tokens`): it is complete for everybody.
    Tokens,
    /// The epoch at which this node's user wants it to stop (`--epochs`).
    Epochs,
}

/// Where the end stands.
#[derive(Debug, Default)]
pub(super) struct Finish {
    /// The head at which the run, or the user's wish, is fulfilled.
    pub(super) epochs: Option<u64>,
    stop_tokens: Option<u64>,
    /// What was fulfilled first, and whether it was before this start.
    reached: Option<(Goal, bool)>,
    lingering: Option<Linger>,
    leaving: Option<Instant>,
    over: bool,
    /// The epoch whose update nobody has.
    pub(super) lost: Option<u64>,
}

/// The wait for those who are behind.
#[derive(Debug)]
struct Linger {
    /// Until when, if nobody gets on.
    until: Instant,
    /// Until when in any case.
    end: Instant,
    /// The heads of those who are behind, when last seen.
    behind: BTreeMap<PeerId, u64>,
}

impl Linger {
    fn new(now: Instant) -> Self {
        Self { until: now + LINGER, end: now + LINGER_MAX, behind: BTreeMap::new() }
    }

    fn extend(&mut self, now: Instant) {
        self.until = (now + LINGER).min(self.end);
    }
}

impl Finish {
    pub(super) fn new(epochs: Option<u64>, stop_tokens: Option<u64>) -> Self {
        Self { epochs, stop_tokens, ..Self::default() }
    }

    pub(super) fn is_over(&self, now: Instant) -> bool {
        self.over || self.leaving.is_some_and(|until| now >= until)
    }

    /// Whether there is nothing left to train.
    pub(super) fn is_reached(&self) -> bool {
        self.lingering.is_some() || self.leaving.is_some()
    }

    pub(super) fn left(&mut self) {
        self.over = true;
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        let lingering = self.lingering.as_ref().map(|linger| linger.until);
        [lingering, self.leaving].into_iter().flatten().min()
    }

    /// Somebody asked us for something.
    pub(super) fn helps(&mut self, now: Instant) {
        if let Some(linger) = &mut self.lingering {
            linger.extend(now);
        }
    }

    /// Notes the head, of an earlier start where `before`. Returns once what is fulfilled, when it is the
    /// last one.
    pub(super) fn reach(
        &mut self,
        epoch: u64,
        tokens: u64,
        before: bool,
        now: Instant,
    ) -> Option<Goal> {
        let goal = if self.stop_tokens.is_some_and(|last| tokens >= last) {
            Goal::Tokens
        } else if self.epochs.is_some_and(|last| epoch >= last) {
            Goal::Epochs
        } else {
            return None;
        };
        if self.is_reached() {
            return None;
        }
        self.lingering = Some(Linger::new(now));
        self.reached = Some((goal, before));
        Some(goal)
    }

    /// What was fulfilled, and whether it was before this start.
    pub(super) fn reached(&self) -> Option<(Goal, bool)> {
        self.reached
    }

    /// Begins to take leave; false if that has begun.
    pub(super) fn leave(&mut self, now: Instant) -> bool {
        self.lingering = None;
        let begins = self.leaving.is_none();
        self.leaving = self.leaving.or(Some(now + LEAVE));
        begins
    }

    /// Notes the heads of those who are behind the last one, `epoch`. Returns how many are far
    /// behind, if that is more than before. Who is one epoch behind does not count: its heartbeat
    /// of the last epoch may be on its way.
    pub(super) fn note_behind(
        &mut self,
        now: Instant,
        epoch: u64,
        behind: BTreeMap<PeerId, u64>,
    ) -> Option<usize> {
        let linger = self.lingering.as_mut()?;
        if behind.iter().all(|(peer, head)| linger.behind.get(peer) == Some(head)) {
            return None;
        }
        let far =
            |heads: &BTreeMap<PeerId, u64>| heads.values().filter(|h| **h + 1 < epoch).count();
        let (before, after) = (far(&linger.behind), far(&behind));
        linger.extend(now);
        linger.behind = behind;
        (after > before).then_some(after)
    }

    /// Whether those who are behind have had their time, if they are waited for.
    pub(super) fn has_lingered(&self, now: Instant) -> Option<bool> {
        self.lingering.as_ref().map(|linger| now >= linger.until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_epoch_is_an_absolute_number_and_is_reached_once() {
        let now = Instant::now();
        let mut finish = Finish::new(Some(3), None);
        assert_eq!(finish.reach(2, 0, false, now), None);
        assert_eq!(finish.reach(5, 0, false, now), Some(Goal::Epochs));
        assert!(finish.is_reached());
        assert_eq!(finish.reach(6, 0, false, now), None);
        assert_eq!(finish.reached(), Some((Goal::Epochs, false)));
        let mut endless = Finish::new(None, None);
        assert_eq!(endless.reach(u64::MAX, u64::MAX, false, now), None);
        let mut both = Finish::new(Some(1), Some(100));
        assert_eq!(both.reach(1, 100, true, now), Some(Goal::Tokens), "complete for everybody");
        assert_eq!(both.reached(), Some((Goal::Tokens, true)));
    }

    #[test]
    fn who_is_behind_is_waited_for_while_it_asks_and_not_for_ever() {
        let now = Instant::now();
        let mut finish = Finish::new(Some(3), None);
        finish.helps(now);
        assert_eq!(finish.deadline(), None);
        assert_eq!(finish.reach(3, 0, false, now), Some(Goal::Epochs));
        assert_eq!(finish.deadline(), Some(now + LINGER));
        finish.helps(now + LINGER / 2);
        assert_eq!(finish.deadline(), Some(now + LINGER / 2 + LINGER));
        finish.helps(now + LINGER_MAX);
        assert_eq!(finish.deadline(), Some(now + LINGER_MAX));
    }
}
