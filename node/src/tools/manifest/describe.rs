//! Describes a manifest in words: all of it for `manifest show`, some of it for `manifest new`.
//!
//! A contributor reads it before joining, so it says what a run asks of a machine: memory, disk,
//! bytes in each epoch, files to get. All of it is computed from the manifest, by the functions
//! that a node itself goes by, and for a machine that is not there: a CPU, and GPUs of usual sizes.

use intellect_model::{
    Device,
    arch::Arch,
    config::{Component, Data, Fingerprint, Hints, Source, Vocabulary, Work},
    train,
};
use intellect_protocol::access::admit::Level;
use intellect_protocol::manifest::{Budget, Outer, Quorum, Run, Tolerate};

use crate::{
    enter::needs::{Needs, update_bytes},
    figures::{bytes, count},
    manifest::{Manifest, codec_name},
};

/// The lines of the description, each with its key. `manifest new` prints those of `SHOWN` by their
/// keys.
pub(super) fn describe(manifest: &Manifest) -> [(&'static str, String); 15] {
    let Manifest { run, work, id, .. } = manifest;
    let genesis = run.genesis.map_or_else(
        || format!("drawn from seed {}: every peer makes them", run.seed),
        |state| format!("published as {}; peers hand them on", state.hex()),
    );
    [
        ("run", id.hex()),
        ("name", format!("{}, signed by organiser {}", run.name, run.organiser.hex())),
        ("model", describe_model(work)),
        ("weights", genesis),
        ("data", describe_data(work)),
        ("training", describe_training(work)),
        ("epoch", describe_epoch(manifest)),
        ("ring", describe_ring(run)),
        ("traffic", describe_traffic(run, work)),
        ("members", describe_members(run)),
        ("joining", describe_level(run.trust.level)),
        ("compute", describe_compute(run, work)),
        ("memory", describe_memory(run, work)),
        ("on GPUs", describe_gpus(work)),
        (
            "ends",
            match run.stop_tokens {
                0 => "never: each peer leaves when it likes".to_owned(),
                tokens => format!("after {} tokens in all", count(tokens)),
            },
        ),
    ]
}

/// The family and the sizes of the model.
fn describe_model(work: &Work) -> String {
    let model = &work.model;
    let keys = match model.kv_heads {
        0 => String::new(),
        heads => format!(", {heads} of them with keys of their own"),
    };
    format!(
        "{} with {} parameters: {} layers of width {}, {} heads{keys}, {} hidden, {} tokens of \
         context, vocabulary {}",
        model.family.name(),
        count(model.parameter_count()),
        model.layers,
        model.width,
        model.heads,
        model.ffn,
        model.context,
        model.vocab
    )
}

fn describe_level(level: Level) -> String {
    match level {
        Level::Open => "any peer".to_owned(),
        Level::Invited => "peers that the organiser invites".to_owned(),
    }
}

/// The data, with the files that each peer needs.
fn describe_data(work: &Work) -> String {
    let one = |what: &str, file: &Fingerprint| {
        format!(
            "{what} of {} bytes with BLAKE3 {}{}, of which {} % are held out; every peer needs it{}",
            count(file.bytes),
            blake3::Hash::from_bytes(file.digest),
            name(&work.data.hints, 0),
            100.0 * work.data.held_out,
            origin(&work.data)
        )
    };
    match &work.data.source {
        Source::Synthetic { symbols, order } => format!(
            "synthetic: {symbols} symbols, each drawn by the {order} before it; no peer needs a file"
        ),
        Source::Text(file) => one("a text", file),
        Source::Tokens { file, vocabulary } => format!(
            "{}; its tokenizer is {} with {} tokens",
            one("a token file", file),
            vocabulary.scheme.name(),
            count(vocabulary.tokens as u64)
        ),
        Source::Mix { vocabulary, components: parts, anneal_from } => {
            describe_mix(&work.data, vocabulary, parts, *anneal_from)
        }
    }
}

/// The name of file `index`, to follow its digest.
fn name(hints: &Hints, index: usize) -> String {
    hints.names.get(index).map_or_else(String::new, |name| format!(", called {name}"))
}

/// Where a peer gets the files, to follow the words that every peer needs them.
fn origin(data: &Data) -> String {
    let from = data.hints.url.as_ref().map_or_else(String::new, |url| format!(", from {url}"));
    let shared = if data.share { ", and fetches it from the others" } else { "" };
    format!("{from}{shared}")
}

/// A mix of token files, with their shares at first and later on.
fn describe_mix(data: &Data, vocabulary: &Vocabulary, parts: &[Component], from: u64) -> String {
    let mut text = format!(
        "{} token files, of which {} % are held out; every peer needs all of them{}; their tokenizer \
         is {} with {} tokens. Their shares at first, and in epochs that begin with {} tokens or more:",
        parts.len(),
        100.0 * data.held_out,
        origin(data),
        vocabulary.scheme.name(),
        count(vocabulary.tokens as u64),
        count(from)
    );
    let share = |weight: fn(&Component) -> f64, part| {
        let sum: f64 = parts.iter().map(weight).sum();
        100.0 * weight(part) / sum
    };
    for (index, part) in parts.iter().enumerate() {
        let (first, then) =
            (share(|part| part.weight, part), share(|part| part.anneal_weight, part));
        let (bytes, digest) = (count(part.file.bytes), blake3::Hash::from_bytes(part.file.digest));
        let name = name(&data.hints, index);
        text += &format!(
            "\n{:10}{first:5.1} % {then:5.1} %  {bytes} bytes with BLAKE3 {digest}{name}",
            ""
        );
    }
    text
}

/// The batch, the learning rate and its schedule.
fn describe_training(work: &Work) -> String {
    let train = &work.train;
    let decay = match train.decay_tokens {
        0 => "then constant".to_owned(),
        decay => format!(
            "constant for {}, falling to {} over {} ({})",
            count(train.stable_tokens),
            train.lr_final,
            count(decay),
            train.decay.name()
        ),
    };
    format!(
        "AdamW, {} sequences ({} tokens) a step; learning rate {} after {} tokens, {decay}",
        train.batch,
        count(work.tokens_per_step()),
        train.lr,
        count(train.warmup_tokens)
    )
}

/// The length of an epoch, and how many tokens that is.
fn describe_epoch(manifest: &Manifest) -> String {
    let Manifest { run, work, .. } = manifest;
    let amount = count(run.epoch.amount);
    let budget = match run.epoch.budget {
        Budget::Steps => format!("{amount} steps"),
        Budget::Tokens => format!("{amount} tokens"),
        Budget::Seconds => format!("{amount} s"),
    };
    let tokens = match (run.epoch.budget, run.epoch_tokens(work.tokens_per_step())) {
        (Budget::Steps, Some(tokens)) => format!(" ({} tokens)", count(tokens)),
        _ => String::new(),
    };
    let Outer { lr, momentum, momentum_ramp_epochs } = run.outer;
    let ramp = match momentum_ramp_epochs {
        0 => String::new(),
        epochs => format!(" reached over {epochs} epochs"),
    };
    format!(
        "{budget}{tokens} per peer, then one outer step: rate {lr}, momentum {momentum}{ramp}, a \
         steady gain of {:.2}",
        manifest.outer().gain()
    )
}

/// A warning if the outer step is likely to go too far. The gain is what a constant delta is
/// multiplied by in the end.
pub(super) fn warn_of_gain(manifest: &Manifest) -> Option<String> {
    // Rounded as it is shown, so that an invisible digit does not decide.
    let gain = (100.0 * manifest.outer().gain()).round() / 100.0;
    (gain > GAIN_ADVISED_MAX).then(|| {
        format!(
            "the outer step has a steady gain of {gain:.2}, which is outer.lr / (1 - outer.momentum); above \
             {GAIN_ADVISED_MAX} the agreed weights may overshoot. Public runs use 1 to 3, INTELLECT-1 and DiLoCo \
             7; --set outer.momentum=0.6 --set outer.momentum_ramp_epochs=10 is what the other presets use"
        )
    })
}

/// A warning if few machines have the memory that every peer needs. It compares the least that a
/// node can do with, on a CPU.
pub(super) fn warn_of_memory(Manifest { run, work, .. }: &Manifest) -> Option<String> {
    let least = Needs::of(run, work, 1, Device::Cpu).memory;
    (least > MEMORY_USUAL).then(|| {
        format!(
            "every peer needs {} of memory even with --micro-batch 1, and few machines have that much",
            bytes(least)
        )
    })
}

/// A warning if a large model is to learn the synthetic source, which has few symbols.
pub(super) fn warn_of_toy_data(Manifest { work, .. }: &Manifest) -> Option<String> {
    let symbols = work.data.tokens();
    let is_synthetic = matches!(work.data.source, Source::Synthetic { .. });
    (is_synthetic && work.model.vocab > VOCABULARY_OF_TOYS).then(|| {
        format!(
            "the synthetic data has {symbols} symbols and the model a vocabulary of {}: name the run's data \
             with --data",
            count(work.model.vocab as u64)
        )
    })
}

/// More memory than most servers have; guess.
const MEMORY_USUAL: u64 = 512_000_000_000;

/// Models for trials have the vocabulary of bytes.
const VOCABULARY_OF_TOYS: usize = 1_024;

/// The codec of the ring, and what it moves. A reduce and a gather move each (n − 1) / n of an
/// update.
fn describe_ring(run: &Run) -> String {
    format!(
        "{}: each of n peers sends and receives 2(n-1)/n of an update",
        codec_name(run.ring.codec)
    )
}

/// The size of an update, and the bytes that a peer sends for it. Frames and messages come on top,
/// and are small beside it.
fn describe_traffic(run: &Run, work: &Work) -> String {
    let update = update_bytes(run, work);
    let ring = |peers: u64| bytes(update / peers * 2 * (peers - 1));
    format!(
        "an update has {}: per epoch each peer sends {} among 2 peers, {} among 8, and receives as \
         much",
        bytes(update),
        ring(2),
        ring(8)
    )
}

/// The voters that decide, and what happens when some are silent.
fn describe_members(run: &Run) -> String {
    let members = &run.members;
    let quorum = match members.quorum {
        _ if members.tolerate == Tolerate::Liars => {
            "three of four voters decide, or five of seven; fewer than a third may lie".to_owned()
        }
        Quorum::Available => format!(
            "when a majority is silent for {:?}, the rest goes on without it",
            members.minority_grace
        ),
        Quorum::Majority => {
            format!("{} founders; without a majority everyone waits", members.founders.len())
        }
    };
    let (min, heartbeat) = (members.min_peers, members.heartbeat);
    format!("founded by {min} or more; a heartbeat every {heartbeat:?}; {quorum}")
}

/// The memory that every peer needs, with the whole batch at once and with one sequence at a time.
fn describe_memory(run: &Run, work: &Work) -> String {
    let [all, least] = [work.train.batch, 1].map(|size| Needs::of(run, work, size, Device::Cpu));
    format!(
        "about {} of memory per peer ({} with --micro-batch 1), {} of disk; the agreed state has \
         {}",
        bytes(all.memory),
        bytes(least.memory),
        bytes(all.disk),
        bytes(work.state_bytes())
    )
}

/// How many sequences at a time fit on GPUs of usual sizes. The sizes are in gigabytes of the
/// vendor, of 10^9 bytes.
fn describe_gpus(work: &Work) -> String {
    let batch = work.train.batch;
    let sizes = [12, 24, 80, 141].map(|gigabytes: u64| {
        let room = gigabytes * 1_000_000_000;
        match train::micro_batch(work, |size| train::fits_gpu(work, size, room)) {
            Some(size) if size == batch => format!("{gigabytes} GB take all {batch}"),
            Some(size) => format!("{gigabytes} GB {size}"),
            None => format!("{gigabytes} GB are too few"),
        }
    });
    format!("of {batch} sequences at a time, {}", sizes.join(", "))
}

/// The floating-point operations of training. An epoch of so many seconds has no such number, since
/// it depends on the machine.
fn describe_compute(run: &Run, work: &Work) -> String {
    let per_token = Arch::new(&work.model).flops_per_token();
    let epoch = run.epoch_tokens(work.tokens_per_step()).map_or_else(String::new, |tokens| {
        format!(", {} per peer and epoch", flops(per_token as f64 * tokens as f64))
    });
    format!("{} per token, forward and back{epoch}", flops(per_token as f64))
}

/// The greatest steady gain without a warning: above what public runs use now (docs/MATH.md), below
/// DiLoCo's 7. A guess.
const GAIN_ADVISED_MAX: f64 = 4.0;

/// A number of floating-point operations, with its unit. The units go up in thousands; beyond the
/// last one only the number grows.
pub(super) fn flops(number: f64) -> String {
    let units = ["FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP", "PFLOP", "EFLOP", "ZFLOP"];
    let unit = (number.max(1.0).log10() / 3.0).floor().min(7.0);
    format!("{:.2} {}", number / 1_000_f64.powf(unit), units[unit as usize])
}
