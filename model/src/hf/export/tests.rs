//! Tests of writing a model into a folder.

use safetensors::SafeTensors;

use super::*;
use crate::config::{Fingerprint, Model};
use crate::genesis;
use crate::tokenizer::Tokenizer;

const FILE: Fingerprint = Fingerprint { digest: [0; 32], bytes: 1 };

/// A model of two blocks, in which all sizes differ.
fn work() -> Work {
    let mut work = Work::text(FILE);
    let Model { layers, width, heads, kv_heads, ffn, .. } = &mut work.model;
    (*layers, *width, *heads, *kv_heads, *ffn) = (2, 48, 6, 2, 40);
    work
}

fn theta(work: &Work) -> Vec<f32> {
    genesis::weights(3, &Arch::new(&work.model).specs())
}

fn read(folder: &Path, file: &str) -> Value {
    serde_json::from_slice(&fs::read(folder.join(file)).unwrap()).unwrap()
}

#[test]
fn a_tensor_is_its_slice_of_the_parameters_under_its_name() {
    let (work, folder) = (work(), tempfile::tempdir().unwrap());
    let theta = theta(&work);
    let export = Export {
        work: &work,
        theta: &theta,
        tokenizer: None,
        precision: Precision::F32,
        shard_bytes: SHARD_BYTES,
    };
    let written = export.write(folder.path()).unwrap();
    assert_eq!(written.bytes, 4 * work.model.parameter_count());
    assert_eq!(written.files[0], "model.safetensors");
    assert_eq!(written.files.last().unwrap(), "config.json");

    let bytes = fs::read(folder.path().join("model.safetensors")).unwrap();
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    let mut rest = &theta[..];
    for spec in Arch::new(&work.model).specs() {
        let tensor = tensors.tensor(&spec.name).unwrap();
        assert_eq!((tensor.shape(), tensor.dtype()), (&spec.shape[..], Dtype::F32));
        let (values, later) = rest.split_at(spec.len());
        let bytes: Vec<u8> = values.iter().flat_map(|x| x.to_le_bytes()).collect();
        assert_eq!(tensor.data(), bytes, "{}", spec.name);
        rest = later;
    }
    assert!(rest.is_empty());
}

#[test]
fn the_index_says_which_file_has_a_tensor() {
    let (work, folder) = (work(), tempfile::tempdir().unwrap());
    let theta = theta(&work);
    let export = Export {
        work: &work,
        theta: &theta,
        tokenizer: None,
        precision: Precision::Bf16,
        shard_bytes: 20_000,
    };
    let written = export.write(folder.path()).unwrap();
    let index = read(folder.path(), INDEX);
    assert_eq!(index["metadata"]["total_size"], 2 * work.model.parameter_count());
    let places = index["weight_map"].as_object().unwrap();
    assert_eq!(places.len(), Arch::new(&work.model).specs().len());
    let mut found = 0;
    for file in written.files.iter().filter(|file| file.ends_with(".safetensors")) {
        let bytes = fs::read(folder.path().join(file)).unwrap();
        let tensors = SafeTensors::deserialize(&bytes).unwrap();
        let size: usize = tensors.iter().map(|(_, tensor)| tensor.data_len()).sum();
        // The embedding and the head have 24,576 bytes each, and therefore files of their own.
        assert!(size <= 20_000 || tensors.len() == 1, "{file}: {size}");
        found += tensors.len();
        for name in tensors.names() {
            assert_eq!(places[name], file.as_str());
        }
    }
    assert_eq!(found, places.len());
    assert!(written.files[0].starts_with("model-00001-of-0000"), "{:?}", written.files);
}

#[test]
fn the_sizes_are_in_config_json() {
    let (work, folder) = (work(), tempfile::tempdir().unwrap());
    let theta = theta(&work);
    let export = Export {
        work: &work,
        theta: &theta,
        tokenizer: None,
        precision: Precision::Bf16,
        shard_bytes: SHARD_BYTES,
    };
    export.write(folder.path()).unwrap();
    let config = read(folder.path(), CONFIG);
    for (key, value) in [
        ("hidden_size", json!(48)),
        ("num_attention_heads", json!(6)),
        ("num_key_value_heads", json!(2)),
        ("intermediate_size", json!(40)),
        ("vocab_size", json!(256)),
        ("torch_dtype", json!("bfloat16")),
        ("eos_token_id", Value::Null),
    ] {
        assert_eq!(config[key], value, "{key}");
    }
    let tokens = &read(folder.path(), "tokenizer.json")["model"]["vocab"];
    assert_eq!((&tokens["Ġ"], &tokens["a"]), (&json!(32), &json!(97)));
}

/// A tokenizer of words whose file does not define spaces.
const WORDS: &str = r#"{"version": "1.0", "pre_tokenizer": {"type": "Whitespace"},
    "model": {"type": "WordLevel", "unk_token": "?", "vocab": {"?": 0, "one": 1, "<s>": 2}}}"#;

/// Exports a run on documents, with or without the file of its tokenizer.
fn exported(vocabulary: Vocabulary, file: Option<&File>) -> (tempfile::TempDir, Vec<String>) {
    let (mut work, folder) = (work(), tempfile::tempdir().unwrap());
    work.data = Work::tokens(vocabulary, FILE).data;
    let theta = theta(&work);
    let (precision, shard_bytes) = (Precision::F32, SHARD_BYTES);
    let export = Export { work: &work, theta: &theta, tokenizer: file, precision, shard_bytes };
    let files = export.write(folder.path()).unwrap().files;
    (folder, files)
}

/// The file is copied unchanged, and the begin token is in the configuration.
#[test]
fn a_tokenizer_that_is_a_file_is_copied() {
    for (scheme, bytes, named) in [
        (Scheme::HuggingFace, WORDS, &["tokenizer.json", "tokenizer_config.json"][..]),
        (Scheme::Rwkv, "1 'a' 1\n", &["rwkv_vocab_v20230424.txt"]),
    ] {
        let file = File { scheme, bytes: bytes.as_bytes().to_vec() };
        let vocabulary = Vocabulary { scheme, digest: file.digest(), tokens: 256, bos: 2 };
        let (folder, files) = exported(vocabulary, Some(&file));
        assert_eq!(files[2..files.len() - 1], *named, "{files:?}");
        assert_eq!(fs::read(folder.path().join(named[0])).unwrap(), bytes.as_bytes());
        for config in [CONFIG, "generation_config.json"] {
            for key in ["bos_token_id", "eos_token_id"] {
                assert_eq!(read(folder.path(), config)[key], 2, "{config} {key}");
            }
        }
        assert_eq!(read(folder.path(), "generation_config.json")["max_length"], 64);
        if scheme == Scheme::HuggingFace {
            for key in ["bos_token", "eos_token"] {
                assert_eq!(read(folder.path(), named[1])[key], "<s>", "{key}");
            }
        }
        let (_, files) = exported(vocabulary, None);
        assert_eq!(files, [WHOLE, "generation_config.json", CONFIG]);
    }
}

/// The exported tokenizer encodes a text as our own does.
#[test]
fn documents_of_bytes_have_a_tokenizer_that_begins_them() {
    let (folder, _) = exported(Vocabulary::BYTES, None);
    assert_eq!(read(folder.path(), CONFIG)["bos_token_id"], 256);
    let file = fs::read(folder.path().join("tokenizer.json")).unwrap();
    let found = Tokenizer::read(Scheme::HuggingFace, &file).unwrap();
    assert_eq!((found.tokens(), found.bos()), (257, Some(256)));
    let text = "é <s>\n";
    assert_eq!(found.encode(text).unwrap(), Tokenizer::bytes().encode(text).unwrap());
}

/// Symbols are not text, so no tokenizer is written.
#[test]
fn a_synthetic_run_has_no_tokenizer_to_export() {
    let (work, folder) = (Work::synthetic(), tempfile::tempdir().unwrap());
    let theta = theta(&work);
    let export = Export {
        work: &work,
        theta: &theta,
        tokenizer: None,
        precision: Precision::F32,
        shard_bytes: SHARD_BYTES,
    };
    let files = export.write(folder.path()).unwrap().files;
    assert_eq!(files, [WHOLE, "generation_config.json", CONFIG]);
}

#[test]
fn every_tensor_that_is_not_finite_is_named_before_anything_is_written() {
    let (work, folder) = (work(), tempfile::tempdir().unwrap());
    let folder = folder.path().join("new");
    let mut theta = theta(&work);
    let last = theta.len() - 1;
    (theta[0], theta[last]) = (f32::NAN, f32::MAX);
    let write = |precision| {
        let export = Export {
            work: &work,
            theta: &theta,
            tokenizer: None,
            precision,
            shard_bytes: SHARD_BYTES,
        };
        export.write(&folder).unwrap_err().to_string()
    };
    let error = write(Precision::F32);
    assert!(error.contains("embed_tokens") && !error.contains("lm_head"), "{error}");
    let error = write(Precision::Bf16);
    assert!(error.contains("embed_tokens") && error.contains("lm_head"), "{error}");
    assert!(!folder.exists());
}

#[test]
fn a_folder_in_use_and_another_model_s_parameters_are_refused() {
    let (work, folder) = (work(), tempfile::tempdir().unwrap());
    let theta = theta(&work);
    let write = |theta: &[f32]| {
        let precision = Precision::F32;
        Export { work: &work, theta, tokenizer: None, precision, shard_bytes: SHARD_BYTES }
            .write(folder.path())
    };
    let short = write(&theta[1..]);
    assert!(matches!(short, Err(ExportError::Length { found, .. }) if found + 1 == theta.len()));
    fs::write(folder.path().join("mine"), "").unwrap();
    assert!(matches!(write(&theta), Err(ExportError::Folder(StagedError::NotEmpty(_)))));
    fs::remove_file(folder.path().join("mine")).unwrap();
    write(&theta).unwrap();
}
