//! The directory of a zip archive whose members are stored as they are, as PyTorch writes them.
//!
//! Only what finds a member is read: the record at the end, the directory before it, in the older
//! form and in that of archives over 4 GiB (APPNOTE 6.3, sections 4.3 and 4.5.3), and the header of
//! a member that is asked for. Checksums are not compared, as a safetensors file has none either.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::os::unix::fs::FileExt as _;

use super::PthError;

/// An archive whose directory was read.
pub(super) struct Archive {
    /// The file, of which members are read later.
    pub(super) file: File,
    /// Where the directory begins, and all members have ended.
    end: u64,
    /// Where each member lies, by its name in the directory.
    members: BTreeMap<String, Member>,
}

/// A member as the directory describes it.
#[derive(Clone, Copy)]
struct Member {
    /// Offset of its header in the archive.
    header: u64,
    /// Its length, stored as it is.
    bytes: u64,
}

/// Where the directory is, and how many members it has. None of it has been checked.
struct Directory {
    /// Where it begins in the file.
    begin: u64,
    /// Its length, as the end of the file says it.
    bytes: u64,
    /// How many entries it says that it has.
    members: u64,
}

impl Archive {
    /// Reads the directory of `file`.
    ///
    /// # Errors
    /// If there is none, it contradicts the file, or a member is compressed or encrypted.
    pub(super) fn open(file: File) -> Result<Self, PthError> {
        let length = file.metadata()?.len();
        let directory = Directory::find(&file, length)?;
        let Directory { begin, bytes, members: count } = directory;
        if begin.checked_add(bytes).is_none_or(|end| end > length) {
            return Err(PthError::Damaged("its directory is cut off"));
        }
        if bytes > DIRECTORY_BYTES_MAX || count > bytes / ENTRY as u64 {
            return Err(PthError::Damaged("its directory is too long"));
        }
        let bytes = read(&file, begin, bytes)?;
        let mut rest = &bytes[..];
        let mut members = BTreeMap::new();
        for _ in 0..count {
            let (name, member) = entry(&mut rest)?;
            if members.insert(name, member).is_some() {
                return Err(PthError::Damaged("two of its members have one name"));
            }
        }
        Ok(Self { file, end: begin, members })
    }

    /// The names of all members, sorted.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.members.keys().map(String::as_str)
    }

    /// Where the bytes of a member are in the file; none if there is no such member.
    pub(super) fn place(&self, name: &str) -> Result<Option<Range<u64>>, PthError> {
        let Some(Member { header, bytes }) = self.members.get(name).copied() else {
            return Ok(None);
        };
        if header.checked_add(LOCAL as u64).is_none_or(|end| end > self.end) {
            return Err(OUTSIDE);
        }
        let local = read(&self.file, header, LOCAL as u64)?;
        if !local.starts_with(b"PK\x03\x04") {
            return Err(PthError::Damaged("a member has no header"));
        }
        // The lengths of the name and of the extra fields, which may differ from those in the
        // directory.
        let lengths = [26, 28].map(|at| short(&local, at)).into_iter().sum::<Option<u64>>();
        let begin = lengths.and_then(|lengths| (header + LOCAL as u64).checked_add(lengths));
        let end = begin.and_then(|begin| begin.checked_add(bytes));
        match begin.zip(end) {
            Some((begin, end)) if end <= self.end => Ok(Some(begin..end)),
            _ => Err(OUTSIDE),
        }
    }

    /// The bytes of a member that has at most `most`; none if there is no such member.
    pub(super) fn read(&self, name: &str, most: u64) -> Result<Option<Vec<u8>>, PthError> {
        let Some(place) = self.place(name)? else { return Ok(None) };
        let bytes = place.end - place.start;
        if bytes > most {
            return Err(PthError::Long { member: name.to_owned(), bytes, most });
        }
        read(&self.file, place.start, bytes).map(Some)
    }
}

impl Directory {
    /// Finds the record at the end of the file, behind which only a comment may stand, and the
    /// record of a large archive, where one is.
    fn find(file: &File, length: u64) -> Result<Self, PthError> {
        let begin = length.saturating_sub((END + COMMENT_MAX) as u64);
        let tail = read(file, begin, length - begin)?;
        let ends = |at: &usize| {
            let rest = (tail.len() - at).checked_sub(END).map(|comment| comment as u64);
            let whole = rest.is_some() && rest == short(&tail, at + 20);
            whole && tail[*at..].starts_with(b"PK\x05\x06")
        };
        let at = (0..tail.len()).rev().find(ends).ok_or(PthError::NoArchive)?;
        let record = &tail[at..];
        let at = begin + at as u64;
        let locator = at.checked_sub(LOCATOR as u64);
        let locator = locator.map(|place| read(file, place, LOCATOR as u64)).transpose()?;
        match locator.filter(|locator| locator.starts_with(b"PK\x06\x07")) {
            Some(locator) => Self::large(file, at, &locator),
            None => Self::small(record).ok_or(CUT),
        }
    }

    /// Reads the record at the end of an archive below 4 GiB: the number of entries at 10, the
    /// length of the directory at 12, its place at 16.
    fn small(record: &[u8]) -> Option<Self> {
        let members = short(record, 10)?;
        let (bytes, begin) = (word(record, 12)?, word(record, 16)?);
        Some(Self { begin, bytes, members })
    }

    /// Reads the record to which the locator leads, and which lies before `end`. The same numbers
    /// are at 32, 40 and 48, and the locator has the record's place at 8.
    fn large(file: &File, end: u64, locator: &[u8]) -> Result<Self, PthError> {
        let at = long(locator, 8).ok_or(CUT)?;
        if at.checked_add(LARGE as u64).is_none_or(|last| last > end) {
            return Err(CUT);
        }
        let record = read(file, at, LARGE as u64)?;
        if !record.starts_with(b"PK\x06\x06") {
            return Err(CUT);
        }
        let number = |at| long(&record, at).ok_or(CUT);
        Ok(Self { members: number(32)?, bytes: number(40)?, begin: number(48)? })
    }
}

/// Takes the next entry of the directory.
///
/// It has flags at 8, the method at 10, the stored and the whole length at 20 and 24, the lengths
/// of name, extra fields and comment at 28, 30 and 32, and the member's place at 42.
fn entry(rest: &mut &[u8]) -> Result<(String, Member), PthError> {
    let entry = *rest;
    let lengths = [28, 30, 32].map(|at| short(entry, at).and_then(|n| usize::try_from(n).ok()));
    let (true, [Some(name), Some(extra), Some(comment)]) =
        (entry.starts_with(b"PK\x01\x02"), lengths)
    else {
        return Err(CUT);
    };
    let after = ENTRY + name + extra + comment;
    let (Some(head), Some(later)) = (entry.get(..after), entry.get(after..)) else {
        return Err(CUT);
    };
    *rest = later;
    let (name, extra) = (&head[ENTRY..ENTRY + name], &head[ENTRY + name..][..extra]);
    let name = String::from_utf8(name.to_vec())
        .map_err(|_| PthError::Damaged("the name of a member is not UTF-8"))?;
    let (Some(flags), Some(method)) = (short(head, 8), short(head, 10)) else { return Err(CUT) };
    if flags & ENCRYPTED != 0 || method != 0 {
        return Err(PthError::Packed(name));
    }
    // In this order the larger field replaces each number that does not fit its own.
    let mut large = field(extra, LARGE_FIELD).unwrap_or_default();
    let mut number = |at| {
        let number = word(head, at)?;
        if number != u64::from(u32::MAX) {
            return Some(number);
        }
        let (first, later) = large.split_first_chunk::<8>()?;
        large = later;
        Some(u64::from_le_bytes(*first))
    };
    let mut number = |at| number(at).ok_or(CUT);
    let (bytes, stored, header) = (number(24)?, number(20)?, number(42)?);
    if bytes != stored {
        return Err(PthError::Packed(name));
    }
    Ok((name, Member { header, bytes }))
}

/// The field of this kind among the extra fields of an entry.
fn field(mut extra: &[u8], kind: u64) -> Option<&[u8]> {
    loop {
        let (found, bytes) = (short(extra, 0)?, usize::try_from(short(extra, 2)?).ok()?);
        let (field, later) = extra.get(4..)?.split_at_checked(bytes)?;
        if found == kind {
            return Some(field);
        }
        extra = later;
    }
}

/// Reads bytes of which the caller knows that they are not too many.
fn read(file: &File, at: u64, bytes: u64) -> Result<Vec<u8>, PthError> {
    let bytes = usize::try_from(bytes).map_err(|_| io::Error::from(ErrorKind::OutOfMemory))?;
    let mut found = vec![0; bytes];
    file.read_exact_at(&mut found, at)?;
    Ok(found)
}

/// A u16 in little endian, if it is there.
fn short(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk().map(|chunk| u64::from(u16::from_le_bytes(*chunk)))
}

/// A u32 in little endian, if it is there.
fn word(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk().map(|chunk| u64::from(u32::from_le_bytes(*chunk)))
}

/// A u64 in little endian, if it is there.
fn long(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk().map(|chunk| u64::from_le_bytes(*chunk))
}

/// The file ends before what its records name.
const CUT: PthError = PthError::Damaged("its directory is cut off");
/// The error of a member whose place is beyond the end of the file.
const OUTSIDE: PthError = PthError::Damaged("a member lies outside of the file");
/// Bytes of the record at the end, without the comment.
const END: usize = 22;
/// The longest comment behind it.
const COMMENT_MAX: usize = 65_535;
/// Bytes of the locator of a large archive's record.
const LOCATOR: usize = 20;
/// Bytes of the record of a large archive.
const LARGE: usize = 56;
/// Bytes of an entry of the directory, without its name, extra fields and comment.
const ENTRY: usize = 46;
/// Bytes of the header before a member, without its name and extra fields.
const LOCAL: usize = 30;
/// The kind of the extra field with the numbers of a large member.
const LARGE_FIELD: u64 = 1;
/// The flag of an encrypted member.
const ENCRYPTED: u64 = 1;
/// Far more than the members of any model need.
const DIRECTORY_BYTES_MAX: u64 = 16 << 20;
