//! `[data]`: where tokens come from.

use super::error::WorkError;
use super::hints::{Hints, NAME, URL};
use super::table::{DIGEST, Fields, Keys, Named, TOKENS_MAX, Table, digest_of, hex, table};
use super::vocabulary::{Scheme, Vocabulary, Width};

table! {
    /// The table as it is written: every key of every source.
    pub(super) struct Written in "data" {
        source: Kind, (), "where tokens come from";
        tokenizer: Form, (), "of a synthetic source \"symbols\", of a text \"bytes\", else one of the other three";
        symbols: usize, 2..=256, "size of the alphabet";
        order: usize, 1..=3, "symbols that the next one depends on";
        digest: String, DIGEST, "BLAKE3 of the file; another file is refused";
        bytes: u64, 1..=TOKENS_MAX, "its length";
        held_out: f64, 0.0..=0.5, "share that is never trained on: the end of a file; a synthetic source has a stream of its own for it";
        tokenizer_digest: Option<String>, DIGEST, "BLAKE3 of the tokenizer's file; not of \"bytes\"";
        tokens: Option<usize>, 2..=1 << 20, "how many different tokens there are: one more than the greatest; of \"bytes\" 257";
        bos: Option<u64>, 0..=1 << 20, "the token that begins each document; of \"bytes\" 256";
        digests: Option<Vec<String>>, DIGEST, "BLAKE3 of each token file, none twice; other files are refused";
        sizes: Option<Vec<u64>>, 1..=TOKENS_MAX, "their lengths";
        weights: Option<Vec<f64>>, 0.0..=1e6, "how often each file is drawn beside the others, not all 0";
        anneal_weights: Option<Vec<f64>>, 0.0..=1e6, "likewise from `anneal_from` on";
        anneal_from: Option<u64>, 0..=TOKENS_MAX, "committed tokens; in every epoch that begins with as many the second weights hold";
        names: Option<Vec<String>>, NAME, "what the files are called, one name for each, or absent; for people: a file is known by its digest";
        url: Option<String>, URL, "where nodes fetch the file, or absent; with a '/' at its end a folder, in which each file lies under its name; with `names`";
        share: bool, (), "or absent: peers hand the files to whoever lacks them; the organiser says that this is allowed";
    }
}

/// Where tokens come from.
#[derive(Clone, Debug, PartialEq)]
pub struct Data {
    /// The source, with what only it needs.
    pub source: Source,
    /// Share of the source that is never trained on, 0–0.5: the end of a file. A synthetic source
    /// has a stream of its own for it and ignores the size.
    pub held_out: f64,
    /// Where whoever joins finds the files.
    pub hints: Hints,
    /// Whether peers hand the files to whoever lacks them.
    pub share: bool,
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
    Text(Fingerprint),
    /// One file of tokens, made by `data tokenize`, that every peer has; another one is refused.
    Tokens {
        /// Which file it is.
        file: Fingerprint,
        /// What it was made with.
        vocabulary: Vocabulary,
    },
    /// Several token files that every peer has, drawn from by weights.
    Mix {
        /// What all of them were made with.
        vocabulary: Vocabulary,
        /// The files, 1–64, none twice.
        components: Vec<Component>,
        /// Committed tokens from which on the second weights hold: in every epoch that begins with
        /// as many.
        anneal_from: u64,
    },
}

/// What a manifest says of a file: whoever has one with this digest and length has the same file.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Fingerprint {
    /// BLAKE3 of its bytes.
    pub digest: [u8; 32],
    /// Their number.
    pub bytes: u64,
}

/// A file of a mix, and how often it is drawn from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Component {
    /// Which file it is.
    pub file: Fingerprint,
    /// How often it is drawn beside the others, 0–1e6.
    pub weight: f64,
    /// The same from `anneal_from` on.
    pub anneal_weight: f64,
}

impl Data {
    /// Whether a node that lacks the files fetches them, if it may: from peers, or where they are to be had.
    #[must_use]
    pub fn is_fetched(&self) -> bool {
        self.share || self.hints.url.is_some()
    }

    /// How many different tokens there are.
    #[must_use]
    pub fn tokens(&self) -> usize {
        match &self.source {
            Source::Synthetic { symbols, .. } => *symbols,
            Source::Text(_) => 256,
            Source::Tokens { vocabulary, .. } | Source::Mix { vocabulary, .. } => vocabulary.tokens,
        }
    }

    /// What the token files were made with, where there are some.
    #[must_use]
    pub fn vocabulary(&self) -> Option<&Vocabulary> {
        match &self.source {
            Source::Synthetic { .. } | Source::Text(_) => None,
            Source::Tokens { vocabulary, .. } | Source::Mix { vocabulary, .. } => Some(vocabulary),
        }
    }

    /// About how many tokens are trained on; nothing where their number is not bounded.
    #[must_use]
    pub fn train_tokens(&self) -> Option<u64> {
        let width = |vocabulary: &Vocabulary| Width::of(vocabulary.tokens) as u64;
        let all = match &self.source {
            Source::Synthetic { .. } => return None,
            Source::Text(file) => file.bytes,
            Source::Tokens { file, vocabulary } => file.bytes / width(vocabulary),
            Source::Mix { vocabulary, components, .. } => {
                components.iter().map(|part| part.file.bytes).sum::<u64>() / width(vocabulary)
            }
        };
        Some((all as f64 * (1.0 - self.held_out)) as u64)
    }

    pub(super) fn parse(manifest: &toml::Table) -> Result<Self, WorkError> {
        let mut fields = Fields::of::<Written>(manifest)?;
        let kind: Kind = fields.read("source", &())?;
        fields.restrict::<Written>(|key| kind.has(key))?;
        let form = Form::read(kind, &fields)?;
        if kind.has("tokenizer_digest") && form == Form::Of(Scheme::Bytes) {
            fields.refuse("tokenizer_digest", "a tokenizer with a file")?;
        }
        if !fields.has("names") {
            // It is told where names are, so that no two manifests have the same bytes.
            fields.refuse("names", "")?;
            fields.refuse("url", "data.names")?;
        } else if !fields.has("url") {
            fields.refuse("url", "")?;
        }
        if !fields.has("share") {
            fields.refuse("share", "")?;
        }
        let written = Written::read(&fields)?;
        let file = || Fingerprint { digest: digest_of(&written.digest), bytes: written.bytes };
        let source = match kind {
            Kind::Synthetic => {
                check_strings(written.symbols, written.order)?;
                Source::Synthetic { symbols: written.symbols, order: written.order }
            }
            Kind::Text => Source::Text(file()),
            Kind::Tokens => Source::Tokens { file: file(), vocabulary: written.vocabulary()? },
            Kind::Mix => Source::Mix {
                vocabulary: written.vocabulary()?,
                components: written.components()?,
                anneal_from: written.anneal_from.unwrap_or_default(),
            },
        };
        let hints = Hints::read(written.names, written.url, source.file_count())?;
        Ok(Self { source, held_out: written.held_out, hints, share: written.share })
    }

    /// The table as a manifest writes it.
    pub(super) fn written(&self) -> Written {
        let (names, url) = self.hints.written();
        let (held_out, share) = (self.held_out, self.share);
        let none = Written { held_out, names, url, share, ..Written::NONE };
        match &self.source {
            &Source::Synthetic { symbols, order } => Written { symbols, order, ..none },
            Source::Text(file) => Written {
                source: Kind::Text,
                tokenizer: Form::Of(Scheme::Bytes),
                digest: hex(&file.digest),
                bytes: file.bytes,
                ..none
            },
            Source::Tokens { file, vocabulary } => Written {
                source: Kind::Tokens,
                digest: hex(&file.digest),
                bytes: file.bytes,
                ..none.with(vocabulary)
            },
            Source::Mix { vocabulary, components: parts, anneal_from } => Written {
                source: Kind::Mix,
                digests: Some(parts.iter().map(|part| hex(&part.file.digest)).collect()),
                sizes: Some(parts.iter().map(|part| part.file.bytes).collect()),
                weights: Some(parts.iter().map(|part| part.weight).collect()),
                anneal_weights: Some(parts.iter().map(|part| part.anneal_weight).collect()),
                anneal_from: Some(*anneal_from),
                ..none.with(vocabulary)
            },
        }
    }
}

impl Written {
    /// The files of a mix and their weights.
    fn components(&self) -> Result<Vec<Component>, WorkError> {
        let digests = self.digests.as_deref().unwrap_or_default();
        let sizes = one_each("data.sizes", &self.sizes, digests)?;
        let weights = one_each("data.weights", &self.weights, digests)?;
        let anneal_weights = one_each("data.anneal_weights", &self.anneal_weights, digests)?;
        if let Some(at) = (1..digests.len()).find(|at| digests[..*at].contains(&digests[*at])) {
            let need = "it stands there twice: name a file once, with a greater weight";
            return Err(WorkError::value("data.digests", &digests[at], need));
        }
        drawn("data.weights", weights)?;
        drawn("data.anneal_weights", anneal_weights)?;
        let component = |index: usize| Component {
            file: Fingerprint { digest: digest_of(&digests[index]), bytes: sizes[index] },
            weight: weights[index],
            anneal_weight: anneal_weights[index],
        };
        Ok((0..digests.len()).map(component).collect())
    }

    /// What the token files were made with.
    fn vocabulary(&self) -> Result<Vocabulary, WorkError> {
        let (tokens, bos) = (self.tokens.unwrap_or_default(), self.bos.unwrap_or_default());
        let scheme = self.tokenizer.scheme();
        let (sizes, first) = match scheme {
            Scheme::Bytes => (257..=257, 256..=256),
            Scheme::Rwkv | Scheme::HuggingFace => (2..=1 << 20, 0..=tokens as u64 - 1),
        };
        if !sizes.contains(&tokens) {
            return Err(WorkError::outside("data.tokens", tokens, &sizes));
        }
        if !first.contains(&bos) {
            return Err(WorkError::outside("data.bos", bos, &first));
        }
        let digest = self.tokenizer_digest.as_deref().map_or([0; 32], digest_of);
        // Below 2^20.
        Ok(Vocabulary { scheme, digest, tokens, bos: bos as u32 })
    }

    /// Adds the keys that say what the token files were made with.
    fn with(self, vocabulary: &Vocabulary) -> Self {
        let file = vocabulary.scheme != Scheme::Bytes;
        Self {
            tokenizer: Form::Of(vocabulary.scheme),
            tokenizer_digest: file.then(|| hex(&vocabulary.digest)),
            tokens: Some(vocabulary.tokens),
            bos: Some(vocabulary.bos.into()),
            ..self
        }
    }
}

impl Source {
    /// How many files every peer needs.
    #[must_use]
    pub fn file_count(&self) -> usize {
        self.files().len()
    }

    /// The files that every peer needs, 64 at most.
    #[must_use]
    pub fn files(&self) -> Vec<Fingerprint> {
        match self {
            Self::Synthetic { .. } => Vec::new(),
            Self::Text(file) | Self::Tokens { file, .. } => vec![*file],
            Self::Mix { components, .. } => components.iter().map(|part| part.file).collect(),
        }
    }
}

/// Checks that a list has one entry for each file.
fn one_each<'a, T>(
    key: &'static str,
    list: &'a Option<Vec<T>>,
    digests: &[String],
) -> Result<&'a [T], WorkError> {
    let list = list.as_deref().unwrap_or_default();
    if list.len() == digests.len() {
        return Ok(list);
    }
    let need = format!("data.digests names {} files: write one for each", digests.len());
    Err(WorkError::value(key, format!("a list of {}", list.len()), need))
}

impl Scheme {
    /// Its name in a manifest.
    #[must_use]
    pub fn name(self) -> &'static str {
        Form::Of(self).entry().0
    }
}

/// The kind of a source, by its name in a manifest.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Kind {
    Synthetic,
    Text,
    Tokens,
    Mix,
}

impl Named for Kind {
    const NAMES: &'static [(Self, &'static str, u64)] = &[
        (Self::Synthetic, "synthetic", 1),
        (Self::Text, "text", 2),
        (Self::Tokens, "tokens", 3),
        (Self::Mix, "mix", 4),
    ];
}

impl Kind {
    fn has(self, key: &str) -> bool {
        owners(key).is_none_or(|kinds| kinds.contains(&self))
    }
}

impl Table for Written {
    fn only(key: &str) -> Option<String> {
        let names: Vec<_> = owners(key)?.iter().map(|kind| kind.entry().0).collect();
        Some(format!("source = \"{}\"", names.join("\" or \"")))
    }

    fn applies(&self, key: &str) -> bool {
        self.source.has(key)
    }
}

/// The sources that have a key, where not all have it.
fn owners(key: &str) -> Option<&'static [Kind]> {
    match key {
        "symbols" | "order" => Some(&[Kind::Synthetic]),
        "digest" | "bytes" => Some(&[Kind::Text, Kind::Tokens]),
        "tokenizer_digest" | "tokens" | "bos" => Some(&[Kind::Tokens, Kind::Mix]),
        "digests" | "sizes" | "weights" | "anneal_weights" | "anneal_from" => Some(&[Kind::Mix]),
        "names" | "url" | "share" => Some(&[Kind::Text, Kind::Tokens, Kind::Mix]),
        _ => None,
    }
}

/// What tokens are.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Form {
    Symbols,
    Of(Scheme),
}

impl Named for Form {
    const NAMES: &'static [(Self, &'static str, u64)] = &[
        (Self::Symbols, "symbols", 1),
        (Self::Of(Scheme::Bytes), "bytes", 2),
        (Self::Of(Scheme::Rwkv), "rwkv", 3),
        (Self::Of(Scheme::HuggingFace), "hugging-face", 4),
    ];
}

impl Form {
    /// Reads the form, which must go with the source.
    fn read(kind: Kind, fields: &Fields<'_>) -> Result<Self, WorkError> {
        let known = match kind {
            Kind::Synthetic => &Self::NAMES[..1],
            Kind::Text => &Self::NAMES[1..2],
            Kind::Tokens | Kind::Mix => &Self::NAMES[1..],
        };
        fields.choose("tokenizer", known)
    }

    fn scheme(self) -> Scheme {
        match self {
            Self::Symbols => Scheme::Bytes,
            Self::Of(scheme) => scheme,
        }
    }
}

/// Checks that the source's table of counts, one for each string of `order` + 1 symbols, is not too
/// large.
fn check_strings(symbols: usize, order: usize) -> Result<(), WorkError> {
    let strings = (0..=order).fold(1, |strings: usize, _| strings.saturating_mul(symbols));
    if strings <= STRINGS_MAX {
        return Ok(());
    }
    let need = format!(
        "data.symbols = {symbols} to the power of order + 1 must be at most {STRINGS_MAX}: \
         choose fewer symbols or a lower order"
    );
    Err(WorkError::value("data.order", order, need))
}

/// Checks that one of these weights is above 0.
fn drawn(key: &'static str, weights: &[f64]) -> Result<(), WorkError> {
    if weights.iter().sum::<f64>() > 0.0 {
        return Ok(());
    }
    let need = "nothing would be drawn: make one of them greater than 0";
    Err(WorkError::value(key, format!("{weights:?}"), need))
}

/// A table of 64 MiB, counted in about a second.
const STRINGS_MAX: usize = 1 << 24;
