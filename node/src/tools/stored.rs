//! `sample`: writes text with a state on disk; and how a state is found.
//!
//! A checkpoint is found by its path, or as the newest one of a data folder. Its manifest is in the
//! folder of its run, unless another one is named.
//!
//! Most commands that read a state come through here, so that all of them take the same words for
//! the same state: `--checkpoint` a file, `--data-dir` and `--run` the newest state of a run,
//! `--manifest` and `--tokenizer` what is beside it otherwise. Nothing is locked, since a node may
//! be running there. It may remove an old checkpoint at any moment, so a command opens the file
//! soon, and keeps it open ([`FoundState`]).

use std::{
    fs, io,
    io::Write,
    ops::ControlFlow,
    path::{Path, PathBuf},
};

use intellect_model::{
    arch::Keep,
    sample::{self, Ending, SampleError, Sampled, Sampling},
    tokenizer::{EncodeError, File, OpenError, Tokenizer},
};
use intellect_protocol::{base::id::RunId, history::checkpoint::Table, ring::codec};

use crate::{
    checkpoint::{CheckpointError, Front},
    cli::{CheckpointArgs, SampleArgs, StateArgs},
    config::{self, LocalError, RunPrefix, options::StoredOptions},
    evaluation::{self, EvaluationError},
    figures,
    manifest::{LoadError, Manifest},
    os::{PathError, cannot, unless_missing},
    store::{self, genesis},
};

/// Why a stored state could not be used. Nothing has been changed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StoredError {
    /// The command line makes no sense.
    #[error(transparent)]
    Usage(#[from] LocalError),
    /// The folder has no run that fits, or several. A folder with several runs needs `--run`; the
    /// message lists them.
    #[error("{} {}{}", folder.display(), list(folder, found), of_simulation(folder))]
    Run {
        /// The data folder, as it was typed.
        folder: PathBuf,
        found: Vec<RunId>,
    },
    /// The run has not committed any epoch yet.
    #[error("{} holds no checkpoint yet: wait for the first committed epoch", folder.display())]
    NoCheckpoint {
        /// The folder where its checkpoints would be.
        folder: PathBuf,
    },
    /// The checkpoint is outside the folder of a run, and no manifest was named.
    #[error("there is no run.toml beside {}: name its manifest with --manifest", checkpoint.display())]
    NoManifest { checkpoint: PathBuf },
    /// A file or a folder cannot be read.
    #[error(transparent)]
    Io(#[from] PathError),
    /// The manifest cannot be used.
    #[error(transparent)]
    Manifest(#[from] LoadError),
    /// The checkpoint cannot be used, and no other one of its folder is whole, or none was looked for.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// The checkpoint that was typed is damaged, and another one of its folder is not.
    #[error(
        "{}; {} is whole: name it with --checkpoint", figures::explain(damage, ": "), whole.display()
    )]
    Damaged { damage: Box<CheckpointError>, whole: PathBuf },
    /// Model or data cannot be used.
    #[error(transparent)]
    Evaluation(#[from] EvaluationError),
    /// A parameter is not finite, so the parameters have no digest.
    #[error("the parameters cannot be used")]
    Parameters(#[from] codec::EncodeError),
    /// The tokenizer cannot be opened.
    #[error(transparent)]
    Tokenizer(#[from] OpenError),
    /// The tokenizer cannot encode the prompt.
    #[error("--prompt: {0}")]
    Prompt(EncodeError),
    /// The model cannot write text.
    #[error(transparent)]
    Sample(#[from] SampleError),
    /// Standard output is closed, or its disk is full.
    #[error("cannot write to standard output")]
    Output(#[source] io::Error),
}

/// A checkpoint, and the manifest of its run. It is open, since the run's node may remove it.
pub(crate) struct FoundState {
    pub(crate) path: PathBuf,
    pub(crate) manifest: Manifest,
    front: Result<Front, CheckpointError>,
    /// Whether a person has named it, so that no other one takes its place.
    typed: bool,
}

impl FoundState {
    /// Opens the checkpoint. That it is damaged is found when it is read.
    fn open(path: PathBuf, manifest: Manifest, typed: bool) -> Self {
        let front = Front::of(&path, &manifest);
        Self { path, manifest, front, typed }
    }

    /// What `read` takes from the checkpoint, with its table. Where it is damaged, the newest one of
    /// its folder that is whole takes its place, and standard error says so.
    ///
    /// # Errors
    /// [`StoredError::Damaged`] names that one where a person has named another.
    pub(crate) fn read<T>(
        self,
        read: impl Fn(Front) -> Result<T, CheckpointError>,
    ) -> Result<(Table, T), StoredError> {
        let Self { path, manifest, front, typed } = self;
        let whole = |front: Front| {
            let table = front.table.clone();
            read(front).map(|value| (table, value))
        };
        let damage = match front.and_then(&whole) {
            Err(damage) if damage.is_damage() => damage,
            done => return Ok(done?),
        };
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let folder = parent.unwrap_or_else(|| Path::new("."));
        let other = checkpoints(folder).unwrap_or_default().into_iter().find_map(|other| {
            let done = Front::of(&other, &manifest).and_then(&whole).ok()?;
            Some((other, done))
        });
        match other {
            None => Err(damage.into()),
            Some((other, _)) if typed => {
                Err(StoredError::Damaged { damage: Box::new(damage), whole: other })
            }
            Some((other, done)) => {
                let why = figures::explain(&damage, ": ");
                let line = format!("{why}; the newest whole one is used, {}\n", other.display());
                let _ = io::stderr().write_all(line.as_bytes());
                Ok(done)
            }
        }
    }
}

/// Writes text with a state, token by token. Each token is written and flushed as it is drawn, so
/// that a person sees the text come. A reader that goes away ends the work.
///
/// # Errors
/// See [`StoredError`]; what was written until then stays written.
pub(crate) fn sample(args: &SampleArgs, out: &mut dyn Write) -> Result<(), StoredError> {
    let found = find(&args.checkpoint.state)?;
    let tokenizer = tokenizer(&args.checkpoint, &found.path, &found.manifest)?;
    let device = config::parse_device(&args.checkpoint.device)?;
    let work = found.manifest.work.clone();
    let model = evaluation::loaded(&work, &found.read(Front::theta)?.1, device)?;
    let prompt = tokenizer.encode(&args.prompt).map_err(StoredError::Prompt)?;
    let settings = sampling(args);
    // The prompt is printed as it was typed; its tokens decide whether a space follows it.
    let mut decoder = tokenizer.decoder_behind(&prompt);
    let mut written = out.write_all(args.prompt.as_bytes());
    let mut write = |token| {
        if written.is_ok() {
            written = out.write_all(decoder.push(token).as_bytes()).and_then(|()| out.flush());
        }
        if written.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    };
    let Sampled { cut, .. } = sample::sample(model.as_ref(), &work, &prompt, settings, &mut write)?;
    written
        .and_then(|()| writeln!(out, "{}", decoder.finish()))
        .and_then(|()| match cut {
            0 => Ok(()),
            cut => writeln!(
                out,
                "warning   the model reads {} tokens at once, and did not see the first {cut} of the {} \
                 tokens of the prompt",
                work.model.context,
                prompt.len()
            ),
        })
        .map_err(StoredError::Output)
}

/// How tokens are drawn, as it was typed. Whether the numbers are in their ranges is checked by
/// `sample`.
fn sampling(args: &SampleArgs) -> Sampling {
    let &SampleArgs { temperature, top_p, seed, tokens, past_end, gold_cache, .. } = args;
    let ending = if past_end { Ending::Never } else { Ending::Document };
    let keep = Keep { expanded_bytes: gold_cache, ..Keep::default() };
    Sampling { temperature, top_p, seed, tokens: tokens.get(), ending, keep }
}

/// The tokenizer of a run, by the file that was named or is in the folder of the checkpoint's
/// manifest. A run of bytes needs no file.
pub(super) fn tokenizer(
    args: &CheckpointArgs,
    checkpoint: &Path,
    manifest: &Manifest,
) -> Result<Tokenizer, OpenError> {
    let file = tokenizer_file(args.tokenizer.as_deref(), checkpoint, manifest);
    Tokenizer::of(&manifest.work.data, file.as_deref())
}

/// The file of the run's tokenizer: the one that was named, else the one in the folder of the
/// checkpoint's manifest.
pub(super) fn tokenizer_file(
    named: Option<&Path>,
    checkpoint: &Path,
    manifest: &Manifest,
) -> Option<PathBuf> {
    let stored = manifest.vocabulary().and_then(|_| beside(checkpoint, store::TOKENIZER));
    named.map(Path::to_owned).or(stored)
}

/// The file of the run's tokenizer, once it has proved to be the right one; `None` if the run has
/// none.
pub(super) fn checked_tokenizer(
    named: Option<&Path>,
    checkpoint: &Path,
    manifest: &Manifest,
) -> Result<Option<File>, OpenError> {
    let file = tokenizer_file(named, checkpoint, manifest);
    Tokenizer::of(&manifest.work.data, file.as_deref())?;
    file.map(|file| File::open(&file)).transpose()
}

/// The error of a tokenizer, with the remedy. A missing file has its remedy in its own text.
pub(super) fn remedied(error: &OpenError) -> String {
    match error {
        OpenError::NoFile { .. } => error.to_string(),
        error => format!(
            "{error}: name the right file with --tokenizer FILE, or start the node again, which \
             fetches it from its peers"
        ),
    }
}

/// The digest of the parameters alone, independent of run, epoch and momentum. A manifest would
/// name them by it as the weights that a run begins with.
pub(crate) fn weights(theta: &[f32]) -> Result<String, StoredError> {
    Ok(genesis::table(theta)?.state().hex())
}

/// The checkpoint that was typed, or the newest one of a run.
///
/// # Errors
/// [`StoredError::Run`] and [`StoredError::NoCheckpoint`] about the data folder,
/// [`StoredError::NoManifest`] about a file that was named alone.
pub(super) fn find(args: &StateArgs) -> Result<FoundState, StoredError> {
    let checkpoint = match &args.checkpoint {
        Some(path) => path.clone(),
        None => {
            let folder = args.data_dir.clone().map_or_else(config::data_dir, Ok)?;
            newest_checkpoint(&run_folder(folder, args.run.as_deref())?)?
        }
    };
    let beside = || manifest_beside(&checkpoint);
    let manifest = Manifest::load(&args.manifest.clone().map_or_else(beside, Ok)?)?;
    Ok(FoundState::open(checkpoint, manifest, args.checkpoint.is_some()))
}

/// The newest state of the only run of a data folder that fits.
pub(super) fn newest(folder: PathBuf, run: Option<&str>) -> Result<FoundState, StoredError> {
    let run = run_folder(folder, run)?;
    let manifest = Manifest::load(&run.join("run.toml"))?;
    Ok(FoundState::open(newest_checkpoint(&run)?, manifest, false))
}

/// The folder of the only run of a data folder that fits. Without a prefix the data folder must
/// have one run only: to take the newest would be a guess.
pub(super) fn run_folder(folder: PathBuf, run: Option<&str>) -> Result<PathBuf, StoredError> {
    let prefix: Option<RunPrefix> = run.map(str::parse).transpose()?;
    let runs = folder.join("runs");
    let mut found = store::runs(&folder).map_err(cannot("read", &runs))?;
    found.retain(|run| prefix.as_ref().is_none_or(|prefix| prefix.matches(run)));
    match found.as_slice() {
        [run] => Ok(runs.join(run.hex())),
        _ => Err(StoredError::Run { folder, found }),
    }
}

/// The checkpoint of the greatest epoch of a run, whether it is whole or not.
pub(super) fn newest_checkpoint(run: &Path) -> Result<PathBuf, StoredError> {
    let folder = run.join("checkpoints");
    let found = unless_missing(checkpoints(&folder)).map_err(cannot("read", &folder))?;
    let newest = found.unwrap_or_default().into_iter().next();
    newest.ok_or(StoredError::NoCheckpoint { folder })
}

/// The checkpoints of a folder, the greatest epoch first. Other names in it are ignored, such as a
/// file that is being written.
fn checkpoints(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let epoch = |entry: &fs::DirEntry| -> Option<u64> {
        entry.file_name().to_str()?.strip_suffix(".ckpt")?.parse().ok()
    };
    let entries = fs::read_dir(folder)?.collect::<io::Result<Vec<_>>>()?;
    let mut epochs: Vec<_> = entries.iter().filter_map(epoch).collect();
    epochs.sort_unstable();
    let path = |epoch: u64| folder.join(format!("{epoch}.ckpt"));
    Ok(epochs.into_iter().rev().map(path).collect())
}

/// The manifest of a checkpoint: the one that `manifest new --from-hf` wrote with it, or `run.toml`
/// in its folder or the one above.
fn manifest_beside(checkpoint: &Path) -> Result<PathBuf, StoredError> {
    let twin = checkpoint.with_extension("toml");
    (twin.is_file() && twin != checkpoint)
        .then_some(twin)
        .or_else(|| beside(checkpoint, "run.toml"))
        .ok_or_else(|| StoredError::NoManifest { checkpoint: checkpoint.to_owned() })
}

/// The file of that name in the folder of the checkpoint, or in the one above it.
fn beside(checkpoint: &Path, name: &str) -> Option<PathBuf> {
    let folders = checkpoint.ancestors().skip(1).take(2);
    folders.map(|folder| folder.join(name)).find(|path| path.is_file())
}

/// The data files that a node of the checkpoint's folder was given, and those that it has fetched.
/// They are not opened here; a file that has moved is an error of the one who reads it.
pub(super) fn stored_data(checkpoint: &Path, manifest: &Manifest) -> Vec<PathBuf> {
    let file = beside(checkpoint, store::OPTIONS);
    let stored = file.as_deref().and_then(Path::parent).map(StoredOptions::read);
    let mut named = stored.unwrap_or_default().options.data;
    let folders = || checkpoint.ancestors().skip(1).take(2);
    let in_folder =
        |file| folders().map(|at| store::data::path_in(at, file)).find(|at| at.is_file());
    let fetched: Vec<_> = manifest.work.data.source.files().iter().filter_map(in_folder).collect();
    if !fetched.is_empty() {
        // The files that the node was given were missing when it fetched them.
        named.retain(|path| path.exists());
    }
    named.extend(fetched);
    named
}

/// What a folder has instead of the run that was wanted, as the end of a sentence.
fn list(folder: &Path, runs: &[RunId]) -> String {
    match runs {
        [] if !folder.exists() => "does not exist: name another folder".to_owned(),
        [] if store::runs(folder).is_ok_and(|all| all.is_empty()) => {
            "holds no run: name the data folder of a node".to_owned()
        }
        [] => "holds no such run: name a run with --run, or another folder".to_owned(),
        runs => {
            let runs: Vec<_> = runs.iter().map(ToString::to_string).collect();
            format!("holds the runs {}: name one with --run, or another folder", runs.join(", "))
        }
    }
}

/// A hint for a person who names the folder that `sim --out` made.
fn of_simulation(folder: &Path) -> String {
    let peer = folder.join("peer-0").join("data");
    if peer.is_dir() { format!(", as in {}", peer.display()) } else { String::new() }
}

#[cfg(test)]
mod tests;
