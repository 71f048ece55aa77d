//! Any tokenizer that a Hugging Face `tokenizer.json` describes, through the crate `tokenizers`.
//!
//! The file defines everything: normalising, splitting, model, decoder. Two of its settings are
//! switched off: truncation and padding. Special tokens that a text spells are encoded as text,
//! unless the model has them among its own pieces, as a Unigram does; therefore `data tokenize`
//! removes the token that begins documents from all texts.
//!
//! Many files put a space before every text. A text that continues another one is encoded after a
//! line break, whose tokens are then removed together with the space.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;

use serde::Deserialize;
use serde_json::Value;
use tokenizers::Tokenizer;

use super::file::FileError;
use super::unknown::{EncodeError, Unknown};

/// A tokenizer as its file defines it.
#[derive(Debug)]
pub(super) struct HuggingFace {
    /// The library's tokenizer, without truncation and padding.
    inner: Tokenizer,
    /// The same, except that special tokens in a text stand for themselves; made when it is needed.
    marked: OnceLock<Tokenizer>,
    /// One more than the greatest id.
    pub(super) tokens: usize,
    /// The tokens of a line break as a whole text; empty if it has none.
    line_break: Vec<u32>,
    /// What becomes of a character that the file has no token for.
    pub(super) unknown: Unknown,
    /// The special tokens, the longest first.
    marks: Vec<(String, u32)>,
    /// The letters with which they begin.
    begins: Vec<char>,
}

/// The parts of the file that name the token of unknown text, and how tokens become text.
#[derive(Deserialize)]
struct Outline {
    /// The object `model` of the file, of which two keys are read.
    model: Model,
    /// The object `decoder`; null where the file has none, and tokens are joined by spaces.
    #[serde(default)]
    decoder: Value,
}

/// The two keys by which a file names that token: by its text, or by its id.
#[derive(Deserialize)]
struct Model {
    /// The text of the token, as WordPiece, WordLevel and BPE have it.
    unk_token: Option<String>,
    /// The id of the token, as Unigram has it.
    unk_id: Option<u32>,
}

impl HuggingFace {
    /// Reads a `tokenizer.json` as the library does.
    ///
    /// # Errors
    /// If it does not parse, or has no tokens or too many.
    pub(super) fn parse(file: &[u8]) -> Result<Self, FileError> {
        let wrong = |why: tokenizers::Error| FileError::NoTokenizer(why.to_string());
        let mut inner = Tokenizer::from_bytes(file).map_err(wrong)?;
        inner.with_truncation(None).map_err(wrong)?;
        inner.with_padding(None);
        inner.set_encode_special_tokens(true);
        // Ids may have gaps, so the count of entries is not enough.
        let last = inner.get_vocab(true).into_values().max();
        let last = last.ok_or_else(|| FileError::NoTokenizer("it has no token".into()))?;
        if last >= TOKENS_MAX {
            let why = format!("it has the token {last}: at most {TOKENS_MAX} are supported");
            return Err(FileError::NoTokenizer(why));
        }
        let alone = inner.encode_fast("\n", false);
        let line_break = alone.map_or_else(|_| Vec::new(), |alone| alone.get_ids().to_vec());
        let tokens = last as usize + 1;
        let added = inner.get_added_tokens_decoder().into_iter();
        let special = added.filter(|(_, token)| token.special && !token.content.is_empty());
        let mut marks: Vec<(String, u32)> =
            special.map(|(id, token)| (token.content, id)).collect();
        marks.sort_by(|a, b| b.0.len().cmp(&a.0.len()).then(a.1.cmp(&b.1)));
        let mut begins: Vec<char> =
            marks.iter().flat_map(|(mark, _)| mark.chars().next()).collect();
        begins.sort_unstable();
        begins.dedup();
        let unknown = Unknown::Never;
        let marked = OnceLock::new();
        let mut read = Self { inner, marked, tokens, line_break, unknown, marks, begins };
        read.unknown = read.find_unknown(file)?;
        Ok(read)
    }

    /// Finds out what happens to unknown text: the file names a token for it, or every byte has a
    /// token, or it is dropped.
    fn find_unknown(&self, file: &[u8]) -> Result<Unknown, FileError> {
        let outline: Outline =
            serde_json::from_slice(file).map_err(|why| FileError::NoTokenizer(why.to_string()))?;
        if strips_ends(&outline.decoder) {
            let why = "its decoder strips the ends of tokens, which is not supported".into();
            return Err(FileError::NoTokenizer(why));
        }
        let Model { unk_token, unk_id } = outline.model;
        let token = unk_token.and_then(|name| self.id(&name)).or(unk_id);
        Ok(match token {
            Some(token) => Unknown::Token(token),
            // Two characters that are in no vocabulary: encoded as bytes they would differ.
            None if self.alone(STRANGE) == self.alone('\u{10fffc}') => Unknown::Dropped,
            None => Unknown::Never,
        })
    }

    /// Whether a character is encoded as nothing, or as a character that is in no vocabulary.
    pub(super) fn drops(&self, letter: char) -> bool {
        let alone = self.alone(letter);
        alone.is_empty() || alone == self.alone(STRANGE)
    }

    /// The ids of a single character; empty if it is refused.
    fn alone(&self, letter: char) -> Vec<u32> {
        let mut ids = Vec::new();
        // The error is reported when a document contains the character.
        let _ = self.encode(letter.encode_utf8(&mut [0; 4]), &mut ids);
        ids
    }

    /// The id of the token with this text.
    pub(super) fn id(&self, token: &str) -> Option<u32> {
        self.inner.token_to_id(token)
    }

    /// The token that begins a document: the one that the file itself puts before a text, else one
    /// with a usual name.
    pub(super) fn bos(&self) -> Option<u32> {
        // The library panics if the file begins texts with a token that it does not have.
        let empty = || self.inner.encode_fast("", true);
        let empty = catch_unwind(AssertUnwindSafe(empty)).ok()?.ok();
        let first = empty.and_then(|encoding| encoding.get_ids().first().copied());
        let first = first.filter(|first| (*first as usize) < self.tokens);
        first.or_else(|| USUAL.iter().find_map(|name| self.id(name)))
    }

    /// Appends the ids of `text`, without any special token.
    ///
    /// # Errors
    /// If the model has neither a token for some part of the text nor an unknown token.
    pub(super) fn encode(&self, text: &str, ids: &mut Vec<u32>) -> Result<(), EncodeError> {
        append(&self.inner, text, ids)
    }

    /// The last token of a line break, if there is one.
    pub(super) fn line_break(&self) -> Option<u32> {
        self.line_break.last().copied()
    }

    /// Appends the ids of `text`, which continues after a line break.
    ///
    /// # Errors
    /// The same as those of [`HuggingFace::encode`].
    pub(super) fn encode_on(&self, text: &str, ids: &mut Vec<u32>) -> Result<(), EncodeError> {
        let mut all = Vec::new();
        if !self.line_break.is_empty() {
            self.encode(&format!("\n{text}"), &mut all)?;
        }
        match all.strip_prefix(self.line_break.as_slice()) {
            Some(rest) if !all.is_empty() => ids.extend_from_slice(rest),
            // A line break has no separate tokens, at least not before this text.
            _ => self.encode(text, ids)?,
        }
        Ok(())
    }

    /// Appends the ids of `text`, in which special tokens stand for themselves.
    ///
    /// # Errors
    /// The same as those of [`HuggingFace::encode`].
    pub(super) fn encode_marked(&self, text: &str, ids: &mut Vec<u32>) -> Result<(), EncodeError> {
        // Only the whole text shows what begins it, and which spaces belong to a special token.
        let marked = self.marked.get_or_init(|| {
            let mut marked = self.inner.clone();
            marked.set_encode_special_tokens(false);
            marked
        });
        append(marked, text, ids)
    }

    /// The first special token that the text spells; of several there the longest.
    pub(super) fn mark_in(&self, text: &str) -> Option<&str> {
        let places = text.char_indices().filter(|(_, letter)| self.begins.contains(letter));
        places.map(|(at, _)| at).find_map(|at| {
            let here = |(mark, _): &&(String, u32)| text[at..].starts_with(mark.as_str());
            self.marks.iter().find(here).map(|(mark, _)| mark.as_str())
        })
    }

    /// The text of consecutive tokens; unknown ids add nothing.
    pub(super) fn decode(&self, ids: &[u32]) -> String {
        self.inner.decode(ids, false).unwrap_or_default()
    }
}

/// Appends the ids of a text to those before it.
fn append(inner: &Tokenizer, text: &str, ids: &mut Vec<u32>) -> Result<(), EncodeError> {
    let encoding = inner.encode_fast(text, false);
    let encoding = encoding.map_err(|why| EncodeError::Refused(why.to_string()))?;
    ids.extend_from_slice(encoding.get_ids());
    Ok(())
}

/// Whether a decoder, or one inside it, takes letters from the end of tokens. The library panics where a token has fewer.
fn strips_ends(decoder: &Value) -> bool {
    let inner = decoder["decoders"].as_array();
    decoder["stop"].as_u64().is_some_and(|stop| stop > 0)
        || inner.is_some_and(|inner| inner.iter().any(strips_ends))
}

/// A private-use character, which no vocabulary has.
const STRANGE: char = '\u{10fffd}';

/// The most different tokens that a manifest allows.
const TOKENS_MAX: u32 = 1 << 20;

/// Names of this token in files without a post-processor: Llama 3, Llama 2, Gemma, GPT-2 and its
/// successors.
const USUAL: [&str; 4] = ["<|begin_of_text|>", "<s>", "<bos>", "<|endoftext|>"];
