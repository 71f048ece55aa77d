//! Talks to the members of a run without being one, by the messages of the admission handshake.
//!
//! A visitor has a key of its own while it lives. The answers of members are not proved; a notice
//! proves itself.
//!
//! It asks by [`Visit`], and each member answers with a [`Reception`]; a member answers so also to
//! a peer that it does not admit. The visitor joins no gossip and is in no roster. For the
//! organiser that is enough: a notice is signed, so it does not matter who carries it.
//!
//! The network runs on tasks of its own. The owner of a visitor drives it by [`Visitor::listen`]:
//! only then answers are taken, and between two calls they wait in the bounded channel of the
//! network.

use std::{
    collections::BTreeMap,
    io::{self, Write},
    time::{Duration, Instant},
};

use intellect_bootstrap::manifest::NOTICES_MAX;
use intellect_protocol::{
    access::handshake::{Outcome, Reception, Visit},
    base::id::{PeerId, RunId},
    message::Notice,
};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::AccessError;
use crate::{
    net::{self, Event, Net, address::Address},
    os,
};

/// A connection to a run from outside.
pub(super) struct Visitor {
    /// The network of this visitor, with a key of its own.
    net: Net,
    /// The run that this visitor asks about.
    run: RunId,
    /// The last answer of each member, and when it came; at most as many as a node has connections.
    answers: BTreeMap<PeerId, (Instant, Reception)>,
    /// Ends the network when this is dropped.
    _stop: tokio_util::sync::DropGuard,
}

impl Visitor {
    /// Connects to the run at these entry points. It returns at once; connections come while
    /// [`Self::listen`] or [`Self::notices`] wait. Needs a tokio runtime.
    pub(super) fn start(run: RunId, bootstrap: Vec<Address>) -> Result<Self, AccessError> {
        let config = net::Config {
            key_seed: os::random().map_err(AccessError::Random)?,
            bootstrap,
            ..net::Config::default()
        };
        let stop = CancellationToken::new();
        let net = net::start(config, stop.clone())?;
        Ok(Self { net, run, answers: BTreeMap::new(), _stop: stop.drop_guard() })
    }

    /// Fetches all notices that an entry point or a member hands out, unverified, and why no entry
    /// point answered, if none did. It waits for the first members, at most half of `patience`.
    /// While there is none it prints to `out` how long it still waits.
    ///
    /// The organiser signs on top of what this returns, so a notice that is missed here costs one
    /// that was signed for nothing. That is why up to [`MEMBERS_ASKED`] members are asked besides
    /// the entry point. All of it is from strangers, so the caller builds a chain of it, which
    /// takes what verifies.
    ///
    /// # Errors
    /// `out` cannot be written; nothing else ends it.
    pub(super) async fn notices(
        &mut self,
        patience: Duration,
        out: &mut dyn Write,
    ) -> io::Result<(Vec<Notice>, Option<String>)> {
        let start = Instant::now();
        let patience = SEEK_PATIENCE.min(patience / 2);
        // The network lives as long as this visitor.
        let _ = self.net.handle.seek(self.run, usize::MAX).await;
        self.say(&Visit::Ask).await;
        let (mut entries, mut why) = (Vec::new(), None);
        match timeout(patience, self.net.handle.entry_notices(self.run)).await {
            Ok(Ok(offers)) => entries.extend(offers.into_iter().map(|offer| offer.bytes)),
            // Most runs have no notices, which is no error.
            Ok(Err(error)) => why = Some(error.to_string()),
            Err(_) => why = Some("no entry point has answered".to_owned()),
        }
        let mut countdown = Countdown::new(start, patience);
        while let Some(left) = countdown.left() {
            self.listen(MOMENT.min(left)).await;
            if self.answers_since(start).next().is_some() {
                if start.elapsed() >= SEEK_LEAST.min(patience / 2) {
                    break;
                }
            } else {
                countdown.report("no member of the run has answered", out)?;
            }
        }
        // If there are two notices of one number, members know which one the lineage has.
        let mut files = Vec::new();
        let members: Vec<PeerId> = self.answers.keys().take(MEMBERS_ASKED).copied().collect();
        for member in members {
            // A member that hands out none, or too slowly, is only one of several.
            let asked = timeout(NOTICES_PATIENCE, self.net.handle.notices(member, self.run));
            if let Ok(Ok(notices)) = asked.await {
                files.extend(notices.into_iter().take(NOTICES_MAX));
            }
        }
        files.extend(entries);
        Ok((files.iter().filter_map(|bytes| Notice::from_bytes(bytes)).collect(), why))
    }

    /// Sends this to every member that is connected now or later, instead of what was sent before.
    pub(super) async fn say(&mut self, visit: &Visit) {
        // The network lives as long as this visitor.
        let _ = self.net.handle.set_admit_request(visit).await;
    }

    /// Takes the answers that come within this time. It always takes all of it. Streams of a ring
    /// are refused, since a visitor is in none.
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
                        // Impossible while this lives; but a pause is better than a busy loop.
                        None => sleep(length).await,
                    },
                }
            }
        };
        // The loop has no other end than the timeout.
        let _ = timeout(length, hear).await;
    }

    /// The members that have answered since then, and what they answered.
    pub(super) fn answers_since(
        &self,
        since: Instant,
    ) -> impl Iterator<Item = (&PeerId, &Reception)> {
        let fresh = self.answers.iter().filter(move |(_, (at, _))| *at >= since);
        fresh.map(|(peer, (_, reception))| (peer, reception))
    }
}

/// The first reason among the answers to refuse what was handed over. `None` if nobody has refused,
/// also if nobody has answered.
pub(super) fn refusal<'a>(answers: impl IntoIterator<Item = &'a Reception>) -> Option<String> {
    answers.into_iter().find_map(|answer| match &answer.outcome {
        Outcome::Welcome => None,
        Outcome::Refused(why) => Some(why.clone()),
    })
}

/// A wait for members, which reports how long it may still take.
pub(super) struct Countdown {
    /// When the wait is over at the latest.
    end: Instant,
    /// When the next line about it is due.
    due: Instant,
}

impl Countdown {
    /// A wait that began at `start` and lasts for `patience` at most.
    pub(super) fn new(start: Instant, patience: Duration) -> Self {
        Self { end: start + patience, due: start + REPORT_EVERY }
    }

    /// The time that is left; `None` at the end.
    pub(super) fn left(&self) -> Option<Duration> {
        let left = self.end.saturating_duration_since(Instant::now());
        (!left.is_zero()).then_some(left)
    }

    /// Reports every few seconds that `what` is so, and how long the wait goes on. Nothing is
    /// printed between two of these times, and nothing at the end.
    pub(super) fn report(&mut self, what: &str, out: &mut dyn Write) -> io::Result<()> {
        let Some(left) = self.left() else { return Ok(()) };
        if Instant::now() < self.due {
            return Ok(());
        }
        self.due += REPORT_EVERY;
        writeln!(out, "{what}: looking for {} s more", left.as_secs().max(1))?;
        out.flush()
    }
}

/// How often a wait is reported.
const REPORT_EVERY: Duration = Duration::from_secs(5);
/// How long one member may take to send its notices.
const NOTICES_PATIENCE: Duration = Duration::from_secs(5);
/// How long it looks for members.
const SEEK_PATIENCE: Duration = Duration::from_secs(30);
/// How long it looks at least, so that it does not ask only the first member.
const SEEK_LEAST: Duration = Duration::from_secs(3);
/// How many members are asked for their notices: one honest member among them is enough.
const MEMBERS_ASKED: usize = 8;
/// Pause between two checks for answers.
const MOMENT: Duration = Duration::from_millis(250);
