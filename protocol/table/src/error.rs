//! What may be wrong with a table, in words for its author.

use std::fmt::{self, Display};
use std::ops::RangeInclusive;

/// Why a table cannot be used. Whatever the reason, the author of the manifest must change the manifest; each
/// message names the key, what is wrong with it, and what to write instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// The manifest lacks a whole table, or has another value in its place.
    MissingTable {
        /// The name of the table in the manifest.
        table: &'static str,
    },
    /// The table has a key that its declaration does not have.
    UnknownKey {
        /// The key as written, behind the name of its table.
        key: String,
    },
    /// A key that applies, and may not be absent, is absent.
    MissingKey {
        /// The key, behind the name of its table.
        key: String,
        /// The values that are allowed, and what the key means.
        wanted: String,
    },
    /// A key is there that does not apply.
    NotApplicable {
        /// The key, behind the name of its table.
        key: String,
        /// What the manifest would have to say so that the key applies.
        only: String,
    },
    /// A value of the wrong type or form, out of bounds, or one that does not go with another key.
    Value {
        /// The key, behind the name of its table.
        key: String,
        /// The value as TOML, cut after 60 characters.
        value: String,
        /// What must hold, as a sentence that follows "key is value: ".
        need: String,
    },
}

impl Error {
    /// The error of a value that may not stand there.
    #[must_use]
    pub fn value(key: impl Into<String>, value: impl Display, need: impl Into<String>) -> Self {
        Self::Value { key: key.into(), value: shortened(value.to_string()), need: need.into() }
    }

    /// The error of a number outside its bounds, which may depend on other keys.
    #[must_use]
    pub fn outside(
        key: impl Into<String>,
        value: impl Display,
        bounds: &RangeInclusive<impl Display>,
    ) -> Self {
        Self::value(key, value, format!("choose {} to {}", bounds.start(), bounds.end()))
    }
}

impl Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MissingTable { table } => {
                write!(f, "the manifest has no table [{table}]: `manifest new` writes every one")
            }
            Self::UnknownKey { key } => write!(f, "unknown key {key}"),
            Self::MissingKey { key, wanted } => write!(
                f,
                "{key} is missing: every field that applies must be written out ({wanted})"
            ),
            Self::NotApplicable { key, only } => {
                write!(f, "{key} belongs to {only} only: remove it")
            }
            Self::Value { key, value, need } => write!(f, "{key} is {value}: {need}"),
        }
    }
}

impl std::error::Error for Error {}

/// Cuts a value where it would flood a screen.
fn shortened(text: String) -> String {
    match text.char_indices().nth(60) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}
