//! One line of an events file as this crate reads it: the keys that it shows, and no others.
//!
//! Unknown events and keys are skipped, so that a file of a newer program can be looked at. A text keeps
//! [`TEXT_BYTES`], a list [`LIST_MAX`] entries; a line that is no JSON of an event is no record.

#![allow(missing_docs, reason = "docs/FORMATS.md says what each key means")]

mod tagged;

use std::{borrow::Cow, fmt, sync::Arc};

use serde::{Deserialize, Deserializer, Serialize, de};

/// One event, with the keys that every line has.
#[derive(Clone, Debug)]
pub struct Record {
    /// The object's own keys, told apart by the key `event`.
    pub event: Event,
    /// Unix milliseconds by the writer's clock. Clocks of several writers need not agree.
    pub t_ms: u64,
    /// The id of the peer that wrote the line.
    pub peer: Text,
    /// The id of the run in hexadecimal digits; `null` in a file until a run is chosen.
    pub run: Option<Text>,
    /// The epoch that the event is about; many events have none.
    pub epoch: Option<u64>,
}

impl Record {
    /// Reads a line; `None` if it is cut, foreign or damaged.
    ///
    /// An unknown event is [`Event::Other`], and an unknown key is skipped. A known event that
    /// lacks a key which is not optional here, or has another type in it, is no record. So a key
    /// that a newer node adds to an event has to be an `Option` here, or older files cannot be read
    /// any more.
    pub fn parse(line: &[u8]) -> Option<Self> {
        let Head { event, t_ms, peer, run, epoch } = serde_json::from_slice(line).ok()?;
        let event = Event::deserialize(tagged::Body { event: &event, line }).ok()?;
        Some(Self { event, t_ms, peer, run, epoch })
    }
}

/// The keys that every line has. The event names the other ones.
#[derive(Deserialize)]
struct Head<'a> {
    #[serde(borrow)]
    event: Cow<'a, str>,
    t_ms: u64,
    peer: Text,
    run: Option<Text>,
    epoch: Option<u64>,
}

/// What happened. Only events and keys that something shows are here.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Event {
    /// The node has its manifest and device, and begins to take part. `epoch` is there if it goes
    /// on from a state on its disk.
    Started {
        /// The version of the program, as `--version` prints it.
        version: Text,
        /// The device that trains, in the form of `--device`.
        device: Text,
        /// Sequences that the model takes at a time.
        micro_batch: u64,
        /// The number of the model's parameters.
        parameters: u64,
        /// Committed tokens of the state that it goes on from. A file of an older program has none.
        tokens: Option<u64>,
    },
    /// Others can dial this node at these addresses. A page that other machines can reach leaves
    /// them out.
    Listening {
        /// Each with its real port, and the peer at its end.
        addresses: List<Text>,
    },
    /// One step of the way between this node and others.
    Path {
        /// What was done, such as `punched` or `reserved`.
        step: Text,
        /// The peer at the other end of the step, if there is one.
        who: Option<Text>,
        /// What went wrong; `None` if the step succeeded.
        error: Option<Text>,
    },
    /// What is known of whether others can dial this node has changed.
    Reachability {
        /// `local`, `unknown`, `open`, `relayed` or `closed`.
        state: Text,
        /// Where they can, if the state is `open`.
        #[serde(default)]
        addresses: List<Text>,
    },
    /// The node does not get on, for the reason that it names.
    Waiting {
        /// A word of the table in docs/FORMATS.md. Readers compare it, and show it only where
        /// `text` is empty.
        reason: Text,
        /// The reason as a sentence without a full stop. Files of older programs have none.
        #[serde(default)]
        text: Text,
        /// What a person can do about it, or why nothing has to be done.
        cure: Text,
    },
    /// The process did not run for more than 2 s: it was stopped, or the machine slept.
    Woke {
        /// The length of the pause in milliseconds.
        slept_ms: u64,
    },
    /// Another peer counts as present.
    PeerFound {
        who: Text,
        /// Whether the connection to it is direct, and not through a relay.
        direct: bool,
    },
    /// A peer counts as absent, after a `PeerFound`.
    PeerLost {
        who: Text,
        /// `silent`, `left` or `closed`.
        cause: Text,
    },
    /// What another peer says of itself: at most once in 10 s for each peer that was found, and
    /// twice a second in all.
    Member(Box<Member>),
    /// Keys that have no part in the run were heard, more of them than are named one by one.
    Strangers {
        /// How many came within a minute.
        count: u64,
    },
    /// The settings of the run are verified.
    Manifest(Box<Settings>),
    /// A later state is being fetched. The bytes are those of the fetch so far, and of all of it.
    Sync {
        /// The epoch of the node's own state.
        from_epoch: u64,
        /// The epoch of the state that is fetched.
        to_epoch: u64,
        /// Bytes that were fetched and verified so far.
        have_bytes: u64,
        /// The size of the whole state.
        want_bytes: u64,
        /// Bytes a second; `None` where the rate is no finite number.
        rate: Option<f64>,
    },
    /// A file of training data is being fetched. It ends with `have_bytes` equal to `want_bytes`.
    Data {
        have_bytes: u64,
        want_bytes: u64,
        /// Bytes a second; `None` where the rate is no finite number.
        rate: Option<f64>,
    },
    /// The fetched state is complete and verified, and now the node's own.
    CaughtUp {
        /// Committed tokens of that state. A file of an older program has none.
        tokens: Option<u64>,
    },
    /// This node's delta is frozen: its work of the epoch.
    Ready {
        /// The weight of the delta in the average: the tokens it was trained on.
        tokens: u64,
        /// The mean training loss over them, in nats per token.
        loss: Option<f64>,
    },
    /// An attempt's roster is accepted.
    Roster {
        /// The attempt within the epoch, counted from 1.
        attempt: u64,
        /// The members of the roster, in the order of the ring.
        members: List<Text>,
        /// The weight of each; 0 without a position in the ring.
        #[serde(default)]
        weights: List<u64>,
    },
    /// The voters of a new series, and the voters of the old one that are not among them.
    Regroup {
        /// Its number among the Regroups of the series that is left, counted from 1.
        number: u64,
        members: List<Text>,
        absent: List<Text>,
    },
    /// The numbers of a ring that gave this node its update.
    Ring(Box<Ring>),
    /// An epoch is decided and applied. An epoch that the node catches up with has no such line.
    Committed(Box<Commit>),
    /// A simulation has measured a state on held-out data, in nats per token.
    Evaluated {
        loss: Option<f64>,
        /// The entropy of a synthetic source: no model has a smaller loss. Real data has none.
        floor: Option<f64>,
        /// The mean divergence of the model from a synthetic source.
        excess: Option<f64>,
        /// The standard error of the loss. A file of an older program has neither this nor the next two.
        error: Option<f64>,
        /// The loss of the best guess without a look at any token.
        unigram: Option<f64>,
        /// The loss of the best guess from the last token.
        bigram: Option<f64>,
    },
    /// An attempt ended without a decision; the next one may follow in the same epoch.
    Aborted {
        /// The attempt within the epoch, counted from 1.
        attempt: u64,
        /// The phase in which it ended.
        phase: Text,
        /// Why it ended, in words of the node.
        reason: Text,
    },
    /// The epoch was committed without this node's delta.
    LeftOut {
        /// The tokens of the work that this node keeps for its next delta.
        carried_tokens: u64,
    },
    /// Equal receipts gave another state: software or memory is broken.
    Diverged {
        /// The peer whose state differs.
        who: Text,
        /// The digest of this node's own state.
        mine: Option<Text>,
    },
    /// Two lineages of the run met.
    Fork {
        /// The first epoch in which they differ.
        first_epoch: u64,
        /// How many epochs this node takes back.
        undone: u64,
        /// Whether a person has to decide which lineage this node follows.
        held: bool,
    },
    /// No second lineage is possible any more: no majority of voters is unseen.
    ForkExcluded {
        /// The epoch since which a fork was possible.
        first_epoch: u64,
    },
    /// The organiser attests the state after `epoch`; a lineage without it is not followed.
    Attested {
        /// The number of the notice that attests it.
        number: u64,
    },
    /// A run of invited peers has let in another one.
    Admitted {
        /// The peer, which takes part from the receipt of `epoch` on.
        who: Text,
    },
    /// The organiser has removed a peer by a notice.
    Revoked {
        /// The peer, which has no part from the receipt of `epoch` on.
        who: Text,
    },
    /// A peer did what no honest peer does, and is dropped.
    Fault {
        who: Text,
        /// What the peer did, in words.
        why: Text,
    },
    /// A file could not be read or written.
    Disk {
        /// What went wrong, in words of the node.
        error: Text,
    },
    /// The epoch has had more attempts than any healthy epoch has.
    Stuck {
        /// How many attempts the epoch has had.
        attempts: u64,
    },
    /// A peer speaks another major version, which is not its fault.
    Incompatible {
        who: Text,
        /// The version that the peer speaks.
        version: Text,
    },
    /// A peer came to a run of invited peers, and is not let in.
    Refused {
        who: Text,
        /// The reason as a sentence, as the refused peer learns it too.
        why: Text,
    },
    /// Two programs run with copies of one key.
    DuplicateIdentity {
        /// The peer whose key it is. If that is the writer itself, it ends with an error.
        who: Text,
    },
    /// This node says goodbye to the others.
    Leaving {},
    /// The last line: the process ends.
    Stopped {
        /// The exit status of the process.
        code: i64,
    },
    /// The writer looks at the run from outside, and measures nothing.
    Watching {
        /// The version of the program, as `--version` prints it.
        version: Text,
    },
    /// An event that nothing here shows, or of a newer program.
    #[serde(other)]
    Other,
}

/// An epoch that is decided and applied. It is written for a left-out node too, after its
/// `left-out`.
#[derive(Clone, Debug, Deserialize)]
pub struct Commit {
    /// The attempt that decided, counted from 1.
    pub attempt: u64,
    /// The members whose work the receipt counts.
    pub members: List<Text>,
    /// The tokens that each member contributed, in the order of `members`.
    pub weights: List<u64>,
    /// The digest of the state after the epoch: parameters and outer momentum.
    pub state: Text,
    /// The digest of the update that was applied.
    pub update: Text,
    /// Committed tokens of the run since its genesis.
    pub tokens: u64,
    /// This node's own training loss in nats per token, over what it contributed.
    pub loss: Option<f64>,
    /// From this node's Ready to its commit, in milliseconds.
    pub sync_ms: u64,
    /// Bulk bytes of this epoch, without control messages.
    pub sent_bytes: u64,
    /// Bulk bytes of this epoch that came in.
    pub received_bytes: u64,
    /// The epoch since which another lineage may exist; `None` if none can.
    pub forkable_since: Option<u64>,
    /// From the state before to this node's Ready. Like the next four, which follow one another, it
    /// is `None` if the node was not Ready.
    pub train_ms: Option<u64>,
    /// From Ready to the first roster that the node accepted.
    pub wait_ready_ms: Option<u64>,
    /// From that roster to the update, with attempts that failed.
    pub ring_ms: Option<u64>,
    /// From the update to its certificate.
    pub vote_ms: Option<u64>,
    /// From the certificate to the new state.
    pub apply_ms: Option<u64>,
}

/// The settings of a run, and what it needs of a machine. A file of an older program has only the first two.
#[derive(Clone, Debug, Deserialize)]
pub struct Settings {
    /// The name of the run, as the organiser chose it.
    pub name: Text,
    /// The key that signed the manifest, in 64 hex digits.
    pub organiser: Text,
    /// The number of the model's parameters.
    pub parameters: Option<u64>,
    /// Committed tokens at which the run is finished; `None` also if it has no end.
    pub stop_tokens: Option<u64>,
    /// Tokens of one inner step of a peer.
    pub step_tokens: Option<u64>,
    /// Bytes of memory that a node takes, where a CPU trains all sequences of a step at a time.
    pub memory_bytes: Option<u64>,
    /// Bytes of disk that a node takes, with the data that it fetches.
    pub disk_bytes: Option<u64>,
    /// The most bytes that a ring sends and receives through one line in an epoch.
    pub epoch_bytes: Option<u64>,
}

/// Where another peer is, as its newest heartbeat says, and the way to it.
#[derive(Clone, Debug, Deserialize)]
pub struct Member {
    /// The peer that speaks of itself.
    pub who: Text,
    /// The epoch that it committed last.
    pub head: u64,
    /// What it does, in a word such as `train` or `reduce`.
    pub phase: Text,
    /// The weight of its frozen work in tokens; 0 while nothing is frozen.
    pub ready: u64,
    /// The smoothed round trip; `None` until one is measured.
    pub rtt_ms: Option<u64>,
    /// Bytes a second that it sent in its last ring; `None` before its first.
    pub send_rate: Option<u64>,
    /// `direct` or `relayed`; `None` if only gossip brings its messages.
    pub link: Option<Text>,
    /// The training loss that it claims, in nats per token. Nobody can check it. A file of an older
    /// program has none.
    pub loss: Option<f64>,
    /// The version of its program, as its connection says it. A file of an older program has none.
    pub version: Option<Text>,
}

/// A ring that has computed its update, as this node saw it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Ring {
    /// This node's position, counted from 1.
    pub position: u64,
    /// How many members of the ring have a position.
    pub of: u64,
    /// The member to which this node sent; itself in a ring of one.
    pub to: Text,
    /// From the first byte to the update, in milliseconds.
    pub took_ms: u64,
    /// Bulk bytes that went to the successor.
    pub sent_bytes: u64,
    /// Bulk bytes that came from the predecessor.
    pub received_bytes: u64,
}

/// A text of a stranger: at most [`TEXT_BYTES`], without control characters and marks of direction.
///
/// Names and reasons in events come from other peers. An escape sequence could move the cursor of a
/// terminal, and a mark of direction could show a name in another order than its bytes (["Trojan
/// Source"](https://arxiv.org/abs/2111.00169), Boucher and Anderson 2021). Every string of a record
/// is of this type, so no view has to remember it. HTML is not escaped here: the page sets texts,
/// never markup.
/// A copy of it shares the bytes: a picture of 200 peers is copied a few times a second.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Text(Arc<str>);

impl Text {
    /// The text with what could harm a terminal or a page replaced by U+FFFD, and the rest cut off
    /// at a character.
    pub fn new(text: &str) -> Self {
        // Without a way out in the middle many bytes are compared at a time, and most texts are ids that pass.
        let is_plain = |plain: bool, b: u8| plain & (b' '..=b'~').contains(&b);
        if text.len() <= TEXT_BYTES && text.bytes().fold(true, is_plain) {
            return Self(text.into());
        }
        let mut kept = String::new();
        for c in text.chars() {
            let c = if is_harmful(c) { char::REPLACEMENT_CHARACTER } else { c };
            if kept.len() + c.len_utf8() > TEXT_BYTES {
                break;
            }
            kept.push(c);
        }
        Self(kept.into())
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

/// Whether a character can move a cursor, colour a terminal, hide a text or turn it around.
pub fn is_harmful(c: char) -> bool {
    let is_mark = matches!(c, '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
        | '\u{2066}'..='\u{2069}' | '\u{feff}');
    is_mark || c.is_control()
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
///
/// The others are read and dropped, since a JSON array has to be parsed to its end. So a hostile
/// line costs time in proportion to its own bytes, but no memory.
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
