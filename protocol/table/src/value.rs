//! The types that a value can have: how each is read, bounded, described and handed on.

use std::ops::RangeInclusive;
use std::time::Duration;

use toml::Value as Toml;

use crate::{Entry, Error};

/// A type that the value of a key can have.
pub trait Value: Sized {
    /// What narrows the values that are allowed, such as a range; `()` where the type says all.
    type Bounds;
    /// The value of a key that is absent or does not apply: zero or empty.
    const NONE: Self;
    /// Whether the key may be absent where it applies.
    const OPTIONAL: bool = false;

    /// Reads the value and compares it with its bounds.
    ///
    /// # Errors
    /// The value has another type or form, or is out of bounds.
    fn read(entry: Entry<'_>, bounds: &Self::Bounds) -> Result<Self, Error>;

    /// The value, to be written or hashed.
    fn field(&self) -> Field;

    /// Describes the values that are allowed.
    fn describe(bounds: &Self::Bounds) -> String;
}

/// One value on its way out, to be written as TOML or hashed in the encoding of the caller.
#[derive(Clone, Debug, PartialEq)]
pub enum Field {
    /// A whole number; above 2^63 − 1 it is written as that.
    Integer(u64),
    /// A finite number. That of an `f32` is written so that it reads back as the same `f32`.
    Float(f64),
    /// Text that is hashed as it is written.
    Text(String),
    /// A name out of a closed list, and its number.
    Name(&'static str, u64),
    /// Bytes of a fixed length, and the text that stands for them.
    Bytes(Vec<u8>, String),
    /// A switch: off where its key is absent.
    Switch(bool),
    /// Any number of values of one type.
    List(Vec<Self>),
    /// A value, or nothing where its key is absent.
    Option(Option<Box<Self>>),
}

impl Field {
    /// The value as TOML; `None` where the key is left out.
    #[must_use]
    pub fn to_toml(&self) -> Option<Toml> {
        Some(match self {
            Self::Integer(number) => i64::try_from(*number).unwrap_or(i64::MAX).into(),
            Self::Float(number) => (*number).into(),
            Self::Text(text) | Self::Bytes(_, text) => text.clone().into(),
            Self::Name(name, _) => (*name).into(),
            Self::Switch(on) => return on.then(|| true.into()),
            Self::List(items) => items.iter().filter_map(Self::to_toml).collect::<Vec<_>>().into(),
            Self::Option(value) => return value.as_ref().and_then(|value| value.to_toml()),
        })
    }
}

impl Value for u64 {
    type Bounds = RangeInclusive<Self>;
    const NONE: Self = 0;

    fn read(entry: Entry<'_>, bounds: &Self::Bounds) -> Result<Self, Error> {
        // `--set` hands on a number that is too large for TOML as text.
        let digits = |text: &&str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        if let Some(text) = entry.value().as_str().filter(digits) {
            return Err(entry.outside(text, bounds));
        }
        let number = entry.value().as_integer().ok_or_else(|| entry.wrong("a whole number"))?;
        let found = Self::try_from(number).ok().filter(|number| bounds.contains(number));
        found.ok_or_else(|| entry.outside(number, bounds))
    }

    fn field(&self) -> Field {
        Field::Integer(*self)
    }

    fn describe(bounds: &Self::Bounds) -> String {
        if bounds.start() == bounds.end() {
            return grouped(*bounds.end());
        }
        format!("{} to {}", grouped(*bounds.start()), grouped(*bounds.end()))
    }
}

impl Value for usize {
    type Bounds = RangeInclusive<Self>;
    const NONE: Self = 0;

    fn read(entry: Entry<'_>, bounds: &Self::Bounds) -> Result<Self, Error> {
        let number = u64::read(entry, &(*bounds.start() as u64..=*bounds.end() as u64))?;
        Self::try_from(number).map_err(|_| entry.outside(number, bounds))
    }

    fn field(&self) -> Field {
        Field::Integer(*self as u64)
    }

    fn describe(bounds: &Self::Bounds) -> String {
        u64::describe(&(*bounds.start() as u64..=*bounds.end() as u64))
    }
}

/// Milliseconds, bounded in milliseconds.
impl Value for Duration {
    type Bounds = RangeInclusive<u64>;
    const NONE: Self = Self::ZERO;

    fn read(entry: Entry<'_>, bounds: &Self::Bounds) -> Result<Self, Error> {
        u64::read(entry, bounds).map(Self::from_millis)
    }

    fn field(&self) -> Field {
        Field::Integer(u64::try_from(self.as_millis()).unwrap_or(u64::MAX))
    }

    fn describe(bounds: &Self::Bounds) -> String {
        u64::describe(bounds)
    }
}

impl Value for f64 {
    type Bounds = RangeInclusive<Self>;
    const NONE: Self = 0.0;

    /// A whole number may be written without a point. −0 becomes 0, so that one number has one form.
    fn read(entry: Entry<'_>, bounds: &Self::Bounds) -> Result<Self, Error> {
        let number = match entry.value() {
            Toml::Float(number) => *number,
            // A whole number above 2^53 is out of every bounds, however it is rounded.
            Toml::Integer(number) => *number as Self,
            _ => return Err(entry.wrong("a number")),
        };
        if bounds.contains(&number) { Ok(number + 0.0) } else { Err(entry.outside(number, bounds)) }
    }

    fn field(&self) -> Field {
        Field::Float(*self)
    }

    fn describe(bounds: &Self::Bounds) -> String {
        let describe = |bound: &Self| match bound {
            0.001..1e4 | 0.0 => bound.to_string(),
            _ => format!("{bound:e}"),
        };
        format!("{} to {}", describe(bounds.start()), describe(bounds.end()))
    }
}

/// A number that is rounded once, after it was compared with its bounds.
impl Value for f32 {
    type Bounds = RangeInclusive<f64>;
    const NONE: Self = 0.0;

    fn read(entry: Entry<'_>, bounds: &Self::Bounds) -> Result<Self, Error> {
        f64::read(entry, bounds).map(|number| number as Self)
    }

    /// The shortest number that reads back as the same, or the exact one where the way through `f64` would
    /// round twice.
    fn field(&self) -> Field {
        let shortest = format!("{self:?}").parse().ok().filter(|read: &f64| *read as Self == *self);
        Field::Float(shortest.unwrap_or_else(|| f64::from(*self)))
    }

    fn describe(bounds: &Self::Bounds) -> String {
        f64::describe(bounds)
    }
}

/// `true`, or an absent key, so that there is one way to write each setting.
impl Value for bool {
    type Bounds = ();
    const NONE: Self = false;
    const OPTIONAL: Self = true;

    fn read(entry: Entry<'_>, (): &()) -> Result<Self, Error> {
        let on = entry.value().as_bool().filter(|on| *on);
        on.ok_or_else(|| entry.wrong("true, or the key be left out"))
    }

    fn field(&self) -> Field {
        Field::Switch(*self)
    }

    fn describe((): &()) -> String {
        "true, or absent".to_owned()
    }
}

/// The form that a text must have.
pub struct Pattern {
    /// The form of a text that fits, as it follows "it must be ".
    pub form: &'static str,
    /// Whether a text has this form.
    pub fits: fn(&str) -> bool,
}

impl Value for String {
    type Bounds = Pattern;
    const NONE: Self = Self::new();

    fn read(entry: Entry<'_>, pattern: &Pattern) -> Result<Self, Error> {
        entry.parse(pattern.form, |text| (pattern.fits)(text).then(|| text.to_owned()))
    }

    fn field(&self) -> Field {
        Field::Text(self.clone())
    }

    fn describe(pattern: &Pattern) -> String {
        pattern.form.to_owned()
    }
}

/// A type whose values have names in a manifest and numbers in what is hashed.
pub trait Named: Copy + PartialEq + 'static {
    /// Each value with its name and its number. A number is never used for another value.
    const NAMES: &'static [(Self, &'static str, u64)];

    /// The value's name and number out of the list.
    fn entry(self) -> (&'static str, u64) {
        let found = Self::NAMES.iter().find(|(value, ..)| *value == self);
        found.map_or(("", 0), |(_, name, number)| (*name, *number))
    }
}

impl<T: Named> Value for T {
    type Bounds = ();
    const NONE: Self = T::NAMES[0].0;

    fn read(entry: Entry<'_>, (): &()) -> Result<Self, Error> {
        entry.choose(T::NAMES)
    }

    fn field(&self) -> Field {
        let (name, number) = self.entry();
        Field::Name(name, number)
    }

    fn describe((): &()) -> String {
        quoted(T::NAMES)
    }
}

/// A value whose key may be absent.
impl<T: Value> Value for Option<T> {
    type Bounds = T::Bounds;
    const NONE: Self = None;
    const OPTIONAL: bool = true;

    fn read(entry: Entry<'_>, bounds: &Self::Bounds) -> Result<Self, Error> {
        T::read(entry, bounds).map(Some)
    }

    fn field(&self) -> Field {
        Field::Option(self.as_ref().map(|value| Box::new(value.field())))
    }

    fn describe(bounds: &Self::Bounds) -> String {
        format!("{}, or absent", T::describe(bounds))
    }
}

/// The bounds of a list: it has 1 to `.0` items, and each is within `.1`.
pub struct List<B>(pub usize, pub B);

impl<T: Value> Value for Vec<T> {
    type Bounds = List<T::Bounds>;
    const NONE: Self = Self::new();

    fn read(entry: Entry<'_>, bounds: &Self::Bounds) -> Result<Self, Error> {
        let List(most, each) = bounds;
        let wrong = || entry.wrong(&format!("a list of {}", Self::describe(bounds)));
        let items = entry.value().as_array().ok_or_else(wrong)?;
        if !(1..=*most).contains(&items.len()) {
            return Err(entry.outside(format!("a list of {}", items.len()), &(1..=*most)));
        }
        items.iter().map(|item| T::read(entry.item(item), each)).collect()
    }

    fn field(&self) -> Field {
        Field::List(self.iter().map(Value::field).collect())
    }

    fn describe(List(most, each): &Self::Bounds) -> String {
        format!("1 to {most} of {}", T::describe(each))
    }
}

/// Names as a manifest writes them, with commas between.
#[must_use]
pub fn quoted<T>(known: &[(T, &str, u64)]) -> String {
    known.iter().map(|(_, name, _)| format!("\"{name}\"")).collect::<Vec<_>>().join(", ")
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
