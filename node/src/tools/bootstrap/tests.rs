//! Tests of `bootstrap`: the lines that it prints, and what it refuses.

use clap::Parser as _;
use intellect_model::config::{Fingerprint, Hints, Work};
use intellect_protocol::{base::sign::Keypair, manifest::Run};

use super::*;
use crate::manifest::Draft;

const ADDRESS: &str = "/ip4/127.0.0.1/tcp/1";
const FILE: Fingerprint = Fingerprint { digest: [3; 32], bytes: 9_999 };

fn manifest(work: &Work) -> String {
    let organiser = Keypair::from_seed(&[1; 32]);
    Draft::new(&Run::new(organiser.peer(), 7), work).unwrap().sign(&organiser).unwrap().text
}

fn offers(texts: &[&str]) -> Result<Vec<Offer>, BootstrapError> {
    let folder = tempfile::tempdir().unwrap();
    let write = |(index, text): (usize, &&str)| {
        let path = folder.path().join(format!("{index}.toml"));
        std::fs::write(&path, text).unwrap();
        path
    };
    load(&texts.iter().enumerate().map(write).collect::<Vec<_>>())
}

#[test]
fn a_line_for_each_run_says_what_joining_it_takes() {
    let (plain, text) = (manifest(&Work::synthetic()), manifest(&Work::text(FILE)));
    let address = ADDRESS.parse().unwrap();
    let one = offers(&[&plain]).unwrap();
    assert_eq!(
        join_lines(&one, false, &address),
        format!("intellect-node --bootstrap {ADDRESS}\n")
    );
    let two = offers(&[&plain, &text]).unwrap();
    let [first, second] = two.as_slice() else { panic!("{}", two.len()) };
    let lines = format!(
        "intellect-node --bootstrap {ADDRESS} --run {}\n\
         intellect-node --bootstrap {ADDRESS} --run {} --data FILE\n",
        &first.manifest.id.hex()[..16],
        &second.manifest.id.hex()[..16]
    );
    assert_eq!(join_lines(&two, false, &address), lines);
    let unlisted = join_lines(&one, true, &address);
    assert!(unlisted.ends_with(&format!(" --run {}\n", one[0].manifest.id.hex())), "{unlisted}");
    assert!(first.describe().contains("demo: 94 528 parameters"), "{}", first.describe());
}

/// Nobody could use the bare line, so the organiser gets the one that makes invites.
#[test]
fn a_run_of_invited_peers_has_the_line_that_makes_invites() {
    let organiser = Keypair::from_seed(&[1; 32]);
    let mut run = Run::new(organiser.peer(), 7);
    run.trust.level = Level::Invited;
    let draft = Draft::new(&run, &Work::synthetic()).unwrap();
    let invited = draft.sign(&organiser).unwrap().text;
    let line = join_lines(&offers(&[&invited]).unwrap(), false, &ADDRESS.parse().unwrap());
    assert!(line.starts_with("invited peers only; for each of them: intellect-node invite new "));
    assert!(line.ends_with(&format!("/0.toml --bootstrap {ADDRESS}\n")), "{line}");
}

/// The line has the names of the organiser's files, and their address.
#[test]
fn a_line_names_the_files() {
    let mut work = Work::text(FILE);
    work.data.hints = Hints::of(&["/home/me/my text.txt".into()]);
    let line = |work: &Work| {
        join_lines(&offers(&[&manifest(work)]).unwrap(), false, &ADDRESS.parse().unwrap())
    };
    let named = format!("intellect-node --bootstrap {ADDRESS} --data 'my text.txt'\n");
    assert_eq!(line(&work), named);
    work.data.hints.url = Some("https://example.org/text".to_owned());
    assert_eq!(line(&work), format!("intellect-node --bootstrap {ADDRESS}\n"));
    let offers = offers(&[&manifest(&work)]).unwrap();
    let text = offers[0].describe();
    assert!(text.ends_with("parameters; its data is at https://example.org/text\n"), "{text}");
}

/// Everything is verified before anything is made: here the data folder could not be made.
#[test]
fn a_file_that_must_not_be_handed_out_ends_it_first() {
    let good = manifest(&Work::synthetic());
    let changed = good.replace("amount = 15", "amount = 16");
    for (text, words) in [(changed.as_str(), "signature"), ("seed = 1\nlog_id = 2", "is a key")] {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
        std::fs::write(path("good"), &good).unwrap();
        std::fs::write(path("bad"), text).unwrap();
        let line = ["x", "--manifest", &path("good"), &path("bad"), "--listen", ADDRESS];
        let line = line.into_iter().chain(["--data-dir", "/dev/null/absent"]);
        let mut out = Vec::new();
        let args = BootstrapArgs::try_parse_from(line).unwrap();
        let error = run(&args, &mut out).unwrap_err().to_string();
        assert!(error.contains(words) && out.is_empty(), "{error}");
    }
    assert!(matches!(offers(&[good.as_str(); 17]), Err(BootstrapError::TooMany { count: 17 })));
}
