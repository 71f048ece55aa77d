//! Rules about documents: their form, and that they agree with the tree.

use std::collections::BTreeSet;
use std::path::Path;

use super::SELF;
use super::messages;
use super::read::{
    File, code, documents, fnv1a64, headings, is_identifier, join, links, root, rust, slug, source,
};

/// A document has one title, on top, and its relative links lead somewhere.
pub(super) fn markdown(files: &[File]) -> Vec<String> {
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
pub(super) fn book(files: &[File]) -> Vec<String> {
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
/// backticks exists; no comment or page mentions a document that is not in this repository.
pub(super) fn mentions(files: &[File]) -> Vec<String> {
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

/// The messages that a document explains are those that the programs print; those of TROUBLESHOOTING.md are sorted.
pub(super) fn said(files: &[File]) -> Vec<String> {
    let mut out = Vec::new();
    for f in documents(files) {
        let unsaid = messages::unsaid(&f.text, files).into_iter();
        out.extend(
            unsaid.map(|(line, text)| format!("{}:{line}: no program says `{text}`", f.path)),
        );
        if f.path == "docs/TROUBLESHOOTING.md" {
            let unsorted = messages::unsorted(&f.text).into_iter();
            out.extend(
                unsorted.map(|line| format!("{}:{line}: this row stands too far down", f.path)),
            );
        }
    }
    out
}

/// A label that a comment cites (`R12`, `S4`) is a rule of PROTOCOL.md. One rule may have several: `- **R12, G8** …`.
pub(super) fn labels(files: &[File]) -> Vec<String> {
    let Some(page) = files.iter().find(|f| f.path == "docs/PROTOCOL.md") else { return Vec::new() };
    let rules = page.text.lines().filter_map(|line| line.strip_prefix("- **")?.split_once("**"));
    let known: BTreeSet<&str> = rules.flat_map(|(labels, _)| labels.split(", ")).collect();
    let is_label = |word: &&str| {
        let digits = word.strip_prefix(LABELS).unwrap_or_default();
        !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit())
    };
    let mut out = Vec::new();
    for f in rust(files).filter(|f| !f.path.starts_with(SELF)) {
        for (at, line) in f.text.lines().enumerate() {
            let comment = line.split_once("//").map_or("", |(_, comment)| comment);
            let cited = comment.split(|c| !is_identifier(c)).filter(is_label);
            for label in cited.filter(|label| !known.contains(label)) {
                out.push(format!("{}:{}: {label} is no rule of {}", f.path, at + 1, page.path));
            }
        }
    }
    out
}

/// PROTOCOL.md carries the hash of what it describes: the code, without comments and tests, of the
/// files that fix the bytes of a message.
pub(super) fn wire(files: &[File]) -> Vec<String> {
    let of = |path: &str| files.iter().find(|f| f.path == path);
    let code: String = WIRE.iter().filter_map(|p| of(p)).map(|f| code(&source(f))).collect();
    let stated = format!("`wire {:016x}`", fnv1a64(code.as_bytes()));
    if code.is_empty() || of("docs/PROTOCOL.md").is_some_and(|f| f.text.contains(&stated)) {
        return Vec::new();
    }
    vec![format!("docs/PROTOCOL.md: {WIRE:?} changed; correct the text, then state {stated}")]
}

/// What a label of PROTOCOL.md begins with.
const LABELS: [char; 7] = ['R', 'G', 'T', 'S', 'L', 'D', 'N'];
/// The files that fix the bytes of a message.
const WIRE: [&str; 8] = [
    "protocol/src/message.rs",
    "protocol/src/message/kept.rs",
    "protocol/src/message/proof.rs",
    "protocol/src/message/record.rs",
    "protocol/src/message/regroup.rs",
    "protocol/src/message/request.rs",
    "protocol/src/message/trust.rs",
    "protocol/src/message/wire.rs",
];
/// Documents that are not in this repository.
const ELSEWHERE: [&str; 5] = ["PROTOCOL-RULES", "FORMATS §", "DESIGN.md", "DESIGN §", "LAYOUT.md"];
