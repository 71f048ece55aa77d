//! A text file: one document in UTF-8.
//!
//! It is read in parts of about a mebibyte, each cut after a line break, across which a tokenizer
//! joins little. If a mebibyte has no line break, the cut may change a token or two.

use std::path::Path;

use super::sink::{Found, Fragment, ReadError, Sink, open};
use crate::data::chunks;

/// Passes the text to `sink`, part by part, as one document.
///
/// # Errors
/// If the file cannot be read or is not UTF-8, or the error of `sink`.
pub(super) fn read<S: Sink>(path: &Path, sink: &mut S) -> Result<(), S::Error> {
    let mut file = open(path)?;
    // Begins with the rest of the previous part.
    let mut buffer = Vec::with_capacity(PART_BYTES);
    let mut done = 0_u64;
    loop {
        let kept = buffer.len();
        chunks::begin(&mut file, path, PART_BYTES - kept, &mut buffer)?;
        sink.bytes(&buffer[kept..]);
        if buffer.is_empty() {
            return Ok(());
        }
        let at_end = buffer.len() < PART_BYTES;
        let end = if at_end { buffer.len() } else { cut(&buffer) };
        let part = str::from_utf8(&buffer[..end]).map_err(|error| {
            let at = done + error.valid_up_to() as u64;
            ReadError::NoText { path: path.to_owned(), at }
        })?;
        let part = Fragment::Text(part.to_owned());
        sink.found(if done == 0 { Found::Begin(part) } else { Found::More(part) })?;
        done += end as u64;
        buffer.drain(..end);
    }
}

/// Where to cut a full buffer: after its last line break, else before an incomplete character.
fn cut(buffer: &[u8]) -> usize {
    if let Some(at) = buffer.iter().rposition(|byte| *byte == b'\n') {
        return at + 1;
    }
    match str::from_utf8(buffer) {
        Err(error) if error.error_len().is_none() => error.valid_up_to(),
        _ => buffer.len(),
    }
}

/// Long compared with a line, short compared with memory.
const PART_BYTES: usize = 1 << 20;
