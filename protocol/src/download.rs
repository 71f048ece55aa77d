//! Bytes by digest, from many donors at once: which donor is asked for
//! which part, and which to believe.
//!
//! What is wanted is cut into parts, and each part is requested from a donor that is free, so a
//! fast donor does more and a slow one less. Pieces have a digest each and are checked on arrival.
//! A whole has one digest for all of it: if the parts of many donors together do not have it, the
//! whole is fetched from one donor after another, and the right bytes show which donor lied. A
//! whole of unknown length is requested from one donor, from its first byte on. A donor that breaks
//! off is asked again for the rest; another donor is asked for all of it.
//!
//! The number of open requests follows the speed of the answers: one more for each quick answer,
//! half as many after a slow one, as in the congestion control of TCP (Jacobson 1988), for all
//! donors together and, within narrower bounds, for each. When nothing is left to request, a late
//! part is requested from a second donor as well. That is not done while our link is busy with
//! transfers: on a slow link it would halve what the first donor brings.
//!
//! A donor that has nothing to give may be fetching the same thing, so it is asked again after a
//! pause, longer each time. No transfer waits for that: it ends when no request is open and every
//! donor is excluded, or has had nothing since the last bytes came. A donor that sends other bytes
//! than it was asked for is excluded and reported. A donor that does not answer, or refuses only
//! after a long time, holds up nothing and is excluded after two requests; one that only refuses is
//! excluded after six. So every transfer ends, whatever donors do.
//!
//! What this does not do: carry bytes or hash them (the caller), decide what
//! is wanted (`sync`, `epoch`).

mod donor;
mod task;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::base::fault::AnswerFault;
use crate::base::id::{Digest, PeerId};
use crate::base::rule::{Rule, Rules};
use crate::base::time::Time;
use donor::Donor;
use task::Task;

/// An answer within this time allows one more request: a link of 4 Mbit/s brings a part of 1 MiB in
/// it. It is also the first pause of a donor that has nothing to give.
const QUICK: Duration = Duration::from_secs(2);

/// After this time other donors are asked, even if the limit of open requests is reached. An answer
/// that takes longer halves the number of open requests.
const SLOW: Duration = Duration::from_secs(10);

/// After this time a request counts as unanswered: a link of 0.5 Mbit/s brings a part of 1 MiB in
/// half of it. No pause of a donor is longer.
const END: Duration = Duration::from_secs(30);

/// What a transfer must know about the run.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Bytes of every part of a whole but the last one, which is shorter. Above 0, and at most what
    /// one answer may carry, 1 MiB.
    pub part_bytes: u32,
    /// Which rules are in force: [`Rules::ALL`] in every program.
    pub rules: Rules,
}

/// A piece with a digest of its own, which can be checked by itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Piece {
    /// Offset of its first byte in the file that it is a piece of.
    pub offset: u64,
    /// Length of the piece in bytes.
    pub length: u32,
    /// BLAKE3 of the bytes of the piece.
    pub digest: Digest,
}

/// The length of a whole, as far as it is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Length {
    /// Exactly this many bytes, from a manifest or receipt.
    Exactly(u64),
    /// Unknown until a part comes that is shorter than the others. At most this many bytes; a donor
    /// that sends more is at fault.
    AtMost(u64),
}

/// What a transfer is to fetch.
#[derive(Clone, Debug)]
pub enum Want {
    /// These pieces, except for those that are here already, which are given by their index.
    Pieces(Vec<Piece>, BTreeSet<usize>),
    /// The bytes that have this digest together.
    Whole(Digest, Length),
}

/// Why a request brought no bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Failure {
    /// The donor has nothing to give, or cannot be reached.
    Refused,
    /// The donor does not answer in time.
    Silent,
    /// The donor sends more than it was asked for.
    TooLong,
    /// Our own side had no room for the request; the donor is not blamed. No donor is asked for a
    /// fifth of a second.
    Busy,
}

/// The bytes of an answer, by name. The caller holds them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bytes {
    /// Number of bytes that arrived, of those asked for.
    pub length: u64,
    /// BLAKE3 of the bytes that came.
    pub digest: Digest,
}

/// What happened to the transfer.
#[derive(Clone, Debug)]
pub enum Input {
    /// This is wanted now, and whatever was wanted before no longer is.
    Fetch(Want),
    /// These peers may have it. New ones are asked too; a donor that was excluded stays excluded.
    /// The list may grow while the transfer runs; no donor is ever forgotten before its end.
    Donors(Vec<PeerId>),
    /// The request with this number has ended.
    Answer(u64, Result<Bytes, Failure>),
    /// The digest of all bytes that were stored, as [`Output::Hash`] asked for it.
    Hashed(Digest),
    /// Time has passed: the caller gives this at [`State::deadline`].
    Tick {
        /// Whether our link is busy with what is being received, in this transfer and all others.
        line_full: bool,
    },
}

/// What the caller has to do, in order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Output {
    /// Request bytes from a donor, and report the end of the request under this number.
    Ask {
        /// The number of the request, never used twice.
        number: u64,
        /// The donor to which the request goes.
        peer: PeerId,
        /// Index of the part or piece wanted.
        part: usize,
        /// Offset of the first byte wanted.
        offset: u64,
        /// Bytes wanted; only the last part of a whole of unknown length may be shorter.
        length: u32,
    },
    /// Store the bytes of the answer that was just given: they are this
    /// part, which begins at `offset`.
    Keep {
        /// Index of the part or piece stored.
        part: usize,
        /// Offset at which the bytes belong.
        offset: u64,
    },
    /// Hash the first `length` bytes of what was stored, and give [`Input::Hashed`].
    Hash {
        /// Number of bytes to hash, from the first on.
        length: u64,
    },
    /// A donor sent something else than it was asked for.
    Fault(PeerId, AnswerFault),
    /// Everything that was wanted is here.
    Done,
    /// None of the donors has all of it. The bytes of pieces that were kept stay valid; a later
    /// transfer may resume with them.
    Nobody,
}

/// Donors and their open requests. Only [`Self::handle`] changes it; the caller carries out every
/// output, in order, before the next input.
#[derive(Clone, Debug)]
pub struct State {
    config: Config,
    donors: Vec<Donor>,
    /// Requests that may be open at all donors together.
    limit: usize,
    /// Smoothed duration of an answer; zero before the first.
    usual: Duration,
    /// Requests so far; the last one has this number.
    count: u64,
    open: BTreeMap<u64, Request>,
    /// The time until which our own side has no room.
    busy_until: Time,
    line_full: bool,
    /// The time of the last tick, for the next deadline.
    ticked_at: Time,
    task: Option<Task>,
}

/// A request that has not ended.
#[derive(Clone, Copy, Debug)]
struct Request {
    /// Index of the donor in `donors`.
    donor: usize,
    part: usize,
    at: Time,
}

impl State {
    /// A transfer without donors, which wants nothing.
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self {
            config,
            donors: Vec::new(),
            limit: 1,
            usual: Duration::ZERO,
            count: 0,
            open: BTreeMap::new(),
            busy_until: Time::ZERO,
            line_full: false,
            ticked_at: Time::ZERO,
            task: None,
        }
    }

    /// When the next tick is due, to find late requests; `None` while nothing is wanted.
    pub fn deadline(&self) -> Option<Time> {
        self.task.as_ref().map(|_| self.ticked_at + QUICK / 4)
    }

    /// The donors that have delivered something and are not excluded.
    pub fn active(&self) -> impl Iterator<Item = PeerId> {
        let active = self.donors.iter().filter(|donor| donor.delivered > 0 && !donor.excluded);
        active.map(|donor| donor.peer)
    }

    /// Takes one input, and requests whatever may be requested after it.
    pub fn handle(&mut self, now: Time, input: Input, out: &mut Vec<Output>) {
        match input {
            Input::Fetch(want) => self.on_fetch(now, want, out),
            Input::Donors(peers) => self.on_donors(&peers),
            Input::Answer(number, answer) => self.on_answer(now, number, answer, out),
            Input::Hashed(digest) => self.on_hashed(digest, out),
            Input::Tick { line_full } => self.on_tick(now, line_full, out),
        }
        self.advance(now, out);
    }

    /// Begins a transfer. An older one that has not ended is dropped without an output.
    fn on_fetch(&mut self, now: Time, want: Want, out: &mut Vec<Output>) {
        let is_open = matches!(want, Want::Whole(_, Length::AtMost(_)));
        let task = Task::new(want, self.config.part_bytes, self.config.rules.keeps(Rule::Resumed));
        self.open.clear();
        (self.ticked_at, self.task) = (now, Some(task));
        if is_open {
            self.fetch_from_next(out);
        }
        self.conclude(out);
    }

    /// Adds donors to those that are known; one that was excluded stays so.
    fn on_donors(&mut self, peers: &[PeerId]) {
        for peer in peers {
            if !self.donors.iter().any(|donor| donor.peer == *peer) {
                self.donors.push(Donor::new(*peer));
            }
        }
    }

    /// Ends the requests that no donor has answered for [`END`], as silent ones.
    fn on_tick(&mut self, now: Time, line_full: bool, out: &mut Vec<Output>) {
        (self.ticked_at, self.line_full) = (now, line_full);
        let over = self.open.iter().filter(|(_, request)| now.since(request.at) >= END);
        let over: Vec<u64> = over.map(|(number, _)| *number).collect();
        for number in over {
            self.on_answer(now, number, Err(Failure::Silent), out);
        }
    }

    /// Ends a request. An answer to one that is no longer open is ignored.
    fn on_answer(
        &mut self,
        now: Time,
        number: u64,
        answer: Result<Bytes, Failure>,
        out: &mut Vec<Output>,
    ) {
        let Some(Request { donor, part, at }) = self.open.remove(&number) else { return };
        let Some(task) = &mut self.task else { return };
        // A second donor has delivered this part meanwhile.
        if !task.lacks(part) {
            return;
        }
        let took = now.since(at);
        match answer {
            Ok(bytes) => {
                let checks = self.config.rules.keeps(Rule::Checked);
                match task.take(part, self.donors[donor].peer, bytes, checks) {
                    Ok(offset) => {
                        out.push(Output::Keep { part, offset });
                        self.note_answer(donor, took);
                        self.conclude(out);
                    }
                    Err(why) => self.blame(donor, why, out),
                }
            }
            Err(Failure::TooLong) => self.blame(donor, AnswerFault::Endless, out),
            Err(Failure::Busy) => self.busy_until = now + BUSY_PAUSE,
            Err(Failure::Refused) if took < SLOW => self.donors[donor].note_refusal(now),
            // A donor that holds a request for this long and then refuses it has been silent too.
            Err(Failure::Refused | Failure::Silent) => {
                self.donors[donor].note_silence();
                self.limit = 1;
            }
        }
        let asked_still = self.open.values().any(|request| request.part == part);
        if !asked_still && let Some(task) = &mut self.task {
            task.ask_again(part);
        }
    }

    /// Adapts the usual time and the number of open requests to a good answer.
    fn note_answer(&mut self, donor: usize, took: Duration) {
        self.usual = if self.usual.is_zero() { took } else { (self.usual * 7 + took) / 8 };
        self.donors[donor].note_answer(took);
        self.donors.iter_mut().for_each(|donor| donor.empty = false);
        if took <= QUICK {
            self.limit = (self.limit + 1).min(OPEN_MAX);
        } else if took >= SLOW {
            self.limit = (self.limit / 2).max(1);
        }
    }

    /// Once no part is missing: has a whole hashed, or ends a transfer of pieces,
    /// which were checked one by one.
    fn conclude(&mut self, out: &mut Vec<Output>) {
        let Some(task) = self.task.as_ref().filter(|task| task.is_complete()) else { return };
        self.open.clear();
        match task.whole() {
            Some((_, length)) => out.push(Output::Hash { length }),
            None => self.end(Output::Done, out),
        }
    }

    /// Compares the digest of a whole. On a mismatch nobody can tell which of several donors lied, so
    /// the whole is requested again from one donor alone, who then answers for all of it.
    fn on_hashed(&mut self, found: Digest, out: &mut Vec<Output>) {
        let checks = self.config.rules.keeps(Rule::Checked);
        let Some(task) = self.task.as_ref().filter(|task| task.is_complete()) else { return };
        let Some((wanted, _)) = task.whole() else { return };
        let good = found == wanted || !checks;
        for liar in if good { task.liars() } else { task.author().into_iter().collect() } {
            let known = self.donors.iter().position(|donor| donor.peer == liar && !donor.excluded);
            if let Some(donor) = known {
                self.blame(donor, AnswerFault::OtherBytes, out);
            }
        }
        if good { self.end(Output::Done, out) } else { self.fetch_from_next(out) }
    }

    /// Requests the whole from the next donor alone.
    fn fetch_from_next(&mut self, out: &mut Vec<Output>) {
        let Some(task) = &mut self.task else { return };
        let free =
            |(number, donor): &(usize, &mut Donor)| !donor.excluded && !task.tried.contains(number);
        match self.donors.iter_mut().enumerate().find(free) {
            Some((number, donor)) => {
                *donor = Donor::new(donor.peer);
                task.begin_with(number);
                self.open.clear();
            }
            None => self.end(Output::Nobody, out),
        }
    }

    /// Excludes a donor whose bytes cannot be honest, and reports it.
    fn blame(&mut self, donor: usize, why: AnswerFault, out: &mut Vec<Output>) {
        self.donors[donor].excluded = true;
        out.push(Output::Fault(self.donors[donor].peer, why));
    }

    /// Ends the transfer with its one last output.
    fn end(&mut self, how: Output, out: &mut Vec<Output>) {
        self.task = None;
        out.push(how);
    }

    /// Requests as much as may be requested, and ends the transfer if no donor is left to ask.
    fn advance(&mut self, now: Time, out: &mut Vec<Output>) {
        while self.task.as_ref().is_some_and(|task| !task.is_complete()) && self.busy_until <= now {
            let stuck = self.open.is_empty() && self.donors.iter().all(|d| d.empty || d.excluded);
            while !stuck && let Some((donor, part)) = self.choose(now) {
                self.ask(now, donor, part, out);
            }
            let (Some(task), true) = (&self.task, self.open.is_empty()) else { return };
            match task.one {
                None => self.end(Output::Nobody, out),
                // A donor that has begun to deliver is waited for.
                Some(one) if self.waits_for(one) => return,
                Some(_) => self.fetch_from_next(out),
            }
        }
    }

    /// Whether `one` has sent a part, and may still send the rest.
    fn waits_for(&self, one: usize) -> bool {
        let begun = self.task.as_ref().is_some_and(Task::has_begun);
        begun && !self.donors[one].excluded && self.config.rules.keeps(Rule::Resumed)
    }

    /// The donor to ask next, and for which part. `None` if nothing is left to request, no donor is
    /// free, or as many requests are open as may be.
    fn choose(&mut self, now: Time) -> Option<(usize, usize)> {
        let task = self.task.as_mut()?;
        let open_of = |donor| self.open.values().filter(|open| open.donor == donor).count();
        let may_ask = |number| task.one.is_none_or(|one| one == number);
        let free = self.donors.iter().enumerate();
        let free = free.filter(|(number, _)| may_ask(*number));
        let mut free: Vec<(usize, usize, &Donor)> = free
            .map(|(number, donor)| (open_of(number), number, donor))
            .filter(|(open, _, donor)| donor.is_free(now, *open))
            .collect();
        // Donors that have delivered come before unknown ones: near the end of a transfer most
        // unknown donors have joined late, and have nothing yet. Unknown ones come before those
        // that had nothing: else the first few would be asked again and again, and the last one
        // not at all as long as they refuse.
        free.sort_by_key(|(open, _, Donor { unanswered, delivered, refused, .. })| {
            (*open, *unanswered, *delivered == 0, *refused, *delivered)
        });
        if !task.waiting.is_empty() {
            let late = self.open.values().filter(|open| now.since(open.at) >= SLOW).count();
            if self.open.len() >= (self.limit + late).min(OPEN_MAX) {
                return None;
            }
            let (_, donor, _) = free.first()?;
            return Some((*donor, task.waiting.pop_front()?));
        }
        // Nothing is left to request: a late part is requested from a second donor as well. The
        // first byte may take as long as all that is queued on a link.
        let late = self.usual * 2 + QUICK;
        let is_late = |open: &&Request| !self.line_full && now.since(open.at) >= late;
        let once =
            |late: &&Request| self.open.values().filter(|open| open.part == late.part).count() == 1;
        self.open.values().filter(is_late).filter(once).find_map(|open| {
            let (_, other, _) = free.iter().find(|(_, donor, _)| *donor != open.donor)?;
            Some((*other, open.part))
        })
    }

    /// Requests one part from one donor.
    fn ask(&mut self, now: Time, donor: usize, part: usize, out: &mut Vec<Output>) {
        let Some(task) = &self.task else { return };
        let (offset, length) = task.range(part);
        self.count += 1;
        self.open.insert(self.count, Request { donor, part, at: now });
        let peer = self.donors[donor].peer;
        out.push(Output::Ask { number: self.count, peer, part, offset, length });
    }
}

/// Requests that are open at once, at all donors together. It bounds the memory for answers: 32
/// parts of 1 MiB.
const OPEN_MAX: usize = 32;

/// The pause after our own side had no room for a request. Guess: long enough for another transfer
/// to give its room back.
const BUSY_PAUSE: Duration = Duration::from_millis(200);

#[cfg(test)]
mod tests;
