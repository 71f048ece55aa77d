//! Tests of `events`: the documented form, and full disks.

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
    }
}

/// The documented form, letter by letter. A renamed key breaks this test first.
#[test]
fn a_line_is_what_the_document_says() {
    let record = Record {
        event: committed(),
        t_ms: 7,
        peer: peer(1),
        run: Some(RunId([0xef; 32]).into()),
        epoch: Some(3),
    };
    let (one, two) = (peer(1), peer(2));
    let expected = format!(
        r#"{{"event":"committed","attempt":1,"members":["{one}","{two}"],"weights":[960,480],"#
    ) + &format!(
        r#""state":"{}","update":"{}","tokens":1440,"loss":3.5,"sync_ms":120,"sent_bytes":1,"#,
        "ab".repeat(32),
        "cd".repeat(32),
    ) + &format!(
        r#""received_bytes":2,"forkable_since":null,"t_ms":7,"peer":"{one}","run":"{}","epoch":3}}"#,
        "ef".repeat(32)
    );
    assert_eq!(serde_json::to_string(&record).unwrap(), expected);
    assert_eq!(serde_json::from_str::<Record>(&expected).unwrap(), record);
}

#[test]
fn names_are_kebab_case_and_an_event_without_epoch_has_no_such_key() {
    let record = Record {
        event: Event::LeftOut { carried_tokens: 5 },
        t_ms: 0,
        peer: peer(1),
        run: None,
        epoch: None,
    };
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
