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
use std::path::Path;

use super::documents::{self, Format, Found, ReadError, Shape, Sink};
use super::split::Split;
use super::steady::Steady;
use super::{DataError, Entropies, entropy};
use crate::config::Vocabulary;

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
    file: Steady,
    split: Split,
    entropies: Entropies,
}

/// Reads a file through that a new run is to train on as a plain text, and says what a manifest needs
/// to know.
///
/// # Errors
/// If it cannot be read, is empty, is no text of UTF-8, or its name says that its documents have to be
/// taken out of it first.
pub fn propose(path: &Path) -> Result<File, DataError> {
    match Format::of(path) {
        Ok(Format::JsonLines | Format::Parquet) => {
            return Err(DataError::NotPlain { path: path.to_owned() });
        }
        // Any other name may be a text's.
        Ok(Format::Text | Format::Tokens(_)) | Err(ReadError::Format { .. }) => {}
        Err(error) => return Err(error.into()),
    }
    let Vocabulary { tokens, bos, .. } = Vocabulary::BYTES;
    let mut through = Through { hasher: blake3::Hasher::new(), bytes: 0 };
    documents::read(path, Format::Text, Shape { field: "", tokens, bos }, &mut through)?;
    Ok(File { digest: *through.hasher.finalize().as_bytes(), bytes: through.bytes })
}

/// Digest and length of what is read.
struct Through {
    hasher: blake3::Hasher,
    bytes: u64,
}

impl Sink for Through {
    type Error = ReadError;

    fn bytes(&mut self, bytes: &[u8]) {
        self.hasher.update(bytes);
        self.bytes += bytes.len() as u64;
    }

    fn found(&mut self, _: Found) -> Result<(), ReadError> {
        Ok(())
    }
}

/// Reads a file through and says what a manifest says of it, whatever is in it.
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
        let file = Steady::open(path)?;
        let (found, entropies) = read_through(&mut file.file()).map_err(unreadable)?;
        let path = path.to_owned();
        if found != expected {
            return Err(DataError::another_file(path, found, expected));
        }
        let split = Split::new(found.bytes, held_out, context)
            .map_err(|small| DataError::too_small(path.clone(), "bytes", small))?;
        Ok(Self { file, split, entropies })
    }

    /// What is trained on and what is held out.
    pub(super) fn split(&self) -> Split {
        self.split
    }

    pub(super) fn entropies(&self) -> Entropies {
        self.entropies
    }

    /// `length` bytes from `start` on.
    pub(super) fn read(&self, start: u64, length: usize) -> Result<Vec<i32>, DataError> {
        let mut bytes = vec![0; length];
        self.file.read(&mut bytes, start)?;
        Ok(bytes.into_iter().map(i32::from).collect())
    }
}

/// Digest, length and entropies of a file in one pass.
fn read_through(file: &mut impl Read) -> io::Result<(File, Entropies)> {
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
        bigram: Some(entropy::of_the_next(&pairs, 256)),
        floor: None,
    };
    Ok((File { digest: *hasher.finalize().as_bytes(), bytes }, entropies))
}

/// Read at a time when a file is checked: large enough for BLAKE3's widest code.
const BUFFER_BYTES: usize = 1 << 18;
