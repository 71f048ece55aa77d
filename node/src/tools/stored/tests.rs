//! Tests of `stored`, on a folder as a node leaves it.

use clap::Parser as _;
use intellect_model::{
    arch,
    config::{Fingerprint, Scheme, Vocabulary, Work},
    data::tokens::writer::Writer,
    genesis,
};
use intellect_protocol::{base::sign::Keypair, manifest::Run};

use super::*;
use crate::{
    cli::{Cli, Verb},
    manifest::Draft,
    tools::{
        evaluate::{self, EvaluateError},
        export::ExportError,
        tests::{has, verb, write_state},
    },
};

const FILE: Fingerprint = Fingerprint { digest: [3; 32], bytes: 1_000_000 };

fn typed(arguments: &[&str]) -> Result<String, EvaluateError> {
    let mut out = Vec::new();
    match verb(arguments) {
        Verb::Eval(args) => evaluate::run(&args, &mut out)?,
        Verb::Sample(args) => sample(&args, &mut out)?,
        other => panic!("{other:?} reads no state"),
    }
    Ok(String::from_utf8(out).unwrap())
}

/// A data folder with the first weights of a run as the states of its epochs 9 and 10.
fn folder() -> (tempfile::TempDir, Manifest) {
    folder_of(&Work::synthetic())
}

fn folder_of(work: &Work) -> (tempfile::TempDir, Manifest) {
    let folder = tempfile::tempdir().unwrap();
    let organiser = Keypair::from_seed(&[1; 32]);
    let run = Run::new(organiser.peer(), 7);
    let manifest = Draft::new(&run, work).unwrap().sign(&organiser).unwrap();
    let theta = genesis::weights(7, &arch::specs(&manifest.work.model));
    let v = vec![0.0; theta.len()];
    for epoch in [9, 10] {
        write_state(folder.path(), &manifest, epoch, 5_000, &theta, &v);
    }
    (folder, manifest)
}

#[test]
fn the_newest_state_of_the_only_run_is_measured() {
    let (folder, manifest) = folder();
    let data_dir = folder.path().to_str().unwrap();
    let text = typed(&["eval", "--data-dir", data_dir]).unwrap();
    has(&text, &["of epoch 10", "5 000 tokens", "excess", &manifest.id.to_string()]);
    let prefix = &manifest.id.hex()[..6];
    assert_eq!(typed(&["eval", "--data-dir", data_dir, "--run", prefix]).unwrap(), text);
}

/// A file that the node was given may be gone by now.
#[test]
fn a_text_that_a_node_has_fetched_is_measured_on() {
    let text = "The peers agree. ".repeat(2_000);
    let digest = *blake3::hash(text.as_bytes()).as_bytes();
    let file = Fingerprint { digest, bytes: text.len() as u64 };
    let (folder, manifest) = folder_of(&Work::text(file));
    let data_dir = folder.path().to_str().unwrap();
    assert!(typed(&["eval", "--data-dir", data_dir]).unwrap_err().to_string().contains("--data"));
    let home = folder.path().join("runs").join(manifest.id.hex());
    fs::create_dir(home.join("data")).unwrap();
    fs::write(store::data::path_in(&home, &file), &text).unwrap();
    let measured = typed(&["eval", "--data-dir", data_dir]).unwrap();
    assert!(measured.contains("held-out loss"), "{measured}");
    fs::write(home.join(store::OPTIONS), "data = [\"/absent/text\"]\n").unwrap();
    assert_eq!(typed(&["eval", "--data-dir", data_dir]).unwrap(), measured);
}

#[test]
fn a_checkpoint_knows_its_manifest_by_its_folder() {
    let (folder, manifest) = folder();
    let home = folder.path().join("runs").join(manifest.id.hex());
    let inside = home.join("checkpoints/9.ckpt");
    assert!(
        typed(&["eval", "--checkpoint", inside.to_str().unwrap()]).unwrap().contains("epoch 9")
    );

    let outside = folder.path().join("x/y/9.ckpt");
    fs::create_dir_all(outside.parent().unwrap()).unwrap();
    fs::copy(&inside, &outside).unwrap();
    let outside = outside.to_str().unwrap();
    let error = typed(&["eval", "--checkpoint", outside]).unwrap_err();
    assert!(error.to_string().contains("--manifest"), "{error}");
    let manifest = home.join("run.toml");
    typed(&["eval", "--checkpoint", outside, "--manifest", manifest.to_str().unwrap()]).unwrap();
    // As `manifest new --from-hf` leaves both files, beside a manifest of another run.
    fs::write(folder.path().join("x/y/run.toml"), "another").unwrap();
    fs::copy(&manifest, outside.replace("ckpt", "toml")).unwrap();
    typed(&["eval", "--checkpoint", outside]).unwrap();
}

#[test]
fn a_state_writes_as_many_tokens_as_asked_for_and_the_same_ones_again() {
    let (folder, _) = folder();
    let data_dir = folder.path().to_str().unwrap();
    let line = ["sample", "--data-dir", data_dir, "--tokens", "20", "--prompt", ""];
    let text = typed(&line).unwrap();
    assert_eq!(text.trim_end_matches('\n').chars().count(), 20, "{text}");
    assert_eq!(typed(&line).unwrap(), text);
    let error = typed(&["sample", "--data-dir", data_dir, "--prompt", "\u{1F600}"]).unwrap_err();
    assert!(error.to_string().contains("--prompt"), "{error}");
}

/// The model has 64 positions; it goes on from the newest 48 tokens.
#[test]
fn a_prompt_that_does_not_fit_is_said_to_be_cut() {
    let (folder, manifest) = folder();
    assert_eq!(manifest.work.model.context, 64);
    let data_dir = folder.path().to_str().unwrap();
    let written = |prompt: &str| {
        typed(&["sample", "--data-dir", data_dir, "--tokens", "1", "--prompt", prompt]).unwrap()
    };
    let text = written(&"a".repeat(100));
    let (text, warning) = text.trim_end().rsplit_once('\n').unwrap();
    assert_eq!(text.chars().count(), 101, "{text}");
    let words = "reads 64 tokens at once, and did not see the first 52 of the 100 tokens";
    assert!(warning.starts_with("warning ") && warning.contains(words), "{warning}");
    assert_eq!(written(&"a".repeat(64)).trim_end().chars().count(), 65);
}

/// A vocabulary of the 256 bytes, and what token files state about it.
fn vocabulary() -> (String, Vocabulary) {
    let lines = (0..256).map(|byte| format!("{} b'\\x{byte:02x}' 1\n", byte + 1));
    let file: String = lines.collect();
    let digest = *blake3::hash(file.as_bytes()).as_bytes();
    (file, Vocabulary { scheme: Scheme::Rwkv, digest, tokens: 257, bos: 0 })
}

/// To write text, no data is needed, and no tokenizer if the run's folder has it.
#[test]
fn a_run_on_tokens_writes_text_with_the_tokenizer_of_its_folder() {
    let (file, vocabulary) = vocabulary();
    let digest = blake3::hash(file.as_bytes());
    let (folder, manifest) = folder_of(&Work::tokens(vocabulary, FILE));
    let data_dir = folder.path().to_str().unwrap();
    let line = ["sample", "--data-dir", data_dir, "--tokens", "20", "--prompt", "Once"];
    let error = typed(&line).unwrap_err().to_string();
    assert!(error.contains(digest.to_hex().as_str()) && error.contains("--tokenizer"), "{error}");
    let home = folder.path().join("runs").join(manifest.id.hex());
    fs::write(home.join(store::TOKENIZER), &file).unwrap();
    let text = typed(&line).unwrap();
    assert!(text.starts_with("Once"), "{text}");
    let other = folder.path().join("other");
    fs::write(&other, "1 'a' 1\n").unwrap();
    let named = [&line[..], &["--tokenizer", other.to_str().unwrap()]].concat();
    assert!(typed(&named).unwrap_err().to_string().contains("other is another tokenizer"));
    // A wrong tokenizer that is named is reported before the data is opened.
    let named = ["eval", "--data-dir", data_dir, "--tokenizer", other.to_str().unwrap()];
    assert!(typed(&named).unwrap_err().to_string().contains("other is another tokenizer"));
    // To measure, the data is needed.
    let error = typed(&["eval", "--data-dir", data_dir]).unwrap_err().to_string();
    assert!(error.contains("--data"), "{error}");
}

/// Everything else is measured without a tokenizer.
#[test]
fn a_damaged_tokenizer_costs_the_bits_per_byte() {
    let (file, vocabulary) = vocabulary();
    let folder = tempfile::tempdir().unwrap();
    let tokens = folder.path().join("a.tokens");
    let mut writer = Writer::create(&tokens, vocabulary).unwrap();
    writer.begin().unwrap();
    writer.tokens(&[98; 5_000], 5_000).unwrap();
    writer.finish([0; 32]).unwrap();
    let bytes = fs::read(&tokens).unwrap();
    let digest = *blake3::hash(&bytes).as_bytes();
    let data = Fingerprint { digest, bytes: bytes.len() as u64 };
    let (folder, manifest) = folder_of(&Work::tokens(vocabulary, data));
    fs::write(folder.path().join("a.tokens"), bytes).unwrap();
    let (data_dir, tokens) = (folder.path(), folder.path().join("a.tokens"));
    let line =
        ["eval", "--data-dir", data_dir.to_str().unwrap(), "--data", tokens.to_str().unwrap()];
    let kept = data_dir.join("runs").join(manifest.id.hex()).join(store::TOKENIZER);
    fs::write(&kept, &file).unwrap();
    assert!(typed(&line).unwrap().contains("bits per byte\n"));
    fs::write(&kept, &file[1..]).unwrap();
    let said = typed(&line).unwrap();
    has(&said, &["perplexity", "warning ", kept.to_str().unwrap(), "--tokenizer FILE"]);
    let named = [&line[..], &["--tokenizer", kept.to_str().unwrap()]].concat();
    assert!(typed(&named).unwrap_err().to_string().contains("is another tokenizer"));
}

#[test]
fn what_is_not_there_is_named() {
    let (folder, manifest) = folder();
    let empty = tempfile::tempdir().unwrap();
    let error = typed(&["eval", "--data-dir", empty.path().to_str().unwrap()]).unwrap_err();
    assert!(error.to_string().contains("holds no run"), "{error}");
    let peer = empty.path().join("peer-0/data");
    fs::create_dir_all(&peer).unwrap();
    let error = typed(&["eval", "--data-dir", empty.path().to_str().unwrap()]).unwrap_err();
    assert!(error.to_string().contains(&format!("as in {}", peer.display())), "{error}");
    let data_dir = folder.path().to_str().unwrap();
    let other = if manifest.id.hex().starts_with("0000") { "ffff" } else { "0000" };
    let error = typed(&["eval", "--data-dir", data_dir, "--run", other]).unwrap_err();
    assert!(matches!(error, EvaluateError::Stored(StoredError::Run { .. })), "{error}");
    fs::create_dir(folder.path().join("runs").join("ab".repeat(32))).unwrap();
    let error = typed(&["eval", "--data-dir", data_dir]).unwrap_err();
    assert!(error.to_string().contains("abababab"), "{error}");
    let error = typed(&["eval", "--data-dir", data_dir, "--run", "abab"]).unwrap_err();
    assert!(matches!(error, EvaluateError::Stored(StoredError::NoCheckpoint { .. })), "{error}");
}

/// Damage in the parameters is found behind a good front; a file that is cut off has none.
#[test]
fn a_damaged_newest_state_gives_way_to_the_one_before() {
    let (folder, manifest) = folder();
    let data_dir = folder.path().to_str().unwrap();
    let home = folder.path().join("runs").join(manifest.id.hex()).join("checkpoints");
    let newest = home.join("10.ckpt");
    let good = fs::read(&newest).unwrap();
    let mut damaged = good.clone();
    damaged[good.len() / 4] ^= 1;
    for (bytes, to) in [(&damaged[..], "one"), (&good[..20], "two")] {
        fs::write(&newest, bytes).unwrap();
        assert!(typed(&["eval", "--data-dir", data_dir]).unwrap().contains("of epoch 9"));
        typed(&["sample", "--data-dir", data_dir, "--tokens", "1", "--prompt", ""]).unwrap();
        let to = folder.path().join(to);
        let line = [Path::new("--data-dir"), folder.path(), Path::new("--to"), &to];
        assert!(export(&line).unwrap().contains("of epoch 9"));
        let error = typed(&["eval", "--checkpoint", newest.to_str().unwrap()]).unwrap_err();
        has(&error.to_string(), &["10.ckpt is ", "9.ckpt is whole: name it with --checkpoint"]);
    }
    fs::write(home.join("9.ckpt"), "").unwrap();
    let error = typed(&["eval", "--data-dir", data_dir]).unwrap_err().to_string();
    assert!(error.contains("10.ckpt is cut off") && !error.contains("whole"), "{error}");
}

fn export(line: &[&Path]) -> Result<String, ExportError> {
    let line = ["intellect-node", "export"].map(Path::new).into_iter().chain(line.iter().copied());
    let Some(Verb::Export(args)) = Cli::try_parse_from(line).unwrap().command else {
        panic!("no export")
    };
    let mut out = Vec::new();
    crate::tools::export::export(&args, &mut out).map(|()| String::from_utf8(out).unwrap())
}

/// The stored file, the one that is named, or a line that there is none.
#[test]
fn a_model_is_exported_with_the_tokenizer_of_its_run() {
    let (file, vocabulary) = vocabulary();
    let (folder, manifest) = folder_of(&Work::tokens(vocabulary, FILE));
    let home = folder.path().join("runs").join(manifest.id.hex());
    let kept = home.join(store::TOKENIZER);
    let name = "rwkv_vocab_v20230424.txt";
    let export = |to: &str, more: &[&Path]| {
        let to = folder.path().join(to);
        let line = [Path::new("--data-dir"), folder.path(), Path::new("--to"), &to];
        export(&[&line, more].concat()).map(|said| (said, fs::read_to_string(to.join(name)).ok()))
    };
    let (said, found) = export("without", &[]).unwrap();
    assert!(said.contains("lacks    a tokenizer") && said.contains("--tokenizer FILE"), "{said}");
    assert_eq!(found, None);
    let other = folder.path().join("vocabulary.txt");
    fs::write(&other, &file).unwrap();
    let (said, found) = export("named", &[Path::new("--tokenizer"), &other]).unwrap();
    assert!(said.contains(name) && !said.contains("lacks"), "{said}");
    assert_eq!(found.as_ref(), Some(&file));
    fs::write(&kept, &file).unwrap();
    assert_eq!(export("kept", &[]).unwrap().1, Some(file));
    fs::write(&kept, "damaged").unwrap();
    let (said, found) = export("damaged", &[]).unwrap();
    assert!(said.contains("lacks") && said.contains(kept.to_str().unwrap()), "{said}");
    assert_eq!(found, None);
    let named = export("refused", &[Path::new("--tokenizer"), &kept]).unwrap_err();
    assert!(named.to_string().contains("is another tokenizer"), "{named}");
}

#[test]
fn a_state_is_exported_with_its_parameters_alone() {
    let (folder, manifest) = folder();
    let home = folder.path().join("runs").join(manifest.id.hex());
    let to = folder.path().join("model");
    let export = |checkpoint: &Path, to: &Path| {
        export(&[Path::new("--checkpoint"), checkpoint, Path::new("--to"), to])
    };
    let checkpoint = home.join("checkpoints/10.ckpt");
    let text = export(&checkpoint, &to).unwrap();
    assert!(text.contains("of epoch 10") && text.contains("model.safetensors"), "{text}");
    let parameters = 4 * manifest.work.model.parameter_count();
    let bytes = fs::metadata(to.join("model.safetensors")).unwrap().len();
    assert!((parameters..parameters + 10_000).contains(&bytes), "{bytes} {parameters}");
    let again = export(&checkpoint, &to).unwrap_err();
    assert!(again.to_string().contains("not empty"), "{again}");

    // Damage in the parameters is detected.
    let mut bytes = fs::read(&checkpoint).unwrap();
    let middle = bytes.len() / 4;
    bytes[middle] ^= 1;
    fs::write(&checkpoint, bytes).unwrap();
    let damaged = export(&checkpoint, &folder.path().join("other")).unwrap_err();
    assert!(damaged.to_string().contains("damaged"), "{damaged}");
}
