//! A table while it is read: its keys, and one value with the key that it stands under.

use std::fmt::Display;
use std::ops::RangeInclusive;

use toml::Value as Toml;

use crate::{Error, Named, Table, Value, full, quoted};

/// A table of which every key is known.
pub struct Fields<'a> {
    values: &'a toml::Table,
}

impl<'a> Fields<'a> {
    /// Finds the table `T` in a manifest.
    ///
    /// # Errors
    /// There is no such table, or it has an unknown key.
    pub fn of<T: Table>(manifest: &'a toml::Table) -> Result<Self, Error> {
        let mut values = manifest;
        if !T::NAME.is_empty() {
            let found = manifest.get(T::NAME).and_then(Toml::as_table);
            values = found.ok_or(Error::MissingTable { table: T::NAME })?;
        }
        let known = |key: &&String| {
            T::OTHERS.contains(&key.as_str()) || T::KEYS.iter().any(|known| known.name == **key)
        };
        match values.keys().find(|key| !known(key)) {
            Some(key) => Err(Error::UnknownKey { key: full(T::NAME, key) }),
            None => Ok(Self { values }),
        }
    }

    /// Reads the value of `key`, which applies or not by what `table` has read so far.
    ///
    /// # Errors
    /// The key is missing, does not apply, or has a wrong value.
    pub fn read<T: Table, V: Value>(
        &self,
        table: &T,
        key: &'static str,
        bounds: &V::Bounds,
    ) -> Result<V, Error> {
        let there = self.values.contains_key(key);
        if !table.applies(key) && there {
            let only = T::only(key).unwrap_or_default();
            return Err(Error::NotApplicable { key: full(T::NAME, key), only });
        }
        if !there && (V::OPTIONAL || !table.applies(key)) {
            return Ok(V::NONE);
        }
        V::read(self.entry::<T>(key)?, bounds)
    }

    /// Finds a key that must be there.
    ///
    /// # Errors
    /// The table does not have the key.
    pub fn entry<T: Table>(&self, key: &'static str) -> Result<Entry<'a>, Error> {
        let value = self.values.get(key).ok_or_else(|| T::missing(key))?;
        Ok(Entry { table: T::NAME, key, value })
    }
}

/// A value and the key that it stands under, alone or in a list.
#[derive(Clone, Copy)]
pub struct Entry<'a> {
    table: &'static str,
    key: &'static str,
    value: &'a Toml,
}

impl<'a> Entry<'a> {
    /// The value, whatever type it has in the file.
    #[must_use]
    pub fn value(self) -> &'a Toml {
        self.value
    }

    /// An item of this list, under the same key.
    #[must_use]
    pub fn item(self, value: &'a Toml) -> Self {
        Self { value, ..self }
    }

    /// Reads text of the given form, which `parse` returns as a value.
    ///
    /// # Errors
    /// The value is not text, or `parse` returns nothing.
    pub fn parse<T>(self, form: &str, parse: impl FnOnce(&str) -> Option<T>) -> Result<T, Error> {
        self.value.as_str().and_then(parse).ok_or_else(|| self.wrong(form))
    }

    /// Reads a name out of a closed list.
    ///
    /// # Errors
    /// The value is none of the names.
    pub fn choose<T: Named>(self, known: &[(T, &str, u64)]) -> Result<T, Error> {
        let found = known.iter().find(|(_, name, _)| self.value.as_str() == Some(name));
        let need = || format!("known are {}", quoted(known));
        let wrong = || Error::value(self.name(), self.value, need());
        found.map(|(value, ..)| *value).ok_or_else(wrong)
    }

    /// The error of a value of another type or form than `expected`.
    #[must_use]
    pub fn wrong(self, expected: &str) -> Error {
        Error::value(self.name(), self.value, format!("it must be {expected}"))
    }

    /// The error of a number outside its bounds.
    #[must_use]
    pub fn outside(self, value: impl Display, bounds: &RangeInclusive<impl Display>) -> Error {
        Error::outside(self.name(), value, bounds)
    }

    /// The key behind the name of its table.
    fn name(self) -> String {
        full(self.table, self.key)
    }
}
