//! Where a ring stood still, and which members that counts against (R35, R40).
//!
//! In a ring of n every member receives 2(n − 1) hops, each of which brings one chunk, and sends hop
//! h + 1 once it has received hop h. A member of a ring that stopped says how many hops r have come
//! whole. So the member at position i could send r_i + 1, of which r_(i+1) have arrived; the *gap*
//! of this link is r_i + 1 − r_(i+1), and the gaps of a ring sum to n. Once nothing moves, the gap of
//! a link is 0 if it works and both its ends are honest. If all links are slow alike, each is 1.
//!
//! So a gap of two or more is a *dispute*: the link does not work, or one of its ends lies. Of one
//! failed computation two players are set apart, of whom one is bad (Hirt, Maurer, Przydatek 2000).
//! A member that ends its ring while all links move alike leaves no such gap. It is the first to say
//! that the ring stopped, and is in dispute with its predecessor, for which it may have waited. That
//! holds before T_ring, which ends a ring that is slow, and where no chunk is kept that it may lack.
//!
//! A pair that is in dispute has no neighbouring positions any more in this epoch, and a peer that
//! is in dispute in two rings has no position. Of the pairs of one ring with a common member one
//! counts, since a member that both its neighbours call lost would else cost two of them. So f liars
//! end about 2f rings of an epoch, and cost at most f honest peers their position. ADR 0026 has what is
//! left: unequal links, and rings that keep chunks.

use std::collections::{BTreeMap, BTreeSet};

use crate::base::id::{Digest, PeerId};

use crate::consensus::epoch::seats::pair;

/// Two peers, the lesser one first.
pub(in crate::consensus::epoch) type Pair = (PeerId, PeerId);

/// The least gap that shows more than that all links are equally slow.
const GAP_MIN: u32 = 2;

/// Rings that may count against a voter before it has no position: a link of its may have failed.
const DISPUTES_MAX: usize = 1;

/// Rings that are remembered: more than an epoch has before its waits are long.
const RINGS_MAX: usize = 64;

/// The rings of the open epoch that stopped before their end.
#[derive(Clone, Debug, Default)]
pub(super) struct Disputes(BTreeMap<Digest, StoppedRing>);

/// A ring that stopped, and what its members say of it.
#[derive(Clone, Debug)]
pub(super) struct StoppedRing {
    members: Vec<PeerId>,
    /// Whether it matters who spoke first.
    is_ordered: bool,
    /// Each report with the number of those that were heard before it.
    reports: BTreeMap<PeerId, (usize, Halt)>,
}

/// How a member's ring stopped.
#[derive(Clone, Copy, Debug)]
pub(in crate::consensus::epoch) struct Halt {
    /// The neighbour whose connection failed, if that was the reason.
    pub(in crate::consensus::epoch) lost: Option<PeerId>,
    /// Hops whose chunk has arrived whole.
    pub(in crate::consensus::epoch) hops: u32,
}

impl Disputes {
    /// Notes what a member of a ring says. Only its first word about a ring counts. `is_ordered` says
    /// of the first report whether it matters whose it is.
    pub(super) fn note(
        &mut self,
        (ring, members): (Digest, Vec<PeerId>),
        from: PeerId,
        halt: Halt,
        is_ordered: bool,
    ) {
        if self.0.len() >= RINGS_MAX && !self.0.contains_key(&ring) {
            return;
        }
        let new = || StoppedRing { members, is_ordered, reports: BTreeMap::new() };
        let reports = &mut self.0.entry(ring).or_insert_with(new).reports;
        let earlier = reports.len();
        reports.entry(from).or_insert((earlier, halt));
    }

    /// All rings that stopped, each with the digest of its roster.
    pub(super) fn rings(&self) -> impl Iterator<Item = (&Digest, &StoppedRing)> {
        self.0.iter()
    }

    /// Whether a member has said that this ring of its stopped.
    pub(super) fn has_stopped(&self, ring: &Digest, who: &PeerId) -> bool {
        self.0.get(ring).is_some_and(|ring| ring.reports.contains_key(who))
    }
}

impl StoppedRing {
    /// The pairs that are in dispute: those whose connection failed, else that with the largest gap,
    /// else that of the member that stopped first.
    pub(super) fn pairs(&self) -> BTreeSet<Pair> {
        let failed = self.reports.iter().filter_map(|(from, report)| self.failed(from, report));
        let failed: BTreeSet<Pair> = failed.collect();
        let one = || self.widest().or_else(|| self.hastiest()).into_iter().collect();
        if failed.is_empty() { one() } else { failed }
    }

    /// Of these pairs the ones that count against their members: no member is in two of them.
    fn counted(&self) -> Vec<Pair> {
        let mut counted: Vec<Pair> = Vec::new();
        for (a, b) in self.pairs() {
            if counted.iter().all(|(c, d)| ![c, d].contains(&&a) && ![c, d].contains(&&b)) {
                counted.push((a, b));
            }
        }
        counted
    }

    /// The pair of the member that spoke first and its predecessor. All must have spoken, because
    /// a silent member counts alone. In a ring of two nothing shows which is right.
    fn hastiest(&self) -> Option<Pair> {
        let count = self.members.len();
        let spoke_first = |peer: &PeerId| self.reports.get(peer).is_some_and(|(n, _)| *n == 0);
        let at = self.members.iter().position(spoke_first)?;
        let all = self.is_ordered && count > 2 && self.reports.len() == count;
        all.then(|| pair(self.members[(at + count - 1) % count], self.members[at]))
    }

    /// The two ends of a connection that failed, by this report. A member that stops closes its
    /// connections, which says nothing of them; but a member that is accused stops only then.
    fn failed(&self, from: &PeerId, (earlier, halt): &(usize, Halt)) -> Option<Pair> {
        let lost = halt.lost?;
        let counts =
            |(before, other): &(usize, Halt)| before > earlier || other.lost == Some(*from);
        self.reports.get(&lost).is_none_or(counts).then(|| pair(*from, lost))
    }

    /// The link with the largest gap; of equal ones the first in ring order.
    fn widest(&self) -> Option<Pair> {
        let count = self.members.len();
        let all_hops = u32::try_from(2 * count.saturating_sub(1)).unwrap_or(u32::MAX);
        let hops = |at: usize| Some(self.reports.get(self.members.get(at % count)?)?.1.hops);
        let gap = |at: &usize| {
            let (sent, arrived) = (hops(*at)?.saturating_add(1).min(all_hops), hops(at + 1)?);
            Some(sent.saturating_sub(arrived)).filter(|gap| *gap >= GAP_MIN)
        };
        let widest = (0..count).rev().filter(|at| gap(at).is_some()).max_by_key(gap)?;
        Some(pair(self.members[widest], self.members[(widest + 1) % count]))
    }

    /// The members that say nothing, where half of all have spoken and show no dispute.
    pub(super) fn silent(&self) -> impl Iterator<Item = PeerId> {
        let speak = 2 * self.reports.len() >= self.members.len() && self.pairs().is_empty();
        let silent = self.members.iter().filter(|peer| !self.reports.contains_key(peer));
        silent.filter(move |_| speak).copied()
    }
}

/// R40: the peers that have no position any more in this epoch: a voter that two rings count
/// against, and a newcomer that one does. A pair of a voter and a newcomer counts against the
/// newcomer alone, since its key is free.
pub(super) fn outcasts<'a>(
    rings: impl Iterator<Item = &'a StoppedRing>,
    is_voter: impl Fn(&PeerId) -> bool,
) -> BTreeSet<PeerId> {
    let mut counts: BTreeMap<PeerId, usize> = BTreeMap::new();
    for ring in rings {
        let mut parties: BTreeSet<PeerId> = ring.silent().collect();
        for (a, b) in ring.counted() {
            let both = is_voter(&a) == is_voter(&b);
            parties.extend([a, b].into_iter().filter(|peer| both || !is_voter(peer)));
        }
        for peer in parties {
            *counts.entry(peer).or_default() += 1;
        }
    }
    let most = |peer: &PeerId| if is_voter(peer) { DISPUTES_MAX } else { 0 };
    counts.into_iter().filter(|(peer, count)| *count > most(peer)).map(|(peer, _)| peer).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(n: u8) -> PeerId {
        PeerId([n; 32])
    }

    /// A ring whose members received so many hops before all of it stood still.
    fn stopped(hops: &[u32]) -> StoppedRing {
        let members: Vec<PeerId> = (0..).take(hops.len()).map(peer).collect();
        let halts = hops.iter().map(|hops| Halt { lost: None, hops: *hops }).enumerate();
        let reports = members.iter().copied().zip(halts).collect();
        StoppedRing { reports, members, is_ordered: true }
    }

    /// What the members of a ring of `count` receive if those in `silent` send nothing after `hop`.
    fn held_up(count: usize, silent: &[usize], hop: u32) -> Vec<u32> {
        let mut hops = vec![0; count];
        for _ in 0..4 * count {
            for at in 0..count {
                let before = (at + count - 1) % count;
                let sent = hops[before] + 1;
                let sent = if silent.contains(&before) { sent.min(hop) } else { sent };
                hops[at] = sent.min(2 * (count as u32 - 1));
            }
        }
        hops
    }

    #[test]
    fn r40_the_widest_gap_is_beside_the_member_that_does_not_send() {
        for count in 2..=16_usize {
            for silent in 0..count {
                for hop in 0..count.saturating_sub(2) as u32 + 1 {
                    let ring = stopped(&held_up(count, &[silent], hop));
                    let after = (silent + 1) % count;
                    let both = pair(peer(silent as u8), peer(after as u8));
                    assert_eq!(ring.widest(), Some(both), "{count}, {silent} from hop {hop}");
                }
            }
        }
    }

    #[test]
    fn r40_of_two_that_do_not_send_one_pair_at_a_time_is_in_dispute() {
        let ring = stopped(&held_up(9, &[1, 4], 0));
        assert_eq!(ring.pairs(), BTreeSet::from([(peer(1), peer(2))]));
        assert_eq!(ring.silent().count(), 0);
    }

    #[test]
    fn r40_links_that_are_slow_alike_do_not_stand_out() {
        assert_eq!(stopped(&[3; 7]).widest(), None);
        assert_eq!(stopped(&[0; 2]).pairs(), BTreeSet::new());
    }

    #[test]
    fn r40_where_no_link_stands_out_the_first_to_stop_is_in_the_dispute() {
        let mut ring = stopped(&[3; 7]);
        for (at, report) in ring.reports.values_mut().enumerate() {
            report.0 = (at + 5) % 7;
        }
        assert_eq!(ring.pairs(), BTreeSet::from([(peer(1), peer(2))]));
        let report = ring.reports.remove(&peer(5));
        assert_eq!((ring.pairs(), ring.silent().collect()), (BTreeSet::new(), vec![peer(5)]));
        ring.reports.extend(report.map(|report| (peer(5), report)));
        ring.is_ordered = false;
        assert_eq!(ring.pairs(), BTreeSet::new(), "its time was over");
    }

    #[test]
    fn r40_a_member_that_both_neighbours_call_lost_costs_one_of_them() {
        let mut ring = stopped(&[0; 6]);
        for from in [1, 3] {
            ring.reports.insert(peer(from), (0, Halt { lost: Some(peer(2)), hops: 0 }));
        }
        ring.reports.insert(peer(2), (9, Halt { lost: None, hops: 0 }));
        assert_eq!(ring.pairs(), BTreeSet::from([(peer(1), peer(2)), (peer(2), peer(3))]));
        assert_eq!(ring.counted(), vec![(peer(1), peer(2))]);
        ring.reports.insert(peer(5), (9, Halt { lost: Some(peer(4)), hops: 0 }));
        ring.reports.insert(peer(4), (8, Halt { lost: Some(peer(5)), hops: 0 }));
        assert_eq!(ring.counted(), vec![(peer(1), peer(2)), (peer(4), peer(5))]);
    }

    #[test]
    fn r40_a_member_that_denies_what_it_received_is_in_the_dispute() {
        let mut hops = held_up(6, &[2], 1);
        hops[2] = 0;
        assert_eq!(stopped(&hops).widest(), Some((peer(1), peer(2))));
        let mut hops = held_up(6, &[2], 1);
        hops[2] = 99;
        assert_eq!(stopped(&hops).widest(), Some((peer(2), peer(3))));
    }

    #[test]
    fn r40_a_member_that_says_nothing_counts_alone() {
        let mut ring = stopped(&held_up(6, &[2], 1));
        ring.reports.remove(&peer(2));
        assert_eq!((ring.pairs(), ring.silent().collect()), (BTreeSet::new(), vec![peer(2)]));
        ring.reports.retain(|from, _| *from == peer(0));
        assert_eq!(ring.silent().count(), 0, "too few have spoken");
    }

    #[test]
    fn r35_a_failed_connection_counts_unless_its_end_had_stopped() {
        let accused = BTreeSet::from([(peer(1), peer(2))]);
        let halt = |lost: Option<u8>| Halt { lost: lost.map(peer), hops: 0 };
        let mut ring = stopped(&[0; 4]);
        ring.reports.insert(peer(1), (9, halt(Some(2))));
        assert!(ring.pairs().is_disjoint(&accused), "2 had stopped, and closed it");
        ring.reports.insert(peer(2), (10, halt(None)));
        assert_eq!(ring.pairs(), accused, "2 stopped when it was accused");
        ring.reports.insert(peer(2), (8, halt(Some(1))));
        assert_eq!(ring.pairs(), accused, "both say so");
        ring.reports.remove(&peer(2));
        assert_eq!(ring.pairs(), accused, "2 says nothing");
    }
}
