//! The tables of a manifest as tables of this crate: one line for each key.
//!
//! Each line makes a field of the struct, its bounds, the answer to a wrong value, its canonical
//! bytes and its line in docs/FORMATS.md. The lines have the order of the bytes. A key that does
//! not apply is refused in a manifest; its field is then zero or empty, and so are its bytes. A key
//! that is younger than the first manifests is an `Option`, or a switch: where it does not apply it
//! has no bytes, so that older runs keep their ids.

mod switch;

use std::fmt::Display;
use std::ops::RangeInclusive;

use super::error::WorkError;

/// Declares a table: `key: type, bounds, "what it means";`.
macro_rules! table {
    ($(#[$doc:meta])* $vis:vis struct $name:ident in $table:literal {
        $($key:ident: $type:ty, $bounds:expr, $meaning:literal;)*
    }) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq)]
        $vis struct $name {
            $(#[doc = $meaning] pub $key: $type,)*
        }

        impl $crate::config::table::Keys for $name {
            const TABLE: &'static str = $table;
            const KEYS: &'static [$crate::config::table::Key] = &[$($crate::config::table::Key {
                name: stringify!($key),
                bounds: || <$type as $crate::config::table::Value>::told(&$bounds),
                meaning: $meaning,
            }),*];
            const NONE: Self =
                Self { $($key: <$type as $crate::config::table::Value>::NONE),* };

            fn read(fields: &$crate::config::table::Fields<'_>) -> Result<Self, $crate::config::WorkError> {
                Ok(Self { $($key: fields.read(stringify!($key), &$bounds)?),* })
            }

            fn row(&self) -> Vec<(&'static str, Option<$crate::config::table::Field>)> {
                use $crate::config::table::Value as _;
                vec![$((stringify!($key), self.$key.field())),*]
            }
        }
    };
}

pub(crate) use table;

/// A key of a table, for whoever looks it up.
pub(crate) struct Key {
    pub(crate) name: &'static str,
    /// What its value may be.
    pub(crate) bounds: fn() -> String,
    pub(crate) meaning: &'static str,
}

impl Key {
    /// Its bounds and its meaning, for whoever left it out.
    fn told(&self) -> String {
        format!("{}: {}", (self.bounds)(), self.meaning)
    }
}

/// A struct that is a table of a manifest.
pub(crate) trait Keys: Sized + 'static {
    /// Its name there.
    const TABLE: &'static str;
    /// Its keys, in the order of the canonical bytes.
    const KEYS: &'static [Key];
    /// A table in which no key applies: all its fields are zero or empty.
    const NONE: Self;

    /// Reads every key that applies; the fields of the others are zero or empty.
    fn read(fields: &Fields<'_>) -> Result<Self, WorkError>;

    /// Every key with its value. A key that is younger than the first manifests has none where it
    /// does not apply.
    fn row(&self) -> Vec<(&'static str, Option<Field>)>;
}

/// A table in which some keys apply only beside certain values of another key, and what follows
/// from all keys.
pub(crate) trait Table: Keys {
    /// What a manifest must say so that a key applies, such as `family = "llama"`; none if it
    /// always applies.
    fn only(_key: &str) -> Option<String> {
        None
    }

    /// Whether a key applies beside the others.
    fn applies(&self, _key: &str) -> bool {
        true
    }

    /// The table as a manifest writes it.
    fn to_toml(&self) -> toml::Table {
        let row = self.row().into_iter().filter(|(key, _)| self.applies(key));
        row.filter_map(|(key, field)| Some((key.to_owned(), field?.to_toml()))).collect()
    }

    /// For each key: its full name, its value in the table `proposed`, its bounds and its meaning.
    fn described(proposed: &toml::Table) -> Vec<[String; 4]> {
        let line = |key: &Key| {
            let value = proposed.get(key.name).map(ToString::to_string).unwrap_or_default();
            let only =
                Self::only(key.name).map(|only| format!("{only} only: ")).unwrap_or_default();
            let name = format!("{}.{}", Self::TABLE, key.name);
            [name, value, (key.bounds)(), format!("{only}{}", key.meaning)]
        };
        Self::KEYS.iter().map(line).collect()
    }

    /// Appends the canonical bytes.
    fn hash_into(&self, bytes: &mut Vec<u8>) {
        self.row().iter().filter_map(|(_, field)| field.as_ref()).for_each(|f| f.hash_into(bytes));
    }
}

/// A type of values that a key may have.
pub(crate) trait Value: Sized {
    /// What limits the values.
    type Bounds;
    /// The value of a key that does not apply.
    const NONE: Self;

    fn read(entry: Entry<'_>, bounds: &Self::Bounds) -> Result<Self, WorkError>;

    fn field(&self) -> Option<Field>;

    /// The bounds, for a person.
    fn told(bounds: &Self::Bounds) -> String;
}

/// A name out of a closed list; the numbers are hashed and never reused.
pub(crate) trait Named: Copy + PartialEq + 'static {
    /// Each with its name and its number.
    const NAMES: &'static [(Self, &'static str, u64)];

    /// Its name, as a manifest has it, and its number.
    fn entry(self) -> (&'static str, u64) {
        let found = Self::NAMES.iter().find(|(value, ..)| *value == self);
        found.map_or(("", 0), |(_, name, number)| (*name, *number))
    }
}

/// What a text may be.
pub(crate) struct Pattern {
    /// What the text is, in the list of keys.
    pub(crate) told: &'static str,
    /// What a wrong text should have been.
    pub(crate) wanted: &'static str,
    /// Whether a text is right.
    pub(crate) fits: fn(&str) -> bool,
}

impl Value for u64 {
    type Bounds = RangeInclusive<Self>;
    const NONE: Self = 0;

    fn read(entry: Entry<'_>, bounds: &Self::Bounds) -> Result<Self, WorkError> {
        // A number that is too large for TOML has become text.
        let digits = |text: &&str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        if let Some(text) = entry.value.as_str().filter(digits) {
            return Err(entry.outside(text, bounds));
        }
        let number = entry.value.as_integer().ok_or_else(|| entry.wrong("a whole number"))?;
        let found = Self::try_from(number).ok().filter(|number| bounds.contains(number));
        found.ok_or_else(|| entry.outside(number, bounds))
    }

    fn field(&self) -> Option<Field> {
        Some(Field::Integer(*self))
    }

    fn told(bounds: &Self::Bounds) -> String {
        if bounds.start() == bounds.end() {
            return grouped(*bounds.end());
        }
        format!("{} to {}", grouped(*bounds.start()), grouped(*bounds.end()))
    }
}

impl Value for usize {
    type Bounds = RangeInclusive<Self>;
    const NONE: Self = 0;

    fn read(entry: Entry<'_>, bounds: &Self::Bounds) -> Result<Self, WorkError> {
        let number = u64::read(entry, &(*bounds.start() as u64..=*bounds.end() as u64))?;
        Self::try_from(number).map_err(|_| entry.outside(number, bounds))
    }

    fn field(&self) -> Option<Field> {
        Some(Field::Integer(*self as u64))
    }

    fn told(bounds: &Self::Bounds) -> String {
        u64::told(&(*bounds.start() as u64..=*bounds.end() as u64))
    }
}

impl Value for f64 {
    type Bounds = RangeInclusive<Self>;
    const NONE: Self = 0.0;

    /// A whole number may be written without a point. −0 becomes 0.
    fn read(entry: Entry<'_>, bounds: &Self::Bounds) -> Result<Self, WorkError> {
        let number = match entry.value {
            toml::Value::Float(number) => *number,
            toml::Value::Integer(number) => *number as Self,
            _ => return Err(entry.wrong("a number")),
        };
        if bounds.contains(&number) { Ok(number + 0.0) } else { Err(entry.outside(number, bounds)) }
    }

    fn field(&self) -> Option<Field> {
        Some(Field::Float(*self))
    }

    fn told(bounds: &Self::Bounds) -> String {
        let told = |bound: &Self| match bound {
            0.001..1e4 | 0.0 => bound.to_string(),
            _ => format!("{bound:e}"),
        };
        format!("{} to {}", told(bounds.start()), told(bounds.end()))
    }
}

impl Value for String {
    type Bounds = Pattern;
    const NONE: Self = Self::new();

    fn read(entry: Entry<'_>, pattern: &Pattern) -> Result<Self, WorkError> {
        let text = entry.value.as_str().ok_or_else(|| entry.wrong("text"))?;
        if (pattern.fits)(text) { Ok(text.to_owned()) } else { Err(entry.wrong(pattern.wanted)) }
    }

    fn field(&self) -> Option<Field> {
        Some(Field::Text(self.clone()))
    }

    fn told(pattern: &Pattern) -> String {
        pattern.told.to_owned()
    }
}

/// A digest as a manifest writes it, and as people read it.
pub(crate) fn hex(digest: &[u8; 32]) -> String {
    blake3::Hash::from_bytes(*digest).to_hex().to_string()
}

/// The digest that is written so; zeros where there is none.
pub(crate) fn digest_of(hex: &str) -> [u8; 32] {
    blake3::Hash::from_hex(hex).map_or([0; 32], Into::into)
}

impl<T: Named> Value for T {
    type Bounds = ();
    const NONE: Self = T::NAMES[0].0;

    fn read(entry: Entry<'_>, (): &()) -> Result<Self, WorkError> {
        entry.choose(T::NAMES)
    }

    fn field(&self) -> Option<Field> {
        let (name, number) = self.entry();
        Some(Field::Name(name, number))
    }

    fn told((): &()) -> String {
        quoted(T::NAMES)
    }
}

/// A value that has no bytes where its key does not apply.
impl<T: Value> Value for Option<T> {
    type Bounds = T::Bounds;
    const NONE: Self = None;

    fn read(entry: Entry<'_>, bounds: &Self::Bounds) -> Result<Self, WorkError> {
        T::read(entry, bounds).map(Some)
    }

    fn field(&self) -> Option<Field> {
        self.as_ref().and_then(Value::field)
    }

    fn told(bounds: &Self::Bounds) -> String {
        T::told(bounds)
    }
}

/// A list of 1 to [`LIST_MAX`], each within the bounds.
impl<T: Value> Value for Vec<T> {
    type Bounds = T::Bounds;
    const NONE: Self = Self::new();

    fn read(entry: Entry<'_>, bounds: &Self::Bounds) -> Result<Self, WorkError> {
        let values = entry.value.as_array().ok_or_else(|| entry.wrong("a list"))?;
        if !(1..=LIST_MAX).contains(&values.len()) {
            return Err(entry.outside(format!("a list of {}", values.len()), &(1..=LIST_MAX)));
        }
        values.iter().map(|value| T::read(Entry { value, ..entry }, bounds)).collect()
    }

    fn field(&self) -> Option<Field> {
        Some(Field::List(self.iter().filter_map(Value::field).collect()))
    }

    fn told(bounds: &Self::Bounds) -> String {
        format!("1 to {LIST_MAX} of {}", T::told(bounds))
    }
}

/// A table whose keys are all known.
pub(crate) struct Fields<'a> {
    table: &'static str,
    keys: &'static [Key],
    values: &'a toml::Table,
    without: Vec<&'static str>,
}

impl<'a> Fields<'a> {
    /// The table `T` of a manifest.
    pub(crate) fn of<T: Table>(manifest: &'a toml::Table) -> Result<Self, WorkError> {
        let table = T::TABLE;
        let values = manifest.get(table).and_then(toml::Value::as_table);
        let values = values.ok_or(WorkError::MissingTable { table })?;
        let unknown = values.keys().find(|key| T::KEYS.iter().all(|known| known.name != **key));
        match unknown {
            Some(key) => Err(WorkError::UnknownKey { table, key: key.clone() }),
            None => Ok(Self { table, keys: T::KEYS, values, without: Vec::new() }),
        }
    }

    /// The value of a key; nothing where it does not apply.
    pub(crate) fn read<T: Value>(
        &self,
        key: &'static str,
        bounds: &T::Bounds,
    ) -> Result<T, WorkError> {
        if self.without.contains(&key) { Ok(T::NONE) } else { T::read(self.entry(key)?, bounds) }
    }

    /// The value of a key, which must be one of these names.
    pub(crate) fn choose<T: Named>(
        &self,
        key: &'static str,
        known: &[(T, &str, u64)],
    ) -> Result<T, WorkError> {
        self.entry(key)?.choose(known)
    }

    fn entry(&self, key: &'static str) -> Result<Entry<'a>, WorkError> {
        let table = self.table;
        let told = || self.keys.iter().find(|known| known.name == key).map(Key::told);
        let missing = || WorkError::MissingKey { table, key, told: told().unwrap_or_default() };
        let value = self.values.get(key).ok_or_else(missing)?;
        Ok(Entry { table, key, value })
    }

    /// Refuses every key of `T` that does not apply.
    pub(crate) fn restrict<T: Table>(
        &mut self,
        applies: impl Fn(&str) -> bool,
    ) -> Result<(), WorkError> {
        for key in T::KEYS.iter().map(|key| key.name).filter(|key| !applies(key)) {
            self.refuse(key, &T::only(key).unwrap_or_default())?;
        }
        Ok(())
    }

    /// Refuses a key that does not apply.
    pub(crate) fn refuse(&mut self, key: &'static str, only: &str) -> Result<(), WorkError> {
        if self.has(key) {
            let (table, only) = (self.table, only.to_owned());
            return Err(WorkError::NotApplicable { table, key, only });
        }
        self.without.push(key);
        Ok(())
    }

    /// Whether a key is there.
    pub(crate) fn has(&self, key: &str) -> bool {
        self.values.contains_key(key)
    }
}

/// A value and where it stands, alone or in a list.
#[derive(Clone, Copy)]
pub(crate) struct Entry<'a> {
    table: &'static str,
    key: &'static str,
    value: &'a toml::Value,
}

impl Entry<'_> {
    /// The key with its table.
    fn name(self) -> String {
        format!("{}.{}", self.table, self.key)
    }

    fn wrong(self, expected: &str) -> WorkError {
        WorkError::value(self.name(), self.value, format!("it must be {expected}"))
    }

    fn choose<T: Named>(self, known: &[(T, &str, u64)]) -> Result<T, WorkError> {
        let text = self.value.as_str().ok_or_else(|| self.wrong("text"))?;
        let found = known.iter().find(|(_, name, _)| *name == text);
        found.map(|(value, ..)| *value).ok_or_else(|| {
            let need = format!("known are {}", quoted(known));
            WorkError::value(self.name(), format!("\"{text}\""), need)
        })
    }

    fn outside(self, value: impl Display, bounds: &RangeInclusive<impl Display>) -> WorkError {
        WorkError::outside(self.name(), value, bounds)
    }
}

/// One value on its way into a file or a hash.
pub(crate) enum Field {
    /// A whole number, below 2^63.
    Integer(u64),
    /// A number.
    Float(f64),
    /// Free text.
    Text(String),
    /// A name out of a closed list, and its number.
    Name(&'static str, u64),
    /// A switch that is on.
    On,
    /// Several values.
    List(Vec<Self>),
}

impl Field {
    fn to_toml(&self) -> toml::Value {
        match self {
            Self::Integer(number) => i64::try_from(*number).unwrap_or(i64::MAX).into(),
            Self::Float(number) => (*number).into(),
            Self::Text(text) => text.clone().into(),
            Self::Name(name, _) => (*name).into(),
            Self::On => true.into(),
            Self::List(fields) => fields.iter().map(Self::to_toml).collect::<Vec<_>>().into(),
        }
    }

    /// Integers, float bits and numbers of names as u64 little endian, a switch that is on as 1,
    /// strings as u32 length and bytes, lists as u64 length and values.
    fn hash_into(&self, bytes: &mut Vec<u8>) {
        match self {
            Self::Integer(number) | Self::Name(_, number) => bytes.extend(number.to_le_bytes()),
            Self::Float(number) => bytes.extend(number.to_bits().to_le_bytes()),
            Self::On => bytes.extend(1_u64.to_le_bytes()),
            Self::Text(text) => {
                // Every text is bounded far below.
                bytes.extend(u32::try_from(text.len()).unwrap_or(u32::MAX).to_le_bytes());
                bytes.extend(text.as_bytes());
            }
            Self::List(fields) => {
                bytes.extend((fields.len() as u64).to_le_bytes());
                fields.iter().for_each(|field| field.hash_into(bytes));
            }
        }
    }
}

/// Names as a manifest writes them.
fn quoted<T>(known: &[(T, &str, u64)]) -> String {
    known.iter().map(|(_, name, _)| format!("\"{name}\"")).collect::<Vec<_>>().join(", ")
}

/// A number in groups of three digits; a large power of two as such.
fn grouped(number: u64) -> String {
    if number.is_power_of_two() && number > 1 << 17 {
        return format!("2^{}", number.ilog2());
    }
    let digits = number.to_string();
    let groups = digits.as_bytes().rchunks(3).rev().map(String::from_utf8_lossy);
    groups.collect::<Vec<_>>().join(",")
}

/// BLAKE3 of a file. Upper case names the same bytes, but a field has one form.
pub(crate) const DIGEST: Pattern = Pattern {
    told: "64 hex digits",
    wanted: "64 lower-case hex digits",
    fits: |text| blake3::Hash::from_hex(text).is_ok_and(|hash| hash.to_hex().as_str() == text),
};
/// Every whole number up to here is also a float, and TOML can write it.
pub(crate) const TOKENS_MAX: u64 = 1 << 53;
/// The longest list: so many files fit into a manifest beside everything else.
const LIST_MAX: usize = 64;
