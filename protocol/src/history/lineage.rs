//! What proves a lineage: a link is valid if a majority of the voters named by the link before it
//! has signed its receipt, through Regroups that all their members joined (R14, R16, R18, R23),
//! and, in runs of invited peers, if every peer that it names was admitted (`lineage/who.rs`, T2).
//!
//! Everything here is a function of the run's settings, what came before, and the bytes that a peer
//! sent: no clock, no table of peers. So two honest peers always agree, and a link that fails is
//! the fault of the peer that made it. What depends on who is heard now is decided in
//! `consensus/epoch`.

mod who;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::access::admit::Level;
use crate::access::ledger::Ledger;
use crate::base::blocks::Blocks;
use crate::base::fault::{CertificateFault, Fault, RosterFault, ValueFault, require};
use crate::base::id::{LogId, PeerId, RunId};
use crate::base::rule::{Rule, Rules};
use crate::base::sign::{Keypair, Signature, Verified};
use crate::message::{
    Accept, CHUNKS_MAX, Certificate, Done, HOLDERS_MAX, Join, Keep, Kept, Link, MEMBERS_MAX,
    Member, Message, Opened, Opening, Part, Prepared, QuorumRule, Receipt, Regroup, Roster, Series,
    Ticket, Voted, Voter, wire,
};

/// What one peer can do in an epoch of the run, in tokens (G11). It bounds every weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Capacity {
    /// Each peer trains on this many tokens in an epoch.
    Counted(u64),
    /// An epoch has a fixed duration: only the last receipt shows what a peer can do in it.
    Timed {
        /// A weight up to this is always possible. In epoch 1 it is the only
        /// bound; `None` allows any there.
        tokens_max: Option<u64>,
    },
}

/// How many epochs of work a weight may contain: a peer that was left out
/// carries its work along; guess. With fewer, a peer that was cut off for long would have to drop
/// work; with more, one lying weight outweighs more honest ones.
const EPOCHS_CARRIED_MAX: u64 = 8;

/// The greatest weight of all: sums of 256 weights over 256 epochs still fit into 64 bits.
const WEIGHT_MAX: u64 = u64::MAX >> 16;

impl Capacity {
    /// The greatest weight in the epoch after a receipt with this median weight; `None` means epoch
    /// 1.
    pub fn weight_max(&self, median: Option<u64>) -> u64 {
        let carried = |tokens: u64| tokens.saturating_mul(EPOCHS_CARRIED_MAX);
        let most = match *self {
            Self::Counted(tokens) => carried(tokens),
            Self::Timed { tokens_max } => match median {
                Some(median) => carried(median).max(tokens_max.unwrap_or(0)),
                None => tokens_max.unwrap_or(WEIGHT_MAX),
            },
        };
        most.min(WEIGHT_MAX)
    }
}

/// What every check of a message or link needs to know about the run.
#[derive(Clone, Debug)]
pub struct Validator {
    /// The run, which every signature is made for.
    pub run: RunId,
    /// Our key; it also determines the signature scheme, real or simulated.
    pub key: Keypair,
    /// The least members of the Regroup that founds the run.
    pub peers_min: usize,
    /// How many voters decide, and whether fewer may go on.
    pub quorum: QuorumRule,
    /// Elements of the fragment, which bound ranges of blocks (D1).
    pub elements: u64,
    /// What bounds the weights of an epoch (G11).
    pub capacity: Capacity,
    /// Whether the organiser admits peers (T2).
    pub level: Level,
    /// The key whose attestations count, and which admits peers where the level requires it.
    pub organiser: PeerId,
    /// Which rules are in force: [`Rules::ALL`] in every program.
    pub rules: Rules,
}

/// The identities of this peer.
#[derive(Clone, Copy, Debug)]
pub struct LocalPeer {
    /// The public half of our key, our name.
    pub peer: PeerId,
    /// The log of votes that binds us.
    pub log: LogId,
    /// The number of this start: it rises with each one, and is on disk before the first message.
    pub incarnation: u64,
}

impl LocalPeer {
    /// The voter that we are: peer and log.
    pub fn voter(&self) -> Voter {
        Voter { peer: self.peer, log: self.log }
    }
}

impl Validator {
    /// Whether this rule is in force.
    #[must_use]
    pub fn keeps(&self, rule: Rule) -> bool {
        self.rules.keeps(rule)
    }

    /// A message of ours, with our signature.
    #[must_use]
    pub fn seal(&self, message: Message) -> Arc<Verified<Message>> {
        Arc::new(wire::seal(&self.key, &self.run, message))
    }

    /// The ledger before epoch 1; `None` in open runs.
    pub fn ledger(&self) -> Option<Arc<Ledger>> {
        match self.level {
            Level::Open => None,
            Level::Invited => Some(Arc::new(Ledger::new(self.run, self.organiser))),
        }
    }

    /// Checks the link after `base` (its series without Regroups), whose voters are `voters` and
    /// whose ledger is `ledger`; no weight in it may be above `weight_max`.
    ///
    /// # Errors
    /// [`Fault::Certificate`] of the peer that made the link.
    pub fn check_link(
        &self,
        base: Series,
        voters: &[Voter],
        ledger: Option<&Arc<Ledger>>,
        weight_max: u64,
        link: &Link,
    ) -> Result<(), Fault> {
        let roster = &link.certificate.roster;
        let (series, voters) = self.follow(base, voters, ledger, &link.openings)?;
        certified(self.check_who(ledger, &voters, roster, &link.receipt, |_| false))?;
        let receipt = &link.receipt;
        certify(roster.series == series, CertificateFault::OtherSeries)?;
        certify(receipt.series.is_beside(&base), CertificateFault::OtherEpoch)?;
        certify(roster.receipt(receipt.update) == *receipt, CertificateFault::OtherRoster)?;
        self.check_dones(&voters, roster, receipt, &link.certificate.dones)?;
        certified(self.check_parts(&receipt.parts))?;
        certified(check_sums(weight_max, receipt))
    }

    /// Whether a voter of an earlier epoch has signed a link that was checked, by a vote or by a
    /// Join of a Regroup on the way (G11).
    pub(crate) fn has_signed(&self, voter: &Voter, link: &Link) -> bool {
        let Certificate { roster, dones } = &link.certificate;
        let done = || Message::Done(self.done(roster, &link.receipt));
        let joined = |opening: &Opening| opening.regroup.members.contains(voter);
        let mut votes = dones.iter().filter(|(author, _)| *author == voter.peer);
        link.openings.iter().any(joined)
            || votes.any(|(author, signature)| self.signed(author, &done(), signature))
    }

    /// Checks a chain of Regroups from `base` on, and returns the
    /// series it leads to and its voters.
    ///
    /// # Errors
    /// [`Fault::Certificate`] of the peer that made the chain.
    pub fn follow(
        &self,
        base: Series,
        voters: &[Voter],
        ledger: Option<&Arc<Ledger>>,
        openings: &[Opening],
    ) -> Result<(Series, Vec<Voter>), Fault> {
        let mut last = (base, voters.to_vec());
        let mut before = Vec::new();
        for opening in openings {
            before.push(last);
            last = self.check_opening(&before, ledger, opening)?;
        }
        Ok(last)
    }

    /// Whether a Regroup in a series of `voters` is lawful (R12, R14, R15), as far as that can be
    /// decided without knowing which voters are present. `known` tickets were checked before.
    ///
    /// # Errors
    /// [`Fault::Certificate`] of its proposer.
    pub fn check_regroup(
        &self,
        voters: &[Voter],
        ledger: Option<&Arc<Ledger>>,
        regroup: &Regroup,
        known: impl Fn(&Ticket) -> bool,
    ) -> Result<(), Fault> {
        let Regroup { members, absent, .. } = regroup;
        certified(self.check_gathered(ledger, regroup, known))?;
        let founding = voters.is_empty();
        let lawful = match self.quorum {
            QuorumRule::Available => true,
            QuorumRule::Majority => false,
            QuorumRule::Byzantine => founding,
        };
        certify(lawful, CertificateFault::Forbidden)?;
        certify(!members.is_empty(), CertificateFault::RegroupOfNobody)?;
        certify(members.len() <= MEMBERS_MAX, CertificateFault::RegroupOfTooMany)?;
        let peers: BTreeSet<PeerId> = members.iter().map(|member| member.peer).collect();
        certify(peers.len() == members.len(), CertificateFault::RegroupNamesTwice)?;
        certify(!founding || members.len() >= self.peers_min, CertificateFault::TooFewFounders)?;
        // By key: a voter that has lost its log comes back with another log.
        let voted = |member: &Voter| voters.iter().any(|voter| voter.peer == member.peer);
        certify(founding || members.iter().all(voted), CertificateFault::RegroupOfNoVoter)?;
        let outside = voters.iter().filter(|voter| !members.contains(voter));
        certify(outside.eq(absent.iter().map(|(voter, _)| voter)), CertificateFault::HidesAbsent)
    }

    /// The series that a Regroup opens with these Joins.
    pub fn opened(&self, opening: &Opening) -> Series {
        opening.regroup.series.regrouped(wire::opening_digest(&self.run, opening))
    }

    /// `chain` is every series up to the one that the Regroup leaves, each with its voters. Returns
    /// the series that it leads to, and its voters.
    fn check_opening(
        &self,
        chain: &[(Series, Vec<Voter>)],
        ledger: Option<&Arc<Ledger>>,
        opening: &Opening,
    ) -> Result<(Series, Vec<Voter>), Fault> {
        let regroup = &opening.regroup;
        let (series, voters) =
            chain.last().ok_or(Fault::Certificate(CertificateFault::RegroupOfNoSeries))?;
        let (series, depth) = (*series, depth_of(chain));
        certify(regroup.series == series, CertificateFault::RegroupOfOtherSeries)?;
        self.check_regroup(voters, ledger, regroup, |_| false)?;
        // One Join of each member, in the members' order: no signature is checked twice.
        certify(opening.joins.len() == regroup.members.len(), CertificateFault::JoinsMissing)?;
        let digest = wire::regroup_digest(&self.run, regroup);
        for (member, (author, join, signature)) in regroup.members.iter().zip(&opening.joins) {
            let joined = *author == member.peer
                && (join.regroup, join.series, join.log) == (digest, series, member.log)
                && can_have_voted(join, depth)
                && self.signed(author, &Message::Join(join.clone()), signature);
            certify(joined, CertificateFault::NotJoined)?;
        }
        let ground = opening.ground.as_deref();
        let proven = ground.is_none_or(|ground| self.has_ground(chain, ground));
        let named = ground.map(|ground| wire::ranked(&self.run, ground));
        certify(proven && named == opening.highest_done(), CertificateFault::NoGround)?;
        Ok((self.opened(opening), regroup.members.clone()))
    }

    /// Whether a roster may keep the chunks it names (R10, R32), except for the seals. Numbers and
    /// ranges come from a peer: each is compared with its bound before it is used (D1).
    ///
    /// # Errors
    /// The fault of its proposer, which could have checked it.
    pub fn check_keep(&self, roster: &Roster) -> Result<(), RosterFault> {
        let keep = &roster.keep;
        let chunks = || keep.iter().flat_map(|keep| &keep.chunks);
        let may_keep = roster.is_free() && roster.attempt > 1;
        require(keep.is_empty() || may_keep, RosterFault::NothingToKeep)?;
        require(chunks().take(CHUNKS_MAX + 1).count() <= CHUNKS_MAX, RosterFault::ManyChunks)?;
        require(chunks().all(|kept| kept.blocks.fits(self.elements)), RosterFault::KeptBlocks)?;
        let held = |kept: &Kept| (1..=HOLDERS_MAX).contains(&kept.holders.len());
        require(chunks().all(held), RosterFault::NoHolder)?;
        let rosters: BTreeSet<_> = keep.iter().map(|keep| keep.roster).collect();
        require(rosters.len() == keep.len(), RosterFault::RingTwice)?;
        for keep in keep {
            let numbers: BTreeSet<u32> = keep.chunks.iter().map(|kept| kept.chunk).collect();
            require(numbers.len() == keep.chunks.len(), RosterFault::ChunkTwice)?;
            require(numbers.iter().all(|n| keep.owner(*n).is_some()), RosterFault::NoSuchChunk)?;
        }
        let parts: Vec<Part> = keep.iter().map(Keep::part).collect();
        let blocks: u64 = chunks().map(|kept| kept.blocks.len()).fold(0, u64::saturating_add);
        let once = parts.iter().map(|part| part.blocks.len()).fold(0, u64::saturating_add);
        require(blocks == once, RosterFault::BlockTwice)?;
        Ok(self.check_parts(&parts)?)
    }

    /// Whether the owner of each kept chunk has sealed it (R30).
    ///
    /// # Errors
    /// The fault of its proposer, which could have checked it.
    pub fn check_seals(&self, roster: &Roster) -> Result<(), RosterFault> {
        let sealed = |keep: &Keep, kept: &Kept| {
            let owner = keep.owner(kept.chunk).map(|owner| owner.peer);
            let (key, run) = (&self.key, &self.run);
            owner.is_some_and(|o| kept.seal.is_of(&o, key, run, &keep.roster, kept.chunk))
        };
        let all = |keep: &Keep| keep.chunks.iter().all(|kept| sealed(keep, kept));
        require(roster.keep.iter().all(all), RosterFault::Unsealed)
    }

    /// Whether an update can have these parts: no block twice, and some blocks left
    /// for the roster that formed it.
    ///
    /// # Errors
    /// The fault of the peer that formed it.
    pub fn check_parts(&self, parts: &[Part]) -> Result<(), ValueFault> {
        require(parts.len() <= CHUNKS_MAX, ValueFault::ManyParts)?;
        for Part { members, blocks, .. } in parts {
            let peers: BTreeSet<PeerId> = members.iter().map(|member| member.peer).collect();
            require((1..=MEMBERS_MAX).contains(&members.len()), ValueFault::PartOfNobody)?;
            require(peers.len() == members.len(), ValueFault::PartNamesTwice)?;
            require(members.iter().all(|m| m.weight > 0), ValueFault::PartWithoutWeight)?;
            require(!blocks.is_empty() && blocks.fits(self.elements), ValueFault::PartBlocks)?;
        }
        let all = Blocks::of(parts.iter().flat_map(|part| part.blocks.ranges()));
        let each = parts.iter().map(|part| part.blocks.len()).fold(0, u64::saturating_add);
        require(all.len() == each, ValueFault::BlockOfTwoParts)?;
        require(all != Blocks::all(self.elements), ValueFault::NothingLeft)
    }

    /// Whether a quorum of the voters of its series, which is one of `chain`,
    /// accepted the roster of a vote (R5).
    pub(crate) fn has_ground(&self, chain: &[(Series, Vec<Voter>)], voted: &Voted) -> bool {
        let Voted { depth, roster, update, .. } = voted;
        let place = usize::try_from(*depth).ok().and_then(|depth| chain.get(depth));
        let Some((series, voters)) = place else { return false };
        let receipt = voted.receipt();
        roster.series == *series
            && receipt.update == *update
            && receipt.series.is_beside(series)
            && self.check_parts(&receipt.parts).is_ok()
            && self.grounds(voted).is_some_and(|by| self.is_accepted(roster, voters, &by))
    }

    /// Whether the ring of a free roster opened: a quorum of the voters of its series, which is one
    /// of `chain`, accepted it, and so did every member with a position (R5).
    pub(crate) fn has_opened(&self, chain: &[(Series, Vec<Voter>)], opened: &Opened) -> bool {
        let Opened { roster, accepts, .. } = opened;
        let voters = chain.iter().find(|(series, _)| roster.series == *series);
        voters
            .zip(self.acceptors(roster, accepts))
            .is_some_and(|((_, voters), accepted)| self.ring_opens(roster, voters, &accepted))
    }

    /// Whether the ring of a roster opens, once these peers have accepted it (R5, R32).
    pub(crate) fn ring_opens(
        &self,
        roster: &Roster,
        voters: &[Voter],
        accepted: &BTreeSet<PeerId>,
    ) -> bool {
        roster.is_free()
            && roster.ring().all(|member| accepted.contains(&member.peer))
            && self.is_accepted(roster, voters, accepted)
    }

    /// Whether a quorum of the voters of its series accepted a roster (R5).
    fn is_accepted(&self, roster: &Roster, voters: &[Voter], accepted: &BTreeSet<PeerId>) -> bool {
        let names = |voter: &Voter| roster.members.iter().any(|member| member.voter() == *voter);
        self.quorum.holds(voters, |voter| accepted.contains(&voter.peer) && names(voter))
    }

    /// The members that accepted a roster, if every one of these signatures is valid.
    fn acceptors(
        &self,
        roster: &Roster,
        accepts: &[(PeerId, Signature)],
    ) -> Option<BTreeSet<PeerId>> {
        let digest = wire::roster_digest(&self.run, roster);
        let accept = Message::Accept(Accept { series: roster.series, roster: digest });
        self.signers_of(roster, &accept, accepts)
    }

    /// The members whose signatures prove that a vote was allowed;
    /// `None` if one of them is invalid.
    fn grounds(&self, Voted { roster, update, accepts, .. }: &Voted) -> Option<BTreeSet<PeerId>> {
        if !(self.quorum.prepares() && roster.is_free()) {
            return self.acceptors(roster, accepts);
        }
        let (series, digest) = (roster.series, wire::roster_digest(&self.run, roster));
        let prepared = Prepared { series, roster: digest, update: *update };
        self.signers_of(roster, &Message::Prepared(prepared), accepts)
    }

    /// The authors of signatures over a message; `None` if there are too many, or if one is
    /// repeated, wrong, or not by a member. Proofs are stored and passed on as they came, so they
    /// must not contain signatures that prove nothing.
    fn signers_of(
        &self,
        roster: &Roster,
        message: &Message,
        signatures: &[(PeerId, Signature)],
    ) -> Option<BTreeSet<PeerId>> {
        let mut authors = BTreeSet::new();
        let signed = |(author, signature): &(PeerId, Signature)| {
            authors.insert(*author)
                && roster.member(author).is_some()
                && self.signed(author, message, signature)
        };
        let sound = signatures.len() <= MEMBERS_MAX && signatures.iter().all(signed);
        sound.then_some(authors)
    }

    /// Checks that a quorum of `voters` voted for `receipt` on `roster`. Votes of others do not
    /// count.
    ///
    /// # Errors
    /// [`Fault::Certificate`] of the peer that made the certificate.
    fn check_dones(
        &self,
        voters: &[Voter],
        roster: &Roster,
        receipt: &Receipt,
        dones: &[(PeerId, Signature)],
    ) -> Result<(), Fault> {
        let authors: BTreeSet<PeerId> = dones.iter().map(|(author, _)| *author).collect();
        certify(authors.len() == dones.len(), CertificateFault::TwoVotes)?;
        let done = Message::Done(self.done(roster, receipt));
        let votes = |author: &PeerId| voters.iter().any(|voter| voter.peer == *author);
        let signed = dones.iter().filter(|(peer, by)| votes(peer) && self.signed(peer, &done, by));
        let signers: Vec<PeerId> = signed.map(|(author, _)| *author).collect();
        let decided = self.quorum.holds(voters, |voter| signers.contains(&voter.peer));
        certify(decided, CertificateFault::NoQuorum)
    }

    /// The vote for `receipt` on `roster`, as each voter signs it.
    pub fn done(&self, roster: &Roster, receipt: &Receipt) -> Done {
        Done {
            series: roster.series,
            roster: wire::roster_digest(&self.run, roster),
            r: wire::receipt_digest(&self.run, receipt),
            update: receipt.update,
        }
    }

    /// Whether `signature` is `author`'s over `message` in this run.
    #[must_use]
    pub fn signed(&self, author: &PeerId, message: &Message, signature: &Signature) -> bool {
        let body = || wire::canonical(message);
        self.key.check(author, message.tag(), &self.run, body, signature)
    }

    /// The message of another peer that a proof carries; `None` if its author has not signed it.
    pub(crate) fn verified(
        &self,
        author: PeerId,
        message: Message,
        signature: Signature,
    ) -> Option<Arc<Verified<Message>>> {
        let signed = self.signed(&author, &message, &signature);
        signed.then(|| Arc::new(Verified::new(author, signature, message)))
    }
}

/// Whether a value's sums are possible (G11, R31): each names a peer once, with a
/// weight that the epoch can hold, one start of a peer has one weight in all of them,
/// and the total fits into 64 bits.
///
/// # Errors
/// The fault of the peer that formed it.
pub fn check_sums(weight_max: u64, receipt: &Receipt) -> Result<(), ValueFault> {
    let Receipt { members, parts, .. } = receipt;
    let peers: BTreeSet<PeerId> = members.iter().map(|member| member.peer).collect();
    require(members.len() <= MEMBERS_MAX, ValueFault::SumOfTooMany)?;
    require(peers.len() == members.len(), ValueFault::SumNamesTwice)?;
    require(members.iter().any(|member| member.weight > 0), ValueFault::SumOfNobody)?;
    let mut weights: BTreeMap<(PeerId, u64), u64> = BTreeMap::new();
    let mut tokens: u64 = 0;
    let all = members.iter().chain(parts.iter().flat_map(|part| &part.members));
    for Member { peer, incarnation, weight, .. } in all.filter(|member| member.weight > 0) {
        require(*weight <= weight_max, ValueFault::TooHeavy)?;
        match weights.insert((*peer, *incarnation), *weight) {
            Some(before) => require(before == *weight, ValueFault::TwoWeights)?,
            None => tokens = tokens.checked_add(*weight).ok_or(ValueFault::SumTooGreat)?,
        }
    }
    Ok(())
}

/// Whether the vote that a Join in a series at `depth` carries is possible: it was given in that
/// series, or in one that it descends from.
pub(crate) fn can_have_voted(join: &Join, depth: u32) -> bool {
    join.done.is_none_or(|done| done.depth <= depth)
}

/// The depth of the last series in a chain; the first one has depth 0.
fn depth_of(chain: &[(Series, Vec<Voter>)]) -> u32 {
    u32::try_from(chain.len().saturating_sub(1)).unwrap_or(u32::MAX)
}

/// Requires a property of a certificate.
fn certify(holds: bool, otherwise: CertificateFault) -> Result<(), Fault> {
    certified(require(holds, otherwise))
}

/// The fault of a certificate that fails this check.
fn certified(checked: Result<(), impl Into<CertificateFault>>) -> Result<(), Fault> {
    checked.map_err(|why| Fault::Certificate(why.into()))
}

#[cfg(test)]
mod tests;
