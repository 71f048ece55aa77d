//! A token file as a source: consecutive tokens, with a special one at the begin of each document.
//!
//! As with a text, the manifest names it by BLAKE3 and length; one pass at its opening checks and
//! counts it, and later rows are read from the disk, so it may be larger than memory. A row starts
//! at any token before the held-out end and contains documents and parts of them, so there is no
//! padding. The number of a document in a row is the count of begin tokens so far; a Llama reads
//! each document separately.
//!
//! Pairs are counted only if their table is small, for at most 1,024 different tokens.

pub mod header;
pub mod writer;

use std::path::{Path, PathBuf};

use super::chunks;
use super::documents::sink;
use super::entropy::{self, Entropies};
use super::error::DataError;
use super::files;
use super::split::Split;
use super::steady::Steady;
use crate::config::{Fingerprint, Vocabulary};
use header::{HEADER_BYTES, Header, HeaderError};

/// An open token file whose digest was checked.
#[derive(Debug)]
pub(super) struct Tokens {
    /// The file itself, which must not change.
    pub(super) scanned: Scanned,
    /// The training part and the held-out part.
    pub(super) split: Split,
}

/// What a run requires of each of its token files.
#[derive(Clone, Copy, Debug)]
pub(super) struct Requirements {
    /// The tokenizer with which it must have been made.
    pub(super) vocabulary: Vocabulary,
    /// Share that is held out, from 0 to 0.5.
    pub(super) held_out: f64,
    /// T, the number of tokens in a row.
    pub(super) context: usize,
}

/// Reads a whole token file and returns what a manifest needs to know.
///
/// # Errors
/// If it cannot be read, is not a token file, or has tokens that its tokenizer does not have.
pub fn describe(path: &Path) -> Result<(Header, Fingerprint), DataError> {
    scan(path).map(|scanned| (scanned.header, scanned.fingerprint))
}

/// Whether a file begins like a token file.
///
/// # Errors
/// If the file cannot be read.
pub fn is_meant(path: &Path) -> Result<bool, DataError> {
    let mut begin = Vec::new();
    chunks::begin(&mut sink::open(path)?, path, HEADER_BYTES, &mut begin)?;
    Ok(header::is_token_file(&begin))
}

/// What a manifest needs to know about several files, or about all token files in a folder.
///
/// # Errors
/// If a file cannot be read or is not a token file, if there is none, or if they have different
/// tokenizers.
pub fn describe_all(
    named: &[PathBuf],
) -> Result<(Vocabulary, Vec<PathBuf>, Vec<Fingerprint>), DataError> {
    let mut found: Option<(Vocabulary, Vec<PathBuf>, Vec<Fingerprint>)> = None;
    for candidate in files::all(named)? {
        if !candidate.by_itself && !is_meant(&candidate.path)? {
            continue;
        }
        let (header, file) = describe(&candidate.path)?;
        let begin = || (header.vocabulary, Vec::new(), Vec::new());
        let (vocabulary, paths, files) = found.get_or_insert_with(begin);
        if *vocabulary != header.vocabulary {
            return Err(DataError::Vocabularies(candidate.path));
        }
        paths.push(candidate.path);
        files.push(file);
    }
    found.ok_or_else(|| DataError::NoTokenFile(named.to_vec()))
}

/// The first tokens of a file, at most `most`.
///
/// # Errors
/// If it cannot be read or is not a token file.
pub fn begin(path: &Path, most: usize) -> Result<Vec<i32>, DataError> {
    let (file, header, _) = open(path)?;
    let mut bytes = Vec::new();
    chunks::begin(&mut &file.file, path, most * header.width as usize, &mut bytes)?;
    Ok(header.width.tokens(&bytes).map(|token| token as i32).collect())
}

/// An intact token file, which need not be one of the run's.
#[derive(Debug)]
pub(super) struct Scanned {
    /// The file, which is checked to be the same at every read.
    pub(super) file: Steady,
    /// What the file says about itself.
    pub(super) header: Header,
    /// Its digest and length, by which a manifest names it.
    pub(super) fingerprint: Fingerprint,
    /// What losses on it are compared with, of the whole file.
    pub(super) entropies: Entropies,
}

impl Scanned {
    /// The token that begins each document.
    pub(super) fn bos(&self) -> i32 {
        // The cast is exact, since tokens are below 2^20.
        self.header.vocabulary.bos as i32
    }

    /// Reads `length` tokens from `start` on.
    pub(super) fn read(&self, start: u64, length: usize) -> Result<Vec<i32>, DataError> {
        let width = self.header.width;
        let mut bytes = vec![0; length * width as usize];
        let at = HEADER_BYTES as u64 + start * width as u64;
        self.file.read(&mut bytes, at)?;
        // The casts are exact: the tokens were checked to be below 2^20 when the file was opened.
        Ok(width.tokens(&bytes).map(|token| token as i32).collect())
    }

    /// Converts it to a source, if its tokenizer is the run's and both parts have room for a row.
    pub(super) fn accept(self, required: Requirements) -> Result<Tokens, DataError> {
        if self.header.vocabulary != required.vocabulary {
            return Err(DataError::AnotherVocabulary(self.file.path));
        }
        let Requirements { held_out, context, .. } = required;
        let split = Split::new(&self.file.path, self.header.count, "tokens", held_out, context)?;
        Ok(Tokens { scanned: self, split })
    }
}

impl Tokens {
    /// Opens the run's file and checks its digest.
    pub(super) fn open(
        path: &Path,
        expected: Fingerprint,
        required: Requirements,
    ) -> Result<Self, DataError> {
        let scanned = scan(path)?;
        if scanned.fingerprint != expected {
            let (path, found) = (path.to_owned(), scanned.fingerprint);
            return Err(DataError::AnotherFile { path, found, expected });
        }
        scanned.accept(required)
    }
}

/// Opens a file and reads its header, whose bytes are part of the fingerprint.
fn open(path: &Path) -> Result<(Steady, Header, Vec<u8>), DataError> {
    let (file, mut begin) = (Steady::open(path)?, Vec::new());
    chunks::begin(&mut &file.file, path, HEADER_BYTES, &mut begin)?;
    let header = Header::decode(&begin, file.bytes)
        .map_err(|why| DataError::NoTokens { path: path.to_owned(), why })?;
    Ok((file, header, begin))
}

/// Reads a whole token file, and leaves it open.
pub(super) fn scan(path: &Path) -> Result<Scanned, DataError> {
    let (file, header, begin) = open(path)?;
    let (vocabulary, width) = (header.vocabulary, header.width);
    let mut hasher = blake3::Hasher::new();
    hasher.update(&begin);
    let mut counts = Counts::new(vocabulary.tokens);
    let (mut at, mut documents) = (0, 0);
    chunks::each(&mut &file.file, path, |bytes| {
        hasher.update(bytes);
        for token in width.tokens(bytes) {
            if token as usize >= vocabulary.tokens {
                let (path, tokens) = (path.to_owned(), vocabulary.tokens);
                return Err(DataError::NoToken { path, at, token, tokens });
            }
            at += 1;
            documents += u64::from(token == vocabulary.bos);
            counts.add(token as usize);
        }
        Ok(())
    })?;
    if documents != header.documents {
        let why = HeaderError::Damaged { what: "number of documents", value: header.documents };
        return Err(DataError::NoTokens { path: path.to_owned(), why });
    }
    let (digest, bytes) = (*hasher.finalize().as_bytes(), hasher.count());
    let fingerprint = Fingerprint { digest, bytes };
    Ok(Scanned { file, header, fingerprint, entropies: counts.entropies() })
}

/// The frequency of each token, and of each pair if that table is small.
pub(super) struct Counts {
    /// How many different tokens there are.
    tokens: usize,
    /// The frequency of each token. // one for each
    singles: Vec<u64>,
    /// That of each pair, at index first · tokens + second; empty if there are too many.
    pairs: Vec<u64>,
    /// The token before, in the order of the file.
    last: Option<usize>,
}

impl Counts {
    /// Counters of zero for so many different tokens.
    pub(super) fn new(tokens: usize) -> Self {
        let pairs = if tokens <= PAIRS_TOKENS_MAX { tokens * tokens } else { 0 };
        Self { tokens, singles: vec![0; tokens], pairs: vec![0; pairs], last: None }
    }

    /// Counts the next token, which is below their number.
    pub(super) fn add(&mut self, token: usize) {
        self.singles[token] += 1;
        let pair = self.last.replace(token).map(|last| last * self.tokens + token);
        if let Some(count) = pair.and_then(|pair| self.pairs.get_mut(pair)) {
            *count += 1;
        }
    }

    /// The entropies of what was counted, in nats per token.
    pub(super) fn entropies(&self) -> Entropies {
        let bigram = || entropy::of_the_next(&self.pairs, self.tokens);
        Entropies {
            uniform: (self.tokens as f64).ln(),
            unigram: entropy::of_the_next(&self.singles, self.tokens),
            bigram: (!self.pairs.is_empty()).then(bigram),
            floor: None,
        }
    }
}

/// The pairs of this many tokens need a table of 8 MiB.
const PAIRS_TOKENS_MAX: usize = 1 << 10;

#[cfg(test)]
mod tests;
