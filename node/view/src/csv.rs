//! Events as a table: a column for each key of any of them, a row for each event.
//!
//! A file is read twice, first for its keys, so its size does not matter. A list or an object is a cell of JSON. Texts come
//! from strangers: one that a spreadsheet would take for a formula gets an apostrophe in front.
//!
//! The caller reads the files a second time and asks for a row for each line; this module writes no
//! file.

use serde_json::{Map, Value};

use crate::{
    record::Text,
    replay::{Player, ReplayError},
};

/// The columns of a table of events: the names of the keys, in the order in which they were first
/// seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sheet(Vec<String>);

impl Sheet {
    /// Reads all events for their keys. Beyond [`COLUMNS_MAX`] further keys are left out.
    ///
    /// # Errors
    /// If a file cannot be read any more.
    pub fn of(mut player: Player) -> Result<Self, ReplayError> {
        let mut columns = Self(FIRST.map(str::to_owned).to_vec());
        while let Some(line) = player.line()? {
            for key in object(&line).keys() {
                if columns.0.len() < COLUMNS_MAX && !columns.0.contains(key) {
                    columns.0.push(key.clone());
                }
            }
        }
        Ok(columns)
    }

    /// The names, as the first line of a file.
    pub fn head(&self) -> String {
        let names = self.0.iter().map(|name| cell(&Value::from(name.as_str())));
        names.collect::<Vec<_>>().join(",")
    }

    /// The cells of an event, in the order of the names; empty where it lacks the key or has null.
    pub fn row(&self, line: &str) -> String {
        let event = object(line);
        let cells = self.0.iter().map(|name| event.get(name).map_or_else(String::new, cell));
        cells.collect::<Vec<_>>().join(",")
    }
}

/// The keys of a line; none if it is no JSON object. Events are not parsed further, so a key that
/// this program does not know is a column too.
fn object(line: &str) -> Map<String, Value> {
    serde_json::from_str(line).unwrap_or_default()
}

/// A value as a cell: quoted as RFC 4180 does it, with an apostrophe before what a spreadsheet
/// would take for a formula. `null` is an empty cell.
fn cell(value: &Value) -> String {
    let text = match cleaned(value) {
        Value::Null => return String::new(),
        Value::String(text) => text,
        value => value.to_string(),
    };
    let mark = if text.starts_with(['=', '+', '-', '@']) { "'" } else { "" };
    if mark.is_empty() && !text.contains([',', '"', '\n', ' ']) {
        return text;
    }
    format!("\"{mark}{}\"", text.replace('"', "\"\""))
}

/// A value whose texts are cleaned, each word as a [`Text`]. A list keeps all its entries.
fn cleaned(value: &Value) -> Value {
    let text = |text: &str| -> String {
        text.split_inclusive(' ').map(|word| Text::new(word).to_string()).collect()
    };
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
        Value::String(said) => Value::String(text(said)),
        Value::Array(list) => Value::Array(list.iter().map(cleaned).collect()),
        Value::Object(keys) => {
            Value::Object(keys.iter().map(|(key, value)| (text(key), cleaned(value))).collect())
        }
    }
}

/// The columns that every event has, if it has them, in front.
const FIRST: [&str; 5] = ["t_ms", "event", "epoch", "peer", "run"];
/// Columns that a table has at most. All events together have about 90 keys; a hostile file could
/// have any number.
pub const COLUMNS_MAX: usize = 256;

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn events_are_rows_of_equal_length() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let lines = [
            r#"{"event":"ready","tokens":7,"loss":null,"t_ms":5,"peer":"p","run":null,"epoch":3}"#,
            r#"{"event":"roster","attempt":1,"members":["a","b"],"t_ms":6,"peer":"p","run":"r","epoch":3}"#,
            r#"{"event":"disk","error":"=cmd(\"x\"),\nnext","t_ms":7,"peer":"p","run":"r"}"#,
        ];
        file.as_file().write_all(format!("{}\nnoise\n", lines.join("\n")).as_bytes()).unwrap();
        let player = Player::open(&[file.path().to_owned()], false).unwrap();
        let columns = Sheet::of(player).unwrap();
        assert_eq!(columns.head(), "t_ms,event,epoch,peer,run,loss,tokens,attempt,members,error");
        assert_eq!(columns.row(lines[0]), "5,ready,3,p,,,7,,,");
        assert_eq!(columns.row(lines[1]), r#"6,roster,3,p,r,,,1,"[""a"",""b""]","#);
        let row = columns.row(lines[2]);
        assert_eq!(row, "7,disk,,p,r,,,,,\"'=cmd(\"\"x\"\"),\u{fffd}next\"");
        assert!(columns.row("noise").chars().all(|c| c == ','));
        let members: Vec<String> = (0..256).map(|at| format!("12D3KooW{at:0>44}")).collect();
        let row = columns.row(&serde_json::json!({ "members": members }).to_string());
        assert!(members.iter().all(|member| row.contains(member)), "{row}");
    }
}
