//! Votes and lineages as folds over records.

use super::*;
use crate::base::id::{LogId, PeerId};
use crate::message::{Absence, Certificate, Member, Voter};

const RUN: RunId = RunId([1; 32]);

fn series(epoch: u64) -> Series {
    Series { epoch, parent: Digest([u8::try_from(epoch).unwrap(); 32]), regroup: None }
}

fn voter(name: u8) -> Voter {
    Voter { peer: PeerId([name; 32]), log: LogId([name; 16]) }
}

fn roster(series: Series, attempt: u64) -> Roster {
    let Voter { peer, log } = voter(1);
    let members = vec![Member { peer, log, incarnation: 1, weight: 10 }];
    Roster {
        series,
        attempt,
        proposer: peer,
        members,
        heard: Vec::new(),
        adopt: None,
        trust: None,
        keep: Vec::new(),
    }
}

fn accepted(series: Series, attempt: u64) -> Record {
    Record::Accepted { roster: Box::new(roster(series, attempt)) }
}

fn voted(series: Series, attempt: u64, update: u8) -> Record {
    let (roster, update) = (roster(series, attempt), Digest([update; 32]));
    Record::Voted { voted: Box::new(Voted { depth: 0, roster, update, accepts: Vec::new() }) }
}

fn regroup(series: Series, number: u64) -> Regroup {
    let absent = vec![(voter(2), Absence::Silent)];
    Regroup {
        series,
        number,
        proposer: voter(1).peer,
        members: vec![voter(1)],
        absent,
        trust: None,
    }
}

fn opening(series: Series, number: u64) -> Opening {
    Opening { regroup: regroup(series, number), joins: Vec::new(), ground: None }
}

fn decided(epoch: u64, update: u8) -> Record {
    let roster = roster(series(epoch), 1);
    let receipt = roster.receipt(Digest([update; 32]));
    let certificate = Certificate { roster, dones: Vec::new() };
    Record::Decided { link: Box::new(Link { receipt, certificate, openings: Vec::new() }) }
}

fn head(epoch: u64) -> Head {
    Head { epoch, tokens: 10 * epoch, state: series(epoch + 1).parent }
}

#[test]
fn r20_votes_bind_as_their_records_say() {
    let promised = Record::Promised { series: series(1), attempt: 4 };
    let records =
        [accepted(series(1), 1), voted(series(1), 1, 7), promised, accepted(series(2), 3)];
    let votes = Votes::replay(&RUN, &records);
    let first = votes.of(series(1));
    assert_eq!((first.promised(), first.attempt()), (4, 4));
    assert_eq!(first.accepted(1), Some(wire::roster_digest(&RUN, &roster(series(1), 1))));
    let dones: Vec<_> = first.dones().map(|voted| (voted.roster.attempt, voted.update)).collect();
    assert_eq!(dones, [(1, Digest([7; 32]))]);
    assert_eq!(votes.of(series(2)).promised(), 3, "accepting is promising");
    assert_eq!(votes.of(series(3)), &Bound::default());
}

#[test]
fn r13_a_join_closes_its_series_and_those_before() {
    let (first, number) = (series(1), 1);
    let digest = wire::regroup_digest(&RUN, &regroup(first, number));
    let second = first.regrouped(digest);
    let mut records = vec![
        Record::Joined { regroup: regroup(first, number), done: None },
        Record::Opened { opening: opening(first, number) },
        accepted(second, 2),
    ];
    let votes = Votes::replay(&RUN, &records);
    assert_eq!((votes.of(first).promised(), votes.of(second).promised()), (u64::MAX, 2));
    assert_eq!(votes.of(first).joined().map(|joined| joined.digest), Some(digest));
    assert!(votes.of(first).opened().is_some() && votes.of(second).opened().is_none());
    records.push(Record::Joined { regroup: regroup(second, 1), done: None });
    let votes = Votes::replay(&RUN, &records);
    assert_eq!(votes.of(second).promised(), u64::MAX);
    assert_eq!(votes.of(second).attempt(), 2);
}

/// A peer without a vote there goes along without a Join, and must not come back either.
#[test]
fn r13_an_opening_closes_the_series_before_it() {
    let votes = Votes::replay(&RUN, &[Record::Opened { opening: opening(series(1), 1) }]);
    assert_eq!(votes.of(series(1)).promised(), u64::MAX);
}

#[test]
fn votes_of_later_epochs_are_kept() {
    let mut votes = Votes::replay(&RUN, &[accepted(series(1), 1), accepted(series(2), 1)]);
    votes.forget(1);
    assert_eq!((votes.of(series(1)).promised(), votes.of(series(2)).promised()), (0, 1));
}

#[test]
fn a_lineage_is_what_was_committed_and_not_given_up() {
    let committed = |epoch| Record::Committed { head: head(epoch) };
    let mut records = vec![decided(1, 1), committed(1), decided(2, 2), committed(2), decided(3, 3)];
    let heads = |records: &[Record]| -> Vec<Head> {
        lineage(head(0), records.to_vec()).into_iter().map(|(head, _)| head).collect()
    };
    assert_eq!(heads(&records), [head(1), head(2)], "epoch 3 is decided only");
    let stayed_on = heads(&records);
    records.push(Record::Rewound { epoch: 0, to: head(3) });
    for more in [decided(1, 9), committed(1), decided(2, 9), committed(2), decided(3, 9)] {
        assert_eq!(heads(&records), stayed_on, "not before the whole way is there");
        records.push(more);
    }
    records.push(committed(3));
    assert_eq!(heads(&records), [head(1), head(2), head(3)]);
    assert_eq!(lineage(head(0), records.clone())[0].1.receipt.update, Digest([9; 32]));
    // A peer that came back to an earlier head commits anew from there.
    records.extend([decided(2, 8), committed(2)]);
    let again = lineage(head(0), records.clone());
    assert_eq!(again.last().map(|(_, link)| link.receipt.update), Some(Digest([8; 32])));
    // An epoch is missing: nothing after it follows.
    assert_eq!(heads(&records[2..5]), []);
}

/// A crash on the way to another lineage leaves its first epochs in the log; then our own went on.
#[test]
fn a_way_that_was_not_taken_is_no_lineage() {
    let committed = |epoch| Record::Committed { head: head(epoch) };
    let ours = [decided(1, 1), committed(1), decided(2, 2), committed(2)];
    let rewound = [Record::Rewound { epoch: 0, to: head(4) }, decided(1, 9), committed(1)];
    let updates = |records: Vec<Record>| -> Vec<Digest> {
        lineage(head(0), records).iter().map(|(_, link)| link.receipt.update).collect()
    };
    let on = [decided(3, 3), committed(3)];
    let went_on = [ours.as_slice(), &rewound, &on].concat();
    assert_eq!(updates(went_on.clone()), [1, 2, 3].map(|update| Digest([update; 32])));
    let again = [went_on.as_slice(), &rewound].concat();
    assert_eq!(updates(again), [1, 2, 3].map(|update| Digest([update; 32])));
}

#[test]
fn r19_a_vote_without_bytes_loses_the_log() {
    let votes = [voted(series(1), 1, 1), voted(series(2), 1, 2)];
    let readable = |updates: &[u8]| updates.iter().map(|u| Digest([*u; 32])).collect();
    assert_eq!(unreadable(&votes, 0, &readable(&[1, 2])), None);
    assert_eq!(unreadable(&votes, 1, &readable(&[2])), None, "epoch 1 is behind us");
    assert_eq!(unreadable(&votes, 1, &readable(&[1])), Some(Digest([2; 32])));
}

#[test]
fn records_have_one_form_and_nothing_after_it() {
    let all = [
        Record::Promised { series: series(1), attempt: 4 },
        accepted(series(1), 1),
        voted(series(1), 1, 7),
        Record::Joined { regroup: regroup(series(1), 1), done: None },
        Record::Opened { opening: opening(series(1), 1) },
        decided(1, 1),
        Record::Committed { head: head(1) },
        Record::Rewound { epoch: 3, to: head(4) },
    ];
    for record in all {
        let mut bytes = record.bytes();
        assert_eq!(Record::open(&bytes).as_ref(), Some(&record));
        assert_eq!(Record::open(&bytes[..bytes.len() - 1]), None);
        bytes.push(0);
        assert_eq!(Record::open(&bytes), None);
    }
    assert_eq!(Record::open(&[]), None);
}
