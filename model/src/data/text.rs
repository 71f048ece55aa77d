//! A text file as a source: one token per byte, rows cut from anywhere, its end held out.
//!
//! Every peer must train on the same text, so the manifest names the file by BLAKE3 and length, and
//! it is read through once when it is opened, with a buffer of fixed size, to be checked and
//! counted. After that rows are read where they lie: a file may be larger than memory.
//!
//! A row starts at any byte of the part before the held-out end. The held-out rows are spread
//! evenly over the end, so that a short set still covers it.

use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::draw::Draw;
use super::{DataError, Entropies, entropy, hex};

/// What a manifest says about a file.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct File {
    /// BLAKE3 of its bytes.
    pub digest: [u8; 32],
    /// Their number.
    pub bytes: u64,
}

/// An open file that was checked.
#[derive(Debug)]
pub(super) struct Text {
    file: fs::File,
    path: PathBuf,
    bytes: u64,
    /// Length of the part before the held-out end.
    training: u64,
    entropies: Entropies,
}

/// Reads a file through and says what a manifest needs to know.
///
/// # Errors
/// If it cannot be read.
pub fn describe(path: &Path) -> Result<File, DataError> {
    let unreadable = |cause| DataError::Unreadable { path: path.to_owned(), cause };
    let mut file = fs::File::open(path).map_err(unreadable)?;
    read_through(&mut file).map(|(file, _)| file).map_err(unreadable)
}

impl Text {
    /// Opens and checks the run's file.
    pub(super) fn open(
        path: &Path,
        expected: File,
        held_out: f64,
        context: usize,
    ) -> Result<Self, DataError> {
        let unreadable = |cause| DataError::Unreadable { path: path.to_owned(), cause };
        let mut file = fs::File::open(path).map_err(unreadable)?;
        let (found, entropies) = read_through(&mut file).map_err(unreadable)?;
        if found != expected {
            return Err(DataError::AnotherFile {
                path: path.to_owned(),
                found_bytes: found.bytes,
                found: hex(found.digest),
                bytes: expected.bytes,
                digest: hex(expected.digest),
            });
        }
        let end = (found.bytes as f64 * held_out) as u64;
        let training = found.bytes.saturating_sub(end);
        let needed = context as u64 + 1;
        for (part, bytes) in [("training", training), ("held-out", end)] {
            // Holding nothing out is a choice; holding too little out is a mistake.
            if bytes < needed && (part == "training" || held_out > 0.0) {
                return Err(DataError::TooSmall { path: path.to_owned(), part, bytes, needed });
            }
        }
        Ok(Self { file, path: path.to_owned(), bytes: found.bytes, training, entropies })
    }

    /// A row of `length` bytes from anywhere in the training part.
    pub(super) fn anywhere(&self, draw: &mut Draw, length: usize) -> Result<Vec<i32>, DataError> {
        let starts = self.training - length as u64 + 1;
        self.read(draw.below(starts), length)
    }

    /// Row `row` of the `of` rows that are held out.
    pub(super) fn held_out(&self, row: u64, of: u64, length: usize) -> Result<Vec<i32>, DataError> {
        if self.training == self.bytes {
            return Err(DataError::NothingHeldOut);
        }
        let last = self.bytes - self.training - length as u64;
        let share = u128::from(last) * u128::from(row) / u128::from(of.max(2) - 1);
        self.read(self.training + u64::try_from(share).unwrap_or(last).min(last), length)
    }

    pub(super) fn entropies(&self) -> Entropies {
        self.entropies
    }

    fn read(&self, start: u64, length: usize) -> Result<Vec<i32>, DataError> {
        let mut bytes = vec![0; length];
        self.file
            .read_exact_at(&mut bytes, start)
            .map_err(|cause| DataError::Unreadable { path: self.path.clone(), cause })?;
        Ok(bytes.into_iter().map(i32::from).collect())
    }
}

/// Digest, length and entropies of a file in one pass.
fn read_through(file: &mut fs::File) -> io::Result<(File, Entropies)> {
    let mut hasher = blake3::Hasher::new();
    let mut pairs = vec![0_u64; 256 * 256];
    let mut buffer = vec![0; BUFFER_BYTES];
    let (mut bytes, mut last) = (0, None);
    loop {
        let count = match file.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        let read = &buffer[..count];
        hasher.update(read);
        for &byte in read {
            if let Some(last) = last.replace(byte) {
                pairs[usize::from(last) * 256 + usize::from(byte)] += 1;
            }
        }
        bytes += count as u64;
    }
    let entropies = Entropies {
        uniform: 256_f64.ln(),
        unigram: entropy::of_symbols(&pairs, 256),
        bigram: entropy::of_the_next(&pairs, 256),
        floor: None,
    };
    Ok((File { digest: *hasher.finalize().as_bytes(), bytes }, entropies))
}

/// Read at a time when a file is checked: large enough for BLAKE3's widest code.
const BUFFER_BYTES: usize = 1 << 18;
