//! Converts text to tokens and back.
//!
//! Bytes: a token is a byte, so every text has tokens. RWKV World and Hugging Face: a file defines
//! the tokens. Symbols: the synthetic source has no text, so each symbol is shown as a letter, for
//! people to look at.
//!
//! In sources of documents, one token, `bos`, begins each. A decoder holds back bytes that are not
//! yet a complete character of UTF-8.
//!
//! Every peer of a run must make the same tokens, so a tokenizer is opened by the digest of its
//! file ([`Tokenizer::of_documents`]). A special token that a text spells is encoded as text, as
//! far as the file allows it. [`Tokenizer::append_marked`] takes it for the token, as a template
//! for chats needs.

mod decoder;
mod file;
mod hugging_face;
mod rwkv;
mod unknown;

use std::path::Path;
use std::sync::Arc;

pub use self::decoder::Decoder;
pub use self::file::{FILE_BYTES_MAX, File, FileError, OpenError};
pub use self::unknown::{EncodeError, Unknown};

use crate::config::digest::hex;
use crate::config::{self, Scheme, Source, Vocabulary};
use hugging_face::HuggingFace;
use rwkv::Trie;

/// The tokenizer of a run. Clones share the large tables.
#[derive(Clone, Debug)]
pub struct Tokenizer {
    /// How it encodes, with its tables.
    kind: Kind,
    /// One more than the greatest token id.
    tokens: usize,
    /// The token that begins a document, in a source of documents.
    bos: Option<u32>,
}

impl Tokenizer {
    /// The tokenizer of a run's data; `file` is its file, if it has one.
    ///
    /// # Errors
    /// The same as those of [`Tokenizer::of_documents`].
    pub fn of(data: &config::Data, file: Option<&Path>) -> Result<Self, OpenError> {
        let kind = match &data.source {
            Source::Synthetic { .. } => Kind::Symbols,
            Source::Text(_) => Kind::Bytes,
            Source::Tokens { vocabulary, .. } | Source::Mix { vocabulary, .. } => {
                return Self::of_documents(vocabulary, file);
            }
        };
        match file {
            None => Ok(Self { kind, tokens: data.tokens(), bos: None }),
            Some(path) => Err(OpenError::NeedlessFile(path.to_owned())),
        }
    }

    /// The tokenizer that made token files; `file` is its file, if it has one.
    ///
    /// # Errors
    /// If a file is missing, not needed, unreadable, or not the one that made the token files.
    pub fn of_documents(vocabulary: &Vocabulary, file: Option<&Path>) -> Result<Self, OpenError> {
        let path = match (vocabulary.scheme, file) {
            (Scheme::Bytes, None) => return Ok(Self::bytes()),
            (Scheme::Bytes, Some(path)) => return Err(OpenError::NeedlessFile(path.to_owned())),
            (Scheme::Rwkv | Scheme::HuggingFace, Some(path)) => path.to_owned(),
            (Scheme::Rwkv | Scheme::HuggingFace, None) => {
                return Err(OpenError::NoFile(hex(&vocabulary.digest)));
            }
        };
        let file = File::open(&path)?;
        if file.digest() != vocabulary.digest {
            let (found, digest) = (hex(&file.digest()), hex(&vocabulary.digest));
            return Err(OpenError::AnotherFile { path, found, digest });
        }
        match Self::read(vocabulary.scheme, &file.bytes) {
            Ok(read) if read.tokens == vocabulary.tokens => {
                Ok(Self { bos: Some(vocabulary.bos), ..read })
            }
            Ok(read) => {
                let (found, said) = (read.tokens, vocabulary.tokens);
                Err(OpenError::Wrong { path, why: FileError::Tokens { found, said } })
            }
            Err(why) => Err(OpenError::Wrong { path, why }),
        }
    }

    /// The tokenizer of documents by bytes, in which token 256 begins each document.
    #[must_use]
    pub fn bytes() -> Self {
        let Vocabulary { tokens, bos, .. } = Vocabulary::BYTES;
        Self { kind: Kind::Bytes, tokens, bos: Some(bos) }
    }

    /// The tokenizer of documents that a file describes, including the token that begins a
    /// document. For bytes, `file` is empty.
    ///
    /// # Errors
    /// If the file has another form, or does not say which token begins a document.
    pub fn read(scheme: Scheme, file: &[u8]) -> Result<Self, FileError> {
        match scheme {
            Scheme::Bytes => Ok(Self::bytes()),
            Scheme::Rwkv => {
                let trie = Trie::parse(file)?;
                let tokens = trie.tokens();
                Ok(Self { kind: Kind::Rwkv(Arc::new(trie)), tokens, bos: Some(RWKV_BOS) })
            }
            Scheme::HuggingFace => {
                let inner = HuggingFace::parse(file)?;
                let (tokens, bos) = (inner.tokens, inner.bos());
                Ok(Self { kind: Kind::HuggingFace(Arc::new(inner)), tokens, bos })
            }
        }
    }

    /// The same tokenizer, except that the token of this name in its file begins documents.
    ///
    /// # Errors
    /// [`FileError::NoSuchToken`], always if it is not a Hugging Face file.
    pub fn beginning_with(self, name: &str) -> Result<Self, FileError> {
        match self.hugging_face().and_then(|inner| inner.id(name)) {
            Some(id) => Ok(Self { bos: Some(id), ..self }),
            None => Err(FileError::NoSuchToken(name.to_owned())),
        }
    }

    /// The same tokenizer, except that the token of this id begins documents.
    ///
    /// # Errors
    /// [`FileError::NoSuchToken`]
    pub fn beginning_with_id(self, id: u32) -> Result<Self, FileError> {
        if id as usize >= self.tokens {
            return Err(FileError::NoSuchToken(id.to_string()));
        }
        Ok(Self { bos: Some(id), ..self })
    }

    /// The number of different tokens, which is one more than the greatest id.
    #[must_use]
    pub fn tokens(&self) -> usize {
        self.tokens
    }

    /// The token that begins a document, in a source of documents.
    #[must_use]
    pub fn bos(&self) -> Option<u32> {
        self.bos
    }

    /// How it encodes a character without a token.
    #[must_use]
    pub fn unknown(&self) -> Unknown {
        self.hugging_face().map_or(Unknown::Never, |inner| inner.unknown)
    }

    /// Whether it drops this character ([`Unknown::Dropped`]).
    #[must_use]
    pub fn drops(&self, letter: char) -> bool {
        self.hugging_face().is_some_and(|inner| inner.drops(letter))
    }

    /// The tokens of `text`, with the token that begins a document before them. If there is none,
    /// an empty text becomes a line break or the first symbol, since a sample needs a first token.
    ///
    /// # Errors
    /// If a character is not a symbol or has no token.
    pub fn encode(&self, text: &str) -> Result<Vec<i32>, EncodeError> {
        let mut tokens = Vec::new();
        match (self.bos, &self.kind) {
            (Some(bos), _) => tokens.push(bos),
            (None, Kind::Symbols) if text.is_empty() => tokens.push(0),
            (None, Kind::HuggingFace(inner)) if text.is_empty() => {
                tokens.push(inner.line_break().unwrap_or_default());
            }
            (None, _) if text.is_empty() => tokens.push(u32::from(b'\n')),
            (None, _) => {}
        }
        self.append(text, &mut tokens)?;
        Ok(tokens.into_iter().map(|token| token as i32).collect())
    }

    /// Appends the tokens of `text`, and nothing else.
    ///
    /// # Errors
    /// If a character is not a symbol or has no token.
    pub fn append(&self, text: &str, tokens: &mut Vec<u32>) -> Result<(), EncodeError> {
        match &self.kind {
            Kind::Bytes => tokens.extend(text.bytes().map(u32::from)),
            Kind::Rwkv(trie) => trie.encode(text.as_bytes(), tokens),
            Kind::HuggingFace(inner) => inner.encode(text, tokens)?,
            Kind::Symbols => {
                for letter in text.chars() {
                    tokens.push(self.symbol(letter)?);
                }
            }
        }
        Ok(())
    }

    /// Appends the tokens of a text that was cut after a line break and continues here, without
    /// those that the tokenizer adds at the begin of a text.
    ///
    /// # Errors
    /// If a character is not a symbol or has no token.
    pub fn append_on(&self, text: &str, tokens: &mut Vec<u32>) -> Result<(), EncodeError> {
        match self.hugging_face() {
            Some(inner) => inner.encode_on(text, tokens),
            None => self.append(text, tokens),
        }
    }

    /// Appends the tokens of a text in which the special tokens of a Hugging Face file stand for
    /// themselves, such as the marks of a template for chats.
    ///
    /// # Errors
    /// If a character is not a symbol or has no token.
    pub fn append_marked(&self, text: &str, tokens: &mut Vec<u32>) -> Result<(), EncodeError> {
        match self.hugging_face() {
            Some(inner) => inner.encode_marked(text, tokens),
            None => self.append(text, tokens),
        }
    }

    /// The first special token that the text spells, if [`append_marked`](Self::append_marked)
    /// would take it for one.
    #[must_use]
    pub fn mark_in(&self, text: &str) -> Option<&str> {
        self.hugging_face()?.mark_in(text)
    }

    /// The bytes of text that these tokens represent; `None` for symbols, which are not text.
    #[must_use]
    pub fn text_bytes(&self, tokens: &[i32]) -> Option<usize> {
        let texts = || tokens.iter().filter_map(|token| self.text_token(*token));
        match &self.kind {
            Kind::Symbols => None,
            Kind::Bytes => Some(texts().count()),
            Kind::Rwkv(trie) => Some(texts().map(|id| trie.decode(id as usize).len()).sum()),
            Kind::HuggingFace(inner) => {
                // A decoder may take the space before the first word of a document.
                let begins = |token: &i32| self.bos.is_some_and(|bos| bos as i32 == *token);
                let bytes = |document: &[i32]| {
                    let ids = document.iter().filter_map(|token| self.text_token(*token));
                    inner.decode(&ids.collect::<Vec<_>>()).len()
                };
                Some(tokens.split(begins).map(bytes).sum())
            }
        }
    }

    /// A decoder at the begin of a text.
    #[must_use]
    pub fn decoder(&self) -> Decoder {
        Decoder::new(self.clone())
    }

    /// A decoder that continues after these tokens, whose text is known already.
    #[must_use]
    pub fn decoder_behind(&self, tokens: &[i32]) -> Decoder {
        let mut decoder = self.decoder();
        tokens.iter().for_each(|token| drop(decoder.push(*token)));
        decoder
    }

    /// The tables of a Hugging Face file; `None` if another kind of tokenizer encodes.
    fn hugging_face(&self) -> Option<&HuggingFace> {
        match &self.kind {
            Kind::HuggingFace(inner) => Some(inner),
            Kind::Symbols | Kind::Bytes | Kind::Rwkv(_) => None,
        }
    }

    /// The token as an id, if it exists and represents text.
    fn text_token(&self, token: i32) -> Option<u32> {
        let id = u32::try_from(token).ok().filter(|id| (*id as usize) < self.tokens)?;
        (Some(id) != self.bos).then_some(id)
    }

    /// The symbol that a letter shows.
    fn symbol(&self, letter: char) -> Result<u32, EncodeError> {
        let letters = || letters().take(self.tokens);
        let symbol = letters().position(|known| known == letter).map(|symbol| symbol as u32);
        symbol.ok_or_else(|| {
            let first = letters().next().unwrap_or_default();
            EncodeError::NoSymbol { letter, first, last: letters().last().unwrap_or(first) }
        })
    }
}

/// How text becomes tokens, by the source and the scheme.
#[derive(Clone, Debug)]
enum Kind {
    /// One token for each of a few letters.
    Symbols,
    /// One token for each byte of the text.
    Bytes,
    /// The longest entry of a vocabulary at each place.
    Rwkv(Arc<Trie>),
    /// What a `tokenizer.json` says, read and applied by the library.
    HuggingFace(Arc<HuggingFace>),
}

/// 256 letters that a terminal can show: a–z, A–Z, 0–9, then Latin letters from U+0100.
fn letters() -> impl Iterator<Item = char> {
    ('a'..='z').chain('A'..='Z').chain('0'..='9').chain('\u{100}'..='\u{1c1}')
}

/// RWKV's models are trained with token 0 between documents.
const RWKV_BOS: u32 = 0;

#[cfg(test)]
mod tests;
