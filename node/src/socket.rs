//! The socket `status.sock` in a data folder, by which programs of the same user ask a running node.
//!
//! A path of a socket has at most 108 bytes, and a data folder may have a longer one. So both ends go through the
//! opened folder, whose path in `/proc` is short. Only the holder of the folder's lock makes the socket, so one that
//! is there before is stale.
//!
//! What is asked and answered there is the page's HTTP, with addresses of peers
//! (`intellect_view::page::serve_local`). The mode of the socket says who may ask: this user.

use std::fs::{self, File, Permissions};
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use crate::os::unless_missing;

/// The name of the socket in the folder.
const NAME: &str = "status.sock";

/// A socket that exists until this is dropped.
#[derive(Debug)]
pub(crate) struct Socket(PathBuf);

impl Socket {
    /// Makes the socket, for this user alone. The caller holds the lock of `folder`.
    /// Without the lock, two processes could remove each other's socket.
    pub(crate) fn listen(folder: &Path) -> io::Result<(Self, UnixListener)> {
        let opened = File::open(folder)?;
        let path = short(&opened, folder);
        unless_missing(fs::remove_file(&path))?;
        let listener = UnixListener::bind(&path)?;
        fs::set_permissions(&path, Permissions::from_mode(0o600))?;
        listener.set_nonblocking(true)?;
        Ok((Self(folder.join(NAME)), listener))
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        // One that stays is removed by the next start.
        let _ = fs::remove_file(&self.0);
    }
}

/// Connects to the node of a folder.
/// An error means that no node runs there, or one of another user.
pub(crate) fn connect(folder: &Path) -> io::Result<UnixStream> {
    let opened = File::open(folder)?;
    UnixStream::connect(short(&opened, folder))
}

/// A path of the socket that is short enough while the folder is open.
fn short(opened: &File, folder: &Path) -> PathBuf {
    let proc = PathBuf::from(format!("/proc/self/fd/{}", opened.as_raw_fd()));
    // Where the system has no such folder, a long path is an error of the system.
    if proc.exists() { proc.join(NAME) } else { folder.join(NAME) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_in_a_deep_folder_is_for_its_owner_and_replaces_a_stale_one() {
        let top = tempfile::tempdir().unwrap();
        let folder = top.path().join("x".repeat(200));
        fs::create_dir(&folder).unwrap();
        assert_eq!(connect(&folder).unwrap_err().kind(), io::ErrorKind::NotFound);
        let (socket, listener) = Socket::listen(&folder).unwrap();
        let mode = fs::metadata(folder.join(NAME)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        connect(&folder).unwrap();
        // A process that is killed leaves its socket.
        std::mem::forget(socket);
        drop(listener);
        assert_eq!(connect(&folder).unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
        let (socket, _listener) = Socket::listen(&folder).unwrap();
        connect(&folder).unwrap();
        drop(socket);
        assert!(!folder.join(NAME).exists());
    }
}
