//! What a watcher does every few seconds: it asks, proves, compares and reports.
//!
//! A turn asks up to four members for a picture of what they see, then takes the member with the
//! latest head and asks it for its links, which are proved one by one. Only when nothing is left to
//! prove, members are compared: they may say different states of the last epoch, and the next epoch
//! proves one of them.
//!
//! A member whose answer is wrong is asked no more and is named; one that follows another lineage
//! is only set apart, for it may be right. If most of them are apart, the watch forgets what it has
//! proved and begins at epoch 1 again.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use intellect_protocol::base::id::{Digest, PeerId};
use intellect_view::record::Text;
use tokio::{sync::watch, time::sleep};

use super::{
    EVERY, SOON, WatchError,
    lineage::{Decided, Disproof, Proven},
    members::Asked,
};
use crate::{
    figures::{count, number_of},
    manifest::Manifest,
    name::{Hex, PeerName},
    net,
    tell::{self, Console, events::Event},
};

/// A watcher that has found its run. Of past epochs it has the digests of the last ones and no
/// links, so its memory is bounded however long the run goes on.
pub(super) struct Watch {
    /// The manifest of the run that is watched.
    manifest: Manifest,
    console: Console,
    /// The members that answer questions.
    members: Asked,
    /// The lineage as far as its votes were checked here.
    proven: Proven,
    /// The last epoch that is proved, and the state after it as far as it is known.
    tip: Option<(Decided, Option<Digest>)>,
    /// The last epoch that an earlier start has reported, and the state after it. No epoch is
    /// reported until this one is proved as well, so that what people see does not go back.
    reported: Option<(u64, Text)>,
    /// The members that follow another lineage.
    apart: BTreeSet<PeerId>,
    /// What a member said when it refused this watcher.
    refused: watch::Receiver<Option<String>>,
    /// When the watch began, for what is said about a long search.
    began: Instant,
    /// Whether the search for a member was said.
    searching: bool,
    /// Whether all that is decided was proved at least once.
    caught_up: bool,
    /// The reason that was last reported why nothing goes on.
    waiting: Option<&'static str>,
}

impl Watch {
    pub(super) fn new(
        net: net::Handle,
        manifest: Manifest,
        me: PeerId,
        refused: watch::Receiver<Option<String>>,
        reported: Option<(u64, Text)>,
        console: Console,
    ) -> Self {
        Self {
            members: Asked::new(net, me),
            proven: Proven::new(&manifest),
            manifest,
            console,
            tip: None,
            reported,
            apart: BTreeSet::new(),
            refused,
            began: Instant::now(),
            searching: false,
            caught_up: false,
            waiting: None,
        }
    }

    /// Follows the run until no member was found at all. It returns with an error only.
    pub(super) async fn run(mut self) -> Result<(), WatchError> {
        loop {
            let pause = self.turn().await?;
            sleep(pause).await;
        }
    }

    /// Asks once. Returns when to ask again. The pause is shorter while nobody has answered, and
    /// shorter still while links are missing.
    pub(super) async fn turn(&mut self) -> Result<Duration, WatchError> {
        for peer in self.members.ask().await {
            self.leave(peer, NONSENSE);
        }
        let mut pause = EVERY;
        if self.members.said.is_empty() {
            self.nobody()?;
            pause = SOON;
        } else if self.prove().await {
            pause = SOON / 2;
        } else {
            self.compare();
        }
        self.report_members();
        Ok(pause)
    }

    /// No member answers: at the beginning a reason to end, later one to wait.
    fn nobody(&mut self) -> Result<(), WatchError> {
        let is_new = self.tip.is_none() && self.waiting.is_none();
        if is_new && self.began.elapsed() >= SEEK_PATIENCE {
            let (run, why) = (self.manifest.id, self.refused.borrow().clone());
            return Err(WatchError::Nobody { run, why });
        }
        if is_new && !self.searching && self.began.elapsed() >= SAID_AFTER {
            self.searching = true;
            let s = SEEK_PATIENCE.as_secs();
            self.console.say(&format!("looking for a member of the run, {s} s at most"));
        }
        if !is_new {
            let cure = "it has ended, or cannot be reached from here";
            self.wait("no-member", "waiting: no member of the run answers", cure);
        }
        Ok(())
    }

    /// Proves what the furthest member has more than is proved. Returns whether there may be more.
    ///
    /// One question is asked in a turn, about as many links as the member puts into one answer. A
    /// member that answers too late is not at fault; the next turn asks another one first. It asks
    /// from the last proved epoch on and not from the next one, so that a member of another lineage
    /// shows itself by that link.
    async fn prove(&mut self) -> bool {
        let reached = self.proven.reached();
        let Some((peer, head)) = self.members.furthest(&self.apart) else { return false };
        let known = self.tip.as_ref().is_none_or(|(_, state)| state.is_some());
        if head.epoch == reached && known {
            return false;
        }
        let from_epoch = reached.min(head.epoch).max(1);
        let (links, said) = match self.members.lineage(peer, from_epoch).await {
            Some(Some(answer)) => answer,
            Some(None) => {
                self.leave(peer, NONSENSE);
                return true;
            }
            None => return false,
        };
        for link in links {
            match self.proven.take(link) {
                Ok(Some(epoch)) => self.proved(epoch),
                Ok(None) => {}
                Err(Disproof::Other) => {
                    self.part(peer);
                    return false;
                }
                Err(why) => {
                    self.leave(peer, &why.to_string());
                    return true;
                }
            }
        }
        let now = self.proven.reached();
        if now == reached && head.epoch > reached {
            let why = format!(
                "it says that it is at epoch {}, and proves none after epoch {reached}",
                head.epoch
            );
            self.leave(peer, &why);
            return true;
        }
        if said.epoch == now {
            self.arrive(said.state);
        }
        said.epoch > now
    }

    /// An epoch is proved, and with it the state after the one before. A member that named another
    /// state for that one has lied, since the voters of the next epoch have signed it.
    fn proved(&mut self, next: Decided) {
        if let Some((epoch, state)) = self.tip.take() {
            for liar in self.members.contradicting(epoch.number, &next.parent) {
                let why = format!(
                    "it named another state after epoch {} than the votes of the next epoch",
                    epoch.number
                );
                self.leave(liar, &why);
            }
            if state != Some(next.parent) {
                self.committed(&epoch, next.parent);
            }
        }
        self.tip = Some((next, None));
    }

    /// Everything that is decided is proved; the last state is said.
    fn arrive(&mut self, said: Digest) {
        let Some((epoch, state)) = &mut self.tip else { return };
        let tokens = epoch.tokens;
        if state.is_none() {
            *state = Some(said);
            let epoch = epoch.clone();
            self.committed(&epoch, said);
        }
        let has_waited = self.waiting.take().is_some();
        if self.reported.is_none() && (!self.caught_up || has_waited) {
            let epoch = self.proven.reached();
            self.console.emit(Some(epoch), Event::CaughtUp { state: Hex::from(said), tokens });
            self.console.say(&format!(
                "watching: epochs 1 to {epoch} are proved, and {} asked",
                asked(self.members.said.len())
            ));
            self.caught_up = true;
        }
    }

    /// Reports an epoch as committed, with a loss if members speak of this epoch. Traffic and times
    /// are 0 in the event: a watcher is in no ring, and has none.
    fn committed(&mut self, epoch: &Decided, state: Digest) {
        if let Some((last, known)) = &self.reported {
            self.console.say_over(&format!("proving: epoch {}", epoch.number));
            if epoch.number == *last && state.hex() == known.as_str() {
                self.reported = None;
            }
            return;
        }
        let members = tell::contributors(&epoch.receipt);
        let loss = self.members.loss(&epoch.receipt);
        if self.caught_up {
            let ring = members.iter().filter(|(_, weight)| *weight > 0).count();
            let loss = loss.map_or_else(String::new, |loss| format!(", loss {loss:.3}"));
            self.console.say(&format!(
                "epoch {}: ring of {ring}{loss}, {} tokens, state {state}",
                epoch.number,
                count(epoch.tokens)
            ));
        } else {
            self.console.say_over(&format!("proving: epoch {}", epoch.number));
        }
        let event = Event::Committed {
            attempt: epoch.attempt,
            members: members.iter().map(|(peer, _)| (*peer).into()).collect(),
            weights: members.iter().map(|(_, weight)| *weight).collect(),
            state: state.into(),
            update: epoch.receipt.update.into(),
            tokens: epoch.tokens,
            loss,
            sync_ms: 0,
            sent_bytes: 0,
            received_bytes: 0,
            forkable_since: None,
            times: tell::events::Times::default(),
        };
        self.console.emit(Some(epoch.number), event);
    }

    /// Nothing is to be proved: compares what members say of the last state.
    fn compare(&mut self) {
        let (number, state) = match &self.tip {
            Some((epoch, Some(state))) => (epoch.number, *state),
            None if self.members.said.values().all(|said| said.head.epoch == 0) => {
                let text = "waiting: the run has not begun";
                return self.wait("founders", text, "it needs more peers");
            }
            Some((_, None)) | None => return,
        };
        self.apart.retain(|peer| {
            self.members.said.get(peer).is_some_and(|said| said.head.state != state)
        });
        let shown = self.reported.as_ref().map(|(last, _)| *last);
        let is_other = shown.is_some_and(|last| number > last);
        if is_other || 2 * self.apart.len() > self.members.said.len() {
            return self.begin_again();
        }
        let furthest = self.members.furthest(&self.apart).map(|(_, head)| head.epoch);
        if let (Some(last), true) = (shown, furthest == Some(number)) {
            let text = format!(
                "waiting: the folder shows epoch {last} already, and the members are at epoch {number}"
            );
            return self.wait("members-differ", &text, "it goes on once they are further");
        }
        match self.members.contradicting(number, &state).first() {
            Some(other) if !self.apart.contains(other) => {
                let other = PeerName::from(*other);
                let other = other.short();
                let text =
                    format!("waiting: member {other} names another state after epoch {number}");
                self.wait("members-differ", &text, "the next epoch proves one");
            }
            _ if self.waiting.is_some() => self.arrive(state),
            _ => {}
        }
    }

    /// A member follows another lineage, which is said once.
    fn part(&mut self, peer: PeerId) {
        self.apart.insert(peer);
        let who = PeerName::from(peer);
        self.console
            .say(&format!("members differ: {} follows another lineage of this run", who.short()));
    }

    /// Most members follow another lineage than the one that was proved or reported.
    fn begin_again(&mut self) {
        self.console
            .say("most members follow another lineage of this run: it is proved from epoch 1 on");
        self.proven = Proven::new(&self.manifest);
        (self.tip, self.reported, self.caught_up) = (None, None, false);
        self.apart.clear();
    }

    /// A member has lied, or is broken.
    fn leave(&mut self, peer: PeerId, why: &str) {
        let who = PeerName::from(peer);
        self.console.say(&format!("member {} is asked no more: {why}", who.short()));
        self.console.emit(None, Event::Fault { who, why: why.to_owned(), proof: None });
        self.members.leave(peer, why);
    }

    /// Reports why nothing goes on, once for each reason. It counts as waiting until an epoch is
    /// proved, or until all agree again.
    fn wait(&mut self, reason: &'static str, text: &str, cure: &str) {
        if self.waiting.replace(reason) != Some(reason) {
            self.console.say(&format!("{text}; {cure}"));
            let (reason, text, cure) = (reason.to_owned(), text.to_owned(), cure.to_owned());
            self.console.emit(None, Event::Waiting { reason, text, cure });
        }
    }

    /// Reports what members say of some peers.
    fn report_members(&mut self) {
        let (rows, gone) = self.members.report(Instant::now());
        for who in gone {
            self.console
                .emit(None, Event::PeerLost { who: who.into(), cause: "silent".to_owned() });
        }
        for row in rows {
            self.console.emit(None, tell::connections::said(&row, None, None));
        }
    }
}

fn asked(members: usize) -> String {
    let verb = if members == 1 { "is" } else { "are" };
    format!("{} {verb}", number_of(members, "member"))
}

/// What is said of a member whose answer cannot be decoded, or answers another question.
const NONSENSE: &str = "its answer makes no sense";
/// How long members are looked for at the beginning.
const SEEK_PATIENCE: Duration = Duration::from_secs(30);
/// After which the search is said. Most members are found before, and then nothing is said.
const SAID_AFTER: Duration = Duration::from_secs(2);
