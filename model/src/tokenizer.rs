//! Text to tokens and back.
//!
//! Bytes: a token is a byte, so every text has tokens, and a decoder holds back what is not yet a
//! whole character of UTF-8. Symbols: the synthetic source has no text; so that a person can look at
//! it, each symbol has a letter of its own.

use thiserror::Error;

use crate::config;

/// How a run's text becomes tokens.
#[derive(Clone, Copy, Debug)]
pub struct Tokenizer {
    kind: config::Tokenizer,
    count: usize,
}

/// Tokens back to text, as they come.
#[derive(Debug)]
pub struct Decoder {
    tokenizer: Tokenizer,
    /// Bytes that may be the begin of a character.
    pending: Vec<u8>,
}

/// Why a text has no tokens.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
pub enum EncodeError {
    /// The synthetic source has no such symbol.
    #[error("{letter:?} is no symbol of this run: they are {first} to {last}")]
    NoSymbol {
        /// As written.
        letter: char,
        /// The first symbol's letter.
        first: char,
        /// The last symbol's letter.
        last: char,
    },
}

impl Tokenizer {
    /// The tokenizer of a run's data.
    #[must_use]
    pub fn new(data: &config::Data) -> Self {
        Self { kind: data.tokenizer, count: data.tokens() }
    }

    /// The tokens of `text`. An empty one is a line break, or the first symbol, so that there is
    /// something to go on from.
    ///
    /// # Errors
    /// A letter that is no symbol.
    pub fn encode(&self, text: &str) -> Result<Vec<i32>, EncodeError> {
        match self.kind {
            config::Tokenizer::Bytes if text.is_empty() => Ok(vec![i32::from(b'\n')]),
            config::Tokenizer::Bytes => Ok(text.bytes().map(i32::from).collect()),
            config::Tokenizer::Symbols if text.is_empty() => Ok(vec![0]),
            config::Tokenizer::Symbols => text.chars().map(|letter| self.symbol(letter)).collect(),
        }
    }

    /// How many bytes of text these tokens are; none where tokens are no text.
    #[must_use]
    pub fn text_bytes(&self, tokens: &[i32]) -> Option<usize> {
        match self.kind {
            config::Tokenizer::Symbols => None,
            config::Tokenizer::Bytes => Some(tokens.len()),
        }
    }

    /// A decoder at the begin of a text.
    #[must_use]
    pub fn decoder(&self) -> Decoder {
        Decoder { tokenizer: *self, pending: Vec::new() }
    }

    fn symbol(&self, letter: char) -> Result<i32, EncodeError> {
        let mut letters = letters().take(self.count);
        match letters.position(|known| known == letter) {
            Some(symbol) => Ok(symbol as i32),
            None => {
                let mut letters = self::letters().take(self.count);
                let first = letters.next().unwrap_or_default();
                let last = letters.last().unwrap_or(first);
                Err(EncodeError::NoSymbol { letter, first, last })
            }
        }
    }
}

impl Decoder {
    /// The text that `token` completes: often one character, sometimes none yet. What is no token
    /// or no UTF-8 becomes U+FFFD.
    pub fn push(&mut self, token: i32) -> String {
        let place = usize::try_from(token).ok().filter(|place| *place < self.tokenizer.count);
        match self.tokenizer.kind {
            config::Tokenizer::Symbols => {
                let letter = place.and_then(|place| letters().nth(place));
                letter.unwrap_or(char::REPLACEMENT_CHARACTER).to_string()
            }
            config::Tokenizer::Bytes => match u8::try_from(token) {
                Ok(byte) => {
                    self.pending.push(byte);
                    self.whole_characters()
                }
                Err(_) => self.finish() + "\u{fffd}",
            },
        }
    }

    /// What was held back, at the end of the text.
    pub fn finish(&mut self) -> String {
        let pending = std::mem::take(&mut self.pending);
        String::from_utf8_lossy(&pending).into_owned()
    }

    /// Everything but what may be the begin of a character.
    fn whole_characters(&mut self) -> String {
        let held_back = self.pending.utf8_chunks().last().map_or(0, |last| {
            let end = last.invalid();
            let begun = str::from_utf8(end).is_err_and(|error| error.error_len().is_none());
            if begun { end.len() } else { 0 }
        });
        let held_back = self.pending.split_off(self.pending.len() - held_back);
        let text = self.finish();
        self.pending = held_back;
        text
    }
}

/// 256 letters that a terminal can show: a–z, A–Z, 0–9, then Latin ones from U+0100.
fn letters() -> impl Iterator<Item = char> {
    ('a'..='z').chain('A'..='Z').chain('0'..='9').chain('\u{100}'..='\u{1c1}')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::config::Work;

    fn bytes() -> Tokenizer {
        Tokenizer::new(&Work::text([0; 32], 1).data)
    }

    fn symbols(count: usize) -> Tokenizer {
        Tokenizer { kind: config::Tokenizer::Symbols, count }
    }

    fn decode(tokenizer: &Tokenizer, tokens: &[i32]) -> String {
        let mut decoder = tokenizer.decoder();
        let mut text: String = tokens.iter().map(|token| decoder.push(*token)).collect();
        text += &decoder.finish();
        text
    }

    #[test]
    fn a_character_comes_when_it_is_whole() {
        let mut decoder = bytes().decoder();
        let parts: Vec<_> = "aé€".bytes().map(|byte| decoder.push(i32::from(byte))).collect();
        assert_eq!(parts, ["a", "", "é", "", "", "€"]);
        assert_eq!(decoder.finish(), "");
    }

    #[test]
    fn what_is_no_text_is_marked() {
        assert_eq!(decode(&bytes(), &[0xff, 0x61]), "\u{fffd}a");
        assert_eq!(decode(&bytes(), &[0xe2, 0x82]), "\u{fffd}");
        // A character that breaks off, and what follows it.
        assert_eq!(decode(&bytes(), &[0xe2, 0x61]), "\u{fffd}a");
        assert_eq!(decode(&bytes(), &[256, -1, 0x61]), "\u{fffd}\u{fffd}a");
        assert_eq!(decode(&symbols(3), &[2, 3, -1]), "c\u{fffd}\u{fffd}");
    }

    #[test]
    fn symbols_have_letters_of_their_own() {
        let all: Vec<_> = (0..256).collect();
        let text = decode(&symbols(256), &all);
        assert_eq!(text.chars().count(), 256);
        assert!(text.chars().all(char::is_alphanumeric));
        assert_eq!(symbols(256).encode(&text), Ok(all));
        let told = symbols(30).encode("aE").map_err(|error| error.to_string());
        assert_eq!(told, Err("'E' is no symbol of this run: they are a to D".to_owned()));
    }

    #[test]
    fn nothing_is_a_line_break_or_the_first_symbol() {
        assert_eq!(bytes().encode(""), Ok(vec![10]));
        assert_eq!(symbols(5).encode(""), Ok(vec![0]));
    }

    proptest! {
        #[test]
        fn text_comes_back(text in ".{1,40}") {
            let tokens = bytes().encode(&text).expect("bytes");
            prop_assert_eq!(decode(&bytes(), &tokens), text);
        }

        /// As text comes it is what it would be at once.
        #[test]
        fn any_bytes_become_what_std_makes_of_them(all: Vec<u8>) {
            let tokens: Vec<_> = all.iter().map(|byte| i32::from(*byte)).collect();
            prop_assert_eq!(decode(&bytes(), &tokens), String::from_utf8_lossy(&all));
        }
    }
}
