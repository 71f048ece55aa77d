//! Tests of `config`, with typed command lines.

use clap::Parser as _;

use super::*;
use crate::cli::Cli;

const ENTRY: &str =
    "/ip4/127.0.0.1/tcp/4001/p2p/12D3KooWDpJ7As7BWAwRMfu1VU2WCqNjvq387JEYKDBj4kx6nXTN";
const PEER: &str = "12D3KooWDpJ7As7BWAwRMfu1VU2WCqNjvq387JEYKDBj4kx6nXTN";

fn local(extra: &[&str]) -> Result<Local, LocalError> {
    let line = ["intellect-node", "--bootstrap", ENTRY].into_iter().chain(extra.iter().copied());
    Local::new(Cli::try_parse_from(line).unwrap().run)
}

#[test]
fn one_flag_is_enough() {
    let local = local(&[]).unwrap();
    assert_eq!(local.options.bootstrap.len(), 1);
    assert_eq!(local.options.listen().len(), 4);
    assert!(matches!(local.device, Device::Cpu | Device::Cuda(0)));
    assert_eq!(local.options.rate, None);
    assert_eq!(local.origin(), Origin::Random);
}

#[test]
fn every_wrong_value_names_its_flag_and_what_to_write() {
    for (extra, words) in [
        (["--bootstrap", "/ip4/127.0.0.1/tcp/1"], ["--bootstrap", "/p2p/"]),
        (["--listen", "0.0.0.0:4001"], ["--listen", "/ip4/"]),
        (["--external", "/dns/example.org"], ["--external", "/tcp/"]),
        (["--run", "abc"], ["--run", "4 to 64"]),
        (["--run", "xyz1"], ["--run", "hex"]),
        (["--follow", "0b1c2d3e"], ["--follow", "64"]),
        (["--device", "tpu"], ["--device", "cuda:N"]),
        (["--device", "cuda:first"], ["--device", "cuda:N"]),
        (["--log", "in=fo=?"], ["--log", "debug"]),
        (["--log", "nonsense"], ["--log", "debug"]),
        (["--log", "info,libp2p"], ["--log", "libp2p=debug"]),
        (["--threads", "100000"], ["--threads", "cores"]),
        (["--listen", &format!("/ip4/127.0.0.1/tcp/1/p2p/{PEER}")], ["--listen", "leave"]),
        (["--external", &format!("/ip4/1.2.3.4/tcp/1/p2p/{PEER}")], ["--external", "leave"]),
    ] {
        let message = local(&extra).unwrap_err().to_string();
        assert!(words.iter().all(|word| message.contains(word)), "{extra:?}: {message}");
    }
}

#[test]
fn without_a_bootstrap_the_message_says_where_to_get_one() {
    let args = Cli::try_parse_from(["intellect-node"]).unwrap().run;
    let message = Local::new(args).unwrap_err().to_string();
    assert!(message.contains("--bootstrap") && message.contains("sim"), "{message}");
    // A folder that was mistyped is named as a whole.
    let args = Cli::try_parse_from(["intellect-node", "--data-dir", "s1"]).unwrap().run;
    let message = Local::new(args).unwrap_err().to_string();
    let folder = env::current_dir().unwrap().join("s1");
    assert!(message.contains(&format!("{} remembers none", folder.display())), "{message}");
    // Another mistake is reported first: it would be made again with the organiser's line.
    let args = Cli::try_parse_from(["intellect-node", "--device", "gpu"]).unwrap().run;
    let message = Local::new(args).unwrap_err().to_string();
    assert!(message.contains("--device"), "{message}");
}

#[test]
fn levels_and_modules_with_levels_are_filters() {
    for text in ["off", "warn", "info,libp2p=debug", "libp2p=debug, trace"] {
        assert!(is_filter(text), "{text}");
    }
}

#[test]
fn devices_runs_and_rates_are_typed() {
    assert_eq!(local(&["--device", "cpu"]).unwrap().device, Device::Cpu);
    assert_eq!(local(&["--rate", "0"]).unwrap().options.rate, Some(0));
    assert_eq!(local(&["--rate", "5k"]).unwrap().options.rate, Some(5_000));
    let prefix = local(&["--run", "ABcd"]).unwrap().run.unwrap();
    let mut run = [0; 32];
    run[..2].copy_from_slice(&[0xab, 0xcd]);
    assert!(prefix.matches(&RunId(run)));
    assert!(!prefix.matches(&RunId([0; 32])));
}

#[test]
fn the_data_folder_follows_the_xdg_rules() {
    let folder = |xdg: Option<&str>, home: Option<&str>| {
        xdg_folder("intellect-node", xdg.map(Into::into), home.map(Into::into)).ok()
    };
    assert_eq!(folder(Some("/x"), Some("/h")), Some("/x/intellect-node".into()));
    assert_eq!(folder(None, Some("/h")), Some("/h/.local/share/intellect-node".into()));
    assert_eq!(folder(Some("relative"), Some("/h")), folder(None, Some("/h")));
    assert_eq!(folder(None, None), None);
}

#[test]
fn the_command_of_a_folder_can_be_pasted() {
    assert_eq!(command_for(Path::new("na")), "intellect-node --data-dir na");
    assert_eq!(command_for(Path::new("my node")), "intellect-node --data-dir 'my node'");
    let hers = command_for(Path::new("/home/ann/ann's"));
    assert_eq!(hers, r"intellect-node --data-dir '/home/ann/ann'\''s'");
    for special in ["a|b", "a`b`", "a\\b", "~b", "a<b", "#b", "a?", ""] {
        assert_eq!(shell_word(special), format!("'{special}'"));
    }
    assert_eq!(command_for(&data_dir().unwrap()), "intellect-node");
}

#[test]
fn an_invite_says_which_run_is_meant() {
    use intellect_protocol::base::sign::Keypair;
    use intellect_protocol::message::{Invite, Terms};
    let (run, seed) = (RunId([0xab; 32]), [3; 32]);
    let key = Keypair::from_seed(&seed);
    let invite = Invite::new(run, Terms::new(key.peer()), &key);
    let code = Code::Bearer { invite: invite.into(), seed };
    let text = code.to_string();
    let invited = local(&["--invite", &text]).unwrap();
    assert_eq!((invited.invite, invited.run), (Some(code), Some(RunPrefix(run.hex()))));
    assert_eq!(
        local(&["--invite", &text, "--run", "ABAB"]).unwrap().run,
        Some(RunPrefix(run.hex()))
    );
    let other = local(&["--invite", &text, "--run", "abcd"]).unwrap_err().to_string();
    assert!(other.contains("--run abcd") && other.contains("for run abababab"), "{other}");
    let slip = local(&["--invite", &text[..text.len() - 2]]).unwrap_err().to_string();
    assert!(slip.contains("--invite") && slip.contains("paste it again"), "{slip}");
    assert!(!slip.contains(&text[..20]), "a code is a secret: {slip}");
}
