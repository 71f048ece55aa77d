//! Keeps the file `peers` up to date. It is written soon after the first peer was reached, and
//! again when the list has changed.

use std::path::PathBuf;
use std::time::Duration;

use super::{Done, Driver};
use crate::net;
use crate::store::contacts;

/// The pause between two writings: peers come and go, and an old list is nearly as good.
const PAUSE: Duration = Duration::from_secs(5);

impl Driver {
    /// Starts the job that does it.
    pub(super) fn keep_contacts(&mut self, data_dir: PathBuf) {
        let net = self.net.clone();
        self.jobs.spawn(async move {
            keep(net, data_dir).await;
            Done::Nothing
        });
    }
}

/// Writes where peers are reached whenever that has changed, until the network ends. A list that
/// cannot be written costs nobody anything before the next start.
async fn keep(net: net::Handle, data_dir: PathBuf) {
    let mut contacts = net.contacts();
    while contacts.changed().await.is_ok() {
        let list = contacts.borrow_and_update().clone();
        let folder = data_dir.clone();
        let written = tokio::task::spawn_blocking(move || contacts::write(&folder, &list)).await;
        if let Ok(Err(error)) = written {
            // A full disk is told of where it matters.
            tracing::info!(%error, "the addresses of peers cannot be written");
        }
        tokio::time::sleep(PAUSE).await;
    }
}
