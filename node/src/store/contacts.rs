//! Where peers were reached, and where this node listened: the files `peers` and `ports` of the data
//! folder, an address a line, the best first.
//!
//! A node that comes back dials `peers` beside its entry points, so it needs none; and it listens at the same
//! `ports`, or where all come back at once each would dial where nobody is any more. What stands there
//! is no secret and proves nothing: who answers is known by its key, and a line that makes no sense
//! is left out.

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

/// Addresses that are kept.
pub(crate) const CONTACTS: usize = 256;

/// Longest file that is read: 256 addresses of a name of the greatest length.
const FILE_BYTES_MAX: u64 = 128 << 10;

/// What was read.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Contacts {
    /// The best first.
    pub(crate) addresses: Vec<Address>,
    /// Lines that are no address.
    pub(crate) ignored: usize,
}

/// Reads where peers were reached; no file is an empty list.
pub(crate) fn read(data_dir: &Path) -> io::Result<Contacts> {
    read_list(&data_dir.join(PEERS), address::parse_entry)
}

/// Reads where this node listened; no file is an empty list.
pub(crate) fn read_ports(data_dir: &Path) -> io::Result<Contacts> {
    read_list(&data_dir.join(PORTS), address::parse_listen)
}

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

/// Replaces the list of peers.
pub(crate) fn write(data_dir: &Path, addresses: &[Address]) -> io::Result<()> {
    write_list(&data_dir.join(PEERS), addresses)
}

/// Replaces the list of ports.
pub(crate) fn write_ports(data_dir: &Path, addresses: &[Address]) -> io::Result<()> {
    write_list(&data_dir.join(PORTS), addresses)
}

fn write_list(path: &Path, addresses: &[Address]) -> io::Result<()> {
    let lines: Vec<String> =
        addresses.iter().take(CONTACTS).map(|address| format!("{address}\n")).collect();
    replace(path, lines.concat().as_bytes())
}

const PEERS: &str = "peers";
const PORTS: &str = "ports";

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
        write(folder.path(), &all).unwrap();
        let found = read(folder.path()).unwrap();
        assert_eq!(found, Contacts { addresses: all[..CONTACTS].to_vec(), ignored: 0 });
        write(folder.path(), &all[7..9]).unwrap();
        assert_eq!(read(folder.path()).unwrap().addresses, all[7..9]);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left over");
    }

    /// Whoever can write there can at most have us dial.
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
