//! What a trained model is worth: any weights, on any file, by tasks.

use std::{fs, time::Duration};

use e2e::{SMALL, Story};
use serde_json::{Value, json};

use crate::story;

const PATIENCE: Duration = Duration::from_secs(300);

/// The number in the line of `said` that begins with these words.
pub(super) fn number(said: &str, words: &str) -> f64 {
    let line = said.lines().find(|line| line.starts_with(words));
    let rest = line.unwrap_or_else(|| panic!("no {words} in {said}"))[words.len()..].trim();
    rest.split([' ', ',']).next().unwrap().parse().unwrap()
}

/// A run on documents of letters whose order is easy to learn; returns the data folder of its node.
pub(super) fn trained(story: &Story) -> String {
    let line = |at: usize| {
        let begin = at % 26;
        let text: String = (0..40).map(|i| char::from(b'a' + ((begin + i) % 26) as u8)).collect();
        json!({ "text": text }).to_string() + "\n"
    };
    fs::write(story.path("train.jsonl"), (0..300).map(line).collect::<String>()).unwrap();
    fs::write(story.path("other.jsonl"), (300..340).map(line).collect::<String>()).unwrap();
    for name in ["train", "other"] {
        let (from, to) =
            (story.text(&format!("{name}.jsonl")), story.text(&format!("{name}.tokens")));
        let made = story.node(&["data", "tokenize", &from, "--out", &to]).unwrap();
        made.expect_success().unwrap();
    }
    let (out, tokens) = (story.text("out"), story.text("train.tokens"));
    let mut typed = vec!["sim", "--peers", "1", "--epochs", "8", "--data", &tokens, "--out", &out];
    let longer = ["model.context=48", "epoch.amount=50", "train.lr=0.01"];
    typed.extend(SMALL.iter().chain(&longer).flat_map(|setting| ["--set", setting]));
    story.node(&typed).unwrap().expect_success().unwrap();
    story.text("out/peer-0/data")
}

/// One story, since the model takes longest: the same weights are measured wherever they are, on whatever file.
#[test]
fn any_weights_are_measured_on_any_file_and_by_tasks() {
    let story = story();
    let (data, model) = (trained(&story), story.text("model"));
    story.node(&["export", "--data-dir", &data, "--to", &model]).unwrap().expect_success().unwrap();
    for (to, words) in [(&model, "is not empty"), (&story.text("train.jsonl"), "is a file")] {
        let again = story.node(&["export", "--data-dir", &data, "--to", to]).unwrap();
        let again = again.expect_failure(1, &[to, words]).unwrap();
        assert!(again.err.contains("folder"), "the remedy is missing: {}", again.err);
    }
    let eval = |line: &[&str]| {
        let done = story.node(&[&["eval"], line].concat()).unwrap();
        done.expect_success().unwrap().out
    };
    let held_out = eval(&["--data-dir", &data, "--tokens", "1000"]);
    assert!(held_out.contains(" ± ") && number(&held_out, "held-out loss") < 3.0, "{held_out}");

    let other = story.text("other.tokens");
    let on = eval(&["--data-dir", &data, "--on", &other, "--tokens", "1000000"]);
    let elsewhere = eval(&["--hf", &model, "--on", &other, "--tokens", "1000000"]);
    // 40 documents of 41 tokens, of which the first token of all is not judged.
    assert!(on.contains("over 1 639 tokens") && on.contains("bits per byte"), "{on}");
    assert_eq!(number(&on, "loss"), number(&elsewhere, "loss"));

    let items: String = (0..26)
        .map(|at| {
            let letter = |i: usize| char::from(b'a' + ((at + i) % 26) as u8).to_string();
            let context: String = (0..8).map(letter).collect();
            json!({ "q": context, "options": [letter(20), letter(8), letter(15)], "key": letter(8) })
                .to_string()
                + "\n"
        })
        .collect();
    fs::write(story.path("next.jsonl"), items).unwrap();
    let task = "task = \"next\"\ntest_file = \"next.jsonl\"\noutput_type = \"multiple_choice\"\n\
                doc_to_text = \"{{q}}\"\ndoc_to_choice = \"options\"\ndoc_to_target = \"{{options.index(key)}}\"\n\
                target_delimiter = \"\"\n";
    fs::write(story.path("next.toml"), task).unwrap();
    let (task, details) = (story.text("next.toml"), story.text("details.jsonl"));
    let line = ["--hf", &model, "--tasks", &task, "--details", &details];
    let said = eval(&line);
    assert!(number(&said, "acc") > 0.6 && said.contains("next: 26 items"), "{said}");
    let written = fs::read_to_string(&details).unwrap();
    let first: Value = serde_json::from_str(written.lines().next().unwrap()).unwrap();
    assert_eq!(
        (&first["task"], &first["item"], &first["gold"]),
        (&json!("next"), &json!(1), &json!(1))
    );
    assert_eq!(written.lines().count(), 26);
    let again = eval(&["--data-dir", &data, "--tasks", &task]);
    assert_eq!(number(&again, "acc"), number(&said, "acc"));

    // What is wrong is said before anything is measured, and nothing is overwritten or left behind.
    let refused = |line: &[&str], code, words: &[&str]| {
        let done = story.node(&[&["eval"], line].concat()).unwrap();
        assert_eq!(done.clone().expect_failure(code, words).unwrap().out, "");
    };
    refused(&line, 2, &["details.jsonl", "not overwritten"]);
    refused(&["--hf", &model], 2, &["--on", "--tasks"]);
    refused(
        &["--hf", &model, "--on", &other, "--context", "999"],
        2,
        &["--context 999", "at most"],
    );
    refused(&["--hf", &story.text("absent"), "--on", &other], 1, &["absent"]);
    let text = fs::read_to_string(story.path("next.toml")).unwrap();
    fs::write(story.path("next.toml"), text.replace("{{q}}", "{{question}}")).unwrap();
    let fresh = story.text("fresh.jsonl");
    let line = ["--hf", &model, "--tasks", &task, "--details", &fresh];
    refused(&line, 1, &["next.jsonl, line 1: doc_to_text fails"]);
    assert!(!story.path("fresh.jsonl").exists());
}

#[test]
fn a_node_keeps_milestones_that_can_be_measured() {
    let story = story();
    let manifest = story.manifest("run.toml", &["members.min_peers=1"]).unwrap();
    let (_bootstrap, entry) = story.start_bootstrap(&[manifest]).unwrap();
    let line = ["--epochs", "7", "--keep-every", "2", "--keep", "2"];
    let node = story.start_node("node", &entry, &line).unwrap();
    node.wait(PATIENCE).unwrap().expect_success().unwrap();
    let runs = fs::read_dir(story.path("node/data/runs")).unwrap();
    let run = runs.map(|run| run.unwrap().path()).next().unwrap();
    let kept = fs::read_dir(run.join("milestones")).unwrap();
    let mut kept: Vec<_> = kept.map(|entry| entry.unwrap().file_name()).collect();
    kept.sort();
    assert_eq!(kept, ["4.ckpt", "6.ckpt"]);
    let path = run.join("milestones/4.ckpt");
    let eval = story.node(&["eval", "--checkpoint", path.to_str().unwrap()]).unwrap();
    assert!(eval.expect_success().unwrap().out.contains("of epoch 4"));
    let alone = story.node(&["--bootstrap", &entry, "--keep", "2"]).unwrap();
    alone.expect_failure(2, &["--keep-every"]).unwrap();
}
