//! The chain of a run as a file (FORMATS.md): for each epoch the digest of its receipt, the state
//! after it, and the tokens that are committed then. Nobody signs it.
//!
//! A reader gets it from a node that they trust: it is short, 72 bytes for each epoch, and one
//! chain serves for files of all peers. It is read at the offset of an epoch, so its length does
//! not matter.

use std::{
    fmt,
    fs::File,
    io::{self, Write},
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
};

use intellect_protocol::{
    base::id::{Digest, RunId},
    message::{Head, Link, wire},
};

use crate::figures::number_of;

/// What a chain has of one epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EpochEntry {
    /// The digest of the epoch's receipt.
    pub(super) r: Digest,
    /// The digest of the state after it.
    pub(super) state: Digest,
    /// The tokens that are committed then.
    pub(super) tokens: u64,
}

/// Why a file has no chain that can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Broken {
    /// It is shorter than a head, or begins with something else.
    #[error("is no chain of receipts")]
    Foreign,
    /// It has no epoch, or a last one that is not whole.
    #[error("ends in the middle of an epoch, so it is not whole")]
    Cut,
}

/// A file with a chain, from epoch 1 on, which is read where it is asked for.
#[derive(Debug)]
pub(super) struct Chain {
    /// The path of the file, for sentences about it.
    path: PathBuf,
    /// The open file. Entries are read at their offsets.
    file: File,
    /// The run that it says it is of. Nobody has signed that.
    pub(super) run: RunId,
    /// The number of its last epoch.
    pub(super) epochs: u64,
}

impl Chain {
    /// Takes the chain in a file that is open, if it has one. The outer error is the system's, the
    /// inner one says that the file is something else. Entries are not checked here: each stands
    /// for itself until a receipt is compared with it.
    pub(super) fn open(path: &Path, file: File) -> io::Result<Result<Self, Broken>> {
        let length = file.metadata()?.len();
        let mut head = [0; HEAD_BYTES];
        if length < HEAD_BYTES as u64 {
            return Ok(Err(Broken::Foreign));
        }
        file.read_exact_at(&mut head, 0)?;
        let Some(run) = head.strip_prefix(&MAGIC).and_then(|rest| rest.first_chunk::<32>()) else {
            return Ok(Err(Broken::Foreign));
        };
        let body = length - HEAD_BYTES as u64;
        if body == 0 || !body.is_multiple_of(ENTRY_BYTES as u64) {
            return Ok(Err(Broken::Cut));
        }
        let (run, epochs) = (RunId(*run), body / ENTRY_BYTES as u64);
        Ok(Ok(Self { path: path.to_owned(), file, run, epochs }))
    }

    /// The entry of an epoch; `None` before the first and behind the last one.
    pub(super) fn at(&self, epoch: u64) -> io::Result<Option<EpochEntry>> {
        let Some(index) = epoch.checked_sub(1).filter(|index| *index < self.epochs) else {
            return Ok(None);
        };
        let mut bytes = [0; ENTRY_BYTES];
        self.file.read_exact_at(&mut bytes, HEAD_BYTES as u64 + index * ENTRY_BYTES as u64)?;
        let (mut r, mut state, mut tokens) = ([0; 32], [0; 32], [0; 8]);
        r.copy_from_slice(&bytes[..32]);
        state.copy_from_slice(&bytes[32..64]);
        tokens.copy_from_slice(&bytes[64..]);
        let (r, state, tokens) = (Digest(r), Digest(state), u64::from_le_bytes(tokens));
        Ok(Some(EpochEntry { r, state, tokens }))
    }

    /// Its length as a person reads it.
    pub(super) fn span(&self) -> String {
        number_of(self.epochs, "epoch")
    }
}

impl fmt::Display for Chain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.path.display())
    }
}

/// Writes the chain of a lineage, and returns its length in bytes. The lineage begins with epoch 1
/// and leaves none out, so an epoch needs no number.
pub(super) fn write(to: &mut impl Write, run: &RunId, lineage: &[(Head, Link)]) -> io::Result<u64> {
    to.write_all(&MAGIC)?;
    to.write_all(run.as_bytes())?;
    for (head, link) in lineage {
        to.write_all(wire::receipt_digest(run, &link.receipt).as_bytes())?;
        to.write_all(head.state.as_bytes())?;
        to.write_all(&head.tokens.to_le_bytes())?;
    }
    Ok((HEAD_BYTES + lineage.len() * ENTRY_BYTES) as u64)
}

/// Seven letters and the version of the format.
const MAGIC: [u8; 8] = *b"irchain\x01";
/// Bytes before the first epoch.
const HEAD_BYTES: usize = MAGIC.len() + 32;
/// Bytes of an epoch: two digests and a number.
const ENTRY_BYTES: usize = 32 + 32 + 8;
