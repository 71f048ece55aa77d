//! Keeps the files `peers` and `ports` up to date. Each is written once there is an address, and again after
//! each change.
//!
//! They are a convenience of the next start: a node without them needs an entry point and takes new
//! ports. So an error is only logged, and nothing is flushed in a hurry.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::sync::watch;

use super::{Done, Driver};
use crate::net::address::Address;
use crate::store::contacts;

/// The pause between two writes: peers come and go, and an old list is nearly as good.
const PAUSE: Duration = Duration::from_secs(1);

impl Driver {
    /// Starts one job for each of the two files. They run as long as the network.
    /// The files are in the data folder and not in that of the run, since addresses are the same
    /// for all runs.
    pub(super) fn keep_contacts(&mut self, data_dir: &Path) {
        let lists = [(self.net.contacts(), contacts::PEERS), (self.net.ports(), contacts::PORTS)];
        for (list, name) in lists {
            let path = data_dir.join(name);
            self.jobs.spawn(async move {
                keep(list, path).await;
                Done::Nothing
            });
        }
    }
}

/// Writes a list if it is not empty, and after each change, until the network ends. A failed write matters
/// only at the next start.
/// A start that has not met anybody yet writes nothing, so what the last one knew stays.
async fn keep(mut list: watch::Receiver<Vec<Address>>, path: PathBuf) {
    let mut written = Vec::new();
    loop {
        let now = list.borrow_and_update().clone();
        if now != written {
            let (path, lines) = (path.clone(), now.clone());
            let done = tokio::task::spawn_blocking(move || contacts::write(&path, &lines)).await;
            if let Ok(Err(error)) = done {
                // A full disk is reported where it matters more.
                tracing::info!(%error, "addresses cannot be written");
            }
            written = now;
            tokio::time::sleep(PAUSE).await;
        }
        if list.changed().await.is_err() {
            return;
        }
    }
}
