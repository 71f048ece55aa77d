//! One donor: what may be requested from it, and when.
//!
//! A donor begins with one open request. Each quick answer allows one more, up to four; a slow
//! answer, a refusal or a silence sets it back to one.

use std::time::Duration;

use super::{END, QUICK, SLOW};
use crate::base::id::PeerId;
use crate::base::time::Time;

/// What the transfer knows about a donor.
#[derive(Clone, Debug)]
pub(super) struct Donor {
    pub(super) peer: PeerId,
    /// Parts or pieces that it has delivered, and that were kept.
    pub(super) delivered: u64,
    /// Requests in a row that it left unanswered.
    pub(super) unanswered: u32,
    /// It lied, or failed too often: it is not asked any more.
    pub(super) excluded: bool,
    /// It has had nothing to give since the last bytes came from any donor.
    pub(super) empty: bool,
    /// Refusals in a row, of which those at one time count once.
    pub(super) refused: u32,
    /// Requests that may be open at it.
    limit: usize,
    /// The length of its next pause, when it has nothing to give.
    pause: Duration,
    /// It is not asked before this time.
    paused_until: Time,
}

impl Donor {
    /// A donor that has not been asked yet.
    pub(super) fn new(peer: PeerId) -> Self {
        let (delivered, unanswered, refused, limit) = (0, 0, 0, 1);
        let (excluded, empty, pause, paused_until) = (false, false, QUICK, Time::ZERO);
        Self { peer, delivered, unanswered, excluded, empty, refused, limit, pause, paused_until }
    }

    /// Whether it may get one more request while `open` requests are open at it.
    pub(super) fn is_free(&self, now: Time, open: usize) -> bool {
        !self.excluded && open < self.limit && self.paused_until <= now
    }

    /// It has delivered bytes of use, after this time.
    pub(super) fn note_answer(&mut self, took: Duration) {
        (self.unanswered, self.refused) = (0, 0);
        (self.delivered, self.pause) = (self.delivered + 1, QUICK);
        if took <= QUICK {
            self.limit = (self.limit + 1).min(OPEN_MAX);
        } else if took >= SLOW {
            self.limit = 1;
        }
    }

    /// It has nothing to give now. Refusals of requests that were open at the same time count once.
    pub(super) fn note_refusal(&mut self, now: Time) {
        self.empty = true;
        if self.paused_until <= now {
            self.paused_until = now + self.pause;
            self.pause = (2 * self.pause).min(END);
            self.refused += 1;
            self.excluded |= self.refused >= REFUSED_MAX;
        }
        self.limit = 1;
    }

    /// It has not answered within [`END`].
    pub(super) fn note_silence(&mut self) {
        self.unanswered += 1;
        self.excluded |= self.unanswered >= UNANSWERED_MAX;
        self.limit = 1;
    }
}

/// Requests that are open at one donor at once.
const OPEN_MAX: usize = 4;

/// Requests in a row that a donor may leave unanswered.
const UNANSWERED_MAX: u32 = 2;

/// Requests in a row that a donor may refuse: with the pauses between them, for a minute.
const REFUSED_MAX: u32 = 6;

#[cfg(test)]
mod tests {
    use super::*;

    /// The length of each pause in seconds, until it is excluded.
    fn pauses() -> Vec<u64> {
        let mut donor = Donor::new(PeerId([1; 32]));
        let (mut now, mut pauses) = (Time(1), Vec::new());
        while !donor.excluded {
            // Refusals at the same time count once.
            donor.note_refusal(now);
            donor.note_refusal(now);
            let begin = now;
            while !donor.excluded && !donor.is_free(now, 0) {
                now = now + Duration::from_secs(1);
            }
            pauses.push(now.since(begin).as_secs());
        }
        pauses
    }

    /// Each pause is twice the one before, up to a bound; after six refusals the donor is excluded.
    #[test]
    fn pauses_grow_to_a_bound_and_end() {
        assert_eq!(pauses(), [2, 4, 8, 16, 30, 0]);
    }
}
