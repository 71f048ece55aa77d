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
#[derive(Clone, Debug, PartialEq)]
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
    /// Several token files that every peer has, drawn from by weights.
    Mix {
        /// What all of them were made with.
        vocabulary: Vocabulary,
        /// The files, 1–64, none twice.
        parts: Vec<Part>,
        /// Committed tokens from which on the second weights hold: in every epoch that begins with
        /// as many.
        anneal_from: u64,
    },
}

/// A file of a mix.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Part {
    /// BLAKE3 of the file.
    pub digest: [u8; 32],
    /// Its length.
    pub bytes: u64,
    /// How often it is drawn beside the others, 0–1e6.
    pub weight: f64,
    /// The same from `anneal_from` on.
    pub anneal_weight: f64,
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
            Source::Tokens { vocabulary, .. } | Source::Mix { vocabulary, .. } => vocabulary.tokens,
        }
    }

    /// What the token files were made with, where there are some.
    #[must_use]
    pub fn vocabulary(&self) -> Option<&Vocabulary> {
        match &self.source {
            Source::Synthetic { .. } | Source::Text { .. } => None,
            Source::Tokens { vocabulary, .. } | Source::Mix { vocabulary, .. } => Some(vocabulary),
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
            Kind::Mix => Source::Mix {
                vocabulary: Vocabulary::read(fields)?,
                parts: Part::read_all(fields)?,
                anneal_from: fields.integer("anneal_from", 0, TOKENS_MAX)?,
            },
        };
        Ok(Self { source, held_out: fields.float("held_out", 0.0, 0.5)? })
    }

    pub(super) fn fields(&self) -> Vec<(&'static str, Field)> {
        let Row { kind, tokenizer, table, file, vocabulary, mix } = Row::of(&self.source);
        let begin = [("source", Field::Name(kind.name(), kind as u64)), ("tokenizer", tokenizer)];
        let older = TABLE.into_iter().zip(table).chain(FILE.into_iter().zip(file));
        let held_out = ("held_out", Field::Float(self.held_out));
        let younger = VOCABULARY.into_iter().zip(vocabulary).chain(MIX.into_iter().zip(mix));
        begin.into_iter().chain(older).chain([held_out]).chain(younger).collect()
    }
}

/// The values of `[data]` but the share that is held out.
struct Row {
    kind: Kind,
    tokenizer: Field,
    table: [Field; 2],
    file: [Field; 2],
    vocabulary: [Field; 3],
    mix: [Field; 5],
}

impl Row {
    fn of(source: &Source) -> Self {
        let of_bytes = || Field::Name("bytes", 2);
        let file = |digest, bytes| [Field::Text(hex(digest)), Field::Integer(bytes)];
        match source {
            Source::Synthetic { symbols, order } => Self {
                table: [Field::count(*symbols), Field::count(*order)],
                ..Self::new(Kind::Synthetic, Field::Name("symbols", 1))
            },
            Source::Text { digest, bytes } => {
                Self { file: file(*digest, *bytes), ..Self::new(Kind::Text, of_bytes()) }
            }
            Source::Tokens { digest, bytes, vocabulary } => Self {
                file: file(*digest, *bytes),
                vocabulary: vocabulary.fields(),
                ..Self::new(Kind::Tokens, vocabulary.scheme.field())
            },
            Source::Mix { vocabulary, parts, anneal_from } => {
                let [digests, sizes, weights, anneal_weights] = Part::fields(parts);
                let anneal_from = Field::Integer(*anneal_from);
                Self {
                    vocabulary: vocabulary.fields(),
                    mix: [digests, sizes, weights, anneal_weights, anneal_from],
                    ..Self::new(Kind::Mix, vocabulary.scheme.field())
                }
            }
        }
    }

    /// Nothing else applies; what is younger than the first manifests hashes nothing then.
    fn new(kind: Kind, tokenizer: Field) -> Self {
        Self {
            kind,
            tokenizer,
            table: [Field::NoInteger, Field::NoInteger],
            file: [Field::NoText, Field::NoInteger],
            vocabulary: [const { Field::Nothing }; 3],
            mix: [const { Field::Nothing }; 5],
        }
    }
}

impl Part {
    fn read_all(fields: &Fields<'_>) -> Result<Vec<Self>, WorkError> {
        let digests = fields.list("digests", PARTS_MAX)?;
        let one_each = |key, name: &'static str| {
            let list = fields.list(name, PARTS_MAX)?;
            if list.len() == digests.len() {
                return Ok(list);
            }
            Err(WorkError::Contradiction {
                key,
                value: format!("a list of {}", list.len()),
                need: format!("data.digests names {} files: write one for each", digests.len()),
            })
        };
        let sizes = one_each("data.sizes", "sizes")?;
        let weights = one_each("data.weights", "weights")?;
        let anneal_weights = one_each("data.anneal_weights", "anneal_weights")?;
        let mut parts: Vec<Self> = Vec::new();
        for index in 0..digests.len() {
            let digest = digests[index].digest()?;
            if parts.iter().any(|part| part.digest == digest) {
                let (key, value) = ("data.digests", hex(digest));
                let need = "it stands there twice: name a file once, with a greater weight".into();
                return Err(WorkError::Contradiction { key, value, need });
            }
            parts.push(Self {
                digest,
                bytes: sizes[index].integer(1, TOKENS_MAX)?,
                weight: weights[index].float(0.0, WEIGHT_MAX)?,
                anneal_weight: anneal_weights[index].float(0.0, WEIGHT_MAX)?,
            });
        }
        let first = parts.iter().map(|part| part.weight).collect();
        let then = parts.iter().map(|part| part.anneal_weight).collect();
        drawn("data.weights", first)?;
        drawn("data.anneal_weights", then)?;
        Ok(parts)
    }

    /// Digests, sizes and both weights.
    fn fields(parts: &[Self]) -> [Field; 4] {
        let list = |field: fn(&Self) -> Field| Field::List(parts.iter().map(field).collect());
        [
            list(|part| Field::Text(hex(part.digest))),
            list(|part| Field::Integer(part.bytes)),
            list(|part| Field::Float(part.weight)),
            list(|part| Field::Float(part.anneal_weight)),
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

    fn field(self) -> Field {
        Field::Name(self.name(), self as u64)
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
    Mix = 4,
}

impl Kind {
    const ALL: [Self; 4] = [Self::Synthetic, Self::Text, Self::Tokens, Self::Mix];

    fn name(self) -> &'static str {
        match self {
            Self::Synthetic => "synthetic",
            Self::Text => "text",
            Self::Tokens => "tokens",
            Self::Mix => "mix",
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

/// Of these weights one must be above 0.
fn drawn(key: &'static str, weights: Vec<f64>) -> Result<(), WorkError> {
    if weights.iter().sum::<f64>() > 0.0 {
        return Ok(());
    }
    let need = "nothing would be drawn: make one of them greater than 0".to_owned();
    Err(WorkError::Contradiction { key, value: format!("{weights:?}"), need })
}

/// The fields that only some sources have.
const TABLE: [&str; 2] = ["symbols", "order"];
const FILE: [&str; 2] = ["digest", "bytes"];
const VOCABULARY: [&str; 3] = ["tokenizer_digest", "tokens", "bos"];
const MIX: [&str; 5] = ["digests", "sizes", "weights", "anneal_weights", "anneal_from"];
/// Which have them, and how that is said.
const OWN: [(&[&str], &[Kind], &str); 4] = [
    (&TABLE, &[Kind::Synthetic], "source = \"synthetic\""),
    (&FILE, &[Kind::Text, Kind::Tokens], "source = \"text\" or \"tokens\""),
    (&VOCABULARY, &[Kind::Tokens, Kind::Mix], "source = \"tokens\" or \"mix\""),
    (&MIX, &[Kind::Mix], "source = \"mix\""),
];
/// So many fit into a manifest beside everything else.
const PARTS_MAX: usize = 64;
/// Weights may be counts of thousands of anything.
const WEIGHT_MAX: f64 = 1e6;
/// A table of 64 MiB, counted in about a second.
const STRINGS_MAX: usize = 1 << 24;
