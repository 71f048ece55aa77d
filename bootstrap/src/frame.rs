//! Length-prefixed frames on a byte stream: `length u32 LE ‖ bytes`.
//!
//! The length is compared with the caller's limit before a byte of the body is believed, and the
//! buffer grows with what arrives, so a peer that lies about a length costs what it sends. The end
//! of the stream is an answer only between two frames: inside one it is an error, since a relay
//! that cuts a circuit looks like a clean end.

use std::io;

use futures::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// Why no frame could be read. The peer caused each of them but `Io`; the stream is of no more use.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    /// The declared length is above the limit. Nothing was read of the body.
    #[error("a frame of {declared} bytes where at most {limit} are allowed")]
    TooLong {
        /// What the peer declared.
        declared: u32,
        /// What this protocol allows.
        limit: u32,
    },
    /// The stream ended inside a frame.
    #[error("the stream ended inside a frame")]
    Truncated,
    /// The connection failed.
    #[error("the connection failed: {0}")]
    Io(#[from] io::Error),
}

/// Reads one frame; `None` when the stream ended before it began.
///
/// # Errors
/// See [`FrameError`].
///
/// # Cancel safety
/// Not cancel safe: what was read of the frame is lost.
pub async fn read<R: AsyncRead + Unpin>(
    stream: &mut R,
    limit: u32,
) -> Result<Option<Vec<u8>>, FrameError> {
    let mut prefix = Vec::with_capacity(4);
    AsyncReadExt::take(&mut *stream, 4).read_to_end(&mut prefix).await?;
    if prefix.is_empty() {
        return Ok(None);
    }
    let prefix: [u8; 4] = prefix.try_into().map_err(|_| FrameError::Truncated)?;
    let declared = u32::from_le_bytes(prefix);
    if declared > limit {
        return Err(FrameError::TooLong { declared, limit });
    }
    let mut body = Vec::new();
    AsyncReadExt::take(stream, declared.into()).read_to_end(&mut body).await?;
    if u32::try_from(body.len()).is_ok_and(|length| length == declared) {
        return Ok(Some(body));
    }
    Err(FrameError::Truncated)
}

/// Writes one frame and flushes it.
///
/// # Errors
/// Whatever the stream says; `InvalidInput` where the body does not fit a u32.
///
/// # Cancel safety
/// Not cancel safe: a part of the frame may be written.
pub async fn write<W: AsyncWrite + Unpin>(stream: &mut W, body: &[u8]) -> io::Result<()> {
    let length = u32::try_from(body.len())
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "a frame above 4 GiB"))?;
    stream.write_all(&length.to_le_bytes()).await?;
    stream.write_all(body).await?;
    stream.flush().await
}

#[cfg(test)]
mod tests {
    use futures::{executor::block_on, io::Cursor};

    use super::*;

    fn read_all(bytes: &[u8], limit: u32) -> Result<Option<Vec<u8>>, FrameError> {
        block_on(read(&mut Cursor::new(bytes), limit))
    }

    #[test]
    fn frames_come_back_in_order_and_the_end_is_none() {
        let mut wire = Vec::new();
        block_on(async {
            write(&mut wire, b"one").await.unwrap();
            write(&mut wire, b"").await.unwrap();
        });
        assert_eq!(wire, [3, 0, 0, 0, b'o', b'n', b'e', 0, 0, 0, 0]);
        let mut stream = Cursor::new(wire);
        let mut next = || block_on(read(&mut stream, 3)).unwrap();
        assert_eq!(next().unwrap(), b"one");
        assert_eq!(next().unwrap(), b"");
        assert_eq!(next(), None);
    }

    #[test]
    fn a_length_above_the_limit_is_refused_before_the_body() {
        let error = read_all(&[255, 255, 255, 255, 1], 16).unwrap_err();
        assert!(matches!(error, FrameError::TooLong { declared: u32::MAX, limit: 16 }));
    }

    #[test]
    fn an_end_inside_a_frame_is_no_answer() {
        assert!(matches!(read_all(&[5, 0], 16), Err(FrameError::Truncated)));
        assert!(matches!(read_all(&[5, 0, 0, 0, 1, 2], 16), Err(FrameError::Truncated)));
    }
}
