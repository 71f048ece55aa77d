//! Any tokenizer that a Hugging Face `tokenizer.json` describes, through the crate `tokenizers`.
//!
//! The file says everything: normalising, splitting, model, decoder. Two of its settings are not
//! ours and are switched off: cutting a text off at a length, and filling it up to one. Special
//! tokens that a text spells are text, but where the model has them among its own pieces, as a
//! Unigram does: `data tokenize` leaves the begin of a document out of all texts.
//!
//! Many files put a space before every text. A text that goes on where another one was cut off is
//! read behind a line break, whose tokens are then left out with the space.

use serde::Deserialize;
use tokenizers::Tokenizer;

use super::file::FileError;
use super::unknown::{EncodeError, Unknown};

/// A tokenizer as its file says.
#[derive(Debug)]
pub(super) struct HuggingFace {
    inner: Tokenizer,
    tokens: usize,
    /// The tokens of a line break alone, with what is added at the begin; none if it has none.
    line_break: Vec<u32>,
    unknown: Unknown,
}

/// The part of the file that says what becomes of the unknown.
#[derive(Deserialize)]
struct Outline {
    model: Model,
}

#[derive(Deserialize)]
struct Model {
    unk_token: Option<String>,
    unk_id: Option<u32>,
}

impl HuggingFace {
    /// Reads a `tokenizer.json`.
    ///
    /// # Errors
    /// If it is none, or one without tokens.
    pub(super) fn parse(file: &[u8]) -> Result<Self, FileError> {
        let wrong = |why: tokenizers::Error| FileError::NoTokenizer { why: why.to_string() };
        let mut inner = Tokenizer::from_bytes(file).map_err(wrong)?;
        inner.with_truncation(None).map_err(wrong)?;
        inner.with_padding(None);
        inner.set_encode_special_tokens(true);
        // Ids may have gaps.
        let last = inner.get_vocab(true).into_values().max();
        let last = last.ok_or_else(|| FileError::NoTokenizer { why: "it has no token".into() })?;
        if last >= TOKENS_MAX {
            let why = format!("it has the token {last}: at most {TOKENS_MAX} are supported");
            return Err(FileError::NoTokenizer { why });
        }
        let alone = inner.encode_fast("\n", false);
        let line_break = alone.map_or_else(|_| Vec::new(), |alone| alone.get_ids().to_vec());
        let tokens = last as usize + 1;
        let mut read = Self { inner, tokens, line_break, unknown: Unknown::Never };
        read.unknown = read.find_unknown(file)?;
        Ok(read)
    }

    /// What becomes of the unknown: it has a token, which the file names, or bytes have, or it is
    /// dropped.
    fn find_unknown(&self, file: &[u8]) -> Result<Unknown, FileError> {
        let outline: Outline = serde_json::from_slice(file)
            .map_err(|why| FileError::NoTokenizer { why: why.to_string() })?;
        let Model { unk_token, unk_id } = outline.model;
        let token = unk_token.and_then(|name| self.id(&name)).or(unk_id);
        Ok(match token {
            Some(token) => Unknown::Token(token),
            // Two letters of no vocabulary: as bytes they differ.
            None if self.alone(STRANGE) == self.alone('\u{10fffc}') => Unknown::Dropped,
            None => Unknown::Never,
        })
    }

    /// What becomes of a letter that the file does not know.
    pub(super) fn unknown(&self) -> Unknown {
        self.unknown
    }

    /// Whether a letter leaves no trace, as one does that is in no vocabulary.
    pub(super) fn drops(&self, letter: char) -> bool {
        let alone = self.alone(letter);
        alone.is_empty() || alone == self.alone(STRANGE)
    }

    /// The ids of a letter; none where it is refused.
    fn alone(&self, letter: char) -> Vec<u32> {
        let mut ids = Vec::new();
        // It is told where a document has it.
        let _ = self.encode(letter.encode_utf8(&mut [0; 4]), &mut ids);
        ids
    }

    /// One more than the greatest id.
    pub(super) fn tokens(&self) -> usize {
        self.tokens
    }

    /// The id of the token that is written so.
    pub(super) fn id(&self, token: &str) -> Option<u32> {
        self.inner.token_to_id(token)
    }

    /// The token that begins a document: the one that the file itself puts before a text, else a
    /// usual name that it knows.
    pub(super) fn bos(&self) -> Option<u32> {
        // The library believes that a file which begins texts with a token has it.
        let empty = || self.inner.encode_fast("", true);
        let empty = std::panic::catch_unwind(std::panic::AssertUnwindSafe(empty)).ok()?.ok();
        let first = empty.and_then(|encoding| encoding.get_ids().first().copied());
        let first = first.filter(|first| (*first as usize) < self.tokens);
        first.or_else(|| USUAL.iter().find_map(|name| self.id(name)))
    }

    /// Appends the ids of `text`.
    ///
    /// # Errors
    /// If the model of the file has no token for something and none for what is unknown.
    pub(super) fn encode(&self, text: &str, ids: &mut Vec<u32>) -> Result<(), EncodeError> {
        let encoding = self.inner.encode_fast(text, false);
        let encoding = encoding.map_err(|why| EncodeError::Refused { why: why.to_string() })?;
        ids.extend_from_slice(encoding.get_ids());
        Ok(())
    }

    /// Appends the ids of `text`, which goes on behind a line break.
    ///
    /// # Errors
    /// Those of [`HuggingFace::encode`].
    pub(super) fn encode_on(&self, text: &str, ids: &mut Vec<u32>) -> Result<(), EncodeError> {
        let mut all = Vec::new();
        if !self.line_break.is_empty() {
            self.encode(&format!("\n{text}"), &mut all)?;
        }
        match all.strip_prefix(self.line_break.as_slice()) {
            Some(rest) if !all.is_empty() => ids.extend_from_slice(rest),
            // A line break has no tokens of its own, or not before this text.
            _ => self.encode(text, ids)?,
        }
        Ok(())
    }

    /// The text of tokens that follow one another; what is no token adds nothing.
    pub(super) fn decode(&self, ids: &[u32]) -> String {
        self.inner.decode(ids, false).unwrap_or_default()
    }
}

/// For private use: no vocabulary has it.
const STRANGE: char = '\u{10fffd}';

/// A manifest may have as many different tokens.
const TOKENS_MAX: u32 = 1 << 20;

/// What files without a post-processor call it: Llama 3, Llama 2, Gemma, GPT-2 and its heirs.
const USUAL: [&str; 4] = ["<|begin_of_text|>", "<s>", "<bos>", "<|endoftext|>"];
