//! What proves a lineage: a link holds when a majority of the voters that the link before it names
//! signed its receipt, through Regroups that all their members joined (R14, R16, R18, R23).

use std::collections::BTreeSet;

use crate::blocks::Blocks;
use crate::fault::Fault;
use crate::id::{Digest, PeerId, RunId};
use crate::message::{
    Done, HOLDERS_MAX, Join, Keep, Link, MEMBERS_MAX, Message, Opening, Part, Receipt, Regroup,
    Roster, Series, Voted, Voter, majority,
};
use crate::sign::{Keypair, Signature};
use crate::wire;

/// What every check needs of the run.
#[derive(Clone, Debug)]
pub struct Law {
    /// The run.
    pub run: RunId,
    /// Our key: it also names the signature scheme.
    pub key: Keypair,
    /// Least members of the founding Regroup.
    pub peers_min: usize,
    /// `quorum = "majority"`: no Regroup is lawful.
    pub majority_only: bool,
    /// Elements of the fragment.
    pub elements: u64,
}

impl Law {
    /// Checks the link of `base` (its series without Regroups), whose voters are `voters`.
    ///
    /// # Errors
    /// [`Fault::Certificate`] of whoever made the link.
    pub fn check_link(&self, base: Series, voters: &[Voter], link: &Link) -> Result<(), Fault> {
        let roster = &link.certificate.roster;
        let (series, voters) = self.follow(base, voters, &link.openings)?;
        let receipt = &link.receipt;
        require(roster.series == series, "roster of another series")?;
        require(receipt.series.is_beside(&base), "receipt of another epoch")?;
        require(roster.receipt(receipt.update) == *receipt, "receipt of another roster")?;
        self.check_parts(&receipt.parts).map_err(Fault::Certificate)?;
        self.check_dones(&voters, roster, receipt, &link.certificate.dones)
    }

    /// Checks a chain of Regroups from `base` on: where it leads, and who votes there.
    ///
    /// # Errors
    /// [`Fault::Certificate`] of whoever made it.
    pub fn follow(
        &self,
        base: Series,
        voters: &[Voter],
        openings: &[Opening],
    ) -> Result<(Series, Vec<Voter>), Fault> {
        let mut place = (base, voters.to_vec());
        for (depth, opening) in (0..).zip(openings) {
            place = self.check_opening(place.0, &place.1, depth, opening)?;
        }
        Ok(place)
    }

    /// Whether anybody may propose `regroup` in a series of `voters` (R12, R14, R15): what needs no
    /// eyes of one's own.
    ///
    /// # Errors
    /// [`Fault::Certificate`] of its proposer.
    pub fn check_regroup(&self, voters: &[Voter], regroup: &Regroup) -> Result<(), Fault> {
        let Regroup { members, absent, .. } = regroup;
        require(!self.majority_only, "a Regroup, which quorum = majority forbids")?;
        require(!members.is_empty(), "Regroup of nobody")?;
        require(members.len() <= MEMBERS_MAX, "Regroup of too many")?;
        let peers: BTreeSet<PeerId> = members.iter().map(|member| member.peer).collect();
        require(peers.len() == members.len(), "Regroup that names a member twice")?;
        let founding = voters.is_empty();
        require(!founding || members.len() >= self.peers_min, "founded by too few")?;
        let outside = voters.iter().filter(|voter| !members.contains(voter));
        require(
            outside.eq(absent.iter().map(|(voter, _)| voter)),
            "Regroup that hides who is absent",
        )
    }

    fn check_opening(
        &self,
        series: Series,
        voters: &[Voter],
        depth: u32,
        opening: &Opening,
    ) -> Result<(Series, Vec<Voter>), Fault> {
        let regroup = &opening.regroup;
        require(regroup.series == series, "Regroup of another series")?;
        self.check_regroup(voters, regroup)?;
        // One Join each, in the order of the members: no signature is looked at twice.
        require(opening.joins.len() == regroup.members.len(), "not one Join of each member")?;
        let digest = wire::regroup_digest(&self.run, regroup);
        for (member, (author, join, signature)) in regroup.members.iter().zip(&opening.joins) {
            let joined = *author == member.peer
                && (join.regroup, join.series, join.log) == (digest, series, member.log)
                && can_have_voted(join, depth)
                && self.signed(author, Message::Join(join.clone()), signature);
            require(joined, "Regroup that a member has not joined")?;
        }
        Ok((series.regrouped(digest), regroup.members.clone()))
    }

    /// Whether a roster may keep what it keeps (R10, R32), as far as the roster tells.
    ///
    /// # Errors
    /// What its proposer should have seen.
    pub fn check_keep(&self, roster: &Roster) -> Result<(), &'static str> {
        let once = |holds: bool, otherwise| if holds { Ok(()) } else { Err(otherwise) };
        let parts: Vec<Part> = roster.keep.iter().map(Keep::part).collect();
        once(parts.is_empty() || (roster.is_free() && roster.attempt > 1), "nothing to keep")?;
        for (keep, part) in roster.keep.iter().zip(&parts) {
            let blocks: u64 = keep.chunks.iter().map(|kept| kept.blocks.len()).sum();
            once(blocks == part.blocks.len(), "keeps a block twice")?;
            once(keep.chunks.iter().all(|k| k.blocks.fits(self.elements)), "keeps no such blocks")?;
            for kept in &keep.chunks {
                let owner = keep.owner(kept.chunk).ok_or("keeps a chunk that its ring has not")?;
                let (key, run, roster) = (&self.key, &self.run, &keep.roster);
                let sealed = kept.seal.is_of(&owner.peer, key, run, roster, kept.chunk);
                once(sealed, "keeps a chunk that its owner has not sealed")?;
                let holders = 1..=HOLDERS_MAX;
                once(holders.contains(&kept.holders.len()), "keeps a chunk that nobody holds")?;
            }
        }
        self.check_parts(&parts)
    }

    /// Whether an update can have these parts: no block twice, and some left for the roster that formed
    /// it.
    fn check_parts(&self, parts: &[Part]) -> Result<(), &'static str> {
        let once = |holds: bool, otherwise| if holds { Ok(()) } else { Err(otherwise) };
        let mut all = Blocks::default();
        for Part { members, blocks, .. } in parts {
            let peers: BTreeSet<PeerId> = members.iter().map(|member| member.peer).collect();
            let ring = 1..=MEMBERS_MAX;
            once(ring.contains(&members.len()), "a part that nobody computed")?;
            once(peers.len() == members.len(), "a part that names a member twice")?;
            once(members.iter().all(|m| m.weight > 0), "a part with a member of no weight")?;
            once(!blocks.is_empty() && blocks.fits(self.elements), "a part of no such blocks")?;
            once(!all.overlaps(blocks), "a block of two parts")?;
            all = all.and(blocks);
        }
        once(all != Blocks::all(self.elements), "parts that leave nothing")
    }

    /// Checks that a majority of `voters` voted for `receipt` on `roster`.
    ///
    /// # Errors
    /// [`Fault::Certificate`] of whoever made the certificate.
    pub fn check_dones(
        &self,
        voters: &[Voter],
        roster: &Roster,
        receipt: &Receipt,
        dones: &[(PeerId, Signature)],
    ) -> Result<(), Fault> {
        let authors: BTreeSet<PeerId> = dones.iter().map(|(author, _)| *author).collect();
        require(authors.len() == dones.len(), "two votes of one voter")?;
        let done = self.done(roster, receipt);
        let signers: Vec<PeerId> = dones
            .iter()
            .filter(|(author, _)| voters.iter().any(|v| v.peer == *author))
            .filter(|(author, signature)| {
                self.signed(author, Message::Done(done.clone()), signature)
            })
            .map(|(author, _)| *author)
            .collect();
        require(majority(voters, |v| signers.contains(&v.peer)), "no majority of the voters signed")
    }

    /// The vote for `receipt` on `roster`.
    #[must_use]
    pub fn done(&self, roster: &Roster, receipt: &Receipt) -> Done {
        Done {
            series: roster.series,
            roster: wire::roster_digest(&self.run, roster),
            r: wire::receipt_digest(&self.run, receipt),
            update: receipt.update,
        }
    }

    /// Whether `signature` is `author`'s over `message`.
    #[must_use]
    pub fn signed(&self, author: &PeerId, message: Message, signature: &Signature) -> bool {
        wire::check(&self.key, &self.run, author, &message, signature)
    }
}

/// Whether the vote that a Join in a series at `depth` carries can have been given: in that series, or
/// in one that it descends from.
#[must_use]
pub fn can_have_voted(join: &Join, depth: u32) -> bool {
    let possible =
        |done: &Voted| done.receipt.series.is_beside(&join.series) && done.depth <= depth;
    join.done.as_ref().is_none_or(possible)
}

/// The Join of `author` in an opening.
#[must_use]
pub fn join_of<'a>(opening: &'a Opening, author: &PeerId) -> Option<&'a Join> {
    opening.joins.iter().find(|(a, _, _)| a == author).map(|(_, join, _)| join)
}

/// The series that a chain of openings leads to, unchecked: for what was checked before.
#[must_use]
pub fn last_regroup(run: &RunId, openings: &[Opening]) -> Option<Digest> {
    openings.last().map(|opening| wire::regroup_digest(run, &opening.regroup))
}

fn require(holds: bool, otherwise: &'static str) -> Result<(), Fault> {
    if holds { Ok(()) } else { Err(Fault::Certificate(otherwise)) }
}
