//! The weights that are measured or served: a checkpoint of a run, or a model from elsewhere.
//!
//! Finding and reading are two steps, since reading takes minutes. A [`Candidate`] is found and
//! open, and knows its sizes and its tokenizer; everything that was typed is checked against it.
//! [`Subject::load`] then reads the weights and puts them on the device. `serve` goes the same way.

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
    figures::count,
    manifest::Manifest,
    tools::{
        pace::announced,
        stored::{self, FoundState},
    },
};

/// Where the weights are that are measured.
pub(crate) enum Candidate {
    /// A checkpoint, and the manifest of its run.
    State(Box<FoundState>),
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
    /// Finds the weights that were typed. Of a checkpoint none of the numbers are read.
    pub(crate) fn find(hf: Option<&Path>, state: &StateArgs) -> Result<Self, EvaluateError> {
        if let Some(folder) = hf {
            return Ok(Self::Folder(folder.to_owned()));
        }
        Ok(Self::State(stored::find(state)?.into()))
    }

    /// The sizes of the model, with the context that is to be read at once, and the rows of a
    /// batch.
    ///
    /// Without a wish a checkpoint is read in the context of its manifest, and a model from
    /// elsewhere in at most [`HF_CONTEXT`]. A wish may go beyond that, up to what the positions of
    /// the model reach.
    ///
    /// # Errors
    /// [`EvaluateError::Context`] beyond that.
    pub(crate) fn sizes(&self, context: Option<NonZeroUsize>) -> Result<Work, EvaluateError> {
        let (mut work, default) = match self {
            Self::State(found) => (found.manifest.work.clone(), usize::MAX),
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
    ///
    /// # Errors
    /// There is no such file, or it is not the tokenizer that the manifest names by its digest.
    pub(crate) fn texts(&self, named: Option<&Path>) -> Result<Texts, EvaluateError> {
        match self {
            Self::Folder(folder) => Ok(text::open(folder, named)?),
            Self::State(found) => {
                let FoundState { path, manifest, .. } = &**found;
                let file = stored::tokenizer_file(named, path, manifest);
                let tokenizer = Tokenizer::of(&manifest.work.data, file.as_deref())?;
                Ok(Texts { tokenizer, vocabulary: manifest.vocabulary().copied() })
            }
        }
    }
}

impl Subject {
    /// Reads the weights. The model has these sizes. The parameters are in memory twice for a
    /// moment: as they were read, and in the model.
    pub(crate) fn load(
        origin: Candidate,
        work: Work,
        device: Device,
    ) -> Result<Self, EvaluateError> {
        let (theta, mut lines) = match origin {
            Candidate::Folder(folder) => {
                let line = format!("model          {} in {}", named(&work.model), folder.display());
                (import::read(&folder)?.theta, vec![line])
            }
            Candidate::State(found) => {
                let Manifest { run, id, .. } = &found.manifest;
                let whose = format!("run            {id} ({})", run.name);
                let read = || found.read(Front::theta);
                let (table, theta) = announced("reading the weights", read)?;
                let state = format!(
                    "state          {} of epoch {}, {} tokens committed",
                    table.state().hex(),
                    table.header().epoch,
                    count(table.header().tokens)
                );
                (theta, vec![whose, state])
            }
        };
        lines.push(format!("weights        {}", stored::weights(&theta)?));
        let mut model = intellect_model::model(&work, device)?;
        model.load(&theta)?;
        Ok(Self { model, work, lines })
    }
}

/// The family and the size of a model.
fn named(model: &Sizes) -> String {
    format!("{} of {} parameters", model.family.name(), count(model.parameter_count()))
}

/// What is read at once of a model from elsewhere, unless more is asked for: memory grows with it.
const HF_CONTEXT: usize = 2_048;
/// The longest context of a manifest. A family that keeps a state of fixed size could read on
/// without an end, but memory for a row grows with it.
const CONTEXT_MAX: usize = 1 << 20;
