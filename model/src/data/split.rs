//! Divides a file into a part for training and a held-out part.
//!
//! The held-out part is the end of the file. A training row starts anywhere in the first part; the
//! held-out rows are spread evenly over theirs, so that a small set still covers it.
//!
//! Each part is at least one row long, unless nothing is held out, which is checked when the file
//! is opened. So no start can lie so far back that its row would reach over the end of its part,
//! and no training row contains a held-out token.

use std::path::Path;

use super::draw::Draw;
use super::error::DataError;

/// The length of a file and of its training part, in bytes or tokens.
#[derive(Clone, Copy, Debug)]
pub(super) struct Split {
    /// Length of the whole file, in the unit of its rows.
    whole: u64,
    /// Length of the part before the held-out end.
    pub(super) training: u64,
}

impl Split {
    /// Holds out a share of the file `path`, which has `whole` units of this name. A row takes
    /// `context` + 1 units.
    ///
    /// # Errors
    /// [`DataError::TooSmall`] if a part that is not empty by choice has no room for a row.
    pub(super) fn new(
        path: &Path,
        whole: u64,
        unit: &'static str,
        held_out: f64,
        context: usize,
    ) -> Result<Self, DataError> {
        let end = (whole as f64 * held_out) as u64;
        let training = whole.saturating_sub(end);
        let needed = context as u64 + 1;
        for (part, size) in [("training", training), ("held-out", end)] {
            // Holding out nothing is a choice; holding out too little is a mistake.
            if size < needed && (part == "training" || held_out > 0.0) {
                let path = path.to_owned();
                return Err(DataError::TooSmall { path, part, size, unit, needed });
            }
        }
        Ok(Self { whole, training })
    }

    /// Where a row of `length` units starts, anywhere in the training part.
    pub(super) fn anywhere(self, draw: &mut Draw, length: usize) -> u64 {
        draw.below(self.training - length as u64 + 1)
    }

    /// How many held-out rows of `context` judged tokens share none of them, at least one.
    pub(super) fn rows(self, context: usize) -> u64 {
        ((self.whole - self.training).saturating_sub(1) / context as u64).max(1)
    }

    /// Where row `row` of `of` held-out rows starts; `None` if nothing is held out.
    pub(super) fn held_out(self, row: u64, of: u64, length: usize) -> Option<u64> {
        if self.training == self.whole {
            return None;
        }
        let last = self.whole - self.training - length as u64;
        let share = u128::from(last) * u128::from(row) / u128::from(of.max(2) - 1);
        Some(self.training + u64::try_from(share).unwrap_or(last).min(last))
    }
}
