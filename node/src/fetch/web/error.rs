//! Why a file did not come from a web server, and what a person can do about it.
//!
//! Each cause is a clause, which [`WebError`] completes to a sentence with the address and a
//! remedy. There are three remedies: wait, look at one's own connection, or ask the organiser, who
//! chose the address.

use std::net::IpAddr;
use std::time::Duration;

use intellect_protocol::base::id::Digest;

use crate::figures;
use crate::store::StoreError;

/// Why a file did not come from the web server that a manifest names.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WebError {
    /// The server, the connection to it, or the address in the manifest is at fault.
    #[error("cannot fetch the run's data from {}: {why}{}; {}", at.url, page(at.is_page), .why.remedy())]
    Server {
        /// The server that was asked, after all redirects.
        at: WebAddress,
        /// What went wrong, in a clause.
        why: Why,
    },
    /// The disk refused a piece, which is no fault of the server.
    #[error(transparent)]
    Disk(#[from] StoreError),
}

/// The address of a server's answer.
#[derive(Clone, Debug)]
pub(crate) struct WebAddress {
    /// The address itself, which a person can open.
    pub(super) url: String,
    /// Whether the answer is a web page, by its own type.
    pub(super) is_page: bool,
}

/// What went wrong with a server.
/// Its text completes "cannot fetch the run's data from …".
#[derive(Debug, thiserror::Error)]
pub(crate) enum Why {
    /// The status of the answer is an error.
    #[error("{}", status(*.0))]
    Status(u16),
    /// The answer announces another length than that of the run's file.
    #[error("the file there has {has} bytes, and the run's file has {wanted}")]
    Length {
        /// Length in bytes that the server announces.
        has: u64,
        /// Length in bytes that the manifest states.
        wanted: u64,
    },
    /// The server sends more bytes than the file has.
    #[error("it sends more than the {wanted} bytes of the run's file")]
    More {
        /// Length in bytes that the manifest states.
        wanted: u64,
    },
    /// The server ends the answer too early.
    #[error("it ends after {came} of {wanted} bytes")]
    Fewer {
        /// Bytes that have come, with those of earlier tries.
        came: u64,
        /// Length in bytes that the manifest states.
        wanted: u64,
    },
    /// The file has the right length and another digest.
    #[error("it gave another file than the run's, with BLAKE3 {}; nothing of it is kept", .found.hex())]
    Another {
        /// BLAKE3 digest of the file that came.
        found: Digest,
        /// Whether a part of it came in an earlier try, and may be what is wrong.
        resumed: bool,
    },
    /// A piece does not have the value that a member handed out for it.
    #[error("it gave another file than the run's from byte {offset} on, of which nothing is kept")]
    Piece {
        /// Index of the piece's first byte in the file.
        offset: u64,
    },
    /// A redirect leads to an address that is not https.
    #[error("it redirects to {0}, which is not https")]
    NotHttps(String),
    /// A redirect names no address.
    #[error("it redirects and does not say where")]
    Nowhere,
    /// There are more redirects than are followed.
    #[error("it redirects more than {0} times")]
    Redirects(usize),
    /// The name resolves to an address that only this network knows.
    #[error("its name means {0}, which is no address of the internet")]
    Private(IpAddr),
    /// The name does not exist, or there is no name server.
    #[error("its name was not found")]
    NoName,
    /// Mostly its certificate is not believed.
    #[error("TLS failed ({0})")]
    Tls(String),
    /// It does not connect, or nothing has come for this long.
    #[error("nothing has come for {} s", .0.as_secs())]
    Silent(Duration),
    /// Something has come before each read was given up, but a piece has not.
    #[error("1 MiB has not come in {} s", .0.as_secs())]
    Slow(Duration),
    /// The connection or the server failed.
    #[error("the connection failed ({0})")]
    Broken(String),
    /// The disk refused a piece; see [`WebError::Disk`].
    #[error(transparent)]
    Disk(#[from] StoreError),
}

impl WebError {
    /// Whether a later try may succeed. A name that is not found is wrong, unless the server has answered before: then
    /// this machine `was_online`, and is not.
    pub(super) fn is_passing(&self, was_online: bool) -> bool {
        let Self::Server { why, .. } = self else { return false };
        why.is_passing() || was_online && matches!(why, Why::NoName)
    }

    /// The sentence for a try that failed and is repeated.
    pub(super) fn again(&self, pause: Duration) -> String {
        match self {
            Self::Server { at, why } => {
                format!(
                    "no data from {}: {why}; trying again in {}",
                    at.url,
                    figures::length(pause.as_secs())
                )
            }
            Self::Disk(error) => error.to_string(),
        }
    }
}

impl Why {
    /// The same error, with the address where it happened.
    /// A refusal of the disk has none, as it is not the server's.
    pub(super) fn at(self, at: &WebAddress) -> WebError {
        match self {
            Self::Disk(error) => WebError::Disk(error),
            why => WebError::Server { at: at.clone(), why },
        }
    }

    /// Whether another try may succeed without anybody doing anything.
    fn is_passing(&self) -> bool {
        match self {
            Self::Status(code) => *code == 429 || *code >= 500,
            Self::Another { resumed, .. } => *resumed,
            Self::Fewer { .. } | Self::Silent(_) | Self::Slow(_) | Self::Broken(_) => true,
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

    /// What a person can do about it.
    fn remedy(&self) -> &'static str {
        match self {
            why if why.is_passing() => {
                "start again later (what has arrived is kept), or get the file elsewhere and name it with \
                 --data FILE"
            }
            Self::NoName => {
                "check that this machine is online, or get the file elsewhere and name it with --data FILE"
            }
            _ => {
                "tell the organiser of the run, who chose this address, or get the file elsewhere and name \
                 it with --data FILE"
            }
        }
    }
}

/// The status code of an answer in words.
fn status(code: u16) -> String {
    match code {
        404 | 410 => format!("there is no such file ({code})"),
        401 | 403 => format!("the server denies access to the file ({code})"),
        _ => format!("it answers with status {code}"),
    }
}

/// A hint that the address leads to a page about the file.
fn page(is_page: bool) -> &'static str {
    if is_page { " (it is a web page)" } else { "" }
}
