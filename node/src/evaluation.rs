//! Measures how good a state is, from its checkpoint file: for `eval`, `sample` and `sim`.
//!
//! An evaluator holds the run's model and its held-out data; to write text, the model is enough. It trusts no report:
//! the numbers come from the bytes on disk.
//!
//! All commands measure the same way, with the same held-out tokens for a given number of them, so
//! their losses can be compared. A device may round in another order, which changes the last
//! digits.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use intellect_model::{
    Device, arch,
    config::Work,
    data::{DataError, Dataset, Entropies},
    eval::{self, EvalError, Evaluation},
    genesis,
    train::{Model, TrainError},
};

use crate::{
    checkpoint::{Checkpoint, CheckpointError, Front},
    manifest::Manifest,
};

/// The model of a run and the data that it is measured on.
pub(crate) struct Evaluator {
    /// The manifest, which names the model's sizes and the run's genesis.
    manifest: Manifest,
    /// The model, with the weights that were loaded last.
    model: Box<dyn Model>,
    /// The data, whose held-out part is read.
    source: Arc<Dataset>,
}

/// Why a state could not be measured.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EvaluationError {
    /// The run's data cannot be opened.
    #[error(transparent)]
    Data(#[from] DataError),
    /// The model cannot be built or loaded.
    #[error(transparent)]
    Model(#[from] TrainError),
    /// The checkpoint cannot be read.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// The measurement itself failed.
    #[error(transparent)]
    Eval(#[from] EvalError),
}

/// The model of a run, with these parameters.
pub(crate) fn loaded(
    work: &Work,
    theta: &[f32],
    device: Device,
) -> Result<Box<dyn Model>, EvaluationError> {
    let mut model = intellect_model::model(work, device)?;
    model.load(theta)?;
    Ok(model)
}

impl Evaluator {
    /// Opens the run's data, in the files of `named` if it needs files, and builds its model.
    pub(crate) fn open(
        manifest: Manifest,
        named: &[PathBuf],
        device: Device,
    ) -> Result<Self, EvaluationError> {
        let source = Dataset::open(&manifest.work, manifest.run.seed, named)?;
        Self::on(manifest, source.into(), device)
    }

    /// Builds the model of a run whose data is open.
    pub(crate) fn on(
        manifest: Manifest,
        source: Arc<Dataset>,
        device: Device,
    ) -> Result<Self, EvaluationError> {
        let model = intellect_model::model(&manifest.work, device)?;
        Ok(Self { manifest, model, source })
    }

    /// What the losses on this run's data are to be compared with.
    pub(crate) fn entropies(&self) -> Entropies {
        self.source.entropies()
    }

    /// Measures the weights that are drawn from the run's seed, on `tokens` held-out tokens, as
    /// [`eval::evaluate`] does.
    pub(crate) fn drawn(&mut self, tokens: usize) -> Result<Evaluation, EvaluationError> {
        let specs = arch::specs(&self.manifest.work.model);
        self.model.load(&genesis::weights(self.manifest.run.seed, &specs))?;
        self.evaluate(tokens)
    }

    /// Loads the state of the checkpoint at `path`.
    pub(crate) fn load(&mut self, path: &Path) -> Result<Checkpoint, EvaluationError> {
        let checkpoint = Front::of(path, &self.manifest)?.whole(|_| {})?;
        self.model.load(&checkpoint.theta)?;
        Ok(checkpoint)
    }

    /// Loads these parameters into the model.
    pub(crate) fn take(&mut self, theta: &[f32]) -> Result<(), EvaluationError> {
        Ok(self.model.load(theta)?)
    }

    /// Measures the loaded weights on `tokens` held-out tokens, as [`eval::evaluate`] does.
    pub(crate) fn evaluate(&self, tokens: usize) -> Result<Evaluation, EvaluationError> {
        Ok(eval::evaluate(self.model.as_ref(), &self.source, &self.manifest.work, tokens)?)
    }
}

/// Held-out tokens of a reported measurement: enough for two digits of an excess.
pub(crate) const REPORT_TOKENS: usize = 1 << 15;
