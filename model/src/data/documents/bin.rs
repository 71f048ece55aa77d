//! Tokens that another program made: numbers of two or four bytes and nothing else.
//!
//! The token that begins a document must be among them. Many programs write it after each document
//! instead, which gives the same stream except for the first and the last token.
//!
//! The file does not state the width of its tokens, but three signs reveal a wrong width. They are
//! a remainder that is not a whole token, a token that the tokenizer does not have, and, if four
//! bytes are read as two, zeros as every second number. With more than 65,536 tokens the width is
//! never two bytes.

use std::path::Path;

use super::sink::{Found, Fragment, ReadError, ReadOptions, Sink, open};
use crate::config::Width;
use crate::data::chunks;

/// Passes the tokens to `sink`.
///
/// # Errors
/// If the file cannot be read or has another width, or the error of `sink`.
pub(super) fn read<S: Sink>(
    path: &Path,
    width: Width,
    options: ReadOptions<'_>,
    sink: &mut S,
) -> Result<(), S::Error> {
    let wrong = |why| ReadError::WrongWidth { path: path.to_owned(), width: width as usize, why };
    let known = options.tokens;
    if width < Width::of(known) {
        return Err(wrong(format!("it has {known} tokens, too many for this width")).into());
    }
    let mut done = 0_u64;
    chunks::each(&mut open(path)?, path, |bytes| {
        sink.bytes(bytes);
        if !bytes.len().is_multiple_of(width as usize) {
            let bytes = done * width as u64 + bytes.len() as u64;
            return Err(wrong(format!("its {bytes} bytes are not a whole number of them")).into());
        }
        let mut tokens: Vec<_> = width.tokens(bytes).collect();
        if let Some(at) = tokens.iter().position(|token| *token as usize >= known) {
            let (token, at) = (tokens[at], done + at as u64);
            let why = format!("token {at} is {token}, and the tokenizer has {known}");
            return Err(wrong(why).into());
        }
        let begins = done == 0;
        if begins && width == Width::Two && looks_wider(&tokens) {
            let why = "every second one is 0: they look like tokens of 4 bytes".to_owned();
            return Err(wrong(why).into());
        }
        done += tokens.len() as u64;
        // The token that begins the first document is written when the document begins.
        if begins && tokens.first() == Some(&options.bos) {
            tokens.remove(0);
        }
        let tokens = Fragment::Tokens(tokens);
        sink.found(if begins { Found::Begin(tokens) } else { Found::More(tokens) })
    })
}

/// Whether numbers of two bytes look like halves of four-byte numbers below 65,536.
fn looks_wider(tokens: &[u32]) -> bool {
    let (pairs, _) = tokens.as_chunks::<2>();
    pairs.len() >= PAIRS_MIN && pairs.iter().all(|[_, high]| *high == 0)
}

/// Zeros in fewer pairs may be chance.
const PAIRS_MIN: usize = 8;
