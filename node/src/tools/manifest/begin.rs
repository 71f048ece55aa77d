//! What a new run begins with: nothing, a model from elsewhere, or the newest state of another run.
//!
//! Published weights are written once, in the order and the form of a checkpoint, and only then
//! their digest is known that the manifest names. They have a temporary name until the manifest is
//! complete ([`Unpublished`]), and vanish with this value if it is not. A model from elsewhere is
//! copied in pieces, so its size does not matter; a state of a run is in memory as a whole.
//!
//! A run that goes on is a new run: it has another RunId, counts epochs and tokens anew, and has no
//! votes and no momentum of the old one. What it takes over are settings and weights, and it begins
//! where the schedule of the old one would go on.

use std::path::Path;

use intellect_model::{
    config::{Model, Source, Train, Work},
    hf::import::StoredModel,
    schedule,
};
use intellect_protocol::{
    access::admit::Level,
    base::id::PeerId,
    manifest::{Run, Trust},
};

use super::OfflineError;
use crate::{
    checkpoint::Front,
    figures::count,
    manifest::{Draft, DraftError, Manifest},
    store::{StoreError, unpublished::Unpublished},
    tools::{pace::announced, stored},
};

/// With which weights a new run begins.
pub(super) enum Begin {
    /// Weights that each peer draws from the seed.
    Anew,
    /// The weights of a trained model from elsewhere.
    Model {
        /// Its parameters, in the order of this program.
        weights: Box<Weights>,
        /// Whether its head was its embedding; here the head becomes a copy of it.
        untied: bool,
    },
    /// The newest state of another run.
    After(Box<Before>),
}

/// Weights that a run is to begin with.
pub(super) struct Weights {
    /// The model whose parameters they are.
    pub(super) model: Model,
    /// Their file, which is removed unless it is published.
    pub(super) file: Unpublished,
}

/// A run that a new one continues.
pub(super) struct Before {
    /// Its manifest, as the folder of a node has it.
    manifest: Manifest,
    /// The epoch of its newest state.
    epoch: u64,
    /// Tokens that it has committed.
    tokens: u64,
    /// The weights of that newest state.
    weights: Weights,
}

impl Begin {
    /// Reads the model at `path`, and writes its weights piece by piece for the file `out`.
    pub(super) fn with_model(path: &Path, out: &Path) -> Result<Self, OfflineError> {
        let stored = StoredModel::open(path)?;
        let (model, untied) = (stored.model().clone(), stored.is_untied());
        let parameters = model.parameter_count();
        let file = Unpublished::write::<OfflineError>(out, parameters, |take| stored.stream(take))?;
        Ok(Self::Model { weights: Weights { model, file }.into(), untied })
    }

    /// The weights that are published with the manifest, if there are any.
    pub(super) fn weights(&self) -> Option<&Weights> {
        match self {
            Self::Anew => None,
            Self::Model { weights, .. } => Some(weights),
            Self::After(before) => Some(&before.weights),
        }
    }

    /// Sentences about what a person may not expect of the run. They are printed once the weights
    /// have their name.
    pub(super) fn notes(&self, manifest: &Manifest) -> Vec<String> {
        match self {
            Self::Anew => Vec::new(),
            Self::Model { weights, untied } => {
                let separate =
                    "its head was its embedding: from here on the two are trained separately";
                let separate = untied.then(|| separate.to_owned());
                let (context, most) = (manifest.work.model.context, weights.model.context);
                let shorter = (context < most).then(|| {
                    format!(
                        "it reads {context} tokens at once here, and can read {most}: --set \
                         model.context={most} asks for them all"
                    )
                });
                separate.into_iter().chain(shorter).collect()
            }
            Self::After(before) => vec![
                format!(
                    "goes on after epoch {} of run {} ({}), with {} tokens committed",
                    before.epoch,
                    before.manifest.id,
                    before.manifest.run.name,
                    count(before.tokens)
                ),
                "the new run counts epochs and tokens from 0, and its momentum begins at zero"
                    .into(),
            ],
        }
    }
}

impl Weights {
    /// Checks a model against its weights: only the context may differ from theirs. The context is
    /// how much is read at once, and no parameter depends on it.
    pub(super) fn fits(&self, model: &Model) -> Result<(), OfflineError> {
        if (Model { context: self.model.context, ..model.clone() }) != self.model {
            return Err(OfflineError::AnotherModel);
        }
        Ok(())
    }
}

impl Before {
    /// The newest checkpoint of the only run of a data folder that fits. The node there may be
    /// running. The weights are written for the file `out`.
    ///
    /// # Errors
    /// The folder has no such run or no state, the state is damaged, or the disk is full.
    pub(super) fn find(folder: &Path, run: Option<&str>, out: &Path) -> Result<Self, OfflineError> {
        let found = stored::newest(folder.to_owned(), run)?;
        let manifest = found.manifest.clone();
        let (table, theta) = announced("reading the weights", || found.read(Front::theta))?;
        let (epoch, tokens) = (table.header().epoch, table.header().tokens);
        let write =
            || Unpublished::write::<StoreError>(out, theta.len() as u64, |take| take(&theta));
        let file = announced("writing the weights", write)?;
        let weights = Weights { model: manifest.work.model.clone(), file };
        Ok(Self { manifest, epoch, tokens, weights })
    }

    /// The settings of the new run: those of the old one for its remaining tokens, at another
    /// `level` if one is given. `sets` says whether the person sets a key.
    ///
    /// The seed stays, since it determines the rules of a synthetic source. The order of the data
    /// changes, since it depends on the run.
    ///
    /// # Errors
    /// [`OfflineError::Finished`] and [`OfflineError::Falling`]: the settings of the old run do not
    /// say how to go on, and the message names those that the person has to give.
    pub(super) fn draft(
        &self,
        organiser: PeerId,
        level: Option<Level>,
        sets: impl Fn(&str) -> bool,
    ) -> Result<Draft, OfflineError> {
        let Manifest { run, work, id, .. } = &self.manifest;
        let (run_id, tokens) = (*id, self.tokens);
        let stop_tokens = match run.stop_tokens {
            0 => 0,
            stop if stop > tokens => stop - tokens,
            _ if sets("stop_tokens") => 0,
            stop => return Err(OfflineError::Finished { run: run_id, tokens: count(stop) }),
        };
        let train = match schedule::after(&work.train, tokens) {
            Some(train) => train,
            None if sets("train.lr") => flat(&work.train),
            None => {
                let lr = schedule::lr(&work.train, tokens, u64::MAX);
                return Err(OfflineError::Falling { run: run_id, lr });
            }
        };
        let mut data = work.data.clone();
        if let Source::Mix { anneal_from, .. } = &mut data.source {
            // A mix that changes does so earlier, by the tokens that are committed.
            *anneal_from = anneal_from.saturating_sub(tokens);
        }
        let level = level.unwrap_or(run.trust.level);
        let trust = Trust { level, ..run.trust };
        let run = Run { organiser, stop_tokens, trust, ..run.clone() };
        let work = Work { train, data, model: work.model.clone() };
        Ok(Draft::new(&run, &work).map_err(DraftError::from)?)
    }
}

/// A schedule at the peak from the beginning on; with `decay_tokens` it would fall at once.
fn flat(train: &Train) -> Train {
    Train { warmup_tokens: 0, stable_tokens: 0, decay_tokens: 0, ..train.clone() }
}
