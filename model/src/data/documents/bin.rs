//! Tokens that another program made: numbers of two or four bytes and nothing else.
//!
//! The token that begins a document must be among them; many programs write one behind each document
//! instead, which is the same stream but for its first and last token.
//!
//! The file does not say how wide its tokens are, but three things give a wrong width away: a rest
//! that is no token, a token that the tokenizer does not have, and, of four bytes read as two, zeros
//! in every second place: more than 65,536 tokens are never of two bytes.

use std::path::Path;

use super::{Found, Part, ReadError, Shape, Sink, open, unreadable};
use crate::data::tokens::header::Width;
use crate::data::tokens::{fill, numbers};

/// Hands the tokens to `sink`.
///
/// # Errors
/// If the file cannot be read or has another width, or what `sink` says.
pub(super) fn read<S: Sink>(
    path: &Path,
    width: Width,
    shape: Shape<'_>,
    sink: &mut S,
) -> Result<(), S::Error> {
    let wrong = |why| ReadError::WrongWidth { path: path.to_owned(), width: width as usize, why };
    if width < Width::of(shape.tokens) {
        return Err(wrong(format!("it has {} tokens, too many for that", shape.tokens)).into());
    }
    let mut file = open(path)?;
    let mut buffer = vec![0; BUFFER_BYTES];
    let mut done = 0_u64;
    loop {
        let read = fill(&mut file, &mut buffer).map_err(|cause| unreadable(path, cause))?;
        if read == 0 {
            return Ok(());
        }
        sink.bytes(&buffer[..read]);
        if !read.is_multiple_of(width as usize) {
            let bytes = done * width as u64 + read as u64;
            return Err(wrong(format!("its {bytes} bytes are no whole number of them")).into());
        }
        let mut tokens: Vec<_> = numbers(&buffer[..read], width).collect();
        if let Some(at) = tokens.iter().position(|token| *token as usize >= shape.tokens) {
            let (token, at, known) = (tokens[at], done + at as u64, shape.tokens);
            let why = format!("token {at} is {token}, and the tokenizer has {known}");
            return Err(wrong(why).into());
        }
        if done == 0 && width == Width::Two && looks_wider(&tokens) {
            let why = "every second one is 0: they look like tokens of 4 bytes".to_owned();
            return Err(wrong(why).into());
        }
        done += tokens.len() as u64;
        let begins = done == tokens.len() as u64;
        // What begins the first document is written with its begin.
        if begins && tokens.first() == Some(&shape.bos) {
            tokens.remove(0);
        }
        let part = Part::Tokens(tokens);
        sink.found(if begins { Found::Begin(part) } else { Found::More(part) })?;
    }
}

/// Whether numbers of two bytes are halves of greater ones, all below 65,536.
fn looks_wider(tokens: &[u32]) -> bool {
    let (pairs, _) = tokens.as_chunks::<2>();
    pairs.len() >= PAIRS_MIN && pairs.iter().all(|[_, high]| *high == 0)
}

/// A whole number of tokens of either width.
const BUFFER_BYTES: usize = 1 << 20;
/// Fewer zeros may be chance.
const PAIRS_MIN: usize = 8;
