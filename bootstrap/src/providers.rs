//! The store of the distributed table. It holds provider records only: which peers take part in
//! which run.
//!
//! Anyone can create keys and announce a record for each. Therefore a connected peer is never
//! replaced by another, and connected peers are handed out before the others. The order among
//! equals changes from answer to answer, since Kademlia hands out only the first twenty. One peer
//! can announce only a few runs.
//!
//! The store answers in memory and keeps nothing across a restart. Records expire after
//! [`crate::discovery`]'s half an hour, and the peers announce themselves again every ten minutes.

use std::{
    borrow::Cow,
    collections::HashMap,
    sync::atomic::{AtomicUsize, Ordering},
    time::Instant,
};

use libp2p::{
    PeerId,
    kad::{
        ProviderRecord, Record, RecordKey,
        store::{Error, RecordStore},
    },
};

use crate::{crowding, discovery};

/// The providers of all runs that were announced to this peer.
#[derive(Debug)]
pub struct Providers {
    /// This peer itself counts as connected, so its own record is never replaced.
    me: PeerId,
    /// For each run its providers, at most [`PROVIDERS_MAX`], of at most [`RUNS_MAX`] runs. No list
    /// is empty.
    by_key: HashMap<RecordKey, Vec<ProviderRecord>>,
    /// The number of connections to each connected peer. Bounded by the connection limits.
    connected: HashMap<PeerId, usize>,
    /// The number of answers given, by which the next one is rotated.
    turn: AtomicUsize,
}

impl Providers {
    /// The empty store of the peer `me`.
    #[must_use]
    pub fn new(me: PeerId) -> Self {
        Self { me, by_key: HashMap::new(), connected: HashMap::new(), turn: AtomicUsize::new(0) }
    }

    /// Records that a connection to a peer was established.
    pub fn up(&mut self, peer: PeerId) {
        *self.connected.entry(peer).or_default() += 1;
    }

    /// Records that a connection to a peer has closed.
    pub fn down(&mut self, peer: &PeerId) {
        crowding::less(&mut self.connected, *peer);
    }

    /// Whether a record of this peer is protected from being replaced.
    fn is_here(&self, peer: &PeerId) -> bool {
        *peer == self.me || self.connected.contains_key(peer)
    }

    /// For how many runs a peer is recorded. It reads all records, at most 256 · 256, for each
    /// announcement that is new.
    fn runs_of(&self, peer: &PeerId) -> usize {
        let provides = |records: &&Vec<ProviderRecord>| records.iter().any(|r| r.provider == *peer);
        self.by_key.values().filter(provides).count()
    }

    /// Removes a run without a connected provider; false if every run has one.
    fn forget_a_run(&mut self) -> bool {
        let empty = |records: &Vec<ProviderRecord>| {
            !records.iter().any(|record| self.is_here(&record.provider))
        };
        let left =
            self.by_key.iter().find(|(_, records)| empty(records)).map(|(key, _)| key.clone());
        left.is_some_and(|key| self.by_key.remove(&key).is_some())
    }
}

impl RecordStore for Providers {
    type RecordsIter<'a> = std::iter::Empty<Cow<'a, Record>>;
    type ProvidedIter<'a> = std::vec::IntoIter<Cow<'a, ProviderRecord>>;

    fn get(&self, _: &RecordKey) -> Option<Cow<'_, Record>> {
        None
    }

    fn put(&mut self, _: Record) -> Result<(), Error> {
        Err(Error::MaxRecords)
    }

    fn remove(&mut self, _: &RecordKey) {}

    fn records(&self) -> Self::RecordsIter<'_> {
        std::iter::empty()
    }

    /// Records that a peer takes part in a run, or renews that. A full list gives up a peer without
    /// a connection; a full store gives up a run without a connected peer. If neither exists the
    /// record is refused, and the peer that sent it does not learn of that. Of its addresses the
    /// first [`discovery::ADDRESSES_MAX`] are kept: one packet has room for 50,000.
    fn add_provider(&mut self, mut record: ProviderRecord) -> Result<(), Error> {
        record.addresses.retain(|address| address.len() <= discovery::ADDRESS_BYTES_MAX);
        record.addresses.truncate(discovery::ADDRESSES_MAX);
        record.addresses.shrink_to_fit();
        let now = Instant::now();
        self.by_key.retain(|_, records| {
            records.retain(|record| !record.is_expired(now));
            !records.is_empty()
        });
        let known = self.by_key.get_mut(&record.key);
        let known = known.into_iter().flatten().find(|known| known.provider == record.provider);
        if let Some(known) = known {
            *known = record;
            return Ok(());
        }
        let full = !self.by_key.contains_key(&record.key) && self.by_key.len() >= RUNS_MAX;
        if record.key.as_ref().len() > KEY_BYTES_MAX
            || self.runs_of(&record.provider) >= RUNS_PER_PEER
            || full && !self.forget_a_run()
        {
            return Err(Error::MaxProvidedKeys);
        }
        let (key, records) = (record.key.clone(), self.by_key.remove(&record.key));
        let mut records = records.unwrap_or_default();
        if records.len() >= PROVIDERS_MAX
            && let Some(absent) = records.iter().position(|known| !self.is_here(&known.provider))
        {
            records.swap_remove(absent);
        }
        let room = records.len() < PROVIDERS_MAX;
        if room {
            records.push(record);
        }
        self.by_key.insert(key, records);
        if room { Ok(()) } else { Err(Error::MaxProvidedKeys) }
    }

    /// The providers of a run, connected ones first. Each part is rotated by the number of answers
    /// so far, so that over many answers every provider is among the first.
    fn providers(&self, key: &RecordKey) -> Vec<ProviderRecord> {
        let records = self.by_key.get(key).into_iter().flatten().cloned();
        let (mut here, mut away): (Vec<_>, Vec<_>) =
            records.partition(|record| self.is_here(&record.provider));
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        for part in [&mut here, &mut away] {
            let count = part.len().max(1);
            part.rotate_left(turn % count);
        }
        here.append(&mut away);
        here
    }

    fn provided(&self) -> Self::ProvidedIter<'_> {
        let all = self.by_key.values().flatten();
        let own: Vec<_> = all.filter(|r| r.provider == self.me).map(Cow::Borrowed).collect();
        own.into_iter()
    }

    fn remove_provider(&mut self, key: &RecordKey, peer: &PeerId) {
        if let Some(records) = self.by_key.get_mut(key) {
            records.retain(|record| record.provider != *peer);
            if records.is_empty() {
                self.by_key.remove(key);
            }
        }
    }
}

/// A roster has 256 members at most (docs/FORMATS.md).
const PROVIDERS_MAX: usize = 256;

/// Twice the length of a key of ours, which is a digest.
const KEY_BYTES_MAX: usize = 64;

/// The most runs whose providers one server remembers.
const RUNS_MAX: usize = 256;

/// A node takes part in one run at a time, and a record outlives it by half an hour.
const RUNS_PER_PEER: usize = 4;

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use libp2p::{Multiaddr, multiaddr::Protocol};

    use super::*;

    fn record(run: u16, provider: PeerId) -> ProviderRecord {
        let key = RecordKey::new(&run.to_le_bytes());
        ProviderRecord { key, provider, expires: None, addresses: Vec::new() }
    }

    fn first(store: &Providers, run: u16) -> PeerId {
        store.providers(&RecordKey::new(&run.to_le_bytes()))[0].provider
    }

    /// Without the limit one peer fills the table with runs in which nobody takes part.
    #[test]
    fn one_peer_announces_a_few_runs_and_not_256() {
        let mut store = Providers::new(PeerId::random());
        let (liar, honest) = (PeerId::random(), PeerId::random());
        let taken = (0..1_000).filter(|run| store.add_provider(record(*run, liar)).is_ok());
        assert_eq!(taken.count(), RUNS_PER_PEER);
        // Announcing the same run again does not count as another run.
        store.add_provider(record(0, liar)).unwrap();
        store.add_provider(record(2_000, honest)).unwrap();
        assert_eq!(first(&store, 2_000), honest);
    }

    /// A packet holds 50,000 addresses of two bytes, and a store 65,536 records.
    #[test]
    fn a_record_is_small() {
        let (mut store, peer) = (Providers::new(PeerId::random()), PeerId::random());
        let address = |n: u16| Multiaddr::from(Ipv4Addr::LOCALHOST).with(Protocol::Tcp(n));
        let long = Protocol::Dns("a".repeat(discovery::ADDRESS_BYTES_MAX).into());
        let mut many = record(1, peer);
        many.addresses = vec![Multiaddr::empty().with(long)];
        many.addresses.extend((0..30_000).map(address));
        store.add_provider(many.clone()).unwrap();
        let kept = store.providers(&many.key).remove(0).addresses;
        assert!(kept.into_iter().eq((0..discovery::ADDRESSES_MAX as u16).map(address)));
        let key = RecordKey::new(&[7; KEY_BYTES_MAX + 1]);
        assert!(store.add_provider(ProviderRecord { key, ..many }).is_err());
    }

    /// Invented peers must not displace connected ones.
    #[test]
    fn who_is_connected_is_handed_out_first_and_not_replaced() {
        let mut store = Providers::new(PeerId::random());
        let honest = [PeerId::random(), PeerId::random()];
        for peer in honest {
            store.up(peer);
            store.up(peer);
            store.add_provider(record(1, peer)).unwrap();
        }
        for _ in 0..1_000 {
            store.add_provider(record(1, PeerId::random())).unwrap();
        }
        let key = RecordKey::new(&1_u16.to_le_bytes());
        let all = store.providers(&key);
        assert_eq!(all.len(), PROVIDERS_MAX);
        let both = [first(&store, 1), first(&store, 1)];
        assert!(honest.iter().all(|peer| both.contains(peer)), "each has its turn");
        store.down(&honest[0]);
        assert!(store.is_here(&honest[0]));
        store.down(&honest[0]);
        store.down(&honest[0]);
        assert_eq!([first(&store, 1), first(&store, 1)], [honest[1]; 2]);
    }

    #[test]
    fn a_run_in_which_nobody_is_makes_room_for_another_one() {
        let mut store = Providers::new(PeerId::random());
        let honest = PeerId::random();
        store.up(honest);
        store.add_provider(record(0, honest)).unwrap();
        for run in 1..1_000 {
            store.add_provider(record(run, PeerId::random())).unwrap();
        }
        assert_eq!((store.by_key.len(), first(&store, 0)), (RUNS_MAX, honest));
    }

    #[test]
    fn what_this_peer_provides_is_published_again_until_it_is_removed() {
        let me = PeerId::random();
        let mut store = Providers::new(me);
        store.add_provider(record(7, PeerId::random())).unwrap();
        store.add_provider(record(7, me)).unwrap();
        let mine = record(7, me);
        assert!(store.provided().map(Cow::into_owned).eq([mine.clone()]));
        store.remove_provider(&mine.key, &me);
        assert_eq!((store.provided().count(), store.providers(&mine.key).len()), (0, 1));
    }
}
