//! Where lines become what readers see: each is folded into the picture and the past, and passed on.
//!
//! Nothing here waits for a reader: a slow one misses lines, and finds a newer picture.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{broadcast, watch};

use crate::{
    history::{Columns, History},
    picture::{Picture, Source, gauge::Gauge},
    record::{Record, Text},
};

/// The writing end: one for each run that is shown.
#[derive(Debug)]
pub struct Stage {
    /// The picture with everything that was taken. Readers see the copy in `shown`.
    picture: Picture,
    /// The past, which is written at once and not published.
    past: Past,
    /// The newest published picture. A watch keeps one value, so a slow reader delays nobody.
    shown: watch::Sender<Arc<Picture>>,
    /// Raw lines for readers that stream them, at most `LINES_MAX` behind.
    lines: broadcast::Sender<Arc<str>>,
}

/// What readers get. It can be cloned, one for each reader.
#[derive(Clone, Debug)]
pub struct Seen {
    /// The newest picture that was published.
    pub picture: watch::Receiver<Arc<Picture>>,
    /// The past, which is locked for one answer at a time.
    pub(crate) past: Past,
    /// The sender of raw lines: a stream subscribes to it, and misses what came before.
    pub(crate) lines: broadcast::Sender<Arc<str>>,
}

/// The past of a run, which the fold writes and a page reads.
///
/// It is behind a lock, since a copy of up to [`ROWS_MAX`](crate::history::ROWS_MAX) rows for each
/// picture would cost more. A poisoned lock is used on: the rows are whole after every change.
#[derive(Clone, Debug, Default)]
pub(crate) struct Past(Arc<Mutex<History>>);

impl Past {
    /// The past, locked. The writer of events waits for it, so it is held for one answer and across
    /// no await.
    pub(crate) fn lock(&self) -> MutexGuard<'_, History> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Stage {
    /// An empty picture of this source, and what shows it. No reader sees a record before the first
    /// [`Self::publish`].
    pub fn new(source: Source) -> (Self, Seen) {
        let mut picture = Picture::default();
        picture.source = source;
        let (shown, receiver) = watch::channel(Arc::new(picture.clone()));
        let lines = broadcast::Sender::new(LINES_MAX);
        let past = Past::default();
        let seen = Seen { picture: receiver, past: past.clone(), lines: lines.clone() };
        (Self { picture, past, shown, lines }, seen)
    }

    /// Shows the run as this peer sees it, whichever writes first.
    pub fn seen_by(&mut self, peer: Text) {
        self.picture.node.peer = Some(peer);
    }

    /// Takes a record and the line that it was read from. It clones no picture, so that a long file
    /// is read fast.
    pub fn take(&mut self, record: &Record, line: &str) {
        self.picture.take(record);
        self.past.lock().take(record, &self.picture);
        // Without a reader there is nobody to pass a line to.
        if self.lines.receiver_count() > 0 {
            let _ = self.lines.send(line.into());
        }
    }

    /// Takes what a running node measures between two records.
    pub fn measure(&mut self, gauge: Gauge) {
        self.picture.measure(gauge);
    }

    /// How much of a later state has come, and how much it has, in bytes; `None` while none is
    /// fetched.
    pub fn fetched(&self) -> Option<(u64, u64)> {
        let fetch = self.picture.fetch.as_ref()?;
        fetch.to_epoch.map(|_| (fetch.have_bytes, fetch.want_bytes))
    }

    /// Lets readers see what was taken. It clones the picture: callers publish a few times a
    /// second, not for each record.
    pub fn publish(&mut self) {
        self.shown.send_replace(Arc::new(self.picture.clone()));
    }

    /// Notes that a file has ended, or grows again. Readers see it with the next [`Self::publish`].
    pub fn note(&mut self, source: Source) {
        self.picture.source = source;
    }
}

impl Seen {
    /// The newest epoch that is shown as committed, with the state after it.
    pub fn committed(&self) -> Option<(u64, Text)> {
        let picture = self.picture.borrow();
        picture.head.state.clone().map(|state| (picture.head.epoch, state))
    }
}

/// What another process shows of a run, shown again in this one, as the command `tui` does.
#[derive(Debug)]
pub struct Mirror {
    /// The newest picture of the other process.
    shown: watch::Sender<Arc<Picture>>,
    /// Its past, as it was answered last.
    past: Past,
}

impl Mirror {
    /// An empty picture, and what shows it. It has no lines.
    pub fn new() -> (Self, Seen) {
        let (shown, picture) = watch::channel(Arc::default());
        let past = Past::default();
        let seen = Seen { picture, past: past.clone(), lines: broadcast::Sender::new(1) };
        (Self { shown, past }, seen)
    }

    /// Shows what a node answered at `/status` and `/history`.
    ///
    /// # Errors
    /// If one of them is no such answer, or of a node of another version; then nothing changes.
    pub fn show(&self, status: &str, history: &str) -> serde_json::Result<()> {
        let picture: Picture = serde_json::from_str(status)?;
        let columns: Columns = serde_json::from_str(history)?;
        *self.past.lock() = columns.into();
        self.shown.send_replace(Arc::new(picture));
        Ok(())
    }
}

/// Lines that a slow reader may be behind before it misses some.
const LINES_MAX: usize = 1_024;
