//! Which rules are in force: all of them in every program. A test switches one off to see that
//! the checks notice its absence.
//!
//! The switch is in the program and not in a test double, because a check that never fails proves
//! nothing: with one rule off, a scene of `protocol/sim` must find a broken invariant. No setting,
//! no command line and no message of a peer reaches it.

/// A rule by its number in `docs/PROTOCOL.md`, or by what it says where it has none.
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
    R32,
    R34,
    R40,
    R42,
    R44,
    G1,
    G2,
    G4,
    G5,
    G6,
    G7,
    G8,
    G9,
    G10,
    G11,
    G12,
    G13,
    G14,
    T2,
    T5,
    T6,
    /// The vote whose value a roster adopts is proven to each acceptor (R8).
    Ground,
    /// Where a third may lie, a vote on a free roster waits until a quorum is prepared (R5).
    Prepared,
    /// A record is on disk before a message that depends on it leaves.
    Durable,
    /// An update that a vote binds stays on disk until another one is committed (R19).
    Bound,
    /// A decided update is on disk before anything more is said (R21).
    Owed,
    /// Bytes from a donor are accepted only if their digest is the expected one.
    Checked,
    /// A download that is resumed keeps the parts that had arrived.
    Resumed,
}

/// The rules in force: all of them, or all but one. At most one is off, so that a broken invariant
/// has one cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    off: Option<Rule>,
}

impl Rules {
    /// Every rule, as in every program that trains.
    pub const ALL: Self = Self { off: None };

    /// Every rule but the one that a test switches off, if any.
    #[must_use]
    pub const fn without(off: Option<Rule>) -> Self {
        Self { off }
    }

    /// Whether this rule is in force.
    #[must_use]
    pub fn keeps(self, rule: Rule) -> bool {
        self.off != Some(rule)
    }
}
