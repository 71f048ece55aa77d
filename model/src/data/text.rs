//! A text file as a source: one token per byte, rows cut from anywhere, its end held out.
//!
//! Every peer must train on the same text, so the manifest names the file by BLAKE3 and length.
//! When the file is opened, one pass with a buffer of fixed size checks it and counts its bytes.
//! After that rows are read from the disk, so a file may be larger than memory. `split.rs` says
//! where rows start.

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

/// An open text whose digest was checked.
#[derive(Debug)]
pub(super) struct Text {
    /// The file, which must not change.
    pub(super) file: Steady,
    /// The training part and the held-out part.
    pub(super) split: Split,
    /// What losses on it are compared with, of the whole file.
    pub(super) entropies: Entropies,
}

/// Reads a whole file on which a new run is to train as plain text, and returns its entry in the
/// manifest.
///
/// # Errors
/// If it cannot be read, is empty, is not UTF-8, or its name indicates a format from which
/// documents must be extracted first.
pub fn propose(path: &Path) -> Result<Fingerprint, DataError> {
    expect_plain(path)?;
    let Vocabulary { tokens, bos, .. } = Vocabulary::BYTES;
    let mut hasher = blake3::Hasher::new();
    documents::read(path, Format::Text, ReadOptions { field: "", tokens, bos }, &mut hasher)?;
    Ok(Fingerprint { digest: *hasher.finalize().as_bytes(), bytes: hasher.count() })
}

/// Refuses a file whose name says that its documents are in records, or compressed. Any other name
/// may be that of a text.
pub(super) fn expect_plain(path: &Path) -> Result<(), DataError> {
    match Format::of(path) {
        Ok(Format::JsonLines | Format::Parquet) => Err(DataError::NotPlain(path.to_owned())),
        Ok(Format::Text | Format::Tokens(_)) | Err(ReadError::Format(_)) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Computes the digest and the length of what is read.
impl Sink for blake3::Hasher {
    type Error = ReadError;

    fn bytes(&mut self, bytes: &[u8]) {
        self.update(bytes);
    }

    fn found(&mut self, _: Found) -> Result<(), ReadError> {
        Ok(())
    }
}

/// Reads a whole file, whatever it contains, and returns its entry in a manifest.
///
/// # Errors
/// If the file cannot be read.
pub fn describe(path: &Path) -> Result<Fingerprint, DataError> {
    read_through(&open(path)?, path).map(|(fingerprint, _)| fingerprint)
}

impl Text {
    /// Opens the run's file and checks its digest.
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
        let split = Split::new(path, found.bytes, "bytes", held_out, context)?;
        Ok(Self { file, split, entropies })
    }

    /// Reads `length` bytes from `start` on.
    pub(super) fn read(&self, start: u64, length: usize) -> Result<Vec<i32>, DataError> {
        let mut bytes = vec![0; length];
        self.file.read(&mut bytes, start)?;
        Ok(bytes.into_iter().map(i32::from).collect())
    }
}

/// Computes the fingerprint and the entropies of a file in one pass. Symbols are counted as the
/// second ones of pairs, so all but the file's first byte.
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
