//! Tests of `admit`.

use std::os::unix::fs::PermissionsExt as _;

use clap::Parser as _;
use intellect_protocol::{
    admit::code::Code,
    id::PeerId,
    message::{Terms, Ticket},
};

use super::*;
use crate::{
    cli::{Cli, Verb},
    tools::manifest,
};

const ENTRY: &str =
    "/ip4/192.0.2.1/tcp/4001/p2p/12D3KooWDpJ7As7BWAwRMfu1VU2WCqNjvq387JEYKDBj4kx6nXTN";
const PEER: &str = "12D3KooWDpJ7As7BWAwRMfu1VU2WCqNjvq387JEYKDBj4kx6nXTN";

fn typed(arguments: &[&str]) -> Result<String, AdmitError> {
    let mut out = Vec::new();
    let line = std::iter::once("intellect-node").chain(arguments.iter().copied());
    match Cli::try_parse_from(line).unwrap().command.unwrap() {
        Verb::Keygen(args) => manifest::keygen(&args.out, &mut out).unwrap(),
        Verb::Manifest(command) => manifest::run(command, &mut out).unwrap(),
        Verb::Invite(command) => run(&command, &mut out)?,
        other => panic!("{other:?} admits nobody"),
    }
    Ok(String::from_utf8(out).unwrap())
}

/// A folder with the keys a, b and c.
struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        let folder = Self(tempfile::tempdir().unwrap());
        for key in ["a", "b", "c"] {
            typed(&["keygen", "--out", &folder.path(key)]).unwrap();
        }
        folder
    }

    /// The same with a run of invited peers, whose organiser is a.
    fn invited(extra: &[&str]) -> Self {
        let folder = Self::new();
        folder.run("run.toml", &[&["--invited"], extra].concat());
        folder
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).to_str().unwrap().to_owned()
    }

    fn run(&self, name: &str, extra: &[&str]) -> String {
        let (out, key) = (self.path(name), self.path("a"));
        typed(&[&["manifest", "new", "--out", &out, "--key", &key], extra].concat()).unwrap()
    }

    fn key(&self, name: &str) -> PeerId {
        Identity::load(Path::new(&self.path(name))).unwrap().peer()
    }

    fn invite(&self, key: &str, extra: &[&str]) -> Result<String, AdmitError> {
        let (key, manifest) = (self.path(key), self.path("run.toml"));
        typed(&[&["invite", "new", "--key", &key, "--manifest", &manifest], extra].concat())
    }
}

/// What the last word is.
fn code(told: &str) -> Code {
    told.split_whitespace().last().unwrap().parse().unwrap()
}

/// Whether a code gets its joiner in, with all that it allows.
fn admits(folder: &Folder, code: &Code, peer: &PeerId) -> Result<(), Denied> {
    let (manifest, authorities) = invited(Path::new(&folder.path("run.toml"))).unwrap();
    let key = Keypair::from_seed(&[9; 32]);
    code.ticket(peer)?.verify(&key, &manifest.id, &authorities, peer)
}

#[test]
fn a_run_of_invited_peers_is_organised_in_three_lines() {
    let folder = Folder::new();
    let made = folder.run("run.toml", &["--invited"]);
    let organiser = folder.key("a").hex();
    for words in
        [&format!("signed by 1 of 1: {organiser}"), "invited peers only", "invite new --key"]
    {
        assert!(made.contains(words), "no {words} in {made}");
    }
    let line = ["--uses", "5", "--label", "bob", "--expires", "7d", "--until-epoch", "900"];
    let told = folder.invite("a", &[&line[..], &["--bootstrap", ENTRY]].concat()).unwrap();
    for words in ["invite bob: 5 peers may join by it, until 20", "up to epoch 900", "invites.toml"]
    {
        assert!(told.contains(words), "no {words} in {told}");
    }
    let joins = told.lines().last().unwrap();
    assert!(
        joins.starts_with(&format!("intellect-node --bootstrap {ENTRY} --invite ii1")),
        "{joins}"
    );
    let code = code(&told);
    assert_eq!(admits(&folder, &code, &folder.key("b")), Ok(()));
    let Code::Bearer { invite, seed } = &code else { panic!("a bearer code") };
    let Terms { uses, until_epoch, expires, may_invite, .. } = invite.terms;
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    assert_eq!((uses, until_epoch, may_invite), (5, 900, false));
    assert!((now + 7 * 86_400 - 600..=now + 7 * 86_400).contains(&expires));

    // What is noted is no secret, and is for its owner all the same.
    let book = folder.path("invites.toml");
    let text = std::fs::read_to_string(&book).unwrap();
    assert!(text.contains("label = \"bob\"") && text.contains(&invite.terms.key.hex()), "{text}");
    let seed = blake3::Hash::from_bytes(*seed).to_hex().to_string();
    assert!(!text.contains(&seed) && !text.contains("ii1"), "{text}");
    assert_eq!(std::fs::metadata(&book).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn invites_of_one_run_have_names_of_their_own() {
    let folder = Folder::invited(&[]);
    let label = |told: String| told.split(['\n', ':']).next().unwrap().to_owned();
    assert_eq!(label(folder.invite("a", &[]).unwrap()), "invite invite-1");
    assert_eq!(label(folder.invite("a", &["--label", "invite-3"]).unwrap()), "invite invite-3");
    assert_eq!(label(folder.invite("a", &[]).unwrap()), "invite invite-2");
    assert_eq!(label(folder.invite("a", &[]).unwrap()), "invite invite-4");
    let told = folder.invite("a", &["--label", "invite-3"]).unwrap_err().to_string();
    assert!(told.contains("--label invite-3") && told.contains("choose another"), "{told}");
    let told = folder.invite("a", &["--label", "no blanks"]).unwrap_err().to_string();
    assert!(told.contains("A-Za-z0-9._-"), "{told}");
    let (manifest, _) = invited(Path::new(&folder.path("run.toml"))).unwrap();
    let book = book::Book::beside(Path::new(&folder.path("a"))).unwrap();
    assert_eq!(book.of(manifest.id).count(), 4);
    assert_eq!(book.of(RunId([1; 32])).count(), 0);
    std::fs::write(folder.path("invites.toml"), "[[invite]]\nlabel = 3").unwrap();
    let told = folder.invite("a", &[]).unwrap_err().to_string();
    assert!(told.contains("invites.toml") && told.contains("mend that line"), "{told}");
}

#[test]
fn a_named_peer_alone_may_use_its_invite() {
    let folder = Folder::invited(&[]);
    let told = folder.invite("a", &["--for", PEER, "--until-epoch", "7"]).unwrap();
    assert!(told.contains(&format!("{PEER} may join, up to epoch 7")), "{told}");
    assert!(!told.contains("hand it to"), "no secret: {told}");
    let code = code(&told);
    let peer = crate::config::parse_peer("for", PEER).unwrap();
    assert_eq!(admits(&folder, &code, &peer), Ok(()));
    assert!(matches!(code, Code::Named(Ticket::Named { until_epoch: 7, .. })));
    let denied = admits(&folder, &code, &folder.key("b"));
    assert_eq!(denied, Err(Denied::AnotherPeer { peer }));
    let told = folder.invite("a", &["--for", "bob"]).unwrap_err().to_string();
    assert!(told.contains("--for bob") && told.contains("12D3KooW"), "{told}");
}

/// Two of a, b and c have to sign.
#[test]
fn several_authorities_sign_one_after_the_other() {
    let folder = Folder::new();
    let keys = ["a", "b", "c"].map(|name| folder.key(name).hex());
    let line = keys.iter().flat_map(|key| ["--authority", key]);
    let line: Vec<&str> = ["--invited", "--threshold", "2"].into_iter().chain(line).collect();
    folder.run("run.toml", &line);
    for extra in [&["--label", "bob"][..], &["--for", PEER]] {
        let told = folder.invite("a", extra).unwrap();
        assert!(told.contains("1 of 2 authorities have signed"), "{told}");
        assert!(
            told.lines().last().unwrap().contains(" invite new --key KEY --manifest "),
            "{told}"
        );
        let begun = code(&told);
        let peer = match &begun {
            Code::Bearer { .. } => folder.key("b"),
            Code::Named(ticket) => ticket.peer(),
        };
        assert_eq!(admits(&folder, &begun, &peer), Err(Denied::Unsigned { found: 1, needed: 2 }));
        let again = folder.invite("a", &["--sign", &begun.to_string()]).unwrap();
        assert!(again.contains("1 of 2"), "{again}");
        let told =
            folder.invite("c", &["--sign", &begun.to_string(), "--bootstrap", ENTRY]).unwrap();
        assert!(
            told.contains(&format!("intellect-node --bootstrap {ENTRY} --invite ii1")),
            "{told}"
        );
        assert_eq!(admits(&folder, &code(&told), &peer), Ok(()));
    }
    let (manifest, _) = invited(Path::new(&folder.path("run.toml"))).unwrap();
    let book = book::Book::beside(Path::new(&folder.path("c"))).unwrap();
    assert_eq!(book.of(manifest.id).count(), 1, "noted once");
}

#[test]
fn who_may_invite_does_so_with_the_code_alone() {
    let folder = Folder::invited(&[]);
    let root = code(&folder.invite("a", &["--uses", "5", "--may-invite"]).unwrap()).to_string();
    std::fs::write(folder.path("mine"), &root).unwrap();
    for given in [root, folder.path("mine")] {
        let told =
            typed(&["invite", "new", "--under", &given, "--uses", "2", "--label", "eve"]).unwrap();
        assert!(told.contains("invite eve: 2 peers") && told.contains("invite-1"), "{told}");
        let code = code(&told);
        assert_eq!(admits(&folder, &code, &folder.key("b")), Ok(()));
        let deeper = typed(&["invite", "new", "--under", &code.to_string()]).unwrap_err();
        assert!(deeper.to_string().contains("one under another may not invite"), "{deeper}");
    }
    let plain = code(&folder.invite("a", &[]).unwrap()).to_string();
    let refused = typed(&["invite", "new", "--under", &plain]).unwrap_err().to_string();
    assert!(refused.contains("may not invite"), "{refused}");
    let named = code(&folder.invite("a", &["--for", PEER]).unwrap()).to_string();
    let refused = typed(&["invite", "new", "--under", &named]).unwrap_err().to_string();
    assert!(refused.contains("made out to one peer"), "{refused}");
}

#[test]
fn who_has_no_say_makes_no_invite() {
    let folder = Folder::invited(&[]);
    let told = folder.invite("b", &[]).unwrap_err().to_string();
    assert!(
        told.contains(&folder.key("b").hex()) && told.contains("none of the 1 authorities"),
        "{told}"
    );
    let open = Folder::new();
    open.run("run.toml", &[]);
    let told = open.invite("a", &[]).unwrap_err().to_string();
    assert!(told.contains("open run") && told.contains("--from-run DATA_DIR"), "{told}");
    // Of another run with the same authorities.
    let begun = code(&folder.invite("a", &[]).unwrap()).to_string();
    std::fs::remove_file(folder.path("run.toml")).unwrap();
    folder.run("run.toml", &["--invited"]);
    let told = folder.invite("a", &["--sign", &begun]).unwrap_err().to_string();
    assert!(told.contains("this invite is for run"), "{told}");
}

#[test]
fn what_makes_no_sense_together_is_refused() {
    let parse = |line: &str| Cli::try_parse_from(line.split(' ')).map(drop);
    let key = "x invite new --key k --manifest m";
    let revoke = "x invite revoke --key k --manifest m --bootstrap b";
    let with = |extra: &str| parse(&format!("{revoke} {extra}"));
    assert!(parse(key).is_ok() && parse("x invite new --under c").is_ok());
    for right in [
        "--peer p",
        "--peer p --lift",
        "--peer p --forget",
        "--invite i --and-admitted",
        "--sign f",
    ] {
        assert!(with(right).is_ok(), "{right}");
    }
    for wrong in [
        "",
        "--peer p --invite i",
        "--peer p --and-admitted",
        "--sign f --lift",
        "--invite i --forget",
    ] {
        assert!(with(wrong).is_err(), "{wrong}");
    }
    assert!(parse("x invite revoke --key k --manifest m --peer p").is_err());
    assert!(parse("x vouch --key k").is_ok() && parse("x vouch --data-dir d").is_err());
    for wrong in [
        "x invite new",
        "x invite new --key k",
        "x invite new --manifest m",
        "x invite new --key k --manifest m --under c",
        "x invite new --key k --manifest m --uses 0",
        "x invite new --key k --manifest m --expires 7",
        "x invite new --key k --manifest m --for p --uses 2",
        "x invite new --key k --manifest m --sign c --label l",
        "x invite new --under c --sign c",
        "x invite new --under c --for p",
        "x invite new --under c --may-invite",
        "x manifest new --out o --authority k",
        "x manifest new --out o --invited --threshold 1",
        "x manifest new --out o --invited --authority k --threshold 0",
    ] {
        assert!(parse(wrong).is_err(), "{wrong}");
    }
}
