//! Several texts that are continued together, as a server does: one token of each is one pass over
//! the weights, in every family but GoldFinch.
//!
//! Each text has a state of its own, so that texts may begin and end between any two tokens. For a
//! pass the states of a recurrent family are stacked; in a Llama each text attends to its own cache,
//! and only the products with weights are shared. GoldFinch recomputes its keys from the cache of
//! each text, so its texts are read one after the other.

use std::collections::BTreeMap;

use super::{Inner, Session, TrainBackend, TrainError};
use crate::arch::{Keep, Scored, State};
use crate::ops;
use crate::params;

/// Texts that are read by the same weights. Nothing that was read is forgotten: what does not fit is
/// refused. After an error a text must be ended, or read again from its begin.
pub trait ReaderGroup {
    /// Begins an empty text, and returns its number.
    fn begin(&mut self) -> usize;

    /// Begins a text that goes on from where another one is now; `None` if there is no such text.
    fn fork(&mut self, text: usize) -> Option<usize>;

    /// Ends a text, and forgets its state. Its number is not given again; an unknown one is
    /// ignored.
    fn end(&mut self, text: usize);

    /// Continues a text by `tokens`. Returns the scores of the token after each of them that is `scored`.
    /// // [R, V]
    ///
    /// # Errors
    /// [`TrainError::Tokens`], also if there is no such text; [`TrainError::Params`]
    fn read(&mut self, text: usize, tokens: &[i32], scored: Scored)
    -> Result<Vec<f32>, TrainError>;

    /// Reads one token of each of these texts, and scores the token after it, in the order of
    /// `next`. A text may be named once. // `[V]` each
    ///
    /// # Errors
    /// The same as those of [`read`](Self::read).
    fn step(&mut self, next: &[(usize, i32)]) -> Result<Vec<Vec<f32>>, TrainError>;
}

/// A [`ReaderGroup`] of a session's model. It has no bound on the number of texts.
pub(super) struct Grouped<'a, A: TrainBackend> {
    /// The model that reads all texts.
    session: &'a Session<A>,
    /// The texts that have begun and not ended, by their numbers.
    texts: BTreeMap<usize, GroupedText<A>>,
    /// The number of the next text.
    next: usize,
    /// How each text keeps what it has read.
    keep: Keep,
}

/// One text: what the family keeps of it, for one sequence.
struct GroupedText<A: TrainBackend> {
    /// What the family keeps of the tokens that were read.
    state: State<Inner<A>>,
    /// How many tokens the state holds.
    length: usize,
}

impl<'a, A: TrainBackend> Grouped<'a, A> {
    /// A group that has no text yet.
    pub(super) fn new(session: &'a Session<A>, keep: Keep) -> Self {
        Self { session, texts: BTreeMap::new(), next: 0, keep }
    }

    /// Gives a text the next number.
    fn add(&mut self, text: GroupedText<A>) -> usize {
        let number = self.next;
        self.next += 1;
        self.texts.insert(number, text);
        number
    }
}

impl<A: TrainBackend> ReaderGroup for Grouped<'_, A> {
    fn begin(&mut self) -> usize {
        let Session { arch, place, .. } = self.session;
        let state = arch.state::<Inner<A>>(1, self.keep, &place.device);
        self.add(GroupedText { state, length: 0 })
    }

    fn fork(&mut self, text: usize) -> Option<usize> {
        let GroupedText { state, length } = self.texts.get(&text)?;
        let copy = GroupedText { state: state.clone(), length: *length };
        Some(self.add(copy))
    }

    fn end(&mut self, text: usize) {
        self.texts.remove(&text);
    }

    fn read(
        &mut self,
        text: usize,
        tokens: &[i32],
        scored: Scored,
    ) -> Result<Vec<f32>, TrainError> {
        let session = self.session;
        let Some(text) = self.texts.get_mut(&text) else {
            return Err(session.misfit(tokens.len(), 1));
        };
        if session.arch.reach().is_some_and(|reach| text.length + tokens.len() > reach) {
            return Err(session.misfit(text.length + tokens.len(), 1));
        }
        let scores = session.read_on(tokens, scored.count(tokens.len()), &mut text.state)?;
        text.length += tokens.len();
        Ok(scores)
    }

    fn step(&mut self, next: &[(usize, i32)]) -> Result<Vec<Vec<f32>>, TrainError> {
        let session = self.session;
        let Session { arch, parameters, work, place } = session;
        if next.is_empty() {
            return Ok(Vec::new());
        }
        let tokens: Vec<i32> = next.iter().map(|(_, token)| *token).collect();
        // Each text gives its only reference away, so a text that is asked for twice is refused.
        let mut all: BTreeMap<usize, &mut GroupedText<A>> =
            self.texts.iter_mut().map(|(number, text)| (*number, text)).collect();
        let mut texts = Vec::with_capacity(next.len());
        for (number, _) in next {
            let text = all.remove(number);
            let fits =
                |text: &&mut GroupedText<A>| arch.reach().is_none_or(|reach| text.length < reach);
            texts.push(text.filter(fits).ok_or_else(|| session.misfit(next.len(), next.len()))?);
        }
        let scores = place.over(|| {
            let ids = session.tokens::<Inner<A>>(&tokens, tokens.len())?;
            let states: Vec<_> = texts.iter_mut().map(|text| &mut text.state).collect();
            let scores = arch.extend_each::<Inner<A>>(parameters, ids, states); // [B, V]
            Ok(params::values::<Inner<A>>(scores)?)
        })?;
        for text in texts {
            text.length += 1;
        }
        ops::release_memory();
        Ok(scores.chunks_exact(work.model.vocab).map(<[f32]>::to_vec).collect())
    }
}

#[cfg(test)]
mod tests {
    use crate::Device;
    use crate::arch::{Keep, Scored, specs};
    use crate::config::{Family, Work};
    use crate::genesis;
    use crate::train::TrainError;

    use super::super::tests::work_of;

    /// Texts of different lengths that begin and end between the tokens of others have the scores
    /// that each of them has alone.
    #[test]
    fn texts_that_are_continued_together_have_the_scores_of_each_alone() {
        for family in Family::ALL {
            let work: Work = work_of(family);
            let mut model = crate::model(&work, Device::Cpu).unwrap();
            model.load(&genesis::weights(5, &specs(&work.model))).unwrap();
            let alone =
                |tokens: &[i32]| model.reader(Keep::EXACT).read(tokens, Scored::Last).unwrap();
            let near = |found: &[f32], expected: &[f32]| {
                let far =
                    found.iter().zip(expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
                assert!(found.len() == expected.len() && far < 1e-4, "{family:?}: {far}");
            };
            let mut group = model.group(Keep::EXACT);
            let (a, b) = (group.begin(), group.begin());
            near(&group.read(a, &[1, 2, 3], Scored::Last).unwrap(), &alone(&[1, 2, 3]));
            let all = group.read(b, &[4, 5], Scored::All).unwrap();
            near(&all[..work.model.vocab], &alone(&[4]));
            near(&all[work.model.vocab..], &alone(&[4, 5]));
            let both = group.step(&[(b, 6), (a, 7)]).unwrap();
            near(&both[0], &alone(&[4, 5, 6]));
            near(&both[1], &alone(&[1, 2, 3, 7]));
            let c = group.fork(a).unwrap();
            group.end(a);
            let both = group.step(&[(c, 1), (b, 1)]).unwrap();
            near(&both[0], &alone(&[1, 2, 3, 7, 1]));
            near(&both[1], &alone(&[4, 5, 6, 1]));
            near(&group.step(&[(c, 2)]).unwrap()[0], &alone(&[1, 2, 3, 7, 1, 2]));
            assert!(
                matches!(group.step(&[(a, 1)]), Err(TrainError::Tokens { .. })),
                "it has ended"
            );
            assert!(matches!(group.step(&[(b, 1), (b, 1)]), Err(TrainError::Tokens { .. })));
            assert!(group.fork(a).is_none() && group.step(&[]).unwrap().is_empty());
        }
    }

    #[test]
    fn a_text_longer_than_the_context_of_a_llama_is_refused() {
        let work: Work = work_of(Family::Llama);
        let mut model = crate::model(&work, Device::Cpu).unwrap();
        model.load(&genesis::weights(5, &specs(&work.model))).unwrap();
        let mut group = model.group(Keep::EXACT);
        let text = group.begin();
        let tokens = vec![1; work.model.context];
        assert!(matches!(
            group.read(text, &[&tokens[..], &[1]].concat(), Scored::Last),
            Err(TrainError::Tokens { .. })
        ));
        group.read(text, &tokens, Scored::Last).unwrap();
        assert!(matches!(group.step(&[(text, 1)]), Err(TrainError::Tokens { .. })));
    }
}
