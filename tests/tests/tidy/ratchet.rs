//! Sizes that may only shrink: a table holds each at today's number.
//!
//! A number above its row is a complaint, and so is one below it: then the row is lowered.

use std::collections::{BTreeMap, BTreeSet};

use super::CRATES_WITH_SOURCES;
use super::methods::Methods;
use super::read::{Count, File, rust};

/// To set it, write the column `code` here that `cargo tidy` prints.
pub(super) const CODE_LINES: [(&str, usize); 8] = [
    ("protocol", 15_536),
    ("protocol/sim", 6_112),
    ("protocol/table", 488),
    ("model", 19_217), // tasks (0028), `merge` and `spectrum` (0027), the cache of a GoldFinch, `.pth`
    ("bootstrap", 2_457), // the table's answers are bounded, and circuits have rates of our own
    ("node", 30_144), // a node starts itself again; `replay` (0023), `doctor`, `eval`, `--tui`, `merge`, `serve` (0030), `watch`, `bench view` (0031)
    ("node/view", 3_518), // an event is read without a copy of its line; how far a run is, what a watcher measures (0023)
    ("tests", 1_794),     // the campaigns `readers` (0031), and `liars` with members that lie
];
/// Types whose inherent methods stand in more than `FILES_MAX` files, and in how many.
const SPREAD: [(&str, &str, usize); 5] = [
    ("protocol/sim/src/", "world::World", 13),
    ("node/src/", "driver::Driver", 9),
    ("node/src/", "net::actor::Actor", 5),
    ("node/src/", "store::Store", 9),
    ("node/src/", "tell::Console", 8),
];
/// How many files are in circles through methods, in crates that have such circles.
const IN_CIRCLES: [(&str, usize); 2] = [("protocol/sim/src/", 11), ("node/src/", 15)];

/// A crate has as many lines of code as its row says, or up to 3 % fewer.
pub(super) fn code_lines(files: &[File]) -> Vec<String> {
    let there = |krate: &str| rust(files).any(|f| home(f) == Some(krate));
    let rows = CODE_LINES.into_iter().filter(|(krate, _)| there(krate));
    let judge = |(krate, row): (&str, usize)| {
        let least = (row * LEAST_PERCENT).div_ceil(100);
        held(TABLE, &format!("{krate}: lines of code"), count(krate, files).code, row, least)
    };
    rows.filter_map(judge).collect()
}

/// The inherent methods of a type stand in few files, for its reader opens them all.
pub(super) fn few_files(files: &[File]) -> Vec<String> {
    let mut out = Vec::new();
    for krate in CRATES_WITH_SOURCES {
        let Some(methods) = Methods::of(krate, files) else { continue };
        let spread = methods.spread();
        let rows = SPREAD.iter().filter(|(home, ..)| *home == krate);
        let rows: BTreeMap<&str, usize> = rows.map(|(_, of, row)| (*of, *row)).collect();
        for of in spread.keys().chain(rows.keys()).copied().collect::<BTreeSet<&str>>() {
            let found = spread.get(of).copied().unwrap_or_default();
            let (most, least) = rows.get(of).map_or((FILES_MAX, 0), |row| (*row, *row));
            out.extend(held(
                TABLE,
                &format!("{krate}: files with methods of {of}"),
                found,
                most,
                least,
            ));
        }
    }
    out
}

/// No files call one another's methods on `self` in a circle: they would be one object in pieces.
pub(super) fn method_circles(files: &[File]) -> Vec<String> {
    let mut out = Vec::new();
    for krate in CRATES_WITH_SOURCES {
        let Some(methods) = Methods::of(krate, files) else { continue };
        let circles = methods.circles();
        let row = IN_CIRCLES.iter().find(|(home, _)| *home == krate).map_or(0, |(_, row)| *row);
        let what = format!("{krate}: files in circles through methods {circles:?}");
        out.extend(held(TABLE, &what, circles.iter().map(Vec::len).sum(), row, row));
    }
    out
}

/// The lines of a crate by kind.
pub(super) fn count(krate: &str, files: &[File]) -> Count {
    let mut count = Count::default();
    rust(files).filter(|f| home(f) == Some(krate)).for_each(|f| count.add(f));
    count
}

/// The crate of a file, the inner one where a crate stands in another's folder.
pub(super) fn home(file: &File) -> Option<&'static str> {
    let around = |krate: &&str| file.path.strip_prefix(krate).is_some_and(|r| r.starts_with('/'));
    CODE_LINES.iter().map(|(krate, _)| *krate).filter(around).max_by_key(|krate| krate.len())
}

/// A complaint about a number that is not between the two that the table allows.
pub(super) fn held(
    table: &str,
    what: &str,
    found: usize,
    most: usize,
    least: usize,
) -> Option<String> {
    if found > most {
        return Some(format!("{what}: {found}; {table} allows {most}"));
    }
    let lower = || format!("{what}: {found}; lower the {most} in {table}");
    (found < least).then(lower)
}

const TABLE: &str = "tests/tests/tidy/ratchet.rs";
/// The files in which the inherent methods of a type may stand, if it has no row.
const FILES_MAX: usize = 3;
/// The least share of its row that a crate must have, in per cent.
const LEAST_PERCENT: usize = 97;
/// One line of code more than the table has for `tests`, for `every_rule_can_fail`.
pub(super) const MANY: &str =
    match std::str::from_utf8([[b'x', b'\n']; CODE_LINES[7].1 + 1].as_flattened()) {
        Ok(text) => text,
        Err(_) => "",
    };
