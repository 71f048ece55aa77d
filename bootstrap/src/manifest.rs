//! `/intellect/manifest/1` hands out signed manifests; `/intellect/notices/1` hands out what the
//! organiser of a run has signed since.
//!
//! Request: one frame, empty or a RunId (32 bytes); a request for notices always names a run.
//! Answer: at most 16 frames, each a signed file of at most 64 KiB, or at most 64 notices of
//! slightly over 8 KiB each, then the end of the stream. To this module a file is opaque bytes: the
//! peer that asks checks the signature and derives the RunId itself, so it need not trust the peer
//! that answers.
//!
//! A file of notices is a sequence of such frames. Anyone who has one can put it next to the
//! manifest of an entry point.

use std::{
    fs::File as Disk,
    io::{self, Read as _},
    path::Path,
    sync::Arc,
    time::Duration,
};

use futures::{AsyncRead, AsyncWrite, AsyncWriteExt};
use libp2p::StreamProtocol;
use tokio::time::timeout;

use crate::frame::{self, FrameError};

/// The protocol id of a request for manifests.
pub const PROTOCOL: StreamProtocol = StreamProtocol::new("/intellect/manifest/1");

/// The protocol id of a request for notices.
pub const NOTICES: StreamProtocol = StreamProtocol::new("/intellect/notices/1");

/// The most manifests in one answer.
pub const FILES_MAX: usize = 16;

/// The most bytes of one manifest with its signature.
pub const FILE_BYTES_MAX: u32 = 64 * 1024;

/// The most notices of one run, in an answer and in a file.
pub const NOTICES_MAX: usize = 64;

/// The most bytes of one notice; a longer one ends the reading of a file.
pub const NOTICE_BYTES_MAX: u32 = 8 * 1024 + 16;

/// The time limit of a whole exchange: 1 MiB over 1 Mbit/s takes 8 s.
pub const TIMEOUT: Duration = Duration::from_secs(15);

/// The time limit of the request, which arrives with its stream or immediately after it.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(1);

/// One signed file, shared by all answers that contain it.
pub type File = Arc<[u8]>;

/// Why a request to a peer got no files.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// The answer cannot be read, or the connection failed ([`FrameError::Io`]).
    #[error("a bad answer: {0}")]
    Frame(#[from] FrameError),
    /// The answer has more files than allowed. The peer's fault.
    #[error("more than {0} files in one answer")]
    TooMany(usize),
}

/// Why a request was not answered.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The request cannot be read, or the connection failed.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// The request is neither empty nor 32 bytes. The peer's fault.
    #[error("a request of {0} bytes, which is neither empty nor a RunId")]
    Meaningless(usize),
}

/// Asks for the manifest of `run`, or for all manifests.
///
/// # Errors
/// See [`AskError`].
///
/// # Cancel safety
/// Not cancel safe; drop the stream with it.
pub async fn ask<S: AsyncRead + AsyncWrite + Unpin>(
    stream: S,
    run: Option<[u8; 32]>,
) -> Result<Vec<Vec<u8>>, AskError> {
    let request = run.as_ref().map_or(&[][..], |run| run.as_slice());
    ask_for(stream, request, FILES_MAX, FILE_BYTES_MAX).await
}

/// Asks for the notices of `run`.
///
/// # Errors
/// See [`AskError`].
///
/// # Cancel safety
/// Not cancel safe; drop the stream with it.
pub async fn ask_notices<S: AsyncRead + AsyncWrite + Unpin>(
    stream: S,
    run: [u8; 32],
) -> Result<Vec<Vec<u8>>, AskError> {
    ask_for(stream, &run, NOTICES_MAX, NOTICE_BYTES_MAX).await
}

/// The exchange that both questions share. Its time is not limited here: the caller adds a
/// deadline, usually [`TIMEOUT`].
async fn ask_for<S: AsyncRead + AsyncWrite + Unpin>(
    mut stream: S,
    request: &[u8],
    files_max: usize,
    bytes_max: u32,
) -> Result<Vec<Vec<u8>>, AskError> {
    frame::write(&mut stream, request).await.map_err(FrameError::from)?;
    let mut files = Vec::new();
    while let Some(file) = frame::read(&mut stream, bytes_max).await? {
        if files.len() == files_max {
            return Err(AskError::TooMany(files_max));
        }
        files.push(file);
    }
    Ok(files)
}

/// Reads the notices in a file, up to the first that is cut off or too long. An absent file has no
/// notices.
///
/// # Errors
/// The file exists and cannot be read.
pub fn read_notices(path: &Path) -> io::Result<Vec<File>> {
    let mut bytes = Vec::new();
    let limit = u64::from(NOTICE_BYTES_MAX + 4) * NOTICES_MAX as u64;
    match Disk::open(path) {
        Ok(file) => _ = file.take(limit).read_to_end(&mut bytes)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let (mut notices, mut rest): (Vec<File>, _) = (Vec::new(), bytes.as_slice());
    while let Some((length, after)) = rest.split_first_chunk::<4>()
        && let length @ ..=NOTICE_BYTES_MAX = u32::from_le_bytes(*length)
        && let Some((notice, after)) = after.split_at_checked(length as usize)
    {
        notices.push(notice.into());
        rest = after;
    }
    Ok(notices)
}

/// Encodes a file of notices, leaving out those that are too long or too many.
#[must_use]
pub fn notices_file<'a>(notices: impl IntoIterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut bytes = Vec::new();
    for notice in notices.into_iter().take(NOTICES_MAX) {
        if let Ok(length @ ..=NOTICE_BYTES_MAX) = u32::try_from(notice.len()) {
            bytes.extend(length.to_le_bytes());
            bytes.extend_from_slice(notice);
        }
    }
    bytes
}

/// Answers one request with the files that `choose` returns for its RunId.
///
/// # Errors
/// See [`ServeError`].
///
/// # Cancel safety
/// Not cancel safe; drop the stream with it.
pub async fn serve<S: AsyncRead + AsyncWrite + Unpin>(
    mut stream: S,
    choose: impl AsyncFnOnce(Option<[u8; 32]>) -> Vec<File>,
) -> Result<(), ServeError> {
    let request = timeout(REQUEST_TIMEOUT, frame::read(&mut stream, 32)).await;
    let request = request.map_err(|_| FrameError::Late)??.ok_or(FrameError::Truncated)?;
    let run = match request.as_slice() {
        [] => None,
        bytes => Some(bytes.try_into().map_err(|_| ServeError::Meaningless(bytes.len()))?),
    };
    for file in choose(run).await.iter().take(FILES_MAX.max(NOTICES_MAX)) {
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
        serve(&mut wire, async |run| {
            asked = run;
            files
        })
        .await
        .unwrap();
        assert_eq!(asked, Some([7; 32]));
        // The server's answer follows the request.
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
        let served = serve(Cursor::new(wire), async |_| panic!("must not be asked")).await;
        assert!(matches!(served, Err(ServeError::Meaningless(5))));
    }

    #[test]
    fn a_seventeenth_file_and_a_long_one_are_refused() {
        // The request overwrites the first four bytes; the answer follows them.
        let asked = |answer: &[u8]| {
            let wire = [&[0; 4], answer].concat();
            block_on(ask(Cursor::new(wire), None))
        };
        let one = [1, 0, 0, 0, b'x'];
        assert_eq!(asked(&one.repeat(FILES_MAX)).unwrap().len(), FILES_MAX);
        assert!(matches!(asked(&one.repeat(FILES_MAX + 1)), Err(AskError::TooMany(FILES_MAX))));
        let long = (FILE_BYTES_MAX + 1).to_le_bytes();
        assert!(matches!(asked(&long), Err(AskError::Frame(FrameError::TooLong { .. }))));
    }

    #[test]
    fn a_file_of_notices_is_read_as_far_as_it_is_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.notices");
        assert!(read_notices(&path).unwrap().is_empty());
        let notices: Vec<Vec<u8>> = (0..80).map(|n| vec![n; 10]).collect();
        let bytes = notices_file(notices.iter().map(Vec::as_slice));
        std::fs::write(&path, &bytes).unwrap();
        let read = read_notices(&path).unwrap();
        assert_eq!(read.len(), NOTICES_MAX);
        assert!(read.iter().zip(&notices).all(|(one, other)| **one == **other));
        std::fs::write(&path, &bytes[..bytes.len() - 1]).unwrap();
        assert_eq!(read_notices(&path).unwrap().len(), NOTICES_MAX - 1);
        // An absurd length, and a notice that is too long to be written.
        std::fs::write(&path, [0xff; 100]).unwrap();
        assert!(read_notices(&path).unwrap().is_empty());
        assert!(notices_file([vec![0; NOTICE_BYTES_MAX as usize + 1].as_slice()]).is_empty());
    }
}
