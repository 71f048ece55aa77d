//! `watch`: a look at a run from outside, without training and without being in its gossip.
//!
//! A watcher has a key of its own for each start, sends no heartbeat, and is in no roster. It asks
//! at most [`ASKED_MAX`] members every [`EVERY`]. What it learns it reports as a node would: as
//! events, which the page, the lines and a replay show. Epochs, members, weights and tokens are
//! proved ([`lineage`]). Phases, losses, round trips, and the state after the last epoch are what
//! members say ([`members`]).
//!
//! Four loops work here: one asks and proves ([`follow::Watch`]), one takes what the network
//! reports ([`drain`]), one publishes the picture, and one writes the folder of `--to`. Nothing is
//! stored but that folder, and its loop has ended before it is written for the last time.
//!
//! In a run of invited peers a watcher needs an invite to be answered, and shows a ticket that it
//! makes of it. It takes part in no epoch, so no receipt has the ticket and the invite is not used
//! up.

mod follow;
mod lineage;
mod members;

use std::{
    future, io,
    path::{Path, PathBuf},
    time::Duration,
};

use intellect_protocol::{
    access::{
        admit::{Denied, Level, code::Code},
        handshake::{Outcome, Visit},
    },
    base::{
        base58,
        id::{PeerId, RunId},
    },
};
use intellect_view::{folder::Folder, replay::Player, stage::Seen};
use tokio::{sync::watch, task::JoinSet, time::sleep};
use tokio_util::sync::CancellationToken;

use self::follow::Watch;
use crate::{
    cli::watch::WatchArgs,
    config::{self, LocalError, RunPrefix, Voice},
    enter::{EnterError, choose},
    identity::Identity,
    manifest::Manifest,
    name::PeerName,
    net::{self, Net, NetError, address::Address},
    os::{self, PathError, cannot},
    page::{Page, PageError},
    readers,
    tell::{
        Console,
        events::{Event, Sink},
    },
};

/// Why a run is not shown, or no longer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WatchError {
    /// The command line makes no sense.
    #[error(transparent)]
    Usage(#[from] LocalError),
    #[error(transparent)]
    Page(#[from] PageError),
    /// The folder of `--to` cannot be written, or has files of somebody else.
    #[error(transparent)]
    Folder(#[from] PathError),
    #[error(transparent)]
    Net(#[from] NetError),
    /// Nobody offers the run that is meant. Or several runs are offered, and none was chosen.
    #[error(transparent)]
    Run(#[from] EnterError),
    /// The folder of `--to` has another run, which would be lost.
    #[error(
        "--to: the folder shows run {shown:.8}, and the run that is offered is {run}: name another folder, or the \
         run with --run"
    )]
    AnotherRun {
        /// The run in the folder, in hex.
        shown: String,
        run: RunId,
    },
    /// Nobody may look at the run without an invite.
    #[error(
        "run {0} takes invited peers only, and shows itself to nobody else: ask its organiser for an invite, and give \
         it with --invite; looking does not use it up"
    )]
    Invited(RunId),
    /// The invite lets nobody look.
    #[error(transparent)]
    Denied(#[from] Denied),
    /// The invite is for one key, which this command does not have.
    #[error(
        "this invite admits one peer by its name, and a watcher has a key of its own: ask the organiser for an invite \
         that names no peer"
    )]
    Named,
    /// Members were looked for, and none has answered.
    #[error(
        "no member of run {run} has answered{}: it has ended or has not begun, or its members cannot be reached from here",
        why.as_ref().map_or_else(String::new, |why| format!(" ({why})"))
    )]
    Nobody {
        run: RunId,
        /// The refusal of a member, if one refused.
        why: Option<String>,
    },
    /// The system refused threads, signals or random numbers.
    #[error("cannot start")]
    Start(#[source] io::Error),
}

/// Which run is looked at, and by which way.
#[derive(Clone)]
struct Target {
    bootstrap: Vec<Address>,
    prefix: Option<RunPrefix>,
    invite: Option<Code>,
}

/// Shows a run until Ctrl-C, or until none of its members was found.
///
/// # Errors
/// [`WatchError::Nobody`] only at the beginning: once a member has answered, silence is waited for
/// without an end, since a run may pause.
pub(crate) fn run(args: &WatchArgs) -> Result<(), WatchError> {
    let invite = config::given_invite(args.invite.clone(), false)?;
    let target = Target {
        bootstrap: config::addresses("bootstrap", &args.bootstrap, net::address::parse_entry)?,
        prefix: config::run_of(args.run.as_deref(), invite.as_ref())?,
        invite,
    };
    let page = Page::open(&args.page)?;
    let folder = args.to.as_ref().map(|to| {
        os::refuse_file(to).and_then(|()| Folder::open(to)).map_err(cannot("write to", to))
    });
    let folder = folder.transpose()?;
    let runtime = os::runtime().map_err(WatchError::Start)?;
    let result = runtime.block_on(show(target, page, folder, args.crowd.get()));
    // Nobody waits for what still runs.
    runtime.shutdown_background();
    result
}

/// Starts what shows the run and what follows it, and takes the lines away at the end. With a
/// `crowd` the other watchers report to nobody: they only cause the traffic that is to be measured.
async fn show(
    target: Target,
    page: Option<Page>,
    folder: Option<Folder>,
    crowd: usize,
) -> Result<(), WatchError> {
    let mut interrupts = os::Interrupts::new().map_err(WatchError::Start)?;
    // Keys of watchers are for this process only, and never stored.
    let key = Identity::random().map_err(WatchError::Start)?;
    let path = folder.as_ref().map(Folder::events);
    let sink = Sink::open(path.as_deref(), writer(path.as_deref(), key.peer()));
    let sink = sink.map_err(cannot("write to", path.as_deref().unwrap_or(&PathBuf::new())))?;
    let (console, seen) = Console::shown(sink, Voice::Sentences, PathBuf::new());
    let mut tasks = JoinSet::new();
    if let Some(page) = page {
        console.say(&page.sentence());
        tasks.spawn(page.serve(seen.clone()));
    }
    tasks.spawn(readers::publish(console.clone(), seen.clone()));
    for _ in 1..crowd {
        let (target, key) = (target.clone(), Identity::random().map_err(WatchError::Start)?);
        let console =
            Console::new(Sink::new(None, key.peer().into()), Voice::Quiet, PathBuf::new());
        tasks.spawn(async move {
            if let Err(error) = follow(target, &key, None, console).await {
                tracing::warn!(%error, "one of the crowd has ended");
            }
        });
    }
    let earlier = folder.as_ref().map(|folder| (folder, &seen));
    let ended = tokio::select! {
        ended = follow(target, &key, earlier, console.clone()) => ended,
        () = interrupts.next() => Ok(()),
        () = write(folder.as_ref(), &console, &seen) => Ok(()),
    };
    console.ended();
    console.publish(&seen);
    console.take_lines_away();
    if let Some(Err(error)) = folder.map(|folder| folder.write(&seen)) {
        tracing::warn!(%error, "the folder is not written");
    }
    ended
}

/// The name under which events are written: that of the first start in a folder, since a replay
/// follows one writer. The key is not kept with it, because everybody may read the folder.
fn writer(events: Option<&Path>, me: PeerId) -> PeerName {
    let earlier = events.and_then(|path| Player::open(&[path.to_owned()], true).ok());
    let first = earlier.as_ref().and_then(Player::first_writer);
    first.and_then(|name| base58::decode(name.as_str())).unwrap_or(me).into()
}

/// Writes the folder again and again, if there is one. A refusal is said once.
async fn write(folder: Option<&Folder>, console: &Console, seen: &Seen) {
    let Some(folder) = folder else { return future::pending().await };
    let mut refused = false;
    loop {
        // This is on the main thread, which may wait for a disk: the network's tasks have others.
        let written = folder.write(seen);
        if let (Err(error), false) = (&written, refused) {
            console.say(&format!("the folder of --to is not written: {error}; it is tried again"));
        }
        refused = written.is_err();
        sleep(WRITE_EVERY).await;
    }
}

/// Finds the run and its members, and reports what they prove and say, until an error.
/// The picture begins with what an `earlier` start has written to this folder, and goes on from there.
async fn follow(
    target: Target,
    key: &Identity,
    earlier: Option<(&Folder, &Seen)>,
    mut console: Console,
) -> Result<(), WatchError> {
    let config =
        net::Config { key_seed: key.seed, bootstrap: target.bootstrap, ..net::Config::default() };
    let stop = CancellationToken::new();
    let _stop = stop.clone().drop_guard();
    let net = net::start(config, stop)?;
    let (manifest, from) = choose::from_network(&net, target.prefix.as_ref(), &console).await?;
    let run = manifest.id;
    if let Some(shown) = earlier.and_then(|(folder, _)| folder.run())
        && shown != run.hex()
    {
        return Err(WatchError::AnotherRun { shown: shown.to_owned(), run });
    }
    choose::report(&manifest, from, &console);
    console.set_run(run);
    let reported = earlier.and_then(|(folder, seen)| {
        console.recall(&folder.events());
        console.publish(seen);
        seen.committed()
    });
    console.emit(None, Event::Watching { version: env!("CARGO_PKG_VERSION").to_owned() });
    let visit = visit(&manifest, target.invite.as_ref(), &key.peer())?;
    // The network lives as long as this.
    let _ = net.handle.seek(manifest.id, CONNECTED_MAX).await;
    if let Some(visit) = visit {
        let _ = net.handle.set_admit_request(&visit).await;
    }
    let (handle, refused) = (net.handle.clone(), watch::Sender::default());
    let watch = Watch::new(handle, manifest, key.peer(), refused.subscribe(), reported, console);
    let mut tasks = JoinSet::new();
    tasks.spawn(drain(net, refused));
    watch.run().await
}

/// What lets a watcher ask the members of this run; nothing in an open run.
///
/// # Errors
/// [`WatchError::Invited`] without an invite, [`WatchError::Named`] with one of another peer.
fn visit(
    manifest: &Manifest,
    invite: Option<&Code>,
    me: &PeerId,
) -> Result<Option<Visit>, WatchError> {
    match (manifest.run.trust.level, invite) {
        (Level::Open, _) => Ok(None),
        (Level::Invited, None) => Err(WatchError::Invited(manifest.id)),
        (Level::Invited, Some(code)) => match code.ticket(me) {
            Ok(ticket) => Ok(Some(Visit::Enter(Some(ticket)))),
            Err(Denied::AnotherPeer { .. }) => Err(WatchError::Named),
            Err(denied) => Err(denied.into()),
        },
    }
}

/// Takes what the network reports, of which only refusals matter here. The channels of the network
/// are bounded, so somebody has to read them even where nothing of it is wanted. It ends with the
/// network.
async fn drain(mut net: Net, refused: watch::Sender<Option<String>>) {
    loop {
        tokio::select! {
            Some(stream) = net.rings.recv() => drop(stream),
            event = net.events.recv() => match event {
                Some(net::Event::AdmitReply { reply, .. }) => match reply.outcome {
                    Outcome::Welcome => _ = refused.send_replace(None),
                    Outcome::Refused(why) => _ = refused.send_replace(Some(why)),
                },
                Some(_) => {}
                None => return,
            },
        }
    }
}

/// Members that are asked: two can lie, and two others contradict them.
const ASKED_MAX: usize = 4;
/// Members that a watcher is connected with: some more, in place of those that go.
const CONNECTED_MAX: usize = 2 * ASKED_MAX;
/// How often each of them is asked. So fifty watchers cost each of four members 1.1 % of a core; twice
/// as often it was 1.7 % (`docs/PERFORMANCE.md`).
const EVERY: Duration = Duration::from_secs(4);
/// The pause in place of it while nobody has answered; half of it while links are missing.
const SOON: Duration = Duration::from_millis(500);
/// How often the folder of `--to` is written.
const WRITE_EVERY: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests;
