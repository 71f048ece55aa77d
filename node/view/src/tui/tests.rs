//! The screen on a terminal in memory: goldens at two sizes, and no size at which it fails.

use ratatui::{Terminal, backend::TestBackend, crossterm::event::KeyEvent};

use super::*;
use crate::{picture::Source, record::Record, stage::Stage};

/// Two peers that commit forty epochs; one leaves.
fn seen() -> Seen {
    let (mut stage, seen) = Stage::new(Source::default());
    let mut take = |t_ms: u64, event: &str| {
        let line =
            format!(r#"{{{event},"t_ms":{t_ms},"peer":"12D3KooWaaaaMe","run":"0123456789"}}"#);
        stage.take(&Record::parse(line.as_bytes()).unwrap(), &line);
    };
    take(
        1_000,
        r#""event":"started","version":"0.1.0","device":"cpu","micro_batch":8,"parameters":9"#,
    );
    take(1_100, r#""event":"manifest","name":"demo","organiser":"ab","from":null"#);
    take(1_200, r#""event":"peer-found","who":"12D3KooWaaaYou","direct":true"#);
    for epoch in 1..=40_u64 {
        let (at, loss) = (epoch * 10_000, 2.0 + 2.0 / epoch as f64);
        let members = r#""members":["12D3KooWaaaaMe","12D3KooWaaaYou"]"#;
        take(at - 3_000, &format!(r#""event":"ready","tokens":512,"loss":{loss},"epoch":{epoch}"#));
        take(at - 2_000, &format!(r#""event":"roster","attempt":1,{members},"epoch":{epoch}"#));
        take(
            at,
            &format!(
                r#""event":"committed","attempt":1,{members},"weights":[512,256],"state":"ab","update":"u","tokens":{},"loss":{loss},"sync_ms":2000,"sent_bytes":9000,"received_bytes":8000,"forkable_since":null,"epoch":{epoch}"#,
                768 * epoch
            ),
        );
    }
    take(401_000, r#""event":"peer-lost","who":"12D3KooWaaaYou","cause":"silent""#);
    stage.publish();
    seen
}

fn screen(columns: u16, rows: u16, seen: &Seen, axis: Axis) -> String {
    let mut terminal = Terminal::new(TestBackend::new(columns, rows)).unwrap();
    let (picture, past) =
        (seen.picture.borrow().clone(), seen.past.lock().columns(0, u64::MAX, 160));
    let view = View { picture: &picture, past: &past, axis, note: "a note", said: None };
    terminal.draw(|frame| view.draw(frame)).unwrap();
    let cells = terminal.backend().buffer().content();
    let lines = cells.chunks(usize::from(columns).max(1)).map(|line| {
        line.iter().map(|cell| cell.symbol()).collect::<String>().trim_end().to_owned() + "\n"
    });
    lines.collect()
}

/// To write them anew after a change that is meant: UPDATE_GOLDENS=1.
#[test]
fn the_screen_is_as_it_was() {
    for (name, columns, rows) in [("80x24", 80, 24), ("200x60", 200, 60), ("20x5", 20, 5)] {
        let drawn = screen(columns, rows, &seen(), Axis::Tokens);
        let path = format!("{}/src/tui/golden-{name}.txt", env!("CARGO_MANIFEST_DIR"));
        if env::var_os("UPDATE_GOLDENS").is_some() {
            std::fs::write(&path, &drawn).unwrap();
        }
        let golden = std::fs::read_to_string(&path).unwrap();
        assert!(drawn == golden, "{name} is now\n{drawn}\nand was\n{golden}");
    }
}

#[test]
fn an_event_of_another_day_says_how_many_days_ago_it_was() {
    let (mut stage, seen) = Stage::new(Source::default());
    for (who, t_ms) in [("one", 86_399_000_u64), ("two", 86_400_000), ("six", 172_802_000)] {
        let line = format!(
            r#"{{"event":"peer-found","who":"{who}","direct":true,"t_ms":{t_ms},"peer":"me","run":"r"}}"#
        );
        stage.take(&Record::parse(line.as_bytes()).unwrap(), &line);
    }
    stage.publish();
    let drawn = screen(80, 24, &seen, Axis::Tokens);
    for said in ["\n2 d ago, 23:59:59 one is here", "\n1 d ago, 00:00:00 two", "\n00:00:02 six"] {
        assert!(drawn.contains(said), "{drawn}");
    }
}

/// A narrow terminal has no verdict without its end: a cure that is cut is none.
#[test]
fn a_long_verdict_takes_up_to_three_rows() {
    let (mut stage, seen) = Stage::new(Source::default());
    let text = "alone: no other peer of this run can be reached; what is trained now may be undone when one can";
    let cure = "name an entry point with --bootstrap";
    let mut wait = |text: &str| {
        let line = format!(
            r#"{{"event":"waiting","reason":"goes-on-alone","text":"{text}","cure":"{cure}","t_ms":1,"peer":"me","run":"0123456789"}}"#
        );
        stage.take(&Record::parse(line.as_bytes()).unwrap(), &line);
        stage.publish();
        screen(80, 24, &seen, Axis::Tokens)
    };
    let drawn = wait(text);
    let words = drawn.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        words.contains(&format!(
            "{}. {}. epoch 0",
            text.replacen('a', "A", 1),
            cure.replacen('n', "N", 1)
        )),
        "{drawn}"
    );
    assert_eq!(drawn.lines().position(|line| line.starts_with("epoch 0")), Some(2), "{drawn}");
    let endless = wait(&"word ".repeat(90));
    assert_eq!(endless.lines().position(|line| line.starts_with("epoch 0")), Some(3), "{endless}");
    assert_eq!(endless.lines().count(), 24);
}

#[test]
fn every_size_and_axis_can_be_drawn() {
    let (full, (_stage, empty)) = (seen(), Stage::new(Source::default()));
    for columns in (1..130).step_by(9).chain([300]) {
        for rows in (1..40).step_by(5).chain([90]) {
            for axis in [Axis::Tokens, Axis::Time, Axis::Epochs] {
                screen(columns, rows, &full, axis);
            }
            screen(columns, rows, &empty, Axis::Tokens);
        }
    }
}

#[test]
fn keys_end_it_and_choose_the_axis() {
    let key = |code, modifiers| wish(&Event::Key(KeyEvent::new(code, modifiers)));
    assert_eq!(key(KeyCode::Char('q'), KeyModifiers::NONE), Wish::End);
    assert_eq!(key(KeyCode::Char('c'), KeyModifiers::CONTROL), Wish::End);
    assert_eq!(key(KeyCode::Char('c'), KeyModifiers::NONE), Wish::Nothing);
    // An arrow that comes in two pieces over a slow line begins like this key.
    assert_eq!(key(KeyCode::Esc, KeyModifiers::NONE), Wish::Nothing);
    assert_eq!(key(KeyCode::Char('t'), KeyModifiers::NONE), Wish::NextAxis);
    assert_eq!(wish(&Event::Resize(20, 5)), Wish::Draw);
    assert_eq!(Axis::Tokens.next().next().next(), Axis::Tokens);
}

/// A pipe without a writer ends as a terminal does whose window was closed.
#[test]
fn a_terminal_that_is_gone_ends_the_screen() {
    let (terminal, mut window) = io::pipe().unwrap();
    assert!(!await_input(&terminal).unwrap());
    io::Write::write_all(&mut window, b"t").unwrap();
    assert!(await_input(&terminal).unwrap());
    drop(window);
    assert_eq!(await_input(&terminal).unwrap_err().kind(), io::ErrorKind::NotConnected);
}

#[test]
fn a_terminal_that_cannot_move_its_cursor_is_told() {
    assert!(why_unfit(true, Some("dumb")).is_some() && why_unfit(true, None).is_some());
    assert!(why_unfit(false, Some("xterm")).is_some());
    assert_eq!(why_unfit(true, Some("xterm-256color")), None);
}

/// What a node says stands where else the events do, the newest first, and a long sentence takes a second row.
#[test]
fn what_is_said_is_listed_in_place_of_the_events() {
    let (seen, said) = (seen(), Said::default());
    said.push(said::Kind::News, "the older sentence");
    said.push(said::Kind::Warning, &format!("the newer one {}the end", "is long ".repeat(10)));
    let (picture, past) =
        (seen.picture.borrow().clone(), seen.past.lock().columns(0, u64::MAX, 160));
    let mut terminal = Terminal::new(TestBackend::new(80, 24)).unwrap();
    let said = Some(&said);
    let view = View { picture: &picture, past: &past, axis: Axis::Time, note: "", said };
    terminal.draw(|frame| view.draw(frame)).unwrap();
    let drawn = terminal.backend().to_string();
    let at = |word: &str| drawn.find(word).unwrap_or_else(|| panic!("no {word} in\n{drawn}"));
    assert!(at("what it says") < at("the newer one"));
    assert!(at("the newer one") < at("the end") && at("the end") < at("the older sentence"));
    assert!(!drawn.contains("aaaYou is gone"));
}

/// The screen of a node that another process asks shows what the node's own would.
#[test]
fn a_picture_that_was_asked_for_is_drawn_as_the_one_that_answered() {
    let seen = seen();
    let (mirror, there) = crate::stage::Mirror::new();
    let status = serde_json::to_string(&*seen.picture.borrow().clone()).unwrap();
    let past = |seen: &Seen| serde_json::to_string(&seen.past.lock().columns(0, u64::MAX, 400));
    let history = past(&seen).unwrap();
    for cut in [1, status.len() / 2, status.len() - 1] {
        assert!(mirror.show(&status[..cut], &history).is_err());
    }
    assert!(mirror.show(&status, "{}").is_err() && mirror.show("{}", &history).is_err());
    mirror.show(&status, &history).unwrap();
    assert_eq!(past(&there).unwrap(), history);
    for axis in [Axis::Tokens, Axis::Time, Axis::Epochs] {
        assert_eq!(screen(120, 40, &there, axis), screen(120, 40, &seen, axis));
    }
}
