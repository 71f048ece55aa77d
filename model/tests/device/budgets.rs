//! What a training step of large models requests from a GPU, counted by the driver of
//! `tests/emucuda`, which computes nothing in that mode.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::sync::Arc;

use intellect_model::config::{self, Family, Model, Work};
use intellect_model::data::{Dataset, Stream};
use intellect_model::{Device, train, trainer};

/// The shapes of the presets in `node/presets`.
fn presets() -> Vec<(&'static str, Model)> {
    let llama = |layers, width, heads, kv_heads, ffn, context, vocab| Model {
        layers,
        width,
        heads,
        kv_heads,
        ffn,
        context,
        vocab,
        ..Family::Llama.bench_model()
    };
    let finch = Model {
        layers: 24,
        width: 2048,
        heads: 32,
        ffn: 7168,
        context: 4096,
        vocab: 65_536,
        mix_rank: 32,
        decay_rank: 64,
        ..Family::Finch.bench_model()
    };
    vec![
        ("llama-150m", llama(12, 1024, 16, 16, 2816, 1024, 32_000)),
        ("llama-1b", llama(18, 2048, 16, 8, 7168, 2048, 128_256)),
        ("finch-1b6", finch),
    ]
}

/// What the driver had counted when it was last waited for.
fn report() -> BTreeMap<String, u64> {
    let text = fs::read_to_string(env::var_os("EMUCUDA_REPORT").unwrap()).unwrap();
    let pairs = text.lines().filter_map(|line| line.rsplit_once(' '));
    pairs.map(|(name, count)| (name.to_owned(), count.parse().unwrap())).collect()
}

/// The counts of the second step with a batch of `sequences`, one sequence at a time: the moments
/// of AdamW exist by then.
fn step(work: &Work, sequences: usize) -> BTreeMap<String, u64> {
    let mut work = work.clone();
    work.train.batch = sequences;
    let source = Arc::new(Dataset::open(&work, 5, &[]).unwrap());
    let mut trainer = trainer(&work, source, Device::Cuda(0), Some(1)).unwrap();
    trainer.model().load(&vec![0.0; work.model.parameter_count() as usize]).unwrap();
    let stream = Stream { seed: [5; 32], committed: 0 };
    trainer.step(&stream, 0, 0).unwrap();
    // The end of a step waits for the device, and the driver reports at each wait.
    let before = report();
    trainer.step(&stream, 1, 0).unwrap();
    let after = report();
    let more = |(name, count): (String, u64)| {
        let count = if name == "peak" { count } else { count - before.get(&name).unwrap_or(&0) };
        (name, count)
    };
    after.into_iter().map(more).collect()
}

/// Asserts that a preset requests exactly what `tests/emucuda/budgets.toml` lists. Each preset
/// needs its own process, because a memory pool keeps what it has allocated.
pub(crate) fn assert_budget(name: &str) {
    let model = presets().into_iter().find(|(known, _)| *known == name).unwrap().1;
    // The check of the device needs real numbers, so it runs before the driver only counts.
    let small = Work { model: model.family.bench_model(), ..Work::synthetic() };
    let source = Arc::new(Dataset::open(&small, 5, &[]).unwrap());
    drop(trainer(&small, source, Device::Cuda(0), Some(1)).unwrap());
    fs::write(env::var_os("EMUCUDA_COUNT").unwrap(), "").unwrap();
    let work = Work { model, ..Work::synthetic() };
    let (one, two) = (step(&work, 1), step(&work, 2));
    let of = |name: &str| two[name] - one[name];
    let said = train::held_on_gpu(
        &Work { train: config::Train { batch: 2, ..work.train.clone() }, ..work },
        1,
    );
    let found = format!(
        "[{name}]\nlaunches = {}\nuploads = {}\nwaits = {}\nlaunches_of_update = {}\npeak_mb = {}\nsaid_mb = {}\n",
        of("launches"),
        of("uploads"),
        of("waits"),
        one["launches"] - of("launches"),
        two["peak"] / 1_000_000,
        said / 1_000_000,
    );
    let mut kernels: Vec<_> = two.iter().filter(|(name, _)| name.starts_with("kernel")).collect();
    kernels.sort_by_key(|(_, count)| u64::MAX - **count);
    kernels.iter().take(30).for_each(|(name, count)| eprintln!("{count} {name}"));
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/emucuda/budgets.toml");
    let known = fs::read_to_string(file).unwrap();
    assert!(
        known.contains(&found),
        "what a step requests has changed; the numbers may only fall:\n{found}"
    );
}
