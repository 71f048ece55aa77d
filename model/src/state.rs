//! The agreed state as numbers (θ, v) and as pieces of bytes.
//!
//! On disk and on the wire, a state is a table of digests followed by its pieces. Pieces are
//! consecutive slices of 1 MiB, first of the parameters θ, then of the outer momentum v; the last
//! piece of each may be shorter. Numbers are f32, little endian, in the canonical order of the
//! parameters. This file converts between the numbers and one piece. It refuses numbers that are
//! not finite in both directions, so that a diverged run is never stored and never accepted.
//!
//! Other modules own the header, the digests and the files: nothing here names a run or an epoch.

use std::ops::Range;

use thiserror::Error;

use crate::outer::Outer;

/// Bytes of every piece but the last of θ and the last of v.
pub const PIECE_BYTES: usize = 1 << 20;

/// The agreed parameters and the outer momentum; both have one number per parameter.
#[derive(Clone, Debug, PartialEq)]
pub struct State {
    /// θ, in canonical order. // one number per parameter
    theta: Vec<f32>,
    /// v, in the same order; zeros before the first outer step.
    momentum: Vec<f32>,
}

/// Why a piece cannot be written or read; the state is unchanged.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
pub enum PieceError {
    /// The caller asked for a piece that this state does not have.
    #[error("piece {index} of a state that has {count}")]
    NoSuchPiece {
        /// Number of the piece that was asked for, counted from 0.
        index: usize,
        /// Number of pieces of this state.
        count: usize,
    },
    /// The bytes are too few or too many for this piece.
    #[error("piece {index} has {found} bytes instead of {expected}")]
    WrongLength {
        /// Number of the piece, counted from 0.
        index: usize,
        /// Bytes that the piece must have.
        expected: usize,
        /// Bytes that the caller gave instead.
        found: usize,
    },
    /// The run has diverged, or the source of the piece lies.
    #[error("number {element} of piece {index} is not finite: the training has diverged")]
    NotFinite {
        /// Number of the piece, counted from 0.
        index: usize,
        /// Index of the number in the piece, counted from 0.
        element: usize,
    },
}

impl State {
    /// The state before the first outer step: `theta` and no momentum.
    #[must_use]
    pub fn genesis(theta: Vec<f32>) -> Self {
        let momentum = vec![0.0; theta.len()];
        Self { theta, momentum }
    }

    /// A state from its stored numbers.
    ///
    /// # Panics
    /// If there is not one momentum per parameter.
    #[must_use]
    pub fn new(theta: Vec<f32>, momentum: Vec<f32>) -> Self {
        assert_eq!(theta.len(), momentum.len(), "one momentum per parameter");
        Self { theta, momentum }
    }

    /// θ, the agreed parameters in canonical order.
    #[must_use]
    pub fn theta(&self) -> &[f32] {
        &self.theta
    }

    /// θ, the agreed parameters; the momentum is dropped.
    #[must_use]
    pub fn into_theta(self) -> Vec<f32> {
        self.theta
    }

    /// v, the outer momentum in canonical order.
    #[must_use]
    pub fn momentum(&self) -> &[f32] {
        &self.momentum
    }

    /// Takes the outer step of `epoch` with the agreed `delta`.
    ///
    /// # Panics
    /// If `delta` has not one number per parameter.
    pub fn step(&mut self, outer: &Outer, epoch: u64, delta: &[f32]) {
        outer.step(epoch, delta, &mut self.theta, &mut self.momentum);
    }

    /// How many pieces a state of `parameters` parameters has.
    #[must_use]
    pub fn piece_count(parameters: usize) -> usize {
        2 * parameters.div_ceil(PIECE_NUMBERS)
    }

    /// One piece as bytes, as it is stored, hashed and sent.
    ///
    /// # Errors
    /// If there is no such piece, or a number in it is not finite.
    pub fn piece(&self, index: usize) -> Result<Vec<u8>, PieceError> {
        let (half, range) = self.place(index)?;
        let numbers = &[&self.theta, &self.momentum][half][range];
        check_finite(index, numbers.iter().copied())?;
        Ok(numbers.iter().flat_map(|number| number.to_le_bytes()).collect())
    }

    /// Overwrites one piece with `bytes`. The caller has compared their digest: here only length
    /// and numbers are checked.
    ///
    /// # Errors
    /// If there is no such piece, it has another length, or a number in it is not finite.
    pub fn put_piece(&mut self, index: usize, bytes: &[u8]) -> Result<(), PieceError> {
        let (half, range) = self.place(index)?;
        let expected = range.len() * NUMBER_BYTES;
        if bytes.len() != expected {
            return Err(PieceError::WrongLength { index, expected, found: bytes.len() });
        }
        let (words, _) = bytes.as_chunks::<NUMBER_BYTES>();
        let numbers = words.iter().map(|word| f32::from_le_bytes(*word));
        check_finite(index, numbers.clone())?;
        let target = &mut [&mut self.theta, &mut self.momentum][half][range];
        target.iter_mut().zip(numbers).for_each(|(target, number)| *target = number);
        Ok(())
    }

    /// Whether a piece is of θ (0) or of v (1), and the range of its numbers.
    fn place(&self, index: usize) -> Result<(usize, Range<usize>), PieceError> {
        let count = Self::piece_count(self.theta.len());
        if index >= count {
            return Err(PieceError::NoSuchPiece { index, count });
        }
        let start = index % (count / 2) * PIECE_NUMBERS;
        Ok((index / (count / 2), start..self.theta.len().min(start + PIECE_NUMBERS)))
    }
}

/// Refuses the first number that is infinite or NaN.
fn check_finite(index: usize, mut numbers: impl Iterator<Item = f32>) -> Result<(), PieceError> {
    match numbers.position(|number| !number.is_finite()) {
        Some(element) => Err(PieceError::NotFinite { index, element }),
        None => Ok(()),
    }
}

/// Bytes of a number in a piece.
const NUMBER_BYTES: usize = size_of::<f32>();
/// Numbers of a whole piece, 262,144 of them.
const PIECE_NUMBERS: usize = PIECE_BYTES / NUMBER_BYTES;

#[cfg(test)]
mod tests {
    use super::*;

    /// Two whole pieces and a short one of each half.
    fn example() -> State {
        let numbers = |sign: f32| (0..2 * PIECE_NUMBERS + 3).map(move |i| sign * (i as f32 + 0.25));
        State { theta: numbers(1.0).collect(), momentum: numbers(-1.0).collect() }
    }

    fn pieces(state: &State) -> Vec<Vec<u8>> {
        let count = State::piece_count(state.theta.len());
        (0..count).map(|index| state.piece(index).expect("finite")).collect()
    }

    #[test]
    fn pieces_are_slices_of_theta_and_then_of_momentum() {
        let state = example();
        let pieces = pieces(&state);
        let lengths: Vec<_> = pieces.iter().map(Vec::len).collect();
        assert_eq!(lengths, [PIECE_BYTES, PIECE_BYTES, 12, PIECE_BYTES, PIECE_BYTES, 12]);
        let all: Vec<u8> = pieces.concat();
        let numbers = state.theta.iter().chain(&state.momentum);
        assert_eq!(all, numbers.flat_map(|number| number.to_le_bytes()).collect::<Vec<_>>());
    }

    #[test]
    fn a_state_is_rebuilt_from_its_pieces_in_any_order() {
        let state = example();
        let mut copy = State::genesis(vec![0.0; state.theta.len()]);
        for (index, piece) in pieces(&state).iter().enumerate().rev() {
            copy.put_piece(index, piece).expect("a good piece");
        }
        assert_eq!(copy, state);
    }

    #[test]
    fn counts_at_the_edges() {
        let counts = [0, 1, PIECE_NUMBERS, PIECE_NUMBERS + 1].map(State::piece_count);
        assert_eq!(counts, [0, 2, 2, 4]);
    }

    #[test]
    fn what_is_not_finite_is_refused_both_ways() {
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let mut state = example();
            state.momentum[PIECE_NUMBERS + 7] = bad;
            let refused = PieceError::NotFinite { index: 4, element: 7 };
            assert_eq!(state.piece(4), Err(refused));
            assert!(state.piece(3).is_ok(), "the other pieces are good");

            let mut state = example();
            let mut piece = state.piece(2).expect("finite");
            piece[4..8].copy_from_slice(&bad.to_le_bytes());
            let refused = PieceError::NotFinite { index: 2, element: 1 };
            assert_eq!(state.put_piece(2, &piece), Err(refused));
            assert_eq!(state, example(), "a refused piece changes nothing");
        }
    }

    #[test]
    fn a_wrong_length_or_index_is_refused() {
        let mut state = example();
        let short = state.put_piece(5, &[0; 11]);
        let wrong = PieceError::WrongLength { index: 5, expected: 12, found: 11 };
        assert_eq!(short, Err(wrong));
        let none = PieceError::NoSuchPiece { index: 6, count: 6 };
        assert_eq!(state.put_piece(6, &[0; 12]), Err(none));
        assert_eq!(state.piece(6), Err(none));
        assert!(state.piece(usize::MAX).is_err());
        assert!(State::genesis(Vec::new()).piece(0).is_err());
    }

    #[test]
    fn a_step_moves_theta_and_momentum() {
        let mut state = State::genesis(vec![1.0, 2.0]);
        let outer = Outer { lr: 0.5, momentum: 0.5, momentum_ramp_epochs: 0 };
        state.step(&outer, 1, &[1.0, -2.0]);
        assert_eq!(state.theta(), [0.25, 3.5]);
        assert_eq!(state.momentum(), [1.0, -2.0]);
    }
}
