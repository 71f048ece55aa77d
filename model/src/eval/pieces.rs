//! Judges texts that have nothing to do with one another, many in one pass.
//!
//! A *piece* is a text that is read from its own begin: every token after its first is judged by
//! those before it, and by nothing else. So documents that share a row of a token file are kept
//! apart for every family, whether or not its training keeps them apart. Pieces of similar length
//! share a pass; the shorter ones are filled up at their end, where no judged token sees it.

use crate::config::Model as Sizes;
use crate::train::{Judged, Model, TrainError};

/// How much one pass over a model may take: whatever fits a step of training also fits a
/// measurement, which has no gradients.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    /// Tokens of one pass, at least those of its longest piece.
    tokens: usize,
}

impl Room {
    /// The room that a training step of this many rows takes too, with scores of at most 512 MiB.
    pub(super) fn of(model: &Sizes, rows: usize) -> Self {
        Self { tokens: (rows * model.context).min(SCORES_MAX / model.vocab) }
    }
}

/// The pieces of a row: its documents, cut before each `bos` but its first token. The last target
/// of a document is the token that begins the next one.
pub(super) fn apart(row: &[i32], bos: Option<i32>) -> Vec<&[i32]> {
    let cuts = (1..row.len()).filter(|at| Some(row[*at]) == bos);
    let mut pieces = Vec::new();
    let mut start = 0;
    for cut in cuts {
        pieces.push(&row[start..=cut]);
        start = cut;
    }
    if start + 1 < row.len() {
        pieces.push(&row[start..]);
    }
    pieces
}

/// Judges every token after the first of each piece. No piece may be longer than the model's
/// context and one more token.
pub(super) fn judge(
    model: &dyn Model,
    pieces: &[&[i32]],
    room: Room,
) -> Result<Vec<Vec<Judged>>, TrainError> {
    let mut order: Vec<usize> = (0..pieces.len()).filter(|at| pieces[*at].len() > 1).collect();
    // The longest first, so that a pass has the length of its first piece.
    order.sort_by_key(|at| std::cmp::Reverse(pieces[*at].len()));
    let mut judged = vec![Vec::new(); pieces.len()];
    let mut rest = &order[..];
    while let [first, ..] = rest {
        let length = pieces[*first].len() - 1;
        let (now, later) = rest.split_at((room.tokens / length).clamp(1, rest.len()));
        let (mut tokens, mut targets) = (Vec::new(), Vec::new());
        for at in now {
            let (piece, end) = (pieces[*at], tokens.len() + length);
            tokens.extend_from_slice(&piece[..piece.len() - 1]);
            targets.extend_from_slice(&piece[1..]);
            tokens.resize(end, 0);
            targets.resize(end, 0);
        }
        let found = model.judge(&tokens, &targets, now.len())?;
        for (at, found) in now.iter().zip(found.chunks(length)) {
            judged[*at] = found[..pieces[*at].len() - 1].to_vec();
        }
        rest = later;
    }
    Ok(judged)
}

/// The most scores of one pass.
const SCORES_MAX: usize = 1 << 27;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Family, Work};
    use crate::{Device, arch, genesis};

    #[test]
    fn documents_are_cut_before_they_begin() {
        assert_eq!(apart(&[9, 1, 2, 9, 3, 9], Some(9)), [&[9, 1, 2, 9][..], &[9, 3, 9]]);
        assert_eq!(apart(&[1, 9, 9, 2], Some(9)), [&[1, 9][..], &[9, 9], &[9, 2]]);
        assert_eq!(apart(&[1, 2], None), [&[1, 2][..]]);
        assert!(apart(&[9], Some(9)).is_empty() && apart(&[], None).is_empty());
    }

    /// However pieces are packed, each is judged as if it were alone, whatever the family.
    #[test]
    fn a_piece_is_judged_as_if_it_were_alone() {
        for family in Family::ALL {
            let mut work = Work::synthetic();
            work.model = Sizes { context: 24, ..family.bench_model() };
            let mut model = crate::model(&work, Device::Cpu).unwrap();
            let mut theta = genesis::weights(5, &arch::specs(&work.model));
            // At its start a model looks only at the present token.
            theta
                .iter_mut()
                .enumerate()
                .for_each(|(i, x)| *x += ((i * 37 % 23) as f32 - 11.0) * 0.002);
            model.load(&theta).unwrap();
            let text: Vec<i32> = (0..64).map(|i| i * i % 61).collect();
            let pieces: Vec<&[i32]> = [(0, 25), (3, 9), (5, 6), (20, 45), (40, 47), (1, 20)]
                .map(|(a, b)| &text[a..b])
                .to_vec();
            let packed = judge(model.as_ref(), &pieces, Room { tokens: 60 }).unwrap();
            for (piece, packed) in pieces.iter().zip(packed) {
                let alone = judge(model.as_ref(), &[piece], Room { tokens: 1 }).unwrap();
                assert_eq!(packed.len(), piece.len() - 1);
                for (a, b) in packed.iter().zip(&alone[0]) {
                    let far = (a.log_probability - b.log_probability).abs();
                    assert!(far < 1e-5, "{family:?}: {far}");
                }
            }
        }
    }
}
