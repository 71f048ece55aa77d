//! The members that are asked, and what they say: of themselves, and of those that they hear.
//! Nothing here is proved.
//!
//! A member is asked with a time limit and a limit of bytes, and nothing of it is believed beyond
//! being shown as its own words. Few are asked, [`ASKED_MAX`] in a turn, and each watcher chooses
//! them by the distance from its own key: so a thousand watchers spread over the members of a run
//! instead of asking the same four.

use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
    time::{Duration, Instant},
};

use futures::future::join_all;
use intellect_protocol::{
    base::id::{Digest, PeerId},
    message::{
        Answer, Ask, Head, Link, MEMBERS_MAX, PICTURE_BYTES_MAX, Picture, Receipt, Request, Row,
        wire,
    },
};
use tokio::time::timeout;

use super::ASKED_MAX;
use crate::net;

/// The members that answer, and how others were reported.
pub(super) struct Asked {
    /// Through this the members are asked.
    net: net::Handle,
    /// By the distance from this key the members are chosen, so that not all watchers ask the same
    /// ones.
    me: PeerId,
    /// What members said when they were asked last.
    pub(super) said: BTreeMap<PeerId, Picture>,
    /// What members said when they were asked before that.
    before: BTreeMap<PeerId, Picture>,
    /// Members whose last answer did not come: others are asked before them.
    late: BTreeSet<PeerId>,
    /// When the row of each peer was reported last.
    shown: BTreeMap<PeerId, Instant>,
}

impl Asked {
    /// Nobody was asked yet. `me` is the key of this watcher.
    pub(super) fn new(net: net::Handle, me: PeerId) -> Self {
        let (said, before) = (BTreeMap::new(), BTreeMap::new());
        Self { net, me, said, before, late: BTreeSet::new(), shown: BTreeMap::new() }
    }

    /// Asks members what they say of themselves and of others, those first that have answered
    /// before. Returns those whose answer makes no sense.
    ///
    /// All are asked at once, so a turn takes at most [`PATIENCE`]. What was said before counts for
    /// losses only: a member that does not answer says nothing.
    pub(super) async fn ask(&mut self) -> Vec<PeerId> {
        let mut near = self.net.sought().await.unwrap_or_default();
        self.late.retain(|peer| near.contains(peer));
        let is_new = |peer: &PeerId| !self.said.contains_key(peer);
        near.sort_by_key(|peer| (self.late.contains(peer), is_new(peer), self.distance(peer)));
        near.truncate(ASKED_MAX);
        let answers = join_all(near.into_iter().map(|peer| {
            let net = self.net.clone();
            async move { (peer, ask(&net, peer, &Request::Picture, PICTURE_BYTES_MAX).await) }
        }));
        let (mut said, mut wrong) = (BTreeMap::new(), Vec::new());
        for (peer, answer) in answers.await {
            match answer {
                Some(Some(Answer::Picture(picture))) if picture.rows.len() <= MEMBERS_MAX => {
                    said.insert(peer, picture);
                }
                Some(_) => wrong.push(peer),
                None => _ = self.late.insert(peer),
            }
        }
        self.before = mem::replace(&mut self.said, said);
        wrong
    }

    /// How far a peer is from this watcher, by XOR as in Kademlia. No member can aim at it, since
    /// the watcher draws its key anew at each start.
    fn distance(&self, peer: &PeerId) -> [u8; 32] {
        std::array::from_fn(|at| peer.0[at] ^ self.me.0[at])
    }

    /// The member with the latest head, without those of another lineage, and one that was late
    /// only if all were.
    pub(super) fn furthest(&self, apart: &BTreeSet<PeerId>) -> Option<(PeerId, Head)> {
        let all = self.said.iter().filter(|(peer, _)| !apart.contains(peer));
        let last = all.max_by_key(|(peer, said)| (!self.late.contains(*peer), said.head.epoch));
        last.map(|(peer, said)| (*peer, said.head))
    }

    /// Asks a member for its links from an epoch on, and for its head; an inner `None` where its
    /// answer makes no sense.
    pub(super) async fn lineage(
        &mut self,
        of: PeerId,
        from_epoch: u64,
    ) -> Option<Option<(Vec<Link>, Head)>> {
        let request = Request::Ask(Ask::Lineage { from_epoch });
        let answer = ask(&self.net, of, &request, wire::DIRECT_BYTES_MAX).await;
        if answer.is_some() {
            self.late.remove(&of);
        } else {
            self.late.insert(of);
        }
        Some(match answer? {
            Some(Answer::Lineage { links, head, openings: _ }) => Some((links, head)),
            Some(Answer::Chain(_) | Answer::Picture(_)) | None => None,
        })
    }

    /// Asks a member no more for a while. The network keeps it out, as a node does with a peer that
    /// has broken a rule.
    pub(super) fn leave(&mut self, peer: PeerId, why: &str) {
        self.said.remove(&peer);
        self.net.drop_peer(peer, why);
    }

    /// Members that say that the state after an epoch is another one than this.
    pub(super) fn contradicting(&self, epoch: u64, state: &Digest) -> Vec<PeerId> {
        let other =
            |(_, said): &(&PeerId, &Picture)| said.head.epoch == epoch && said.head.state != *state;
        self.said.iter().filter(other).map(|(peer, _)| *peer).collect()
    }

    /// What is said of each peer: by itself if it was asked, else by others. At most
    /// [`MEMBERS_MAX`] rows, those of asked members first.
    fn rows(&self) -> BTreeMap<PeerId, Row> {
        let all = || {
            self.said.iter().flat_map(|(peer, said)| said.rows.iter().map(move |row| (peer, row)))
        };
        let own = all().filter(|(peer, row)| row.peer == **peer);
        let mut rows: BTreeMap<PeerId, Row> = own.map(|(peer, row)| (*peer, *row)).collect();
        for (_, row) in all() {
            if rows.len() < MEMBERS_MAX {
                rows.entry(row.peer).or_insert(*row);
            }
        }
        rows
    }

    /// The mean of the losses that asked members of a receipt say they had in its epoch, by their
    /// weights, in this turn or the one before. `None` if none of them says a plausible one. It is
    /// shown and used for nothing.
    ///
    /// Only what a member says of itself counts. Others hear its loss before they hear that it is
    /// Ready, and so may name the loss of the next epoch.
    #[expect(clippy::cast_precision_loss, reason = "a number for people")]
    pub(super) fn loss(&self, receipt: &Receipt) -> Option<f64> {
        let (mut sum, mut tokens) = (0.0, 0.0);
        for member in receipt.members.iter().filter(|member| member.weight > 0) {
            let is_meant =
                |row: &&Row| row.peer == member.peer && ready_epoch(row) == receipt.series.epoch;
            let told = |said: &BTreeMap<PeerId, Picture>| {
                said.get(&member.peer)?.rows.iter().find(is_meant)?.loss.plausible()
            };
            if let Some(loss) = told(&self.said).or_else(|| told(&self.before)) {
                sum += f64::from(loss) * member.weight as f64;
                tokens += member.weight as f64;
            }
        }
        (tokens > 0.0).then(|| sum / tokens)
    }

    /// The rows to report now, and the peers that nobody names any more. Rows that were never
    /// reported, or longest ago, come first, so with many peers each has its turn.
    pub(super) fn report(&mut self, now: Instant) -> (Vec<Row>, Vec<PeerId>) {
        let rows = self.rows();
        let gone: Vec<_> =
            self.shown.keys().filter(|peer| !rows.contains_key(peer)).copied().collect();
        self.shown.retain(|peer, _| rows.contains_key(peer));
        let rested = |at: &Instant| now.saturating_duration_since(*at) >= ROW_EVERY;
        let mut due: Vec<Row> = rows.into_values().collect();
        due.retain(|row| self.shown.get(&row.peer).is_none_or(rested));
        due.sort_by_key(|row| self.shown.get(&row.peer).copied());
        due.truncate(ROWS_AT_ONCE);
        self.shown.extend(due.iter().map(|row| (row.peer, now)));
        (due, gone)
    }
}

/// The epoch of the `Ready` whose loss a row names: the open one while work is frozen, else the one
/// that was committed last.
fn ready_epoch(row: &Row) -> u64 {
    row.epoch.saturating_add(u64::from(row.ready > 0))
}

/// The answer to a question; an inner `None` where it makes no sense.
async fn ask(
    net: &net::Handle,
    peer: PeerId,
    request: &Request,
    bytes_max: usize,
) -> Option<Option<Answer>> {
    let answer = timeout(PATIENCE, net.fetch(peer, wire::request(request))).await.ok()?.ok()?;
    Some((answer.len() <= bytes_max).then(|| wire::open_answer(&answer)).flatten())
}

/// How long a member may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often the row of one peer is reported, and how many in a turn: as often as a node does.
const ROW_EVERY: Duration = Duration::from_secs(10);
const ROWS_AT_ONCE: usize = 4;
