//! `[model]`: an architecture and its sizes.
//!
//! Families share most keys; the list of them says which others each has. What costs what:
//!
//! - `layers`, `width` and `ffn` are the model: parameters grow with layers × width², and so do the
//!   bytes that peers exchange in each epoch.
//! - `context` costs activations, and in a family with attention time that grows with its square. A
//!   Llama has no positions beyond it.
//! - `vocab` may be above the tokens of the data. The rows in excess are trained on nothing but the
//!   softmax, and never drawn.
//! - `kv_heads` below `heads` saves a share of a Llama's weights, and of its cache when it
//!   generates.
//! - A rank or `compression` that is too narrow cannot be widened later: a run's sizes are its id.

use intellect_table::{Error, Keys, Named, Table, table};

use crate::ops::RopeScaling;

/// The families: name, number in the hash, which is never reused, file in `arch/` and name in a
/// manifest, and the keys of `[model]` that it has besides those of all.
macro_rules! with_families {
    ($then:ident) => {
        $then! {
            Llama = 1, llama, [kv_heads, rope_theta, norm_eps, rope_factor, rope_original_context];
            Eagle = 2, eagle, [];
            Finch = 3, finch, [mix_rank, decay_rank];
            GoldFinch = 4, goldfinch, [mix_rank, decay_rank, gold_layers, value_rank, compression];
        }
    };
}

pub(crate) use with_families;

macro_rules! family {
    ($($name:ident = $number:literal, $module:ident, [$($key:ident),*];)*) => {
        /// An architecture, without its sizes.
        #[derive(Clone, Copy, Debug, Eq, PartialEq)]
        pub enum Family {
            $(#[doc = concat!("`model/src/arch/", stringify!($module), ".rs`.")] $name,)*
        }

        impl Family {
            /// Every family, in the order of their numbers.
            pub const ALL: [Self; [$($number),*].len()] = [$(Self::$name),*];

            /// The keys of `[model]` that this family has and not every other.
            fn keys(self) -> &'static [&'static str] {
                match self {
                    $(Self::$name => &[$(stringify!($key)),*],)*
                }
            }
        }

        impl Named for Family {
            const NAMES: &'static [(Self, &'static str, u64)] =
                &[$((Self::$name, stringify!($module), $number)),*];
        }
    };
}

with_families!(family);

table! {
    /// The architecture and its sizes; what the family does not have is zero.
    pub struct Model in "model" {
        family: Family, (), "architecture";
        layers: usize, 1..=512, "blocks";
        width: usize, 8..=65_536, "channels of the residual stream";
        heads: usize, 1..=65_536, "heads of queries, or of the recurrence; divides `width` into even sizes";
        kv_heads: usize, 1..=65_536, "heads of keys and values; divides `heads`";
        ffn: usize, 8..=1 << 18, "hidden channels of the feed-forward network";
        context: usize, 8..=1 << 20, "tokens that one sequence holds";
        vocab: usize, 2..=1 << 20, "rows of the embedding; at least the data's tokens";
        rope_theta: f64, 1.0..=1e9, "base of the rotary frequencies; longer contexts want more";
        norm_eps: f64, 1e-12..=1e-2, "added to the mean square before its root";
        mix_rank: usize, 1..=RANK_MAX, "rank of each data-dependent token shift (published: 32)";
        decay_rank: usize, 1..=RANK_MAX, "rank of the data-dependent decay, and of GoldFinch's second values (published: 64)";
        gold_layers: usize, 1..=511, "blocks that attend, behind the others, fewer than `layers` (published: a third)";
        value_rank: usize, 1..=RANK_MAX, "rank of the maps that make an attending block's keys and values (published: the greater of 64 and width/16)";
        compression: usize, 1..=65_536, "channels per number that the cache keeps of a token; divides `width` (published: 16)";
        rope_factor: Option<f64>, 1.0..=1e3, "frequencies scaled as in Llama 3.1; the next key goes with it";
        rope_original_context: Option<usize>, 8..=1 << 20, "tokens of the context before";
    }
}

impl Table for Model {
    /// The families that have a key, in words; `None` if all have it.
    fn only(key: &str) -> Option<String> {
        let mut families = Family::ALL.into_iter().filter(|family| family.keys().contains(&key));
        let first = format!("family = \"{}\"", families.next()?.name());
        Some(families.fold(first, |all, family| format!("{all} or \"{}\"", family.name())))
    }

    /// Whether this model's family has the key.
    fn applies(&self, key: &str) -> bool {
        self.family.keys().contains(&key) || Self::only(key).is_none()
    }

    /// Checks sizes that must go together; what does not apply is zero. The message names the key
    /// to change, and the value that it has to fit.
    fn check(&self) -> Result<(), Error> {
        let wrong = |key, value: usize, need: String| Err(Error::value(key, value, need));
        let width = self.width;
        if !width.is_multiple_of(2 * self.heads) {
            let need = format!("heads must divide model.width = {width} into heads of even size");
            return wrong("model.heads", self.heads, need);
        }
        for (key, size, of, whole) in [
            ("model.kv_heads", self.kv_heads, "model.heads", self.heads),
            ("model.compression", self.compression, "model.width", width),
        ] {
            if size > 0 && !whole.is_multiple_of(size) {
                return wrong(key, size, format!("it must divide {of} = {whole}"));
            }
        }
        if self.gold_layers >= self.layers {
            let need = format!("it must be below model.layers = {}", self.layers);
            return wrong("model.gold_layers", self.gold_layers, need);
        }
        match (self.rope_factor, self.rope_original_context) {
            (Some(_), None) => Err(Self::missing("rope_original_context")),
            (None, Some(_)) => Err(Self::missing("rope_factor")),
            (Some(_), Some(_)) | (None, None) => Ok(()),
        }
    }
}

impl Model {
    /// A model without sizes, from which a literal takes those that do not apply: zero.
    pub const NONE: Self = <Self as Keys>::NONE;

    /// K, channels of one head; an even number.
    #[must_use]
    pub fn head_size(&self) -> usize {
        self.width / self.heads
    }

    /// G·K, channels of all keys, and of all values.
    #[must_use]
    pub fn kv_width(&self) -> usize {
        self.head_size() * self.kv_heads
    }

    /// The scaling of rotary frequencies to a longer context than that of the first training.
    #[must_use]
    pub fn rope_scaling(&self) -> Option<RopeScaling> {
        let (factor, original) = self.rope_factor.zip(self.rope_original_context)?;
        Some(RopeScaling { factor, original })
    }
}

impl Family {
    /// The name of this family in a manifest.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.entry().0
    }
}

impl std::str::FromStr for Family {
    type Err = String;

    fn from_str(given: &str) -> Result<Self, String> {
        let known = || Self::ALL.map(Self::name).join(", ");
        let found = Self::ALL.into_iter().find(|family| family.name() == given);
        found.ok_or_else(|| format!("unknown family \"{given}\": choose {}", known()))
    }
}

/// The largest rank, far above any in use.
const RANK_MAX: usize = 4096;
