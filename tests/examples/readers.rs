//! Those that look at a run of four nodes: what they cost the members, and who waits for them.
//!
//!     cargo build --release && cargo run --release -p e2e --example readers -- KIND [how many] [seconds] [rounds]
//!
//! KIND is `watchers` (one process of `watch`, 50), `viewers` (browsers that follow the page of a
//! node, 32), or `connections` (silent ones to that page, 10,000 in each round). The run goes on
//! for so many seconds without readers and then with them, in each round, and without them again at
//! the end. An epoch has a fixed number of steps. Readers run where nobody else would, so their own
//! work does not count.

#![allow(clippy::print_stdout, reason = "a campaign prints its results")]

use std::{
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    process::Command,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail, ensure};
use e2e::{Process, Programs, Story};
use rustix::process::setpriority_process;
use serde_json::Value;

/// The members of the run. The first one has the page that viewers follow.
const NODES: [&str; 4] = ["one", "two", "three", "four"];
/// Steps of an epoch: about a second on one core.
const STEPS: &str = "epoch.amount=400";
/// What the readers may cost: of the time of an epoch, and of a core for each member.
const TIME_MAX: f64 = 0.03;
const CORE_MAX: f64 = 0.02;
/// How long the run may take to begin, and a crowd to end.
const PATIENCE: Duration = Duration::from_secs(120);

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let kind = arguments.next().context("which readers: watchers, viewers or connections")?;
    let mut number = |default: u64| arguments.next().map_or(Ok(default), |text| text.parse());
    let usual = match kind.as_str() {
        "watchers" => 50,
        "viewers" => 32,
        "connections" => 10_000,
        _ => bail!("readers are watchers, viewers or connections, not {kind}"),
    };
    let (count, length, rounds) =
        (number(usual)? as usize, Duration::from_secs(number(60)?), number(3)?);
    let story = Story::begin(Programs::built()?)?;
    let manifest = story.manifest("run.toml", &["members.min_peers=4", STEPS])?;
    let (_bootstrap, entry) = story.start_bootstrap(&[manifest])?;
    let start = |name: &&str| {
        // A quiet node does not say where its page is.
        let first = *name == NODES[0];
        let options: &[&str] = if first { &["--page", "127.0.0.1:0"] } else { &["--quiet"] };
        story.start_node(name, &entry, options)
    };
    let mut nodes: Vec<Process> = NODES.iter().map(start).collect::<Result<_>>()?;
    nodes[0].wait_for_commit(3, PATIENCE)?;
    let page = page(&mut nodes[0])?;

    let (mut without, mut with) = (vec![measure(&nodes, length)?], Vec::new());
    for _ in 0..rounds {
        with.push(match kind.as_str() {
            "watchers" => beside_watchers(&story, &entry, count, || measure(&nodes, length))?,
            "viewers" => beside_viewers(page, count, || measure(&nodes, length))?,
            _ => beside_connections(page, count, || measure(&nodes, length))?,
        });
        without.push(measure(&nodes, length)?);
    }
    println!("{count} {kind}, {} s each", length.as_secs());
    println!("without: {}", shown(&without));
    println!("   with: {}", shown(&with));
    let (alone, beside) = (Cost::median(&without), Cost::median(&with));
    let (time, core) = (beside.epoch_s / alone.epoch_s - 1.0, beside.core - alone.core);
    let calm = without.windows(2).map(|two| (two[1].epoch_s / two[0].epoch_s - 1.0).abs());
    println!("an epoch takes {:+.2} %, a member {:+.2} % of a core", 100.0 * time, 100.0 * core);
    println!("two parts without readers differ by {:.2} %", 100.0 * median(calm.collect()));
    for node in &nodes {
        let named =
            |event: &Value| event["members"].as_array().is_some_and(|all| all.len() > NODES.len());
        ensure!(!node.events()?.iter().any(named), "a reader is in a roster");
    }
    ensure!(time <= TIME_MAX, "an epoch may take {:.0} % more", 100.0 * TIME_MAX);
    ensure!(core <= CORE_MAX, "a member may use {:.0} % of a core more", 100.0 * CORE_MAX);
    Ok(())
}

/// Where the page of a node is.
fn page(node: &mut Process) -> Result<SocketAddr> {
    node.wait_until_it_said("page: http://", PATIENCE)?;
    let said = node.said();
    let (_, url) = said.split_once("page: http://").context("the address of the page")?;
    let end = url.find(|c: char| c == '/' || c.is_whitespace()).unwrap_or(url.len());
    Ok(url[..end].parse()?)
}

/// Measures beside `count` watchers, which are one process.
fn beside_watchers(
    story: &Story,
    entry: &str,
    count: usize,
    measure: impl Fn() -> Result<Cost>,
) -> Result<Cost> {
    let line = ["watch", "--bootstrap", entry, "--crowd", &count.to_string()];
    let mut crowd = story.start_command_under("crowd", &[], &line)?;
    crowd.wait_until_it_said("watching: epochs 1 to", PATIENCE)?;
    // All others have found the run by then too. Only now do they yield to the members: fifty
    // handshakes with each take very long at a low priority.
    thread::sleep(Duration::from_secs(10));
    for thread in crowd.threads()? {
        let idle = ["--idle", "--pid", "0", &thread.id.to_string()];
        let status = Command::new("chrt").args(idle).status().context("chrt of util-linux")?;
        ensure!(status.success(), "chrt: {status}");
    }
    let cost = measure()?;
    crowd.interrupt()?;
    crowd.wait(PATIENCE)?.expect_success()?;
    Ok(cost)
}

/// Measures beside `count` browsers that follow the events of a page.
fn beside_viewers(
    page: SocketAddr,
    count: usize,
    measure: impl Fn() -> Result<Cost>,
) -> Result<Cost> {
    let (stop, pictures) = (AtomicBool::new(false), AtomicUsize::new(0));
    let view = &|| -> Result<()> {
        setpriority_process(None, 19)?;
        let mut stream = ask(page, "/events")?;
        stream.set_read_timeout(Some(Duration::from_secs(1)))?;
        let mut bytes = [0; 1 << 16];
        while !stop.load(Ordering::Relaxed) {
            let read = stream.read(&mut bytes).unwrap_or(0);
            let news = bytes[..read].windows(14).filter(|word| *word == b"event: picture").count();
            pictures.fetch_add(news, Ordering::Relaxed);
        }
        Ok(())
    };
    thread::scope(|scope| {
        let views: Vec<_> = (0..count).map(|_| scope.spawn(view)).collect();
        let cost = measure();
        stop.store(true, Ordering::Relaxed);
        for view in views {
            view.join().map_err(|_| anyhow::anyhow!("a viewer has panicked"))??;
        }
        let pictures = pictures.load(Ordering::Relaxed);
        ensure!(pictures > count, "{count} viewers have seen {pictures} pictures");
        cost
    })
}

/// Measures while `count` connections come to a page that never say a word, and asks it for its
/// health afterwards.
fn beside_connections(
    page: SocketAddr,
    count: usize,
    measure: impl Fn() -> Result<Cost>,
) -> Result<Cost> {
    let (stop, left) = (AtomicBool::new(false), AtomicUsize::new(count));
    let connect = &|| -> Result<usize> {
        setpriority_process(None, 19)?;
        let mut open = Vec::new();
        let take = |left: usize| left.checked_sub(1);
        while left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok() {
            // The queue of a page that serves as many as it may is full at times.
            open.extend(TcpStream::connect_timeout(&page, Duration::from_millis(250)));
        }
        let held = open.len();
        while !stop.load(Ordering::Relaxed) {
            thread::sleep(Duration::from_millis(100));
        }
        Ok(held)
    };
    let cost = thread::scope(|scope| {
        let connections: Vec<_> = (0..64).map(|_| scope.spawn(connect)).collect();
        let cost = measure();
        stop.store(true, Ordering::Relaxed);
        let mut held = 0;
        for connection in connections {
            held += connection.join().map_err(|_| anyhow::anyhow!("a thread has panicked"))??;
        }
        println!("{held} of {count} connections were taken by the system");
        cost
    })?;
    let (begin, mut answer) = (Instant::now(), String::new());
    ask(page, "/healthz")?.read_to_string(&mut answer)?;
    ensure!(answer.contains(" 200 OK"), "the page is ill: {answer}");
    println!("the page answered {:.1} s after they left", begin.elapsed().as_secs_f64());
    Ok(cost)
}

/// Asks a page for a path, on a connection of its own.
fn ask(page: SocketAddr, path: &str) -> Result<TcpStream> {
    let mut stream = TcpStream::connect(page)?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {page}\r\nConnection: close\r\n\r\n")?;
    Ok(stream)
}

/// What a part of the run took.
#[derive(Clone, Copy)]
struct Cost {
    /// The mean time from a commit to the next.
    epoch_s: f64,
    /// Cores that a member used, in the mean, without its training threads.
    core: f64,
}

impl Cost {
    fn median(costs: &[Self]) -> Self {
        Self {
            epoch_s: median(costs.iter().map(|cost| cost.epoch_s).collect()),
            core: median(costs.iter().map(|cost| cost.core).collect()),
        }
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    f64::midpoint(values[(values.len() - 1) / 2], values[values.len() / 2])
}

fn shown(costs: &[Cost]) -> String {
    let one = |cost: &Cost| format!("{:.3} s an epoch, {:.4} of a core", cost.epoch_s, cost.core);
    costs.iter().map(one).collect::<Vec<_>>().join("; ")
}

/// What the run takes for so long: the time of an epoch, and the cores of its network threads.
fn measure(nodes: &[Process], length: Duration) -> Result<Cost> {
    let cpu = || -> Result<f64> {
        let threads = nodes.iter().map(Process::threads).collect::<Result<Vec<_>>>()?.concat();
        Ok(threads.iter().filter(|thread| is_network(&thread.name)).map(|thread| thread.cpu).sum())
    };
    let (before, from) = (cpu()?, last(nodes)?);
    thread::sleep(length);
    let (after, to) = (cpu()?, last(nodes)?);
    let (epochs, ms) = (to.0 - from.0, to.1 - from.1);
    ensure!(epochs > 0.0, "no epoch was committed");
    let core = (after - before) / length.as_secs_f64() / nodes.len() as f64;
    Ok(Cost { epoch_s: ms / 1_000.0 / epochs, core })
}

/// Whether a thread serves the network: those that compute have names of their own.
fn is_network(name: &str) -> bool {
    name != "worker"
}

/// The last epoch that the first node committed, and when.
fn last(nodes: &[Process]) -> Result<(f64, f64)> {
    let events = nodes[0].events()?;
    let commit = events.iter().rev().find(|event| event["event"] == "committed");
    let commit = commit.context("a commit")?;
    let number = |key: &str| commit[key].as_f64().context("a number");
    Ok((number("epoch")?, number("t_ms")?))
}
