//! `virtual.json` and `virtual.csv`: what the classes of a virtual run have counted, for programs to read.
//!
//! Both have the same numbers. They are written anew after each class, so that a long run that is
//! ended early leaves those of the classes that are done.

use std::{fs, io, ops::Range, path::Path};

use intellect_protocol_sim::report::{Count, Summary};
use serde_json::{Map, Value, json};

/// The counts of the classes that have run so far.
pub(super) struct Counts {
    /// How many peers each virtual run has.
    peers: usize,
    /// The seeds, of which the last one is excluded.
    seeds: Range<u64>,
    /// The classes that have ended, in order.
    pub(super) classes: Vec<Summary>,
}

impl Counts {
    /// The counts before any class has run.
    pub(super) fn new(peers: usize, seeds: &Range<u64>) -> Self {
        Self { peers, seeds: seeds.clone(), classes: Vec::new() }
    }

    /// Writes both files, with all classes so far.
    pub(super) fn write(&self, folder: &Path) -> io::Result<()> {
        let json = serde_json::to_vec_pretty(&self.json())?;
        fs::write(folder.join("virtual.json"), json)?;
        fs::write(folder.join("virtual.csv"), self.csv())
    }

    fn json(&self) -> Value {
        let class = |class: &Summary| {
            let name = class.faults.to_string();
            let mut fields = Map::from_iter([("class".to_owned(), json!(name))]);
            let numbers = numbers(class).into_iter();
            fields.extend(numbers.map(|(key, number)| (key.to_owned(), json!(number))));
            let failures: Vec<String> = class.failures.iter().map(ToString::to_string).collect();
            fields.insert("failures".to_owned(), json!(failures));
            Value::Object(fields)
        };
        json!({
            "version": env!("CARGO_PKG_VERSION"),
            "peers": self.peers,
            "first_seed": self.seeds.start,
            "end_seed": self.seeds.end,
            "classes": self.classes.iter().map(class).collect::<Vec<_>>(),
        })
    }

    /// The counts as a table, a row for each class.
    fn csv(&self) -> String {
        let keys = self.classes.iter().take(1).flat_map(numbers);
        let header: String = keys.map(|(key, _)| format!(",{key}")).collect();
        let row = |class: &Summary| {
            let cells: String =
                numbers(class).iter().map(|(_, number)| format!(",{number}")).collect();
            format!("{}{cells}\n", class.faults)
        };
        format!("class{header}\n") + &self.classes.iter().map(row).collect::<String>()
    }
}

/// The columns of a class, each with its name: seeds, then counts over all seeds that held.
fn numbers(summary: &Summary) -> Vec<(&'static str, u64)> {
    let Summary { total, held, failures, .. } = summary;
    vec![
        ("held", *held),
        ("failed", failures.len() as u64),
        ("epochs", total.epochs),
        ("commits", total.of(Count::Commits)),
        ("later_attempts", total.of(Count::Attempts)),
        ("duels", total.of(Count::Duels)),
        ("regroups", total.of(Count::Regroups)),
        ("forks", total.of(Count::Forks)),
        ("restarts_with_log", total.of(Count::Resumed)),
        ("restarts_without_log", total.of(Count::Blank)),
        ("faults", total.faults.values().sum()),
        ("replayed_epochs", total.of(Count::Replayed)),
        ("loaded_checkpoints", total.of(Count::Loaded)),
        ("messages", total.of(Count::Messages)),
        ("bytes", total.of(Count::Bytes)),
        ("virtual_ms", total.virtual_ms),
        ("epoch_ms_median", total.epoch_ms()),
        ("longest_pause_ms", total.progress_ms),
    ]
}

#[cfg(test)]
mod tests {
    use intellect_protocol_sim::{self as sim, Faults};

    use super::*;

    #[test]
    fn both_files_have_a_row_for_each_class() {
        let mut counts = Counts::new(2, &(0..1));
        for faults in [Faults::Clean, Faults::Lossy] {
            counts.classes.push(sim::swarm(2, 0..1, faults, 1));
        }
        let folder = tempfile::tempdir().unwrap();
        counts.write(folder.path()).unwrap();
        let csv = fs::read_to_string(folder.path().join("virtual.csv")).unwrap();
        let rows: Vec<Vec<&str>> = csv.lines().map(|line| line.split(',').collect()).collect();
        assert_eq!((rows.len(), rows[0][0], rows[2][0]), (3, "class", "lossy"));
        assert!(rows.iter().all(|row| row.len() == rows[0].len()));
        let json = fs::read(folder.path().join("virtual.json")).unwrap();
        let json: Value = serde_json::from_slice(&json).unwrap();
        let clean = &json["classes"][0];
        assert_eq!((&clean["class"], &clean["held"]), (&json!("clean"), &json!(1)));
        assert_eq!(rows[1][4], clean["commits"].to_string());
        assert!(clean["commits"].as_u64() > Some(0));
    }
}
