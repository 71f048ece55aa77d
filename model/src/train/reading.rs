//! Reads a text from its begin to its end, or a part of it once for several continuations.
//!
//! A state replaces the text that was read. To judge several continuations of one text, its state is
//! forked: tensors are shared until one is written, so a fork costs little, and for a recurrent
//! family it has the same size however long the text is.

use burn_backend::ops::FloatTensorOps as _;
use burn_backend::tensor::FloatTensor;

use super::{Inner, Judged, Reader, Session, TrainBackend, TrainError};
use crate::arch::State;
use crate::ops;
use crate::params::{self, ParamsError};

/// A [`Reader`] of a session's model.
pub(super) struct Reading<'a, A: TrainBackend> {
    session: &'a Session<A>,
    state: State<Inner<A>>,
    /// The tokens in the state, for families whose state is limited.
    kept: Vec<i32>,
}

impl<'a, A: TrainBackend> Reading<'a, A> {
    /// A reader at the begin of a text.
    pub(super) fn new(session: &'a Session<A>) -> Self {
        let state = session.arch.state::<Inner<A>>(1, &session.place.device);
        Self { session, state, kept: Vec::new() }
    }

    /// The tokens that the state must read so that `tokens` are its last. If they do not all fit,
    /// the state is reset and reads the newest tokens again, three quarters of what fits: a
    /// compromise between rare resets and a long memory.
    fn unread(&mut self, tokens: &[i32]) -> Vec<i32> {
        let Session { arch, place, .. } = self.session;
        let Some(reach) = arch.reach() else { return tokens.to_vec() };
        self.kept.extend_from_slice(tokens);
        if self.kept.len() <= reach {
            return tokens.to_vec();
        }
        self.kept.drain(..self.kept.len() - (reach - reach / 4));
        self.state = arch.state::<Inner<A>>(1, &place.device);
        self.kept.clone()
    }
}

impl<A: TrainBackend> Reader for Reading<'_, A> {
    fn read(&mut self, tokens: &[i32]) -> Result<Vec<f32>, TrainError> {
        let tokens = self.unread(tokens);
        let Session { arch, parameters, work, place } = self.session;
        let mut last = Vec::new();
        // A long text is read in parts as long as the training context, which bounds the memory.
        for part in tokens.chunks(work.model.context) {
            let scores = place.over(|| {
                let ids = self.session.tokens::<Inner<A>>(part, 1)?;
                let scores = arch.extend::<Inner<A>>(parameters, ids, &mut self.state); // [T, V]
                let row = [(part.len() - 1..part.len()).into()];
                Ok(params::read::<Inner<A>>(Inner::<A>::float_slice(scores, &row))?)
            })?;
            last = scores.into_vec().map_err(|_| ParamsError::Format)?;
        }
        ops::release_memory();
        Ok(last)
    }

    fn judge(&mut self, tokens: &[i32], targets: &[i32]) -> Result<Vec<Judged>, TrainError> {
        let Session { arch, parameters, work, place } = self.session;
        let too_long = arch.reach().is_some_and(|reach| self.kept.len() + tokens.len() > reach);
        if too_long || tokens.len() != targets.len() {
            return Err(self.session.misfit(tokens.len(), 1));
        }
        if arch.reach().is_some() {
            self.kept.extend_from_slice(tokens);
        }
        let mut judged = Vec::with_capacity(targets.len());
        let parts = tokens.chunks(work.model.context).zip(targets.chunks(work.model.context));
        for (tokens, targets) in parts {
            self.session.check(targets, 1)?;
            judged.extend(place.over(|| {
                let ids = self.session.tokens::<Inner<A>>(tokens, 1)?;
                let scores = arch.extend::<Inner<A>>(parameters, ids, &mut self.state); // [T, V]
                self.session.judged(scores, targets)
            })?);
        }
        ops::release_memory();
        Ok(judged)
    }

    fn fork(&self) -> Box<dyn Reader + '_> {
        let Self { session, state, kept } = self;
        Box::new(Self { session, state: state.clone(), kept: kept.clone() })
    }
}

impl<A: TrainBackend> Session<A> {
    /// Judges these targets by the scores of their positions. // scores [N, V]
    pub(super) fn judged(
        &self,
        scores: FloatTensor<Inner<A>>,
        targets: &[i32],
    ) -> Result<Vec<Judged>, TrainError> {
        let values = |tensor| -> Result<Vec<f32>, TrainError> {
            let values = params::read::<Inner<A>>(tensor)?.into_vec();
            Ok(values.map_err(|_| ParamsError::Format)?)
        };
        if self.place.name.is_gpu() {
            // The scores are large, and what is asked of them is small.
            return Ok(Judged::read(&values(ops::judge_there::<Inner<A>>(scores, targets))?));
        }
        Ok(ops::judge(&mut values(scores)?, targets))
    }
}
