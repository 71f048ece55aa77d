//! The page of a run: a read-only web server over what is [`Seen`].
//!
//! It is bounded everywhere: connections, requests of one, time for a header, clients that stream,
//! rows of an answer. `Host` must be this machine, so that no other page in a browser can read it
//! through a name of its own (DNS rebinding). Everything is in the program: nothing is fetched from
//! elsewhere.
//!
//! There is no password. On a loopback address only programs of this machine reach it. On another
//! address everybody who reaches the port reads it, and gets a picture without addresses of peers.
//! So does everybody if the page has a name, since a proxy then passes it on. No route changes
//! anything.
//!
//! `/status` is the picture as JSON, `/history` the past in columns, `/events` a stream of both
//! kinds of news, `/text` lines for people, `/metrics` for Prometheus, and `/healthz` for a
//! supervisor. The other paths are the files of the page.

use std::{
    convert::Infallible,
    net::{IpAddr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use axum::{
    Extension, Json, Router,
    extract::{Request, State},
    http::{HeaderMap, HeaderName, StatusCode, Uri, header},
    middleware::{self, Next},
    response::{
        IntoResponse, Response,
        sse::{self, Sse},
    },
    routing::get,
    serve::Listener,
};
use futures::{Stream, stream};
use hyper::server::conn::http1;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use serde::Serialize;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, UnixListener},
    sync::{OwnedSemaphorePermit, Semaphore, broadcast},
    task::JoinSet,
    time,
};

use crate::{
    lines::{self, Verdict},
    metrics,
    patient::Patient,
    picture::{Picture, notice::names_an_address},
    stage::Seen,
};

/// Where the page is, and the names by which browsers may ask for it.
#[derive(Clone, Debug)]
pub struct Access {
    /// The address of the listener. `None` for a Unix socket, which the system guards by its mode.
    bound: Option<SocketAddr>,
    /// Further host names in lower case, without ports (`--page-host`).
    names: Arc<[String]>,
}

impl Access {
    /// The page at `bound`, which browsers may also reach as one of `names`.
    pub fn new(bound: SocketAddr, names: &[String]) -> Self {
        let names = names.iter().map(|name| name.to_ascii_lowercase()).collect();
        Self { bound: Some(bound), names }
    }

    /// Whether other machines can reach the page, so that addresses have to be left out. A name is
    /// for them too: on a loopback address they come through a proxy.
    pub fn is_public(&self) -> bool {
        self.bound.is_some_and(|bound| !bound.ip().is_loopback() || !self.names.is_empty())
    }

    /// Whether a `Host` names this machine, whatever port it names.
    ///
    /// An address of a network card cannot be rebound by a name: an attacker's page may make its
    /// own name point at 127.0.0.1, but the browser still sends that name as `Host`. So literal
    /// addresses are safe, and names have to be listed. A listener on all addresses accepts any
    /// literal one.
    pub fn admits(&self, host: &str) -> bool {
        let name = match host.rsplit_once(':') {
            Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) => name,
            _ => host,
        };
        let name = name.trim_start_matches('[').trim_end_matches(']').to_ascii_lowercase();
        match name.parse::<IpAddr>() {
            Ok(ip) => {
                let own = |bound: SocketAddr| bound.ip().is_unspecified() || ip == bound.ip();
                ip.is_loopback() || self.bound.is_some_and(own)
            }
            Err(_) => name == "localhost" || self.names.contains(&name),
        }
    }
}

/// Everything that a request needs. It is cloned for each, which clones handles only.
#[derive(Clone)]
struct Shown {
    /// The newest picture, the past, and the lines.
    seen: Seen,
    /// Which hosts may be named, and whether addresses are left out.
    access: Access,
    /// One permit for each reader that may stream.
    streams: Arc<Semaphore>,
}

/// Serves the page until the task is dropped. A connection beyond the bound waits for a free place.
pub async fn serve(listener: TcpListener, seen: Seen, access: Access) {
    serve_each(listener, router(seen, access)).await;
}

/// Serves the same, with addresses, on a socket of this machine. Its mode says who may connect.
pub async fn serve_local(listener: UnixListener, seen: Seen) {
    let access = Access { bound: None, names: Arc::default() };
    serve_each(listener, router(seen, access)).await;
}

/// Accepts while there are permits. Where the system has no room for one more connection, `accept`
/// waits until others have ended. Dropping the task drops all connections, for the set owns them.
async fn serve_each<L: Listener>(mut listener: L, router: Router) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let mut connections = JoinSet::new();
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        let (stream, _) = listener.accept().await;
        connections.spawn(connection(stream, router.clone(), place));
        while connections.try_join_next().is_some() {}
    }
}

/// Answers the requests of one connection, with an allowance of its own. A client that sends no
/// whole header in `HEADER_TIMEOUT` is dropped and gives its permit back.
///
/// A client that does not read its answers is dropped too ([`Patient`]). So each of the permits
/// comes back in the end, whatever clients do.
async fn connection<S>(stream: S, router: Router, place: OwnedSemaphorePermit)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let router = router.layer(Extension(Allowance::new()));
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEADER_TIMEOUT);
    let service = TowerToHyperService::new(router);
    // A broken connection is the reader's own loss.
    let stream = TokioIo::new(Patient::new(stream, PATIENCE));
    let _ = builder.serve_connection(stream, service).await;
    drop(place);
}

/// What the page answers, behind the checks that every request passes.
fn router(seen: Seen, access: Access) -> Router {
    let shown = Shown { seen, access, streams: Arc::new(Semaphore::new(STREAMS_MAX)) };
    let mut router = Router::new()
        .route("/status", get(status))
        .route("/text", get(text))
        .route("/history", get(history))
        .route("/events", get(events))
        .route("/metrics", get(measures))
        .route("/healthz", get(health));
    for (path, kind, body) in ASSETS {
        router = router
            .route(path, get(move |headers: HeaderMap| async move { asset(&headers, kind, body) }));
    }
    let router = router.fallback(|| async { (StatusCode::NOT_FOUND, UNKNOWN) });
    router.layer(middleware::from_fn_with_state(shown.clone(), guard)).with_state(shown)
}

/// Turns strangers away, and says to browsers what the page may load: itself.
async fn guard(State(shown): State<Shown>, request: Request, next: Next) -> Response {
    let mut response = match refusal(&shown.access, &request) {
        Some((status, why)) => (status, format!("{why}\n")).into_response(),
        None => next.run(request).await,
    };
    for (name, value) in HEADERS {
        response.headers_mut().insert(name, header::HeaderValue::from_static(value));
    }
    response
}

/// Why a request is refused, if it is: another `Host`, another page's `Origin`, or too many in a
/// second. A `GET` of another site without `Origin` gets an answer that the browser does not let
/// that site read.
fn refusal(access: &Access, request: &Request) -> Option<(StatusCode, &'static str)> {
    let value = |name| request.headers().get(name).map(|value| value.to_str().unwrap_or("?"));
    let host = value(header::HOST).or_else(|| request.uri().host());
    if !host.is_some_and(|host| access.admits(host)) {
        let why = "this page answers only to names of its own machine, and to those of --page-host";
        return Some((StatusCode::MISDIRECTED_REQUEST, why));
    }
    let of = |origin: &str| origin.split_once("://").is_some_and(|(_, host)| access.admits(host));
    if value(header::ORIGIN).is_some_and(|origin| !of(origin)) {
        return Some((StatusCode::FORBIDDEN, "no page of another site reads this one"));
    }
    let allowance = request.extensions().get::<Allowance>();
    let spent = allowance.is_some_and(|allowance| !allowance.take());
    spent.then_some((StatusCode::TOO_MANY_REQUESTS, "too many requests in a second"))
}

/// A file of the page. A browser asks each time and mostly hears that it has it: after an update of
/// the program no old script meets a new `/status`.
fn asset(headers: &HeaderMap, kind: &'static str, body: &'static str) -> Response {
    let known = headers.get(header::IF_NONE_MATCH).is_some_and(|tag| tag == ETAG);
    let head =
        [(header::CONTENT_TYPE, kind), (header::ETAG, ETAG), (header::CACHE_CONTROL, "no-cache")];
    if known {
        (StatusCode::NOT_MODIFIED, head).into_response()
    } else {
        (head, body).into_response()
    }
}

/// The picture with what is derived from it, as `/status` and `/events` say it.
#[derive(Serialize)]
struct Status<'a> {
    /// The version of these keys, for programs that read them.
    format: u8,
    /// What is the matter, in one sentence.
    verdict: Verdict,
    /// Milliseconds until the next commit is expected.
    next_ms: Option<u64>,
    /// Milliseconds until the run is expected to have its `stop_tokens`.
    left_ms: Option<u64>,
    #[serde(flatten)]
    /// Its keys stand beside those above.
    picture: &'a Picture,
}

impl Shown {
    /// The newest picture, without addresses if other machines may ask.
    fn picture(&self) -> Arc<Picture> {
        let picture = Arc::clone(&self.seen.picture.borrow());
        if self.access.is_public() { Arc::new(picture.without_addresses()) } else { picture }
    }
}

/// The picture as `/status` answers it, in JSON.
pub(crate) fn status_of(picture: &Picture) -> serde_json::Result<String> {
    let (verdict, next_ms) = (lines::verdict(picture), lines::next_ms(picture));
    let left_ms = lines::left_ms(picture);
    serde_json::to_string(&Status { format: 1, verdict, next_ms, left_ms, picture })
}

/// The picture and what follows from it. That it cannot be written as JSON would be an error of
/// this program: 500.
async fn status(State(shown): State<Shown>) -> Response {
    match status_of(&shown.picture()) {
        Ok(text) => ([(header::CONTENT_TYPE, "application/json")], text).into_response(),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

/// The lines and the table of members, for people without a browser.
async fn text(State(shown): State<Shown>) -> Response {
    lines::text(&shown.picture()).into_response()
}

/// The past of the epochs `from` to `to` in at most `points` rows; a key that is absent has its
/// default: all epochs, and `POINTS` rows. 400 for a value that is no number.
async fn history(State(shown): State<Shown>, uri: Uri) -> Response {
    let part = |name: &str, default: u64| {
        let mut pairs =
            uri.query().unwrap_or_default().split('&').filter_map(|pair| pair.split_once('='));
        pairs.find(|(key, _)| *key == name).map_or(Ok(default), |(_, value)| value.parse())
    };
    let all = (part("from", 0), part("to", u64::MAX), part("points", POINTS as u64));
    let (Ok(from), Ok(to), Ok(points)) = all else {
        let why = "from, to and points are numbers, as in /history?from=1&points=100\n";
        return (StatusCode::BAD_REQUEST, why).into_response();
    };
    let points = points.try_into().unwrap_or(usize::MAX);
    Json(shown.seen.past.lock().columns(from, to, points)).into_response()
}

/// The picture for Prometheus, at every request anew.
async fn measures(State(shown): State<Shown>) -> Response {
    let kind = "text/plain; version=0.0.4; charset=utf-8";
    ([(header::CONTENT_TYPE, kind)], metrics::text(&shown.picture())).into_response()
}

/// For a supervisor: 200 while a live run gives signs of life, 503 once it does not. A stored file
/// is always well.
async fn health(State(shown): State<Shown>) -> Response {
    let picture = Arc::clone(&shown.seen.picture.borrow());
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    // A running node knows more than its events: a heartbeat or a step is a sign too.
    let (last, patience) = picture.life.map_or((picture.now_ms, SILENCE_MAX), |life| {
        (life.heard_ms, Duration::from_millis(life.grace_ms).max(SILENCE_MIN))
    });
    let silent = now.saturating_sub(Duration::from_millis(last));
    if picture.source.live && silent > patience {
        let text = format!("no sign of life for {} s\n", silent.as_secs());
        return (StatusCode::SERVICE_UNAVAILABLE, text).into_response();
    }
    "ok\n".into_response()
}

/// Pictures as they change, and the lines of the file as they are read.
async fn events(State(shown): State<Shown>) -> Response {
    let Ok(place) = Arc::clone(&shown.streams).try_acquire_owned() else {
        return (StatusCode::SERVICE_UNAVAILABLE, "as many readers as there are places\n")
            .into_response();
    };
    let alive = sse::KeepAlive::new().interval(ALIVE);
    Sse::new(follow(shown, place)).keep_alive(alive).into_response()
}

/// The stream of one reader: a picture at most every `PICTURE_EVERY`, and each line at once.
///
/// It holds a permit until the reader goes. When the writer has ended, the stream stays open with
/// the last picture, since [`Seen`] holds a sender of lines itself. A public page passes over lines
/// with addresses.
fn follow(
    shown: Shown,
    place: OwnedSemaphorePermit,
) -> impl Stream<Item = Result<sse::Event, Infallible>> {
    let lines = shown.seen.lines.subscribe();
    let picture = shown.seen.picture.clone();
    let mut seen = (shown, place, lines, picture, Instant::now());
    // The first picture is news to this reader, and due at once.
    seen.3.mark_changed();
    seen.4 = seen.4.checked_sub(PICTURE_EVERY).unwrap_or(seen.4);
    stream::unfold(seen, |mut seen| async {
        loop {
            let (shown, _, lines, picture, last) = &mut seen;
            let due = time::Instant::from_std(*last + PICTURE_EVERY);
            let change = async {
                time::sleep_until(due).await;
                if picture.changed().await.is_err() {
                    // The writer has ended, and what it wrote last stays on the page.
                    std::future::pending::<()>().await;
                }
            };
            let event = tokio::select! {
                () = change => {
                    *last = Instant::now();
                    sse::Event::default().event("picture").data(status_of(&shown.picture()).ok()?)
                }
                line = lines.recv() => match line {
                    Ok(line) if shown.access.is_public() && names_an_address(&line) => continue,
                    Ok(line) => sse::Event::default().event("event").data(line.trim_end()),
                    // The next picture has what was missed.
                    Err(broadcast::error::RecvError::Lagged(_)) => continue,
                    Err(broadcast::error::RecvError::Closed) => return None,
                },
            };
            return Some((Ok(event), seen));
        }
    })
}

/// The requests that one connection has left in this second. A script that asks in a loop is
/// refused before an answer is made.
#[derive(Clone, Debug)]
struct Allowance {
    /// When the connection began; seconds are counted from here.
    began: Instant,
    /// The second that is counted, and how many requests it had: 16 bits for each.
    spent: Arc<AtomicU32>,
}

impl Allowance {
    /// A full allowance, for a connection that begins now.
    fn new() -> Self {
        Self { began: Instant::now(), spent: Arc::default() }
    }

    /// Counts one request, and says whether it is within `REQUESTS_PER_SECOND`.
    fn take(&self) -> bool {
        let second = (self.began.elapsed().as_secs() as u32 & 0xffff) << 16;
        let spent = self.spent.load(Ordering::Relaxed);
        let before = if spent & 0xffff_0000 == second { spent & 0xffff } else { 0 };
        // HTTP/1 has one request of a connection at a time.
        self.spent.store(second | (before + 1).min(0xffff), Ordering::Relaxed);
        before < REQUESTS_PER_SECOND
    }
}

/// The files of the page: path, kind and text.
pub(crate) const ASSETS: [(&str, &str, &str); 4] = [
    ("/", "text/html; charset=utf-8", include_str!("../assets/page.html")),
    ("/page.js", "text/javascript; charset=utf-8", include_str!("../assets/page.js")),
    ("/chart.js", "text/javascript; charset=utf-8", include_str!("../assets/chart.js")),
    ("/page.css", "text/css; charset=utf-8", include_str!("../assets/page.css")),
];
/// The answer to any other path.
const UNKNOWN: &str = "there is /, /status, /text, /history, /events, /metrics and /healthz\n";
/// The version of the files: a browser keeps what it has until this changes.
const ETAG: &str = concat!("\"", env!("CARGO_PKG_VERSION"), "-5\"");
/// Headers of every answer: the page loads nothing from elsewhere, stands in no frame, and sends no
/// address on.
const HEADERS: [(HeaderName, &str); 4] = [
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::VARY, "origin"),
];
/// Connections that are open at a time, over all clients.
const CONNECTIONS_MAX: usize = 128;
/// Readers that stream at a time: the picture is written as JSON for each, up to twice a second.
const STREAMS_MAX: usize = 32;
/// Requests that a connection may make in one second; a further one is answered with 429.
const REQUESTS_PER_SECOND: u32 = 64;
/// So long a client may read nothing of what it has asked for; one that reads little has less.
const PATIENCE: Duration = Duration::from_secs(30);
/// A whole header has to come within this time.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
/// Silence after which a comment is sent, so that proxies keep a stream open.
const ALIVE: Duration = Duration::from_secs(15);
/// The least time between two pictures of one stream.
const PICTURE_EVERY: Duration = Duration::from_millis(500);
/// The silence that is taken for trouble where only events are known: a live node that is well
/// writes an event of an epoch more often than this.
const SILENCE_MAX: Duration = Duration::from_secs(180);
/// The least patience with a running node, however short its run's grace is: a step of a large
/// model may take as long.
const SILENCE_MIN: Duration = Duration::from_secs(30);
/// Rows of an answer that names no number.
const POINTS: usize = 1_000;

#[cfg(test)]
mod tests;
