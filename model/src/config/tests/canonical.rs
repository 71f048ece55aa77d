//! Tests of the canonical bytes: golden ones, and that every field is in them.

use super::*;

/// The bytes are hashed into RunIds: they never change for a manifest that exists.
#[test]
fn canonical_bytes_are_golden() {
    let bytes = Work::parse(&written()).expect("valid").canonical();
    // 50 fields: 48 of 8 bytes, the digest of 4 + 64, and no digest of a tokenizer.
    assert_eq!(bytes.len(), 48 * 8 + 68 + 4);
    let head: Vec<_> =
        bytes.chunks(8).take(8).map(|word| u64::from(word[0]) + u64::from(word[1]) * 256).collect();
    assert_eq!(head, [1, 3, 48, 6, 2, 130, 96, 300]);
    assert_eq!(bytes[64..72], 500_000.0_f64.to_bits().to_le_bytes());
    // No ranks, blocks of another kind, compression or scaled frequencies.
    assert_eq!(bytes[80..136], [0; 56]);
    // source, tokenizer, no symbols, no order, the digest's length.
    let middle: Vec<_> = bytes[136..172].chunks(4).map(|word| word[0]).collect();
    assert_eq!(middle, [2, 0, 2, 0, 0, 0, 0, 0, 64]);
    assert_eq!(
        blake3::hash(&bytes).to_hex().as_str(),
        "7783d9a4e6d49db86b4eb3afb4eed24ec37874a0716750e2bb82f1db20b762b1"
    );
}

#[test]
fn canonical_bytes_of_a_token_file_are_golden() {
    let bytes = tokens().canonical();
    assert_eq!(bytes.len(), 48 * 8 + 2 * 68);
    // source, tokenizer, no symbols, no order.
    let begin: Vec<_> = bytes[136..168].chunks(8).map(|word| word[0]).collect();
    assert_eq!(begin, [3, 3, 0, 0]);
    // The tokenizer's digest, how many tokens, which begins a document; no mix and no hints, then the batch.
    let hex = "03".repeat(32);
    assert_eq!((&bytes[252..256], &bytes[256..320]), (&[64, 0, 0, 0][..], hex.as_bytes()));
    let end: Vec<_> = bytes[320..408].chunks(8).map(|word| word[0]).collect();
    assert_eq!(end, [0xfa, 5, 0, 0, 0, 0, 0, 0, 0, 0, 4]);
    assert_eq!(
        blake3::hash(&bytes).to_hex().as_str(),
        "d4becba2f0e5b68f634e21bb71e84ac2c8f1df436d58ef9dcaef239f4b1ebd8a"
    );
}

#[test]
fn canonical_bytes_of_a_mix_are_golden() {
    let bytes = mix().canonical();
    // As of a token file, but an empty digest, and two items in each of four lists.
    assert_eq!(bytes.len(), 48 * 8 + 2 * 68 - 64 + 2 * (68 + 3 * 8));
    // No digest and no length, then a tenth is held out.
    assert_eq!(bytes[136], 4);
    assert_eq!(
        (&bytes[168..180], &bytes[180..188]),
        (&[0; 12][..], &0.1_f64.to_bits().to_le_bytes()[..])
    );
    // Where the lists begin there are two digests of 64 letters.
    assert_eq!(bytes[272..284], [2, 0, 0, 0, 0, 0, 0, 0, 64, 0, 0, 0]);
    assert_eq!(
        blake3::hash(&bytes).to_hex().as_str(),
        "655c6a3c394fc72b4fb48b1a000a8620e25d62a2753b13b2a8475668b08fb581"
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
    // Source, tokenizer and its three fields, and the share held out are those of a token file.
    let data = &mix().to_toml()["data"];
    assert_eq!(changed.len() + 6, data.as_table().expect("a table").len());
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
