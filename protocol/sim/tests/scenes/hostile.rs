//! Keys that lie: each scene is an attack on a run of honest peers. The scene states what the
//! attack may cost them; that no honest peer is blamed is checked at each step.
//!
//! A [`Liar`] is a key that sends what the scene wants: a stranger's, or that of a voter whose
//! process has ended. It hears at once what hosts say to each other, which no real peer does.

mod guests;
mod voters;
mod costs;
mod crowds;
mod newcomers;
mod lineages;
mod missed;
mod forged;

use std::collections::VecDeque;

use intellect_protocol::base::id::LogId;
use intellect_protocol::base::sign::Keypair;
use intellect_protocol::message::wire;
use intellect_protocol::message::{
    Heard, Heartbeat, Member, Phase, Query, Refusal, Refuse, Roster, Series, Status, Voter,
};
use intellect_protocol::ring::{Order, order};
use intellect_protocol_sim::network::Fate;
use intellect_protocol_sim::world::scene::stranger;

use super::*;

type Attempt = u64;

const MINUTE_MS: u64 = 60_000;

/// A key for which the scene sends messages.
struct Liar {
    name: PeerId,
    log: LogId,
    incarnation: u64,
    phase: Phase,
    /// The weight that it declares; with 0 it is not Ready.
    ready: u64,
    count: u64,
    beat_ms: u64,
    /// By how many epochs the head that it claims is greater than that of the peer that hears it.
    ahead: u64,
}

impl Liar {
    /// A key that no receipt names.
    fn stranger(name: u8) -> Self {
        Self::new(stranger(name), LogId([name; 16]), 1)
    }

    /// The key of a voter of `host`'s open epoch. If it has a process, that is another liar's.
    fn voter(world: &World, of: usize, host: usize) -> Self {
        let name = world.name(of);
        let voters = commit(world, host, world.epoch(host)).receipt.voters();
        let log = voters.iter().find(|voter| voter.peer == name).unwrap().log;
        Self::new(name, log, 100)
    }

    fn new(name: PeerId, log: LogId, incarnation: u64) -> Self {
        let (phase, ready, ahead) = (Phase::Train, 0, 0);
        Self { name, log, incarnation, phase, ready, count: 0, beat_ms: 0, ahead }
    }

    /// Sends heartbeats to some hosts when they are due, each with that host's own head and series.
    fn live(&mut self, world: &mut World, to: &[usize]) {
        if world.now_ms < self.beat_ms {
            return;
        }
        self.beat_ms = world.now_ms + BEAT_MS;
        self.count += 1;
        for host in to {
            self.beat(world, *host);
        }
    }

    fn beat(&self, world: &mut World, host: usize) {
        let Some(mut head) = world.head(host) else { return };
        if self.ahead > 0 {
            head.epoch += self.ahead;
            head.tokens += 1_000 * self.ahead;
            head.state = Digest(self.name.0);
        }
        let beat = Heartbeat {
            count: self.count,
            head,
            series: world.series(host).unwrap(),
            joined: None,
            closed: false,
            log: self.log,
            incarnation: self.incarnation,
            phase: self.phase,
            attempt: 0,
            ready: self.ready,
            direct: true,
            unlinked: Vec::new(),
            round_trips: Vec::new(),
            send_rate: 1_000_000,
            serves: head.epoch,
            notice: 0,
            attested: 0,
            ticket: None,
        };
        world.say_as(&[host], self.name, &Message::Heartbeat(beat));
    }

    /// Refuses a roster to its proposer, without a reason.
    fn refuse(&self, world: &mut World, roster: &Roster) {
        let proposer = world.host(&roster.proposer).unwrap();
        let Some(head) = world.head(proposer) else { return };
        let what = wire::roster_digest(&world.run, roster);
        let (series, reason) = (roster.series, Refusal::Promised);
        let refuse = Refuse { series, what, promised: 0, head, reason };
        world.say_as(&[proposer], self.name, &Message::Refuse(refuse));
    }

    /// Queries some hosts for their votes.
    fn ask(&self, world: &mut World, to: &[usize], series: Series, attempt: Attempt) {
        let query = Query { series, attempt };
        world.say_as(to, self.name, &Message::Query(query));
    }
}

/// How often a liar sends heartbeats, in milliseconds.
const BEAT_MS: u64 = 400;

/// What hosts say to each other, with the sender: each message once until the scene has read it.
type Overheard = Noted<VecDeque<(usize, Message)>>;

fn overhear(world: &mut World) -> Overheard {
    let heard = Overheard::default();
    let noted = Rc::clone(&heard);
    world.direct(move |from, _, message| {
        let mut heard = noted.borrow_mut();
        if !heard.iter().any(|(who, said)| *who == from && said == message) {
            heard.push_back((from, message.clone()));
        }
        Fate::Deliver
    });
    heard
}

/// Plays for `length_ms` while liars send heartbeats to some hosts. `answer` acts for the liars on
/// every message, and on `None` every 2 ms.
fn lie(
    world: &mut World,
    to: &[usize],
    liars: &mut [Liar],
    length_ms: u64,
    mut answer: impl FnMut(&mut World, &mut [Liar], Option<(usize, Message)>),
) -> Played {
    let heard = overhear(world);
    let end_ms = world.now_ms + length_ms;
    while world.now_ms < end_ms {
        liars.iter_mut().for_each(|liar| liar.live(world, to));
        answer(world, liars, None);
        let said: Vec<_> = heard.borrow_mut().drain(..).collect();
        for message in said {
            answer(world, liars, Some(message));
        }
        world.play(2)?;
    }
    world.let_through();
    Ok(())
}

/// A run of `count` peers that has committed epoch 1; with `named` they are its named founders.
fn a_run(count: usize, named: bool) -> Result<(World, Vec<usize>), Violation> {
    if !named {
        return founded(count, 0, None);
    }
    let mut world = scene(count, count, None);
    let all: Vec<usize> = (0..count).collect();
    world.start(&all);
    assert!(world.until(END_MS, |world| all_at(world, &all, 1))?);
    let order = world.voters(0);
    Ok((world, order))
}

/// The epochs that such a run commits in that time without liars.
fn undisturbed(count: usize, named: bool, length_ms: u64) -> Result<u64, Violation> {
    let (mut world, all) = a_run(count, named)?;
    world.play(length_ms)?;
    let epochs = least_epoch(&world, &all) - 1;
    ends_amid(world, &[Trains, Ring, End::Votes])?;
    Ok(epochs)
}

fn least_epoch(world: &World, hosts: &[usize]) -> u64 {
    hosts.iter().map(|host| world.epoch(*host)).min().unwrap()
}

/// Since epoch 1 these hosts have committed at least this percentage of what they would have
/// without liars, and still are voters.
fn assert_share(world: &World, honest: &[usize], undisturbed: u64, percent: u64) {
    let committed = least_epoch(world, honest) - 1;
    let phase = world.phase(honest[0]);
    assert!(
        100 * committed >= percent * undisturbed,
        "{committed} epochs instead of {undisturbed}; {phase:?}"
    );
    assert_voters(world, honest);
}

/// These hosts vote on the open epoch.
fn assert_voters(world: &World, honest: &[usize]) {
    let voters = world.voters(honest[0]);
    assert!(honest.iter().all(|host| voters.contains(host)), "voters are {voters:?} only");
}

/// `count` of the voters of `host`'s epoch as members: first those of `places`, with their
/// weights; the others have weight 0.
fn members(
    world: &World,
    host: usize,
    places: &[(usize, u64)],
    count: impl Fn(usize) -> usize,
) -> Vec<Member> {
    let voters = commit(world, host, world.epoch(host)).receipt.voters();
    let member = |voter: &Voter| {
        let place = places.iter().find(|(place, _)| world.name(*place) == voter.peer);
        let weight = place.map_or(0, |(_, weight)| *weight);
        (place.is_none(), Member { peer: voter.peer, log: voter.log, incarnation: 1, weight })
    };
    let mut all: Vec<_> = voters.iter().map(member).collect();
    all.sort_by_key(|(other, _)| *other);
    all.into_iter().map(|(_, member)| member).take(count(voters.len())).collect()
}

/// R38: the first attempt from `least` on that belongs to this voter of `host`'s open epoch.
fn its_attempt(world: &World, host: usize, voter: PeerId, least: Attempt) -> Attempt {
    let parent = world.series(host).unwrap().parent;
    let voters = commit(world, host, world.epoch(host)).receipt.voters();
    let mut turns: Vec<PeerId> = voters.iter().map(|voter| voter.peer).collect();
    turns.sort_by_key(|peer| order(Order::Turn, &world.run, &parent, 0, peer));
    let owns = |attempt: &Attempt| turns[*attempt as usize % turns.len()] == voter;
    (least..).find(owns).unwrap()
}

/// A free roster of `proposer` that claims to have heard every voter.
fn free_roster(
    world: &World,
    series: Series,
    attempt: Attempt,
    proposer: PeerId,
    members: Vec<Member>,
) -> Roster {
    let host = (0..).find(|host| world.series(*host) == Some(series)).unwrap();
    let voters = commit(world, host, world.epoch(host)).receipt.voters();
    // The Status of each voter, as simulated keys can sign it.
    let said = |voter: Voter| {
        let (log, done, holds_forced) = (voter.log, None, false);
        let status = Message::Status(Status { series, log, attempt, done, holds_forced });
        let signature = wire::seal(&Keypair::simulated(voter.peer), &world.run, status).signature();
        Heard { voter, done, holds_forced, signature }
    };
    let heard = if attempt > 1 { voters.into_iter().map(said).collect() } else { Vec::new() };
    let (adopt, keep) = (None, Vec::new());
    Roster { series, attempt, proposer, members, heard, adopt, trust: None, keep }
}
