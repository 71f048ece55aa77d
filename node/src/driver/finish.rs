//! How a node ends: at its last epoch it lingers until the others are there too; on Ctrl-C it
//! takes leave (R29); always in under 5 s.

use std::time::{Duration, Instant};

use intellect_protocol::peer::Input;

use super::Driver;
use crate::net::Net;

/// At the last epoch: how long the others are waited for.
const LINGER: Duration = Duration::from_secs(5);

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
    lingering: Option<Instant>,
    leaving: Option<Instant>,
    over: bool,
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
        [self.lingering, self.leaving].into_iter().flatten().min()
    }

    /// Notes the head; true once, when it is the last one.
    pub(super) fn reach(&mut self, epoch: u64, tokens: u64, now: Instant) -> bool {
        let done = self.epochs.is_some_and(|last| epoch >= last)
            || self.stop_tokens.is_some_and(|last| tokens >= last);
        if done && !self.is_reached() {
            self.lingering = Some(now + LINGER);
            return true;
        }
        false
    }
}

impl Driver {
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

    /// At the last epoch: leaves when every live member is seen on that head.
    pub(super) fn consider_finishing(&mut self) {
        let Some(until) = self.finish.lingering else { return };
        let epoch = self.peer.head().epoch;
        let now = self.now();
        let all = self.peer.roll().live(now).all(|(_, seen)| seen.beat.head.epoch >= epoch);
        if (all && !self.saving) || Instant::now() >= until {
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
}
