//! The web server: connections, requests and answers, all of them bounded.
//!
//! Connections beyond the bound wait in the system's queue. A header, a body and a client that reads each have a time
//! within which they must come on. On an address of this machine only programs and pages of this machine are answered,
//! so that no other page in a browser can read an answer through a name of its own (DNS rebinding).
//!
//! Nothing here computes: a request is read, checked on a thread that may block, and handed over by
//! a bounded queue. This is the only file of `serve` that knows axum and hyper; the form of an
//! answer is made in `reply`.

use std::{
    convert::Infallible,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc as blocking,
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use axum::{
    Json, Router,
    body::{self, Body, Bytes},
    extract::{Request, State},
    http::{StatusCode, header},
    middleware::{self, Next},
    response::{IntoResponse, Response},
    routing::{get, post},
    serve::Listener,
};
use futures::{Stream, StreamExt as _, future, stream};
use hyper::server::conn::http1;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use intellect_view::{page::Access, patient::Patient};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore, mpsc},
    task::{self, JoinSet},
    time,
};
use tokio_util::sync::CancellationToken;

use super::{
    engine::{DELIVERIES_MAX, Delivery, Errand},
    order::{AskedFor, Order, SendAs},
    refusal::Refusal,
    reply::{self, Gathered, ReplyHead, Streamed},
    served::Served,
};
use crate::{figures, os};

/// Everything that a request needs. Each connection has a clone; all of it is shared or small.
#[derive(Clone)]
pub(super) struct ApiState {
    pub(super) served: Arc<Served>,
    /// The way to the thread that owns it, with a bounded queue.
    pub(super) errands: blocking::SyncSender<Errand>,
    /// From where requests are allowed.
    pub(super) access: Access,
    /// The number of the next answer.
    pub(super) next: Arc<AtomicU64>,
}

/// Serves until `stop`; then requests that have begun get a while to end.
///
/// A permit is taken before a connection is accepted, so that at most [`CONNECTIONS_MAX`] of them
/// have a task. Tasks that have ended are collected at each new connection; those that still run
/// after [`GRACE`] end with the set.
pub(super) async fn serve(mut listener: TcpListener, api: ApiState, stop: CancellationToken) {
    let permits = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let router = router(api);
    let mut connections = JoinSet::new();
    loop {
        let next = async {
            let permit = Arc::clone(&permits).acquire_owned().await.ok()?;
            let (stream, _) = Listener::accept(&mut listener).await;
            Some((stream, permit))
        };
        let Some(Some((stream, permit))) = stop.run_until_cancelled(next).await else { break };
        connections.spawn(connection(stream, router.clone(), permit, stop.clone()));
        while connections.try_join_next().is_some() {}
    }
    drop(listener);
    let ended = async { while connections.join_next().await.is_some() {} };
    // What has not ended by then is given up.
    let _ = time::timeout(GRACE, ended).await;
}

/// Serves one connection until its client ends it or the server stops. The permit goes back after
/// that. When the server stops, a request that has begun is still answered, and the connection then
/// closes.
async fn connection(
    stream: TcpStream,
    router: Router,
    permit: OwnedSemaphorePermit,
    stop: CancellationToken,
) {
    // A token is a small packet, and should not wait for the next one.
    let _ = stream.set_nodelay(true);
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .max_buf_size(HEADER_BYTES_MAX);
    let stream = TokioIo::new(Patient::new(stream, PATIENCE));
    let mut serving = pin!(builder.serve_connection(stream, TowerToHyperService::new(router)));
    tokio::select! {
        // A broken connection is the client's own loss.
        _ = serving.as_mut() => {}
        () = stop.cancelled() => {
            serving.as_mut().graceful_shutdown();
            let _ = serving.await;
        }
    }
    drop(permit);
}

/// The paths of the interface. Every other path is refused in the same form as a wrong request.
fn router(api: ApiState) -> Router {
    Router::new()
        .route("/v1/models", get(models))
        .route("/v1/completions", post(|api, request| answer(api, request, AskedFor::Completion)))
        .route("/v1/chat/completions", post(|api, request| answer(api, request, AskedFor::Chat)))
        .fallback(|| async { Refusal::no_path(404) })
        .method_not_allowed_fallback(|| async { Refusal::no_path(405) })
        .layer(middleware::from_fn_with_state(api.clone(), guard))
        .with_state(api)
}

/// Turns requests away that another page makes in a browser of this machine.
async fn guard(State(api): State<ApiState>, request: Request, next: Next) -> Response {
    if is_foreign(&api.access, &request) {
        return Refusal::foreign().into_response();
    }
    next.run(request).await
}

/// Whether a request has to be turned away. At a public address none is, since everybody may ask
/// there.
///
/// A browser names in `Host` the machine that a page asks, as the page spelled it, and in `Origin`
/// the page's own machine. Both have to be this one. A program that is no browser sends no origin.
fn is_foreign(access: &Access, request: &Request) -> bool {
    if access.is_public() {
        return false;
    }
    let value = |name| request.headers().get(name).map(|value| value.to_str().unwrap_or("?"));
    let host = value(header::HOST).or_else(|| request.uri().host());
    let of = |origin: &str| origin.split_once("://").is_some_and(|(_, host)| access.admits(host));
    !host.is_some_and(|host| access.admits(host))
        || value(header::ORIGIN).is_some_and(|origin| !of(origin))
}

async fn models(State(api): State<ApiState>) -> Response {
    Json(reply::models(&api.served)).into_response()
}

/// Passes a request to the model, and answers as a whole or in parts. If the client goes away, this
/// future or the stream that it returned is dropped, and with it the receiver, by which the model's
/// thread notices.
async fn answer(
    State(api): State<ApiState>,
    request: Request,
    asked: AskedFor,
) -> Result<Response, Refusal> {
    let (order, mut deliveries) = begin(&api, request, asked).await?;
    let head = api.head(asked);
    match order.send {
        SendAs::Whole => {
            let mut gathered = Gathered::new(&order, &api.served);
            while let Some(delivery) = deliveries.recv().await {
                gathered.add(delivery)?;
            }
            Ok(Json(gathered.whole(&head)?).into_response())
        }
        SendAs::Stream { .. } => {
            let events = follow(Streamed::new(head, order, api.served), deliveries);
            let kind =
                [(header::CONTENT_TYPE, "text/event-stream"), (header::CACHE_CONTROL, "no-cache")];
            Ok((kind, Body::from_stream(events)).into_response())
        }
    }
}

/// Reads a request and hands it over to the model. A full queue refuses it at once: a client that
/// waits for an answer cannot see whether it is being read.
async fn begin(
    api: &ApiState,
    request: Request,
    asked: AskedFor,
) -> Result<(Arc<Order>, mpsc::Receiver<Delivery>), Refusal> {
    let body = body_of(request).await?;
    let served = Arc::clone(&api.served);
    // Without the system's random numbers the texts still differ from token to token.
    let seed = os::random().map_or(0, u64::from_le_bytes);
    // Turning a megabyte of text into tokens takes a while, which would hold up the other connections.
    let read = task::spawn_blocking(move || Order::read(&body, asked, &served, seed)).await;
    let order = Arc::new(read.map_err(Refusal::failed)??);
    let (news, deliveries) = mpsc::channel(DELIVERIES_MAX);
    match api.errands.try_send(Errand { order: Arc::clone(&order), news }) {
        Ok(()) => Ok((order, deliveries)),
        Err(blocking::TrySendError::Full(_)) => Err(Refusal::busy()),
        Err(blocking::TrySendError::Disconnected(_)) => Err(Refusal::ending()),
    }
}

/// The body of a request, whose length and time are bounded. A length that the client states is
/// believed if it is too large, so that no megabyte is read to be thrown away.
async fn body_of(request: Request) -> Result<Bytes, Refusal> {
    let length = request.headers().get(header::CONTENT_LENGTH);
    let length = length.and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    if length.is_some_and(|length| length > BODY_BYTES_MAX as u64) {
        return Err(Refusal::too_large(BODY_BYTES_MAX));
    }
    let body = body::to_bytes(request.into_body(), BODY_BYTES_MAX);
    match time::timeout(BODY_TIMEOUT, body).await {
        Ok(Ok(body)) => Ok(body),
        Ok(Err(error)) if is_too_long(&error) => Err(Refusal::too_large(BODY_BYTES_MAX)),
        Ok(Err(_)) | Err(_) => Err(Refusal::no_body()),
    }
}

/// Whether a body was not read because it is longer than it may be: hyper's other errors have a cause of their own.
fn is_too_long(error: &axum::Error) -> bool {
    figures::explain(error, ": ").contains(LIMIT)
}

/// The parts of an answer as they come. The stream never fails: if the model cannot go on, the last
/// part says so, as the status of the answer is already sent.
fn follow(
    streamed: Streamed,
    deliveries: mpsc::Receiver<Delivery>,
) -> impl Stream<Item = Result<String, Infallible>> + Send + 'static {
    let begin = stream::iter([streamed.begin()]);
    let parts = stream::unfold(Some((streamed, deliveries)), |open| async move {
        let (mut streamed, mut deliveries) = open?;
        // Without a next part the model's thread has ended.
        let ending = || Delivery::Failed(Refusal::ending());
        let next = deliveries.recv().await.unwrap_or_else(ending);
        let (text, is_last) = streamed.add(next);
        if is_last {
            return Some((text + &streamed.end(), None));
        }
        Some((text, Some((streamed, deliveries))))
    });
    // An empty part would be the end for the client.
    begin.chain(parts).filter(|text| future::ready(!text.is_empty())).map(Ok)
}

impl ApiState {
    /// The head of the next answer, with a number of its own.
    fn head(&self, asked: AskedFor) -> ReplyHead {
        let created = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let kind = match asked {
            AskedFor::Completion => "cmpl",
            AskedFor::Chat => "chatcmpl",
        };
        let id = format!("{kind}-{:x}-{number}", self.served.began);
        ReplyHead { id, created, asked }
    }
}

/// A refusal as a response: its status, and its message as JSON.
impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        (status, Json(self.json())).into_response()
    }
}

/// What the error of a body that is too long says. The error has no type of its own that axum
/// shows.
const LIMIT: &str = "length limit exceeded";
/// The longest body of a request, in bytes. All tokens that a request may have are about half of
/// that as English text.
const BODY_BYTES_MAX: usize = 1 << 20;
/// The longest head of a request, in bytes. It is also the size to which hyper's buffer of a
/// connection may grow.
const HEADER_BYTES_MAX: usize = 64 << 10;
/// Connections at a time; the next ones wait to be accepted.
const CONNECTIONS_MAX: usize = 128;
/// How long the head of a request may take.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
/// How long the body of a request may take.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);
/// So long a client may read nothing; one that reads little has less.
const PATIENCE: Duration = Duration::from_secs(30);
/// So long requests that have begun may last once the server is to end.
const GRACE: Duration = Duration::from_secs(5);
