//! `doctor`: what it says of a machine without a network, of one on its own network, and of machines
//! behind each kind of home router.
//!
//! The routers need root, `ip`, `nft` and `tc`; without them that story is skipped and says so.

use std::{path::Path, time::Duration};

use e2e::{Done, Process, Story};
use serde_json::Value;

use crate::home::lab::{ENTRY_V4, Kind, Lab, has_upnp, missing};
use crate::story;

/// Twice what it promises, for a machine that is busy with other stories.
const PATIENCE: Duration = Duration::from_secs(60);

/// The object that `doctor --json` prints.
fn report(done: &Done) -> Value {
    serde_json::from_str(&done.out).unwrap_or_else(|error| panic!("{error}: {done:?}"))
}

/// The verdict of a check, and what was found.
fn found<'a>(report: &'a Value, check: &str) -> (&'a str, &'a str) {
    let all = report["checks"].as_array().unwrap();
    let one = all.iter().find(|one| one["check"] == check);
    let one = one.unwrap_or_else(|| panic!("no {check} in {report}"));
    (one["verdict"].as_str().unwrap(), one["found"].as_str().unwrap())
}

#[test]
fn a_machine_without_a_network_gets_a_sentence_for_each_check_and_nothing_is_left() {
    let story = story();
    let data = story.text("not/there");
    // Many systems begin with a low limit, which a process may raise by itself.
    let low = ["sh", "-c", r#"ulimit -Sn 300; exec "$0" "$@""#];
    let line = ["doctor", "--json", "--data-dir", &data];
    let process = story.start_command_under("doctor", &low, &line).unwrap();
    let report = report(&process.wait(PATIENCE).unwrap().expect_success().unwrap());
    assert_eq!(report["format"], 1);
    assert_ne!(found(&report, "files").1, "300 may be open at once");
    assert_eq!(found(&report, "network").0, "not-tried");
    for check in ["memory", "disk", "write", "files", "device", "train"] {
        assert!(!found(&report, check).1.is_empty());
    }
    assert!(!story.path("not").exists());
}

#[test]
fn an_entry_point_that_is_not_there_is_bad_and_named() {
    let story = story();
    let entry = "/ip4/127.0.0.1/tcp/1/p2p/12D3KooWDpJ7As7BWAwRMfu1VU2WCqNjvq387JEYKDBj4kx6nXTN";
    let line = ["doctor", "--bootstrap", entry, "--data-dir", &story.text("data")];
    let done = story.node_within(&line, PATIENCE).unwrap();
    let done = done.expect_failure(1, &["bad: entry", "the lines above say what to do"]).unwrap();
    assert!(done.out.contains("/ip4/127.0.0.1/tcp/1 does not answer: "), "{}", done.out);
    let wrong = story.node(&["doctor", "--bootstrap", "example.org:4001"]).unwrap();
    wrong.expect_failure(2, &["/ip4/"]).unwrap();
}

/// Not even the loopback is there. What only the network could tell is a sentence too, and the search has an end.
#[test]
fn without_any_network_each_check_is_a_sentence_and_nothing_hangs() {
    let story = story();
    let alone = |name: &str, line: &[&str]| {
        let process = story.start_command_under(name, &["unshare", "-n"], line);
        process.and_then(|process| process.wait(PATIENCE))
    };
    let version = alone("version", &["--version"]);
    if !version.as_ref().is_ok_and(|done| done.code == Some(0)) {
        println!("skipped: no namespace of the network can be made here: {version:?}");
        return;
    }
    let entries = [
        "/ip4/127.0.0.1/tcp/1",
        "/ip4/203.0.113.7/udp/4001/quic-v1",
        "/dns4/no.such.host.invalid/tcp/4001",
    ];
    let peer = "12D3KooWDpJ7As7BWAwRMfu1VU2WCqNjvq387JEYKDBj4kx6nXTN";
    let entries = entries.map(|at| format!("{at}/p2p/{peer}"));
    let data = story.text("data");
    let mut line = vec!["doctor", "--json", "--data-dir", &data];
    for entry in &entries {
        line.extend(["--bootstrap", entry]);
    }
    let done = alone("doctor", &line).unwrap();
    let report = report(&done.expect_failure(1, &["are bad: ", "entry, entry, entry"]).unwrap());
    let all = report["checks"].as_array().unwrap();
    let said = |one: &Value| one["found"].as_str().is_some_and(|found| !found.is_empty());
    assert!(all.iter().all(said), "{report}");
    let tried = all.iter().filter(|one| one["check"] == "entry");
    let clear = |one: &&Value| {
        let remedy = one["remedy"].as_str().unwrap_or_default();
        one["found"].as_str().unwrap().contains(" does not answer: ") && remedy.contains("network")
    };
    assert_eq!(tried.filter(clear).count(), entries.len(), "{report}");
    for check in ["nat", "dialable", "router", "cgn", "ipv6", "punch"] {
        assert_eq!(found(&report, check), ("not-tried", "no entry point has answered"), "{check}");
    }
    for check in ["run", "down", "up"] {
        assert_eq!(found(&report, check).0, "not-tried", "{check}");
    }
}

/// What doctor says in the namespace of a machine.
fn examined(story: &Story, lab: &Lab, machine: &str, entries: &[String]) -> Value {
    let (space, data) = (lab.name(machine), story.text(machine));
    let mut line = vec!["doctor", "--json", "--data-dir", &data];
    for entry in entries {
        line.extend(["--bootstrap", entry]);
    }
    let under = ["ip", "netns", "exec", &space];
    let process = story.start_command_under(&format!("doctor-{machine}"), &under, &line).unwrap();
    let done = process.wait(PATIENCE).unwrap();
    // What an earlier command of this name wrote stands before it.
    report(&Done { out: done.out.lines().last().unwrap_or_default().to_owned(), ..done })
}

#[test]
fn each_kind_of_router_is_named_right() {
    if let Some(why) = missing() {
        println!("skipped: no home routers here: {why}");
        return;
    }
    let story = story();
    let manifest = story.manifest("run.toml", &[]).unwrap();
    let mut lab = Lab::new().unwrap();
    lab.machine("second", 0, Kind::Public, &story.path("")).unwrap();
    let (_one, first) = entry_point(&story, &lab, &manifest, ("boot", ENTRY_V4));
    let (_two, second) = entry_point(&story, &lab, &manifest, ("second", "5.5.0.20"));
    let entries = [first, second];
    // Of each: its words about the router, whether others can dial it, and the router's own word.
    let kinds = [
        (Kind::Public, "no router between", "ok", None),
        (Kind::FullCone, "keeps one port for all peers", "ok", None),
        (Kind::PortRestricted, "keeps one port for all peers", "warning", None),
        (Kind::Symmetric, "symmetric", "warning", None),
        (Kind::Double, "keeps one port for all peers", "warning", None),
        (Kind::Upnp, "router", "ok", Some("ok")),
    ];
    for (index, (kind, nat, dialable, router)) in kinds.into_iter().enumerate() {
        if kind == Kind::Upnp && !has_upnp() {
            println!("skipped: miniupnpd is not installed");
            continue;
        }
        let machine = format!("h{index}");
        lab.machine(&machine, 1 + index, kind, &story.path("")).unwrap();
        let mut report = examined(&story, &lab, &machine, &entries);
        // The program of a router has only just begun: it is asked again, as the report advises.
        for _ in 0..2 {
            if found(&report, "dialable").0 != dialable {
                report = examined(&story, &lab, &machine, &entries);
            }
        }
        println!("{kind:?}: {report}");
        assert_eq!(found(&report, "entry").0, "ok", "{kind:?}");
        let said = found(&report, "nat").1;
        assert!(said.contains(nat), "{kind:?}: {said}");
        assert_eq!(found(&report, "dialable").0, dialable, "{kind:?}");
        if let Some(router) = router {
            assert_eq!(found(&report, "router").0, router, "{kind:?}");
        }
    }
}

/// A hole to a member behind a router can be punched from behind a router that keeps its port, and not from behind one
/// that uses another port for each peer.
#[test]
fn a_hole_is_punched_to_a_member_where_both_routers_keep_their_ports() {
    if let Some(why) = missing() {
        println!("skipped: no home routers here: {why}");
        return;
    }
    let story = story();
    let manifest = story.manifest("run.toml", &["epoch.amount=1", "train.batch=1"]).unwrap();
    let mut lab = Lab::new().unwrap();
    let (_boot, entry) = entry_point(&story, &lab, &manifest, ("boot", ENTRY_V4));
    lab.machine("member", 0, Kind::PortRestricted, &story.path("")).unwrap();
    let space = lab.name("member");
    let under = ["ip", "netns", "exec", &space];
    let mut member = story.start_node_under("member", &under, &["--bootstrap", &entry]).unwrap();
    let reserved = |event: &Value| event["step"] == "reserved" && event["error"].is_null();
    member.wait_for(PATIENCE, reserved).unwrap();
    for (index, (kind, verdict, count)) in
        [(Kind::PortRestricted, "ok", 1), (Kind::Symmetric, "warning", 0)].into_iter().enumerate()
    {
        let machine = format!("h{index}");
        lab.machine(&machine, 1 + index, kind, &story.path("")).unwrap();
        let entries = std::slice::from_ref(&entry);
        let mut report = examined(&story, &lab, &machine, entries);
        // Where the machine is busy, the hole may come after the end.
        for _ in 0..2 {
            if found(&report, "punch").0 != verdict {
                report = examined(&story, &lab, &machine, entries);
            }
        }
        println!("{kind:?}: {report}");
        let (said, words) = found(&report, "punch");
        assert_eq!(said, verdict, "{kind:?}: {words}");
        assert_eq!(words, format!("a hole is punched to {count} of 1 member behind routers"));
    }
    assert!(member.exit().unwrap().is_none());
}

/// An entry point on a machine of the lab, and the address that it hands out.
fn entry_point(story: &Story, lab: &Lab, manifest: &Path, at: (&str, &str)) -> (Process, String) {
    let (space, ip) = at;
    let name = lab.name(space);
    let listen = [format!("/ip4/{ip}/tcp/4001"), format!("/ip4/{ip}/udp/4001/quic-v1")];
    let listen = listen.each_ref().map(String::as_str);
    let under = ["ip", "netns", "exec", &name];
    let (boot, manifests) = (format!("boot-{space}"), [manifest.to_owned()]);
    story.start_bootstrap_at(&boot, &under, &listen, &manifests).unwrap()
}
