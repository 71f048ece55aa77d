//! The project's own rules about its sources, as a test.
//!
//! Rules that neither the compiler nor clippy can express: who may depend on whom, which file is
//! the one home of a heavy crate, how long a file may grow, that the documents agree with the tree.
//! A `Rule` is a pure function from files to complaints. `RULES` pairs each one with the smallest
//! tree that breaks it, so a rule that can no longer fail is itself a failing test.
//!
//! `the_budgets_are_printed` measures what docs/TESTING.md asks a reader to watch; budgets never fail.
//!
//! It does not check what a lint checks (unwraps, casts, docs, `protocol`'s purity).

#[path = "tidy/documents.rs"]
mod documents;
#[path = "tidy/graph.rs"]
mod graph;
#[path = "tidy/messages.rs"]
mod messages;
#[path = "tidy/methods.rs"]
mod methods;
#[path = "tidy/comments.rs"]
mod comments;
#[path = "tidy/prose.rs"]
mod prose;
#[path = "tidy/ratchet.rs"]
mod ratchet;
#[path = "tidy/read.rs"]
mod read;
#[path = "tidy/types.rs"]
mod types;

use std::collections::BTreeSet;

use comments::{headless, idioms, short};
use documents::{book, labels, markdown, mentions, said, wire};
use prose::readable;
use ratchet::{CODE_LINES, MANY, code_lines, few_files, method_circles};
use read::{
    Count, File, code, functions, imports, is_identifier, is_test, read_tree, root, rust, source,
};
use types::{WIDE, fields, nouns};

/// Complaints, each naming a file and what to do about it.
type Rule = fn(&[File]) -> Vec<String>;

/// Every rule with the smallest tree that breaks it: path, text, path, text, …
const RULES: &[(Rule, &[&str])] = &[
    (length, &["model/src/long.rs", LONG]),
    (header, &["model/src/a.rs", "use std::fs;"]),
    (dependencies, &["protocol/Cargo.toml", "[dependencies]\nrand.workspace = true"]),
    (dependencies, &["protocol/table/Cargo.toml", "[dependencies]\nserde.workspace = true"]),
    (dependencies, &["model/Cargo.toml", "[dependencies]\nlibp2p.workspace = true"]),
    (dependencies, &["node/Cargo.toml", "[dependencies]\nclap = \"4\""]),
    (dependencies, &["node/Cargo.toml", "[features]\nfast = []"]),
    (homes, &["node/src/store.rs", "use bincode::encode;"]),
    (homes, &["model/src/data.rs", "fn f(p: intellect_protocol::base::id::PeerId) {}"]),
    (homes, &["node/src/driver.rs", "use intellect_table::Error;"]),
    (homes, &["node/src/cli.rs", "use libp2p::Multiaddr;"]),
    (homes, &["node/src/worker.rs", "use burn_flex::Flex;"]),
    (homes, &["protocol/src/peer.rs", "use intellect_protocol_sim::Faults;"]),
    (words, &["node/src/identity.rs", "let key = Keypair::simulated(peer);"]),
    (floors, &["protocol/src/view.rs", "use crate::{consensus::epoch::State, base::id::PeerId};"]),
    (floors, &["protocol/src/consensus/epoch/acceptor.rs", "use crate::peer;"]),
    (floors, &["protocol/src/base/id.rs", "use crate::ring;"]),
    (floors, &["protocol/src/novel.rs", "//! A file on no floor."]),
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
    (
        method_circles,
        &[
            "bootstrap/src/a.rs",
            "impl<F: Fn() -> u8> S<F> {\n    fn f(&self) {\n        self.g();\n    }\n}",
            "bootstrap/src/a/b.rs",
            "use super::S;\n\nimpl<F> S<F> {\n    fn g(&self) {\n        self\n            .f();\n    }\n}",
        ],
    ),
    (method_circles, &["protocol/sim/src/a.rs", "//! A crate that has no circle any more."]),
    (
        few_files,
        &[
            "bootstrap/src/a.rs",
            "use b::S;\n\nimpl S {}",
            "bootstrap/src/a/b.rs",
            "impl S {}",
            "bootstrap/src/c.rs",
            "use crate::{a::S, d};\n\nimpl S {}",
            "bootstrap/src/d.rs",
            "impl super::a::S {}",
        ],
    ),
    (few_files, &["protocol/sim/src/a.rs", "//! A crate that has no such type any more."]),
    (headless, &["node/src/a.rs", "//! A file.\n//! Whoever asks, is answered."]),
    (short, &["node/src/a.rs", "/// Its length.\nlength: u64,"]),
    (idioms, &["node/src/a.rs", "x.into_iter().for_each(f);"]),
    (code_lines, &["tests/src/a.rs", MANY]),
    (code_lines, &["tests/src/a.rs", "//! A crate that has no code any more."]),
    (fields, &["node/src/a.rs", WIDE]),
    (
        nouns,
        &["node/src/a.rs", "pub(crate) struct Line;", "node/src/b.rs", "pub(super) enum Line {"],
    ),
    (words, &["node/src/utils.rs", "//! Things."]),
    (words, &["node/src/a.rs", "let (a, b) = mpsc::unbounded_channel();"]),
    (words, &["node/src/a.rs", "fn f() { unsafe { g() } }"]),
    (words, &["node/src/a.rs", "pub use intellect_protocol::base::id::PeerId;"]),
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
            "docs/TROUBLESHOOTING.md",
            "# T\n\n| it says | it means |\n|---|---|\n| `lost peer …` | so |",
            "node/src/a.rs",
            "//! A.\nfn f() { say(\"found peer {}\") }",
        ],
    ),
    (
        said,
        &[
            "docs/TROUBLESHOOTING.md",
            "# T\n\n| it says | it means |\n|---|---|\n| `lost` | so |\n| `found` | so |",
            "node/src/a.rs",
            "//! A.\nfn f() { say(\"lost found\") }",
        ],
    ),
    (readable, &["README.md", "# R\n\nWho waits here is late."]),
    (readable, &["README.md", WORDY]),
    (labels, &["docs/PROTOCOL.md", "- **R1** a", "node/src/a.rs", "//! As R1 and N4 have it."]),
    (
        switches,
        &[
            "protocol/src/base/rule.rs",
            "pub enum Rule {\n    R2,\n    /// A rule.\n    R20,\n    R3,\n}",
            "protocol/sim/tests/a.rs",
            "missed(Rule::R2, Faults::Lossy); played(Some(Rule::R3))?;",
        ],
    ),
    (wire, &["protocol/src/message/wire.rs", "fn seal() {}", "docs/PROTOCOL.md", "`wire 0123`"]),
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
    println!("{:<12} {:>6} {:>6} {:>6}  prose", "crate", "code", "prose", "tests");
    for (krate, _) in CODE_LINES {
        let count = ratchet::count(krate, &files);
        let share = 100 * count.prose / (count.prose + count.code).max(1);
        println!("{krate:<12} {:>6} {:>6} {:>6}  {share} %", count.code, count.prose, count.tests);
    }
    let shipped: Vec<&File> = rust(&files).filter(|f| !is_test(&f.path)).collect();
    let mut lengths: Vec<usize> = shipped.iter().flat_map(|f| functions(&source(f))).collect();
    lengths.sort_unstable();
    println!("functions: {}, median {} lines", lengths.len(), lengths[lengths.len() / 2]);
    println!("longest function: {:?} lines", lengths.last());
    let longest = shipped.iter().map(|f| (Count::of(f).code, &f.path)).max();
    println!("longest file, in lines of code: {longest:?}");
    prose::measures(&files).into_iter().for_each(|line| println!("{line}"));
}

// ---- rules ---------------------------------------------------------------------------------

/// A file ends at 420 lines of code without its tests, an inline test module at 150 lines. Comments do not count: nobody
/// shall cut an explanation to keep a bound.
fn length(files: &[File]) -> Vec<String> {
    let mut out = Vec::new();
    for f in rust(files).filter(|f| !is_test(&f.path)) {
        let (lines, all) = (source(f).len(), f.text.lines().count());
        let code = Count::of(f).code;
        if code > FILE_CODE_MAX {
            out.push(format!("{}: {code} lines of code; split it by noun", f.path));
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

/// `protocol` has an allow-list; no other crate names a dependency outside its home; versions stand
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

/// In `protocol` a room imports only rooms of lower floors, so machines never import one another.
fn floors(files: &[File]) -> Vec<String> {
    let mut out = Vec::new();
    for f in rust(files).filter(|f| f.path.starts_with(ROOMS) && !is_test(&f.path)) {
        let code = code(&source(f));
        let module = graph::Module::new(&f.path[ROOMS.len()..], &code);
        let Some((floor, mine)) = room(&module.name()) else {
            if !FOLDERS.contains(&module.name().as_str()) {
                out.push(format!("{}: this module stands on no floor of tidy.rs", f.path));
            }
            continue;
        };
        let inline = imports(&code, "crate::").into_iter().map(str::to_owned);
        let seen: BTreeSet<String> = module.imports().chain(inline).collect();
        for (theirs, other) in seen.iter().filter_map(|path| room(path)) {
            if other != mine && theirs >= floor {
                out.push(format!("{}: `{mine}` must not import `{other}`", f.path));
            }
        }
    }
    out
}

/// Files of a crate import one another in a circle of three at most: a reader of one must open all.
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

/// Each rule that a test can switch off is switched off by a test of the simulator, which notices.
fn switches(files: &[File]) -> Vec<String> {
    let Some(rules) = files.iter().find(|f| f.path == SWITCHES) else { return Vec::new() };
    let tests: Vec<&File> = rust(files).filter(|f| f.path.starts_with(SWITCHED_BY)).collect();
    let is_off = |rule: &&str| {
        let forms = [format!("missed(Rule::{rule},"), format!("Some(Rule::{rule})")];
        tests.iter().any(|f| forms.iter().any(|form| f.text.contains(form)))
    };
    let lines = rules.text.lines().skip_while(|line| *line != "pub enum Rule {").skip(1);
    let lines = lines.take_while(|line| *line != "}").filter_map(|l| l.trim().strip_suffix(','));
    let all = lines.filter(|rule| rule.chars().all(is_identifier));
    let left = all.filter(|rule| !is_off(rule));
    left.map(|rule| format!("{SWITCHES}: no test in {SWITCHED_BY} switches {rule} off")).collect()
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
        "node/view" => !within(&["intellect", "burn", "libp2p", "bincode", "clap"]),
        "protocol/table" => name == "toml",
        "model" => {
            name == "intellect-table"
                || !within(&["intellect", "libp2p", "tokio", "bincode", "clap"])
        }
        "bootstrap" => !within(&["intellect", "burn", "bincode", "pulp", "gemm", "rayon"]),
        _ => !within(&["burn", "bincode", "pulp", "gemm"]),
    }
}

/// The floor and the room of a path from the root of `protocol`.
fn room(path: &str) -> Option<(usize, &'static str)> {
    let holds = |room: &str| {
        path.strip_prefix(room).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
    };
    let rooms = FLOORS
        .iter()
        .enumerate()
        .flat_map(|(floor, rooms)| rooms.iter().map(move |room| (floor, *room)));
    rooms.filter(|(_, room)| holds(room)).max_by_key(|(_, room)| room.len())
}

// ---- limits and lists ----------------------------------------------------------------------

const SELF: &str = "tests/tests/tidy";
/// Where the sources of each crate begin.
const CRATES_WITH_SOURCES: [&str; 8] = [
    "protocol/src/",
    "protocol/sim/src/",
    "protocol/table/src/",
    "model/src/",
    "bootstrap/src/",
    "node/src/",
    "node/view/src/",
    "tests/src/",
];
const CIRCLE_MAX: usize = 3;
/// Four files in a circle, for `every_rule_can_fail`.
const FOUR: [&str; 4] = ["use b::B;", "use crate::{c, e};", "use super::d::D;", "use crate::a;"];
const FILE_CODE_MAX: usize = 420;
const INLINE_TEST_LINES_MAX: usize = 150;
/// A file with one line of code too many, for `every_rule_can_fail`.
const LINES: &[[u8; 2]] = &[*b";\n"; FILE_CODE_MAX + 1];
const LONG: &str = match std::str::from_utf8(LINES.as_flattened()) {
    Ok(text) => text,
    Err(_) => "",
};
/// A page of one sentence that nobody reads, for `every_rule_can_fail`.
const WORDY: &str =
    "# R\n\nThis one goes on and on and on and on and on and on and on and on and on and on.";
/// What `protocol` may depend on, for building and for testing.
const PROTOCOL_MAY: [&str; 9] = [
    "bincode",
    "blake3",
    "bs58",
    "ed25519-dalek",
    "intellect-table",
    "serde",
    "thiserror",
    "toml",
    "proptest",
];
/// Features that compile a backend in.
const FEATURES: [&str; 3] = ["cuda", "wgpu", "cube"];
/// Crate names (with what follows after `_`) and the path prefixes that may name them.
const HOMES: &[(&str, &[&str])] = &[
    ("bincode", &["protocol/src/message/wire"]),
    ("burn", &["model/"]),
    ("wgpu", &["model/src/device/"]),
    ("cudarc", &["model/src/device/"]),
    ("cubecl", &["model/src/ops/", "model/tests/device/tensor_cores.rs"]),
    ("cubek", &["model/src/ops/cube.rs"]),
    ("libp2p", &["bootstrap/", "node/src/net", "tests/"]),
    ("intellect_protocol", &["protocol/", "node/", "tests/"]),
    ("intellect_protocol_sim", &["protocol/sim/", "node/src/sim/", "tests/examples/liars"]),
    ("intellect_table", &["protocol/", "model/", "node/src/manifest"]),
    ("intellect_model", &["model/", "node/"]),
    ("intellect_bootstrap", &["bootstrap/", "node/", "tests/"]),
    ("intellect_node", &["node/", "tests/"]),
    (
        "intellect_view",
        &[
            "node/view/",
            "node/src/tools/",
            "node/src/tell",
            "node/src/page.rs",
            "node/src/readers.rs",
            "node/src/tui.rs",
            "node/src/sim/show.rs",
            "tests/src/bin/panicking.rs",
        ],
    ),
    ("axum", &["node/view/src/page", "node/src/tools/serve/"]),
    ("ratatui", &["node/view/src/tui"]),
    ("hyper", &["node/view/src/page", "node/src/tools/serve/"]),
];
const ROOMS: &str = "protocol/src/";
/// Modules of `protocol` that only declare others.
const FOLDERS: [&str; 2] = ["", "consensus"];
/// The rooms of `protocol` by floor. A module that is named alone stands on another floor than its folder.
const FLOORS: [&[&str]; 8] = [
    &["base"],
    &["message"],
    &["access", "ring"],
    &["history"],
    &["manifest", "machine"],
    &["view", "consensus::epoch", "consensus::sync", "ring::exchange", "download"],
    &["peer"],
    &["holdings"],
];
/// The rules of which a test may switch one off, and the tests that do.
const SWITCHES: &str = "protocol/src/base/rule.rs";
const SWITCHED_BY: &str = "protocol/sim/tests/";
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
/// The key of simulated peers, which only the simulator may name.
const SIMULATED: &str = "Keypair::simulated";
const UNSAFE_HOMES: [&str; 7] = [
    "model/src/device/nvidia.rs",
    "model/src/ops/",
    "model/tests/device/tensor_cores.rs",
    "model/tests/replay/masked.rs",
    "node/src/os.rs",
    "model/examples/prefill.rs",
    "protocol/tests/decoders/memory.rs",
];
