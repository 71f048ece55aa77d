//! What a rule may look at, and cannot change.
//!
//! A rule that only looks takes [`Facts`], or is a method of the type below it that owns what it
//! looks at. So its signature says that it changes nothing, and a test can build the facts.

use std::ops::Deref;

use crate::machine::step::Step;

use super::State;

/// The state, and which peers were heard until now; neither can be changed.
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
    /// What a rule may look at in this step.
    pub(super) fn facts<'a>(&'a self, step: &'a Step<'_>) -> Facts<'a> {
        Facts { state: self, step }
    }
}
