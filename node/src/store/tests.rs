//! What is on disk after starts, cuts, crashes and full disks.

use super::*;
use intellect_protocol::checkpoint::Header;

const RUN: RunId = RunId([7; 32]);
const FIRST: LogId = LogId([1; 16]);

fn open() -> (tempfile::TempDir, Store) {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path(), RUN).unwrap();
    (folder, store)
}

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

/// As if it had been written that many hours ago.
fn set_age(saved: &Saved, hours: u64) {
    let file = File::options().write(true).open(&saved.path).unwrap();
    let age = Duration::from_secs(3_600 * hours);
    file.set_modified(SystemTime::now() - age).unwrap();
}

#[test]
fn the_first_log_is_the_identitys_and_every_later_start_draws_another() {
    let (_folder, store) = open();
    let first = store.begin(FIRST, 1_000).unwrap();
    assert_eq!(first, Start { log: FIRST, incarnation: 1_000 });
    let second = store.begin(FIRST, 2_000).unwrap();
    assert_ne!(second.log, FIRST);
    assert_eq!(second.incarnation, 2_000);
    // The clock may go back, incarnations may not.
    let third = store.begin(FIRST, 500).unwrap();
    assert_eq!(third.incarnation, 2_001);
    assert!(third.log != second.log && third.log != FIRST);
}

/// R19: whoever has forgotten what it voted is another voter, however it forgot.
#[test]
fn r19_the_first_log_is_not_used_again_when_the_log_is_lost() {
    let (folder, store) = open();
    assert_eq!(store.begin(FIRST, 1_000).unwrap().log, FIRST);
    fs::remove_dir_all(folder.path().join("runs")).unwrap();
    let store = Store::open(folder.path(), RUN).unwrap();
    assert_ne!(store.begin(FIRST, 1_000).unwrap().log, FIRST);
    // Another run is another vote.
    let other = Store::open(folder.path(), RunId([8; 32])).unwrap();
    assert_eq!(other.begin(FIRST, 1_000).unwrap().log, FIRST);
}

#[test]
fn a_torn_record_is_cut() {
    let (_folder, store) = open();
    store.begin(FIRST, 5_000).unwrap();
    let path = store.folder.join("votes.log");
    let whole = fs::read(&path).unwrap();
    for cut in 1..record(&[0; 9]).len() {
        fs::write(&path, &whole[..whole.len() - cut]).unwrap();
        // The incarnation was torn, so only the clock is left.
        assert_eq!(store.begin(FIRST, 10).unwrap().incarnation, 10, "{cut}");
        assert_eq!(store.begin(FIRST, 10).unwrap().incarnation, 11, "{cut}");
    }
    assert!(!store.folder.join("damaged").exists());
}

#[test]
fn a_log_with_a_bad_middle_is_set_aside() {
    let (_folder, store) = open();
    store.begin(FIRST, 5_000).unwrap();
    let path = store.folder.join("votes.log");
    let mut bytes = fs::read(&path).unwrap();
    bytes[21] ^= 1;
    fs::write(&path, &bytes).unwrap();
    let start = store.begin(FIRST, 7_000).unwrap();
    assert!(start.log != FIRST && start.incarnation == 7_000);
    assert_eq!(fs::read(store.folder.join("damaged/votes.log.7000")).unwrap(), bytes);
    assert_eq!(store.begin(FIRST, 1).unwrap().incarnation, 7_001);
    fs::write(&path, [0xff; 100]).unwrap();
    assert_eq!(store.begin(FIRST, 8_000).unwrap().incarnation, 8_000);
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
    assert!(matches!(saved.piece(4), Err(StoreError::Piece { .. })));
    let bytes = fs::read(&saved.path).unwrap();
    assert_eq!(bytes.len(), table.to_bytes().len() + 8 * parameters);
    assert!(bytes.starts_with(&table.to_bytes()));
    assert_eq!(saved.path, store.folder.join("checkpoints/3.ckpt"));
}

#[test]
fn the_newest_three_are_kept_and_a_pruned_one_can_still_be_served() {
    let (_folder, store) = open();
    let first = save(&store, 9, 10);
    set_age(&first, 9);
    for (epoch, age) in [(1, 3), (2, 2), (3, 1)] {
        set_age(&save(&store, epoch, 10), age);
    }
    let kept = store.checkpoints().unwrap();
    let names: Vec<_> = kept.iter().map(|path| path.file_name().unwrap().to_owned()).collect();
    assert_eq!(names, ["3.ckpt", "2.ckpt", "1.ckpt"]);
    assert!(first.piece(0).is_ok());
}

#[test]
fn a_clock_that_is_set_back_prunes_nothing_new() {
    let (_folder, store) = open();
    let ahead = SystemTime::now() + Duration::from_secs(3_600);
    for epoch in 1..=3 {
        let saved = save(&store, epoch, 10);
        let file = File::options().write(true).open(&saved.path).unwrap();
        file.set_modified(ahead + Duration::from_secs(epoch)).unwrap();
    }
    // As after a fork that was lost: the smaller epoch is the newer state.
    for epoch in [2, 1, 5] {
        let saved = save(&store, epoch, 10);
        assert_eq!(store.checkpoints().unwrap()[0], saved.path);
    }
    let epochs = |path: &PathBuf| path.file_stem().unwrap().to_str().unwrap().to_owned();
    assert_eq!(
        store.checkpoints().unwrap().iter().map(epochs).collect::<Vec<_>>(),
        ["5", "1", "2"]
    );
}

#[test]
fn what_a_crash_left_half_written_is_removed() {
    let (folder, store) = open();
    let left = store.folder.join("checkpoints/4.tmp");
    fs::write(&left, b"half").unwrap();
    Store::open(folder.path(), RUN).unwrap();
    assert!(!left.exists());
}

/// A failure leaves the checkpoint that is there, and no litter.
#[test]
fn a_state_that_cannot_be_stored_changes_nothing() {
    let (_folder, store) = open();
    let good = save(&store, 1, 10);
    let (table, mut theta, momentum) = state(1, 10);
    theta[4] = f32::NAN;
    let error = store.save(table.clone(), &theta, &momentum).unwrap_err();
    assert!(matches!(error, StoreError::NotFinite { index: 4 }), "{error}");
    theta[4] = 99.0;
    let error = store.save(table, &theta, &momentum).unwrap_err();
    assert!(matches!(error, StoreError::ReadBack { .. }), "{error}");
    let folder = files(&store.checkpoints_folder()).unwrap();
    assert_eq!(folder, std::slice::from_ref(&good.path));
    assert_eq!(fs::read(&good.path).unwrap().len(), 88 + 64 + 80);
}

#[test]
fn a_folder_that_cannot_be_written_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, b"").unwrap();
    let error = Store::open(&file, RUN).unwrap_err();
    assert!(error.to_string().contains(file.to_str().unwrap()), "{error}");
}

#[test]
fn the_manifest_is_kept_as_it_was_signed() {
    let (_folder, store) = open();
    store.save_manifest("old").unwrap();
    store.save_manifest("new").unwrap();
    assert_eq!(fs::read_to_string(store.folder.join("run.toml")).unwrap(), "new");
}
