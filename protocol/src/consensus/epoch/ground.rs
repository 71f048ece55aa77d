//! What proves the votes that others name: the Accepts of a majority for the roster that was voted
//! on (R5, R8).
//!
//! Naming a vote costs nothing. So a vote that nobody can prove counts for nothing, as if its
//! author had not answered. Lamport, "Byzantizing Paxos by Refinement" (2011): what a voter says
//! about its past carries what allowed it.

use std::collections::BTreeMap;

use crate::message::{MEMBERS_MAX, Ranked, Voted};

/// The votes of the open epoch that are proven to us; a full table drops the lowest.
#[derive(Clone, Debug, Default)]
pub(super) struct Grounds(BTreeMap<Ranked, Voted>);

impl Grounds {
    /// The proof of this vote, to send along or to adopt its value.
    pub(super) fn get(&self, vote: &Ranked) -> Option<&Voted> {
        self.0.get(vote)
    }

    /// Whether this vote is proven, so that it counts (R8).
    pub(super) fn knows(&self, vote: &Ranked) -> bool {
        self.0.contains_key(vote)
    }

    /// Stores a proof that was verified, or is our own.
    pub(super) fn insert(&mut self, vote: Ranked, voted: Voted) {
        self.0.insert(vote, voted);
        if self.0.len() > MEMBERS_MAX {
            self.0.pop_first();
        }
    }
}
