//! The order of a ring: no two neighbours are *apart* (R35, R42).
//!
//! Two members are apart if a link between them broke in this epoch, or if one of them says that no
//! direct connection joins them. A ring is a Hamiltonian cycle of the graph of the members that are
//! not apart. For few members the largest one is found exactly, by the recurrence over sets of Held
//! and Karp (1962). For more, members are inserted one after another, those that are apart from
//! fewest first, followed by one pass of 2-opt exchanges.
//!
//! A member without a seat could not be put between any two neighbours of the ring either;
//! acceptors check that.

use std::collections::BTreeSet;

use crate::base::id::PeerId;
use crate::message::Member;

/// Up to this many members the largest ring is found exactly: 2^n sets, with n ends each.
const EXACT_MAX: usize = 12;

/// The unordered pair of two peers.
pub(super) fn pair(a: PeerId, b: PeerId) -> (PeerId, PeerId) {
    if a < b { (a, b) } else { (b, a) }
}

/// The members in an order in which no two neighbours are apart, and the members without a seat. As
/// many as can be found have a seat, voters before newcomers. Among equals, those that come first
/// in `all` do; that order is another one in each epoch.
pub(super) fn seat(
    all: Vec<Member>,
    is_newcomer: impl Fn(&Member) -> bool,
    apart: &BTreeSet<(PeerId, PeerId)>,
) -> (Vec<Member>, Vec<Member>) {
    let table = Table::new(&all, is_newcomer, apart);
    if table.degree.iter().all(|degree| *degree == 0) {
        return (all, Vec::new());
    }
    let ring = if all.len() <= EXACT_MAX { table.largest() } else { table.inserted() };
    let at = |index: &usize| all.get(*index).copied();
    let seated = ring.iter().filter_map(at).collect();
    let rest = (0..all.len()).filter(|index| !ring.contains(index));
    (seated, rest.filter_map(|index| at(&index)).collect())
}

/// Whether a ring has two neighbours between which `member` could sit.
pub(super) fn has_seat(
    ring: &[Member],
    member: PeerId,
    apart: &BTreeSet<(PeerId, PeerId)>,
) -> bool {
    let fits = |other: &Member| !apart.contains(&pair(other.peer, member));
    let next = ring.iter().cycle().skip(1);
    ring.is_empty() || ring.iter().zip(next).any(|(a, b)| fits(a) && fits(b))
}

/// Which members are apart, by index in the list of all.
struct Table {
    apart: Vec<Vec<bool>>,
    /// From how many others each member is apart.
    degree: Vec<usize>,
    newcomer: Vec<bool>,
}

impl Table {
    /// The members by index, in the order of the ring that they would have if nobody was apart.
    fn new(
        all: &[Member],
        is_newcomer: impl Fn(&Member) -> bool,
        pairs: &BTreeSet<(PeerId, PeerId)>,
    ) -> Self {
        let row = |a: &Member| -> Vec<bool> {
            all.iter().map(|b| pairs.contains(&pair(a.peer, b.peer))).collect()
        };
        let apart: Vec<Vec<bool>> = all.iter().map(row).collect();
        let count = |row: &Vec<bool>| row.iter().filter(|is_apart| **is_apart).count();
        let degree = apart.iter().map(count).collect();
        Self { apart, degree, newcomer: all.iter().map(is_newcomer).collect() }
    }

    /// Whether these two may be neighbours.
    fn joins(&self, a: usize, b: usize) -> bool {
        !self.apart[a][b]
    }

    /// The ring of most voters, then of most members, then of those that come first.
    ///
    /// ends(S ∪ {j}) ∋ j  if some i ∈ ends(S) is not apart from j, where each path begins at the
    /// least of S.
    fn largest(&self) -> Vec<usize> {
        let count = self.degree.len();
        let mut ends = vec![0_u32; 1 << count];
        let mut best = (0, 0, 0, 0_usize);
        for set in 1..1_usize << count {
            let first = set.trailing_zeros() as usize;
            if set.is_power_of_two() {
                ends[set] = 1 << first;
            }
            let here = ends[set];
            for next in (first + 1..count).filter(|next| set & (1 << next) == 0) {
                if members(here).any(|end| self.joins(end, next)) {
                    ends[set | 1 << next] |= 1 << next;
                }
            }
            if members(here).any(|end| self.joins(end, first)) {
                let voters =
                    (0..count).filter(|i| set & (1 << i) != 0 && !self.newcomer[*i]).count();
                best = best.max((voters, set.count_ones(), set.reverse_bits(), set));
            }
        }
        let (.., mut set) = best;
        let first = set.trailing_zeros() as usize;
        let mut ring: Vec<usize> = Vec::new();
        while let Some(end) =
            members(ends[set]).find(|end| self.joins(*end, ring.last().copied().unwrap_or(first)))
        {
            ring.push(end);
            set &= !(1 << end);
        }
        ring.reverse();
        ring
    }

    /// A ring into which no further member fits between two neighbours.
    fn inserted(&self) -> Vec<usize> {
        let mut waiting: Vec<usize> = (0..self.degree.len()).collect();
        let apart = |i: usize| self.degree[i] > 0;
        waiting.sort_by_key(|i| (apart(*i) && self.newcomer[*i], self.degree[*i], *i));
        let mut ring = Vec::new();
        self.insert_all(&mut ring, &mut waiting);
        waiting.retain(|member| !self.exchange(&mut ring, *member));
        self.insert_all(&mut ring, &mut waiting);
        ring
    }

    /// Inserts members that fit somewhere, until none does.
    fn insert_all(&self, ring: &mut Vec<usize>, waiting: &mut Vec<usize>) {
        let mut before = usize::MAX;
        while waiting.len() < before {
            before = waiting.len();
            waiting.retain(|member| !self.insert(ring, *member));
        }
    }

    fn insert(&self, ring: &mut Vec<usize>, member: usize) -> bool {
        let after = |at: &usize| ring[(at + 1) % ring.len()];
        let fits = |at: &usize| self.joins(ring[*at], member) && self.joins(after(at), member);
        let gap = (0..ring.len()).rev().find(fits);
        if gap.is_none() && !ring.is_empty() {
            return false;
        }
        ring.insert(gap.map_or(0, |gap| gap + 1), member);
        true
    }

    /// 2-opt: … a b … c d … becomes … a member c … b d …, if no two neighbours are apart then.
    fn exchange(&self, ring: &mut Vec<usize>, member: usize) -> bool {
        let count = ring.len();
        for a in 0..count.saturating_sub(1) {
            if !self.joins(ring[a], member) {
                continue;
            }
            let fits = |c: &usize| {
                self.joins(ring[*c], member) && self.joins(ring[a + 1], ring[(c + 1) % count])
            };
            if let Some(c) = (a + 1..count).find(fits) {
                ring[a + 1..=c].reverse();
                ring.insert(a + 1, member);
                return true;
            }
        }
        false
    }
}

/// The indices of the bits that are set.
fn members(set: u32) -> impl Iterator<Item = usize> {
    (0..32).filter(move |index| set & (1 << index) != 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::id::LogId;
    use crate::base::rng::Rng;

    fn member(n: u8) -> Member {
        Member { peer: PeerId([n; 32]), log: LogId([n; 16]), incarnation: 1, weight: 1 }
    }

    fn names(ring: &[Member]) -> Vec<u8> {
        ring.iter().map(|m| m.peer.0[0]).collect()
    }

    fn apart(pairs: &[(u8, u8)]) -> BTreeSet<(PeerId, PeerId)> {
        pairs.iter().map(|(a, b)| pair(PeerId([*a; 32]), PeerId([*b; 32]))).collect()
    }

    fn seated(count: u8, pairs: &[(u8, u8)]) -> (Vec<u8>, Vec<u8>) {
        let (ring, rest) = seat((0..count).map(member).collect(), |_| false, &apart(pairs));
        assert_sound(&ring, &rest, &apart(pairs));
        (names(&ring), names(&rest))
    }

    /// No two neighbours are apart, and no member that is left out fits anywhere.
    fn assert_sound(ring: &[Member], rest: &[Member], apart: &BTreeSet<(PeerId, PeerId)>) {
        let next = ring.iter().cycle().skip(1);
        for (a, b) in ring.iter().zip(next) {
            assert!(!apart.contains(&pair(a.peer, b.peer)), "{:?}", names(ring));
        }
        for member in rest {
            assert!(!has_seat(ring, member.peer, apart), "{:?} in {:?}", member, names(ring));
        }
    }

    #[test]
    fn r35_a_pair_that_is_apart_are_no_neighbours() {
        let (ring, rest) = seated(5, &[(1, 0)]);
        assert_eq!((ring.len(), rest), (5, vec![]));
    }

    #[test]
    fn r35_in_a_ring_of_three_the_later_of_a_pair_that_is_apart_has_no_seat() {
        assert_eq!(seated(3, &[(0, 2)]), (vec![0, 1], vec![2]));
        assert_eq!(seated(2, &[(0, 1)]), (vec![0], vec![1]));
    }

    #[test]
    fn r35_the_member_in_most_pairs_that_are_apart_has_no_seat() {
        assert_eq!(seated(3, &[(0, 1), (0, 2)]), (vec![1, 2], vec![0]));
    }

    #[test]
    fn r42_two_that_only_dial_out_sit_between_two_others() {
        let (ring, rest) = seated(4, &[(0, 1)]);
        assert_eq!((ring.len(), rest), (4, vec![]));
        // Only one order of this ring of four is possible.
        let (ring, rest) = seated(4, &[(0, 2), (1, 3)]);
        assert_eq!((ring.len(), rest), (4, vec![]));
    }

    #[test]
    fn r42_a_newcomer_puts_no_voter_out() {
        let newcomers = |m: &Member| m.peer.0[0] >= 2;
        let pairs = apart(&[(0, 2), (0, 3), (0, 4), (1, 2), (1, 3), (1, 4)]);
        let (ring, rest) = seat((0..5).map(member).collect(), newcomers, &pairs);
        assert_eq!((names(&ring), names(&rest)), (vec![0, 1], vec![2, 3, 4]));
    }

    #[test]
    fn r42_as_many_that_only_dial_out_as_others_all_have_a_seat() {
        let pairs: Vec<(u8, u8)> =
            (0..100).flat_map(|a| (0..a).map(move |b| (2 * a, 2 * b))).collect();
        let (ring, rest) = seated(200, &pairs);
        assert_eq!((ring.len(), rest.len()), (200, 0));
        // One more than there are others, so one of them has no seat.
        let more: Vec<(u8, u8)> = (0..101).flat_map(|a| (0..a).map(move |b| (a, b))).collect();
        let (ring, rest) = seated(201, &more);
        assert_eq!((ring.len(), rest.len()), (200, 1));
    }

    #[test]
    fn r42_random_pairs_leave_few_out() {
        for seed in 0..64 {
            let mut rng = Rng::new(seed);
            let count = u8::try_from(13 + rng.below(40)).unwrap();
            let mut pairs = Vec::new();
            for a in 0..count {
                pairs.extend((0..a).filter(|_| rng.chance(0.3)).map(|b| (a, b)));
            }
            let (_, rest) = seated(count, &pairs);
            assert!(rest.len() <= 1, "seed {seed}: {rest:?} of {count}");
        }
    }

    #[test]
    fn members_that_are_not_apart_keep_their_order() {
        let ring: Vec<_> = (0..200).map(member).collect();
        assert_eq!(seat(ring.clone(), |_| false, &BTreeSet::new()).0, ring);
    }
}
