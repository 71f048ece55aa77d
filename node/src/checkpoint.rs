//! Reads a committed state from its file: `header ‖ piece digests ‖ pieces`, and checks it.
//!
//! A caller gets a state only if every byte matches the table and every number is finite. `store` writes, prunes and
//! serves these files.
//!
//! The first half of the pieces is θ, the second half the momentum, each of at most
//! [`PIECE_BYTES`]. The table has the BLAKE3 of every piece, and the digest of header and table
//! together is the name of the state. So a reader who knows that name can believe each piece by
//! itself. A reader without it, such as `eval`, believes the name that the file gives itself.
//!
//! A file is read from its front to its end, piece by piece. The memory is that of the numbers that
//! are returned, and of one piece.

use std::{
    fs::File,
    io::{self, BufReader, Read as _},
    ops::Range,
    path::{Path, PathBuf},
};

use intellect_protocol::{
    base::id::{Digest, RunId},
    history::checkpoint::{HEADER_BYTES, Header, PIECE_BYTES, PieceError, Table, TableError},
};

use crate::{
    manifest::Manifest,
    os::{PathError, cannot},
};

/// A whole state, read and checked.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Checkpoint {
    /// Its run, epoch, tokens and size.
    pub(crate) header: Header,
    /// The digest of the whole state.
    pub(crate) state: Digest,
    /// θ, the parameters that all peers agree on.
    pub(crate) theta: Vec<f32>,
    /// v, the momentum of the outer step.
    pub(crate) momentum: Vec<f32>,
}

/// Why a file is no state that can be used. The file is not changed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CheckpointError {
    /// The system refused to read it.
    #[error(transparent)]
    Io(#[from] PathError),
    /// It ends before the last of its numbers, or even within its header.
    #[error(
        "{} is cut off, or no checkpoint of this program: those are in the folder checkpoints of a run, \
         and end in .ckpt", path.display()
    )]
    Cut { path: PathBuf },
    /// The first bytes are those of no checkpoint.
    #[error(
        "{} is no checkpoint of this program: name a file of the folder checkpoints of a run, or one that \
         `manifest new` wrote, which end in .ckpt", path.display()
    )]
    Foreign { path: PathBuf },
    /// Header or table of the file make no sense.
    #[error("{} is damaged, or no checkpoint", path.display())]
    Table { path: PathBuf, source: TableError },
    /// A piece does not match its digest, or has a number that is not finite.
    #[error("{} is damaged", path.display())]
    Piece {
        path: PathBuf,
        /// What is wrong with the piece.
        source: PieceError,
    },
    /// The state belongs to another run, or to a model of another size.
    #[error(
        "{} belongs to run {found} with {parameters} parameters, the manifest is of run {expected} \
         with {wanted}: name its own manifest with --manifest",
        path.display()
    )]
    Run {
        path: PathBuf,
        found: RunId,
        /// Number of parameters in its header.
        parameters: u64,
        expected: RunId,
        /// Number of parameters of that run's model.
        wanted: u64,
    },
}

/// Header and table of a file, which say what state it contains.
/// They are checked against each other. The pieces behind them are not: a file that was cut off has
/// a good front.
#[derive(Debug)]
pub(crate) struct Front {
    /// The header, and the digest of each piece.
    pub(crate) table: Table,
    /// For errors only: the file is open.
    pub(crate) path: PathBuf,
    /// The open file, at the first piece.
    file: BufReader<File>,
}

impl Front {
    /// Reads header and table of the file at `path`, which must belong to `run` and have that many `parameters`.
    ///
    /// Both are compared before the table is read. So a hostile header cannot make this program
    /// reserve more memory than a table of the run's own model takes.
    pub(crate) fn read(path: &Path, run: RunId, parameters: u64) -> Result<Self, CheckpointError> {
        let unreadable = unread(path);
        let table_error = |source| CheckpointError::Table { path: path.to_owned(), source };
        let foreign = || CheckpointError::Foreign { path: path.to_owned() };
        if path.is_dir() {
            return Err(foreign());
        }
        let mut file = BufReader::new(File::open(path).map_err(&unreadable)?);

        let mut front = vec![0; HEADER_BYTES];
        file.read_exact(&mut front).map_err(&unreadable)?;
        // A number of parameters that no model has: the bytes are those of something else.
        let header = Header::from_bytes(&front).map_err(|_| foreign())?;
        if header.run != run || header.parameters != parameters {
            return Err(CheckpointError::Run {
                path: path.to_owned(),
                found: header.run,
                parameters: header.parameters,
                expected: run,
                wanted: parameters,
            });
        }
        // From here on every size follows from the manifest and not from the file.
        front.resize(HEADER_BYTES + 32 * header.piece_count().map_err(table_error)?, 0);
        let (_, digests) = front.split_at_mut(HEADER_BYTES);
        file.read_exact(digests).map_err(&unreadable)?;
        let state = Digest::derive("intellect-node 1 state", &front);
        let table = Table::from_bytes(&front, &state).map_err(table_error)?;
        Ok(Self { table, path: path.to_owned(), file })
    }

    /// The same for a state of the run of `manifest`, or for the published weights that it begins with.
    ///
    /// Published weights have no run of their own, so their digest is compared with the one in the
    /// manifest. If they are other weights, the error is that of a state of another run.
    pub(crate) fn of(path: &Path, manifest: &Manifest) -> Result<Self, CheckpointError> {
        let parameters = manifest.work.model.parameter_count();
        let no_run = Header::published(parameters).run;
        let read = Self::read(path, manifest.id, parameters);
        if !matches!(&read, Err(CheckpointError::Run { found, .. }) if *found == no_run) {
            return read;
        }
        let published = Self::read(path, no_run, parameters)?;
        if Some(published.table.state()) == manifest.run.genesis { Ok(published) } else { read }
    }

    /// Reads the rest, and reports every piece that is good.
    /// `good` hears the number of the piece, from 0 on: people wait for a state of many gigabytes.
    /// An error may come after pieces that were reported.
    pub(crate) fn whole(
        mut self,
        mut good: impl FnMut(usize),
    ) -> Result<Checkpoint, CheckpointError> {
        let count = self.table.pieces().len();
        let theta = self.numbers(0..count / 2, &mut good)?;
        let momentum = self.numbers(count / 2..count, good)?;
        let (header, state) = (*self.table.header(), self.table.state());
        Ok(Checkpoint { header, state, theta, momentum })
    }

    /// Reads the parameters alone; the momentum behind them is neither read nor checked.
    pub(crate) fn theta(mut self) -> Result<Vec<f32>, CheckpointError> {
        let half = 0..self.table.pieces().len() / 2;
        self.numbers(half, |_| {})
    }

    /// Checks the parameters without keeping them, and returns the file and the offset at which they begin.
    /// It is for a caller that reads them a second time, tensor by tensor, because they may not fit
    /// into memory.
    pub(crate) fn checked_theta(mut self) -> Result<(File, u64), CheckpointError> {
        let (mut bytes, mut values) = (Vec::new(), Vec::new());
        for piece in 0..self.table.pieces().len() / 2 {
            values.clear();
            self.read_piece(piece, &mut bytes, &mut values)?;
        }
        let front = HEADER_BYTES + 32 * self.table.pieces().len();
        Ok((self.file.into_inner(), front as u64))
    }

    /// Reads the numbers of the next pieces.
    /// `pieces` has to begin where the last read has ended: the file is not positioned here.
    fn numbers(
        &mut self,
        pieces: Range<usize>,
        mut good: impl FnMut(usize),
    ) -> Result<Vec<f32>, CheckpointError> {
        let (mut values, mut bytes) = (Vec::new(), Vec::new());
        for piece in pieces {
            self.read_piece(piece, &mut bytes, &mut values)?;
            good(piece);
        }
        Ok(values)
    }

    /// Appends the numbers of the next piece to `values`; `bytes` is memory to read into.
    fn read_piece(
        &mut self,
        piece: usize,
        bytes: &mut Vec<u8>,
        values: &mut Vec<f32>,
    ) -> Result<(), CheckpointError> {
        let elements = self.table.piece(piece).map_or(0, |range| range.len());
        let start = values.len();
        values.resize(start + elements, 0.0);
        bytes.resize(PIECE_BYTES, 0);
        let bytes = &mut bytes[..4 * elements];
        self.file.read_exact(bytes).map_err(unread(&self.path))?;
        self.table
            .read(piece, bytes, &mut values[start..])
            .map_err(|source| CheckpointError::Piece { path: self.path.clone(), source })
    }
}

impl CheckpointError {
    /// Whether the bytes are wrong. If the system refused to read them, they may be right.
    /// The caller moves a damaged file away, and must not do that to one that a disk could not give
    /// for a moment.
    pub(crate) fn is_damage(&self) -> bool {
        !matches!(self, Self::Io(_))
    }
}

/// The error of a read that did not succeed: the file ends there, or the system refuses.
fn unread(path: &Path) -> impl Fn(io::Error) -> CheckpointError {
    move |source| match source.kind() {
        io::ErrorKind::UnexpectedEof => CheckpointError::Cut { path: path.to_owned() },
        _ => cannot(READ, path)(source).into(),
    }
}

/// What is tried with the file, for errors of the system.
pub(crate) const READ: &str = "read the checkpoint";

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::store::tests::write_bad;

    const RUN: RunId = RunId([1; 32]);

    fn stored(folder: &Path, count: usize) -> (PathBuf, Vec<u8>) {
        let theta: Vec<f32> = (0..count).map(|i| i as f32).collect();
        let v: Vec<f32> = (0..count).map(|i| -(i as f32)).collect();
        let parameters = count as u64;
        let header = Header { run: RUN, epoch: 3, tokens: 4, r: Digest([2; 32]), parameters };
        let mut bytes = Table::of(header, &theta, &v).unwrap().to_bytes();
        bytes.extend(theta.iter().chain(&v).flat_map(|x| x.to_le_bytes()));
        let path = folder.join("3.ckpt");
        fs::write(&path, &bytes).unwrap();
        (path, bytes)
    }

    fn read(path: &Path, run: RunId, parameters: u64) -> Result<Checkpoint, CheckpointError> {
        Front::read(path, run, parameters)?.whole(|_| {})
    }

    #[test]
    fn a_state_reads_back_over_several_pieces() {
        let folder = tempfile::tempdir().unwrap();
        let count = PIECE_BYTES / 4 + 5;
        let (path, _) = stored(folder.path(), count);
        let checkpoint = read(&path, RUN, count as u64).unwrap();
        assert_eq!(checkpoint.header.epoch, 3);
        assert_eq!(checkpoint.theta[count - 1], (count - 1) as f32);
        assert_eq!(checkpoint.momentum[7], -7.0);
        let front = Front::read(&path, RUN, count as u64).unwrap();
        assert_eq!(front.theta().unwrap(), checkpoint.theta);
    }

    #[test]
    fn damage_anywhere_is_detected() {
        let folder = tempfile::tempdir().unwrap();
        let (path, good) = stored(folder.path(), 100);
        for at in [0, 33, HEADER_BYTES - 8, HEADER_BYTES, HEADER_BYTES + 64, good.len() - 1] {
            write_bad(&path, &good, at);
            let read = read(&path, RUN, 100);
            // Byte 33 is in the epoch: if that reads as a whole state, then as one of another epoch.
            let other = read.as_ref().is_ok_and(|state| state.header.epoch != 3);
            assert!(read.is_err() || (at == 33 && other), "byte {at}");
        }
        // A file that ends anywhere, in its header too, is one that was cut off.
        for length in [0, 20, HEADER_BYTES + 40, good.len() - 1] {
            fs::write(&path, &good[..length]).unwrap();
            let error = read(&path, RUN, 100).unwrap_err();
            assert!(matches!(error, CheckpointError::Cut { .. }) && error.is_damage(), "{error}");
        }
    }

    #[test]
    fn a_file_of_another_program_and_a_folder_are_no_checkpoints() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.toml");
        fs::write(&path, "a line of text\n".repeat(100)).unwrap();
        for path in [&path, folder.path()] {
            let error = read(path, RUN, 100).unwrap_err();
            assert!(matches!(error, CheckpointError::Foreign { .. }), "{error}");
        }
    }

    #[test]
    fn the_state_of_another_run_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let (path, _) = stored(folder.path(), 100);
        for (run, parameters) in [(RunId([9; 32]), 100), (RUN, 101)] {
            let error = read(&path, run, parameters).unwrap_err();
            assert!(matches!(error, CheckpointError::Run { .. }), "{error}");
        }
    }
}
