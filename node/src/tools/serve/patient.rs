//! A connection whose client must read: if it takes nothing for a while, writing to it fails.
//!
//! Without it a client that opens streams and never reads would keep its texts in memory for good.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Sleep, sleep},
};

/// A stream with a bound on how long it may take nothing.
#[derive(Debug)]
pub(super) struct Patient<S> {
    inner: S,
    /// The longest time in which it may take nothing.
    patience: Duration,
    /// Ends the wait that has begun, if one has.
    end: Option<Pin<Box<Sleep>>>,
}

impl<S: Unpin> Patient<S> {
    pub(super) fn new(inner: S, patience: Duration) -> Self {
        Self { inner, patience, end: None }
    }

    /// The outcome of a write, or an error if it has waited too long.
    fn bounded<T>(
        &mut self,
        context: &mut Context<'_>,
        outcome: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if outcome.is_ready() {
            self.end = None;
            return outcome;
        }
        let patience = self.patience;
        let end = self.end.get_or_insert_with(|| Box::pin(sleep(patience)));
        match end.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
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

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.inner).poll_write_vectored(context, slices);
        self.bounded(context, outcome)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let outcome = Pin::new(&mut self.inner).poll_flush(context);
        self.bounded(context, outcome)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let outcome = Pin::new(&mut self.inner).poll_shutdown(context);
        self.bounded(context, outcome)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

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
}
