//! `replay --csv`: the events as a table, on standard output.

use std::io::{self, Write};

use intellect_view::{csv::Sheet, replay::Player};

use crate::cli::replay::ReplayArgs;

use super::{ReplayError, said};

/// Writes all events as a table. What was skipped is said where it does not come into the table.
/// The files are read twice: the head of the table needs all keys before the first row. Rows are in
/// the order of time.
pub(super) fn write(args: &ReplayArgs, out: &mut dyn Write) -> Result<(), ReplayError> {
    let open = || Player::open(&args.files, false);
    let columns = Sheet::of(open()?)?;
    let mut out = io::BufWriter::new(out);
    writeln!(out, "{}", columns.head())?;
    let mut player = open()?;
    while let Some(line) = player.line()? {
        writeln!(out, "{}", columns.row(&line))?;
    }
    out.flush()?;
    // Standard error may be closed, and the table is whole without this line.
    let _ = writeln!(io::stderr(), "{}", said(player.tally()));
    Ok(())
}
