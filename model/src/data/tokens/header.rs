//! The first 128 bytes of a token file: what it holds and what it was made of.
//!
//! | offset | bytes | what, little endian |
//! |---|---|---|
//! | 0 | 8 | `itokens` and the version, 1 |
//! | 8 | 4 | bytes of a token: 2 or 4 |
//! | 12 | 4 | form of the tokenizer: 2 bytes, 3 RWKV World, 4 Hugging Face |
//! | 16 | 4 | how many different tokens the tokenizer has |
//! | 20 | 4 | the token that begins each document |
//! | 24 | 8 | tokens that follow |
//! | 32 | 8 | documents |
//! | 40 | 8 | bytes of text that the tokens stand for |
//! | 48 | 16 | zero |
//! | 64 | 32 | BLAKE3 of the tokenizer's file, or zero |
//! | 96 | 32 | BLAKE3 of the files that it was made of, one after the other |
//!
//! After it the tokens lie side by side to the end of the file.

use thiserror::Error;

use crate::config::{Scheme, Vocabulary, Width};

/// What a token file says about itself.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Header {
    /// How wide a token is.
    pub width: Width,
    /// What it was made with.
    pub vocabulary: Vocabulary,
    /// How many tokens follow.
    pub count: u64,
    /// How many documents they are.
    pub documents: u64,
    /// Bytes of text that they stand for.
    pub text_bytes: u64,
    /// BLAKE3 of the files that it was made of, one after the other.
    pub source: [u8; 32],
}

/// Why bytes are no header, or not that of their file.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
pub enum HeaderError {
    /// Another kind of file.
    #[error("it is no token file: `intellect-node data tokenize` makes one of your file")]
    NoTokenFile,
    /// A later program made it.
    #[error("it is a token file of version {version}, this program reads 1: update intellect-node")]
    Newer {
        /// What it says.
        version: u8,
    },
    /// Numbers that no program of ours writes.
    #[error("its header is damaged: its {what} is {value}")]
    Damaged {
        /// Which number.
        what: &'static str,
        /// What it is.
        value: u64,
    },
    /// The file is longer or shorter than it says.
    #[error(
        "it has {found} bytes and its header tells of {expected}, {count} tokens of {width} bytes: \
         it was cut off, or its tokens have another width"
    )]
    Length {
        /// Length of the file in bytes.
        found: u64,
        /// The length that it should have.
        expected: u64,
        /// Tokens by its header.
        count: u64,
        /// Their width by its header.
        width: u64,
    },
}

impl Header {
    /// The header's bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let vocabulary = &self.vocabulary;
        // A tokenizer has at most 2^20 tokens.
        let words = [self.width as u32, vocabulary.scheme as u32, vocabulary.tokens as u32];
        let mut bytes = Vec::with_capacity(HEADER_BYTES);
        bytes.extend_from_slice(MAGIC);
        bytes.push(VERSION);
        words.iter().for_each(|word| bytes.extend_from_slice(&word.to_le_bytes()));
        bytes.extend_from_slice(&vocabulary.bos.to_le_bytes());
        for number in [self.count, self.documents, self.text_bytes, 0, 0] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        bytes.extend_from_slice(&vocabulary.digest);
        bytes.extend_from_slice(&self.source);
        let mut header = [0; HEADER_BYTES];
        header.copy_from_slice(&bytes);
        header
    }

    /// Reads the first bytes of a file of this length.
    ///
    /// # Errors
    /// If they are no header, or the file has another length than they say.
    pub fn decode(bytes: &[u8], file_bytes: u64) -> Result<Self, HeaderError> {
        if !is_token_file(bytes) {
            return Err(HeaderError::NoTokenFile);
        }
        let (Some(&version), Some(bytes)) = (bytes.get(7), bytes.get(..HEADER_BYTES)) else {
            return Err(HeaderError::NoTokenFile);
        };
        if version != VERSION {
            return Err(HeaderError::Newer { version });
        }
        let damaged = |what, value: u64| HeaderError::Damaged { what, value };
        let (width, scheme) = (word(bytes, 8), word(bytes, 12));
        let width = [Width::Two, Width::Four].into_iter().find(|known| *known as u32 == width);
        let wrong_width = || damaged("width", word(bytes, 8).into());
        let width = width.ok_or_else(wrong_width)?;
        let scheme = Scheme::ALL.into_iter().find(|known| *known as u32 == scheme);
        let scheme = scheme.ok_or_else(|| damaged("tokenizer's form", word(bytes, 12).into()))?;
        let (tokens, bos) = (word(bytes, 16), word(bytes, 20));
        if !(2..=1 << 20).contains(&tokens) {
            return Err(damaged("number of different tokens", tokens.into()));
        }
        if width != Width::of(tokens as usize) {
            return Err(wrong_width());
        }
        if bos >= tokens {
            return Err(damaged("token that begins a document", bos.into()));
        }
        let digest = digest(bytes, 64);
        let vocabulary = Vocabulary { scheme, digest, tokens: tokens as usize, bos };
        let count = long(bytes, 24);
        let length = count.checked_mul(width as u64);
        let expected = length.and_then(|length| length.checked_add(HEADER_BYTES as u64));
        let expected = expected.ok_or_else(|| damaged("number of tokens", count))?;
        if file_bytes != expected {
            let width = width as u64;
            return Err(HeaderError::Length { found: file_bytes, expected, count, width });
        }
        Ok(Self {
            width,
            vocabulary,
            count,
            documents: long(bytes, 32),
            text_bytes: long(bytes, 40),
            source: self::digest(bytes, 96),
        })
    }
}

/// Whether a file that begins so is meant to be a token file.
#[must_use]
pub fn is_token_file(begin: &[u8]) -> bool {
    begin.starts_with(MAGIC)
}

fn word(bytes: &[u8], at: usize) -> u32 {
    bytes[at..at + 4].iter().rev().fold(0, |word, byte| word << 8 | u32::from(*byte))
}

fn long(bytes: &[u8], at: usize) -> u64 {
    u64::from(word(bytes, at + 4)) << 32 | u64::from(word(bytes, at))
}

fn digest(bytes: &[u8], at: usize) -> [u8; 32] {
    let mut digest = [0; 32];
    digest.copy_from_slice(&bytes[at..at + 32]);
    digest
}

/// Bytes before the first token.
pub const HEADER_BYTES: usize = 128;
const MAGIC: &[u8] = b"itokens";
const VERSION: u8 = 1;
