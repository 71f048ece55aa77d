//! How a tokenizer treats characters without a token.

use thiserror::Error;

/// How a tokenizer encodes a character without a token of its own.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Unknown {
    /// There is no such character, since all bytes have tokens.
    Never,
    /// It becomes this token, so unknown characters cannot be distinguished.
    Token(u32),
    /// It is left out, so decoding does not restore the text.
    Dropped,
}

/// Why a text cannot be encoded.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
pub enum EncodeError {
    /// The synthetic source has no symbol that is shown as this letter.
    #[error("{letter:?} is not a symbol of this run, which are {first} to {last}")]
    NoSymbol {
        /// The letter that is not a symbol.
        letter: char,
        /// The letter of the first symbol.
        first: char,
        /// The letter of the last symbol.
        last: char,
    },
    /// The tokenizer's file has no token for some part, and no unknown token, says the crate `tokenizers`.
    #[error("the tokenizer refuses the text: {0}")]
    Refused(String),
}
