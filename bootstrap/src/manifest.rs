//! `/intellect/manifest/1`: the signed manifests that a peer can hand out.
//!
//! Request: one frame, empty or a RunId (32 bytes). Answer: at most 16 frames, each a signed file
//! of at most 64 KiB, then the end of the stream. To this module a file is opaque bytes: the
//! asker checks its signature and derives the RunId itself, so who answers need not be trusted.

use std::{sync::Arc, time::Duration};

use futures::{AsyncRead, AsyncWrite, AsyncWriteExt};
use libp2p::StreamProtocol;
use tokio::time::timeout;

use crate::frame::{self, FrameError};

/// The protocol id.
pub const PROTOCOL: StreamProtocol = StreamProtocol::new("/intellect/manifest/1");

/// Most files in an answer.
pub const FILES_MAX: usize = 16;

/// Most bytes of one file.
pub const FILE_BYTES_MAX: u32 = 64 * 1024;

/// How long a whole exchange may take: 1 MiB over 1 Mbit/s is 8 s.
pub const TIMEOUT: Duration = Duration::from_secs(15);

/// How long the request may take, once its stream is there: it comes with the stream or right behind.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(1);

/// One signed file, shared by all who hand it out.
pub type File = Arc<[u8]>;

/// Why no manifests came.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// The answer cannot be read. The peer's fault.
    #[error("a bad answer: {0}")]
    Frame(#[from] FrameError),
    /// More files than an answer may hold. The peer's fault.
    #[error("more than {FILES_MAX} manifests in one answer")]
    TooMany,
}

/// Why a request was not answered.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// It cannot be read, or the connection failed.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// It is neither empty nor a RunId. The peer's fault.
    #[error("a request of {0} bytes, which means nothing")]
    Meaningless(usize),
}

/// Asks for the manifests of `run`, or for all.
///
/// # Errors
/// See [`AskError`].
///
/// # Cancel safety
/// Not cancel safe; drop the stream with it.
pub async fn ask<S: AsyncRead + AsyncWrite + Unpin>(
    mut stream: S,
    run: Option<[u8; 32]>,
) -> Result<Vec<Vec<u8>>, AskError> {
    let request = run.as_ref().map_or(&[][..], |run| run.as_slice());
    frame::write(&mut stream, request).await.map_err(FrameError::from)?;
    let mut files = Vec::new();
    while let Some(file) = frame::read(&mut stream, FILE_BYTES_MAX).await? {
        if files.len() == FILES_MAX {
            return Err(AskError::TooMany);
        }
        files.push(file);
    }
    Ok(files)
}

/// Answers one request with the files that `choose` picks for the RunId that was asked for.
///
/// # Errors
/// See [`ServeError`].
///
/// # Cancel safety
/// Not cancel safe; drop the stream with it.
pub async fn serve<S: AsyncRead + AsyncWrite + Unpin>(
    mut stream: S,
    choose: impl FnOnce(Option<[u8; 32]>) -> Vec<File>,
) -> Result<(), ServeError> {
    let request = timeout(REQUEST_TIMEOUT, frame::read(&mut stream, 32)).await;
    let request = request.map_err(|_| FrameError::Late)??.ok_or(FrameError::Truncated)?;
    let run = match request.as_slice() {
        [] => None,
        bytes => Some(bytes.try_into().map_err(|_| ServeError::Meaningless(bytes.len()))?),
    };
    for file in choose(run).iter().take(FILES_MAX) {
        frame::write(&mut stream, file).await.map_err(FrameError::from)?;
    }
    stream.close().await.map_err(FrameError::from)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use futures::{executor::block_on, io::Cursor};

    use super::*;

    #[tokio::test]
    async fn asker_and_server_agree() {
        let files: Vec<File> = vec![Arc::from(&b"one"[..]), Arc::from(&b"two"[..])];
        let mut request = Vec::new();
        frame::write(&mut request, &[7; 32]).await.unwrap();
        let mut asked = None;
        let mut wire = Cursor::new(request.clone());
        serve(&mut wire, |run| {
            asked = run;
            files
        })
        .await
        .unwrap();
        assert_eq!(asked, Some([7; 32]));
        // What the server wrote stands behind the request.
        let mut answer = Cursor::new(wire.into_inner());
        answer.set_position(u64::try_from(request.len()).unwrap());
        let one = frame::read(&mut answer, FILE_BYTES_MAX).await.unwrap();
        let two = frame::read(&mut answer, FILE_BYTES_MAX).await.unwrap();
        let end = frame::read(&mut answer, FILE_BYTES_MAX).await.unwrap();
        let read = (one, two, end);
        assert_eq!(read, (Some(b"one".to_vec()), Some(b"two".to_vec()), None));
    }

    #[tokio::test]
    async fn a_request_of_another_length_is_refused() {
        let mut wire = Vec::new();
        frame::write(&mut wire, &[1; 5]).await.unwrap();
        let served = serve(Cursor::new(wire), |_| panic!("must not be asked")).await;
        assert!(matches!(served, Err(ServeError::Meaningless(5))));
    }

    #[test]
    fn a_seventeenth_file_and_a_long_one_are_refused() {
        // The request overwrites the first four bytes; the answer stands behind them.
        let asked = |answer: &[u8]| {
            let wire = [&[0; 4], answer].concat();
            block_on(ask(Cursor::new(wire), None))
        };
        let one = [1, 0, 0, 0, b'x'];
        assert_eq!(asked(&one.repeat(FILES_MAX)).unwrap().len(), FILES_MAX);
        assert!(matches!(asked(&one.repeat(FILES_MAX + 1)), Err(AskError::TooMany)));
        let long = (FILE_BYTES_MAX + 1).to_le_bytes();
        assert!(matches!(asked(&long), Err(AskError::Frame(FrameError::TooLong { .. }))));
    }
}
