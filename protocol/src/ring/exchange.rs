//! One ring all-reduce of one roster, at one position: which frame is sent, due, reduced, kept.
//!
//! Numbers and digests only: the caller owns the floats and the bytes. It holds one buffer, the
//! update that is being computed, with a range for each frame ([`State::place`]). A partial sum
//! that passes this position is stored in the range of its finished frame, and is gone before that
//! one can arrive, since the finished frame is made of it. So a ring needs no memory except for the
//! update and the few frames that are being read, worked on and written, and a slow successor never
//! stops this position from reading: a full ring cannot deadlock.
//!
//! A frame goes on as soon as it is done. New sums are started only while few frames
//! wait, so frames in flight come first, and the link to the successor is never idle
//! while there is something to send.
//!
//! The bits of the result do not depend on the order of arrival: each sum meets the positions in
//! ring order (`ring`), and finished bytes travel verbatim. A frame is accepted at most once for
//! each chunk and half (R31). The owner of a chunk seals it. A position that holds all frames of a
//! chunk checks the seal before it passes it on, so a wrong seal is its predecessor's fault (R30).
//!
//! What this does not do: time (the caller notices a silent neighbour), arithmetic
//! (`codec::reduce`), the vote on the result.

pub mod frame;

use std::collections::VecDeque;
use std::ops::Range;

use crate::base::fault::{Fault, FrameFault, require};
use crate::base::id::{Digest, PeerId, RunId};
use crate::base::sign::Keypair;
use crate::message::seal::Seal;
use crate::ring::codec::Codec;
use crate::ring::{Cut, Half};
use frame::{Kind, Label};

/// Frames worked on at once, and sums started that wait for the successor. With the one being read
/// and the one being written there are at most eight in memory next to the update.
pub const FRAMES_MAX: usize = 6;

/// What a position must know about its ring.
#[derive(Clone, Debug)]
pub struct Config {
    /// The run, which seals are signed for.
    pub run: RunId,
    /// Digest of the roster; frames of other rings are dropped.
    pub roster: Digest,
    /// How the fragment is cut, for as many positions as there are `members`.
    pub cut: Cut,
    /// The codec of the run, which determines the length of a frame.
    pub codec: Codec,
    /// The members with a position, in ring order.
    pub members: Vec<PeerId>,
    /// Our index among `members`, below their number.
    pub position: usize,
    /// Our key, which seals the chunk that we own.
    pub key: Keypair,
}

/// The name of one frame of a chunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Frame {
    /// Number of the chunk, below the number of members.
    pub chunk: usize,
    /// Number of the frame within the chunk.
    pub frame: usize,
}

/// What to compute; the result goes to the frame's range of the update.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Work {
    /// Our share starts the sum: `codec::reduce`'s start.
    Start,
    /// Our share is added to the payload that just arrived: `codec::reduce`'s add.
    Add,
    /// Our share completes the sum in the payload that just arrived: `codec::reduce`'s finish.
    Finish,
    /// A ring of one member: `codec::reduce`'s alone.
    Alone,
}

/// Something to send to the successor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Item {
    /// The bytes in the frame's range of the update, as they are now: copy them at once.
    Frame(Half, Frame),
    /// The seal of this chunk, after all its finished frames.
    Seal(usize, Seal),
}

/// What happened to the ring at this position.
#[derive(Clone, Copy, Debug)]
pub enum Input {
    /// Begin. The caller gives this first, and once.
    Open,
    /// A frame came from the predecessor, and its payload is the one that its label announces.
    Frame(Label),
    /// A seal came from the predecessor, and it is the one that its label announces.
    Seal(Label, Seal),
    /// The oldest [`Output::Work`] is done.
    Worked,
    /// The last [`Output::Send`] was written to the stream.
    Sent,
    /// BLAKE3 of a chunk's bytes, as [`Output::Hash`] asked for it.
    Hashed(usize, Digest),
}

/// What the caller has to do, in order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Output {
    /// Compute a frame, after those that were asked for before.
    Work(Work, Frame),
    /// Store the payload that just arrived in the frame's range.
    Keep(Frame),
    /// Hash the bytes of a chunk, and give [`Input::Hashed`].
    Hash(usize),
    /// Send to the successor; one at a time.
    Send(Item),
    /// A chunk is complete and sealed by its owner: it can be reused even if this ring fails (R10).
    Sealed(usize, Seal),
    /// The whole update is here, and every chunk is what its owner sealed.
    Held,
    /// The successor has received everything as well: nothing is left to do.
    Closed,
    /// The predecessor did what no honest member does; this exchange is over.
    Fault(Fault),
}

/// One exchange. Only [`Self::handle`] changes it. The caller carries out every output, in
/// order, before the next input.
#[derive(Clone, Debug)]
pub struct State {
    config: Config,
    chunks: Vec<Chunk>,
    /// Sums of our first chunk that were started.
    begun: usize,
    working: VecDeque<(Work, Frame)>,
    /// What is ready for the successor: names only, at most one for each frame of the update.
    queue: VecDeque<Item>,
    sending: bool,
    phase: Phase,
}

/// How far an exchange is. It never goes back. From `Held` on nothing more is due from the
/// predecessor. `Over` is the end, after everything was sent or after a fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    Running,
    Held,
    Over,
}

/// The progress of one chunk at this position. Its frames come and go in order. A count instead of
/// a set of frames is enough, because a frame out of order is a fault: a stream keeps its order.
#[derive(Clone, Default, Debug)]
struct Chunk {
    /// Partial sums that have arrived.
    summed: usize,
    /// Partial sums handed out for sending.
    passed: usize,
    /// Finished frames in their range.
    finished: usize,
    digest: Option<Digest>,
    seal: Option<Seal>,
    sealed: bool,
}

impl State {
    /// An exchange that waits for [`Input::Open`].
    ///
    /// # Panics
    /// If the position is not one of the members, or the cut is not made for as many.
    #[must_use]
    pub fn new(config: Config) -> Self {
        let members = config.members.len();
        assert!(config.position < members && config.cut.members() == members, "position, cut");
        // A chunk without elements has no frames, and no owner seals it.
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

    /// The range of a frame in the bytes of the update. The range is below the length of the
    /// update, whichever frame of the cut is asked for.
    pub fn place(&self, frame: Frame) -> Range<usize> {
        self.config.codec.place(&self.config.cut.frame(frame.chunk, frame.frame))
    }

    /// The range of a chunk in the bytes of the update.
    pub fn chunk_place(&self, chunk: usize) -> Range<usize> {
        self.config.codec.place(&self.config.cut.chunk(chunk))
    }

    /// Whether the caller may read another item from the predecessor now. If not, the stream's flow
    /// control slows the predecessor down.
    #[must_use]
    pub fn may_read(&self) -> bool {
        self.working.len() < FRAMES_MAX
    }

    /// Whether anything is still expected from the predecessor. If so, a predecessor that stays
    /// silent for longer than its deadline is what holds up the ring.
    #[must_use]
    pub fn is_due(&self) -> bool {
        self.phase == Phase::Running && self.config.members.len() > 1
    }

    /// How many hops have brought their chunk whole, one after another, of 2(n − 1): first the sums
    /// of each other chunk, then the finished chunks. A hop needs the one before it at the predecessor,
    /// so where a ring stands still, the numbers of all members show which one has not sent
    /// (`consensus/epoch/conduct/disputes.rs`).
    pub fn hops(&self) -> usize {
        let Config { cut, position, .. } = &self.config;
        let count = cut.members();
        let arrived = |hop: &usize| {
            // Sums come from chunk p − 1 down; then finished chunks from chunk p down.
            let (reduces, back) = (*hop + 1 < count, (*hop + 1) % count);
            let back = if reduces { back } else { hop + 1 - count };
            let chunk = (position + count - back) % count;
            let state = &self.chunks[chunk];
            let came = if reduces { state.summed } else { state.finished };
            came == cut.frame_count(chunk)
        };
        (0..2 * (count - 1)).take_while(arrived).count()
    }

    /// The label of an item with this payload.
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

    /// Takes one input. After a fault or [`Output::Closed`] every input is ignored.
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

    /// Checks the label of a frame before any of its bytes are used (R31).
    fn on_frame(&mut self, label: &Label, out: &mut Vec<Output>) -> Result {
        let Kind::Frame(half) = label.kind else { return Err(FrameFault::SealAsFrame) };
        // R31: frames of another roster are dropped without a fault; they may be early or late.
        if label.roster != self.config.roster {
            return Ok(());
        }
        let (chunk, frame) = self.known(label)?;
        let at = Frame { chunk, frame };
        let fits = usize::try_from(label.length).ok() == Some(self.place(at).len());
        require(fits, FrameFault::Length)?;
        match half {
            Half::Reduce => self.on_sum(at, out),
            Half::Gather => self.on_finished(at, out),
        }
    }

    /// The next partial sum of a chunk is here. It must be the next in order, and never of the chunk whose sum begins here.
    fn on_sum(&mut self, at: Frame, out: &mut Vec<Output>) -> Result {
        let (position, cut) = (self.config.position, self.config.cut);
        require(at.chunk != position, FrameFault::OwnSum)?;
        let chunk = &mut self.chunks[at.chunk];
        require(at.frame == chunk.summed, FrameFault::SumOrder)?;
        chunk.summed += 1;
        let work = if cut.owner(at.chunk) == position { Work::Finish } else { Work::Add };
        self.working.push_back((work, at));
        out.push(Output::Work(work, at));
        Ok(())
    }

    /// The next finished frame of a chunk is here. It cannot come before we have passed on its sum.
    fn on_finished(&mut self, at: Frame, out: &mut Vec<Output>) -> Result {
        let owner = self.config.cut.owner(at.chunk);
        require(owner != self.config.position, FrameFault::OwnChunk)?;
        let chunk = &self.chunks[at.chunk];
        require(at.frame == chunk.finished, FrameFault::FinishedOrder)?;
        require(at.frame < chunk.passed, FrameFault::TooEarly)?;
        out.push(Output::Keep(at));
        self.count_finished(at, out);
        if self.passes_on(at.chunk) {
            self.queue.push_back(Item::Frame(Half::Gather, at));
        }
        Ok(())
    }

    /// The seal of another owner's chunk is here. It comes once, after the last frame of that chunk.
    fn on_seal(&mut self, label: &Label, seal: Seal, out: &mut Vec<Output>) -> Result {
        if label.roster != self.config.roster {
            return Ok(());
        }
        let cut = &self.config.cut;
        let chunk = usize::try_from(label.chunk).ok().filter(|chunk| *chunk < cut.members());
        let chunk = chunk.ok_or(FrameFault::SealOfNoChunk)?;
        let (frames, owner) = (cut.frame_count(chunk), cut.owner(chunk));
        let state = &mut self.chunks[chunk];
        let due = label.frame == 0 && owner != self.config.position && state.seal.is_none();
        require(due, FrameFault::SealNotDue)?;
        require(state.finished >= frames && frames > 0, FrameFault::SealTooEarly)?;
        state.seal = Some(seal);
        self.check_seal(chunk, out)
    }

    /// The oldest work is done, and its frame may be sent.
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

    /// All frames of a chunk are here and hashed. We seal the chunk that we own, and check the others.
    fn on_hashed(&mut self, chunk: usize, digest: Digest, out: &mut Vec<Output>) -> Result {
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
    fn check_seal(&mut self, chunk: usize, out: &mut Vec<Output>) -> Result {
        let state = &self.chunks[chunk];
        let (Some(digest), Some(seal)) = (state.digest, state.seal) else { return Ok(()) };
        require(digest == seal.digest, FrameFault::SealOfOtherChunk)?;
        let Config { run, roster, cut, members, key, .. } = &self.config;
        let owner = &members[cut.owner(chunk)];
        require(seal.is_of(owner, key, run, roster, number(chunk)), FrameFault::SealOfOther)?;
        self.seal(chunk, seal, out);
        Ok(())
    }

    /// Takes a good seal, which the successor may need too.
    fn seal(&mut self, chunk: usize, seal: Seal, out: &mut Vec<Output>) {
        self.chunks[chunk].sealed = true;
        out.push(Output::Sealed(chunk, seal));
        if self.passes_on(chunk) {
            self.queue.push_back(Item::Seal(chunk, seal));
        }
    }

    /// Starts sums, hands out the next item to send, and notices the end. It runs after every
    /// input, so an exchange stands still only because of its neighbours or its caller.
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

    /// Counts a finished frame, and has the chunk hashed after its last one.
    fn count_finished(&mut self, at: Frame, out: &mut Vec<Output>) {
        let chunk = &mut self.chunks[at.chunk];
        chunk.finished += 1;
        if chunk.finished == self.config.cut.frame_count(at.chunk) {
            out.push(Output::Hash(at.chunk));
        }
    }

    /// Whether the successor needs the finished bytes of a chunk; the chunk's owner has them.
    fn passes_on(&self, chunk: usize) -> bool {
        let members = self.config.members.len();
        self.config.cut.owner(chunk) != (self.config.position + 1) % members
    }

    /// Chunk and frame of a label, if the ring has them.
    fn known(&self, label: &Label) -> Result<(usize, usize)> {
        let cut = &self.config.cut;
        let chunk = usize::try_from(label.chunk).ok().filter(|chunk| *chunk < cut.members());
        let chunk = chunk.ok_or(FrameFault::NoSuchChunk)?;
        let frame = usize::try_from(label.frame).ok();
        let frame = frame.filter(|frame| *frame < cut.frame_count(chunk));
        Ok((chunk, frame.ok_or(FrameFault::NoSuchFrame)?))
    }
}

/// What became of an item; its fault ends the ring.
type Result<T = ()> = std::result::Result<T, FrameFault>;

/// A number as the wire has it. Chunks, frames and payload bytes are far fewer than 2^32.
fn number(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
