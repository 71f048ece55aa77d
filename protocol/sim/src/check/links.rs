//! R42: no ring has two neighbours that had both reported, one heartbeat before, that
//! they have no direct connection, if the newest report of one of them has reached the proposer.
//!
//! A proposer does more: it keeps two members apart if either names the other. Only a pair of which
//! both name each other is checked.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::{Check, Process, Verdict, require};
use intellect_protocol::base::id::{Digest, PeerId};
use intellect_protocol::message::wire;
use intellect_protocol::message::{Heartbeat, Message, Roster, Series};

/// Heartbeats of one peer that are remembered.
const BEATS: usize = 16;

/// What a peer reported about its connections.
#[derive(Clone, Debug)]
struct Said {
    /// When it was sent, in virtual milliseconds.
    at_ms: u64,
    /// The series whose voters it is about.
    series: Series,
    /// The voters of that series to which its author has no direct connection.
    unlinked: BTreeSet<PeerId>,
}

/// What each peer reported about its connections, in its newest incarnation only.
#[derive(Clone, Debug, Default)]
pub(super) struct Neighbours {
    /// For each peer its incarnation, and its last [`BEATS`] reports, the oldest first.
    said: BTreeMap<PeerId, (u64, VecDeque<Said>)>,
    /// Rosters that were checked when they were made: repeating one later is no mistake.
    judged: BTreeSet<Digest>,
}

impl Neighbours {
    /// Adds what a process has heard; a restart forgets what it heard before.
    fn hear(&mut self, who: &Process, said: Said) {
        let (incarnation, all) = self.said.entry(who.voter.peer).or_default();
        if *incarnation != who.incarnation {
            (*incarnation, *all) = (who.incarnation, VecDeque::new());
        }
        all.push_back(said);
        if all.len() > BEATS {
            all.pop_front();
        }
    }

    /// Whether `peer` has named `other` in this series since `from_ms`,
    /// and in every later report too.
    fn names(&self, peer: &PeerId, other: &PeerId, of: &Series, from_ms: (u64, u64)) -> bool {
        let (started_ms, before_ms) = from_ms;
        let Some((_, all)) = self.said.get(peer) else { return false };
        let mut later = all.iter().rev().take_while(|said| said.at_ms > before_ms);
        let settled = all.iter().rev().find(|said| said.at_ms <= before_ms);
        let names = |said: &Said| said.series == *of && said.unlinked.contains(other);
        settled.is_some_and(|said| said.at_ms >= started_ms && names(said)) && later.all(names)
    }
}

impl Check {
    /// A process reports its connections, or proposes a ring.
    pub(crate) fn links(
        &mut self,
        now_ms: u64,
        heartbeat_ms: u64,
        who: &Process,
        message: &Message,
    ) -> Verdict {
        match message {
            Message::Heartbeat(beat) => {
                let unlinked = self.unlinked(beat);
                self.links.hear(who, Said { at_ms: now_ms, series: beat.series, unlinked });
                Ok(())
            }
            Message::Roster(roster) if roster.is_free() => {
                if !self.links.judged.insert(wire::roster_digest(&self.run, roster)) {
                    return Ok(());
                }
                let heard_ms = (who.started_ms, now_ms.saturating_sub(heartbeat_ms));
                self.neighbours(heard_ms, who, roster)
            }
            _ => Ok(()),
        }
    }

    /// The voters to which the author of a heartbeat says it has no link.
    fn unlinked(&self, beat: &Heartbeat) -> BTreeSet<PeerId> {
        let voters = self.voters(&beat.series);
        let bit = |at: &usize| beat.unlinked.get(at / 8).is_some_and(|b| b >> (at % 8) & 1 == 1);
        (0..voters.len()).filter(bit).map(|at| voters[at].peer).collect()
    }

    /// R42: no roster puts two peers side by side that have both said they have no link, as its
    /// proposer knows of one of them. A report can take longer than a heartbeat to reach it.
    fn neighbours(&self, heard_ms: (u64, u64), who: &Process, roster: &Roster) -> Verdict {
        let ring: Vec<PeerId> = roster.ring().map(|member| member.peer).collect();
        for (a, b) in ring.iter().zip(ring.iter().cycle().skip(1)).filter(|(a, b)| a != b) {
            let names = |a, b| self.links.names(a, b, &roster.series, heard_ms);
            let told = |a: &PeerId, b| {
                let beat = who.beat_of(a).filter(|beat| beat.series == roster.series);
                *a == who.voter.peer || beat.is_some_and(|beat| self.unlinked(beat).contains(b))
            };
            require(!(names(a, b) && names(b, a) && (told(a, b) || told(b, a))), "R42", || {
                format!("{} makes {a} and {b} neighbours, who are not joined", who.voter.peer)
            })?;
        }
        Ok(())
    }
}
