//! A token file as a source: tokens side by side, one of which begins each document.
//!
//! Like a text it is named by BLAKE3 and length, read through once when it is opened, to be checked
//! and counted, and after that read where it lies: it may be larger than memory. A row starts at any
//! token of the part before the held-out end and takes what lies there, documents and parts of them,
//! so no position is filled up with nothing. A document's number in a row is how many begin up to
//! there; a Llama reads each by itself.
//!
//! Entropies of pairs are counted where a table of all pairs is small, of at most 1,024 tokens.

pub mod header;
pub mod writer;

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use super::mix::Shape;
use super::split::Split;
use super::steady::Steady;
use super::text::File;
use super::{DataError, Entropies, entropy, files};
use crate::config::Vocabulary;
use header::{HEADER_BYTES, Header, HeaderError, Width};

/// An open file that was checked.
#[derive(Debug)]
pub(super) struct Tokens {
    file: Steady,
    header: Header,
    split: Split,
    entropies: Entropies,
}

/// Reads a file through and says what a manifest needs to know.
///
/// # Errors
/// If it cannot be read, is no token file, or holds what its tokenizer does not have.
pub fn describe(path: &Path) -> Result<(Header, File), DataError> {
    let (_, through) = read_through(path)?;
    Ok((through.header, through.file))
}

/// Whether a file is meant to be a token file.
///
/// # Errors
/// If it cannot be read.
pub fn is_meant(path: &Path) -> Result<bool, DataError> {
    let unreadable = |cause| DataError::Unreadable { path: path.to_owned(), cause };
    let mut begin = [0; HEADER_BYTES];
    let mut file = fs::File::open(path).map_err(unreadable)?;
    let filled = fill(&mut file, &mut begin).map_err(unreadable)?;
    Ok(header::is_token_file(&begin[..filled]))
}

/// What a manifest needs to know of several files, or of all token files in a folder.
///
/// # Errors
/// If one of them cannot be read or is no token file, if there is none, or they have different
/// tokenizers.
pub fn describe_all(named: &[PathBuf]) -> Result<(Vocabulary, Vec<PathBuf>, Vec<File>), DataError> {
    let mut found: Option<(Vocabulary, Vec<PathBuf>, Vec<File>)> = None;
    for candidate in files::all(named)? {
        if !candidate.by_itself && !is_meant(&candidate.path)? {
            continue;
        }
        let (header, file) = describe(&candidate.path)?;
        let begin = || (header.vocabulary, Vec::new(), Vec::new());
        let (vocabulary, paths, files) = found.get_or_insert_with(begin);
        if *vocabulary != header.vocabulary {
            return Err(DataError::Vocabularies { path: candidate.path });
        }
        paths.push(candidate.path);
        files.push(file);
    }
    found.ok_or_else(|| DataError::NoTokenFile { named: named.to_vec() })
}

/// The first tokens of a file, `most` of them at most.
///
/// # Errors
/// If it cannot be read or is no token file.
pub fn begin(path: &Path, most: usize) -> Result<Vec<i32>, DataError> {
    let unreadable = |cause| DataError::Unreadable { path: path.to_owned(), cause };
    let (file, header, _) = open(path)?;
    let mut bytes = vec![0; most * header.width as usize];
    let filled = fill(&mut file.file(), &mut bytes).map_err(unreadable)?;
    Ok(numbers(&bytes[..filled], header.width).map(|token| token as i32).collect())
}

/// A whole token file, which need not be the run's.
#[derive(Debug)]
pub(super) struct Found {
    file: Steady,
    through: Through,
}

/// Reads a file through, and keeps it open.
pub(super) fn read(path: &Path) -> Result<Found, DataError> {
    let (file, through) = read_through(path)?;
    Ok(Found { file, through })
}

impl Found {
    /// BLAKE3 of the file.
    pub(super) fn digest(&self) -> [u8; 32] {
        self.through.file.digest
    }

    /// The file as a source, if its tokenizer is the run's and both its parts hold a row.
    pub(super) fn accept(self, shape: Shape) -> Result<Tokens, DataError> {
        let Self { file, through: Through { header, entropies, .. } } = self;
        let path = file.path().to_owned();
        if header.vocabulary != shape.vocabulary {
            return Err(DataError::AnotherVocabulary { path });
        }
        let split = Split::new(header.count, shape.held_out, shape.context)
            .map_err(|small| DataError::too_small(path, "tokens", small))?;
        Ok(Tokens { file, header, split, entropies })
    }
}

impl Tokens {
    /// Opens and checks the run's file.
    pub(super) fn open(path: &Path, expected: File, shape: Shape) -> Result<Self, DataError> {
        let found = read(path)?;
        if found.through.file != expected {
            let path = path.to_owned();
            return Err(DataError::another_file(path, found.through.file, expected));
        }
        found.accept(shape)
    }

    /// What is trained on and what is held out.
    pub(super) fn split(&self) -> Split {
        self.split
    }

    pub(super) fn entropies(&self) -> Entropies {
        self.entropies
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
        Ok(numbers(&bytes, width).map(|token| token as i32).collect())
    }
}

/// What one pass over a file finds.
#[derive(Debug)]
struct Through {
    header: Header,
    file: File,
    entropies: Entropies,
}

fn open(path: &Path) -> Result<(Steady, Header, [u8; HEADER_BYTES]), DataError> {
    let file = Steady::open(path)?;
    let mut bytes = [0; HEADER_BYTES];
    let begin = fill(&mut file.file(), &mut bytes)
        .map_err(|cause| DataError::Unreadable { path: path.to_owned(), cause })?;
    let header = Header::decode(&bytes[..begin], file.bytes())
        .map_err(|why| DataError::NoTokens { path: path.to_owned(), why })?;
    Ok((file, header, bytes))
}

/// Digest, length and entropies of a file in one pass.
fn read_through(path: &Path) -> Result<(Steady, Through), DataError> {
    let unreadable = |cause| DataError::Unreadable { path: path.to_owned(), cause };
    let (file, header, first) = open(path)?;
    let (vocabulary, width) = (header.vocabulary, header.width);
    let mut hasher = blake3::Hasher::new();
    hasher.update(&first);
    let mut counts = Counts::new(vocabulary.tokens);
    let mut buffer = vec![0; BUFFER_BYTES];
    let (mut bytes, mut documents) = (HEADER_BYTES as u64, 0);
    loop {
        let read = fill(&mut file.file(), &mut buffer).map_err(unreadable)?;
        if read == 0 {
            break;
        }
        hasher.update(&buffer[..read]);
        for (index, token) in numbers(&buffer[..read], width).enumerate() {
            if token as usize >= vocabulary.tokens {
                let at = (bytes - HEADER_BYTES as u64) / width as u64 + index as u64;
                let (path, tokens) = (path.to_owned(), vocabulary.tokens);
                return Err(DataError::NoToken { path, at, token, tokens });
            }
            documents += u64::from(token == vocabulary.bos);
            counts.add(token as usize);
        }
        bytes += read as u64;
    }
    if documents != header.documents {
        let why = HeaderError::Damaged { what: "number of documents", value: header.documents };
        return Err(DataError::NoTokens { path: path.to_owned(), why });
    }
    let digest = *hasher.finalize().as_bytes();
    let through = Through { header, file: File { digest, bytes }, entropies: counts.entropies() };
    Ok((file, through))
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

/// Tokens of this width, little endian; a rest that is none is left out.
pub(super) fn numbers(bytes: &[u8], width: Width) -> impl Iterator<Item = u32> {
    bytes
        .chunks_exact(width as usize)
        .map(|token| token.iter().rev().fold(0, |number, byte| number << 8 | u32::from(*byte)))
}

/// Fills `buffer` as far as the file goes; says how far.
pub(super) fn fill(file: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match file.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

/// Read at a time when a file is checked, a whole number of tokens: large enough for BLAKE3's widest
/// code.
const BUFFER_BYTES: usize = 1 << 18;
/// Pairs of so many tokens are counted in a table of 8 MiB.
const PAIRS_TOKENS_MAX: usize = 1 << 10;

#[cfg(test)]
mod tests;
