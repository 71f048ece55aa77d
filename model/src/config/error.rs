//! What may be wrong with a manifest.

use std::fmt::Display;
use std::ops::RangeInclusive;

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
    /// A value that may not stand there, alone or beside another one.
    #[error("{key} is {value}: {need}")]
    Value {
        /// The field, with its table.
        key: String,
        /// The value, as the manifest has it.
        value: String,
        /// What must hold, with the other field and its value where there is one.
        need: String,
    },
}

impl WorkError {
    pub(super) fn value(
        key: impl Into<String>,
        value: impl ToString,
        need: impl Into<String>,
    ) -> Self {
        Self::Value { key: key.into(), value: value.to_string(), need: need.into() }
    }

    /// A value outside of its bounds, which may hang on another one.
    pub(super) fn outside(
        key: impl Into<String>,
        value: impl ToString,
        bounds: &RangeInclusive<impl Display>,
    ) -> Self {
        Self::value(key, value, format!("choose {} to {}", bounds.start(), bounds.end()))
    }
}
