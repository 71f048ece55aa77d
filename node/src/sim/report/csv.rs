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

use super::rows::{PeerRow, Row};

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
    [
        ("weight", number(row.weight)),
        ("train_loss", number(row.train_loss)),
        ("sync_ms", number(row.sync_ms)),
        ("sent_bytes", number(row.sent_bytes)),
        ("received_bytes", number(row.received_bytes)),
    ]
}

/// The number as short as it can be read back exactly; nothing where there is none.
fn number<T: ToString>(number: Option<T>) -> String {
    number.map_or_else(String::new, |number| number.to_string())
}

/// How many columns each peer has.
const OF_A_PEER: usize = 5;

#[cfg(test)]
mod tests {
    use super::*;

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
