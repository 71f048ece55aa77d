//! Whether the sentences that docs/OPERATING.md explains are those that the programs print.
//!
//! A sentence of the document has numbers and names filled in, or `…` for what varies. The source
//! has `{…}` there, and composes some sentences. So each clause is matched by itself, word by word:
//! a `…` or a number stands for any words, a `{…}` for at most three, and half of the clause's own
//! words (two if it has two) must be the same in the same order.

use super::read::{File, is_test, rust, source};

/// The sentences in the first column of the table under this heading that no
/// string in the sources can become.
pub(super) fn unsaid(document: &str, heading: &str, files: &[File]) -> Vec<String> {
    let shipped = rust(files).filter(|f| !is_test(&f.path) && !f.path.starts_with("tests/"));
    let templates: Vec<Vec<String>> = shipped
        .flat_map(|f| literals(&source(f).join("\n")))
        .map(|text| words(&text))
        .filter(|words| !words.is_empty())
        .collect();
    let said = |cell: &str| {
        let clauses = cell.split(['.', ',', ':', ';']).map(words).filter(|clause| own(clause) > 0);
        clauses.into_iter().all(|clause| templates.iter().any(|text| can_hold(text, &clause)))
    };
    cells(document, heading).filter(|cell| !said(cell)).map(str::to_owned).collect()
}

/// The texts in backticks in the first column of a table.
fn cells<'a>(document: &'a str, heading: &str) -> impl Iterator<Item = &'a str> {
    let section = document.split_once(&format!("\n{heading}\n")).map_or("", |(_, rest)| rest);
    let table =
        section.lines().skip_while(|l| !l.starts_with('|')).take_while(|l| l.starts_with('|'));
    // A bar within backticks is written with a backslash.
    let first = |line: &'a str| {
        let end = line[1..].match_indices(" | ").next().map_or(line.len(), |(at, _)| at + 1);
        &line[1..end]
    };
    table.flat_map(move |line| first(line).split('`').skip(1).step_by(2))
}

/// The string literals of Rust code, with continued lines joined.
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

/// A literal up to its closing quotation mark, and the code behind it.
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

fn words(text: &str) -> Vec<String> {
    let bare =
        |word: &str| word.trim_matches([';', ':', ',', '.', '(', ')', '"', '`', '\\']).to_owned();
    text.split_whitespace().map(bare).filter(|word| !word.is_empty()).collect()
}

/// Whether the source may have any words here.
fn is_open(word: &str) -> bool {
    word.contains(|letter: char| letter == '…' || letter == '#' || letter.is_ascii_digit())
}

/// How many words of a clause the source must have in some way.
fn own(clause: &[String]) -> usize {
    clause.iter().filter(|word| !is_open(word)).count()
}

fn is_filled_in(word: &str) -> bool {
    word.contains('{')
}

/// Whether a string of the sources can produce the clause.
fn can_hold(template: &[String], clause: &[String]) -> bool {
    let own = own(clause);
    let needed = own.div_ceil(2).max(own.min(2));
    // best[t][c]: the most words that are equal from word t and word c
    // on, if the whole clause fits.
    let (ts, cs) = (template.len(), clause.len());
    let mut best = vec![vec![None::<usize>; cs + 1]; ts + 1];
    for t in (0..=ts).rev() {
        for c in (0..=cs).rev() {
            let mut ways = vec![(c == cs).then_some(0)];
            if c < cs && is_open(&clause[c]) {
                ways.push(best[t][c + 1]);
                ways.extend((t < ts).then(|| best[t + 1][c]));
            }
            if t < ts && is_filled_in(&template[t]) {
                let most = (cs - c).min(FILLED_IN_MAX);
                ways.extend((0..=most).map(|taken| best[t + 1][c + taken]));
            }
            if t < ts && c < cs && template[t] == clause[c] {
                ways.push(best[t + 1][c + 1].map(|same| same + 1));
            }
            best[t][c] = ways.into_iter().flatten().max();
        }
    }
    best.iter().any(|from| from[0].is_some_and(|same| same >= needed))
}

/// The most words for which one `{…}` stands: "2 peers", "1 peer without".
const FILLED_IN_MAX: usize = 3;

#[test]
fn a_clause_is_known_by_its_words() {
    let fits = |template: &str, clause: &str| can_hold(&words(template), &words(clause));
    let template = "waiting: {here} of the {needed} that the run needs to begin {} here";
    assert!(fits(template, "1 of the 2 peers that the run needs to begin is here"));
    assert!(fits("peer {} is not let in: {why}", "peer … is not let in"));
    assert!(fits("fork: from epoch {} on two lineages", "fork"));
    assert!(!fits("peer {} is admitted {by}", "peer … is in from epoch … on"));
    assert!(!fits("notice {} is in force from epoch {} on", "peer … is in from epoch … on"));
    assert!(!fits("{} {}: {}", "lost peer …"), "nothing is the same");
    assert_eq!(literals("a(\"b \\\n   {c}\"); // \"no\"\nd('\"', \"e\\\"\")"), ["b {c}", "e\""]);
}
