//! One donor: what may be asked of it, and when.

use std::time::Duration;

use super::{END, QUICK, SLOW};
use crate::base::id::PeerId;
use crate::base::time::Time;

/// What is known of a donor.
#[derive(Clone, Debug)]
pub(super) struct Donor {
    pub(super) peer: PeerId,
    /// Answers that were of use.
    pub(super) delivered: u64,
    /// Requests in a row that it left unanswered.
    pub(super) unanswered: u32,
    /// It is not asked any more.
    pub(super) out: bool,
    /// It has had nothing to give since anybody delivered something.
    pub(super) empty: bool,
    /// Requests in a row that it refused.
    refused: u32,
    /// Requests that may be open at it.
    limit: usize,
    /// How long it is put aside when it has nothing to give.
    pause: Duration,
    /// It is put aside until this time.
    aside: Time,
}

impl Donor {
    /// A donor of which nothing is known.
    pub(super) fn new(peer: PeerId) -> Self {
        let (delivered, unanswered, refused, limit) = (0, 0, 0, 1);
        let (out, empty, pause, aside) = (false, false, QUICK, Time::ZERO);
        Self { peer, delivered, unanswered, out, empty, refused, limit, pause, aside }
    }

    /// Whether it may get one more request while `open` requests are open at it.
    pub(super) fn is_free(&self, now: Time, open: usize) -> bool {
        !self.out && open < self.limit && self.aside <= now
    }

    /// The donor has answered.
    pub(super) fn note_answer(&mut self, took: Duration) {
        (self.unanswered, self.refused) = (0, 0);
        (self.delivered, self.pause) = (self.delivered + 1, QUICK);
        if took <= QUICK {
            self.limit = (self.limit + 1).min(OPEN_MAX);
        } else if took >= SLOW {
            self.limit = 1;
        }
    }

    /// The donor has nothing to give now. What it was asked for at the same time is not counted
    /// twice.
    pub(super) fn put_aside(&mut self, now: Time) {
        self.empty = true;
        if self.aside <= now {
            self.aside = now + self.pause;
            self.pause = (2 * self.pause).min(END);
            self.refused += 1;
            self.out |= self.refused >= REFUSED_MAX;
        }
        self.limit = 1;
    }

    /// The donor has not answered within [`END`].
    pub(super) fn note_silence(&mut self) {
        self.unanswered += 1;
        self.out |= self.unanswered >= UNANSWERED_MAX;
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

    /// How long it was put aside each time, in seconds, until it is left out.
    fn pauses() -> Vec<u64> {
        let mut donor = Donor::new(PeerId([1; 32]));
        let (mut now, mut pauses) = (Time(1), Vec::new());
        while !donor.out {
            // Refusals at once are one.
            donor.put_aside(now);
            donor.put_aside(now);
            let begin = now;
            while !donor.out && !donor.is_free(now, 0) {
                now = now + Duration::from_secs(1);
            }
            pauses.push(now.since(begin).as_secs());
        }
        pauses
    }

    /// The pause after each refusal is twice the one before, up to a bound; after six it is left out.
    #[test]
    fn pauses_grow_to_a_bound_and_end() {
        assert_eq!(pauses(), [2, 4, 8, 16, 30, 0]);
    }
}
