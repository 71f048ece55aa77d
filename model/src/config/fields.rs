//! One table of a manifest, read field by field with bounds, and the values that go back into one.
//!
//! The keys that exist are fixed by the caller, so that an unknown one is refused before any
//! value is looked at, and the nearest known one (Levenshtein distance) is named.

use super::WorkError;

/// A table's name and its fields in the order of the manifest's definition.
pub(super) type Table = (&'static str, Vec<(&'static str, Field)>);

/// A table whose keys are all known.
pub(super) struct Fields<'a> {
    table: &'static str,
    values: &'a toml::Table,
}

impl<'a> Fields<'a> {
    /// The table of `manifest` that has the name and the keys of `known`.
    pub(super) fn new(manifest: &'a toml::Table, known: &Table) -> Result<Self, WorkError> {
        let (table, known) = known;
        let values = manifest
            .get(*table)
            .and_then(toml::Value::as_table)
            .ok_or(WorkError::MissingTable { table })?;
        for key in values.keys() {
            let nearest =
                known.iter().map(|(name, _)| *name).min_by_key(|name| distance(name, key));
            if let Some(nearest) = nearest.filter(|nearest| nearest != key) {
                return Err(WorkError::UnknownKey { table, key: key.clone(), nearest });
            }
        }
        Ok(Self { table, values })
    }

    /// A whole number.
    pub(super) fn integer(&self, key: &'static str, low: u64, high: u64) -> Result<u64, WorkError> {
        let value = self.value(key)?;
        let number = value.as_integer().ok_or_else(|| self.wrong(key, "a whole number", value))?;
        u64::try_from(number)
            .ok()
            .filter(|number| (low..=high).contains(number))
            .ok_or_else(|| self.outside(key, number.to_string(), &low, &high))
    }

    /// A whole number of things in memory.
    pub(super) fn count(
        &self,
        key: &'static str,
        low: usize,
        high: usize,
    ) -> Result<usize, WorkError> {
        let number = self.integer(key, low as u64, high as u64)?;
        usize::try_from(number).map_err(|_| self.outside(key, number.to_string(), &low, &high))
    }

    /// A number; a whole one may be written without a point. −0 becomes 0.
    pub(super) fn float(&self, key: &'static str, low: f64, high: f64) -> Result<f64, WorkError> {
        let number = match self.value(key)? {
            toml::Value::Float(number) => *number,
            toml::Value::Integer(number) => *number as f64,
            value => return Err(self.wrong(key, "a number", value)),
        };
        if !(low..=high).contains(&number) {
            return Err(self.outside(key, number.to_string(), &low, &high));
        }
        Ok(number + 0.0)
    }

    /// A name out of a closed list.
    pub(super) fn choice<T: Copy>(
        &self,
        key: &'static str,
        known: &[T],
        name: fn(T) -> &'static str,
    ) -> Result<T, WorkError> {
        let text = self.text(key)?;
        known.iter().copied().find(|value| name(*value) == text).ok_or_else(|| {
            let names: Vec<_> = known.iter().map(|value| format!("\"{}\"", name(*value))).collect();
            let (value, known) = (text.to_owned(), names.join(", "));
            WorkError::NotOneOf { table: self.table, key, value, known }
        })
    }

    /// A digest: 64 lower-case hex digits.
    pub(super) fn digest(&self, key: &'static str) -> Result<[u8; 32], WorkError> {
        let text = self.text(key)?;
        unhex(text)
            .ok_or_else(|| self.wrong(key, "64 lower-case hex digits", &text.to_owned().into()))
    }

    /// These fields do not apply, so they must not be there.
    pub(super) fn absent(
        &self,
        keys: &[&'static str],
        only: &'static str,
    ) -> Result<(), WorkError> {
        match keys.iter().find(|key| self.values.contains_key(**key)) {
            Some(key) => Err(WorkError::NotApplicable { table: self.table, key, only }),
            None => Ok(()),
        }
    }

    fn text(&self, key: &'static str) -> Result<&'a str, WorkError> {
        let value = self.value(key)?;
        value.as_str().ok_or_else(|| self.wrong(key, "text", value))
    }

    fn value(&self, key: &'static str) -> Result<&'a toml::Value, WorkError> {
        self.values.get(key).ok_or(WorkError::MissingKey { table: self.table, key })
    }

    fn wrong(&self, key: &'static str, expected: &'static str, found: &toml::Value) -> WorkError {
        WorkError::WrongType { table: self.table, key, expected, found: found.to_string() }
    }

    fn outside(
        &self,
        key: &'static str,
        value: String,
        low: &impl ToString,
        high: &impl ToString,
    ) -> WorkError {
        let (low, high) = (low.to_string(), high.to_string());
        WorkError::OutOfBounds { table: self.table, key, value, low, high }
    }
}

/// One value on its way into a file or a hash.
pub(super) enum Field {
    /// A whole number.
    Integer(u64),
    /// A number.
    Float(f64),
    /// Free text.
    Text(String),
    /// A name out of a closed list, and its number.
    Name(&'static str, u64),
    /// A number that does not apply.
    NoInteger,
    /// Text that does not apply.
    NoText,
    /// A field that does not apply, and is younger than what it would stand in: it is not hashed,
    /// so that a run keeps its id.
    Nothing,
}

impl Field {
    pub(super) fn count(count: usize) -> Self {
        Self::Integer(count as u64)
    }

    /// As TOML, unless it does not apply.
    pub(super) fn to_toml(&self) -> Option<toml::Value> {
        match self {
            // Bounded by 2^53, so it fits TOML's signed integers.
            Self::Integer(number) => {
                Some(toml::Value::Integer(i64::try_from(*number).unwrap_or(i64::MAX)))
            }
            Self::Float(number) => Some(toml::Value::Float(*number)),
            Self::Text(text) => Some(toml::Value::String(text.clone())),
            Self::Name(name, _) => Some(toml::Value::String((*name).to_owned())),
            Self::NoInteger | Self::NoText | Self::Nothing => None,
        }
    }

    /// As canonical bytes.
    pub(super) fn hash_into(&self, bytes: &mut Vec<u8>) {
        match self {
            Self::Integer(number) | Self::Name(_, number) => {
                bytes.extend_from_slice(&number.to_le_bytes());
            }
            Self::Float(number) => bytes.extend_from_slice(&number.to_bits().to_le_bytes()),
            Self::Text(text) => {
                // A digest, the only text here, has 64 bytes.
                let length = u32::try_from(text.len()).unwrap_or(u32::MAX);
                bytes.extend_from_slice(&length.to_le_bytes());
                bytes.extend_from_slice(text.as_bytes());
            }
            Self::NoInteger => bytes.extend_from_slice(&0_u64.to_le_bytes()),
            Self::NoText => bytes.extend_from_slice(&0_u32.to_le_bytes()),
            Self::Nothing => {}
        }
    }
}

/// Bytes as lower-case hex.
pub(super) fn hex(digest: [u8; 32]) -> String {
    blake3::Hash::from_bytes(digest).to_hex().to_string()
}

fn unhex(text: &str) -> Option<[u8; 32]> {
    let digest = *blake3::Hash::from_hex(text).ok()?.as_bytes();
    // Upper case names the same bytes, but a field has one form.
    (hex(digest) == text).then_some(digest)
}

/// Levenshtein distance: insertions, deletions and substitutions of bytes.
pub(super) fn distance(a: &str, b: &str) -> usize {
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
