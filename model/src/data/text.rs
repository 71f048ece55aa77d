//! A text file as a source: one token per byte, rows cut from anywhere, its end held out.
//!
//! Every peer must train on the same text, so the manifest names the file by BLAKE3 and length, and
//! it is read through once when it is opened, with a buffer of fixed size, to be checked and
//! counted. After that rows are read where they lie: a file may be larger than memory.
//!
//! A row starts at any byte of the part before the held-out end. The held-out rows are spread
//! evenly over the end, so that a short set still covers it.

use std::fs::File;
use std::path::Path;

use super::chunks;
use super::documents::sink::{Found, ReadOptions, Sink, open};
use super::documents::{self, Format, ReadError};
use super::entropy::{self, Entropies};
use super::error::DataError;
use super::split::Split;
use super::steady::Steady;
use crate::config::{Fingerprint, Vocabulary};

/// An open file that was checked.
#[derive(Debug)]
pub(super) struct Text {
    file: Steady,
    /// What is trained on and what is held out.
    pub(super) split: Split,
    pub(super) entropies: Entropies,
}

/// Reads the whole of a file, on which a new run is to train as a plain text, and returns what a
/// manifest says of it.
///
/// # Errors
/// If it cannot be read, is empty, is no text of UTF-8, or its name says that its documents have to
/// be taken out of it first.
pub fn propose(path: &Path) -> Result<Fingerprint, DataError> {
    match Format::of(path) {
        Ok(Format::JsonLines | Format::Parquet) => {
            return Err(DataError::NotPlain(path.to_owned()));
        }
        // Any other name may be a text's.
        Ok(Format::Text | Format::Tokens(_)) | Err(ReadError::Format(_)) => {}
        Err(error) => return Err(error.into()),
    }
    let Vocabulary { tokens, bos, .. } = Vocabulary::BYTES;
    let mut hasher = blake3::Hasher::new();
    documents::read(path, Format::Text, ReadOptions { field: "", tokens, bos }, &mut hasher)?;
    Ok(Fingerprint { digest: *hasher.finalize().as_bytes(), bytes: hasher.count() })
}

/// Takes the digest and the length of what is read, whatever it is.
impl Sink for blake3::Hasher {
    type Error = ReadError;

    fn bytes(&mut self, bytes: &[u8]) {
        self.update(bytes);
    }

    fn found(&mut self, _: Found) -> Result<(), ReadError> {
        Ok(())
    }
}

/// Reads the whole of a file, whatever is in it, and returns what a manifest says of it.
///
/// # Errors
/// If it cannot be read.
pub fn describe(path: &Path) -> Result<Fingerprint, DataError> {
    read_through(&open(path)?, path).map(|(fingerprint, _)| fingerprint)
}

impl Text {
    /// Opens and checks the run's file.
    pub(super) fn open(
        path: &Path,
        expected: Fingerprint,
        held_out: f64,
        context: usize,
    ) -> Result<Self, DataError> {
        let file = Steady::open(path)?;
        let (found, entropies) = read_through(&file.file, path)?;
        if found != expected {
            return Err(DataError::AnotherFile { path: path.to_owned(), found, expected });
        }
        let split = Split::new(path, (found.bytes, "bytes"), held_out, context)?;
        Ok(Self { file, split, entropies })
    }

    /// The file itself.
    pub(super) fn file(&self) -> &Steady {
        &self.file
    }

    /// `length` bytes from `start` on.
    pub(super) fn read(&self, start: u64, length: usize) -> Result<Vec<i32>, DataError> {
        let mut bytes = vec![0; length];
        self.file.read(&mut bytes, start)?;
        Ok(bytes.into_iter().map(i32::from).collect())
    }
}

/// Fingerprint and entropies of a file in one pass.
fn read_through(mut file: &File, path: &Path) -> Result<(Fingerprint, Entropies), DataError> {
    let mut hasher = blake3::Hasher::new();
    let mut pairs = vec![0_u64; 256 * 256];
    let mut last = None;
    chunks::each(&mut file, path, |bytes| {
        hasher.update(bytes);
        for &byte in bytes {
            if let Some(last) = last.replace(byte) {
                pairs[usize::from(last) * 256 + usize::from(byte)] += 1;
            }
        }
        Ok::<_, DataError>(())
    })?;
    let entropies = Entropies {
        uniform: 256_f64.ln(),
        unigram: entropy::of_symbols(&pairs, 256),
        bigram: Some(entropy::of_the_next(&pairs, 256)),
        floor: None,
    };
    let digest = *hasher.finalize().as_bytes();
    Ok((Fingerprint { digest, bytes: hasher.count() }, entropies))
}
