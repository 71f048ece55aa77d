//! `bench tokenizer`: measures how fast one core turns a text into tokens.
//!
//! The text is read once, up to a limit. The speed is that of the tokenizer alone: bytes of text
//! per second, the median of several runs on one thread. Besides it prints how many bytes a token
//! has on average, which says how well the vocabulary fits the text.

use std::{
    fs::File,
    hint::black_box,
    io::{Read, Write},
    path::Path,
    time::Duration,
};

use intellect_model::tokenizer::{self, Tokenizer};
use serde_json::json;

use super::{BenchError, median};
use crate::os::cannot;

/// Measures a tokenizer, by default that of bytes, on the beginning of a text.
///
/// # Errors
/// A file cannot be read, is no tokenizer, or the tokenizer has no token for a letter of the text.
pub(crate) fn run(
    file: Option<&Path>,
    text: Option<&Path>,
    as_json: bool,
    out: &mut dyn Write,
) -> Result<(), BenchError> {
    let file = file.map_or_else(|| Ok(tokenizer::File::none()), tokenizer::File::open)?;
    let tokenizer = Tokenizer::read(file.scheme, &file.bytes)?;
    let text = text.map_or_else(|| Ok(BUILT_IN.repeat(REPEATS)), read)?;
    let mut tokens = Vec::new();
    let time = median(RUNS, || {
        tokens.clear();
        tokenizer.append(black_box(&text), &mut tokens)
    })?;
    let speed = text.len() as f64 / 1e6 / time.max(Duration::from_nanos(1)).as_secs_f64();
    let share = text.len() as f64 / tokens.len().max(1) as f64;
    if as_json {
        let figures = json!({
            "tokenizer": file.scheme.name(),
            "mb_per_s": speed,
            "bytes_per_token": share,
            "bytes": text.len(),
        });
        writeln!(out, "{figures}")?;
        return Ok(());
    }
    writeln!(
        out,
        "{}: {speed:.1} MB/s on one core, {share:.2} bytes per token, {} bytes, median of {RUNS} \
         runs",
        file.scheme.name(),
        text.len()
    )?;
    Ok(())
}

/// Reads the beginning of a text; a character that is cut at its end is replaced.
fn read(path: &Path) -> Result<String, BenchError> {
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|f| f.take(TEXT_BYTES_MAX).read_to_end(&mut bytes));
    read.map_err(cannot("read", path))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// English prose, used if no text is named: this program's licence, 11 kB, repeated to a few
/// megabytes. Words come back as often as in a real text, but a cache of whole words has it easy,
/// so a text of one's own is the better measure.
const BUILT_IN: &str = include_str!("../../../../LICENSE-APACHE");
/// How often that text is repeated.
const REPEATS: usize = 400;
/// Number of runs behind a median.
const RUNS: usize = 5;
/// Longest text that is used: far more than any cache holds.
const TEXT_BYTES_MAX: u64 = 1 << 26;
