//! Whatever a task's file, its templates and its documents hold, reading them ends, without a panic
//! and in bounded time.
//!
//! Each reader gets mutants of files that it accepts: bytes changed, ranges cut, repeated and moved,
//! two files spliced. The ordinary test takes a few; by hand any number is possible:
//!
//! ```text
//! TASK_INPUTS=1000000 cargo test --release -p intellect-model --test task_files -- --nocapture
//! ```

#![expect(clippy::unwrap_used, reason = "clippy does not see that helpers of a test are tests")]
#![expect(clippy::print_stdout, reason = "what was tried is what a reader of the log wants")]

use std::path::Path;

use intellect_model::eval::task::{TaskFile, file, item::Item, template::Templates};
use serde_json::{Value, json};

/// Mutants that each reader gets in the ordinary test.
const INPUTS: u64 = 20_000;
/// Longest mutant in bytes: a longer one only repeats the cases of shorter ones.
const BYTES_MAX: usize = 8 << 10;

const TASKS: [&str; 3] = [
    "task = \"arc\"\ntest_file = \"a.jsonl\"\noutput_type = \"multiple_choice\"\ndoc_to_text = \"Q: {{question}}\\n\"\n\
     doc_to_choice = \"{{choices.text}}\"\ndoc_to_target = \"{{choices.label.index(key)}}\"\nnum_fewshot = 3\n",
    "task = \"piqa\"\ntest_file = \"a.jsonl\"\noutput_type = \"loglikelihood\"\ndoc_to_text = \"question\"\n\
     doc_to_target = \" {{sol}}\"\ntarget_delimiter = \"\"\nfewshot_delimiter = \"\\n\"\nfewshot_sampler = \"first_n\"\n",
    "task = \"mmlu\"\ntest_file = \"a.jsonl\"\noutput_type = \"multiple_choice\"\ndescription = \"Choose.\"\n\
     doc_to_choice = [\"A\", \"B\"]\ndoc_to_target = 1\nfewshot_file = \"b.jsonl\"\n",
];

const TEMPLATES: [&str; 6] = [
    "Q: {{question.strip()}}\n{% for one in choices.text %}{{loop.index}}. {{one}}\n{% endfor %}A:",
    "{{choices.label.index(key)}}",
    "{{[sol, 'x' * 3, question[:4] ~ key | lower]}}",
    "{% set n = 2 %}{% if n > 1 and sol is defined %}{{ sol.replace('a', 'bb').split(' ')[0] }}{% endif %}",
    "{{ {'a': 1, 'b': [1, 2.5, none]} | length }}{# no #}{% raw %}{{x}}{% endraw %}",
    "{{ range(9) | map('string') | join(', ') }}{{ 7 // 2 ** 3 % 5 }}{{ 'é' | upper | indent(4) }}",
];

const LINES: [&str; 4] = [
    "{\"context\": \"Who?\", \"choices\": [\"a\", \"b c\"], \"gold\": 1}\n",
    "{\"context\": \"\\u00e9\\n\", \"continuation\": \" then\"}",
    "{\"text\": \"a \\\"b\\\" c\"}",
    "{\"question\": \"Why\", \"choices\": {\"text\": [\"x\", \"y\"], \"label\": [\"A\", \"B\"]}, \"key\": \"B\", \"n\": [1e9, -0.5, null]}",
];

/// Bytes that mean something in one of the formats, or in none.
const MARKS: &[u8] = b"{}[]()\"'%#|.,:*~\\\n\0\xff09";

/// A document with the fields that the templates of `TEMPLATES` read.
fn doc() -> Value {
    json!({
        "question": " Why is it so? ", "sol": "as it was", "key": "B",
        "choices": {"text": ["one", "two"], "label": ["A", "B"]},
    })
}

/// SplitMix64 (Steele et al. 2014).
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }
}

/// One of the examples, changed in one to six places.
fn mutant(examples: &[&str], rng: &mut Rng) -> Vec<u8> {
    let pick = |rng: &mut Rng| examples[rng.below(examples.len())].as_bytes().to_vec();
    let mut bytes = pick(rng);
    for _ in 0..=rng.below(6) {
        let at = rng.below(bytes.len() + 1);
        let range = at..(at + rng.below(30)).min(bytes.len());
        match rng.below(8) {
            0 => bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= 1 << rng.below(7)),
            1 => bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte = rng.next() as u8),
            2 => bytes.truncate(at),
            3 => drop(bytes.drain(range)),
            4 => bytes.insert(at, MARKS[rng.below(MARKS.len())]),
            5 => {
                let times = if rng.below(300) == 0 { 500 } else { 2 };
                let again = bytes[range].repeat(times);
                bytes.splice(at..at, again.into_iter().take(BYTES_MAX));
            }
            6 => {
                let words = [
                    "{{",
                    "}}",
                    "{%",
                    "%}",
                    " for ",
                    " * 99999999",
                    "9999999999",
                    "[[[[",
                    " ** 9",
                    "range(99999)",
                ];
                bytes.splice(at..at, words[rng.below(words.len())].bytes());
            }
            _ => {
                let other = pick(rng);
                let from = rng.below(other.len() + 1);
                bytes.splice(at.., other.into_iter().skip(from));
            }
        }
    }
    bytes.truncate(BYTES_MAX);
    bytes
}

/// Gives mutants of `examples` to `read`, which says whether it accepted the bytes.
fn attack(examples: &[&str], read: impl Fn(&[u8]) -> bool) {
    for example in examples {
        assert!(read(example.as_bytes()), "{example} is refused");
    }
    let inputs = std::env::var("TASK_INPUTS").map_or(INPUTS, |count| count.parse().unwrap());
    let (mut rng, mut taken) = (Rng(1), 0);
    for _ in 0..inputs {
        taken += u64::from(read(&mutant(examples, &mut rng)));
    }
    println!("{taken} of {inputs} accepted");
    assert!(taken > 0 && taken < inputs, "the mutants are too strange, or not at all");
}

#[test]
fn any_task_file_is_read_or_refused() {
    attack(&TASKS, |bytes| str::from_utf8(bytes).is_ok_and(|text| TaskFile::parse(text).is_ok()));
}

#[test]
fn any_template_ends() {
    let (templates, doc) = (Templates::new(), doc());
    attack(&TEMPLATES, |bytes| {
        let Ok(template) = str::from_utf8(bytes) else { return false };
        // A list is refused more often; what counts is that both end.
        let _list = templates.list(template, &doc);
        templates.text(template, &doc).is_ok()
    });
}

#[test]
fn any_line_is_read_or_refused() {
    let task = TaskFile::parse(TASKS[0]).unwrap();
    let templates = Templates::new();
    attack(&LINES, |bytes| {
        let Ok(Some(doc)) = file::document(Path::new("a.jsonl"), 1, bytes) else { return false };
        let _made = Item::make(&templates, &task, &doc);
        let _read = Item::read(&doc);
        true
    });
}
