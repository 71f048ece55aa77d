//! What a tokenizer makes of what it does not know.

use thiserror::Error;

/// What becomes of a letter that a tokenizer does not know.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Unknown {
    /// There is none: bytes have tokens.
    Never,
    /// This token stands for it, and it cannot be told from others.
    Token(u32),
    /// Nothing: it is not among the tokens.
    Dropped,
}

/// Why a text has no tokens.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
pub enum EncodeError {
    /// The synthetic source has no such symbol.
    #[error("{letter:?} is no symbol of this run: they are {first} to {last}")]
    NoSymbol {
        /// The letter that has no token.
        letter: char,
        /// The first symbol's letter.
        first: char,
        /// The last symbol's letter.
        last: char,
    },
    /// The tokenizer's file has no token for something.
    #[error("the tokenizer refuses the text: {why}")]
    Refused {
        /// What the library says.
        why: String,
    },
}
