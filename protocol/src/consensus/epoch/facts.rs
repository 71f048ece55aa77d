//! What a rule may look at, and cannot change.
//!
//! A rule that only looks is a method of [`Facts`], or of the type below it that owns what it looks at. So its
//! signature says that it moves nothing, and it is tested by building the facts.

use std::ops::Deref;

use crate::machine::step::Step;

use super::State;

/// The state as it is, and who was heard until now.
#[derive(Clone, Copy)]
pub(super) struct Facts<'a> {
    pub(super) state: &'a State,
    pub(super) step: &'a Step<'a>,
}

impl Deref for Facts<'_> {
    type Target = State;

    fn deref(&self) -> &State {
        self.state
    }
}

impl State {
    /// What is known in this step.
    pub(super) fn facts<'a>(&'a self, step: &'a Step<'_>) -> Facts<'a> {
        Facts { state: self, step }
    }
}
