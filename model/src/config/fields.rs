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
        self.entry(key)?.integer(low, high)
    }

    /// A whole number of things in memory.
    pub(super) fn count(
        &self,
        key: &'static str,
        low: usize,
        high: usize,
    ) -> Result<usize, WorkError> {
        let entry = self.entry(key)?;
        let number = entry.integer(low as u64, high as u64)?;
        usize::try_from(number).map_err(|_| entry.outside(number.to_string(), &low, &high))
    }

    /// A number; a whole one may be written without a point. −0 becomes 0.
    pub(super) fn float(&self, key: &'static str, low: f64, high: f64) -> Result<f64, WorkError> {
        self.entry(key)?.float(low, high)
    }

    /// A name out of a closed list.
    pub(super) fn choice<T: Copy>(
        &self,
        key: &'static str,
        known: &[T],
        name: fn(T) -> &'static str,
    ) -> Result<T, WorkError> {
        let text = self.entry(key)?.text()?;
        known.iter().copied().find(|value| name(*value) == text).ok_or_else(|| {
            let names: Vec<_> = known.iter().map(|value| format!("\"{}\"", name(*value))).collect();
            let (value, known) = (text.to_owned(), names.join(", "));
            WorkError::NotOneOf { table: self.table, key, value, known }
        })
    }

    /// A digest: 64 lower-case hex digits.
    pub(super) fn digest(&self, key: &'static str) -> Result<[u8; 32], WorkError> {
        self.entry(key)?.digest()
    }

    /// The entries of a list, one to `most`.
    pub(super) fn list(&self, key: &'static str, most: usize) -> Result<Vec<Entry<'a>>, WorkError> {
        let entry = self.entry(key)?;
        let values = entry.value.as_array().ok_or_else(|| entry.wrong("a list"))?;
        if !(1..=most).contains(&values.len()) {
            return Err(entry.outside(format!("a list of {}", values.len()), &1, &most));
        }
        Ok(values.iter().map(|value| Entry { value, ..entry }).collect())
    }

    /// Whether a field is there that need not be.
    pub(super) fn has(&self, key: &str) -> bool {
        self.values.contains_key(key)
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

    fn entry(&self, key: &'static str) -> Result<Entry<'a>, WorkError> {
        let table = self.table;
        let value = self.values.get(key).ok_or(WorkError::MissingKey { table, key })?;
        Ok(Entry { table, key, value })
    }
}

/// A value and where it stands, alone or in a list.
#[derive(Clone, Copy)]
pub(super) struct Entry<'a> {
    table: &'static str,
    key: &'static str,
    value: &'a toml::Value,
}

impl<'a> Entry<'a> {
    /// A whole number.
    pub(super) fn integer(self, low: u64, high: u64) -> Result<u64, WorkError> {
        let number = self.value.as_integer().ok_or_else(|| self.wrong("a whole number"))?;
        u64::try_from(number)
            .ok()
            .filter(|number| (low..=high).contains(number))
            .ok_or_else(|| self.outside(number.to_string(), &low, &high))
    }

    /// A number; a whole one may be written without a point. −0 becomes 0.
    pub(super) fn float(self, low: f64, high: f64) -> Result<f64, WorkError> {
        let number = match self.value {
            toml::Value::Float(number) => *number,
            toml::Value::Integer(number) => *number as f64,
            _ => return Err(self.wrong("a number")),
        };
        if !(low..=high).contains(&number) {
            return Err(self.outside(number.to_string(), &low, &high));
        }
        Ok(number + 0.0)
    }

    /// A digest: 64 lower-case hex digits.
    pub(super) fn digest(self) -> Result<[u8; 32], WorkError> {
        unhex(self.text()?).ok_or_else(|| self.wrong("64 lower-case hex digits"))
    }

    fn text(self) -> Result<&'a str, WorkError> {
        self.value.as_str().ok_or_else(|| self.wrong("text"))
    }

    fn wrong(self, expected: &'static str) -> WorkError {
        let Entry { table, key, value } = self;
        WorkError::WrongType { table, key, expected, found: value.to_string() }
    }

    fn outside(self, value: String, low: &impl ToString, high: &impl ToString) -> WorkError {
        let Entry { table, key, .. } = self;
        let (low, high) = (low.to_string(), high.to_string());
        WorkError::OutOfBounds { table, key, value, low, high }
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
    /// Several values.
    List(Vec<Self>),
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
            Self::List(fields) => {
                Some(toml::Value::Array(fields.iter().filter_map(Self::to_toml).collect()))
            }
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
            Self::List(fields) => {
                bytes.extend_from_slice(&(fields.len() as u64).to_le_bytes());
                fields.iter().for_each(|field| field.hash_into(bytes));
            }
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
