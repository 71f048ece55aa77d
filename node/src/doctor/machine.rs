//! What this machine has, without a network: memory, disk, limits of the system, its device, and
//! how fast it trains.
//!
//! The thresholds are of a node in general. What one run needs more than that is a check of its own
//! (`needs.rs`), where an entry point hands out the run's manifest.
//!
//! Each examination is one function that returns a [`Check`] and never an error: what the system
//! does not say is a check that was not tried. What may hang, such as a dead network disk, runs on
//! a thread that is left behind when its time is over ([`within`]).

use std::{
    fs::{File, OpenOptions},
    io::{self, Write as _},
    path::{Path, PathBuf},
    sync::mpsc::{RecvTimeoutError, sync_channel},
    thread,
    time::{Duration, Instant},
};

use intellect_bootstrap::transport;
use intellect_model::Device;

use super::check::{Check, Grade, at_least};
use super::node;
use crate::{figures, os, tools::bench::train};

/// One examination: its name, and what does it. The name is shown on a terminal while it runs.
pub(super) type Examination = (&'static str, Box<dyn FnOnce() -> Check>);

/// Everything about this machine and the node on it, in the order of the table.
pub(super) fn examinations(data_dir: &Path) -> Vec<Examination> {
    let (disk, write, data) = (existing(data_dir), existing(data_dir), data_dir.to_owned());
    vec![
        ("memory", Box::new(memory)),
        ("disk", Box::new(move || free_disk(&disk))),
        ("write", Box::new(move || within("write", WRITE_PATIENCE, move || write_speed(&write)))),
        ("files", Box::new(open_files)),
        ("udp", Box::new(udp_buffer)),
        ("bbr", Box::new(bbr)),
        ("device", Box::new(device)),
        ("train", Box::new(|| within("train", TRAIN_PATIENCE, training))),
        ("clock", Box::new(clock)),
        (
            node::NAME,
            Box::new(move || within(node::NAME, NODE_PATIENCE, move || node::node(&data))),
        ),
    ]
}

/// The data folder, or the nearest folder above it that exists: the doctor makes none. A node would
/// make the missing ones on the same disk, unless somebody mounts another there.
pub(super) fn existing(folder: &Path) -> PathBuf {
    let folder = if folder.is_absolute() { folder.to_owned() } else { Path::new(".").join(folder) };
    let exists = folder.ancestors().find(|above| above.is_dir());
    exists.unwrap_or_else(|| Path::new("/")).to_owned()
}

/// Free memory, against what the smallest model and the presets for several machines take. A
/// control group that allows less than the machine has is respected.
fn memory() -> Check {
    let Some(free) = os::memory_available_bytes() else {
        return Check::not_tried("memory", "this system does not say how much is free");
    };
    let verdict = at_least(free as f64, MEMORY_GOOD, MEMORY_LEAST);
    Check::new("memory", verdict, format!("{} free", figures::bytes(free)))
        .measured(free as f64, "bytes")
        .remedy_if_wrong("end other programs: only small models fit here")
}

/// Free disk of the data folder. Folders that a node makes later are on the same disk, so the
/// nearest existing one is asked.
fn free_disk(folder: &Path) -> Check {
    let Some(free) = os::disk_available_bytes(folder) else {
        let found = format!("nothing is known about the disk of {}", folder.display());
        return Check::not_tried("disk", found);
    };
    let verdict = at_least(free as f64, DISK_GOOD, DISK_LEAST);
    Check::new("disk", verdict, format!("{} free in {}", figures::bytes(free), folder.display()))
        .measured(free as f64, "bytes")
        .remedy_if_wrong("free some space, or name a folder on another disk with --data-dir")
}

/// Writes a file that has no name any more, and waits until it is safe. The time includes the
/// flush, since a node flushes each record before it lets a message out. A slow disk is a warning
/// at most, a refused write is bad.
fn write_speed(folder: &Path) -> Check {
    let write = || -> io::Result<Duration> {
        let mut file = nameless(folder)?;
        let (chunk, begun) = (vec![0x5a; CHUNK_BYTES], Instant::now());
        for _ in 0..WRITE_BYTES / CHUNK_BYTES {
            file.write_all(&chunk)?;
        }
        file.sync_all()?;
        Ok(begun.elapsed())
    };
    match write() {
        Ok(took) => {
            let speed = WRITE_BYTES as f64 / took.as_secs_f64().max(1e-6);
            let found = format!(
                "{}/s, {} written and made durable in {}",
                figures::bytes(speed as u64),
                figures::bytes(WRITE_BYTES as u64),
                folder.display()
            );
            Check::new("write", at_least(speed, WRITE_GOOD, 0.0), found)
                .measured(speed, "bytes/s")
                .remedy_if_wrong(SLOW_DISK)
        }
        Err(error) => {
            let found = format!("{} cannot be written: {error}", folder.display());
            Check::new("write", Grade::Bad, found)
                .remedy("free some space, or name a folder that you may write with --data-dir")
        }
    }
}

/// An open file that vanishes with this process, however that ends. The folder never keeps 64 MiB
/// of a look that was interrupted.
fn nameless(folder: &Path) -> io::Result<File> {
    let path = folder.join(format!(".intellect-doctor-{}", std::process::id()));
    let file = OpenOptions::new().write(true).create_new(true).open(&path)?;
    std::fs::remove_file(&path)?;
    Ok(file)
}

/// How many files and connections may be open at once: a node has hundreds. Each start of this program
/// raises its limit as far as it may, so a node gets what this process has. No limit at all has no
/// number in the table.
fn open_files() -> Check {
    let Some(now) = os::open_files_limit() else {
        return Check::new("files", Grade::Ok, "any number may be open at once");
    };
    let found = format!("{} may be open at once", figures::count(now));
    Check::new("files", at_least(now as f64, FILES_GOOD, FILES_LEAST), found)
        .measured(now as f64, "files")
        .remedy_if_wrong("as root, raise `ulimit -Hn` to 4096 for the node: connections count too")
}

/// What a QUIC socket gets, since the node asks for no other size. A smaller buffer loses packets
/// in bursts, which makes QUIC slow and breaks nothing.
fn udp_buffer() -> Check {
    let Some(bytes) = os::setting("net/core/rmem_default") else {
        return Check::not_tried("udp", "this system does not say how large buffers are");
    };
    let verdict = at_least(bytes as f64, UDP_GOOD, 0.0);
    let found = format!("{} of buffer for what QUIC receives", figures::bytes(bytes));
    Check::new("udp", verdict, found).measured(bytes as f64, "bytes").remedy_if_wrong(
        "type `sysctl -w net.core.rmem_default=212992` as root, Linux's own default",
    )
}

/// Whether TCP can send by BBR, which a node asks for on every connection. Without it a line that
/// loses packets is slow over TCP, since the usual control takes each loss for a jam.
fn bbr() -> Check {
    match transport::has_bbr() {
        None => Check::not_tried("bbr", "this system offers no choice"),
        Some(true) => Check::new("bbr", Grade::Ok, "TCP sends by BBR, which bears lost packets"),
        Some(false) => {
            Check::new("bbr", Grade::Warning, "TCP cannot send by BBR: lost packets make it slow")
                .remedy(
                    "type as root `modprobe tcp_bbr`, then `sysctl -w \
                     net.ipv4.tcp_allowed_congestion_control='reno cubic bbr'`",
                )
        }
    }
}

/// The device of `--device auto`, and a GPU that this build cannot use. It is only opened, and
/// computes nothing: `bench device` is the test of that.
fn device() -> Check {
    let device = match Device::Auto.resolve() {
        Ok(device) => device,
        Err(error) => return Check::new("device", Grade::Bad, error.to_string()),
    };
    if !device.is_gpu() {
        let misses_gpu = Path::new(NVIDIA).exists() && !cfg!(feature = "cuda");
        let note = if misses_gpu { ": this build cannot use the GPU of NVIDIA" } else { "" };
        let cores = figures::number_of(os::cores(), "core");
        let verdict = if misses_gpu { Grade::Warning } else { Grade::Ok };
        return Check::new("device", verdict, format!("{device}, {cores}{note}"))
            .measured(os::cores() as f64, "cores")
            .remedy_if_wrong(
                "build the program with `--features cuda`: docs/CONTRIBUTE.md says how",
            );
    }
    let facts = device.facts();
    let words = [facts.name, facts.driver, facts.compiler].into_iter().flatten();
    let named = words.fold(device.to_string(), |text, word| text + ", " + &word);
    match device.free_bytes() {
        Ok(Some(free)) => {
            let found = format!("{named}, {} free", figures::bytes(free));
            Check::new("device", at_least(free as f64, GPU_GOOD, 0.0), found)
                .measured(free as f64, "bytes")
                .remedy_if_wrong("end other programs that use this GPU")
        }
        Ok(None) => Check::new("device", Grade::Ok, named),
        Err(error) => Check::new("device", Grade::Bad, error.to_string())
            .remedy("install its driver, or train with --device cpu"),
    }
}

/// Steps of the small model of `bench train`, on the CPU. A GPU is left out: to compile its kernels
/// alone takes longer than all of `doctor` may.
fn training() -> Check {
    if let Ok(device) = Device::Auto.resolve()
        && device.is_gpu()
    {
        return Check::not_tried("train", format!("{device} compiles for too long"))
            .remedy("type `intellect-node bench device`, which takes minutes");
    }
    match train::short(TRAIN_TIME) {
        Ok(speed) => {
            let threads = figures::number_of(intellect_model::threads(), "thread");
            let rate = figures::count(speed as u64);
            let found = format!("{rate} tokens/s of a model of 5 M parameters, {threads}");
            Check::new("train", at_least(speed, TRAIN_GOOD, 0.0), found)
                .measured(speed, "tokens/s")
                .remedy_if_wrong("end other programs that compute: others wait for a slow machine")
        }
        Err(error) => Check::new("train", Grade::Bad, figures::explain(&error, ": "))
            .remedy("ask for help: the CPU cannot train the smallest model"),
    }
}

/// The clock is named and not examined, so that nobody looks for it in vain.
fn clock() -> Check {
    Check::not_tried("clock", "nobody here says the time; only invites that expire need it")
}

/// The result of work on a thread of its own, which is abandoned when its time is over. The thread
/// goes on until the process ends, for nothing can stop a write that waits for a disk. A panic in
/// it is a bad check and no end of the program.
fn within(
    check: &'static str,
    patience: Duration,
    work: impl FnOnce() -> Check + Send + 'static,
) -> Check {
    let (done, result) = sync_channel(1);
    thread::spawn(move || {
        // Nobody listens where the time is over.
        let _ = done.send(work());
    });
    match result.recv_timeout(patience) {
        Ok(found) => found,
        Err(RecvTimeoutError::Timeout) => {
            let found = format!("not done after {} s, and given up", patience.as_secs());
            Check::new(check, Grade::Warning, found).remedy(match check {
                "write" => SLOW_DISK,
                node::NAME => "look at what the node prints: it may be stopped",
                _ => "end other programs that compute: others wait for a slow machine",
            })
        }
        Err(RecvTimeoutError::Disconnected) => {
            Check::new(check, Grade::Bad, "it has failed without a word")
        }
    }
}

/// The remedy of a slow write, and of one that was given up.
const SLOW_DISK: &str =
    "name a folder on a faster disk with --data-dir: each epoch writes a checkpoint";

/// The smallest models take about 40 MB; the built-in presets for several machines a gigabyte.
/// Bytes; below `MEMORY_GOOD` it is a warning, below `MEMORY_LEAST` bad.
const MEMORY_GOOD: f64 = 1e9;
const MEMORY_LEAST: f64 = 64e6;
/// A run of the smallest model takes 10 MB; one of 100 M parameters, 10 GB (docs/ORGANISE.md).
/// Bytes, with the same two steps.
const DISK_GOOD: f64 = 2e9;
const DISK_LEAST: f64 = 100e6;
/// A guess: half of what an old hard disk does. Bytes per second; less is a warning.
const WRITE_GOOD: f64 = 40e6;
/// At [`WRITE_GOOD`] this takes 1.7 s, well within [`WRITE_PATIENCE`].
const WRITE_BYTES: usize = 64 << 20;
/// What one call writes, so that the disk is measured and not the memory for all of it.
const CHUNK_BYTES: usize = 1 << 20;
/// A node has at most 800 connections, each of TCP one file, and about a hundred files besides.
/// Fewer than `FILES_GOOD` are a warning, fewer than `FILES_LEAST` bad.
const FILES_GOOD: f64 = 4_096.0;
const FILES_LEAST: f64 = 256.0;
/// The default of Linux, which QUIC gets along with. It is in bytes.
const UDP_GOOD: f64 = 212_992.0;
/// A guess: what the context of CUDA and a small model take. It is in bytes of the memory of the
/// GPU.
const GPU_GOOD: f64 = 1e9;
/// The driver's folder, whatever this build can use.
const NVIDIA: &str = "/proc/driver/nvidia/version";
/// A guess: a twentieth of two cores of a server (docs/PERFORMANCE.md). Tokens per second of the
/// model of `bench train`.
const TRAIN_GOOD: f64 = 100.0;
/// How long it trains. At least two steps are made, and the first is not counted.
const TRAIN_TIME: Duration = Duration::from_secs(3);
/// How long that may take with all that comes before it.
const TRAIN_PATIENCE: Duration = Duration::from_secs(7);
/// A node answers in milliseconds, unless its machine swaps.
const NODE_PATIENCE: Duration = Duration::from_secs(2);
/// At 17 MB/s, far below [`WRITE_GOOD`], the write is just done.
const WRITE_PATIENCE: Duration = Duration::from_secs(4);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_is_not_there_is_tried_above_and_nothing_is_left() {
        let top = tempfile::tempdir().unwrap();
        let folder = existing(&top.path().join("a/b"));
        assert_eq!(folder, top.path());
        let found = write_speed(&folder);
        assert!(found.verdict != Grade::Bad && found.value > Some(0.0), "{found}");
        assert_eq!(std::fs::read_dir(top.path()).unwrap().count(), 0);
        assert!(existing(Path::new("surely/not/there")).is_dir());
    }

    #[test]
    fn a_folder_that_cannot_be_written_is_bad_and_has_a_remedy() {
        let found = write_speed(Path::new("/proc"));
        assert_eq!(found.verdict, Grade::Bad);
        assert!(found.remedy.unwrap().contains("--data-dir"));
    }

    #[test]
    fn work_that_does_not_end_is_given_up() {
        let found = within("write", Duration::from_millis(10), || {
            thread::sleep(Duration::from_secs(5));
            Check::new("write", Grade::Ok, "")
        });
        assert_eq!(found.verdict, Grade::Warning);
        assert!(found.remedy.is_some());
        let panics = within("train", Duration::from_secs(5), || panic!("a bug"));
        assert_eq!(panics.verdict, Grade::Bad);
    }
}
