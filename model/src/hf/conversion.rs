//! The conversion of a `config.json`, key by key, and the problems that it finds.
//!
//! Each key that is wrong is noted and passed over, so that a person sees all of them at once. The
//! result is a table `[model]`, which is parsed with the bounds of a manifest.

use serde_json::Value;
use thiserror::Error;

/// A problem of a `config.json`; its text says what would be right.
#[derive(Clone, Debug, Error, PartialEq)]
pub enum Problem {
    /// A required key is missing or has the wrong type.
    #[error("{key} is {found}: it must be {expected}")]
    Key {
        /// The key, as it is in `config.json`.
        key: &'static str,
        /// The value of the key, `null` if it is missing.
        found: Value,
        /// What the value should be, in words.
        expected: &'static str,
    },
    /// A feature that is not implemented here; without it the model would compute other results.
    #[error("{key} is {found}: only {supported} is supported")]
    Unsupported {
        /// The key, as it is in `config.json`.
        key: &'static str,
        /// The value of the key, which is not supported.
        found: Value,
        /// The values that are supported.
        supported: String,
    },
    /// A size is outside the bounds of a manifest.
    #[error(transparent)]
    Bounds(intellect_table::Error),
}

/// The state of converting a `config.json` to the table `[model]` of a manifest.
pub(crate) struct Conversion<'a> {
    /// The configuration that is read.
    pub(crate) config: &'a Value,
    /// The keys of `[model]` so far.
    pub(super) table: toml::Table,
    /// What was wrong with keys so far.
    pub(super) problems: Vec<Problem>,
}

impl Conversion<'_> {
    /// Sets a key of the table `[model]`.
    pub(crate) fn put(&mut self, key: &str, value: impl Into<toml::Value>) {
        self.table.insert(key.to_owned(), value.into());
    }

    /// Notes that a key is missing, or of another type than `expected`.
    pub(crate) fn wrong(&mut self, key: &'static str, expected: &'static str) {
        self.problems.push(Problem::Key { key, found: self.config[key].clone(), expected });
    }

    /// Copies a whole number from the key `theirs` of `config.json` to `key` of `[model]`.
    pub(crate) fn count(&mut self, key: &str, theirs: &'static str) {
        match self.config[theirs].as_i64() {
            Some(count) => self.put(key, count),
            None => self.wrong(theirs, "a whole number"),
        }
    }

    /// Refuses a value that is neither absent nor one of `allowed`.
    pub(crate) fn expect(&mut self, key: &'static str, allowed: &[Value]) {
        let found = &self.config[key];
        if !found.is_null() && !allowed.contains(found) {
            let supported = allowed.iter().map(Value::to_string).collect::<Vec<_>>().join(" or ");
            self.refuse(key, supported);
        }
    }

    /// Refuses the value of a key, as one that would change results.
    pub(crate) fn refuse(&mut self, key: &'static str, supported: String) {
        let found = self.config[key].clone();
        self.problems.push(Problem::Unsupported { key, found, supported });
    }
}
