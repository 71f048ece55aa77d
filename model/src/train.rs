//! The inner loop: consecutive AdamW steps on local weights, behind a trait without type
//! parameters.
//!
//! burn's tensors are generic over a backend, but the code that coordinates peers must not be. So
//! everything that needs the backend's type is a `Session`, and other crates see it as [`Model`]
//! (weights in and out, logits, loss) or [`Trainer`] (a model and a step).
//!
//! A step is a pure function of the weights, the moments, the seed of the stream, the number of the
//! step and the learning rate. It depends neither on the number of threads nor on the x86
//! processor, if that has FMA (docs/adr/0014). The batch is cut into micro-batches where memory
//! requires it. The gradients of the parts are weighted by their share, so that the sum is the
//! gradient of the whole batch up to rounding.
//!
//! Adam's moments stay when the weights are replaced ([`Model::load`]): an outer step moves a
//! peer's weights, but its estimate of their gradients' scale stays valid.

pub(crate) mod check;
mod group;
mod memory;
mod reading;

pub use self::group::ReaderGroup;
pub use self::memory::{fits_gpu, held_bytes, held_on_gpu, micro_batch};
pub use crate::ops::Judged;

use std::ops::Range;
use std::sync::Arc;

use burn_backend::tensor::{FloatTensor, IntTensor};
use burn_backend::{AutodiffBackend, Backend, TensorData};
use thiserror::Error;

use crate::arch::{Arch, Keep, Rows, Scored, State};
use crate::config::Work;
use crate::data::{Batch, DataError, Dataset, Stream};
use crate::device::DeviceError;
use crate::device::watch::Watch;
use crate::ops::{self, CrossEntropy, Documents, FusedOps, ZForm, ZLoss};
use crate::optim::{OptimError, Optimizer};
use crate::params::{self, ParamsError};
use crate::schedule;
use group::Grouped;
use reading::Reading;

/// A model on a device, whose backend this trait hides.
pub trait Model: Send {
    /// Replaces the weights, in canonical order. A trainer's moments stay.
    ///
    /// # Errors
    /// [`TrainError::Params`] if `theta` has another length; [`TrainError::Lost`]
    fn load(&mut self, theta: &[f32]) -> Result<(), TrainError>;

    /// Copies the weights out, in canonical order. On a GPU it waits for all that was begun.
    ///
    /// # Errors
    /// [`TrainError::Params`] if `theta` has another length; [`TrainError::Lost`]
    fn store(&self, theta: &mut [f32]) -> Result<(), TrainError>;

    /// Scores of the token after each of `tokens`, which are `sequences` rows of equal length, at
    /// most the context long.
    /// // tokens [B·T]; result [B·T, V]
    ///
    /// # Errors
    /// [`TrainError::Tokens`], [`TrainError::Params`]
    fn logits(&self, tokens: &[i32], sequences: usize) -> Result<Vec<f32>, TrainError>;

    /// How likely each of `targets` is, as the token after each of `tokens`, which are rows as in
    /// [`logits`](Self::logits). // tokens, targets and result [B·T]
    ///
    /// # Errors
    /// [`TrainError::Tokens`], [`TrainError::Params`]
    fn judge(
        &self,
        tokens: &[i32],
        targets: &[i32],
        sequences: usize,
    ) -> Result<Vec<Judged>, TrainError>;

    /// Mean cross entropy of a batch in nats per token, without the z-loss.
    ///
    /// # Errors
    /// [`TrainError::Tokens`], [`TrainError::Params`]
    fn loss(&self, batch: &Batch) -> Result<f64, TrainError>;

    /// A reader at the beginning of a text, which keeps what it has read as `keep` says.
    fn reader(&self, keep: Keep) -> Box<dyn Reader + '_>;

    /// A group of texts that are continued together, empty at first; `keep` as for a reader.
    fn group(&self, keep: Keep) -> Box<dyn ReaderGroup + '_>;
}

/// Reads one text, token after token. It keeps a state instead of the text, where the family has
/// one.
pub trait Reader {
    /// Reads `tokens`, which continue those read before. Returns the scores of the token after each
    /// of the last R, those that are to be scored. // [R, V]
    ///
    /// # Errors
    /// [`TrainError::Tokens`], [`TrainError::Params`]; the text must then be read again from its
    /// start.
    fn read(&mut self, tokens: &[i32], scored: Scored) -> Result<Vec<f32>, TrainError>;

    /// How many of the first tokens of the text do not count any more, because the family has
    /// positions and the text is longer than they are.
    fn forgotten(&self) -> usize;

    /// Reads `tokens`, which continue those read before, and judges each of `targets` as the token
    /// after the one at its place. Nothing that was read is forgotten for it, as in
    /// [`read`](Self::read): what does not fit is refused.
    ///
    /// # Errors
    /// [`TrainError::Tokens`], [`TrainError::Params`]; the text must then be read again from its
    /// start.
    fn judge(&mut self, tokens: &[i32], targets: &[i32]) -> Result<Vec<Judged>, TrainError>;

    /// A second reader of the same text, so that it is read once for all that may follow it.
    fn fork(&self) -> Box<dyn Reader + '_>;
}

/// A model with the data and the optimiser that train it.
pub trait Trainer: Send {
    /// The model. Its weights may be replaced; Adam's moments stay.
    fn model(&mut self) -> &mut dyn Model;

    /// Takes inner step number `step` of a stream. `tokens` is the position in the schedule before
    /// the step: the tokens that the run has committed plus those that this peer has trained since.
    ///
    /// With the same weights, moments, device and micro-batch, the same arguments give the same
    /// bits, so a step can be replayed.
    ///
    /// # Errors
    /// Any of [`TrainError`]. After [`TrainError::Lost`] the weights and moments are not to be used
    /// any more; after all others they are as before.
    fn step(&mut self, stream: &Stream, step: u64, tokens: u64) -> Result<Step, TrainError>;
}

/// What an inner step measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    /// Tokens in the batch of the step: batch × context, whatever the micro-batch.
    pub tokens: u64,
    /// Mean loss over the batch before the step, nats per token, with the z-loss.
    pub loss: f64,
    /// Global norm of the gradient before clipping.
    pub grad_norm: f64,
    /// The learning rate that the schedule gave.
    pub learning_rate: f64,
}

/// Why a call to a model or trainer failed. What the caller gave is wrong in `MicroBatch` and
/// `Tokens`, its files in `Data`, the machine in `Device` and `Lost`. [`OptimError::NotFinite`]
/// says that the training has diverged.
#[derive(Debug, Error)]
pub enum TrainError {
    /// The device cannot be used, or computes wrong numbers. Another device has to be chosen.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The device failed while it computed, so the contents of its memory cannot be trusted.
    /// Nothing goes on in this process: what is agreed lies on the disk.
    #[error(
        "{device} failed ({what}), and nothing that it computed since is used. If it lacks memory, \
         choose a smaller --micro-batch, else --device cpu"
    )]
    Lost {
        /// The device as it is named in `--device`.
        device: crate::Device,
        /// The first error that it reported.
        what: String,
    },
    /// The local setting of the micro-batch is 0. Has the sequences of a whole batch, the largest useful value.
    #[error("a micro-batch has at least one sequence: choose 1 to {0}")]
    MicroBatch(usize),
    /// The model cannot read these tokens: rows that are empty, too long or unequal, or an unknown
    /// token.
    #[error(
        "{tokens} tokens in {sequences} rows do not fit a model of {context} positions \
         and {vocab} symbols"
    )]
    Tokens {
        /// How many tokens the caller gave.
        tokens: usize,
        /// The number of rows that they make up.
        sequences: usize,
        /// The most tokens of a row: the model's context.
        context: usize,
        /// The number of symbols; every token is below it.
        vocab: usize,
    },
    /// The batch could not be read from its files.
    #[error(transparent)]
    Data(#[from] DataError),
    /// The weights could not be copied to or from the device.
    #[error(transparent)]
    Params(#[from] ParamsError),
    /// The optimiser refused the step, since the gradient is not finite.
    #[error(transparent)]
    Optim(#[from] OptimError),
}

/// A backend that trains: it has the fused operators with and without gradients.
pub(crate) trait TrainBackend:
    FusedOps + AutodiffBackend<InnerBackend: FusedOps, Gradients: Send>
{
}

impl<A: FusedOps + AutodiffBackend<InnerBackend: FusedOps>> TrainBackend for A {}

/// The backend without gradients, which holds the weights.
pub(crate) type Inner<A> = <A as AutodiffBackend>::InnerBackend;

/// One tensor per parameter, in canonical order.
pub(crate) type Tensors<A> = Vec<FloatTensor<Inner<A>>>;

/// The device on which a session computes. Clones refer to the same device.
#[derive(Clone)]
pub(crate) struct Place<A: TrainBackend> {
    /// The device, as burn's backend names it.
    pub(crate) device: Device<A>,
    /// Its name for people, as in `--device`.
    name: crate::Device,
    /// Notes failures; shared by all clones, so that one failure stops all.
    watch: Arc<Watch>,
}

type Device<A> = burn_backend::tensor::Device<A>;

impl<A: TrainBackend> Place<A> {
    /// A device under its name. Only GPUs are watched for failures.
    pub(crate) fn new(device: Device<A>, name: crate::Device) -> Self {
        let watch = if name.is_gpu() { Watch::new() } else { Watch::idle() };
        Self { device, name, watch: Arc::new(watch) }
    }

    /// Runs `work` on the device. After a failure nothing runs any more, because the contents of
    /// the device's memory are undefined then.
    pub(crate) fn over<T>(
        &self,
        work: impl FnOnce() -> Result<T, TrainError>,
    ) -> Result<T, TrainError> {
        let sync = || A::sync(&self.device).map_err(|error| error.to_string());
        let lost = |what| TrainError::Lost { device: self.name, what };
        self.watch.over(sync, work).map_err(lost)?
    }
}

/// A model on a device, with its weights.
pub(crate) struct Session<A: TrainBackend> {
    /// The architecture, which computes with the weights.
    arch: Arch,
    /// The manifest's settings of model, training and data.
    work: Work,
    /// The device that holds the weights.
    place: Place<A>,
    /// The weights, as they are now.
    parameters: Tensors<A>,
}

/// A session with its optimiser and data.
pub(crate) struct Learner<A: TrainBackend> {
    /// The model on its device, which every step changes.
    session: Session<A>,
    /// Adam's moments, which stay from epoch to epoch.
    optimizer: Optimizer<Inner<A>>,
    /// Where the tokens of each step come from.
    source: Arc<Dataset>,
    /// Sequences that are computed at a time, 1 to the whole batch.
    micro_batch: usize,
}

impl<A: TrainBackend> Session<A> {
    /// A session whose weights are zero until some are loaded.
    pub(crate) fn new(work: &Work, place: Place<A>) -> Result<Self, TrainError> {
        let arch = Arch::new(&work.model);
        let shapes = arch.shapes();
        let zeros = vec![0.0; params::count(&shapes)];
        let upload = || Ok(params::upload::<Inner<A>>(&shapes, &zeros, &place.device)?);
        let parameters = place.over(upload)?;
        Ok(Self { arch, work: work.clone(), place, parameters })
    }

    /// Loss and gradients of one micro-batch, multiplied by its share of the batch.
    fn gradients(&self, batch: &Batch, share: f64) -> Result<(f64, Tensors<A>), TrainError> {
        let track = |parameter: &FloatTensor<Inner<A>>| {
            A::float_set_require_grad(A::from_inner(parameter.clone()), true)
        };
        let leaves: Vec<_> = self.parameters.iter().map(track).collect();
        let weight = self.work.train.z_loss as f32;
        let loss = self.loss_of::<A>(&leaves, batch, ZLoss { weight, form: ZForm::Max })?;
        let loss = A::float_mul_scalar(loss, share.into());
        let value = scalar::<Inner<A>>(A::inner(loss.clone()))?;
        let mut gradients = A::backward(loss);
        #[expect(clippy::expect_used, reason = "every parameter takes part in every loss")]
        let gradient =
            |leaf| A::grad_remove(leaf, &mut gradients).expect("a gradient for every parameter");
        Ok((value, leaves.iter().map(gradient).collect()))
    }

    /// The loss of a batch under these parameters: tracked ones in training, plain ones in a
    /// measurement.
    fn loss_of<B: FusedOps + Backend<Device = Device<A>>>(
        &self,
        parameters: &[FloatTensor<B>],
        batch: &Batch,
        z_loss: ZLoss,
    ) -> Result<FloatTensor<B>, TrainError> {
        let inputs = self.tokens::<B>(&batch.inputs, batch.sequences)?;
        self.check(&batch.targets, batch.sequences)?;
        assert!(
            batch.documents.is_empty() || batch.documents.len() == batch.inputs.len(),
            "a document for every position"
        );
        let logits = self.arch.logits::<B>(parameters, inputs, &rows(batch));
        let targets = batch.targets.as_slice().into();
        Ok(B::run(CrossEntropy { targets, z_loss }, [logits]))
    }

    /// The scores of the token after each of `tokens`, on the device. // [B·T, V]
    fn scores(
        &self,
        tokens: &[i32],
        sequences: usize,
    ) -> Result<FloatTensor<Inner<A>>, TrainError> {
        let inputs = self.tokens::<Inner<A>>(tokens, sequences)?;
        let rows = Rows::whole(sequences, tokens.len() / sequences);
        Ok(self.arch.logits::<Inner<A>>(&self.parameters, inputs, &rows))
    }

    /// Reads tokens that follow the state of one text, which is advanced, and returns the scores of
    /// the token after each of the last `count`. A long text is read in parts as long as the
    /// training context, which bounds the memory. // [R, V]
    fn read_on(
        &self,
        tokens: &[i32],
        count: usize,
        state: &mut State<Inner<A>>,
    ) -> Result<Vec<f32>, TrainError> {
        let (mut scores, mut left) = (Vec::new(), tokens.len());
        for part in tokens.chunks(self.work.model.context) {
            left -= part.len();
            let scored = Scored::last(count.saturating_sub(left), part.len());
            let of_part = self.place.over(|| {
                let ids = self.tokens::<Inner<A>>(part, 1)?;
                let found = self.arch.extend::<Inner<A>>(&self.parameters, ids, scored, state);
                Ok(found.map(params::values::<Inner<A>>).transpose()?) // [R, V]
            })?;
            scores.extend(of_part.unwrap_or_default());
        }
        ops::release_memory();
        Ok(scores)
    }

    /// Tokens on the device, checked against the model. // [B·T]
    fn tokens<B: Backend<Device = Device<A>>>(
        &self,
        tokens: &[i32],
        sequences: usize,
    ) -> Result<IntTensor<B>, TrainError> {
        self.check(tokens, sequences)?;
        let data = TensorData::new(tokens.to_vec(), [tokens.len()]);
        Ok(B::int_from_data(data, &self.place.device))
    }

    /// Refuses what would read beyond the embedding or the positions: on a GPU no kernel would
    /// notice.
    fn check(&self, tokens: &[i32], sequences: usize) -> Result<(), TrainError> {
        let (context, vocab) = (self.work.model.context, self.work.model.vocab);
        let whole = sequences > 0 && tokens.len().is_multiple_of(sequences);
        let fits = whole && (1..=context).contains(&(tokens.len() / sequences));
        let known = |token: &i32| usize::try_from(*token).is_ok_and(|token| token < vocab);
        if !fits || !tokens.iter().all(known) {
            return Err(self.misfit(tokens.len(), sequences));
        }
        Ok(())
    }

    /// The error of tokens that do not fit, with the bounds that they had to keep.
    fn misfit(&self, tokens: usize, sequences: usize) -> TrainError {
        let (context, vocab) = (self.work.model.context, self.work.model.vocab);
        TrainError::Tokens { tokens, sequences, context, vocab }
    }
}

impl<A: TrainBackend> Model for Session<A> {
    fn load(&mut self, theta: &[f32]) -> Result<(), TrainError> {
        let (shapes, device) = (self.arch.shapes(), &self.place.device);
        let upload = || Ok(params::upload::<Inner<A>>(&shapes, theta, device)?);
        self.parameters = self.place.over(upload)?;
        Ok(())
    }

    fn store(&self, theta: &mut [f32]) -> Result<(), TrainError> {
        self.place.over(|| Ok(params::download::<Inner<A>>(&self.parameters, theta)?))
    }

    fn logits(&self, tokens: &[i32], sequences: usize) -> Result<Vec<f32>, TrainError> {
        let scores = || self.scores(tokens, sequences);
        let logits = self.place.over(|| Ok(params::values::<Inner<A>>(scores()?)?))?;
        ops::release_memory();
        Ok(logits)
    }

    fn judge(
        &self,
        tokens: &[i32],
        targets: &[i32],
        sequences: usize,
    ) -> Result<Vec<Judged>, TrainError> {
        self.check(targets, sequences)?;
        let judged = self.place.over(|| self.judged(self.scores(tokens, sequences)?, targets))?;
        ops::release_memory();
        Ok(judged)
    }

    fn loss(&self, batch: &Batch) -> Result<f64, TrainError> {
        let z_loss = ZLoss { weight: 0.0, form: ZForm::Max };
        let loss = || self.loss_of::<Inner<A>>(&self.parameters, batch, z_loss);
        let loss = self.place.over(|| Ok(scalar::<Inner<A>>(loss()?)?))?;
        ops::release_memory();
        Ok(loss)
    }

    fn reader(&self, keep: Keep) -> Box<dyn Reader + '_> {
        Box::new(Reading::new(self, keep))
    }

    fn group(&self, keep: Keep) -> Box<dyn ReaderGroup + '_> {
        Box::new(Grouped::new(self, keep))
    }
}

impl<A: TrainBackend> Learner<A> {
    /// A learner with cold moments. Without `micro_batch` the whole batch is one part.
    pub(crate) fn new(
        work: &Work,
        source: Arc<Dataset>,
        place: Place<A>,
        micro_batch: Option<usize>,
    ) -> Result<Self, TrainError> {
        let batch = work.train.batch;
        let micro_batch = micro_batch.unwrap_or(batch).min(batch);
        if micro_batch == 0 {
            return Err(TrainError::MicroBatch(batch));
        }
        let session = Session::new(work, place)?;
        let groups = session.arch.groups();
        Ok(Self { session, optimizer: Optimizer::new(&work.train, groups), source, micro_batch })
    }

    /// Loss and gradients of a whole batch: parts of `micro_batch` rows, each weighted by its share
    /// and added in their order.
    fn accumulate(&self, stream: &Stream, step: u64) -> Result<(f64, Tensors<A>), TrainError> {
        let batch = self.session.work.train.batch;
        let part = |rows: Range<usize>| {
            let share = rows.len() as f64 / batch as f64;
            self.session.gradients(&self.source.batch(stream, step, rows)?, share)
        };
        let (mut loss, mut sums) = part(0..self.micro_batch)?;
        for start in (self.micro_batch..batch).step_by(self.micro_batch) {
            let (more, gradients) = part(start..batch.min(start + self.micro_batch))?;
            loss += more;
            sums = Inner::<A>::add_all(sums, gradients);
        }
        Ok((loss, sums))
    }
}

impl<A: TrainBackend> Trainer for Learner<A> {
    fn model(&mut self) -> &mut dyn Model {
        &mut self.session
    }

    fn step(&mut self, stream: &Stream, step: u64, tokens: u64) -> Result<Step, TrainError> {
        let work = &self.session.work;
        let in_step = work.tokens_per_step();
        let steps = self.optimizer.steps() + 1;
        let learning_rate = schedule::lr(&work.train, tokens.saturating_add(in_step), steps);
        let place = self.session.place.clone();
        let (loss, grad_norm) = place.over(|| {
            let (loss, gradients) = self.accumulate(stream, step)?;
            let parameters = &mut self.session.parameters;
            Ok((loss, self.optimizer.step(parameters, gradients, learning_rate)?))
        })?;
        // Zeros are what a buffer without any writes yields. Only the loss may be 0: of text that
        // the model knows by heart.
        if place.name.is_gpu() && (loss < 0.0 || grad_norm <= 0.0) {
            let what = format!("a step of loss {loss} and norm {grad_norm}");
            return Err(TrainError::Lost { device: place.name, what });
        }
        Ok(Step { tokens: in_step, loss, grad_norm, learning_rate })
    }
}

/// The rows and the documents of a batch.
fn rows(batch: &Batch) -> Rows {
    let whole = Rows::whole(batch.sequences, batch.context);
    if batch.documents.is_empty() {
        return whole;
    }
    Rows { documents: Documents::packed(&batch.documents, batch.context), ..whole }
}

/// The value of a tensor of one element.
fn scalar<B: Backend>(tensor: FloatTensor<B>) -> Result<f64, ParamsError> {
    let values = params::values::<B>(tensor)?;
    values.first().map(|&value| f64::from(value)).ok_or(ParamsError::Format)
}

#[cfg(test)]
mod tests;
