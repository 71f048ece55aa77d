//! A file of the run's data as peers send it to one another: pieces of 1 MiB, each of
//! which can be checked by itself.
//!
//! BLAKE3 is a tree (O'Connor, Aumasson, Neves, Wilcox-O'Hearn 2020, §2.1): its leaves are chunks
//! of 1 KiB, and the digest of the file is its root. 1,024 chunks that begin at a multiple of 1,024
//! are a subtree, whose *chaining value* fixes them as a digest would. So the manifest needs only
//! the digest of the whole file. A donor first sends the values of all pieces, which are merged and
//! compared with the digest; from then on each piece is checked on arrival.
//!
//! ```text
//! merge(v₁ … vₙ) = parent(merge(v₁ … vₖ), merge(vₖ₊₁ … vₙ)),  k the greatest power of two below n
//! ```
//!
//! The value of a file of one piece is its digest.
//!
//! What this does not do: files, and the choice of a donor (`download`).

use blake3::Hasher;
use blake3::hazmat::{
    ChainingValue, HasherExt as _, Mode, merge_subtrees_non_root, merge_subtrees_root,
};

use crate::base::id::Digest;

/// Bytes of every piece of a file but the last one, which is shorter.
pub const TREE_PIECE_BYTES: usize = 1 << 20;

const VALUE_BYTES: usize = 32;

/// The chaining values of all pieces of a file, in order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tree {
    length: u64,
    /// At least one; with only one it is the digest of the file.
    values: Vec<Digest>,
}

impl Tree {
    /// The tree of a file of `length` bytes whose pieces have these values, in order; `None` if a
    /// file of that length has more or fewer pieces.
    pub fn new(length: u64, values: Vec<Digest>) -> Option<Self> {
        (piece_count(length) == values.len() as u64).then_some(Self { length, values })
    }

    /// Reads the values of the file with this length and digest; `None` if they
    /// do not merge to that digest. The bytes come from a donor. Their number is compared with the
    /// length first, so nothing is merged that a file of that length cannot have.
    pub fn from_bytes(bytes: &[u8], length: u64, digest: &Digest) -> Option<Self> {
        let (values, rest) = bytes.as_chunks::<VALUE_BYTES>();
        let values = values.iter().copied().map(Digest).collect();
        let tree = Self::new(length, values)?;
        (rest.is_empty() && tree.digest() == *digest).then_some(tree)
    }

    /// The values one after the other, [`tree_bytes`] in all.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.values.iter().flat_map(|value| value.0).collect()
    }

    /// BLAKE3 of the whole file, merged from the values.
    pub fn digest(&self) -> Digest {
        match self.values.as_slice() {
            [] => Digest(*blake3::hash(&[]).as_bytes()),
            [only] => *only,
            values => {
                let (left, right) = values.split_at(left_count(values.len()));
                let (left, right) = (merge(left), merge(right));
                Digest(*merge_subtrees_root(&left, &right, Mode::Hash).as_bytes())
            }
        }
    }

    /// Whether `bytes` are piece `number` of the file. Bytes at another place are refused too: a
    /// value depends on the offset of its piece.
    #[must_use]
    pub fn has(&self, number: usize, bytes: &[u8]) -> bool {
        let piece = self.values.get(number).zip(piece_of(self.length, number));
        piece.is_some_and(|(value, (_, length))| {
            bytes.len() == length as usize && value_of(self.length, number, bytes) == *value
        })
    }

    /// Every piece in order: offset of its first byte, length, and value.
    pub fn pieces(&self) -> impl Iterator<Item = (u64, u32, Digest)> {
        let all = self.values.iter().enumerate();
        all.filter_map(|(number, value)| {
            piece_of(self.length, number).map(|(offset, length)| (offset, length, *value))
        })
    }
}

/// Pieces of a file of `length` bytes; an empty file has one.
pub fn piece_count(length: u64) -> u64 {
    length.div_ceil(TREE_PIECE_BYTES as u64).max(1)
}

/// Bytes of the values of a file of `length` bytes.
pub fn tree_bytes(length: u64) -> u64 {
    piece_count(length).saturating_mul(VALUE_BYTES as u64)
}

/// Offset and length of piece `number` in a file of `length` bytes;
/// `None` if there is no such piece.
pub fn piece_of(length: u64, number: usize) -> Option<(u64, u32)> {
    let number = u64::try_from(number).ok().filter(|number| *number < piece_count(length))?;
    let offset = number * TREE_PIECE_BYTES as u64;
    Some((offset, u32::try_from((length - offset).min(TREE_PIECE_BYTES as u64)).ok()?))
}

/// The value of piece `number` of a file of `length` bytes, if the piece consists of `bytes`.
pub fn value_of(length: u64, number: usize, bytes: &[u8]) -> Digest {
    let offset = (number as u64).saturating_mul(TREE_PIECE_BYTES as u64);
    // A subtree is neither empty nor longer than a piece: such bytes are
    // no piece, whatever their hash.
    if piece_count(length) == 1 || bytes.is_empty() || bytes.len() > TREE_PIECE_BYTES {
        return Digest(*blake3::hash(bytes).as_bytes());
    }
    Digest(Hasher::new().set_input_offset(offset).update(bytes).finalize_non_root())
}

/// The chaining value of the subtree above these values.
fn merge(values: &[Digest]) -> ChainingValue {
    match values {
        [] => [0; VALUE_BYTES],
        [only] => only.0,
        values => {
            let (left, right) = values.split_at(left_count(values.len()));
            merge_subtrees_non_root(&merge(left), &merge(right), Mode::Hash)
        }
    }
}

/// The greatest power of two below `count`, which is at least 2: that many pieces lie to the left.
fn left_count(count: usize) -> usize {
    1 << (count - 1).ilog2()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = TREE_PIECE_BYTES;

    fn file(length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        Hasher::new().finalize_xof().fill(&mut bytes);
        bytes
    }

    fn tree(file: &[u8]) -> Tree {
        let length = file.len() as u64;
        let count = usize::try_from(piece_count(length)).unwrap();
        let piece = |number| {
            let (offset, length) = piece_of(file.len() as u64, number).unwrap();
            let begin = usize::try_from(offset).unwrap();
            value_of(file.len() as u64, number, &file[begin..begin + length as usize])
        };
        Tree::new(length, (0..count).map(piece).collect()).unwrap()
    }

    /// Compares with BLAKE3 of the whole, at every length where the shape of the tree changes.
    #[test]
    fn merged_values_are_the_digest_of_the_whole() {
        let pieces = (2..=9).flat_map(|count| [count * MIB - 1, count * MIB, count * MIB + 1]);
        let short = [0, 1, 1023, 1024, 1025, MIB - 1, MIB, MIB + 1, MIB + 1024, 5 * MIB + 77_777];
        for length in short.into_iter().chain(pieces) {
            let (file, tree) = (file(length), tree(&file(length)));
            let digest = Digest(*blake3::hash(&file).as_bytes());
            assert_eq!(tree.digest(), digest, "{length} bytes");
            assert_eq!(tree.to_bytes().len() as u64, tree_bytes(length as u64));
            let read = Tree::from_bytes(&tree.to_bytes(), length as u64, &digest);
            assert_eq!(read, Some(tree.clone()), "{length} bytes");
            let mut covered = 0;
            for (number, (offset, length, value)) in tree.pieces().enumerate() {
                let begin = usize::try_from(offset).unwrap();
                let piece = &file[begin..begin + length as usize];
                assert!(
                    tree.has(number, piece) && value == value_of(file.len() as u64, number, piece)
                );
                covered += length as usize;
            }
            assert_eq!(covered, length);
        }
    }

    #[test]
    fn values_of_another_file_or_length_are_refused() {
        let (file, length) = (file(3 * MIB + 5), 3 * MIB as u64 + 5);
        let (tree, digest) = (tree(&file), Digest(*blake3::hash(&file).as_bytes()));
        let bytes = tree.to_bytes();
        for bit in 0..8 * bytes.len() {
            let mut other = bytes.clone();
            other[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Tree::from_bytes(&other, length, &digest), None, "bit {bit}");
        }
        let swapped = [&bytes[32..64], &bytes[..32], &bytes[64..]].concat();
        assert_eq!(Tree::from_bytes(&swapped, length, &digest), None);
        assert_eq!(Tree::from_bytes(&bytes[..96], length, &digest), None);
        assert_eq!(Tree::from_bytes(&bytes[..127], length, &digest), None);
        assert_eq!(Tree::from_bytes(&[&bytes[..], &[0; 32]].concat(), length, &digest), None);
        assert_eq!(Tree::from_bytes(&[&bytes[..], &[0]].concat(), length, &digest), None);
        assert_eq!(Tree::from_bytes(&bytes, length + MIB as u64, &digest), None);
        assert_eq!(Tree::from_bytes(&[], 0, &digest), None);
    }

    #[test]
    fn a_piece_is_itself_at_its_own_place_only() {
        let file = file(2 * MIB + 9);
        let tree = tree(&file);
        assert!(tree.has(0, &file[..MIB]) && tree.has(2, &file[2 * MIB..]));
        assert!(!tree.has(1, &file[..MIB]), "the right bytes at another place");
        assert!(!tree.has(2, &file[2 * MIB - 1..2 * MIB + 8]));
        assert!(!tree.has(0, &file[..MIB + 1]) && !tree.has(0, &[]) && !tree.has(3, &[]));
        let mut flipped = file[..MIB].to_vec();
        flipped[MIB / 2] ^= 1;
        assert!(!tree.has(0, &flipped));
    }
}
