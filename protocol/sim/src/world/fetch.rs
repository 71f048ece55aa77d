//! What processes fetch from each other. A transfer uses the download machine of a node; donors
//! answer with what they have, over a link that takes time.
//!
//! A question goes to the donor's own machine at once, which serves it or refuses, then or later.
//! Only the answer takes time: the way there and back, and for bytes the time that they occupy the
//! link of the host that fetches. So donors are never a bottleneck here.
//!
//! A transfer lives in its process and dies with it. The pieces of a state that have come are on
//! the disk (`Disk::receive`), and the next process goes on from there.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Happening, Host, World};
use crate::report::Count;
use crate::toy::{self, Anchor, CODEC, ELEMENTS, STATE_BYTES, TABLE_BYTES};
use intellect_protocol::base::blocks::Blocks;
use intellect_protocol::base::fault::{AnswerFault, Fault};
use intellect_protocol::base::id::{Digest, PeerId};
use intellect_protocol::base::time::Time;
use intellect_protocol::download::{self, Failure, Length, Want};
use intellect_protocol::holdings::{Buffer, Input, Inquiry, Location, Name, Slice};
use intellect_protocol::message::wire;
use intellect_protocol::message::{Answer, Ask, Finished, Head, Request};
use intellect_protocol::peer::{self, ASK_TIMEOUT};

/// How long a request to a donor that cannot be reached takes to fail, in milliseconds.
const SILENT_DONOR_MS: u64 = 1_000;
/// How long the answer of a donor that was reached is awaited, in milliseconds.
const ANSWER_MS: u64 = ASK_TIMEOUT.as_millis() as u64;
/// Bytes of a part of an update, a chunk or a table.
const PART_BYTES: u32 = 512;

/// What a process fetches, and for which purpose.
#[derive(Clone, Debug)]
pub(super) enum Wanted {
    /// The bytes of an update, whose length the codec determines.
    Update(Name),
    /// A kept chunk of an earlier ring, for the roster `ring`; `length` is in bytes.
    Chunk { ring: Digest, finished: Finished, length: usize },
    /// The checkpoint of a head; an older fetch of one is abandoned. `spent` are the blocks whose
    /// work of this process the state contains.
    State { serial: u64, head: Head, r: Digest, spent: Blocks },
}

/// One transfer of a process, until all bytes are here.
#[derive(Debug)]
pub(super) struct Fetch {
    /// What it fetches, which also says what becomes of the bytes.
    wanted: Wanted,
    /// The real machine: which donor is asked for which part, and which bytes are believed.
    transfer: download::State,
    /// What has come so far, with zeros where parts are missing.
    bytes: Vec<u8>,
    /// The table of a state, once it is here.
    table: Option<Vec<u8>>,
    /// When the next look at the transfer is planned, in virtual time.
    look_ms: Option<u64>,
}

/// The kind of request that a donor gets.
#[derive(Clone, Debug)]
pub(super) enum Asking {
    /// A question of `sync` about the donor's lineage, outside of any transfer.
    Lineage(Ask),
    /// A part, for a request of a transfer: `length` bytes from `offset` on.
    Part { fetch: u64, number: u64, part: usize, offset: u64, length: u32 },
}

/// A request that a donor has not answered.
#[derive(Debug)]
struct Question {
    /// The host that asks, and its process: a later one gets no answer.
    host: usize,
    incarnation: u64,
    /// The peer that was asked, by its key.
    donor: PeerId,
    asking: Asking,
}

/// Requests that donors have not answered, and the number of all requests.
#[derive(Debug, Default)]
pub(super) struct Questions {
    /// A question leaves with its answer, its refusal, or the end of the wait for it. That of a
    /// process that has ended may stay until the donor answers.
    open: BTreeMap<Inquiry, Question>,
    /// How many questions there were; the last one has this number as its ticket.
    asked: u64,
}

impl Questions {
    /// Opens a question under a ticket of its own.
    fn ask(&mut self, question: Question) -> Inquiry {
        self.asked += 1;
        self.open.insert(Inquiry(self.asked), question);
        Inquiry(self.asked)
    }
}

impl Fetch {
    /// What the transfer fetches first; for a state that is the table.
    fn want(&self) -> Want {
        let (digest, length) = match &self.wanted {
            Wanted::Update(name) => (name.digest, CODEC.encoded_bytes(ELEMENTS)),
            Wanted::Chunk { finished, length, .. } => (finished.seal.digest, *length),
            Wanted::State { head, .. } => (head.state, TABLE_BYTES),
        };
        Want::Whole(digest, Length::Exactly(length as u64))
    }

    /// The request that a donor gets for one part. Of a state it is a part of the table first, and
    /// then a whole piece, by its index.
    fn request(&self, part: usize, offset: u64) -> Request {
        match &self.wanted {
            Wanted::Update(name) => Request::Update { update: name.digest, offset },
            Wanted::Chunk { finished: Finished { roster, chunk, .. }, .. } => {
                Request::Chunk { roster: *roster, chunk: *chunk, offset }
            }
            Wanted::State { head, .. } => match self.table {
                None => Request::Table { state: head.state, offset },
                Some(_) => {
                    let index = u32::try_from(part).unwrap_or(u32::MAX);
                    Request::Piece { state: head.state, index }
                }
            },
        }
    }
}

impl World {
    /// Starts a transfer from these donors a moment later.
    pub(super) fn fetch_soon(&mut self, host: usize, wanted: Wanted, donors: Vec<PeerId>) {
        self.push_soon(host, Happening::Fetch(wanted, donors));
    }

    /// Starts a transfer from these donors. A fetch of a state that is not the newest one of its
    /// process is left out: `loads` has risen since it was planned.
    pub(super) fn fetch(&mut self, host: usize, wanted: Wanted, donors: Vec<PeerId>) {
        let config = download::Config { part_bytes: PART_BYTES, rules: self.setup.rules };
        let transfer = download::State::new(config);
        let Some(process) = &mut self.hosts[host].process else { return };
        let state = match wanted {
            Wanted::State { serial, .. } if serial != process.loads => return,
            Wanted::State { head, .. } => Some(head.state),
            Wanted::Update(_) | Wanted::Chunk { .. } => None,
        };
        if state.is_some() {
            // A transfer of another state is abandoned.
            process.fetching.retain(|_, fetch| !matches!(fetch.wanted, Wanted::State { .. }));
        }
        process.fetches += 1;
        let fetch = process.fetches;
        let begun = Fetch { wanted, transfer, bytes: Vec::new(), table: None, look_ms: None };
        let want = begun.want();
        process.fetching.insert(fetch, begun);
        self.drive(host, fetch, download::Input::Donors(donors), &[]);
        match state.and_then(|state| self.hosts[host].disk.received_table(&state)) {
            Some(table) => self.fetch_pieces(host, fetch, table),
            None => self.drive(host, fetch, download::Input::Fetch(want), &[]),
        }
    }

    /// Other peers serve what is being fetched. All transfers for which `is_it` holds get these
    /// donors beside those that they have.
    pub(super) fn welcome(
        &mut self,
        host: usize,
        is_it: impl Fn(&Wanted) -> bool,
        donors: &[PeerId],
    ) {
        let Some(process) = &self.hosts[host].process else { return };
        let those = process.fetching.iter().filter(|(_, fetch)| is_it(&fetch.wanted));
        let those: Vec<u64> = those.map(|(number, _)| *number).collect();
        for fetch in those {
            self.drive(host, fetch, download::Input::Donors(donors.to_vec()), &[]);
        }
    }

    /// The table is here. Pieces that are on the disk are not fetched again.
    fn fetch_pieces(&mut self, host: usize, fetch: u64, table: Vec<u8>) {
        let pieces = toy::pieces(&table);
        let (bytes, held) = self.hosts[host].disk.receive(&table, &pieces);
        let Some(fetching) = self.fetching(host, fetch) else { return };
        (fetching.bytes, fetching.table) = (bytes, Some(table));
        self.drive(host, fetch, download::Input::Fetch(Want::Pieces(pieces, held)), &[]);
    }

    /// Gives an input to a transfer and carries out its outputs; `came` are the bytes of an answer.
    /// A hash, and the table of a state, lead back here before the outputs that are left.
    fn drive(&mut self, host: usize, fetch: u64, input: download::Input, came: &[u8]) {
        let (now, mut out) = (Time(self.now_ms), Vec::new());
        let Some(fetching) = self.fetching(host, fetch) else { return };
        fetching.transfer.handle(now, input, &mut out);
        for output in out {
            match output {
                download::Output::Ask { number, peer, part, offset, length } => {
                    self.on_ask(host, peer, Asking::Part { fetch, number, part, offset, length });
                }
                download::Output::Keep { offset, .. } => self.put(host, fetch, offset, came),
                download::Output::Hash { .. } => self.hash(host, fetch),
                download::Output::Fault(donor, why) => self.blame_donor(host, donor, why),
                download::Output::Done => self.on_whole(host, fetch),
                download::Output::Nobody => self.missed(host, fetch),
            }
        }
        self.schedule_look(host, fetch);
    }

    /// A transfer of the process of a host that has not ended.
    fn fetching(&mut self, host: usize, fetch: u64) -> Option<&mut Fetch> {
        self.hosts[host].process.as_mut()?.fetching.get_mut(&fetch)
    }

    /// Plans the next look at a transfer, at its own deadline.
    fn schedule_look(&mut self, host: usize, fetch: u64) {
        let now_ms = self.now_ms;
        let Some(fetching) = self.fetching(host, fetch) else { return };
        let Some(Time(due_ms)) = fetching.transfer.deadline() else { return };
        if fetching.look_ms.is_none_or(|look| due_ms < look) {
            fetching.look_ms = Some(due_ms);
            self.push(due_ms.saturating_sub(now_ms).max(1), host, Happening::Look(fetch));
        }
    }

    /// The next tick of a transfer.
    pub(super) fn on_look(&mut self, host: usize, fetch: u64) {
        let line_full = self.hosts[host].line_ms > self.now_ms;
        if let Some(fetching) = self.fetching(host, fetch) {
            fetching.look_ms = None;
            self.drive(host, fetch, download::Input::Tick { line_full }, &[]);
        }
    }

    /// Sends a request to a donor, if the network carries it. A question to a peer about a head
    /// that it has announced and that nobody has committed is counted: a liar has minted that head.
    pub(super) fn on_ask(&mut self, host: usize, name: PeerId, asking: Asking) {
        let Some(process) = &self.hosts[host].process else { return };
        if let (Asking::Lineage(_), Some(head)) = (&asking, process.judged.announced_by(&name)) {
            let minted = !self.check.lineage.knows(&head.state) && !self.is_liar(host);
            self.report.count(Count::Minted, u64::from(minted));
        }
        let request = match &asking {
            Asking::Lineage(ask) => Request::Ask(ask.clone()),
            Asking::Part { fetch, part, offset, .. } => match process.fetching.get(fetch) {
                Some(fetch) => fetch.request(*part, *offset),
                None => return,
            },
        };
        let heard = self.script.unheard != Some(host);
        let (Some(donor), true) = (self.reach(host, &name), heard) else {
            return self.silent(host, name, &asking);
        };
        let incarnation = self.hosts[host].incarnation;
        let ticket = self.questions.ask(Question { host, incarnation, donor: name, asking });
        self.feed(donor, Input::Asked(ticket, request));
        if self.questions.open.contains_key(&ticket) {
            self.push(ANSWER_MS, host, Happening::Unanswered(ticket));
        }
    }

    /// A donor does not answer, which is noticed a while later. A transfer sees a refusal then, and
    /// `sync` an empty answer.
    fn silent(&mut self, host: usize, donor: PeerId, asking: &Asking) {
        match asking {
            Asking::Lineage(_) => {
                self.push_peer(ANSWER_MS, host, peer::Input::Answer(donor, None));
            }
            Asking::Part { fetch, number, .. } => {
                let (fetch, number, answer) = (*fetch, *number, Err(Failure::Refused));
                self.push(SILENT_DONOR_MS, host, Happening::Part { fetch, number, answer });
            }
        }
    }

    /// A donor refuses a request that it cannot serve. A refusal costs the host that asked as much
    /// time as a donor that cannot be reached.
    pub(super) fn refuse(&mut self, ticket: Inquiry) {
        let Some(Question { host, incarnation, donor, asking }) =
            self.questions.open.remove(&ticket)
        else {
            return;
        };
        if self.hosts[host].incarnation == incarnation {
            self.silent(host, donor, &asking);
        }
    }

    /// A donor has been silent for too long. A question that was answered is closed already.
    pub(super) fn on_unanswered(&mut self, host: usize, ticket: Inquiry) {
        let Some(Question { donor, asking, .. }) = self.questions.open.remove(&ticket) else {
            return;
        };
        match asking {
            Asking::Lineage(_) => self.feed_peer(host, peer::Input::Answer(donor, None)),
            Asking::Part { fetch, number, .. } => {
                self.on_part(host, fetch, number, Err(Failure::Silent));
            }
        }
    }

    /// A donor answers with the bytes at a location of its own. A question whose process has ended
    /// is closed without an answer.
    pub(super) fn serve(&mut self, donor: usize, ticket: Inquiry, place: &Location) {
        let Some(question) = self.questions.open.get(&ticket) else { return };
        let host = question.host;
        if self.hosts[host].incarnation != question.incarnation {
            self.questions.open.remove(&ticket);
            return;
        }
        match question.asking.clone() {
            Asking::Lineage(ask) => {
                let name = question.donor;
                self.questions.open.remove(&ticket);
                self.answer(donor, host, name, &ask);
            }
            Asking::Part { fetch, number, offset, length, .. } => {
                let Some(answer) = self.part_of(host, fetch, donor, place, offset, length) else {
                    return self.refuse(ticket);
                };
                self.questions.open.remove(&ticket);
                let at_ms = self.carry(donor, host, answer.len());
                let (delay_ms, answer) = (at_ms - self.now_ms, Ok(answer));
                self.push(delay_ms, host, Happening::Part { fetch, number, answer });
            }
        }
    }

    /// Has a donor answer a question from its own machine and log, and lie if it is a liar. The
    /// answer goes through its bytes, so each one also tests that they can be read.
    fn answer(&mut self, donor: usize, host: usize, name: PeerId, ask: &Ask) {
        let delay_ms = 2 * self.network.delay_ms(donor, host, &mut self.rng);
        let Host { disk, process: Some(process), .. } = &self.hosts[donor] else { return };
        let (mut answer, logged) = process.holdings.peer().answer(ask);
        if let (Answer::Lineage { links, .. }, false) = (&mut answer, logged.is_empty()) {
            let Some(found) = disk.links(&self.run, &logged) else { return };
            links.splice(..0, found);
        }
        if let Some(liar) = &self.hosts[donor].liar {
            liar.forge(&mut answer);
        }
        if let Some(forger) = &mut self.script.forger {
            forger(donor, host, &mut answer);
        }
        let answer = wire::open_answer(&wire::answer(&answer)).map(Arc::new);
        let length_ms = self.hosts[host].loading_ms / 64;
        self.push_peer(delay_ms + length_ms, host, peer::Input::Answer(name, answer));
    }

    /// When this many bytes have arrived: after the way there and back, and the
    /// time that they occupy the link.
    fn carry(&mut self, donor: usize, host: usize, bytes: usize) -> u64 {
        let delay_ms = 2 * self.network.delay_ms(donor, host, &mut self.rng);
        let place = &mut self.hosts[host];
        let length_ms = place.loading_ms * bytes as u64 / STATE_BYTES as u64;
        let at_ms = place.line_ms.max(self.now_ms + delay_ms) + length_ms;
        if length_ms > 0 {
            place.line_ms = at_ms;
        }
        at_ms
    }

    /// The bytes at a location of a donor, as far as they were requested. `None` where the donor
    /// has no such bytes, or withholds them, or ends before `offset + length`.
    fn part_of(
        &self,
        host: usize,
        fetch: u64,
        donor: usize,
        place: &Location,
        offset: u64,
        length: u32,
    ) -> Option<Vec<u8>> {
        let fetching = self.hosts[host].process.as_ref()?.fetching.get(&fetch)?;
        let process = self.hosts[donor].process.as_ref()?;
        let withheld = process.withholds && matches!(fetching.wanted, Wanted::Chunk { .. });
        let of = |anchor: &Anchor| match fetching.table {
            None => anchor.table(),
            Some(_) => anchor.numbers(),
        };
        let whole = match place {
            _ if withheld => return None,
            Location::Memory(part) => process.part(part)?,
            Location::Update(name) => self.hosts[donor].disk.update(&name.digest)?.to_vec(),
            Location::Newest => of(&process.toy.anchor),
            Location::Checkpoint(state) => of(process.states.get(state)?),
            Location::Now | Location::File | Location::Data => return None,
        };
        let begin = usize::try_from(offset).ok()?;
        let end = begin.checked_add(usize::try_from(length).ok()?)?;
        let mut part = whole.get(begin..end)?.to_vec();
        if process.lies {
            part.iter_mut().for_each(|byte| *byte = !*byte & 0x3f);
        }
        Some(part)
    }

    /// The end of a request of a transfer. The machine sees only the length and the digest of the
    /// bytes.
    pub(super) fn on_part(
        &mut self,
        host: usize,
        fetch: u64,
        number: u64,
        answer: Result<Vec<u8>, Failure>,
    ) {
        let bytes = answer.clone().unwrap_or_default();
        let named = download::Bytes { length: bytes.len() as u64, digest: hash(&bytes) };
        self.drive(host, fetch, download::Input::Answer(number, answer.map(|_| named)), &bytes);
    }

    /// Puts bytes where they belong in what is being fetched. Pieces of a state go to the disk too,
    /// from which the next process can go on.
    fn put(&mut self, host: usize, fetch: u64, offset: u64, came: &[u8]) {
        let Some(fetching) = self.fetching(host, fetch) else { return };
        let begin = usize::try_from(offset).unwrap_or(usize::MAX);
        let end = begin.saturating_add(came.len());
        if fetching.bytes.len() < end {
            fetching.bytes.resize(end, 0);
        }
        fetching.bytes[begin..end].copy_from_slice(came);
        if fetching.table.is_some() {
            self.report.count(Count::Pieces, 1);
            self.hosts[host].disk.put_piece(offset, came);
        }
    }

    /// Hashes what has arrived, as a real process does off its own thread.
    fn hash(&mut self, host: usize, fetch: u64) {
        let Some(fetching) = self.fetching(host, fetch) else { return };
        let digest = match fetching.wanted {
            Wanted::State { .. } => toy::table_digest(&fetching.bytes),
            Wanted::Update(_) | Wanted::Chunk { .. } => hash(&fetching.bytes),
        };
        self.drive(host, fetch, download::Input::Hashed(digest), &[]);
    }

    /// Records that a liar was found out. No other peer may be blamed.
    fn blame_donor(&mut self, host: usize, donor: PeerId, why: AnswerFault) {
        let process = self.host(&donor).and_then(|of| self.hosts[of].process.as_ref());
        match process.is_some_and(|process| process.lies) {
            true => self.blamed.push((donor, Fault::Answer(why))),
            false => self.blame(host, donor, Fault::Answer(why)),
        }
    }

    /// All bytes are here, or the table of a state. The bytes come into memory by an entry of the
    /// queue, after everything that is due at this time already.
    fn on_whole(&mut self, host: usize, fetch: u64) {
        let Some(process) = &mut self.hosts[host].process else { return };
        if let Some(fetching) = process.fetching.get_mut(&fetch)
            && let (Wanted::State { .. }, None) = (&fetching.wanted, &fetching.table)
        {
            let table = std::mem::take(&mut fetching.bytes);
            return self.fetch_pieces(host, fetch, table);
        }
        let Some(Fetch { wanted, bytes, .. }) = process.fetching.remove(&fetch) else { return };
        let (buffer, input) = match wanted {
            Wanted::Update(name) => (Buffer::Update(name.digest), Input::UpdateCame(name)),
            Wanted::Chunk { ring, finished, .. } => {
                let input = Input::ChunkCame { ring, finished };
                (Buffer::Chunk((finished.roster, finished.chunk)), input)
            }
            Wanted::State { serial, head, r, spent } => {
                let anchor = Arc::new(Anchor::of(&head, r, &bytes));
                return self.on_load(host, serial, head, anchor, spent);
            }
        };
        let content = Arc::new(bytes);
        self.push(0, host, Happening::Came { bytes: buffer, content, input });
    }

    /// No donor has the bytes, so the transfer has failed. `kept` says of a state whether a donor
    /// has delivered: then a part of it is on the disk, and worth going on from.
    fn missed(&mut self, host: usize, fetch: u64) {
        let Some(process) = &mut self.hosts[host].process else { return };
        let Some(Fetch { wanted, transfer, .. }) = process.fetching.remove(&fetch) else { return };
        let kept = transfer.active().next().is_some();
        let input = match wanted {
            Wanted::Update(name) => Input::UpdateMissed(name),
            Wanted::Chunk { ring, finished, .. } => Input::ChunkMissed { ring, finished },
            Wanted::State { head, .. } => Input::Peer(peer::Input::LoadFailed { head, kept }),
        };
        self.feed(host, input);
    }

    /// The host of the peer `name`, if a request reaches it and its answer would come back.
    fn reach(&mut self, host: usize, name: &PeerId) -> Option<usize> {
        let from = self.host(name)?;
        let process = self.hosts[from].process.as_ref()?;
        let up = process.paused.is_none() && self.network.linked(host, from);
        (up && !self.network.loses(host, from, &mut self.rng)).then_some(from)
    }

    /// Lets a host serve no finished chunk any more, whatever it claims to hold.
    pub fn withhold_chunks(&mut self, host: usize) {
        if let Some(process) = &mut self.hosts[host].process {
            process.withholds = true;
        }
    }
}

/// BLAKE3 of the bytes, by which updates and chunks are named.
fn hash(bytes: &[u8]) -> Digest {
    Digest(*blake3::hash(bytes).as_bytes())
}

impl super::Running {
    /// The bytes of a slice of memory.
    pub(super) fn part(&self, Slice { buffer, range }: &Slice) -> Option<Vec<u8>> {
        let all = self.bytes.get(buffer)?;
        Some(all.get(range.clone().unwrap_or(0..all.len()))?.to_vec())
    }
}
