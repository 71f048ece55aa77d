//! The sentences of a program whose terminal shows a screen: the newest ones, which the screen
//! lists.
//!
//! Without it they would be written into the screen. Writers push from any thread, the screen reads
//! when it draws, and after the screen the last ones are printed to the terminal.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{SystemTime, UNIX_EPOCH},
};

use crate::{picture::shorten, record::Text};

/// The newest [`SAID_MAX`] sentences, for one writer or several and the screen. Clones share one
/// list.
#[derive(Clone, Debug, Default)]
pub struct Said(Arc<Mutex<List>>);

/// What all clones of a [`Said`] share.
#[derive(Debug, Default)]
struct List {
    /// The sentences that are kept, the oldest first.
    newest: VecDeque<Sentence>,
    /// How many sentences have come in all, by which the screen sees that it has to draw.
    count: u64,
}

/// A sentence and when it was said, in Unix milliseconds.
#[derive(Clone, Debug)]
pub(super) struct Sentence {
    /// When it was said, in Unix milliseconds.
    pub(super) t_ms: u64,
    /// What the program meant by it, which gives the colour.
    pub(super) kind: Kind,
    /// The sentence without colours and control characters.
    pub(super) text: Text,
}

/// Whether a sentence is a good one to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The program says what it does.
    News,
    /// The program says what goes wrong.
    Warning,
}

impl Said {
    /// Adds a sentence, of which colours and what could move a cursor are taken away. Its time is
    /// that of this call.
    pub fn push(&self, kind: Kind, sentence: &str) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let t_ms = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
        let text = Text::new(&plain(sentence.trim_end()));
        let mut list = self.lock();
        list.newest.push_back(Sentence { t_ms, kind, text });
        shorten(&mut list.newest, SAID_MAX);
        list.count += 1;
    }

    /// The last sentences, at most `most`, the oldest of them first. They are for the terminal that
    /// the screen has left.
    pub fn last(&self, most: usize) -> Vec<String> {
        let list = self.lock();
        let from = list.newest.len().saturating_sub(most);
        list.newest.range(from..).map(|sentence| sentence.text.to_string()).collect()
    }

    /// At most `most` sentences, the newest first.
    pub(super) fn newest_first(&self, most: usize) -> Vec<Sentence> {
        self.lock().newest.iter().rev().take(most).cloned().collect()
    }

    /// How many sentences have come so far, those that were dropped included.
    pub(super) fn count(&self) -> u64 {
        self.lock().count
    }

    /// The list, also after a writer has panicked: a sentence is there or not.
    fn lock(&self) -> MutexGuard<'_, List> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The text on one line, without the marks of colours (`ESC [ … m`). Other escape sequences lose
/// their ESC, and the rest of them is shown as text.
fn plain(text: &str) -> String {
    let mut parts = text.split('\x1b');
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let colour = part.strip_prefix('[').and_then(|rest| rest.split_once('m'));
        let is_colour = |code: &str| code.bytes().all(|b| b.is_ascii_digit() || b == b';');
        plain += match colour {
            Some((code, rest)) if is_colour(code) => rest,
            Some(_) | None => part,
        };
    }
    plain.replace('\n', "; ")
}

/// Sentences that are kept: more than a terminal has rows.
const SAID_MAX: usize = 200;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_sentences_are_kept_on_a_line_each_and_without_colours() {
        let said = Said::default();
        for n in 0..1_000 {
            said.push(Kind::News, &format!("sentence {n}"));
        }
        said.push(
            Kind::Warning,
            "\x1b[2m12:00\x1b[0m \x1b[33mWARN\x1b[0m two\nlines \x1b[2J\x1b\n",
        );
        assert_eq!((said.count(), said.newest_first(usize::MAX).len()), (1_001, SAID_MAX));
        assert_eq!(said.last(2), ["sentence 999", "12:00 WARN two; lines [2J"]);
        assert_eq!(said.newest_first(1)[0].kind, Kind::Warning);
    }
}
