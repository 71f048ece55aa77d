//! Salvage: what a ring finished before it failed is not computed again (R10, R30–R33).
//!
//! Each member knows which chunks it holds whole, with their owners' seals, and lists them in its
//! `Report`. The proposer of a free roster keeps those whose blocks it can place. Then the ring
//! computes only the other blocks, and every member fetches the kept chunks that it lacks from
//! their holders. The divisor of a chunk always stays that of the roster which computed it.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use crate::base::blocks::Blocks;
use crate::base::fault::require;
use crate::base::id::{Digest, PeerId};
use crate::base::rule::Rule;
use crate::message::seal::{SEAL_BYTES, Seal};
use crate::message::{HOLDERS_MAX, Keep, Kept, Member, Refusal, Report, Roster, wire};
use crate::ring::{Layout, Order};

use super::facts::Facts;

/// Attempts of one series that keep chunks; guess: a death in each of them is rare.
const KEEP_ATTEMPTS_MAX: u64 = 4;

/// Room that a roster must leave in a gossiped envelope: for signature, author and repeats.
const ENVELOPE_ROOM: usize = 256;

/// What is claimed of one chunk: each seal, with the peers that hold what it seals.
type Claims = BTreeMap<[u8; SEAL_BYTES], (Seal, Vec<PeerId>)>;

/// R10, R32: what a free roster with this ring keeps, of all that the peers heard hold.
pub(super) fn choose_keep(
    facts: Facts<'_>,
    attempt: u64,
    reports: &BTreeMap<PeerId, Report>,
) -> Vec<Keep> {
    // A peer that claims a chunk and does not serve it delays a few attempts, not all.
    if attempt > KEEP_ATTEMPTS_MAX {
        return Vec::new();
    }
    let elements = facts.validator.elements;
    let mut candidates = keepable(facts, attempt, reports);
    candidates.sort_by_key(|(roster, kept)| (Reverse(kept.blocks.len()), *roster, kept.chunk));
    let (mut covered, mut chosen) = (Blocks::default(), Vec::new());
    for (roster, kept) in candidates {
        if !covered.overlaps(&kept.blocks) {
            covered = covered.and(&kept.blocks);
            chosen.push((roster, kept));
        }
    }
    // A ring always computes something; a roster without a ring would be a special case everywhere.
    if covered == Blocks::all(elements) {
        chosen.pop();
    }
    let mut keeps: BTreeMap<Digest, Keep> = BTreeMap::new();
    for (roster, kept) in chosen {
        let Some(known) = facts.slot.roster(&roster) else { continue };
        let keep = keeps.entry(roster).or_insert_with(|| Keep {
            roster,
            members: known.ring().copied().collect(),
            chunks: Vec::new(),
        });
        keep.chunks.push(kept);
    }
    keeps.into_values().collect()
}

/// Every chunk that is held and whose blocks are known, each with its roster.
fn keepable(
    facts: Facts<'_>,
    attempt: u64,
    reports: &BTreeMap<PeerId, Report>,
) -> Vec<(Digest, Kept)> {
    let mut held: BTreeMap<(Digest, u32), Claims> = BTreeMap::new();
    let theirs = reports.iter().flat_map(|(peer, s)| s.chunks.iter().map(|f| (*peer, *f)));
    let ours = facts.slot.chunks.all().map(|finished| (facts.me.peer, finished));
    for (peer, finished) in theirs.chain(ours) {
        let same = held.entry((finished.roster, finished.chunk)).or_default();
        let seal = finished.seal;
        let (_, holders) = same.entry(seal.to_bytes()).or_insert((seal, Vec::new()));
        if !holders.contains(&peer) {
            holders.push(peer);
        }
    }
    let place = |((roster, chunk), claims)| {
        Some((roster, candidate(facts, attempt, roster, chunk, claims)?))
    };
    let chunks = &facts.slot.chunks;
    held.into_iter().filter(|(at, _)| chunks.is_available(at)).filter_map(place).collect()
}

/// A chunk as a roster may keep it: its ring opened, exactly one seal of its owner is shown for it,
/// and its blocks follow from its roster. Peers that are said to have it come in an order that all
/// compute alike. `None` if any of this fails: then its blocks are computed again.
fn candidate(
    facts: Facts<'_>,
    attempt: u64,
    roster: Digest,
    chunk: u32,
    claims: Claims,
) -> Option<Kept> {
    let ballot = facts.slot.ballots.get(&roster).filter(|ballot| ballot.has_one_value())?;
    if !has_opened(facts, &roster) && facts.keeps(Rule::R32) {
        return None;
    }
    let known = ballot.roster.as_ref().filter(|known| known.series.is_beside(&facts.series()))?;
    let layout = Layout::of(known, facts.validator.elements)?;
    let index = usize::try_from(chunk).ok().filter(|c| *c < layout.cut().members())?;
    let blocks = layout.chunk(index);
    let owner = known.ring().nth(layout.cut().owner(index))?.peer;
    let (key, run) = (&facts.validator.key, &facts.validator.run);
    let mut good =
        claims.into_values().filter(|(seal, _)| seal.is_of(&owner, key, run, &roster, chunk));
    let (seal, mut holders) = good.next()?;
    // R11: two values of one chunk, both signed, and nothing shows which one is right.
    if good.next().is_some() || blocks.is_empty() {
        return None;
    }
    holders.sort_by_cached_key(|peer| facts.order(Order::Serve, attempt, peer));
    holders.truncate(HOLDERS_MAX);
    Some(Kept { chunk, seal, blocks, holders })
}

/// Leaves kept chunks out until the roster fits into a gossiped envelope.
pub(super) fn fit(facts: Facts<'_>, roster: &mut Roster) {
    let room = wire::GOSSIP_BYTES_MAX - ENVELOPE_ROOM;
    while wire::length(roster) > room && !roster.keep.is_empty() {
        if let Some(last) = roster.keep.last_mut() {
            last.chunks.pop();
        }
        roster.keep.retain(|keep| !keep.chunks.is_empty());
    }
    if !facts.keeps(Rule::R30) {
        let ring: Vec<Member> = roster.ring().copied().collect();
        roster.keep.iter_mut().for_each(|keep| keep.members.clone_from(&ring));
    }
}

/// R32: whether a roster keeps only chunks of rings that opened, with the members and blocks that
/// these had.
pub(super) fn check_kept(facts: Facts<'_>, roster: &Roster) -> Result<(), Refusal> {
    let elements = facts.validator.elements;
    for keep in &roster.keep {
        let opened = has_opened(facts, &keep.roster) || !facts.keeps(Rule::R32);
        require(opened, Refusal::Unproven)?;
        let Some(known) = facts.slot.roster(&keep.roster) else { continue };
        let layout = Layout::of(known, elements).ok_or(Refusal::Rule)?;
        let placed = |kept: &Kept| {
            let chunk = usize::try_from(kept.chunk).unwrap_or(usize::MAX);
            chunk < layout.cut().members() && layout.chunk(chunk) == kept.blocks
        };
        let same = known.ring().eq(&keep.members) || !facts.keeps(Rule::R30);
        let earlier = known.series.is_beside(&facts.series());
        require(same && earlier && keep.chunks.iter().all(placed), Refusal::Rule)?;
    }
    Ok(())
}

/// Whether we know that the ring of a roster opened (R5): in this series, or in one that it
/// descends from.
pub(super) fn has_opened(facts: Facts<'_>, digest: &Digest) -> bool {
    let Some(ballot) = facts.slot.ballots.get(digest) else { return false };
    let Some(roster) = &ballot.roster else { return false };
    let accepted = ballot.accepts.keys().copied().collect();
    let chain = facts.slot.chain();
    let voters = chain.iter().find(|(series, _)| *series == roster.series);
    voters.is_some_and(|(_, voters)| facts.validator.ring_opens(roster, voters, &accepted))
}
