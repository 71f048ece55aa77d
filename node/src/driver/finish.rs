//! How a node ends. At its last epoch it keeps serving until the other peers have reached it too, as long as
//! a peer that is behind makes progress. On Ctrl-C it leaves (R29), in under 5 s.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use intellect_protocol::base::id::PeerId;

use crate::net::FETCH_TIMEOUT;

/// The node leaves after this time in which no peer that is behind made a request or progress. A fetch takes
/// no longer, so no answer is under way then.
const LINGER: Duration = FETCH_TIMEOUT;

/// The longest time for which a node waits for peers that are behind, even if they make progress.
const LINGER_MAX: Duration = Duration::from_mins(10);

/// The longest time for which a node waits for its last state to be written: 30 GB on a stick of 10 MB/s.
const WRITING_MAX: Duration = Duration::from_mins(60);

/// How often it looks then whether that is done.
const WRITING_LOOK: Duration = Duration::from_secs(1);

/// How long an open ring or vote may take after Ctrl-C; the state gives up sooner.
const LEAVE: Duration = Duration::from_millis(4_300);

/// Why an epoch is the last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Goal {
    /// The run has trained on `stop_tokens` of its manifest: it is complete for all peers.
    Tokens,
    /// The epoch after which the user stops this node (`--epochs`).
    Epochs,
}

/// How far the node is with its end.
#[derive(Debug, Default)]
pub(super) struct Finish {
    /// The epoch after which to stop, from `--epochs`.
    pub(super) epochs: Option<u64>,
    /// The tokens after which the run is complete, from the manifest; `None` for a run without an
    /// end.
    stop_tokens: Option<u64>,
    /// The goal that was reached first, and whether an earlier start had reached it.
    pub(super) reached: Option<(Goal, bool)>,
    /// The wait for peers that are behind. It ends as soon as leaving begins.
    lingering: Option<Linger>,
    /// Until when this node waits for the end of an open ring or vote, once it leaves.
    leaving: Option<Instant>,
    /// Whether the state has said goodbye, so that nothing is left to wait for.
    over: bool,
    /// Whether the node starts again after its end.
    pub(super) restarts: bool,
    /// The epoch whose update no peer has.
    pub(super) lost: Option<u64>,
}

/// The wait for peers that are behind.
#[derive(Debug)]
struct Linger {
    /// Until when, without a request or progress.
    until: Instant,
    /// Until when in any case, so that a peer that is always behind cannot hold this node.
    end: Instant,
    /// The heads of the peers that are behind, when last seen.
    behind: BTreeMap<PeerId, u64>,
    /// Whether it waits for the disk alone.
    writes: bool,
}

impl Linger {
    fn new(now: Instant) -> Self {
        Self { until: now + LINGER, end: now + LINGER_MAX, behind: BTreeMap::new(), writes: false }
    }

    /// Moves the end of the wait, but not beyond [`LINGER_MAX`].
    fn extend(&mut self, now: Instant) {
        self.until = (now + LINGER).min(self.end);
    }
}

impl Finish {
    /// No goal is reached yet. A run may have either goal, both, or none.
    pub(super) fn new(epochs: Option<u64>, stop_tokens: Option<u64>) -> Self {
        Self { epochs, stop_tokens, ..Self::default() }
    }

    /// Whether the loop ends: the goodbye is said, or it took too long.
    pub(super) fn is_over(&self, now: Instant) -> bool {
        self.over || self.leaving.is_some_and(|until| now >= until)
    }

    /// Whether nothing is left to train.
    pub(super) fn is_reached(&self) -> bool {
        self.lingering.is_some() || self.leaving.is_some()
    }

    /// Notes that the state has said goodbye.
    pub(super) fn left(&mut self) {
        self.over = true;
    }

    /// Notes that the state wants another start. A node that is leaving ends.
    pub(super) fn restart(&mut self) {
        (self.over, self.restarts) = (true, self.leaving.is_none());
    }

    /// When the loop must look at this again, if it ends or waits.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let lingering = self.lingering.as_ref().map(|linger| linger.until);
        [lingering, self.leaving].into_iter().flatten().min()
    }

    /// Notes that a peer asked for something, which extends the wait.
    pub(super) fn helps(&mut self, now: Instant) {
        if let Some(linger) = &mut self.lingering {
            linger.extend(now);
        }
    }

    /// Notes the head, which an earlier start reached where `before`. Returns the goal that it reaches, the
    /// first time only.
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

    /// Whether the run was complete before this start.
    pub(super) fn is_past(&self) -> bool {
        self.reached == Some((Goal::Tokens, true))
    }

    /// Begins to leave; false if that has begun before.
    pub(super) fn leave(&mut self, now: Instant) -> bool {
        self.lingering = None;
        let begins = self.leaving.is_none();
        self.leaving = self.leaving.or(Some(now + LEAVE));
        begins
    }

    /// Notes the heads of the peers that are behind the last one, `epoch`. Returns how many of them are more
    /// than one epoch behind, if that number has grown; the heartbeat of a peer that is one epoch behind may
    /// still be on its way.
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

    /// Whether the wait for peers that are behind is over, if there is one.
    pub(super) fn has_lingered(&self, now: Instant) -> Option<bool> {
        self.lingering.as_ref().map(|linger| now >= linger.until)
    }

    /// Waits on while the last state is written: without it the run would have no model. Returns whether it waits, and
    /// whether that is news.
    pub(super) fn await_disk(&mut self, now: Instant) -> Option<bool> {
        let linger = self.lingering.as_mut().filter(|linger| now < linger.end + WRITING_MAX)?;
        linger.until = now + WRITING_LOOK;
        Some(!std::mem::replace(&mut linger.writes, true))
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
        assert_eq!(finish.reached, Some((Goal::Epochs, false)));
        let mut endless = Finish::new(None, None);
        assert_eq!(endless.reach(u64::MAX, u64::MAX, false, now), None);
        let mut both = Finish::new(Some(1), Some(100));
        assert_eq!(both.reach(1, 100, true, now), Some(Goal::Tokens), "complete for everybody");
        assert_eq!(both.reached, Some((Goal::Tokens, true)));
    }

    #[test]
    fn a_peer_that_is_behind_is_waited_for_while_it_asks_up_to_a_bound() {
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

    #[test]
    fn the_last_state_is_waited_for_up_to_a_bound() {
        let now = Instant::now();
        let mut finish = Finish::new(Some(3), None);
        assert_eq!(finish.await_disk(now), None);
        finish.reach(3, 0, false, now);
        assert_eq!(finish.await_disk(now + LINGER), Some(true));
        assert_eq!(finish.await_disk(now + LINGER_MAX), Some(false));
        assert_eq!(finish.deadline(), Some(now + LINGER_MAX + WRITING_LOOK));
        assert_eq!(finish.await_disk(now + LINGER_MAX + WRITING_MAX), None);
    }
}
