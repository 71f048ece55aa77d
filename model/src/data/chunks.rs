//! Reads the rest of a file in chunks of fixed size, so that it may be larger than memory.
//!
//! Every chunk but the last is full, whatever sizes the system returns, also from a pipe. So a
//! caller that reads tokens of two or four bytes never gets a part of one, except at the end of a
//! file that was cut off.

use std::io::Read;
use std::path::Path;

use super::documents::sink::ReadError;

/// Passes the rest of the file of this path to `take`, in pieces of [`CHUNK_BYTES`] bytes, of which
/// only the last may be shorter.
pub(super) fn each<E: From<ReadError>>(
    file: &mut impl Read,
    path: &Path,
    mut take: impl FnMut(&[u8]) -> Result<(), E>,
) -> Result<(), E> {
    let mut buffer = Vec::with_capacity(CHUNK_BYTES);
    loop {
        buffer.clear();
        if begin(file, path, CHUNK_BYTES, &mut buffer)? == 0 {
            return Ok(());
        }
        take(&buffer)?;
    }
}

/// Appends the next `most` bytes of the file of this path, or all that are left; returns how many.
pub(super) fn begin(
    file: &mut impl Read,
    path: &Path,
    most: usize,
    buffer: &mut Vec<u8>,
) -> Result<usize, ReadError> {
    file.take(most as u64).read_to_end(buffer).map_err(ReadError::unreadable(path))
}

/// A whole number of tokens of any width; large enough for BLAKE3's widest code.
pub(super) const CHUNK_BYTES: usize = 1 << 18;
