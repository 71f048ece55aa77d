//! A token file as a source: tokens side by side, one of which begins each document.
//!
//! Like a text it is named by BLAKE3 and length, read through once when it is opened, to be checked
//! and counted, and after that read where it lies: it may be larger than memory. A row starts at
//! any token of the part before the held-out end and takes what lies there, documents and parts of
//! them, so no position is filled up with nothing. A document's number in a row is how many begin
//! up to there; a Llama reads each by itself.
//!
//! Entropies of pairs are counted where a table of all pairs is small, of at most 1,024 tokens.

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

/// An open file that was checked.
#[derive(Debug)]
pub(super) struct Tokens {
    file: Steady,
    header: Header,
    /// What is trained on and what is held out.
    pub(super) split: Split,
    pub(super) entropies: Entropies,
}

/// What a run asks of each of its token files.
#[derive(Clone, Copy, Debug)]
pub(super) struct Requirements {
    /// What it was made with.
    pub(super) vocabulary: Vocabulary,
    /// Share that is held out, 0–0.5.
    pub(super) held_out: f64,
    /// T, tokens in a row.
    pub(super) context: usize,
}

/// Reads the whole of a token file and returns what a manifest needs to know.
///
/// # Errors
/// If it cannot be read, is no token file, or holds what its tokenizer does not have.
pub fn describe(path: &Path) -> Result<(Header, Fingerprint), DataError> {
    scan(path).map(|scanned| (scanned.header, scanned.fingerprint))
}

/// Whether a file is meant to be a token file.
///
/// # Errors
/// If it cannot be read.
pub fn is_meant(path: &Path) -> Result<bool, DataError> {
    let mut begin = Vec::new();
    chunks::begin(&mut sink::open(path)?, path, HEADER_BYTES, &mut begin)?;
    Ok(header::is_token_file(&begin))
}

/// What a manifest needs to know of several files, or of all token files in a folder.
///
/// # Errors
/// If one of them cannot be read or is no token file, if there is none, or they have different
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

/// The first tokens of a file, `most` of them at most.
///
/// # Errors
/// If it cannot be read or is no token file.
pub fn begin(path: &Path, most: usize) -> Result<Vec<i32>, DataError> {
    let (file, header, _) = open(path)?;
    let mut bytes = Vec::new();
    chunks::begin(&mut &file.file, path, most * header.width as usize, &mut bytes)?;
    Ok(header.width.tokens(&bytes).map(|token| token as i32).collect())
}

/// A whole token file that was read through; it need not be the run's.
#[derive(Debug)]
pub(super) struct Scanned {
    file: Steady,
    header: Header,
    pub(super) fingerprint: Fingerprint,
    entropies: Entropies,
}

impl Scanned {
    /// The file as a source, if its tokenizer is the run's and both its parts hold a row.
    pub(super) fn accept(self, required: Requirements) -> Result<Tokens, DataError> {
        let Self { file, header, entropies, .. } = self;
        if header.vocabulary != required.vocabulary {
            return Err(DataError::AnotherVocabulary(file.path));
        }
        let size = (header.count, "tokens");
        let split = Split::new(&file.path, size, required.held_out, required.context)?;
        Ok(Tokens { file, header, split, entropies })
    }
}

impl Tokens {
    /// Opens and checks the run's file.
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

    /// The file itself.
    pub(super) fn file(&self) -> &Steady {
        &self.file
    }

    /// The token that begins each document.
    pub(super) fn bos(&self) -> i32 {
        // Below 2^20.
        self.header.vocabulary.bos as i32
    }

    /// `length` tokens from `start` on.
    pub(super) fn read(&self, start: u64, length: usize) -> Result<Vec<i32>, DataError> {
        let width = self.header.width;
        let mut bytes = vec![0; length * width as usize];
        let at = HEADER_BYTES as u64 + start * width as u64;
        self.file.read(&mut bytes, at)?;
        // Below 2^20, as was checked when the file was opened.
        Ok(width.tokens(&bytes).map(|token| token as i32).collect())
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

/// Reads the whole of a token file, and keeps it open.
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

/// How often each token came, and each pair where that is a small table.
struct Counts {
    tokens: usize,
    singles: Vec<u64>,
    pairs: Vec<u64>,
    last: Option<usize>,
}

impl Counts {
    fn new(tokens: usize) -> Self {
        let pairs = if tokens <= PAIRS_TOKENS_MAX { tokens * tokens } else { 0 };
        Self { tokens, singles: vec![0; tokens], pairs: vec![0; pairs], last: None }
    }

    fn add(&mut self, token: usize) {
        self.singles[token] += 1;
        if let Some(last) = self.last.replace(token).filter(|_| !self.pairs.is_empty()) {
            self.pairs[last * self.tokens + token] += 1;
        }
    }

    fn entropies(&self) -> Entropies {
        let pairs = Some(&self.pairs).filter(|pairs| !pairs.is_empty());
        Entropies {
            uniform: (self.tokens as f64).ln(),
            unigram: entropy::of_the_next(&self.singles, self.tokens),
            bigram: pairs.map(|pairs| entropy::of_the_next(pairs, self.tokens)),
            floor: None,
        }
    }
}

/// Pairs of so many tokens are counted in a table of 8 MiB.
const PAIRS_TOKENS_MAX: usize = 1 << 10;

#[cfg(test)]
mod tests;
