//! The weights of a run that is being made: a file that is written piece by piece, as its numbers are read.
//!
//! Only then is the digest known by which the manifest names them. So the file has another name until the manifest is
//! complete, and if there is none in the end, the file is removed. No more than a piece is in memory.
//!
//! It is a checkpoint of no run, with a momentum of zeros, as `genesis` reads it.

use std::{
    fs::{self, File},
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
};

use intellect_protocol::{
    base::id::Digest,
    history::checkpoint::{HEADER_BYTES, Header, PIECE, PIECE_BYTES, Table},
    ring::codec::Codec,
};

use super::{
    StoreError, TEMPORARY,
    checkpoints::{FLUSH_BYTES, take_over},
};
use crate::os::cannot;

/// Weights without the name under which the first node of a run is given them.
pub(crate) struct Unpublished {
    /// The name that the file gets.
    path: PathBuf,
    /// The name that it has until then.
    temporary: Temporary,
    /// Header and digests, from which the state's digest follows.
    table: Table,
}

/// A file that is removed in the end, if it still has this name.
struct Temporary(PathBuf);

impl Drop for Temporary {
    fn drop(&mut self) {
        // After a rename there is none. What cannot be removed is written anew by the next attempt.
        let _ = fs::remove_file(&self.0);
    }
}

impl Unpublished {
    /// Writes the weights that will be at `path`. `fill` is given what takes the numbers, in any pieces.
    ///
    /// # Panics
    /// If `fill` gives another number of them than `parameters`.
    ///
    /// # Errors
    /// Those of `fill`; a number that is not finite; a disk that refuses. Nothing is left of the
    /// file.
    pub(crate) fn write<E: From<StoreError>>(
        path: &Path,
        parameters: u64,
        fill: impl FnOnce(&mut dyn FnMut(&[f32]) -> Result<(), E>) -> Result<(), E>,
    ) -> Result<Self, E> {
        // Behind the whole name, so that it is no file of a person.
        let temporary = Temporary(path.with_added_extension(TEMPORARY));
        let mut writer = Writer::create(&temporary.0, Header::published(parameters))?;
        fill(&mut |numbers: &[f32]| writer.push(numbers).map_err(E::from))?;
        let table = writer.finish()?;
        Ok(Self { path: path.to_owned(), temporary, table })
    }

    /// The digest by which a manifest names the weights.
    pub(crate) fn state(&self) -> Digest {
        self.table.state()
    }

    /// Gives the file its name, which must be free.
    /// The name is taken first, so that of two programs one fails, and no file of a person is
    /// replaced.
    pub(crate) fn publish(&self) -> Result<(), StoreError> {
        File::create_new(&self.path).map_err(cannot("create", &self.path))?;
        take_over(&self.temporary.0, &self.path, &self.table).map(drop).inspect_err(|_| {
            // The file is ours, and of no use.
            let _ = fs::remove_file(&self.path);
        })
    }
}

/// Writes the pieces of θ, each as soon as it is complete, behind the room for header and table.
struct Writer<'a> {
    /// For errors: which file could not be written.
    path: &'a Path,
    /// The file, whose first bytes are written last.
    file: File,
    /// The header of weights of no run.
    header: Header,
    /// Where the pieces begin in the file.
    begin: u64,
    /// Numbers of the piece that is not complete yet.
    piece: Vec<f32>,
    /// Memory for the bytes of one piece.
    bytes: Vec<u8>,
    /// The digest of each piece before it.
    digests: Vec<Digest>,
    /// Bytes that wait for the disk.
    waiting: usize,
}

impl<'a> Writer<'a> {
    /// Creates the file. The number of parameters says how much room header and table take.
    fn create(path: &'a Path, header: Header) -> Result<Self, StoreError> {
        let pieces = header.piece_count()?;
        Ok(Self {
            path,
            file: File::create(path).map_err(cannot("write", path))?,
            header,
            begin: (HEADER_BYTES + 32 * pieces) as u64,
            piece: Vec::with_capacity(PIECE),
            bytes: vec![0; PIECE_BYTES],
            digests: Vec::new(),
            waiting: 0,
        })
    }

    /// Takes numbers, and writes each piece that they complete.
    fn push(&mut self, mut numbers: &[f32]) -> Result<(), StoreError> {
        while !numbers.is_empty() {
            let room = PIECE - self.piece.len();
            let (now, later) = numbers.split_at(room.min(numbers.len()));
            self.piece.extend_from_slice(now);
            if self.piece.len() == PIECE {
                self.write_piece()?;
                self.piece.clear();
            }
            numbers = later;
        }
        Ok(())
    }

    /// Writes the piece; one of zeros becomes a hole.
    fn write_piece(&mut self) -> Result<(), StoreError> {
        let failed = cannot("write", self.path);
        let first = self.digests.len() * PIECE;
        let bytes = &mut self.bytes[..4 * self.piece.len()];
        Codec::F32.encode(&self.piece, bytes).map_err(|error| error.after(first))?;
        if bytes.iter().any(|byte| *byte != 0) {
            self.file.write_all_at(bytes, self.begin + 4 * first as u64).map_err(&failed)?;
            self.waiting += bytes.len();
        }
        self.digests.push(Digest(*blake3::hash(bytes).as_bytes()));
        if self.waiting >= FLUSH_BYTES {
            self.file.sync_data().map_err(&failed)?;
            self.waiting = 0;
        }
        Ok(())
    }

    /// Completes the file: its momentum is a hole, and header and table stand before all pieces.
    fn finish(mut self) -> Result<Table, StoreError> {
        let count = self.digests.len() * PIECE + self.piece.len();
        assert_eq!(count as u64, self.header.parameters, "one number per parameter");
        let last = self.piece.len();
        if last > 0 {
            self.write_piece()?;
        }
        let zeros = |numbers: usize| Digest(*blake3::hash(&vec![0; 4 * numbers]).as_bytes());
        self.digests.extend(vec![zeros(PIECE); count / PIECE]);
        self.digests.extend((last > 0).then(|| zeros(last)));
        let mut front = self.header.to_bytes().to_vec();
        front.extend(self.digests.iter().flat_map(|digest| digest.0));
        let table = Table::from_bytes(&front, &Table::digest_of(&front))?;
        let written = self.file.write_all_at(&front, 0);
        let written = written.and_then(|()| self.file.set_len(self.begin + 8 * count as u64));
        written.and_then(|()| self.file.sync_all()).map_err(cannot("write", self.path))?;
        Ok(table)
    }
}

#[cfg(test)]
mod tests {
    use intellect_protocol::base::id::RunId;

    use super::*;
    use crate::store::genesis;

    fn written(path: &Path, theta: &[f32], pieces: usize) -> Result<Unpublished, StoreError> {
        Unpublished::write(path, theta.len() as u64, |take| theta.chunks(pieces).try_for_each(take))
    }

    /// However the numbers arrive, the file is that of the whole weights.
    #[test]
    fn weights_in_pieces_have_the_digest_of_the_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.ckpt");
        for count in [1, 7, PIECE - 1, PIECE, PIECE + 1, 3 * PIECE] {
            let theta: Vec<f32> = (0..count).map(|n| n as f32 - 5.0).collect();
            let expected = genesis::table(&theta).unwrap();
            for pieces in [100_003, 3 * PIECE] {
                let made = written(&path, &theta, pieces).unwrap();
                assert_eq!(made.state(), expected.state(), "{count} in {pieces}");
                assert!(!path.exists() && made.temporary.0.exists());
                made.publish().unwrap();
                drop(made);
                let front = &fs::read(&path).unwrap()[..expected.to_bytes().len()];
                assert_eq!(front, expected.to_bytes());
                assert_eq!(expected.header().run, RunId([0; 32]));
                fs::remove_file(&path).unwrap();
            }
        }
    }

    #[test]
    fn weights_without_a_manifest_leave_nothing_behind() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.ckpt");
        let left = || fs::read_dir(folder.path()).unwrap().count();
        drop(written(&path, &[1.0; 9], 2).unwrap());
        assert_eq!(left(), 0);
        let error = written(&path, &[1.0, 2.0, f32::NAN], 1).err().unwrap();
        assert!(matches!(error, StoreError::NotFinite(_)), "{error}");
        assert_eq!(left(), 0);
        let stopped: Result<_, StoreError> = Unpublished::write(&path, 3, |take| {
            take(&[1.0])?;
            Err(StoreError::ReadBack { path: path.clone() })
        });
        assert!(stopped.is_err() && left() == 0);
        assert!(written(&path, &[], 1).is_err(), "a model has parameters");
    }
}
