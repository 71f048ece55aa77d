//! Whether the messages that the documents explain are those that the programs print.
//!
//! A message stands in backticks in the first column of a table whose header is `it says`. `…` in it stands for what
//! the program fills in. Each part between these has to be in a string literal of the sources, letter by letter.

use super::read::{File, is_test, rust, source};

/// The messages of a document that no program prints, each with its line.
pub(super) fn unsaid<'a>(document: &'a str, files: &[File]) -> Vec<(usize, &'a str)> {
    let shipped = rust(files).filter(|f| !is_test(&f.path));
    let shipped = shipped.filter(|f| SOURCES.iter().any(|folder| f.path.starts_with(folder)));
    let texts: Vec<String> =
        shipped.flat_map(|f| literals(&source(f).join("\n"))).flat_map(|l| fixed(&l)).collect();
    let is_there = |part: &str| texts.iter().any(|text| text.contains(part.trim()));
    // A message can be put together of two texts, as `error: ` and what follows it.
    let of_two = |part: &str| {
        let behind = |text: &String| part.strip_prefix(text.as_str()).is_some_and(is_there);
        texts.iter().any(|text| !text.is_empty() && behind(text))
    };
    let is_said = |message: &str| {
        let parts = message.split('…').map(one_space).map(|part| part.replace("\\|", "|"));
        let mut parts = parts.filter(|part| part.contains(char::is_alphabetic));
        parts.all(|part| is_there(&part) || of_two(&part))
    };
    messages(document).into_iter().filter(|(_, message)| !is_said(message)).collect()
}

/// The lines whose first message would stand further up if the rows were sorted.
pub(super) fn unsorted(document: &str) -> Vec<usize> {
    let mut rows = messages(document);
    rows.dedup_by_key(|(line, _)| *line);
    let key = |message: &str| message.trim_start_matches(['…', ' ']).to_lowercase();
    rows.windows(2).filter(|two| key(two[1].1) < key(two[0].1)).map(|two| two[1].0).collect()
}

/// What stands in backticks in the first column of each table of messages, with its line.
fn messages(document: &str) -> Vec<(usize, &str)> {
    let (mut out, mut open) = (Vec::new(), false);
    for (at, line) in document.lines().enumerate() {
        open = line.starts_with(HEADER) || (open && line.starts_with('|'));
        if open {
            // A bar within backticks is written with a backslash.
            let cell = line[1..].split(" | ").next().unwrap_or_default();
            out.extend(cell.split('`').skip(1).step_by(2).map(|message| (at + 1, message)));
        }
    }
    out
}

/// The string literals of Rust code, with lines that go on joined.
fn literals(code: &str) -> Vec<String> {
    let mut out = Vec::new();
    let mut rest = code;
    while let Some(at) = rest.find(['"', '\'', '/']) {
        let (here, after) = (&rest[at..], &rest[at + 1..]);
        if here.starts_with("//") {
            rest = after.find('\n').map_or("", |end| &after[end..]);
        } else if let Some(behind) = here.strip_prefix("'\"'") {
            rest = behind;
        } else if here.starts_with('"') {
            let (text, behind) = literal(after);
            out.push(text);
            rest = behind;
        } else {
            rest = after;
        }
    }
    out
}

/// A literal to its closing quotation mark, and what comes behind.
fn literal(code: &str) -> (String, &str) {
    let mut text = String::new();
    let mut letters = code.char_indices().peekable();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '"' => return (text, &code[at + 1..]),
            '\\' => match letters.next() {
                Some((_, '\n')) => while letters.next_if(|(_, c)| c.is_whitespace()).is_some() {},
                Some((_, 'n')) => text.push(' '),
                Some((_, other)) => text.push(other),
                None => {}
            },
            other => text.push(other),
        }
    }
    (text, "")
}

/// What a literal has between its `{…}`.
fn fixed(literal: &str) -> Vec<String> {
    literal.split('{').flat_map(|part| part.rsplit('}').next()).map(one_space).collect()
}

fn one_space(text: &str) -> String {
    let inner: Vec<&str> = text.split_whitespace().collect();
    inner.join(" ")
}

const HEADER: &str = "| it says |";
const SOURCES: [&str; 4] = ["node/src/", "protocol/src/", "bootstrap/src/", "model/src/"];

#[test]
fn a_message_is_known_by_its_fixed_parts() {
    let source = "//! A.\nfn f() {\n    say(\"waiting: {here} of the {} that \\\n        wait\", '\"'); // \"no\"\n}";
    let files = [File { path: "node/src/a.rs".to_owned(), text: source.to_owned() }];
    let page =
        |message: &str| format!("# A\n\n| it says | it means |\n|---|---|\n| {message} | b |");
    for known in ["`waiting: … of the … that wait`", "`waiting: …`, `that wait`", "`…`"] {
        assert_eq!(unsaid(&page(known), &files), [], "{known}");
    }
    for unknown in ["`waiting: … for the …`", "`no`", "`awaiting`"] {
        assert_eq!(unsaid(&page(unknown), &files).len(), 1, "{unknown}");
    }
    assert_eq!(messages(&page("`a \\| b`")), [(5, "a \\| b")]);
    assert_eq!(unsorted(&format!("{}\n| `… B` | c |\n| `a` | d |", page("`A`"))), [7]);
}
