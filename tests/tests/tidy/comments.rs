//! Comments that a second-language reader reads once: no sentence hangs on a *who* without a noun, no comment
//! repeats the name below it, and code does not spell a plain `if` in another way.
//!
//! Each is counted for every crate, and held to the number of its row.

use std::collections::BTreeMap;

use super::SELF;
use super::ratchet::{held, home};
use super::read::{File, rust};

/// How often each stands in a crate: sentences without a subject, comments that repeat a name, idioms.
const ROWS: [(&str, [usize; 3]); 6] = [
    ("protocol", [0, 0, 0]),
    ("protocol/sim", [0, 0, 0]),
    ("model", [0, 0, 0]),
    ("bootstrap", [0, 0, 0]),
    ("node", [0, 2, 0]),
    ("tests", [0, 0, 0]),
];

/// No sentence of a comment begins with a relative pronoun in place of its subject.
pub(super) fn headless(files: &[File]) -> Vec<String> {
    counted(files, 0, "sentences that begin with a headless who", |file| {
        let begins = |text: &str| {
            let text = text.trim_start_matches([' ', '*', '_', '-']);
            let leads = |word: &&str| {
                text.strip_prefix(*word).is_some_and(|rest| rest.starts_with([' ', '\'', ',']))
            };
            HEADLESS.iter().any(leads) && !text.ends_with('?')
        };
        let sentences = |text: &str| text.split(['.', ';', ':']).filter(|s| begins(s)).count();
        let found = comments(file).into_iter();
        found.flat_map(|comment| vec![comment.line; sentences(&comment.text)]).collect()
    })
}

/// A comment of one line says more than the name under it.
pub(super) fn short(files: &[File]) -> Vec<String> {
    counted(files, 1, "comments under 28 characters", |file| {
        let is_mark = |text: &str| text.starts_with(['-', '[', '(', '#']) || text.contains(" = ");
        let is_short =
            |c: &Comment| c.lines == 1 && c.text.chars().count() < SHORT && !is_mark(&c.text);
        comments(file).into_iter().filter(is_short).map(|comment| comment.line).collect()
    })
}

/// Control flow is written with `if`, `if let` and `for`.
pub(super) fn idioms(files: &[File]) -> Vec<String> {
    counted(files, 2, "idioms that hide an `if`", |file| {
        let lines = file.text.lines().enumerate();
        let hides = |line: &str| {
            // `(0..n).filter(|_| …).count()` repeats something n times.
            IDIOMS.iter().any(|idiom| line.contains(idiom)) && !line.contains("(0..")
        };
        lines.filter(|(_, line)| hides(line)).map(|(at, _)| at + 1).collect()
    })
}

/// One complaint for each crate where more lines are found than its row allows, or fewer.
fn counted(
    files: &[File],
    kind: usize,
    what: &str,
    find: impl Fn(&File) -> Vec<usize>,
) -> Vec<String> {
    let mut found: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for file in rust(files).filter(|f| !f.path.starts_with(SELF)) {
        if let Some(krate) = home(file) {
            let places = find(file).into_iter().map(|line| format!("{}:{line}", file.path));
            found.entry(krate).or_default().extend(places);
        }
    }
    let row = |krate: &str| ROWS.iter().find(|(row, _)| *row == krate).map_or(0, |(_, n)| n[kind]);
    let judge = |(krate, places): (&str, Vec<String>)| {
        let some = places.iter().take(PLACES_MAX).map(String::as_str).collect::<Vec<_>>();
        let what = format!("{krate}: {what} ({} …)", some.join(", "));
        held(TABLE, &what, places.len(), row(krate), row(krate))
    };
    found.into_iter().filter_map(judge).collect()
}

/// Comment lines that follow one another.
struct Comment {
    /// The number of its first line.
    line: usize,
    lines: usize,
    text: String,
}

/// The comments of a file, without the code and the figures in them.
fn comments(file: &File) -> Vec<Comment> {
    let mut out: Vec<Comment> = Vec::new();
    let (mut before, mut fenced) = ("", false);
    for (at, line) in file.text.lines().map(str::trim_start).enumerate() {
        let mark = ["///", "//!", "//"].into_iter().find(|mark| line.starts_with(mark));
        let text = mark.map_or("", |mark| line[mark.len()..].trim());
        fenced ^= text.starts_with("```");
        match (mark, out.last_mut()) {
            (Some(_), _) if fenced || text.starts_with("```") => {}
            (Some(mark), Some(comment)) if mark == before && !text.is_empty() => {
                comment.lines += 1;
                comment.text += " ";
                comment.text += text;
            }
            (Some(_), _) if !text.is_empty() => {
                out.push(Comment { line: at + 1, lines: 1, text: text.to_owned() });
            }
            _ => {}
        }
        before = mark.filter(|_| !text.is_empty()).unwrap_or_default();
    }
    out
}

const TABLE: &str = "tests/tests/tidy/comments.rs";
const PLACES_MAX: usize = 5;
const HEADLESS: [&str; 9] =
    ["Who", "Whoever", "Whom", "Whose", "Of those", "Of two", "Of what", "Of whom", "Of which"];
const SHORT: usize = 28;
const IDIOMS: [&str; 3] = ["match () {", ".into_iter().for_each(", ".filter(|_|"];
