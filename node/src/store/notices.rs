//! Two files beside the manifest of a run: `notices`, which its organiser has signed since, and `ticket`, which admitted
//! this node to a run of invited peers.
//!
//! Notices are public and signed. A ticket lets this peer in and no other, but it names its owner,
//! so others on this machine need not read it.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read as _},
    os::unix::fs::OpenOptionsExt as _,
    path::PathBuf,
    sync::Arc,
};

use intellect_bootstrap::manifest::{notices_file, read_notices};
use intellect_protocol::{access::admit::code::Code, base::id::PeerId, message::Ticket};

use super::{Store, StoreError, TEMPORARY, finish, write};
use crate::os::{cannot, unless_missing};

impl Store {
    /// Stores the notices of the run.
    /// The whole chain replaces the file, so it is never a part of two.
    pub(crate) fn save_notices(&self, notices: &[Arc<[u8]>]) -> Result<(), StoreError> {
        write(&self.notices_path(), &notices_file(notices.iter().map(AsRef::as_ref)))
    }

    /// The stored notices, unverified. Those behind damage are lost, and come again from other peers.
    pub(crate) fn notices(&self) -> Result<Vec<Arc<[u8]>>, StoreError> {
        let path = self.notices_path();
        Ok(read_notices(&path).map_err(cannot("read", &path))?)
    }

    /// The file of notices beside the manifest.
    fn notices_path(&self) -> PathBuf {
        self.folder.join("notices")
    }

    /// Stores the ticket that admits this node to a run of invited peers, readable by its owner only.
    pub(crate) fn save_ticket(&self, ticket: &Ticket) -> Result<(), StoreError> {
        let path = self.folder.join(TICKET);
        let error = cannot("write", &path);
        let temporary = path.with_extension(TEMPORARY);
        unless_missing(fs::remove_file(&temporary)).map_err(&error)?;
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary);
        let text = format!("{}\n", Code::Named(ticket.clone()));
        let written = file.and_then(|file| finish(file, &temporary, &path, text.as_bytes()));
        Ok(written.map_err(&error)?)
    }

    /// The stored ticket. A file that contains no ticket of `peer` counts as none.
    /// The key of the folder may have been exchanged since, and a ticket of another key is of no
    /// use.
    pub(crate) fn ticket(&self, peer: &PeerId) -> Result<Option<Ticket>, StoreError> {
        let path = self.folder.join(TICKET);
        let mut text = String::new();
        let file = unless_missing(File::open(&path)).map_err(cannot("read", &path))?;
        let Some(file) = file else { return Ok(None) };
        let read = file.take(TICKET_TEXT_MAX).read_to_string(&mut text);
        match read {
            Err(error) if error.kind() == io::ErrorKind::InvalidData => return Ok(None),
            read => read.map_err(cannot("read", &path))?,
        };
        Ok(text.parse::<Code>().ok().and_then(|code| code.ticket(peer).ok()))
    }
}

/// Name of the file with the node's own ticket: one line, the code for this peer alone.
const TICKET: &str = "ticket";
/// More than the text of the longest ticket.
const TICKET_TEXT_MAX: u64 = 4 << 10;

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use intellect_protocol::base::{id::RunId, sign::Keypair};

    use super::*;
    use crate::store::tests::open;

    #[test]
    fn notices_come_back_and_half_a_file_costs_only_what_it_lost() {
        let (_folder, store) = open();
        assert!(store.notices().unwrap().is_empty());
        let notices: Vec<Arc<[u8]>> = (1..=3).map(|n| vec![n; 9].into()).collect();
        store.save_notices(&notices).unwrap();
        assert_eq!(store.notices().unwrap(), notices);
        let bytes = fs::read(store.notices_path()).unwrap();
        fs::write(store.notices_path(), &bytes[..bytes.len() - 1]).unwrap();
        assert_eq!(store.notices().unwrap(), notices[..2]);
    }

    #[test]
    fn a_ticket_is_kept_for_its_owner_and_that_of_another_peer_is_none() {
        let (_folder, store) = open();
        let (me, other) = (PeerId([1; 32]), PeerId([2; 32]));
        assert_eq!(store.ticket(&me).unwrap(), None);
        let ticket = Ticket::named(RunId([7; 32]), me, 0, &Keypair::from_seed(&[1; 32]));
        for _ in 0..2 {
            store.save_ticket(&ticket).unwrap();
            assert_eq!(store.ticket(&me).unwrap(), Some(ticket.clone()));
        }
        assert_eq!(store.ticket(&other).unwrap(), None);
        let path = store.folder.join(TICKET);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        for nonsense in [vec![0xff; 100], b"ii1".to_vec(), vec![b'1'; 10_000]] {
            fs::write(&path, nonsense).unwrap();
            assert_eq!(store.ticket(&me).unwrap(), None);
        }
    }
}
