//! What a weight and a sum may be, what proves a vote or a ring, and what names a series.

use super::*;
use crate::base::id::Digest;
use crate::message::Ranked;

#[test]
fn r31_where_time_is_the_budget_the_last_receipt_bounds_a_weight() {
    let timed = |tokens_max| Capacity::Timed { tokens_max };
    assert_eq!(timed(None).weight_max(Some(10)), 80);
    assert_eq!(timed(Some(50)).weight_max(Some(10)), 80);
    assert_eq!(timed(Some(1_000)).weight_max(Some(10)), 1_000);
    assert_eq!(timed(Some(1_000)).weight_max(None), 1_000);
    assert_eq!(timed(None).weight_max(None), WEIGHT_MAX);
    assert_eq!(timed(None).weight_max(Some(u64::MAX)), WEIGHT_MAX);
    let counted = Capacity::Counted(100);
    assert_eq!((counted.weight_max(None), counted.weight_max(Some(1))), (800, 800));
    assert_eq!(Capacity::Counted(u64::MAX).weight_max(None), WEIGHT_MAX);
}

/// The check of a value's sums: (peer, incarnation, weight), in the ring and in one part.
fn sums(ring: &[(u8, u64, u64)], part: &[(u8, u64, u64)]) -> Result<(), ValueFault> {
    let members = |of: &[(u8, u64, u64)]| -> Vec<Member> {
        let member = |(peer, incarnation, weight): &(u8, u64, u64)| Member {
            peer: PeerId([*peer; 32]),
            log: LogId([*peer; 16]),
            incarnation: *incarnation,
            weight: *weight,
        };
        of.iter().map(member).collect()
    };
    let blocks = Blocks::of(std::iter::once(0..1));
    let part = Part { roster: Digest::ZERO, members: members(part), blocks };
    let series = Series { epoch: 1, parent: Digest::ZERO, regroup: None };
    let (update, members, parts) = (Digest::ZERO, members(ring), vec![part]);
    check_sums(100, &Receipt { series, trust: None, update, members, parts })
}

/// The author and the signature of one message in a ground.
type Signed = (PeerId, Signature);

const RUN: RunId = RunId([9; 32]);
/// The update that votes are for, and one that nobody has voted for.
const UPDATE: Digest = Digest([5; 32]);
const OTHER_UPDATE: Digest = Digest([6; 32]);

/// A roster, of whose members the first three vote, and what judges the votes on it.
struct Ballot {
    /// The keys of the members, in their order, and that of a stranger.
    keys: Vec<Keypair>,
    voters: Vec<Voter>,
    roster: Roster,
    validator: Validator,
}

impl Ballot {
    fn new(quorum: QuorumRule, count: usize) -> Self {
        let key = |n: usize| {
            let mut seed = [1; 32];
            seed[..8].copy_from_slice(&n.to_le_bytes());
            Keypair::from_seed(&seed)
        };
        let keys: Vec<Keypair> = (0..=count).map(key).collect();
        let member = |key: &Keypair| {
            let (peer, log) = (key.peer(), LogId([1; 16]));
            Member { peer, log, incarnation: 1, weight: 10 }
        };
        let members: Vec<Member> = keys[..count].iter().map(member).collect();
        let voters = members[..3].iter().map(Member::voter).collect();
        let series = Series { epoch: 2, parent: Digest([2; 32]), regroup: None };
        let (attempt, proposer, heard) = (1, members[0].peer, Vec::new());
        let (adopt, trust, keep) = (None, None, Vec::new());
        let roster = Roster { series, attempt, proposer, members, heard, adopt, trust, keep };
        let (run, key, peers_min, elements) = (RUN, keys[0].clone(), 1, 1);
        let (capacity, level) = (Capacity::Counted(100), Level::Open);
        let (organiser, rules) = (key.peer(), Rules::ALL);
        let validator =
            Validator { run, key, peers_min, quorum, elements, capacity, level, organiser, rules };
        Self { keys, voters, roster, validator }
    }

    /// The signature of each key over one message.
    fn signed(&self, message: &Message) -> Vec<Signed> {
        let sign = |key| wire::seal(key, &RUN, message.clone()).signature();
        self.keys.iter().map(|key| (key.peer(), sign(key))).collect()
    }

    /// What each key signs to accept a roster.
    fn accepts(&self, roster: &Roster) -> Vec<Signed> {
        let digest = wire::roster_digest(&RUN, roster);
        self.signed(&Message::Accept(Accept { series: roster.series, roster: digest }))
    }

    /// What each key signs to say that it holds this update of the roster.
    fn prepared(&self, update: Digest) -> Vec<Signed> {
        let (series, roster) = (self.roster.series, wire::roster_digest(&RUN, &self.roster));
        self.signed(&Message::Prepared(Prepared { series, roster, update }))
    }

    /// Whether these signatures are the ground of a vote on a roster, in the series at this depth.
    fn grounds(&self, depth: u32, roster: &Roster, accepts: &[Signed]) -> bool {
        let (roster, accepts) = (roster.clone(), accepts.to_vec());
        let voted = Voted { depth, roster, update: UPDATE, accepts };
        self.validator.has_ground(&[(self.roster.series, self.voters.clone())], &voted)
    }
}

/// A quorum of signatures proves their votes; one needless signature
/// more, and it proves nothing.
#[test]
fn r8_a_ground_holds_no_idle_signature() {
    let ballot = Ballot::new(QuorumRule::Available, 4);
    let [a, b, c, d, stranger] = ballot.accepts(&ballot.roster)[..] else { unreachable!() };
    let holds = |accepts: &[Signed]| ballot.grounds(0, &ballot.roster, accepts);
    assert!(holds(&[a, b]) && holds(&[a, b, c, d]));
    assert!(!holds(&[a]) && !holds(&[a, a]), "no majority");
    assert!(!holds(&[a, d]), "of a member without a vote");
    assert!(!holds(&[a, b, b]), "repeated");
    assert!(!holds(&[a, b, stranger]), "of no member");
    assert!(!holds(&[a, b, (c.0, a.1)]), "wrong");
    let opened = |accepts: &[Signed]| {
        let (series, roster) = (ballot.roster.series, ballot.roster.clone());
        let opened = Opened { series, roster, accepts: accepts.to_vec() };
        ballot.validator.has_opened(&[(series, ballot.voters.clone())], &opened)
    };
    assert!(opened(&[a, b, c, d]) && !opened(&[a, b, c]), "the ring opens with all");
    assert!(!opened(&[a, b, c, d, (c.0, a.1)]), "a wrong one beside the right one");
}

/// A ground proves the vote that it was signed for: in that series, on that roster, for that
/// update.
#[test]
fn r8_a_ground_proves_no_other_vote() {
    let ballot = Ballot::new(QuorumRule::Available, 3);
    let mine = &ballot.roster;
    let accepts = ballot.accepts(mine);
    assert!(ballot.grounds(0, mine, &accepts[..2]));
    for depth in [1, u32::MAX] {
        assert!(!ballot.grounds(depth, mine, &accepts[..2]), "{depth} Regroups that never were");
    }
    let later = Series { epoch: 3, ..mine.series };
    for series in [later, mine.series.regrouped(Digest([3; 32]))] {
        let other = Roster { series, ..mine.clone() };
        assert!(!ballot.grounds(0, &other, &ballot.accepts(&other)[..2]), "of {series:?}");
    }
    let second = Roster { attempt: 2, ..mine.clone() };
    assert!(!ballot.grounds(0, &second, &accepts[..2]), "Accepts of another roster");
    for (update, holds) in [(UPDATE, true), (OTHER_UPDATE, false)] {
        let adopting = Roster { adopt: Some(mine.receipt(update)), ..second.clone() };
        let accepts = ballot.accepts(&adopting);
        assert_eq!(ballot.grounds(0, &adopting, &accepts[..2]), holds, "adopts {update}");
    }
}

/// Where a third may lie, only `Prepared`s for its very update prove a vote on a free roster.
#[test]
fn r5_accepts_name_no_update() {
    let ballot = Ballot::new(QuorumRule::Byzantine, 4);
    let holds = |accepts: &[Signed]| ballot.grounds(0, &ballot.roster, &accepts[..3]);
    assert!(holds(&ballot.prepared(UPDATE)));
    assert!(!holds(&ballot.prepared(OTHER_UPDATE)) && !holds(&ballot.accepts(&ballot.roster)));
}

/// Any author of a ground can make it as long as a message may be. More signatures than a roster
/// has members prove nothing, valid as they are, so that no more are verified.
#[test]
fn d1_more_signatures_than_a_roster_has_members_prove_nothing() {
    for (count, holds) in [(MEMBERS_MAX, true), (MEMBERS_MAX + 1, false)] {
        let ballot = Ballot::new(QuorumRule::Available, count);
        let accepts = ballot.accepts(&ballot.roster);
        assert_eq!(ballot.grounds(0, &ballot.roster, &accepts[..count]), holds, "{count}");
    }
}

#[test]
fn r13_two_joins_of_one_author_open_two_series() {
    let series = Series { epoch: 3, parent: Digest([3; 32]), regroup: None };
    let (peer, log, run) = (PeerId([1; 32]), LogId([1; 16]), RunId([9; 32]));
    let members = vec![Voter { peer, log }];
    let (number, absent, trust) = (1, Vec::new(), None);
    let regroup = Regroup { series, number, proposer: peer, members, absent, trust };
    let digest = wire::regroup_digest(&run, &regroup);
    let opening = |done, signature| {
        let join = Join { series, regroup: digest, log, done };
        let joins = vec![(peer, join, Signature([signature; 64]))];
        let opening = Opening { regroup: regroup.clone(), joins, ground: None };
        wire::opening_digest(&run, &opening)
    };
    let vote = |attempt| Some(Ranked { depth: 0, attempt, r: Digest([7; 32]) });
    assert_eq!(opening(vote(1), 1), opening(vote(1), 2));
    assert_ne!(opening(vote(1), 1), opening(None, 1));
    assert_ne!(opening(vote(1), 1), opening(vote(2), 1));
}

#[test]
fn g11_what_a_sum_can_hold_is_bounded() {
    assert_eq!(sums(&[(1, 1, 100), (2, 1, 0)], &[(1, 1, 100), (3, 1, 5)]), Ok(()));
    // A peer that was restarted is in two sums with two deltas.
    assert_eq!(sums(&[(1, 2, 100)], &[(1, 1, 7)]), Ok(()));
    assert_eq!(sums(&[(1, 1, 101)], &[]), Err(ValueFault::TooHeavy));
    assert_eq!(sums(&[(1, 1, 1)], &[(2, 1, 101)]), Err(ValueFault::TooHeavy));
    assert_eq!(sums(&[(1, 1, 1), (1, 2, 1)], &[]), Err(ValueFault::SumNamesTwice));
    assert_eq!(sums(&[(1, 1, 1)], &[(1, 1, 2)]), Err(ValueFault::TwoWeights));
    assert_eq!(sums(&[(1, 1, 0)], &[(2, 1, 1)]), Err(ValueFault::SumOfNobody));
}
