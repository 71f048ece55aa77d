//! Converts a stream of tokens back to text.
//!
//! If tokens are bytes, a character may need several, and bytes that may begin a character are held
//! back. In a Hugging Face file the text of a token may depend on the tokens before it (a space at
//! the beginning, bytes spread over tokens). Then a few tokens are decoded both without and with
//! the new one, and the difference is shown. Only tokens since the last complete character are
//! kept, so a text may be arbitrarily long.

use super::{Kind, Tokenizer, letters};

/// Converts a stream of tokens to text, token by token.
#[derive(Debug)]
pub struct Decoder {
    /// What made the tokens, with its tables.
    tokenizer: Tokenizer,
    /// Bytes that may begin a character.
    pending: Vec<u8>,
    /// The newest tokens that were shown, followed by those that were not.
    window: Vec<u32>,
    /// How many tokens of the window were shown.
    shown: usize,
}

impl Decoder {
    /// A decoder before the first token.
    pub(super) fn new(tokenizer: Tokenizer) -> Self {
        Self { tokenizer, pending: Vec::new(), window: Vec::new(), shown: 0 }
    }

    /// The text that `token` completes, which may be empty. The token that begins a document
    /// becomes a line break; unknown tokens and bytes that are not UTF-8 become U+FFFD.
    pub fn push(&mut self, token: i32) -> String {
        let Some(id) = self.tokenizer.text_token(token) else {
            let is_bos = u32::try_from(token).ok().is_some_and(|id| self.tokenizer.bos == Some(id));
            return self.finish() + if is_bos { "\n" } else { "\u{fffd}" };
        };
        match &self.tokenizer.kind {
            Kind::Symbols => {
                let letter = letters().nth(id as usize);
                letter.unwrap_or(char::REPLACEMENT_CHARACTER).to_string()
            }
            Kind::Bytes => {
                self.pending.extend(u8::try_from(id));
                self.whole_characters()
            }
            Kind::Rwkv(trie) => {
                let bytes = trie.decode(id as usize);
                if bytes.is_empty() {
                    return self.finish() + "\u{fffd}";
                }
                self.pending.extend_from_slice(bytes);
                self.whole_characters()
            }
            Kind::HuggingFace(_) => {
                self.window.push(id);
                self.difference()
            }
        }
    }

    /// Ends the text, and returns what was held back.
    pub fn finish(&mut self) -> String {
        let pending = std::mem::take(&mut self.pending);
        let text = String::from_utf8_lossy(&pending).into_owned() + &self.unshown();
        self.window.clear();
        self.shown = 0;
        text
    }

    /// Returns all pending bytes except those that may begin a character.
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

    /// The text that the window's new tokens add, unless they end within a character.
    fn difference(&mut self) -> String {
        let text = self.unshown();
        if text.is_empty() || text.ends_with('\u{fffd}') {
            if self.window.len() - self.shown < HELD_BACK_MAX {
                return String::new();
            }
            if !text.is_empty() {
                return self.finish();
            }
            // These tokens will never become text.
            self.window.truncate(self.shown);
            return text;
        }
        // The tokens that were shown before are not needed any more.
        self.window.drain(..self.shown);
        self.shown = self.window.len();
        text
    }

    /// The text of the tokens that were not shown, as it reads after those that were.
    fn unshown(&self) -> String {
        let Some(inner) = self.tokenizer.hugging_face() else { return String::new() };
        let before = inner.decode(&self.window[..self.shown]);
        let whole = inner.decode(&self.window);
        whole.get(before.len()..).unwrap_or_default().to_owned()
    }
}

/// A character takes at most four tokens, but each of them may end one and begin the next, and some
/// add no text.
const HELD_BACK_MAX: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Scheme;

    /// Ids may have gaps; a token in a gap adds no text, however often it comes.
    #[test]
    fn tokens_without_text_are_not_kept() {
        let file = r#"{"version": "1.0", "pre_tokenizer": {"type": "Whitespace"},
            "model": {"type": "WordLevel", "unk_token": "a", "vocab": {"a": 0, "b": 9}}}"#;
        let tokenizer = Tokenizer::read(Scheme::HuggingFace, file.as_bytes()).expect("a tokenizer");
        let mut decoder = tokenizer.decoder();
        assert_eq!(decoder.push(0), "a");
        for token in [5; 100] {
            assert_eq!(decoder.push(token), "");
            assert!(decoder.window.len() <= 1 + HELD_BACK_MAX, "{:?}", decoder.window);
        }
        assert_eq!(decoder.push(9), " b");
    }

    /// Llama 2 spells unknown text byte by byte, after a space that is not shown. Bytes that never
    /// become a character are marked, and the text continues.
    #[test]
    fn a_character_of_many_tokens_is_held_back_until_it_is_whole() {
        let file = r#"{"version": "1.0",
            "decoder": {"type": "Sequence", "decoders": [
                {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
                {"type": "ByteFallback"}, {"type": "Fuse"},
                {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
            "model": {"type": "BPE", "merges": [], "vocab": {"▁": 0, "a": 1,
                "<0xF0>": 2, "<0x9F>": 3, "<0x98>": 4, "<0x80>": 5}}}"#;
        let tokenizer = Tokenizer::read(Scheme::HuggingFace, file.as_bytes()).expect("a tokenizer");
        let mut decoder = tokenizer.decoder();
        let parts = [0, 2, 3, 4, 5, 0, 1].map(|token| decoder.push(token));
        assert_eq!(parts.concat(), "😀 a");
        assert_eq!(parts[4], "😀");
        let marked: String = [3; 40].into_iter().map(|token| decoder.push(token)).collect();
        assert!(decoder.window.len() <= HELD_BACK_MAX, "{:?}", decoder.window);
        let all = marked + &decoder.finish() + &decoder.push(1);
        assert_eq!(all, "\u{fffd}".repeat(40) + "a");
    }
}
