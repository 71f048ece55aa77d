//! The three tables field by field, in the order in which they are written and hashed, with bounds.

use super::fields::{Field, Fields, hex};
use super::{Data, Decay, Source, TOKENS_MAX, Tokenizer, Train, WorkError};

impl Data {
    pub(super) fn read(fields: &Fields<'_>) -> Result<Self, WorkError> {
        let (source, tokenizer) =
            match fields.choice("source", &[Kind::Synthetic, Kind::Text], Kind::name)? {
                Kind::Synthetic => {
                    fields.absent(&["digest", "bytes"], "source = \"text\"")?;
                    let symbols = fields.count("symbols", 2, 256)?;
                    let order = fields.count("order", 1, 3)?;
                    check_table(symbols, order)?;
                    (Source::Synthetic { symbols, order }, Tokenizer::Symbols)
                }
                Kind::Text => {
                    fields.absent(&["symbols", "order"], "source = \"synthetic\"")?;
                    let digest = fields.digest("digest")?;
                    let bytes = fields.integer("bytes", 1, TOKENS_MAX)?;
                    (Source::Text { digest, bytes }, Tokenizer::Bytes)
                }
            };
        fields.choice("tokenizer", &[tokenizer], Tokenizer::name)?;
        Ok(Self { source, tokenizer, held_out: fields.float("held_out", 0.0, 0.5)? })
    }

    pub(super) fn fields(&self) -> Vec<(&'static str, Field)> {
        let (kind, symbols, order, digest, bytes) = match self.source {
            Source::Synthetic { symbols, order } => (
                Kind::Synthetic,
                Field::count(symbols),
                Field::count(order),
                Field::NoText,
                Field::NoInteger,
            ),
            Source::Text { digest, bytes } => (
                Kind::Text,
                Field::NoInteger,
                Field::NoInteger,
                Field::Text(hex(digest)),
                Field::Integer(bytes),
            ),
        };
        vec![
            ("source", Field::Name(kind.name(), kind as u64)),
            ("tokenizer", Field::Name(self.tokenizer.name(), self.tokenizer as u64)),
            ("symbols", symbols),
            ("order", order),
            ("digest", digest),
            ("bytes", bytes),
            ("held_out", Field::Float(self.held_out)),
        ]
    }
}

impl Train {
    pub(super) fn read(fields: &Fields<'_>) -> Result<Self, WorkError> {
        Ok(Self {
            batch: fields.count("batch", 1, 65_536)?,
            lr: fields.float("lr", 1e-9, 1.0)?,
            beta1: fields.float("beta1", 0.0, BETA_MAX)?,
            beta2: fields.float("beta2", 0.0, BETA_MAX)?,
            eps: fields.float("eps", 1e-12, 1e-2)?,
            weight_decay: fields.float("weight_decay", 0.0, 1.0)?,
            clip: fields.float("clip", 0.0, 1e6)?,
            z_loss: fields.float("z_loss", 0.0, 1.0)?,
            warmup_tokens: fields.integer("warmup_tokens", 0, TOKENS_MAX)?,
            warmup_start: fields.float("warmup_start", 0.0, 1.0)?,
            stable_tokens: fields.integer("stable_tokens", 0, TOKENS_MAX)?,
            decay_tokens: fields.integer("decay_tokens", 0, TOKENS_MAX)?,
            decay: fields.choice("decay", &Decay::ALL, Decay::name)?,
            lr_final: fields.float("lr_final", 0.0, fields.float("lr", 1e-9, 1.0)?)?,
            join_ramp_steps: fields.integer("join_ramp_steps", 0, 1_000_000)?,
        })
    }

    pub(super) fn fields(&self) -> Vec<(&'static str, Field)> {
        vec![
            ("batch", Field::count(self.batch)),
            ("lr", Field::Float(self.lr)),
            ("beta1", Field::Float(self.beta1)),
            ("beta2", Field::Float(self.beta2)),
            ("eps", Field::Float(self.eps)),
            ("weight_decay", Field::Float(self.weight_decay)),
            ("clip", Field::Float(self.clip)),
            ("z_loss", Field::Float(self.z_loss)),
            ("warmup_tokens", Field::Integer(self.warmup_tokens)),
            ("warmup_start", Field::Float(self.warmup_start)),
            ("stable_tokens", Field::Integer(self.stable_tokens)),
            ("decay_tokens", Field::Integer(self.decay_tokens)),
            ("decay", Field::Name(self.decay.name(), self.decay as u64)),
            ("lr_final", Field::Float(self.lr_final)),
            ("join_ramp_steps", Field::Integer(self.join_ramp_steps)),
        ]
    }
}

impl Decay {
    const ALL: [Self; 4] = [Self::OneMinusSqrt, Self::Linear, Self::Cosine, Self::QuarterCosine];
}

/// The source is a table of counts, one per string of `order` + 1 symbols.
fn check_table(symbols: usize, order: usize) -> Result<(), WorkError> {
    let strings = (0..=order).fold(1, |strings: usize, _| strings.saturating_mul(symbols));
    if strings <= STRINGS_MAX {
        return Ok(());
    }
    Err(WorkError::Contradiction {
        key: "data.order",
        value: order.to_string(),
        need: format!(
            "data.symbols = {symbols} to the power of order + 1 must be at most {STRINGS_MAX}: \
             choose fewer symbols or a lower order"
        ),
    })
}

/// The source's name alone; the numbers are hashed and never reused.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Kind {
    Synthetic = 1,
    Text = 2,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Synthetic => "synthetic",
            Self::Text => "text",
        }
    }
}

/// A mean over ten million steps; at 1 the moment would never move.
const BETA_MAX: f64 = 0.999_999_9;
/// A table of 64 MiB, counted in about a second.
const STRINGS_MAX: usize = 1 << 24;
