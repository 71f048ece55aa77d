//! Tables of a manifest, declared by one line for each key.
//!
//! A manifest is a TOML file that one person writes and that many programs must read alike. [`table!`] declares
//! one of its tables as a struct: for each key the type of its value, the values that are allowed, and what the
//! key means. From that line follow the struct's field and its documentation, the reader and its error messages,
//! the text that is written back, and the key's line in docs/FORMATS.md.
//!
//! ```
//! use intellect_table::{Field, Keys, Named, Table, table};
//!
//! #[derive(Clone, Copy, Debug, PartialEq)]
//! pub enum Shape { Flat, Warmup }
//!
//! impl Named for Shape {
//!     const NAMES: &'static [(Self, &'static str, u64)] =
//!         &[(Self::Flat, "flat", 1), (Self::Warmup, "warmup", 2)];
//! }
//!
//! table! {
//!     /// How the learning rate changes.
//!     pub struct Rate in "rate" {
//!         shape: Shape, (), "curve that the rate follows";
//!         peak: f64, 0.0..=1.0, "largest rate; above 0.01 most models diverge";
//!         steps: u64, 1..=1_000_000, "steps until the peak";
//!     }
//! }
//!
//! impl Table for Rate {
//!     fn only(key: &str) -> Option<String> {
//!         (key == "steps").then(|| "shape = \"warmup\"".to_owned())
//!     }
//!
//!     fn applies(&self, key: &str) -> bool {
//!         key != "steps" || self.shape == Shape::Warmup
//!     }
//! }
//!
//! let read = |text: &str| Rate::parse(&text.parse().expect("TOML"));
//! let rate = read("[rate]\nshape = \"warmup\"\npeak = 0.01\nsteps = 50").expect("every key fits");
//! assert_eq!((rate.peak, rate.steps), (0.01, 50));
//! assert_eq!(rate.to_text(), "\n[rate]\nshape = \"warmup\"\npeak = 0.01\nsteps = 50\n");
//! assert_eq!(rate.row()[2], ("steps", Field::Integer(50)));
//!
//! let error = |text| read(text).expect_err("one key is wrong").to_string();
//! assert_eq!(error("[rate]\nshape = \"flat\"\npeak = 3"), "rate.peak is 3: choose 0 to 1");
//! assert_eq!(
//!     error("[rate]\nshape = \"flat\"\npeak = 0.1\nsteps = 5"),
//!     "rate.steps belongs to shape = \"warmup\" only: remove it",
//! );
//! ```
//!
//! Two peers must never read different settings out of one file, so a table has no defaults:
//!
//! - Each key that applies must be there, unless its type says that it may be absent (`Option`, `bool`).
//! - A key that does not apply is refused. Its field then has the value [`Value::NONE`]: zero or empty.
//! - An unknown key is refused.
//!
//! [`Keys::row`] gives the values in the order of the declaration, without a choice of bytes: each caller hashes
//! them in the encoding of its own format. This crate knows no particular table and no type of the domain.

mod error;
mod fields;
mod value;

pub use self::error::Error;
pub use self::fields::{Entry, Fields};
pub use self::value::{Field, List, Named, Pattern, Value, quoted};

/// Declares a table: `field: type, bounds, "meaning";`, or `field as key: …` where the key has another name
/// than the field. The name of the table is empty for the keys above all tables.
///
/// The expression for the bounds has the type [`Value::Bounds`] of the field's type. The struct implements
/// [`Keys`]; write `impl Table for …` beside it.
#[macro_export]
macro_rules! table {
    ($(#[$attribute:meta])* $vis:vis struct $table:ident in $name:literal {
        $($field:ident $(as $key:ident)?: $type:ty, $bounds:expr, $meaning:literal;)*
    }) => {
        $(#[$attribute])*
        #[derive(Clone, Debug, PartialEq)]
        $vis struct $table {
            $(#[doc = $meaning] pub $field: $type,)*
        }

        impl $crate::Keys for $table {
            const NAME: &'static str = $name;
            const KEYS: &'static [$crate::Key] = &[$($crate::Key {
                name: $crate::table!(@key $field $($key)?),
                bounds: || <$type as $crate::Value>::describe(&$bounds),
                meaning: $meaning,
            }),*];
            const NONE: Self = Self { $($field: <$type as $crate::Value>::NONE),* };

            fn read(fields: &$crate::Fields<'_>) -> Result<Self, $crate::Error> {
                let mut table = <Self as $crate::Keys>::NONE;
                $(table.$field = fields.read(&table, $crate::table!(@key $field $($key)?), &$bounds)?;)*
                Ok(table)
            }

            fn row(&self) -> Vec<(&'static str, $crate::Field)> {
                vec![$((
                    $crate::table!(@key $field $($key)?),
                    $crate::Value::field(&self.$field),
                )),*]
            }
        }
    };
    (@key $field:ident) => { stringify!($field) };
    (@key $field:ident $key:ident) => { stringify!($key) };
}

/// One line of a declaration, as it is looked up by name.
pub struct Key {
    /// The key's name without that of its table.
    pub name: &'static str,
    /// Describes the values that are allowed.
    pub bounds: fn() -> String,
    /// What the key means, as the declaration says it.
    pub meaning: &'static str,
}

/// One key as a reference page has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    /// The full name, such as `rate.peak`.
    pub key: String,
    /// The value as TOML; empty where the key is left out.
    pub value: String,
    /// The values that are allowed, such as "0 to 1".
    pub bounds: String,
    /// What the key means, and what it belongs to where it does not always apply.
    pub meaning: String,
}

/// A struct that [`table!`] declared.
pub trait Keys: Sized + 'static {
    /// The table's name in a manifest; empty for the keys above all tables.
    const NAME: &'static str;
    /// The keys in the order of their declaration.
    const KEYS: &'static [Key];
    /// The table in which no key applies: every field is zero or empty.
    const NONE: Self;

    /// Reads every key, each judged by those above it.
    ///
    /// # Errors
    /// The first key that is missing, does not apply, or has a wrong value.
    fn read(fields: &Fields<'_>) -> Result<Self, Error>
    where
        Self: Table;

    /// Each key and its value, those that do not apply included.
    fn row(&self) -> Vec<(&'static str, Field)>;
}

/// What a table knows beyond its keys: which of them apply, and what must hold between them.
pub trait Table: Keys {
    /// Keys that stand in the same place and that somebody else reads; other unknown keys are errors.
    const OTHERS: &'static [&'static str] = &[];

    /// What a manifest must say so that `key` applies, such as `family = "llama"`; `None` for a key that
    /// always applies.
    #[must_use]
    fn only(_key: &str) -> Option<String> {
        None
    }

    /// Whether `key` applies. Only the keys above it have been read.
    #[must_use]
    fn applies(&self, _key: &str) -> bool {
        true
    }

    /// Checks what must hold between the keys.
    ///
    /// # Errors
    /// The first condition that does not hold, with the key to change.
    fn check(&self) -> Result<(), Error> {
        Ok(())
    }

    /// Reads and checks the table out of a manifest, or out of a TOML file of that form.
    ///
    /// # Errors
    /// The first thing that is wrong, with what to write instead.
    fn parse(manifest: &toml::Table) -> Result<Self, Error> {
        let table = Self::read(&Fields::of::<Self>(manifest)?)?;
        table.check()?;
        Ok(table)
    }

    /// Each key that is written into a manifest, with its value, in the order of the declaration.
    #[must_use]
    fn written(&self) -> Vec<(&'static str, toml::Value)> {
        let applying = self.row().into_iter().filter(|(key, _)| self.applies(key));
        applying.filter_map(|(key, field)| Some((key, field.to_toml()?))).collect()
    }

    /// The table as a value, whose keys have no order.
    #[must_use]
    fn to_toml(&self) -> toml::Table {
        self.written().into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
    }

    /// The table as text: a line for each key, below a header.
    #[must_use]
    fn to_text(&self) -> String {
        let header =
            if Self::NAME.is_empty() { String::new() } else { format!("\n[{}]\n", Self::NAME) };
        let lines = self.written().into_iter().map(|(key, value)| format!("{key} = {value}\n"));
        std::iter::once(header).chain(lines).collect()
    }

    /// Describes each key; the values are those of this table.
    #[must_use]
    fn described(&self) -> Vec<Description> {
        let values = self.to_toml();
        let describe = |key: &Key| {
            let only =
                Self::only(key.name).map(|only| format!("{only} only: ")).unwrap_or_default();
            Description {
                key: full(Self::NAME, key.name),
                value: values.get(key.name).map(ToString::to_string).unwrap_or_default(),
                bounds: (key.bounds)(),
                meaning: only + key.meaning,
            }
        };
        Self::KEYS.iter().map(describe).collect()
    }

    /// The error of a key of this table that applies and is absent.
    #[must_use]
    fn missing(key: &str) -> Error {
        let found = Self::KEYS.iter().find(|known| known.name == key);
        let wanted = found.map(|key| format!("{}: {}", (key.bounds)(), key.meaning));
        Error::MissingKey { key: full(Self::NAME, key), wanted: wanted.unwrap_or_default() }
    }
}

/// A key behind the name of its table.
fn full(table: &str, key: &str) -> String {
    if table.is_empty() { key.to_owned() } else { format!("{table}.{key}") }
}

#[cfg(test)]
mod tests;
