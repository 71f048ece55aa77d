//! Which rules hold: all of them in every program. A test turns one off, to see that it notices.

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
    R32,
    R34,
    R42,
    R44,
    G1,
    G2,
    G3,
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
    /// What is said is on disk before it leaves.
    Durable,
    /// An update that a vote binds stays on disk until another one is committed (R19).
    Bound,
    /// An update that is decided is on disk before anything more is said (R21).
    Owed,
    /// What a donor sent is believed only by its digest.
    Checked,
    /// What has come already is not fetched again.
    Resumed,
}

/// The rules that hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    off: Option<Rule>,
}

impl Rules {
    /// All of them, as in every program.
    pub const ALL: Self = Self { off: None };

    /// All of them but the one that a test turns off, if it does.
    #[must_use]
    pub const fn without(off: Option<Rule>) -> Self {
        Self { off }
    }

    /// Whether this rule holds.
    #[must_use]
    pub fn keeps(self, rule: Rule) -> bool {
        self.off != Some(rule)
    }
}
