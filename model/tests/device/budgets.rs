//! What a step of large models asks of a GPU, counted on the driver of `tests/emucuda`, which then
//! computes nothing.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::sync::Arc;

use intellect_model::config::{self, Family, Model, Work};
use intellect_model::data::{Dataset, Stream};
use intellect_model::{Device, train, trainer};

/// Shapes as `node/presets` has them.
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

/// What the driver counted until somebody last waited for it.
fn report() -> BTreeMap<String, u64> {
    let text = fs::read_to_string(env::var_os("EMUCUDA_REPORT").unwrap()).unwrap();
    let pairs = text.lines().filter_map(|line| line.rsplit_once(' '));
    pairs.map(|(name, count)| (name.to_owned(), count.parse().unwrap())).collect()
}

/// Of the second step of so many sequences, one at a time: the moments are there.
fn step(work: &Work, sequences: usize) -> BTreeMap<String, u64> {
    let mut work = work.clone();
    work.train.batch = sequences;
    let source = Arc::new(Dataset::open(&work, 5, &[]).unwrap());
    let mut trainer = trainer(&work, source, Device::Cuda(0), Some(1)).unwrap();
    trainer.model().load(&vec![0.0; work.model.parameter_count() as usize]).unwrap();
    let stream = Stream { seed: [5; 32], committed: 0 };
    trainer.step(&stream, 0, 0).unwrap();
    // Whoever waits for the device has it report.
    let before = report();
    trainer.step(&stream, 1, 0).unwrap();
    let after = report();
    let more = |(name, count): (String, u64)| {
        let count = if name == "peak" { count } else { count - before.get(&name).unwrap_or(&0) };
        (name, count)
    };
    after.into_iter().map(more).collect()
}

/// What a preset asks is what `tests/emucuda/budgets.toml` says. A process each: a pool of
/// memory keeps what it had.
pub(crate) fn assert_budget(name: &str) {
    let model = presets().into_iter().find(|(known, _)| *known == name).unwrap().1;
    // A device is checked with numbers.
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
        "what a step asks has changed; numbers may only fall:\n{found}"
    );
}
