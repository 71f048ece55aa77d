//! Tests of `keygen` and `manifest`.

use clap::Parser as _;
use intellect_model::arch;
use intellect_model::config::Vocabulary;
use intellect_model::data::tokens::writer::Writer;

use super::{describe::flops, *};
use crate::{
    cli::{Cli, Verb},
    figures::bytes,
    preset::Preset,
    store::genesis,
    tools::tests::{Folder, has, verb, write_state},
};

fn typed(arguments: &[&str]) -> Result<String, OfflineError> {
    let mut out = Vec::new();
    match verb(arguments) {
        Verb::Keygen(args) => keygen(&args.out, &mut out)?,
        Verb::Manifest(command) => run(command, &mut out)?,
        other => panic!("{other:?} is no offline command"),
    }
    Ok(String::from_utf8(out).unwrap())
}

impl Folder {
    /// Writes a token file that has one token a thousand times.
    fn token_file(&self, name: &str, token: u32) {
        let mut writer = Writer::create(Path::new(&self.path(name)), Vocabulary::BYTES).unwrap();
        writer.begin().unwrap();
        writer.tokens(&[token; 1000], 1000).unwrap();
        writer.finish([0; 32]).unwrap();
    }

    /// Stores a state of `run` in the folder `data`, as a node would; returns its parameters.
    fn commit(&self, manifest: &Manifest, epoch: u64, tokens: u64) -> Vec<f32> {
        let specs = arch::specs(&manifest.work.model);
        let theta = intellect_model::genesis::weights(epoch, &specs);
        let (data_dir, v) = (self.path("data"), vec![1.0; theta.len()]);
        write_state(Path::new(&data_dir), manifest, epoch, tokens, &theta, &v);
        theta
    }

    fn new_manifest(&self, extra: &[&str]) -> Result<String, OfflineError> {
        let (out, key) = (self.path("run.toml"), self.path("a"));
        typed(&[&["manifest", "new", "--out", &out, "--key", &key], extra].concat())
    }
}

#[test]
fn an_organiser_needs_two_lines() {
    let folder = Folder::with_keys();
    let made = folder.new_manifest(&["--name", "first", "--set", "model.layers=3"]).unwrap();
    let shown = typed(&["manifest", "show", &folder.path("run.toml")]).unwrap();
    let id = made.lines().find_map(|line| line.strip_prefix("run       ")).unwrap();
    assert!(id.len() == 64 && shown.contains(id), "{made}{shown}");
    has(&shown, &["first", "3 layers", "parameters", "kB", "15 steps", "memory", "never"]);
    has(&shown, &["FLOP per token"]);
}

/// The output names the signer, the defaults, and the next command.
#[test]
fn a_new_manifest_is_explained() {
    let folder = Folder::with_keys();
    let made = folder.new_manifest(&["--preset", "llama-10b"]).unwrap();
    let run = folder.path("run.toml");
    has(&made, &[&format!("wrote {run}, signed with {}", folder.path("a"))]);
    has(&made, &["signed by organiser", "synthetic: 16 symbols", "TB of memory"]);
    has(&made, &[&format!("--manifest {run}")]);
}

/// The vocabulary of a preset is that of bytes; the token that begins a document is one more.
#[test]
fn a_preset_takes_the_vocabulary_of_larger_data() {
    let folder = Folder::with_keys();
    folder.token_file("a.tokens", 97);
    let data = folder.path("a.tokens");
    let share = "data.held_out=0.2";
    let line = ["--preset", "finch-1m", "--data", &data, "--set", share];
    let made = folder.new_manifest(&line).unwrap();
    assert!(made.contains("vocabulary 257"), "{made}");
    let line = ["--preset", "finch-1m", "--data", &data, "--set", "model.vocab=256"];
    let said = Folder::with_keys().new_manifest(&line).unwrap_err().to_string();
    assert!(said.contains("at least 257"), "{said}");
}

#[test]
fn data_that_is_short_for_an_epoch_is_warned_of() {
    let folder = Folder::with_keys();
    let data = folder.file("text", "x".repeat(1_000));
    let made = folder.new_manifest(&["--data", &data, "--set", "epoch.amount=5"]).unwrap();
    // 5 steps of 4 rows of 64 tokens, over nine tenths of the text.
    assert!(made.contains("takes 1 280 tokens, and the data has 900"), "{made}");
    assert!(made.contains("seen 2 times"), "{made}");
    let made =
        Folder::with_keys().new_manifest(&["--data", &data, "--set", "epoch.amount=3"]).unwrap();
    assert!(!made.contains("warning"), "{made}");
}

/// A node refuses it in the same words.
#[test]
fn data_without_room_for_a_row_makes_no_manifest() {
    let folder = Folder::with_keys();
    let data = folder.file("tiny.txt", "abc");
    let said = folder.new_manifest(&["--data", &data]).unwrap_err().to_string();
    has(&said, &["tiny.txt is too small: its training part has 3 bytes, one row needs 65"]);
    assert!(!Path::new(&folder.path("run.toml")).exists());
    let data = folder.file("short.txt", "x".repeat(100));
    let said = folder.new_manifest(&["--data", &data]).unwrap_err().to_string();
    has(&said, &["its held-out part has 10 bytes"]);
}

/// Defaults would silently undo what the model has learnt.
#[test]
fn a_model_of_elsewhere_needs_a_rate_and_data() {
    let model = tempfile::tempdir().unwrap();
    let model = model.path().to_str().unwrap();
    let new = |extra: &[&str]| {
        let line = ["--from-hf", model].iter().chain(extra).copied().collect::<Vec<_>>();
        Folder::with_keys().new_manifest(&line).unwrap_err().to_string()
    };
    let absent = Folder::with_keys().new_manifest(&["--from-hf", "/absent"]).unwrap_err();
    assert_eq!(absent.to_string(), "--from-hf /absent: there is no such folder or file");
    assert!(new(&["--data", "text"]).contains("--set train.lr="));
    assert!(new(&["--set", "train.lr=1e-5"]).contains("--data"));
    for known in ["--data=text", "--set=seed = 5"] {
        let said = new(&[known, "--set", "train.lr = 1e-5"]);
        assert!(said.contains(model), "{said}");
    }
}

#[test]
fn every_setting_is_in_the_file() {
    let folder = Folder::with_keys();
    folder.new_manifest(&[]).unwrap();
    let text = std::fs::read_to_string(folder.path("run.toml")).unwrap();
    let table: toml::Table = text.parse().unwrap();
    for (name, keys) in [("model", 10), ("data", 5), ("train", 15), ("epoch", 4), ("outer", 3)] {
        assert_eq!(table[name].as_table().unwrap().len(), keys, "{name}");
    }
}

#[test]
fn a_manifest_is_never_overwritten() {
    let folder = Folder::with_keys();
    folder.new_manifest(&[]).unwrap();
    let before = std::fs::read_to_string(folder.path("run.toml")).unwrap();
    assert!(matches!(folder.new_manifest(&[]), Err(OfflineError::Exists { .. })));
    assert_eq!(std::fs::read_to_string(folder.path("run.toml")).unwrap(), before);
}

/// No model is read for a manifest that cannot be written.
#[test]
fn names_that_are_taken_are_refused_before_a_model_is_read() {
    let folder = Folder::with_keys();
    let model = folder.path("");
    let new = |out: &str| {
        typed(&["manifest", "new", "--from-hf", &model, "--out", out]).unwrap_err().to_string()
    };
    let same = folder.path("run.ckpt");
    let said = new(&same);
    assert!(said.contains(&same) && said.contains("as in run.toml"), "{said}");
    for taken in ["a.toml", "b.ckpt"] {
        folder.file(taken, "mine");
        let said = new(&folder.path(&taken.replace("ckpt", "toml")));
        assert!(said.contains(taken) && said.contains("not overwritten"), "{said}");
    }
}

#[test]
fn a_run_on_a_text_names_the_file_by_digest() {
    let folder = Folder::with_keys();
    let text = folder.file("text", "x".repeat(4_321));
    let url = "data.url=https://example.org/text";
    let made = folder.new_manifest(&["--data", &text, "--set", url]).unwrap();
    let shown = typed(&["manifest", "show", &folder.path("run.toml")]).unwrap();
    for text in [&made, &shown] {
        has(text, &["4 321 bytes", ", called text, of", "needs it, from https://example.org/text"]);
    }
    let missing = Folder::with_keys().new_manifest(&["--data", "/absent"]).unwrap_err();
    assert!(missing.to_string().contains("/absent"), "{missing}");
}

/// Otherwise a run would train on braces, on another program's bytes, or on nothing.
#[test]
fn what_is_no_text_makes_no_manifest() {
    let folder = Folder::with_keys();
    let line = "{\"text\": \"good\"}\n";
    for (name, bytes, words) in [
        ("a.jsonl", line.as_bytes(), "data tokenize"),
        ("a.ndjson", line.as_bytes(), "a.tokens`"),
        ("a.parquet", b"PAR1", "data tokenize"),
        ("a.jsonl.gz", &[0x1f, 0x8b], "zcat"),
        ("bad.txt", b"stra\xdfe", "bad.txt is not UTF-8 text: byte 4"),
        ("empty.txt", b"", "empty.txt is empty"),
    ] {
        let path = folder.file(name, bytes);
        let error = folder.new_manifest(&["--data", &path]).unwrap_err().to_string();
        has(&error, &[words, &path]);
        assert!(!Path::new(&folder.path("run.toml")).exists());
    }
}

/// One of two token files is drawn three times as often, and not at all in the end.
#[test]
fn a_run_on_several_token_files_mixes_them() {
    let folder = Folder::with_keys();
    std::fs::create_dir(folder.path("corpus")).unwrap();
    for (name, token) in [("a", 97), ("b", 98)] {
        folder.token_file(&format!("corpus/{name}"), token);
    }
    let settings = ["data.weights=[3, 1]", "data.anneal_weights=[0, 1]", "data.anneal_from=4000"];
    let corpus = folder.path("corpus");
    let line = settings.iter().flat_map(|setting| ["--set", setting]);
    folder.new_manifest(&line.chain(["--data", &corpus]).collect::<Vec<_>>()).unwrap();
    let shown = typed(&["manifest", "show", &folder.path("run.toml")]).unwrap();
    has(&shown, &["2 token files", "75.0 %   0.0 %  2 130 bytes", "25.0 % 100.0 %"]);
    has(&shown, &["with 4 000 tokens", ", called b"]);
    let manifest = Manifest::load(Path::new(&folder.path("run.toml"))).unwrap();
    assert!(Dataset::open(&manifest.work, 1, &[corpus.into()]).is_ok());
    let zero = ["--data", &folder.path("corpus"), "--set", "data.weights=[0, 0]"];
    let refused = Folder::with_keys().new_manifest(&zero).unwrap_err().to_string();
    assert!(refused.contains("nothing would be drawn"), "{refused}");
}

/// Every preset makes a manifest that can be signed, and its name says how large it is.
#[test]
fn every_preset_makes_a_manifest() {
    for preset in Preset::ALL {
        let folder = Folder::with_keys();
        folder.new_manifest(&["--preset", preset.name]).unwrap();
        let manifest = Manifest::load(Path::new(&folder.path("run.toml"))).unwrap();
        let parameters = manifest.work.model.parameter_count() as f64;
        let Some((family, size)) = preset.name.split_once('-') else { continue };
        assert_eq!(manifest.work.model.family.name(), family);
        // The name 1b6 stands for 1.6 billion.
        let (number, unit) = size.split_at(size.find(['m', 'b']).unwrap());
        let unit = if unit.starts_with('m') { 1e6 } else { 1e9 };
        let tenth: f64 = size.rsplit(['m', 'b']).next().unwrap().parse().unwrap_or(0.0);
        let said = unit * (number.parse::<f64>().unwrap() + tenth / 10.0);
        assert!((0.6..1.6).contains(&(parameters / said)), "{}: {parameters}", preset.name);
    }
}

/// Sizes, optimiser and averaging of the paper and of its program's configuration.
#[test]
fn llama_10b_is_intellect_1() {
    let folder = Folder::with_keys();
    folder.new_manifest(&["--preset", "llama-10b"]).unwrap();
    let manifest = Manifest::load(Path::new(&folder.path("run.toml"))).unwrap();
    assert_eq!((manifest.run.epoch.amount, manifest.run.outer.momentum), (100, 0.9));
    let Work { model, train, .. } = &manifest.work;
    assert_eq!(model.parameter_count(), 10_211_381_248);
    assert_eq!(manifest.work.tokens_per_step(), 1 << 20);
    let lengths = [train.warmup_tokens, train.stable_tokens, train.decay_tokens];
    let steps = lengths.map(|tokens| tokens as f64 * 90_400.0 / manifest.run.stop_tokens as f64);
    for (found, published) in steps.into_iter().zip([1_000.0, 73_700.0, 15_700.0]) {
        assert!((found - published).abs() < 1e-3, "{found} {published}");
    }
    let error = Folder::with_keys().new_manifest(&["--preset", "huge"]).unwrap_err();
    assert!(error.to_string().contains("llama-10b"), "{error}");
}

/// The paper's step is kept, and said to be a large one; no other preset goes that far.
#[test]
fn only_llama_10b_has_a_large_gain_and_says_so() {
    for preset in Preset::ALL {
        let folder = Folder::with_keys();
        let made = folder.new_manifest(&["--preset", preset.name]).unwrap();
        let shown = typed(&["manifest", "show", &folder.path("run.toml")]).unwrap();
        let large = preset.name == "llama-10b";
        for text in [&made, &shown] {
            let warned = text.contains("warning   the outer step has a steady gain of 7.00");
            assert_eq!(warned, large, "{}: {text}", preset.name);
        }
        let gain = if large { "a steady gain of 7.00" } else { "a steady gain of 1.75" };
        assert!(shown.contains(gain), "{}: {shown}", preset.name);
        let run = Manifest::load(Path::new(&folder.path("run.toml"))).unwrap().run;
        assert_eq!(run.outer.momentum_ramp_epochs, if large { 0 } else { 10 }, "{}", preset.name);
    }
    let gain = |lr: &str, momentum: &str| {
        let line =
            ["--set", &format!("outer.lr={lr}"), "--set", &format!("outer.momentum={momentum}")];
        Folder::with_keys().new_manifest(&line).unwrap().contains("steady gain")
    };
    assert!(!gain("0.8", "0.8") && gain("0.81", "0.8"), "four is as much as is advised");
}

#[test]
fn numbers_are_written_for_people() {
    let texts = [0.0, 999.0, 1e3, 75.03e9, 7.867e16, 3e25].map(flops);
    let expected =
        ["0.00 FLOP", "999.00 FLOP", "1.00 kFLOP", "75.03 GFLOP", "78.67 PFLOP", "30000.00 ZFLOP"];
    assert_eq!(texts, expected);
    assert_eq!([0, 999, 1_000, 1_234_567].map(count), ["0", "999", "1 000", "1 234 567"]);
    let texts = [0, 999, 1_000, 9_949, 12_345, 999_499, 999_500, 5_200_000_000].map(bytes);
    assert_eq!(texts, ["0 B", "999 B", "1.0 kB", "9.9 kB", "12 kB", "999 kB", "1.0 MB", "5.2 GB"]);
}

/// The new run has the old settings, the remaining tokens and schedule, the newest weights, and a
/// new key.
#[test]
fn a_run_goes_on_where_another_one_is() {
    let folder = Folder::with_keys();
    let settings = [
        "stop_tokens=100000",
        "train.warmup_tokens=50000",
        "train.stable_tokens=20000",
        "train.decay_tokens=10000",
        "members.min_peers=3",
    ];
    let line = settings.iter().flat_map(|setting| ["--set", setting]);
    folder.new_manifest(&line.collect::<Vec<_>>()).unwrap();
    let before = Manifest::load(Path::new(&folder.path("run.toml"))).unwrap();
    let theta = folder.commit(&before, 7, 60_000);

    typed(&["keygen", "--out", &folder.path("other.key")]).unwrap();
    let (out, data) = (folder.path("next.toml"), folder.path("data"));
    let (key, run) = (folder.path("other.key"), &before.id.hex()[..8]);
    let line = ["manifest", "new", "--from-run", &data, "--key", &key, "--run", run, "--out", &out];
    let made = typed(&line).unwrap();
    has(&made, &["after epoch 7 of run", "60 000 tokens", "next.ckpt", "--genesis"]);
    let next = Manifest::load(Path::new(&out)).unwrap();
    assert_ne!((next.id, next.run.organiser), (before.id, before.run.organiser));
    assert_eq!((next.run.stop_tokens, next.run.seed), (40_000, before.run.seed));
    assert_eq!(next.run.members, before.run.members);
    let Work { model, data, train } = &next.work;
    assert_eq!((model, data), (&before.work.model, &before.work.data));
    assert_eq!((train.warmup_tokens, train.stable_tokens, train.decay_tokens), (0, 10_000, 10_000));
    let weights = Path::new(&folder.path("next.ckpt")).to_owned();
    let published =
        genesis::Published::read(&weights, next.run.genesis.unwrap(), theta.len() as u64);
    assert_eq!(published.unwrap().theta, theta);
    let said = typed(&line).unwrap_err().to_string();
    assert!(said.contains("next.toml exists"), "{said}");
}

/// Defaults would silently train in another way than the old run would have, or not at all.
#[test]
fn what_a_run_has_used_up_is_asked_for() {
    let folder = Folder::with_keys();
    let settings = ["stop_tokens=6000", "train.stable_tokens=2000", "train.decay_tokens=10000"];
    let line = settings.iter().chain(&["train.warmup_tokens=1000"]);
    let line = line.flat_map(|setting| ["--set", setting]);
    folder.new_manifest(&line.collect::<Vec<_>>()).unwrap();
    let before = Manifest::load(Path::new(&folder.path("run.toml"))).unwrap();
    folder.commit(&before, 9, 6_000);
    let (out, data, key) = (folder.path("next.toml"), folder.path("data"), folder.path("a"));
    let new = |extra: &[&str]| {
        let line = ["manifest", "new", "--from-run", &data, "--key", &key, "--out", &out];
        let extra = extra.iter().flat_map(|setting| ["--set", setting]);
        typed(&line.into_iter().chain(extra).collect::<Vec<_>>())
    };
    let said = new(&[]).unwrap_err().to_string();
    assert!(said.contains("is finished: it has its 6 000 tokens"), "{said}");
    let said = new(&["stop_tokens=0"]).unwrap_err().to_string();
    // The rate is 3e-3 (1 − √0.3).
    assert!(said.contains("is at 1.36e-3") && said.contains("--set train.lr="), "{said}");
    let said = new(&["stop_tokens=0", "train.lr=1e-3", "model.width=32"]).unwrap_err();
    assert!(said.to_string().contains("only context"), "{said}");
    assert!(!Path::new(&out).exists() && !Path::new(&folder.path("next.ckpt")).exists());
    new(&["stop_tokens=9000", "train.lr=1e-3", "train.decay_tokens=8000"]).unwrap();
    let Manifest { run, work: Work { train, .. }, .. } = Manifest::load(Path::new(&out)).unwrap();
    assert_eq!((run.stop_tokens, train.lr, train.warmup_tokens), (9_000, 1e-3, 0));
    assert_eq!((train.stable_tokens, train.decay_tokens), (0, 8_000));
}

#[test]
fn a_run_that_is_not_there_cannot_be_continued() {
    let folder = Folder::with_keys();
    let (out, data, key) = (folder.path("next.toml"), folder.path("data"), folder.path("a"));
    let new = || {
        let line = ["manifest", "new", "--from-run", &data, "--key", &key, "--out", &out];
        typed(&line).unwrap_err().to_string()
    };
    assert!(new().contains("data does not exist: name another folder"), "{}", new());
    folder.new_manifest(&[]).unwrap();
    let before = Manifest::load(Path::new(&folder.path("run.toml"))).unwrap();
    let run = crate::store::run_folder(Path::new(&data), before.id);
    std::fs::create_dir_all(&run).unwrap();
    std::fs::copy(folder.path("run.toml"), run.join("run.toml")).unwrap();
    assert!(new().contains("holds no checkpoint yet"), "{}", new());
    let line = ["intellect-node", "manifest", "new", "--out", "x", "--from-run", "y"];
    for extra in [["--from-hf", "z"], ["--preset", "finch-1m"], ["--data", "z"]] {
        assert!(Cli::try_parse_from(line.into_iter().chain(extra)).is_err(), "{extra:?}");
    }
    assert!(Cli::try_parse_from(["x", "manifest", "new", "--out", "x", "--run", "abcd"]).is_err());
}
