//! The table of the README is what its first command prints.

use std::{fs, path::Path, time::Duration};

use e2e::Sim;

use crate::story;

const PATIENCE: Duration = Duration::from_secs(300);

/// The founder of the run that the README shows, at its first try: the receipts name it, and so
/// does every state. On a busy machine another peer may propose first, which makes it another run.
const FOUNDER: &str = "12D3KooWDNBSA6hZDkMqxTPcUvX47QKSPw3gWFmTWYM8qSQyCVTo";

/// The lines of the README between the command and the text behind its output.
fn shown(readme: &str) -> Vec<&str> {
    let lines = readme.lines().map(|line| line.strip_prefix("    ").unwrap_or_default());
    let table = lines.skip_while(|line| !line.starts_with("run "));
    table.take_while(|line| !line.is_empty()).collect()
}

/// A row without the columns that depend on the machine: the pace, and the duration of a ring.
fn row(line: &str) -> Option<Vec<&str>> {
    let words: Vec<&str> = line.split_whitespace().collect();
    // The first two columns are epoch and members.
    words.get(..2)?.iter().try_for_each(|word| word.parse::<u64>().map(drop)).ok()?;
    let (first, last) = (words.get(..5)?, words.get(words.len().checked_sub(2)?..)?);
    Some([first, last].concat())
}

/// How many epochs, from the first on, nothing disturbed: all four peers are in each, at the first
/// attempt, in the run that the README shows.
fn undisturbed(sim: &Sim) -> u64 {
    let events = sim.events(0).unwrap();
    let founding = events.iter().find(|e| e["event"] == "regroup" && e["epoch"] == 1).unwrap();
    if founding["proposer"] != FOUNDER || founding["number"] != 1 {
        println!("skipped: founded by {}, number {}", founding["proposer"], founding["number"]);
        return 0;
    }
    let commits = events.iter().filter(|event| event["event"] == "committed");
    let whole = commits.take_while(|event| {
        event["attempt"] == 1 && event["members"].as_array().is_some_and(|all| all.len() == 4)
    });
    whole.filter_map(|event| event["epoch"].as_u64()).max().unwrap_or_default()
}

/// The same command commits the same states on every x86 with FMA, if nothing disturbs it.
#[test]
fn the_first_command_prints_what_the_readme_shows() {
    #[cfg(target_arch = "x86_64")]
    let repeats = std::arch::is_x86_feature_detected!("fma");
    #[cfg(not(target_arch = "x86_64"))]
    let repeats = false;
    if !repeats {
        println!("skipped: states are the same on x86 with FMA only");
        return;
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let readme = fs::read_to_string(root.join("README.md")).unwrap();
    let sim = story().sim("out", &[], PATIENCE).unwrap();
    let out = &sim.done.clone().expect_success().unwrap().out;
    let printed: Vec<&str> = out.lines().collect();
    // When each peer is here depends on the machine.
    let founds = |line: &str| line.trim_start().starts_with("found");
    let is_fixed = |line: &&str| {
        row(line).is_none() && !line.contains('…') && !line.contains(" s · ") && !founds(line)
    };
    let loss = |line: &str| line.starts_with("held-out") || line.starts_with("excess ");
    let whole = undisturbed(&sim);
    for line in shown(&readme) {
        match row(line) {
            Some(row_shown) if row_shown[0].parse::<u64>().unwrap() <= whole => {
                let found =
                    printed.iter().filter_map(|line| row(line)).find(|r| r[0] == row_shown[0]);
                assert_eq!(found, Some(row_shown), "the README shows {line:?}: {out}");
            }
            None if is_fixed(&line) && (whole == 20 || !loss(line)) => {
                assert!(printed.contains(&line), "the README shows {line:?}: {out}");
            }
            Some(_) => println!("skipped: something disturbed epoch {}", whole + 1),
            None => {}
        }
    }
}
