//! A connection whose client must read: once it has taken too little for a while, writing to it fails.
//!
//! Without it a client that opens streams and never reads, or a byte now and then, would keep its
//! connection and its texts in memory for good.
//!
//! The bound is a budget of waiting. Time in which a write waits for the client is spent, bytes
//! that the client takes earn time back at `BYTES_PER_SECOND`, and an empty budget is an error.
//! So a slow line is served, and one that stands still is not. A client that waits for news costs
//! nothing: only writes are counted, not reads.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Instant, Sleep, sleep},
};

/// A stream with a bound on how long its other side may be waited for.
#[derive(Debug)]
pub struct Patient<S> {
    /// The connection itself. Reads go to it unchanged.
    inner: S,
    /// How long it may be waited for, beyond what [`BYTES_PER_SECOND`] explains.
    patience: Duration,
    /// How long it has been waited for, less what it has taken since.
    waited: Duration,
    /// The wait that has begun, if one has: since when, and its end.
    wait: Option<(Instant, Pin<Box<Sleep>>)>,
}

/// A client that takes so much is never too slow.
const BYTES_PER_SECOND: f64 = 1_000.0;

impl<S: Unpin> Patient<S> {
    /// A stream whose other side may take nothing for as long as `patience`.
    pub fn new(inner: S, patience: Duration) -> Self {
        Self { inner, patience, waited: Duration::ZERO, wait: None }
    }

    /// The number of bytes that were taken, or an error if that was waited for too long.
    ///
    /// `outcome` is what the inner stream answered. While it is pending, a timer wakes the task at
    /// the end of the budget.
    fn bounded(
        &mut self,
        context: &mut Context<'_>,
        outcome: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        if let Poll::Ready(taken) = outcome {
            let waited = self.wait.take().map_or(Duration::ZERO, |(since, _)| since.elapsed());
            let bytes = taken.as_ref().map_or(0.0, |bytes| *bytes as f64);
            let earned = Duration::from_secs_f64(bytes / BYTES_PER_SECOND);
            self.waited = self.waited.saturating_add(waited).saturating_sub(earned);
            return Poll::Ready(taken);
        }
        let left = self.patience.saturating_sub(self.waited);
        let (_, end) = self.wait.get_or_insert_with(|| (Instant::now(), Box::pin(sleep(left))));
        end.as_mut().poll(context).map(|()| Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Patient<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Patient<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.inner).poll_write(context, bytes);
        self.bounded(context, outcome)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let outcome = Pin::new(&mut self.inner).poll_flush(context);
        self.bounded(context, outcome.map_ok(|()| 0)).map_ok(drop)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let outcome = Pin::new(&mut self.inner).poll_shutdown(context);
        self.bounded(context, outcome.map_ok(|()| 0)).map_ok(drop)
    }
}

#[cfg(test)]
mod tests {
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _, duplex},
        time::timeout,
    };

    use super::*;

    #[tokio::test]
    async fn a_client_that_never_reads_is_given_up() {
        let (ours, mut theirs) = duplex(8);
        let mut patient = Patient::new(ours, Duration::from_millis(30));
        patient.write_all(b"12345678").await.unwrap();
        let mut read = [0; 8];
        theirs.read_exact(&mut read).await.unwrap();
        patient.write_all(b"12345678").await.unwrap();
        let given_up = patient.write_all(b"9").await.unwrap_err();
        assert_eq!(given_up.kind(), io::ErrorKind::TimedOut);
    }

    /// Each byte comes in time, but all together take far longer than is waited.
    #[tokio::test]
    async fn a_client_that_reads_a_byte_now_and_then_is_given_up() {
        let (ours, mut theirs) = duplex(8);
        let mut patient = Patient::new(ours, Duration::from_millis(200));
        let reads = async {
            loop {
                sleep(Duration::from_millis(20)).await;
                let _ = theirs.read_u8().await;
            }
        };
        let writes = async {
            let text = [0; 10_000];
            patient.write_all(&text).await.map_err(|error| error.kind())
        };
        let ended = timeout(Duration::from_secs(20), async {
            tokio::select! {
                () = reads => unreachable!("it reads on"),
                ended = writes => ended,
            }
        });
        assert_eq!(ended.await.unwrap(), Err(io::ErrorKind::TimedOut));
    }
}
