//! Any text or token file as something to measure a model on, whether or not a run knows it.
//!
//! It is cut into consecutive rows of `context` tokens, of which the last may be shorter. Every
//! token but the first of the file is the target of one of them. A measurement on a part of the
//! file takes rows that are spread evenly over it. A text is turned into tokens as one document.

use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use thiserror::Error;

use super::documents::sink::{self, ReadError};
use super::entropy::Entropies;
use super::error::DataError;
use super::text::expect_plain;
use super::tokens::{self, Counts, Scanned};
use crate::config::Vocabulary;
use crate::tokenizer::{EncodeError, Tokenizer};

/// What a model can read, and how text becomes it.
#[derive(Clone, Copy, Debug)]
pub struct Reads<'a> {
    /// Turns a text into the model's tokens.
    pub tokenizer: &'a Tokenizer,
    /// The tokenizer of the token files that it can read; `None` if it reads none.
    pub vocabulary: Option<Vocabulary>,
    /// V, the number of tokens that the model knows.
    pub vocab: usize,
}

/// An open text or token file, ready to be read.
#[derive(Debug)]
pub struct Corpus {
    /// Where its tokens are, and how they are read.
    kind: Kind,
    /// The number of its tokens, at least 2.
    count: u64,
    /// What guesses without a model cost on this file.
    entropies: Entropies,
    /// The token that begins a document, at which rows are cut.
    bos: Option<i32>,
    /// The bytes of the file, if it is a text.
    text_bytes: Option<u64>,
}

/// Why a file cannot be measured on.
#[derive(Debug, Error)]
pub enum CorpusError {
    /// The file cannot be read, or is damaged.
    #[error(transparent)]
    Data(#[from] DataError),
    /// The token file and the model have different tokenizers.
    #[error(
        "{0} was made with another tokenizer than the model's: make it anew from its documents, with \
         `intellect-node data tokenize` and the model's tokenizer"
    )]
    AnotherTokenizer(PathBuf),
    /// The text would take too much memory.
    #[error(
        "{} has more than {} MiB of text: measure on a part of it, or make a token file of it with \
         `intellect-node data tokenize`",
        .0.display(), TEXT_BYTES_MAX >> 20
    )]
    TooLarge(PathBuf),
    /// The text has bytes that are not UTF-8.
    #[error("{path}: byte {at} is not UTF-8: convert the text, as with `iconv -t UTF-8`")]
    NotText {
        /// The file, by the path that was given.
        path: PathBuf,
        /// Index of the first byte that is wrong, counted from 0.
        at: usize,
    },
    /// The text has a character without a token.
    #[error("{path}: {why}")]
    Encode {
        /// The file, by the path that was given.
        path: PathBuf,
        /// The character that has no token.
        why: EncodeError,
    },
    /// The tokenizer has more tokens than the model.
    #[error(
        "{path} has the token {token}, and the model has {vocab}: name the model's own tokenizer"
    )]
    Unknown {
        /// The file, by the path that was given.
        path: PathBuf,
        /// A token that the model does not have.
        token: i32,
        /// How many tokens the model has.
        vocab: usize,
    },
    /// The file has no token that follows another.
    #[error("{path} has nothing to predict: it has {count} tokens; name a longer file")]
    Short {
        /// The file, by the path that was given.
        path: PathBuf,
        /// How many tokens there are in it.
        count: u64,
    },
}

impl Corpus {
    /// Opens a token file, if it begins like one, else a text.
    ///
    /// # Errors
    /// Any of [`CorpusError`].
    pub fn open(path: &Path, reads: Reads<'_>) -> Result<Self, CorpusError> {
        let open = if tokens::is_meant(path)? { Self::of_tokens } else { Self::of_text };
        let corpus = open(path, reads)?;
        if corpus.count < 2 {
            return Err(CorpusError::Short { path: path.to_owned(), count: corpus.count });
        }
        Ok(corpus)
    }

    /// The number of tokens of the whole file.
    #[must_use]
    pub fn tokens(&self) -> u64 {
        self.count
    }

    /// What losses on this file are to be compared with.
    #[must_use]
    pub fn entropies(&self) -> Entropies {
        self.entropies
    }

    /// The token that begins a document, if there is one.
    #[must_use]
    pub fn bos(&self) -> Option<i32> {
        self.bos
    }

    /// The bytes of the whole file, if it is a text.
    #[must_use]
    pub fn text_bytes(&self) -> Option<u64> {
        self.text_bytes
    }

    /// Rows of at most `context` tokens with the token after each, together at least `tokens` long
    /// or the whole file.
    pub fn rows(
        &self,
        context: usize,
        tokens: u64,
    ) -> impl Iterator<Item = Result<Vec<i32>, DataError>> {
        let context = context as u64;
        let all = (self.count - 1).div_ceil(context);
        let wanted = tokens.div_ceil(context).clamp(1, all);
        (0..wanted).map(move |index| {
            // Below `all`, since `index` is below `wanted`.
            let row = u128::from(index) * u128::from(all) / u128::from(wanted);
            let start = u64::try_from(row).unwrap_or(u64::MAX) * context;
            let length = (self.count - start).min(context + 1);
            match &self.kind {
                Kind::File(file) => file.read(start, length as usize),
                Kind::Listed(list) => Ok(list[start as usize..][..length as usize].to_vec()),
            }
        })
    }

    /// Opens a token file, which must have been made by the model's own tokenizer.
    fn of_tokens(path: &Path, reads: Reads<'_>) -> Result<Self, CorpusError> {
        let file = tokens::scan(path)?;
        let header = file.header;
        let fits = |own: Vocabulary| {
            let found = header.vocabulary;
            (own.scheme, own.digest) == (found.scheme, found.digest) && found.tokens <= reads.vocab
        };
        if !reads.vocabulary.is_some_and(fits) {
            return Err(CorpusError::AnotherTokenizer(path.to_owned()));
        }
        Ok(Self {
            count: header.count,
            entropies: file.entropies,
            bos: Some(file.bos()),
            text_bytes: None,
            kind: Kind::File(Box::new(file)),
        })
    }

    /// Makes tokens of a text, in memory.
    fn of_text(path: &Path, reads: Reads<'_>) -> Result<Self, CorpusError> {
        expect_plain(path)?;
        let text = text(path)?;
        let encoded = reads.tokenizer.encode(&text);
        let list = encoded.map_err(|why| CorpusError::Encode { path: path.to_owned(), why })?;
        let vocab = reads.vocab;
        if let Some(token) = list.iter().copied().find(|token| *token as usize >= vocab) {
            return Err(CorpusError::Unknown { path: path.to_owned(), token, vocab });
        }
        let mut counts = Counts::new(reads.vocab);
        list.iter().for_each(|token| counts.add(*token as usize));
        Ok(Self {
            count: if text.is_empty() { 0 } else { list.len() as u64 },
            entropies: counts.entropies(),
            bos: reads.tokenizer.bos().map(|bos| bos as i32),
            text_bytes: Some(text.len() as u64),
            kind: Kind::Listed(list),
        })
    }
}

/// How the tokens of a corpus are held.
#[derive(Debug)]
enum Kind {
    /// A token file, whose rows are read when they are needed.
    File(Box<Scanned>),
    /// The tokens of a text, all in memory.
    Listed(Vec<i32>),
}

/// The text in a file, if it is one and not too large.
fn text(path: &Path) -> Result<String, CorpusError> {
    let unreadable = |source| DataError::from(ReadError::unreadable(path)(source));
    let file: fs::File = sink::open(path).map_err(DataError::from)?;
    let mut bytes = Vec::new();
    file.take(TEXT_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() as u64 > TEXT_BYTES_MAX {
        return Err(CorpusError::TooLarge(path.to_owned()));
    }
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        CorpusError::NotText { path: path.to_owned(), at }
    })
}

/// The longest text that is turned into tokens in memory, where a tokenizer takes up to thirty times as much: a guess.
const TEXT_BYTES_MAX: u64 = 1 << 26;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::tokens::writer::Writer;

    fn open(name: &str, bytes: &[u8], vocab: usize) -> Result<Corpus, CorpusError> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        fs::write(&path, bytes).unwrap();
        let tokenizer = Tokenizer::bytes();
        let vocabulary = Some(Vocabulary::BYTES);
        Corpus::open(&path, Reads { tokenizer: &tokenizer, vocabulary, vocab })
    }

    fn rows(corpus: &Corpus, context: usize, tokens: u64) -> Vec<Vec<i32>> {
        corpus.rows(context, tokens).map(Result::unwrap).collect()
    }

    #[test]
    fn every_token_but_the_first_is_a_target_once() {
        let corpus = open("a.txt", b"abcdefghij", 257).unwrap();
        assert_eq!((corpus.tokens(), corpus.text_bytes(), corpus.bos()), (11, Some(10), Some(256)));
        for context in [1, 3, 4, 10, 64] {
            let rows = rows(&corpus, context, u64::MAX);
            let targets: Vec<i32> = rows.iter().flat_map(|row| row[1..].to_vec()).collect();
            assert_eq!(targets, (97..107).collect::<Vec<_>>(), "{context}");
            assert!(rows.iter().all(|row| row.len() <= context + 1));
        }
        // One row of three tokens at the begin, and one in the middle.
        assert_eq!(rows(&corpus, 3, 4), [vec![256, 97, 98, 99], vec![102, 103, 104, 105]]);
    }

    #[test]
    fn a_token_file_is_read_as_the_text_it_was_made_of() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.tokens");
        let mut writer = Writer::create(&path, Vocabulary::BYTES).unwrap();
        for text in ["abc", "de"] {
            writer.begin().unwrap();
            writer
                .tokens(&text.bytes().map(u32::from).collect::<Vec<_>>(), text.len() as u64)
                .unwrap();
        }
        writer.finish([0; 32]).unwrap();
        let tokenizer = Tokenizer::bytes();
        let reads =
            Reads { tokenizer: &tokenizer, vocabulary: Some(Vocabulary::BYTES), vocab: 257 };
        let corpus = Corpus::open(&path, reads).unwrap();
        assert_eq!(rows(&corpus, 64, 1), [vec![256, 97, 98, 99, 256, 100, 101]]);
        let other = Vocabulary { digest: [1; 32], ..Vocabulary::BYTES };
        for reads in [
            Reads { vocabulary: None, ..reads },
            Reads { vocabulary: Some(other), ..reads },
            Reads { vocab: 256, ..reads },
        ] {
            let refused = Corpus::open(&path, reads).unwrap_err();
            assert!(matches!(refused, CorpusError::AnotherTokenizer(_)), "{refused}");
        }
    }

    #[test]
    fn what_is_no_text_is_refused_with_a_remedy() {
        for (name, bytes, words) in [
            ("a.txt", &b""[..], "longer file"),
            ("a.txt", b"ab\xffc", "byte 2 is not UTF-8"),
            ("a.jsonl", b"{\"text\": \"a\"}", "data tokenize"),
        ] {
            let refused = open(name, bytes, 257).unwrap_err().to_string();
            assert!(refused.contains(words), "{refused}");
        }
        assert!(matches!(open("a.txt", b"abc", 97), Err(CorpusError::Unknown { token: 256, .. })));
    }
}
