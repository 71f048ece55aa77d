//! Many donors at once: parts of one thing, each asked of whoever is free, so that a fast donor does
//! more and a slow one less.
//!
//! How many requests are open follows from how fast answers come: one more for each quick answer, half
//! as many after a slow one, as in the congestion control of TCP (Jacobson 1988), for all donors
//! together and, within narrower bounds, for each. When nothing is left to ask for, what is late is
//! asked of a second donor; not while our line is busy with what is on its way, for on a slow line it
//! would halve what the first one brings.
//!
//! A donor that has nothing to give is asked again after a pause, longer each time, since it may be
//! fetching the same thing; but nobody waits for it: when no request is open and all donors are put
//! aside or left out, the transfer ends. A donor that sends something else than asked is left out and
//! named; one that says nothing, or refuses after a long time, holds up nobody, and is left out after two
//! requests; one that only refuses, after six. So whatever donors do, a transfer ends.

use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::time::Duration;

use futures::future::{BoxFuture, FutureExt as _};
use futures::stream::{FuturesUnordered, StreamExt as _};
use intellect_bootstrap::frame::FrameError;
use intellect_protocol::id::PeerId;
use tokio::time::{Instant, sleep, timeout};

use crate::net::FetchError;

/// How long an answer may take.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    /// An answer within this time says that more can be asked for. Who has nothing is put aside for
    /// as long at first.
    pub(super) quick: Duration,
    /// After this time others are asked although as many requests are open as should be.
    pub(super) slow: Duration,
    /// After this time no answer will come. Nobody is put aside for longer.
    pub(super) end: Duration,
}

/// Requests that are open at once: at all donors, and at one.
const OPEN_MAX: usize = 32;
const OPEN_OF_ONE_MAX: usize = 4;

/// Requests in a row that a donor may leave unanswered.
const UNANSWERED_MAX: u32 = 2;

/// Requests in a row that a donor may refuse: with the pauses between them, for a minute.
const REFUSED_MAX: u32 = 6;

/// The pause after our own network had no room for a request.
const BUSY_PAUSE: Duration = Duration::from_millis(200);

/// What carries requests to donors, and answers back.
pub(crate) trait Line {
    /// Asks a donor.
    fn fetch(
        &self,
        peer: PeerId,
        request: Vec<u8>,
    ) -> impl Future<Output = Result<Vec<u8>, FetchError>> + Send;

    /// Whether what is on its way, in this transfer and all others, comes as fast as our line can.
    fn is_full(&self) -> bool;
}

/// Donors, and what they are asked for.
pub(super) struct Crowd<'a, L> {
    line: &'a L,
    donors: Vec<Donor>,
    patience: Patience,
    /// Requests that may be open.
    limit: usize,
    /// How long an answer takes; zero before the first.
    usual: Duration,
    parts: VecDeque<Part>,
    /// Parts that are asked for.
    asked: BTreeMap<usize, Asked>,
    open: FuturesUnordered<BoxFuture<'a, Answer>>,
}

/// What is asked for by one request.
#[derive(Clone, Debug)]
pub(super) struct Part {
    /// Tells it from the others.
    pub(super) index: usize,
    /// The request, encoded.
    pub(super) request: Vec<u8>,
    /// Bytes that an answer has.
    pub(super) length: usize,
}

/// What has come.
#[derive(Debug)]
pub(super) enum Event {
    /// A part of the right length: to be accepted, or refused.
    Part { peer: PeerId, index: usize, bytes: Vec<u8> },
    /// A donor sends something else than it is asked for.
    Fault { peer: PeerId, why: &'static str },
    /// Nothing, for a while: the time to welcome those who were heard of meanwhile.
    Nothing,
}

struct Asked {
    part: Part,
    /// Of whom, and since when.
    of: Vec<(usize, Instant)>,
}

pub(super) struct Donor {
    peer: PeerId,
    open: usize,
    limit: usize,
    delivered: u64,
    unanswered: u32,
    refused: u32,
    /// How long it is put aside when it has nothing to give.
    pause: Duration,
    /// Put aside until then.
    aside: Option<Instant>,
    /// Not asked any more.
    out: bool,
}

/// The end of one request.
struct Answer {
    donor: usize,
    index: usize,
    took: Duration,
    result: Result<Vec<u8>, FetchError>,
}

impl<'a, L: Line> Crowd<'a, L> {
    pub(super) fn new(line: &'a L, donors: &[PeerId], patience: Patience) -> Self {
        let mut crowd = Self {
            line,
            donors: Vec::new(),
            patience,
            limit: 1,
            usual: Duration::ZERO,
            parts: VecDeque::new(),
            asked: BTreeMap::new(),
            open: FuturesUnordered::new(),
        };
        crowd.welcome(donors);
        crowd
    }

    /// Those of them that are new are asked too; who was left out stays out.
    pub(super) fn welcome(&mut self, donors: &[PeerId]) {
        for peer in donors {
            if !self.donors.iter().any(|donor| donor.peer == *peer) {
                self.donors.push(Donor::new(*peer, self.patience.quick));
            }
        }
    }

    /// Asks for these parts, and for nothing else any more.
    pub(super) fn begin(&mut self, parts: impl IntoIterator<Item = Part>) {
        self.parts = parts.into_iter().collect();
        self.asked.clear();
        self.open.clear();
        self.donors.iter_mut().for_each(|donor| donor.open = 0);
    }

    /// Who has delivered something, and is not left out.
    pub(super) fn active(&self) -> Vec<PeerId> {
        let active = self.donors.iter().filter(|donor| donor.delivered > 0 && !donor.out);
        active.map(|donor| donor.peer).collect()
    }

    /// Who is not left out.
    pub(super) fn left(&self) -> Vec<PeerId> {
        self.donors.iter().filter(|donor| !donor.out).map(|donor| donor.peer).collect()
    }

    /// Whether every part was accepted.
    pub(super) fn is_done(&self) -> bool {
        self.parts.is_empty() && self.asked.is_empty()
    }

    /// The next thing that comes; `None` when all is done, or nobody is left to ask.
    pub(super) async fn next(&mut self) -> Option<Event> {
        if self.is_done() {
            return None;
        }
        self.ask();
        let event = tokio::select! {
            answer = self.open.next() => self.on_answer(answer?).await,
            // Something may be late by now.
            () = sleep(self.patience.quick / 4) => None,
        };
        Some(event.unwrap_or(Event::Nothing))
    }

    /// The part that came is the right one.
    pub(super) fn accept(&mut self, index: usize) {
        self.asked.remove(&index);
    }

    /// The part that came from `peer` is a wrong one: it is left out, and somebody else is asked.
    pub(super) fn refuse(&mut self, peer: PeerId, index: usize) {
        self.leave_out(peer);
        self.ask_again(index);
    }

    /// Leaves a donor out.
    pub(super) fn leave_out(&mut self, peer: PeerId) {
        for donor in self.donors.iter_mut().filter(|donor| donor.peer == peer) {
            donor.out = true;
        }
    }

    /// Asks for as much as may be asked for.
    fn ask(&mut self) {
        while let Some((donor, index)) = self.choose() {
            let Some(asked) = self.asked.get_mut(&index) else { return };
            let began = Instant::now();
            asked.of.push((donor, began));
            let Donor { peer, open, .. } = &mut self.donors[donor];
            *open += 1;
            let answer =
                timeout(self.patience.end, self.line.fetch(*peer, asked.part.request.clone()));
            let answer = answer.map(move |result| {
                let result = result.unwrap_or(Err(FetchError::Timeout));
                Answer { donor, index, took: began.elapsed(), result }
            });
            self.open.push(answer.boxed());
        }
    }

    /// Whom to ask next, and for which part.
    fn choose(&mut self) -> Option<(usize, usize)> {
        let slow = self.asked.values().flat_map(|asked| &asked.of);
        let slow = slow.filter(|(_, at)| at.elapsed() >= self.patience.slow).count();
        let limit = (self.limit + slow).min(OPEN_MAX);
        let free = self.donors.iter().enumerate();
        let now = Instant::now();
        let mut free: Vec<_> = free.filter(|(_, donor)| donor.is_free(now)).collect();
        free.sort_by_key(|(_, donor)| (donor.open, donor.unanswered, donor.delivered));
        if !self.parts.is_empty() {
            if self.open.len() >= limit {
                return None;
            }
            let (donor, _) = free.first()?;
            let part = self.parts.pop_front()?;
            let index = part.index;
            self.asked.insert(index, Asked { part, of: Vec::new() });
            return Some((*donor, index));
        }
        // The last ones: what is late is asked of somebody else as well. The first byte may take as long
        // as all that is queued on a line.
        if self.line.is_full() {
            return None;
        }
        let late = self.usual * 2 + self.patience.quick;
        let mut late = self.asked.iter().filter_map(|(index, asked)| match asked.of.as_slice() {
            [(donor, at)] if at.elapsed() >= late => Some((*donor, *index)),
            _ => None,
        });
        late.find_map(|(asker, index)| {
            let (other, _) = free.iter().find(|(donor, _)| *donor != asker)?;
            Some((*other, index))
        })
    }

    async fn on_answer(&mut self, answer: Answer) -> Option<Event> {
        let Answer { donor, index, took, result } = answer;
        self.donors[donor].open -= 1;
        let peer = self.donors[donor].peer;
        // What a second donor has delivered is not waited for.
        let asked = self.asked.get_mut(&index)?;
        asked.of.retain(|(other, _)| *other != donor);
        let length = asked.part.length;
        let error = match result {
            Ok(bytes) if bytes.len() == length => {
                self.note_answer(donor, took);
                return Some(Event::Part { peer, index, bytes });
            }
            Ok(_) => None,
            Err(error) => Some(error),
        };
        self.ask_again(index);
        if matches!(error, Some(FetchError::Busy)) {
            sleep(BUSY_PAUSE).await;
        }
        let why = self.note_failure(donor, took, error)?;
        Some(Event::Fault { peer, why })
    }

    fn ask_again(&mut self, index: usize) {
        let Some(asked) = self.asked.get(&index) else { return };
        if asked.of.is_empty() {
            self.parts.extend(self.asked.remove(&index).map(|asked| asked.part));
        }
    }

    fn note_answer(&mut self, donor: usize, took: Duration) {
        self.usual = if self.usual.is_zero() { took } else { (self.usual * 7 + took) / 8 };
        let Donor { limit, delivered, unanswered, refused, pause, .. } = &mut self.donors[donor];
        (*unanswered, *refused) = (0, 0);
        (*delivered, *pause) = (*delivered + 1, self.patience.quick);
        if took <= self.patience.quick {
            *limit = (*limit + 1).min(OPEN_OF_ONE_MAX);
            self.limit = (self.limit + 1).min(OPEN_MAX);
        } else if took >= self.patience.slow {
            *limit = 1;
            self.limit = (self.limit / 2).max(1);
        }
    }

    /// What the donor is to be blamed for, if for anything: to have nothing is no fault. No error is
    /// an answer of a wrong length.
    fn note_failure(
        &mut self,
        donor: usize,
        took: Duration,
        error: Option<FetchError>,
    ) -> Option<&'static str> {
        let donor = &mut self.donors[donor];
        let is_slow = took >= self.patience.slow;
        match error {
            None => {
                donor.out = true;
                return Some("sent a part of a wrong length");
            }
            Some(FetchError::Frame(FrameError::TooLong { .. })) => {
                donor.out = true;
                return Some("sent an endless part of what it was asked for");
            }
            Some(FetchError::Busy) => {}
            Some(
                FetchError::NotConnected
                | FetchError::Open(_)
                | FetchError::Refused
                | FetchError::Frame(_)
                | FetchError::Stopped,
            ) if !is_slow => donor.put_aside(Instant::now(), self.patience.end),
            // Who holds a request for so long and then refuses it has been silent too.
            Some(
                FetchError::Timeout
                | FetchError::NotConnected
                | FetchError::Open(_)
                | FetchError::Refused
                | FetchError::Frame(_)
                | FetchError::Stopped,
            ) => {
                donor.unanswered += 1;
                (donor.limit, self.limit) = (1, 1);
                donor.out = donor.unanswered >= UNANSWERED_MAX;
            }
        }
        None
    }
}

impl Donor {
    pub(super) fn new(peer: PeerId, pause: Duration) -> Self {
        let (open, limit, delivered, unanswered, refused) = (0, 1, 0, 0, 0);
        Self { peer, open, limit, delivered, unanswered, refused, pause, aside: None, out: false }
    }

    /// Whether it may be asked for something more.
    pub(super) fn is_free(&self, now: Instant) -> bool {
        !self.out && self.open < self.limit && self.aside.is_none_or(|until| until <= now)
    }

    /// It has nothing to give now. What it was asked for at the same time is not counted twice.
    pub(super) fn put_aside(&mut self, now: Instant, longest: Duration) {
        if self.aside.is_none_or(|until| until <= now) {
            self.aside = Some(now + self.pause);
            self.pause = (2 * self.pause).min(longest);
            self.refused += 1;
            self.out |= self.refused >= REFUSED_MAX;
        }
        self.limit = 1;
    }
}
