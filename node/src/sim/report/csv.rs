//! `epochs.csv`, a row for each epoch of each lineage, and `steps.csv`, a row for each step that scenario and chaos
//! took, for statistics and plots in other programs.
//!
//! No cell has a comma, a quote or a line break, so nothing has to be escaped. A cell without a
//! value is empty, which such programs read as missing. The columns are the same for every row, and
//! in `epochs.csv` their number follows from that of the peers.

use std::{
    fs::File,
    io::{self, BufWriter, Write as _},
    path::Path,
};

use serde_json::Value;

use crate::{sim::scenario::Action, tell::events::Times};

use super::rows::{PeerRow, Row};

/// Writes the epochs into a file of this path.
pub(super) fn write(path: &Path, rows: &[Row<'_>], peers: usize) -> io::Result<()> {
    lines(path, std::iter::once(head(peers)).chain(rows.iter().map(line)))
}

/// Writes the steps into a file of this path, with the time since the start and the keys that a
/// scenario has for them.
pub(super) fn write_steps(path: &Path, done: &[(u64, Action)], started_ms: u64) -> io::Result<()> {
    let head = format!("t_s,{}", STEP.join(","));
    let since = |t_ms: u64| t_ms.saturating_sub(started_ms) as f64 / 1_000.0;
    let rows = done.iter().map(|(t_ms, action)| format!("{},{}", since(*t_ms), step(action)));
    lines(path, std::iter::once(head).chain(rows))
}

/// Writes a file of these lines, and makes it durable.
fn lines(path: &Path, lines: impl Iterator<Item = String>) -> io::Result<()> {
    let mut file = BufWriter::new(File::create(path)?);
    for line in lines {
        writeln!(file, "{line}")?;
    }
    file.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()
}

/// The cells of a step, in the order of [`STEP`]. Several peers stand in one cell, with spaces between.
fn step(action: &Action) -> String {
    let keys = action.told();
    let cell = |value: &Value| match value {
        Value::String(word) => word.clone(),
        Value::Array(peers) => peers.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "),
        value => value.to_string(),
    };
    STEP.map(|name| keys.get(name).map_or_else(String::new, cell)).join(",")
}

/// The names of the columns. Those of a peer end in its number.
fn head(peers: usize) -> String {
    let mut names: Vec<String> = alone(&Row::default()).map(|(name, _)| name.to_owned()).into();
    for (name, _) in of_a_peer(&PeerRow::default()) {
        names.extend((0..peers).map(|peer| format!("{name}_{peer}")));
    }
    names.join(",")
}

/// One row, in the order of the head.
fn line(row: &Row<'_>) -> String {
    let mut cells: Vec<String> = alone(row).map(|(_, cell)| cell).into();
    let peers: Vec<_> = row.peers.iter().map(of_a_peer).collect();
    for column in 0..OF_A_PEER {
        cells.extend(peers.iter().map(|peer| peer[column].1.clone()));
    }
    cells.join(",")
}

/// Columns of an epoch. Times are seconds since the start or milliseconds, losses nats per token.
fn alone(row: &Row<'_>) -> [(&'static str, String); 12] {
    [
        ("epoch", row.epoch.to_string()),
        ("lineage", row.lineage.to_string()),
        ("t_s", number(row.t_s)),
        ("members", row.members.len().to_string()),
        ("attempt", row.attempt.to_string()),
        ("tokens", row.tokens.to_string()),
        ("train_loss", number(row.train_loss)),
        ("held_out", number(row.held_out_loss)),
        ("se", number(row.held_out_error)),
        ("excess", number(row.excess)),
        ("sync_ms", row.sync_ms.to_string()),
        ("state", row.state.to_owned()),
    ]
}

/// Columns of each peer in an epoch; empty where it did not take part.
fn of_a_peer(row: &PeerRow) -> [(&'static str, String); OF_A_PEER] {
    let Times { train_ms, wait_ready_ms, ring_ms, vote_ms, apply_ms } = row.times;
    [
        ("weight", number(row.weight)),
        ("train_loss", number(row.train_loss)),
        ("sync_ms", number(row.sync_ms)),
        ("sent_bytes", number(row.sent_bytes)),
        ("received_bytes", number(row.received_bytes)),
        ("train_ms", number(train_ms)),
        ("wait_ready_ms", number(wait_ready_ms)),
        ("ring_ms", number(ring_ms)),
        ("vote_ms", number(vote_ms)),
        ("apply_ms", number(apply_ms)),
    ]
}

/// The number as short as it can be read back exactly; nothing where there is none.
fn number<T: ToString>(number: Option<T>) -> String {
    number.map_or_else(String::new, |number| number.to_string())
}

/// How many columns each peer has.
const OF_A_PEER: usize = 10;
/// The columns of a step behind its time, by the names that a scenario has for them.
const STEP: [&str; 9] = ["do", "peer", "peers", "to", "one_way", "up", "rate", "delay_ms", "loss"];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::{
        links::{AccessLink, Change},
        scenario::PeerAction,
    };

    #[test]
    fn a_step_has_the_keys_of_a_scenario_as_cells() {
        let link = AccessLink { rate: Some(9), loss: Some(0.5), ..AccessLink::default() };
        let cells = |action| step(&action);
        assert_eq!(cells(Action::Peer(PeerAction::Kill, 2)), "kill,2,,,,,,,");
        assert_eq!(cells(Action::Links(Change::Access { peer: 1, link })), "link,1,,,,,9,,0.5");
        assert_eq!(cells(Action::Links(Change::Cut([0, 3].into()))), "cut,,0 3,,,,,,");
        let hole = Change::BlackHole { from: 0, to: 1, both: true };
        assert_eq!(cells(Action::Links(hole)), "black-hole,0,,1,false,,,,");
    }

    #[test]
    fn every_line_has_the_columns_of_the_head() {
        let times = Times { wait_ready_ms: Some(30), ..Times::default() };
        let share = PeerRow {
            peer: 1,
            weight: Some(7),
            train_loss: Some(0.5),
            times,
            ..PeerRow::default()
        };
        let row =
            Row { epoch: 3, lineage: 1, peers: vec![PeerRow::default(), share], ..Row::default() };
        let (head, line) = (head(2), line(&row));
        let at = |name: &str| head.split(',').position(|column| column == name).unwrap();
        let cells: Vec<&str> = line.split(',').collect();
        assert_eq!(cells.len(), head.split(',').count());
        assert_eq!((cells[at("epoch")], cells[at("lineage")]), ("3", "1"));
        assert_eq!((cells[at("weight_0")], cells[at("weight_1")]), ("", "7"));
        assert_eq!((cells[at("train_loss_1")], cells[at("held_out")]), ("0.5", ""));
        assert_eq!((cells[at("wait_ready_ms_0")], cells[at("wait_ready_ms_1")]), ("", "30"));
    }
}
