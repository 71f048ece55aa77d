//! Which files are looked for where, and which are to be fetched.

use std::fs;
use std::path::Path;

use intellect_model::config::{Hints, Work};
use intellect_model::data::text;
use intellect_protocol::base::id::PeerId;
use intellect_protocol::base::sign::Keypair;
use intellect_protocol::download::Failure;
use intellect_protocol::manifest::Run;
use intellect_protocol::message::Request;
use intellect_protocol::message::wire;

use super::*;
use crate::config::Voice;
use crate::manifest::Draft;
use crate::net::tests::played;
use crate::store::tests::write_bad;
use crate::tell::events::Sink;

/// A node that may fetch `fetch_bytes`, in a run on the text in `folder/typed/text`, shared or not.
fn here(folder: &Path, share: bool, fetch_bytes: u64) -> (Here, Fingerprint) {
    let typed = folder.join("typed/text");
    fs::create_dir_all(typed.parent().unwrap()).unwrap();
    fs::write(&typed, "The peers agree. ".repeat(200)).unwrap();
    let file = text::describe(&typed).unwrap();
    let mut work = Work::text(file);
    work.data.share = share;
    let manifest = signed(work);
    let store = Store::open(&folder.join("node"), manifest.id).unwrap();
    let (manifest, store) = (Arc::new(manifest), Arc::new(store));
    (Here { manifest, store, named: Vec::new(), fetch_bytes }, file)
}

fn signed(work: Work) -> Manifest {
    let key = Keypair::from_seed(&[1; 32]);
    Draft::new(&Run::new(key.peer(), 1), &work).unwrap().sign(&key).unwrap()
}

/// The same data with the address of a folder that has its one file.
fn named(work: &Work, url: &str) -> Work {
    let mut work = work.clone();
    work.data.hints = Hints { names: vec!["text".to_owned()], url: Some(url.to_owned()) };
    work
}

fn lacking(found: Result<Files, EnterError>) -> Result<usize, String> {
    match found {
        Ok(Files::All(_)) => Ok(0),
        Ok(Files::Missing(files)) => Ok(files.len()),
        Err(error) => Err(error.to_string()),
    }
}

#[test]
fn a_file_is_fetched_only_where_it_may_be() {
    let folder = tempfile::tempdir().unwrap();
    let look = |share, most| lacking(here(folder.path(), share, most).0.look());
    assert_eq!(look(true, 3_400), Ok(1));
    for (share, most) in [(false, 3_400), (true, 0)] {
        assert!(look(share, most).unwrap_err().contains("--data"), "{share} {most}");
    }
    let at = |most| {
        let (mut here, _) = here(folder.path(), false, most);
        here.manifest = Arc::new(signed(named(&here.manifest.work, "https://localhost:1/")));
        lacking(here.look())
    };
    assert_eq!(at(3_400), Ok(1), "from a web server");
    assert!(at(0).unwrap_err().contains("https://localhost:1/"));
    let refused = look(true, 3_399).unwrap_err();
    assert!(refused.contains("--fetch-data") && refused.contains("--data FILE"), "{refused}");
}

#[test]
fn what_is_named_or_was_fetched_is_not_fetched() {
    let folder = tempfile::tempdir().unwrap();
    let (mut here, file) = here(folder.path(), true, 1 << 20);
    let typed = folder.path().join("typed");
    here.named = vec![typed.clone()];
    assert_eq!(lacking(here.look()), Ok(0), "in a folder that is named");
    // A named folder that has lost the file is no reason to stop.
    fs::rename(typed.join("text"), folder.path().join("elsewhere")).unwrap();
    assert_eq!(lacking(here.look()), Ok(1));
    let kept = here.store.data_path(&file);
    fs::create_dir_all(kept.parent().unwrap()).unwrap();
    fs::copy(folder.path().join("elsewhere"), &kept).unwrap();
    for named in [vec![typed], Vec::new()] {
        here.named = named;
        assert_eq!(lacking(here.look()), Ok(0), "fetched before");
        assert!(here.open(&[]).is_ok());
    }
    // A fetched file counts, though nothing may be fetched any more.
    here.fetch_bytes = 0;
    assert_eq!(lacking(here.look()), Ok(0));
    here.fetch_bytes = 1 << 20;
    // The damaged pieces of a file are fetched again.
    write_bad(&kept, &fs::read(&kept).unwrap(), 100);
    assert_eq!(lacking(here.look()), Ok(1));
    assert!(!kept.exists() && kept.with_extension("part").exists());
    // Another file that is named is a mistake, even where the right one can be fetched.
    here.named = vec![folder.path().join("wrong")];
    fs::write(&here.named[0], "another text").unwrap();
    assert!(lacking(here.look()).unwrap_err().contains("is not this run's file"));
}

/// Whether a file came whose web address is this machine's own, at which no server may be asked.
async fn came(share: bool, donor: impl Fn(Request) -> Option<Vec<u8>> + Send + 'static) -> String {
    let folder = tempfile::tempdir().unwrap();
    let (Here { manifest, store, .. }, file) = here(folder.path(), share, 1 << 20);
    let manifest = signed(named(&manifest.work, "https://localhost:1/"));
    let answer =
        move |_, asked: &[u8]| donor(wire::open_request(asked).unwrap()).ok_or(Failure::Refused);
    let (net, _) = played(&[PeerId([1; 32])], answer);
    let sink = Sink::new(None, PeerId([2; 32]).into());
    let console = Console::new(sink, Voice::Quiet, folder.path().to_owned());
    match came_from_web(&net, &manifest, &store, &file, "text", &console).await {
        Ok(came) => {
            assert_eq!(came, store.has_data(&file));
            came.to_string()
        }
        Err(error) => error.to_string(),
    }
}

#[tokio::test]
async fn members_come_before_a_web_server_where_they_may_hand_it_out() {
    let text = || "The peers agree. ".repeat(200).into_bytes();
    let has_it = move |request| match request {
        Request::Tree { .. } => Some(blake3::hash(&text()).as_bytes().to_vec()),
        _ => Some(text()),
    };
    assert_eq!(came(true, has_it).await, "true");
    // A server that cannot be used is no reason to end where members may have the file.
    assert_eq!(came(true, |_| None).await, "false");
    let refused = came(false, has_it).await;
    assert!(
        refused.contains("https://localhost:1/text") && refused.contains("no address"),
        "{refused}"
    );
}
