//! How bytes get to a peer: TCP with noise and yamux, QUIC, DNS names, and circuits through a
//! relay.
//!
//! The defaults of libp2p apply, with three exceptions. A TCP connection whose peer has vanished is
//! closed after 8 s (`SILENCE_MAX`; the kernel would wait 15 minutes). BBR is requested where
//! the kernel allows it: at 0.1 % loss its throughput is 5 to 50 times that of cubic. QUIC streams
//! get small windows: quinn closes a connection whose reassembly buffer has over 1,024 gaps, which
//! a burst of losses in a large window causes.
//!
//! Streams are not negotiated lazily, although that would save a round trip. Until the peer has
//! confirmed, a read of a lazy stream flushes it and so steals the wake-up of a writer in another
//! task, and a ring step in both directions stalls (3 of 12 runs, November 2026).
//!
//! Every transport ends in the same pair of peer id and muxer. So the rest of the program does not
//! know which one carries a connection. `handshakes` wraps them all.

use std::{
    io,
    net::{SocketAddr, TcpListener},
    num::{NonZeroU8, NonZeroUsize},
    path::Path,
    time::Duration,
};

use futures::future::Either;
use libp2p::{
    Multiaddr, PeerId, Swarm, TransportError,
    core::{
        Transport as _,
        muxing::StreamMuxerBox,
        transport::{Boxed, ListenerId, OrTransport, dummy::DummyTransport},
        upgrade::Version,
    },
    dns,
    identity::Keypair,
    multiaddr::Protocol,
    noise, quic, relay, swarm, tcp, yamux,
};
use socket2::SockRef;

use crate::{address, handshakes, shaper::Shaper};

/// Why the transport cannot be set up. Our environment is at fault.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// The key cannot sign noise's static key.
    #[error("the noise handshake cannot be set up: {0}")]
    Noise(#[from] noise::Error),
    /// The resolver's configuration disappeared between two reads.
    #[error("the resolver cannot be set up: {0}")]
    Names(#[from] io::Error),
    /// The file of the simulated line is absent or does not parse.
    #[error("the simulated line cannot be read: {0}")]
    Line(#[source] io::Error),
}

/// Why we cannot listen on an address. The person who chose it, or another program, is at fault.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// Another program listens on the port already.
    #[error(
        "cannot listen on {address}: the port is in use; stop the program that uses it, or choose \
         another port (0 lets the system choose)"
    )]
    InUse {
        /// The address as it was configured.
        address: Multiaddr,
    },
    /// The operating system refuses, often because the address belongs to another machine.
    #[error("cannot listen on {address}: {cause}; choose an address of this machine")]
    Refused {
        /// The address as it was configured.
        address: Multiaddr,
        /// The error of the operating system.
        cause: io::Error,
    },
    /// The address is for none of our transports, TCP and QUIC.
    #[error(
        "cannot listen on {address}: neither /ip4/…/tcp/<port> nor /ip4/…/udp/<port>/quic-v1 (or \
         ip6)"
    )]
    Unsupported {
        /// The address as it was configured.
        address: Multiaddr,
    },
}

/// The transport of a swarm, and the behaviour that the circuits need. If `line` is given, TCP
/// passes through the simulated line that this file describes ([`crate::shaper`]).
///
/// # Errors
/// See [`BuildError`].
pub fn build(
    key: &Keypair,
    line: Option<&Path>,
) -> Result<(Boxed<(PeerId, StreamMuxerBox)>, relay::client::Behaviour), BuildError> {
    let shaper = line.map(Shaper::follow).transpose().map_err(BuildError::Line)?;
    let security = noise::Config::new(key)?;
    let tcp = tcp::tokio::Transport::new(tcp::Config::default())
        .map(move |stream, _| {
            tune(&stream.0);
            match &shaper {
                None => Either::Left(stream),
                Some(shaper) => Either::Right(shaper.shape(stream.0)),
            }
        })
        .upgrade(Version::V1Lazy)
        .authenticate(security.clone())
        .multiplex(yamux::Config::default())
        .timeout(UPGRADE_TIMEOUT)
        .map(|(peer, muxer), _| (peer, StreamMuxerBox::new(muxer)));
    let mut settings = quic::Config::new(key);
    // As long as over TCP, and longer than a ring waits for a quiet neighbour (docs/PROTOCOL.md).
    settings.max_idle_timeout = u32::try_from(SILENCE_MAX.as_millis()).unwrap_or(u32::MAX);
    settings.keep_alive_interval = Duration::from_secs(1);
    settings.max_stream_data = 2_000_000;
    // What a peer may send that nobody reads; over 200 ms it lets 80 MB/s pass.
    settings.max_connection_data = 16_000_000;
    let quic = quic::tokio::Transport::new(settings)
        .map(|(peer, muxer), _| (peer, StreamMuxerBox::new(muxer)));
    let (circuits, behaviour) = relay::client::new(key.public().to_peer_id());
    let circuits = circuits
        .upgrade(Version::V1Lazy)
        .authenticate(security)
        .multiplex(yamux::Config::default())
        .timeout(UPGRADE_TIMEOUT)
        .map(|(peer, muxer), _| (peer, StreamMuxerBox::new(muxer)));
    let direct = named(OrTransport::new(quic, tcp).map(|either, _| either.into_inner()))?;
    let all = OrTransport::new(circuits, direct).map(|either, _| either.into_inner());
    Ok((handshakes::bounded(all.boxed()), behaviour))
}

/// The configuration of our swarms; the constants give the reasons.
#[must_use]
pub fn swarm_config() -> swarm::Config {
    swarm::Config::with_tokio_executor()
        .with_idle_connection_timeout(IDLE_TIMEOUT)
        .with_notify_handler_buffer_size(NOTIFY_BUFFER)
        .with_per_connection_event_buffer_size(EVENT_BUFFER)
        .with_max_negotiating_inbound_streams(NEGOTIATIONS_MAX)
        .with_dial_concurrency_factor(DIAL_CONCURRENCY)
}

/// Whether the kernel lets this user send by BBR, as every TCP connection here asks for; `None`
/// where the system has no such choice.
#[must_use]
pub fn has_bbr() -> Option<bool> {
    #[cfg(target_os = "linux")]
    {
        use socket2::{Domain, Socket, Type};
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).ok()?;
        Some(socket.set_tcp_congestion(b"bbr").is_ok())
    }
    #[cfg(not(target_os = "linux"))]
    None
}

/// Listens on an address of any transport that this machine has.
///
/// libp2p sets `SO_REUSEPORT` on its sockets, with which two processes of one user would share a
/// port silently. So a TCP port is first bound once without it.
///
/// # Errors
/// See [`ListenError`].
pub fn listen<B: swarm::NetworkBehaviour>(
    swarm: &mut Swarm<B>,
    address: &Multiaddr,
) -> Result<ListenerId, ListenError> {
    let failed = |cause: io::Error| match cause.kind() {
        io::ErrorKind::AddrInUse => ListenError::InUse { address: address.clone() },
        _ => ListenError::Refused { address: address.clone(), cause },
    };
    if let Some(socket) = tcp_socket(address) {
        TcpListener::bind(socket).map_err(failed)?;
    }
    swarm.listen_on(address.clone()).map_err(|error| match error {
        TransportError::MultiaddrNotSupported(address) => ListenError::Unsupported { address },
        TransportError::Other(error) => failed(root_cause(error)),
    })
}

/// The operating system's error inside libp2p's layers of wrapping, for people to read.
#[must_use]
pub fn root_cause(error: io::Error) -> io::Error {
    let mut deepest: &(dyn std::error::Error + 'static) = &error;
    let mut found = None;
    loop {
        if let Some(system) = deepest.downcast_ref::<io::Error>()
            && let Some(code) = system.raw_os_error()
        {
            found = Some(code);
        }
        // `io::Error::source` skips the error that it wraps, so ask that one itself.
        let inner = deepest.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        deepest = match (inner, deepest.source()) {
            (Some(inner), _) => inner,
            (None, Some(source)) => source,
            (None, None) => break,
        };
    }
    match found {
        Some(code) => io::Error::from_raw_os_error(code),
        None => io::Error::new(error.kind(), deepest.to_string()),
    }
}

/// Adds the system's name resolution. Without a configuration, names fail and numbers still work.
/// The first attempt is on a dummy transport, because `system` consumes its argument.
fn named<T>(inner: T) -> io::Result<dns::tokio::Transport<T>> {
    match dns::tokio::Transport::system(DummyTransport::<()>::new()) {
        Ok(_) => dns::tokio::Transport::system(inner),
        Err(error) => {
            tracing::warn!(%error, "names cannot be resolved on this machine, only numbers");
            let (servers, options) = Default::default();
            Ok(dns::tokio::Transport::custom(inner, servers, options))
        }
    }
}

/// The TCP socket of an address, for the test bind of [`listen`]. Port 0 needs no test, since the
/// system chooses a free one.
fn tcp_socket(address: &Multiaddr) -> Option<SocketAddr> {
    let ip = address::ip(address)?;
    match address.iter().nth(1)? {
        Protocol::Tcp(port) if port != 0 => Some(SocketAddr::new(ip, port)),
        _ => None,
    }
}

/// Tunes a socket as far as the kernel permits; otherwise its defaults stay.
#[cfg(target_os = "linux")]
fn tune(stream: &tokio::net::TcpStream) {
    let socket = SockRef::from(stream);
    if let Err(error) = socket.set_tcp_user_timeout(Some(SILENCE_MAX)) {
        tracing::debug!(%error, "no TCP_USER_TIMEOUT");
    }
    if let Err(error) = socket.set_tcp_congestion(b"bbr") {
        tracing::debug!(%error, "no BBR");
    }
}

/// The same elsewhere than on Linux: keep-alive notices a vanished peer on an idle connection, but
/// not one with unacknowledged bytes.
#[cfg(not(target_os = "linux"))]
fn tune(stream: &tokio::net::TcpStream) {
    let keep_alive = socket2::TcpKeepalive::new().with_time(SILENCE_MAX);
    if let Err(error) = SockRef::from(stream).set_tcp_keepalive(&keep_alive) {
        tracing::debug!(%error, "no TCP keep-alive");
    }
}

/// Ample for three round trips over a bad line. Inbound connections have less time, see
/// [`crate::handshakes`].
const UPGRADE_TIMEOUT: Duration = Duration::from_secs(8);
/// The time without acknowledgement, or over QUIC without any packet, after which a connection is
/// closed.
pub(crate) const SILENCE_MAX: Duration = Duration::from_secs(8);

/// Gossip and our own streams keep a connection open, so this concerns only unused ones. A ring
/// connection must survive 60 s without use (docs/FORMATS.md).
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);

/// Back-pressure between behaviours and connections: Substrate uses 32 and 24.
const NOTIFY_BUFFER: NonZeroUsize = NonZeroUsize::new(32).expect("not zero");
const EVENT_BUFFER: usize = 32;

/// Streams that a peer may be negotiating at once on one connection; further ones are reset.
const NEGOTIATIONS_MAX: usize = 64;

/// Addresses of one peer that are dialled at once.
const DIAL_CONCURRENCY: NonZeroU8 = NonZeroU8::new(8).expect("not zero");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrapped_system_error_is_found() {
        let refused = io::Error::from(io::ErrorKind::ConnectionRefused);
        let system = io::Error::from_raw_os_error(111);
        let wrapped = io::Error::other(io::Error::other(system));
        assert!(root_cause(wrapped).raw_os_error() == Some(111));
        assert_eq!(root_cause(refused).kind(), io::ErrorKind::ConnectionRefused);
        assert_eq!(root_cause(io::Error::other("plain")).to_string(), "plain");
    }

    #[test]
    fn only_a_fixed_tcp_port_is_probed() {
        let socket = |text: &str| tcp_socket(&text.parse().unwrap());
        assert_eq!(socket("/ip4/127.0.0.1/tcp/80"), Some(([127, 0, 0, 1], 80).into()));
        assert_eq!(socket("/ip4/127.0.0.1/tcp/0"), None);
        assert_eq!(socket("/ip4/127.0.0.1/udp/80/quic-v1"), None);
    }
}
