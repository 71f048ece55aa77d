//! What was signed for a run since its manifest, as this node keeps it, hands it out, and takes it from
//! others: decrees of its authorities, and the organiser's newest vouch.
//!
//! A paper proves itself: who brings it does not matter. What it means is for the protocol's state; here
//! it is kept beside the manifest, within bounds, and served with that.

use std::collections::BTreeMap;
use std::sync::Arc;

use intellect_protocol::admit::{Authorities, DecreeError};
use intellect_protocol::id::{Digest, PeerId, RunId};
use intellect_protocol::lobby::Paper;
use intellect_protocol::manifest::Level;
use intellect_protocol::message::{Clause, Decree, Vouch};
use intellect_protocol::sign::Keypair;
use intellect_protocol::vouch::VouchError;

use crate::manifest::Manifest;

/// The papers of a run, as far as they are known here.
#[derive(Debug, Default)]
pub(crate) struct Papers {
    /// By number and digest, so that the lowest come first.
    decrees: BTreeMap<(u64, Digest), Decree>,
    vouch: Option<Vouch>,
}

/// Who may sign papers.
#[derive(Clone, Debug)]
pub(crate) struct Signers {
    run: RunId,
    organiser: PeerId,
    /// Absent in an open run.
    authorities: Option<Authorities>,
    /// Of the scheme of signatures.
    key: Keypair,
}

/// Why nobody believes a paper.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PaperError {
    /// There are none of that kind.
    #[error("this run is open to everybody: it has no decrees")]
    Open,
    /// A decree.
    #[error(transparent)]
    Decree(#[from] DecreeError),
    /// A vouch.
    #[error(transparent)]
    Vouch(#[from] VouchError),
}

impl Signers {
    /// Of a run whose authorities are those of its manifest.
    pub(crate) fn new(manifest: &Manifest, key: Keypair) -> Self {
        let authorities = match &manifest.run.trust.level {
            Level::Open => None,
            Level::Invited(authorities) => Some(authorities.clone()),
        };
        Self { run: manifest.id, organiser: manifest.run.organiser, authorities, key }
    }

    /// From now on these sign.
    pub(crate) fn set(&mut self, authorities: &Authorities) {
        self.authorities = Some(authorities.clone());
    }
}

impl Papers {
    /// What was kept by an earlier start; what nobody can have signed is left out.
    pub(crate) fn read(kept: &[Arc<[u8]>], signers: &Signers) -> Self {
        let mut papers = Self::default();
        for paper in kept.iter().filter_map(|bytes| Paper::from_bytes(bytes)) {
            if let Err(error) = papers.take(&paper, signers) {
                tracing::info!(%error, "a paper that was kept is of no use");
            }
        }
        papers
    }

    /// Takes one that anybody may have brought; false where it is known, or there are newer ones
    /// enough.
    ///
    /// # Errors
    /// [`PaperError`]; nothing was taken.
    pub(crate) fn take(&mut self, paper: &Paper, signers: &Signers) -> Result<bool, PaperError> {
        match paper {
            Paper::Decree(decree) => self.take_decree(decree, signers),
            Paper::Vouch(vouch) => {
                let known = self.vouch.as_ref().map_or(0, |vouch| vouch.number);
                if vouch.number <= known {
                    return Ok(false);
                }
                vouch.verify(&signers.organiser, &signers.run)?;
                self.vouch = Some(vouch.clone());
                Ok(true)
            }
        }
    }

    /// Whether somebody who may has signed it.
    ///
    /// # Errors
    /// [`PaperError`].
    pub(crate) fn check(&self, paper: &Paper, signers: &Signers) -> Result<(), PaperError> {
        match paper {
            Paper::Decree(decree) if self.decrees.contains_key(&name(decree)) => Ok(()),
            Paper::Decree(decree) => self.check_decree(decree, signers),
            Paper::Vouch(vouch) => Ok(vouch.verify(&signers.organiser, &signers.run)?),
        }
    }

    /// Those who sign now may have, or those whom a decree that is known names.
    fn check_decree(&self, decree: &Decree, signers: &Signers) -> Result<(), PaperError> {
        let now = signers.authorities.as_ref().ok_or(PaperError::Open)?;
        let clauses = self.decrees.values().flat_map(|decree| &decree.clauses);
        let later = clauses.filter_map(|clause| match clause {
            Clause::Authorities { keys, threshold } => {
                Some(Authorities { keys: keys.clone(), threshold: usize::from(*threshold) })
            }
            Clause::RevokePeer(_)
            | Clause::RevokeInvite { .. }
            | Clause::Admit(_)
            | Clause::Lift(_)
            | Clause::Rescue { .. }
            | Clause::Forget(_) => None,
        });
        let signed = |by: &Authorities| decree.verify(&signers.key, &signers.run, by);
        let first = signed(now);
        if first.is_err() && later.into_iter().any(|by| signed(&by).is_ok()) {
            return Ok(());
        }
        Ok(first?)
    }

    fn take_decree(&mut self, decree: &Decree, signers: &Signers) -> Result<bool, PaperError> {
        let name = name(decree);
        if self.decrees.contains_key(&name) {
            return Ok(false);
        }
        self.check_decree(decree, signers)?;
        self.decrees.insert(name, decree.clone());
        let of_number = self.decrees.range((name.0, Digest::ZERO)..);
        let of_number = of_number.map(|(name, _)| *name).take_while(|other| other.0 == name.0);
        if let Some(last) = of_number.skip(PER_NUMBER).last() {
            self.decrees.remove(&last);
        }
        if self.decrees.len() > DECREES_KEPT {
            self.decrees.pop_first();
        }
        Ok(self.decrees.contains_key(&name))
    }

    /// The decrees, the lowest number first.
    pub(crate) fn decrees(&self) -> Vec<Decree> {
        self.decrees.values().cloned().collect()
    }

    /// Whether a decree that is known lets a peer in, which then needs no ticket.
    pub(crate) fn admits(&self, peer: &PeerId) -> bool {
        let mut clauses = self.decrees.values().flat_map(|decree| &decree.clauses);
        clauses.any(|clause| *clause == Clause::Admit(*peer))
    }

    /// The organiser's newest vouch.
    pub(crate) fn vouch(&self) -> Option<&Vouch> {
        self.vouch.as_ref()
    }

    /// As they are kept and handed out, the lowest number first.
    pub(crate) fn all(&self) -> Vec<Arc<[u8]>> {
        let decrees = self.decrees.values().map(|decree| Paper::Decree(decree.clone()));
        let vouch = self.vouch.iter().map(|vouch| Paper::Vouch(vouch.clone()));
        decrees.chain(vouch).map(|paper| paper.to_bytes().into()).collect()
    }
}

/// What a decree is known by.
fn name(decree: &Decree) -> (u64, Digest) {
    (decree.number, decree.digest())
}

/// Decrees that are kept: far more than ever wait for a receipt at once.
const DECREES_KEPT: usize = 56;

/// Of those with one number, of which only one can take effect.
const PER_NUMBER: usize = 2;

#[cfg(test)]
mod tests {
    use intellect_protocol::message::Head;

    use super::*;

    const RUN: RunId = RunId([7; 32]);

    fn law(key: &Keypair) -> Signers {
        let authorities = Some(Authorities { keys: vec![key.peer()], threshold: 1 });
        Signers { run: RUN, organiser: key.peer(), authorities, key: key.clone() }
    }

    fn decree(number: u64, about: u8, key: &Keypair) -> Paper {
        let items = vec![Clause::RevokePeer(PeerId([about; 32]))];
        Paper::Decree(Decree::after(RUN, (number - 1, Digest::ZERO), items).signed(key))
    }

    fn vouch(epoch: u64, before: Option<&Vouch>, key: &Keypair) -> Vouch {
        let head = Head { epoch, tokens: 7, state: Digest([5; 32]) };
        Vouch::new(key, RUN, before, &head, Digest([6; 32])).unwrap()
    }

    #[test]
    fn decrees_prove_themselves_are_known_once_and_are_bounded() {
        let key = Keypair::from_seed(&[1; 32]);
        let law = law(&key);
        let mut papers = Papers::default();
        let mut take = |paper: &Paper| papers.take(paper, &law).ok();
        let forged = decree(1, 1, &Keypair::from_seed(&[2; 32]));
        assert_eq!(take(&forged), None);
        let first = decree(1, 1, &key);
        assert_eq!((take(&first), take(&first)), (Some(true), Some(false)));
        // Of one number two are kept, whichever came first.
        let taken: Vec<_> = (2..20).map(|about| take(&decree(1, about, &key))).collect();
        assert!(taken.contains(&Some(false)) && !taken.contains(&None));
        for number in 2..100 {
            assert_eq!(take(&decree(number, 1, &key)), Some(true));
        }
        assert_eq!(take(&decree(3, 9, &key)), Some(false), "of long ago");
        assert_eq!(papers.all().len(), DECREES_KEPT);
        assert_eq!(Papers::read(&papers.all(), &law).all(), papers.all());
        let kept = [vec![0xff; 9].into(), forged.to_bytes().into()];
        assert!(Papers::read(&kept, &law).all().is_empty());
        let open = Signers { authorities: None, ..law };
        assert!(matches!(papers.take(&decree(100, 1, &key), &open), Err(PaperError::Open)));
    }

    #[test]
    fn g11_the_newest_vouch_is_kept_in_open_runs_too() {
        let key = Keypair::from_seed(&[1; 32]);
        let law = Signers { authorities: None, ..law(&key) };
        let mut papers = Papers::default();
        let first = vouch(3, None, &key);
        let next = vouch(9, Some(&first), &key);
        let forged = vouch(9, None, &Keypair::from_seed(&[2; 32]));
        assert!(papers.take(&Paper::Vouch(forged), &law).is_err() && papers.vouch().is_none());
        for (vouch, news) in [(&first, true), (&next, true), (&first, false), (&next, false)] {
            assert_eq!(papers.take(&Paper::Vouch(vouch.clone()), &law).unwrap(), news);
        }
        assert_eq!(Papers::read(&papers.all(), &law).vouch(), Some(&next));
    }
}
