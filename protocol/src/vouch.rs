//! What the organiser vouches for: the bytes and signature of a [`Vouch`], and the few of them that a
//! peer keeps (G11).
//!
//! ```text
//! body     bincode of (run, number, digest of the one before, epoch, state, r)
//! signed   by the organiser, in the domain "vouch"
//! bytes    body ‖ signature [64]: what lies beside a manifest, and is served with it
//! ```
//!
//! Each vouch extends the one before: it names its digest, and an epoch after it. Whoever makes one holds
//! both, so of a chain of them any link may be missed. What a vouch means for a lineage is for `sync`.

use std::collections::BTreeMap;

use thiserror::Error;

use crate::id::{Digest, PeerId, RunId};
use crate::message::{Head, Vouch};
use crate::sign::{Keypair, verify};
use crate::time::Time;
use crate::wire;

/// Longest vouch, in bytes.
pub const VOUCH_BYTES_MAX: usize = 32 + 9 + 32 + 9 + 32 + 32 + 64;

/// How many are kept. One is enough while the state that the newest names is known.
pub const VOUCHES_KEPT: usize = 8;

/// The domain of the signature.
const TAG: &str = "vouch";

/// Why a vouch does not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum VouchError {
    /// Not the bytes of any.
    #[error("this is no vouch, or it is damaged: ask the organiser for it again")]
    Malformed,
    /// Of another run.
    #[error("this vouch is for run {found}, not for {run}: use the one of this run")]
    OtherRun {
        /// Its run.
        found: RunId,
        /// Ours.
        run: RunId,
    },
    /// Genesis needs none, and numbers begin with 1.
    #[error("a vouch has a number and an epoch of at least 1, and the first one names none before")]
    Number,
    /// Somebody else signed it, or nobody.
    #[error("the organiser {organiser} has not signed this vouch")]
    Forged {
        /// Who should have.
        organiser: PeerId,
    },
    /// It does not follow on one that is known, or that one on it.
    #[error(
        "vouch {number} does not extend vouch {known}, which is known: \
         the organiser has to make the next one from the newest"
    )]
    Extends {
        /// Its number.
        number: u64,
        /// The number of the other one.
        known: u64,
    },
}

impl Vouch {
    /// Vouches for `head`, whose receipt has the digest `r`, after the vouch `before`.
    ///
    /// # Errors
    /// [`VouchError::Number`] for genesis; [`VouchError::Extends`] if the epoch is not after that of `before`.
    pub fn new(
        organiser: &Keypair,
        run: RunId,
        before: Option<&Self>,
        head: &Head,
        r: Digest,
    ) -> Result<Self, VouchError> {
        let number = before.map_or(0, |before| before.number).checked_add(1);
        let mut vouch = Self {
            run,
            number: number.ok_or(VouchError::Number)?,
            before: before.map_or(Digest::ZERO, Self::digest),
            epoch: head.epoch,
            state: head.state,
            r,
            signature: crate::sign::Signature([0; 64]),
        };
        vouch.signature = organiser.sign(TAG, &run, &vouch.body());
        vouch.verify(&organiser.peer(), &run)?;
        before.map_or(Ok(()), |before| vouch.check_after(before))?;
        Ok(vouch)
    }

    /// What is signed.
    fn body(&self) -> Vec<u8> {
        let Self { run, number, before, epoch, state, r, .. } = self;
        wire::canonical(&(run, number, before, epoch, state, r))
    }

    /// The digest by which the next one names it.
    #[must_use]
    pub fn digest(&self) -> Digest {
        Digest::derive("intellect-node 1 vouch", &self.body())
    }

    /// As kept beside a manifest, and as served with it: at most [`VOUCH_BYTES_MAX`].
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        wire::canonical(self)
    }

    /// Reads what anyone may have written, and verifies it.
    ///
    /// # Errors
    /// [`VouchError`]; nothing was believed.
    pub fn from_bytes(bytes: &[u8], organiser: &PeerId, run: &RunId) -> Result<Self, VouchError> {
        if bytes.len() > VOUCH_BYTES_MAX {
            return Err(VouchError::Malformed);
        }
        let vouch: Self = wire::open_paper(bytes).ok_or(VouchError::Malformed)?;
        vouch.verify(organiser, run)?;
        Ok(vouch)
    }

    /// Whether the organiser of `run` has signed it. This is ed25519 also where peers' keys are simulated.
    ///
    /// # Errors
    /// [`VouchError`].
    pub fn verify(&self, organiser: &PeerId, run: &RunId) -> Result<(), VouchError> {
        if self.run != *run {
            return Err(VouchError::OtherRun { found: self.run, run: *run });
        }
        let first = self.number == 1;
        if self.number == 0 || self.epoch == 0 || first != (self.before == Digest::ZERO) {
            return Err(VouchError::Number);
        }
        if !verify(organiser, TAG, run, &self.body(), &self.signature) {
            return Err(VouchError::Forged { organiser: *organiser });
        }
        Ok(())
    }

    /// Whether it can come after an earlier one.
    ///
    /// # Errors
    /// [`VouchError::Extends`].
    pub fn check_after(&self, earlier: &Self) -> Result<(), VouchError> {
        let next = earlier.number.checked_add(1) == Some(self.number);
        let extends = self.number > earlier.number
            && self.epoch > earlier.epoch
            && (!next || self.before == earlier.digest());
        if extends {
            return Ok(());
        }
        Err(VouchError::Extends { number: self.number, known: earlier.number })
    }

    /// Whether a lineage lies on it that has this receipt and this state at its epoch.
    #[must_use]
    pub fn names(&self, r: &Digest, state: &Digest) -> bool {
        (&self.r, &self.state) == (r, state)
    }
}

/// The vouches that a peer knows: the newest, and a few before it for the case that nobody has the state
/// that the newest one names.
#[derive(Clone, Debug)]
pub struct Vouches {
    organiser: PeerId,
    run: RunId,
    known: BTreeMap<u64, Vouch>,
    /// What was said of them.
    pub(crate) passed: Passed,
}

/// What was said of vouches, and when.
#[derive(Clone, Debug, Default)]
pub(crate) struct Passed {
    /// When the newest one came to be known.
    pub(crate) since: Time,
    /// Whether it is still to be gossiped.
    pub(crate) is_due: bool,
    /// When one was gossiped last.
    pub(crate) gossiped: Option<Time>,
    /// Who was told one lately, and when.
    pub(crate) told: BTreeMap<PeerId, Time>,
}

impl Vouches {
    /// None yet.
    #[must_use]
    pub fn new(organiser: PeerId, run: RunId) -> Self {
        Self { organiser, run, known: BTreeMap::new(), passed: Passed::default() }
    }

    /// Takes one that anyone may have brought. Returns whether it is new. Of two with one number the one with
    /// the smaller digest stays, with everybody.
    ///
    /// # Errors
    /// [`VouchError`]; of these only [`VouchError::Extends`] may be the organiser's mistake.
    pub fn take(&mut self, vouch: &Vouch) -> Result<bool, VouchError> {
        vouch.verify(&self.organiser, &self.run)?;
        let least = self.known.keys().next().copied().unwrap_or(0);
        let stays = |other: &Vouch| other.digest() <= vouch.digest();
        if self.known.get(&vouch.number).is_some_and(stays)
            || (self.known.len() >= VOUCHES_KEPT && vouch.number < least)
        {
            return Ok(false);
        }
        for (number, other) in &self.known {
            match number.cmp(&vouch.number) {
                std::cmp::Ordering::Less => vouch.check_after(other)?,
                std::cmp::Ordering::Equal => {}
                std::cmp::Ordering::Greater => other.check_after(vouch)?,
            }
        }
        self.known.insert(vouch.number, vouch.clone());
        if self.known.len() > VOUCHES_KEPT {
            self.known.pop_first();
        }
        Ok(true)
    }

    /// The newest one.
    #[must_use]
    pub fn newest(&self) -> Option<&Vouch> {
        self.known.values().next_back()
    }

    /// The number of the newest one; 0: none.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.newest().map_or(0, |vouch| vouch.number)
    }

    /// The one of that number.
    #[must_use]
    pub fn get(&self, number: u64) -> Option<&Vouch> {
        self.known.get(&number)
    }

    /// The number of the highest one that `lies` holds for; 0: none.
    pub fn highest(&self, lies: impl Fn(&Vouch) -> bool) -> u64 {
        self.known.values().rev().find(|vouch| lies(vouch)).map_or(0, |vouch| vouch.number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUN: RunId = RunId([2; 32]);

    fn organiser() -> Keypair {
        Keypair::from_seed(&[1; 32])
    }

    fn vouch(before: Option<&Vouch>, epoch: u64, state: u8) -> Vouch {
        let head = Head { epoch, tokens: 7, state: Digest([state; 32]) };
        Vouch::new(&organiser(), RUN, before, &head, Digest([9; 32])).unwrap()
    }

    fn vouches() -> Vouches {
        Vouches::new(organiser().peer(), RUN)
    }

    #[test]
    fn g11_a_vouch_has_its_golden_bytes() {
        let bytes = vouch(None, 300, 5).to_bytes();
        let body = [&[2; 32][..], &[1], &[0; 32], &[0xfb, 0x2c, 0x01], &[5; 32], &[9; 32]].concat();
        assert_eq!(bytes[..bytes.len() - 64], body);
        let signature = crate::sign::Signature(bytes[bytes.len() - 64..].try_into().unwrap());
        assert!(verify(&organiser().peer(), "vouch", &RUN, &body, &signature));
        let read = |bytes: &[u8]| Vouch::from_bytes(bytes, &organiser().peer(), &RUN);
        assert_eq!(read(&bytes), Ok(vouch(None, 300, 5)));
        for bit in 0..8 * bytes.len() {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(read(&flipped).is_err(), "bit {bit}");
        }
        assert_eq!(read(&bytes[..bytes.len() - 1]), Err(VouchError::Malformed));
        assert_eq!(read(&[&bytes[..], &[0]].concat()), Err(VouchError::Malformed));
        assert_eq!(read(&[0; VOUCH_BYTES_MAX + 1]), Err(VouchError::Malformed));
        let longest =
            vouch(Some(&Vouch { number: u64::MAX - 1, ..vouch(None, 1, 1) }), u64::MAX, 5);
        assert_eq!(longest.to_bytes().len(), VOUCH_BYTES_MAX);
    }

    #[test]
    fn g11_only_the_organiser_vouches_and_for_one_run() {
        let (good, other) = (vouch(None, 3, 5), Keypair::from_seed(&[8; 32]));
        let (me, run) = (organiser().peer(), RunId([4; 32]));
        let forged = VouchError::Forged { organiser: other.peer() };
        assert_eq!(good.verify(&other.peer(), &RUN), Err(forged));
        assert_eq!(good.verify(&me, &run), Err(VouchError::OtherRun { found: RUN, run }));
        let moved = Vouch { epoch: 4, ..good.clone() };
        assert_eq!(moved.verify(&me, &RUN), Err(VouchError::Forged { organiser: me }));
        let moved = Vouch { run, ..good.clone() };
        assert_eq!(moved.verify(&me, &run), Err(VouchError::Forged { organiser: me }));
        for vouch in [
            Vouch { number: 0, ..good.clone() },
            Vouch { number: 2, ..good.clone() },
            Vouch { epoch: 0, ..good.clone() },
            Vouch { before: Digest([1; 32]), ..good },
        ] {
            assert_eq!(vouch.verify(&me, &RUN), Err(VouchError::Number));
        }
        let head = Head { epoch: 0, tokens: 0, state: Digest([1; 32]) };
        let genesis = Vouch::new(&organiser(), RUN, None, &head, Digest::ZERO);
        assert_eq!(genesis, Err(VouchError::Number));
    }

    #[test]
    fn g11_each_vouch_extends_the_one_before() {
        let (one, beside) = (vouch(None, 3, 5), vouch(None, 3, 6));
        let two = vouch(Some(&one), 4, 7);
        let three = vouch(Some(&two), 9, 8);
        let head = Head { epoch: 4, tokens: 7, state: Digest([5; 32]) };
        let back = Vouch::new(&organiser(), RUN, Some(&two), &head, Digest::ZERO);
        assert_eq!(back, Err(VouchError::Extends { number: 3, known: 2 }));
        // Any may come first, and any may be missing.
        for order in [[&one, &two, &three], [&three, &one, &two], [&two, &three, &one]] {
            let mut vouches = vouches();
            for vouch in order {
                assert_eq!(vouches.take(vouch), Ok(true));
                assert_eq!(vouches.take(vouch), Ok(false));
            }
            assert_eq!((vouches.number(), vouches.newest()), (3, Some(&three)));
        }
        let mut known = vouches();
        known.take(&beside).unwrap();
        assert_eq!(known.take(&two), Err(VouchError::Extends { number: 2, known: 1 }));
        assert_eq!(known.take(&three), Ok(true), "what lies between is not known");
        assert_eq!(known.number(), 3);
    }

    /// An organiser who signs two of one number has made a mistake; all peers come to the same one.
    #[test]
    fn g11_of_two_with_one_number_the_smaller_digest_stays() {
        let (a, b) = (vouch(None, 3, 5), vouch(None, 3, 6));
        let smaller = if a.digest() < b.digest() { &a } else { &b };
        for order in [[&a, &b], [&b, &a]] {
            let mut vouches = vouches();
            order.iter().for_each(|vouch| assert!(vouches.take(vouch).is_ok()));
            assert_eq!(vouches.newest(), Some(smaller));
        }
    }

    #[test]
    fn g11_few_vouches_are_kept() {
        let (mut known, mut last) = (vouches(), vouch(None, 1, 1));
        let first = last.clone();
        for epoch in 2..20 {
            known.take(&last).unwrap();
            last = vouch(Some(&last), epoch, 1);
        }
        assert_eq!(known.known.len(), VOUCHES_KEPT);
        assert_eq!(known.take(&first), Ok(false));
        assert_eq!((known.known.len(), known.number()), (VOUCHES_KEPT, 18));
    }
}
