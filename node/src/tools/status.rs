//! `status`: what the node of a folder does, as it says itself.
//!
//! The question goes over the socket in the folder, so it needs neither the network nor the lock,
//! and it takes no part in the run.
//!
//! The answers are those of the page, at `/status` for programs and at `/text` for people, by HTTP
//! over that socket. The exit code is for scripts and health checks: 0 in the run, 3 a node that
//! waits or is behind, 1 no node or no answer.

use std::io::{self, Read as _, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::cli::status::StatusArgs;
use crate::config::{self, LocalError};
use crate::{os, socket, store};

/// Why a node gives no answer here.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StatusError {
    /// No folder was typed, and none is the default.
    #[error(transparent)]
    Local(#[from] LocalError),
    /// Nothing is there, or it is a file.
    #[error("{} is no folder: name the folder of a node with --data-dir", .0.display())]
    NoFolder(PathBuf),
    /// No process runs with this folder.
    #[error("no node runs in {}: {}", .0.display(), remedy(.0))]
    NoNode(PathBuf),
    /// A process holds the lock, and has no socket.
    #[error(
        "process {holder} runs in {} and has no socket to ask it by: it is of an older version, or could not make \
         one; what it printed says more",
        folder.display()
    )]
    NoSocket { folder: PathBuf, holder: String },
    /// The socket, or its folder, is of somebody else.
    #[error("the node in {} is of another user: ask as that user, or open its page", .0.display())]
    AnotherUser(PathBuf),
    /// The node takes the question, and answers nothing or something else.
    #[error("the node in {} gives no answer that this program understands: both must be of one version", .0.display())]
    NoAnswer(PathBuf),
    /// A process holds the lock, and answers nothing for [`PATIENCE`].
    #[error(
        "the node in {} does not answer: process {holder} may be stopped or suspended, and goes on by `fg` or \
         `kill -CONT`; if this machine is only busy, ask again",
        folder.display()
    )]
    Silent { folder: PathBuf, holder: String },
    /// The system refused the connection.
    #[error("cannot ask the node in {}", folder.display())]
    Io { folder: PathBuf, source: io::Error },
    /// Standard output is gone or full.
    #[error("cannot write to standard output")]
    Output(#[source] io::Error),
}

/// Prints what the node does. Returns 0 if it is in the run, and 3 if it waits or is behind.
///
/// # Errors
/// Each [`StatusError`] is exit code 1, and says whether to start a node or to ask in another way.
pub(crate) fn run(args: &StatusArgs, out: &mut dyn Write) -> Result<u8, StatusError> {
    let folder = args.data_dir.clone().map_or_else(config::data_dir, Ok)?;
    let status = ask(&folder, "/status")?;
    let parsed: serde_json::Value =
        serde_json::from_str(&status).map_err(|_| StatusError::NoAnswer(folder.clone()))?;
    let text = if args.json { status + "\n" } else { ask(&folder, "/text")? };
    out.write_all(text.as_bytes()).map_err(StatusError::Output)?;
    Ok(if is_in_run(&parsed) { 0 } else { WAITS })
}

/// Whether the answer of a node at `/status` says that it is in the run.
pub(crate) fn is_in_run(status: &serde_json::Value) -> bool {
    status["verdict"]["mood"] == "good"
}

/// The answer of the node in `folder`. `path` is that of the page, with its query. `tui` asks by it
/// twice a second, and `doctor` once.
///
/// # Errors
/// What the system says is divided by what a person can do: no folder, no node, a node of somebody
/// else.
pub(crate) fn ask(folder: &Path, path: &str) -> Result<String, StatusError> {
    let refused = |source: io::Error| StatusError::Io { folder: folder.to_owned(), source };
    let stream = socket::connect(folder).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound if !folder.is_dir() => StatusError::NoFolder(folder.to_owned()),
        io::ErrorKind::NotADirectory => StatusError::NoFolder(folder.to_owned()),
        io::ErrorKind::NotFound => without_socket(folder),
        io::ErrorKind::ConnectionRefused => StatusError::NoNode(folder.to_owned()),
        io::ErrorKind::PermissionDenied => StatusError::AnotherUser(folder.to_owned()),
        _ => refused(error),
    })?;
    let answer = exchange(stream, path).map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => silent(folder),
        _ => refused(error),
    })?;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_default();
    let good = head.split(' ').nth(1) == Some("200");
    good.then(|| body.to_owned()).ok_or_else(|| StatusError::NoAnswer(folder.to_owned()))
}

/// Sends one request, and reads the whole answer. HTTP/1.0 ends with the connection, so the length
/// needs no header.
fn exchange(mut stream: UnixStream, path: &str) -> io::Result<String> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.write_all(format!("GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n").as_bytes())?;
    let mut answer = String::new();
    stream.take(ANSWER_BYTES_MAX).read_to_string(&mut answer)?;
    Ok(answer)
}

/// What a folder without a socket means. The lock tells whether a process is there.
fn without_socket(folder: &Path) -> StatusError {
    match os::holder_of(folder) {
        Some(holder) => StatusError::NoSocket { folder: folder.to_owned(), holder },
        None => StatusError::NoNode(folder.to_owned()),
    }
}

/// What a socket means at which nothing is answered in time. Without the lock it is no node's.
fn silent(folder: &Path) -> StatusError {
    match os::holder_of(folder) {
        Some(holder) => StatusError::Silent { folder: folder.to_owned(), holder },
        None => StatusError::NoAnswer(folder.to_owned()),
    }
}

/// What to do where no node runs. Without an entry point a start needs a run that the folder remembers.
fn remedy(folder: &Path) -> String {
    if store::runs(folder).is_ok_and(|runs| runs.is_empty()) {
        return "it remembers no run; name the folder of a node with --data-dir, or start one with the \
                organiser's whole line (--bootstrap …)"
            .to_owned();
    }
    format!("start it with `{}`", config::command_for(folder))
}

/// The exit code for a node that waits, or is behind.
pub(crate) const WAITS: u8 = 3;
/// A node answers in milliseconds, unless its machine swaps.
const PATIENCE: Duration = Duration::from_secs(3);
/// A picture of 256 peers has less.
const ANSWER_BYTES_MAX: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    fn ask_of(folder: &Path) -> String {
        let args = StatusArgs { data_dir: Some(folder.to_owned()), json: true };
        run(&args, &mut Vec::new()).unwrap_err().to_string()
    }

    #[test]
    fn a_folder_without_a_node_is_a_sentence() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        assert!(ask_of(&path.join("missing")).contains("is no folder"));
        let keyless = ask_of(path);
        let words = ["no node runs in", "it remembers no run; name the folder", "--bootstrap"];
        assert!(words.iter().all(|part| keyless.contains(part)), "{keyless}");
        std::fs::create_dir_all(path.join("runs").join("ab".repeat(32))).unwrap();
        assert!(ask_of(path).contains("start it with `intellect-node --data-dir "));
        // A dead socket, as a killed node leaves one.
        let (socket, listener) = socket::Socket::listen(path).unwrap();
        drop(listener);
        assert!(ask_of(path).contains("no node runs in"));
        drop(socket);
        let lock = os::lock_folder(path).unwrap();
        let said = ask_of(path);
        assert!(said.contains(&format!("process {} runs", std::process::id())), "{said}");
        drop(lock);
        std::fs::write(path.join("file"), "").unwrap();
        assert!(ask_of(&path.join("file")).contains("is no folder"));
    }

    #[test]
    fn another_program_on_the_socket_is_a_sentence() {
        let folder = tempfile::tempdir().unwrap();
        let (_socket, listener) = socket::Socket::listen(folder.path()).unwrap();
        listener.set_nonblocking(false).unwrap();
        let other = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 64];
            let _ = stream.read(&mut request).unwrap();
            stream.write_all(b"HTTP/1.0 404 Not Found\r\n\r\n").unwrap();
        });
        assert!(ask_of(folder.path()).contains("gives no answer"));
        other.join().unwrap();
    }
}
