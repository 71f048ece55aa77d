//! A state in its stored and transferred form: header, table of pieces, pieces, and the
//! digest that names all of it.
//!
//! ```text
//! header        run [32] ‖ epoch u64 ‖ committed tokens u64 ‖ r [32] ‖ parameters u64     (little-endian)
//! table         BLAKE3 of each piece, 32 bytes each
//! pieces        θ as f32 LE in canonical order, in slices of 1 MiB; then v likewise
//! state digest  BLAKE3::derive_key("intellect-node 1 state", header ‖ table)
//! ```
//!
//! θ are the agreed parameters, v the outer momentum; a piece never holds both. A joiner checks the
//! table against the digest of the head, then each piece on arrival, whichever peer sends it.
//! Numbers that are not finite are refused when a state is hashed and when a piece is read.
//!
//! What this does not do: files (`node::store`), choosing a donor (`sync`).

use std::ops::Range;

use thiserror::Error;

use crate::base::fault::require;
use crate::base::id::{Digest, RunId, array};
use crate::message::Head;
use crate::ring::codec::{Codec, DecodeError, EncodeError};

/// Elements of a piece; the last piece of θ and that of v are shorter. A checkpoint is fetched and
/// checked piece by piece, so a wrong donor costs at most one of them.
pub const PIECE: usize = 1 << 18;

/// Bytes of a whole piece: 1 MiB.
pub const PIECE_BYTES: usize = 4 * PIECE;

/// Bytes of a [`Header`], which are the first ones of a checkpoint.
pub const HEADER_BYTES: usize = 32 + 8 + 8 + 32 + 8;

/// The most parameters of a model: 2^40, whose table takes 256 MiB. A header with more is refused
/// before anything is allocated (D1).
pub const PARAMETERS_MAX: u64 = 1 << 40;

/// What a state is apart from its numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// The run; zeros for published weights, which belong to none.
    pub run: RunId,
    /// Epochs committed; 0 is genesis.
    pub epoch: u64,
    /// Tokens committed on the lineage.
    pub tokens: u64,
    /// Digest of the last receipt; zero at genesis.
    pub r: Digest,
    /// Elements of θ, and of v, at most [`PARAMETERS_MAX`].
    pub parameters: u64,
}

/// A header with the digest of every piece. Its digest is the state's.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Table {
    header: Header,
    pieces: Vec<Digest>,
}

/// Why bytes are not the header or the table of a checkpoint: a fault of
/// the sender, or a damaged file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum TableError {
    /// There are too few or too many bytes.
    #[error("{found} bytes where a checkpoint has {expected}")]
    Length {
        /// Bytes that the header asks for.
        expected: u64,
        /// Bytes that the caller has given.
        found: u64,
    },
    /// A model without parameters, or with more than [`PARAMETERS_MAX`].
    #[error("a checkpoint of {parameters} parameters: at most {PARAMETERS_MAX} are supported")]
    Parameters {
        /// Number of parameters in the header.
        parameters: u64,
    },
    /// A complete and well-formed table, but of another state than the one asked for.
    #[error("the state is {found}, not {expected}")]
    Digest {
        /// The state that was asked for.
        expected: Digest,
        /// The state that the bytes are.
        found: Digest,
    },
}

/// Why a piece is refused; the bytes have to be fetched again from another peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum PieceError {
    /// The table has no such piece.
    #[error("there is no piece {piece}")]
    Index {
        /// Index of the piece that was asked for.
        piece: usize,
    },
    /// The bytes do not have the digest that the table names.
    #[error("piece {piece} is not the one that the table names")]
    Digest {
        /// Index of the refused piece, from 0.
        piece: usize,
    },
    /// The digest is right, but a number is not finite or there are too few
    /// bytes: the state is unusable.
    #[error("piece {piece} cannot be used: {cause}")]
    Content {
        /// Index of the unusable piece.
        piece: usize,
        /// Why its content cannot be used.
        cause: DecodeError,
    },
}

impl Header {
    /// The header of weights that belong to no run yet, with a momentum of zero. A
    /// manifest names their state by this digest; the header of the run's own state has
    /// the id that the manifest makes.
    #[must_use]
    pub fn published(parameters: u64) -> Self {
        Self { run: RunId([0; 32]), epoch: 0, tokens: 0, r: Digest::ZERO, parameters }
    }

    /// The bytes that are hashed, stored and sent.
    pub fn to_bytes(&self) -> [u8; HEADER_BYTES] {
        let numbers = [self.epoch, self.tokens, self.parameters];
        let [epoch, tokens, parameters] = numbers.map(u64::to_le_bytes);
        array(&[&self.run.0[..], &epoch, &tokens, &self.r.0, &parameters].concat(), 0)
    }

    /// Reads a header, as an untrusted peer may have sent it.
    ///
    /// # Errors
    /// A wrong length, or a number of parameters that is out of bounds.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, TableError> {
        let (expected, found) = (HEADER_BYTES as u64, bytes.len() as u64);
        require(found == expected, TableError::Length { expected, found })?;
        let number = |start: usize| u64::from_le_bytes(array(bytes, start));
        let header = Self {
            run: RunId(array(bytes, 0)),
            epoch: number(32),
            tokens: number(40),
            r: Digest(array(bytes, 48)),
            parameters: number(80),
        };
        header.piece_count()?;
        Ok(header)
    }

    /// Pieces of θ and v together; always an even number.
    ///
    /// # Errors
    /// A number of parameters that is out of bounds.
    pub fn piece_count(&self) -> Result<usize, TableError> {
        let parameters = self.parameters;
        let error = TableError::Parameters { parameters };
        require((1..=PARAMETERS_MAX).contains(&parameters), error)?;
        usize::try_from(2 * parameters.div_ceil(PIECE as u64)).map_err(|_| error)
    }
}

impl Table {
    /// Hashes a state, piece by piece.
    ///
    /// # Errors
    /// The first element, counted through θ and then v, that is not finite.
    ///
    /// # Panics
    /// If θ and v do not have as many elements as the header says, or none.
    pub fn of(header: Header, theta: &[f32], v: &[f32]) -> Result<Self, EncodeError> {
        assert!(theta.len() == v.len() && theta.len() as u64 == header.parameters, "θ, v");
        assert!(header.piece_count().is_ok(), "a number of parameters within bounds");
        let mut bytes = vec![0; PIECE_BYTES];
        let mut pieces = Vec::new();
        for (part, offset) in [(theta, 0), (v, theta.len())] {
            for (index, piece) in part.chunks(PIECE).enumerate() {
                let bytes = &mut bytes[..4 * piece.len()];
                Codec::F32
                    .encode(piece, bytes)
                    .map_err(|error| error.after(offset + index * PIECE))?;
                pieces.push(Digest(*blake3::hash(bytes).as_bytes()));
            }
        }
        Ok(Self { header, pieces })
    }

    /// Reads the table of the state whose digest is `state` from `header ‖ piece digests`.
    ///
    /// # Errors
    /// Bytes that are not a table, or the table of another state.
    pub fn from_bytes(bytes: &[u8], state: &Digest) -> Result<Self, TableError> {
        let found = bytes.len() as u64;
        let (header, digests) = bytes.split_at(bytes.len().min(HEADER_BYTES));
        let header = Header::from_bytes(header)?;
        let expected = HEADER_BYTES as u64 + 32 * header.piece_count()? as u64;
        require(found == expected, TableError::Length { expected, found })?;
        let pieces = digests.as_chunks().0.iter().map(|digest| Digest(*digest)).collect();
        let table = Self { header, pieces };
        let found = table.state();
        require(found == *state, TableError::Digest { expected: *state, found })?;
        Ok(table)
    }

    /// `header ‖ piece digests`, which come before the pieces in a file.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = self.header.to_bytes().to_vec();
        bytes.extend(self.pieces.iter().flat_map(|digest| digest.0));
        bytes
    }

    /// The digest of the state, which a head names.
    pub fn state(&self) -> Digest {
        Self::digest_of(&self.to_bytes())
    }

    /// The digest of the state with this `header ‖ piece digests`, without any check of the bytes.
    pub fn digest_of(bytes: &[u8]) -> Digest {
        Digest::derive("intellect-node 1 state", bytes)
    }

    /// The head whose state this is.
    pub fn head(&self) -> Head {
        Head { epoch: self.header.epoch, tokens: self.header.tokens, state: self.state() }
    }

    /// What the state is apart from its numbers.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// The digest of each piece, those of θ first.
    pub fn pieces(&self) -> &[Digest] {
        &self.pieces
    }

    /// Whether each piece is all zeros, as its digest shows.
    pub fn zeros(&self) -> impl Iterator<Item = bool> {
        let half = self.pieces.len() / 2;
        let [whole, last] = [0, half - 1].map(|piece| {
            let bytes = vec![0; self.piece(piece).map_or(0, |range| 4 * range.len())];
            Digest(*blake3::hash(&bytes).as_bytes())
        });
        self.pieces.iter().enumerate().map(move |(piece, digest)| {
            let is_last = (piece + 1).is_multiple_of(half);
            *digest == if is_last { last } else { whole }
        })
    }

    /// Whether some number of v is not zero.
    #[must_use]
    pub fn has_momentum(&self) -> bool {
        !self.zeros().skip(self.pieces.len() / 2).all(|is_zero| is_zero)
    }

    /// The elements of `θ ‖ v` in piece `piece`; `None` beyond the last piece.
    pub fn piece(&self, piece: usize) -> Option<Range<usize>> {
        let parameters = usize::try_from(self.header.parameters).ok()?;
        let half = self.pieces.len() / 2;
        if piece >= self.pieces.len() {
            return None;
        }
        let (offset, index) = if piece < half { (0, piece) } else { (parameters, piece - half) };
        let start = index * PIECE;
        Some(offset + start..offset + (start + PIECE).min(parameters))
    }

    /// The offset of piece `piece` in `header ‖ table ‖ pieces`; `None` beyond the last piece.
    pub fn offset(&self, piece: usize) -> Option<u64> {
        let start = self.piece(piece)?.start as u64;
        Some(HEADER_BYTES as u64 + 32 * self.pieces.len() as u64 + 4 * start)
    }

    /// Checks the bytes of a piece and decodes them into `values`, its elements, as many as
    /// [`Self::piece`] names. After an error these are unspecified.
    ///
    /// # Errors
    /// Bytes that the table does not name, or that are unusable.
    pub fn read(&self, piece: usize, bytes: &[u8], values: &mut [f32]) -> Result<(), PieceError> {
        let digest = self.pieces.get(piece).ok_or(PieceError::Index { piece })?;
        let named = blake3::hash(bytes) == blake3::Hash::from_bytes(digest.0);
        require(named, PieceError::Digest { piece })?;
        Codec::F32.decode(bytes, values).map_err(|cause| PieceError::Content { piece, cause })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(parameters: usize) -> Header {
        let (run, r) = (RunId([1; 32]), Digest([2; 32]));
        Header { run, epoch: 3, tokens: 4, r, parameters: parameters as u64 }
    }

    fn state(parameters: usize) -> (Vec<f32>, Vec<f32>) {
        let value = |index: usize| index as f32 * 0.25 - 7.0;
        ((0..parameters).map(value).collect(), (0..parameters).map(|i| -value(i)).collect())
    }

    #[test]
    fn header_bytes_are_golden() {
        let bytes = header(5).to_bytes();
        let mut expected = vec![1; 32];
        expected.extend([3, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0]);
        expected.extend([2; 32]);
        expected.extend([5, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(bytes, *expected);
        assert_eq!(Header::from_bytes(&bytes), Ok(header(5)));
    }

    /// The definition of the format, spelled out: peers compare this digest.
    #[test]
    fn state_digest_is_that_of_header_and_piece_digests() {
        let (theta, v) = state(PIECE + 3);
        let table = Table::of(header(theta.len()), &theta, &v).unwrap();
        let bytes =
            |values: &[f32]| values.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<_>>();
        let mut hashed = header(theta.len()).to_bytes().to_vec();
        for piece in [&theta[..PIECE], &theta[PIECE..], &v[..PIECE], &v[PIECE..]] {
            hashed.extend(blake3::hash(&bytes(piece)).as_bytes());
        }
        assert_eq!(table.to_bytes(), hashed);
        assert_eq!(table.state(), Digest(blake3::derive_key("intellect-node 1 state", &hashed)));
        let ranges: Vec<_> = (0..5).map(|piece| table.piece(piece)).collect();
        let end = PIECE + 3;
        let expected = [0..PIECE, PIECE..end, end..end + PIECE, end + PIECE..2 * end];
        assert_eq!(ranges[..4], expected.map(Some));
        assert_eq!(ranges[4], None);
        assert_eq!(table.offset(2), Some(88 + 4 * 32 + 4 * end as u64));
        let small = state(5);
        let golden = Table::of(header(5), &small.0, &small.1).unwrap().state();
        assert_eq!(golden.to_string(), "1ecc36f0");
    }

    #[test]
    fn a_table_round_trips_and_names_its_state() {
        let (theta, v) = state(1000);
        let table = Table::of(header(1000), &theta, &v).unwrap();
        let bytes = table.to_bytes();
        assert_eq!(Table::from_bytes(&bytes, &table.state()), Ok(table.clone()));
        let other = Digest([9; 32]);
        let found = table.state();
        let error = TableError::Digest { expected: other, found };
        assert_eq!(Table::from_bytes(&bytes, &other), Err(error));
        for length in [0, 87, 88, bytes.len() - 1] {
            let result = Table::from_bytes(&bytes[..length], &found);
            assert!(matches!(result, Err(TableError::Length { .. })), "{length}: {result:?}");
        }
    }

    /// A piece of zeros has the digest of zeros of its own length.
    #[test]
    fn zeros_are_known_by_their_digests() {
        let mut v = vec![0.0; 2 * PIECE + 3];
        let table = |v: &[f32]| Table::of(header(v.len()), &[0.0; 2 * PIECE + 3], v).unwrap();
        assert!(table(&v).zeros().all(|is_zero| is_zero) && !table(&v).has_momentum());
        let mut swapped = table(&v);
        swapped.pieces.swap(1, 2);
        assert_eq!(swapped.zeros().collect::<Vec<_>>(), [true, false, false, true, true, true]);
        v[PIECE] = 1.0;
        assert_eq!(table(&v).zeros().collect::<Vec<_>>(), [true, true, true, true, false, true]);
        assert!(table(&v).has_momentum());
    }

    /// No length from a peer is used before it is compared with a constant (D1).
    #[test]
    fn d1_absurd_parameter_counts_are_refused() {
        for parameters in [0, PARAMETERS_MAX + 1, u64::MAX] {
            let bytes = Header { parameters, ..header(1) }.to_bytes();
            assert_eq!(Header::from_bytes(&bytes), Err(TableError::Parameters { parameters }));
            let result = Table::from_bytes(&bytes, &Digest::ZERO);
            assert_eq!(result, Err(TableError::Parameters { parameters }));
        }
    }

    #[test]
    fn a_piece_is_checked_before_use() {
        let (theta, v) = state(10);
        let table = Table::of(header(10), &theta, &v).unwrap();
        let mut bytes = vec![0; 40];
        Codec::F32.encode(&v, &mut bytes).unwrap();
        let mut values = vec![0.0; 10];
        assert_eq!(table.read(1, &bytes, &mut values), Ok(()));
        assert_eq!(values, v);
        assert_eq!(table.read(0, &bytes, &mut values), Err(PieceError::Digest { piece: 0 }));
        assert_eq!(table.read(2, &bytes, &mut values), Err(PieceError::Index { piece: 2 }));
    }

    #[test]
    fn what_is_not_finite_is_refused() {
        let (theta, mut v) = state(10);
        v[7] = f32::INFINITY;
        let result = Table::of(header(10), &theta, &v);
        assert_eq!(result, Err(EncodeError { index: 17 }));
        let bytes: Vec<u8> = v.iter().flat_map(|x| x.to_le_bytes()).collect();
        let digest = Digest(*blake3::hash(&bytes).as_bytes());
        let table = Table { header: header(10), pieces: vec![digest, digest] };
        let cause = DecodeError::NonFinite { index: 7 };
        let error = PieceError::Content { piece: 0, cause };
        assert_eq!(table.read(0, &bytes, &mut [0.0; 10]), Err(error));
    }
}
