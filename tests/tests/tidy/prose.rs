//! How a page reads: the length of its sentences, and what none of them begins with.
//!
//! Prose is what stands in paragraphs, lists and the cells of tables behind the first column; code, headings and
//! fragments of fewer than four words are left out. A piece of code within a sentence is one word.

use super::read::File;

/// A sentence and the line on which its paragraph, item or row begins.
struct Sentence {
    line: usize,
    text: String,
}

/// A page that is held to the bounds has no sentence that begins with a headless who, and most are short.
pub(super) fn readable(files: &[File]) -> Vec<String> {
    let mut out = Vec::new();
    for f in files.iter().filter(|f| HELD.contains(&&*f.path)) {
        let all = sentences(&f.text);
        for Sentence { line, text } in all.iter().filter(|s| is_headless(&s.text)) {
            let begin: Vec<&str> = text.split_whitespace().take(4).collect();
            out.push(format!(
                "{}:{line}: `{} …` has no noun to begin with",
                f.path,
                begin.join(" ")
            ));
        }
        let (median, most) = (percentile(&all, 50), percentile(&all, 90));
        if median > MEDIAN_WORDS_MAX || most >= LONG_WORDS {
            let longest = all.iter().max_by_key(|s| words(&s.text)).map_or(0, |s| s.line);
            out.push(format!(
                "{}: a sentence has {median} words, one of ten {most}; the longest is in line {longest}",
                f.path
            ));
        }
    }
    out
}

/// What is printed of each page that is measured.
pub(super) fn measures(files: &[File]) -> Vec<String> {
    let measure = |f: &File| {
        let all = sentences(&f.text);
        let headless = all.iter().filter(|s| is_headless(&s.text)).count();
        let (median, most) = (percentile(&all, 50), percentile(&all, 90));
        format!("{:<24} {:>5} {median:>6} {most:>6} {headless:>8}", f.path, all.len())
    };
    let is_measured = |f: &&File| {
        let shelf = f.path.starts_with("docs/") && !f.path.starts_with("docs/adr/");
        f.path.ends_with(".md") && (shelf || HELD.contains(&&*f.path))
    };
    let pages = files.iter().filter(is_measured);
    let head =
        format!("{:<24} {:>5} {:>6} {:>6} {:>8}", "sentences", "", "median", "90 %", "headless");
    std::iter::once(head).chain(pages.map(measure)).collect()
}

fn sentences(page: &str) -> Vec<Sentence> {
    let mut out = Vec::new();
    for (line, text) in pieces(page) {
        let (mut sentence, mut words) = (String::new(), text.split_whitespace().peekable());
        while let Some(word) = words.next() {
            sentence = format!("{sentence} {word}");
            let bare = word.trim_end_matches(['*', ')', '"', '_']);
            let next_begins = words.peek().is_none_or(|next| {
                let first = next.trim_start_matches(['*', '(', '"', '_', '[']).chars().next();
                first.is_some_and(|c| !c.is_lowercase())
            });
            if bare.ends_with(['.', '!', '?']) && next_begins {
                out.push(Sentence { line, text: std::mem::take(&mut sentence) });
            }
        }
        out.push(Sentence { line, text: sentence });
    }
    out.retain(|s| words(&s.text) >= FRAGMENT_WORDS);
    out
}

/// Paragraphs, items of lists and cells, each with the line on which it begins, code replaced by one word.
fn pieces(page: &str) -> Vec<(usize, String)> {
    let mut out: Vec<(usize, String)> = Vec::new();
    let (mut fenced, mut open) = (false, false);
    for (at, line) in page.lines().enumerate() {
        fenced ^= line.starts_with("```");
        let text = line.trim_start();
        let is_item = text.starts_with("- ") || is_numbered(text);
        let is_code = fenced || line.starts_with("```") || (line.starts_with("    ") && !open);
        if is_code || text.is_empty() || text.starts_with(['#', '<']) {
            open = false;
        } else if text.starts_with('|') {
            let cells = text.trim_matches('|').split(" | ").skip(1);
            out.extend(cells.map(|cell| (at + 1, plain(cell))));
            open = false;
        } else if open && !is_item {
            if let Some((_, last)) = out.last_mut() {
                *last = format!("{last} {text}");
            }
        } else {
            let text =
                if is_item { text.split_once(' ').map_or("", |(_, rest)| rest) } else { text };
            out.push((at + 1, text.to_owned()));
            open = true;
        }
    }
    out.into_iter().map(|(line, text)| (line, plain(&text))).collect()
}

fn is_numbered(text: &str) -> bool {
    let rest = text.trim_start_matches(|c: char| c.is_ascii_digit());
    rest.len() < text.len() && rest.starts_with(". ")
}

/// Text without the targets of links, and with `Code` in place of code.
fn plain(text: &str) -> String {
    let code =
        |(at, part): (usize, &str)| if at % 2 == 0 { part.to_owned() } else { "Code".to_owned() };
    let text: String = text.split('`').enumerate().map(code).collect();
    let mut parts = text.split("](");
    let first = parts.next().unwrap_or_default().to_owned();
    let behind =
        |part: &str| part.split_once(')').map_or(String::new(), |(_, rest)| rest.to_owned());
    parts.fold(first, |text, part| text + &behind(part)).replace('[', "")
}

fn words(sentence: &str) -> usize {
    sentence.split_whitespace().filter(|w| w.contains(char::is_alphanumeric)).count()
}

/// Whether a sentence that is no question begins with a relative pronoun to which no noun belongs.
fn is_headless(sentence: &str) -> bool {
    // The label of a rule stands before its sentence.
    let bare = sentence.trim_start();
    let bare = bare
        .strip_prefix("**")
        .and_then(|rest| rest.split_once("** "))
        .map_or(bare, |(_, rest)| rest);
    let bare = bare.trim_start_matches(['*', '(', '"', '_']);
    let begins = |with: &&str| {
        bare.strip_prefix(*with).is_some_and(|rest| !rest.starts_with(char::is_alphanumeric))
    };
    !sentence.ends_with('?') && HEADLESS.iter().any(begins)
}

/// The length of the sentence that so many of a hundred are not longer than.
fn percentile(all: &[Sentence], of_hundred: usize) -> usize {
    let mut lengths: Vec<usize> = all.iter().map(|s| words(&s.text)).collect();
    lengths.sort_unstable();
    lengths
        .get((lengths.len() * of_hundred / 100).min(lengths.len().saturating_sub(1)))
        .copied()
        .unwrap_or(0)
}

/// The pages that are held to the bounds.
const HELD: &[&str] = &[
    "docs/PROTOCOL.md",
    "README.md",
    "SECURITY.md",
    "docs/ARCHITECTURE.md",
    "docs/CONTRIBUTE.md",
    "docs/FORMATS.md",
    "docs/FRIENDS.md",
    "docs/ORGANISE.md",
    "docs/PERFORMANCE.md",
    "docs/STUDY.md",
    "docs/STYLE.md",
    "docs/TESTING.md",
    "docs/TROUBLESHOOTING.md",
];
const HEADLESS: [&str; 8] =
    ["Who", "Whoever", "Whom", "Whose", "Of those", "Of two", "Of what", "Of whom"];
const MEDIAN_WORDS_MAX: usize = 20;
/// Nine of ten sentences have fewer words.
const LONG_WORDS: usize = 35;
const FRAGMENT_WORDS: usize = 4;

#[test]
fn sentences_are_found_where_prose_is() {
    let page = "# No heading\n\nOne is `a. B` here. It has [a link](of/no.Words) and\ngoes on.\n\n    no code here at all\n\n\
        - **R1** Who waits here is late.\n- a list of words\n\n| no | head | is a. Sentence |\n|---|---|---|\n\
        | no first cell | Whoever is in a cell. What else is it? | two |";
    let texts: Vec<String> =
        sentences(page).into_iter().map(|s| s.text.trim().to_owned()).collect();
    let expected = [
        "One is Code here.",
        "It has a link and goes on.",
        "**R1** Who waits here is late.",
        "a list of words",
        "Whoever is in a cell.",
        "What else is it?",
    ];
    assert_eq!(texts, expected);
    assert_eq!(texts.iter().filter(|text| is_headless(text)).count(), 2);
    assert!(!is_headless("Who is it?") && !is_headless("Whole sentences have a noun."));
}
