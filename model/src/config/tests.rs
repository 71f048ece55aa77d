//! Tests of reading, writing and hashing the work of a manifest.

mod canonical;
mod families;

use proptest::prelude::*;
use toml::Value;

use super::*;

const FILE: Fingerprint = Fingerprint { digest: [7; 32], bytes: 1 << 20 };

/// A work whose fields are all different and none is a default, as a person would write it.
const WRITTEN: &str = r#"
[model]
family = "llama"
layers = 3
width = 48
heads = 6
kv_heads = 2
ffn = 130
context = 96
vocab = 300
rope_theta = 500000
norm_eps = 2e-6

[data]
source = "text"
tokenizer = "bytes"
digest = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1eff"
bytes = 1115394
held_out = 0.25

[train]
batch = 5
lr = 0.001
beta1 = 0.8
beta2 = 0.99
eps = 1e-9
weight_decay = 0.05
clip = 2
z_loss = 2e-4
warmup_tokens = 7
warmup_start = 0.01
stable_tokens = 9007199254740992
decay_tokens = 11
decay = "cosine"
lr_final = 0.0001
join_ramp_steps = 13
"#;

fn written() -> toml::Table {
    WRITTEN.parse().expect("valid TOML")
}

fn with(key: &str, value: impl Into<Value>) -> toml::Table {
    let mut manifest = written();
    put(&mut manifest, key, value);
    manifest
}

fn put(manifest: &mut toml::Table, key: &str, value: impl Into<Value>) {
    let (table, key) = key.split_once('.').expect("table.key");
    manifest[table].as_table_mut().expect("a table").insert(key.to_owned(), value.into());
}

fn refusal(manifest: &toml::Table) -> String {
    Work::parse(manifest).expect_err("must be refused").to_string()
}

fn every_key(manifest: &toml::Table) -> Vec<String> {
    let keys = |(table, fields): (&String, &Value)| {
        let fields = fields.as_table().expect("a table");
        fields.keys().map(|key| format!("{table}.{key}")).collect::<Vec<_>>()
    };
    manifest.iter().flat_map(keys).collect()
}

#[test]
fn what_is_written_is_what_is_read() {
    let work = Work::parse(&written()).expect("valid");
    assert_eq!((work.model.layers, work.model.head_size(), work.model.kv_width()), (3, 8, 16));
    assert_eq!(work.train.clip.to_bits(), 2.0_f64.to_bits());
    assert_eq!(work.tokens_per_step(), 480);
    let Source::Text(Fingerprint { digest, bytes }) = work.data.source else { panic!("a text") };
    assert_eq!((digest[1], digest[31], bytes), (1, 255, 1_115_394));
}

/// A work on tokens of another tokenizer than bytes.
fn tokens() -> Work {
    let vocabulary = Vocabulary { scheme: Scheme::Rwkv, digest: [3; 32], tokens: 65_530, bos: 5 };
    Work::tokens(vocabulary, Fingerprint { digest: [4; 32], bytes: 1 << 33 })
}

/// A work on two files, of which the second is drawn alone in the end.
fn mix() -> Work {
    let mut work = tokens();
    let Source::Tokens { vocabulary, .. } = work.data.source else { panic!("tokens") };
    let part = |digest, bytes, [weight, anneal_weight]: [f64; 2]| Component {
        file: Fingerprint { digest: [digest; 32], bytes },
        weight,
        anneal_weight,
    };
    let components = vec![part(6, 100, [0.75, 0.0]), part(7, 200, [0.25, 3.0])];
    work.data.source = Source::Mix { vocabulary, components, anneal_from: 9 };
    work
}

#[test]
fn every_work_survives_being_written() {
    let text = Work::parse(&written()).expect("valid");
    let bytes = Work::tokens(Vocabulary::BYTES, FILE);
    for work in [Work::synthetic(), Work::text(FILE), text, tokens(), bytes, mix()] {
        let file = work.to_toml().to_string();
        let back = Work::parse(&file.parse().expect("valid TOML")).expect("valid");
        assert_eq!(back, work);
        assert_eq!(back.canonical(), work.canonical());
    }
}

#[test]
fn a_mix_that_cannot_be_drawn_is_refused() {
    let none: Vec<Value> = Vec::new();
    let many = vec!["06".repeat(32); 65];
    let cases: [(&str, Value, &str); 11] = [
        ("data.weights", vec![0, 0].into(), "data.weights is [0.0, 0.0]: nothing would be drawn"),
        ("data.anneal_weights", vec![0.0, -0.0].into(), "[0.0, 0.0]: nothing would be drawn"),
        ("data.weights", vec![1].into(), "is a list of 1: data.digests names 2 files"),
        ("data.sizes", vec![1, 2, 3].into(), "is a list of 3: data.digests names 2 files"),
        ("data.weights", vec![1, -1].into(), "data.weights is -1: choose 0 to 1000000"),
        ("data.weights", vec![1.0, f64::NAN].into(), "data.weights is NaN: choose"),
        ("data.weights", 3.into(), "data.weights is 3: it must be a list"),
        ("data.sizes", vec![0, 1].into(), "data.sizes is 0: choose 1 to"),
        ("data.digests", none.into(), "data.digests is a list of 0: choose 1 to 64"),
        ("data.digests", many.into(), "data.digests is a list of 65: choose 1 to 64"),
        ("data.digests", vec!["06".repeat(32); 2].into(), "it stands there twice"),
    ];
    for (key, value, told) in cases {
        let mut manifest = mix().to_toml();
        put(&mut manifest, key, value);
        let refusal = refusal(&manifest);
        assert!(refusal.starts_with(key) && refusal.contains(told), "{refusal}");
    }
    let only = "data.weights belongs to source = \"mix\" only: remove it";
    assert_eq!(refusal(&with("data.weights", vec![1])), only);
}

#[test]
fn a_tokenizer_that_does_not_fit_is_refused() {
    let told = |work: Work, key, value: Value| {
        let mut manifest = work.to_toml();
        put(&mut manifest, key, value);
        refusal(&manifest)
    };
    let bytes = || Work::tokens(Vocabulary::BYTES, FILE);
    assert_eq!(
        told(tokens(), "model.vocab", 65_529.into()),
        "model.vocab is 65529: the data has 65530 different tokens: choose at least 65530"
    );
    assert_eq!(told(tokens(), "data.bos", 65_530.into()), "data.bos is 65530: choose 0 to 65529");
    let only = "data.tokenizer_digest belongs to source = \"tokens\" or \"mix\" \
                with a tokenizer that has a file only: remove it";
    assert_eq!(told(bytes(), "data.tokenizer_digest", "3".repeat(64).into()), only);
    assert_eq!(told(bytes(), "data.tokens", 258.into()), "data.tokens is 258: choose 257 to 257");
    assert_eq!(told(bytes(), "data.bos", 0.into()), "data.bos is 0: choose 256 to 256");
    let known = "data.tokenizer is \"bpe\": known are \"bytes\", \"rwkv\", \"hugging-face\"";
    assert_eq!(told(tokens(), "data.tokenizer", "bpe".into()), known);
    let only = "data.tokens belongs to source = \"tokens\" or \"mix\" only: remove it";
    assert_eq!(refusal(&with("data.tokens", 257)), only);
}

#[test]
fn an_unknown_key_is_named() {
    assert_eq!(refusal(&with("model.layer", 3)), "unknown key model.layer");
    let known = Work::keys();
    let known = |key: &String| known.iter().any(|known| known.key == *key);
    assert!(every_key(&written()).iter().all(known));
}

#[test]
fn a_missing_field_says_what_belongs_there() {
    let mut less = written();
    less["train"].as_table_mut().expect("a table").remove("warmup_start");
    let told = "train.warmup_start is missing: every field that applies must be written out \
                (0 to 1: share of `lr` that it rises from)";
    assert_eq!(refusal(&less), told);
}

#[test]
fn a_missing_field_or_table_is_named() {
    for manifest in [written(), Work::synthetic().to_toml(), tokens().to_toml(), mix().to_toml()] {
        for key in every_key(&manifest) {
            let mut less = manifest.clone();
            let (table, field) = key.split_once('.').expect("table.key");
            less[table].as_table_mut().expect("a table").remove(field);
            assert!(refusal(&less).starts_with(&format!("{key} is missing")), "{key}");
        }
        for table in ["model", "data", "train"] {
            let mut less = manifest.clone();
            less.remove(table);
            assert!(refusal(&less).contains(&format!("no table [{table}]")));
        }
    }
}

#[test]
fn a_field_of_the_other_source_is_refused() {
    let told = "data.symbols belongs to source = \"synthetic\" only: remove it";
    assert_eq!(refusal(&with("data.symbols", 32)), told);
    let mut synthetic = Work::synthetic().to_toml();
    put(&mut synthetic, "data.bytes", 5);
    let told = "data.bytes belongs to source = \"text\" or \"tokens\" only: remove it";
    assert_eq!(refusal(&synthetic), told);
}

#[test]
fn hints_survive_being_written_and_change_the_canonical_bytes() {
    let plain = mix();
    let mut named = plain.clone();
    named.data.hints = Hints::of(&["/a/web pages.tokens".into(), "b/böse;\"$(x).tokens".into()]);
    assert_eq!(named.data.hints.names, ["web pages.tokens", "böse____x_.tokens"]);
    let mut found = named.clone();
    found.data.hints.url = Some("https://example.org/corpus/".to_owned());
    for work in [&plain, &named, &found] {
        assert_eq!(Work::parse(&work.to_toml()).as_ref(), Ok(work));
    }
    let at = |index| found.data.hints.address(index);
    assert_eq!(at(0).unwrap(), "https://example.org/corpus/web%20pages.tokens");
    assert_eq!(at(1).unwrap(), "https://example.org/corpus/b%C3%B6se____x_.tokens");
    assert_eq!((at(2), named.data.hints.address(0)), (None, None));
    let bytes = [&plain, &named, &found].map(Work::canonical);
    assert!(bytes[0] != bytes[1] && bytes[1] != bytes[2]);
    assert!(Hints::of(&["..".into(), "-rf".into()]).names.iter().all(|name| name.starts_with('_')));
}

#[test]
fn hints_that_a_shell_would_take_otherwise_are_refused() {
    let mut text = Work::text(FILE);
    text.data.hints = Hints::of(&["corpus.txt".into()]);
    let text = text.to_toml();
    let names = |names: &[&str]| {
        let mut manifest = text.clone();
        put(
            &mut manifest,
            "data.names",
            names.iter().copied().map(Value::from).collect::<Vec<_>>(),
        );
        refusal(&manifest)
    };
    for name in ["", "-rf", "../key", "a;b", "a'b", "a\nb", &"x".repeat(102)] {
        assert!(names(&[name]).contains("a file's name"), "{name}");
    }
    assert!(names(&["a", "b"]).contains("the run has 1 files"), "{}", names(&["a", "b"]));
    let long = format!("https://a/{}", "x".repeat(500));
    for url in [
        "corpus",
        "https://a b",
        "https://a\u{1b}[2J",
        "ftp://'",
        "http://example.org/text",
        "https://",
        "https:///text",
        "https://me:secret@example.org/text",
        "https://example.org/text#part",
        &long,
    ] {
        let mut manifest = text.clone();
        put(&mut manifest, "data.url", url);
        let told = refusal(&manifest);
        assert!(told.contains("data.url") && told.contains("https"), "{url}: {told}");
    }
    for url in ["https://example.org:8443/a/b?c=d", "https://[2001:db8::1]/text", "https://a/"] {
        let mut manifest = text.clone();
        put(&mut manifest, "data.url", url);
        assert!(Work::parse(&manifest).is_ok(), "{url}");
    }
    let mut of_files = mix();
    of_files.data.hints = Hints::of(&["a.tokens".into(), "b.tokens".into()]);
    of_files.data.hints.url = Some("https://example.org/a.tokens".to_owned());
    assert!(refusal(&of_files.to_toml()).contains("'/' at its end"));
    let mut synthetic = Work::synthetic().to_toml();
    put(&mut synthetic, "data.url", "https://example.org");
    let only = "data.url belongs to source = \"text\" or \"tokens\" or \"mix\" with data.names only: remove it";
    assert_eq!(refusal(&synthetic), only);
}

#[test]
fn a_table_that_is_too_large_is_refused() {
    let told = |symbols, order| {
        let mut manifest = Work::synthetic().to_toml();
        put(&mut manifest, "data.symbols", symbols);
        put(&mut manifest, "data.order", order);
        put(&mut manifest, "model.vocab", 256);
        Work::parse(&manifest).map(|_| ()).map_err(|error| error.to_string())
    };
    assert_eq!([told(256, 2), told(64, 3), told(2, 3)], [Ok(()), Ok(()), Ok(())]);
    let refusal = told(65, 3).expect_err("must be refused");
    assert!(refusal.starts_with("data.order is 3: data.symbols = 65 to the power"), "{refusal}");
}

#[test]
fn what_is_out_of_bounds_is_told_with_the_bounds() {
    let cases: [(&str, Value, &str); 24] = [
        ("model.layers", 0.into(), "model.layers is 0: choose 1 to 512"),
        ("model.layers", 513.into(), "choose 1 to 512"),
        ("model.layers", (-1).into(), "model.layers is -1: choose 1 to 512"),
        // As `--set` hands on what TOML cannot hold.
        ("model.layers", "99999999999999999999".into(), "99999999999999999999: choose 1 to 512"),
        ("model.width", 65_544.into(), "choose 8 to 65536"),
        ("model.ffn", 262_145.into(), "choose 8 to 262144"),
        ("model.context", 7.into(), "choose 8 to 1048576"),
        ("model.vocab", 255.into(), "the data has 256 different tokens"),
        ("model.rope_theta", 0.5.into(), "choose 1 to 1000000000"),
        ("model.norm_eps", 0.0.into(), "choose 0.000000000001 to 0.01"),
        ("model.heads", 5.into(), "must divide model.width = 48"),
        ("model.heads", 16.into(), "heads of even size"),
        ("model.kv_heads", 4.into(), "must divide model.heads = 6"),
        ("data.held_out", 0.51.into(), "choose 0 to 0.5"),
        ("data.bytes", 0.into(), "choose 1 to"),
        ("train.batch", 0.into(), "choose 1 to 65536"),
        ("train.lr", 0.0.into(), "train.lr is 0: choose"),
        ("train.lr", f64::NAN.into(), "train.lr is NaN: choose"),
        ("train.lr", f64::INFINITY.into(), "train.lr is inf: choose"),
        ("train.lr_final", 0.0011.into(), "train.lr_final is 0.0011: choose 0 to 0.001"),
        ("train.warmup_start", 1.1.into(), "choose 0 to 1"),
        ("train.beta2", 1.0.into(), "train.beta2 is 1: choose 0 to 0.9999999"),
        ("train.z_loss", (-1e-9).into(), "choose 0 to 1"),
        ("train.decay_tokens", i64::MAX.into(), "choose 0 to 9007199254740992"),
    ];
    for (key, value, told) in cases {
        let refusal = refusal(&with(key, value));
        assert!(refusal.starts_with(key) && refusal.contains(told), "{refusal}");
    }
}

#[test]
fn names_and_types_are_checked() {
    let told = "model.family is \"lama\": known are \"llama\", \"eagle\", \"finch\", \"goldfinch\"";
    assert_eq!(refusal(&with("model.family", "lama")), told);
    let told = "data.source is \"jsonl\": known are \"synthetic\", \"text\", \"tokens\", \"mix\"";
    assert_eq!(refusal(&with("data.source", "jsonl")), told);
    let told = "data.tokenizer is \"symbols\": known are \"bytes\"";
    assert_eq!(refusal(&with("data.tokenizer", "symbols")), told);
    let told =
        "train.decay is \"sine\": known are \"1-sqrt\", \"linear\", \"cosine\", \"quarter-cosine\"";
    assert_eq!(refusal(&with("train.decay", "sine")), told);
    let told = "train.batch is 8.5: it must be a whole number";
    assert_eq!(refusal(&with("train.batch", 8.5)), told);
    let told = "train.lr is \"fast\": it must be a number";
    assert_eq!(refusal(&with("train.lr", "fast")), told);
    assert!(refusal(&with("data.digest", "F".repeat(64))).contains("64 lower-case hex digits"));
    assert!(refusal(&with("data.digest", "a".repeat(63))).contains("64 lower-case hex digits"));
    let mut manifest = written();
    manifest.insert("model".to_owned(), 3.into());
    assert!(refusal(&manifest).contains("no table [model]"));
}

/// −0 and 0 are one number, so they must be one run.
#[test]
fn minus_zero_is_zero() {
    let minus = Work::parse(&with("train.clip", -0.0)).expect("valid");
    let zero = Work::parse(&with("train.clip", 0)).expect("valid");
    assert_eq!(minus.canonical(), zero.canonical());
}

proptest! {
    /// A manifest comes from strangers: any value in any field is read or refused.
    #[test]
    fn no_value_breaks_the_reader(
        field in 0_usize..37,
        value in prop_oneof![
            any::<i64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            any::<bool>().prop_map(Value::from),
            ".{0,80}".prop_map(Value::from),
        ],
    ) {
        let keys = every_key(&written());
        let mut manifest = written();
        put(&mut manifest, &keys[field % keys.len()], value);
        if let Ok(work) = Work::parse(&manifest) {
            prop_assert_eq!(Work::parse(&work.to_toml()), Ok(work));
        }
    }
}
