//! The table `[model]`: an architecture and its sizes, and how many parameters they make.
//!
//! Families share most fields; what belongs to some only is zero elsewhere, absent from a manifest of
//! the others, and refused there.

use super::fields::{Field, Fields};
use super::{Work, WorkError};
use crate::ops::RopeScaling;

/// The architecture and its sizes.
#[derive(Clone, Debug, PartialEq)]
pub struct Model {
    /// Which architecture.
    pub family: Family,
    /// Blocks, 1–512.
    pub layers: usize,
    /// Channels of the residual stream, 8–65,536.
    pub width: usize,
    /// Heads of queries, or of the recurrence; divides `width` into heads of even size.
    pub heads: usize,
    /// Key and value heads; divides `heads`. Llama only, else 0, as with the others below.
    pub kv_heads: usize,
    /// Hidden channels of the feed-forward network, 8–2^18.
    pub ffn: usize,
    /// Tokens that one sequence holds, 8–2^20.
    pub context: usize,
    /// Rows of the embedding, 2–2^20; at least as many as the tokenizer has tokens.
    pub vocab: usize,
    /// Base of the rotary frequencies, 1–1e9; longer contexts want more. Llama only.
    pub rope_theta: f64,
    /// Rotary frequencies for a longer context than that of the first training. Llama only.
    pub rope_scaling: Option<RopeScaling>,
    /// Added to the mean square before its root, 1e-12–1e-2. Llama only.
    pub norm_eps: f64,
    /// Rank of each data-dependent token shift, 1–4,096. Finch and GoldFinch.
    pub mix_rank: usize,
    /// Rank of the data-dependent decay, and of GoldFinch's second values, 1–4,096.
    pub decay_rank: usize,
    /// Blocks that attend, behind the others, 1 to `layers` − 1. GoldFinch only.
    pub gold_layers: usize,
    /// Rank of the maps that make an attending block's keys and values, 1–4,096. GoldFinch only.
    pub value_rank: usize,
    /// Channels per number that the cache keeps of a token; divides `width`. GoldFinch only.
    pub compression: usize,
}

/// The closed list of architectures; the numbers are hashed and never reused.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Family {
    /// Llama 3: RMSNorm, rotary positions, grouped-query attention, SwiGLU, untied head.
    Llama = 1,
    /// RWKV-5: a recurrence with matrix-valued states and constant decays.
    Eagle = 2,
    /// RWKV-6: decays and token shifts that depend on the data.
    Finch = 3,
    /// A Finch below, and attention above that reads a compressed cache.
    GoldFinch = 4,
}

impl Model {
    /// No sizes at all: what does not apply is zero.
    pub const NONE: Self = Self {
        family: Family::Llama,
        layers: 0,
        width: 0,
        heads: 0,
        kv_heads: 0,
        ffn: 0,
        context: 0,
        vocab: 0,
        rope_theta: 0.0,
        rope_scaling: None,
        norm_eps: 0.0,
        mix_rank: 0,
        decay_rank: 0,
        gold_layers: 0,
        value_rank: 0,
        compression: 0,
    };

    /// Channels of one head.
    #[must_use]
    pub fn head_size(&self) -> usize {
        self.width / self.heads
    }

    /// Channels of all keys, and of all values.
    #[must_use]
    pub fn kv_width(&self) -> usize {
        self.head_size() * self.kv_heads
    }

    /// Parameters of the whole model.
    #[must_use]
    pub fn parameter_count(&self) -> u64 {
        let [d, ffn, layers, mix, decay, gold, value, compression] = [
            self.width,
            self.ffn,
            self.layers,
            self.mix_rank,
            self.decay_rank,
            self.gold_layers,
            self.value_rank,
            self.compression.max(1),
        ]
        .map(|size| size as u64);
        let ends = 2 * self.vocab as u64 * d;
        let channel_mix = 2 * d * ffn + d * d;
        match self.family {
            Family::Llama => {
                let attention = 2 * d * d + 2 * d * self.kv_width() as u64;
                layers * (attention + 3 * d * ffn + 2 * d) + ends + d
            }
            Family::Eagle => layers * (5 * d * d + channel_mix + 14 * d) + ends + 4 * d,
            Family::Finch => {
                let low_rank = (10 * mix + 2 * decay) * d;
                layers * (5 * d * d + low_rank + channel_mix + 16 * d) + ends + 4 * d
            }
            Family::GoldFinch => {
                let below = 4 * d * d + (10 * mix + 4 * decay + 16) * d + channel_mix;
                let above = 2 * d * d + (4 * value + 6 * mix + 19) * d + channel_mix;
                let cache = d * d + 2 * d * (d / compression);
                (layers - gold) * below + gold * above + cache + ends + 4 * d
            }
        }
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

impl Family {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Llama, Self::Eagle, Self::Finch, Self::GoldFinch];

    /// As it is written in a manifest.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Llama => "llama",
            Self::Eagle => "eagle",
            Self::Finch => "finch",
            Self::GoldFinch => "goldfinch",
        }
    }
}

impl Model {
    /// Reads the table `[model]` out of a manifest, or of what has the form of one.
    ///
    /// # Errors
    /// The first thing that is wrong, with what to write instead.
    pub fn parse(manifest: &toml::Table) -> Result<Self, WorkError> {
        let [model, ..] = Work::synthetic().fields();
        Self::read(&Fields::new(manifest, &model)?)
    }

    pub(super) fn read(fields: &Fields<'_>) -> Result<Self, WorkError> {
        let family = fields.choice("family", &Family::ALL, Family::name)?;
        for (keys, families, only) in OWN {
            if !families.contains(&family) {
                fields.absent(keys, only)?;
            }
        }
        let count = |key, high| if family.has(key) { fields.count(key, 1, high) } else { Ok(0) };
        let float =
            |key, low, high| if family.has(key) { fields.float(key, low, high) } else { Ok(0.0) };
        let model = Self {
            family,
            layers: fields.count("layers", 1, 512)?,
            width: fields.count("width", 8, 65_536)?,
            heads: fields.count("heads", 1, 65_536)?,
            kv_heads: count("kv_heads", 65_536)?,
            ffn: fields.count("ffn", 8, 1 << 18)?,
            context: fields.count("context", 8, 1 << 20)?,
            vocab: fields.count("vocab", 2, 1 << 20)?,
            rope_theta: float("rope_theta", 1.0, 1e9)?,
            rope_scaling: read_scaling(fields)?,
            norm_eps: float("norm_eps", 1e-12, 1e-2)?,
            mix_rank: count("mix_rank", RANK_MAX)?,
            decay_rank: count("decay_rank", RANK_MAX)?,
            gold_layers: count("gold_layers", 511)?,
            value_rank: count("value_rank", RANK_MAX)?,
            compression: count("compression", 65_536)?,
        };
        model.check()?;
        Ok(model)
    }

    /// Sizes that must go together.
    fn check(&self) -> Result<(), WorkError> {
        let model = self;
        if !model.width.is_multiple_of(2 * model.heads) {
            return Err(WorkError::Contradiction {
                key: "model.heads",
                value: model.heads.to_string(),
                need: format!(
                    "heads must divide model.width = {} into heads of even size",
                    model.width
                ),
            });
        }
        let divides = |key, size: usize, of, whole: usize| {
            if size == 0 || whole.is_multiple_of(size) {
                return Ok(());
            }
            let need = format!("it must divide {of} = {whole}");
            Err(WorkError::Contradiction { key, value: size.to_string(), need })
        };
        divides("model.kv_heads", model.kv_heads, "model.heads", model.heads)?;
        divides("model.compression", model.compression, "model.width", model.width)?;
        if model.gold_layers >= model.layers {
            return Err(WorkError::Contradiction {
                key: "model.gold_layers",
                value: model.gold_layers.to_string(),
                need: format!("it must be below model.layers = {}", model.layers),
            });
        }
        Ok(())
    }

    pub(super) fn fields(&self) -> Vec<(&'static str, Field)> {
        [
            ("family", Field::Name(self.family.name(), self.family as u64)),
            ("layers", Field::count(self.layers)),
            ("width", Field::count(self.width)),
            ("heads", Field::count(self.heads)),
            ("kv_heads", Field::count(self.kv_heads)),
            ("ffn", Field::count(self.ffn)),
            ("context", Field::count(self.context)),
            ("vocab", Field::count(self.vocab)),
            ("rope_theta", Field::Float(self.rope_theta)),
            ("norm_eps", Field::Float(self.norm_eps)),
            ("mix_rank", Field::count(self.mix_rank)),
            ("decay_rank", Field::count(self.decay_rank)),
            ("gold_layers", Field::count(self.gold_layers)),
            ("value_rank", Field::count(self.value_rank)),
            ("compression", Field::count(self.compression)),
        ]
        .map(|(key, field)| (key, if self.family.has(key) { field } else { Field::NoInteger }))
        .into_iter()
        .chain(scaling_fields(self.rope_scaling))
        .collect()
    }
}

fn read_scaling(fields: &Fields<'_>) -> Result<Option<RopeScaling>, WorkError> {
    if !fields.has(FACTOR) && !fields.has(ORIGINAL) {
        return Ok(None);
    }
    let factor = fields.float(FACTOR, 1.0, 1e3)?;
    Ok(Some(RopeScaling { factor, original: fields.count(ORIGINAL, 8, 1 << 20)? }))
}

fn scaling_fields(scaling: Option<RopeScaling>) -> [(&'static str, Field); 2] {
    match scaling {
        Some(RopeScaling { factor, original }) => {
            [(FACTOR, Field::Float(factor)), (ORIGINAL, Field::count(original))]
        }
        None => [(FACTOR, Field::Nothing), (ORIGINAL, Field::Nothing)],
    }
}

impl Family {
    /// Whether a field of `[model]` applies.
    fn has(self, key: &str) -> bool {
        let own = OWN.iter().find(|(keys, ..)| keys.contains(&key));
        own.is_none_or(|(_, families, _)| families.contains(&self))
    }
}

/// The fields that only some families have, and how that is said.
const OWN: [(&[&str], &[Family], &str); 3] = [
    (
        &["kv_heads", "rope_theta", "norm_eps", FACTOR, ORIGINAL],
        &[Family::Llama],
        "family = \"llama\"",
    ),
    (
        &["mix_rank", "decay_rank"],
        &[Family::Finch, Family::GoldFinch],
        "family = \"finch\" or \"goldfinch\"",
    ),
    (&["gold_layers", "value_rank", "compression"], &[Family::GoldFinch], "family = \"goldfinch\""),
];

/// Both or neither stand in a manifest.
const FACTOR: &str = "rope_factor";
const ORIGINAL: &str = "rope_original_context";
/// Far above any rank in use.
const RANK_MAX: usize = 4096;
