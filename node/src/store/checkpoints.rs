//! The states on disk: `checkpoints/<epoch>.ckpt`, the newest [`CHECKPOINTS`] of them.
//!
//! A checkpoint is written under another name, flushed, read back, compared with its table, and renamed: it is whole
//! or not there. The order of writing is stored as the time of modification, since neither epoch nor clock tells the
//! age: after a fork a smaller epoch may be the newer state, and a clock may be set back.
//!
//! It is flushed every [`FLUSH_BYTES`]. On a file system that orders its journal, the flush of a vote waits for
//! everything that is not written yet, and this keeps that little. Beside a state of 600 MiB the longest flush took 18
//! to 23 ms instead of 128 to 180 (ext4 on a virtual disk, 2026-11).
//!
//! A start believes files only as far as their digests match. A file that is damaged, or contains the state of something
//! else, is set aside, and the next one is read.
//!
//! Room on the disk: one state has 8 bytes for each parameter and 32 for each piece.
//! [`CHECKPOINTS`] are there at a time, and one that is being written. Checkpoints that others
//! fetch stay readable after they were removed, as long as their [`Saved`] lives: the system frees
//! the room then.

use std::{
    ffi::OsStr,
    fs::{self, File},
    io::{self, Read as _, Seek as _, Write as _},
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
    sync::{Arc, Once},
    time::{Duration, SystemTime},
};

use intellect_protocol::{
    base::id::{Digest, RunId},
    history::checkpoint::{Header, PIECE_BYTES, Table},
    holdings::CHECKPOINTS,
    ring::codec::Codec,
};

use super::{Keep, Store, StoreError, TEMPORARY, files};
use crate::{
    checkpoint::{Checkpoint, CheckpointError, Front},
    os::{self, cannot, unless_missing},
};

/// Bytes of a checkpoint that may wait for the disk: a tenth of a second of a slow one.
pub(super) const FLUSH_BYTES: usize = 8 << 20;

/// A checkpoint on disk, ready to be served. It can be read while this lives, even when the file is pruned.
///
/// It has the table in memory: 32 bytes for each piece of at most 1 MiB.
#[derive(Clone, Debug)]
pub(crate) struct Saved {
    /// The digest by which peers ask for this state.
    pub(crate) state: Digest,
    /// The header of the state, and the digest of each piece.
    pub(crate) table: Arc<Table>,
    /// The open file, shared by all answers that read from it.
    file: Arc<File>,
    /// Reports once that the file has changed.
    damaged: Arc<Once>,
}

/// What the search for a checkpoint reports.
#[derive(Debug)]
pub(crate) enum Look {
    /// A file was set aside, or could not be read.
    Unusable(CheckpointError),
    /// Pieces of a state were read and are good.
    Read {
        epoch: u64,
        /// Pieces that were read so far.
        done: usize,
        /// How many pieces the state has.
        all: usize,
    },
}

impl Store {
    /// Stores a state as `checkpoints/<epoch>.ckpt`, and removes all others but the newest two. It takes as long as the
    /// disk, so it is not for the control loop.
    ///
    /// # Errors
    /// The state has a number that is not finite; the disk refuses, or has less room than the state
    /// needs; or what was read back differs. Afterwards the earlier checkpoints are there, and no
    /// part of this one. Errors of a milestone or of a removal are only logged.
    pub(crate) fn save(
        &self,
        table: Arc<Table>,
        theta: &[f32],
        momentum: &[f32],
    ) -> Result<Saved, StoreError> {
        let path = self.checkpoint_path(table.header().epoch);
        let newest = self.dated()?.first().map(|(modified, _)| *modified);
        let file = write(&path, &table, theta, momentum, newest)?;
        let old = self.checkpoints()?.into_iter().skip(CHECKPOINTS);
        // The state is stored; that an old one stays, or a second name is missing, stops nothing.
        for old in old.filter(|old| *old != path) {
            if let Err(error) = unless_missing(fs::remove_file(&old)) {
                tracing::warn!(%error, path = %old.display(), "an old checkpoint stays");
            }
        }
        let epoch = table.header().epoch;
        let keep = |keep: Keep| keep.milestone(&self.milestones_folder(), &path, epoch);
        if let Some(Err(error)) = self.keep.map(keep) {
            tracing::warn!(%error, "the milestone of epoch {epoch} was not kept");
        }
        Ok(Saved::new(table, file))
    }

    /// The checkpoints on disk, the last one written first.
    pub(crate) fn checkpoints(&self) -> Result<Vec<PathBuf>, StoreError> {
        Ok(self.dated()?.into_iter().map(|(_, path)| path).collect())
    }

    /// The whole checkpoint of the greatest epoch among those that `belongs` accepts by header and state digest (R21). A
    /// damaged one is set aside. One that does not belong stays, since it may be the state of the other side of a fork.
    ///
    /// `look` hears of each file that cannot be used, and of each piece that was read. Fronts are
    /// read first, so that only the state that is wanted is read whole; the next one only if that
    /// is damaged.
    ///
    /// # Errors
    /// The folder cannot be read, or a damaged file cannot be moved.
    pub(crate) fn newest_whole(
        &self,
        run: RunId,
        parameters: u64,
        belongs: impl Fn(&Header, &Digest) -> bool,
        look: &mut dyn FnMut(Look),
    ) -> Result<Option<(Checkpoint, Saved)>, StoreError> {
        let mut fronts = Vec::new();
        for path in self.checkpoints()? {
            match Front::read(&path, run, parameters) {
                Ok(front) if belongs(front.table.header(), &front.table.state()) => {
                    fronts.push((front, path));
                }
                Ok(_) => {}
                Err(error) => self.give_up(&path, error, look)?,
            }
        }
        fronts.sort_by_key(|(front, _)| std::cmp::Reverse(front.table.header().epoch));
        for (front, path) in fronts {
            let table = Arc::new(front.table.clone());
            let (epoch, all) = (table.header().epoch, table.pieces().len());
            match front.whole(|piece| look(Look::Read { epoch, done: piece + 1, all })) {
                Ok(checkpoint) => {
                    let file = File::open(&path).map_err(cannot("open", &path))?;
                    return Ok(Some((checkpoint, Saved::new(table, file))));
                }
                Err(error) => self.give_up(&path, error, look)?,
            }
        }
        Ok(None)
    }

    /// Reports a file that cannot be used. Only a damaged one is moved away; one that could not be
    /// read may be good.
    fn give_up(
        &self,
        path: &Path,
        error: CheckpointError,
        look: &mut dyn FnMut(Look),
    ) -> Result<(), StoreError> {
        if error.is_damage() {
            self.set_aside(path)?;
        }
        look(Look::Unusable(error));
        Ok(())
    }

    /// The same, with the times of modification.
    fn dated(&self) -> Result<Vec<(SystemTime, PathBuf)>, StoreError> {
        let mut found = Vec::new();
        for path in files(&self.checkpoints_folder())? {
            if path.extension() == Some(OsStr::new("ckpt")) {
                let modified = fs::metadata(&path).and_then(|metadata| metadata.modified());
                found.push((modified.map_err(cannot("read", &path))?, path));
            }
        }
        found.sort_by(|a, b| b.cmp(a));
        Ok(found)
    }

    /// The folder of the newest checkpoints.
    pub(super) fn checkpoints_folder(&self) -> PathBuf {
        self.folder.join("checkpoints")
    }

    /// The file of the checkpoint of an epoch.
    pub(super) fn checkpoint_path(&self, epoch: u64) -> PathBuf {
        self.checkpoints_folder().join(format!("{epoch}.ckpt"))
    }
}

impl Saved {
    /// The state of `table`, whose checkpoint is `file`.
    pub(super) fn new(table: Arc<Table>, file: File) -> Self {
        Self { state: table.state(), table, file: Arc::new(file), damaged: Arc::new(Once::new()) }
    }

    /// The bytes of a piece, as they are served, if there is such a piece and it can be read. Bytes that have changed
    /// on the disk are not served: others would blame this node.
    pub(crate) fn piece(&self, piece: usize) -> Option<Vec<u8>> {
        let digest = self.table.pieces().get(piece)?;
        let mut bytes = vec![0; 4 * self.table.piece(piece)?.len()];
        self.file.read_exact_at(&mut bytes, self.table.offset(piece)?).ok()?;
        if blake3::hash(&bytes) != blake3::Hash::from_bytes(digest.0) {
            let epoch = self.table.header().epoch;
            self.damaged.call_once(|| {
                tracing::error!("the state of epoch {epoch} has changed on the disk, which may be failing: check it");
            });
            return None;
        }
        Some(bytes)
    }
}

/// Writes a checkpoint whose time of modification is later than `newest`, whatever the clock says. Afterwards the whole
/// file has its name, or nothing is left of it.
pub(super) fn write(
    path: &Path,
    table: &Table,
    theta: &[f32],
    momentum: &[f32],
    newest: Option<SystemTime>,
) -> Result<File, StoreError> {
    let temporary = path.with_extension(TEMPORARY);
    write_pieces(&temporary, table, theta, momentum, newest)
        .and_then(|()| take_over(&temporary, path, table))
        .inspect_err(|_| {
            // The first error says more than a second one would.
            let _ = fs::remove_file(&temporary);
        })
}

/// The bytes of the pieces that are no holes.
fn filled_bytes(table: &Table) -> u64 {
    let filled = table.zeros().enumerate().filter(|(_, is_zero)| !is_zero);
    filled.filter_map(|(piece, _)| table.piece(piece)).map(|range| 4 * range.len() as u64).sum()
}

/// Writes `header ‖ table ‖ pieces` down to the disk. Pieces of zeros become holes.
///
/// It asks the file system for room before, since a write that fills the disk would make the next
/// vote fail. That is no reservation: others may take the room meanwhile.
fn write_pieces(
    path: &Path,
    table: &Table,
    theta: &[f32],
    momentum: &[f32],
    newest: Option<SystemTime>,
) -> Result<(), StoreError> {
    let failed = cannot("write", path);
    // A disk that is filled to its end would refuse logs and updates too.
    let free = path.parent().and_then(os::disk_available_bytes);
    if free.is_some_and(|free| free < filled_bytes(table)) {
        return Err(failed(io::ErrorKind::StorageFull.into()).into());
    }
    let mut file = File::create(path).map_err(&failed)?;
    file.write_all(&table.to_bytes()).map_err(&failed)?;
    let mut bytes = vec![0; PIECE_BYTES];
    let mut waiting = 0;
    for (part, offset) in [(theta, 0), (momentum, theta.len())] {
        for (index, numbers) in part.chunks(PIECE_BYTES / 4).enumerate() {
            let bytes = &mut bytes[..4 * numbers.len()];
            Codec::F32
                .encode(numbers, bytes)
                .map_err(|error| error.after(offset + index * PIECE_BYTES / 4))?;
            if bytes.iter().all(|byte| *byte == 0) {
                file.seek_relative(bytes.len().cast_signed() as i64).map_err(&failed)?;
                continue;
            }
            file.write_all(bytes).map_err(&failed)?;
            waiting += bytes.len();
            if waiting >= FLUSH_BYTES {
                file.sync_data().map_err(&failed)?;
                waiting = 0;
            }
        }
    }
    let end = file.stream_position().map_err(&failed)?;
    file.set_len(end).map_err(&failed)?;
    let modified = file.metadata().and_then(|metadata| metadata.modified()).map_err(&failed)?;
    if let Some(newest) = newest.filter(|newest| *newest >= modified) {
        file.set_modified(newest + Duration::from_millis(1)).map_err(&failed)?;
    }
    Ok(file.sync_all().map_err(&failed)?)
}

/// Reads `temporary` back, and renames it if it is right.
///
/// A disk or memory that changes bits is found here, while the state is still in memory, and not
/// when a peer that fetches it blames this node. The system may answer from its cache, so a fault
/// of the disk alone can stay unseen.
pub(super) fn take_over(temporary: &Path, path: &Path, table: &Table) -> Result<File, StoreError> {
    let reread = cannot("read back", temporary);
    let mut file = File::open(temporary).map_err(&reread)?;
    let mut front = vec![0; table.to_bytes().len()];
    file.read_exact(&mut front).map_err(&reread)?;
    let mut good = front == table.to_bytes();
    let mut bytes = vec![0; PIECE_BYTES];
    for (piece, digest) in table.pieces().iter().enumerate() {
        let elements = table.piece(piece).map_or(0, |range| range.len());
        let bytes = &mut bytes[..4 * elements];
        file.read_exact(bytes).map_err(&reread)?;
        good &= blake3::hash(bytes) == blake3::Hash::from_bytes(digest.0);
    }
    if !good {
        return Err(StoreError::ReadBack { path: temporary.to_owned() });
    }
    fs::rename(temporary, path)
        .and_then(|()| os::sync_parent(path))
        .map_err(cannot("rename", temporary))?;
    Ok(file)
}

#[cfg(test)]
mod tests;
