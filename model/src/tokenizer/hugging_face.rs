//! Any tokenizer that a Hugging Face `tokenizer.json` describes, through the crate `tokenizers`.
//!
//! The file says everything: normalising, splitting, model, decoder. Two of its settings are not
//! ours and are switched off: cutting a text off at a length, and filling it up to one. Special tokens
//! that a text spells are text, but where the model has them among its own pieces, as a Unigram does:
//! `data tokenize` leaves the begin of a document out of all texts.
//!
//! Many files put a space before every text. A text that goes on where another one was cut off is read
//! behind a line break, whose tokens are then left out with the space.

use tokenizers::Tokenizer;

use super::{EncodeError, FileError};

/// A tokenizer as its file says.
#[derive(Debug)]
pub(super) struct HuggingFace {
    inner: Tokenizer,
    tokens: usize,
    /// The tokens of a line break alone, with what is added at the begin; none if it has none.
    line_break: Vec<u32>,
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
        Ok(Self { inner, tokens: last as usize + 1, line_break })
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

/// As many different tokens a manifest may have.
const TOKENS_MAX: u32 = 1 << 20;

/// What files without a post-processor call it: Llama 3, Llama 2, Gemma, GPT-2 and its heirs.
const USUAL: [&str; 4] = ["<|begin_of_text|>", "<s>", "<bos>", "<|endoftext|>"];
