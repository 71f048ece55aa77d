//! One line of an events file as this crate reads it: the keys that it shows, and no others.
//!
//! Unknown events and keys are skipped, so that a file of a newer program can be looked at. A text keeps
//! [`TEXT_BYTES`], a list [`LIST_MAX`] entries; a line that is no JSON of an event is no record.

#![allow(missing_docs, reason = "docs/FORMATS.md says what each key means")]

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, de};

/// One event, with what every line has.
#[derive(Clone, Debug, Deserialize)]
pub struct Record {
    #[serde(flatten)]
    pub event: Event,
    pub t_ms: u64,
    pub peer: Text,
    pub run: Option<Text>,
    pub epoch: Option<u64>,
}

impl Record {
    /// Reads a line; nothing if it is cut, foreign or damaged.
    pub fn parse(line: &[u8]) -> Option<Self> {
        serde_json::from_slice(line).ok()
    }
}

/// What happened. Only events and keys that something shows are here.
#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum Event {
    Started {
        version: Text,
        device: Text,
        micro_batch: u64,
        parameters: u64,
    },
    Listening {
        addresses: List<Text>,
    },
    Path {
        step: Text,
        who: Option<Text>,
        error: Option<Text>,
    },
    Reachability {
        state: Text,
    },
    Waiting {
        reason: Text,
        #[serde(default)]
        text: Text,
        cure: Text,
    },
    Woke {
        slept_ms: u64,
    },
    PeerFound {
        who: Text,
        direct: bool,
    },
    PeerLost {
        who: Text,
        cause: Text,
    },
    Member(Box<Member>),
    Strangers {
        count: u64,
    },
    Manifest {
        name: Text,
        organiser: Text,
        /// A file of an older program has none.
        parameters: Option<u64>,
    },
    Sync {
        from_epoch: u64,
        to_epoch: u64,
        have_bytes: u64,
        want_bytes: u64,
        rate: Option<f64>,
    },
    Data {
        have_bytes: u64,
        want_bytes: u64,
        rate: Option<f64>,
    },
    CaughtUp {},
    Ready {
        tokens: u64,
        loss: Option<f64>,
    },
    Roster {
        attempt: u64,
        members: List<Text>,
    },
    Regroup {
        number: u64,
        members: List<Text>,
        absent: List<Text>,
    },
    Ring(Box<Ring>),
    Committed(Box<Commit>),
    Evaluated {
        loss: Option<f64>,
        floor: Option<f64>,
        excess: Option<f64>,
    },
    Aborted {
        attempt: u64,
        phase: Text,
        reason: Text,
    },
    LeftOut {
        carried_tokens: u64,
    },
    Diverged {
        who: Text,
    },
    Fork {
        first_epoch: u64,
        undone: u64,
        held: bool,
    },
    ForkExcluded {
        first_epoch: u64,
    },
    Attested {
        number: u64,
    },
    Admitted {
        who: Text,
    },
    Revoked {
        who: Text,
    },
    Fault {
        who: Text,
        why: Text,
    },
    Disk {
        error: Text,
    },
    Stuck {
        attempts: u64,
    },
    Incompatible {
        who: Text,
        version: Text,
    },
    Refused {
        who: Text,
        why: Text,
    },
    DuplicateIdentity {
        who: Text,
    },
    Leaving {},
    Stopped {
        code: i64,
    },
    /// An event that nothing here shows, or of a newer program.
    #[serde(other)]
    Other,
}

/// An epoch that is decided and applied.
#[derive(Clone, Debug, Deserialize)]
pub struct Commit {
    pub attempt: u64,
    pub members: List<Text>,
    pub weights: List<u64>,
    pub state: Text,
    pub tokens: u64,
    pub loss: Option<f64>,
    pub sync_ms: u64,
    pub sent_bytes: u64,
    pub received_bytes: u64,
    pub forkable_since: Option<u64>,
    pub train_ms: Option<u64>,
    pub wait_ready_ms: Option<u64>,
    pub ring_ms: Option<u64>,
    pub vote_ms: Option<u64>,
    pub apply_ms: Option<u64>,
}

/// Where another peer is, and the way to it.
#[derive(Clone, Debug, Deserialize)]
pub struct Member {
    pub who: Text,
    pub head: u64,
    pub phase: Text,
    pub ready: u64,
    pub rtt_ms: Option<u64>,
    pub send_rate: Option<u64>,
    pub link: Option<Text>,
    /// A file of an older program has none.
    pub loss: Option<f64>,
}

/// A ring that has computed its update, as this node saw it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Ring {
    pub position: u64,
    pub of: u64,
    pub to: Text,
    pub took_ms: u64,
    pub sent_bytes: u64,
    pub received_bytes: u64,
}

/// A text of a stranger: at most [`TEXT_BYTES`], without control characters and marks of direction.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct Text(String);

impl Text {
    /// The text with what could harm a terminal or a page replaced, and the rest cut off.
    pub fn new(text: &str) -> Self {
        let mut kept = String::new();
        for c in text.chars() {
            let turns = matches!(c, '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
                | '\u{2066}'..='\u{2069}' | '\u{feff}');
            let c = if turns || c.is_control() { char::REPLACEMENT_CHARACTER } else { c };
            if kept.len() + c.len_utf8() > TEXT_BYTES {
                break;
            }
            kept.push(c);
        }
        kept.shrink_to_fit();
        Self(kept)
    }

    /// The text, which may be shown anywhere.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The last six characters, by which peers are told apart: the first ones of all ids are equal.
    pub fn short(&self) -> &str {
        let from = self.0.char_indices().rev().nth(5).map_or(0, |(at, _)| at);
        &self.0[from..]
    }
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = Text;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Text, E> {
                Ok(Text::new(text))
            }
        }
        deserializer.deserialize_str(Visitor)
    }
}

/// The first [`LIST_MAX`] entries of a list.
#[derive(Clone, Debug, Default)]
pub struct List<T>(pub Vec<T>);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for List<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor<T>(Vec<T>);
        impl<'de, T: Deserialize<'de>> de::Visitor<'de> for Visitor<T> {
            type Value = List<T>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list")
            }
            fn visit_seq<A: de::SeqAccess<'de>>(mut self, mut seq: A) -> Result<List<T>, A::Error> {
                while self.0.len() < LIST_MAX {
                    let Some(entry) = seq.next_element()? else { return Ok(List(self.0)) };
                    self.0.push(entry);
                }
                while seq.next_element::<de::IgnoredAny>()?.is_some() {}
                Ok(List(self.0))
            }
        }
        deserializer.deserialize_seq(Visitor(Vec::new()))
    }
}

/// Bytes of a text that are kept; the longest sentence of a node has about 300.
pub const TEXT_BYTES: usize = 512;
/// Entries of a list that are kept: as many as a roster has members.
pub const LIST_MAX: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_a_newer_program_is_read_and_a_damaged_one_is_none() {
        let line = r#"{"event":"ready","tokens":7,"loss":null,"news":{"a":[1]},"t_ms":5,"peer":"p","run":null,"epoch":3}"#;
        let record = Record::parse(line.as_bytes()).unwrap();
        assert!(matches!(record.event, Event::Ready { tokens: 7, loss: None }));
        assert_eq!((record.t_ms, record.epoch), (5, Some(3)));
        let other = r#"{"event":"novel","x":1,"t_ms":5,"peer":"p","run":"r"}"#;
        assert!(matches!(Record::parse(other.as_bytes()).unwrap().event, Event::Other));
        assert!(matches!(
            Record::parse(br#"{"event":"leaving","t_ms":5,"peer":"p","run":"r"}"#).unwrap().event,
            Event::Leaving {}
        ));
        for cut in 0..line.len() {
            assert!(Record::parse(&line.as_bytes()[..cut]).is_none(), "{cut}");
        }
        for foreign in ["", "{}", "[]", "GET / HTTP/1.1", r#"{"event":7,"t_ms":1,"peer":"p"}"#] {
            assert!(Record::parse(foreign.as_bytes()).is_none(), "{foreign}");
        }
    }

    #[test]
    fn texts_and_lists_of_strangers_have_bounds() {
        let long = Text::new(&"é".repeat(40_000));
        assert_eq!(long.as_str().len(), TEXT_BYTES);
        assert_eq!(Text::new("a\u{202e}b\u{1b}[2Jc\n").as_str(), "a\u{fffd}b\u{fffd}[2Jc\u{fffd}");
        assert_eq!((Text::new("12345é7").short(), Text::new("ab").short()), ("2345é7", "ab"));
        let many: Vec<u32> = (0..1_000).collect();
        let list: List<u32> = serde_json::from_str(&serde_json::to_string(&many).unwrap()).unwrap();
        assert_eq!(list.0, (0..256).collect::<Vec<u32>>());
    }
}
