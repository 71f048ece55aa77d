//! One ring all-reduce of one roster, at one position: which frame is sent, due, reduced, kept.
//!
//! Numbers and digests only: the caller owns the floats and the bytes. It holds one buffer, the update
//! that is being made, with a place for each frame ([`State::place`]). A sum on its way through this
//! position lies at the place that the finished frame will take, and is gone before that can arrive:
//! the finished frame is made of it. So a ring needs no memory but the update and the few frames
//! that are being read, worked on and written, and a slow successor never stops us from reading:
//! a full ring cannot lock up.
//!
//! A frame goes on as soon as it is done. New sums are begun only while few frames wait, so what is
//! under way comes first, and the link to the successor never idles as long as there is something.
//!
//! The bits of the result do not depend on what arrives when: each sum meets the positions in ring
//! order (`ring`), and finished bytes travel verbatim. A frame is taken at most once for each chunk
//! and half (R31). The owner of a chunk seals it; whoever holds all its frames checks the seal before
//! it passes it on, so that a wrong one is its predecessor's fault (R30).
//!
//! What this does not do: time (a silent neighbour is the caller's to notice), arithmetic
//! (`codec::reduce`), the vote on the result.

pub mod frame;

use std::collections::VecDeque;
use std::ops::Range;

use crate::base::fault::{Fault, FrameFault};
use crate::base::id::{Digest, PeerId, RunId};
use crate::base::sign::Keypair;
use crate::message::seal::Seal;
use crate::ring::codec::Codec;
use crate::ring::{Cut, Half};
use frame::{Kind, Label};

/// Frames worked on at once, and sums begun that wait for the successor. With the one being read and
/// the one handed over there are at most eight in memory beside the update.
pub const FRAMES_MAX: usize = 6;

/// What a position must know.
#[derive(Clone, Debug)]
pub struct Config {
    /// The run.
    pub run: RunId,
    /// Digest of the roster.
    pub roster: Digest,
    /// How the fragment is cut; has as many positions as `members`.
    pub cut: Cut,
    /// How numbers travel.
    pub codec: Codec,
    /// The members with a place, in ring order.
    pub members: Vec<PeerId>,
    /// Our position among them.
    pub position: usize,
    /// Our key, for the seal of the chunk that we own.
    pub key: Keypair,
}

/// One frame of a chunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Frame {
    /// The chunk.
    pub chunk: usize,
    /// Which of its frames.
    pub frame: usize,
}

/// What to compute; the result goes to the frame's place in the update.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Work {
    /// `codec::reduce`'s start.
    Start,
    /// `codec::reduce`'s add, of the payload that just arrived.
    Add,
    /// `codec::reduce`'s finish, of the payload that just arrived.
    Finish,
    /// `codec::reduce`'s alone.
    Alone,
}

/// Something for the successor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Item {
    /// The bytes at the frame's place in the update, as they are now: copy them at once.
    Frame(Half, Frame),
    /// A chunk's seal.
    Seal(usize, Seal),
}

/// What happened.
#[derive(Clone, Copy, Debug)]
pub enum Input {
    /// Begin.
    Open,
    /// A frame came from the predecessor, and its label announces its payload.
    Frame(Label),
    /// A seal came from the predecessor, and its label announces it.
    Seal(Label, Seal),
    /// The oldest [`Output::Work`] is done.
    Worked,
    /// The last [`Output::Send`] was written.
    Sent,
    /// BLAKE3 of a chunk's bytes, as [`Output::Hash`] asked.
    Hashed(usize, Digest),
}

/// What the caller has to do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Output {
    /// Compute, in the order in which it is asked.
    Work(Work, Frame),
    /// Put the payload that just arrived at its place.
    Keep(Frame),
    /// Hash the bytes of a chunk.
    Hash(usize),
    /// Send to the successor; one at a time.
    Send(Item),
    /// A chunk is held whole, with its owner's word: it can be kept whatever becomes of this ring.
    Sealed(usize, Seal),
    /// The whole update is held, and every chunk is what its owner sealed.
    Held,
    /// The successor has got everything as well: nothing is left to do.
    Closed,
    /// The predecessor did what no honest member does; this exchange is over.
    Fault(Fault),
}

/// One exchange. [`Self::handle`] is the only mutator; the caller applies every output, in order,
/// before the next input.
#[derive(Clone, Debug)]
pub struct State {
    config: Config,
    chunks: Vec<Chunk>,
    /// How many sums of our first chunk were begun.
    begun: usize,
    working: VecDeque<(Work, Frame)>,
    /// What is ready for the successor: names only, and never more than the update has frames.
    queue: VecDeque<Item>,
    sending: bool,
    phase: Phase,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    Running,
    Held,
    Over,
}

/// What became of one chunk at this position; frames come and go in order.
#[derive(Clone, Default, Debug)]
struct Chunk {
    /// Sums that arrived.
    summed: usize,
    /// Sums handed out for sending.
    passed: usize,
    /// Finished frames at their place.
    finished: usize,
    digest: Option<Digest>,
    seal: Option<Seal>,
    sealed: bool,
}

impl State {
    /// The exchange before [`Input::Open`].
    ///
    /// # Panics
    /// The position must be one of the members, and the cut made for as many.
    #[must_use]
    pub fn new(config: Config) -> Self {
        let members = config.members.len();
        assert!(
            config.position < members && config.cut.members() == members,
            "a place in the ring"
        );
        // A chunk without elements has no frames, and nobody seals it.
        let sealed = |chunk: usize| config.cut.chunk(chunk).is_empty();
        let chunks =
            (0..members).map(|chunk| Chunk { sealed: sealed(chunk), ..Chunk::default() }).collect();
        Self {
            config,
            chunks,
            begun: 0,
            working: VecDeque::new(),
            queue: VecDeque::new(),
            sending: false,
            phase: Phase::Running,
        }
    }

    /// The bytes of the update that a frame takes.
    #[must_use]
    pub fn place(&self, frame: Frame) -> Range<usize> {
        self.config.codec.place(&self.config.cut.frame(frame.chunk, frame.frame))
    }

    /// The bytes of the update that a chunk takes.
    #[must_use]
    pub fn chunk_place(&self, chunk: usize) -> Range<usize> {
        self.config.codec.place(&self.config.cut.chunk(chunk))
    }

    /// Whether the caller may read another item from the predecessor now.
    #[must_use]
    pub fn may_read(&self) -> bool {
        self.working.len() < FRAMES_MAX
    }

    /// Whether anything is still due from the predecessor.
    #[must_use]
    pub fn is_due(&self) -> bool {
        self.phase == Phase::Running && self.config.members.len() > 1
    }

    /// What stands in front of an item whose payload is `payload`.
    #[must_use]
    pub fn label(&self, item: &Item, payload: &[u8]) -> Label {
        let (kind, chunk, frame) = match item {
            Item::Frame(half, at) => (Kind::Frame(*half), at.chunk, at.frame),
            Item::Seal(chunk, _) => (Kind::Seal, *chunk, 0),
        };
        Label {
            length: number(payload.len()),
            roster: self.config.roster,
            kind,
            chunk: number(chunk),
            frame: number(frame),
            payload: Digest(*blake3::hash(payload).as_bytes()),
        }
    }

    /// Takes one input.
    pub fn handle(&mut self, input: Input, out: &mut Vec<Output>) {
        if self.phase == Phase::Over {
            return;
        }
        let result = match input {
            Input::Open => Ok(()),
            Input::Frame(label) => self.on_frame(&label, out),
            Input::Seal(label, seal) => self.on_seal(&label, seal, out),
            Input::Worked => {
                self.on_worked(out);
                Ok(())
            }
            Input::Sent => {
                self.sending = false;
                Ok(())
            }
            Input::Hashed(chunk, digest) => self.on_hashed(chunk, digest, out),
        };
        match result {
            Ok(()) => self.advance(out),
            Err(why) => {
                self.phase = Phase::Over;
                out.push(Output::Fault(Fault::Frame(why)));
            }
        }
    }

    fn on_frame(&mut self, label: &Label, out: &mut Vec<Output>) -> Result<(), FrameFault> {
        let Kind::Frame(half) = label.kind else { return Err(FrameFault::SealAsFrame) };
        // R31: frames of another roster are dropped; they may be early or late.
        if label.roster != self.config.roster {
            return Ok(());
        }
        let (chunk, frame) = self.known(label)?;
        let at = Frame { chunk, frame };
        if usize::try_from(label.length).ok() != Some(self.place(at).len()) {
            return Err(FrameFault::Length);
        }
        match half {
            Half::Reduce => self.on_sum(at, out),
            Half::Gather => self.on_finished(at, out),
        }
    }

    fn on_sum(&mut self, at: Frame, out: &mut Vec<Output>) -> Result<(), FrameFault> {
        let (position, cut) = (self.config.position, self.config.cut);
        if at.chunk == position {
            return Err(FrameFault::OwnSum);
        }
        let chunk = &mut self.chunks[at.chunk];
        if at.frame != chunk.summed {
            return Err(FrameFault::SumOrder);
        }
        chunk.summed += 1;
        let work = if cut.owner(at.chunk) == position { Work::Finish } else { Work::Add };
        self.working.push_back((work, at));
        out.push(Output::Work(work, at));
        Ok(())
    }

    fn on_finished(&mut self, at: Frame, out: &mut Vec<Output>) -> Result<(), FrameFault> {
        if self.config.cut.owner(at.chunk) == self.config.position {
            return Err(FrameFault::OwnChunk);
        }
        let chunk = &mut self.chunks[at.chunk];
        if at.frame != chunk.finished {
            return Err(FrameFault::FinishedOrder);
        }
        if at.frame >= chunk.passed {
            return Err(FrameFault::TooEarly);
        }
        out.push(Output::Keep(at));
        self.count_finished(at, out);
        if self.passes_on(at.chunk) {
            self.queue.push_back(Item::Frame(Half::Gather, at));
        }
        Ok(())
    }

    fn on_seal(
        &mut self,
        label: &Label,
        seal: Seal,
        out: &mut Vec<Output>,
    ) -> Result<(), FrameFault> {
        if label.roster != self.config.roster {
            return Ok(());
        }
        let cut = &self.config.cut;
        let chunk = usize::try_from(label.chunk).ok().filter(|chunk| *chunk < cut.members());
        let chunk = chunk.ok_or(FrameFault::SealOfNoChunk)?;
        let (frames, owner) = (cut.frame_count(chunk), cut.owner(chunk));
        let state = &mut self.chunks[chunk];
        if label.frame != 0 || owner == self.config.position || state.seal.is_some() {
            return Err(FrameFault::SealNotDue);
        }
        if state.finished < frames || frames == 0 {
            return Err(FrameFault::SealTooEarly);
        }
        state.seal = Some(seal);
        self.check_seal(chunk, out)
    }

    fn on_worked(&mut self, out: &mut Vec<Output>) {
        let Some((work, at)) = self.working.pop_front() else { return };
        match work {
            Work::Start | Work::Add => self.queue.push_back(Item::Frame(Half::Reduce, at)),
            Work::Finish => {
                self.queue.push_back(Item::Frame(Half::Gather, at));
                self.count_finished(at, out);
            }
            Work::Alone => self.count_finished(at, out),
        }
    }

    fn on_hashed(
        &mut self,
        chunk: usize,
        digest: Digest,
        out: &mut Vec<Output>,
    ) -> Result<(), FrameFault> {
        let Config { run, roster, cut, position, key, .. } = &self.config;
        let owned = cut.owner(chunk) == *position;
        let state = &mut self.chunks[chunk];
        state.digest = Some(digest);
        if !owned {
            return self.check_seal(chunk, out);
        }
        let seal = Seal::new(key, run, roster, number(chunk), digest);
        state.seal = Some(seal);
        self.seal(chunk, seal, out);
        Ok(())
    }

    /// Checks that a chunk of another owner and its seal belong together, once both are here.
    fn check_seal(&mut self, chunk: usize, out: &mut Vec<Output>) -> Result<(), FrameFault> {
        let state = &self.chunks[chunk];
        let (Some(digest), Some(seal)) = (state.digest, state.seal) else { return Ok(()) };
        if digest != seal.digest {
            return Err(FrameFault::SealOfOtherChunk);
        }
        let Config { run, roster, cut, members, key, .. } = &self.config;
        let owner = &members[cut.owner(chunk)];
        if !seal.is_of(owner, key, run, roster, number(chunk)) {
            return Err(FrameFault::SealOfOther);
        }
        self.seal(chunk, seal, out);
        Ok(())
    }

    fn seal(&mut self, chunk: usize, seal: Seal, out: &mut Vec<Output>) {
        self.chunks[chunk].sealed = true;
        out.push(Output::Sealed(chunk, seal));
        if self.passes_on(chunk) {
            self.queue.push_back(Item::Seal(chunk, seal));
        }
    }

    /// Begins sums, hands out what is to be sent, and notices the end.
    fn advance(&mut self, out: &mut Vec<Output>) {
        let alone = self.config.members.len() == 1;
        let first = self.config.position;
        while self.begun < self.config.cut.frame_count(first)
            && self.working.len() + self.queue.len() < FRAMES_MAX
        {
            let work = if alone { Work::Alone } else { Work::Start };
            let at = Frame { chunk: first, frame: self.begun };
            self.begun += 1;
            self.working.push_back((work, at));
            out.push(Output::Work(work, at));
        }
        if !self.sending
            && let Some(item) = self.queue.pop_front()
        {
            if let Item::Frame(Half::Reduce, at) = item {
                self.chunks[at.chunk].passed += 1;
            }
            self.sending = true;
            out.push(Output::Send(item));
        }
        if self.phase == Phase::Running && self.chunks.iter().all(|chunk| chunk.sealed) {
            self.phase = Phase::Held;
            out.push(Output::Held);
        }
        if self.phase == Phase::Held && !self.sending {
            self.phase = Phase::Over;
            out.push(Output::Closed);
        }
    }

    fn count_finished(&mut self, at: Frame, out: &mut Vec<Output>) {
        let chunk = &mut self.chunks[at.chunk];
        chunk.finished += 1;
        if chunk.finished == self.config.cut.frame_count(at.chunk) {
            out.push(Output::Hash(at.chunk));
        }
    }

    /// Whether the successor still needs the finished bytes of a chunk: its owner has them.
    fn passes_on(&self, chunk: usize) -> bool {
        let members = self.config.members.len();
        self.config.cut.owner(chunk) != (self.config.position + 1) % members
    }

    /// Chunk and frame of a label, if the ring has them.
    fn known(&self, label: &Label) -> Result<(usize, usize), FrameFault> {
        let cut = &self.config.cut;
        let chunk = usize::try_from(label.chunk).ok().filter(|chunk| *chunk < cut.members());
        let chunk = chunk.ok_or(FrameFault::NoSuchChunk)?;
        let frame = usize::try_from(label.frame).ok();
        let frame = frame.filter(|frame| *frame < cut.frame_count(chunk));
        Ok((chunk, frame.ok_or(FrameFault::NoSuchFrame)?))
    }
}

/// A number as the wire has it: chunks, frames and bytes of a payload are far fewer than 2^32.
fn number(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
