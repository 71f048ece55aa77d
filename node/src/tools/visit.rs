//! A visit to the members of a run by whoever is none of them, as its organiser may be: it finds them by
//! an entry point, and each is asked in turn until one says what is wished for.

use std::{
    io,
    time::{Duration, Instant},
};

use intellect_protocol::{
    id::{PeerId, RunId},
    lobby::{Reception, Visit},
};
use tokio_util::sync::CancellationToken;

use crate::net::{self, Event, NetError, address::Address};
use crate::os;

/// Why nobody received it as wished.
#[derive(Debug, thiserror::Error)]
pub(crate) enum VisitError {
    /// The system has no threads or no random numbers.
    #[error("cannot start")]
    System(#[from] io::Error),
    /// The network cannot be started.
    #[error(transparent)]
    Net(#[from] NetError),
    /// The network has ended by itself.
    #[error("the network has stopped: try again")]
    Stopped,
    /// Nobody answered.
    #[error(
        "no member of the run was found within {seconds} s: check that --bootstrap is one of its entry points, \
         and that somebody takes part"
    )]
    Nobody {
        /// How long.
        seconds: u64,
    },
    /// Somebody did, with something else.
    #[error(
        "within {seconds} s the run has not come so far; it is at epoch {epoch}: ask again later"
    )]
    NotYet {
        /// How long.
        seconds: u64,
        /// Its epoch, as the last one who answered said.
        epoch: u64,
    },
}

/// Pays `visit` to members of `run`, again and again, until `is_done` with what one of them says, or until
/// `patience` is over. Who lies about the run is not found out here.
///
/// # Errors
/// See [`VisitError`].
#[expect(dead_code, reason = "for the commands that hand decrees and vouches to a run")]
pub(crate) fn pay(
    bootstrap: &[Address],
    run: RunId,
    visit: &Visit,
    patience: Duration,
    is_done: impl FnMut(&PeerId, &Reception) -> bool,
) -> Result<(), VisitError> {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let config = net::Config {
        key_seed: os::random()?,
        listen: Vec::new(),
        external: Vec::new(),
        bootstrap: bootstrap.to_vec(),
        contacts: Vec::new(),
        rate: 0,
        line: None,
    };
    runtime.block_on(call(config, run, visit, patience, is_done))
}

async fn call(
    config: net::Config,
    run: RunId,
    visit: &Visit,
    patience: Duration,
    mut is_done: impl FnMut(&PeerId, &Reception) -> bool,
) -> Result<(), VisitError> {
    let stop = CancellationToken::new();
    let _stopped = stop.clone().drop_guard();
    let mut net = net::start(config, stop)?;
    net.handle.seek(run).await.map_err(|_| VisitError::Stopped)?;
    let (until, seconds) = (Instant::now() + patience, patience.as_secs());
    let (mut epoch, mut show_at) = (None, Instant::now());
    loop {
        let now = Instant::now();
        if now >= until {
            return Err(match epoch {
                None => VisitError::Nobody { seconds },
                Some(epoch) => VisitError::NotYet { seconds, epoch },
            });
        }
        if now >= show_at {
            show_at = now + AGAIN;
            net.handle.show(visit).await.map_err(|_| VisitError::Stopped)?;
        }
        match tokio::time::timeout_at(show_at.min(until).into(), net.events.recv()).await {
            Ok(Some(Event::Received { peer, reception })) => {
                if is_done(&peer, &reception) {
                    return Ok(());
                }
                epoch = Some(reception.epoch);
            }
            Ok(Some(_)) | Err(_) => {}
            Ok(None) => return Err(VisitError::Stopped),
        }
    }
}

/// Between two visits to the same peers: epochs take longer.
const AGAIN: Duration = Duration::from_secs(2);
