//! The page over a real socket: what it answers, whom it refuses, and its bounds.

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use super::*;
use crate::{
    picture::{Source, gauge},
    record::Record,
    stage::Stage,
};

async fn page(bind: &str) -> (SocketAddr, Stage) {
    page_of(bind, &[]).await
}

/// The page that browsers may also ask for by these names.
async fn page_of(bind: &str, names: &[String]) -> (SocketAddr, Stage) {
    let listener = TcpListener::bind(bind).await.unwrap();
    let bound = listener.local_addr().unwrap();
    let (mut stage, seen) = Stage::new(Source::default());
    let line = r#"{"event":"started","version":"<img src=x onerror=alert(1)>","device":"cpu","micro_batch":8,"parameters":9,"t_ms":1,"peer":"me","run":"r"}"#;
    stage.take(&Record::parse(line.as_bytes()).unwrap(), line);
    let line = r#"{"event":"listening","addresses":["/ip4/10.1.2.3/tcp/1"],"t_ms":2,"peer":"me","run":"r"}"#;
    stage.take(&Record::parse(line.as_bytes()).unwrap(), line);
    stage.publish();
    drop(tokio::spawn(serve(listener, seen, Access::new(bound, names))));
    (bound, stage)
}

async fn ask(to: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect((IpAddr::from([127, 0, 0, 1]), to.port())).await.unwrap();
    stream.write_all(format!("{request}Connection: close\r\n\r\n").as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

#[tokio::test]
async fn every_path_answers_and_only_to_reading() {
    let (at, _stage) = page("127.0.0.1:0").await;
    for (path, want) in [
        ("/", "<!doctype html>"),
        ("/page.js", "textContent"),
        ("/chart.js", "canvas"),
        ("/page.css", "prefers-color-scheme"),
        ("/status", "\"format\":1"),
        ("/history?from=0&points=9", "\"epoch\":[]"),
        ("/text", "epoch 0 · training"),
        ("/metrics", "# TYPE intellect_epoch gauge"),
        ("/healthz", "ok"),
    ] {
        let answer = ask(at, &format!("GET {path} HTTP/1.1\r\nHost: localhost:80\r\n")).await;
        assert!(answer.starts_with("HTTP/1.1 200") && answer.contains(want), "{path}: {answer}");
        assert!(answer.contains("default-src 'none'; script-src 'self'"));
        let head = ask(at, &format!("HEAD {path} HTTP/1.1\r\nHost: localhost\r\n")).await;
        assert!(head.starts_with("HTTP/1.1 200") && head.ends_with("\r\n\r\n"), "{path}: {head}");
        let post = ask(at, &format!("POST {path} HTTP/1.1\r\nHost: localhost\r\n")).await;
        assert!(post.starts_with("HTTP/1.1 405"), "{path}: {post}");
    }
    let tagged = format!("GET / HTTP/1.1\r\nHost: localhost\r\nIf-None-Match: {ETAG}\r\n");
    assert!(ask(at, &tagged).await.starts_with("HTTP/1.1 304"));
    for (path, want, words) in [
        ("/../x", "404", "there is /, /status"),
        ("/history?points=abc", "400", "are numbers"),
        ("/history?from=-1", "400", "are numbers"),
    ] {
        let answer = ask(at, &format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n")).await;
        let begin = format!("HTTP/1.1 {want}");
        assert!(answer.starts_with(&begin) && answer.contains(words), "{path}: {answer}");
    }
}

#[tokio::test]
async fn names_of_strangers_and_other_sites_are_refused() {
    let (at, _stage) = page_of("127.0.0.1:0", &["train.example".to_owned()]).await;
    for (headers, want) in [
        ("Host: evil.example\r\n", "421"),
        ("Host: 10.0.0.1\r\n", "421"),
        ("Host: localhost.evil.example:80\r\n", "421"),
        ("", "421"),
        ("Host: localhost\r\nOrigin: https://evil.example\r\n", "403"),
        ("Host: localhost\r\nOrigin: null\r\n", "403"),
        ("Host: TRAIN.example:8080\r\n", "200"),
        ("Host: [::1]:80\r\n", "200"),
        ("Host: 127.0.0.1\r\nOrigin: http://127.0.0.1\r\n", "200"),
    ] {
        let answer = ask(at, &format!("GET /status HTTP/1.1\r\n{headers}")).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {want}")), "{headers}: {answer}");
    }
}

#[tokio::test]
async fn one_that_sends_no_header_is_dropped_whatever_it_speaks() {
    let (at, _stage) = page("127.0.0.1:0").await;
    // Nothing; a header without an end; the preface and empty settings of HTTP/2.
    let each: [&[u8]; 3] =
        [b"", b"GET / HTTP/1.1\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0"];
    let dropped = each.map(|bytes| async move {
        let mut stream = TcpStream::connect(at).await.unwrap();
        stream.write_all(bytes).await.unwrap();
        let mut answer = Vec::new();
        time::timeout(2 * HEADER_TIMEOUT, stream.read_to_end(&mut answer)).await.is_ok()
    });
    assert_eq!(futures::future::join_all(dropped).await, [true; 3]);
}

#[tokio::test]
async fn addresses_are_for_this_machine_alone() {
    let request = "GET /status HTTP/1.1\r\nHost: 127.0.0.1\r\n";
    let (at, _stage) = page("127.0.0.1:0").await;
    assert!(ask(at, request).await.contains("10.1.2.3"));
    let (at, _stage) = page("0.0.0.0:0").await;
    let answer = ask(at, request).await;
    assert!(answer.starts_with("HTTP/1.1 200") && !answer.contains("10.1.2.3"), "{answer}");
}

/// A proxy on this machine passes the page on, by a name that was given for it.
#[tokio::test]
async fn a_page_with_a_name_says_no_address_on_the_loopback_either() {
    let (at, mut stage) = page_of("127.0.0.1:0", &["Train.example".to_owned()]).await;
    let mut stream = TcpStream::connect(at).await.unwrap();
    stream.write_all(b"GET /events HTTP/1.1\r\nHost: train.example\r\n\r\n").await.unwrap();
    let mut read = Vec::new();
    while !String::from_utf8_lossy(&read).contains("event: picture") {
        assert!(stream.read_buf(&mut read).await.unwrap() > 0);
    }
    let line =
        r#"{"event":"fault","who":"x","why":"dialled 10.1.2.3:40","t_ms":5,"peer":"me","run":"r"}"#;
    stage.take(&Record::parse(line.as_bytes()).unwrap(), line);
    let line = r#"{"event":"leaving","t_ms":6,"peer":"me","run":"r"}"#;
    stage.take(&Record::parse(line.as_bytes()).unwrap(), line);
    while !String::from_utf8_lossy(&read).contains("leaving") {
        assert!(stream.read_buf(&mut read).await.unwrap() > 0);
    }
    let read = String::from_utf8(read).unwrap();
    assert!(!read.contains("10.1.2.3"), "{read}");
    let answer = ask(at, "GET /status HTTP/1.1\r\nHost: train.example\r\n").await;
    assert!(answer.contains("\"format\":1") && !answer.contains("10.1.2.3"), "{answer}");
}

#[tokio::test]
async fn a_stream_begins_with_a_picture_and_streams_are_bounded() {
    let (at, mut stage) = page("127.0.0.1:0").await;
    let request = "GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let mut streams = Vec::new();
    for _ in 0..STREAMS_MAX {
        let mut stream = TcpStream::connect(at).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut begin = Vec::new();
        while !String::from_utf8_lossy(&begin).contains("event: picture") {
            assert!(stream.read_buf(&mut begin).await.unwrap() > 0);
        }
        streams.push(stream);
    }
    let more = ask(at, "GET /events HTTP/1.1\r\nHost: localhost\r\n").await;
    assert!(more.starts_with("HTTP/1.1 503"), "{more}");
    // None of them reads, and the writer does not wait for any.
    let line = r#"{"event":"leaving","t_ms":5,"peer":"me","run":"r"}"#;
    let record = Record::parse(line.as_bytes()).unwrap();
    for _ in 0..20_000 {
        stage.take(&record, line);
    }
    stage.publish();
    assert!(ask(at, "GET /status HTTP/1.1\r\nHost: localhost\r\n").await.contains("stopped"));
}

/// The socket of a folder gives what a page on the loopback gives.
#[tokio::test]
async fn a_local_socket_answers_an_old_and_short_request() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    let (mut stage, seen) = Stage::new(Source::default());
    let line = r#"{"event":"listening","addresses":["/ip4/10.1.2.3/tcp/1"],"t_ms":2,"peer":"me","run":"r"}"#;
    stage.take(&Record::parse(line.as_bytes()).unwrap(), line);
    stage.publish();
    drop(tokio::spawn(serve_local(UnixListener::bind(&path).unwrap(), seen)));
    let mut stream = tokio::net::UnixStream::connect(&path).await.unwrap();
    stream.write_all(b"GET /status HTTP/1.0\r\nHost: localhost\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.contains(" 200 ") && answer.contains("10.1.2.3"), "{answer}");
}

/// A running node is well while heartbeats or steps come, and no longer than its run's grace after the last.
#[tokio::test]
async fn health_is_a_sign_of_life() {
    let (stage, seen) = Stage::new(Source { live: true, ..Source::default() });
    let mut stage = stage;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    drop(tokio::spawn(serve(listener, seen, Access::new(at, &[]))));
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64;
    for (silent_ms, want) in [(1_000, "200"), (29_000, "200"), (45_000, "503")] {
        let life = gauge::Life { heard_ms: now - silent_ms, grace_ms: 8_000 };
        stage.measure(gauge::Gauge { t_ms: now, training: None, life, waits: false });
        stage.publish();
        let answer = ask(at, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n").await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {want}")), "{silent_ms}: {answer}");
    }
}

/// What the script says of a moment, where there is a program that runs it.
#[test]
fn a_moment_of_another_day_has_its_date_and_an_axis_whole_hours() {
    let script = r"
        const at = Date.UTC(2024, 1, 28, 21, 13, 20), hours = (n) => moments(at, at + n * HOUR, 8).map((x) => onClock(x, n * HOUR));
        const today = new Date().setHours(0, 0, 0);
        console.log([clock(at), clock(today), hours(8)[0], hours(60)[1], hours(300)[1], moments(at, at, 8)].join('; '));
    ";
    let mut program = std::process::Command::new("node");
    program.env("TZ", "Europe/Berlin").env("LC_ALL", "en_US.UTF-8");
    let script = include_str!("../../assets/chart.js").to_owned() + script;
    let Ok(done) = program.args(["--input-type=module", "--eval", &script]).output() else {
        println!("skipped: no node, so the script of the page was not run");
        return;
    };
    let said = String::from_utf8(done.stdout).unwrap() + &String::from_utf8_lossy(&done.stderr);
    let want = "Feb 28, 22:13:20; 00:00:00; 23:00:00; Feb 29, 12:00; Mar 2, 00:00; 1709154800000\n";
    assert_eq!(said, want);
}

#[test]
fn a_connection_has_so_many_requests_a_second() {
    let allowance = Allowance::new();
    let allowed = (0..100_000).map(|_: u32| u32::from(allowance.take())).sum::<u32>();
    let seconds = allowance.began.elapsed().as_secs() as u32 + 1;
    assert!((REQUESTS_PER_SECOND..=REQUESTS_PER_SECOND * seconds).contains(&allowed));
}
