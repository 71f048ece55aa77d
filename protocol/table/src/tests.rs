//! What a table reads, refuses, writes and describes.

use super::*;
use std::time::Duration;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Plain,
    Timed,
}

impl Named for Kind {
    const NAMES: &'static [(Self, &'static str, u64)] =
        &[(Self::Plain, "plain", 1), (Self::Timed, "timed", 2)];
}

const WORD: Pattern = Pattern {
    form: "a lower-case word",
    fits: |text| text.bytes().all(|b| b.is_ascii_lowercase()),
};

table! {
    /// A table with a value of each type.
    struct All in "all" {
        kind: Kind, (), "what is done";
        wait as wait_ms: Duration, 10..=20_000, "time between";
        count: u64, 1..=1 << 53, "how often";
        size: usize, 2..=2, "how large";
        rate: f32, 0.0..=10.0, "how fast";
        share: f64, 1e-9..=0.5, "how much";
        word: String, WORD, "for people";
        words: Vec<String>, List(2, WORD), "more of them";
        most: Option<u64>, 0..=i64::MAX.cast_unsigned(), "bound";
        open: bool, (), "whether it is open";
    }
}

impl Table for All {
    const OTHERS: &'static [&'static str] = &["others"];

    fn only(key: &str) -> Option<String> {
        (key == "wait_ms").then(|| "kind = \"timed\"".to_owned())
    }

    fn applies(&self, key: &str) -> bool {
        key != "wait_ms" || self.kind == Kind::Timed
    }

    fn check(&self) -> Result<(), Error> {
        if self.word == "wrong" {
            return Err(Error::value("all.word", &self.word, "choose another one"));
        }
        Ok(())
    }
}

const TEXT: &str = r#"
[all]
kind = "timed"
wait_ms = 500
count = 3
size = 2
rate = 0.7
share = 0.25
word = "word"
words = ["a", "b"]
most = 9
open = true
"#;

fn parse(text: &str) -> Result<All, Error> {
    All::parse(&text.parse().unwrap())
}

/// The table with the line of `key` replaced by `line`.
fn with(key: &str, line: &str) -> Result<All, Error> {
    let begin = format!("{key} = ");
    let lines = TEXT.lines().map(|old| if old.starts_with(&begin) { line } else { old });
    parse(&lines.collect::<Vec<_>>().join("\n"))
}

#[test]
fn what_is_written_is_what_is_read() {
    let all = parse(TEXT).unwrap();
    assert_eq!((all.wait, all.most, all.open), (Duration::from_millis(500), Some(9), true));
    assert_eq!(all.to_text(), TEXT);
    assert_eq!(
        All::parse(&[("all".to_owned(), all.to_toml().into())].into_iter().collect()),
        Ok(all)
    );
}

#[test]
fn a_key_that_does_not_apply_is_refused_and_has_no_value() {
    let only = "all.wait_ms belongs to kind = \"timed\" only: remove it";
    assert_eq!(with("kind", "kind = \"plain\"").unwrap_err().to_string(), only);
    let plain = TEXT.replace("timed", "plain").replace("wait_ms = 500\n", "");
    let all = parse(&plain).unwrap();
    assert_eq!((all.wait, all.to_text()), (Duration::ZERO, plain));
    assert_eq!(all.row()[1], ("wait_ms", Field::Integer(0)));
}

#[test]
fn only_optional_keys_may_be_absent() {
    for line in TEXT.lines().filter(|line| line.contains(" = ")) {
        let key = line.split(" = ").next().unwrap();
        match with(key, "") {
            Ok(all) => assert!(["most", "open"].contains(&key) && !all.to_text().contains(line)),
            Err(error) => {
                let told =
                    format!("all.{key} is missing: every field that applies must be written out (");
                assert!(error.to_string().starts_with(&told), "{error}");
            }
        }
    }
    let told =
        "all.count is missing: every field that applies must be written out (1 to 2^53: how often)";
    assert_eq!(All::missing("count").to_string(), told);
}

/// Each message has the key, the value and what to write instead.
#[test]
fn errors_say_what_to_write_instead() {
    for (line, told) in [
        ("kind = \"odd\"", "all.kind is \"odd\": known are \"plain\", \"timed\""),
        ("kind = 3", "all.kind is 3: known are \"plain\", \"timed\""),
        ("wait_ms = 9", "all.wait_ms is 9: choose 10 to 20000"),
        ("count = 0", "all.count is 0: choose 1 to 9007199254740992"),
        ("count = -1", "all.count is -1: choose 1 to 9007199254740992"),
        ("count = 1.5", "all.count is 1.5: it must be a whole number"),
        ("count = \"x\"", "all.count is \"x\": it must be a whole number"),
        (
            "count = \"99999999999999999999\"",
            "all.count is 99999999999999999999: choose 1 to 9007199254740992",
        ),
        ("size = 3", "all.size is 3: choose 2 to 2"),
        ("rate = nan", "all.rate is NaN: choose 0 to 10"),
        ("rate = inf", "all.rate is inf: choose 0 to 10"),
        ("rate = \"fast\"", "all.rate is \"fast\": it must be a number"),
        ("share = 0", "all.share is 0: choose 0.000000001 to 0.5"),
        ("word = \"Word\"", "all.word is \"Word\": it must be a lower-case word"),
        ("word = \"wrong\"", "all.word is wrong: choose another one"),
        ("words = 3", "all.words is 3: it must be a list of 1 to 2 of a lower-case word"),
        ("words = []", "all.words is a list of 0: choose 1 to 2"),
        ("words = [\"a\", \"B\"]", "all.words is \"B\": it must be a lower-case word"),
        ("open = false", "all.open is false: it must be true, or the key be left out"),
        ("word = \"w\"\nwrod = 1", "unknown key all.wrod"),
    ] {
        let key = line.split(" = ").next().unwrap();
        assert_eq!(with(key, line).unwrap_err().to_string(), told);
    }
    let cut = format!("all.word is \"{}…: it must be a lower-case word", "W".repeat(59));
    let long = format!("word = \"{}\"", "W".repeat(99));
    assert_eq!(with("word", &long).unwrap_err().to_string(), cut);
    let none = "the manifest has no table [all]: `manifest new` writes every one";
    for text in ["", "all = 3"] {
        assert_eq!(parse(text).unwrap_err().to_string(), none);
    }
    assert!(with("word", "word = \"w\"\nothers = 1").is_ok());
}

/// −0 and 0 are one number, and an `f32` is written so that it reads back as the same.
#[test]
fn a_number_has_one_form() {
    let minus = with("rate", "rate = -0.0").unwrap();
    assert_eq!(minus.rate.to_bits(), with("rate", "rate = 0").unwrap().rate.to_bits());
    for rate in [0.7, 0.1, 1e-7, f32::MIN_POSITIVE, 9.999_999] {
        let all = All { rate, ..parse(TEXT).unwrap() };
        assert_eq!(parse(&all.to_text()).unwrap().rate.to_bits(), rate.to_bits());
    }
}

#[test]
fn every_key_is_described() {
    let all = parse(TEXT).unwrap().described();
    let column = |of: fn(&Description) -> &str| all.iter().map(of).collect::<Vec<_>>();
    assert_eq!(column(|key| &key.key)[..2], ["all.kind", "all.wait_ms"]);
    assert_eq!(column(|key| &key.value)[..3], ["\"timed\"", "500", "3"]);
    assert_eq!(
        column(|key| &key.bounds),
        [
            "\"plain\", \"timed\"",
            "10 to 20,000",
            "1 to 2^53",
            "2",
            "0 to 10",
            "1e-9 to 0.5",
            "a lower-case word",
            "1 to 2 of a lower-case word",
            "0 to 2^63 − 1, or absent",
            "true, or absent",
        ]
    );
    assert_eq!(column(|key| &key.meaning)[1], "kind = \"timed\" only: time between");
}
