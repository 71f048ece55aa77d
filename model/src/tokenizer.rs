//! Text to tokens and back.
//!
//! Bytes: a token is a byte, so every text has tokens. RWKV World and Hugging Face: a file says
//! what the tokens are. Symbols: the synthetic source has no text; so that a person can look at it,
//! each symbol has a letter of its own.
//!
//! Where documents follow one another, one token, `bos`, begins each. A decoder holds back what is
//! not yet a whole character of UTF-8.

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

/// How a run's text becomes tokens. A copy shares what is large.
#[derive(Clone, Debug)]
pub struct Tokenizer {
    kind: Kind,
    /// One more than the greatest token.
    tokens: usize,
    /// What begins a document, where there are documents.
    bos: Option<u32>,
}

impl Tokenizer {
    /// The tokenizer of a run's data; `file` is its file, where it has one.
    ///
    /// # Errors
    /// Those of [`Tokenizer::of_documents`].
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

    /// The tokenizer that token files were made with; `file` is its file, where it has one.
    ///
    /// # Errors
    /// If a file is needed, needless, unreadable, or another one than it was.
    pub fn of_documents(vocabulary: &Vocabulary, file: Option<&Path>) -> Result<Self, OpenError> {
        let path = match (vocabulary.scheme, file) {
            (Scheme::Bytes, None) => return Ok(Self::bytes()),
            (Scheme::Bytes, Some(path)) => return Err(OpenError::NeedlessFile(path.to_owned())),
            (Scheme::Rwkv | Scheme::HuggingFace, Some(path)) => path.to_owned(),
            (Scheme::Rwkv | Scheme::HuggingFace, None) => {
                return Err(OpenError::NoFile { digest: hex(&vocabulary.digest) });
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

    /// The tokenizer of documents that are bytes: token 256 begins each.
    #[must_use]
    pub fn bytes() -> Self {
        let Vocabulary { tokens, bos, .. } = Vocabulary::BYTES;
        Self { kind: Kind::Bytes, tokens, bos: Some(bos) }
    }

    /// The tokenizer of documents that a file describes; the file also says which token begins a
    /// document. For bytes, `file` is empty.
    ///
    /// # Errors
    /// If the file is of another form, or does not say what begins a document.
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
                let (tokens, bos) = (inner.tokens(), inner.bos());
                Ok(Self { kind: Kind::HuggingFace(Arc::new(inner)), tokens, bos })
            }
        }
    }

    /// The same tokenizer, but with documents that begin with the token of this name in its file.
    ///
    /// # Errors
    /// [`FileError::NoSuchToken`], of any but a Hugging Face file.
    pub fn beginning_with(self, name: &str) -> Result<Self, FileError> {
        let id = match &self.kind {
            Kind::HuggingFace(inner) => inner.id(name),
            Kind::Symbols | Kind::Bytes | Kind::Rwkv(_) => None,
        };
        match id {
            Some(id) => Ok(Self { bos: Some(id), ..self }),
            None => Err(FileError::NoSuchToken { name: name.to_owned() }),
        }
    }

    /// How many different tokens there are: one more than the greatest.
    #[must_use]
    pub fn tokens(&self) -> usize {
        self.tokens
    }

    /// The token that begins a document, where there are documents.
    #[must_use]
    pub fn bos(&self) -> Option<u32> {
        self.bos
    }

    /// What becomes of a letter that it does not know.
    #[must_use]
    pub fn unknown(&self) -> Unknown {
        match &self.kind {
            Kind::HuggingFace(inner) => inner.unknown(),
            Kind::Symbols | Kind::Bytes | Kind::Rwkv(_) => Unknown::Never,
        }
    }

    /// Whether a letter is dropped, where some are.
    #[must_use]
    pub fn drops(&self, letter: char) -> bool {
        match &self.kind {
            Kind::HuggingFace(inner) => inner.drops(letter),
            Kind::Symbols | Kind::Bytes | Kind::Rwkv(_) => false,
        }
    }

    /// The tokens of `text`, with what begins a document before them. Where nothing does, an empty
    /// text is a line break, or the first symbol, so that there is something to go on from.
    ///
    /// # Errors
    /// A letter that is no symbol, or something without a token.
    pub fn encode(&self, text: &str) -> Result<Vec<i32>, EncodeError> {
        let mut tokens = Vec::new();
        match (self.bos, &self.kind) {
            (Some(bos), _) => tokens.push(bos),
            (None, Kind::Symbols) if text.is_empty() => tokens.push(0),
            (None, _) if text.is_empty() => tokens.push(u32::from(b'\n')),
            (None, _) => {}
        }
        self.append(text, &mut tokens)?;
        Ok(tokens.into_iter().map(|token| token as i32).collect())
    }

    /// Appends the tokens of `text`, and nothing else.
    ///
    /// # Errors
    /// A letter that is no symbol, or something without a token.
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

    /// Appends the tokens of a text that goes on behind a line break, where it was cut off: what
    /// the tokenizer adds at the begin of a text is not among them.
    ///
    /// # Errors
    /// A letter that is no symbol, or something without a token.
    pub fn append_on(&self, text: &str, tokens: &mut Vec<u32>) -> Result<(), EncodeError> {
        match &self.kind {
            Kind::HuggingFace(inner) => inner.encode_on(text, tokens),
            Kind::Symbols | Kind::Bytes | Kind::Rwkv(_) => self.append(text, tokens),
        }
    }

    /// How many bytes of text these tokens are; none where tokens are no text.
    #[must_use]
    pub fn text_bytes(&self, tokens: &[i32]) -> Option<usize> {
        let texts = || tokens.iter().filter_map(|token| self.text_token(*token));
        match &self.kind {
            Kind::Symbols => None,
            Kind::Bytes => Some(texts().count()),
            Kind::Rwkv(trie) => Some(texts().map(|id| trie.decode(id as usize).len()).sum()),
            Kind::HuggingFace(inner) => Some(inner.decode(&texts().collect::<Vec<_>>()).len()),
        }
    }

    /// A decoder at the begin of a text.
    #[must_use]
    pub fn decoder(&self) -> Decoder {
        Decoder::new(self.clone())
    }

    /// A decoder that goes on after these tokens, whose text is known.
    #[must_use]
    pub fn decoder_behind(&self, tokens: &[i32]) -> Decoder {
        let mut decoder = self.decoder();
        tokens.iter().for_each(|token| drop(decoder.push(*token)));
        decoder
    }

    /// The token as an id, if it is one and stands for text.
    fn text_token(&self, token: i32) -> Option<u32> {
        let id = u32::try_from(token).ok().filter(|id| (*id as usize) < self.tokens)?;
        (Some(id) != self.bos).then_some(id)
    }

    fn symbol(&self, letter: char) -> Result<u32, EncodeError> {
        let letters = || letters().take(self.tokens);
        let symbol = letters().position(|known| known == letter).map(|symbol| symbol as u32);
        symbol.ok_or_else(|| {
            let first = letters().next().unwrap_or_default();
            EncodeError::NoSymbol { letter, first, last: letters().last().unwrap_or(first) }
        })
    }
}

#[derive(Clone, Debug)]
enum Kind {
    Symbols,
    Bytes,
    Rwkv(Arc<Trie>),
    HuggingFace(Arc<HuggingFace>),
}

/// 256 letters that a terminal can show: a–z, A–Z, 0–9, then Latin ones from U+0100.
fn letters() -> impl Iterator<Item = char> {
    ('a'..='z').chain('A'..='Z').chain('0'..='9').chain('\u{100}'..='\u{1c1}')
}

/// RWKV's models are trained with 0 between documents.
const RWKV_BOS: u32 = 0;

#[cfg(test)]
mod tests;
