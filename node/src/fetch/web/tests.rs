//! Files from a web server that makes every mistake.
//!
//! The server runs on this machine, which the rules of the internet refuse; so the tests have rules of their own.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::Mutex;

use intellect_protocol::base::id::RunId;
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use ureq::tls::{Certificate, RootCerts};

use super::*;
use crate::store::data::tests::{described, has};

const MIB: usize = TREE_PIECE_BYTES;

/// What a server does with a connection: from the head of a request to its answer. Then it closes the connection, sends
/// nothing more, or a byte now and then.
type Play = fn(&str) -> (Vec<u8>, Then);

#[derive(PartialEq)]
enum Then {
    Close,
    Hang,
    Drip,
}

struct Server {
    port: u16,
    roots: RootCerts,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Server {
    /// The server runs as long as the process.
    fn start(play: Play) -> Self {
        let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        let der = CertificateDer::from(made.cert.der().to_vec());
        let key = PrivateKeyDer::try_from(made.key_pair.serialize_der()).unwrap();
        let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![der.clone()], key)
            .unwrap();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let (port, config) = (listener.local_addr().unwrap().port(), Arc::new(config));
        let asked = Arc::new(Mutex::new(Vec::new()));
        let noted = Arc::clone(&asked);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                // A client that refuses the certificate breaks off.
                let _ = serve(stream.unwrap(), &config, play, &noted);
            }
        });
        let roots = RootCerts::new_with_certs(&[Certificate::from_der(&der).to_owned()]);
        Self { port, roots, asked }
    }

    fn rules(&self) -> WebRules {
        let allows = |ip: IpAddr| ip == Ipv4Addr::LOCALHOST || public::is_public(ip);
        let (patience, pause) = (Duration::from_secs(20), Duration::ZERO);
        WebRules { allows, roots: self.roots.clone(), patience, pause }
    }

    fn url(&self) -> String {
        format!("https://localhost:{}/text", self.port)
    }

    /// How many requests there were, and the range of bytes in the last one.
    fn asked(&self) -> (usize, Option<String>) {
        let asked = self.asked.lock().unwrap();
        let range = |head: &String| {
            let line = head.lines().find(|line| line.to_lowercase().starts_with("range:"));
            line.map(|line| line[6..].trim().to_owned())
        };
        (asked.len(), asked.last().and_then(range))
    }
}

fn serve(
    stream: TcpStream,
    config: &Arc<ServerConfig>,
    play: Play,
    noted: &Mutex<Vec<String>>,
) -> std::io::Result<()> {
    let connection = ServerConnection::new(Arc::clone(config)).unwrap();
    let mut stream = StreamOwned::new(connection, stream);
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte)?;
        head.push(byte[0]);
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    let (answer, then) = play(&head);
    noted.lock().unwrap().push(head);
    stream.write_all(&answer)?;
    stream.flush()?;
    if then == Then::Drip {
        // A byte in time for each read, as long as the client takes it.
        loop {
            std::thread::sleep(Duration::from_millis(50));
            stream.write_all(b"x")?;
            stream.flush()?;
        }
    }
    if then == Then::Hang {
        // Until the client closes the connection.
        let _ = stream.read(&mut [0]);
        return Ok(());
    }
    stream.conn.send_close_notify();
    stream.flush()
}

fn bytes() -> Vec<u8> {
    (0..2 * MIB + 77).map(|at| (at * at / 1000).to_le_bytes()[0]).collect()
}

fn file() -> Fingerprint {
    described(&bytes()).0
}

/// An answer with this first line, these headers and this body.
fn answer(head: &str, body: &[u8]) -> Vec<u8> {
    [format!("HTTP/1.1 {head}\r\n\r\n").as_bytes(), body].concat()
}

fn whole(body: &[u8]) -> (Vec<u8>, Then) {
    (answer(&format!("200 OK\r\nContent-Length: {}", body.len()), body), Then::Close)
}

fn store(folder: &Path) -> Store {
    Store::open(folder, RunId([1; 32])).unwrap()
}

/// One call, and the progress that it showed.
fn fetched(server: &Server, folder: &Path, rules: &WebRules) -> (Result<(), WebError>, Vec<u64>) {
    let mut shown = Vec::new();
    let show = &mut |news: News<'_>| match news {
        News::Stored(have) => shown.push(have),
        News::Again(error, pause) => {
            assert!(error.again(pause).contains("; trying again in 0 s"), "{}", error.again(pause));
        }
    };
    let stop = CancellationToken::new();
    let result = fetch(rules, &store(folder), file(), &server.url(), &stop, show);
    (result, shown)
}

fn has_it(folder: &Path) -> bool {
    has(&store(folder), &bytes())
}

/// The error with such a server, and how often the server was asked; no file is there then.
fn refusal(play: Play) -> (String, usize) {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(play);
    let (result, _) = fetched(&server, folder.path(), &server.rules());
    assert!(!has_it(folder.path()));
    (result.unwrap_err().to_string(), server.asked().0)
}

#[test]
fn a_file_comes_whole_or_in_chunks_or_after_redirects() {
    let chunked: Play = |_| {
        let chunk =
            |part: &[u8]| [format!("{:x}\r\n", part.len()).as_bytes(), part, b"\r\n"].concat();
        let body: Vec<u8> = bytes().chunks(99_999).flat_map(chunk).collect();
        let head = "200 OK\r\nTransfer-Encoding: chunked";
        (answer(head, &[&body[..], b"0\r\n\r\n"].concat()), Then::Close)
    };
    let redirects: Play = |head| {
        let to = |to: &str| (answer(&format!("302 Found\r\nLocation: {to}"), b""), Then::Close);
        match head.split(' ').nth(1).unwrap() {
            "/text" => to("/a/b"),
            "/a/b" => to("c?d"),
            "/a/c?d" => to("//LOCALHOST/e".replace("LOCALHOST", host(head)).as_str()),
            "/e" => whole(&bytes()),
            other => panic!("{other}"),
        }
    };
    for (play, requests) in [((|_| whole(&bytes())) as Play, 1), (chunked, 1), (redirects, 4)] {
        let folder = tempfile::tempdir().unwrap();
        let server = Server::start(play);
        let (result, shown) = fetched(&server, folder.path(), &server.rules());
        result.unwrap();
        assert!(has_it(folder.path()));
        assert_eq!(shown, [0, MIB as u64, 2 * MIB as u64, file().bytes]);
        assert_eq!(server.asked(), (requests, None));
    }
}

/// The host that a request names, with its port.
fn host(head: &str) -> &str {
    let line = head.lines().find(|line| line.to_lowercase().starts_with("host:")).unwrap();
    line[5..].trim()
}

#[test]
fn what_is_not_the_file_is_refused_with_the_cause() {
    let cases: [(Play, usize, &[&str]); 8] = [
        (
            |_| (answer("404 Not Found\r\nContent-Length: 0", b""), Then::Close),
            1,
            &["/text: there is no such file (404)", "--data FILE"],
        ),
        (
            |_| {
                let head = "200 OK\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: 15";
                (answer(head, b"<html>no</html>"), Then::Close)
            },
            1,
            &["has 15 bytes, and the run's file has 2097229 (it is a web page)"],
        ),
        (|_| (answer("200 OK", &[&bytes()[..], b"!"].concat()), Then::Close), 1, &["sends more"]),
        (
            |_| (answer("200 OK", b""), Then::Close),
            8,
            &["it ends after 0 of 2097229 bytes", "later"],
        ),
        (
            |_| (answer("200 OK\r\nContent-Length: 2097229", &bytes()[..9]), Then::Close),
            8,
            &["the connection failed", "later (what has arrived is kept)"],
        ),
        (|_| (answer("503 Busy\r\nContent-Length: 0", b""), Then::Close), 8, &["status 503"]),
        (
            |_| whole(&vec![7; bytes().len()]),
            1,
            &["it gave another file than the run's, with BLAKE3 ", "nothing of it is kept"],
        ),
        (|_| (answer("304 Not Modified", b""), Then::Close), 1, &["status 304"]),
    ];
    for (play, requests, words) in cases {
        let (refused, asked) = refusal(play);
        assert!(
            refused.starts_with("cannot fetch the run's data from https://localhost:"),
            "{refused}"
        );
        assert!(words.iter().all(|words| refused.contains(words)), "{words:?}: {refused}");
        assert_eq!(asked, requests, "{refused}");
    }
}

#[test]
fn a_redirect_leads_nowhere_but_over_https_to_the_internet() {
    let to: [(Play, &str); 6] = [
        (|_| to("http://localhost/text"), "redirects to http://localhost/text, which is not https"),
        (|_| to("file:///etc/passwd"), "redirects to file:///etc/passwd, which is not https"),
        (|_| to("https://127.0.0.2/"), "https://127.0.0.2/: its name means 127.0.0.2, which is no"),
        (|_| to("https://[::ffff:10.0.0.1]/"), "means ::ffff:10.0.0.1, which is no address"),
        (|_| to("text"), "it redirects more than 3 times"),
        (|_| (answer("301 Moved\r\nContent-Length: 0", b""), Then::Close), "does not say where"),
    ];
    for (play, words) in to {
        let (refused, asked) = refusal(play);
        assert!(refused.contains(words), "{words}: {refused}");
        assert_eq!(asked, if words.contains("3 times") { 4 } else { 1 });
    }
}

fn to(url: &str) -> (Vec<u8>, Then) {
    (answer(&format!("302 Found\r\nLocation: {url}\r\nContent-Length: 0"), b""), Then::Close)
}

/// Under the rules of the internet a node neither asks this machine nor believes its certificate.
#[test]
fn the_rules_of_the_internet_refuse_this_machine() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(|_| whole(&bytes()));
    let mut rules = WebRules { pause: Duration::ZERO, ..WebRules::public() };
    let refused = fetched(&server, folder.path(), &rules).0.unwrap_err().to_string();
    assert!(refused.contains("no address of the internet"), "{refused}");
    rules.allows = |_| true;
    let refused = fetched(&server, folder.path(), &rules).0.unwrap_err().to_string();
    assert!(refused.contains("TLS failed ("), "{refused}");
    assert_eq!(server.asked().0, 0);
    // A label of 64 letters cannot exist, so no server is asked for it.
    let url = format!("https://{}.example/text", "a".repeat(64));
    let (stop, show) = (CancellationToken::new(), &mut |_: News<'_>| ());
    let refused = fetch(&rules, &store(folder.path()), file(), &url, &stop, show).unwrap_err();
    assert!(refused.to_string().contains("name was not found"), "{refused}");
    // A machine that has reached the server has only lost the network.
    assert!(!refused.is_passing(false) && refused.is_passing(true));
}

#[test]
fn a_server_that_falls_silent_is_given_up() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(|_| {
        (answer("200 OK\r\nContent-Length: 2097229", &bytes()[..MIB + 5]), Then::Hang)
    });
    let rules = WebRules { patience: Duration::from_millis(500), ..server.rules() };
    let (result, shown) = fetched(&server, folder.path(), &rules);
    let error = result.unwrap_err().to_string();
    assert!(error.contains("nothing has come for 0 s") && error.contains("is kept"), "{error}");
    assert!(shown.contains(&(MIB as u64)));
    // Each try asks for the rest of the file.
    assert_eq!(server.asked(), (9, Some("bytes=1048576-".to_owned())));
}

#[test]
fn a_server_that_sends_a_byte_now_and_then_is_given_up() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(|_| (answer("200 OK\r\nContent-Length: 2097229", &[]), Then::Drip));
    let rules = WebRules { patience: Duration::from_millis(200), ..server.rules() };
    let error = fetched(&server, folder.path(), &rules).0.unwrap_err().to_string();
    assert!(error.contains("1 MiB has not come in 2 s"), "{error}");
    assert_eq!(server.asked().0, 8);
}

#[test]
fn nobody_waits_for_a_transfer_that_was_stopped() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(|_| whole(&bytes()));
    let stop = CancellationToken::new();
    let show = &mut |news: News<'_>| {
        if matches!(news, News::Stored(1..)) {
            stop.cancel();
        }
    };
    fetch(&server.rules(), &store(folder.path()), file(), &server.url(), &stop, show).unwrap_err();
    assert_eq!(server.asked().0, 1);
    assert!(!has_it(folder.path()));
}

/// What has come before: the first piece, and half of the second.
fn begun(folder: &Path, bytes: &[u8]) {
    let part = store(folder).receive_data(&file(), None).unwrap();
    part.put(0, &bytes[..MIB + MIB / 2]).unwrap();
}

/// The whole file to a request for all of it, else this head and body.
fn unless_ranged(head: &str, ranged: &str, body: &[u8]) -> (Vec<u8>, Then) {
    if !head.to_lowercase().contains("range:") {
        return whole(&bytes());
    }
    (answer(ranged, body), Then::Close)
}

/// What a server sends that can begin with the second piece.
fn rest(head: &str) -> (Vec<u8>, Then) {
    assert!(!head.contains("ange:") || head.contains("ange: bytes=1048576-\r\n"), "{head}");
    let partial = "206 Partial Content\r\nContent-Range: bytes 1048576-2097228/2097229";
    unless_ranged(head, partial, &bytes()[MIB..])
}

#[test]
fn a_restart_goes_on_where_the_server_can() {
    let unable: Play = |_| whole(&bytes());
    let confused: Play = |head| {
        let partial = "206 Partial Content\r\nContent-Range: bytes 0-2097228/2097229";
        unless_ranged(head, partial, &bytes())
    };
    let gone: Play =
        |head| unless_ranged(head, "416 Range Not Satisfiable\r\nContent-Length: 0", b"");
    for (play, requests, first) in
        [(rest as Play, 1, MIB as u64), (unable, 1, 0), (confused, 2, 0), (gone, 2, 0)]
    {
        let folder = tempfile::tempdir().unwrap();
        begun(folder.path(), &bytes());
        let server = Server::start(play);
        let (result, shown) = fetched(&server, folder.path(), &server.rules());
        result.unwrap();
        assert!(has_it(folder.path()));
        assert_eq!((server.asked().0, shown[0]), (requests, first));
    }
}

/// The stored part was damaged: the server is asked for the whole file before it is blamed.
#[test]
fn a_damaged_begin_is_fetched_again() {
    let folder = tempfile::tempdir().unwrap();
    let mut wrong = bytes();
    wrong[5] ^= 1;
    begun(folder.path(), &wrong);
    let server = Server::start(rest);
    fetched(&server, folder.path(), &server.rules()).0.unwrap();
    assert!(has_it(folder.path()) && server.asked().0 == 2);
    // All of the file is there, and damaged.
    fs::write(store(folder.path()).data_path(&file()), &wrong).unwrap();
    store(folder.path()).reopen_data(&file()).unwrap();
    fetched(&server, folder.path(), &server.rules()).0.unwrap();
    assert!(has_it(folder.path()) && server.asked().0 == 3);
}

/// A member has handed out the values before: the first wrong piece ends the transfer, and those before it are kept.
#[test]
fn each_piece_is_checked_where_its_value_is_known() {
    let folder = tempfile::tempdir().unwrap();
    let (file, tree) = described(&bytes());
    drop(store(folder.path()).receive_data(&file, Some(&tree)).unwrap());
    let server = Server::start(|head| {
        assert!(!head.to_lowercase().contains("range:"));
        let mut wrong = bytes();
        wrong[MIB + 5] ^= 1;
        whole(&wrong)
    });
    let (result, shown) = fetched(&server, folder.path(), &server.rules());
    let error = result.unwrap_err().to_string();
    assert!(error.contains("another file than the run's from byte 1048576 on"), "{error}");
    assert_eq!(shown, [0, MIB as u64]);
    let part = store(folder.path()).receive_data(&file, Some(&tree)).unwrap();
    assert_eq!(part.present().into_iter().collect::<Vec<_>>(), [0]);
}

#[test]
fn a_disk_that_refuses_a_piece_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let path = store(folder.path()).data_path(&file()).with_extension("part");
    fs::create_dir_all(&path).unwrap();
    let server = Server::start(|_| whole(&bytes()));
    let (result, _) = fetched(&server, folder.path(), &server.rules());
    let error = result.unwrap_err();
    assert!(matches!(error, WebError::Disk(_)) && error.to_string().contains("cannot write"));
}
