//! Somebody who talks to the members of a run without being one: in the lobby, where a decree is handed over.
//!
//! It has a key of its own for as long as it lives. What members say is not proved; a decree proves itself.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use intellect_bootstrap::manifest::PAPERS_MAX;
use intellect_protocol::{
    id::{PeerId, RunId},
    lobby::{Paper, Reception, Visit},
};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::AdmitError;
use crate::{
    net::{self, Event, Net, address::Address},
    os,
};

/// A visitor of a run.
pub(super) struct Visitor {
    net: Net,
    run: RunId,
    /// The last answer of each member, and when it came. Bounded by the connections that a node has.
    answers: BTreeMap<PeerId, (Instant, Reception)>,
    /// Ends the network.
    _stop: tokio_util::sync::DropGuard,
}

impl Visitor {
    /// Enters at these addresses.
    pub(super) fn start(run: RunId, bootstrap: Vec<Address>) -> Result<Self, AdmitError> {
        let config = net::Config {
            key_seed: os::random().map_err(AdmitError::Random)?,
            listen: Vec::new(),
            external: Vec::new(),
            bootstrap,
            contacts: Vec::new(),
            rate: 0,
            line: None,
        };
        let stop = CancellationToken::new();
        let net = net::start(config, stop.clone())?;
        Ok(Self { net, run, answers: BTreeMap::new(), _stop: stop.drop_guard() })
    }

    /// Every paper that an entry point or a member hands out, unverified, and why the entry points say
    /// nothing, if so. Waits for the first members for a while.
    pub(super) async fn papers(&mut self) -> (Vec<Paper>, Option<String>) {
        let (mut files, mut why) = (Vec::new(), None);
        match self.net.handle.entry_papers(self.run).await {
            Ok(offers) => files.extend(offers.into_iter().map(|offer| offer.bytes)),
            // Most runs have none.
            Err(error) => why = Some(error.to_string()),
        }
        // The network ends only with this.
        let _ = self.net.handle.seek(self.run).await;
        self.say(&Visit::Ask).await;
        let start = Instant::now();
        while start.elapsed() < SEEK_PATIENCE {
            self.listen(MOMENT).await;
            if self.heard_since(start) > 0 && start.elapsed() >= SEEK_LEAST {
                break;
            }
        }
        let members: Vec<PeerId> = self.answers.keys().take(MEMBERS_ASKED).copied().collect();
        for member in members {
            if let Ok(papers) = self.net.handle.papers(member, self.run).await {
                files.extend(papers.into_iter().take(PAPERS_MAX));
            }
        }
        (files.iter().filter_map(|bytes| Paper::from_bytes(bytes)).collect(), why)
    }

    /// Says this to every member that is connected now or later, instead of what was said before.
    pub(super) async fn say(&mut self, visit: &Visit) {
        // The network ends only with this.
        let _ = self.net.handle.show(visit).await;
    }

    /// Takes what comes within this time.
    pub(super) async fn listen(&mut self, length: Duration) {
        let hear = async {
            loop {
                tokio::select! {
                    Some(stream) = self.net.rings.recv() => drop(stream),
                    event = self.net.events.recv() => match event {
                        Some(Event::Received { peer, reception }) => {
                            self.answers.insert(peer, (Instant::now(), reception));
                        }
                        Some(_) => {}
                        // Cannot be while this lives; a busy loop would be worse than a pause.
                        None => sleep(length).await,
                    },
                }
            }
        };
        // That nothing more comes is what it waits for.
        let _ = timeout(length, hear).await;
    }

    /// What members have answered since.
    pub(super) fn answers_since(&self, since: Instant) -> impl Iterator<Item = &Reception> {
        self.answers.values().filter(move |(at, _)| *at >= since).map(|(_, reception)| reception)
    }

    fn heard_since(&self, since: Instant) -> usize {
        self.answers_since(since).count()
    }
}

/// How long members are looked for, and how long at least, so that not the first one alone is asked.
const SEEK_PATIENCE: Duration = Duration::from_secs(30);
const SEEK_LEAST: Duration = Duration::from_secs(3);
/// Members whose papers are fetched: one honest one among them is enough.
const MEMBERS_ASKED: usize = 8;
/// Between two looks at what has come.
const MOMENT: Duration = Duration::from_millis(250);
