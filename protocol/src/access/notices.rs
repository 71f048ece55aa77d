//! What the organiser says after the manifest: the bytes and signature of a [`Notice`], and the chain of them that
//! a peer knows (G11, T8).
//!
//! ```text
//! body     bincode of (number, digest of the one before, attestation or membership update)
//! signed   by the organiser, in the domain "notice"
//! ```
//!
//! Each notice names the digest of the one before, so of a chain any may be missed and comes later. There is one
//! rule of conflict, [`Notices::learn`]. What an attestation means for a lineage is for `sync`, what a membership
//! update means for the [`ledger`](crate::access::ledger).

use std::collections::BTreeMap;
use std::sync::Arc;

use thiserror::Error;

use crate::access::admit::{Level, NOTICE_BYTES_MAX};
use crate::base::id::{Digest, PeerId, RunId};
use crate::base::sign::{Keypair, Signature, verify};
use crate::message::wire;
use crate::message::{Attestation, Body, Clause, Notice};

/// How many are kept, the newest: far more than ever wait for a receipt, and than there are states that all have lost.
pub const NOTICES_KEPT: usize = 56;

/// Number and digest of a notice; zeros before the first.
pub type Point = (u64, Digest);

/// The domain of the signature.
const TAG: &str = "notice";

/// Why a notice does not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum NoticeError {
    /// For another run.
    #[error("the notice is for run {of}, not for {run}: use one of this run")]
    AnotherRun {
        /// This run.
        run: RunId,
        /// The notice's.
        of: RunId,
    },
    /// Nothing can be said so.
    #[error("notice {number} {why}")]
    Form {
        /// Its number.
        number: u64,
        /// What is wrong, and what to do.
        why: &'static str,
    },
    /// Who is in is decided in no open run.
    #[error("this run is open to everybody: nobody is let in or revoked")]
    Open,
    /// Somebody else signed it, or nobody.
    #[error(
        "the organiser {organiser} has not signed notice {number}: use the key of the organiser"
    )]
    Forged {
        /// Who should have.
        organiser: PeerId,
        /// Its number.
        number: u64,
    },
    /// It does not follow on one that is known, or that one on it.
    #[error(
        "notice {number} does not fit notice {known}, which is known: the organiser has to make the next one \
         from the newest"
    )]
    Follows {
        /// Its number.
        number: u64,
        /// The number of the other one.
        known: u64,
    },
}

impl Notice {
    /// The organiser's notice after the one at `before`.
    #[must_use]
    pub fn after(run: RunId, (number, before): Point, body: Body, organiser: &Keypair) -> Self {
        let (number, signature) = (number.saturating_add(1), Signature([0; 64]));
        let mut notice = Self { run, number, before, body, signature };
        notice.signature = organiser.sign(TAG, &run, &notice.signed());
        notice
    }

    /// What is signed.
    fn signed(&self) -> Vec<u8> {
        wire::canonical(&(self.number, self.before, &self.body))
    }

    /// Its number, and the digest by which the next one names it.
    #[must_use]
    pub fn place(&self) -> Point {
        let bytes = [self.run.as_bytes().as_slice(), &self.signed()].concat();
        (self.number, Digest::derive("intellect-node 1 notice", &bytes))
    }

    /// As kept beside a manifest, and as handed out with it: at most [`NOTICE_BYTES_MAX`].
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        wire::canonical(self)
    }

    /// Reads one, of which nothing is verified; `None` if it is not one.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        (bytes.len() <= NOTICE_BYTES_MAX).then(|| wire::from_canonical(bytes)).flatten()
    }

    /// The state that it attests, if any.
    #[must_use]
    pub fn attests(&self) -> Option<&Attestation> {
        match &self.body {
            Body::Attestation(attestation) => Some(attestation),
            Body::Membership(_) => None,
        }
    }

    /// What it changes of who is in.
    #[must_use]
    pub fn clauses(&self) -> &[Clause] {
        match &self.body {
            Body::Attestation(_) => &[],
            Body::Membership(clauses) => clauses,
        }
    }

    /// Whether it can be, and the organiser of `run` has signed it; its place in the chain is for [`Notices`] and the
    /// ledger. This is ed25519 also where peers' keys are simulated.
    ///
    /// # Errors
    /// [`NoticeError`], with the remedy.
    pub fn verify(&self, organiser: &PeerId, run: &RunId) -> Result<(), NoticeError> {
        let number = self.number;
        if self.run != *run {
            return Err(NoticeError::AnotherRun { run: *run, of: self.run });
        }
        let why = match &self.body {
            _ if number == 0 || (number == 1) != (self.before == Digest::ZERO) => {
                Some("is out of place: numbers begin with 1, and the first one names none before")
            }
            _ if self.to_bytes().len() > NOTICE_BYTES_MAX => Some("is too long: split it into two"),
            Body::Attestation(attestation) if attestation.epoch == 0 => {
                Some("attests genesis, which needs none: take an epoch of at least 1")
            }
            Body::Membership(clauses) if clauses.is_empty() => {
                Some("decides nothing: give it a clause")
            }
            Body::Attestation(_) | Body::Membership(_) => None,
        };
        if let Some(why) = why {
            return Err(NoticeError::Form { number, why });
        }
        if !verify(organiser, TAG, run, &self.signed(), &self.signature) {
            return Err(NoticeError::Forged { organiser: *organiser, number });
        }
        Ok(())
    }
}

impl Attestation {
    /// Whether a lineage lies on it that has this receipt and this state at its epoch.
    #[must_use]
    pub fn names(&self, r: &Digest, state: &Digest) -> bool {
        (&self.r, &self.state) == (r, state)
    }
}

/// The notices of a run that are known: the newest, and some before it. Every one is signed by the organiser, and of
/// two whose numbers follow the second one names the first.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Notices {
    run: RunId,
    organiser: PeerId,
    level: Level,
    known: BTreeMap<u64, Arc<Notice>>,
}

impl Notices {
    /// None yet.
    #[must_use]
    pub fn new(run: RunId, organiser: PeerId, level: Level) -> Self {
        Self { run, organiser, level, known: BTreeMap::new() }
    }

    /// Those of `notices` that hold, after none.
    #[must_use]
    pub fn with<'a>(mut self, notices: impl IntoIterator<Item = &'a Notice>) -> Self {
        for notice in notices {
            // One that does not hold is as good as none.
            let _known = self.learn((0, Digest::ZERO), notice);
        }
        self
    }

    /// Whether the organiser has signed a notice, and may say that in such a run.
    ///
    /// # Errors
    /// [`NoticeError`].
    pub fn check(&self, notice: &Notice) -> Result<(), NoticeError> {
        notice.verify(&self.organiser, &self.run)?;
        match (&notice.body, self.level) {
            (Body::Membership(_), Level::Open) => Err(NoticeError::Open),
            _ => Ok(()),
        }
    }

    /// T8: takes a notice that anybody may have brought, where the lineage has come to the one at `base`. Returns
    /// whether it is new. Of two that do not fit the one in the lineage stands, else the one that follows on that
    /// without a gap, else the one with the smaller digest.
    ///
    /// # Errors
    /// [`NoticeError`]; of these only [`NoticeError::Follows`] may be the organiser's mistake.
    pub fn learn(&mut self, base: Point, notice: &Notice) -> Result<bool, NoticeError> {
        let (number, digest) = notice.place();
        let known = self.known.get(&number);
        if known.is_some_and(|known| **known == *notice) {
            return Ok(false);
        }
        self.check(notice)?;
        let least = self.known.keys().next().copied().unwrap_or(0);
        let reaches = self.reaches(base, notice);
        let stays = |known: &Arc<Notice>| {
            known.place().1 <= digest && (!reaches || self.reaches(base, known))
        };
        if known.is_some_and(stays) || (self.known.len() >= NOTICES_KEPT && number < least) {
            return Ok(false);
        }
        if !fits_base(base, notice) {
            return Err(NoticeError::Follows { number, known: base.0 });
        }
        let mut beyond = None;
        for other in self.known.values().filter(|other| other.number != number) {
            let later = other.number > number;
            let (first, second) = if later { (notice, &**other) } else { (&**other, notice) };
            if may_follow(second, first) {
                continue;
            }
            if !(later && reaches) {
                return Err(NoticeError::Follows { number, known: other.number });
            }
            beyond.get_or_insert(other.number);
        }
        if let Some(beyond) = beyond {
            self.known.split_off(&beyond);
        }
        self.known.insert(number, Arc::new(notice.clone()));
        if self.known.len() > NOTICES_KEPT {
            self.known.pop_first();
        }
        Ok(true)
    }

    /// Whether a notice follows on `base` without a gap.
    fn reaches(&self, base: Point, notice: &Notice) -> bool {
        let Some(between) = notice.number.checked_sub(base.0.saturating_add(1)) else {
            return false;
        };
        let chain = self.after(base, usize::try_from(between).unwrap_or(usize::MAX));
        let last = chain.last().map_or(base, |last| last.place());
        last == (notice.number - 1, notice.before)
    }

    /// The lineage has come to the notice at `base`: what does not fit that is dropped.
    pub fn settle(&mut self, base: Point) {
        let fits = |notice: &&Arc<Notice>| fits_base(base, notice);
        let next = base.0.saturating_add(1);
        if ![base.0, next]
            .iter()
            .filter_map(|number| self.known.get(number))
            .all(|notice| fits(&notice))
        {
            self.known.retain(|number, _| *number < base.0);
        }
    }

    /// All that are known, the lowest number first.
    pub fn all(&self) -> impl DoubleEndedIterator<Item = &Arc<Notice>> {
        self.known.values()
    }

    /// The newest one.
    #[must_use]
    pub fn newest(&self) -> Option<&Arc<Notice>> {
        self.known.values().next_back()
    }

    /// Where the next one follows.
    #[must_use]
    pub fn last(&self) -> Point {
        self.newest().map_or((0, Digest::ZERO), |notice| notice.place())
    }

    /// The one of that number.
    #[must_use]
    pub fn get(&self, number: u64) -> Option<&Arc<Notice>> {
        self.known.get(&number)
    }

    /// The `most` next ones after `base`, as far as they are known without a gap.
    #[must_use]
    pub fn after(&self, mut base: Point, most: usize) -> Vec<Arc<Notice>> {
        let mut all = Vec::new();
        while all.len() < most
            && let Some(next) = self.known.get(&base.0.saturating_add(1))
            && next.before == base.1
        {
            base = next.place();
            all.push(Arc::clone(next));
        }
        all
    }

    /// Those that lead from `before` to `after`, as far as they are known, the lowest number first.
    #[must_use]
    pub fn between(&self, before: Point, after: Point) -> Vec<Arc<Notice>> {
        let (mut place, mut all) = (after, Vec::new());
        while place.0 > before.0
            && let Some(notice) = self.known.get(&place.0).filter(|known| known.place() == place)
        {
            all.push(Arc::clone(notice));
            place = (place.0 - 1, notice.before);
        }
        all.reverse();
        all
    }

    /// The attestations, the highest number first.
    pub fn attestations(&self) -> impl Iterator<Item = (u64, &Attestation)> {
        let all = self.known.values().rev();
        all.filter_map(|notice| notice.attests().map(|attestation| (notice.number, attestation)))
    }
}

fn fits_base((number, digest): Point, notice: &Notice) -> bool {
    match notice.number.checked_sub(number) {
        Some(0) => notice.place().1 == digest,
        Some(1) => notice.before == digest,
        Some(_) | None => true,
    }
}

/// Whether a notice can come after an earlier one.
fn may_follow(notice: &Notice, earlier: &Notice) -> bool {
    let rises = match (notice.attests(), earlier.attests()) {
        (Some(second), Some(first)) => second.epoch > first.epoch,
        _ => true,
    };
    let next = earlier.number.checked_add(1) == Some(notice.number);
    rises && (!next || notice.before == earlier.place().1)
}

#[cfg(test)]
mod tests;
