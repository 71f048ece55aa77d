//! Simulates a bad line inside a process. Only simulations use it, on machines where they lack the
//! right to emulate packets.
//!
//! All TCP streams of the process share one line. In each direction a chunk of b bytes waits until
//! the line is free, occupies it for b / rate, and arrives `delay` later:
//!
//! t₁ = max(t, free) + b / rate;   arrival = t₁ + delay
//!
//! A lost chunk cannot vanish from a stream, so it arrives later, by TCP's time until
//! retransmission, and all later chunks wait. Bytes to or from an address that is cut off are
//! held back, and the stream ends when that lasts longer than `SILENCE_MAX`. The kernel sends
//! the acknowledgements, so a cut in one direction leaves the other direction intact. A cut does
//! not prevent new connections, nor does it hide the end of a process, which closes its
//! connections.
//!
//! A file describes the line, and is read again every 20 ms:
//!
//! ```text
//! rate 24000          bytes per second; 0 is no limit
//! delay 50            milliseconds
//! loss 0.01           share of the chunks
//! mute 127.77.0.2     an address to which no bytes get
//! deaf 127.77.0.3     an address from which no bytes come
//! ```

use std::{
    collections::BTreeSet,
    fmt, fs, io,
    net::IpAddr,
    path::Path,
    str::FromStr,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, DuplexStream},
    net::TcpStream,
    sync::{mpsc, watch},
    time::{Instant, sleep, sleep_until, timeout},
};
use tokio_util::compat::{Compat, TokioAsyncReadCompatExt as _};

use crate::transport::SILENCE_MAX;

/// The properties of a line. The default passes everything on at once.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Line {
    /// Bytes per second in each direction, for all streams together; 0 is no limit.
    pub rate: u64,
    /// Time from the end of sending to the arrival, in each direction.
    pub delay: Duration,
    /// Share of the chunks that arrive late, in each direction; from 0 to 1.
    pub loss: f64,
    /// The addresses to which no bytes get.
    pub mute: BTreeSet<IpAddr>,
    /// The addresses from which no bytes come.
    pub deaf: BTreeSet<IpAddr>,
}

/// The text of a line of the file that does not parse.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("\"{0}\" does not describe a line: write rate, delay, loss, mute or deaf, and a value")]
pub struct LineError(String);

/// Passes streams through the line that a file describes.
#[derive(Clone, Debug)]
pub(crate) struct Shaper {
    line: watch::Receiver<Line>,
    /// Indexed by [`Direction`], shared by all streams.
    ways: Arc<[Mutex<Way>; 2]>,
    /// A stream ends when its bytes are held back for longer.
    patience: Duration,
}

/// How busy the line is in one direction.
#[derive(Debug, Default)]
struct Way {
    /// When the bytes that were accepted so far have all left; `None` until the first.
    free_at: Option<Instant>,
    /// Sum of `loss` over the chunks since the last late one; at 1 a chunk is late.
    owed: f64,
}

#[derive(Clone, Copy, Debug)]
enum Direction {
    Out,
    In,
}

impl Shaper {
    /// Reads the line from `file`, now and whenever it changes; a file that does not parse leaves
    /// the last line in force. Must be called inside a runtime.
    ///
    /// # Errors
    /// The file cannot be read or does not parse.
    pub(crate) fn follow(file: &Path) -> io::Result<Self> {
        let (tell, line) = watch::channel(read(file)?);
        let file = file.to_owned();
        tokio::spawn(async move {
            while !tell.is_closed() {
                sleep(LOOK).await;
                if let Ok(read) = read(&file) {
                    tell.send_if_modified(|line| {
                        let changed = *line != read;
                        *line = read;
                        changed
                    });
                }
            }
        });
        Ok(Self { line, ways: Arc::default(), patience: SILENCE_MAX })
    }

    /// Returns the near end of the line, whose far end is `stream`.
    pub(crate) fn shape(&self, stream: TcpStream) -> Compat<DuplexStream> {
        let (near, far) = tokio::io::duplex(PIPE_BYTES);
        let this = self.clone();
        tokio::spawn(async move {
            let remote = stream.peer_addr()?.ip();
            let ((socket_in, socket_out), (far_in, far_out)) =
                (stream.into_split(), tokio::io::split(far));
            // When one direction ends, the other continues; an error ends both.
            tokio::try_join!(
                this.carry(Direction::Out, remote, far_in, socket_out),
                this.carry(Direction::In, remote, socket_in, far_out),
            )
            .map(drop)
        });
        near.compat()
    }

    /// Moves one direction of one stream, from `from` to `to`. The two halves run at once: one
    /// waits for the line, and the other for the arrival. The queue between them bounds the bytes
    /// that are under way.
    async fn carry(
        &self,
        direction: Direction,
        remote: IpAddr,
        mut from: impl AsyncRead + Unpin,
        mut to: impl AsyncWrite + Unpin,
    ) -> io::Result<()> {
        let (queue, mut flying) = mpsc::channel::<(Instant, Vec<u8>)>(FLYING_MAX);
        let send = async move {
            let mut chunk = vec![0; PIPE_BYTES];
            loop {
                let most = self.chunk();
                let bytes = from.read(&mut chunk[..most]).await?;
                if bytes == 0 {
                    return io::Result::Ok(());
                }
                let (start, arrival) = self.book(direction, bytes, Instant::now());
                sleep_until(start).await;
                if queue.send((arrival, chunk[..bytes].to_vec())).await.is_err() {
                    return Ok(());
                }
            }
        };
        let arrive = async move {
            while let Some((at, bytes)) = flying.recv().await {
                sleep_until(at).await;
                timeout(self.patience, self.whole(direction, remote)).await?;
                to.write_all(&bytes).await?;
            }
            timeout(self.patience, self.whole(direction, remote)).await?;
            to.shutdown().await
        };
        tokio::try_join!(send, arrive).map(drop)
    }

    /// The most bytes of one chunk: a packet, except where chunks have no effect.
    fn chunk(&self) -> usize {
        let line = self.line.borrow();
        if line.rate == 0 && line.loss == 0.0 { PIPE_BYTES } else { PACKET_BYTES }
    }

    /// Reserves the line for `bytes`. Returns when it is free for them, and when they arrive.
    fn book(&self, direction: Direction, bytes: usize, now: Instant) -> (Instant, Instant) {
        let line = self.line.borrow();
        let mut way = self.ways[direction as usize].lock().unwrap_or_else(PoisonError::into_inner);
        let nanos = (bytes as u64).saturating_mul(1_000_000_000).checked_div(line.rate);
        let start = way.free_at.map_or(now, |at| at.max(now));
        let sent = start + Duration::from_nanos(nanos.unwrap_or(0));
        way.free_at = Some(sent);
        way.owed += line.loss;
        let mut arrival = sent + line.delay;
        if way.owed >= 1.0 {
            way.owed -= 1.0;
            arrival += RETRANSMISSION;
        }
        (start, arrival)
    }

    /// Waits until no cut holds back bytes in this direction.
    async fn whole(&self, direction: Direction, remote: IpAddr) {
        let passes = |line: &Line| match direction {
            Direction::Out => !line.mute.contains(&remote),
            Direction::In => !line.deaf.contains(&remote),
        };
        // This fails when the task that reads the file has ended: then nothing will change any
        // more.
        let _ = self.line.clone().wait_for(passes).await;
    }
}

impl Line {
    /// Writes the file that a [`Shaper`] reads, by a rename, so that it never reads half of it.
    ///
    /// # Errors
    /// The file cannot be written or renamed.
    pub fn write(&self, file: &Path) -> io::Result<()> {
        let fresh = file.with_extension("new");
        fs::write(&fresh, self.to_string())?;
        fs::rename(fresh, file)
    }
}

/// The line that a file describes. A parse error comes as an [`io::Error`], so that callers have
/// one error to report.
fn read(file: &Path) -> io::Result<Line> {
    fs::read_to_string(file)?.parse().map_err(io::Error::other)
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "rate {}\ndelay {}\nloss {}", self.rate, self.delay.as_millis(), self.loss)?;
        self.mute.iter().try_for_each(|address| writeln!(f, "mute {address}"))?;
        self.deaf.iter().try_for_each(|address| writeln!(f, "deaf {address}"))
    }
}

impl FromStr for Line {
    type Err = LineError;

    fn from_str(text: &str) -> Result<Self, LineError> {
        let mut line = Self::default();
        for said in text.lines() {
            line.take(said).ok_or_else(|| LineError(said.to_owned()))?;
        }
        Ok(line)
    }
}

impl Line {
    /// Takes one line of the file; `None` if it is malformed.
    fn take(&mut self, said: &str) -> Option<()> {
        let (what, value) = said.split_once(' ')?;
        match what {
            "rate" => self.rate = value.parse().ok()?,
            "delay" => self.delay = Duration::from_millis(value.parse::<u32>().ok()?.into()),
            "loss" => {
                self.loss = value.parse().ok().filter(|share| (0.0..=1.0).contains(share))?;
            }
            "mute" => drop(self.mute.insert(value.parse().ok()?)),
            "deaf" => drop(self.deaf.insert(value.parse().ok()?)),
            _ => return None,
        }
        Some(())
    }
}

/// How often the file of the line is read; a change has an effect after this long at most.
const LOOK: Duration = Duration::from_millis(20);
/// The time after which TCP sends a segment again on a short line (the least RTO of Linux).
const RETRANSMISSION: Duration = Duration::from_millis(200);
/// Payload of a TCP segment on Ethernet.
const PACKET_BYTES: usize = 1_448;
/// Buffer between a stream and its user.
const PIPE_BYTES: usize = 16 * 1_024;
/// Chunks under way on one stream, about what a TCP window holds.
const FLYING_MAX: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    fn shaper(line: Line) -> (watch::Sender<Line>, Shaper) {
        let (tell, line) = watch::channel(line);
        (tell, Shaper { line, ways: Arc::default(), patience: Duration::from_secs(2) })
    }

    /// Both ends of a connection; the first one passes through the line.
    async fn connection(shaper: &Shaper) -> (DuplexStream, TcpStream) {
        let listener = tokio::net::TcpListener::bind((HERE, 0)).await.unwrap();
        let there = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (here, _) = listener.accept().await.unwrap();
        (shaper.shape(here).into_inner(), there)
    }

    #[test]
    fn a_line_survives_its_file() {
        let line = Line {
            rate: 24_000,
            delay: Duration::from_millis(50),
            loss: 0.01,
            mute: [HERE].into(),
            deaf: ["127.77.1.2".parse().unwrap()].into(),
        };
        assert_eq!(line.to_string().parse(), Ok(line));
        assert_eq!("".parse(), Ok(Line::default()));
        for bad in ["rate", "rate -1", "loss 1.5", "loss NaN", "mute me", "speed 3", "\n"] {
            assert!(bad.parse::<Line>().is_err(), "{bad}");
        }
    }

    #[test]
    fn chunks_share_the_line_and_every_tenth_comes_late() {
        let delay = Duration::from_millis(10);
        let (_tell, shaper) = shaper(Line { rate: 1_000, delay, loss: 0.1, ..Line::default() });
        let now = Instant::now();
        let second = Duration::from_secs(1);
        let mut late = 0;
        for number in 0..40 {
            let (start, arrival) = shaper.book(Direction::Out, 1_000, now);
            assert_eq!(start, now + number * second);
            late += u32::from(arrival == start + second + delay + RETRANSMISSION);
            assert!(arrival >= start + second + delay);
        }
        // 0.1 is not a binary fraction: the last one may fall just short.
        assert!((3..=4).contains(&late), "{late}");
        assert_eq!(shaper.book(Direction::In, 1_000, now).0, now, "the ways are independent");
    }

    #[tokio::test]
    async fn bytes_pass_in_order_and_the_end_too() {
        let (_tell, shaper) = shaper(Line { loss: 0.05, ..Line::default() });
        let (mut here, mut there) = connection(&shaper).await;
        let sent: Vec<u8> = (0..50_000_u32).map(|number| number.to_le_bytes()[1]).collect();
        let write = async {
            here.write_all(&sent).await.unwrap();
            here.shutdown().await.unwrap();
        };
        let mut got = Vec::new();
        let (_, read) = tokio::join!(write, there.read_to_end(&mut got));
        read.unwrap();
        assert!(got == sent, "{} bytes", got.len());
        there.write_all(b"back").await.unwrap();
        drop(there);
        let mut back = Vec::new();
        here.read_to_end(&mut back).await.unwrap();
        assert_eq!(back, b"back", "one direction may end before the other");
    }

    #[tokio::test]
    async fn what_is_cut_off_waits_and_then_ends() {
        let cut = Line { mute: [HERE].into(), ..Line::default() };
        let (tell, shaper) = shaper(cut.clone());
        let (mut here, there) = tokio::io::duplex(64);
        let carry = |from: DuplexStream, to: DuplexStream| {
            let shaper = shaper.clone();
            tokio::spawn(async move { shaper.carry(Direction::Out, HERE, from, to).await })
        };
        let (to, mut end) = tokio::io::duplex(64);
        let carried = carry(there, to);
        here.write_all(b"held").await.unwrap();
        let mut got = [0; 4];
        assert!(timeout(Duration::from_millis(100), end.read_exact(&mut got)).await.is_err());
        tell.send(Line::default()).unwrap();
        end.read_exact(&mut got).await.unwrap();
        assert_eq!(&got, b"held");
        tell.send(cut).unwrap();
        here.write_all(b"lost").await.unwrap();
        assert_eq!(carried.await.unwrap().unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert_eq!(end.read(&mut got).await.unwrap(), 0);
    }
}
