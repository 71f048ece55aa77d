//! `keygen`, `manifest new` and `manifest show`: what begins a run, and what a run is.
//!
//! Each takes what was typed, does its work, and writes for a person to `out`.

use std::{
    fs::File,
    io::{self, Write},
    path::{Path, PathBuf},
};

use intellect_model::{
    arch::Arch,
    config::{Model, Part, Source, Vocabulary, Work},
    data::{DataError, text, tokens},
    hf::import::{self, ImportError, Imported},
};
use intellect_protocol::{
    checkpoint::Table,
    manifest::{Budget, Outer, Quorum, Run},
};

use crate::{
    cli::{ManifestCommand, ManifestNewArgs},
    config::{self, LocalError},
    enter::needs::{Needs, update_bytes},
    figures::{bytes, codec_name, count},
    identity::{Home, Identity, IdentityError, Origin},
    manifest::{Draft, DraftError, Manifest, ReadError},
    name::PeerName,
    os,
    preset::Preset,
    store::{StoreError, genesis},
};

/// Why one of these commands did not succeed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OfflineError {
    /// Something on the command line cannot be meant.
    #[error(transparent)]
    Usage(#[from] LocalError),
    /// No such preset.
    #[error("--preset {text}: choose one of {}", Preset::names())]
    Preset {
        /// As typed.
        text: String,
    },
    /// A key cannot be made or read.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// A manifest cannot be read.
    #[error(transparent)]
    Manifest(#[from] ReadError),
    /// A manifest cannot be made.
    #[error(transparent)]
    Draft(#[from] DraftError),
    /// The text cannot be read.
    #[error(transparent)]
    Data(#[from] DataError),
    /// The model that a run is to begin with cannot be read.
    #[error(transparent)]
    Import(#[from] ImportError),
    /// Its weights cannot be written.
    #[error(transparent)]
    Publish(#[from] StoreError),
    /// A size of it was changed.
    #[error("the model of --from-hf is what its folder says: of [model] only context may be --set")]
    AnotherModel,
    /// Manifest and weights would be one file.
    #[error(
        "--out {}: so the weights beside the manifest are named; name the manifest otherwise, as in \
         run.toml",
        path.display()
    )]
    WeightsName {
        /// As typed.
        path: PathBuf,
    },
    /// The system has no random numbers.
    #[error("the system gives no random numbers")]
    Random(#[source] io::Error),
    /// A manifest is never overwritten: peers may be training by it.
    #[error("{} exists and is not overwritten: choose another name, or move it away", path.display())]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// The manifest cannot be written.
    #[error("cannot write {}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Standard output is gone or full.
    #[error("cannot write to standard output")]
    Output(#[from] io::Error),
}

/// Makes a key at `path` and says whose it is.
pub(crate) fn keygen(path: &Path, out: &mut dyn Write) -> Result<(), OfflineError> {
    let identity = Identity::random().map_err(OfflineError::Random)?;
    identity.create(path)?;
    writeln!(out, "wrote {} (keep it secret, keep a copy)", path.display())?;
    writeln!(out, "peer       {}", PeerName::from(identity.peer()))?;
    writeln!(out, "organiser  {}", identity.peer().hex())?;
    writeln!(out, "founder    {}", identity.founder())?;
    Ok(())
}

/// `manifest new` and `manifest show`.
pub(crate) fn run(command: ManifestCommand, out: &mut dyn Write) -> Result<(), OfflineError> {
    match command {
        ManifestCommand::New(args) => {
            let weights_path = args.out.with_extension("ckpt");
            if args.from_hf.is_some() {
                if weights_path == args.out {
                    return Err(OfflineError::WeightsName { path: weights_path });
                }
                refuse_to_overwrite(&args.out)?;
                refuse_to_overwrite(&weights_path)?;
            }
            let weights = match &args.from_hf {
                Some(folder) => {
                    writeln!(out, "reading the model in {}", folder.display())?;
                    out.flush()?;
                    Some(Weights::read(folder)?)
                }
                None => None,
            };
            let manifest = new_manifest(&args, weights.as_ref())?;
            // The manifest last: where one is, its weights are.
            if let Some(weights) = weights {
                genesis::publish(&weights_path, &weights.table, &weights.imported.theta)?;
                if weights.imported.untied {
                    writeln!(out, "its head was its embedding: from here on they learn apart")?;
                }
                let path = weights_path.display();
                writeln!(out, "wrote {path}, for the first node: --genesis")?;
            }
            write_new(&args.out, &manifest.text)?;
            writeln!(out, "wrote {}", args.out.display())?;
            writeln!(out, "run  {}", manifest.id.hex())?;
            Ok(())
        }
        ManifestCommand::Show { file } => {
            Ok(out.write_all(show(&Manifest::load(&file)?).as_bytes())?)
        }
    }
}

/// A model that a run is to begin with.
struct Weights {
    imported: Imported,
    /// Of its state before epoch 1.
    table: Table,
}

impl Weights {
    fn read(folder: &Path) -> Result<Self, OfflineError> {
        let imported = import::read(folder)?;
        let table = genesis::table(&imported.theta).map_err(StoreError::from)?;
        Ok(Self { imported, table })
    }

    /// A run may be shorter-sighted than the model; all else follows from the weights.
    fn fits(&self, model: &Model) -> Result<(), OfflineError> {
        let expected = &self.imported.model;
        if (Model { context: expected.context, ..model.clone() }) != *expected {
            return Err(OfflineError::AnotherModel);
        }
        Ok(())
    }
}

fn new_manifest(
    args: &ManifestNewArgs,
    weights: Option<&Weights>,
) -> Result<Manifest, OfflineError> {
    let organiser = match &args.key {
        Some(path) => Identity::load(path)?,
        None => Home::open(&config::data_dir()?, Origin::Random)?.identity,
    };
    let seed = u64::from_le_bytes(os::random().map_err(OfflineError::Random)?);
    // Below 2^63, as TOML's integers are.
    let run = Run::new(organiser.peer(), seed >> 1);
    let preset = Preset::find(&args.preset)
        .ok_or_else(|| OfflineError::Preset { text: args.preset.clone() })?;
    let work = work(&args.data)?;
    let mut draft = Draft::new(&run, &work)?;
    draft.begin_with(preset)?;
    if let Some(Weights { imported, table }) = weights {
        draft.put_model(&Work { model: imported.model.clone(), ..work });
        draft.put("genesis", table.state().hex());
    }
    if let Some(name) = &args.name {
        draft.put("name", name.as_str());
    }
    for assignment in &args.set {
        draft.set(assignment)?;
    }
    let manifest = draft.sign(&organiser.keypair())?;
    weights.map_or(Ok(()), |weights| weights.fits(&manifest.work.model))?;
    Ok(manifest)
}

/// The work that a new run proposes: on a text, on token files, or on the synthetic source.
pub(crate) fn work(named: &[PathBuf]) -> Result<Work, DataError> {
    match named {
        [] => Ok(Work::synthetic()),
        [path] if !path.is_dir() && !tokens::is_meant(path)? => {
            text::describe(path).map(|file| Work::text(file.digest, file.bytes))
        }
        named => {
            let (vocabulary, files) = tokens::describe_all(named)?;
            Ok(match files.as_slice() {
                [file] => Work::tokens(vocabulary, file.digest, file.bytes),
                files => Work::mix(vocabulary, files),
            })
        }
    }
}

fn refuse_to_overwrite(path: &Path) -> Result<(), OfflineError> {
    if path.exists() {
        return Err(OfflineError::Exists { path: path.to_owned() });
    }
    Ok(())
}

/// Writes a file that must not exist yet.
fn write_new(path: &Path, text: &str) -> Result<(), OfflineError> {
    let io_error = |source: io::Error| match source.kind() {
        io::ErrorKind::AlreadyExists => OfflineError::Exists { path: path.to_owned() },
        _ => OfflineError::Write { path: path.to_owned(), source },
    };
    let mut file = File::create_new(path).map_err(io_error)?;
    file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(|error| {
        // It is ours and torn: nobody must take it for a manifest.
        let _ = std::fs::remove_file(path);
        io_error(error)
    })
}

/// What a manifest means, in words.
fn show(manifest: &Manifest) -> String {
    let Manifest { run, work, id, .. } = manifest;
    let genesis = run.genesis.map_or_else(
        || format!("drawn from seed {}: every peer makes them", run.seed),
        |state| format!("published as {}; peers hand them on", state.hex()),
    );
    let lines = [
        ("run", id.hex()),
        ("name", format!("{}, signed by organiser {}", run.name, run.organiser.hex())),
        ("model", describe_model(work)),
        ("weights", genesis),
        ("data", describe_data(work)),
        ("training", describe_training(work)),
        ("epoch", describe_epoch(run, work)),
        ("ring", describe_ring(run)),
        ("traffic", describe_traffic(run, work)),
        ("members", describe_members(run)),
        ("compute", describe_compute(run, work)),
        ("memory", describe_memory(run, work)),
        (
            "ends",
            match run.stop_tokens {
                0 => "never: each peer leaves when it likes".to_owned(),
                tokens => format!("after {} tokens in all", count(tokens)),
            },
        ),
    ];
    lines.map(|(key, value)| format!("{key:<9} {value}\n")).concat()
}

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

fn describe_data(work: &Work) -> String {
    match &work.data.source {
        Source::Synthetic { symbols, order } => format!(
            "synthetic: {symbols} symbols, each drawn by the {order} before it; nobody needs a file"
        ),
        Source::Text { digest, bytes } => format!(
            "a text of {} bytes with BLAKE3 {}, of which {} % are held out; every peer needs it",
            count(*bytes),
            blake3::Hash::from_bytes(*digest),
            100.0 * work.data.held_out
        ),
        Source::Tokens { digest, bytes, vocabulary } => format!(
            "a token file of {} bytes with BLAKE3 {}, of which {} % are held out; every peer needs it; \
             its tokenizer is {} with {} tokens",
            count(*bytes),
            blake3::Hash::from_bytes(*digest),
            100.0 * work.data.held_out,
            vocabulary.scheme.name(),
            count(vocabulary.tokens as u64)
        ),
        Source::Mix { vocabulary, parts, anneal_from } => {
            describe_mix(vocabulary, parts, *anneal_from, work.data.held_out)
        }
    }
}

fn describe_mix(vocabulary: &Vocabulary, parts: &[Part], from: u64, held_out: f64) -> String {
    let mut text = format!(
        "{} token files, of which {} % are held out; every peer needs all of them; their tokenizer \
         is {} with {} tokens. Drawn are, and in epochs that begin with {} tokens or more:",
        parts.len(),
        100.0 * held_out,
        vocabulary.scheme.name(),
        count(vocabulary.tokens as u64),
        count(from)
    );
    let share = |weight: fn(&Part) -> f64, part| {
        let sum: f64 = parts.iter().map(weight).sum();
        100.0 * weight(part) / sum
    };
    for part in parts {
        let (first, then) =
            (share(|part| part.weight, part), share(|part| part.anneal_weight, part));
        let (bytes, digest) = (count(part.bytes), blake3::Hash::from_bytes(part.digest));
        text +=
            &format!("\n{:10}{first:5.1} % {then:5.1} %  {bytes} bytes with BLAKE3 {digest}", "");
    }
    text
}

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

fn describe_epoch(run: &Run, work: &Work) -> String {
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
    format!("{budget}{tokens} per peer, then one outer step: rate {lr}, momentum {momentum}{ramp}")
}

fn describe_ring(run: &Run) -> String {
    format!("{}: each of n peers sends and receives 2(n-1)/n of an update", codec_name(run.codec))
}

/// What an epoch moves.
fn describe_traffic(run: &Run, work: &Work) -> String {
    let update = update_bytes(run, work);
    let ring = |peers: u64| bytes(update / peers * 2 * (peers - 1));
    format!(
        "an update has {}: per epoch each peer sends {} among 2 peers, {} among 8, and as much comes in",
        bytes(update),
        ring(2),
        ring(8)
    )
}

fn describe_members(run: &Run) -> String {
    let members = &run.members;
    let quorum = match &members.quorum {
        Quorum::Available => format!(
            "when a majority is silent for {:?}, the rest goes on without it",
            members.minority_grace
        ),
        Quorum::Majority { founders } => {
            format!("{} founders; without a majority everyone waits", founders.len())
        }
    };
    let (min, heartbeat) = (members.min_peers, members.heartbeat);
    format!("founded by {min} or more; a heartbeat every {heartbeat:?}; {quorum}")
}

/// What every peer needs, with the whole batch at once and with one sequence at a time.
fn describe_memory(run: &Run, work: &Work) -> String {
    let all = Needs::of(run, work, work.train.batch);
    let least = Needs::of(run, work, 1);
    format!(
        "about {} of memory per peer ({} with --micro-batch 1), {} of disk; the agreed state has {}",
        bytes(all.memory),
        bytes(least.memory),
        bytes(all.disk),
        bytes(work.state_bytes())
    )
}

/// Floating-point operations of training.
fn describe_compute(run: &Run, work: &Work) -> String {
    let per_token = Arch::new(&work.model).flops_per_token();
    let epoch = match run.epoch_tokens(work.tokens_per_step()) {
        Some(tokens) => {
            format!(", {} per peer and epoch", flops(per_token as f64 * tokens as f64))
        }
        None => String::new(),
    };
    format!("{} per token, forward and back{epoch}", flops(per_token as f64))
}

/// A number of floating-point operations, with its unit.
fn flops(number: f64) -> String {
    let units = ["FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP", "PFLOP", "EFLOP", "ZFLOP"];
    let unit = (number.max(1.0).log10() / 3.0).floor().min(7.0);
    format!("{:.2} {}", number / 1_000_f64.powf(unit), units[unit as usize])
}

#[cfg(test)]
mod tests;
