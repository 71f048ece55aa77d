//! What proves a lineage: a link holds when a majority of the voters that the link before it names
//! signed its receipt, through Regroups that all their members joined (R14, R16, R18, R23).

use std::collections::BTreeSet;

use crate::blocks::Blocks;
use crate::fault::Fault;
use crate::id::{LogId, PeerId, RunId};
use crate::message::{
    CHUNKS_MAX, Done, HOLDERS_MAX, Join, Keep, Kept, Link, MEMBERS_MAX, Message, Opening, Part,
    Receipt, Regroup, Roster, Series, Voted, Voter, majority,
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

/// Who we are.
#[derive(Clone, Copy, Debug)]
pub struct Me {
    /// Our name.
    pub peer: PeerId,
    /// The log that binds us.
    pub log: LogId,
    /// Which start of ours this is: it rises with each, and is on disk before the first message.
    pub incarnation: u64,
}

impl Me {
    /// The voter that we are.
    #[must_use]
    pub fn voter(&self) -> Voter {
        Voter { peer: self.peer, log: self.log }
    }
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
        self.check_dones(&voters, roster, receipt, &link.certificate.dones)?;
        self.check_parts(&receipt.parts).map_err(Fault::Certificate)
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

    /// Whether anybody may propose `regroup` in a series of `voters` (R12, R14, R15), as far as
    /// that can be told without knowing who is present.
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
                && self.signed(author, &Message::Join(join.clone()), signature);
            require(joined, "Regroup that a member has not joined")?;
        }
        Ok((series.regrouped(digest), regroup.members.clone()))
    }

    /// Whether a roster may keep what it keeps (R10, R32), but for the seals. Numbers and ranges are
    /// anybody's: each is compared with what there can be before it is counted with (D1).
    ///
    /// # Errors
    /// What its proposer should have seen.
    pub fn check_keep(&self, roster: &Roster) -> Result<(), &'static str> {
        let keep = &roster.keep;
        let chunks = || keep.iter().flat_map(|keep| &keep.chunks);
        rule(keep.is_empty() || (roster.is_free() && roster.attempt > 1), "nothing to keep")?;
        rule(chunks().take(CHUNKS_MAX + 1).count() <= CHUNKS_MAX, "keeps too many chunks")?;
        rule(chunks().all(|kept| kept.blocks.fits(self.elements)), "keeps no such blocks")?;
        let held = |kept: &Kept| (1..=HOLDERS_MAX).contains(&kept.holders.len());
        rule(chunks().all(held), "keeps a chunk that nobody holds")?;
        let rosters: BTreeSet<_> = keep.iter().map(|keep| keep.roster).collect();
        rule(rosters.len() == keep.len(), "names a ring twice")?;
        for keep in keep {
            let numbers: BTreeSet<u32> = keep.chunks.iter().map(|kept| kept.chunk).collect();
            rule(numbers.len() == keep.chunks.len(), "keeps a chunk twice")?;
            rule(numbers.iter().all(|n| keep.owner(*n).is_some()), "keeps no such chunk")?;
        }
        let parts: Vec<Part> = keep.iter().map(Keep::part).collect();
        let blocks: u64 = chunks().map(|kept| kept.blocks.len()).fold(0, u64::saturating_add);
        let once = parts.iter().map(|part| part.blocks.len()).fold(0, u64::saturating_add);
        rule(blocks == once, "keeps a block twice")?;
        self.check_parts(&parts)
    }

    /// Whether the owner of each chunk that a roster keeps has sealed it (R30).
    ///
    /// # Errors
    /// What its proposer should have seen.
    pub fn check_seals(&self, roster: &Roster) -> Result<(), &'static str> {
        let sealed = |keep: &Keep, kept: &Kept| {
            let owner = keep.owner(kept.chunk).map(|owner| owner.peer);
            let (key, run) = (&self.key, &self.run);
            owner.is_some_and(|o| kept.seal.is_of(&o, key, run, &keep.roster, kept.chunk))
        };
        let all = |keep: &Keep| keep.chunks.iter().all(|kept| sealed(keep, kept));
        rule(roster.keep.iter().all(all), "keeps a chunk that its owner has not sealed")
    }

    /// Whether an update can have these parts: no block twice, and some left for the roster that formed
    /// it.
    ///
    /// # Errors
    /// What whoever formed it should have seen.
    pub fn check_parts(&self, parts: &[Part]) -> Result<(), &'static str> {
        rule(parts.len() <= CHUNKS_MAX, "more parts than rings have chunks")?;
        for Part { members, blocks, .. } in parts {
            let peers: BTreeSet<PeerId> = members.iter().map(|member| member.peer).collect();
            rule((1..=MEMBERS_MAX).contains(&members.len()), "a part that nobody computed")?;
            rule(peers.len() == members.len(), "a part that names a member twice")?;
            rule(members.iter().all(|m| m.weight > 0), "a part with a member of no weight")?;
            rule(!blocks.is_empty() && blocks.fits(self.elements), "a part of no such blocks")?;
        }
        let all = Blocks::of(parts.iter().flat_map(|part| part.blocks.ranges()));
        let each = parts.iter().map(|part| part.blocks.len()).fold(0, u64::saturating_add);
        rule(all.len() == each, "a block of two parts")?;
        rule(all != Blocks::all(self.elements), "parts that leave nothing")
    }

    /// Checks that a majority of `voters` voted for `receipt` on `roster`.
    ///
    /// # Errors
    /// [`Fault::Certificate`] of whoever made the certificate.
    fn check_dones(
        &self,
        voters: &[Voter],
        roster: &Roster,
        receipt: &Receipt,
        dones: &[(PeerId, Signature)],
    ) -> Result<(), Fault> {
        let authors: BTreeSet<PeerId> = dones.iter().map(|(author, _)| *author).collect();
        require(authors.len() == dones.len(), "two votes of one voter")?;
        let done = Message::Done(self.done(roster, receipt));
        let signers: Vec<PeerId> = dones
            .iter()
            .filter(|(author, _)| voters.iter().any(|v| v.peer == *author))
            .filter(|(author, signature)| self.signed(author, &done, signature))
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
    pub fn signed(&self, author: &PeerId, message: &Message, signature: &Signature) -> bool {
        self.key.check(author, message.tag(), &self.run, &wire::canonical(message), signature)
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

fn require(holds: bool, otherwise: &'static str) -> Result<(), Fault> {
    rule(holds, otherwise).map_err(Fault::Certificate)
}

fn rule(holds: bool, otherwise: &'static str) -> Result<(), &'static str> {
    if holds { Ok(()) } else { Err(otherwise) }
}
