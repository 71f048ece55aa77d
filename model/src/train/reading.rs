//! Reads a text from its begin to its end, or a part of it once for several continuations.
//!
//! A state replaces the text that was read. To judge several continuations of one text, its state is
//! forked: tensors are shared until one is written, so a fork costs little, and for a recurrent
//! family it has the same size however long the text is.

use burn_backend::tensor::FloatTensor;

use super::{Inner, Judged, Reader, Session, TrainBackend, TrainError};
use crate::arch::{Keep, Scored, State};
use crate::ops;
use crate::params;

/// A [`Reader`] of a session's model.
pub(super) struct Reading<'a, A: TrainBackend> {
    /// The model that reads, with its weights.
    session: &'a Session<A>,
    /// What the family keeps of the text, for one sequence.
    state: State<Inner<A>>,
    /// How the state keeps what it has read.
    keep: Keep,
    /// The tokens in the state, for families whose state is limited; else it stays empty.
    kept: Vec<i32>,
    /// The number of tokens that are not in the state any more.
    forgotten: usize,
}

impl<'a, A: TrainBackend> Reading<'a, A> {
    /// A reader at the begin of a text.
    pub(super) fn new(session: &'a Session<A>, keep: Keep) -> Self {
        let state = session.arch.state::<Inner<A>>(1, keep, &session.place.device);
        Self { session, state, keep, kept: Vec::new(), forgotten: 0 }
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
        let over = self.kept.len() - (reach - reach / 4);
        self.kept.drain(..over);
        self.forgotten += over;
        self.state = arch.state::<Inner<A>>(1, self.keep, &place.device);
        self.kept.clone()
    }
}

impl<A: TrainBackend> Reader for Reading<'_, A> {
    fn read(&mut self, tokens: &[i32], scored: Scored) -> Result<Vec<f32>, TrainError> {
        let count = scored.count(tokens.len());
        let tokens = self.unread(tokens);
        self.session.read_on(&tokens, count, &mut self.state)
    }

    fn forgotten(&self) -> usize {
        self.forgotten
    }

    fn judge(&mut self, tokens: &[i32], targets: &[i32]) -> Result<Vec<Judged>, TrainError> {
        let Session { arch, parameters, work, place } = self.session;
        // A judgement loses no token, so it is refused where `read` would reset the state.
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
                let all = Scored::All;
                let scores = arch.extend::<Inner<A>>(parameters, ids, all, &mut self.state);
                let Some(scores) = scores else { return Ok(Vec::new()) };
                self.session.judged(scores, targets)
            })?);
        }
        ops::release_memory();
        Ok(judged)
    }

    fn fork(&self) -> Box<dyn Reader + '_> {
        let Self { session, state, keep, kept, forgotten } = self;
        let (state, kept) = (state.clone(), kept.clone());
        Box::new(Self { session, state, keep: *keep, kept, forgotten: *forgotten })
    }
}

impl<A: TrainBackend> Session<A> {
    /// Judges these targets by the scores of their positions. // scores [N, V]
    pub(super) fn judged(
        &self,
        scores: FloatTensor<Inner<A>>,
        targets: &[i32],
    ) -> Result<Vec<Judged>, TrainError> {
        if self.place.name.is_gpu() {
            // The scores are large, and what is asked of them is small.
            let judged = ops::judge_there::<Inner<A>>(scores, targets);
            return Ok(Judged::read(&params::values::<Inner<A>>(judged)?));
        }
        Ok(ops::judge(&mut params::values::<Inner<A>>(scores)?, targets))
    }
}
