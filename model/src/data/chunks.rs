//! A file from where it is to its end, a buffer of fixed size at a time: it may be larger than memory.

use std::io::{self, Read};

/// Hands all that is left in `file` to `take`, every piece but the last of [`CHUNK_BYTES`] bytes.
pub(super) fn each<E>(
    file: &mut impl Read,
    unreadable: impl Fn(io::Error) -> E,
    mut take: impl FnMut(&[u8]) -> Result<(), E>,
) -> Result<(), E> {
    let mut buffer = Vec::with_capacity(CHUNK_BYTES);
    loop {
        buffer.clear();
        if begin(file, CHUNK_BYTES, &mut buffer).map_err(&unreadable)? == 0 {
            return Ok(());
        }
        take(&buffer)?;
    }
}

/// Appends the next `most` bytes of `file`, or as many as are left; says how many.
pub(super) fn begin(file: &mut impl Read, most: usize, buffer: &mut Vec<u8>) -> io::Result<usize> {
    file.take(most as u64).read_to_end(buffer)
}

/// A whole number of tokens of any width; large enough for BLAKE3's widest code.
pub(super) const CHUNK_BYTES: usize = 1 << 18;
