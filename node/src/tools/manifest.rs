//! `keygen`, `manifest new` and `manifest show`: how a run begins, and what its manifest means.
//!
//! Each command takes what was typed, does its work, and prints sentences for a person to `out`.
//!
//! Everything here is done on one machine, before there is a network. `manifest new` goes through
//! three steps, and each can refuse: what was typed is compared ([`refuse_what_cannot_be`]), the
//! weights that the run begins with are read and written under another name ([`begin`](fn@begin)),
//! and the manifest is made, checked and signed. Only then the files get their names, the manifest
//! last. So an organiser who finds `run.toml` has all of it.
//!
//! It has no setting of its own that a run depends on: what it proposes is written out, and a run
//! is what its manifest says.

mod begin;
mod describe;

use std::{
    fs::File,
    io::{self, Write},
    path::{Path, PathBuf},
};

use intellect_model::{
    config::{Hints, Model, Work},
    data::{DataError, Dataset, text, tokens},
    hf::error::ImportError,
};
use intellect_protocol::{
    access::admit::Level,
    base::id::{PeerId, RunId},
    manifest::Run,
};

use crate::{
    cli::manifest::{ManifestCommand, ManifestNewArgs},
    config::{self, LocalError},
    figures::count,
    identity::{self, Identity, IdentityError, Origin},
    manifest::{Draft, DraftError, LoadError, Manifest},
    name::PeerName,
    os::{self, PathError, cannot},
    store::StoreError,
    tools::{pace::announced, stored::StoredError},
};
use begin::{Before, Begin};
use describe::{describe, warn_of_gain, warn_of_memory, warn_of_toy_data};

/// Why one of these commands failed. Unless a variant says otherwise no manifest was written;
/// weights that have only a temporary name are removed. A key that was made stays.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OfflineError {
    /// The command line makes no sense.
    #[error(transparent)]
    Usage(#[from] LocalError),
    /// A key cannot be made or read.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// A manifest cannot be read, or makes no sense.
    #[error(transparent)]
    Manifest(#[from] LoadError),
    /// The settings make no manifest. It names the key, and what its value may be.
    #[error(transparent)]
    Draft(#[from] DraftError),
    /// The data that was named cannot be read.
    #[error(transparent)]
    Data(#[from] DataError),
    /// The model of `--from-hf` cannot be read.
    #[error(transparent)]
    Import(#[from] ImportError),
    /// The weights of the new run cannot be written. They are written beside `--out`, so the disk
    /// there needs room for them.
    #[error(transparent)]
    Publish(#[from] StoreError),
    /// `--from-hf` without a learning rate.
    #[error(
        "--from-hf: at the learning rate of a new model a trained one is lost within an epoch; add --set \
         train.lr=… (for a whole model mostly 1e-5 to 5e-5), with train.warmup_tokens, train.decay_tokens and \
         stop_tokens"
    )]
    NoRate,
    /// `--from-hf` was typed without data.
    #[error(
        "--from-hf: the synthetic source of a new run follows rules of its own, which this model \
         has not learnt: name its data with --data, or the rules that it knows with --set seed=…"
    )]
    NoData,
    /// There is nothing at the path of `--from-hf`.
    #[error("--from-hf {}: there is no such folder or file", path.display())]
    NoModel { path: PathBuf },
    /// `members.quorum=majority` without the founders.
    #[error(
        "members.quorum=majority needs the founders too, each as `keygen` prints it: --set \
         'members.founders=[\"12D3KooW…/60de…\", \"12D3KooW…/a04b…\"]'"
    )]
    NoFounders,
    /// The data has more different tokens than the model.
    #[error(
        "the model of --from-hf has {model} different tokens, the data {data}: make a token file \
         of it with the model's own tokenizer, by `intellect-node data tokenize --tokenizer …`"
    )]
    Vocabulary {
        /// Number of different tokens of the model.
        model: usize,
        /// Number of different tokens of the data.
        data: usize,
    },
    /// A size of the model was changed by `--set`. It is found at the end, by comparing with the
    /// weights.
    #[error("the model has the sizes of its weights: in [model] only context may be --set")]
    AnotherModel,
    /// The folder of `--from-run` has no such run, or no state of it can be read.
    #[error(transparent)]
    Before(#[from] StoredError),
    /// The old run has committed all its tokens.
    #[error(
        "run {run} is finished: it has its {tokens} tokens; say with --set stop_tokens=… how many \
         more the new run is to commit, 0 for no end"
    )]
    Finished {
        run: RunId,
        /// The tokens that its manifest sets.
        tokens: String,
    },
    /// The learning rate of the old run is already falling, and no schedule can begin in the
    /// middle.
    #[error(
        "the learning rate of run {run} has begun to fall, and is at {lr:.2e}: give the learning rate of the \
         new run with --set train.lr=…, and the tokens over which it falls with --set train.decay_tokens=…"
    )]
    Falling {
        run: RunId,
        /// Its learning rate at its newest state.
        lr: f64,
    },
    /// The manifest and its weights would have the same name.
    #[error(
        "--out {}: the weights beside the manifest get this name; give the manifest another one, as in run.toml",
        path.display()
    )]
    WeightsName { path: PathBuf },
    /// The system has no random numbers.
    #[error("the system gives no random numbers")]
    Random(#[source] io::Error),
    /// A manifest is never overwritten: peers may be training by it.
    #[error(
        "{} exists and is not overwritten: choose another name, or move it away", path.display()
    )]
    Exists { path: PathBuf },
    /// The manifest cannot be written.
    #[error(transparent)]
    Write(#[from] PathError),
    /// Standard output is closed, or its disk is full.
    #[error("cannot write to standard output")]
    Output(#[from] io::Error),
}

/// Makes a key at `path` and prints its names. One key is good for all three uses: a peer and an
/// organiser differ only in how they are written, and a founder has the id of a log besides.
pub(crate) fn keygen(path: &Path, out: &mut dyn Write) -> Result<(), OfflineError> {
    let identity = Identity::random().map_err(OfflineError::Random)?;
    identity.create(path)?;
    writeln!(out, "wrote {} (keep it secret, keep a copy)", path.display())?;
    writeln!(out, "peer       {}", PeerName::from(identity.peer()))?;
    writeln!(out, "organiser  {}", identity.peer().hex())?;
    writeln!(out, "founder    {}", identity.founder())?;
    Ok(())
}

/// Runs `manifest new` or `manifest show`. A line is a key in a column and a value.
pub(crate) fn run(command: ManifestCommand, out: &mut dyn Write) -> Result<(), OfflineError> {
    match command {
        ManifestCommand::New(args) => make(&args, out),
        ManifestCommand::Show { file } => {
            let manifest = Manifest::load(&file)?;
            let warning = warn_of_gain(&manifest).map(|warning| ("warning", warning));
            let mut lines = describe(&manifest).into_iter().chain(warning);
            Ok(lines.try_for_each(|(key, value)| write_line(out, key, &value))?)
        }
    }
}

/// Context of a model from elsewhere, unless more is asked for: a guess.
const HF_CONTEXT: usize = 2_048;

/// Makes a manifest, and the file of the weights that it names.
///
/// The key that is printed is the one that signed. Warnings come after the manifest is written:
/// each is about something that an organiser may well want, and says how to change it.
fn make(args: &ManifestNewArgs, out: &mut dyn Write) -> Result<(), OfflineError> {
    let weights_path = args.out.with_extension("ckpt");
    refuse_what_cannot_be(args, &weights_path)?;
    let begin = begin(args, &weights_path, out)?;
    let key = match &args.key {
        Some(path) => path.clone(),
        None => config::data_dir()?.join(identity::FILE_NAME),
    };
    let manifest = new_manifest(args, &begin)?;
    // The manifest comes last: if it is there, its weights are.
    if let Some(weights) = begin.weights() {
        weights.file.publish()?;
        for line in begin.notes(&manifest) {
            writeln!(out, "{line}")?;
        }
        writeln!(out, "wrote {}, for the first node: --genesis", weights_path.display())?;
    }
    write_new(&args.out, &manifest.text)?;
    writeln!(out, "wrote {}, signed with {}", args.out.display(), key.display())?;
    for (key, value) in describe(&manifest).into_iter().filter(|(key, _)| SHOWN.contains(key)) {
        write_line(out, key, &value)?;
    }
    let warnings = [
        warn_of_memory(&manifest),
        if args.from_hf.is_some() { None } else { warn_of_toy_data(&manifest) },
        warn_of_little_data(&manifest),
        warn_of_gain(&manifest),
    ];
    for warning in warnings.into_iter().flatten() {
        write_line(out, "warning", &warning)?;
    }
    if let Some(sharing) = note_on_sharing(&manifest) {
        write_line(out, "sharing", &sharing)?;
    }
    let file = args.out.display();
    let next = "intellect-bootstrap --listen /ip4/0.0.0.0/tcp/4001 --manifest";
    write_line(out, "next", &format!("{next} {file}"))?;
    if manifest.run.trust.level == Level::Invited {
        let key = key.display();
        let next = format!("intellect-node invite new --key {key} --manifest {file} --bootstrap …");
        write_line(out, "then", &next)?;
    }
    Ok(())
}

/// Refuses names that are taken and settings that are missing, before a model is read, which takes
/// long. A run that begins anew takes no time, and is checked by the steps after this one alone.
fn refuse_what_cannot_be(args: &ManifestNewArgs, weights: &Path) -> Result<(), OfflineError> {
    if let Some(path) = args.from_hf.clone().filter(|path| !path.exists()) {
        return Err(OfflineError::NoModel { path });
    }
    let wants_majority = |assignment: &String| {
        let (key, value) = assignment.split_once('=').unwrap_or_default();
        key.trim() == "members.quorum" && value.trim().trim_matches('"') == "majority"
    };
    // The run that goes on may have its founders.
    let has_founders = sets(args, "members.founders") || args.from_run.is_some();
    if args.set.iter().any(wants_majority) && !has_founders {
        return Err(OfflineError::NoFounders);
    }
    if args.from_hf.is_none() && args.from_run.is_none() {
        return Ok(());
    }
    if weights == args.out {
        return Err(OfflineError::WeightsName { path: weights.to_owned() });
    }
    for path in [args.out.as_path(), weights] {
        if path.exists() {
            return Err(OfflineError::Exists { path: path.to_owned() });
        }
    }
    if args.from_hf.is_some() && !sets(args, "train.lr") {
        return Err(OfflineError::NoRate);
    }
    if args.from_hf.is_some() && args.data.is_empty() && !sets(args, "seed") {
        return Err(OfflineError::NoData);
    }
    Ok(())
}

/// Reads what the run begins with, and says so before, since that takes long. Its weights are
/// written for the file `weights`.
fn begin(
    args: &ManifestNewArgs,
    weights: &Path,
    out: &mut dyn Write,
) -> Result<Begin, OfflineError> {
    if let Some(path) = &args.from_hf {
        writeln!(out, "reading the model in {}", path.display())?;
        out.flush()?;
        return Begin::with_model(path, weights);
    }
    let Some(folder) = &args.from_run else { return Ok(Begin::Anew) };
    let before = Before::find(folder, args.run.as_deref(), weights)?;
    Ok(Begin::After(before.into()))
}

/// Whether `--set` changes this setting. Only the key is looked at; whether the value makes sense
/// is found when it is signed.
fn sets(args: &ManifestNewArgs, key: &str) -> bool {
    let key_of =
        |assignment: &String| assignment.split('=').next().unwrap_or_default().trim() == key;
    args.set.iter().any(key_of)
}

/// A warning if one peer's epoch goes through the data more than once.
fn warn_of_little_data(manifest: &Manifest) -> Option<String> {
    let Manifest { run, work, .. } = manifest;
    let epoch = run.epoch_tokens(work.tokens_per_step())?;
    let train = Dataset::train_tokens(work).ok()??;
    (train < epoch).then(|| {
        format!(
            "one epoch of one peer takes {} tokens, and the data has {} to train on: each is seen {} \
             times in every epoch",
            count(epoch),
            count(train),
            count(epoch.div_ceil(train.max(1)))
        )
    })
}

/// A note if every peer has to get the files by itself.
fn note_on_sharing(manifest: &Manifest) -> Option<String> {
    let data = &manifest.work.data;
    let alone = data.source.file_count() > 0 && !data.is_fetched();
    alone.then(|| {
        "every peer must get the data itself; if it may be passed on, --share lets peers hand it to peers that \
         lack it, and --set data.url=https://… names where they fetch it"
            .to_owned()
    })
}

/// Makes the manifest that was typed, and signs it with the organiser's key.
///
/// Later settings win: the proposal for the data, the preset over it, and the model of `--from-hf`
/// over both; then `--name`, and `--set` last, in the order in which it was typed. A run that goes
/// on has the settings of the old one instead of the first three.
fn new_manifest(args: &ManifestNewArgs, begin: &Begin) -> Result<Manifest, OfflineError> {
    let organiser = match &args.key {
        Some(path) => Identity::load(path)?,
        // The node of that folder may be running.
        None => Identity::of_folder(&config::data_dir()?, Origin::Random)?,
    };
    let me = organiser.peer();
    let mut draft = match begin {
        Begin::Anew => propose(args, me, None)?,
        Begin::Model { weights, .. } => propose(args, me, Some(&weights.model))?,
        Begin::After(before) => before.draft(me, level(args), |key| sets(args, key))?,
    };
    if let Some(weights) = begin.weights() {
        draft.put("genesis", weights.file.state().hex());
    }
    if let Some(name) = &args.name {
        draft.put("name", name.as_str());
    }
    for assignment in &args.set {
        draft.set(assignment)?;
    }
    let manifest = draft.sign(&organiser.keypair())?;
    begin.weights().map_or(Ok(()), |weights| weights.fits(&manifest.work.model))?;
    // No node could join a run whose files have no room for a row.
    Dataset::train_tokens(&manifest.work)?;
    Ok(manifest)
}

/// The admission level that the command line sets, if it sets one.
fn level(args: &ManifestNewArgs) -> Option<Level> {
    args.invited.then_some(Level::Invited)
}

/// The settings of a run that begins anew, or with a model from elsewhere. The seed is drawn, so
/// that two runs of equal settings differ in weights and id.
fn propose(
    args: &ManifestNewArgs,
    organiser: PeerId,
    model: Option<&Model>,
) -> Result<Draft, OfflineError> {
    let seed = u64::from_le_bytes(os::random().map_err(OfflineError::Random)?);
    // Below 2^63, as TOML's integers are.
    let mut run = Run::new(organiser, seed >> 1);
    run.trust.level = level(args).unwrap_or(Level::Open);
    let preset = config::parse_preset(&args.preset)?;
    let mut work = work(&args.data)?;
    work.data.share = args.share;
    let mut draft = Draft::new(&run, &work).map_err(DraftError::from)?;
    draft.begin_with(preset, work.data.tokens()).map_err(DraftError::from)?;
    if let Some(model) = model {
        let data = work.data.tokens();
        if model.vocab < data {
            return Err(OfflineError::Vocabulary { model: model.vocab, data });
        }
        // A model that can read long texts is rarely trained on them: memory and time grow with the
        // context.
        let context = model.context.min(HF_CONTEXT);
        draft.put_model(&Work { model: Model { context, ..model.clone() }, ..work });
    }
    Ok(draft)
}

/// The data and training that a new run proposes: on a text, on token files, or on the synthetic
/// source. All files are read as a whole, since the manifest names them by their digests. `sim`
/// uses it for its own `--data`.
pub(crate) fn work(named: &[PathBuf]) -> Result<Work, DataError> {
    match named {
        [] => Ok(Work::synthetic()),
        [path] if !path.is_dir() && !tokens::is_meant(path)? => {
            let mut work = Work::text(announced(READS, || text::propose(path))?);
            work.data.hints = Hints::of(named);
            Ok(work)
        }
        named => {
            let (vocabulary, paths, files) = announced(READS, || tokens::describe_all(named))?;
            let mut work = match files.as_slice() {
                [file] => Work::tokens(vocabulary, *file),
                files => Work::mix(vocabulary, files),
            };
            work.data.hints = Hints::of(&paths);
            Ok(work)
        }
    }
}

/// Writes a file that must not exist yet.
fn write_new(path: &Path, text: &str) -> Result<(), OfflineError> {
    let io_error = |source: io::Error| match source.kind() {
        io::ErrorKind::AlreadyExists => OfflineError::Exists { path: path.to_owned() },
        _ => cannot("write", path)(source).into(),
    };
    let mut file = File::create_new(path).map_err(io_error)?;
    file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(|error| {
        // The file is ours and torn: nobody must take it for a manifest.
        let _ = std::fs::remove_file(path);
        io_error(error)
    })
}

/// Prints one line of the description, with the keys in a column.
fn write_line(out: &mut dyn Write, key: &str, value: &str) -> io::Result<()> {
    writeln!(out, "{key:<9} {value}")
}

/// What is done while the named data is hashed.
const READS: &str = "reading the data";
/// The lines of a manifest's description that are printed when it is made.
const SHOWN: [&str; 6] = ["run", "name", "model", "data", "joining", "memory"];

#[cfg(test)]
mod tests;
