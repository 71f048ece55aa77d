//! `[data]`: where tokens come from, field by field, in the order in which it is written and hashed.

use super::fields::{Field, Fields, hex};
use super::{TOKENS_MAX, WorkError};

/// Where tokens come from.
#[derive(Clone, Debug, PartialEq)]
pub struct Data {
    /// The source, with what only it needs.
    pub source: Source,
    /// Share of the source that is never trained on, 0–0.5: the end of a file. A synthetic source
    /// has a stream of its own for it and ignores the size.
    pub held_out: f64,
}

/// The kinds of source.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Source {
    /// A seeded Markov source of known entropy.
    Synthetic {
        /// Size of its alphabet, 2–256.
        symbols: usize,
        /// Symbols that the next one depends on, 1–3.
        order: usize,
    },
    /// One file that every peer has; another file is refused.
    Text {
        /// BLAKE3 of the file.
        digest: [u8; 32],
        /// Its length.
        bytes: u64,
    },
    /// One file of tokens, made by `data tokenize`, that every peer has; another one is refused.
    Tokens {
        /// BLAKE3 of the file.
        digest: [u8; 32],
        /// Its length.
        bytes: u64,
        /// What it was made with.
        vocabulary: Vocabulary,
    },
}

/// What a token file was made with.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Vocabulary {
    /// The form of the tokenizer.
    pub scheme: Scheme,
    /// BLAKE3 of its file; zeros where there is none.
    pub digest: [u8; 32],
    /// How many different tokens it has, 2–2^20: one more than the greatest.
    pub tokens: usize,
    /// The token that begins each document.
    pub bos: u32,
}

/// The forms that a tokenizer of documents can have; the numbers are hashed and never reused.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Scheme {
    /// One token per byte, and one that begins a document; there is no file.
    Bytes = 2,
    /// A vocabulary file of RWKV World.
    Rwkv = 3,
    /// A `tokenizer.json` of Hugging Face.
    HuggingFace = 4,
}

impl Data {
    /// How many different tokens there are.
    #[must_use]
    pub fn tokens(&self) -> usize {
        match &self.source {
            Source::Synthetic { symbols, .. } => *symbols,
            Source::Text { .. } => 256,
            Source::Tokens { vocabulary, .. } => vocabulary.tokens,
        }
    }

    pub(super) fn read(fields: &Fields<'_>) -> Result<Self, WorkError> {
        let kind = fields.choice("source", &Kind::ALL, Kind::name)?;
        for (keys, kinds, only) in OWN {
            if !kinds.contains(&kind) {
                fields.absent(keys, only)?;
            }
        }
        let file = || {
            let bytes = fields.integer("bytes", 1, TOKENS_MAX)?;
            Ok((fields.digest("digest")?, bytes))
        };
        let source = match kind {
            Kind::Synthetic => {
                let symbols = fields.count("symbols", 2, 256)?;
                let order = fields.count("order", 1, 3)?;
                check_table(symbols, order)?;
                fields.choice("tokenizer", &["symbols"], |name| name)?;
                Source::Synthetic { symbols, order }
            }
            Kind::Text => {
                fields.choice("tokenizer", &["bytes"], |name| name)?;
                let (digest, bytes) = file()?;
                Source::Text { digest, bytes }
            }
            Kind::Tokens => {
                let (digest, bytes) = file()?;
                Source::Tokens { digest, bytes, vocabulary: Vocabulary::read(fields)? }
            }
        };
        Ok(Self { source, held_out: fields.float("held_out", 0.0, 0.5)? })
    }

    pub(super) fn fields(&self) -> Vec<(&'static str, Field)> {
        let none = [Field::Nothing, Field::Nothing, Field::Nothing];
        let no_file = (Field::NoText, Field::NoInteger);
        let no_table = (Field::NoInteger, Field::NoInteger);
        let file = |digest, bytes| (Field::Text(hex(digest)), Field::Integer(bytes));
        // What is older than the last three fields hashes nothing in their place.
        let (kind, tokenizer, (symbols, order), (digest, bytes), [tokenizer_digest, tokens, bos]) =
            match &self.source {
                Source::Synthetic { symbols, order } => {
                    let table = (Field::count(*symbols), Field::count(*order));
                    (Kind::Synthetic, Field::Name("symbols", 1), table, no_file, none)
                }
                Source::Text { digest, bytes } => {
                    let file = file(*digest, *bytes);
                    (Kind::Text, Field::Name("bytes", 2), no_table, file, none)
                }
                Source::Tokens { digest, bytes, vocabulary } => {
                    let scheme = vocabulary.scheme;
                    let name = Field::Name(scheme.name(), scheme as u64);
                    (Kind::Tokens, name, no_table, file(*digest, *bytes), vocabulary.fields())
                }
            };
        vec![
            ("source", Field::Name(kind.name(), kind as u64)),
            ("tokenizer", tokenizer),
            ("symbols", symbols),
            ("order", order),
            ("digest", digest),
            ("bytes", bytes),
            ("held_out", Field::Float(self.held_out)),
            ("tokenizer_digest", tokenizer_digest),
            ("tokens", tokens),
            ("bos", bos),
        ]
    }
}

impl Vocabulary {
    /// Of bytes: the first number that is no byte begins a document.
    pub const BYTES: Self = Self { scheme: Scheme::Bytes, digest: [0; 32], tokens: 257, bos: 256 };

    fn read(fields: &Fields<'_>) -> Result<Self, WorkError> {
        let scheme = fields.choice("tokenizer", &Scheme::ALL, Scheme::name)?;
        if scheme == Scheme::Bytes {
            fields.absent(&["tokenizer_digest"], "a tokenizer with a file")?;
            fields.count("tokens", Self::BYTES.tokens, Self::BYTES.tokens)?;
            fields.integer("bos", Self::BYTES.bos.into(), Self::BYTES.bos.into())?;
            return Ok(Self::BYTES);
        }
        let digest = fields.digest("tokenizer_digest")?;
        let tokens = fields.count("tokens", 2, 1 << 20)?;
        let bos = fields.integer("bos", 0, tokens as u64 - 1)?;
        // Below 2^20.
        Ok(Self { scheme, digest, tokens, bos: bos as u32 })
    }

    fn fields(&self) -> [Field; 3] {
        let digest = match self.scheme {
            Scheme::Bytes => Field::NoText,
            Scheme::Rwkv | Scheme::HuggingFace => Field::Text(hex(self.digest)),
        };
        [digest, Field::count(self.tokens), Field::Integer(self.bos.into())]
    }
}

impl Scheme {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Bytes, Self::Rwkv, Self::HuggingFace];

    /// As it is written in a manifest.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Bytes => "bytes",
            Self::Rwkv => "rwkv",
            Self::HuggingFace => "hugging-face",
        }
    }

    /// The form of a tokenizer's file: Hugging Face's is a JSON object, a vocabulary begins with a
    /// number.
    #[must_use]
    pub fn of_file(file: &[u8]) -> Self {
        if file.trim_ascii_start().first() == Some(&b'{') { Self::HuggingFace } else { Self::Rwkv }
    }
}

/// The source's name alone; the numbers are hashed and never reused.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Kind {
    Synthetic = 1,
    Text = 2,
    Tokens = 3,
}

impl Kind {
    const ALL: [Self; 3] = [Self::Synthetic, Self::Text, Self::Tokens];

    fn name(self) -> &'static str {
        match self {
            Self::Synthetic => "synthetic",
            Self::Text => "text",
            Self::Tokens => "tokens",
        }
    }
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

/// The fields that only some sources have, and how that is said.
const OWN: [(&[&str], &[Kind], &str); 3] = [
    (&["symbols", "order"], &[Kind::Synthetic], "source = \"synthetic\""),
    (&["digest", "bytes"], &[Kind::Text, Kind::Tokens], "source = \"text\" or \"tokens\""),
    (&["tokenizer_digest", "tokens", "bos"], &[Kind::Tokens], "source = \"tokens\""),
];
/// A table of 64 MiB, counted in about a second.
const STRINGS_MAX: usize = 1 << 24;
