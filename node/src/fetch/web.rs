//! Fetches a file of the run's data from the web server that its manifest names.
//!
//! The bytes come in order, and each piece of 1 MiB is stored on disk as it arrives. If a member has handed out the
//! values of the pieces before, each piece is checked by its value; else the whole file is, at its end. A restart
//! resumes behind the last stored piece, if the server supports that. `client` decides what a server may be asked,
//! and where it may redirect to.
//!
//! The server is believed as little as a peer is. It can waste time and bytes, and no more: lengths
//! are compared before anything is read, each wait has an end, and a file with another digest is
//! thrown away.
//!
//! `ureq` blocks, so the transfer has a thread of its own. It ends between two reads once the
//! future is dropped.

mod client;
mod error;
mod public;

use std::sync::Arc;
use std::time::{Duration, Instant};

use intellect_model::config::Fingerprint;
use intellect_protocol::base::id::Digest;
use intellect_protocol::base::tree::{TREE_PIECE_BYTES, Tree, piece_count, piece_of, value_of};
use tokio::task::spawn_blocking;
use tokio_util::sync::CancellationToken;

use crate::store::data::Part;
use crate::store::{Store, StoreError};
use crate::tell::{Meter, Progress};

use client::{Client, Download, WebRules};
pub(crate) use error::WebError;
use error::{WebAddress, Why};

/// Fetches the file of this digest and length from `url` into the run's folder.
///
/// # Errors
/// The server does not give it, or it cannot be written. What has arrived is kept, unless it is another file.
///
/// # Cancel safety
/// Cancel safe; what has arrived is kept.
pub(crate) async fn data_from_web(
    store: &Arc<Store>,
    file: Fingerprint,
    url: String,
    mut meter: Meter,
) -> Result<(), WebError> {
    let store = Arc::clone(store);
    let stop = CancellationToken::new();
    // The thread ends when this future is dropped.
    let _waits = stop.clone().drop_guard();
    let fetch = move || {
        let show = &mut |news: News<'_>| match news {
            News::Stored(have_bytes) => {
                meter.show(Progress { have_bytes, want_bytes: file.bytes, donors: Vec::new() });
            }
            News::Again(error, pause) => meter.console.say(&error.again(pause)),
        };
        fetch(&WebRules::public(), &store, file, &url, &stop, show)
    };
    spawn_blocking(fetch).await.map_err(StoreError::from)?
}

/// What happens during a download.
enum News<'a> {
    /// So many bytes of the file are stored.
    Stored(u64),
    /// A try has failed, and the next one comes after this pause.
    Again(&'a WebError, Duration),
}

/// The same on this thread, until `stop`.
///
/// A failure that may pass is tried again with longer pauses. The count of failures begins anew
/// with each piece that arrives, so a large file over a bad line comes in the end, and a server
/// that sends nothing is given up. A name that is not found counts as passing only after the server
/// has answered once.
fn fetch(
    rules: &WebRules,
    store: &Store,
    file: Fingerprint,
    url: &str,
    stop: &CancellationToken,
    show: &mut dyn FnMut(News<'_>),
) -> Result<(), WebError> {
    let part = store.receive_data(&file, store.data_tree(&file).as_ref())?;
    let client = Client::new(rules);
    let mut most = (part.begun().len() * TREE_PIECE_BYTES) as u64;
    let (mut is_online, mut failed) = (false, 0);
    loop {
        let before = most;
        let transfer = Transfer { client: &client, file, url, stop, part: &part };
        let tried = transfer.run(&mut |have_bytes| {
            (is_online, most) = (true, most.max(have_bytes));
            show(News::Stored(have_bytes));
        });
        let Err(error) = tried else { return Ok(()) };
        failed = if most > before { 0 } else { failed + 1 };
        if stop.is_cancelled() || failed == TRIES_MAX || !error.is_passing(is_online) {
            return Err(error);
        }
        let pause = PAUSE_MAX.min(rules.pause * (1 << failed));
        show(News::Again(&error, pause));
        wait(stop, pause);
    }
}

/// Lets time pass, unless nobody wants the file any more.
fn wait(stop: &CancellationToken, pause: Duration) {
    let until = Instant::now() + pause;
    while !stop.is_cancelled() && Instant::now() < until {
        std::thread::sleep(LOOK_EVERY.min(until.saturating_duration_since(Instant::now())));
    }
}

/// One try to fetch a file, on the thread that waits for the server.
struct Transfer<'a> {
    /// Asks the server, within the rules.
    client: &'a Client,
    /// Digest and length of the file, from the manifest.
    file: Fingerprint,
    /// The address in the manifest.
    url: &'a str,
    /// Ends the transfer between two reads.
    stop: &'a CancellationToken,
    /// Where the bytes go, with the values of the pieces if they are known.
    part: &'a Part,
}

impl Transfer<'_> {
    /// Fetches what is missing, and checks the whole file. A file that is not the right one is
    /// removed, so that the next try begins anew.
    ///
    /// After a resumed transfer the wrong part may have come earlier, as from another version of
    /// the file. So that error is tried once more from the first byte; the same file from its first
    /// byte on is final.
    fn run(&self, show: &mut dyn FnMut(u64)) -> Result<(), WebError> {
        let Fingerprint { digest, bytes } = self.file;
        let mut values = self.part.begun();
        let from = (values.len() * TREE_PIECE_BYTES) as u64;
        let mut source = WebAddress { url: self.url.to_owned(), is_page: false };
        let mut resumed = from > 0;
        if (values.len() as u64) < piece_count(bytes) {
            let mut answer = self.client.ask(self.url, from, bytes)?;
            source = answer.source.clone();
            resumed = answer.offset > 0;
            if !resumed {
                values.clear();
            }
            show(answer.offset);
            self.take(&mut answer, &mut values, show).map_err(|why| why.at(&source))?;
        }
        let found = Tree::new(bytes, values).map(|tree| tree.digest());
        if found == Some(Digest(digest)) {
            return Ok(self.part.finish()?);
        }
        self.part.clear()?;
        Err(Why::Another { found: found.unwrap_or(Digest([0; 32])), resumed }.at(&source))
    }

    /// Stores every piece behind those of `values`, to the end of the file.
    /// `values` are the values of the pieces that are stored already; each new one is added. If a
    /// value of a piece is known, a wrong piece is never written.
    fn take(
        &self,
        answer: &mut Download,
        values: &mut Vec<Digest>,
        show: &mut dyn FnMut(u64),
    ) -> Result<(), Why> {
        let bytes = self.file.bytes;
        while let Some((offset, length)) = piece_of(bytes, values.len()) {
            let mut piece = vec![0; length as usize];
            let came = self.fill(answer, &mut piece)?;
            let end = offset + came as u64;
            if came < piece.len() {
                return Err(Why::Fewer { came: end, wanted: bytes });
            }
            if !self.part.fits(values.len(), &piece) {
                return Err(Why::Piece { offset });
            }
            self.part.put(offset, &piece)?;
            values.push(value_of(bytes, values.len(), &piece));
            show(end);
        }
        if self.fill(answer, &mut [0])? > 0 {
            self.part.clear()?;
            return Err(Why::More { wanted: bytes });
        }
        Ok(())
    }

    /// Reads until the buffer, of at most a piece, is full or the server sends no more, and returns how many bytes have
    /// come.
    /// The patience is for the whole piece, beside that of each read.
    fn fill(&self, answer: &mut Download, buffer: &mut [u8]) -> Result<usize, Why> {
        let (mut came, begins) = (0, Instant::now());
        while came < buffer.len() {
            if begins.elapsed() > answer.piece_patience() {
                return Err(Why::Slow(answer.piece_patience()));
            }
            if self.stop.is_cancelled() {
                return Err(Why::Broken("the node ends".to_owned()));
            }
            match answer.read(&mut buffer[came..])? {
                0 => break,
                more => came += more,
            }
        }
        Ok(came)
    }
}

/// How often in a row a server is asked without a piece of the file: some four minutes, in which a router starts
/// anew. Each try resumes where the last one ended.
const TRIES_MAX: u32 = 8;

/// The pause after a try that brought a piece. It doubles with each one that brings none.
const PAUSE: Duration = Duration::from_secs(2);
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// How often a pause looks whether the file is still wanted.
const LOOK_EVERY: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests;
