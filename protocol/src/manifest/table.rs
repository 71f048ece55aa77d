//! The tables of a manifest as tables of this crate: one line for each key.
//!
//! From a line follow the field of the struct, its bounds, what is told of a wrong value, how it is written
//! and hashed, and its line in docs/FORMATS.md. The order of the lines is that of the canonical bytes.

use std::fmt::Display;
use std::ops::RangeInclusive;

use toml::{Table, Value as Toml};

use super::ManifestError;
use crate::message::wire;

/// Declares a table: `key: type, bounds, "what it means";`. The keys of the manifest itself have no table's
/// name before them.
macro_rules! table {
    ($(#[$doc:meta])* $vis:vis struct $name:ident in $table:literal {
        $($key:ident: $type:ty, $bounds:expr, $meaning:literal;)*
    }) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq)]
        $vis struct $name {
            $(#[doc = $meaning] $vis $key: $type,)*
        }

        impl $crate::manifest::table::Keys for $name {
            const TABLE: &'static str = $table;
            const KEYS: &'static [$crate::manifest::table::Key] =
                &[$($crate::manifest::table::Key {
                    name: stringify!($key),
                    bounds: || <$type as $crate::manifest::table::Value>::told(&$bounds),
                    meaning: $meaning,
                }),*];

            fn read(
                fields: &$crate::manifest::table::Fields<'_>,
            ) -> Result<Self, $crate::manifest::ManifestError> {
                Ok(Self { $($key: fields.read(stringify!($key), &$bounds)?),* })
            }

            fn row(&self) -> Vec<(&'static str, Option<String>, Vec<u8>)> {
                use $crate::manifest::table::Value as _;
                vec![$((stringify!($key), self.$key.written(), self.$key.hashed())),*]
            }
        }
    };
}

pub(super) use table;

/// A key of a table, for whoever looks it up.
pub(super) struct Key {
    pub(super) name: &'static str,
    /// What its value may be.
    pub(super) bounds: fn() -> String,
    pub(super) meaning: &'static str,
}

/// A struct that is a table of a manifest.
pub(super) trait Keys: Sized {
    /// Its name there; empty for the keys above all tables.
    const TABLE: &'static str;
    /// Its keys, in the order of the canonical bytes.
    const KEYS: &'static [Key];

    /// Reads the struct out of `fields`.
    fn read(fields: &Fields<'_>) -> Result<Self, ManifestError>;

    /// Each key, its value as TOML where it applies, and its canonical bytes.
    fn row(&self) -> Vec<(&'static str, Option<String>, Vec<u8>)>;

    /// Reads it out of a manifest.
    fn parse(manifest: &Table) -> Result<Self, ManifestError> {
        Self::read(&Fields::of::<Self>(manifest)?)
    }

    /// The table as text, as a manifest has it: a line for each key.
    fn to_toml(&self) -> String {
        let line = |(key, value, _): (_, Option<String>, _)| Some(format!("{key} = {}\n", value?));
        let lines = self.row().into_iter().filter_map(line);
        let header = (!Self::TABLE.is_empty()).then(|| format!("\n[{}]\n", Self::TABLE));
        header.into_iter().chain(lines).collect()
    }

    /// Its canonical bytes.
    fn canonical(&self) -> Vec<u8> {
        self.row().into_iter().flat_map(|(.., bytes)| bytes).collect()
    }

    /// Describes each key: its full name, its value here, its bounds, and what it means.
    fn described(&self) -> Vec<[String; 4]> {
        let line = |(key, (_, value, _)): (&Key, (_, Option<String>, _))| {
            let name = full(Self::TABLE, key.name);
            [name, value.unwrap_or_default(), (key.bounds)(), key.meaning.to_owned()]
        };
        Self::KEYS.iter().zip(self.row()).map(line).collect()
    }
}

/// A type that the value of a key can have.
pub(super) trait Value: Sized {
    /// What narrows the values that are allowed.
    type Bounds;

    /// The value of a key that is absent; `None` where the key must be there.
    const ABSENT: Option<Self> = None;

    fn read(entry: Entry<'_>, bounds: &Self::Bounds) -> Result<Self, ManifestError>;

    /// The value as TOML, where there is something to write.
    fn written(&self) -> Option<String>;

    /// As it is hashed.
    fn hashed(&self) -> Vec<u8>;

    /// The bounds, for a person.
    fn told(bounds: &Self::Bounds) -> String;
}

/// A value that is written as text.
pub(super) trait Text: Sized {
    /// What it looks like.
    const FORM: &'static str;

    fn parse(text: &str) -> Option<Self>;

    fn text(&self) -> String;

    /// As it is hashed.
    fn bytes(&self) -> Vec<u8>;
}

/// A name out of a closed list as a value: `name = number`, which is hashed and never reused.
macro_rules! named {
    ($type:ident: $($variant:ident = $number:literal $name:literal),*) => {
        impl $crate::manifest::table::Value for $type {
            type Bounds = ();

            fn read(entry: $crate::manifest::table::Entry<'_>, (): &()) -> Result<Self, ManifestError> {
                match entry.text()? {
                    $($name => Ok(Self::$variant),)*
                    _ => Err(entry.not_one_of(Self::told(&()))),
                }
            }

            fn written(&self) -> Option<String> {
                match self {
                    $(Self::$variant => Some(concat!('"', $name, '"').to_owned()),)*
                }
            }

            fn hashed(&self) -> Vec<u8> {
                match self {
                    $(Self::$variant => wire::canonical::<u64>(&$number),)*
                }
            }

            fn told((): &()) -> String {
                [$(concat!('"', $name, '"')),*].join(", ")
            }
        }
    };
}

pub(super) use named;

impl Value for u64 {
    type Bounds = RangeInclusive<Self>;

    fn read(entry: Entry<'_>, bounds: &Self::Bounds) -> Result<Self, ManifestError> {
        // A number that is too large for TOML has become text.
        let digits = |text: &&str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        if let Some(text) = entry.value.as_str().filter(digits) {
            return Err(outside(entry.key, text, bounds));
        }
        let number = entry.value.as_integer().ok_or_else(|| entry.wrong("a whole number"))?;
        let found = Self::try_from(number).ok().filter(|number| bounds.contains(number));
        found.ok_or_else(|| outside(entry.key, number, bounds))
    }

    fn written(&self) -> Option<String> {
        Some(self.to_string())
    }

    fn hashed(&self) -> Vec<u8> {
        wire::canonical(self)
    }

    fn told(bounds: &Self::Bounds) -> String {
        if bounds.start() == bounds.end() {
            return grouped(*bounds.end());
        }
        format!("{} to {}", grouped(*bounds.start()), grouped(*bounds.end()))
    }
}

impl Value for f32 {
    type Bounds = RangeInclusive<f64>;

    /// Rounded once; a whole one may be written without a point, −0 becomes 0.
    fn read(entry: Entry<'_>, bounds: &Self::Bounds) -> Result<Self, ManifestError> {
        let number = match entry.value {
            Toml::Float(number) => *number,
            // Beyond 2^53 it is out of bounds, however it is rounded.
            Toml::Integer(number) => *number as f64,
            _ => return Err(entry.wrong("a number")),
        };
        if !bounds.contains(&number) {
            return Err(outside(entry.key, number, bounds));
        }
        Ok(number as Self + 0.0)
    }

    /// A number that reads back as the same: the shortest that does, or the exact one where the way
    /// through `f64` would round twice.
    fn written(&self) -> Option<String> {
        let shortest = format!("{self:?}");
        let same = shortest.parse::<f64>().is_ok_and(|read| read as Self == *self);
        Some(if same { shortest } else { format!("{:?}", f64::from(*self)) })
    }

    fn hashed(&self) -> Vec<u8> {
        wire::canonical(&self.to_bits())
    }

    fn told(bounds: &Self::Bounds) -> String {
        format!("{} to {}", bounds.start(), bounds.end())
    }
}

impl<T: Text> Value for T {
    type Bounds = ();

    fn read(entry: Entry<'_>, (): &()) -> Result<Self, ManifestError> {
        T::parse(entry.text()?).ok_or_else(|| entry.wrong(T::FORM))
    }

    fn written(&self) -> Option<String> {
        Some(quoted(&self.text()))
    }

    fn hashed(&self) -> Vec<u8> {
        self.bytes()
    }

    fn told((): &()) -> String {
        T::FORM.to_owned()
    }
}

/// A key that need not be there. Where it is absent nothing is hashed, so that runs that are older
/// than the key keep their ids.
impl<T: Text> Value for Option<T> {
    type Bounds = ();
    const ABSENT: Option<Self> = Some(None);

    fn read(entry: Entry<'_>, (): &()) -> Result<Self, ManifestError> {
        <T as Value>::read(entry, &()).map(Some)
    }

    fn written(&self) -> Option<String> {
        self.as_ref().and_then(Value::written)
    }

    fn hashed(&self) -> Vec<u8> {
        self.as_ref().map(|value| [&[1], &value.bytes()[..]].concat()).unwrap_or_default()
    }

    fn told((): &()) -> String {
        format!("{}, or absent", T::FORM)
    }
}

/// A number that need not be there; whoever hashes it puts a number of its own before it.
impl Value for Option<u64> {
    type Bounds = RangeInclusive<u64>;
    const ABSENT: Option<Self> = Some(None);

    fn read(entry: Entry<'_>, bounds: &Self::Bounds) -> Result<Self, ManifestError> {
        u64::read(entry, bounds).map(Some)
    }

    fn written(&self) -> Option<String> {
        self.as_ref().and_then(Value::written)
    }

    fn hashed(&self) -> Vec<u8> {
        self.as_ref().map(Value::hashed).unwrap_or_default()
    }

    fn told(bounds: &Self::Bounds) -> String {
        format!("{}, or absent", u64::told(bounds))
    }
}

/// A list of different values, empty where it does not apply.
impl<T: Text + PartialEq> Value for Vec<T> {
    type Bounds = RangeInclusive<usize>;
    const ABSENT: Option<Self> = Some(Self::new());

    fn read(entry: Entry<'_>, bounds: &Self::Bounds) -> Result<Self, ManifestError> {
        let items = entry.value.as_array().filter(|items| bounds.contains(&items.len()));
        let mut list = Self::new();
        for value in items.ok_or_else(|| entry.wrong(T::FORM))? {
            let item = value.as_str().and_then(T::parse).filter(|item| !list.contains(item));
            list.push(item.ok_or_else(|| Entry { value, ..entry }.wrong(T::FORM))?);
        }
        Ok(list)
    }

    fn written(&self) -> Option<String> {
        let items: Vec<_> = self.iter().map(|item| quoted(&item.text())).collect();
        (!items.is_empty()).then(|| format!("[{}]", items.join(", ")))
    }

    fn hashed(&self) -> Vec<u8> {
        let count = wire::canonical(&(self.len() as u64));
        count.into_iter().chain(self.iter().flat_map(Text::bytes)).collect()
    }

    fn told(_: &Self::Bounds) -> String {
        T::FORM.to_owned()
    }
}

/// A table whose keys are all known.
pub(super) struct Fields<'a> {
    table: &'static str,
    keys: &'static [Key],
    values: &'a Table,
}

impl<'a> Fields<'a> {
    pub(super) fn of<T: Keys>(manifest: &'a Table) -> Result<Self, ManifestError> {
        let table = T::TABLE;
        let mut values = manifest;
        if !table.is_empty() {
            let told = "a table".to_owned();
            let missing = || ManifestError::MissingKey { key: table.to_owned(), told };
            let value = manifest.get(table).ok_or_else(missing)?;
            let wrong = || Entry { key: table, value }.wrong("a table");
            values = value.as_table().ok_or_else(wrong)?;
        }
        let above = |key: &str| table.is_empty() && super::TABLES.contains(&key);
        let known = |key: &str| above(key) || T::KEYS.iter().any(|known| known.name == key);
        match values.keys().find(|key| !known(key)) {
            Some(key) => Err(ManifestError::UnknownKey { key: full(table, key) }),
            None => Ok(Self { table, keys: T::KEYS, values }),
        }
    }

    /// Whether a key is there.
    pub(super) fn has(&self, name: &str) -> bool {
        self.values.contains_key(name)
    }

    /// The value of a key.
    pub(super) fn read<T: Value>(
        &self,
        name: &str,
        bounds: &T::Bounds,
    ) -> Result<T, ManifestError> {
        let key = full(self.table, name);
        match (self.values.get(name), T::ABSENT) {
            (Some(value), _) => T::read(Entry { key: &key, value }, bounds),
            (None, Some(absent)) => Ok(absent),
            (None, None) => Err(missing(key, self.keys, name)),
        }
    }
}

/// The error of a key that applies and is not there.
pub(super) fn missing(key: String, keys: &[Key], name: &str) -> ManifestError {
    let found = keys.iter().find(|known| known.name == name);
    let told = found.map(|key| format!("{}: {}", (key.bounds)(), key.meaning)).unwrap_or_default();
    ManifestError::MissingKey { key, told }
}

/// A value and where it stands, alone or in a list.
#[derive(Clone, Copy)]
pub(super) struct Entry<'a> {
    key: &'a str,
    value: &'a Toml,
}

impl<'a> Entry<'a> {
    pub(super) fn text(self) -> Result<&'a str, ManifestError> {
        self.value.as_str().ok_or_else(|| self.wrong("text"))
    }

    pub(super) fn not_one_of(self, known: String) -> ManifestError {
        let value = self.value.as_str().unwrap_or_default().to_owned();
        ManifestError::NotOneOf { key: self.key.to_owned(), value, known }
    }

    fn wrong(self, expected: &'static str) -> ManifestError {
        let found = shortened(&self.value.to_string());
        ManifestError::WrongType { key: self.key.to_owned(), expected, found }
    }
}

/// A number outside its bounds.
pub(super) fn outside(
    key: &str,
    value: impl Display,
    bounds: &RangeInclusive<impl Display>,
) -> ManifestError {
    let (low, high) = (bounds.start().to_string(), bounds.end().to_string());
    ManifestError::OutOfBounds { key: key.to_owned(), value: value.to_string(), low, high }
}

/// Text as TOML.
fn quoted(text: &str) -> String {
    Toml::from(text).to_string()
}

/// A key behind its table.
fn full(table: &str, key: &str) -> String {
    if table.is_empty() { key.to_owned() } else { format!("{table}.{key}") }
}

/// A value as written, cut where it would flood a screen.
fn shortened(text: &str) -> String {
    match text.char_indices().nth(60) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// A number in groups of three digits; a large power of two, or one less, as such.
fn grouped(number: u64) -> String {
    if number > 1 << 17 && number.is_power_of_two() {
        return format!("2^{}", number.ilog2());
    }
    if number > 1 << 17 && (number + 1).is_power_of_two() {
        return format!("2^{} − 1", (number + 1).ilog2());
    }
    let digits = number.to_string();
    let groups = digits.as_bytes().rchunks(3).rev().map(String::from_utf8_lossy);
    groups.collect::<Vec<_>>().join(",")
}
