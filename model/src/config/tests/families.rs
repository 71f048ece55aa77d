//! Tests of `[model]`: which family has which sizes, and what they come to.

use super::*;

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
