//! Sizes that may only shrink: a table holds each at today's number.
//!
//! A number above its row is a complaint, and so is one below it: then the row is lowered.

use std::collections::{BTreeMap, BTreeSet};

use super::CRATES_WITH_SOURCES;
use super::methods::Methods;
use super::read::File;

/// Types whose inherent methods stand in more than `FILES_MAX` files, and in how many.
const SPREAD: [(&str, &str, usize); 7] = [
    ("protocol/src/", "epoch::State", 12),
    ("protocol/src/", "sync::State", 7),
    ("protocol/sim/src/", "world::World", 13),
    ("node/src/", "driver::Driver", 9),
    ("node/src/", "net::actor::Actor", 5),
    ("node/src/", "store::Store", 9),
    ("node/src/", "tell::Teller", 8),
];
/// How many files are in circles through methods, in crates that have such circles.
const IN_CIRCLES: [(&str, usize); 3] =
    [("protocol/src/", 18), ("protocol/sim/src/", 11), ("node/src/", 15)];

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
            out.extend(held(&format!("{krate}: files with methods of {of}"), found, most, least));
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
        out.extend(held(&what, circles.iter().map(Vec::len).sum(), row, row));
    }
    out
}

/// A complaint about a number that is not between the two.
fn held(what: &str, found: usize, most: usize, least: usize) -> Option<String> {
    if found > most {
        return Some(format!("{what}: {found}; {TABLES} allows {most}"));
    }
    let lower = || format!("{what}: {found}; lower the {most} in {TABLES}");
    (found < least).then(lower)
}

const TABLES: &str = "tests/tests/tidy/ratchet.rs";
/// Files that the inherent methods of a type stand in, where it has no row.
const FILES_MAX: usize = 3;
