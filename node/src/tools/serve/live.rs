//! Follows the newest state of a node on disk, in a thread of its own: finding, reading and checking it take a while.
//!
//! A state that cannot be read is tried again later, since the node may have removed it in the meantime. What is served
//! stays as it is until a newer state was read whole.

use std::{
    io,
    path::PathBuf,
    sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender},
    thread,
    time::Duration,
};

use super::engine::NewState;
use crate::{
    checkpoint::Front,
    manifest::Manifest,
    tools::stored::{self, StoredError},
};

/// Where a node writes its states, and which of them is served.
pub(super) struct StateFolder {
    /// The data folder of the node.
    pub(super) folder: PathBuf,
    /// The begin of the id of the run, as it was typed.
    pub(super) run: Option<String>,
    /// The manifest of the run, by which checkpoints are read.
    pub(super) manifest: Manifest,
    /// The newest checkpoint that was looked at: it is served, or was damaged at the start.
    pub(super) served: PathBuf,
}

impl StateFolder {
    /// The newest state, if it is not the one that is served. After an error the same state is
    /// tried again next time.
    fn newer(&mut self) -> Result<Option<NewState>, StoredError> {
        let run = stored::run_folder(self.folder.clone(), self.run.as_deref())?;
        let path = stored::newest_checkpoint(&run)?;
        if path == self.served {
            return Ok(None);
        }
        let front = Front::of(&path, &self.manifest)?;
        let epoch = front.table.header().epoch;
        let theta = front.theta()?;
        self.served = path;
        Ok(Some(NewState { theta, epoch }))
    }

    /// Looks for newer states until `stop` has no sender, or nobody takes them any more.
    ///
    /// The channel has no queue: a state waits here until the engine has time for it, and no newer
    /// one is read meanwhile. So besides those of the model there are at most two copies of the
    /// weights: one that the engine has taken and not loaded yet, and one that waits here.
    fn follow(mut self, states: &SyncSender<NewState>, stop: &Receiver<()>) {
        while let Err(RecvTimeoutError::Timeout) = stop.recv_timeout(LOOK_EVERY) {
            let newer = self.newer().unwrap_or_else(|error| {
                tracing::debug!(%error, "the newest state cannot be read");
                None
            });
            if newer.is_some_and(|newer| states.send(newer).is_err()) {
                return;
            }
        }
    }
}

/// Starts to follow. The thread ends once the sender that is returned is dropped.
pub(super) fn start(folder: StateFolder) -> io::Result<(mpsc::Sender<()>, Receiver<NewState>)> {
    let (stop, stopped) = mpsc::channel();
    let (states, newer) = mpsc::sync_channel(0);
    let follow = move || folder.follow(&states, &stopped);
    thread::Builder::new().name("live".into()).spawn(follow)?;
    Ok((stop, newer))
}

/// How often the folder is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(2);
