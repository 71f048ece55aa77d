//! `[data]`: where tokens come from.
//!
//! A manifest has flat keys, of which each kind of source has its own; `Written` is that form.
//! [`Data`] is the checked one, in which a source has only its own settings. Files are named by
//! digest and length, never by path: a node finds or fetches them by these.
//!
//! The organiser writes `held_out` for all: a peer that trained on what others measure with would
//! make their loss too good.

use intellect_table::{Error, Fields, Keys, List, Named, Table, table};

use super::digest::{DIGEST, digest_of, hex};
use super::hints::{Hints, NAME, URL};
use super::train::TOKENS_MAX;
use super::vocabulary::{Scheme, Vocabulary};

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
        tokenizer_digest: String, DIGEST, "BLAKE3 of the tokenizer's file";
        tokens: usize, 2..=1 << 20, "how many different tokens there are: one more than the greatest; of \"bytes\" 257";
        bos: u64, 0..=1 << 20, "the token that begins each document; of \"bytes\" 256";
        digests: Vec<String>, List(FILES_MAX, DIGEST), "BLAKE3 of each token file, none twice; other files are refused";
        sizes: Vec<u64>, List(FILES_MAX, 1..=TOKENS_MAX), "their lengths";
        weights: Vec<f64>, List(FILES_MAX, 0.0..=1e6), "how often each file is drawn relative to the others, not all 0";
        anneal_weights: Vec<f64>, List(FILES_MAX, 0.0..=1e6), "likewise from `anneal_from` on";
        anneal_from: u64, 0..=TOKENS_MAX, "committed tokens; in every epoch that begins with as many the second weights hold";
        names: Option<Vec<String>>, List(FILES_MAX, NAME), "what the files are called, one name for each; for people: a file is known by its digest";
        url: Option<String>, URL, "where nodes fetch the file; with a '/' at its end a folder, in which each file lies under its name";
        share: bool, (), "peers hand the files to peers that lack them; the organiser says that this is allowed";
    }
}

/// The source of the tokens, and how a peer gets its files.
#[derive(Clone, Debug, PartialEq)]
pub struct Data {
    /// The kind of source, with the settings that only this kind has.
    pub source: Source,
    /// Share of the source that is never trained on, 0–0.5: the end of a file. A synthetic source
    /// has a stream of its own for it and ignores the size.
    pub held_out: f64,
    /// The names of the files, and where a new peer can fetch them.
    pub hints: Hints,
    /// Whether peers hand the files to peers that lack them.
    pub share: bool,
}

/// Where the tokens of a run come from.
#[derive(Clone, Debug, PartialEq)]
pub enum Source {
    /// A seeded Markov source of known entropy.
    Synthetic {
        /// Number of different symbols, 2–256.
        symbols: usize,
        /// Symbols that the next one depends on, 1–3.
        order: usize,
    },
    /// One file of text that every peer has; another file is refused.
    Text(Fingerprint),
    /// One file of tokens, made by `data tokenize`, that every peer has; another one is refused.
    Tokens {
        /// The digest and the length of the file.
        file: Fingerprint,
        /// The tokenizer that the file was made with.
        vocabulary: Vocabulary,
    },
    /// Several token files that every peer has, drawn from by weights.
    Mix {
        /// The tokenizer that all files were made with.
        vocabulary: Vocabulary,
        /// The files, 1–64, none twice.
        components: Vec<Component>,
        /// Committed tokens from which on the second weights hold: in every epoch that begins with
        /// as many.
        anneal_from: u64,
    },
}

/// Identifies a file of the run: a file with this digest and length is the same file.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Fingerprint {
    /// BLAKE3 of the whole file, whatever its format.
    pub digest: [u8; 32],
    /// The length of the file in bytes, 1–2^53.
    pub bytes: u64,
}

/// A file of a mix, and how often it is drawn from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Component {
    /// The digest and the length of the file.
    pub file: Fingerprint,
    /// How often it is drawn relative to the others, 0–1e6.
    pub weight: f64,
    /// The weight that replaces `weight` from `anneal_from` on.
    pub anneal_weight: f64,
}

impl Data {
    /// Whether a node can fetch files that it lacks: from peers, or from the organiser's address.
    #[must_use]
    pub fn is_fetched(&self) -> bool {
        self.share || self.hints.url.is_some()
    }

    /// How many different tokens the source has.
    #[must_use]
    pub fn tokens(&self) -> usize {
        match &self.source {
            Source::Synthetic { symbols, .. } => *symbols,
            Source::Text(_) => 256,
            Source::Tokens { vocabulary, .. } | Source::Mix { vocabulary, .. } => vocabulary.tokens,
        }
    }

    /// The tokenizer that the token files were made with; `None` for a source without such files.
    #[must_use]
    pub fn vocabulary(&self) -> Option<&Vocabulary> {
        match &self.source {
            Source::Synthetic { .. } | Source::Text(_) => None,
            Source::Tokens { vocabulary, .. } | Source::Mix { vocabulary, .. } => Some(vocabulary),
        }
    }

    /// Reads the table of a manifest.
    ///
    /// # Errors
    /// The first key that is missing, unknown or out of its bounds, or that does not fit another.
    pub(super) fn parse(manifest: &toml::Table) -> Result<Self, Error> {
        let fields = Fields::of::<Written>(manifest)?;
        let kind = fields.entry::<Written>("source")?.choose(Kind::NAMES)?;
        // The source decides which tokenizers there are, so it is read first.
        fields.entry::<Written>("tokenizer")?.choose(kind.forms())?;
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
                anneal_from: written.anneal_from,
            },
        };
        let hints = Hints::read(written.names, written.url, source.file_count())?;
        Ok(Self { source, held_out: written.held_out, hints, share: written.share })
    }

    /// The table as a manifest writes it. Keys of other sources keep `Written::NONE`, and do not
    /// apply.
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
                digests: parts.iter().map(|part| hex(&part.file.digest)).collect(),
                sizes: parts.iter().map(|part| part.file.bytes).collect(),
                weights: parts.iter().map(|part| part.weight).collect(),
                anneal_weights: parts.iter().map(|part| part.anneal_weight).collect(),
                anneal_from: *anneal_from,
                ..none.with(vocabulary)
            },
        }
    }
}

impl Written {
    /// The files of a mix and their weights, from four lists that name them in one order. A file
    /// that is listed twice is refused, since its share would be the sum of two weights that stand
    /// apart.
    fn components(&self) -> Result<Vec<Component>, Error> {
        let Self { digests, sizes, weights, anneal_weights, .. } = self;
        for (key, length) in [
            ("data.sizes", sizes.len()),
            ("data.weights", weights.len()),
            ("data.anneal_weights", anneal_weights.len()),
        ] {
            if length != digests.len() {
                let need =
                    format!("data.digests names {} files: write one for each", digests.len());
                return Err(Error::value(key, format!("a list of {length}"), need));
            }
        }
        if let Some(at) = (1..digests.len()).find(|at| digests[..*at].contains(&digests[*at])) {
            let need = "it stands there twice: name a file once, with a greater weight";
            return Err(Error::value("data.digests", &digests[at], need));
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

    /// The tokenizer that the token files were made with. The number of tokens bounds the token
    /// that begins a document, so the two are checked together; the tokenizer of bytes has only one
    /// pair.
    fn vocabulary(&self) -> Result<Vocabulary, Error> {
        let (tokens, bos) = (self.tokens, self.bos);
        let scheme = self.tokenizer.scheme();
        let (sizes, first) = match scheme {
            Scheme::Bytes => (257..=257, 256..=256),
            Scheme::Rwkv | Scheme::HuggingFace => (2..=1 << 20, 0..=tokens as u64 - 1),
        };
        if !sizes.contains(&tokens) {
            return Err(Error::outside("data.tokens", tokens, &sizes));
        }
        if !first.contains(&bos) {
            return Err(Error::outside("data.bos", bos, &first));
        }
        let digest = digest_of(&self.tokenizer_digest);
        // The cast is exact, since a `bos` is below 2^20.
        Ok(Vocabulary { scheme, digest, tokens, bos: bos as u32 })
    }

    /// Adds the keys of the tokenizer that the token files were made with.
    fn with(self, vocabulary: &Vocabulary) -> Self {
        let has_file = vocabulary.scheme != Scheme::Bytes;
        let tokenizer_digest = if has_file { hex(&vocabulary.digest) } else { String::new() };
        Self {
            tokenizer: Form::Of(vocabulary.scheme),
            tokenizer_digest,
            tokens: vocabulary.tokens,
            bos: vocabulary.bos.into(),
            ..self
        }
    }
}

impl Source {
    /// How many files a peer needs to train.
    #[must_use]
    pub fn file_count(&self) -> usize {
        self.files().len()
    }

    /// The files that a peer needs to train, 64 at most.
    #[must_use]
    pub fn files(&self) -> Vec<Fingerprint> {
        match self {
            Self::Synthetic { .. } => Vec::new(),
            Self::Text(file) | Self::Tokens { file, .. } => vec![*file],
            Self::Mix { components, .. } => components.iter().map(|part| part.file).collect(),
        }
    }
}

impl Scheme {
    /// Its name in a manifest, as `data.tokenizer`.
    #[must_use]
    pub fn name(self) -> &'static str {
        Form::Of(self).entry().0
    }
}

/// The kind of a source, by its name in a manifest and its number in the hash, which is never
/// reused.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Kind {
    /// A seeded Markov source, which has no file.
    Synthetic,
    /// One file of text, of which each byte is a token.
    Text,
    /// One file of tokens, made by `data tokenize`.
    Tokens,
    /// Several files of tokens, drawn from by weights.
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
    /// The tokenizers that go with this source.
    fn forms(self) -> &'static [(Form, &'static str, u64)] {
        match self {
            Self::Synthetic => &Form::NAMES[..1],
            Self::Text => &Form::NAMES[1..2],
            Self::Tokens | Self::Mix => &Form::NAMES[1..],
        }
    }
}

impl Table for Written {
    fn only(key: &str) -> Option<String> {
        let names: Vec<_> = owners(key)?.iter().map(|kind| kind.entry().0).collect();
        let with = match key {
            "tokenizer_digest" => " with a tokenizer that has a file",
            "url" => " with data.names",
            _ => "",
        };
        Some(format!("source = \"{}\"{with}", names.join("\" or \"")))
    }

    fn applies(&self, key: &str) -> bool {
        owners(key).is_none_or(|kinds| kinds.contains(&self.source))
            && match key {
                "tokenizer_digest" => self.tokenizer != Form::Of(Scheme::Bytes),
                "url" => self.names.is_some(),
                _ => true,
            }
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

/// What one token stands for, as `data.tokenizer` says it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Form {
    /// A symbol of the synthetic source.
    Symbols,
    /// What a tokenizer of documents makes.
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
    /// The tokenizer of documents; that of bytes for symbols, which have none.
    fn scheme(self) -> Scheme {
        match self {
            Self::Symbols => Scheme::Bytes,
            Self::Of(scheme) => scheme,
        }
    }
}

/// Checks that the source's table of counts, one for each string of `order` + 1 symbols, is not too
/// large: every peer makes it at its start, and a manifest is believed by all of them.
fn check_strings(symbols: usize, order: usize) -> Result<(), Error> {
    let strings = (0..=order).fold(1, |strings: usize, _| strings.saturating_mul(symbols));
    if strings <= STRINGS_MAX {
        return Ok(());
    }
    let need = format!(
        "data.symbols = {symbols} to the power of order + 1 must be at most {STRINGS_MAX}: \
         choose fewer symbols or a lower order"
    );
    Err(Error::value("data.order", order, need))
}

/// Checks that one of these weights is above 0.
fn drawn(key: &'static str, weights: &[f64]) -> Result<(), Error> {
    if weights.iter().sum::<f64>() > 0.0 {
        return Ok(());
    }
    let need = "nothing would be drawn: make one of them greater than 0";
    Err(Error::value(key, format!("{weights:?}"), need))
}

/// The most files of a mix: so many fit into a manifest along with everything else.
const FILES_MAX: usize = 64;

/// A table of 64 MiB, counted in about a second.
const STRINGS_MAX: usize = 1 << 24;
