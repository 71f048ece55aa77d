//! The network of a simulation: this machine's loopback, or links that can be bad.
//!
//! Links are emulated if that is possible, else shaped by the processes themselves (`shaping.rs`). In an emulation every
//! peer and the bootstrap run in a network namespace of their own, whose only way out is one TUN device. A thread of
//! the simulation reads packets from all devices, lets [`Switch`] decide what becomes of them, and writes those that
//! arrive. The machine's own network is not touched, and everything vanishes with the processes, however they end.
//!
//! An emulation needs the rights of root and `/dev/net/tun`.

use std::{
    fs::File,
    io::{self, Read as _, Write as _},
    net::Ipv4Addr,
    os::fd::AsFd as _,
    path::Path,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::{
    cli::LinkKind,
    os::{self, NetworkSpace},
};

use super::{
    links::{Change, PACKET_BYTES_MAX, Switch},
    shaping::{self, Shaping},
};

/// What joins the processes of a simulation.
#[derive(Debug)]
pub(super) enum Network {
    /// Every process is reached at 127.0.0.1, over perfect links.
    Loopback,
    /// A namespace for each process, and a switch between them.
    Emulated(Emulation),
    /// A loopback address for each process, which disturbs its own streams.
    Shaped(Shaping),
}

/// Namespaces, devices, and the thread that moves packets between them until this is dropped.
#[derive(Debug)]
pub(super) struct Emulation {
    /// The namespace of this program, to which its threads return.
    home: NetworkSpace,
    /// The namespaces of the processes, by number.
    namespaces: Vec<NetworkSpace>,
    /// What decides about each packet. The thread and the scenario share it.
    switch: Arc<Mutex<Switch>>,
    /// Ends the thread within [`IDLE`].
    stop: Arc<AtomicBool>,
    /// The thread that moves packets; `None` once it was waited for.
    thread: Option<JoinHandle<()>>,
}

impl Network {
    /// Links for `count` processes, of the `kind` that was typed, or the best that this machine can have. Their files are
    /// in `folder`.
    ///
    /// # Errors
    /// This machine cannot have links of that kind.
    pub(super) fn with_links(
        kind: LinkKind,
        count: usize,
        seed: u64,
        folder: &Path,
    ) -> io::Result<Self> {
        let shaped = || Shaping::open(count, folder).map(Self::Shaped);
        match kind {
            LinkKind::Shaped => shaped(),
            LinkKind::Emulated => Emulation::open(count, seed).map(Self::Emulated),
            LinkKind::Auto => Emulation::open(count, seed).map(Self::Emulated).or_else(|error| {
                tracing::info!(%error, "packets cannot be emulated here; the nodes shape their streams");
                shaped()
            }),
        }
    }

    /// The address at which process `index` listens, at a port that the system chooses. It is a
    /// multiaddress.
    pub(super) fn listen(&self, index: usize) -> String {
        let address = match self {
            Self::Loopback => Ipv4Addr::LOCALHOST,
            Self::Emulated(_) => address(index),
            Self::Shaped(_) => shaping::address(index),
        };
        format!("/ip4/{address}/tcp/0")
    }

    /// Further arguments for process `index`: the file of its link, if it shapes its own streams.
    pub(super) fn arguments(&self, index: usize) -> Vec<String> {
        let Self::Shaped(shaping) = self else { return Vec::new() };
        let file = shaping.file(index).map(|file| file.to_string_lossy().into_owned());
        file.map_or_else(Vec::new, |file| vec!["--line".to_owned(), file])
    }

    /// Runs `start` in the network of process `index`. A namespace belongs to a thread, and a
    /// process that a thread starts inherits it. So this thread goes there, and comes back before
    /// anything else is done.
    ///
    /// # Errors
    /// The error of `start`, or that this thread cannot change its namespace.
    pub(super) fn inside<T>(
        &self,
        index: usize,
        start: impl FnOnce() -> io::Result<T>,
    ) -> io::Result<T> {
        let Self::Emulated(Emulation { home, namespaces, .. }) = self else { return start() };
        let namespace = namespaces.get(index).ok_or_else(|| io::Error::other("no such process"))?;
        namespace.enter()?;
        let started = start();
        home.enter()?;
        started
    }

    /// Applies a change of the links from now on. On perfect links there is nothing to change,
    /// because the plan chooses those only where neither scenario nor chaos has changes.
    ///
    /// # Errors
    /// The files that the processes read cannot be written.
    pub(super) fn apply(&self, change: &Change) -> io::Result<()> {
        match self {
            Self::Loopback => {}
            Self::Emulated(emulation) => lock(&emulation.switch).apply(change),
            Self::Shaped(shaping) => shaping.apply(change)?,
        }
        Ok(())
    }

    /// Its name in the output and the report.
    pub(super) fn word(&self) -> &'static str {
        match self {
            Self::Loopback => "loopback",
            Self::Emulated(_) => "emulated",
            Self::Shaped(_) => "shaped",
        }
    }
}

impl Emulation {
    /// Makes `count` namespaces, and joins them by perfect links.
    ///
    /// # Errors
    /// No right to do so, no `/dev/net/tun`, or a system without namespaces.
    pub(super) fn open(count: usize, seed: u64) -> io::Result<Self> {
        let home = NetworkSpace::current()?;
        let made = (0..count).map(namespace).collect::<io::Result<Vec<_>>>();
        // Wherever that ended, this thread returns to its own namespace.
        home.enter()?;
        let (namespaces, devices): (Vec<_>, Vec<_>) = made?.into_iter().unzip();
        let switch = Arc::new(Mutex::new(Switch::new(count, seed)));
        let stop = Arc::new(AtomicBool::new(false));
        let work = {
            let (switch, stop) = (switch.clone(), stop.clone());
            move || forward(&devices, &switch, &stop)
        };
        let thread = std::thread::Builder::new().name("switch".to_owned()).spawn(work)?;
        Ok(Self { home, namespaces, switch, stop, thread: Some(thread) })
    }
}

impl Drop for Emulation {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A panic there has been printed, and there is nothing to undo.
            let _ = thread.join();
        }
    }
}

/// Makes a namespace with one device; this thread stays inside. The caller has to bring it back.
fn namespace(index: usize) -> io::Result<(NetworkSpace, File)> {
    let namespace = NetworkSpace::enter_new()?;
    let device = os::open_tun(DEVICE, address(index), PREFIX_BITS, PACKET_BYTES_MAX)?;
    Ok((namespace, device))
}

/// Moves packets until it has to stop. It sleeps until a device has packets, the next one on the
/// way is due, or [`IDLE`] has passed. A device gets at most [`BURST`] reads in a row, so that a
/// flood from one process does not delay the others.
fn forward(devices: &[File], switch: &Mutex<Switch>, stop: &AtomicBool) {
    let start = Instant::now();
    let mut buffer = [0; PACKET_BYTES_MAX];
    while !stop.load(Ordering::Relaxed) {
        let next = lock(switch).next();
        let wait = next.map_or(IDLE, |next| next.saturating_sub(start.elapsed())).min(IDLE);
        let mut polls: Vec<_> = devices
            .iter()
            .map(|device| PollFd::from_borrowed_fd(device.as_fd(), PollFlags::IN))
            .collect();
        let wait = Timespec { tv_sec: 0, tv_nsec: i64::from(wait.subsec_nanos()) };
        // If a signal interrupts it, the loop runs once more.
        let _ = poll(&mut polls, Some(&wait));
        let readable: Vec<bool> =
            polls.iter().map(|poll| poll.revents().contains(PollFlags::IN)).collect();
        for (from, mut device) in devices.iter().enumerate().filter(|(at, _)| readable[*at]) {
            for _ in 0..BURST {
                // There is nothing more to read, or an error that cannot be helped.
                let Ok(length) = device.read(&mut buffer) else { break };
                let packet = &buffer[..length];
                if let Some(to) = destination(packet).filter(|to| *to < devices.len()) {
                    lock(switch).offer(start.elapsed(), from, to, packet.to_vec());
                }
            }
        }
        while let Some((to, packet)) = lock(switch).arrival(start.elapsed()) {
            if let Some(mut device) = devices.get(to) {
                // A full queue drops packets, as queues do.
                let _ = device.write(&packet);
            }
        }
    }
}

/// The switch. A panic of the other user leaves it usable.
fn lock(switch: &Mutex<Switch>) -> MutexGuard<'_, Switch> {
    switch.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The address of a process: the first one has 10.77.0.1.
fn address(index: usize) -> Ipv4Addr {
    let [high, low] = u16::try_from(index + 1).unwrap_or(u16::MAX).to_be_bytes();
    Ipv4Addr::new(NET[0], NET[1], high, low)
}

/// The process that an IPv4 packet is sent to; `None` for other packets and other networks, which
/// are dropped.
fn destination(packet: &[u8]) -> Option<usize> {
    let version = packet.first()? >> 4;
    let [a, b, high, low] = *packet.get(16..20)? else { return None };
    let inside = version == 4 && [a, b] == NET;
    if !inside {
        return None;
    }
    usize::from(u16::from_be_bytes([high, low])).checked_sub(1)
}

/// The network of all processes; it is private, so nodes take its addresses for reachable.
const NET: [u8; 2] = [10, 77];
/// The first two bytes of an address are those of the network.
const PREFIX_BITS: u32 = 16;
/// Name of the only device in a namespace.
const DEVICE: &str = "line";
/// Packets that are read from one device before the next device has its turn.
const BURST: usize = 32;
/// How often the thread checks whether it has to stop; below a second.
const IDLE: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;
    use crate::sim::links::AccessLink;

    #[test]
    fn a_packet_finds_the_line_of_its_address() {
        for index in [0, 1, 254, 255, 300] {
            let mut packet = [0; 20];
            packet[0] = 0x45;
            packet[16..].copy_from_slice(&address(index).octets());
            assert_eq!(destination(&packet), Some(index));
            packet[0] = 0x60;
            assert_eq!(destination(&packet), None, "IPv6");
        }
        let mut packet = [0x45; 20];
        packet[16..].copy_from_slice(&[10, 77, 0, 0]);
        assert_eq!(destination(&packet), None);
        packet[16..].copy_from_slice(&[10, 78, 0, 1]);
        assert_eq!(destination(&packet), None);
        assert_eq!(destination(&[0x45; 19]), None);
    }

    /// With the kernel's own TCP: perfect links carry it, a link that is down does not.
    #[test]
    fn tcp_passes_whole_links_and_no_others() {
        let network = match Emulation::open(2, 1) {
            Ok(emulation) => Network::Emulated(emulation),
            Err(error) => return println!("skipped: no network namespaces ({error})"),
        };
        let listener = network.inside(1, || TcpListener::bind((address(1), 0))).unwrap();
        let target = listener.local_addr().unwrap();
        let dial = |patience| {
            network.inside(0, || TcpStream::connect_timeout(&target, Duration::from_secs(patience)))
        };
        let mut there = dial(20).unwrap();
        let (mut here, _) = listener.accept().unwrap();
        let sent: Vec<u8> = (0..200_000_u32).map(|number| number.to_le_bytes()[1]).collect();
        let got = std::thread::scope(|scope| {
            scope.spawn(|| there.write_all(&sent).unwrap());
            let mut got = vec![0; sent.len()];
            here.read_exact(&mut got).unwrap();
            got
        });
        assert!(got == sent, "the bytes arrived changed");
        let down = AccessLink { up: Some(false), ..AccessLink::default() };
        network.apply(&Change::Access { peer: 1, link: down }).unwrap();
        assert!(dial(1).is_err());
        let outside = TcpStream::connect_timeout(&target, Duration::from_secs(1));
        assert!(outside.is_err(), "the machine's own network has nothing to do with it");
    }
}
