//! How many messages are read of each author (D1): what is above is dropped before anything is
//! decoded or verified.
//!
//! A message can be repeated by anybody, and gossip carries repeats on. If they were counted
//! together with what comes over the author's own connection, whoever repeats its old messages fast
//! enough would silence it. So each author has two budgets: one that only its own connection can
//! use up, which is its fault, and one for what others bring of it, which is nobody's.
//!
//! Equation and limits as in `net::pace`: `left ← min(burst, left + rate · Δt)`, a message takes one.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use intellect_protocol::id::PeerId;

/// The budgets of all authors.
#[derive(Debug, Default)]
pub(super) struct Budgets {
    own: Buckets,
    brought: Buckets,
}

/// Whether a message is to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ruling {
    /// It is within its author's budget.
    Read,
    /// It is above what others may bring of its author.
    Ignore,
    /// Its author sends more than anybody needs to.
    Fault,
}

impl Budgets {
    /// Counts a message of `author` that came over the connection of `from`. That it is of `author`
    /// is only what it says: a lie uses up nothing of what `author` sends itself.
    pub(super) fn take(&mut self, author: PeerId, from: PeerId, now: Instant) -> Ruling {
        let own = author == from;
        let buckets = if own { &mut self.own } else { &mut self.brought };
        match (buckets.take(author, now), own) {
            (true, _) => Ruling::Read,
            (false, true) => Ruling::Fault,
            (false, false) => Ruling::Ignore,
        }
    }
}

#[derive(Debug, Default)]
struct Buckets(BTreeMap<PeerId, Bucket>);

#[derive(Debug)]
struct Bucket {
    left: f64,
    at: Instant,
}

impl Buckets {
    fn take(&mut self, author: PeerId, now: Instant) -> bool {
        if self.0.len() >= AUTHORS_MAX && !self.0.contains_key(&author) {
            self.0.retain(|_, bucket| now.duration_since(bucket.at) < FORGET_AFTER);
            if self.0.len() >= AUTHORS_MAX {
                return false;
            }
        }
        let bucket = self.0.entry(author).or_insert(Bucket { left: MESSAGES_BURST, at: now });
        let since = now.duration_since(bucket.at).as_secs_f64();
        bucket.left = (bucket.left + since * MESSAGES_PER_S).min(MESSAGES_BURST);
        bucket.at = now;
        let free = bucket.left >= 1.0;
        if free {
            bucket.left -= 1.0;
        }
        free
    }
}

/// Messages a second and author that are read, and how many may come at once (docs/FORMATS.md).
pub(super) const MESSAGES_PER_S: f64 = 64.0;
const MESSAGES_BURST: f64 = 256.0;

/// Authors whose messages are counted: what the view can hold.
const AUTHORS_MAX: usize = 1_024;

/// A full budget is the same as none; it fills up in 4 s.
const FORGET_AFTER: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    const A: PeerId = PeerId([1; 32]);
    const B: PeerId = PeerId([2; 32]);

    #[test]
    fn what_others_repeat_of_an_author_uses_up_nothing_of_its_own() {
        let (mut budgets, now) = (Budgets::default(), Instant::now());
        let brought = |budgets: &mut Budgets| budgets.take(A, B, now);
        assert!((0..256).all(|_| brought(&mut budgets) == Ruling::Read));
        assert_eq!(brought(&mut budgets), Ruling::Ignore);
        assert_eq!(budgets.take(A, A, now), Ruling::Read);
        assert_eq!(budgets.take(B, B, now), Ruling::Read);
    }

    #[test]
    fn who_sends_too_much_itself_is_at_fault_until_it_rests() {
        let (mut budgets, now) = (Budgets::default(), Instant::now());
        assert!((0..256).all(|_| budgets.take(A, A, now) == Ruling::Read));
        assert_eq!(budgets.take(A, A, now), Ruling::Fault);
        let later = now + Duration::from_secs(1);
        assert!((0..64).all(|_| budgets.take(A, A, later) == Ruling::Read));
        assert_eq!(budgets.take(A, A, later), Ruling::Fault);
    }

    #[test]
    fn a_crowd_that_one_peer_invents_locks_nobody_out_who_speaks_for_itself() {
        let (mut budgets, now) = (Budgets::default(), Instant::now());
        for invented in 0..2_000_u16 {
            let mut author = [9; 32];
            author[..2].copy_from_slice(&invented.to_le_bytes());
            budgets.take(PeerId(author), B, now);
        }
        assert_eq!(budgets.take(A, B, now), Ruling::Ignore);
        assert_eq!(budgets.take(A, A, now), Ruling::Read);
        assert_eq!(budgets.take(A, B, now + FORGET_AFTER), Ruling::Read);
    }
}
