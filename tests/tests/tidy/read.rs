//! What the project's rules read: files, and the little of Rust and Markdown that they need.
//!
//! Lines, not syntax: rustfmt keeps the layout of the code regular enough for that.

use std::path::{Path, PathBuf};
use std::{fs, io};

/// One file of the tree: its path from the repository's root, with `/`, and its text.
pub(crate) struct File {
    pub(crate) path: String,
    pub(crate) text: String,
}

/// Lines of a crate by kind; blank lines are of no kind.
#[derive(Default)]
pub(crate) struct Count {
    pub(crate) code: usize,
    pub(crate) prose: usize,
    pub(crate) tests: usize,
}

impl Count {
    pub(crate) fn of(file: &File) -> Self {
        let mut count = Self::default();
        count.add(file);
        count
    }

    pub(crate) fn add(&mut self, file: &File) {
        let filled = |lines: &[&str]| lines.iter().filter(|l| !l.trim().is_empty()).count();
        let all: Vec<&str> = file.text.lines().collect();
        if is_test(&file.path) {
            self.tests += filled(&all);
            return;
        }
        let kept = source(file);
        let prose = kept.iter().filter(|l| l.trim_start().starts_with("//")).count();
        self.prose += prose;
        self.code += filled(&kept) - prose;
        self.tests += filled(&all) - filled(&kept);
    }
}

pub(crate) fn rust(files: &[File]) -> impl Iterator<Item = &File> {
    files.iter().filter(|f| f.path.ends_with(".rs"))
}

pub(crate) fn documents(files: &[File]) -> impl Iterator<Item = &File> {
    files.iter().filter(|f| f.path.ends_with(".md"))
}

pub(crate) fn is_test(path: &str) -> bool {
    path.contains("/tests/") || path.ends_with("/tests.rs")
}

pub(crate) fn is_identifier(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// The lines of a file without its inline test module.
pub(crate) fn source(file: &File) -> Vec<&str> {
    let lines: Vec<&str> = file.text.lines().collect();
    let opens = |at: &usize| {
        let module = |line: &&str| line.ends_with("mod tests {");
        lines[*at] == "#[cfg(test)]" && lines[*at..].iter().take(4).any(module)
    };
    let Some(start) = (0..lines.len()).find(opens) else { return lines };
    let length = lines[start..].iter().position(|line| *line == "}");
    let end = length.map_or(lines.len(), |length| start + length + 1);
    [&lines[..start], &lines[end..]].concat()
}

/// Lines without comments, joined again.
pub(crate) fn code(lines: &[&str]) -> String {
    let code = |line: &&str| !line.trim_start().starts_with("//");
    let lines: Vec<&str> =
        lines.iter().copied().filter(code).map(|l| l.split(" // ").next().unwrap_or(l)).collect();
    lines.join("\n")
}

/// The first names behind a path prefix: `crate::a::B` and `crate::{a::B, c}` give a, and a and c.
pub(crate) fn imports<'a>(code: &'a str, prefix: &str) -> Vec<&'a str> {
    let mut out = Vec::new();
    for (at, _) in code.match_indices(prefix) {
        let rest = &code[at + prefix.len()..];
        let group = rest.strip_prefix('{');
        let mut depth = 0;
        for part in group.unwrap_or(rest).split_inclusive(['{', '}', ',', ';']) {
            if depth == 0 {
                out.push(name(part.trim_start()));
            }
            depth += i32::from(part.ends_with('{')) - i32::from(part.ends_with('}'));
            if group.is_none() || depth < 0 || part.ends_with(';') {
                break;
            }
        }
    }
    out
}

/// The name of the function that begins on the line.
pub(crate) fn function(line: &str) -> Option<&str> {
    let (words, rest) = line.trim_start().split_once("fn ")?;
    let qualified = words
        .split(' ')
        .all(|w| matches!(w, "" | "const" | "async" | "unsafe") || w.starts_with("pub"));
    qualified.then(|| name(rest))
}

/// The identifier with which a text begins.
pub(crate) fn name(text: &str) -> &str {
    &text[..text.find(|c| !is_identifier(c)).unwrap_or(text.len())]
}

/// The lengths of the functions in rustfmt's layout, from `fn` to the brace below it.
pub(crate) fn functions(lines: &[&str]) -> Vec<usize> {
    let mut out = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let head = line.trim_start();
        let indent = &line[..line.len() - head.len()];
        if function(line).is_some() && !head.ends_with(';') {
            let end = lines[at..].iter().position(|l| *l == format!("{indent}}}"));
            out.push(if head.ends_with('}') { 1 } else { end.unwrap_or(0) + 1 });
        }
    }
    out
}

/// The lines of a document outside code blocks.
fn plain(text: &str) -> impl Iterator<Item = &str> {
    let mut fenced = false;
    text.lines().filter(move |line| {
        fenced ^= line.starts_with("```");
        !fenced
    })
}

pub(crate) fn headings(text: &str) -> impl Iterator<Item = &str> {
    plain(text).filter(|line| line.starts_with('#'))
}

/// The targets of `[text](target)`.
pub(crate) fn links(text: &str) -> impl Iterator<Item = &str> {
    plain(text).flat_map(|l| l.split("](").skip(1).filter_map(|rest| rest.split(')').next()))
}

/// The anchor of a heading, as GitHub derives it.
pub(crate) fn slug(heading: &str) -> String {
    let text = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = text.chars().filter(|c| is_identifier(*c) || matches!(c, '-' | ' '));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

/// `folder/path` with `..` resolved, as the paths of [`File`] are written.
pub(crate) fn join(folder: &Path, path: &str) -> String {
    let mut parts: Vec<&str> = folder.iter().filter_map(|part| part.to_str()).collect();
    for part in path.trim_end_matches('/').split('/') {
        match part {
            ".." => drop(parts.pop()),
            "." => {}
            _ => parts.push(part),
        }
    }
    parts.join("/")
}

/// FNV-1a, 64 bits (Fowler, Noll, Vo): short enough to stand here, and no attacker to resist.
pub(crate) fn fnv1a64(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Every source, manifest and document of the repository, sorted by path.
pub(crate) fn read_tree() -> io::Result<Vec<File>> {
    let mut files = Vec::new();
    let mut folders = vec![String::new()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(root().join(&folder))? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let top = folder.is_empty();
            let path = if top { name.clone() } else { format!("{folder}/{name}") };
            if entry.file_type()?.is_dir() {
                let ours = name == "docs" || CRATES.contains(&&*name);
                if (ours || !top) && name != "target" {
                    folders.push(path);
                }
            } else if KINDS.iter().any(|kind| name.ends_with(kind)) {
                files.push(File { text: fs::read_to_string(entry.path())?, path });
            }
        }
    }
    files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(files)
}

const CRATES: [&str; 5] = ["protocol", "model", "bootstrap", "node", "tests"];
const KINDS: [&str; 4] = [".rs", ".md", "Cargo.toml", "Cargo.lock"];
