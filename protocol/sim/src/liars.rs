//! Peers that lie, and how they behave.
//!
//! A liar is a *member*, a host whose process runs the real machine and whose messages pass through
//! its behaviours, or a *stranger*, a key with no machine at all, which says that it is Ready and
//! what its behaviours add. Each has one behaviour or two, drawn from the seed.
//!
//! A behaviour is one function over a [`Cue`]: add it to [`ALL`], with a name. It sends messages
//! through a [`Voice`], and they arrive like any others.
//!
//! What a liar sends is signed like anything else: it can use its own key and keys that it makes
//! up, and no other peer's. It sees more than a real one could, as the series and weights of all
//! processes ([`Stand`]), so that it lies at the right moment.
//!
//! A behaviour is a way to harm others and no way to be wrong: messages that nobody can decode are
//! for the tests of the wire. The labels in its comment are the rules that must stop it. The same
//! behaviours attack real nodes in `tests/examples/liars.rs`, so nothing here knows the simulator.

mod rosters;
mod attempts;
mod votes;
mod presence;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use intellect_protocol::base::id::{Digest, LogId, PeerId, RunId};
use intellect_protocol::base::rng::Rng;
use intellect_protocol::message::{
    Answer, Head, Heartbeat, Message, Phase, Refusal, Refuse, Roster, Series, Voter,
};

/// The number of an attempt, as liars claim it. It may be any number.
pub(crate) type Attempt = u64;

/// How often liars act without a message, in milliseconds: twice in a heartbeat of most runs.
pub(crate) const LOOK_MS: u64 = 250;

/// An occasion on which a liar can act.
#[derive(Clone, Copy, Debug)]
pub enum Cue<'a> {
    /// Time has passed: given every [`LOOK_MS`].
    Look,
    /// Another peer sends this message to it, or to all.
    Hears(&'a Message),
    /// Its own machine sends this message.
    Says(&'a Message),
}

/// One way in which a liar behaves.
pub(crate) struct Behaviour {
    /// Its name in a report, and in the list of names.
    pub(crate) name: &'static str,
    /// What it does apart from sending messages.
    pub(crate) deed: Deed,
    /// What it sends at each cue, through the voice.
    act: fn(&mut Voice<'_>, Cue<'_>),
}

/// What a liar does that is not a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Deed {
    /// Nothing apart from its messages.
    None,
    /// Answers pings late, so that its round trip seems long.
    PingsLate,
    /// Accepts rosters, and sends nothing in their rings.
    NeverSends,
    /// Sends a hundred times too slowly in a ring.
    Crawls,
    /// Ends each ring, and says first that it stopped.
    BreaksOff,
    /// Serves no chunk that it claims to hold.
    Withholds,
    /// Invents the states of the chain that it is asked for.
    ForgesChain,
    /// Invents the weights of the links that it is asked for.
    ForgesLinks,
    /// Answers with no link, and claims a head that is greater than all.
    LeadsNowhere,
}

/// A behaviour that only says what is false.
const fn words(name: &'static str, act: fn(&mut Voice<'_>, Cue<'_>)) -> Behaviour {
    Behaviour { name, deed: Deed::None, act }
}

/// A behaviour that does wrong without a word of its own.
const fn deed(name: &'static str, deed: Deed) -> Behaviour {
    Behaviour { name, deed, act: |_, _| {} }
}

/// Every behaviour. A seed draws from them by index, so a new one changes all seeds with liars, and
/// a name is what people type to play one alone.
pub(crate) static ALL: [Behaviour; 35] = [
    words("refuses rosters", rosters::refuse),
    words("proposes at once for itself", rosters::grab),
    words("tells two weights", rosters::weigh_twice),
    words("accepts and does no more", rosters::accept),
    words("proposes and does not accept", rosters::disown),
    words("shows two rosters", rosters::show_two),
    words("leaves out one that it calls lost", rosters::leave_out),
    words("names another start", rosters::misname),
    words("asks after each roster", attempts::ask_after),
    words("asks all the time", attempts::ask_always),
    words("asks for far attempts", attempts::ask_far),
    words("refuses questions with far promises", attempts::promise_far),
    words("comes to far attempts", attempts::come_far),
    words("never votes", votes::never),
    words("is mute", votes::mute),
    words("says it has not voted", votes::forget),
    words("says that it voted for its own", votes::invent),
    words("votes twice", votes::vote_twice),
    words("joins twice", votes::join_twice),
    words("reports others lost", votes::report),
    words("denies what it received", votes::deny),
    words("brings fresh keys", presence::fresh_keys),
    words("changes incarnations", presence::flap),
    words("tells of a greater head", presence::mint),
    words("is never Ready", presence::never_ready),
    words("is Ready for another start", presence::ready_elsewhere),
    words("is Ready again and again", presence::ready_again),
    deed("answers pings late", Deed::PingsLate),
    deed("never sends in a ring", Deed::NeverSends),
    deed("crawls in a ring", Deed::Crawls),
    deed("breaks off rings", Deed::BreaksOff),
    deed("serves no chunk", Deed::Withholds),
    deed("forges chains", Deed::ForgesChain),
    deed("forges links", Deed::ForgesLinks),
    deed("leads nowhere", Deed::LeadsNowhere),
];

/// The names of the behaviours that are messages only, which a stranger can send too.
pub fn spoken() -> impl Iterator<Item = &'static str> {
    ALL.iter().filter(|behaviour| behaviour.deed == Deed::None).map(|behaviour| behaviour.name)
}

/// What one liar remembers between two cues.
#[derive(Clone, Debug, Default)]
pub(crate) struct Memory {
    /// Heartbeats so far, of all its keys.
    pub(crate) count: u64,
    /// The incarnation that it claims.
    pub(crate) incarnation: u64,
    /// The series in which it last did what it does once.
    pub(crate) series: Option<Series>,
    /// The highest attempt that it has heard of in that series.
    pub(crate) attempt: Attempt,
    /// Digests of the messages that it has answered.
    pub(crate) answered: BTreeSet<[u8; 32]>,
    /// The weight that it claims to have frozen.
    pub(crate) ready: u64,
    /// The last ring that it has a position in: the series, the roster, and a neighbour.
    pub(crate) ring: Option<(Series, Digest, PeerId)>,
}

/// One liar: its behaviours and memory.
pub struct Liar {
    /// How it behaves: in one way or two, or in none where a scene speaks for it.
    pub(crate) behaviours: Vec<&'static Behaviour>,
    /// What all its behaviours share from one cue to the next.
    pub(crate) memory: Memory,
    /// Its own source of chance, so that what it draws moves no other.
    pub(crate) rng: Rng,
}

impl Liar {
    /// A liar without a behaviour of its own: a scene sends messages in its name.
    pub(crate) fn silent() -> Self {
        Self::with(Vec::new(), 0)
    }

    /// A liar with one behaviour, or two, of which three in ten have two. They may be the same one.
    pub(crate) fn draw(rng: &mut Rng) -> Self {
        let count = 1 + usize::from(rng.chance(0.3));
        let behaviours = (0..count).filter_map(|_| rng.pick(&ALL)).collect();
        Self::with(behaviours, rng.next_u64())
    }

    /// A liar with these behaviours and its own source of chance.
    fn with(behaviours: Vec<&'static Behaviour>, seed: u64) -> Self {
        let memory = Memory { incarnation: 1, ready: 100, ..Memory::default() };
        Self { behaviours, memory, rng: Rng::new(seed) }
    }

    /// A liar with the behaviour of this name; `None` if there is none.
    #[must_use]
    pub fn named(name: &str, seed: u64) -> Option<Self> {
        let behaviour = ALL.iter().find(|behaviour| behaviour.name == name)?;
        Some(Self::with(vec![behaviour], seed))
    }

    /// Whether one of its behaviours is this deed.
    pub(crate) fn does(&self, deed: Deed) -> bool {
        self.behaviours.iter().any(|behaviour| behaviour.deed == deed)
    }

    /// Acts on a cue. Returns its messages, and whether it suppresses that of its machine. A
    /// stranger also sends a heartbeat at each [`Cue::Look`], since nobody reads a peer that is not
    /// alive.
    pub fn act(&mut self, facts: &Facts<'_>, cue: Cue<'_>) -> (Vec<Lie>, bool) {
        let Self { behaviours, memory, rng } = self;
        let mut voice = Voice { facts, memory, rng, lies: Vec::new(), swallows: false };
        if let (Cue::Look, true) = (cue, facts.is_stranger) {
            voice.live();
        }
        behaviours.iter().for_each(|behaviour| (behaviour.act)(&mut voice, cue));
        (voice.lies, voice.swallows)
    }

    /// Changes an answer about its lineage. The answer stays well formed: only what it says is
    /// false, so that the verification of links is tested and not the decoder.
    pub fn forge(&self, answer: &mut Answer) {
        match answer {
            Answer::Chain(chain) if self.does(Deed::ForgesChain) => {
                let forged = chain.iter_mut().filter(|link| link.epoch % 3 == 1);
                forged.for_each(|link| link.state.0[0] ^= 1);
            }
            Answer::Lineage { links, .. } if self.does(Deed::ForgesLinks) => {
                let members = links.iter_mut().flat_map(|link| &mut link.receipt.members);
                members.for_each(|member| member.weight = u64::MAX / 4);
            }
            Answer::Lineage { links, head, .. } if self.does(Deed::LeadsNowhere) => {
                links.clear();
                let state = Digest::derive("a head that leads nowhere", &head.state.0);
                *head = Head { epoch: head.epoch + 100, tokens: head.tokens + 1_000_000, state };
            }
            _ => {}
        }
    }
}

/// What a liar can know when it acts.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// The id of the run, for which it signs.
    pub run: RunId,
    /// The voter that it claims to be.
    pub me: Voter,
    /// Whether no machine runs for it.
    pub is_stranger: bool,
    /// The positions of all running processes; only for [`Cue::Look`].
    pub stands: &'a [Stand],
}

/// The position of a process in the run.
#[derive(Clone, Debug)]
pub struct Stand {
    /// The voter that the process is.
    pub voter: Voter,
    /// The incarnation of its start.
    pub incarnation: u64,
    /// The head that the process is on.
    pub head: Head,
    /// The open series of the process.
    pub series: Series,
    /// The voters of that series, in order.
    pub voters: Vec<Voter>,
    /// The weight that it has frozen; 0 while it trains.
    pub ready: u64,
    /// Whether that process lies as well.
    pub lies: bool,
}

/// A message signed with any key, to one peer or to all.
#[derive(Clone, Debug)]
pub struct Lie {
    /// The key that signs the message.
    pub author: PeerId,
    /// The only receiver; `None` means all peers.
    pub to: Option<PeerId>,
    /// The content of the message, true or not.
    pub message: Message,
    /// Extra delay in milliseconds.
    pub delay_ms: u64,
}

/// The means by which a behaviour sends messages.
pub(crate) struct Voice<'a> {
    /// What the liar can know at this cue.
    pub(crate) facts: &'a Facts<'a>,
    /// What it remembers; a behaviour may change it.
    pub(crate) memory: &'a mut Memory,
    /// The liar's own source of chance.
    pub(crate) rng: &'a mut Rng,
    /// What it sends at this cue, in order.
    lies: Vec<Lie>,
    /// Whether the message of its machine is suppressed.
    swallows: bool,
}

impl<'a> Voice<'a> {
    /// The name under which the liar speaks.
    fn me(&self) -> PeerId {
        self.facts.me.peer
    }

    /// Sends a message to all peers.
    fn gossip(&mut self, message: Message) {
        self.gossip_later(0, message);
    }

    /// Sends a message to one peer.
    fn send(&mut self, to: PeerId, message: Message) {
        self.say_as(self.me(), to, message);
    }

    /// Sends a message to one peer with another key.
    fn say_as(&mut self, author: PeerId, to: PeerId, message: Message) {
        self.lies.push(Lie { author, to: Some(to), message, delay_ms: 0 });
    }

    /// Sends a message to all peers a little later.
    fn gossip_later(&mut self, delay_ms: u64, message: Message) {
        self.lies.push(Lie { author: self.me(), to: None, message, delay_ms });
    }

    /// Suppresses the message of its machine. Without effect unless the cue is [`Cue::Says`].
    fn swallow(&mut self) {
        self.swallows = true;
    }

    /// Sends a heartbeat to each peer, with that peer's own head and series. So each one counts the
    /// stranger as here, whatever series it is in itself.
    fn live(&mut self) {
        self.memory.count += 1;
        let stands = self.facts.stands;
        for stand in stands {
            let beat = self.beat(stand);
            self.send(stand.voter.peer, Message::Heartbeat(beat));
        }
    }

    /// A heartbeat that claims the head and series of the peer it goes to.
    fn beat(&self, beside: &Stand) -> Heartbeat {
        Heartbeat {
            count: self.memory.count,
            head: beside.head,
            series: beside.series,
            joined: None,
            closed: false,
            log: self.facts.me.log,
            incarnation: self.memory.incarnation,
            phase: Phase::Train,
            attempt: 0,
            ready: self.memory.ready,
            direct: true,
            unlinked: Vec::new(),
            round_trips: Vec::new(),
            send_rate: 1_000_000,
            serves: beside.head.epoch,
            notice: 0,
            attested: 0,
            ticket: None,
        }
    }

    /// Whether this is the first time that it answers something of this digest.
    fn answers(&mut self, digest: Digest) -> bool {
        self.memory.answered.insert(digest.0)
    }

    /// A process of the newest series, if this liar has done nothing there yet. To ask is to enter:
    /// the next call in that series gives `None`.
    fn enters(&mut self) -> Option<&'a Stand> {
        let newest = self.facts.stands.iter().max_by_key(|stand| stand.head.epoch)?;
        (self.memory.series.replace(newest.series) != Some(newest.series)).then_some(newest)
    }
}

/// What is recorded about lies.
#[derive(Default)]
pub(crate) struct Lying {
    /// The host whose act is judged.
    pub(crate) acting: usize,
    /// Whether the seed has drawn liars and their behaviours.
    pub(crate) drawn: bool,
    /// When strangers begin, in milliseconds.
    pub(crate) strangers_ms: u64,
    /// Since when no fault strikes any more.
    pub(crate) healed_ms: Option<u64>,
    /// The last rosters, and the peers that were Ready to a majority when each was proposed.
    pub(crate) readies: VecDeque<(Roster, BTreeSet<PeerId>)>,
    /// The rings that were opened in the epoch after a state.
    pub(crate) rings: BTreeMap<Digest, BTreeSet<Digest>>,
}

/// A refusal with a promise, of a roster or of a query. The head that it names is the one before
/// the series, so nobody believes that the liar is ahead.
fn refusal(series: Series, what: Digest, promised: Attempt) -> Message {
    let head = Head { epoch: series.epoch - 1, tokens: 0, state: series.parent };
    Message::Refuse(Refuse { series, what, promised, head, reason: Refusal::Promised })
}

/// The log of votes that a stranger claims.
pub(crate) fn stranger_log(peer: &PeerId) -> LogId {
    let mut log = [0; 16];
    log.copy_from_slice(&peer.0[..16]);
    LogId(log)
}
