//! Rules about the types that a file declares: how much one holds, and that its name is its own.

use std::collections::BTreeMap;

use super::CRATES_WITH_SOURCES;
use super::read::{File, is_identifier, is_test, rust, source};

/// A struct that needs more fields than this holds several ideas.
pub(super) fn fields(files: &[File]) -> Vec<String> {
    let mut out = Vec::new();
    for f in rust(files).filter(|f| !is_test(&f.path)) {
        let lines = source(f);
        for (at, line) in lines.iter().enumerate() {
            let Some((_, rest)) = line.split_once("struct ") else { continue };
            if line.starts_with(' ') || line.starts_with("//") || !line.ends_with('{') {
                continue;
            }
            let body = lines[at + 1..].iter().take_while(|line| **line != "}");
            let named = |line: &&&str| {
                let inner = line.strip_prefix("    ").unwrap_or_default();
                let name = inner
                    .trim_start_matches("pub")
                    .trim_start_matches("(crate)")
                    .trim_start_matches("(super)")
                    .trim_start();
                name.starts_with(|c: char| c.is_ascii_lowercase()) && name.contains(": ")
            };
            let count = body.filter(named).count();
            if count > FIELDS_MAX {
                let name = rest.trim_end_matches(" {");
                out.push(format!("{}: {name} has {count} fields; divide its ideas", f.path));
            }
        }
    }
    out
}

/// A noun that several files of a crate may use means one thing in it. The roles that every machine
/// has are told apart by their module.
pub(super) fn nouns(files: &[File]) -> Vec<String> {
    let mut seen: BTreeMap<(&str, String), &str> = BTreeMap::new();
    let mut out = Vec::new();
    for krate in CRATES_WITH_SOURCES {
        for f in rust(files).filter(|f| f.path.starts_with(krate) && !is_test(&f.path)) {
            for line in source(f).into_iter().filter(|line| line.starts_with("pub")) {
                let mut words = line.split(' ').skip(1);
                let kind = words.next().unwrap_or_default();
                if !["struct", "enum", "trait", "type"].contains(&kind) {
                    continue;
                }
                let name: String = words
                    .next()
                    .unwrap_or_default()
                    .chars()
                    .take_while(|c| is_identifier(*c))
                    .collect();
                if ROLES.contains(&name.as_str()) {
                    continue;
                }
                if let Some(other) = seen.insert((krate, name.clone()), &f.path) {
                    out.push(format!("{}: `{name}` already means something in {other}", f.path));
                }
            }
        }
    }
    out
}

const FIELDS_MAX: usize = 20;
/// The nouns that every machine has.
const ROLES: [&str; 6] = ["State", "Input", "Output", "Config", "Event", "Command"];
/// A struct of 21 fields, for `every_rule_can_fail`.
pub(super) const WIDE: &str = "struct S {
    a: u8,
    b: u8,
    c: u8,
    d: u8,
    e: u8,
    f: u8,
    g: u8,
    h: u8,
    i: u8,
    j: u8,
    k: u8,
    l: u8,
    m: u8,
    n: u8,
    o: u8,
    p: u8,
    q: u8,
    pub(crate) r: u8,
    s: u8,
    pub t: u8,
    /// Doc: nothing.
    u: u8,
}";
