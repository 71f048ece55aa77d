//! States on disk: written, pruned, damaged, and found again.

use intellect_protocol::ring::codec::EncodeError;

use super::*;
use crate::store::tests::{RUN, damaged, open, write_bad};

fn state(epoch: u64, parameters: usize) -> (Arc<Table>, Vec<f32>, Vec<f32>) {
    let theta: Vec<f32> = (0..parameters).map(|index| index as f32 + epoch as f32).collect();
    let momentum: Vec<f32> = theta.iter().map(|number| -number).collect();
    let parameters = parameters as u64;
    let header = Header { run: RUN, epoch, tokens: 10 * epoch, r: Digest([3; 32]), parameters };
    (Arc::new(Table::of(header, &theta, &momentum).unwrap()), theta, momentum)
}

fn save(store: &Store, epoch: u64, parameters: usize) -> Saved {
    let (table, theta, momentum) = state(epoch, parameters);
    store.save(table, &theta, &momentum).unwrap()
}

/// Makes the file of `epoch` look as if it had been written that many hours ago.
fn set_age(store: &Store, epoch: u64, hours: u64) {
    let file = File::options().write(true).open(store.checkpoint_path(epoch)).unwrap();
    let age = Duration::from_secs(3_600 * hours);
    file.set_modified(SystemTime::now() - age).unwrap();
}

#[test]
fn a_checkpoint_is_served_as_it_was_saved() {
    let (_folder, store) = open();
    let parameters = PIECE_BYTES / 4 + 5;
    let saved = save(&store, 3, parameters);
    let (table, theta, momentum) = state(3, parameters);
    assert_eq!(saved.state, table.state());
    for piece in 0..4 {
        let range = table.piece(piece).unwrap();
        let mut numbers = vec![0.0; range.len()];
        table.read(piece, &saved.piece(piece).unwrap(), &mut numbers).unwrap();
        let all: Vec<f32> = theta.iter().chain(&momentum).copied().collect();
        assert_eq!(numbers, all[range]);
    }
    assert!(saved.piece(4).is_none());
    let bytes = fs::read(store.folder.join("checkpoints/3.ckpt")).unwrap();
    assert_eq!(bytes.len(), table.to_bytes().len() + 8 * parameters);
    assert!(bytes.starts_with(&table.to_bytes()));
}

/// Others would blame this node for wrong bytes, and drop it.
#[test]
fn a_piece_that_has_changed_on_the_disk_is_not_served() {
    let (_folder, store) = open();
    let saved = save(&store, 3, PIECE_BYTES / 4 + 5);
    let path = store.checkpoint_path(3);
    let file = File::options().write(true).open(&path).unwrap();
    let (table, ..) = state(3, PIECE_BYTES / 4 + 5);
    file.write_all_at(&[0x55], table.offset(0).unwrap() + 7).unwrap();
    assert!(saved.piece(0).is_none() && saved.piece(1).is_some());
}

/// The state is stored all the same; a folder in place of a file stands for one that cannot be removed.
#[test]
fn an_old_state_that_stays_refuses_no_new_one() {
    let (_folder, store) = open();
    let stays = store.checkpoint_path(1);
    fs::create_dir_all(stays.join("inside")).unwrap();
    File::open(&stays).unwrap().set_modified(SystemTime::UNIX_EPOCH).unwrap();
    (2..=6).for_each(|epoch| drop(save(&store, epoch, 10)));
    assert!(stays.exists() && !store.checkpoint_path(2).exists());
}

#[test]
fn the_newest_three_are_kept_and_a_pruned_one_can_still_be_served() {
    let (_folder, store) = open();
    let first = save(&store, 9, 10);
    set_age(&store, 9, 9);
    for (epoch, age) in [(1, 3), (2, 2), (3, 1)] {
        save(&store, epoch, 10);
        set_age(&store, epoch, age);
    }
    let kept = store.checkpoints().unwrap();
    let names: Vec<_> = kept.iter().map(|path| path.file_name().unwrap().to_owned()).collect();
    assert_eq!(names, ["3.ckpt", "2.ckpt", "1.ckpt"]);
    assert!(first.piece(0).is_some());
}

#[test]
fn a_clock_that_is_set_back_prunes_nothing_new() {
    let (_folder, store) = open();
    let ahead = SystemTime::now() + Duration::from_secs(3_600);
    for epoch in 1..=3 {
        save(&store, epoch, 10);
        let file = File::options().write(true).open(store.checkpoint_path(epoch)).unwrap();
        file.set_modified(ahead + Duration::from_secs(epoch)).unwrap();
    }
    // As after a lost fork: the smaller epoch is the newer state.
    for epoch in [2, 1, 5] {
        save(&store, epoch, 10);
        assert_eq!(store.checkpoints().unwrap()[0], store.checkpoint_path(epoch));
    }
    let epochs = |path: &PathBuf| path.file_stem().unwrap().to_str().unwrap().to_owned();
    assert_eq!(
        store.checkpoints().unwrap().iter().map(epochs).collect::<Vec<_>>(),
        ["5", "1", "2"]
    );
}

/// A failure leaves the earlier checkpoint, and no temporary file.
#[test]
fn a_state_that_cannot_be_stored_changes_nothing() {
    let (_folder, store) = open();
    save(&store, 1, 10);
    let good = store.checkpoint_path(1);
    let (table, mut theta, momentum) = state(1, 10);
    theta[4] = f32::NAN;
    let error = store.save(table.clone(), &theta, &momentum).unwrap_err();
    assert!(matches!(error, StoreError::NotFinite(EncodeError { index: 4 })), "{error}");
    theta[4] = 99.0;
    let error = store.save(table, &theta, &momentum).unwrap_err();
    assert!(matches!(error, StoreError::ReadBack { .. }), "{error}");
    let folder = files(&store.checkpoints_folder()).unwrap();
    assert_eq!(folder, std::slice::from_ref(&good));
    assert_eq!(fs::read(&good).unwrap().len(), 88 + 64 + 80);
}

/// The epoch of the state that is found when the lineage has these epochs, and how many files were unusable.
fn find(store: &Store, parameters: u64, lineage: &[u64]) -> (Option<u64>, usize) {
    let mut unusable = 0;
    let states: Vec<Digest> = lineage.iter().map(|epoch| state(*epoch, 10).0.state()).collect();
    let found =
        store.newest_whole(RUN, parameters, |_, state| states.contains(state), &mut |look| {
            unusable += usize::from(matches!(look, Look::Unusable(_)));
        });
    let epoch = found.unwrap().map(|(checkpoint, saved)| {
        assert_eq!(checkpoint.state, saved.state);
        assert_eq!(checkpoint.theta[0], checkpoint.header.epoch as f32);
        assert!(saved.piece(0).is_some());
        checkpoint.header.epoch
    });
    (epoch, unusable)
}

#[test]
fn r21_the_greatest_epoch_of_the_lineage_is_found() {
    let (_folder, store) = open();
    assert_eq!(find(&store, 10, &[1, 2, 3]), (None, 0));
    for epoch in [3, 1, 2] {
        save(&store, epoch, 10);
    }
    assert_eq!(find(&store, 10, &[1, 2, 3]), (Some(3), 0));
    // A state of the other side of a fork is not damaged, and may be needed.
    assert_eq!(find(&store, 10, &[1, 2]), (Some(2), 0));
    assert_eq!(find(&store, 10, &[7]), (None, 0));
    assert_eq!(store.checkpoints().unwrap().len(), 3);
}

/// Every byte of header, table and pieces is damaged once, and every length is tried.
#[test]
fn r21_a_damaged_state_is_set_aside_and_the_next_older_one_used() {
    let (_folder, store) = open();
    save(&store, 1, 10);
    save(&store, 2, 10);
    let path = store.checkpoint_path(2);
    let whole = fs::read(&path).unwrap();
    for at in 0..whole.len() {
        write_bad(&path, &whole, at);
        let (found, unusable) = find(&store, 10, &[1, 2]);
        assert_eq!(found, Some(1), "byte {at}");
        // A damaged header or table may read as another state, which is not of the lineage.
        assert!(unusable == 1 || at < 88 + 64, "byte {at}");
        assert!(!path.exists() || unusable == 0, "byte {at}");
    }
    for length in 0..whole.len() {
        fs::write(&path, &whole[..length]).unwrap();
        assert_eq!(find(&store, 10, &[1, 2]), (Some(1), 1), "{length} bytes");
        assert!(!path.exists(), "{length} bytes");
    }
    // The files that were set aside do not fill the disk.
    assert_eq!(damaged(&store).len(), crate::store::DAMAGED);
    fs::write(&path, &whole).unwrap();
    assert_eq!(find(&store, 10, &[1, 2]), (Some(2), 0));
}

#[test]
fn the_state_of_another_run_or_another_model_is_set_aside() {
    let (folder, store) = open();
    save(&store, 1, 10);
    let other = Store::open(folder.path(), RunId([9; 32])).unwrap();
    let theta = vec![1.0; 10];
    let header =
        Header { run: RunId([9; 32]), epoch: 5, tokens: 9, r: Digest([3; 32]), parameters: 10 };
    let table = Arc::new(Table::of(header, &theta, &theta).unwrap());
    other.save(table, &theta, &theta).unwrap();
    fs::copy(other.checkpoint_path(5), store.checkpoint_path(5)).unwrap();
    save(&store, 6, 11);
    assert_eq!(find(&store, 10, &[1, 5, 6]), (Some(1), 2));
    assert_eq!(damaged(&store).len(), 2);
}
