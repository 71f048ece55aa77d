//! `serve`: answers other programs with a model, by the HTTP interface of OpenAI.
//!
//! | task | owner of | inbox | stops |
//! |---|---|---|---|
//! | http (tokio) | connections | requests, bounded | Ctrl-C, or when the engine has ended |
//! | engine (thread) | the model, and all texts that are being written | requests and newer weights, bounded | when nobody can ask any more |
//! | live (thread) | a look at the node's folder | | with the command |
//!
//! A request is turned into tokens before it waits for the engine, and its answer is a bounded channel. If a client goes
//! away its channel closes, which the engine sees before the next token. Nothing is written to the disk.
//!
//! A request passes `http` (bytes), `fields` and `order` (values that are checked), `engine` (the
//! order of the work), `writer` (one text, token by token) and `reply` (the JSON that goes back). A
//! wrong one leaves this way as a `refusal`.
//!
//! This file brings the parts together: it opens the address, loads the model, starts the three
//! tasks, and ends them in the order in which each can still finish what the one before has begun.

mod engine;
mod fields;
mod http;
mod live;
mod order;
mod refusal;
mod reply;
mod served;
mod stop;
mod writer;

use std::{
    io::{self, Write},
    net::{SocketAddr, TcpListener},
    path::Path,
    sync::{Arc, atomic::AtomicU64, mpsc as blocking},
    thread,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use intellect_model::{
    arch::Arch,
    config::Work,
    hf::{
        chat::{ChatError, ChatTemplate},
        text::{self, Texts},
    },
    train::Model,
};
use intellect_view::page::Access;
use tokio::{
    sync::{mpsc, oneshot},
    time,
};
use tokio_util::sync::CancellationToken;

use self::{
    engine::{ERRANDS_MAX, EngineInbox},
    http::ApiState,
    live::StateFolder,
    served::Served,
};
use crate::{
    cli::serve::ServeArgs,
    config::{self, LocalError},
    os,
    tools::{
        evaluate::{
            EvaluateError,
            subject::{Candidate, Subject},
        },
        stored::StoredError,
    },
};

/// Why nothing is served, or no more. No client is the cause of one of these: what a client does
/// wrong is a [`Refusal`](refusal::Refusal), and the server goes on.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ServeError {
    /// The command line makes no sense.
    #[error(transparent)]
    Usage(#[from] LocalError),
    /// Another program listens there, or this machine has no such address.
    #[error(
        "cannot listen at {at}: name another address, such as --listen 127.0.0.1:0 for any free port"
    )]
    Listen {
        /// As it was typed, or the default.
        at: SocketAddr,
        /// What the system said about it.
        source: io::Error,
    },
    /// The model or its tokenizer cannot be used. The address is taken by then, and released when
    /// the program ends.
    #[error(transparent)]
    Model(#[from] EvaluateError),
    /// The folder's template for chats cannot be used. A folder without a template is no error:
    /// chats then have the plain form of [`served()`].
    #[error(transparent)]
    Chat(#[from] ChatError),
    /// The system refused threads or signals.
    #[error("cannot start")]
    Runtime(#[source] io::Error),
    /// The model's thread, or the task of the connections, has ended by a mistake of this program.
    /// Open requests are dropped at once, since nobody could answer them.
    #[error(
        "the thread that owns the model has ended: start the server again, and report what it printed"
    )]
    Engine,
    /// Standard output is closed, or its disk is full.
    #[error("cannot write to standard output")]
    Output(#[from] io::Error),
}

impl ServeError {
    /// The exit code of the program: 2 for wrong usage, else 1.
    pub(crate) fn exit_code(&self) -> u8 {
        let usage = matches!(
            self,
            Self::Usage(_)
                | Self::Model(
                    EvaluateError::Usage(_)
                        | EvaluateError::Stored(StoredError::Usage(_))
                        | EvaluateError::Context { .. }
                )
        );
        if usage { 2 } else { 1 }
    }
}

/// Serves until Ctrl-C or another signal that asks the program to end.
///
/// It prints the address and the model's name when the model is loaded, so that a script can wait
/// for this line. A connection that comes a moment before the server accepts waits in the system's
/// queue. The port in the line is the one that the system chose where `--listen` has port 0.
pub(crate) fn run(args: &ServeArgs, out: &mut dyn Write) -> Result<(), ServeError> {
    // The address comes first: reading the weights may take minutes.
    let (listener, bound) = listen(args.listen)?;
    let device = config::parse_device(&args.checkpoint.device)?;
    let candidate = Candidate::find(args.hf.as_deref(), &args.checkpoint.state)?;
    let sizes = candidate.sizes(args.context)?;
    let texts = candidate.texts(args.checkpoint.tokenizer.as_deref())?;
    let served = Arc::new(served(&candidate, &sizes, texts)?);
    let followed = followed(args, &candidate)?;
    let Subject { model, lines, .. } = Subject::load(candidate, sizes, device)?;
    let access = Access::new(bound, &[]);
    writeln!(out, "http://{bound}/v1 serves the model {}", served.name)?;
    lines.iter().try_for_each(|line| writeln!(out, "{line}"))?;
    if access.is_public() {
        writeln!(out, "{PUBLIC}")?;
    }
    out.flush()?;
    let runtime = os::runtime().map_err(ServeError::Runtime)?;
    runtime.block_on(serve(listener, access, served, model, followed, out))
}

/// Binds the address, and returns the one that the system chose. It is a listener of std, since
/// there is no runtime yet; tokio takes it over and needs it not to block.
fn listen(at: SocketAddr) -> Result<(TcpListener, SocketAddr), ServeError> {
    let open = || {
        let listener = TcpListener::bind(at)?;
        listener.set_nonblocking(true)?;
        let bound = listener.local_addr()?;
        Ok((listener, bound))
    };
    open().map_err(|source| ServeError::Listen { at, source })
}

/// What requests need to know of this model. A run's state ends its texts with the token that
/// begins a document, as its training data do; a folder may name further tokens.
fn served(candidate: &Candidate, sizes: &Work, texts: Texts) -> Result<Served, ServeError> {
    let tokenizer = texts.tokenizer;
    let begin = tokenizer.bos().and_then(|bos| i32::try_from(bos).ok());
    let mut ends: Vec<i32> = begin.into_iter().collect();
    let (name, chat) = match candidate {
        Candidate::State(found) => (found.manifest.run.name.clone(), None),
        Candidate::Folder(folder) => {
            ends.extend(text::ends(folder));
            (folder_name(folder), ChatTemplate::open(folder)?)
        }
    };
    let known = tokenizer.tokens().min(sizes.model.vocab);
    let reach = Arch::new(&sizes.model).reach();
    let began = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    Ok(Served { name, tokenizer, known, reach, ends, chat, began })
}

/// The name of a folder, also where it was typed as `.` or `..`.
fn folder_name(folder: &Path) -> String {
    let whole = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
    whole.file_name().map_or_else(|| "model".to_owned(), |name| name.to_string_lossy().into_owned())
}

/// What `--live` follows, if it was typed. A published model is not followed: its folder is
/// read once.
fn followed(args: &ServeArgs, candidate: &Candidate) -> Result<Option<StateFolder>, ServeError> {
    match candidate {
        Candidate::State(found) if args.live => {
            let state = &args.checkpoint.state;
            let folder = state.data_dir.clone().map_or_else(config::data_dir, Ok)?;
            let (manifest, served) = (found.manifest.clone(), found.path.clone());
            Ok(Some(StateFolder { folder, run: state.run.clone(), manifest, served }))
        }
        Candidate::State(_) | Candidate::Folder(_) => Ok(None),
    }
}

/// Serves until Ctrl-C, or until the engine has ended.
///
/// The end goes along the channels: the server stops to accept, its requests end within their
/// grace, the last sender of errands goes with them, and so the engine ends. After a failure
/// nothing of this is waited for.
async fn serve(
    listener: TcpListener,
    access: Access,
    served: Arc<Served>,
    model: Box<dyn Model>,
    followed: Option<StateFolder>,
    out: &mut dyn Write,
) -> Result<(), ServeError> {
    let mut interrupts = os::Interrupts::new().map_err(ServeError::Runtime)?;
    let listener = tokio::net::TcpListener::from_std(listener).map_err(ServeError::Runtime)?;
    let followed = followed.map(live::start).transpose().map_err(ServeError::Runtime)?;
    let (_live, states) = followed.unzip();
    let (errands, inbox) = blocking::sync_channel(ERRANDS_MAX);
    let (told, mut lines) = mpsc::channel(LINES_MAX);
    let inbox = EngineInbox { errands: inbox, states, told };
    let mut engine = start(model, Arc::clone(&served), inbox)?;
    let stop = CancellationToken::new();
    let api = ApiState { served, errands, access, next: Arc::new(AtomicU64::new(1)) };
    let mut server = tokio::spawn(http::serve(listener, api, stop.clone()));
    let failure = loop {
        tokio::select! {
            () = interrupts.next() => break None,
            _ = &mut engine => break Some(ServeError::Engine),
            _ = &mut server => break Some(ServeError::Engine),
            Some(line) = lines.recv() => {
                // The server goes on where nobody reads the lines any longer.
                let _ = writeln!(out, "{line}").and_then(|()| out.flush());
            }
        }
    };
    stop.cancel();
    if let Some(failure) = failure {
        server.abort();
        return Err(failure);
    }
    // The senders of requests are gone with the server, and then the engine ends. A pass that is long is not waited for.
    let _ = server.await;
    let _ = time::timeout(PATIENCE, engine).await;
    let _ = writeln!(out, "ended: nothing is served any more").and_then(|()| out.flush());
    Ok(())
}

/// Starts the thread that owns the model. What is returned resolves when it has ended.
fn start(
    model: Box<dyn Model>,
    served: Arc<Served>,
    inbox: EngineInbox,
) -> Result<oneshot::Receiver<()>, ServeError> {
    let (done, ended) = oneshot::channel();
    let work = move || {
        engine::run(model, &served, &inbox);
        // Without a receiver the command has ended.
        let _ = done.send(());
    };
    thread::Builder::new().name("engine".into()).spawn(work).map_err(ServeError::Runtime)?;
    Ok(ended)
}

/// The warning where other machines can ask.
const PUBLIC: &str = "warning: everybody who reaches this address can ask this model, and see what it answers; nothing is \
                      encrypted and no key is asked for";
/// Lines about newer states that wait to be printed.
const LINES_MAX: usize = 16;
/// So long the engine may take to end. A thread that computes cannot be stopped, and ends with the
/// process.
const PATIENCE: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests;
