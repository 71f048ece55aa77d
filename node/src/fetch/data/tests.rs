//! A file of data from donors of every kind.

use std::fs;
use std::path::Path;
use std::sync::Mutex;

use intellect_protocol::base::id::RunId;
use intellect_protocol::base::tree::TREE_PIECE_BYTES;
use intellect_protocol::download::Failure;
use intellect_protocol::message::wire;

use super::*;
use crate::config::Voice;
use crate::fetch::part_of;
use crate::net::tests::played;
use crate::store::data::tests::{described, has};
use crate::tell::Console;
use crate::tell::events::Sink;

const HONEST: PeerId = PeerId([1; 32]);
const OTHER: PeerId = PeerId([2; 32]);
const LIAR: PeerId = PeerId([3; 32]);

type Answer = Result<Vec<u8>, Failure>;

/// How a liar answers a request.
type Lie = fn(&[u8]) -> Answer;

fn bytes() -> Vec<u8> {
    (0..5 * TREE_PIECE_BYTES + 123).map(|at| (at * at / 1000).to_le_bytes()[0]).collect()
}

/// How a donor of the file answers a request.
fn answer(file: &[u8], request: &[u8]) -> Answer {
    let part = match wire::open_request(request).unwrap() {
        Request::Tree { offset, .. } => part_of(&described(file).1.to_bytes(), offset),
        Request::Data { index, .. } => {
            file.chunks(TREE_PIECE_BYTES).nth(index as usize).map(<[u8]>::to_vec)
        }
        other => panic!("{other:?}"),
    };
    part.ok_or(Failure::Refused)
}

fn store(folder: &Path) -> Arc<Store> {
    Arc::new(Store::open(folder, RunId([1; 32])).unwrap())
}

/// One try with these donors, into `folder`. Returns also the peers that it blames.
async fn fetch(
    folder: &Path,
    donors: &[PeerId],
    answer: impl Fn(PeerId, &[u8]) -> Answer + Send + 'static,
) -> (Result<Fetched, StoreError>, Vec<PeerId>) {
    let (net, blamed) = played(donors, answer);
    let sink = Sink::new(None, HONEST.into());
    let console = Console::new(sink, Voice::Quiet, folder.to_owned());
    let (file, _) = described(&bytes());
    let mut meter = console.meter_of_data("a file", &file);
    let came = data(&net, &store(folder), file, &mut meter).await;
    tokio::task::yield_now().await;
    let blamed = blamed.lock().unwrap().clone();
    (came, blamed)
}

fn has_it(folder: &Path) -> bool {
    has(&store(folder), &bytes())
}

#[tokio::test]
async fn a_file_comes_whole_from_donors_that_have_it() {
    let folder = tempfile::tempdir().unwrap();
    let donors = [HONEST, OTHER];
    let (came, blamed) = fetch(folder.path(), &donors, |_, asked| answer(&bytes(), asked)).await;
    assert_eq!((came.unwrap(), blamed), (Fetched::All, Vec::new()));
    assert!(has_it(folder.path()));
}

/// A peer that sends another file, other values, pieces at another offset, too much or too little is blamed, and does
/// not spoil what comes from others.
#[tokio::test]
async fn what_a_liar_sends_is_not_kept() {
    let lies: [(&str, Lie); 5] = [
        ("another file", |asked| {
            let mut file = bytes();
            file.iter_mut().for_each(|byte| *byte ^= 1);
            answer(&file, asked)
        }),
        ("a shorter file", |asked| answer(&bytes()[..2 * TREE_PIECE_BYTES], asked)),
        ("swapped pieces", |asked| match wire::open_request(asked).unwrap() {
            Request::Data { file, index } => {
                answer(&bytes(), &wire::request(&Request::Data { file, index: index ^ 1 }))
            }
            _ => answer(&bytes(), asked),
        }),
        ("more than was said", |asked| {
            answer(&bytes(), asked).map(|part| [&part[..], b"!"].concat())
        }),
        ("nothing", |_| Ok(Vec::new())),
    ];
    for (name, lie) in lies {
        let folder = tempfile::tempdir().unwrap();
        let play = move |peer, asked: &[u8]| {
            if peer == LIAR { lie(asked) } else { answer(&bytes(), asked) }
        };
        let (came, blamed) = fetch(folder.path(), &[HONEST, LIAR], play).await;
        assert_eq!(came.unwrap(), Fetched::All, "{name}");
        assert!(blamed.iter().all(|peer| *peer == LIAR), "{name}: {blamed:?}");
        assert!(has_it(folder.path()), "{name}");
        let alone = tempfile::tempdir().unwrap();
        let (came, blamed) = fetch(alone.path(), &[LIAR], move |_, asked| lie(asked)).await;
        assert_eq!((came.unwrap(), has_it(alone.path())), (Fetched::Nobody, false), "{name}");
        assert!(blamed.contains(&LIAR), "{name}");
    }
}

/// A donor stops, and the next start resumes.
#[tokio::test]
async fn what_has_come_is_not_fetched_again() {
    let folder = tempfile::tempdir().unwrap();
    let begun = Mutex::new(0);
    let stops = move |_, asked: &[u8]| {
        let mut begun = begun.lock().unwrap();
        *begun += 1;
        if *begun > 4 { Err(Failure::Refused) } else { answer(&bytes(), asked) }
    };
    // One request is for the values, three are for pieces; then the donor has nothing more to give.
    let (came, blamed) = fetch(folder.path(), &[HONEST], stops).await;
    assert_eq!((came.unwrap(), blamed), (Fetched::Nobody, Vec::new()));
    assert!(!has_it(folder.path()));
    let asked = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&asked);
    let counts = move |_, asked: &[u8]| {
        noted.lock().unwrap().push(wire::open_request(asked).unwrap());
        answer(&bytes(), asked)
    };
    let (came, _) = fetch(folder.path(), &[HONEST], counts).await;
    assert_eq!(came.unwrap(), Fetched::All);
    assert!(has_it(folder.path()));
    let asked = asked.lock().unwrap();
    assert_eq!(asked.len(), 3, "{asked:?}");
    assert!(asked.iter().all(|request| matches!(request, Request::Data { .. })));
}

#[tokio::test]
async fn a_disk_that_refuses_a_piece_ends_it_and_keeps_the_rest() {
    let folder = tempfile::tempdir().unwrap();
    // No file can be written where there is a folder.
    let (file, _) = described(&bytes());
    let path = store(folder.path()).data_path(&file).with_extension("part");
    fs::create_dir_all(&path).unwrap();
    let (came, _) = fetch(folder.path(), &[HONEST], |_, asked| answer(&bytes(), asked)).await;
    assert!(came.unwrap_err().to_string().contains("cannot write"));
    fs::remove_dir(&path).unwrap();
    let no_tree = |_, asked: &[u8]| match wire::open_request(asked).unwrap() {
        Request::Tree { .. } => panic!("its values are here"),
        _ => answer(&bytes(), asked),
    };
    let (came, _) = fetch(folder.path(), &[HONEST], no_tree).await;
    assert_eq!(came.unwrap(), Fetched::All);
}
