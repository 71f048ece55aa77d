//! A small log with every cut, every flipped bit, and every gap.

use super::*;

fn records() -> Vec<Vec<u8>> {
    vec![b"first".to_vec(), Vec::new(), vec![7; 40], b"the last one".to_vec()]
}

/// An empty log in a folder of its own.
fn empty() -> (tempfile::TempDir, PathBuf, Log) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.log");
    let log = Log::open(&path, 0).unwrap();
    (folder, path, log)
}

/// The offsets at which the batches end, with their marks.
fn ends(records: &[Vec<u8>]) -> Vec<usize> {
    let mut ends = vec![0];
    for record in records {
        ends.push(ends[ends.len() - 1] + HEAD_BYTES + 4 + record.len() + MARK_BYTES);
    }
    ends
}

fn content(records: &[Vec<u8>], damaged: bool) -> Content {
    let bytes = ends(records)[records.len()] as u64;
    Content { records: records.to_vec(), bytes, damaged }
}

#[test]
fn what_was_appended_is_found_and_more_can_follow() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.log");
    assert_eq!(Content::read(&path).unwrap(), Content::default());
    let mut log = Log::open(&path, 0).unwrap();
    let all = records();
    log.append(&all[..1]).unwrap();
    log.append(&all[1..3]).unwrap();
    let found = Content::read(&path).unwrap();
    assert_eq!((found.records.as_slice(), found.damaged), (&all[..3], false));
    let mut log = Log::open(&path, found.bytes).unwrap();
    log.append(&all[3..]).unwrap();
    assert_eq!(Content::read(&path).unwrap().records, all);
    assert_eq!(log.bytes(), fs::metadata(&path).unwrap().len());
}

/// A crash between write and flush may leave any prefix of what was written.
#[test]
fn a_tail_torn_at_any_byte_is_cut() {
    let (_folder, path, _) = empty();
    let all = records();
    let bytes = encode(&all).unwrap();
    let ends = ends(&all);
    for cut in 0..=bytes.len() {
        // A batch whose mark is torn loses nothing.
        let whole = ends[1..].iter().filter(|end| **end - MARK_BYTES <= cut).count();
        fs::write(&path, &bytes[..cut]).unwrap();
        let found = Content::read(&path).unwrap();
        assert_eq!(
            (found.records.as_slice(), found.damaged),
            (&all[..whole], false),
            "cut at {cut}"
        );
        let mut log = Log::open(&path, found.bytes).unwrap();
        log.append(&[b"more".to_vec()]).unwrap();
        let again = Content::read(&path).unwrap();
        assert_eq!(again.records.last().unwrap(), b"more", "cut at {cut}");
        assert_eq!((again.records.len(), again.damaged), (whole + 1, false), "cut at {cut}");
    }
}

/// The size of a file may reach the disk before its bytes do.
#[test]
fn room_that_was_never_written_to_is_cut() {
    let all = records();
    let mut bytes = encode(&all).unwrap();
    for zeros in 1..100 {
        bytes.push(0);
        assert_eq!(Content::of(&bytes), content(&all, false), "{zeros} zeros");
    }
    bytes.extend(encode(&all[..1]).unwrap());
    assert!(Content::of(&bytes).damaged, "something was flushed behind the gap");
}

/// Any pages of one append may be there, wherever they begin. The append is lost as a whole, and what was flushed before
/// it stays.
#[test]
fn an_append_of_which_some_pages_are_missing_is_cut() {
    const PAGE: usize = 24;
    let (before, last) = (records(), batch(&records()).unwrap());
    let flushed = encode(&before).unwrap();
    for first in 1..=PAGE {
        let (head, rest) = last.split_at(first);
        let pages: Vec<&[u8]> = [head].into_iter().chain(rest.chunks(PAGE)).collect();
        for there in 0..1_u32 << pages.len() {
            let mut bytes = flushed.clone();
            for (n, page) in pages.iter().enumerate() {
                let missing = there & 1 << n == 0;
                bytes.extend(page.iter().map(|byte| if missing { 0 } else { *byte }));
            }
            let all = there + 1 == 1 << pages.len();
            for end in [bytes.len(), flushed.len() + first.min(PAGE)] {
                let found = Content::of(&bytes[..end]);
                let count = if all && end == bytes.len() { 2 } else { 1 } * before.len();
                let kept = (found.records.len(), found.damaged);
                assert_eq!(
                    kept,
                    (count, false),
                    "pages {there:b} of {}, after {first}",
                    pages.len()
                );
            }
        }
    }
}

/// Every bit of every byte is flipped once, also in the last batch and in lengths. A vote that was sent is read, or the log
/// is known to be damaged.
#[test]
fn a_bit_that_is_damaged_anywhere_is_detected_or_costs_no_record() {
    let all = records();
    let bytes = encode(&all).unwrap();
    let ends = ends(&all);
    for at in 0..bytes.len() {
        let batch = ends.iter().filter(|end| **end <= at).count() - 1;
        for bit in 0..8 {
            let mut bad = bytes.clone();
            bad[at] ^= 1 << bit;
            let found = Content::of(&bad);
            let in_mark = at >= ends[batch + 1] - MARK_BYTES;
            let read = found.records.len();
            assert!(all.starts_with(&found.records), "bit {bit} of byte {at}");
            assert!(read >= batch + usize::from(in_mark), "bit {bit} of byte {at}");
            let none_lost = read == all.len();
            assert!(found.damaged || none_lost, "bit {bit} of byte {at} passes for a torn tail");
        }
    }
}

/// A full disk may leave batches without marks; later batches have them.
#[test]
fn a_log_without_end_marks_is_read_and_extended_with_them() {
    let (_folder, path, _) = empty();
    let mut all = records();
    let old: Vec<_> = all.iter().flat_map(|r| batch(std::slice::from_ref(r)).unwrap()).collect();
    for cut in 0..=old.len() {
        let found = Content::of(&old[..cut]);
        assert!(!found.damaged && all.starts_with(&found.records), "cut at {cut}");
    }
    fs::write(&path, &old).unwrap();
    let found = Content::read(&path).unwrap();
    assert_eq!((&found.records, found.bytes), (&all, old.len() as u64));
    Log::open(&path, found.bytes).unwrap().append(&[b"new".to_vec()]).unwrap();
    all.push(b"new".to_vec());
    let mut bytes = fs::read(&path).unwrap();
    assert_eq!(
        Content::of(&bytes),
        Content { bytes: bytes.len() as u64, records: all, damaged: false }
    );
    // Damage in a batch that is no longer the last one is detected.
    bytes[old.len() - 1] ^= 1;
    assert!(Content::of(&bytes).damaged);
}

/// The records of the batches that are read one after the other, each of which is also found by its offset.
fn read_one_by_one(path: &Path) -> Vec<Vec<u8>> {
    let file = File::open(path).unwrap();
    let (mut before, mut found) = (0..0, Vec::new());
    while let Some((records, batch)) = read_batch(&file, &before).unwrap() {
        let by_offset = read_batch(&file, &(batch.start..batch.start)).unwrap();
        assert_eq!(by_offset, Some((records.clone(), batch.clone())));
        found.extend(records);
        before = batch;
    }
    found
}

/// A question about a link reads batches at their offsets.
#[test]
fn batches_are_read_one_after_the_other_past_their_marks() {
    let (_folder, path, mut log) = empty();
    for record in records() {
        log.append(&[record]).unwrap();
    }
    assert_eq!(read_one_by_one(&path), records());
}

/// A mark is flushed with the next batch, so any page of both may be missing. A start that took a torn mark for no damage
/// goes on behind it, and its links are served.
#[test]
fn a_mark_of_which_a_power_cut_zeroed_any_part_is_no_damage_and_is_read_past() {
    let (_folder, path, _) = empty();
    let all = records();
    let (bytes, ends) = (encode(&all).unwrap(), ends(&all));
    for end in &ends[1..] {
        for there in 0..=MARK_BYTES {
            for missing in [end - MARK_BYTES..end - there, end - there..*end] {
                let mut gap = bytes.clone();
                gap[missing].fill(0);
                let found = Content::of(&gap);
                assert_eq!((&found.records, found.damaged), (&all, false));
                fs::write(&path, &gap).unwrap();
                assert_eq!(read_one_by_one(&path), all, "{there} bytes before {end}");
            }
        }
    }
}

#[test]
fn a_record_that_claims_to_be_huge_is_damage_and_costs_no_memory() {
    for length in [BATCH_BYTES_MAX + 1, u32::MAX as usize] {
        // An odd length: a multiple of 256 might be a head whose first page is missing.
        let length = length | 1;
        let bytes = [&u32::try_from(length).unwrap().to_le_bytes(), [9; 60].as_slice()].concat();
        let found = Content::of(&bytes);
        assert!(found.damaged && found.records.is_empty());
    }
    let (_folder, _, mut log) = empty();
    log.append(&[vec![0; BATCH_BYTES_MAX]]).unwrap_err();
    log.append(&[vec![0; BATCH_BYTES_MAX - 4]]).unwrap();
    assert_eq!(Content::read(log.path()).unwrap().records.len(), 1);
}

/// A full disk may leave half a record behind the good ones.
#[test]
fn what_a_failed_append_left_is_cut_by_the_next_one() {
    let (_folder, path, mut log) = empty();
    log.append(&[b"good".to_vec()]).unwrap();
    OpenOptions::new().append(true).open(&path).unwrap().write_all(b"half a rec").unwrap();
    log.torn = true;
    log.append(&[b"again".to_vec()]).unwrap();
    let found = Content::read(&path).unwrap();
    assert_eq!((found.records, found.damaged), (vec![b"good".to_vec(), b"again".to_vec()], false));
}

#[test]
fn a_log_that_is_rewritten_goes_on_behind_its_new_records() {
    let (folder, path, mut log) = empty();
    log.append(&records()).unwrap();
    // A crash while the log was rewritten may leave this.
    fs::write(folder.path().join("a.tmp"), b"left over").unwrap();
    log.rewrite(&[b"short".to_vec()]).unwrap();
    assert_eq!(Content::read(&path).unwrap(), content(&[b"short".to_vec()], false));
    log.append(&[b"more".to_vec()]).unwrap();
    let both = [b"short".to_vec(), b"more".to_vec()];
    assert_eq!(Content::read(&path).unwrap(), content(&both, false));
    assert!(!folder.path().join("a.tmp").exists());
}

/// A log that cannot be rewritten stays as it was.
#[test]
fn a_rewrite_that_fails_loses_nothing() {
    let (folder, path, mut log) = empty();
    log.append(&records()).unwrap();
    fs::create_dir(folder.path().join("a.tmp")).unwrap();
    log.rewrite(&[b"short".to_vec()]).unwrap_err();
    log.append(&[b"more".to_vec()]).unwrap();
    assert_eq!(Content::read(&path).unwrap().records.len(), records().len() + 1);
}

impl Log {
    /// A log that cannot be written to, as on a full disk.
    pub(in crate::store) fn read_only(path: &Path) -> Self {
        let bytes = fs::metadata(path).unwrap().len();
        let file = File::open(path).unwrap();
        Self { path: path.to_owned(), file, bytes, torn: false, named: true }
    }
}
