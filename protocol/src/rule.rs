//! The rules that a test can turn off, to see that it notices.

/// A rule by its number in `docs/PROTOCOL.md`, or by what it says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "named as in docs/PROTOCOL.md")]
pub enum Rule {
    R2,
    R3,
    R5,
    R7,
    R8,
    R13,
    R18,
    R19,
    R30,
    R34,
    /// A `Done` is on disk before it is sent.
    Durable,
    /// What a donor sent is believed only by its digest.
    Checked,
    /// What has come already is not fetched again.
    Resumed,
}
