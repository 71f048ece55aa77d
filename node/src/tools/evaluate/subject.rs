//! The weights that are measured or served: a checkpoint of a run, or a model from elsewhere.

use std::{
    num::NonZeroUsize,
    path::{Path, PathBuf},
};

use intellect_model::{
    Device,
    arch::Arch,
    config::{Model as Sizes, Work},
    hf::{
        import,
        text::{self, Texts},
    },
    tokenizer::Tokenizer,
    train::Model,
};

use super::EvaluateError;
use crate::{
    checkpoint::Front,
    cli::StateArgs,
    evaluation::EvaluationError,
    figures::count,
    manifest::Manifest,
    tools::{
        pace::announced,
        stored::{self, StoredError},
    },
};

/// Where the weights are that are measured.
pub(crate) enum Candidate {
    /// A checkpoint, and the manifest of its run. It is open from the beginning, since the run's node may remove it.
    State { path: PathBuf, manifest: Box<Manifest>, front: Box<Front> },
    /// A folder in Hugging Face's layout, or a `.pth` file.
    Folder(PathBuf),
}

/// A model with its weights, ready to be asked.
pub(crate) struct Subject {
    /// The model itself, which has loaded the weights.
    pub(crate) model: Box<dyn Model>,
    /// Its sizes, with the context that is read at once.
    pub(crate) work: Work,
    /// Sentences that say whose weights these are.
    pub(crate) lines: Vec<String>,
}

impl Candidate {
    /// Finds the weights that were typed.
    pub(crate) fn find(hf: Option<&Path>, state: &StateArgs) -> Result<Self, EvaluateError> {
        if let Some(folder) = hf {
            return Ok(Self::Folder(folder.to_owned()));
        }
        let (path, manifest) = stored::find(state)?;
        let front = Front::of(&path, &manifest).map_err(unreadable)?;
        Ok(Self::State { path, manifest: manifest.into(), front: front.into() })
    }

    /// The sizes of the model, with the context that is to be read at once, and the rows of a batch.
    pub(crate) fn sizes(&self, context: Option<NonZeroUsize>) -> Result<Work, EvaluateError> {
        let (mut work, default) = match self {
            Self::State { manifest, .. } => (manifest.work.clone(), usize::MAX),
            Self::Folder(folder) => {
                let model = import::sizes(folder)?;
                (Work { model, ..Work::synthetic() }, HF_CONTEXT)
            }
        };
        let most = work.model.context;
        // A family without positions reads as much as it is given.
        let reads = Arch::new(&work.model).reach().unwrap_or(CONTEXT_MAX);
        work.model.context = match context {
            None => most.min(default),
            Some(typed) if typed.get() <= reads => typed.get(),
            Some(typed) => return Err(EvaluateError::Context { typed: typed.get(), most: reads }),
        };
        Ok(work)
    }

    /// How the model's tokens are text, by the file that was `named` or is beside the weights.
    pub(crate) fn texts(&self, named: Option<&Path>) -> Result<Texts, EvaluateError> {
        match self {
            Self::Folder(folder) => Ok(text::open(folder, named)?),
            Self::State { path, manifest, .. } => {
                let file = stored::tokenizer_file(named, path, manifest);
                let tokenizer = Tokenizer::of(&manifest.work.data, file.as_deref())?;
                Ok(Texts { tokenizer, vocabulary: manifest.vocabulary().copied() })
            }
        }
    }
}

impl Subject {
    /// Reads the weights. The model has these sizes.
    pub(crate) fn load(
        origin: Candidate,
        work: Work,
        device: Device,
    ) -> Result<Self, EvaluateError> {
        let (theta, mut lines) = match origin {
            Candidate::Folder(folder) => {
                let theta = import::read(&folder)?.theta;
                (
                    theta,
                    vec![format!("model          {} in {}", named(&work.model), folder.display())],
                )
            }
            Candidate::State { manifest, front, .. } => {
                let (header, state) = (*front.table.header(), front.table.state());
                let whose = format!("run            {} ({})", manifest.id, manifest.run.name);
                let state = format!(
                    "state          {} of epoch {}, {} tokens committed",
                    state.hex(),
                    header.epoch,
                    count(header.tokens)
                );
                let state_of = announced("reading the weights", || front.whole(|_| {}));
                (state_of.map_err(unreadable)?.theta, vec![whose, state])
            }
        };
        lines.push(format!("weights        {}", stored::weights(&theta)?));
        let mut model = intellect_model::model(&work, device)?;
        model.load(&theta)?;
        Ok(Self { model, work, lines })
    }
}

/// An error of a checkpoint, as this command reports it.
fn unreadable(error: crate::checkpoint::CheckpointError) -> EvaluateError {
    StoredError::from(EvaluationError::from(error)).into()
}

/// The family and the size of a model.
fn named(model: &Sizes) -> String {
    format!("{} of {} parameters", model.family.name(), count(model.parameter_count()))
}

/// What is read at once of a model from elsewhere, unless more is asked for: memory grows with it.
const HF_CONTEXT: usize = 2_048;
/// The longest context of a manifest.
const CONTEXT_MAX: usize = 1 << 20;
