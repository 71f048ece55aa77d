//! Limits the number and duration of inbound connections that have not shown a key yet.
//!
//! Such a connection costs its maker nothing, and only its address is known. So one address may
//! have [`PER_NETWORK_MAX`] of them, all addresses together [`HANDSHAKES_MAX`], and none may last
//! longer than [`TIMEOUT`]. When there is no room for another one, the oldest is dropped: an honest
//! peer has finished after three round trips, while a silent one only grows older. If the newest
//! were refused, as `libp2p::connection_limits` does, silent connections would keep everyone else
//! out.
//!
//! Addresses are counted as in [`crate::crowding`]: an IPv4 address, or an IPv6 network (/64).
//! Addresses of this machine and of private networks, which many honest peers may share, and
//! circuits count only towards the total. [`crate::crowding`] limits the connections *after* the
//! handshake.

use std::{
    collections::BTreeMap,
    io,
    net::IpAddr,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
    time::Duration,
};

use futures::{
    FutureExt as _,
    future::{AbortHandle, AbortRegistration, Abortable, BoxFuture},
};
use libp2p::{
    Multiaddr, TransportError,
    core::{
        Transport,
        transport::{Boxed, DialOpts, ListenerId, TransportEvent},
    },
};
use tokio::time::timeout;

use crate::crowding;

/// Wraps a transport so that its inbound handshakes are limited.
pub(crate) fn bounded<O: Send + 'static>(inner: Boxed<O>) -> Boxed<O> {
    Bounded { inner, handshakes: Arc::default() }.boxed()
}

/// A transport whose inbound connections are counted until their handshake ends. Outbound ones pass
/// through: this program bounds its own dials.
struct Bounded<O> {
    inner: Boxed<O>,
    /// Shared with every [`Slot`], since a handshake ends in a task of the swarm and not here.
    handshakes: Arc<Mutex<Handshakes>>,
}

impl<O: Send + 'static> Transport for Bounded<O> {
    type Output = O;
    type Error = io::Error;
    type ListenerUpgrade = BoxFuture<'static, io::Result<O>>;
    type Dial = <Boxed<O> as Transport>::Dial;

    fn listen_on(
        &mut self,
        id: ListenerId,
        address: Multiaddr,
    ) -> Result<(), TransportError<io::Error>> {
        self.inner.listen_on(id, address)
    }

    fn remove_listener(&mut self, id: ListenerId) -> bool {
        self.inner.remove_listener(id)
    }

    fn dial(
        &mut self,
        address: Multiaddr,
        options: DialOpts,
    ) -> Result<Self::Dial, TransportError<io::Error>> {
        self.inner.dial(address, options)
    }

    fn poll(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<TransportEvent<Self::ListenerUpgrade, io::Error>> {
        Pin::new(&mut self.inner).poll(context).map(|event| match event {
            TransportEvent::Incoming { listener_id, upgrade, local_addr, send_back_addr } => {
                let (slot, given_up) = Slot::take(&self.handshakes, &send_back_addr);
                let upgrade = shake(upgrade, slot, given_up, TIMEOUT).boxed();
                TransportEvent::Incoming { listener_id, upgrade, local_addr, send_back_addr }
            }
            event => event,
        })
    }
}

/// Completes the handshake, unless it is late or has to give way.
async fn shake<O>(
    upgrade: impl Future<Output = io::Result<O>>,
    _slot: Slot,
    given_up: AbortRegistration,
    patience: Duration,
) -> io::Result<O> {
    match timeout(patience, Abortable::new(upgrade, given_up)).await {
        Ok(Ok(done)) => done,
        Ok(Err(_)) => {
            Err(io::Error::new(io::ErrorKind::ConnectionAborted, "gave way to a newer connection"))
        }
        Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, "no handshake in time")),
    }
}

/// The handshakes under way, by number, which is the order in which they began.
#[derive(Debug, Default)]
struct Handshakes {
    /// The number of the last handshake. Numbers are never used again, so a late drop of a slot
    /// removes no other one.
    begun: u64,
    /// For each handshake its network, if it is limited, and the signal that makes it give way. At
    /// most [`HANDSHAKES_MAX`].
    open: BTreeMap<u64, (Option<IpAddr>, AbortHandle)>,
}

impl Handshakes {
    /// Adds a handshake from `network`. Returns its number, and the signal that it has to give way.
    fn begin(&mut self, network: Option<IpAddr>) -> (u64, AbortRegistration) {
        if network.is_some() {
            let same = self.open.iter().filter(|(_, (other, _))| *other == network);
            let same: Vec<u64> = same.map(|(number, _)| *number).collect();
            if same.len() >= PER_NETWORK_MAX {
                self.give_up(same[0]);
            }
        }
        while self.open.len() >= HANDSHAKES_MAX {
            let Some(oldest) = self.open.keys().next().copied() else { break };
            self.give_up(oldest);
        }
        let (handle, given_up) = AbortHandle::new_pair();
        self.begun += 1;
        self.open.insert(self.begun, (network, handle));
        (self.begun, given_up)
    }

    /// Makes a handshake end. Its entry goes at once, so that the caller's count is right before
    /// the task has noticed.
    fn give_up(&mut self, number: u64) {
        if let Some((_, handle)) = self.open.remove(&number) {
            handle.abort();
        }
    }
}

/// A handshake's entry in [`Handshakes`], removed when this is dropped.
struct Slot {
    number: u64,
    among: Arc<Mutex<Handshakes>>,
}

impl Slot {
    /// Makes an entry, at the cost of an older one where a limit is reached. A new connection is
    /// therefore never refused here.
    fn take(among: &Arc<Mutex<Handshakes>>, remote: &Multiaddr) -> (Self, AbortRegistration) {
        let network = crowding::network(remote);
        let begun = among.lock().unwrap_or_else(PoisonError::into_inner).begin(network);
        (Self { number: begun.0, among: Arc::clone(among) }, begun.1)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.among.lock().unwrap_or_else(PoisonError::into_inner).open.remove(&self.number);
    }
}

/// Enough for a few machines behind one router that start at once, and as many circuits.
const PER_NETWORK_MAX: usize = 8;

/// Room for 64 addresses at their limit; each handshake costs a socket and a few kB.
const HANDSHAKES_MAX: usize = 512;

/// Long enough for three round trips over a bad line.
const TIMEOUT: Duration = Duration::from_secs(3);

#[cfg(test)]
mod tests {
    use futures::StreamExt as _;
    use libp2p::core::transport::MemoryTransport;

    use super::*;

    type Taken = (Slot, AbortRegistration);

    fn take(among: &Arc<Mutex<Handshakes>>, from: &str) -> Taken {
        Slot::take(among, &from.parse().unwrap())
    }

    fn gave_way((_, given_up): &Taken) -> bool {
        given_up.handle().is_aborted()
    }

    /// Without the rule, 64 silent connections from one address kept everyone else out.
    #[test]
    fn the_oldest_of_an_address_gives_way_and_nobody_elses() {
        let among = Arc::default();
        let other = take(&among, "/ip4/203.0.113.8/tcp/1");
        let v6 = take(&among, "/ip6/2001:db8:1:2::1/udp/1/quic-v1");
        let mut one: Vec<_> = (0..PER_NETWORK_MAX)
            .map(|port| take(&among, &format!("/ip4/203.0.113.7/tcp/{port}")))
            .collect();
        assert!(!one.iter().any(gave_way), "there was room");
        let newest = take(&among, "/ip4/203.0.113.7/tcp/999");
        assert!(gave_way(&one[0]) && !one[1..].iter().any(gave_way));
        assert!(![&other, &v6, &newest].into_iter().any(gave_way));
        // A handshake that is done makes room.
        drop(one.pop());
        let another = take(&among, "/ip4/203.0.113.7/udp/5/quic-v1");
        assert!(!one[1..].iter().chain([&another, &newest]).any(gave_way));
        // An address of one /64 is as cheap as a port.
        let same: Vec<_> = (0..PER_NETWORK_MAX)
            .map(|host| take(&among, &format!("/ip6/2001:db8:1:2:3::{host:x}/tcp/1")))
            .collect();
        assert!(gave_way(&v6) && !same.iter().any(gave_way));
    }

    #[test]
    fn this_machine_and_private_networks_share_the_places_of_all() {
        let among = Arc::default();
        let near: Vec<_> = (0..HANDSHAKES_MAX)
            .map(|port| {
                let host = if port % 2 == 0 { "127.0.0.1" } else { "192.168.1.2" };
                take(&among, &format!("/ip4/{host}/tcp/{port}"))
            })
            .collect();
        assert!(!near.iter().any(gave_way));
        let newest = take(&among, "/ip4/203.0.113.7/tcp/1");
        assert!(gave_way(&near[0]) && !near[1..].iter().any(gave_way) && !gave_way(&newest));
        assert_eq!(among.lock().unwrap().open.len(), HANDSHAKES_MAX);
        drop((near, newest));
        assert!(among.lock().unwrap().open.is_empty());
    }

    #[tokio::test]
    async fn a_handshake_ends_late_or_when_it_has_to_give_way() {
        let among = Arc::default();
        let silent = std::future::pending::<io::Result<()>>;
        let (slot, given_up) = take(&among, "/memory/1");
        let error = shake(silent(), slot, given_up, Duration::ZERO).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        let (slot, given_up) = take(&among, "/memory/1");
        let number = slot.number;
        let mut shaking = Box::pin(shake(silent(), slot, given_up, TIMEOUT));
        assert!(shaking.as_mut().now_or_never().is_none());
        among.lock().unwrap().give_up(number);
        let error = shaking.await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionAborted);
        assert!(among.lock().unwrap().open.is_empty());
    }

    #[tokio::test]
    async fn a_connection_that_shakes_hands_passes_through() {
        let mut listener = bounded(MemoryTransport::default().boxed());
        let mut dialler = MemoryTransport::default();
        listener.listen_on(ListenerId::next(), "/memory/0".parse().unwrap()).unwrap();
        let address = match listener.next().await.unwrap() {
            TransportEvent::NewAddress { listen_addr, .. } => listen_addr,
            event => panic!("{event:?}"),
        };
        let options = DialOpts {
            role: libp2p::core::Endpoint::Dialer,
            port_use: libp2p::core::transport::PortUse::New,
        };
        let dialled = dialler.dial(address, options).unwrap();
        let arrives = async {
            match listener.next().await.unwrap() {
                TransportEvent::Incoming { upgrade, .. } => upgrade.await.is_ok(),
                event => panic!("{event:?}"),
            }
        };
        let (dialled, arrived) = futures::join!(dialled, arrives);
        assert!(dialled.is_ok() && arrived);
    }
}
