//! What a peer can do wrong. A fault costs the peer its connection, and is named in an event.

use std::fmt;

/// A peer's misbehaviour: only what no honest peer does, whatever the network does to its messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A roster breaks a rule that its proposer could check (R4, R8).
    Roster(&'static str),
    /// Two different values voted for on one roster, or another value than the roster adopts (R11).
    Done(&'static str),
    /// A Ready that declares more work than an epoch can hold, or changes what was frozen (R31).
    Ready(&'static str),
    /// A certificate, receipt or Regroup that does not verify.
    Certificate(&'static str),
    /// A request or answer that makes no sense.
    Answer(&'static str),
    /// A frame that does not belong where it arrived, or whose bytes are not what its header says.
    Frame(&'static str),
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, why) = match self {
            Self::Roster(why) => ("roster", why),
            Self::Done(why) => ("done", why),
            Self::Ready(why) => ("ready", why),
            Self::Certificate(why) => ("certificate", why),
            Self::Answer(why) => ("answer", why),
            Self::Frame(why) => ("frame", why),
        };
        write!(f, "bad {kind}: {why}")
    }
}
