//! How a node ends: at its last epoch it lingers until the others are there too, and for as long as
//! somebody who is behind comes nearer; on Ctrl-C it takes leave (R29), in under 5 s.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use intellect_protocol::event::Event;
use intellect_protocol::id::PeerId;
use intellect_protocol::message::Phase;
use intellect_protocol::peer::Input;

use super::Driver;
use crate::net::{FETCH_TIMEOUT, Net};
use crate::tell::Lack;

/// At the last epoch: who is behind has so long to ask for something, or to get on; so no answer is under
/// way any more when we leave.
const LINGER: Duration = FETCH_TIMEOUT;

/// However busy they are: what a node may be held up by those who never arrive.
const LINGER_MAX: Duration = Duration::from_mins(10);

/// After Ctrl-C: how long the open ring or vote is waited for; the state gives up before.
const LEAVE: Duration = Duration::from_millis(4_300);

/// For the last bytes to leave, and the last checkpoint to be written.
const CLOSE: Duration = Duration::from_millis(500);

/// Where the end stands.
#[derive(Debug, Default)]
pub(super) struct Finish {
    /// The head at which the run, or the user's wish, is fulfilled.
    epochs: Option<u64>,
    stop_tokens: Option<u64>,
    lingering: Option<Linger>,
    leaving: Option<Instant>,
    over: bool,
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

    /// Notes the head; true once, when it is the last one.
    pub(super) fn reach(&mut self, epoch: u64, tokens: u64, now: Instant) -> bool {
        let done = self.epochs.is_some_and(|last| epoch >= last)
            || self.stop_tokens.is_some_and(|last| tokens >= last);
        if done && !self.is_reached() {
            self.lingering = Some(Linger::new(now));
            return true;
        }
        false
    }
}

impl Driver {
    /// Tells of what the protocol reports, and notes where it got to.
    pub(super) fn on_event(&mut self, event: Event) {
        let moved = matches!(event, Event::Committed(_) | Event::CaughtUp { .. });
        self.tell.event(event, self.peer.roll());
        if moved {
            self.reach();
        }
    }

    /// Notes the head, and whether it is the last one.
    pub(super) fn reach(&mut self) {
        let head = self.peer.head();
        if self.finish.reach(head.epoch, head.tokens, Instant::now()) {
            self.tell.reached(head.epoch, self.finish.epochs);
        }
    }

    /// Says whom the run waits for here, if it does.
    pub(super) fn tell_waiting(&mut self) {
        let moves = self.finish.is_reached() || self.peer.phase().0 == Phase::Behind;
        let peers_min = usize::try_from(self.manifest.run.members.min_peers).unwrap_or(usize::MAX);
        let (me, now) = (self.key.peer(), self.now());
        let lack = || Lack::of(me, self.peer.series(), peers_min, self.peer.roll(), now);
        let lack = if moves { None } else { lack() };
        self.tell.waiting(lack);
    }

    /// Ctrl-C: takes leave; false at the second one, which ends it now.
    pub(super) fn interrupt(&mut self) -> bool {
        if self.finish.leaving.is_some() {
            return false;
        }
        self.take_leave();
        true
    }

    fn take_leave(&mut self) {
        self.finish.lingering = None;
        self.finish.leaving = Some(Instant::now() + LEAVE);
        self.tell.leaving();
        self.input(Input::Leave);
    }

    /// At the last epoch: leaves when every live member is seen on that head, or none that is behind gets
    /// on.
    pub(super) fn consider_finishing(&mut self) {
        let (epoch, now) = (self.peer.head().epoch, self.now());
        let Some(linger) = &mut self.finish.lingering else { return };
        let live = self.peer.roll().live(now).map(|(peer, seen)| (*peer, seen.beat.head.epoch));
        let behind: BTreeMap<PeerId, u64> = live.filter(|(_, head)| *head < epoch).collect();
        if behind.iter().any(|(peer, head)| linger.behind.get(peer) != Some(head)) {
            // Heartbeats of the last epoch are on their way; further behind is really behind.
            let far =
                |heads: &BTreeMap<PeerId, u64>| heads.values().filter(|h| **h + 1 < epoch).count();
            if far(&behind) > far(&linger.behind) {
                self.tell.lingering(epoch, far(&behind));
            }
            linger.extend(Instant::now());
            linger.behind.clone_from(&behind);
        }
        if (behind.is_empty() && !self.saving) || Instant::now() >= linger.until {
            self.take_leave();
        }
    }

    /// Lets the last messages leave and the last checkpoint be written.
    pub(super) async fn close(mut self, net: Net) {
        let until = tokio::time::Instant::now() + CLOSE;
        while self.saving || self.outbox.is_open() {
            match tokio::time::timeout_at(until, self.jobs.join_next()).await {
                Ok(Some(Ok(super::Done::Saved(result)))) => self.on_saved(result),
                Ok(Some(Ok(super::Done::Written(written)))) => self.on_written(*written),
                Ok(Some(_)) => {}
                Ok(None) | Err(_) => break,
            }
        }
        self.stop.cancel();
        drop(tokio::time::timeout(CLOSE, net.task).await);
        self.tell.left();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_epoch_is_an_absolute_number_and_is_reached_once() {
        let now = Instant::now();
        let mut finish = Finish::new(Some(3), None);
        assert!(!finish.reach(2, 0, now));
        assert!(finish.reach(5, 0, now) && finish.is_reached());
        assert!(!finish.reach(6, 0, now));
        let mut endless = Finish::new(None, None);
        assert!(!endless.reach(u64::MAX, u64::MAX, now));
        assert!(Finish::new(None, Some(100)).reach(1, 100, now));
    }

    #[test]
    fn who_is_behind_is_waited_for_while_it_asks_and_not_for_ever() {
        let now = Instant::now();
        let mut finish = Finish::new(Some(3), None);
        finish.helps(now);
        assert_eq!(finish.deadline(), None);
        assert!(finish.reach(3, 0, now));
        assert_eq!(finish.deadline(), Some(now + LINGER));
        finish.helps(now + LINGER / 2);
        assert_eq!(finish.deadline(), Some(now + LINGER / 2 + LINGER));
        finish.helps(now + LINGER_MAX);
        assert_eq!(finish.deadline(), Some(now + LINGER_MAX));
    }
}
