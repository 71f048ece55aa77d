//! What is kept, and for how long.

use super::*;

fn digest(n: u8) -> Digest {
    Digest([n; 32])
}

fn hold(updates: &mut Updates, epoch: u64, n: u8) -> Vec<Name> {
    updates.hold(epoch, digest(n), Arc::new(vec![n]))
}

fn in_memory(updates: &Updates) -> usize {
    updates.kept.values().filter(|kept| kept.bytes.is_some()).count()
}

#[test]
fn committed_updates_outlive_the_open_ones_and_both_are_bounded() {
    let mut updates = Updates::default();
    for n in 0..40 {
        hold(&mut updates, 1, n);
        updates.flushed(&digest(n));
    }
    assert_eq!(updates.kept.len(), OPEN);
    assert_eq!(updates.commit(1, digest(39), 0).len(), OPEN - 1);
    assert_eq!(updates.kept.len(), 1);
    for n in 50..90 {
        hold(&mut updates, n.into(), n);
        updates.flushed(&digest(n));
        let old = updates.commit(n.into(), digest(n), u64::MAX);
        assert_eq!(old.is_empty(), n <= 80, "{n}: {old:?}");
    }
    assert_eq!((updates.kept.len(), in_memory(&updates)), (UPDATES_KEPT, IN_MEMORY));
    assert!(matches!(updates.place(&digest(89)), Some(Place::Memory(_))));
    let old = Name { epoch: 58, digest: digest(58) };
    assert!(matches!(updates.place(&digest(58)), Some(Place::Disk(name)) if name == old));
    assert!(updates.place(&digest(57)).is_none());
    assert_eq!(updates.make_room(u64::MAX)[0], old);
    assert_eq!(updates.kept.len(), UPDATES_KEPT / 2);
}

#[test]
fn an_update_fetched_ahead_survives_the_commit_before_it() {
    let mut updates = Updates::default();
    for n in 1..4 {
        hold(&mut updates, n.into(), n);
    }
    assert_eq!(updates.commit(2, digest(2), 0), [Name { epoch: 1, digest: digest(1) }]);
    assert!(updates.place(&digest(3)).is_some());
}

/// A disk that takes nothing: what memory can hold is served, and no more.
#[test]
fn what_never_reaches_the_disk_is_bounded_too() {
    let mut updates = Updates::default();
    for n in 0..40 {
        hold(&mut updates, n.into(), n);
        updates.commit(n.into(), digest(n), 0);
    }
    assert_eq!((updates.kept.len(), updates.committed.len()), (IN_MEMORY, IN_MEMORY));
    assert!(updates.place(&digest(39)).is_some());
}

/// R19: a vote without its update costs the log, so a vote pins it, however many others come.
#[test]
fn r19_what_was_voted_for_outlives_every_other_open_update() {
    let mut updates = Updates::default();
    hold(&mut updates, 1, 0);
    updates.vote(&digest(0));
    let dropped: Vec<Digest> =
        (1..40).flat_map(|n| hold(&mut updates, 1, n)).map(|name| name.digest).collect();
    assert_eq!(dropped, (1..=24).map(digest).collect::<Vec<_>>());
    assert!(updates.place(&digest(0)).is_some() && updates.kept.len() == OPEN);
    assert!(updates.commit(1, digest(39), 0).iter().any(|name| name.digest == digest(0)));
}

/// R21: what no checkpoint holds can be had from updates alone.
#[test]
fn r21_room_is_made_of_what_a_checkpoint_holds() {
    let mut updates = Updates::default();
    for n in 1..9 {
        hold(&mut updates, n.into(), n);
        updates.flushed(&digest(n));
        updates.commit(n.into(), digest(n), 0);
    }
    assert!(updates.make_room(0).is_empty());
    let gone: Vec<u64> = updates.make_room(3).iter().map(|name| name.epoch).collect();
    assert_eq!(gone, [1, 2, 3]);
    // However many they are.
    for n in 9..60 {
        hold(&mut updates, n.into(), n);
        updates.flushed(&digest(n));
        assert!(updates.commit(n.into(), digest(n), 3).is_empty());
    }
    let gone: Vec<u64> = updates.make_room(8).iter().map(|name| name.epoch).collect();
    assert_eq!(gone, [4, 5, 6, 7, 8]);
}
