//! Connections that say nothing, and show no key, keep no peer out.

use std::{
    io::{ErrorKind, Read as _},
    net::{SocketAddr, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use libp2p::{Multiaddr, multiaddr::Protocol};
use serde_json::Value;

use crate::story;

const PATIENCE: Duration = Duration::from_secs(60);

/// As many connections as once kept every peer out of a bootstrap.
const CONNECTIONS: usize = 64;

/// How long a newcomer may wait for the manifest, in milliseconds.
const MANIFEST_MS: u64 = 3_000;

/// Silent connections, each opened again as soon as it is closed, until this is dropped.
struct Silence {
    opened: Arc<AtomicUsize>,
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Silence {
    /// Opens them to a multiaddress of this machine.
    fn at(address: &str) -> Self {
        let address: Multiaddr = address.parse().unwrap();
        let port = address.iter().find_map(|part| match part {
            Protocol::Tcp(port) => Some(port),
            _ => None,
        });
        let target = SocketAddr::from(([127, 0, 0, 1], port.unwrap()));
        let (opened, over) = (Arc::<AtomicUsize>::default(), Arc::<AtomicBool>::default());
        let (count, end) = (Arc::clone(&opened), Arc::clone(&over));
        let thread = thread::spawn(move || {
            let mut open: Vec<TcpStream> = Vec::new();
            while !end.load(Ordering::Relaxed) {
                open.retain(is_open);
                while open.len() < CONNECTIONS {
                    let Ok(stream) = TcpStream::connect(target) else { break };
                    stream.set_nonblocking(true).unwrap();
                    open.push(stream);
                    count.fetch_add(1, Ordering::Relaxed);
                }
                thread::sleep(Duration::from_millis(20));
            }
        });
        Self { opened, over, thread: Some(thread) }
    }

    /// Waits until this many connections were opened in all.
    fn wait_for(&self, opened: usize) {
        let start = Instant::now();
        while self.opened.load(Ordering::Relaxed) < opened {
            assert!(start.elapsed() < PATIENCE, "only {:?} of {opened}", self.opened);
            thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Silence {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        // A thread that panicked has printed why.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Whether the other side has not closed it; bytes that it sends are thrown away.
fn is_open(stream: &TcpStream) -> bool {
    let mut stream = stream;
    match stream.read(&mut [0; 1024]) {
        Ok(bytes) => bytes > 0,
        Err(error) => error.kind() == ErrorKind::WouldBlock,
    }
}

/// While a bootstrap and a node are full of silent connections, a newcomer that enters at either
/// has the manifest within 3 s, and trains; also after all of the connections were opened again.
#[test]
fn silent_connections_close_no_door() {
    let story = story();
    let settings = ["members.heartbeat_ms=200", "members.min_peers=1"];
    let manifest = story.manifest("run.toml", &settings).unwrap();
    let (_bootstrap, entry) = story.start_bootstrap(&[manifest]).unwrap();
    let mut one = story.start_node("one", &entry, &[]).unwrap();
    one.wait_for_commit(1, PATIENCE).unwrap();
    let listening = one.wait_for(PATIENCE, |event| event["event"] == "listening").unwrap();
    let at_node = listening["addresses"][0].as_str().unwrap().to_owned();
    let silence = [&entry, &at_node].map(|address| Silence::at(address));
    let mut newcomers = Vec::new();
    for opened in [CONNECTIONS, 2 * CONNECTIONS] {
        silence.iter().for_each(|silence| silence.wait_for(opened));
        for (place, address) in [("bootstrap", &entry), ("node", &at_node)] {
            let started = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis();
            let name = format!("at-{place}-{opened}");
            let mut newcomer = story.start_node(&name, address, &[]).unwrap();
            let found = newcomer.wait_for(PATIENCE, |event| event["event"] == "manifest").unwrap();
            let took = found["t_ms"].as_u64().unwrap() - u64::try_from(started).unwrap();
            println!("{name}: the manifest after {took} ms");
            assert!(took <= MANIFEST_MS, "{took} ms");
            newcomers.push(newcomer);
        }
    }
    for newcomer in &mut newcomers {
        let trains = |event: &Value| event["event"] == "committed" && event["loss"].is_number();
        newcomer.wait_for(PATIENCE, trains).unwrap();
    }
    drop(silence);
}
