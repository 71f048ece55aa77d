//! Bytes by digest, of many donors at once: whom to ask for which part, and whom to believe.
//!
//! What is wanted is cut into parts, and each part is asked of whoever is free, so that a fast
//! donor does more and a slow one less. Pieces have a digest each and are checked as they come. A
//! whole has one digest for all of it: where the parts of many donors do not have that digest
//! together, all of it is fetched from one donor after the other, and the right bytes show which
//! donor had lied. A whole whose length nobody knows is asked of one donor, from its first byte on.
//! A donor that breaks off is asked again for what follows; another donor is asked for all of it.
//!
//! How many requests are open follows from how fast answers come: one more for each quick answer, half
//! as many after a slow one, as in the congestion control of TCP (Jacobson 1988), for all donors
//! together and, within narrower bounds, for each. When nothing is left to ask for, what is late is
//! asked of a second donor; not while our line is busy with what is on its way, for on a slow line it
//! would halve what the first one brings.
//!
//! A donor that has nothing to give is asked again after a pause, longer each time, since it may be
//! fetching the same thing; but nobody waits for it: when no request is open and all donors have had
//! nothing since anything came, or are left out, the transfer ends. A donor that sends something else than it was asked for is
//! left out and named. A donor that says nothing, or refuses after a long time, holds up nobody,
//! and is left out after two requests; one that only refuses is left out after six. So whatever
//! donors do, a transfer ends.
//!
//! What this does not do: carry bytes or hash them (the caller's), decide what is wanted (`sync`, `epoch`).

mod donor;
mod task;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::base::fault::AnswerFault;
use crate::base::id::{Digest, PeerId};
use crate::base::rule::{Rule, Rules};
use crate::base::time::Time;
use donor::Donor;
use task::{Taken, Task};

/// An answer within this time says that more can be asked for: a line of 4 Mbit/s brings a part of
/// 1 MiB in it. A donor that has nothing to give is put aside for as long at first.
const QUICK: Duration = Duration::from_secs(2);

/// After this time others are asked although as many requests are open as should be.
const SLOW: Duration = Duration::from_secs(10);

/// After this time no answer will come: a line of 0.5 Mbit/s brings a part of 1 MiB in half of it.
/// No donor is put aside for longer.
const END: Duration = Duration::from_secs(30);

/// What a transfer must know.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Bytes of every part of a whole but the last one, which is shorter.
    pub part_bytes: u32,
    /// Which rules hold: [`Rules::ALL`] in every program.
    pub rules: Rules,
}

/// A piece that has a digest of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Piece {
    /// The place of its first byte in what it is a piece of.
    pub offset: u64,
    /// How many bytes it has.
    pub length: u32,
    /// BLAKE3 of them.
    pub digest: Digest,
}

/// How many bytes a whole has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Length {
    /// Exactly this many.
    Exactly(u64),
    /// Nobody knows it before a part comes that is shorter than the others. It is not more than
    /// this.
    AtMost(u64),
}

/// What is to be fetched.
#[derive(Clone, Debug)]
pub enum Want {
    /// These pieces, except those that are here already, which are named by their numbers.
    Pieces(Vec<Piece>, BTreeSet<usize>),
    /// The bytes that have this digest together.
    Whole(Digest, Length),
}

/// Why a request got no bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Failure {
    /// The donor has nothing to give, or cannot be reached.
    Refused,
    /// The donor says nothing.
    Silent,
    /// The donor sends without an end.
    TooLong,
    /// Our own side had no room for the request.
    Busy,
}

/// The bytes of an answer, named.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bytes {
    /// How many.
    pub length: u64,
    /// BLAKE3 of them.
    pub digest: Digest,
}

/// What happened.
#[derive(Clone, Debug)]
pub enum Input {
    /// This is wanted now, and nothing else any more.
    Fetch(Want),
    /// These peers may have it. New ones are asked too; a donor that was left out stays left out.
    Donors(Vec<PeerId>),
    /// The request with this number has ended.
    Answer(u64, Result<Bytes, Failure>),
    /// The digest of all that was kept, as [`Output::Hash`] asked.
    Hashed(Digest),
    /// Time has passed.
    Tick {
        /// Whether our line is busy with what is on its way, in this transfer and all others.
        line_full: bool,
    },
}

/// What the caller has to do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Output {
    /// Ask a donor for bytes, and say what becomes of it under this number.
    Ask {
        /// Names the request.
        number: u64,
        /// Who is asked.
        peer: PeerId,
        /// Which part or piece.
        part: usize,
        /// The first byte wanted.
        offset: u64,
        /// Bytes wanted; only the last part of a whole of unknown length may be shorter.
        length: u32,
    },
    /// The bytes of the answer that was just given are those of this part, which begins at `offset`.
    Keep {
        /// Which part or piece.
        part: usize,
        /// Where it belongs.
        offset: u64,
    },
    /// Hash all that was kept: the first `length` bytes.
    Hash {
        /// How many.
        length: u64,
    },
    /// A donor sent something else than it was asked for.
    Fault(PeerId, AnswerFault),
    /// All that was wanted is here.
    Done,
    /// None of the donors that were asked has all of it.
    Nobody,
}

/// Donors, and what they are asked for. [`Self::handle`] is the only mutator; the caller applies every
/// output, in order, before the next input.
#[derive(Clone, Debug)]
pub struct State {
    config: Config,
    donors: Vec<Donor>,
    /// Requests that may be open.
    limit: usize,
    /// How long an answer takes; zero before the first.
    usual: Duration,
    /// Requests so far.
    count: u64,
    open: BTreeMap<u64, Request>,
    /// The time until which our own side has no room.
    busy: Time,
    line_full: bool,
    /// When it was last looked who is late.
    looked: Time,
    task: Option<Task>,
}

/// A request that is open.
#[derive(Clone, Copy, Debug)]
struct Request {
    /// Its index among the donors.
    donor: usize,
    part: usize,
    at: Time,
}

impl State {
    /// Nobody is known, and nothing wanted.
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self {
            config,
            donors: Vec::new(),
            limit: 1,
            usual: Duration::ZERO,
            count: 0,
            open: BTreeMap::new(),
            busy: Time::ZERO,
            line_full: false,
            looked: Time::ZERO,
            task: None,
        }
    }

    /// When it is time to look who is late; `None` while nothing is wanted.
    #[must_use]
    pub fn deadline(&self) -> Option<Time> {
        self.task.as_ref().map(|_| self.looked + QUICK / 4)
    }

    /// The donors that have delivered something and are not left out.
    pub fn active(&self) -> impl Iterator<Item = PeerId> {
        let active = self.donors.iter().filter(|donor| donor.delivered > 0 && !donor.out);
        active.map(|donor| donor.peer)
    }

    /// Takes one input.
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

    fn on_fetch(&mut self, now: Time, want: Want, out: &mut Vec<Output>) {
        let is_open = matches!(want, Want::Whole(_, Length::AtMost(_)));
        let task = Task::new(want, self.config.part_bytes, self.config.rules.keeps(Rule::Resumed));
        self.open.clear();
        (self.looked, self.task) = (now, Some(task));
        if is_open {
            self.turn_to_one(out);
        }
        self.conclude(out);
    }

    fn on_donors(&mut self, peers: &[PeerId]) {
        for peer in peers {
            if !self.donors.iter().any(|donor| donor.peer == *peer) {
                self.donors.push(Donor::new(*peer));
            }
        }
    }

    fn on_tick(&mut self, now: Time, line_full: bool, out: &mut Vec<Output>) {
        (self.looked, self.line_full) = (now, line_full);
        let over = self.open.iter().filter(|(_, request)| now.since(request.at) >= END);
        let over: Vec<u64> = over.map(|(number, _)| *number).collect();
        for number in over {
            self.on_answer(now, number, Err(Failure::Silent), out);
        }
    }

    fn on_answer(
        &mut self,
        now: Time,
        number: u64,
        answer: Result<Bytes, Failure>,
        out: &mut Vec<Output>,
    ) {
        let Some(Request { donor, part, at }) = self.open.remove(&number) else { return };
        let Some(task) = &mut self.task else { return };
        // What a second donor has delivered is not waited for.
        if !task.lacks(part) {
            return;
        }
        let took = now.since(at);
        match answer {
            Ok(bytes) => {
                let checks = self.config.rules.keeps(Rule::Checked);
                match task.take(part, self.donors[donor].peer, bytes, checks) {
                    Taken::Kept(offset) => {
                        out.push(Output::Keep { part, offset });
                        self.note_answer(donor, took);
                        self.conclude(out);
                    }
                    Taken::Wrong(why) => self.blame(donor, why, out),
                }
            }
            Err(Failure::TooLong) => {
                self.blame(donor, AnswerFault::Endless, out);
            }
            Err(Failure::Busy) => self.busy = now + BUSY_PAUSE,
            Err(Failure::Refused) if took < SLOW => self.donors[donor].put_aside(now),
            // A donor that holds a request for so long and then refuses it has been silent too.
            Err(Failure::Refused | Failure::Silent) => {
                self.donors[donor].note_silence();
                self.limit = 1;
            }
        }
        let asked_still = self.open.values().any(|request| request.part == part);
        if let Some(task) = self.task.as_mut().filter(|_| !asked_still) {
            task.ask_again(part);
        }
    }

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

    /// Once no part is lacking: has a whole hashed, and ends a transfer of pieces, which were
    /// checked one by one.
    fn conclude(&mut self, out: &mut Vec<Output>) {
        let Some(task) = self.task.as_ref().filter(|task| task.is_complete()) else { return };
        self.open.clear();
        match task.whole() {
            Some((_, length)) => out.push(Output::Hash { length }),
            None => self.end(Output::Done, out),
        }
    }

    fn on_hashed(&mut self, found: Digest, out: &mut Vec<Output>) {
        let checks = self.config.rules.keeps(Rule::Checked);
        let Some(task) = self.task.as_ref().filter(|task| task.is_complete()) else { return };
        let Some((wanted, _)) = task.whole() else { return };
        let good = found == wanted || !checks;
        for liar in if good { task.liars() } else { task.author().into_iter().collect() } {
            let known = self.donors.iter().position(|donor| donor.peer == liar && !donor.out);
            known.into_iter().for_each(|donor| self.blame(donor, AnswerFault::OtherBytes, out));
        }
        if good { self.end(Output::Done, out) } else { self.turn_to_one(out) }
    }

    /// Asks the next donor alone for all of it.
    fn turn_to_one(&mut self, out: &mut Vec<Output>) {
        let Some(task) = &mut self.task else { return };
        let free =
            |(number, donor): &(usize, &mut Donor)| !donor.out && !task.tried.contains(number);
        match self.donors.iter_mut().enumerate().find(free) {
            Some((number, donor)) => {
                *donor = Donor::new(donor.peer);
                task.begin_with(number);
                self.open.clear();
            }
            None => self.end(Output::Nobody, out),
        }
    }

    fn blame(&mut self, donor: usize, why: AnswerFault, out: &mut Vec<Output>) {
        self.donors[donor].out = true;
        out.push(Output::Fault(self.donors[donor].peer, why));
    }

    fn end(&mut self, how: Output, out: &mut Vec<Output>) {
        self.task = None;
        out.push(how);
    }

    /// Asks for as much as may be asked for, and notices when nobody is left to ask.
    fn advance(&mut self, now: Time, out: &mut Vec<Output>) {
        while self.task.as_ref().is_some_and(|task| !task.is_complete()) && self.busy <= now {
            let in_vain = self.open.is_empty() && self.donors.iter().all(|d| d.empty || d.out);
            while !in_vain && let Some((donor, part)) = self.choose(now) {
                self.ask(now, donor, part, out);
            }
            let Some(task) = self.task.as_ref().filter(|_| self.open.is_empty()) else { return };
            match task.one {
                None => self.end(Output::Nobody, out),
                // A donor that has begun is waited for.
                Some(one) if self.waits_for(one) => return,
                Some(_) => self.turn_to_one(out),
            }
        }
    }

    /// Whether what `one` has sent is worth waiting for what follows.
    fn waits_for(&self, one: usize) -> bool {
        let begun = self.task.as_ref().is_some_and(Task::has_begun);
        begun && !self.donors[one].out && self.config.rules.keeps(Rule::Resumed)
    }

    /// Whom to ask next, and for which part.
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
        // Those that have delivered come before those of which nothing is known: near the end of a transfer most of
        // the latter have come late, and have nothing yet.
        free.sort_by_key(|(open, _, Donor { unanswered, delivered, .. })| {
            (*open, *unanswered, *delivered == 0, *delivered)
        });
        if !task.waiting.is_empty() {
            let late = self.open.values().filter(|open| now.since(open.at) >= SLOW).count();
            if self.open.len() >= (self.limit + late).min(OPEN_MAX) {
                return None;
            }
            let (_, donor, _) = free.first()?;
            return Some((*donor, task.waiting.pop_front()?));
        }
        // The last ones: what is late is asked of somebody else as well. The first byte may take as long
        // as all that is queued on a line.
        let late = self.usual * 2 + QUICK;
        let is_late = |open: &&Request| !self.line_full && now.since(open.at) >= late;
        let once =
            |late: &&Request| self.open.values().filter(|open| open.part == late.part).count() == 1;
        self.open.values().filter(is_late).filter(once).find_map(|open| {
            let (_, other, _) = free.iter().find(|(_, donor, _)| *donor != open.donor)?;
            Some((*other, open.part))
        })
    }

    fn ask(&mut self, now: Time, donor: usize, part: usize, out: &mut Vec<Output>) {
        let Some(task) = &self.task else { return };
        let (offset, length) = task.range(part);
        self.count += 1;
        self.open.insert(self.count, Request { donor, part, at: now });
        let peer = self.donors[donor].peer;
        out.push(Output::Ask { number: self.count, peer, part, offset, length });
    }
}

/// Requests that are open at once, at all donors.
const OPEN_MAX: usize = 32;

/// The pause after our own side had no room for a request.
const BUSY_PAUSE: Duration = Duration::from_millis(200);

#[cfg(test)]
mod tests;
