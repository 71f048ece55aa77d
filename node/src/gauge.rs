//! How good a state is, measured from its checkpoint file: for `eval`, `sample` and `sim`.
//!
//! A gauge holds the run's model and its held-out data; to write text, the model is enough. It
//! believes nobody: the numbers come from the bytes on disk.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use intellect_model::{
    Device, arch,
    data::{DataError, Dataset, Entropies},
    eval::{self, EvalError, Evaluation},
    genesis,
    tokenizer::Tokenizer,
    train::{Model, TrainError},
};

use crate::{
    checkpoint::{Checkpoint, CheckpointError, Front},
    manifest::Manifest,
};

/// A run's model, with the weights of a state.
pub(crate) struct Loaded {
    manifest: Manifest,
    /// With what is loaded.
    pub(crate) model: Box<dyn Model>,
}

/// A model and what it is measured on.
pub(crate) struct Gauge {
    loaded: Loaded,
    source: Arc<Dataset>,
}

/// Why nothing could be measured.
#[derive(Debug, thiserror::Error)]
pub(crate) enum GaugeError {
    /// The data is not to be had.
    #[error(transparent)]
    Data(#[from] DataError),
    /// The model cannot be built or loaded.
    #[error(transparent)]
    Model(#[from] TrainError),
    /// The state is not to be had.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// The state cannot be measured.
    #[error(transparent)]
    Eval(#[from] EvalError),
}

impl Loaded {
    /// Builds the run's model.
    pub(crate) fn new(manifest: Manifest, device: Device) -> Result<Self, GaugeError> {
        let model = intellect_model::model(&manifest.work, device)?;
        Ok(Self { manifest, model })
    }

    /// Loads the state in `path`.
    pub(crate) fn load(&mut self, path: &Path) -> Result<Checkpoint, GaugeError> {
        let checkpoint = Front::of(path, &self.manifest)?.whole(|_| {})?;
        self.model.load(&checkpoint.theta)?;
        Ok(checkpoint)
    }
}

impl Gauge {
    /// Opens the run's data (in what is named, where it trains on files) and builds its model.
    pub(crate) fn open(
        manifest: Manifest,
        named: &[PathBuf],
        device: Device,
    ) -> Result<Self, GaugeError> {
        let source = Dataset::open(&manifest.work, manifest.run.seed, named)?;
        Self::on(manifest, source.into(), device)
    }

    /// Builds the model of a run whose data is open.
    pub(crate) fn on(
        manifest: Manifest,
        source: Arc<Dataset>,
        device: Device,
    ) -> Result<Self, GaugeError> {
        Ok(Self { loaded: Loaded::new(manifest, device)?, source })
    }

    /// What losses on this run's data are to be compared with.
    pub(crate) fn entropies(&self) -> Entropies {
        self.source.entropies()
    }

    /// Measures the weights that are drawn from the run's seed on at least `tokens` held-out
    /// tokens.
    pub(crate) fn drawn(&mut self, tokens: usize) -> Result<Evaluation, GaugeError> {
        let specs = arch::specs(&self.loaded.manifest.work.model);
        self.loaded.model.load(&genesis::weights(self.loaded.manifest.run.seed, &specs))?;
        self.evaluate(tokens)
    }

    /// Loads the state in `path`.
    pub(crate) fn load(&mut self, path: &Path) -> Result<Checkpoint, GaugeError> {
        self.loaded.load(path)
    }

    /// Loads these parameters.
    pub(crate) fn take(&mut self, theta: &[f32]) -> Result<(), GaugeError> {
        Ok(self.loaded.model.load(theta)?)
    }

    /// Measures what is loaded on at least `tokens` held-out tokens.
    pub(crate) fn evaluate(&self, tokens: usize) -> Result<Evaluation, GaugeError> {
        Ok(eval::evaluate(
            self.loaded.model.as_ref(),
            &self.source,
            &self.loaded.manifest.work,
            tokens,
        )?)
    }

    /// Bytes of text per token of what [`Gauge::evaluate`] measures on, where tokens are text.
    pub(crate) fn bytes_per_token(
        &self,
        tokenizer: &Tokenizer,
        tokens: usize,
    ) -> Result<Option<f64>, GaugeError> {
        Ok(eval::bytes_per_token(&self.source, &self.loaded.manifest.work, tokenizer, tokens)?)
    }
}

/// Held-out tokens of a measurement that is reported: enough for two digits of an excess.
pub(crate) const REPORT_TOKENS: usize = 1 << 15;
