//! Lists of addresses, one a line and the best first: `peers`, where peers were reached, and `ports`, where this node
//! listened. Both are in the data folder.
//!
//! A node that comes back dials `peers` as well as its entry points, so it needs none. It listens at the same `ports`;
//! otherwise, if all come back at once, each would dial addresses that nobody has any more. The lists are neither
//! secret nor trusted: a peer is recognised by its key, and a line that makes no sense is ignored.

use std::{
    fs::File,
    io::{self, Read as _},
    path::Path,
};

use super::replace;
use crate::{
    net::address::{self, Address, AddressError},
    os::unless_missing,
};

/// How many addresses a list may have.
pub(crate) const CONTACTS: usize = 256;

/// Longest file that is read: 256 addresses with names of the greatest length.
const FILE_BYTES_MAX: u64 = 128 << 10;

/// A list as it was read, with a count of its wrong lines.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Contacts {
    /// The addresses, the best first.
    pub(crate) addresses: Vec<Address>,
    /// How many lines are no address.
    pub(crate) ignored: usize,
}

/// Reads the list of peers; without the file it is empty.
pub(crate) fn read(data_dir: &Path) -> io::Result<Contacts> {
    read_list(&data_dir.join(PEERS), address::parse_entry)
}

/// Reads the list of ports; without the file it is empty.
pub(crate) fn read_ports(data_dir: &Path) -> io::Result<Contacts> {
    read_list(&data_dir.join(PORTS), address::parse_listen)
}

/// Reads a list up to [`FILE_BYTES_MAX`]. A line twice counts once, and lines beyond [`CONTACTS`]
/// are ignored.
fn read_list(
    path: &Path,
    parse: fn(&str) -> Result<Address, AddressError>,
) -> io::Result<Contacts> {
    let mut bytes = Vec::new();
    if let Some(file) = unless_missing(File::open(path))? {
        file.take(FILE_BYTES_MAX).read_to_end(&mut bytes)?;
    }
    let mut contacts = Contacts::default();
    for line in String::from_utf8_lossy(&bytes).lines().filter(|line| !line.trim().is_empty()) {
        match parse(line) {
            Ok(address) if contacts.addresses.contains(&address) => {}
            Ok(address) if contacts.addresses.len() < CONTACTS => contacts.addresses.push(address),
            Ok(_) | Err(_) => contacts.ignored += 1,
        }
    }
    Ok(contacts)
}

/// Replaces a list by the first [`CONTACTS`] addresses. A crash leaves the old one or the new one.
pub(crate) fn write(path: &Path, addresses: &[Address]) -> io::Result<()> {
    let lines: Vec<String> =
        addresses.iter().take(CONTACTS).map(|address| format!("{address}\n")).collect();
    replace(path, lines.concat().as_bytes())
}

/// The name of the list of peers in the data folder.
pub(crate) const PEERS: &str = "peers";
/// The name of the list of ports.
pub(crate) const PORTS: &str = "ports";

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn peer(number: u16) -> String {
        let peer = "12D3KooWDpJ7As7BWAwRMfu1VU2WCqNjvq387JEYKDBj4kx6nXTN";
        format!("/ip4/203.0.113.7/tcp/{number}/p2p/{peer}")
    }

    #[test]
    fn what_is_written_is_read_and_bounded() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(read(folder.path()).unwrap(), Contacts::default());
        let all: Vec<Address> = (1..=300).map(|port| peer(port).parse().unwrap()).collect();
        write(&folder.path().join(PEERS), &all).unwrap();
        let found = read(folder.path()).unwrap();
        assert_eq!(found, Contacts { addresses: all[..CONTACTS].to_vec(), ignored: 0 });
        write(&folder.path().join(PEERS), &all[7..9]).unwrap();
        assert_eq!(read(folder.path()).unwrap().addresses, all[7..9]);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left over");
    }

    /// Somebody who can write to the folder can at most make the node dial.
    #[test]
    fn lines_that_are_no_address_are_left_out() {
        let folder = tempfile::tempdir().unwrap();
        let text = format!(
            "{}\n\nnonsense\n/ip4/1.2.3.4/tcp/1\n{}\r\n{}\n\u{0}\n",
            peer(1),
            peer(2),
            peer(1)
        );
        fs::write(folder.path().join(PEERS), text).unwrap();
        let found = read(folder.path()).unwrap();
        let good: Vec<Address> = [1, 2].iter().map(|n| peer(*n).parse().unwrap()).collect();
        assert_eq!(found, Contacts { addresses: good, ignored: 3 });
        fs::write(folder.path().join(PEERS), [0xff; 1000]).unwrap();
        assert_eq!(read(folder.path()).unwrap().ignored, 1);
        let endless = "/".repeat(1 << 20);
        fs::write(folder.path().join(PEERS), endless).unwrap();
        assert_eq!(read(folder.path()).unwrap(), Contacts { addresses: Vec::new(), ignored: 1 });
    }
}
