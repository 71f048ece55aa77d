//! Why a file did not come from a web server, and what to do about it.

use std::net::IpAddr;
use std::time::Duration;

use intellect_protocol::base::id::Digest;

use crate::store::StoreError;

/// Why a file has not come from the web server that a manifest names.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WebError {
    /// Whoever keeps the server, the line to it, or the organiser is at fault.
    #[error("cannot fetch the run's data from {place}: {why}{}; {}", page(*.is_page), .why.remedy())]
    Server {
        /// The address, after all redirects.
        place: String,
        /// Whether it calls what it sends a web page.
        is_page: bool,
        /// What went wrong.
        why: Why,
    },
    /// It cannot be kept.
    #[error(transparent)]
    Disk(#[from] StoreError),
}

/// What went wrong with a server.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Why {
    /// Nothing, or not for us.
    #[error("{}", status(*.0))]
    Status(u16),
    /// It says so before it sends anything.
    #[error("what is there has {has} bytes, and the run's file has {wanted}")]
    Length {
        /// What it says.
        has: u64,
        /// What the manifest says.
        wanted: u64,
    },
    /// It does not stop.
    #[error("it sends more than the {wanted} bytes of the run's file")]
    More {
        /// What the manifest says.
        wanted: u64,
    },
    /// It stops too soon.
    #[error("it ends after {came} of {wanted} bytes")]
    Fewer {
        /// So many, with those of before.
        came: u64,
        /// What the manifest says.
        wanted: u64,
    },
    /// The length is right.
    #[error("it gave another file than the run's, with BLAKE3 {}; nothing of it is kept", .found.hex())]
    Another {
        /// What came.
        found: Digest,
        /// Whether part of it came earlier, and may be what is wrong.
        resumed: bool,
    },
    /// The value of this piece is known.
    #[error("it gave another file than the run's from byte {offset} on, of which nothing is kept")]
    Piece {
        /// Where it begins.
        offset: u64,
    },
    /// A redirect.
    #[error("it leads to {0}, which is not https")]
    NotHttps(String),
    /// A redirect to nowhere.
    #[error("it leads elsewhere and does not say where")]
    Nowhere,
    /// A chain of redirects.
    #[error("it leads from one address to the next, more than {0} times")]
    Redirects(usize),
    /// It would be a machine of this house.
    #[error("its name leads to {0}, which is no address of the internet")]
    Private(IpAddr),
    /// No such host, or no name server.
    #[error("its name was not found")]
    NoName,
    /// A certificate, mostly.
    #[error("TLS failed ({0})")]
    Tls(String),
    /// It connects or sends no longer.
    #[error("nothing has come for {} s", .0.as_secs())]
    Silent(Duration),
    /// The line, or the server.
    #[error("the connection failed ({0})")]
    Broken(String),
    /// It cannot be kept.
    #[error(transparent)]
    Disk(#[from] StoreError),
}

impl WebError {
    /// Whether it may go better soon.
    pub(super) fn is_passing(&self) -> bool {
        matches!(self, Self::Server { why, .. } if why.is_passing())
    }
}

impl Why {
    /// The same with the address at which it was so, and whether that calls what it sends a web page.
    pub(super) fn at(self, (place, is_page): &(String, bool)) -> WebError {
        match self {
            Self::Disk(error) => WebError::Disk(error),
            why => WebError::Server { place: place.clone(), is_page: *is_page, why },
        }
    }

    fn is_passing(&self) -> bool {
        match self {
            Self::Status(code) => *code == 429 || *code >= 500,
            Self::Another { resumed, .. } => *resumed,
            Self::Fewer { .. } | Self::Silent(_) | Self::Broken(_) => true,
            Self::Length { .. }
            | Self::More { .. }
            | Self::Piece { .. }
            | Self::NotHttps(_)
            | Self::Nowhere
            | Self::Redirects(_)
            | Self::Private(_)
            | Self::NoName
            | Self::Tls(_)
            | Self::Disk(_) => false,
        }
    }

    fn remedy(&self) -> &'static str {
        match self {
            why if why.is_passing() => {
                "start again later, what has come is kept; or get the file elsewhere and name it with \
                 --data FILE"
            }
            Self::NoName => {
                "look whether this machine is online; or get the file elsewhere and name it with --data FILE"
            }
            _ => {
                "tell the organiser of the run, who has named this address; get the file elsewhere and name \
                 it with --data FILE"
            }
        }
    }
}

fn status(code: u16) -> String {
    match code {
        404 | 410 => format!("there is no such file ({code})"),
        401 | 403 => format!("the file is not for everybody ({code})"),
        _ => format!("it answers with status {code}"),
    }
}

fn page(is_page: bool) -> &'static str {
    if is_page { " (it is a web page)" } else { "" }
}
