//! What a start finds after other starts, cuts, losses and full disks.

use std::{collections::BTreeSet, fs, sync::Arc};

use futures::FutureExt as _;
use intellect_protocol::{
    base::{
        id::{Digest, PeerId},
        sign::Signature,
    },
    message::{Certificate, Head, Link, Member, Roster, Series, Voted},
};

use super::*;
use crate::store::tests::{RUN, damaged, open, write_bad};

const FIRST: LogId = LogId([1; 16]);

fn promise(epoch: u64, attempt: u64) -> Record {
    let series = Series { epoch, parent: Digest([5; 32]), regroup: None };
    Record::Promised { series, attempt }
}

fn committed(epoch: u64) -> Record {
    Record::Committed { head: Head { epoch, tokens: epoch, state: Digest([6; 32]) } }
}

fn begin(store: &Store, now_ms: u64) -> Begun {
    store.begin(Some(FIRST), Origin::Random, now_ms).unwrap()
}

#[test]
fn every_start_has_the_log_and_the_votes_of_the_one_before() {
    let (_folder, store) = open();
    let mut first = begin(&store, 1_000);
    assert_eq!(first.journal.start(), Start { log: FIRST, incarnation: 1_000 });
    assert!(first.votes.is_empty() && first.receipts.is_empty());
    first.journal.append(&[promise(1, 2), committed(1)]).unwrap();
    first.journal.append(&[promise(2, 1)]).unwrap();
    let second = begin(&store, 2_000);
    assert_eq!(second.journal.start(), Start { log: FIRST, incarnation: 2_000 });
    assert_eq!(second.votes, [promise(1, 2), promise(2, 1)]);
    assert_eq!(second.receipts, [committed(1)]);
    // The clock may go back, but incarnations may not; and two copies of a folder differ.
    let third = begin(&store, 500);
    let Start { log, incarnation } = third.journal.start();
    assert!(log == FIRST && (2_001..=2_001 + DRAWN_MAX).contains(&incarnation), "{incarnation}");
    let last = fs::read(store.folder.join("votes.log")).unwrap();
    let copies: BTreeSet<u64> = (0..8)
        .map(|_| {
            fs::write(store.folder.join("votes.log"), &last).unwrap();
            begin(&store, 500).journal.start().incarnation
        })
        .collect();
    assert!(copies.len() > 1, "{copies:?}");
    assert_eq!(third.votes, second.votes);
    assert!(damaged(&store).is_empty());
}

/// R20: the receipts of a simulated peer repeat with the simulation, until its log is lost.
#[test]
fn r20_a_simulated_peer_counts_its_starts_and_takes_the_clock_when_its_log_is_lost() {
    let (_folder, store) = open();
    let start = || store.begin(Some(FIRST), Origin::Simulated, 1_000).unwrap().journal.start();
    for incarnation in 1..=3 {
        assert_eq!(start(), Start { log: FIRST, incarnation });
    }
    fs::remove_file(store.folder.join("votes.log")).unwrap();
    let lost = start();
    assert!(lost.log != FIRST && lost.incarnation == 1_000);
    let next = start();
    assert!(next.log == lost.log && next.incarnation > 1_000);
}

/// R19: a node that has forgotten its votes is another voter, however it forgot them.
#[test]
fn r19_the_first_log_is_not_used_again_when_the_log_is_lost() {
    let (folder, store) = open();
    assert_eq!(begin(&store, 1_000).journal.start().log, FIRST);
    fs::remove_dir_all(folder.path().join("runs")).unwrap();
    let store = Store::open(folder.path(), RUN).unwrap();
    assert_ne!(begin(&store, 1_000).journal.start().log, FIRST);
    // In another run the id is not used yet.
    let other = Store::open(folder.path(), intellect_protocol::base::id::RunId([8; 32])).unwrap();
    assert_eq!(begin(&other, 1_000).journal.start().log, FIRST);
}

/// R19: nothing was sent before the id is claimed, so a start that is cut short before that has cast no vote.
#[test]
fn r19_a_first_start_that_is_cut_short_leaves_the_founder_its_log() {
    let (folder, store) = open();
    let path = store.folder.join("votes.log");
    // A link into a folder that is missing: the log cannot be written.
    std::os::unix::fs::symlink(folder.path().join("missing/votes.log"), &path).unwrap();
    store.begin(Some(FIRST), Origin::Random, 1_000).unwrap_err();
    assert!(!store.used.exists());
    fs::remove_file(&path).unwrap();
    assert_eq!(begin(&store, 1_000).journal.start().log, FIRST);
    let whole = fs::read(&path).unwrap();
    for cut in 0..=whole.len() {
        fs::write(&path, &whole[..cut]).unwrap();
        fs::remove_file(&store.used).unwrap();
        assert_eq!(begin(&store, 1_000).journal.start().log, FIRST, "{cut}");
        assert!(store.used.exists(), "{cut}");
    }
    fs::remove_file(&path).unwrap();
    assert_ne!(begin(&store, 1_000).journal.start().log, FIRST);
}

/// R19: a crash while a lost log is set aside does not make its id a new one.
#[test]
fn r19_a_lost_log_is_claimed_before_it_is_set_aside() {
    let (_folder, store) = open();
    begin(&store, 1_000).journal.append(&[promise(1, 1)]).unwrap();
    let path = store.folder.join("votes.log");
    write_bad(&path, &fs::read(&path).unwrap(), 0);
    fs::remove_file(&store.used).unwrap();
    // Nothing can be set aside where a file takes the folder's name.
    fs::write(store.folder.join("damaged"), b"").unwrap();
    store.begin(Some(FIRST), Origin::Random, 1_000).unwrap_err();
    fs::remove_file(&path).unwrap();
    assert_ne!(begin(&store, 1_000).journal.start().log, FIRST);
}

/// A key that was copied to another machine is another voter there.
#[test]
fn the_log_id_belongs_to_the_folder_and_not_to_the_key() {
    let begin = |store: &Store| store.begin(None, Origin::Random, 1_000).unwrap().journal.start();
    let ((_one, one), (folder, two)) = (open(), open());
    let log = begin(&one).log;
    assert_ne!(begin(&two).log, log);
    let next = begin(&one);
    assert!(next.log == log && next.incarnation > 1_000);
    // R19: the id of a lost log is not used again.
    let before = begin(&two).log;
    fs::remove_dir_all(folder.path().join("runs")).unwrap();
    assert_ne!(begin(&Store::open(folder.path(), RUN).unwrap()).log, before);
}

/// Every prefix of what a start and a vote write: what was appended whole is there, the log id together with the
/// incarnation.
#[test]
fn a_log_torn_at_any_byte_binds_by_what_is_whole() {
    let (_folder, store) = open();
    let mut begun = begin(&store, 5_000);
    let started = begun.journal.votes.bytes() - MARK_BYTES as u64;
    begun.journal.append(&[promise(1, 2)]).unwrap();
    let path = store.folder.join("votes.log");
    let whole = fs::read(&path).unwrap();
    // The last mark may be cut: a batch without its mark is whole.
    for cut in 0..whole.len() - MARK_BYTES {
        fs::write(&path, &whole[..cut]).unwrap();
        let again = begin(&store, 10);
        assert!(again.votes.is_empty() && again.damaged.is_empty(), "{cut}");
        let start = again.journal.start();
        let has_begun = cut as u64 >= started;
        assert_eq!(start.log == FIRST, has_begun, "{cut}");
        let rises = if has_begun { start.incarnation > 5_000 } else { start.incarnation == 10 };
        assert!(rises, "{cut}: {}", start.incarnation);
    }
    fs::write(&path, &whole).unwrap();
    assert_eq!(begin(&store, 10).votes, [promise(1, 2)]);
}

/// R19: a vote that cannot be read may have been sent.
#[test]
fn r19_a_log_with_a_bad_middle_is_set_aside_and_another_one_begun() {
    let (_folder, store) = open();
    let mut begun = begin(&store, 5_000);
    begun.journal.append(&[promise(1, 1)]).unwrap();
    let path = store.folder.join("votes.log");
    let last = fs::read(&path).unwrap().len();
    begun.journal.append(&[promise(1, 2)]).unwrap();
    let whole = fs::read(&path).unwrap();
    for at in 0..last {
        write_bad(&path, &whole, at);
        let again = begin(&store, 7_000);
        assert!(again.votes.is_empty() && again.journal.start().log != FIRST, "byte {at}");
        assert!(again.journal.start().incarnation >= 7_000, "byte {at}");
        assert_eq!(again.damaged, std::slice::from_ref(&path), "byte {at}");
        // The new log is whole, and stays.
        let log = again.journal.start().log;
        assert_eq!(begin(&store, 1).journal.start().log, log, "byte {at}");
    }
    let aside = damaged(&store);
    assert!(!aside.is_empty() && aside.iter().all(|name| name.starts_with("votes.log.")));
}

/// Such records may come from another version of the program.
#[test]
fn r19_records_that_mean_nothing_are_a_lost_log() {
    for strange in [
        vec![record(0, FIRST.as_bytes())],
        vec![record(KIND_INCARNATION, &[0; 8])],
        vec![record(KIND_LOG, FIRST.as_bytes()), record(9, b"")],
        vec![record(KIND_LOG, FIRST.as_bytes()), record(KIND_LOG, &[4; 16])],
        vec![record(KIND_LOG, FIRST.as_bytes()), Vec::new()],
        vec![record(KIND_LOG, FIRST.as_bytes()), record(KIND_VOTE, b"no vote")],
        vec![record(KIND_LOG, FIRST.as_bytes()), vote(&committed(1))],
    ] {
        let (_folder, store) = open();
        append_to(&store.folder.join("votes.log"), 0, &strange).unwrap();
        let begun = begin(&store, 1_000);
        assert_eq!(begun.damaged.len(), 1, "{strange:?}");
        assert!(begun.votes.is_empty(), "{strange:?}");
    }
}

/// R19: a log that was cut between two records looks whole, but a certificate shows which vote is missing.
#[test]
fn r19_a_log_that_lacks_a_vote_which_a_certificate_counts_is_lost() {
    let mut decided = link(4, 1);
    let ours = Member { peer: PeerId([1; 32]), log: FIRST, incarnation: 1, weight: 1 };
    decided.certificate.roster.members.push(ours);
    let (roster, update) = (decided.certificate.roster.clone(), decided.receipt.update);
    let voted = Box::new(Voted { depth: 0, roster, update, accepts: Vec::new() });
    let voted = Record::Voted { voted };
    for counted in [true, false] {
        let (_folder, store) = open();
        let mut journal = begin(&store, 1_000).journal;
        let path = store.folder.join("votes.log");
        journal.append(&[promise(4, 1)]).unwrap();
        let before = journal.votes.bytes();
        journal.append(std::slice::from_ref(&voted)).unwrap();
        let voter = if counted { 1 } else { 2 };
        decided.certificate.dones = vec![(PeerId([voter; 32]), Signature([0; 64]))];
        let decided = Record::Decided { link: Box::new(decided.clone()) };
        journal.append(&[decided]).unwrap();
        let whole = begin(&store, 1_000);
        assert!(whole.damaged.is_empty() && whole.votes == [promise(4, 1), voted.clone()]);
        File::options().write(true).open(&path).unwrap().set_len(before).unwrap();
        let cut = begin(&store, 1_000);
        assert_eq!(cut.journal.start().log == FIRST, !counted);
        assert_eq!(cut.damaged, if counted { vec![path] } else { Vec::new() });
    }
}

/// A log without a name vanishes with the process, and so would its records.
#[test]
fn a_log_that_was_removed_while_it_was_open_takes_nothing() {
    let (folder, store) = open();
    let mut journal = begin(&store, 1_000).journal;
    journal.append(&[promise(1, 1)]).unwrap();
    fs::remove_dir_all(folder.path().join("runs")).unwrap();
    let error = journal.append(&[promise(1, 2)]).unwrap_err();
    assert!(matches!(error, StoreError::Removed { .. }), "{error}");
}

/// R19: a start would read the file that has the name, and could vote twice.
#[test]
fn r19_a_log_that_was_moved_or_replaced_takes_nothing() {
    for replaced in [false, true] {
        let (_folder, store) = open();
        let mut journal = begin(&store, 1_000).journal;
        journal.append(&[promise(1, 1)]).unwrap();
        let path = journal.votes.path().to_owned();
        let older = fs::read(&path).unwrap();
        fs::rename(&path, path.with_extension("aside")).unwrap();
        if replaced {
            fs::write(&path, older).unwrap();
        }
        let error = journal.append(&[promise(1, 2)]).unwrap_err();
        assert!(matches!(error, StoreError::Removed { .. }), "{error}");
    }
}

#[test]
fn of_damaged_receipts_those_before_the_damage_are_kept() {
    let (_folder, store) = open();
    let all: Vec<_> = (1..=4).map(committed).collect();
    let mut begun = begin(&store, 1_000);
    all.iter().for_each(|record| begun.journal.append(std::slice::from_ref(record)).unwrap());
    let path = store.folder.join("receipts.log");
    let whole = fs::read(&path).unwrap();
    let each = whole.len() / all.len();
    for at in 0..whole.len() {
        write_bad(&path, &whole, at);
        let begun = begin(&store, 2_000);
        // A damaged mark costs no record.
        let least = at / each + usize::from(at % each >= each - MARK_BYTES);
        assert!(all.starts_with(&begun.receipts), "byte {at}");
        assert!(begun.receipts.len() >= least, "byte {at}");
        // The votes are whole, so the voter is the same.
        assert_eq!(begun.journal.start().log, FIRST, "byte {at}");
        let again = begin(&store, 2_000);
        assert!(again.receipts == begun.receipts && again.damaged.is_empty(), "byte {at}");
    }
    fs::write(&path, &whole).unwrap();
    let mut begun = begin(&store, 2_000);
    begun.journal.append(&[committed(5)]).unwrap();
    assert_eq!(begin(&store, 2_000).receipts.len(), 5);
    // A vote has no place among the receipts.
    append_to(&path, 0, &[wire::canonical(&committed(1)), wire::canonical(&promise(1, 1))])
        .unwrap();
    assert_eq!(begin(&store, 2_000).receipts, [committed(1)]);
}

/// A link of `epoch`; the update tells links of one epoch apart.
fn link(epoch: u64, update: u8) -> Link {
    let series = Series { epoch, parent: Digest([5; 32]), regroup: None };
    let roster = Roster {
        series,
        attempt: 1,
        proposer: PeerId([1; 32]),
        members: Vec::new(),
        heard: Vec::new(),
        adopt: None,
        trust: None,
        keep: Vec::new(),
    };
    let receipt = roster.receipt(Digest([update; 32]));
    let certificate = Certificate { roster, dones: Vec::new() };
    Link { receipt, certificate, openings: Vec::new() }
}

#[test]
fn links_of_long_ago_are_read_back_from_the_log() {
    let (_folder, store) = open();
    let (store, runtime) = (Arc::new(store), os::runtime().unwrap());
    let mut journal = begin(&store, 1_000).journal;
    let decided = |link: &Link| Record::Decided { link: Box::new(link.clone()) };
    let wanted = |links: &[Link]| {
        let named =
            |link: &Link| (link.receipt.series.epoch, wire::receipt_digest(&RUN, &link.receipt));
        runtime.block_on(Arc::clone(&store).links(RUN, links.iter().map(named).collect())).unwrap()
    };
    let early: Vec<Link> = (1..=9).map(|epoch| link(epoch, 1)).collect();
    for links in early.chunks(2) {
        let records = links.iter().flat_map(|l| [decided(l), committed(l.receipt.series.epoch)]);
        journal.append(&records.collect::<Vec<_>>()).unwrap();
    }
    assert_eq!(wanted(&early[1..7]).as_deref(), Some(&early[1..7]));
    // Epoch 9 is undone, and more epochs follow. A failed write is cut off and repeated with more records.
    let before = journal.receipts.bytes();
    let late: Vec<Link> = (9..=10).map(|epoch| link(epoch, 2)).collect();
    journal.append(&[decided(&late[0])]).unwrap();
    assert_eq!(wanted(&late[..1]).as_deref(), Some(&late[..1]));
    journal.receipts.take_back(before);
    journal.append(&[decided(&late[0]), committed(9)]).unwrap();
    journal.append(&[decided(&late[1])]).unwrap();
    assert_eq!((wanted(&late), wanted(&late)), (None, Some(late)));
    // The log still has what was undone, and the digest identifies it.
    assert_eq!(wanted(&early[8..]).as_deref(), Some(&early[8..]));
    assert_eq!((wanted(&[link(11, 2)]), wanted(&[link(11, 2)])), (None, None));
    // A question that comes while another one is answered waits for its turn.
    let _entered = runtime.enter();
    let turn = Arc::clone(&store.index).try_lock_owned().unwrap();
    let mut asked = Box::pin(Arc::clone(&store).links(RUN, Vec::new()));
    assert!(asked.as_mut().now_or_never().is_none());
    drop(turn);
    assert_eq!(runtime.block_on(asked).unwrap(), Some(Vec::new()));
}

#[test]
fn a_log_whose_votes_count_as_lost_is_set_aside() {
    let (_folder, store) = open();
    let mut begun = begin(&store, 1_000);
    begun.journal.append(&[promise(3, 1), committed(2)]).unwrap();
    store.renew(&mut begun.journal).unwrap();
    let start = begun.journal.start();
    assert!(start.log != FIRST && start.incarnation == 1_000);
    begun.journal.append(&[promise(3, 9)]).unwrap();
    let again = begin(&store, 1_000);
    let next = again.journal.start();
    assert!(next.log == start.log && next.incarnation > 1_000);
    assert_eq!((again.votes, again.receipts), (vec![promise(3, 9)], vec![committed(2)]));
    assert_eq!(damaged(&store), ["votes.log.1"]);
}

/// The log stays short, however many epochs pass, and keeps the votes that may still matter.
#[test]
fn votes_of_long_ago_are_forgotten() {
    let (_folder, store) = open();
    let mut begun = begin(&store, 1_000);
    let many: Vec<_> = (0..200).map(|attempt| promise(1, attempt)).collect();
    let mut longest = 0;
    for epoch in 1..400 {
        let of_epoch: Vec<_> = many
            .iter()
            .map(|_| promise(epoch, 7))
            .chain([promise(epoch + 1, 1), committed(epoch)])
            .collect();
        begun.journal.append(&of_epoch).unwrap();
        longest = longest.max(begun.journal.votes.bytes());
    }
    assert!(longest < 3 * REWRITE_BYTES, "{longest} bytes");
    let forgotten = begun.journal.forgotten();
    assert!(forgotten > 100 && forgotten < 400 - VOTES_KEPT);
    let again = begin(&store, 1_000);
    assert_eq!(again.journal.start().log, FIRST);
    assert_eq!(again.journal.forgotten(), forgotten);
    assert_eq!(again.receipts.len(), 399);
    assert!(again.votes.contains(&promise(400, 1)));
    assert!(again.votes.iter().all(|vote| epoch_of(vote) > forgotten));
    assert!(again.votes.contains(&promise(forgotten + 1, 7)));
}

#[test]
fn what_a_full_disk_refused_can_be_given_again() {
    let (_folder, store) = open();
    let mut begun = begin(&store, 1_000);
    let path = store.folder.join("receipts.log");
    // A log that is opened for reading only cannot be written to.
    let good = std::mem::replace(&mut begun.journal.receipts, Log::read_only(&path));
    let records = [promise(1, 1), committed(1)];
    let error = begun.journal.append(&records).unwrap_err();
    assert!(error.to_string().contains("receipts.log"), "{error}");
    begun.journal.receipts = good;
    begun.journal.append(&records).unwrap();
    let again = begin(&store, 1_000);
    assert_eq!(again.receipts, [committed(1)]);
    assert_eq!(again.votes, [promise(1, 1)], "a disk that refuses does not fill with votes");
}
