//! The past of a run in columns: one row for an epoch, until there are [`ROWS_MAX`]; then every two
//! rows become one that keeps the least, the greatest and the last of both. Memory is bounded by
//! that.
//!
//! The least and the greatest are kept, and not a mean, so that a spike of one epoch stays visible
//! in a long chart. A row stands for a power of two of epochs, and only the last one may stand for
//! fewer.
//!
//! With 16 columns a row has under 250 bytes, so the past of a run takes at most 4 MB, and a file
//! of any length is read in time in proportion to it. A chart asks for fewer rows still, which
//! `History::columns` merges for the answer.

use std::{borrow::Cow, collections::VecDeque};

use serde::{Deserialize, Serialize};

use crate::{
    picture::{Picture, shorten, times::Times},
    record::{Event, Record, Text},
};

/// The columns of the past, and what happened when.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// The run that they are of, once it is known.
    run: Option<Text>,
    /// Rows by rising epoch. An epoch that was caught up with has none.
    rows: Vec<Row>,
    /// How many epochs a whole row stands for: a power of two.
    merged: u64,
    /// Moments worth a line in a chart, the oldest first, at most `MARKS_MAX`.
    marks: VecDeque<Mark>,
}

/// One epoch, or several that were merged. `epoch`, `t_ms` and `tokens` are those of the last one.
#[derive(Clone, Copy, Debug)]
struct Row {
    /// How many epochs were merged into it.
    epochs: u64,
    /// The epoch of the row, or the last one that was merged into it.
    epoch: u64,
    /// Unix milliseconds of the commit.
    t_ms: u64,
    /// Committed tokens of the run so far.
    tokens: u64,
    /// One cell for each name of `COLUMNS`, in that order.
    cells: [Cell; COLUMNS.len()],
}

/// A number over the epochs of a row; not a number where no epoch has one. `f32` halves the memory,
/// and no chart shows more digits.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Cell {
    /// The least number of the epochs; NaN where there is none.
    min: f32,
    /// The greatest number, which keeps a spike visible.
    max: f32,
    /// The number of the last epoch that has one.
    last: f32,
}

/// Something at a moment of the run, for a line across a chart.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Mark {
    /// The epoch that this node had committed last.
    epoch: u64,
    /// Committed tokens of the run after that epoch.
    tokens: u64,
    /// Unix milliseconds, by the clock of the writer.
    t_ms: u64,
    /// `join`, `loss` or `fork`. Here `loss` means the loss of a peer.
    kind: Cow<'static, str>,
    /// What the chart says beside the line.
    text: String,
}

/// What `/history` answers: one array for a column, all equally long.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Columns {
    /// The epoch of each row; of a merged row the last one.
    pub(crate) epoch: Vec<u64>,
    /// Unix milliseconds of the commit of that epoch.
    pub(crate) t_ms: Vec<u64>,
    /// Committed tokens of the run after that epoch.
    pub(crate) tokens: Vec<u64>,
    /// A column `name` is the last number of each row. If rows were merged, `name_min` and
    /// `name_max` stand beside it. A column without any number is absent.
    columns: serde_json::Map<String, serde_json::Value>,
    /// All marks that are kept, also those of epochs outside of the question.
    marks: Vec<Mark>,
}

impl History {
    /// Adds what a record says, after `picture` has taken it: a commit copies its row from the
    /// picture's head. A held-out loss goes into the row of its epoch; without such a row it is
    /// dropped. With another run it begins anew.
    ///
    /// Only what the node itself commits makes rows, and only what it meets makes marks. Of other
    /// writers nothing is taken but the held-out loss, as in the picture.
    pub fn take(&mut self, record: &Record, picture: &Picture) {
        if self.run != picture.run.id {
            *self = Self { run: picture.run.id.clone(), ..Self::default() };
        }
        let own = picture.node.peer.as_ref() == Some(&record.peer);
        match &record.event {
            _ if picture.is_of_another_run(record) => {}
            Event::Committed(_) if own => self.commit(picture),
            Event::Evaluated { loss, floor, error, .. } => {
                if let Some(row) = self.row(record.epoch.unwrap_or_default()) {
                    for (at, number) in [(HELD_OUT, loss), (FLOOR, floor), (ERROR, error)] {
                        row.cells[at] = row.cells[at].and(cell(*number));
                    }
                }
            }
            event if own => {
                if let Event::Fork { first_epoch, undone, .. } = event
                    && *undone > 0
                {
                    self.undo(*first_epoch);
                }
                let (kind, text) = match event {
                    Event::PeerFound { who, .. } => ("join", format!("{} is here", who.short())),
                    Event::PeerLost { who, .. } => ("loss", format!("{} is gone", who.short())),
                    Event::Fork { first_epoch, .. } => {
                        ("fork", format!("two lineages since epoch {first_epoch}"))
                    }
                    Event::Regroup { number, .. } => ("fork", format!("regroup {number}")),
                    _ => return,
                };
                let (epoch, tokens) = (picture.head.epoch, picture.head.tokens);
                let (t_ms, kind) = (record.t_ms, kind.into());
                // A fork that lasts is reported again each minute.
                if matches!(event, Event::Fork { .. })
                    && self.marks.iter().any(|mark| mark.text == text)
                {
                    return;
                }
                self.marks.push_back(Mark { epoch, tokens, t_ms, kind, text });
                shorten(&mut self.marks, MARKS_MAX);
            }
            _ => {}
        }
    }

    /// The row that has this epoch. A row of one epoch has no place for what is of another one.
    fn row(&mut self, epoch: u64) -> Option<&mut Row> {
        let at = self.rows.partition_point(|row| row.epoch < epoch);
        self.rows.get_mut(at).filter(|row| row.epoch - epoch < row.epochs)
    }

    /// Adds the row of the epoch that `picture` has just committed. It joins the last row until
    /// that one is whole.
    ///
    /// A watcher that starts again proves each epoch once more, without the loss that it has heard
    /// before. So its earlier row stays, unless the tokens tell that it is of another lineage.
    fn commit(&mut self, picture: &Picture) {
        let head = &picture.head;
        let is_there = |row: &mut Row| row.epoch.cmp(&head.epoch) == row.tokens.cmp(&head.tokens);
        if picture.node.watches && self.row(head.epoch).is_some_and(is_there) {
            return;
        }
        self.undo(head.epoch);
        let Times { train, wait, retry, ring, vote, apply, sync } = head.times;
        let number = |number: Option<u64>| cell(number.map(|number| number as f64));
        let cells = [
            cell(head.loss),
            number(Some(picture.ring.len() as u64)),
            number(Some(head.attempt)),
            number(train),
            number(wait),
            number(retry),
            number(ring),
            number(vote),
            number(apply),
            number(picture.node.measured(sync)),
            number(picture.node.measured(head.sent_bytes)),
            number(picture.node.measured(head.received_bytes)),
            cell(parallel_bytes(picture)),
            // The held-out loss, its floor and its error come later, by `Evaluated`.
            cell(None),
            cell(None),
            cell(None),
        ];
        let row = Row { epochs: 1, epoch: head.epoch, t_ms: head.t_ms, tokens: head.tokens, cells };
        let whole = self.merged.max(1);
        match self.rows.last_mut() {
            Some(last) if last.epochs < whole => last.join(&row),
            _ => self.rows.push(row),
        }
        if self.rows.len() > ROWS_MAX {
            self.merged = whole * 2;
            self.rows = joined(&self.rows, 2);
        }
    }

    /// Drops the rows from an epoch on: a lineage that is taken back is not shown beside the one
    /// that counts.
    fn undo(&mut self, first_epoch: u64) {
        while self.rows.last().is_some_and(|row| row.epoch >= first_epoch) {
            self.rows.pop();
        }
    }

    /// The epochs `from..=to` in at most `points` rows, of which 1 to [`POINTS_MAX`] are allowed.
    /// Rows are merged further for the answer, and the stored ones stay. All marks are in every
    /// answer.
    pub(crate) fn columns(&self, from: u64, to: u64, points: usize) -> Columns {
        let (begin, end) = (
            self.rows.partition_point(|row| row.epoch < from),
            self.rows.partition_point(|row| row.epoch <= to),
        );
        let rows = self.rows.get(begin..end).unwrap_or_default();
        let rows = joined(rows, rows.len().div_ceil(points.clamp(1, POINTS_MAX)).max(1));
        let column = |at: usize, part: fn(&Cell) -> f32| -> serde_json::Value {
            rows.iter().map(|row| part(&row.cells[at])).collect::<Vec<f32>>().into()
        };
        let mut columns = serde_json::Map::new();
        for (at, name) in COLUMNS.iter().enumerate() {
            if rows.iter().all(|row| row.cells[at].last.is_nan()) {
                continue;
            }
            columns.insert((*name).to_owned(), column(at, |cell| cell.last));
            if rows.iter().any(|row| row.epochs > 1) {
                columns.insert(format!("{name}_min"), column(at, |cell| cell.min));
                columns.insert(format!("{name}_max"), column(at, |cell| cell.max));
            }
        }
        Columns {
            epoch: rows.iter().map(|row| row.epoch).collect(),
            t_ms: rows.iter().map(|row| row.t_ms).collect(),
            tokens: rows.iter().map(|row| row.tokens).collect(),
            columns,
            marks: self.marks.iter().cloned().collect(),
        }
    }
}

impl Columns {
    /// A column by its name; a row of it is absent where no epoch has the number, and so are all of an unknown one.
    pub(crate) fn numbers(&self, name: &str) -> Vec<Option<f64>> {
        let column = self.columns.get(name).and_then(|column| column.as_array());
        column.map_or_else(Vec::new, |column| column.iter().map(|number| number.as_f64()).collect())
    }
}

/// The past as another process answered it: of rows that were merged only the last number is known.
impl From<Columns> for History {
    fn from(columns: Columns) -> Self {
        let numbers = COLUMNS.map(|name| columns.numbers(name));
        let keys = columns.epoch.iter().zip(&columns.t_ms).zip(&columns.tokens);
        let rows = keys.take(ROWS_MAX).enumerate().map(|(at, ((epoch, t_ms), tokens))| {
            let cell_of = |name: usize| cell(numbers[name].get(at).copied().flatten());
            let cells = std::array::from_fn(cell_of);
            Row { epochs: 1, epoch: *epoch, t_ms: *t_ms, tokens: *tokens, cells }
        });
        let mut marks: VecDeque<Mark> = columns.marks.into();
        shorten(&mut marks, MARKS_MAX);
        Self { run: None, rows: rows.collect(), merged: 1, marks }
    }
}

impl Row {
    /// Takes a later row into this one. Epoch, time and tokens are the later one's.
    fn join(&mut self, later: &Self) {
        let earlier = self.cells;
        *self = Self { epochs: self.epochs + later.epochs, ..*later };
        for (cell, earlier) in self.cells.iter_mut().zip(earlier) {
            *cell = earlier.and(*cell);
        }
    }
}

impl Cell {
    /// Both in order. `f32::min` and `f32::max` take the number where the other one is none.
    fn and(self, later: Self) -> Self {
        let last = if later.last.is_nan() { self.last } else { later.last };
        Self { min: self.min.min(later.min), max: self.max.max(later.max), last }
    }
}

/// What each member of the last ring would have sent in data-parallel training, which adds the gradients up after
/// each step: a ring of n moves 2(n − 1)/n of 4 bytes a parameter through each line. The steps are those that a
/// member had in the mean. `None` before the manifest has named the tokens of a step.
fn parallel_bytes(picture: &Picture) -> Option<f64> {
    let (parameters, step) = picture.run.parameters.zip(picture.run.step_tokens)?;
    let members = picture.ring.len() as f64;
    let tokens: f64 = picture.ring.iter().map(|seat| seat.tokens as f64).sum();
    let steps = tokens / (members * step as f64);
    let bytes = steps * 2.0 * (members - 1.0) / members * 4.0 * parameters as f64;
    Some(bytes).filter(|bytes| bytes.is_finite())
}

/// A cell of one epoch, in which least, greatest and last are the same.
fn cell(number: Option<f64>) -> Cell {
    let number = number.map_or(f32::NAN, |number| number as f32);
    Cell { min: number, max: number, last: number }
}

/// Rows in groups of `size`, each as one.
/// `size` is at least 1. The last group may be smaller.
fn joined(rows: &[Row], size: usize) -> Vec<Row> {
    let join = |rows: &[Row]| {
        let (first, rest) = rows.split_first()?;
        let mut row = *first;
        for later in rest {
            row.join(later);
        }
        Some(row)
    };
    rows.chunks(size).filter_map(join).collect()
}

/// The columns in their order, as `/history` names them. Times are milliseconds, losses nats per token.
/// A row is made in this order too (`commit`), with the last three empty.
const COLUMNS: [&str; 16] = [
    "loss",
    "members",
    "attempt",
    "train_ms",
    "wait_ms",
    "retry_ms",
    "ring_ms",
    "vote_ms",
    "apply_ms",
    "sync_ms",
    "sent_bytes",
    "received_bytes",
    "parallel_bytes",
    "held_out",
    "floor",
    "held_out_error",
];
/// The place in `COLUMNS` of the held-out loss. It comes after its row, by `Evaluated` and not with
/// the commit.
const HELD_OUT: usize = 13;
/// The place of the entropy of the source, which comes with the held-out loss.
const FLOOR: usize = 14;
/// The place of the standard error of the held-out loss.
const ERROR: usize = 15;
/// Epochs that are kept without merging any.
pub(crate) const ROWS_MAX: usize = 16_384;
/// Marks that are kept, the newest ones.
const MARKS_MAX: usize = 512;
/// The most rows that one answer has.
pub(crate) const POINTS_MAX: usize = 4_000;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::record::Text;

    fn past(epochs: u64, loss: impl Fn(u64) -> f64) -> History {
        let (mut history, mut picture) = (History::default(), Picture::default());
        picture.node.peer = Some(Text::new("me"));
        for epoch in 1..=epochs {
            picture.head.epoch = epoch;
            picture.head.tokens = epoch * 10;
            picture.head.loss = Some(loss(epoch));
            history.commit(&picture);
        }
        history
    }

    #[test]
    fn rows_are_whole_until_the_bound_and_bounded_after_it() {
        let bound = ROWS_MAX as u64;
        let whole = past(bound, |epoch| epoch as f64);
        assert_eq!(whole.rows.len(), ROWS_MAX);
        let more = past(4 * bound + 3, |epoch| epoch as f64);
        assert!(more.rows.len() <= ROWS_MAX && more.rows.len() > ROWS_MAX / 2);
        assert_eq!(more.rows.iter().map(|row| row.epochs).sum::<u64>(), 4 * bound + 3);
        assert_eq!(more.rows.last().unwrap().epoch, 4 * bound + 3);
        assert!(size_of::<Row>() * (ROWS_MAX + 1) < 4 << 20);
    }

    #[test]
    fn an_undone_lineage_is_replaced() {
        let mut history = past(10, |_| 1.0);
        let mut picture = Picture::default();
        picture.head.epoch = 8;
        history.commit(&picture);
        assert_eq!(history.columns(0, u64::MAX, 100).epoch, [1, 2, 3, 4, 5, 6, 7, 8]);
    }

    /// It knows no loss of the epochs that it proves.
    #[test]
    fn a_watcher_that_starts_again_keeps_the_losses_that_it_has_heard() {
        // Rows of one epoch each, and rows of two.
        for epochs in [40, ROWS_MAX as u64 + 40] {
            let mut picture = Picture::default();
            picture.node.watches = true;
            let mut history = past(epochs, |_| 1.0);
            let before = history.rows.clone();
            for epoch in 1..=epochs {
                (picture.head.epoch, picture.head.tokens) = (epoch, epoch * 10);
                history.commit(&picture);
            }
            let kept = |row: &Row| (row.epoch, row.epochs, row.cells[0]);
            assert!(history.rows.iter().map(kept).eq(before.iter().map(kept)));
            // Another lineage, and a node that is no watcher.
            for (watches, loss) in [(true, 2.0), (false, 3.0)] {
                (picture.node.watches, picture.head.loss) = (watches, Some(loss.into()));
                (picture.head.epoch, picture.head.tokens) = (22, 215);
                history.commit(&picture);
                let last = history.rows.last();
                let last = last.map(|row| (row.epoch, row.tokens, row.cells[0].last));
                assert_eq!(last, Some((22, 215, loss)));
            }
        }
    }

    fn line(event: &str, epoch: u64) -> Record {
        let line = format!(r#"{{{event},"t_ms":1,"peer":"me","run":"r","epoch":{epoch}}}"#);
        Record::parse(line.as_bytes()).unwrap()
    }

    #[test]
    fn epochs_that_a_fork_undoes_are_not_shown_beside_the_later_ones() {
        let (mut history, mut picture) = (past(8, |_| 1.0), Picture::default());
        picture.node.peer = Some(Text::new("me"));
        let met =
            r#""event":"fork","first_epoch":3,"mine":"a","theirs":"b","undone":0,"held":false"#;
        history.take(&line(met, 8), &picture);
        history.take(&line(met, 8), &picture);
        let shown = history.columns(0, u64::MAX, 100);
        assert_eq!((shown.epoch.len(), shown.marks.len()), (8, 1));
        history.take(&line(&met.replace(":0", ":6"), 8), &picture);
        // It has caught up beyond them: no epoch is committed a second time.
        picture.head.epoch = 27;
        history.commit(&picture);
        assert_eq!(history.columns(0, u64::MAX, 100).epoch, [1, 2, 27]);
    }

    #[test]
    fn a_held_out_loss_is_shown_at_its_own_epoch_or_not_at_all() {
        let mut history = past(2, |_| 1.0);
        let mut picture = Picture::default();
        picture.head.epoch = 11;
        history.commit(&picture);
        for (epoch, loss) in [(0, 9), (5, 8), (2, 2)] {
            let measured = format!(
                r#""event":"evaluated","loss":{loss},"floor":null,"excess":null,"error":0.5"#
            );
            history.take(&line(&measured, epoch), &picture);
        }
        let shown = history.columns(0, u64::MAX, 100);
        assert_eq!(shown.numbers("held_out"), [None, Some(2.0), None]);
        assert_eq!(shown.numbers("held_out_error"), [None, Some(0.5), None]);
    }

    /// Two members with three steps of ten tokens each, of a model of seven parameters: half of a gradient there,
    /// and half back.
    #[test]
    fn data_parallel_training_sends_a_gradient_for_each_step() {
        let mut picture = Picture::default();
        picture.take(&line(
            r#""event":"manifest","name":"n","organiser":"o","parameters":7,"step_tokens":10"#,
            0,
        ));
        let commit = r#""event":"committed","attempt":1,"members":["me","b","v"],"weights":[20,40,0],"state":"s",
            "update":"u","tokens":60,"loss":2,"sync_ms":0,"sent_bytes":1,"received_bytes":1,"forkable_since":null"#;
        let mut history = History::default();
        for epoch in 1..=2 {
            picture.take(&line(commit, epoch));
            history.take(&line(commit, epoch), &picture);
            picture.run.step_tokens = None;
        }
        let shown = history.columns(0, u64::MAX, 9).numbers("parallel_bytes");
        assert_eq!(shown, [Some(84.0), None]);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn a_merged_column_keeps_its_extremes(epochs in 1_u64..3_000, points in 1_usize..200, seed in 1_u64..1_000) {
            let loss = |epoch: u64| (epoch.wrapping_mul(seed * 2_654_435_761) % 1_000) as f64;
            let columns = past(epochs, loss).columns(0, u64::MAX, points);
            prop_assert!(columns.epoch.len() <= points);
            prop_assert_eq!(*columns.epoch.last().unwrap(), epochs);
            let all = |name: &str| -> Vec<f64> {
                let column = columns.columns.get(name).or_else(|| columns.columns.get("loss")).unwrap();
                column.as_array().unwrap().iter().map(|value| value.as_f64().unwrap()).collect()
            };
            let want: Vec<f64> = (1..=epochs).map(loss).collect();
            let least = |of: &[f64]| of.iter().copied().fold(f64::INFINITY, f64::min);
            let most = |of: &[f64]| of.iter().copied().fold(0.0, f64::max);
            prop_assert_eq!(least(&all("loss_min")), least(&want));
            prop_assert_eq!(most(&all("loss_max")), most(&want));
        }
    }
}
