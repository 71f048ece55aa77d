//! Keeps the files `peers` and `ports` up to date. Each is written once there is an address, and again after
//! each change.

use std::io;
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
    pub(super) fn keep_contacts(&mut self, data_dir: &Path) {
        let lists = [
            (self.net.contacts(), contacts::write as Write),
            (self.net.ports(), contacts::write_ports as Write),
        ];
        for (list, write) in lists {
            let data_dir = data_dir.to_owned();
            self.jobs.spawn(async move {
                keep(list, write, data_dir).await;
                Done::Nothing
            });
        }
    }
}

/// How one of the two files is written: by a rename, so that a crash leaves the old one.
type Write = fn(&Path, &[Address]) -> io::Result<()>;

/// Writes a list if it is not empty, and after each change, until the network ends. A failed write matters
/// only at the next start.
async fn keep(mut list: watch::Receiver<Vec<Address>>, write: Write, data_dir: PathBuf) {
    let mut written = Vec::new();
    loop {
        let now = list.borrow_and_update().clone();
        if now != written {
            let (folder, lines) = (data_dir.clone(), now.clone());
            let done = tokio::task::spawn_blocking(move || write(&folder, &lines)).await;
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
