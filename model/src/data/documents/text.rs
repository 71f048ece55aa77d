//! A text file: one document of UTF-8.
//!
//! It comes in parts of about a mebibyte, each cut behind a line break: a tokenizer joins little
//! across it. Where a mebibyte has none, the cut may show in a token or two.

use std::path::Path;

use super::sink::{Found, Fragment, ReadError, Sink, open};
use crate::data::chunks;

/// Hands the text to `sink`.
///
/// # Errors
/// If it cannot be read or is no UTF-8, or what `sink` says.
pub(super) fn read<S: Sink>(path: &Path, sink: &mut S) -> Result<(), S::Error> {
    let mut file = open(path)?;
    // Begins with what the part before has left over.
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

/// Where a full buffer may be cut: behind its last line break, else before a character that may go
/// on behind its end.
fn cut(buffer: &[u8]) -> usize {
    if let Some(at) = buffer.iter().rposition(|byte| *byte == b'\n') {
        return at + 1;
    }
    match str::from_utf8(buffer) {
        Err(error) if error.error_len().is_none() => error.valid_up_to(),
        _ => buffer.len(),
    }
}

/// Long beside a line, short beside memory.
const PART_BYTES: usize = 1 << 20;
