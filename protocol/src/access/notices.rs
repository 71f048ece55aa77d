//! What the organiser says after the manifest: the bytes and signature of a [`Notice`], and the
//! chain of notices that a peer knows (G11, T8).
//!
//! ```text
//! body     bincode of (number, digest of the one before, attestation or membership update)
//! signed   by the organiser, in the domain "notice"
//! ```
//!
//! Each notice names the digest of the one before, so one that was missed can be told from one that
//! was never signed, and may come later. There is one rule for conflicts, [`Notices::learn`].
//! `sync` decides what an attestation means for a lineage, and the
//! [`ledger`](crate::access::ledger) what a membership update means.

use std::collections::BTreeMap;
use std::sync::Arc;

use thiserror::Error;

use crate::access::admit::{Level, NOTICE_BYTES_MAX};
use crate::base::fault::require;
use crate::base::id::{Digest, PeerId, RunId};
use crate::base::sign::{Keypair, Signature, verify};
use crate::message::{Attestation, Body, Clause, Notice, wire};

/// How many notices are kept, the newest ones: far more than ever wait for a receipt.
pub const NOTICES_KEPT: usize = 56;

/// Number and digest of a notice; both zero before the first.
pub type Point = (u64, Digest);

const TAG: &str = "notice";

/// Why a notice is refused; the text names the remedy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum NoticeError {
    /// The notice is for another run.
    #[error("the notice is for run {of}, not for {run}: use a notice of this run")]
    AnotherRun {
        /// The run that checks the notice.
        run: RunId,
        /// The run that it was signed for.
        of: RunId,
    },
    /// Its number, length or content is impossible.
    #[error("notice {number} {why}")]
    Form {
        /// Number of the notice in the chain.
        number: u64,
        /// What is wrong and what to do, as the end of the sentence.
        why: &'static str,
    },
    /// An open run has no membership that a notice could change.
    #[error(
        "this run is open: no peer can be admitted or revoked; make an invitation-only run for that"
    )]
    Open,
    /// The organiser's signature is missing or wrong.
    #[error(
        "notice {number} is not signed by the organiser {organiser}: sign it with the key of the organiser"
    )]
    Forged {
        /// The key that should have signed.
        organiser: PeerId,
        /// Number of the notice in the chain.
        number: u64,
    },
    /// It contradicts a known notice: it does not follow on that one, or that one on it.
    #[error(
        "notice {number} contradicts notice {known}, which is known: the organiser has to make the next one \
         from the newest"
    )]
    Follows {
        /// Number of the notice in the chain.
        number: u64,
        /// Number of the notice that contradicts it.
        known: u64,
    },
}

impl Notice {
    /// The organiser's notice that follows the one at `before`.
    #[must_use]
    pub fn after(run: RunId, (number, before): Point, body: Body, organiser: &Keypair) -> Self {
        let (number, signature) = (number.saturating_add(1), Signature([0; 64]));
        let mut notice = Self { run, number, before, body, signature };
        notice.signature = organiser.sign(TAG, &run, &notice.signed());
        notice
    }

    /// What the organiser signs: all but the run, which the signature covers anyway.
    fn signed(&self) -> Vec<u8> {
        wire::canonical(&(self.number, self.before, &self.body))
    }

    /// Its number, and the digest by which the next notice names it.
    pub fn place(&self) -> Point {
        let bytes = [self.run.as_bytes().as_slice(), &self.signed()].concat();
        (self.number, Digest::derive("intellect-node 1 notice", &bytes))
    }

    /// Canonical bytes, as stored beside a manifest and handed out with it;
    /// at most [`NOTICE_BYTES_MAX`].
    pub fn to_bytes(&self) -> Vec<u8> {
        wire::canonical(self)
    }

    /// Reads a notice without any check of its content; `None` if the bytes
    /// are too long or not canonical.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        (bytes.len() <= NOTICE_BYTES_MAX).then(|| wire::from_canonical(bytes)).flatten()
    }

    /// The attestation in it; `None` for a membership update.
    pub fn attests(&self) -> Option<&Attestation> {
        match &self.body {
            Body::Attestation(attestation) => Some(attestation),
            Body::Membership(_) => None,
        }
    }

    /// The membership changes in it; none for an attestation.
    pub fn clauses(&self) -> &[Clause] {
        match &self.body {
            Body::Attestation(_) => &[],
            Body::Membership(clauses) => clauses,
        }
    }

    /// Whether its content is possible and the organiser of `run` has signed it. Its position
    /// in the chain is checked by [`Notices`] and the ledger. The signature is ed25519 even
    /// where peers' keys are simulated.
    ///
    /// # Errors
    /// [`NoticeError`]; its text names the remedy.
    pub fn verify(&self, organiser: &PeerId, run: &RunId) -> Result<(), NoticeError> {
        let number = self.number;
        require(self.run == *run, NoticeError::AnotherRun { run: *run, of: self.run })?;
        let why = match &self.body {
            _ if number == 0 || (number == 1) != (self.before == Digest::ZERO) => Some(
                "has a wrong number: numbers begin with 1, and only the first notice names none before it",
            ),
            _ if self.to_bytes().len() > NOTICE_BYTES_MAX => Some("is too long: split it into two"),
            Body::Attestation(attestation) if attestation.epoch == 0 => {
                Some("attests genesis, which needs none: take an epoch of at least 1")
            }
            Body::Membership(clauses) if clauses.is_empty() => Some("has no clause: add one"),
            Body::Attestation(_) | Body::Membership(_) => None,
        };
        if let Some(why) = why {
            return Err(NoticeError::Form { number, why });
        }
        let signed = verify(organiser, TAG, run, &self.signed(), &self.signature);
        require(signed, NoticeError::Forged { organiser: *organiser, number })
    }
}

impl Attestation {
    /// Whether a lineage with this receipt and this state at the attested
    /// epoch lies on the attestation.
    #[must_use]
    pub fn names(&self, r: &Digest, state: &Digest) -> bool {
        (&self.r, &self.state) == (r, state)
    }
}

/// The known notices of a run, at most [`NOTICES_KEPT`]: the newest one and some before it. The
/// organiser has signed each, and of two with consecutive numbers the second names the first.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Notices {
    run: RunId,
    organiser: PeerId,
    level: Level,
    known: BTreeMap<u64, Arc<Notice>>,
}

impl Notices {
    /// The empty chain of a run: no notice is known yet.
    #[must_use]
    pub fn new(run: RunId, organiser: PeerId, level: Level) -> Self {
        Self { run, organiser, level, known: BTreeMap::new() }
    }

    /// The chain with those of `notices` that pass every check.
    #[must_use]
    pub fn with<'a>(mut self, notices: impl IntoIterator<Item = &'a Notice>) -> Self {
        for notice in notices {
            // A notice that fails the check counts as absent.
            let _known = self.learn((0, Digest::ZERO), notice);
        }
        self
    }

    /// Whether the last notice about a peer, by its name, lets it in.
    #[must_use]
    pub fn admit(&self, peer: &PeerId) -> bool {
        let clauses = self.known.values().flat_map(|notice| notice.clauses());
        let mut about = clauses.filter_map(|clause| match clause {
            Clause::Admit(named) if named == peer => Some(true),
            Clause::RevokePeer(named) if named == peer => Some(false),
            _ => None,
        });
        about.next_back() == Some(true)
    }

    /// Whether the organiser has signed a notice, and a run of this level may have such a one.
    ///
    /// # Errors
    /// [`NoticeError`]; its text names the remedy.
    pub fn check(&self, notice: &Notice) -> Result<(), NoticeError> {
        notice.verify(&self.organiser, &self.run)?;
        let lawful = self.level != Level::Open || notice.attests().is_some();
        require(lawful, NoticeError::Open)
    }

    /// T8: takes a notice from any source, where the lineage has carried notices up to `base`, and
    /// returns whether it is new. If two contradict each other, the one in the lineage stays, else
    /// the one that follows on that without a gap, else the one with the smaller digest. So a new
    /// one can push out later ones that do not follow on it.
    ///
    /// # Errors
    /// [`NoticeError`]; only [`NoticeError::Follows`] can be the organiser's mistake.
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
        require(fits_base(base, notice), NoticeError::Follows { number, known: base.0 })?;
        let mut beyond = None;
        for other in self.known.values().filter(|other| other.number != number) {
            let later = other.number > number;
            let (first, second) = if later { (notice, &**other) } else { (&**other, notice) };
            if may_follow(second, first) {
                continue;
            }
            require(later && reaches, NoticeError::Follows { number, known: other.number })?;
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

    /// Whether every notice between `base` and this one is known, and they form a chain.
    fn reaches(&self, base: Point, notice: &Notice) -> bool {
        let Some(between) = notice.number.checked_sub(base.0.saturating_add(1)) else {
            return false;
        };
        let chain = self.after(base, usize::try_from(between).unwrap_or(usize::MAX));
        let last = chain.last().map_or(base, |last| last.place());
        last == (notice.number - 1, notice.before)
    }

    /// The lineage has carried the notice at `base`: drops what contradicts it.
    pub fn settle(&mut self, base: Point) {
        let near = [base.0, base.0.saturating_add(1)].map(|number| self.known.get(&number));
        if !near.into_iter().flatten().all(|notice| fits_base(base, notice)) {
            self.known.retain(|number, _| *number < base.0);
        }
    }

    /// All known notices by rising number.
    pub fn all(&self) -> impl DoubleEndedIterator<Item = &Arc<Notice>> {
        self.known.values()
    }

    /// The notice with the highest number.
    pub fn newest(&self) -> Option<&Arc<Notice>> {
        self.known.values().next_back()
    }

    /// The point that the next notice has to follow.
    pub fn last(&self) -> Point {
        self.newest().map_or((0, Digest::ZERO), |notice| notice.place())
    }

    /// The known notice of this number.
    pub fn get(&self, number: u64) -> Option<&Arc<Notice>> {
        self.known.get(&number)
    }

    /// At most `most` notices that follow `base` without a gap. It stops at the first that is
    /// missing, so those behind a gap wait until that one arrives (T8).
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

    /// The known notices that lead from `before` to `after`, by rising number. The chain is
    /// followed back from `after` until one is missing.
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

    /// The known attestations by falling number, each with its number.
    pub fn attestations(&self) -> impl Iterator<Item = (u64, &Attestation)> {
        let all = self.known.values().rev();
        all.filter_map(|notice| notice.attests().map(|attestation| (notice.number, attestation)))
    }
}

/// Whether a notice agrees with `base`, the last notice that the lineage carries, where they touch.
fn fits_base((number, digest): Point, notice: &Notice) -> bool {
    match notice.number.checked_sub(number) {
        Some(0) => notice.place().1 == digest,
        Some(1) => notice.before == digest,
        Some(_) | None => true,
    }
}

/// Whether a notice can come after an earlier one: attested epochs rise, and digests match.
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
