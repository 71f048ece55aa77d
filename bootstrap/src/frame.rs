//! Length-prefixed frames on a byte stream: `length u32 LE ‖ bytes`.
//!
//! The length is compared with the caller's limit before the body is read, and the buffer grows
//! with the bytes that arrive, so a peer that lies about a length costs only what it sends. The end
//! of the stream is valid only between two frames: inside one it is an error, since a relay that
//! cuts a circuit looks like a clean end.
//!
//! An unfinished frame occupies the memory of the bytes read so far. A program that reads many
//! streams uses a [`Room`], which bounds the bytes of all such frames together and the time of
//! each.

use std::{io, sync::Arc, time::Duration};

use futures::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::timeout,
};

/// Why no frame could be read. The peer caused each of these except `Io`. The stream is out of step
/// afterwards and must be dropped.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    /// The declared length is above the limit. No byte of the body was read.
    #[error("a frame of {declared} bytes where at most {limit} are allowed")]
    TooLong {
        /// The length that the peer declared, in bytes.
        declared: u32,
        /// The most bytes that this protocol allows.
        limit: u32,
    },
    /// The stream ended inside the length or the body.
    #[error("the stream ended inside a frame")]
    Truncated,
    /// The frame began, but was not complete in time ([`Room::new`]).
    #[error("a frame that did not end in time")]
    Late,
    /// Reading failed, which is nobody's proven fault.
    #[error("the connection failed: {0}")]
    Io(#[from] io::Error),
}

/// Limits the frames of many streams: the bytes of all together, and the time of each.
#[derive(Debug, Clone)]
pub struct Room {
    /// One permit for each byte that is still free.
    free: Arc<Semaphore>,
    /// The time of one frame, counted from its first byte.
    patience: Duration,
}

/// The bytes of a [`Room`] that one frame occupies, freed when this is dropped.
#[derive(Debug, Default)]
pub struct Reservation(Option<OwnedSemaphorePermit>);

impl Room {
    /// Room for `bytes` bytes of long frames. A frame must end within `patience` of its first byte.
    #[must_use]
    pub fn new(bytes: usize, patience: Duration) -> Self {
        Self { free: Arc::new(Semaphore::new(bytes.min(Semaphore::MAX_PERMITS))), patience }
    }

    /// Reads one frame, and reserves room for it; `None` when the stream ended before the frame
    /// began. It waits without limit for the first byte. A short frame needs no room, so long ones
    /// do not delay it.
    ///
    /// # Errors
    /// See [`FrameError`].
    ///
    /// # Cancel safety
    /// Not cancel safe: what was read of the frame is lost.
    pub async fn read<R: AsyncRead + Unpin>(
        &self,
        stream: &mut R,
        limit: u32,
    ) -> Result<Option<(Vec<u8>, Reservation)>, FrameError> {
        let mut first = [0];
        if stream.read(&mut first).await? == 0 {
            return Ok(None);
        }
        let rest = timeout(self.patience, self.read_rest(first[0], stream, limit));
        rest.await.unwrap_or(Err(FrameError::Late)).map(Some)
    }

    /// Reads the rest of a frame whose first byte has come. It waits for free room without a
    /// deadline of its own: the caller's timeout covers that wait too, so frames that hold room
    /// while they wait cannot block each other for good.
    async fn read_rest<R: AsyncRead + Unpin>(
        &self,
        first: u8,
        stream: &mut R,
        limit: u32,
    ) -> Result<(Vec<u8>, Reservation), FrameError> {
        let mut rest = [0; 3];
        stream.read_exact(&mut rest).await.map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => FrameError::Truncated,
            _ => error.into(),
        })?;
        let [second, third, fourth] = rest;
        let declared = u32::from_le_bytes([first, second, third, fourth]);
        if declared > limit {
            return Err(FrameError::TooLong { declared, limit });
        }
        let (mut body, mut reserved, mut left) = (Vec::new(), Reservation::default(), declared);
        while left > 0 {
            let part = left.min(PART_BYTES);
            // Room is reserved part by part: a long frame that only announces itself occupies
            // little.
            if declared > PART_BYTES {
                self.grow(&mut reserved, part).await;
            }
            AsyncReadExt::take(&mut *stream, part.into()).read_to_end(&mut body).await?;
            left -= part;
            if u32::try_from(body.len()).map_or(true, |length| length != declared - left) {
                return Err(FrameError::Truncated);
            }
        }
        Ok((body, reserved))
    }

    /// Adds `bytes` to the room that a frame occupies, and waits until they are free.
    async fn grow(&self, reserved: &mut Reservation, bytes: u32) {
        // The semaphore is never closed.
        let Ok(more) = Arc::clone(&self.free).acquire_many_owned(bytes).await else { return };
        match &mut reserved.0 {
            Some(permit) => permit.merge(more),
            empty => *empty = Some(more),
        }
    }
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
/// The error of the stream, or `InvalidInput` if the length of the body does not fit in a u32.
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

/// Bytes for which room is reserved at a time. Nearly every message is shorter.
const PART_BYTES: u32 = 8 * 1024;

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

    fn room(bytes: usize, patience_ms: u64) -> Room {
        Room::new(bytes, Duration::from_millis(patience_ms))
    }

    /// A stream that yields `bytes` and then stays open.
    fn open(bytes: Vec<u8>) -> impl AsyncRead + Unpin {
        let never = futures::stream::pending::<io::Result<Vec<u8>>>();
        let first = futures::stream::iter([Ok(bytes)]);
        let stream = futures::stream::StreamExt::chain(first, never);
        futures::TryStreamExt::into_async_read(stream)
    }

    /// Half a frame of a megabyte must not stay in memory for as long as its connection lives.
    #[tokio::test]
    async fn a_frame_that_does_not_end_is_given_up_and_its_room_with_it() {
        let room = room(1 << 20, 100);
        let half = [&(1_u32 << 20).to_le_bytes()[..], &[7; 600_000]].concat();
        let (mut one, mut two) = (open(half.clone()), open(half));
        let both = futures::join!(room.read(&mut one, 1 << 20), room.read(&mut two, 1 << 20));
        assert!(matches!(both, (Err(FrameError::Late), Err(FrameError::Late))), "{both:?}");
        assert_eq!(room.free.available_permits(), 1 << 20);
    }

    #[tokio::test]
    async fn long_frames_wait_for_room_and_short_ones_do_not() {
        let room = room(1 << 20, 200);
        let frame = |length: usize| {
            [&u32::try_from(length).unwrap().to_le_bytes()[..], &vec![7; length]].concat()
        };
        let read = async |length: usize| {
            let read = room.read(&mut Cursor::new(frame(length)), 1 << 20).await;
            read.map(|read| read.map(|(body, reserved)| (body.len(), reserved)))
        };
        let (length, reserved) = read(1 << 20).await.unwrap().unwrap();
        assert_eq!((length, room.free.available_permits()), (1 << 20, 0));
        assert!(matches!(read(9_000).await, Err(FrameError::Late)));
        assert_eq!(read(8_192).await.unwrap().unwrap().0, 8_192);
        drop(reserved);
        assert_eq!(read(9_000).await.unwrap().unwrap().0, 9_000);
        assert!(room.read(&mut Cursor::new(Vec::new()), 9).await.unwrap().is_none());
        let cut = room.read(&mut Cursor::new(&frame(20_000)[..9_000]), 1 << 20).await;
        assert!(matches!(cut, Err(FrameError::Truncated)), "{cut:?}");
        let long = room.read(&mut Cursor::new(frame(17)), 16).await;
        assert!(matches!(long, Err(FrameError::TooLong { declared: 17, limit: 16 })), "{long:?}");
    }
}
