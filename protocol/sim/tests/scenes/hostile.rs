//! Keys that lie: each scene is an attack on a run of honest peers, which must not notice much of it. What an
//! attacker may cost is said in the scene; that no honest peer is blamed for it is checked at each step.
//!
//! A [`Liar`] is a key that says what the scene likes: a stranger's, or that of a voter whose process has
//! ended. It hears what hosts say to each other at once, which no real one does.

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
use intellect_protocol_sim::network::Fate;
use intellect_protocol_sim::world::scene::stranger;

use super::*;

/// The number of an attempt.
type Attempt = u64;

/// One minute of virtual time.
const MINUTE_MS: u64 = 60_000;

/// Somebody who has a key, and says with it what it likes.
struct Liar {
    name: PeerId,
    log: LogId,
    incarnation: u64,
    phase: Phase,
    /// The weight that it declares; 0 is not Ready.
    ready: u64,
    count: u64,
    beat_ms: u64,
    /// Epochs by which the head that it tells of is greater than that of whoever hears it.
    ahead: u64,
}

impl Liar {
    /// A key that is in no receipt.
    fn stranger(name: u8) -> Self {
        Self::new(stranger(name), LogId([name; 16]), 1)
    }

    /// The key of a voter of `host`'s open epoch. A process that it may have is another liar's.
    fn voter(stage: &World, of: usize, host: usize) -> Self {
        let name = stage.name(of);
        let voters = commit(stage, host, stage.epoch(host)).receipt.voters();
        let log = voters.iter().find(|voter| voter.peer == name).unwrap().log;
        Self::new(name, log, 100)
    }

    fn new(name: PeerId, log: LogId, incarnation: u64) -> Self {
        let (phase, ready, ahead) = (Phase::Train, 0, 0);
        Self { name, log, incarnation, phase, ready, count: 0, beat_ms: 0, ahead }
    }

    /// Says to some hosts that it lives, when that is due: to each as if it stood beside it.
    fn live(&mut self, stage: &mut World, to: &[usize]) {
        if stage.now_ms < self.beat_ms {
            return;
        }
        self.beat_ms = stage.now_ms + BEAT_MS;
        self.count += 1;
        for host in to {
            self.beat(stage, *host);
        }
    }

    fn beat(&self, stage: &mut World, host: usize) {
        let Some(mut head) = stage.head(host) else { return };
        if self.ahead > 0 {
            head.epoch += self.ahead;
            head.tokens += 1_000 * self.ahead;
            head.state = Digest(self.name.0);
        }
        let beat = Heartbeat {
            count: self.count,
            head,
            series: stage.series(host).unwrap(),
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
        stage.say_as(&[host], self.name, &Message::Heartbeat(beat));
    }

    /// Refuses a roster to its proposer, and says nothing of why.
    fn refuse(&self, stage: &mut World, roster: &Roster) {
        let proposer = stage.host(&roster.proposer).unwrap();
        let Some(head) = stage.head(proposer) else { return };
        let what = wire::roster_digest(&stage.run, roster);
        let (series, reason) = (roster.series, Refusal::Promised);
        let refuse = Refuse { series, what, promised: 0, head, reason };
        stage.say_as(&[proposer], self.name, &Message::Refuse(refuse));
    }

    /// Asks some hosts for what they have voted for.
    fn ask(&self, stage: &mut World, to: &[usize], series: Series, attempt: Attempt) {
        let query = Query { series, attempt, lost: Vec::new() };
        stage.say_as(to, self.name, &Message::Query(query));
    }
}

/// How often a liar beats, in milliseconds.
const BEAT_MS: u64 = 400;

/// What hosts say to each other, and who said it: each message once for as long as nobody has read it.
type Overheard = Noted<VecDeque<(usize, Message)>>;

fn overhear(stage: &mut World) -> Overheard {
    let heard = Overheard::default();
    let noted = Rc::clone(&heard);
    stage.direct(move |from, _, message| {
        let mut heard = noted.borrow_mut();
        if !heard.iter().any(|(who, said)| *who == from && said == message) {
            heard.push_back((from, message.clone()));
        }
        Fate::Deliver
    });
    heard
}

/// Plays for so long while liars live beside some hosts; `answer` is what they do with each message that
/// is said, and `None` every 2 ms.
fn lie(
    stage: &mut World,
    to: &[usize],
    liars: &mut [Liar],
    length_ms: u64,
    mut answer: impl FnMut(&mut World, &mut [Liar], Option<(usize, Message)>),
) -> Played {
    let heard = overhear(stage);
    let end_ms = stage.now_ms + length_ms;
    while stage.now_ms < end_ms {
        liars.iter_mut().for_each(|liar| liar.live(stage, to));
        answer(stage, liars, None);
        let said: Vec<_> = heard.borrow_mut().drain(..).collect();
        for message in said {
            answer(stage, liars, Some(message));
        }
        stage.play(2)?;
    }
    stage.relent();
    Ok(())
}

/// A run of `count` peers that has committed epoch 1; they are its named founders, where `named`.
fn a_run(count: usize, named: bool) -> Result<(World, Vec<usize>), Violation> {
    if !named {
        return founded(count, 0, None);
    }
    let mut stage = scene(count, count, None);
    let all: Vec<usize> = (0..count).collect();
    stage.start(&all);
    assert!(stage.until(END_MS, |stage| all_at(stage, &all, 1))?);
    let order = stage.voters(0);
    Ok((stage, order))
}

/// The epochs that such a run commits in so long where nobody lies.
fn undisturbed(count: usize, named: bool, length_ms: u64) -> Result<u64, Violation> {
    let (mut stage, all) = a_run(count, named)?;
    stage.play(length_ms)?;
    Ok(least_epoch(&stage, &all) - 1)
}

fn least_epoch(stage: &World, hosts: &[usize]) -> u64 {
    hosts.iter().map(|host| stage.epoch(*host)).min().unwrap()
}

/// Since epoch 1 these hosts have committed at least so many percent of what they would have without
/// liars, and still are voters.
fn assert_share(stage: &World, honest: &[usize], undisturbed: u64, percent: u64) {
    let committed = least_epoch(stage, honest) - 1;
    let phase = stage.phase(honest[0]);
    assert!(
        100 * committed >= percent * undisturbed,
        "{committed} epochs instead of {undisturbed}; {phase:?}"
    );
    assert_voters(stage, honest);
}

/// These hosts vote on the open epoch.
fn assert_voters(stage: &World, honest: &[usize]) {
    let voters = stage.voters(honest[0]);
    assert!(honest.iter().all(|host| voters.contains(host)), "voters are {voters:?} only");
}

/// `count` of the voters of `host`'s epoch as members, of all: first those of `places`, with their weights; the
/// others have none.
fn members(
    stage: &World,
    host: usize,
    places: &[(usize, u64)],
    count: impl Fn(usize) -> usize,
) -> Vec<Member> {
    let voters = commit(stage, host, stage.epoch(host)).receipt.voters();
    let member = |voter: &Voter| {
        let place = places.iter().find(|(place, _)| stage.name(*place) == voter.peer);
        let weight = place.map_or(0, |(_, weight)| *weight);
        (place.is_none(), Member { peer: voter.peer, log: voter.log, incarnation: 1, weight })
    };
    let mut all: Vec<_> = voters.iter().map(member).collect();
    all.sort_by_key(|(other, _)| *other);
    all.into_iter().map(|(_, member)| member).take(count(voters.len())).collect()
}

/// A free roster of `proposer`, which says that it has heard everybody.
fn free_roster(
    stage: &World,
    series: Series,
    attempt: Attempt,
    proposer: PeerId,
    members: Vec<Member>,
) -> Roster {
    let host = (0..).find(|host| stage.series(*host) == Some(series)).unwrap();
    let voters = commit(stage, host, stage.epoch(host)).receipt.voters();
    // What each of them has answered.
    let said = |voter: Voter| {
        let (log, done, holds_forced) = (voter.log, None, false);
        let status = Message::Status(Status { series, log, attempt, done, holds_forced });
        let signature = wire::seal(&Keypair::simulated(voter.peer), &stage.run, status).signature();
        Heard { voter, done, holds_forced, signature }
    };
    let heard = if attempt > 1 { voters.into_iter().map(said).collect() } else { Vec::new() };
    let (adopt, keep) = (None, Vec::new());
    Roster { series, attempt, proposer, members, heard, adopt, trust: None, keep }
}
