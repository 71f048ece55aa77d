//! Tests of reading, writing and hashing the work of a manifest.

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

/// The bytes are hashed into RunIds: they never change for a manifest that exists.
#[test]
fn canonical_bytes_are_golden() {
    let bytes = Work::parse(&written()).expect("valid").canonical();
    // 37 fields: 36 of 8 bytes and the digest, 4 + 64 bytes.
    assert_eq!(bytes.len(), 36 * 8 + 68);
    let head: Vec<_> =
        bytes.chunks(8).take(8).map(|word| u64::from(word[0]) + u64::from(word[1]) * 256).collect();
    assert_eq!(head, [1, 3, 48, 6, 2, 130, 96, 300]);
    assert_eq!(bytes[64..72], 500_000.0_f64.to_bits().to_le_bytes());
    // No ranks, blocks of another kind or compression.
    assert_eq!(bytes[80..120], [0; 40]);
    // source, tokenizer, no symbols, no order, the digest's length.
    let middle: Vec<_> = bytes[120..156].chunks(4).map(|word| word[0]).collect();
    assert_eq!(middle, [2, 0, 2, 0, 0, 0, 0, 0, 64]);
    assert_eq!(
        blake3::hash(&bytes).to_hex().as_str(),
        "25e49794745a306a38a92fb1896eafec13cfd004e48298df8e5b3813eeb1fcb3"
    );
}

/// What a token file adds stands at the end of `[data]`; of older sources it hashes nothing.
#[test]
fn canonical_bytes_of_a_token_file_are_golden() {
    let bytes = tokens().canonical();
    assert_eq!(bytes.len(), 38 * 8 + 2 * 68);
    // source, tokenizer, no symbols, no order.
    let begin: Vec<_> = bytes[120..152].chunks(8).map(|word| word[0]).collect();
    assert_eq!(begin, [3, 3, 0, 0]);
    // The tokenizer's digest, how many tokens, which begins a document; then the batch.
    let hex = "03".repeat(32);
    assert_eq!((&bytes[236..240], &bytes[240..304]), (&[64, 0, 0, 0][..], hex.as_bytes()));
    let end: Vec<_> = bytes[304..328].chunks(8).map(|word| word[0]).collect();
    assert_eq!(end, [0xfa, 5, 4]);
    assert_eq!(
        blake3::hash(&bytes).to_hex().as_str(),
        "63460934ffeb6e5864c2d07328c631c8641a322093c4a27124a23f2900518540"
    );
}

#[test]
fn canonical_bytes_of_a_mix_are_golden() {
    let bytes = mix().canonical();
    // Of a token file without the file's own digest and length, and four lists and a number more.
    assert_eq!(bytes.len(), 38 * 8 + 2 * 68 - 64 + 4 * 8 + 2 * (68 + 3 * 8) + 8);
    // No digest and no length, then a tenth is held out.
    assert_eq!(bytes[120], 4);
    assert_eq!(
        (&bytes[152..164], &bytes[164..172]),
        (&[0; 12][..], &0.1_f64.to_bits().to_le_bytes()[..])
    );
    // Where the lists begin there are two digests of 64 letters.
    assert_eq!(bytes[256..268], [2, 0, 0, 0, 0, 0, 0, 0, 64, 0, 0, 0]);
    assert_eq!(
        blake3::hash(&bytes).to_hex().as_str(),
        "ecadbb09249b2fa4fcd20dab7ae803ded6a96d1a31f0e6685a64a6a046e7f826"
    );
}

#[test]
fn every_field_of_a_mix_changes_the_canonical_bytes() {
    let before = mix().canonical();
    let changed: [(&str, Value); 5] = [
        ("data.digests", vec!["06".repeat(32), "08".repeat(32)].into()),
        ("data.sizes", vec![100, 201].into()),
        ("data.weights", vec![0.75, 0.5].into()),
        ("data.anneal_weights", vec![1, 3].into()),
        ("data.anneal_from", 8.into()),
    ];
    for (key, value) in &changed {
        let mut manifest = mix().to_toml();
        put(&mut manifest, key, value.clone());
        let after = Work::parse(&manifest).expect("valid").canonical();
        assert_ne!(after, before, "{key} is not hashed");
    }
    // Source, tokenizer and its three fields, and what is held out are those of a token file.
    let data = &mix().to_toml()["data"];
    assert_eq!(changed.len() + 6, data.as_table().expect("a table").len());
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
fn every_field_of_a_token_file_changes_the_canonical_bytes() {
    let before = tokens().canonical();
    let data = tokens().to_toml()["data"].clone();
    let changed = [
        ("data.tokenizer", Value::from("hugging-face")),
        ("data.digest", "f".repeat(64).into()),
        ("data.bytes", 5.into()),
        ("data.held_out", 0.0.into()),
        ("data.tokenizer_digest", "f".repeat(64).into()),
        ("data.tokens", 65_529.into()),
        ("data.bos", 6.into()),
    ];
    for (key, value) in &changed {
        let mut manifest = tokens().to_toml();
        put(&mut manifest, key, value.clone());
        let after = Work::parse(&manifest).expect("valid").canonical();
        assert_ne!(after, before, "{key} is not hashed");
    }
    // Another source has other fields.
    assert_eq!(changed.len() + 1, data.as_table().expect("a table").len());
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
    let only = "data.tokenizer_digest belongs to a tokenizer with a file only: remove it";
    assert_eq!(told(bytes(), "data.tokenizer_digest", "3".repeat(64).into()), only);
    assert_eq!(told(bytes(), "data.tokens", 258.into()), "data.tokens is 258: choose 257 to 257");
    assert_eq!(told(bytes(), "data.bos", 0.into()), "data.bos is 0: choose 256 to 256");
    let known = "data.tokenizer is \"bpe\": known are \"bytes\", \"rwkv\", \"hugging-face\"";
    assert_eq!(told(tokens(), "data.tokenizer", "bpe".into()), known);
    let only = "data.tokens belongs to source = \"tokens\" or \"mix\" only: remove it";
    assert_eq!(refusal(&with("data.tokens", 257)), only);
}

#[test]
fn every_field_changes_the_canonical_bytes() {
    let before = Work::parse(&written()).expect("valid").canonical();
    let changed = [
        ("model.layers", Value::from(4)),
        ("model.width", 60.into()),
        ("model.heads", 4.into()),
        ("model.kv_heads", 3.into()),
        ("model.ffn", 131.into()),
        ("model.context", 97.into()),
        ("model.vocab", 301.into()),
        ("model.rope_theta", 1e4.into()),
        ("model.norm_eps", 1e-6.into()),
        ("data.digest", "f".repeat(64).into()),
        ("data.bytes", 5.into()),
        ("data.held_out", 0.0.into()),
        ("train.batch", 6.into()),
        ("train.lr", 0.002.into()),
        ("train.beta1", 0.7.into()),
        ("train.beta2", 0.98.into()),
        ("train.eps", 1e-8.into()),
        ("train.weight_decay", 0.0.into()),
        ("train.clip", 0.0.into()),
        ("train.z_loss", 0.0.into()),
        ("train.warmup_tokens", 8.into()),
        ("train.warmup_start", 0.0.into()),
        ("train.stable_tokens", 0.into()),
        ("train.decay_tokens", 12.into()),
        ("train.decay", "linear".into()),
        ("train.lr_final", 0.0.into()),
        ("train.join_ramp_steps", 14.into()),
    ];
    for (key, value) in &changed {
        let after = Work::parse(&with(key, value.clone())).expect("valid").canonical();
        assert_ne!(after, before, "{key} is not hashed");
    }
    // Another family has other fields, and a text has one source and tokenizer.
    assert_eq!(changed.len() + 3, every_key(&written()).len());
    assert_ne!(Work::synthetic().canonical(), Work::text(FILE).canonical());
}

#[test]
fn an_unknown_key_is_named() {
    assert_eq!(refusal(&with("model.layer", 3)), "unknown key model.layer");
    let known = Work::keys();
    let known = |key| known.iter().any(|[name, ..]| name == key);
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

/// Runs without hints keep their ids, and each hint changes one.
#[test]
fn hints_survive_being_written_and_change_the_canonical_bytes() {
    let plain = mix();
    let mut named = plain.clone();
    named.data.hints = Hints::of(&["/a/web pages.tokens".into(), "b/böse;\"$(x).tokens".into()]);
    assert_eq!(named.data.hints.names, ["web pages.tokens", "böse____x_.tokens"]);
    let mut found = named.clone();
    found.data.hints.url = Some("https://example.org/corpus".to_owned());
    for work in [&plain, &named, &found] {
        assert_eq!(Work::parse(&work.to_toml()).as_ref(), Ok(work));
    }
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
    for url in ["corpus", "https://a b", "https://a\u{1b}[2J", "ftp://'"] {
        let mut manifest = text.clone();
        put(&mut manifest, "data.url", url);
        assert!(refusal(&manifest).contains("data.url"), "{url}");
    }
    let mut synthetic = Work::synthetic().to_toml();
    put(&mut synthetic, "data.url", "https://example.org");
    assert!(refusal(&synthetic).contains("\"mix\" only"), "{}", refusal(&synthetic));
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

/// Sizes and counts of INTELLECT-1's family of models (docs/MATH.md), worked out elsewhere.
#[test]
fn parameters_are_counted_as_published() {
    let mut work = Work::synthetic();
    let mut count = |layers, width, ffn| {
        let model = Model { layers, width, heads: width / 128, ffn, ..work.model.clone() };
        work.model = Model { kv_heads: 8, vocab: 128_256, ..model };
        work.model.parameter_count()
    };
    assert_eq!(count(18, 2048, 7168), 1_544_628_224);
    assert_eq!(count(32, 4096, 14_336), 8_030_261_248);
    assert_eq!(count(42, 4096, 14_336), 10_211_381_248);
    assert_eq!(work.state_bytes(), 8 * 10_211_381_248);
}

/// A work of this family, as RWKV-LM and GoldFinch-paper size it.
fn of_family(family: Family, layers: usize, width: usize) -> Work {
    let mut work = Work::synthetic();
    work.model = Model {
        family,
        layers,
        width,
        heads: width / 64,
        ffn: (7 * width / 2) / 32 * 32,
        context: 1024,
        vocab: 65_536,
        ..Model::NONE
    };
    if family != Family::Eagle {
        (work.model.mix_rank, work.model.decay_rank) = (32, 64);
    }
    if family == Family::GoldFinch {
        (work.model.gold_layers, work.model.compression) = (layers / 3, 16);
        work.model.value_rank = 64.max(width / 16);
    }
    work
}

/// The sizes of the published models (docs/MATH.md).
#[test]
fn parameters_of_rwkv_models_are_counted_as_published() {
    let millions = |family, layers, width| {
        let count = of_family(family, layers, width).model.parameter_count();
        (count as f64 / 1e6).round()
    };
    assert_eq!(millions(Family::Eagle, 24, 1024), 462.0);
    assert_eq!(millions(Family::Eagle, 32, 2560), 3063.0);
    assert_eq!(millions(Family::Finch, 24, 2048), 1600.0);
    assert_eq!(millions(Family::GoldFinch, 12, 768), 187.0);
    assert_eq!(millions(Family::GoldFinch, 24, 2048), 1445.0);
}

/// A run without it keeps its id.
#[test]
fn scaled_frequencies_take_two_fields_or_none() {
    let plain = Work::synthetic();
    let mut scaled = plain.clone();
    (scaled.model.rope_factor, scaled.model.rope_original_context) = (Some(8.0), Some(8192));
    let manifest = scaled.to_toml();
    assert_eq!(Work::parse(&manifest), Ok(scaled.clone()));
    assert_ne!(scaled.canonical(), plain.canonical());
    for key in ["rope_factor", "rope_original_context"] {
        let mut less = manifest.clone();
        less["model"].as_table_mut().expect("a table").remove(key);
        assert!(refusal(&less).starts_with(&format!("model.{key} is missing")));
    }
}

#[test]
fn every_family_has_its_own_fields_and_no_others() {
    let only = [
        (Family::Eagle, "mix_rank", "family = \"finch\" or \"goldfinch\""),
        (Family::Eagle, "kv_heads", "family = \"llama\""),
        (Family::Finch, "compression", "family = \"goldfinch\""),
        (Family::GoldFinch, "rope_theta", "family = \"llama\""),
    ];
    for (family, key, owner) in only {
        let work = of_family(family, 6, 128);
        let manifest = work.to_toml();
        assert_eq!(Work::parse(&manifest), Ok(work));
        let mut more = manifest.clone();
        put(&mut more, &format!("model.{key}"), 2);
        assert_eq!(refusal(&more), format!("model.{key} belongs to {owner} only: remove it"));
        for key in every_key(&manifest) {
            let mut less = manifest.clone();
            let (table, field) = key.split_once('.').expect("table.key");
            less[table].as_table_mut().expect("a table").remove(field);
            assert!(refusal(&less).starts_with(&format!("{key} is missing")), "{key}");
        }
    }
}

#[test]
fn sizes_that_do_not_go_together_are_refused() {
    for (key, value, told) in [
        ("model.gold_layers", 6, "it must be below model.layers = 6"),
        ("model.gold_layers", 0, "choose 1 to 511"),
        ("model.compression", 3, "it must divide model.width = 128"),
        ("model.mix_rank", 4097, "choose 1 to 4096"),
    ] {
        let mut manifest = of_family(Family::GoldFinch, 6, 128).to_toml();
        put(&mut manifest, key, value);
        let refusal = refusal(&manifest);
        assert!(refusal.starts_with(key) && refusal.contains(told), "{refusal}");
    }
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
