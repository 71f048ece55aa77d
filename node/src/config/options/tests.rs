//! Tests of `config::options`, on the file of a run's folder.

use std::fs;

use super::*;
use crate::store::{Store, tests::open};

const PEER: &str = "12D3KooWDpJ7As7BWAwRMfu1VU2WCqNjvq387JEYKDBj4kx6nXTN";

fn entry(port: u16) -> Address {
    format!("/ip4/203.0.113.7/tcp/{port}/p2p/{PEER}").parse().unwrap()
}

fn folder_of(store: &Store) -> PathBuf {
    store.options_path().parent().unwrap().to_owned()
}

fn typed() -> Options {
    Options {
        bootstrap: vec![entry(1)],
        data: vec!["/home/me/a text.txt".into()],
        rate: Some(0),
        threads: NonZeroUsize::new(1),
        listen: vec!["/ip4/0.0.0.0/tcp/4001".parse().unwrap()],
    }
}

#[test]
fn what_was_typed_is_kept_and_what_is_typed_again_takes_its_place() {
    let (_folder, store) = open();
    assert_eq!(StoredOptions::read(&folder_of(&store)).options, Options::default());
    StoredOptions::default().save(&typed(), &store).unwrap();
    let stored = StoredOptions::read(&folder_of(&store));
    assert_eq!((&stored.options, stored.ignored.len()), (&typed(), 0));
    let text = fs::read_to_string(store.options_path()).unwrap();
    assert!(
        text.starts_with("# How") && text.contains("data = [\"/home/me/a text.txt\"]"),
        "{text}"
    );

    let again = Options { bootstrap: vec![entry(2)], rate: Some(5_000), ..Options::default() };
    let both = again.or(&stored.options);
    assert_eq!(both, Options { bootstrap: vec![entry(2)], rate: Some(5_000), ..typed() });
    stored.save(&again, &store).unwrap();
    assert_eq!(StoredOptions::read(&folder_of(&store)).options, both);

    // A file that does not change is not written again, so that a person's comments stay.
    let commented = format!("# mine\n{text}");
    fs::write(store.options_path(), &commented).unwrap();
    StoredOptions::read(&folder_of(&store)).save(&typed(), &store).unwrap();
    assert_eq!(fs::read_to_string(store.options_path()).unwrap(), commented);
}

#[test]
fn a_path_is_kept_from_the_root_on() {
    let (_folder, store) = open();
    let options = Options { data: vec!["text.txt".into()], ..Options::default() };
    StoredOptions::default().save(&options, &store).unwrap();
    let stored = StoredOptions::read(&folder_of(&store)).options.data;
    assert_eq!(stored, [std::env::current_dir().unwrap().join("text.txt")]);
}

#[test]
fn what_makes_no_sense_is_left_out_with_a_sentence_and_stays_in_the_file() {
    let (_folder, store) = open();
    let path = store.options_path();
    for (line, words) in [
        ("rte = 5", "there is no such option; there are bootstrap, data"),
        ("rate = -5", "bytes a second"),
        ("rate = \"fast\"", "bytes a second"),
        ("threads = 0", "1 or more"),
        ("threads = 1000000", "cores"),
        ("bootstrap = \"/ip4/203.0.113.7/tcp/1\"", "/p2p/"),
        ("listen = [\"here\"]", "not a multiaddress"),
        ("data = [1]", "a list of texts"),
    ] {
        fs::write(&path, format!("{line}\n")).unwrap();
        let stored = StoredOptions::read(&folder_of(&store));
        assert_eq!(stored.options, Options::default(), "{line}");
        let [sentence] = stored.ignored.as_slice() else { panic!("{line}: {:?}", stored.ignored) };
        assert!(sentence.contains(words) && sentence.contains("node.toml"), "{sentence}");
        // A start that stores another option keeps this entry.
        let other = Options { bootstrap: vec![entry(2)], ..Options::default() };
        let other = if line.starts_with("bootstrap") { typed() } else { other };
        stored.save(&other, &store).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        let key = line.split(' ').next().unwrap();
        assert!(text.contains(&format!("{key} = ")), "{text}");
    }
}

#[test]
fn a_file_that_cannot_be_read_is_reported_and_set_aside_before_it_is_replaced() {
    let (_folder, store) = open();
    let path = store.options_path();
    let long = format!("# {}", "x".repeat(1 << 20));
    for (text, words) in
        [("rate = 1\nthreads 2\n", "line 2"), (long.as_str(), "longer"), ("\u{0}", "line 1")]
    {
        fs::write(&path, text).unwrap();
        let stored = StoredOptions::read(&folder_of(&store));
        assert_eq!((&stored.options, stored.ignored.len()), (&Options::default(), 1));
        let sentence = &stored.ignored[0];
        assert!(sentence.contains(words) && sentence.contains("repair or delete"), "{sentence}");
        stored.save(&Options::default(), &store).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), text, "nothing was typed");
        stored.save(&typed(), &store).unwrap();
        assert_eq!(StoredOptions::read(&folder_of(&store)).options, typed());
    }
    let damaged = fs::read_dir(folder_of(&store).join("damaged")).unwrap();
    assert_eq!(damaged.count(), 3);
}
