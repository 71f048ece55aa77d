//! Members of a run that lie, or never finish their work.
//!
//! A member that lies is a real node, which computes and keeps the rules, and a *voice*: a
//! connection of its own that signs with the member's key. The voice hears what the node says, and
//! says beside it what the simulator's behaviour adds. So it plays each behaviour that suppresses
//! nothing. What the simulator shows to some members only goes to all of them here, since gossip
//! would bring it to the others a moment later.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use e2e::Process;
use intellect_protocol::{
    access::{
        admit::code::Code,
        handshake::{Outcome, Reception, Visit},
    },
    base::{base58, id::LogId, sign::Keypair},
    history::lineage::Capacity,
    manifest::TOKENS_PER_SECOND_MAX,
    message::{Message, Voter, wire},
};
use intellect_protocol_sim::liars::{Cue, Facts, Liar};
use libp2p::{StreamProtocol, swarm::SwarmEvent};

use super::{
    rogue::Rogue,
    run::{Cost, Run},
    stranger::{Stranger, VERSION},
};

/// Protocol of the handshake of a run of invited peers.
const ADMIT: StreamProtocol = StreamProtocol::new("/intellect/admit/1");

/// The nodes of the run in which some members lie.
const MEMBERS: usize = 8;
/// The last of them, which lie: as many as eight voters outlast.
const LIARS: usize = 2;

/// Honest voters of the run in which one more is never Ready.
const HONEST: usize = 5;
/// How long each of them trains in an epoch, in seconds. In one epoch of seventeen they wait for the
/// sixth voter, for 4 s at least. That would be a third of the time if epochs were as short as
/// those of the other runs.
const TRAINS: u64 = 4;
/// The epoch by which that wait has become as rare as it gets: it comes in the epochs 1, 3, 6, 11
/// and 20, and then in each seventeenth.
const SETTLED: u64 = 21;
/// How much longer than others this run is measured, so that several waits are in that time.
const TIMES: u32 = 3;
/// How long it may take until then.
const SETTLING: Duration = Duration::from_secs(600);

/// Two of eight members lie in this way, after an equally long calm.
pub(super) fn lie(way: &'static str, length: Duration) -> Result<Cost> {
    let settings = ["members.min_peers=8", "trust.level=invited", "members.tolerate=liars"];
    let mut run = Run::start(MEMBERS, MEMBERS - LIARS, &settings)?;
    run.wait_for_founding()?;
    let calm = run.during(|| std::thread::sleep(length))?;
    let mut voice = Voice::enter(way, &mut run)?;
    let attack = run.during(|| voice.speak(length))?;
    let liars: Vec<String> =
        voice.liars.iter().map(|(key, _)| base58::encode(&key.peer())).collect();
    run.cost(&calm, &attack, &liars)
}

/// One voter of six is never Ready. The calm is that of five honest voters in a run of their own:
/// what they would reach without the sixth.
pub(super) fn never_ready(length: Duration) -> Result<Cost> {
    let length = TIMES * length;
    let epoch = format!("epoch.amount={TRAINS}");
    let start = |voters: usize| {
        let founders = format!("members.min_peers={voters}");
        Run::start(HONEST, HONEST, &["epoch.budget=seconds", &epoch, &founders])
    };
    let mut alone = start(HONEST)?;
    alone.wait_for_founding()?;
    let calm = alone.during(|| std::thread::sleep(length))?;
    drop(alone);

    let mut run = start(HONEST + 1)?;
    let capacity = Capacity::Timed { tokens_max: Some(TRAINS * TOKENS_PER_SECOND_MAX) };
    let mut rogue = Rogue::join(180, &mut run.nodes, HONEST + 1, capacity);
    let begin = Instant::now();
    while run.newest()? < SETTLED {
        ensure!(begin.elapsed() < SETTLING, "epoch {} after {SETTLING:?}", run.newest()?);
        rogue.live(Duration::from_secs(1));
    }
    let attack = run.during(|| rogue.live(length))?;
    let (series, voters) = rogue.state.series();
    let votes = voters.iter().any(|voter| voter.peer == rogue.stranger.key.peer());
    let newest = run.newest()?;
    ensure!(votes && series.epoch + 2 > newest, "at {series:?}, and not in epoch {newest}");
    run.cost(&calm, &attack, &[rogue.stranger.name()])
}

/// Says in the names of members what their own nodes do not say.
struct Voice {
    /// Its connections to all nodes. It is admitted, and sends no heartbeat, so it is no peer.
    stranger: Stranger,
    /// The key of each lying member, and its behaviour.
    liars: Vec<(Keypair, Liar)>,
    /// Counts its messages, which makes each one new to gossip.
    repeats: u32,
}

impl Voice {
    fn enter(way: &'static str, run: &mut Run) -> Result<Self> {
        let liar = |node| -> Result<(Keypair, Liar)> {
            Ok((run.key(node)?, Liar::named(way, 1).context("a way to lie")?))
        };
        let liars = (MEMBERS - LIARS..MEMBERS).map(liar).collect::<Result<_>>()?;
        let code: Code = run.code.as_ref().context("an invite code")?.parse()?;
        let mut stranger = Stranger::new(220, &mut run.nodes[0], VERSION);
        let visit = Visit::Enter(Some(code.ticket(&stranger.key.peer())?)).to_bytes();
        for node in &mut run.nodes {
            show(&mut stranger, node, &visit)?;
        }
        // Both sides subscribe to the other's gossip.
        stranger.live(Duration::from_secs(2));
        Ok(Self { stranger, liars, repeats: 0 })
    }

    /// Hears and speaks for so long.
    fn speak(&mut self, length: Duration) {
        let end = Instant::now() + length;
        while Instant::now() < end {
            self.stranger.live(Duration::from_millis(5));
            for heard in std::mem::take(&mut self.stranger.side.heard) {
                self.add_to(&heard.bytes);
            }
        }
    }

    /// Says what a behaviour adds to this message, if a lying member has sent it.
    fn add_to(&mut self, bytes: &[u8]) {
        let run = self.stranger.run;
        let author = wire::claimed_author(bytes.get(4..).unwrap_or_default());
        let mut liars = self.liars.iter_mut();
        let Some((key, liar)) = liars.find(|(key, _)| Some(key.peer()) == author) else { return };
        let Ok(message) = wire::open_gossip(&run, bytes) else { return };
        let me = Voter { peer: key.peer(), log: LogId([9; 16]) };
        let facts = Facts { run, me, is_stranger: false, stands: &[] };
        let (lies, _) = liar.act(&facts, Cue::Says(message.body()));
        let mut said: Vec<Message> = Vec::new();
        for lie in lies {
            if said.contains(&lie.message) {
                continue;
            }
            said.push(lie.message.clone());
            self.repeats += 1;
            let sealed = wire::seal(key, &run, lie.message);
            self.stranger.gossip(false, wire::gossip(self.repeats, &sealed));
        }
    }
}

/// Dials a node of a run of invited peers, and shows a ticket to it.
fn show(stranger: &mut Stranger, node: &mut Process, visit: &[u8]) -> Result<()> {
    let host = stranger.dial(node);
    stranger.until("a connection", |event| match event {
        SwarmEvent::ConnectionEstablished { peer_id, .. } => (*peer_id == host).then_some(()),
        _ => None,
    });
    let answer = stranger.ask(host, ADMIT, visit).context("no answer to the ticket")?;
    let reception = Reception::from_bytes(&answer).context("no reception")?;
    ensure!(reception.outcome == Outcome::Welcome, "{:?}", reception.outcome);
    Ok(())
}
