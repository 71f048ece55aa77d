//! Tests of `events`: the documented form, full disks, and pipes.

use std::fs;

use intellect_protocol::base::id::{Digest, PeerId, RunId};
use serde_json::Value;

use super::*;

fn peer(byte: u8) -> PeerName {
    PeerId([byte; 32]).into()
}

fn committed() -> Event {
    Event::Committed {
        attempt: 1,
        members: vec![peer(1), peer(2)],
        weights: vec![960, 480],
        state: Digest([0xab; 32]).into(),
        update: Digest([0xcd; 32]).into(),
        tokens: 1_440,
        loss: Some(3.5),
        sync_ms: 120,
        sent_bytes: 1,
        received_bytes: 2,
        forkable_since: None,
        times: Times {
            train_ms: Some(500),
            wait_ready_ms: Some(20),
            ring_ms: Some(60),
            vote_ms: Some(10),
            apply_ms: None,
        },
    }
}

fn record(event: Event) -> Record {
    Record { event, t_ms: 7, peer: peer(1), run: Some(RunId([0xef; 32]).into()), epoch: Some(3) }
}

/// The documented form, letter by letter. A renamed key breaks this test first.
#[test]
fn a_line_is_what_the_document_says() {
    let record = record(committed());
    let (one, two) = (peer(1), peer(2));
    let expected = format!(
        r#"{{"event":"committed","attempt":1,"members":["{one}","{two}"],"weights":[960,480],"#
    ) + &format!(
        r#""state":"{}","update":"{}","tokens":1440,"loss":3.5,"sync_ms":120,"sent_bytes":1,"#,
        "ab".repeat(32),
        "cd".repeat(32),
    ) + &format!(
        r#""received_bytes":2,"forkable_since":null,"train_ms":500,"wait_ready_ms":20,"ring_ms":60,"vote_ms":10,"apply_ms":null,"t_ms":7,"peer":"{one}","run":"{}","epoch":3}}"#,
        "ef".repeat(32)
    );
    assert_eq!(serde_json::to_string(&record).unwrap(), expected);
    assert_eq!(serde_json::from_str::<Record>(&expected).unwrap(), record);
}

#[test]
fn names_are_kebab_case_and_an_event_without_epoch_has_no_such_key() {
    let event = Event::LeftOut { carried_tokens: 5 };
    let record = Record { run: None, epoch: None, ..record(event) };
    let value: Value = serde_json::to_value(&record).unwrap();
    assert_eq!(value["event"], "left-out");
    assert_eq!(value["run"], Value::Null);
    assert!(value.get("epoch").is_none());
    let value = serde_json::to_value(Event::Path {
        step: "mapped".to_owned(),
        who: None,
        address: Some("/ip4/203.0.113.7/tcp/4001".to_owned()),
        error: None,
    });
    let address = "/ip4/203.0.113.7/tcp/4001";
    let expected = serde_json::json!({
        "event": "path", "step": "mapped", "who": null, "address": address, "error": null
    });
    assert_eq!(value.unwrap(), expected);
    let value = serde_json::to_value(Event::Leaving).unwrap();
    assert_eq!(value, serde_json::json!({ "event": "leaving" }));
    let value = serde_json::to_value(Event::ForkExcluded { first_epoch: 9 }).unwrap();
    assert_eq!(value, serde_json::json!({ "event": "fork-excluded", "first_epoch": 9 }));
}

#[test]
fn lines_are_on_disk_at_once_and_appended() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("events.jsonl");
    let mut sink = Sink::open(Some(&path), peer(1)).unwrap();
    sink.set_run(RunId([1; 32]).into());
    sink.emit(Some(1), committed()).unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap().lines().count(), 1);
    drop(sink);
    let mut sink = Sink::open(Some(&path), peer(1)).unwrap();
    sink.emit(None, Event::Stopped { code: 0 }).unwrap();
    let text = fs::read_to_string(&path).unwrap();
    let records: Vec<Record> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(records.len(), 2);
    assert_eq!(records[1].event, Event::Stopped { code: 0 });
    assert!(records[1].t_ms > 1_700_000_000_000);
}

#[test]
fn a_full_disk_is_reported_once_and_stops_nothing() {
    let full = Path::new("/dev/full");
    if !full.exists() {
        println!("skipped: this system has no /dev/full");
        return;
    }
    let mut sink = Sink::open(Some(full), peer(1)).unwrap();
    assert!(sink.emit(None, Event::Leaving).is_err());
    assert!(sink.emit(None, Event::Leaving).is_ok());
    assert!(sink.emit(Some(1), committed()).is_ok());
}

#[test]
fn without_a_file_events_go_nowhere() {
    let mut sink = Sink::open(None, peer(1)).unwrap();
    sink.emit(None, Event::Leaving).unwrap();
}

fn member(who: PeerName) -> Event {
    let (phase, link) = ("train".to_owned(), Some("direct".to_owned()));
    let (rtt_ms, send_rate, loss) = (Some(7), Some(8), Some(1.5));
    let version = Some("0.1.0".to_owned());
    Event::Member { who, head: 5, phase, ready: 6, rtt_ms, send_rate, link, loss, version }
}

fn manifest() -> Event {
    Event::Manifest {
        name: "name".to_owned(),
        organiser: Digest([0xab; 32]).into(),
        from: "from".to_owned(),
        parameters: 9,
        stop_tokens: Some(9),
        step_tokens: 1,
        memory_bytes: 2,
        disk_bytes: 3,
        epoch_bytes: 4,
    }
}

fn evaluated() -> Event {
    let (loss, error, excess) = (Some(2.5), Some(0.5), Some(1.5));
    let (floor, unigram, bigram) = (Some(1.0), Some(2.0), Some(1.5));
    Event::Evaluated { loss, error, floor, excess, unigram, bigram }
}

fn roster(members: Vec<PeerName>) -> Event {
    let (adopt, weights) = (Some(Hex::from(Digest([0xab; 32]))), vec![64, 0]);
    Event::Roster { attempt: 1, members, adopt, kept_chunks: 1, weights }
}

/// One event of each kind, with every optional key set: a new variant makes `kind` incomplete.
fn every() -> Vec<Event> {
    let (who, text, hex) = (peer(3), || "text".to_owned(), || Hex::from(Digest([0xab; 32])));
    let names = || vec![peer(1), peer(2)];
    let (rate, some, parameters) = (8.5, Some(1.5), 9);
    let (have_bytes, want_bytes, from_epoch, to_epoch) = (7, 70, 1, 2);
    let mut committed = committed();
    if let Event::Committed { forkable_since, times, .. } = &mut committed {
        (*forkable_since, times.apply_ms) = (Some(4), Some(5));
    }
    vec![
        Event::Started {
            version: text(),
            device: text(),
            micro_batch: 8,
            parameters,
            incarnation: 1,
            log: text(),
            tokens: 9,
        },
        Event::Listening { addresses: vec![text()] },
        Event::Path { step: text(), who: Some(text()), address: Some(text()), error: Some(text()) },
        Event::Reachability { state: text(), addresses: vec![text()] },
        Event::Waiting { reason: text(), text: text(), cure: text() },
        Event::Woke { slept_ms: 3 },
        Event::PeerFound { who: who.clone(), direct: true },
        Event::PeerLost { who: who.clone(), cause: text() },
        member(who.clone()),
        Event::Strangers { count: 2 },
        manifest(),
        Event::Sync { from_epoch, to_epoch, have_bytes, want_bytes, donors: names(), rate },
        Event::Data { file: hex(), have_bytes, want_bytes, donors: names(), rate },
        Event::CaughtUp { state: hex(), tokens: 9 },
        Event::Ready { tokens: 1, loss: some, norm: some, device: text(), micro_batch: 8 },
        roster(names()),
        Event::Regroup { number: 1, proposer: who.clone(), members: names(), absent: names() },
        Event::Ring {
            roster: hex(),
            position: 1,
            of: 2,
            to: who.clone(),
            took_ms: 3,
            sent_bytes: 4,
            received_bytes: 5,
        },
        committed,
        evaluated(),
        Event::Aborted { attempt: 1, phase: text(), reason: text() },
        Event::LeftOut { carried_tokens: 1 },
        Event::Diverged { who: who.clone(), mine: hex(), theirs: hex() },
        Event::Fork { first_epoch: 1, mine: hex(), theirs: hex(), undone: 1, held: true },
        Event::ForkExcluded { first_epoch: 1 },
        Event::Attested { number: 1 },
        Event::Admitted { who: who.clone(), invite: Some(text()) },
        Event::Revoked { who: who.clone(), notice: 1 },
        Event::Membership { number: 1, digest: hex(), in_force: true },
        Event::Fault { who: who.clone(), why: text(), proof: Some(vec![text()]) },
        Event::Disk { error: text() },
        Event::Stuck { attempts: 1 },
        Event::Incompatible { who: who.clone(), version: text(), remedy: text() },
        Event::Refused { who: who.clone(), why: text() },
        Event::DuplicateIdentity { who },
        Event::Leaving,
        Event::Stopped { code: 1 },
        Event::Watching { version: text() },
    ]
}

/// The place of a variant in the list of `every`. It has no wildcard: a new variant does not compile until it is here.
fn place(event: &Event) -> usize {
    match event {
        Event::Started { .. } => 0,
        Event::Listening { .. } => 1,
        Event::Path { .. } => 2,
        Event::Reachability { .. } => 3,
        Event::Waiting { .. } => 4,
        Event::Woke { .. } => 5,
        Event::PeerFound { .. } => 6,
        Event::PeerLost { .. } => 7,
        Event::Member { .. } => 8,
        Event::Strangers { .. } => 9,
        Event::Manifest { .. } => 10,
        Event::Sync { .. } => 11,
        Event::Data { .. } => 12,
        Event::CaughtUp { .. } => 13,
        Event::Ready { .. } => 14,
        Event::Roster { .. } => 15,
        Event::Regroup { .. } => 16,
        Event::Ring { .. } => 17,
        Event::Committed { .. } => 18,
        Event::Evaluated { .. } => 19,
        Event::Aborted { .. } => 20,
        Event::LeftOut { .. } => 21,
        Event::Diverged { .. } => 22,
        Event::Fork { .. } => 23,
        Event::ForkExcluded { .. } => 24,
        Event::Attested { .. } => 25,
        Event::Admitted { .. } => 26,
        Event::Revoked { .. } => 27,
        Event::Membership { .. } => 28,
        Event::Fault { .. } => 29,
        Event::Disk { .. } => 30,
        Event::Stuck { .. } => 31,
        Event::Incompatible { .. } => 32,
        Event::Refused { .. } => 33,
        Event::DuplicateIdentity { .. } => 34,
        Event::Leaving => 35,
        Event::Stopped { .. } => 36,
        Event::Watching { .. } => 37,
    }
}

/// The types of the reader (`node/view`) and those of the writer cannot diverge: each event that is written is read,
/// with each key that the reader knows.
#[test]
fn every_event_is_a_record_of_the_picture() {
    let all = every();
    let places: Vec<usize> = all.iter().map(place).collect();
    assert_eq!(places, (0..38).collect::<Vec<_>>());
    for event in all {
        let record = record(event);
        let line = serde_json::to_string(&record).unwrap();
        let read = intellect_view::record::Record::parse(line.as_bytes()).expect(&line);
        // The picture shows nothing of a membership notice.
        let shown = !matches!(record.event, Event::Membership { .. });
        let other = matches!(read.event, intellect_view::record::Event::Other);
        assert_eq!(!other, shown, "{line}");
        let read = format!("{read:?}");
        assert!(!read.contains("None"), "a key has another name: {line}\n{read}");
    }
}

/// A reader may stop reading, as `less` does, or never begin.
#[test]
fn a_pipe_that_nobody_reads_makes_no_node_wait() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
    assert!(made.success());
    assert!(append_to(&pipe).is_err(), "nobody has it open");
    let flags = i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).unwrap();
    let _reader = OpenOptions::new().read(true).custom_flags(flags).open(&pipe).unwrap();
    let mut file = append_to(&pipe).unwrap();
    let error = file.write_all(&vec![0; 1 << 21]).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
}
