//! `epochs.csv`: a row for each epoch of each lineage, for statistics and plots in other programs.
//!
//! No cell has a comma, a quote or a line break, so nothing has to be escaped. A cell without a
//! value is empty, which such programs read as missing. The columns are the same for every row, and
//! their number follows from that of the peers.

use std::{
    fs::File,
    io::{self, BufWriter, Write as _},
    path::Path,
};

use super::rows::Row;

/// Writes the rows into a file of this path.
pub(super) fn write(path: &Path, rows: &[Row<'_>], peers: usize) -> io::Result<()> {
    let mut file = BufWriter::new(File::create(path)?);
    writeln!(file, "{}", head(peers))?;
    for row in rows {
        writeln!(file, "{}", line(row))?;
    }
    file.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()
}

/// The names of the columns. Those of a peer end in its number.
fn head(peers: usize) -> String {
    let mut names: Vec<String> = ALONE.map(str::to_owned).to_vec();
    for name in OF_A_PEER {
        names.extend((0..peers).map(|peer| format!("{name}_{peer}")));
    }
    names.join(",")
}

/// One row, in the order of [`ALONE`] and [`OF_A_PEER`].
fn line(row: &Row<'_>) -> String {
    let mut cells = vec![
        row.epoch.to_string(),
        row.lineage.to_string(),
        number(row.t_s),
        row.members.len().to_string(),
        row.attempt.to_string(),
        row.tokens.to_string(),
        number(row.train_loss),
        number(row.held_out_loss),
        number(row.held_out_error),
        number(row.excess),
        row.sync_ms.to_string(),
        row.state.to_owned(),
    ];
    cells.extend(row.peers.iter().map(|peer| number(peer.weight)));
    cells.extend(row.peers.iter().map(|peer| number(peer.train_loss)));
    cells.extend(row.peers.iter().map(|peer| number(peer.sync_ms)));
    cells.extend(row.peers.iter().map(|peer| number(peer.sent_bytes)));
    cells.extend(row.peers.iter().map(|peer| number(peer.received_bytes)));
    cells.join(",")
}

/// The number as short as it can be read back exactly; nothing where there is none.
fn number<T: ToString>(number: Option<T>) -> String {
    number.map_or_else(String::new, |number| number.to_string())
}

/// Columns of an epoch. Times are seconds since the start or milliseconds, losses nats per token.
const ALONE: [&str; 12] = [
    "epoch",
    "lineage",
    "t_s",
    "members",
    "attempt",
    "tokens",
    "train_loss",
    "held_out",
    "se",
    "excess",
    "sync_ms",
    "state",
];
/// Columns of each peer in an epoch; empty where it did not take part.
const OF_A_PEER: [&str; 5] = ["weight", "train_loss", "sync_ms", "sent_bytes", "received_bytes"];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::report::rows::PeerRow;

    #[test]
    fn every_line_has_the_columns_of_the_head() {
        let share =
            PeerRow { peer: 1, weight: Some(7), train_loss: Some(0.5), ..PeerRow::default() };
        let row =
            Row { epoch: 3, lineage: 1, peers: vec![PeerRow::default(), share], ..Row::default() };
        let (head, line) = (head(2), line(&row));
        let at = |name: &str| head.split(',').position(|column| column == name).unwrap();
        let cells: Vec<&str> = line.split(',').collect();
        assert_eq!(cells.len(), head.split(',').count());
        assert_eq!((cells[at("epoch")], cells[at("lineage")]), ("3", "1"));
        assert_eq!((cells[at("weight_0")], cells[at("weight_1")]), ("", "7"));
        assert_eq!((cells[at("train_loss_1")], cells[at("held_out")]), ("0.5", ""));
    }
}
