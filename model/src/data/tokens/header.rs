//! The header of a token file: 128 bytes that describe its contents and its origin.
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
//! | 40 | 8 | bytes of text that the tokens represent |
//! | 48 | 16 | zero |
//! | 64 | 32 | BLAKE3 of the tokenizer's file, or zero |
//! | 96 | 32 | BLAKE3 of the files that it was made of, one after the other |
//!
//! The tokens follow without gaps, up to the end of the file.

use thiserror::Error;

use crate::config::{Scheme, Vocabulary, Width};

/// What a token file says about itself.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Header {
    /// Bytes of each token, as few as the vocabulary permits.
    pub width: Width,
    /// The tokenizer that made the tokens.
    pub vocabulary: Vocabulary,
    /// The number of tokens in the file.
    pub count: u64,
    /// The number of documents, which is that of begin tokens.
    pub documents: u64,
    /// Bytes of text that the tokens represent.
    pub text_bytes: u64,
    /// BLAKE3 of the files that it was made of, one after the other.
    pub source: [u8; 32],
}

/// Why bytes are not a header, or not the header of their file.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
pub enum HeaderError {
    /// The file does not begin like a token file.
    #[error("it is not a token file: `intellect-node data tokenize` makes one of your file")]
    NoTokenFile,
    /// A later version of this program made the file, the one that the header names.
    #[error("it is a token file of version {0}, this program reads 1: update intellect-node")]
    Newer(u8),
    /// The header has numbers that no version of this program writes.
    #[error("its header is damaged: its {what} is {value}")]
    Damaged {
        /// The name of the wrong number.
        what: &'static str,
        /// The value of the wrong number.
        value: u64,
    },
    /// The file is longer or shorter than its header says.
    #[error(
        "it has {found} bytes and its header says {expected}, {count} tokens of {width} bytes: \
         it was cut off, or its tokens have another width"
    )]
    Length {
        /// Length of the file in bytes.
        found: u64,
        /// The length that follows from the header.
        expected: u64,
        /// The number of tokens in the header.
        count: u64,
        /// The bytes of a token in the header.
        width: u64,
    },
}

impl Header {
    /// The header as it is in the file.
    #[must_use]
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let Vocabulary { scheme, digest, tokens, bos } = self.vocabulary;
        let mut bytes = [0; HEADER_BYTES];
        let mut put = |at: usize, field: &[u8]| bytes[at..at + field.len()].copy_from_slice(field);
        put(0, MAGIC);
        put(7, &[VERSION]);
        put(8, &(self.width as u32).to_le_bytes());
        put(12, &(scheme as u32).to_le_bytes());
        // A tokenizer has at most 2^20 tokens.
        put(16, &(tokens as u32).to_le_bytes());
        put(20, &bos.to_le_bytes());
        put(24, &self.count.to_le_bytes());
        put(32, &self.documents.to_le_bytes());
        put(40, &self.text_bytes.to_le_bytes());
        put(64, &digest);
        put(96, &self.source);
        bytes
    }

    /// Decodes the first bytes of a file of this length.
    ///
    /// # Errors
    /// If they are not a header, or the file has another length than the header says.
    pub fn decode(bytes: &[u8], file_bytes: u64) -> Result<Self, HeaderError> {
        if !is_token_file(bytes) {
            return Err(HeaderError::NoTokenFile);
        }
        let (Some(&version), Some(bytes)) = (bytes.get(7), bytes.get(..HEADER_BYTES)) else {
            return Err(HeaderError::NoTokenFile);
        };
        if version != VERSION {
            return Err(HeaderError::Newer(version));
        }
        let damaged = |what, value: u64| HeaderError::Damaged { what, value };
        let word = |at| u32::from_le_bytes(field(bytes, at));
        let long = |at| u64::from_le_bytes(field(bytes, at));
        let wrong_width = || damaged("width", word(8).into());
        let width = [Width::Two, Width::Four].into_iter().find(|known| *known as u32 == word(8));
        let width = width.ok_or_else(wrong_width)?;
        let scheme = Scheme::ALL.into_iter().find(|known| *known as u32 == word(12));
        let scheme = scheme.ok_or_else(|| damaged("tokenizer's form", word(12).into()))?;
        let (tokens, bos) = (word(16), word(20));
        if !(2..=1 << 20).contains(&tokens) {
            return Err(damaged("number of different tokens", tokens.into()));
        }
        if width != Width::of(tokens as usize) {
            return Err(wrong_width());
        }
        if bos >= tokens {
            return Err(damaged("token that begins a document", bos.into()));
        }
        let digest = field(bytes, 64);
        let vocabulary = Vocabulary { scheme, digest, tokens: tokens as usize, bos };
        let count = long(24);
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
            documents: long(32),
            text_bytes: long(40),
            source: field(bytes, 96),
        })
    }
}

/// Whether a file with these first bytes is meant to be a token file.
#[must_use]
pub fn is_token_file(begin: &[u8]) -> bool {
    begin.starts_with(MAGIC)
}

/// The N bytes of the header from offset `at` on.
fn field<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut field = [0; N];
    field.copy_from_slice(&bytes[at..at + N]);
    field
}

/// The length of the header, which is the offset of the first token.
pub const HEADER_BYTES: usize = 128;
/// The first bytes of every token file.
const MAGIC: &[u8] = b"itokens";
/// The format that this program writes, and the only one that it reads.
const VERSION: u8 = 1;
