//! What may be wrong with a manifest.

use thiserror::Error;

/// Why a manifest's work cannot be used: the author of the manifest must change it.
#[derive(Clone, Debug, Error, PartialEq)]
pub enum WorkError {
    /// A whole table is absent, or something else stands in its place.
    #[error("the manifest has no table [{table}]: `manifest new` writes every one")]
    MissingTable {
        /// Name of the table.
        table: &'static str,
    },
    /// A key that nobody knows.
    #[error("unknown key {table}.{key}")]
    UnknownKey {
        /// Table that it stands in.
        table: &'static str,
        /// The key, as the manifest has it.
        key: String,
    },
    /// A field that applies is absent.
    #[error("{table}.{key} is missing: every field that applies must be written out ({told})")]
    MissingKey {
        /// Table that it belongs in.
        table: &'static str,
        /// The field.
        key: &'static str,
        /// Its bounds and what it means.
        told: String,
    },
    /// A field that does not apply is present.
    #[error("{table}.{key} belongs to {only} only: remove it")]
    NotApplicable {
        /// Table that it stands in.
        table: &'static str,
        /// The field.
        key: &'static str,
        /// What it would belong to.
        only: String,
    },
    /// A value of the wrong type.
    #[error("{table}.{key} is {found}: it must be {expected}")]
    WrongType {
        /// Table that it stands in.
        table: &'static str,
        /// The field.
        key: &'static str,
        /// What it must be.
        expected: &'static str,
        /// What it is.
        found: String,
    },
    /// A number outside its bounds.
    #[error("{table}.{key} is {value}: choose {low} to {high}")]
    OutOfBounds {
        /// Table that it stands in.
        table: &'static str,
        /// The field.
        key: &'static str,
        /// The value, as the manifest has it.
        value: String,
        /// Smallest value allowed.
        low: String,
        /// Largest value allowed.
        high: String,
    },
    /// A name that is not in a closed list.
    #[error("{table}.{key} is \"{value}\": known are {known}")]
    NotOneOf {
        /// Table that it stands in.
        table: &'static str,
        /// The field.
        key: &'static str,
        /// The value, as the manifest has it.
        value: String,
        /// The closed list.
        known: String,
    },
    /// Two fields that contradict each other.
    #[error("{key} is {value}: {need}")]
    Contradiction {
        /// The field, with its table.
        key: &'static str,
        /// The value, as the manifest has it.
        value: String,
        /// What must hold, with the other field and its value.
        need: String,
    },
}

impl WorkError {
    pub(super) fn contradiction(
        key: &'static str,
        value: impl ToString,
        need: impl Into<String>,
    ) -> Self {
        Self::Contradiction { key, value: value.to_string(), need: need.into() }
    }
}
