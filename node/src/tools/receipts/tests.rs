//! Tests of `receipts`, on a run of three voters whose epochs are signed here.

use intellect_model::config::Work;
use intellect_protocol::{
    access::admit::Level,
    base::{
        id::{Digest, LogId, RunId},
        sign::Keypair,
    },
    history::log::Record,
    manifest::{Quorum, Run},
    message::{
        Admissions, Attestation, Body, Certificate, Member, Message, Receipt, Roster, Series,
        Ticket, Voter,
    },
};

use super::*;
use crate::{
    cli::Verb,
    identity::Origin,
    manifest::Draft,
    store::Store,
    tools::tests::{has, verb},
};

/// The keys of the three voters.
fn voters() -> [Keypair; 3] {
    [1, 2, 3].map(|seed| Keypair::from_seed(&[seed; 32]))
}

fn organiser() -> Keypair {
    Keypair::from_seed(&[9; 32])
}

/// A manifest whose founders are the three voters.
pub(crate) fn manifest(level: Level) -> Manifest {
    let mut run = Run::new(organiser().peer(), 7);
    run.members.quorum = Quorum::Majority;
    run.members.founders =
        voters().iter().map(|key| Voter { peer: key.peer(), log: LogId([1; 16]) }).collect();
    run.trust.level = level;
    Draft::new(&run, &Work::synthetic()).unwrap().sign(&organiser()).unwrap()
}

/// An epoch of the run with these weights of the voters. A voter without a weight is not in it; 0
/// only votes.
fn epoch(
    manifest: &Manifest,
    before: &Head,
    weights: [Option<u64>; 3],
    trust: Option<Admissions>,
) -> (Head, Link) {
    let keys = voters();
    let members = keys.iter().zip(weights).filter_map(|(key, weight)| {
        let (peer, log) = (key.peer(), LogId([1; 16]));
        Some(Member { peer, log, incarnation: 1, weight: weight? })
    });
    let roster = Roster {
        series: Series::after(before),
        attempt: 1,
        proposer: keys[0].peer(),
        members: members.collect(),
        heard: Vec::new(),
        adopt: None,
        trust: trust.map(Box::new),
        keep: Vec::new(),
    };
    let epoch = before.epoch + 1;
    let receipt = roster.receipt(Digest::derive("update", &epoch.to_le_bytes()));
    let validator = manifest.validator(keys[0].clone());
    let done = Message::Done(validator.done(&roster, &receipt));
    // Two of three are a majority.
    let dones = keys[..2]
        .iter()
        .map(|key| (key.peer(), wire::seal(key, &manifest.id, done.clone()).signature()));
    let certificate = Certificate { dones: dones.collect(), roster };
    let state = Digest::derive("state", &epoch.to_le_bytes());
    let head = Head { epoch, tokens: before.tokens + receipt.tokens(), state };
    (head, Link { receipt, certificate, openings: Vec::new() })
}

/// Four epochs: the third peer works in 1 and 2, is not in 3, and only votes in 4.
pub(crate) fn lineage(manifest: &Manifest, trust: Option<Admissions>) -> Vec<(Head, Link)> {
    let mut head = Head { epoch: 0, tokens: 0, state: Digest([5; 32]) };
    let weights = [[100, 200, 300], [100, 100, 150], [70, 80, u64::MAX], [60, 60, 0]];
    let mut trust = trust;
    let next = |weights: [u64; 3]| {
        let weights = weights.map(|weight| (weight < u64::MAX).then_some(weight));
        let made = epoch(manifest, &head, weights, trust.take());
        head = made.0;
        made
    };
    weights.into_iter().map(next).collect()
}

/// A data folder of the third peer after these epochs, and its run.
struct Kit {
    folder: tempfile::TempDir,
    run: RunId,
}

impl Kit {
    fn new(level: Level, trust: Option<Admissions>) -> Self {
        let manifest = manifest(level);
        let kit = Self::of(&manifest, &lineage(&manifest, trust));
        Identity { seed: [3; 32], log_id: LogId([1; 16]), origin: Origin::Random }
            .create(&kit.folder.path().join(identity::FILE_NAME))
            .unwrap();
        kit
    }

    fn of(manifest: &Manifest, lineage: &[(Head, Link)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path(), manifest.id).unwrap();
        store.save_manifest(&manifest.text).unwrap();
        let mut begun = store.begin(None, Origin::Random, 1).unwrap();
        let records = lineage.iter().flat_map(|(head, link)| {
            [Record::Decided { link: link.clone().into() }, Record::Committed { head: *head }]
        });
        begun.journal.append(&records.collect::<Vec<_>>()).unwrap();
        Self { folder, run: manifest.id }
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().unwrap().to_owned()
    }

    /// What `receipts` prints with these arguments, or its error.
    fn typed(&self, arguments: &[&str]) -> Result<String, String> {
        let Verb::Receipts(command) = verb(&[&["receipts"], arguments].concat()) else {
            panic!("{arguments:?} is about no receipts")
        };
        let mut out = Vec::new();
        run(&command, &mut out).map_err(|error| error.to_string())?;
        Ok(String::from_utf8(out).unwrap())
    }

    /// Exports the receipts of the folder's peer to `name`.
    fn export(&self, name: &str) -> String {
        self.made("export", name)
    }

    fn chain(&self, name: &str) -> String {
        self.made("chain", name)
    }

    fn made(&self, command: &str, name: &str) -> String {
        let out = self.path(name);
        self.typed(&[command, "--data-dir", &self.path(""), "--out", &out]).unwrap();
        out
    }

    /// Writes these items as a file that the third peer has signed, and verifies it.
    fn verify(&self, manifest: &Manifest, items: &[Item]) -> Result<String, String> {
        let key = voters()[2].clone();
        let cover = Cover { peer: key.peer(), exporter: key.peer() };
        let mut bytes = Vec::new();
        let mut writer = Writer::new(&mut bytes, &manifest.text, &cover).unwrap();
        items.iter().for_each(|item| writer.put(item).unwrap());
        writer.sign(&key, &manifest.id).unwrap();
        fs::write(self.path("made"), bytes).unwrap();
        self.typed(&["verify", &self.path("made")])
    }
}

/// The items of the third peer's file.
fn items(lineage: &[(Head, Link)]) -> Vec<Item> {
    let epochs = BTreeSet::from([1, 2, 4]);
    lineage.iter().filter_map(|(_, link)| item(link, &epochs)).collect()
}

#[test]
fn a_file_proves_what_the_peer_has_done() {
    let kit = Kit::new(Level::Open, None);
    let (file, chain) = (kit.export("a"), kit.chain("b"));
    let peer = PeerName::from(voters()[2].peer());
    for (arguments, words) in [
        (vec!["verify", &file], "none was named"),
        (vec!["verify", &file, "--chain", &chain], "every receipt stands in"),
    ] {
        let told = kit.typed(&arguments).unwrap();
        let deeds = "450 tokens in the sums of 2 epochs; in 1 epoch more it was a voter only";
        has(&told, &[words, &kit.run.hex(), peer.as_str(), "the peer itself", "not proved"]);
        has(&told, &["3 receipts from epoch 1 to epoch 4 name it", deeds]);
    }
    // 72 bytes for each epoch behind the head.
    assert_eq!(fs::metadata(&chain).unwrap().len(), 40 + 4 * 72);
    let again = kit.typed(&["export", "--data-dir", &kit.path(""), "--out", &file]);
    assert!(again.unwrap_err().contains("exists and is not overwritten"));
}

#[test]
fn any_peer_can_be_exported_from_any_epoch_on() {
    let kit = Kit::new(Level::Open, None);
    let (data, out) = (kit.path(""), kit.path("a"));
    let first = PeerName::from(voters()[0].peer());
    let line = ["export", "--data-dir", &data, "--out", &out, "--peer", first.as_str()];
    kit.typed(&[&line[..], &["--since", "3"]].concat()).unwrap();
    let told = kit.typed(&["verify", &out]).unwrap();
    assert!(told.contains("130 tokens in the sums of 2 epochs"), "{told}");
    assert!(told.contains(PeerName::from(voters()[2].peer()).as_str()), "who made it: {told}");
    let stranger = PeerName::from(organiser().peer());
    let export = |peer: &str, out: &str| {
        kit.typed(&["export", "--data-dir", &data, "--peer", peer, "--out", &kit.path(out)])
    };
    assert!(export(stranger.as_str(), "b").unwrap_err().contains("no receipt in"));
    // The six letters of a screen are enough, where they are of one peer.
    assert!(export(first.short(), "b").unwrap().contains(first.as_str()));
    let unknown = export(stranger.short(), "c").unwrap_err();
    assert!(unknown.contains("no receipt in") && unknown.contains("ends in"), "{unknown}");
    let several = export("", "c").unwrap_err();
    has(&several, &["the names of several peers end in , as 12D3KooW", ": give more letters"]);
}

/// The signature at the end covers every byte before it, and no byte may follow.
#[test]
fn a_file_that_was_changed_or_cut_proves_nothing() {
    let kit = Kit::new(Level::Open, None);
    let good = fs::read(kit.export("a")).unwrap();
    let path = kit.path("changed");
    let verify = |bytes: &[u8]| {
        fs::write(&path, bytes).unwrap();
        kit.typed(&["verify", &path]).unwrap_err()
    };
    for at in (0..good.len()).step_by(7).chain([good.len() - 1]) {
        let mut bytes = good.clone();
        bytes[at] ^= 1;
        let told = verify(&bytes);
        assert!(told.contains("proves nothing: "), "{at}: {told}");
    }
    for length in [0, 7, 8, 2_000, good.len() - 64, good.len() - 1] {
        let told = verify(&good[..length]);
        let words = if length < 8 { "is no file of receipts" } else { "ends before the signature" };
        assert!(told.contains(words), "{length}: {told}");
    }
    assert!(verify(&[&good[..], b"x"].concat()).contains("makes no sense at byte"));
    let newer = [&good[..7], &[2], &good[8..]].concat();
    assert!(verify(&newer).contains("another version"));
    // A length that is a lie takes no memory.
    let endless = [&good[..8], &[255; 4]].concat();
    assert!(verify(&endless).contains("makes no sense at byte 8"));
}

/// The peer itself has signed each of these files, so only the votes speak against it.
#[test]
fn what_the_voters_have_not_signed_proves_nothing() {
    let manifest = manifest(Level::Open);
    let lineage = lineage(&manifest, None);
    let kit = Kit::of(&manifest, &lineage);
    let good = items(&lineage);
    assert!(kit.verify(&manifest, &good).is_ok());
    let refused = |items: &[Item], words: &str| {
        let told = kit.verify(&manifest, items).unwrap_err();
        assert!(told.contains(words), "{words}: {told}");
    };
    let with = |at: usize, change: &dyn Fn(&mut Link)| {
        let mut items = good.clone();
        let Item::Link(link) = &mut items[at] else { panic!("a link") };
        change(link);
        items
    };
    refused(&with(1, &|link| link.certificate.dones.truncate(1)), "epoch 2 is not proven");
    refused(&with(1, &|link| link.receipt.members[2].weight += 1), "epoch 2 is not proven");
    let many = vec![lineage[0].1.certificate.dones[0]; 257];
    refused(&with(1, &|link| link.certificate.dones.clone_from(&many)), "more votes than");
    refused(&[good[1].clone()], "the receipt before epoch 2 is missing");
    refused(&[good[0].clone(), good[3].clone()], "the receipt before epoch 4 is missing");
    refused(&[good[1].clone(), good[0].clone()], "the receipt before epoch 2 is missing");
    refused(&[good[0].clone(), good[0].clone()], "epoch 1 comes behind a later one");
    refused(&[], "it has no receipt");
    let third = Item::Link(Box::new(lineage[2].1.clone()));
    refused(
        &[good[1].clone(), third].map(|item| match item {
            Item::Link(link) if link.receipt.series.epoch == 2 => Item::Receipt(link.receipt),
            item => item,
        }),
        "epoch 3 does not name the peer",
    );
}

/// Anybody can make voters: only the chain tells their lineage from the run's.
#[test]
fn a_lineage_of_ones_own_does_not_stand_in_the_chain() {
    let kit = Kit::new(Level::Open, None);
    let (file, chain) = (kit.export("a"), kit.chain("b"));
    let manifest = manifest(Level::Open);
    let mut other = lineage(&manifest, None);
    let zero = Head { epoch: 0, tokens: 0, state: Digest([5; 32]) };
    other[0] = epoch(&manifest, &zero, [Some(1), Some(1), Some(700)], None);
    let told = kit.verify(&manifest, &items(&other)[..1]).unwrap();
    assert!(told.contains("700 tokens"), "its own voters have signed it: {told}");
    let told = kit.typed(&["verify", &kit.path("made"), "--chain", &chain]).unwrap_err();
    assert!(told.contains("its epoch 1 is not the one in"), "{told}");
    // A receipt with the votes of another one proves nothing even without a chain.
    let mut forged = lineage(&manifest, None)[0].1.clone();
    forged.receipt.members[2].weight = 700;
    assert!(kit.verify(&manifest, &[Item::Link(forged.into())]).is_err());
    // A chain that ends too early, of another run, and none.
    let bytes = fs::read(&chain).unwrap();
    let with_chain = |bytes: &[u8]| {
        fs::write(kit.path("c"), bytes).unwrap();
        kit.typed(&["verify", &file, "--chain", &kit.path("c")]).unwrap_err()
    };
    assert!(with_chain(&bytes[..40 + 3 * 72]).contains("ends at epoch 3: take a newer chain"));
    assert!(with_chain(&bytes[..bytes.len() - 1]).contains("in the middle of an epoch"));
    assert!(with_chain(&bytes[..40]).contains("in the middle of an epoch"));
    assert!(with_chain(b"").contains("is no chain of receipts"));
    assert!(with_chain(&fs::read(&file).unwrap()).contains("is no chain of receipts"));
    let mut of_another = bytes.clone();
    of_another[8] ^= 1;
    assert!(with_chain(&of_another).contains("take the chain of the same run"));
    // The state before epoch 2, and the tokens after it.
    for at in [40 + 32, 40 + 72 + 64] {
        let mut changed = bytes.clone();
        changed[at] ^= 1;
        assert!(with_chain(&changed).contains("its epoch 2 is not the one in"));
    }
}

/// The ledger is folded from the receipts in the file: without the tickets nobody may vote.
#[test]
fn in_a_run_of_invited_peers_each_member_was_admitted() {
    let manifest = manifest(Level::Invited);
    let mut tickets = voters().map(|key| Ticket::named(manifest.id, key.peer(), 0, &organiser()));
    tickets.sort_by_key(Ticket::peer);
    let trust = Admissions { notices: Vec::new(), tickets: tickets.to_vec() };
    let kit = Kit::new(Level::Invited, Some(trust.clone()));
    let told = kit.typed(&["verify", &kit.export("a")]).unwrap();
    assert!(told.contains("450 tokens in the sums of 2 epochs"), "{told}");
    // From epoch 4 on the file still needs the receipt that admits the voters.
    let (data, out) = (kit.path(""), kit.path("late"));
    kit.typed(&["export", "--data-dir", &data, "--out", &out, "--since", "4"]).unwrap();
    assert!(kit.typed(&["verify", &out]).unwrap().contains("1 receipt from epoch 4"));
    let lineage = lineage(&manifest, Some(trust.clone()));
    let late = |first: Option<Receipt>| {
        let third = Item::Receipt(lineage[2].1.receipt.clone());
        let fourth = Item::Link(Box::new(lineage[3].1.clone()));
        let items = first.map(Item::Receipt).into_iter().chain([third, fourth]);
        kit.verify(&manifest, &items.collect::<Vec<_>>())
    };
    assert!(late(Some(lineage[0].1.receipt.clone())).is_ok());
    assert!(late(None).unwrap_err().contains("epoch 4 is not proven"));
    let mut forged = lineage[0].1.receipt.clone();
    let me = &voters()[0];
    let tickets = voters().map(|key| Ticket::named(manifest.id, key.peer(), 0, me));
    let mut tickets = tickets.to_vec();
    tickets.sort_by_key(Ticket::peer);
    forged.trust = Some(Box::new(Admissions { tickets, ..trust }));
    assert!(late(Some(forged)).unwrap_err().contains("epoch 1 admits peers against the rules"));
}

/// The organiser's attestation travels with the receipts, and tells a false chain.
#[test]
fn an_attested_epoch_is_named_and_anchors_the_chain() {
    let kit = Kit::new(Level::Open, None);
    let manifest = manifest(Level::Open);
    let lineage = lineage(&manifest, None);
    let (head, link) = &lineage[1];
    let r = wire::receipt_digest(&manifest.id, &link.receipt);
    let attest = |state: Digest, r: Digest, key: &Keypair| {
        let body = Body::Attestation(Attestation { epoch: 2, state, r });
        Notice::after(manifest.id, (0, Digest::ZERO), body, key)
    };
    let notice = attest(head.state, r, &organiser());
    Store::open(kit.folder.path(), manifest.id)
        .unwrap()
        .save_notices(&[notice.to_bytes().into()])
        .unwrap();
    let (file, chain) = (kit.export("a"), kit.chain("b"));
    let told = kit.typed(&["verify", &file, "--chain", &chain]).unwrap();
    assert!(told.contains("after epoch 2, in notice 1"), "{told}");
    assert!(told.contains("other than the attested one"), "{told}");
    let of = |notice: Notice| {
        let all: Vec<_> = [Item::Notice(notice)].into_iter().chain(items(&lineage)).collect();
        kit.verify(&manifest, &all)
    };
    assert!(of(notice.clone()).is_ok());
    let told = of(attest(head.state, r, &voters()[0])).unwrap_err();
    assert!(told.contains("is not the organiser's"), "{told}");
    let told = of(attest(head.state, Digest([7; 32]), &organiser())).unwrap_err();
    assert!(told.contains("attests another epoch 2"), "{told}");
    let behind: Vec<_> = items(&lineage).into_iter().chain([Item::Notice(notice)]).collect();
    assert!(kit.verify(&manifest, &behind).unwrap_err().contains("behind an epoch"));
    // The state is in the chain only.
    of(attest(Digest([8; 32]), r, &organiser())).unwrap();
    let told = kit.typed(&["verify", &kit.path("made"), "--chain", &chain]).unwrap_err();
    assert!(told.contains("attests another epoch 2"), "{told}");
}

#[test]
fn what_is_no_file_of_receipts_is_named() {
    let kit = Kit::new(Level::Open, None);
    let verify = |path: &str| kit.typed(&["verify", path]).unwrap_err();
    File::create(kit.path("huge")).unwrap().set_len(1_000_000_000).unwrap();
    let told = verify(&kit.path("huge"));
    assert!(told.contains("has 1.0 GB, and a file of receipts at most 537 MB"), "{told}");
    File::create(kit.path("zeros")).unwrap().set_len(100_000_000).unwrap();
    assert!(verify(&kit.path("zeros")).contains("is no file of receipts"));
    for path in ["/dev/zero", &kit.path("")] {
        assert!(verify(path).contains("is no plain file"), "{path}");
    }
    assert!(verify(&kit.path("absent")).contains("cannot read"));
    let manifest = kit.folder.path().join("runs").join(kit.run.hex()).join("run.toml");
    assert!(verify(manifest.to_str().unwrap()).contains("is no file of receipts"));
    let empty = Kit::of(&self::manifest(Level::Open), &[]);
    let told = empty.typed(&["export", "--data-dir", &empty.path("")]).unwrap_err();
    assert!(told.contains("holds no receipt yet"), "{told}");
}
