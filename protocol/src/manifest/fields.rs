//! One table of a manifest, read field by field: known keys, types and bounds.

use std::time::Duration;

use toml::{Table, Value};

use super::ManifestError;

/// A table whose keys are all known.
pub(super) struct Fields<'a> {
    /// As it is written before a key: empty, or the table's name with a point.
    prefix: &'static str,
    values: &'a Table,
}

impl<'a> Fields<'a> {
    /// Takes `values` for the table `prefix` of which the keys are `known`.
    pub(super) fn new(
        prefix: &'static str,
        values: &'a Table,
        known: &[&'static str],
    ) -> Result<Self, ManifestError> {
        for key in values.keys() {
            let nearest = known.iter().min_by_key(|name| distance(name, key));
            if let Some(nearest) = nearest.filter(|nearest| *nearest != key) {
                let (key, nearest) = (format!("{prefix}{key}"), format!("{prefix}{nearest}"));
                return Err(ManifestError::UnknownKey { key, nearest });
            }
        }
        Ok(Self { prefix, values })
    }

    /// The table `name` inside this one, with the prefix `name.`.
    pub(super) fn table(
        &self,
        name: &'static str,
        prefix: &'static str,
        known: &[&'static str],
    ) -> Result<Self, ManifestError> {
        let value = self.value(name)?;
        let values = value.as_table().ok_or_else(|| self.wrong(name, "a table", value))?;
        Fields::new(prefix, values, known)
    }

    /// A whole number.
    pub(super) fn integer(&self, key: &str, low: u64, high: u64) -> Result<u64, ManifestError> {
        let value = self.value(key)?;
        let number = value.as_integer().ok_or_else(|| self.wrong(key, "a whole number", value))?;
        u64::try_from(number)
            .ok()
            .filter(|number| (low..=high).contains(number))
            .ok_or_else(|| self.outside(key, number, low, high))
    }

    /// A whole number of milliseconds.
    pub(super) fn millis(&self, key: &str, low: u64, high: u64) -> Result<Duration, ManifestError> {
        self.integer(key, low, high).map(Duration::from_millis)
    }

    /// A number, rounded once to `f32`; a whole one may be written without a point, −0 becomes 0.
    pub(super) fn float(&self, key: &str, low: f64, high: f64) -> Result<f32, ManifestError> {
        let number = match self.value(key)? {
            Value::Float(number) => *number,
            // Beyond 2^53 it is out of bounds, however it is rounded.
            Value::Integer(number) => *number as f64,
            value => return Err(self.wrong(key, "a number", value)),
        };
        if !(low..=high).contains(&number) {
            return Err(self.outside(key, number, low, high));
        }
        Ok(number as f32 + 0.0)
    }

    /// A name out of a closed list.
    pub(super) fn choice<T: Copy>(
        &self,
        key: &str,
        known: &[(&'static str, T)],
    ) -> Result<T, ManifestError> {
        let text = self.text(key)?;
        known.iter().find(|(name, _)| *name == text).map(|(_, choice)| *choice).ok_or_else(|| {
            let names: Vec<_> = known.iter().map(|(name, _)| format!("\"{name}\"")).collect();
            let (value, known) = (text.to_owned(), names.join(", "));
            ManifestError::NotOneOf { key: self.name(key), value, known }
        })
    }

    /// Text that `read` understands.
    pub(super) fn read<T>(
        &self,
        key: &str,
        expected: &'static str,
        read: impl Fn(&str) -> Option<T>,
    ) -> Result<T, ManifestError> {
        read(self.text(key)?).ok_or_else(|| self.wrong(key, expected, &self.values[key]))
    }

    /// Likewise of a text that may be absent.
    pub(super) fn optional<T>(
        &self,
        key: &str,
        expected: &'static str,
        read: impl Fn(&str) -> Option<T>,
    ) -> Result<Option<T>, ManifestError> {
        self.values.contains_key(key).then(|| self.read(key, expected, read)).transpose()
    }

    /// A list of 1 to `count_max` different texts that `read` understands.
    pub(super) fn list<T: PartialEq>(
        &self,
        key: &str,
        expected: &'static str,
        count_max: usize,
        read: impl Fn(&str) -> Option<T>,
    ) -> Result<Vec<T>, ManifestError> {
        let value = self.value(key)?;
        let items = value
            .as_array()
            .filter(|items| (1..=count_max).contains(&items.len()))
            .ok_or_else(|| self.wrong(key, expected, value))?;
        let mut list = Vec::new();
        for item in items {
            let item = item
                .as_str()
                .and_then(&read)
                .filter(|item| !list.contains(item))
                .ok_or_else(|| self.wrong(key, expected, item))?;
            list.push(item);
        }
        Ok(list)
    }

    /// A field that does not apply must not be there.
    pub(super) fn absent(&self, key: &str, only: &'static str) -> Result<(), ManifestError> {
        if self.values.contains_key(key) {
            return Err(ManifestError::NotApplicable { key: self.name(key), only });
        }
        Ok(())
    }

    fn text(&self, key: &str) -> Result<&'a str, ManifestError> {
        let value = self.value(key)?;
        value.as_str().ok_or_else(|| self.wrong(key, "text", value))
    }

    fn value(&self, key: &str) -> Result<&'a Value, ManifestError> {
        self.values.get(key).ok_or_else(|| ManifestError::MissingKey { key: self.name(key) })
    }

    fn name(&self, key: &str) -> String {
        format!("{}{key}", self.prefix)
    }

    fn wrong(&self, key: &str, expected: &'static str, found: &Value) -> ManifestError {
        ManifestError::WrongType { key: self.name(key), expected, found: shortened(found) }
    }

    fn outside<T: ToString>(
        &self,
        key: &str,
        value: impl ToString,
        low: T,
        high: T,
    ) -> ManifestError {
        let (low, high) = (low.to_string(), high.to_string());
        ManifestError::OutOfBounds { key: self.name(key), value: value.to_string(), low, high }
    }
}

/// A value as written, cut where it would flood a screen.
fn shortened(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(60) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

/// Levenshtein distance: insertions, deletions and substitutions of bytes.
fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut diagonal = i;
        row[0] = i + 1;
        for (j, y) in b.bytes().enumerate() {
            let substituted = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}
