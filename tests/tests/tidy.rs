//! The project's own rules about its sources, as a test.
//!
//! What neither the compiler nor clippy can say is said here: who may depend on whom, which file is
//! the one home of a heavy crate, how long a file may grow, that the documents agree with the tree.
//! A `Rule` is a pure function from files to complaints; `RULES` pairs each one with the
//! smallest tree that breaks it, so a rule that can no longer fail is itself a failing test.
//!
//! `the_budgets_are_printed` measures what docs/TESTING.md asks a reader to watch; budgets never fail.
//!
//! It does not check what a lint checks (unwraps, casts, docs, `protocol`'s purity).

#[path = "tidy/graph.rs"]
mod graph;
#[path = "tidy/read.rs"]
mod read;
#[path = "tidy/sentences.rs"]
mod sentences;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use read::{
    CRATES, Count, File, code, documents, fnv1a64, functions, headings, imports, is_identifier,
    is_test, join, links, read_tree, root, rust, slug, source,
};

/// Complaints, each naming a file and what to do about it.
type Rule = fn(&[File]) -> Vec<String>;

/// Every rule beside the smallest tree that breaks it: path, text, path, text, …
const RULES: &[(Rule, &[&str])] = &[
    (length, &["model/src/long.rs", LONG]),
    (header, &["model/src/a.rs", "use std::fs;"]),
    (dependencies, &["protocol/Cargo.toml", "[dependencies]\nrand.workspace = true"]),
    (dependencies, &["model/Cargo.toml", "[dependencies]\nlibp2p.workspace = true"]),
    (dependencies, &["node/Cargo.toml", "[dependencies]\nclap = \"4\""]),
    (dependencies, &["node/Cargo.toml", "[features]\nfast = []"]),
    (homes, &["node/src/store.rs", "use bincode::encode;"]),
    (homes, &["model/src/data.rs", "fn f(p: intellect_protocol::id::PeerId) {}"]),
    (homes, &["node/src/cli.rs", "use libp2p::Multiaddr;"]),
    (homes, &["node/src/worker.rs", "use burn_flex::Flex;"]),
    (homes, &["protocol/src/peer.rs", "use intellect_protocol_sim::Faults;"]),
    (words, &["node/src/identity.rs", "let key = Keypair::simulated(peer);"]),
    (layers, &["protocol/src/view.rs", "use crate::{epoch::State, id::PeerId};"]),
    (layers, &["protocol/src/epoch/acceptor.rs", "use crate::peer;"]),
    (layers, &["protocol/src/id.rs", "use super::ring;"]),
    (layers, &["protocol/src/novel.rs", "//! A file without a layer."]),
    (
        circles,
        &[
            "node/src/a.rs",
            FOUR[0],
            "node/src/a/b.rs",
            FOUR[1],
            "node/src/c.rs",
            FOUR[2],
            "node/src/d.rs",
            FOUR[3],
        ],
    ),
    (fields, &["node/src/a.rs", WIDE]),
    (
        nouns,
        &["node/src/a.rs", "pub(crate) struct Line;", "node/src/b.rs", "pub(super) enum Line {"],
    ),
    (
        rooms,
        &[
            "docs/ARCHITECTURE.md",
            "# A\n\n### A new family: at most 1\n\n`model/src/a.rs`, `model/src/b.rs`",
        ],
    ),
    (words, &["node/src/utils.rs", "//! Things."]),
    (words, &["node/src/a.rs", "let (a, b) = mpsc::unbounded_channel();"]),
    (words, &["node/src/a.rs", "fn f() { unsafe { g() } }"]),
    (words, &["node/src/a.rs", "pub use intellect_protocol::id::PeerId;"]),
    (markdown, &["docs/A.md", "# One\n\n# Two"]),
    (markdown, &["README.md", "# One\n\n[gone](docs/GONE.md)"]),
    (markdown, &["README.md", "# One\n\n[no such heading](#two)"]),
    (book, &["docs/SUMMARY.md", "# S", "docs/LOST.md", "# L"]),
    (book, &["docs/SUMMARY.md", "(adr/0001-a.md)", "docs/adr/0001-a.md", "# 0001 A"]),
    (mentions, &["docs/A.md", "`model/src/gone.rs`"]),
    (mentions, &["docs/A.md", "`a_test_that_is_gone`", "model/src/a.rs", "fn a_test() {}"]),
    (mentions, &["model/src/a.rs", "//! As PROTOCOL-RULES has it."]),
    (
        said,
        &[
            "docs/OPERATING.md",
            "# O\n\n### What it says, and what to do\n\n| it says | it means |\n|---|---|\n| `lost peer …: gone` | so |",
            "node/src/a.rs",
            "//! A.\nfn f() { say(\"found peer {}\") }",
        ],
    ),
    (wire, &["protocol/src/wire.rs", "fn seal() {}", "docs/PROTOCOL.md", "`wire 0123`"]),
    (reduces, &["model/src/ops/norm.rs", "let mean = x.mean_dim(1);"]),
    (lock, &["Cargo.lock", "name = \"bincode\"\nname = \"bincode\"\n"]),
    (lock, &["Cargo.lock", "name = \"openssl-sys\"\n"]),
    (lock, &["Cargo.lock", "source = \"git+https://example.org/a\""]),
];

#[test]
fn the_tree_is_tidy() {
    let files = read_tree().unwrap();
    assert!(
        files.iter().any(|f| f.path.starts_with(SELF)),
        "no sources under {}",
        root().display()
    );
    let complaints: BTreeSet<String> = RULES.iter().flat_map(|(rule, _)| rule(&files)).collect();
    let complaints: Vec<String> = complaints.into_iter().collect();
    assert!(complaints.is_empty(), "\n{}\n", complaints.join("\n"));
}

#[test]
fn every_rule_can_fail() {
    for (rule, broken) in RULES {
        let file = |pair: &[&str]| File { path: pair[0].to_owned(), text: pair[1].to_owned() };
        let files: Vec<File> = broken.chunks(2).map(file).collect();
        assert_eq!(rule(&files).len(), 1, "{broken:?}: {:?}", rule(&files));
    }
}

#[test]
fn the_budgets_are_printed() {
    let files = read_tree().unwrap();
    println!("{:<10} {:>6} {:>6} {:>6}  prose", "crate", "code", "prose", "tests");
    for krate in CRATES {
        let mut count = Count::default();
        rust(&files)
            .filter(|f| f.path.starts_with(&format!("{krate}/")))
            .for_each(|f| count.add(f));
        let share = 100 * count.prose / (count.prose + count.code).max(1);
        println!("{krate:<10} {:>6} {:>6} {:>6}  {share} %", count.code, count.prose, count.tests);
    }
    let shipped: Vec<&File> = rust(&files).filter(|f| !is_test(&f.path)).collect();
    let mut lengths: Vec<usize> = shipped.iter().flat_map(|f| functions(&source(f))).collect();
    lengths.sort_unstable();
    println!("functions: {}, median {} lines", lengths.len(), lengths[lengths.len() / 2]);
    println!("longest function: {:?} lines", lengths.last());
    let longest = shipped.iter().map(|f| (source(f).len(), &f.path)).max();
    println!("longest file without its tests: {longest:?}");
}

// ---- rules ---------------------------------------------------------------------------------

/// A file ends at 500 lines without its tests, an inline test module at 150.
fn length(files: &[File]) -> Vec<String> {
    let mut out = Vec::new();
    for f in rust(files).filter(|f| !is_test(&f.path)) {
        let (lines, all) = (source(f).len(), f.text.lines().count());
        if lines > FILE_LINES_MAX {
            out.push(format!("{}: {lines} lines; split it by noun", f.path));
        }
        if all - lines > INLINE_TEST_LINES_MAX {
            let tests = f.path.replace(".rs", "/tests.rs");
            out.push(format!("{}: {} lines of tests; move them to {tests}", f.path, all - lines));
        }
    }
    out
}

/// Every Rust file opens by saying what it owns.
fn header(files: &[File]) -> Vec<String> {
    rust(files)
        .filter(|f| !f.text.starts_with("//! "))
        .map(|f| format!("{}: the first line is not `//! …`", f.path))
        .collect()
}

/// `protocol` has an allow-list; nobody else names what another crate is the home of; versions stand
/// in the workspace's table; a feature is a backend.
fn dependencies(files: &[File]) -> Vec<String> {
    let mut out = Vec::new();
    for f in files.iter().filter(|f| f.path.ends_with("/Cargo.toml")) {
        let krate = f.path.trim_end_matches("/Cargo.toml");
        let mut section = "";
        for line in f.text.lines() {
            if line.starts_with('[') {
                section = line.trim();
            } else if let Some((name, _)) = line.split_once(['.', '=', ' ']) {
                let listed = !name.is_empty() && !name.starts_with(['#', '"', ']', '}']);
                if listed && section.ends_with("dependencies]") {
                    if !line.contains("workspace = true") {
                        out.push(format!("{}: {name}: version not from the workspace", f.path));
                    } else if !may_depend(krate, name) {
                        out.push(format!("{}: {name} is not for {krate}", f.path));
                    }
                } else if listed && section == "[features]" && !FEATURES.contains(&name) {
                    out.push(format!("{}: feature {name}; there are {FEATURES:?}", f.path));
                }
            }
        }
    }
    out
}

/// Heavy crates and our own are named only in the files that are their homes.
fn homes(files: &[File]) -> Vec<String> {
    let mut out = Vec::new();
    for f in rust(files).filter(|f| !f.path.starts_with(SELF)) {
        let code = code(&f.text.lines().collect::<Vec<_>>());
        for (name, homes) in HOMES {
            let named = code.match_indices(name).any(|(at, _)| {
                let before = code[..at].chars().next_back();
                let after = code[at + name.len()..].trim_start_matches(is_identifier);
                let whole = code[at + name.len()..].starts_with(['_', ':']);
                !before.is_some_and(is_identifier) && whole && after.starts_with("::")
            });
            if named && !homes.iter().any(|home| f.path.starts_with(home)) {
                out.push(format!("{}: names `{name}`, whose home is {homes:?}", f.path));
            }
        }
    }
    out
}

/// In `protocol` a layer imports only those below it, and machines never one another.
fn layers(files: &[File]) -> Vec<String> {
    let mut out = Vec::new();
    for f in rust(files).filter(|f| f.path.starts_with("protocol/src/") && !is_test(&f.path)) {
        let inner = f.path.trim_start_matches("protocol/src/").trim_end_matches(".rs");
        let me = inner.split('/').next().unwrap_or_default();
        let Some(mine) = layer(me) else {
            if me != "lib" {
                out.push(format!("{}: `{me}` has no layer; give it one in tidy.rs", f.path));
            }
            continue;
        };
        let code = code(&source(f));
        let mut seen = imports(&code, "crate::");
        if inner == me {
            seen.extend(imports(&code, "super::"));
        }
        seen.sort_unstable();
        seen.dedup();
        for other in seen.into_iter().filter(|other| *other != me) {
            if layer(other)
                .is_some_and(|theirs| theirs > mine || (theirs == mine && mine == MACHINE))
            {
                out.push(format!("{}: `{me}` must not import `{other}`", f.path));
            }
        }
    }
    out
}

/// Files of a crate import one another in a circle of three at most: who opens one must open all.
fn circles(files: &[File]) -> Vec<String> {
    let mut out = Vec::new();
    for krate in CRATES_WITH_SOURCES {
        let modules: Vec<graph::Module> = rust(files)
            .filter(|f| f.path.starts_with(krate) && !is_test(&f.path))
            .map(|f| graph::Module::new(&f.path[krate.len()..], &code(&source(f))))
            .collect();
        for circle in graph::circles(&modules).into_iter().filter(|c| c.len() > CIRCLE_MAX) {
            out.push(format!("{krate}: {} import one another in a circle", circle.join(", ")));
        }
    }
    out
}

/// A struct that needs more fields than this holds several ideas.
fn fields(files: &[File]) -> Vec<String> {
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

/// A noun that more than one file of a crate may use means one thing there. The roles that every
/// machine has are told apart by their module.
fn nouns(files: &[File]) -> Vec<String> {
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

/// ARCHITECTURE.md lists the files to open for what is done most, and no list grows beyond its bound.
fn rooms(files: &[File]) -> Vec<String> {
    let mut out = Vec::new();
    let Some(page) = files.iter().find(|f| f.path == "docs/ARCHITECTURE.md") else { return out };
    for part in page.text.split("\n### ").skip(1) {
        let (title, rest) = part.split_once('\n').unwrap_or((part, ""));
        let Some((what, bound)) = title.split_once(": at most ") else { continue };
        let body = rest.split("\n#").next().unwrap_or_default();
        let named: BTreeSet<&str> =
            body.split('`').skip(1).step_by(2).filter(|word| word.ends_with(".rs")).collect();
        if bound.parse().is_ok_and(|bound: usize| named.len() > bound) {
            out.push(format!("{}: {what} opens {} files", page.path, named.len()));
        }
    }
    out
}

/// No drawer modules, no unbounded queue, no re-export of another crate, `unsafe` in its homes.
fn words(files: &[File]) -> Vec<String> {
    let mut out = Vec::new();
    for f in rust(files).filter(|f| !f.path.starts_with(SELF)) {
        let name = f.path.trim_end_matches(".rs").rsplit('/').next().unwrap_or_default();
        if DRAWERS.contains(&name) {
            out.push(format!("{}: `{name}` names no idea", f.path));
        }
        let lines: Vec<&str> = f.text.lines().collect();
        let code = code(&lines);
        for word in BANNED.iter().filter(|word| code.contains(**word)) {
            out.push(format!("{}: `{}` is banned, docs/STYLE.md says why", f.path, word.trim()));
        }
        let ships = read::code(&source(f)).contains(SIMULATED);
        if ships && !f.path.starts_with("protocol/sim") {
            out.push(format!("{}: `{SIMULATED}` believes every signature", f.path));
        }
        let unsafe_home = UNSAFE_HOMES.iter().any(|home| f.path.starts_with(home));
        if !unsafe_home && code.split(|c| !is_identifier(c)).any(|word| word == "unsafe") {
            out.push(format!("{}: `unsafe` lives in {UNSAFE_HOMES:?} only", f.path));
        }
    }
    out
}

/// Plain forms reduce by the helper that knows what CubeCL gets wrong.
fn reduces(files: &[File]) -> Vec<String> {
    let mut out = Vec::new();
    let plain = |f: &&File| f.path.starts_with("model/src/ops/") && f.path != REDUCE;
    for f in rust(files).filter(plain).filter(|f| !is_test(&f.path)) {
        let code = code(&source(f));
        for call in REDUCES.into_iter().filter(|call| code.contains(call)) {
            out.push(format!("{}: `{call}` of burn; take that of {REDUCE}", f.path));
        }
        if f.path != PRODUCT && code.contains(".matmul(") {
            out.push(format!("{}: `.matmul(` of burn; take that of {PRODUCT}", f.path));
        }
    }
    out
}

/// A document has one title, on top, and its relative links lead somewhere.
fn markdown(files: &[File]) -> Vec<String> {
    let mut out = Vec::new();
    for f in documents(files) {
        let titles = headings(&f.text).filter(|line| line.starts_with("# ")).count();
        if titles != 1 || !f.text.starts_with("# ") {
            out.push(format!("{}: {titles} titles; exactly one, on the first line", f.path));
        }
        let folder = Path::new(&f.path).parent().unwrap_or_else(|| Path::new(""));
        for link in links(&f.text).filter(|link| !link.contains("://")) {
            let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = if path.is_empty() { f.path.clone() } else { join(folder, path) };
            let file = files.iter().find(|f| f.path == target);
            let there = path.is_empty() || file.is_some() || root().join(&target).exists();
            let anchored = anchor.is_empty()
                || file.is_some_and(|f| headings(&f.text).any(|line| slug(line) == anchor));
            if !there || !anchored {
                out.push(format!("{}: dead link {link}", f.path));
            }
        }
    }
    out
}

/// SUMMARY lists every document; a record has its three parts.
fn book(files: &[File]) -> Vec<String> {
    let mut out = Vec::new();
    let summary = files.iter().find(|f| f.path == "docs/SUMMARY.md").map_or("", |f| &f.text);
    for f in documents(files) {
        let Some(inner) = f.path.strip_prefix("docs/") else { continue };
        if inner != "SUMMARY.md" && !summary.contains(&format!("({inner})")) {
            out.push(format!("{}: not in docs/SUMMARY.md", f.path));
        }
        let parts = ["## Context", "## Decision", "## Consequences"];
        if inner.starts_with("adr/") && parts.iter().any(|part| !f.text.contains(part)) {
            out.push(format!("{}: a record has {parts:?}", f.path));
        }
    }
    out
}

/// A source file, or a name with two underscores (a test, a function), that a document mentions in
/// backticks is there; nobody mentions a document that only its author has.
fn mentions(files: &[File]) -> Vec<String> {
    let mut out = Vec::new();
    for f in documents(files) {
        for word in f.text.split('`').skip(1).step_by(2) {
            let path = word.ends_with(".rs") && !word.contains(['*', '<', '{', ' ']);
            let name = word.chars().all(is_identifier) && word.matches('_').count() > 1;
            let found = |file: &File| {
                if path { file.path.ends_with(word) } else { file.text.contains(word) }
            };
            if (path || name) && !rust(files).any(found) {
                out.push(format!("{}: `{word}` is not in the tree", f.path));
            }
        }
    }
    for f in files.iter().filter(|f| !f.path.starts_with(SELF)) {
        for name in ELSEWHERE.iter().filter(|name| f.text.contains(**name)) {
            out.push(format!("{}: {name} is not in this repository", f.path));
        }
    }
    out
}

/// The sentences that OPERATING.md explains are those that the programs say.
fn said(files: &[File]) -> Vec<String> {
    let Some(f) = files.iter().find(|f| f.path == "docs/OPERATING.md") else { return Vec::new() };
    let unsaid = sentences::unsaid(&f.text, "### What it says, and what to do", files);
    unsaid.into_iter().map(|cell| format!("{}: no program says `{cell}`", f.path)).collect()
}

/// PROTOCOL.md carries the hash of what it describes: the code, without comments and tests, of the
/// files that fix the bytes of a message.
fn wire(files: &[File]) -> Vec<String> {
    let of = |path: &str| files.iter().find(|f| f.path == path);
    let code: String = WIRE.iter().filter_map(|p| of(p)).map(|f| code(&source(f))).collect();
    let stated = format!("`wire {:016x}`", fnv1a64(code.as_bytes()));
    if code.is_empty() || of("docs/PROTOCOL.md").is_some_and(|f| f.text.contains(&stated)) {
        return Vec::new();
    }
    vec![format!("docs/PROTOCOL.md: {WIRE:?} changed; correct the text, then state {stated}")]
}

/// One copy of what must be one, nothing from git, no second TLS.
fn lock(files: &[File]) -> Vec<String> {
    let Some(lock) = files.iter().find(|f| f.path == "Cargo.lock") else { return Vec::new() };
    let copies = |name: &str| lock.text.matches(&format!("name = \"{name}\"\n")).count();
    let mut out = Vec::new();
    for name in ["bincode", "ed25519-dalek"].into_iter().filter(|name| copies(name) > 1) {
        out.push(format!("Cargo.lock: {} copies of {name}", copies(name)));
    }
    for name in ["openssl", "openssl-sys", "native-tls"].into_iter().filter(|n| copies(n) > 0) {
        out.push(format!("Cargo.lock: {name}; TLS and signatures are pure Rust here"));
    }
    for line in lock.text.lines().filter(|line| line.starts_with("source = \"git+")) {
        out.push(format!("Cargo.lock: {line}; a release from the registry only"));
    }
    out
}

fn may_depend(krate: &str, name: &str) -> bool {
    let within = |list: &[&str]| {
        list.iter().any(|l| name == *l || name.strip_prefix(l).is_some_and(|r| r.starts_with('-')))
    };
    match krate {
        "protocol" => PROTOCOL_MAY.contains(&name),
        "protocol/sim" => ["blake3", "intellect-protocol"].contains(&name),
        "model" => !within(&["intellect", "libp2p", "tokio", "bincode", "clap"]),
        "bootstrap" => !within(&["intellect", "burn", "bincode", "pulp", "gemm", "rayon"]),
        _ => !within(&["burn", "bincode", "pulp", "gemm"]),
    }
}

fn layer(module: &str) -> Option<usize> {
    LAYERS.iter().position(|modules| modules.contains(&module))
}

// ---- limits and lists ----------------------------------------------------------------------

const SELF: &str = "tests/tests/tidy";
/// Where the sources of each crate begin.
const CRATES_WITH_SOURCES: [&str; 6] = [
    "protocol/src/",
    "protocol/sim/src/",
    "model/src/",
    "bootstrap/src/",
    "node/src/",
    "tests/src/",
];
const CIRCLE_MAX: usize = 3;
const FIELDS_MAX: usize = 20;
/// The nouns that every machine has.
const ROLES: [&str; 5] = ["State", "Input", "Output", "Config", "Event"];
/// Four files in a circle, for `every_rule_can_fail`.
const FOUR: [&str; 4] = ["use b::B;", "use crate::{c, e};", "use super::d::D;", "use crate::a;"];
/// A struct of 21 fields, likewise.
const WIDE: &str = "struct S {
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
const FILE_LINES_MAX: usize = 500;
const INLINE_TEST_LINES_MAX: usize = 150;
/// A file of 501 lines and a header, for `every_rule_can_fail`.
const LONG: &str = match std::str::from_utf8(&[b'\n'; FILE_LINES_MAX + 1]) {
    Ok(text) => text,
    Err(_) => "",
};
/// What `protocol` may depend on, for building and for testing.
const PROTOCOL_MAY: [&str; 7] =
    ["bincode", "blake3", "ed25519-dalek", "serde", "thiserror", "toml", "proptest"];
/// Each compiles a backend in.
const FEATURES: [&str; 3] = ["cuda", "wgpu", "cube"];
/// Crate names (with what follows after `_`) and the path prefixes that may name them.
const HOMES: &[(&str, &[&str])] = &[
    ("bincode", &["protocol/src/wire"]),
    ("burn", &["model/"]),
    ("wgpu", &["model/src/device/"]),
    ("cudarc", &["model/src/device/"]),
    ("cubecl", &["model/src/ops/", "model/tests/device/tensor_cores.rs"]),
    ("cubek", &["model/src/ops/cube.rs"]),
    ("libp2p", &["bootstrap/", "node/src/net", "tests/"]),
    ("intellect_protocol", &["protocol/", "node/", "tests/"]),
    ("intellect_protocol_sim", &["protocol/sim/", "node/src/sim/", "tests/examples/liars.rs"]),
    ("intellect_model", &["model/", "node/"]),
    ("intellect_bootstrap", &["bootstrap/", "node/", "tests/"]),
    ("intellect_node", &["node/", "tests/"]),
];
/// The files that fix the bytes of a message.
const WIRE: [&str; 7] = [
    "protocol/src/message.rs",
    "protocol/src/message/kept.rs",
    "protocol/src/message/proof.rs",
    "protocol/src/message/record.rs",
    "protocol/src/message/regroup.rs",
    "protocol/src/message/trust.rs",
    "protocol/src/wire.rs",
];
/// The modules of `protocol`: values, functions, machines, the root.
const LAYERS: [&[&str]; 5] = [
    &[
        "admit", "base58", "blocks", "event", "fault", "id", "lobby", "message", "rng", "roll",
        "rule", "seal", "sign", "time", "wire",
    ],
    &[
        "assign",
        "checkpoint",
        "codec",
        "ledger",
        "lineage",
        "log",
        "manifest",
        "notices",
        "output",
        "repair",
        "ring",
        "step",
        "tree",
    ],
    &["view", "epoch", "sync", "exchange", "crowd"],
    &["peer"],
    &["holdings"],
];
const MACHINE: usize = 2;
const REDUCE: &str = "model/src/ops/reduce.rs";
/// The product whose kernel is fixed on every device.
const PRODUCT: &str = "model/src/ops/project.rs";
const REDUCES: [&str; 8] = [
    ".sum_dim(",
    ".mean_dim(",
    ".max_dim(",
    ".min_dim(",
    ".argmax(",
    ".argmin(",
    "activation::softmax",
    "activation::log_softmax",
];
const DRAWERS: [&str; 9] =
    ["util", "utils", "common", "core", "types", "helper", "helpers", "misc", "prelude"];
const BANNED: [&str; 8] = [
    "unbounded",
    "todo!",
    "unimplemented!",
    "#[ignore",
    "#[should_panic",
    "pub use intellect_",
    "pub use libp2p",
    "pub use burn",
];
/// The key of simulated peers, of which nothing but the simulator may know.
const SIMULATED: &str = "Keypair::simulated";
/// Documents that this repository does not hold.
const ELSEWHERE: [&str; 5] = ["PROTOCOL-RULES", "FORMATS §", "DESIGN.md", "DESIGN §", "LAYOUT.md"];
const UNSAFE_HOMES: [&str; 6] = [
    "model/src/device/nvidia.rs",
    "model/src/ops/",
    "model/tests/device/tensor_cores.rs",
    "model/tests/replay/masked.rs",
    "node/src/os.rs",
    "protocol/tests/decoders/memory.rs",
];
