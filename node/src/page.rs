//! The address of a page, which is opened before anything else of a command starts.
//!
//! So a taken port is an error at once, and not after a download of hours. What the page shows, and
//! to whom, is in `intellect_view::page`.

use std::io;
use std::net::{SocketAddr, TcpListener};

use intellect_view::page::{self, Access};
use intellect_view::stage::Seen;

use crate::cli::page::PageArgs;

/// Another program listens there, or this machine has no such address.
/// The command ends with it; nothing else was started.
#[derive(Debug, thiserror::Error)]
#[error(
    "cannot show a page at {at}: name another address, such as --page 127.0.0.1:0 for any free port"
)]
pub(crate) struct PageError {
    /// As it was typed, or the default.
    at: SocketAddr,
    /// What the system said about it.
    source: io::Error,
}

/// A page whose address is taken, and which is not served yet.
#[derive(Debug)]
pub(crate) struct Page {
    /// The socket, which listens already, so that no other program takes the address meanwhile.
    listener: TcpListener,
    /// The address with the port that the system chose, if it was 0.
    bound: SocketAddr,
    /// Which hosts a request may name; others are refused.
    access: Access,
}

impl Page {
    /// Takes the address, if a page is wanted.
    pub(crate) fn open(args: &PageArgs) -> Result<Option<Self>, PageError> {
        let Some(at) = args.page else { return Ok(None) };
        let open = || {
            let listener = TcpListener::bind(at)?;
            listener.set_nonblocking(true)?;
            let bound = listener.local_addr()?;
            Ok(Self { listener, bound, access: Access::new(bound, &args.page_host) })
        };
        open().map(Some).map_err(|source| PageError { at, source })
    }

    /// Where it is, and what others see of it.
    pub(crate) fn sentence(&self) -> String {
        let warning = if self.access.is_public() { PUBLIC } else { "" };
        format!("page: http://{}/{warning}", self.bound)
    }

    /// Serves it until this is dropped. Needs a tokio runtime.
    pub(crate) async fn serve(self, seen: Seen) {
        match tokio::net::TcpListener::from_std(self.listener) {
            Ok(listener) => page::serve(listener, seen, self.access).await,
            Err(error) => tracing::error!(%error, "the page is not served"),
        }
    }
}

/// The warning where other machines can reach the page.
const PUBLIC: &str = "\nwarning: everybody who reaches this address sees the run: its name, ids of peers, losses, events \
                      and versions, but no addresses of peers";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_public_page_warns_of_what_it_shows_and_a_taken_address_is_named() {
        let open = |at: &str| {
            Page::open(&PageArgs { page: Some(at.parse().unwrap()), page_host: Vec::new() })
        };
        for (at, public) in [("127.0.0.1:0", false), ("0.0.0.0:0", true)] {
            let said = open(at).unwrap().unwrap().sentence();
            assert!(
                said.starts_with("page: http://") && said.contains("warning") == public,
                "{said}"
            );
        }
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = taken.local_addr().unwrap().to_string();
        let error = open(&at).unwrap_err().to_string();
        assert!(error.contains(&at) && error.contains("name another address"), "{error}");
        assert!(Page::open(&PageArgs::default()).unwrap().is_none());
    }
}
