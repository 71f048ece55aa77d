//! `/intellect/measure/1` lets a peer measure the line between itself and an entry point.
//!
//! Request: how many bytes go up and then down, u32, at most [`BYTES_MAX`]. Answer: one byte, 0 or
//! the number of a [`Refusal`], and the rate that the server keeps to (u32 bytes/s). Then the peer
//! sends zeros, and the server says how many it took in how many milliseconds (two u32). Then the
//! server sends zeros. Each direction ends after so many bytes, or after 2.5 s. Its first half
//! second is not counted: TCP and QUIC are still finding their rate.
//!
//! Without limits this would make strangers' traffic out of a few bytes. So bytes flow on
//! authenticated connections only, to one peer of a network (/24 or /64) in ten minutes, to two
//! peers at a time, and no faster than the owner of the entry point allows ([`Gate`]).

use std::{
    collections::HashMap,
    io,
    net::IpAddr,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use libp2p::StreamProtocol;
use tokio::time::{Instant, sleep_until, timeout, timeout_at};

/// The protocol id of a measurement.
pub const PROTOCOL: StreamProtocol = StreamProtocol::new("/intellect/measure/1");

/// The most bytes in one direction.
pub const BYTES_MAX: u32 = 8 << 20;

/// The most time in one direction.
const TIME_MAX: Duration = Duration::from_millis(2_500);

/// The time limit of a whole measurement, at both ends.
pub const TIMEOUT: Duration = Duration::from_secs(7);

/// The rates of a line, in bytes per second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rates {
    /// From the server to this peer.
    pub down: f64,
    /// From this peer to the server.
    pub up: f64,
    /// What the server keeps to: a rate near it says only that the line is no slower.
    pub limit: u32,
}

/// Why a server measures nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Its owner allows no measurement.
    #[error("the entry point measures nothing (--measure-rate 0)")]
    Off,
    /// Two other peers are being measured now.
    #[error("the entry point measures others at the moment; try again in a minute")]
    Busy,
    /// Somebody in this peer's network was measured.
    #[error("the entry point has measured this network in the last ten minutes; try again then")]
    Lately,
}

/// Why there is no measurement.
#[derive(Debug, thiserror::Error)]
pub enum MeasureError {
    /// The server refuses, and says why.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The connection failed, or the other end does not keep to the protocol.
    #[error("the measurement broke off: {0}")]
    Io(#[from] io::Error),
    /// The other end took too long.
    #[error("the measurement took longer than {} s", TIMEOUT.as_secs())]
    Late,
}

/// Measures both directions over a new stream of [`PROTOCOL`]; `bytes` in each, at most
/// [`BYTES_MAX`].
///
/// # Errors
/// See [`MeasureError`].
///
/// # Cancel safety
/// Not cancel safe; drop the stream with it.
pub async fn ask<S: AsyncRead + AsyncWrite + Unpin>(
    stream: S,
    bytes: u32,
) -> Result<Rates, MeasureError> {
    timeout(TIMEOUT, ask_patiently(stream, bytes.min(BYTES_MAX)))
        .await
        .unwrap_or(Err(MeasureError::Late))
}

/// The exchange itself, in the order of this module's first lines. [`ask`] adds the deadline. An
/// unknown status counts as [`Refusal::Lately`], the refusal that makes a peer wait longest.
async fn ask_patiently<S: AsyncRead + AsyncWrite + Unpin>(
    mut stream: S,
    bytes: u32,
) -> Result<Rates, MeasureError> {
    stream.write_all(&bytes.to_le_bytes()).await?;
    stream.flush().await?;
    let mut answer = [0; 5];
    stream.read_exact(&mut answer).await?;
    let [status, limit @ ..] = answer;
    match status {
        0 => {}
        1 => return Err(Refusal::Off.into()),
        2 => return Err(Refusal::Busy.into()),
        _ => return Err(Refusal::Lately.into()),
    }
    let limit = u32::from_le_bytes(limit);
    send(&mut stream, bytes, limit).await?;
    let mut counted = [0; 8];
    stream.read_exact(&mut counted).await?;
    let [b0, b1, b2, b3, ms @ ..] = counted;
    let taken = u32::from_le_bytes([b0, b1, b2, b3]).min(bytes);
    let up = Taken { bytes: taken, time: Duration::from_millis(u32::from_le_bytes(ms).into()) };
    let down = take(&mut stream, bytes, limit).await?;
    Ok(Rates { down: down.rate(), up: up.rate(), limit })
}

/// Answers one request of a peer that the gate has let in, or refuses it.
///
/// # Errors
/// See [`MeasureError`].
///
/// # Cancel safety
/// Not cancel safe; drop the stream with it.
pub async fn serve<S: AsyncRead + AsyncWrite + Unpin>(
    stream: S,
    admitted: Result<Permit, Refusal>,
) -> Result<(), MeasureError> {
    timeout(TIMEOUT, serve_patiently(stream, admitted)).await.unwrap_or(Err(MeasureError::Late))
}

/// The server's side. A refused peer gets the status and a rate of 0, and no further bytes.
async fn serve_patiently<S: AsyncRead + AsyncWrite + Unpin>(
    mut stream: S,
    admitted: Result<Permit, Refusal>,
) -> Result<(), MeasureError> {
    let mut request = [0; 4];
    stream.read_exact(&mut request).await?;
    let bytes = u32::from_le_bytes(request).min(BYTES_MAX);
    let (status, limit) = match &admitted {
        Ok(permit) => (0, permit.gate.rate),
        Err(Refusal::Off) => (1, 0),
        Err(Refusal::Busy) => (2, 0),
        Err(Refusal::Lately) => (3, 0),
    };
    stream.write_all(&[status]).await?;
    stream.write_all(&limit.to_le_bytes()).await?;
    stream.flush().await?;
    if admitted.is_ok() {
        let taken = take(&mut stream, bytes, limit).await?;
        let ms = u32::try_from(taken.time.as_millis()).unwrap_or(u32::MAX);
        stream.write_all(&taken.bytes.to_le_bytes()).await?;
        stream.write_all(&ms.to_le_bytes()).await?;
        stream.flush().await?;
        send(&mut stream, bytes, limit).await?;
    }
    stream.close().await?;
    Ok(())
}

/// Sends zeros at no more than `rate`; what a slow line has not taken in time is left out.
async fn send<S: AsyncWrite + Unpin>(stream: &mut S, bytes: u32, rate: u32) -> io::Result<()> {
    let (begun, chunk) = (Instant::now(), [0; CHUNK]);
    let mut left = bytes as usize;
    while left > 0 && begun.elapsed() < TIME_MAX {
        let write = stream.write(&chunk[..left.min(CHUNK)]);
        let Ok(written) = timeout_at(begun + TIME_MAX, write).await else { return Ok(()) };
        left -= written?;
        let next = due(bytes as usize - left, rate);
        if next >= TIME_MAX {
            break;
        }
        sleep_until(begun + next).await;
    }
    // A flush that comes late has nothing to say: the other end counts.
    timeout_at(begun + TIME_MAX, stream.flush()).await.unwrap_or(Ok(()))
}

/// What was taken, and in what time, without the beginning.
struct Taken {
    /// The bytes after the first half second, or all of them where nearly all came within it.
    bytes: u32,
    /// The time in which these bytes came, in milliseconds on the wire.
    time: Duration,
}

impl Taken {
    /// Bytes per second. A time below a millisecond counts as one, so that the result is finite.
    fn rate(&self) -> f64 {
        f64::from(self.bytes) / self.time.as_secs_f64().max(1e-3)
    }
}

/// Takes bytes until there are enough, or until the other end must have stopped; at no more than
/// `rate`, so that what comes faster waits at the sender.
async fn take<S: AsyncRead + Unpin>(stream: &mut S, bytes: u32, rate: u32) -> io::Result<Taken> {
    let (begun, mut chunk) = (Instant::now(), [0; CHUNK]);
    let (mut taken, mut early, mut last) = (0, (0, begun), begun);
    while taken < bytes as usize && begun.elapsed() < TIME_MAX + GRACE {
        let room = CHUNK.min(bytes as usize - taken);
        let read = timeout_at(begun + TIME_MAX + GRACE, stream.read(&mut chunk[..room])).await;
        let Ok(read) = read else { break };
        let length = read?;
        if length == 0 {
            break;
        }
        (taken, last) = (taken + length, Instant::now());
        if last - begun < BEGINNING {
            early = (taken, last);
        }
        let next = due(taken, rate);
        if next >= TIME_MAX + GRACE {
            break;
        }
        sleep_until(begun + next).await;
    }
    // A line so fast that all came in the beginning is measured as a whole.
    let (of, since) = if taken - early.0 < CHUNK { (0, begun) } else { early };
    let bytes = u32::try_from(taken - of).unwrap_or(u32::MAX);
    Ok(Taken { bytes, time: last - since })
}

/// When so many bytes are due at `rate`.
fn due(bytes: usize, rate: u32) -> Duration {
    Duration::from_secs_f64(bytes as f64 / f64::from(rate.max(1)))
}

/// Lets few peers in. The limits are those of this module's first lines.
#[derive(Debug)]
pub struct Gate {
    /// Bytes per second and direction of each measurement; 0 lets nobody in.
    rate: u32,
    state: Mutex<State>,
}

/// The measurements that are under way, and those of the last ten minutes.
#[derive(Debug, Default)]
struct State {
    /// How many [`Permit`]s exist, at most [`INSIDE_MAX`].
    inside: usize,
    /// When each network was measured last; at most [`NETWORKS_MAX`].
    measured: HashMap<IpAddr, Instant>,
}

/// One measurement under way, until this is dropped.
#[derive(Debug)]
pub struct Permit {
    gate: Arc<Gate>,
}

impl Gate {
    /// `rate`: bytes per second in each direction of each measurement; 0 measures nothing.
    #[must_use]
    pub fn new(rate: u32) -> Arc<Self> {
        Arc::new(Self { rate, state: Mutex::default() })
    }

    /// Admits a peer at this address, or says why not.
    ///
    /// # Errors
    /// The [`Refusal`] for the peer.
    pub fn admit(self: &Arc<Self>, from: IpAddr, now: Instant) -> Result<Permit, Refusal> {
        if self.rate == 0 {
            return Err(Refusal::Off);
        }
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.measured.retain(|_, at| now.saturating_duration_since(*at) < PAUSE);
        if state.measured.contains_key(&network(from)) {
            return Err(Refusal::Lately);
        }
        if state.inside >= INSIDE_MAX || state.measured.len() >= NETWORKS_MAX {
            return Err(Refusal::Busy);
        }
        state.inside += 1;
        state.measured.insert(network(from), now);
        Ok(Permit { gate: Arc::clone(self) })
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut state = self.gate.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.inside = state.inside.saturating_sub(1);
    }
}

/// The /24 or /64 of an address.
fn network(ip: IpAddr) -> IpAddr {
    match ip.to_canonical() {
        IpAddr::V4(ip) => IpAddr::from((u32::from(ip) & !0xff).to_be_bytes()),
        IpAddr::V6(ip) => IpAddr::from((u128::from(ip) & (!0 << 64)).to_be_bytes()),
    }
}

/// The bytes of one write or read. If fewer than these came after the beginning, the line is
/// measured as a whole.
const CHUNK: usize = 16 * 1024;
/// How much later than the sender the other end stops.
const GRACE: Duration = Duration::from_millis(500);
/// The beginning of a direction, which is not counted: TCP and QUIC are still finding their rate.
const BEGINNING: Duration = Duration::from_millis(500);
/// How long a network that was measured has to wait for the next measurement.
const PAUSE: Duration = Duration::from_secs(10 * 60);
/// Peers that are measured at once. With more, each would measure the others too.
const INSIDE_MAX: usize = 2;
/// Networks that are remembered, about 40 bytes each. Above this number every peer gets
/// [`Refusal::Busy`], so an attacker with many addresses can stop measurements, but not use up
/// memory.
const NETWORKS_MAX: usize = 4_096;

#[cfg(test)]
mod tests {
    use tokio_util::compat::TokioAsyncReadCompatExt as _;

    use super::*;

    #[test]
    fn a_network_is_measured_once_in_ten_minutes_and_two_peers_at_a_time() {
        let (gate, now) = (Gate::new(1_000_000), Instant::now());
        let at = |text: &str| text.parse::<IpAddr>().unwrap();
        let first = gate.admit(at("5.5.1.1"), now).unwrap();
        assert_eq!(gate.admit(at("5.5.1.2"), now).unwrap_err(), Refusal::Lately);
        let _second = gate.admit(at("2a00:1::1"), now).unwrap();
        assert_eq!(gate.admit(at("2a00:1::ffff:1"), now).unwrap_err(), Refusal::Lately);
        assert_eq!(gate.admit(at("5.5.2.1"), now).unwrap_err(), Refusal::Busy);
        drop(first);
        assert_eq!(gate.admit(at("5.5.1.1"), now).unwrap_err(), Refusal::Lately);
        gate.admit(at("5.5.2.1"), now).unwrap();
        gate.admit(at("5.5.1.1"), now + PAUSE).unwrap();
        assert_eq!(Gate::new(0).admit(at("5.5.1.1"), now).unwrap_err(), Refusal::Off);
    }

    /// The rates of a measurement through a pipe in memory.
    async fn measured(rate: u32, bytes: u32) -> Result<Rates, MeasureError> {
        let (one, two) = tokio::io::duplex(64 * 1024);
        let admitted = Gate::new(rate).admit([5, 5, 1, 1].into(), Instant::now());
        let (rates, served) =
            futures::join!(ask(one.compat(), bytes), serve(two.compat(), admitted));
        served.unwrap();
        rates
    }

    #[tokio::test]
    async fn both_directions_are_measured_and_the_limit_is_said() {
        let rates = measured(50_000_000, 400_000).await.unwrap();
        assert_eq!(rates.limit, 50_000_000);
        assert!(rates.down > 0.0 && rates.up > 0.0, "{rates:?}");
    }

    #[tokio::test]
    async fn a_refusal_comes_as_a_reason() {
        let refused = measured(0, 1_000).await.unwrap_err();
        assert!(matches!(refused, MeasureError::Refused(Refusal::Off)), "{refused}");
    }

    #[tokio::test]
    async fn nobody_gets_more_than_the_bound_however_much_is_asked() {
        // The slow one is stopped by its rate: a read that is late must not be followed by a flood.
        for (rate, most) in [(u32::MAX, BYTES_MAX as usize), (100_000, 250_000 + CHUNK)] {
            let (one, two) = tokio::io::duplex(64 * 1024);
            let admitted = Gate::new(rate).admit([5, 5, 1, 1].into(), Instant::now());
            let asked = async {
                let (mut from, mut to) = one.compat().split();
                let up = async {
                    to.write_all(&u32::MAX.to_le_bytes()).await.unwrap();
                    // What the server does not take any more is not written.
                    let _ = to.write_all(&vec![0; BYTES_MAX as usize]).await;
                };
                let mut rest = Vec::new();
                futures::join!(up, from.read_to_end(&mut rest)).1.unwrap();
                rest.len()
            };
            let (length, served) = futures::join!(asked, serve(two.compat(), admitted));
            served.unwrap();
            assert!((5 + 8..=5 + 8 + most).contains(&length), "{length} at {rate}");
        }
    }
}
