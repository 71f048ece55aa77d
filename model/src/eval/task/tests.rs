//! Tests of the files of tasks.

use std::fs;

use super::*;
use crate::mutants::Mutants;

const ARC: &str = r#"
task = "arc"
test_file = "arc.jsonl"
output_type = "multiple_choice"
doc_to_text = "Question: {{question}}\nAnswer:"
doc_to_choice = "{{choices.text}}"
doc_to_target = "{{choices.label.index(answerKey)}}"
"#;

const DOCS: &str = r#"
{"question": "1+1?", "choices": {"text": ["two", "one"], "label": ["A", "B"]}, "answerKey": "A"}
{"question": "2-1?", "choices": {"text": ["two", "one"], "label": ["A", "B"]}, "answerKey": "B"}

{"question": "0+2?", "choices": {"text": ["two", "one"], "label": ["A", "B"]}, "answerKey": "A"}
"#;

/// Opens the first of these files, which are in one folder.
fn open(files: &[(&str, &str)], wishes: Wishes) -> Result<Task, String> {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        fs::write(folder.path().join(name), text).unwrap();
    }
    Task::open(&folder.path().join(files[0].0), wishes).map_err(|error| error.to_string())
}

/// Every item of a task, in their order.
fn items(task: &Task) -> Vec<Item> {
    (0..task.count()).map(|at| task.item(at)).collect()
}

fn context(item: &Item) -> &str {
    match item {
        Item::Choice { context, .. } | Item::Continuation { context, .. } => context,
        Item::Text { text } => text,
    }
}

#[test]
fn a_document_becomes_an_item_by_templates() {
    let task = open(&[("arc.toml", ARC), ("arc.jsonl", DOCS)], Wishes::default()).unwrap();
    assert_eq!((task.name.as_str(), task.shots, task.count()), ("arc", 0, 3));
    let expected = Item::Choice {
        context: "Question: 2-1?\nAnswer:".into(),
        delimiter: " ".into(),
        choices: vec!["two".into(), "one".into()],
        gold: Some(1),
    };
    assert_eq!(task.item(1), expected);
}

/// As in lm-eval, whose LAMBADA has these templates: the delimiter stands in solved questions only.
#[test]
fn a_continuation_is_judged_without_the_delimiter() {
    let file = r#"
task = "lambada"
test_file = "texts.jsonl"
output_type = "loglikelihood"
doc_to_text = "{{text.split(' ')[:-1]|join(' ')}}"
doc_to_target = "{{' '+text.split(' ')[-1]}}"
num_fewshot = 1
fewshot_sampler = "first_n"
"#;
    let texts = "{\"text\": \"a b c\"}\n{\"text\": \"d e f\"}\n";
    let task = open(&[("l.toml", file), ("texts.jsonl", texts)], Wishes::default()).unwrap();
    let Item::Continuation { context, continuation, .. } = task.item(1) else { panic!() };
    assert_eq!((context.as_str(), continuation.as_str()), ("a b  c\n\nd e", " f"));
}

/// A field that holds digits is the text of a choice; a template that gives digits is a number.
#[test]
fn an_answer_of_digits_is_a_text_in_a_field_and_a_number_in_a_template() {
    let docs = "{\"o\": [\"3\", \"4\", \"2\", \"1\"], \"a\": \"3\"}\n";
    for (target, expected) in [("a", 0), ("{{a}}", 3)] {
        let file = format!(
            "task = \"t\"\ntest_file = \"d.jsonl\"\noutput_type = \"multiple_choice\"\n\
             doc_to_text = \"q\"\ndoc_to_choice = \"o\"\ndoc_to_target = \"{target}\"\n"
        );
        let task = open(&[("t.toml", &file), ("d.jsonl", docs)], Wishes::default()).unwrap();
        assert!(matches!(task.item(0), Item::Choice { gold: Some(gold), .. } if gold == expected));
    }
}

#[test]
fn items_stand_as_they_are_in_json_lines() {
    let lines = r#"{"context": "a", "choices": ["b", "c"], "gold": 1}
{"context": "a", "choices": ["b", "c"]}
{"context": "a", "continuation": "b"}
{"text": "abc"}"#;
    let task =
        open(&[("mine.jsonl", lines)], Wishes { limit: Some(4), ..Wishes::default() }).unwrap();
    assert_eq!((task.name.as_str(), task.count()), ("mine", 4));
    assert!(matches!(task.item(1), Item::Choice { gold: None, .. }));
    let limited = open(&[("mine.jsonl", lines)], Wishes { limit: Some(1), ..Wishes::default() });
    assert_eq!(limited.unwrap().count(), 1);
}

#[test]
fn solved_items_stand_before_each_but_never_before_themselves() {
    let files = [("arc.toml", ARC), ("arc.jsonl", DOCS)];
    let solved = [
        "Question: 1+1?\nAnswer: two\n\n",
        "Question: 2-1?\nAnswer: one\n\n",
        "Question: 0+2?\nAnswer: two\n\n",
    ];
    for seed in 0..9 {
        let task = open(&files, Wishes { shots: Some(2), seed, limit: None }).unwrap();
        for (at, item) in items(&task).iter().enumerate() {
            let before = |other: usize| context(item).matches(solved[other]).count();
            assert_eq!((0..3).map(before).sum::<usize>(), 2, "{:?}", context(item));
            assert_eq!(before(at), 0, "{:?}", context(item));
        }
    }
    let described = ARC.to_owned()
        + "description = \"Sums.\\n\"\nfewshot_file = \"more.jsonl\"\nnum_fewshot = 1\nfewshot_sampler = \"first_n\"\n";
    let more = DOCS.replace("1+1", "3-1");
    let task = open(
        &[("arc.toml", &described), ("arc.jsonl", DOCS), ("more.jsonl", &more)],
        Wishes::default(),
    );
    let expected = "Sums.\nQuestion: 3-1?\nAnswer: two\n\nQuestion: 1+1?\nAnswer:";
    assert_eq!(context(&task.unwrap().item(0)), expected);
}

/// Each sentence names the file, the line and what to do.
#[test]
fn what_is_no_task_is_refused_by_name() {
    let files = |toml: &str, docs: &str| {
        open(&[("arc.toml", toml), ("arc.jsonl", docs)], Wishes::default()).unwrap_err()
    };
    for (from, to, words) in [
        ("doc_to_text", "doc_to_texts", "unknown field `doc_to_texts`"),
        ("doc_to_target", "doc_to_text2", "unknown field"),
        ("multiple_choice", "multiple", "unknown variant `multiple`"),
        ("{{question}}", "{{query}}", "line 2: doc_to_text fails: "),
        ("{{question}}", "{{question", "doc_to_text fails"),
        ("{{choices.text}}", "{{question}}", "doc_to_choice fails: \"1+1?\" is no list"),
        ("{{choices.text}}", "{{[question]}}", "1 choices: give 2 to"),
        (
            "{{choices.label.index(answerKey)}}",
            "7",
            "the right answer \"7\" is none of the 2 choices",
        ),
        ("arc.jsonl", "absent.jsonl", "absent.jsonl"),
    ] {
        assert!(ARC.contains(from));
        let why = files(&ARC.replace(from, to), DOCS);
        assert!(why.contains(words), "{to}: {why}");
    }
    let without = ARC.replace("doc_to_choice = \"{{choices.text}}\"\n", "");
    assert!(files(&without, DOCS).contains("needs doc_to_choice"));
    for (docs, words) in [
        ("", "write one JSON object on each line"),
        ("\n\n", "write one JSON object on each line"),
        ("[1]\n", "line 1, \"[1]\": it is not an object of JSON"),
        ("\n{\"a\": \n", "line 2"),
    ] {
        let why = files(ARC, docs);
        assert!(why.contains(words), "{docs:?}: {why}");
    }
    let long = "#".repeat(70_000);
    assert!(files(&long, DOCS).contains("more than 64 KiB"));
}

#[test]
fn lines_that_are_no_items_are_refused_by_name() {
    for (line, words) in [
        (r#"{"context": "a", "choices": ["b"]}"#, "1 choices"),
        (r#"{"context": "a", "choices": ["b", ""]}"#, "a choice is empty"),
        (r#"{"context": "a", "choices": ["b", "c"], "gold": 2}"#, "the right answer \"2\""),
        (r#"{"context": "a", "choices": ["b", "c"], "label": 2}"#, "unknown field `label`"),
        (r#"{"context": "a", "choices": "b"}"#, "not an item"),
        (r#"{"context": "a"}"#, "none of the three forms"),
        (r#"{"context": "a", "continuation": ""}"#, "the continuation is empty"),
        (r#"{"text": ""}"#, "the text is empty"),
    ] {
        let good = "{\"text\": \"a\"}\n";
        let why = open(&[("a.jsonl", &format!("{good}{line}\n"))], Wishes::default()).unwrap_err();
        assert!(why.contains(words) && why.contains("line 2"), "{line}: {why}");
    }
    let few =
        open(&[("a.jsonl", "{\"text\": \"a\"}")], Wishes { shots: Some(1), ..Wishes::default() });
    assert!(few.unwrap_err().contains("1 documents, and 2 are needed"));
    let line = r#"{"context": "a", "choices": ["b", "c"]}"#;
    let unsolved = open(
        &[("a.jsonl", &[line, line].join("\n"))],
        Wishes { shots: Some(1), ..Wishes::default() },
    );
    assert!(unsolved.unwrap_err().contains("its right answer is not known"));
}

/// A file that is one line without an end is not read beyond the bound.
#[test]
fn a_line_without_end_is_not_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.jsonl");
    // A sparse file of 1 GiB, whose zeros are no line break.
    fs::File::create(&path).unwrap().set_len(1 << 30).unwrap();
    let why = Task::open(&path, Wishes::default()).unwrap_err().to_string();
    assert!(why.contains("line 1 has more than 16 MiB"), "{why}");
    fs::write(&path, b"{\"text\": \"\xff\"}\n").unwrap();
    let why = Task::open(&path, Wishes::default()).unwrap_err().to_string();
    assert!(why.contains("line 1: it is not UTF-8"), "{why}");
}

/// Small changes of a task and of its documents: each is a task or an error, and takes bounded time.
#[test]
fn mutants_are_tasks_or_errors() {
    let mut mutants = Mutants::new(b"{}[]\"':,.=%|()_+-*~\\\n \x00\xff019eat");
    let folder = tempfile::tempdir().unwrap();
    let (toml, docs) = (folder.path().join("arc.toml"), folder.path().join("arc.jsonl"));
    let mut good = 0;
    for _ in 0..Mutants::count(3000) {
        let mut both = [ARC, DOCS].map(|text| text.as_bytes().to_vec());
        let which = mutants.draw(2);
        mutants.change(&mut both[which], 0);
        fs::write(&toml, &both[0]).unwrap();
        fs::write(&docs, &both[1]).unwrap();
        match Task::open(&toml, Wishes { shots: Some(1), ..Wishes::default() }) {
            Ok(task) => good += usize::from(!items(&task).is_empty()),
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
    assert!(good > 0, "some changes do no harm");
}
