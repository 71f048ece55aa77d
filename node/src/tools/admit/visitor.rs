//! Somebody who talks to the members of a run without being one: in the lobby, where a notice is handed over.
//!
//! It has a key of its own for as long as it lives. What members say is not proved; a notice proves itself.

use std::{
    collections::BTreeMap,
    io::{self, Write},
    time::{Duration, Instant},
};

use intellect_bootstrap::manifest::NOTICES_MAX;
use intellect_protocol::{
    access::handshake::{Reception, Visit},
    base::id::{PeerId, RunId},
    message::Notice,
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

    /// Every notice that an entry point or a member hands out, unverified, and why the entry points say
    /// nothing, if so. Waits for the first members, at most half of `patience`; to `out` it says for how
    /// long, where nobody is there.
    pub(super) async fn notices(
        &mut self,
        patience: Duration,
        out: &mut dyn Write,
    ) -> io::Result<(Vec<Notice>, Option<String>)> {
        let start = Instant::now();
        let patience = SEEK_PATIENCE.min(patience / 2);
        // The network ends only with this.
        let _ = self.net.handle.seek(self.run).await;
        self.say(&Visit::Ask).await;
        let (mut entries, mut why) = (Vec::new(), None);
        match timeout(patience, self.net.handle.entry_notices(self.run)).await {
            Ok(Ok(offers)) => entries.extend(offers.into_iter().map(|offer| offer.bytes)),
            // Most runs have none.
            Ok(Err(error)) => why = Some(error.to_string()),
            Err(_) => why = Some("no entry point has answered".to_owned()),
        }
        let mut countdown = Countdown::new(start, patience);
        while let Some(left) = countdown.left() {
            self.listen(MOMENT.min(left)).await;
            if self.heard_since(start) > 0 {
                if start.elapsed() >= SEEK_LEAST.min(patience / 2) {
                    break;
                }
            } else {
                countdown.tell("no member of the run has answered", out)?;
            }
        }
        // Members know which one the lineage has, where there are two of one number.
        let mut files = Vec::new();
        let members: Vec<PeerId> = self.answers.keys().take(MEMBERS_ASKED).copied().collect();
        for member in members {
            // Whoever hands out none, or too slowly, is one of several.
            let asked = timeout(NOTICES_PATIENCE, self.net.handle.notices(member, self.run));
            if let Ok(Ok(notices)) = asked.await {
                files.extend(notices.into_iter().take(NOTICES_MAX));
            }
        }
        files.extend(entries);
        Ok((files.iter().filter_map(|bytes| Notice::from_bytes(bytes)).collect(), why))
    }

    /// Says this to every member that is connected now or later, instead of what was said before.
    pub(super) async fn say(&mut self, visit: &Visit) {
        // The network ends only with this.
        let _ = self.net.handle.set_admit_request(visit).await;
    }

    /// Takes what comes within this time.
    pub(super) async fn listen(&mut self, length: Duration) {
        let hear = async {
            loop {
                tokio::select! {
                    Some(stream) = self.net.rings.recv() => drop(stream),
                    event = self.net.events.recv() => match event {
                        Some(Event::AdmitReply { peer, reply }) => {
                            self.answers.insert(peer, (Instant::now(), reply));
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

    /// Which members have answered since, and what.
    pub(super) fn answers_since(
        &self,
        since: Instant,
    ) -> impl Iterator<Item = (&PeerId, &Reception)> {
        let fresh = self.answers.iter().filter(move |(_, (at, _))| *at >= since);
        fresh.map(|(peer, (_, reception))| (peer, reception))
    }

    fn heard_since(&self, since: Instant) -> usize {
        self.answers_since(since).count()
    }
}

/// A wait for somebody, of which a person is told how long it may still take.
pub(super) struct Countdown {
    end: Instant,
    /// When it is told next.
    due: Instant,
}

impl Countdown {
    /// It began then, and lasts for `patience` at most.
    pub(super) fn new(start: Instant, patience: Duration) -> Self {
        Self { end: start + patience, due: start + TOLD_EVERY }
    }

    /// What is left of it; nothing at its end.
    pub(super) fn left(&self) -> Option<Duration> {
        let left = self.end.saturating_duration_since(Instant::now());
        (!left.is_zero()).then_some(left)
    }

    /// Says every few seconds that `what` is so, and for how long it is still waited.
    pub(super) fn tell(&mut self, what: &str, out: &mut dyn Write) -> io::Result<()> {
        let Some(left) = self.left().filter(|_| Instant::now() >= self.due) else { return Ok(()) };
        self.due += TOLD_EVERY;
        writeln!(out, "{what}: looking for {} s more", left.as_secs().max(1))?;
        out.flush()
    }
}

/// How often somebody who waits is told so.
const TOLD_EVERY: Duration = Duration::from_secs(5);
/// What the notices of one member may take.
const NOTICES_PATIENCE: Duration = Duration::from_secs(5);
/// How long members are looked for, and how long at least, so that not the first one alone is asked.
const SEEK_PATIENCE: Duration = Duration::from_secs(30);
const SEEK_LEAST: Duration = Duration::from_secs(3);
/// Members whose notices are fetched: one honest one among them is enough.
const MEMBERS_ASKED: usize = 8;
/// Between two looks at what has come.
const MOMENT: Duration = Duration::from_millis(250);
