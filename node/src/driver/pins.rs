//! Checkpoints that somebody is fetching stay served, although newer ones have taken their place.
//!
//! The newest three are kept. A slow joiner needs longer than three epochs for one, so one that was
//! asked for within the last minute is *pinned*: its file has no name any more, but stays open.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use intellect_protocol::id::Digest;

use crate::store::Saved;

/// Pinned at once: each is a checkpoint on disk beyond those that are kept.
pub(crate) const PINNED_MAX: usize = 2;

/// Who still fetches one asks for a piece of it within this time: as long as a request may take, twice.
const ASKED_WITHIN: Duration = Duration::from_secs(60);

/// What was asked for, and what is pinned for it.
#[derive(Debug, Default)]
pub(super) struct Pins {
    asked: BTreeMap<Digest, Instant>,
    pinned: Vec<Saved>,
}

impl Pins {
    /// A state that is served here was asked for.
    pub(super) fn note(&mut self, state: Digest, now: Instant) {
        self.asked.insert(state, now);
        self.forget(now);
    }

    /// One that newer ones replace: it is pinned if somebody is fetching it.
    pub(super) fn retire(&mut self, saved: Saved, now: Instant) {
        self.forget(now);
        if self.asked.contains_key(&saved.state) {
            self.pinned.push(saved);
        }
        let asked = &self.asked;
        self.pinned.sort_by_key(|saved| std::cmp::Reverse(asked.get(&saved.state).copied()));
        self.pinned.truncate(PINNED_MAX);
    }

    /// The pinned one of this state.
    pub(super) fn get(&self, state: &Digest) -> Option<&Saved> {
        self.pinned.iter().find(|saved| saved.state == *state)
    }

    fn forget(&mut self, now: Instant) {
        self.asked.retain(|_, at| now.duration_since(*at) < ASKED_WITHIN);
        let asked = &self.asked;
        self.pinned.retain(|saved| asked.contains_key(&saved.state));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use intellect_protocol::checkpoint::{Header, Table};
    use intellect_protocol::id::RunId;

    use super::*;
    use crate::store::Store;

    #[test]
    fn what_is_being_fetched_stays_readable_and_no_more_than_two() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path(), RunId([1; 32])).unwrap();
        let save = |epoch| {
            let (run, r) = (RunId([1; 32]), Digest([2; 32]));
            let header = Header { run, epoch, tokens: 9, r, parameters: 2 };
            let table = Table::of(header, &[1.0, 2.0], &[3.0, 4.0]).unwrap();
            store.save(Arc::new(table), &[1.0, 2.0], &[3.0, 4.0]).unwrap()
        };
        let saved: Vec<Saved> = (1..=6).map(save).collect();
        let (mut pins, start) = (Pins::default(), Instant::now());
        let at = |s| start + Duration::from_secs(s);
        for (saved, s) in saved[..3].iter().zip(1..) {
            pins.note(saved.state, at(s));
        }
        saved[..4].iter().for_each(|saved| pins.retire(saved.clone(), at(5)));
        let pinned: Vec<bool> =
            saved.iter().map(|saved| pins.get(&saved.state).is_some()).collect();
        assert_eq!(pinned, [false, true, true, false, false, false]);
        // The files of the first three are gone, and one of them is served all the same.
        assert_eq!(store.checkpoints().unwrap().len(), 3);
        assert_eq!(pins.get(&saved[1].state).unwrap().piece(0).unwrap().len(), 8);
        pins.note(saved[2].state, at(40));
        pins.note(saved[5].state, at(63));
        assert!(pins.get(&saved[1].state).is_none() && pins.get(&saved[2].state).is_some());
    }
}
