//! Tests of `access`, with typed command lines.

use std::os::unix::fs::PermissionsExt as _;

use clap::Parser as _;
use intellect_protocol::{
    access::admit::code::Code,
    base::id::{Digest, PeerId},
    message::{Body, Clause, Notice, Terms, Ticket},
};

use super::*;
use crate::{
    cli::{Cli, Verb},
    tools::{
        manifest,
        tests::{Folder, has, verb},
    },
};

const ENTRY: &str =
    "/ip4/192.0.2.1/tcp/4001/p2p/12D3KooWDpJ7As7BWAwRMfu1VU2WCqNjvq387JEYKDBj4kx6nXTN";
const PEER: &str = "12D3KooWDpJ7As7BWAwRMfu1VU2WCqNjvq387JEYKDBj4kx6nXTN";

fn typed(arguments: &[&str]) -> Result<String, AccessError> {
    let mut out = Vec::new();
    match verb(arguments) {
        Verb::Manifest(command) => manifest::run(command, &mut out).unwrap(),
        Verb::Invite(command) => run(&command, &mut out)?,
        Verb::Vouch(args) => vouch::vouch(&args, &mut out)?,
        other => panic!("{other:?} admits nobody"),
    }
    Ok(String::from_utf8(out).unwrap())
}

impl Folder {
    fn invited() -> Self {
        let folder = Self::with_keys();
        folder.run("run.toml", &["--invited"]);
        folder
    }

    fn run(&self, name: &str, extra: &[&str]) -> String {
        let (out, key) = (self.path(name), self.path("a"));
        typed(&[&["manifest", "new", "--out", &out, "--key", &key], extra].concat()).unwrap()
    }

    fn key(&self, name: &str) -> PeerId {
        Identity::load(Path::new(&self.path(name))).unwrap().peer()
    }

    fn invite(&self, key: &str, extra: &[&str]) -> Result<String, AccessError> {
        let (key, manifest) = (self.path(key), self.path("run.toml"));
        typed(&[&["invite", "new", "--key", &key, "--manifest", &manifest], extra].concat())
    }
}

/// The code at the end of the output.
fn code(said: &str) -> Code {
    said.split_whitespace().last().unwrap().parse().unwrap()
}

/// Whether a code admits its joiner, with all that it allows.
fn admits(folder: &Folder, code: &Code, peer: &PeerId) -> Result<(), Denied> {
    let manifest = invited(Path::new(&folder.path("run.toml"))).unwrap();
    code.ticket(peer)?.verify(&manifest.run.organiser, &manifest.id, peer)
}

#[test]
fn a_run_of_invited_peers_is_organised_in_three_lines() {
    let folder = Folder::with_keys();
    let made = folder.run("run.toml", &["--invited"]);
    has(&made, &["peers that the organiser invites", "invite new --key"]);
    let line = ["--uses", "5", "--label", "bob", "--expires", "7d", "--until-epoch", "900"];
    let said = folder.invite("a", &[&line[..], &["--bootstrap", ENTRY]].concat()).unwrap();
    let words = ["invite bob: 5 peers may join by it, until 20", "up to epoch 900", "invites.toml"];
    has(&said, &words);
    let joins = said.lines().last().unwrap();
    assert!(
        joins.starts_with(&format!("intellect-node --bootstrap {ENTRY} --invite ii1")),
        "{joins}"
    );
    let code = code(&said);
    assert_eq!(admits(&folder, &code, &folder.key("b")), Ok(()));
    let Code::Bearer { invite, seed } = &code else { panic!("a bearer code") };
    let Terms { uses, until_epoch, expires, .. } = invite.terms;
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    assert_eq!((uses, until_epoch), (5, 900));
    assert!((now + 7 * 86_400 - 600..=now + 7 * 86_400).contains(&expires));

    // The list is not secret, but only its owner may read it all the same.
    let book = folder.path("invites.toml");
    let text = std::fs::read_to_string(&book).unwrap();
    assert!(text.contains("label = \"bob\"") && text.contains(&invite.terms.key.hex()), "{text}");
    let seed = blake3::Hash::from_bytes(*seed).to_hex().to_string();
    assert!(!text.contains(&seed) && !text.contains("ii1"), "{text}");
    assert_eq!(std::fs::metadata(&book).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn invites_of_one_run_have_names_of_their_own() {
    let folder = Folder::invited();
    let label = |said: String| said.split(['\n', ':']).next().unwrap().to_owned();
    assert_eq!(label(folder.invite("a", &[]).unwrap()), "invite invite-1");
    assert_eq!(label(folder.invite("a", &["--label", "invite-3"]).unwrap()), "invite invite-3");
    assert_eq!(label(folder.invite("a", &[]).unwrap()), "invite invite-2");
    assert_eq!(label(folder.invite("a", &[]).unwrap()), "invite invite-4");
    let error = folder.invite("a", &["--label", "invite-3"]).unwrap_err().to_string();
    assert!(error.contains("--label invite-3") && error.contains("choose another"), "{error}");
    let error = folder.invite("a", &["--label", "no blanks"]).unwrap_err().to_string();
    assert!(error.contains("A-Za-z0-9._-"), "{error}");
    let manifest = invited(Path::new(&folder.path("run.toml"))).unwrap();
    let path = folder.path("invites.toml");
    let edited = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, edited.trim_end()).unwrap();
    assert_eq!(label(folder.invite("a", &[]).unwrap()), "invite invite-5");
    let book = book::Book::beside(Path::new(&folder.path("a"))).unwrap();
    assert_eq!(book.of(manifest.id).count(), 5);
    assert_eq!(book.of(RunId([1; 32])).count(), 0);
    std::fs::write(path, "[[invite]]\nlabel = 3").unwrap();
    let error = folder.invite("a", &[]).unwrap_err().to_string();
    assert!(error.contains("invites.toml") && error.contains("correct that line"), "{error}");
}

#[test]
fn a_named_peer_alone_may_use_its_invite() {
    let folder = Folder::invited();
    let said = folder.invite("a", &["--for", PEER, "--until-epoch", "7"]).unwrap();
    assert!(said.contains(&format!("{PEER} may join, up to epoch 7")), "{said}");
    assert!(!said.contains("give it only to"), "no secret: {said}");
    let code = code(&said);
    let peer = crate::config::parse_peer("for", PEER).unwrap();
    assert_eq!(admits(&folder, &code, &peer), Ok(()));
    assert!(matches!(code, Code::Named(Ticket::Named { until_epoch: 7, .. })));
    let denied = admits(&folder, &code, &folder.key("b"));
    assert_eq!(denied, Err(Denied::AnotherPeer { peer }));
    let error = folder.invite("a", &["--for", "bob"]).unwrap_err().to_string();
    assert!(error.contains("--for bob") && error.contains("12D3KooW"), "{error}");
}

#[test]
fn only_the_organiser_of_a_run_of_invited_peers_makes_an_invite() {
    let folder = Folder::invited();
    let error = folder.invite("b", &[]).unwrap_err().to_string();
    let [key, organiser] = ["b", "a"].map(|name| folder.key(name).hex());
    has(&error, &[&key, &organiser, "only the organiser signs"]);
    let open = Folder::with_keys();
    open.run("run.toml", &[]);
    let error = open.invite("a", &[]).unwrap_err().to_string();
    assert!(error.contains("open run") && error.contains("--from-run DATA_DIR"), "{error}");
}

/// A file of notices is replaced as a whole, so a wrong name would lose those of another run.
#[test]
fn notices_of_another_run_are_neither_read_nor_replaced() {
    let folder = Folder::invited();
    folder.run("other.toml", &["--invited", "--name", "other"]);
    let [key, data] = ["a", "data"].map(|name| folder.path(name));
    let [mine, other] = ["run", "other"].map(|name| folder.path(&format!("{name}.toml")));
    let id = |manifest: &str| invited(Path::new(manifest)).unwrap().id;
    let kept = PathBuf::from(folder.path("other.notices"));
    let signer = Identity::load(Path::new(&key)).unwrap().keypair();
    let body = Body::Membership(vec![Clause::Admit(folder.key("b"))]);
    let notice = Notice::after(id(&other), (0, Digest::ZERO), body, &signer);
    notices::write(&kept, [&notice]).unwrap();
    assert_eq!(notices::read(&kept, id(&other)).unwrap(), std::slice::from_ref(&notice));

    let home = crate::store::run_folder(Path::new(&data), id(&mine));
    std::fs::create_dir_all(&home).unwrap();
    std::fs::copy(&mine, home.join("run.toml")).unwrap();
    let vouch = |manifest: &str| {
        let line = ["vouch", "--key", &key, "--data-dir", &data, "--manifest", manifest];
        typed(&line).unwrap_err().to_string()
    };
    has(&vouch(&other), &["other.toml: it is of run", "name the manifest of run"]);
    has(&vouch(&folder.path("nosuch.toml")), &["nosuch.toml", "cannot read the manifest"]);

    std::fs::copy(&kept, folder.path("run.notices")).unwrap();
    let line = ["invite", "admit", "--key", &key, "--manifest", &mine, "--bootstrap", ENTRY];
    let admit = typed(&[&line[..], &["--peer", PEER]].concat()).unwrap_err().to_string();
    let beside = vouch(&mine);
    for error in [admit, beside] {
        has(&error, &["run.notices has notices of run", "move it beside the manifest of run"]);
    }
    assert_eq!(notices::read(&kept, id(&other)).unwrap(), [notice]);
}

#[test]
fn what_makes_no_sense_together_is_refused() {
    let parse = |line: &str| Cli::try_parse_from(line.split(' ')).map(drop);
    let key = "x invite new --key k --manifest m";
    let revoke = "x invite revoke --key k --manifest m --bootstrap b";
    let with = |extra: &str| parse(&format!("{revoke} {extra}"));
    assert!(parse(key).is_ok());
    for right in ["--peer p", "--invite i", "--invite i --and-admitted", "--peer p --unseen"] {
        assert!(with(right).is_ok(), "{right}");
    }
    for wrong in [
        "",
        "--peer p --invite i",
        "--peer p --and-admitted",
        "--and-admitted",
        "--invite i --unseen",
    ] {
        assert!(with(wrong).is_err(), "{wrong}");
    }
    assert!(parse("x invite admit --key k --manifest m --bootstrap b --peer p").is_ok());
    assert!(parse("x invite admit --key k --manifest m --bootstrap b").is_err());
    assert!(parse("x invite revoke --key k --manifest m --peer p").is_err());
    assert!(parse("x vouch --key k").is_ok() && parse("x vouch --data-dir d").is_err());
    for wrong in [
        "x invite new",
        "x invite new --key k",
        "x invite new --manifest m",
        "x invite new --key k --manifest m --uses 0",
        "x invite new --key k --manifest m --expires 7",
        "x invite new --key k --manifest m --for p --uses 2",
    ] {
        assert!(parse(wrong).is_err(), "{wrong}");
    }
}
