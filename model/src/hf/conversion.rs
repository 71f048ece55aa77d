//! A `config.json` as it is read, key by key, and what is wrong with it.

use serde_json::Value;
use thiserror::Error;

/// What is wrong with a `config.json`.
#[derive(Clone, Debug, Error, PartialEq)]
pub enum Problem {
    /// A key without which there is no model, or of another type.
    #[error("{key} is {found}: it must be {expected}")]
    Key {
        /// The key.
        key: &'static str,
        /// The value that stands there, `null` if none does.
        found: Value,
        /// What it must be.
        expected: &'static str,
    },
    /// A feature that is not built here; without it the model would compute something else.
    #[error("{key} is {found}: only {supported} is supported")]
    Unsupported {
        /// The key.
        key: &'static str,
        /// The value that stands there.
        found: Value,
        /// What would be read.
        supported: String,
    },
    /// Sizes that no manifest may have.
    #[error(transparent)]
    Bounds(intellect_table::Error),
}

/// A `config.json` on its way into the table `[model]` of a manifest.
pub(crate) struct Conversion<'a> {
    pub(crate) config: &'a Value,
    pub(super) table: toml::Table,
    pub(super) problems: Vec<Problem>,
}

impl Conversion<'_> {
    pub(crate) fn put(&mut self, key: &str, value: impl Into<toml::Value>) {
        self.table.insert(key.to_owned(), value.into());
    }

    pub(crate) fn wrong(&mut self, key: &'static str, expected: &'static str) {
        self.problems.push(Problem::Key { key, found: self.config[key].clone(), expected });
    }

    /// Takes over a whole number, whose name is `theirs` in `config.json` and `key` in `[model]`.
    pub(crate) fn count(&mut self, key: &str, theirs: &'static str) {
        match self.config[theirs].as_i64() {
            Some(count) => self.put(key, count),
            None => self.wrong(theirs, "a whole number"),
        }
    }

    /// Refuses what is neither absent nor one of `allowed`.
    pub(crate) fn expect(&mut self, key: &'static str, allowed: &[Value]) {
        let found = &self.config[key];
        if !found.is_null() && !allowed.contains(found) {
            let supported = allowed.iter().map(Value::to_string).collect::<Vec<_>>().join(" or ");
            self.refuse(key, supported);
        }
    }

    /// Refuses what is written under a key.
    pub(crate) fn refuse(&mut self, key: &'static str, supported: String) {
        self.problems.push(Problem::Unsupported {
            key,
            found: self.config[key].clone(),
            supported,
        });
    }
}
