//! The fold: what a file says, whatever is in it, and what it costs.

use proptest::prelude::*;

use super::{notice::names_an_address, peers::PEERS_MAX, *};

fn record(t_ms: u64, peer: &str, epoch: u64, event: &str) -> Record {
    let line = format!(r#"{{{event},"t_ms":{t_ms},"peer":"{peer}","run":"r","epoch":{epoch}}}"#);
    Record::parse(line.as_bytes()).unwrap_or_else(|| panic!("{line}"))
}

fn committed(members: &[String], state: &str, tokens: u64) -> String {
    let weights = vec![10; members.len()];
    format!(
        r#""event":"committed","attempt":2,"members":{members:?},"weights":{weights:?},"state":"{state}",
        "update":"u","tokens":{tokens},"loss":2.5,"sync_ms":40,"sent_bytes":100,"received_bytes":90,"forkable_since":null"#
    )
}

const STARTED: &str =
    r#""event":"started","version":"0.1.0","device":"cpu","micro_batch":8,"parameters":9"#;
const READY: &str = r#""event":"ready","tokens":10,"loss":2.5"#;

fn names(count: usize) -> Vec<String> {
    (0..count).map(|at| format!("12D3KooWpeer{at:040}")).collect()
}

#[test]
fn an_epoch_is_divided_where_the_events_divide_it() {
    let mut picture = Picture::default();
    let roster = |attempt| {
        format!(r#""event":"roster","attempt":{attempt},"members":["me","b"],"adopt":null"#)
    };
    let two = ["me".to_owned(), "b".to_owned()];
    for record in [
        record(1_000, "me", 4, STARTED),
        record(1_500, "me", 5, READY),
        record(1_520, "me", 5, &roster(1)),
        record(1_600, "me", 5, r#""event":"aborted","attempt":1,"phase":"ring","reason":"slow""#),
        record(1_700, "me", 5, &roster(2)),
        record(1_730, "me", 5, &committed(&two, "s5", 1_000)),
    ] {
        picture.take(&record);
    }
    let times = Times {
        train: Some(500),
        wait: Some(20),
        retry: Some(180),
        ring: Some(30),
        sync: 40,
        ..Times::default()
    };
    assert_eq!((picture.head.times, picture.head.epoch, picture.head.attempt), (times, 5, 2));
    assert_eq!((picture.open.epoch, picture.open.phase), (6, Phase::Training));
    assert_eq!(picture.counts.aborted.get(&Text::new("ring")), Some(&1));
    assert_eq!(picture.peers[&Text::new("b")].tokens, 10);
}

/// A watcher that starts again in a folder proves the run from epoch 1 on, and writes it into the same file.
#[test]
fn epochs_that_a_file_has_twice_are_counted_once() {
    let mut picture = Picture::default();
    let two = ["me".to_owned(), "b".to_owned()];
    for (t_ms, epoch) in [(1, 1), (2, 2), (3, 1), (4, 2), (5, 3)] {
        picture.take(&record(t_ms, "me", epoch, &committed(&two, "s", 20 * epoch)));
    }
    let peer = &picture.peers[&Text::new("b")];
    assert_eq!((peer.epochs, peer.tokens, peer.last_epoch), (3, 30, 3));
}

/// A node has taken part in one run, and then in another, and has written one file.
#[test]
fn a_file_of_two_runs_shows_the_later_one_alone() {
    let two = ["me".to_owned(), "b".to_owned()];
    let of = |run: &str, peer: &str, t_ms: u64, epoch: u64, event: &str| Record {
        run: Some(Text::new(run)),
        ..record(t_ms, peer, epoch, event)
    };
    let found = r#""event":"peer-found","who":"b","direct":true"#;
    let fork = r#""event":"fork","first_epoch":3,"undone":0,"held":true"#;
    let measured = r#""event":"evaluated","loss":2.0,"floor":1.5,"excess":0.5"#;
    let earlier = [
        of("a", "me", 1, 0, STARTED),
        of("a", "me", 2, 0, r#""event":"listening","addresses":["/ip4/10.0.0.1/tcp/1"]"#),
        of("a", "me", 3, 0, found),
        of("a", "me", 4, 1, &committed(&two, "s", 20)),
        of("a", "me", 5, 1, fork),
    ];
    let later = [
        of("b", "me", 10, 0, STARTED),
        of("b", "me", 11, 0, found),
        of("b", "me", 12, 2, &committed(&two, "s", 40)),
        of("b", "me", 13, 3, &committed(&two, "s", 60)),
    ];
    // Files of others go on with the run that this node has left.
    let others =
        [of("a", "b", 14, 3, &committed(&two, "other", 60)), of("a", "sim", 15, 3, measured)];
    let shown = |records: &[&[Record]]| {
        let mut picture =
            Picture { source: Source { speed: 2.0, ..Source::default() }, ..Picture::default() };
        let mut past = crate::history::History::default();
        for record in records.iter().copied().flatten() {
            picture.take(record);
            past.take(record, &picture);
        }
        let past = past.columns(0, u64::MAX, 9);
        (serde_json::to_string(&picture).unwrap(), serde_json::to_string(&past).unwrap())
    };
    let (picture, past) = shown(&[&later]);
    assert!(picture.contains(r#""speed":2.0"#) && past.contains(r#""epoch":[2,3]"#), "{past}");
    assert_eq!(shown(&[&earlier, &later, &others]), (picture, past));
}

/// The line is written once a minute, and the node follows what the others decide.
#[test]
fn a_node_whose_disk_is_full_is_not_well_because_it_follows_the_others() {
    let mood = |picture: &Picture| crate::lines::verdict(picture).mood;
    let commit = committed(&["me".to_owned(), "b".to_owned()], "s", 20);
    let roster = r#""event":"roster","attempt":1,"members":["me","b"],"adopt":null"#;
    let regroup = r#""event":"regroup","number":1,"proposer":"b","members":["me","b"],"absent":[]"#;
    let caught_up = r#""event":"caught-up","state":"s","tokens":20"#;
    for goes_on in [&*commit, roster, regroup, caught_up, STARTED] {
        let wait = |reason: &str, t_ms: u64| {
            let mut picture = Picture::default();
            picture.take(&record(1, "me", 0, STARTED));
            let waiting =
                format!(r#""event":"waiting","reason":"{reason}","text":"full","cure":"x""#);
            picture.take(&record(1_000, "me", 1, &waiting));
            picture.take(&record(t_ms, "me", 1, goes_on));
            mood(&picture)
        };
        assert_eq!(wait("disk", 65_999), crate::lines::Mood::Wait, "{goes_on}");
        assert_eq!(wait("disk", 66_000), crate::lines::Mood::Good, "{goes_on}");
        assert_eq!(wait("voters", 2_000), crate::lines::Mood::Good, "{goes_on}");
    }
}

/// A 0 in the events of a watcher is no measurement.
#[test]
fn what_a_watcher_does_not_measure_is_not_shown() {
    let mut picture = Picture::default();
    let mut past = crate::history::History::default();
    let members = ["a".to_owned(), "b".to_owned()];
    let mut take = |picture: &mut Picture, line: &str| {
        let record = record(1, "me", 1, line);
        picture.take(&record);
        past.take(&record, picture);
        past.columns(0, u64::MAX, 9)
    };
    take(&mut picture, r#""event":"watching","version":"0.1.0""#);
    let shown = take(&mut picture, &committed(&members, "s", 20));
    assert_eq!(shown.numbers("loss"), [Some(2.5)]);
    for column in ["sync_ms", "sent_bytes", "received_bytes"] {
        assert!(shown.numbers(column).is_empty(), "{column}");
    }
    let metrics = crate::metrics::text(&picture);
    for name in ["sync_seconds", "sent_bytes_total", "received_bytes_total", "left_out_total"] {
        assert!(!metrics.contains(&format!("intellect_{name}{{")), "{metrics}");
    }
    assert!(!crate::lines::lines(&picture, 200)[2].contains("up"));
    take(&mut picture, STARTED);
    let shown = take(&mut picture, &committed(&members, "s", 20));
    assert_eq!(shown.numbers("sent_bytes"), [Some(100.0)]);
}

/// A voter that was left out is a member without weight.
#[test]
fn a_member_without_a_position_is_in_no_ring() {
    let mut picture = Picture::default();
    picture.take(&record(1_000, "me", 0, STARTED));
    let commit = committed(&names(4), "s1", 30).replace("[10, 10, 10, 10]", "[10, 10, 10, 0]");
    picture.take(&record(1_100, "me", 1, &commit));
    assert_eq!(picture.ring.len(), 3);
    let left_out = picture.peers.get(&Text::new(&names(4)[3]));
    assert!(left_out.is_none_or(|peer| (peer.epochs, peer.last_epoch) == (0, 0)));
}

/// A file has both starts; nobody says goodbye in between.
#[test]
fn a_second_start_knows_neither_who_is_here_nor_how_fast_it_goes() {
    let mut picture = Picture::default();
    picture.take(&record(1_000, "me", 0, STARTED));
    picture.take(&record(1_100, "me", 0, r#""event":"peer-found","who":"b","direct":true"#));
    for epoch in 1..=3 {
        picture.take(&record(epoch * 1_000, "me", epoch, &committed(&names(1), "s", epoch * 10)));
    }
    picture.take(&record(9_000_000, "me", 3, &format!("{STARTED},\"tokens\":30")));
    assert_eq!(picture.peers[&Text::new("b")].here, Some(false));
    for epoch in 4..=5 {
        let t_ms = 9_000_000 + epoch * 1_000;
        picture.take(&record(t_ms, "me", epoch, &committed(&names(1), "s", epoch * 10)));
    }
    assert_eq!(picture.pace.tokens_per_s, Some(10.0));
}

#[test]
fn another_writer_adds_its_state_and_nothing_else() {
    let mut picture = Picture::default();
    let two = ["me".to_owned(), "b".to_owned()];
    picture.take(&record(1_000, "me", 0, STARTED));
    picture.take(&record(1_100, "b", 1, &committed(&two, "s1", 20)));
    assert_eq!((picture.head.epoch, picture.agreement.compared), (0, 0));
    picture.take(&record(1_200, "me", 1, &committed(&two, "s1", 20)));
    assert_eq!((picture.agreement.compared, picture.agreement.differing), (1, 0));
    picture.take(&record(1_300, "me", 2, &committed(&two, "s2", 40)));
    picture.take(&record(1_310, "b", 2, &committed(&two, "other", 40)));
    assert_eq!((picture.agreement.compared, picture.agreement.differing), (2, 1));
    // On another lineage another update has led to another state.
    let fork = committed(&two, "s3", 60).replace(r#""u""#, r#""v""#);
    picture.take(&record(1_320, "b", 3, &fork));
    picture.take(&record(1_330, "me", 3, &committed(&two, "mine", 60)));
    assert_eq!((picture.agreement.compared, picture.agreement.differing), (2, 1));
    picture.take(&record(
        1_400,
        "sim",
        2,
        r#""event":"evaluated","loss":2.0,"floor":1.5,"excess":0.5"#,
    ));
    assert_eq!(picture.held_out.unwrap().floor, Some(1.5));
    picture.take(&record(1_500, "b", 2, r#""event":"stopped","code":0"#));
    assert_eq!(picture.open.phase, Phase::Training);
}

/// The members of a ring have begun from the state before it.
#[test]
fn an_epoch_of_the_strip_is_the_same_differs_or_is_unknown() {
    let (mut picture, two) = (Picture::default(), ["me".to_owned(), "b".to_owned()]);
    let commit = |members: &[String], epoch: u64| {
        record(epoch, "me", epoch, &committed(members, &format!("s{epoch}"), 20))
    };
    picture.take(&record(0, "me", 0, STARTED));
    for epoch in 1..=3 {
        picture.take(&commit(&two, epoch));
    }
    let strip = |picture: &Picture| Vec::from(picture.agreement.epochs.clone());
    assert_eq!(strip(&picture), [(1, Some(true)), (2, Some(true)), (3, None)]);
    // What differs stays so, and a ring of this node alone says nothing.
    picture.take(&record(4, "me", 3, r#""event":"diverged","who":"b","mine":"s2","theirs":"x""#));
    picture.take(&record(4, "b", 2, &committed(&two, "s2", 20)));
    picture.take(&commit(&two[..1], 4));
    assert_eq!(strip(&picture), [(1, Some(true)), (2, Some(false)), (3, None), (4, None)]);
    // Epoch 3 is committed once more, on another lineage.
    picture.take(&commit(&two, 3));
    assert_eq!(strip(&picture), [(1, Some(true)), (2, Some(false)), (3, None)]);
    for epoch in 4..=90 {
        picture.take(&commit(&two, epoch));
    }
    let last = strip(&picture);
    assert_eq!((last.len(), last[0], last[49]), (50, (41, Some(true)), (90, None)));
}

#[test]
fn a_wait_is_over_once_the_node_waits_no_longer() {
    let mut picture = Picture::default();
    let wait = |reason| format!(r#""event":"waiting","reason":"{reason}","text":"","cure":"""#);
    picture.take(&record(1, "me", 0, STARTED));
    picture.take(&record(2, "me", 1, &wait("alone")));
    picture.take(&record(3, "me", 1, r#""event":"peer-found","who":"b","direct":true"#));
    assert!(picture.waiting.is_none(), "a file has nothing else that says so");
    let at = |t_ms, waits| Gauge { t_ms, waits, ..Gauge::default() };
    picture.take(&record(4, "me", 1, &wait("voters")));
    picture.measure(at(5, true));
    assert!(picture.waiting.is_some());
    picture.measure(at(6, false));
    assert!(picture.waiting.is_none());
    picture.take(&record(7, "me", 1, &wait("disk")));
    picture.measure(at(8, false));
    assert!(picture.waiting.is_some(), "it is said once a minute");
}

#[test]
fn addresses_stay_on_this_machine() {
    for text in ["/ip4/1.2.3.4/tcp/1", "to 192.168.0.7:40", "by /dns4/x.y", "from 2001:db8::1"] {
        assert!(names_an_address(text), "{text}");
    }
    for text in ["version 0.1.0", "epoch 3: a face", "12D3KooWbeef is here", "at 10:40"] {
        assert!(!names_an_address(text), "{text}");
    }
    let mut picture = Picture::default();
    picture.take(&record(1, "me", 0, STARTED));
    picture.take(&record(2, "me", 0, r#""event":"listening","addresses":["/ip4/1.2.3.4/tcp/1"]"#));
    let open = r#""event":"reachability","state":"open","addresses":["/ip4/1.2.3.4/tcp/1"]"#;
    picture.take(&record(2, "me", 0, open));
    assert_eq!(picture.node.entrance, Some(Text::new("/ip4/1.2.3.4/tcp/1/p2p/me")));
    picture.take(&record(3, "me", 0, r#""event":"fault","who":"x","why":"dialled 10.0.0.1:40""#));
    picture.take(&record(4, "me", 0, r#""event":"path","step":"dialled","error":"10.0.0.2:40""#));
    picture.take(&record(5, "me", 0, r#""event":"peer-lost","who":"x","cause":"10.0.0.3:40""#));
    let waiting = r#""event":"waiting","reason":"alone","text":"10.0.0.4:1","cure":"10.0.0.5:1""#;
    picture.take(&record(6, "me", 0, waiting));
    let shown = serde_json::to_string(&picture.without_addresses()).unwrap();
    assert!(!shown.contains("1.2.3.4") && !shown.contains("10.0.0."), "{shown}");
    assert_eq!(shown.matches("names an address").count(), 8, "{shown}");
}

#[test]
fn ten_thousand_epochs_of_two_hundred_peers_stay_small() {
    let mut picture = Picture::default();
    picture.take(&record(1, "12D3KooWme", 0, STARTED));
    for turn in 0..50 {
        // The names change, as where peers come and go.
        let members: Vec<String> = names(200 + turn * 10).split_off(turn * 10);
        let mut record = record(2, "12D3KooWme", 0, &committed(&members, &"a".repeat(64), 0));
        for step in 0..200 {
            let epoch = turn as u64 * 200 + step + 1;
            (record.epoch, record.t_ms) = (Some(epoch), epoch * 100);
            picture.take(&record);
        }
    }
    assert_eq!((picture.head.epoch, picture.ring.len()), (10_000, 200));
    assert!(picture.peers.len() <= PEERS_MAX);
    // The past is bounded beside this, to 4 MiB.
    assert!(serde_json::to_vec(&picture).unwrap().len() < 256 << 10);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn any_order_of_events_is_folded(
        events in prop::collection::vec((0_usize..9, 0_u64..50, 0_u64..u64::MAX, "[a-c]"), 0..80)
    ) {
        let members = names(3);
        let commit = committed(&members, "s", 7);
        let kinds = [
            STARTED, READY, &commit,
            r#""event":"roster","attempt":1,"members":["a"],"adopt":null"#,
            r#""event":"peer-found","who":"b","direct":true"#,
            r#""event":"peer-lost","who":"b","cause":"left""#,
            r#""event":"fork","first_epoch":1,"undone":18446744073709551615,"held":true"#,
            r#""event":"waiting","reason":"alone","cure":"x""#,
            r#""event":"sync","from_epoch":1,"to_epoch":2,"have_bytes":9,"want_bytes":0,"rate":1e300"#,
        ];
        let mut picture = Picture::default();
        let mut past = crate::history::History::default();
        for (kind, epoch, t_ms, peer) in events {
            let record = record(t_ms, &peer, epoch, kinds[kind]);
            picture.take(&record);
            past.take(&record, &picture);
        }
        prop_assert!(picture.notices.len() <= NOTICES_MAX);
        crate::lines::lines(&picture, 80);
        crate::lines::verdict(&picture);
        prop_assert!(crate::metrics::text(&picture).ends_with('\n'));
    }
}

#[test]
fn a_node_that_goes_on_shows_where_it_is() {
    let mut picture = Picture::default();
    picture.take(&record(1_000, "me", 7, &format!("{STARTED},\"tokens\":70")));
    assert_eq!((picture.head.epoch, picture.head.tokens, picture.open.epoch), (7, 70, 8));
    picture.take(&record(1_100, "me", 9, r#""event":"caught-up","state":"s","tokens":90"#));
    assert_eq!((picture.head.epoch, picture.head.tokens, picture.open.epoch), (9, 90, 10));
    // An older program did not say the tokens.
    picture.take(&record(1_200, "me", 12, r#""event":"caught-up","state":"s""#));
    assert_eq!((picture.head.epoch, picture.head.tokens), (12, 0));
}
