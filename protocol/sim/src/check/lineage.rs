//! What was committed, by which peers, and whose work is in it: S3, S4 and S6.
//!
//! States form a tree: each is committed once, on its parent, and a fork is a state with two
//! children. Nothing leaves the tree, since a lineage that was given up may be followed again. Work
//! is a range of tokens of one start of one peer, in each block; so whether it is counted twice or
//! lost is a comparison of two numbers.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use super::rights::Rights;
use super::{Verdict, require};
use crate::toy::{BLOCKS, CODEC, ELEMENTS, Frozen};
use intellect_protocol::base::blocks::Blocks;
use intellect_protocol::base::id::{Digest, PeerId};
use intellect_protocol::message::{Head, Member, Notice, Rank, Ready, Receipt, Roster, Voter};

/// A start of a peer: its key and incarnation.
type Start = (PeerId, u64);

/// A state that some peer committed.
#[derive(Clone, Debug)]
struct Node {
    /// The state before it; that of genesis is zero, and nowhere in the tree.
    parent: Digest,
    /// The head of a peer in this state.
    head: Head,
    /// The digest of the receipt that led here.
    r: Digest,
    /// Whether its series was opened by a Regroup, on every way on which it was decided.
    regrouped: bool,
    /// The voters of the next epoch, in the order of the receipt.
    voters: Vec<Voter>,
    /// How many members had a position in its ring.
    places: usize,
    /// The peers that were revoked up to here, and the uses of each invite.
    rights: Rights,
    /// The token up to which each process is in the lineage, block by block.
    spent: BTreeMap<Start, Vec<u64>>,
}

/// All lineages of a run, as a tree of states.
#[derive(Clone, Debug)]
pub(crate) struct History {
    /// All states that somebody has committed, by their digests.
    nodes: BTreeMap<Digest, Node>,
    /// What a process froze for the epoch after a state.
    frozen: BTreeMap<(Start, Digest), Frozen>,
    /// The peers whose own numbers prove nothing: S4 is not checked for their tokens.
    liars: BTreeSet<PeerId>,
}

impl History {
    /// Begins with the founding state, which all peers share.
    pub(super) fn new(genesis: Head, voters: Vec<Voter>) -> Self {
        let (parent, r, regrouped) = (Digest::ZERO, Digest::ZERO, false);
        let (rights, spent) = (Rights::default(), BTreeMap::new());
        let node = Node { parent, head: genesis, r, regrouped, voters, places: 0, rights, spent };
        let (frozen, liars) = (BTreeMap::new(), BTreeSet::new());
        Self { nodes: BTreeMap::from([(genesis.state, node)]), frozen, liars }
    }

    /// From now on a liar may drive this peer, which may then declare any weight.
    pub(super) fn distrust(&mut self, peer: PeerId) {
        self.liars.insert(peer);
    }

    /// The voters of the epoch after `parent`, by the receipt before it.
    pub(crate) fn voters(&self, parent: &Digest) -> Vec<Voter> {
        self.nodes.get(parent).map(|node| node.voters.clone()).unwrap_or_default()
    }

    /// Whether a peer was revoked up to a state.
    pub(crate) fn has_revoked(&self, state: &Digest, peer: &PeerId) -> bool {
        self.nodes.get(state).is_some_and(|node| !node.rights.votes(peer))
    }

    /// S9: a roster names nobody who was revoked before its epoch.
    pub(super) fn on_roster(&self, roster: &Roster) -> Verdict {
        let before = self.nodes.get(&roster.series.parent);
        before.map_or(Ok(()), |node| node.rights.allow(&roster.members))
    }

    /// Whether some peer committed this state.
    pub(crate) fn knows(&self, state: &Digest) -> bool {
        self.nodes.contains_key(state)
    }

    /// R31: one epoch has one frozen delta, however many attempts and series it has.
    pub(super) fn on_frozen(
        &mut self,
        peer: PeerId,
        incarnation: u64,
        parent: Digest,
        frozen: &Frozen,
    ) -> Verdict {
        let key = ((peer, incarnation), parent);
        let before = self.frozen.entry(key).or_insert_with(|| frozen.clone());
        require((&before.span, &before.from) == (&frozen.span, &frozen.from), "S4", || {
            format!("{peer} freezes {:?} and {:?} for one epoch", before.span, frozen.span)
        })
    }

    /// R31: a Ready declares the weight that is frozen.
    pub(super) fn on_ready(&self, peer: PeerId, incarnation: u64, ready: &Ready) -> Verdict {
        let frozen = self.frozen.get(&((peer, incarnation), ready.series.parent));
        let weight = frozen.map(Frozen::weight);
        require(weight == Some(ready.weight) && ready.incarnation == incarnation, "S4", || {
            format!("{peer} declares {}, has frozen {weight:?}", ready.weight)
        })
    }

    /// Adds a committed epoch to the tree of states, after checking what it claims. Only the first
    /// commit of a state is checked in full; each later one must be equal to it. A second state on
    /// one parent is a fork, which only a Regroup can have made (S6).
    pub(super) fn on_committed(
        &mut self,
        r: Digest,
        head: Head,
        receipt: &Receipt,
        regrouped: bool,
        update: Option<&Arc<Vec<u8>>>,
    ) -> Verdict {
        let parent = receipt.series.parent;
        if let Some(node) = self.nodes.get_mut(&head.state) {
            // One value may be decided in its series, and in one that descends from it.
            node.regrouped &= regrouped;
            return require((node.r, node.parent, node.head) == (r, parent, head), "S6", || {
                format!("state {} came from {} and from {r}", head.state, node.r)
            });
        }
        let Some(before) = self.nodes.get(&parent) else {
            return require(false, "S3", || format!("{} extends no state", head.state));
        };
        require(head.epoch == before.head.epoch + 1, "S3", || format!("epoch of {head:?}"))?;
        let tokens = before.head.tokens + receipt.tokens();
        require(head.tokens == tokens, "S4", || format!("{tokens} tokens, not {head:?}"))?;
        for sibling in self.nodes.values().filter(|node| node.parent == parent) {
            if sibling.head.epoch != head.epoch {
                continue;
            }
            require(sibling.r != r, "diverged", || format!("two states from {r}"))?;
            require(sibling.regrouped || regrouped, "S6", || {
                format!("a fork after {parent} without a Regroup")
            })?;
        }
        let spent = self.spend(receipt, &before.spent)?;
        self.check_mean(receipt, update)?;
        let rights = before.rights.after(receipt)?;
        let voters = receipt.members.iter().filter(|m| rights.votes(&m.peer));
        let voters = voters.map(Member::voter).collect();
        let places = receipt.members.iter().filter(|member| member.weight > 0).count();
        let node = Node { parent, head, r, regrouped, voters, places, rights, spent };
        self.nodes.insert(head.state, node);
        Ok(())
    }

    /// S3: a head is replaced only by a greater one, by the organiser's `notices` that its owner
    /// knew when it set out. A notice that came while it fetched may have been too late.
    pub(super) fn on_loaded(
        &self,
        peer: PeerId,
        notices: &[Notice],
        old: &Head,
        new: &Head,
    ) -> Verdict {
        require(self.nodes.contains_key(&new.state), "S3", || {
            format!("{peer} follows {new:?}, which nobody committed")
        })?;
        let greater = self.rank(notices, new) > self.rank(notices, old);
        require(greater, "S3", || format!("{peer} goes from {old:?} to {new:?}"))
    }

    /// The first epoch, back from `old`, that is not on the lineage of `new` and whose ring had
    /// more than one member; `None` for two lineages that were founded apart.
    pub(super) fn undone_together(&self, old: &Head, new: &Head) -> Option<Head> {
        let (mut at, mut together) = (self.nodes.get(&old.state), None);
        while let Some(node) = at.filter(|node| !self.descends(&new.state, &node.head.state)) {
            if node.places > 1 {
                together = together.or(Some(node.head));
            }
            at = self.nodes.get(&node.parent);
        }
        if at.is_some_and(|node| node.head.epoch > 0) { together } else { None }
    }

    /// The rank of a head, if the organiser has signed these notices (R23). An attestation of a
    /// state that nobody has committed counts for no head.
    pub(crate) fn rank(&self, notices: &[Notice], head: &Head) -> Rank {
        let lies = |notice: &&Notice| {
            notice.attests().is_some_and(|attestation| {
                self.knows(&attestation.state) && self.descends(&head.state, &attestation.state)
            })
        };
        head.rank(notices.iter().filter(lies).map(|notice| notice.number).max().unwrap_or(0))
    }

    /// S3, R28: a replayed epoch extends the head by one that some peer committed.
    pub(super) fn on_replayed(&self, peer: PeerId, old: &Head, new: &Head) -> Verdict {
        let node = self.nodes.get(&new.state);
        require(node.is_some_and(|n| n.parent == old.state && n.head == *new), "S3", || {
            format!("{peer} replays {new:?} on {old:?}, which nobody committed there")
        })
    }

    /// S4: in each block a process gives up the tokens it has trained if its new lineage contains
    /// some of them. Only when it changes to another lineage may it give up more, which is forgone
    /// (R27). Returns how many tokens are forgone, in the block with the most of them.
    pub(super) fn on_settled(
        &self,
        peer: PeerId,
        incarnation: u64,
        head: &Head,
        spent: &Blocks,
        unspent: &[Range<u64>],
    ) -> Result<u64, super::Violation> {
        let Some(node) = self.nodes.get(&head.state) else { return Ok(0) };
        let none = vec![0; BLOCKS];
        let until = node.spent.get(&(peer, incarnation)).unwrap_or(&none);
        let mut forgone = 0;
        // A part of the delta counts even if another lineage had spent that very part (R27).
        let least = unspent.iter().map(|unspent| unspent.start).min().unwrap_or(0);
        let any = until.iter().any(|until| *until > least);
        for ((block, unspent), until) in (0..).zip(unspent).zip(until) {
            let given_up = spent.overlaps(&Blocks::of(std::iter::once(block..block + 1)));
            let is_spent = *until > unspent.start;
            require(given_up || !is_spent, "S4", || {
                format!("{peer} keeps {unspent:?} of block {block}, its lineage has {until}")
            })?;
            if given_up {
                forgone = forgone.max(unspent.end.saturating_sub(unspent.start.max(*until)));
            }
        }
        require(any || spent.is_empty(), "S4", || {
            format!("{peer} gives {unspent:?} up, of which its lineage has nothing")
        })?;
        Ok(forgone)
    }

    /// Whether the state `new` is `old` or extends it. It goes back from `new`, one epoch at a
    /// time. A state that nobody has committed extends none.
    pub(super) fn descends(&self, new: &Digest, old: &Digest) -> bool {
        let Some(target) = self.nodes.get(old) else { return false };
        let mut at = self.nodes.get(new);
        while let Some(node) = at.filter(|node| node.head.epoch > target.head.epoch) {
            at = self.nodes.get(&node.parent);
        }
        at.is_some_and(|node| node.head.state == *old)
    }

    /// S4: no token occurs twice in a block of a lineage, and no peer twice in a sum. Returns up to
    /// which token each start is spent after this receipt, block by block.
    fn spend(
        &self,
        receipt: &Receipt,
        before: &BTreeMap<Start, Vec<u64>>,
    ) -> Result<BTreeMap<Start, Vec<u64>>, super::Violation> {
        let mut spent = before.clone();
        for (members, blocks) in sums(receipt) {
            for member in members.into_iter().filter(|m| !self.liars.contains(&m.peer)) {
                let Frozen { span, from, .. } = self.contribution(member, receipt)?;
                let start = (member.peer, member.incarnation);
                let untils = spent.entry(start).or_insert_with(|| vec![0; BLOCKS]);
                for block in blocks.ranges().flatten() {
                    let block = usize::try_from(block).unwrap_or(usize::MAX);
                    require(from[block] >= untils[block], "S4", || {
                        let (peer, from, until) = (member.peer, from[block], untils[block]);
                        format!("{peer} contributes {from} to {block}, spent until {until}")
                    })?;
                    untils[block] = span.end;
                }
            }
        }
        Ok(spent)
    }

    /// The frozen delta behind a member's part of a receipt, which must exist (S4).
    fn contribution(
        &self,
        member: &Member,
        receipt: &Receipt,
    ) -> Result<&Frozen, super::Violation> {
        let parent = receipt.series.parent;
        let declared = self.frozen.get(&((member.peer, member.incarnation), parent));
        let frozen = if self.liars.contains(&member.peer) {
            // A liar may declare any weight and start: what counts is the delta in the sum.
            let mine = |(((peer, _), of), _): &(&(Start, Digest), _)| {
                *peer == member.peer && *of == parent
            };
            let last = || self.frozen.iter().filter(mine).map(|(_, frozen)| frozen).next_back();
            declared.or_else(last)
        } else {
            declared.filter(|frozen| frozen.weight() == member.weight)
        };
        frozen.ok_or_else(|| super::Violation {
            invariant: "S4",
            what: format!("{member:?} never froze that for this epoch"),
        })
    }

    /// S4: in each block the update is Σ w·Δ / Σ w over the members that the receipt names there,
    /// except for the rounding at each hop. It is computed anew in f64 from the frozen deltas, in
    /// no order of a ring, so a member that is missing, doubled or wrongly weighted shows. The
    /// whole relative error of a sum is bounded, and not that of each element.
    fn check_mean(&self, receipt: &Receipt, update: Option<&Arc<Vec<u8>>>) -> Verdict {
        let Some(update) = update else {
            return require(false, "S4", || "a commit without its update".to_owned());
        };
        let mut decoded = vec![0.0; ELEMENTS];
        let decodes = CODEC.decode(update, &mut decoded).is_ok();
        require(decodes, "S4", || format!("update {} cannot be decoded", receipt.update))?;
        for (members, blocks) in sums(receipt) {
            let divisor: f64 = members.iter().map(|member| member.weight as f64).sum();
            let (mut error, mut norm) = (0.0, 0.0);
            for range in blocks.elements(ELEMENTS as u64) {
                let mut mean = vec![0.0; range.len()];
                for member in &members {
                    let share = member.weight as f64 / divisor;
                    let delta = &self.contribution(member, receipt)?.delta[range.clone()];
                    let terms = mean.iter_mut().zip(delta);
                    terms.for_each(|(sum, value)| *sum += share * f64::from(*value));
                }
                for (mean, value) in mean.iter().zip(&decoded[range]) {
                    error += (mean - f64::from(*value)).powi(2);
                    norm += mean.powi(2);
                }
            }
            let (relative, ring) = ((error / norm).sqrt(), members.len() as f64);
            require(relative <= ROUNDING * ring.sqrt(), "S4", || {
                format!("the update of {} members is {relative} off their mean", members.len())
            })?;
        }
        Ok(())
    }
}

/// The members in the sum of each set of blocks: those of each part, and those of the
/// roster that formed the rest.
fn sums(receipt: &Receipt) -> Vec<(Vec<&Member>, Blocks)> {
    let kept =
        receipt.parts.iter().map(|part| (part.members.iter().collect(), part.blocks.clone()));
    let formed = receipt.members.iter().filter(|member| member.weight > 0).collect();
    kept.chain([(formed, receipt.formed(ELEMENTS as u64))]).collect()
}

/// Relative error of a ring of one; int8 rounds at each of n hops, so it
/// grows as √n. Measured: 0.5 %.
const ROUNDING: f64 = 0.01;
