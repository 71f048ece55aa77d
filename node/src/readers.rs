//! What shows a running node: the lines or the screen on its terminal, its page, and the socket for
//! `status`.
//!
//! Each is a task of its own over the newest picture, and none of them has a handle of the loop,
//! the network or the store: a slow reader waits for itself alone.
//!
//! The driver reports events to a `Console`, which folds them into a picture. [`publish`] copies
//! the newest picture to all readers four times a second. So the cost of showing a run is that of
//! one copy, however many events there are and however many readers look.

use std::fmt::Display;
use std::io;
use std::time::Duration;

use intellect_view::page;
use intellect_view::stage::Seen;
use intellect_view::tui::said::Said;
use intellect_view::tui::{self, Ended};
use tokio::net::UnixListener;
use tokio::task::JoinSet;
use tokio::time;

use crate::config::{Local, Voice};
use crate::os;
use crate::page::Page;
use crate::socket::Socket;
use crate::tell::{Console, screen};
use crate::tui::{Frame, Screen};

/// The readers of one node, which end when this is dropped.
pub(crate) struct Readers {
    /// The page, the socket's answers, and the task that publishes pictures.
    _tasks: JoinSet<()>,
    /// The socket's file, which is removed in the end.
    _socket: Option<Socket>,
    /// The screen; the terminal is restored when it is dropped.
    _screen: Option<Screen>,
}

impl Readers {
    /// Starts them, and says where the page is. A socket or a screen that is refused is one
    /// sentence, and the node goes on: nothing of a run depends on being seen. It is called inside
    /// a tokio runtime.
    pub(crate) fn start(local: &Local, page: Option<Page>, seen: &Seen, console: &Console) -> Self {
        let mut tasks = JoinSet::new();
        // The screen comes first: it lists what is said from now on.
        let screen = (local.voice == Voice::Screen).then(|| open(seen, console)).flatten();
        if let Some(page) = page {
            console.say(&page.sentence());
            tasks.spawn(page.serve(seen.clone()));
        }
        let opened = Socket::listen(&local.data_dir)
            .and_then(|(socket, listener)| Ok((socket, UnixListener::from_std(listener)?)));
        let socket = match opened {
            Ok((socket, listener)) => {
                tasks.spawn(page::serve_local(listener, seen.clone()));
                Some(socket)
            }
            Err(error) => {
                console
                    .say(&format!("status cannot ask this node: its socket is refused ({error})"));
                None
            }
        };
        tasks.spawn(publish(console.clone(), seen.clone()));
        Self { _tasks: tasks, _socket: socket, _screen: screen }
    }
}

/// Lets readers see what was reported, again and again. It never ends by itself; its owner drops or
/// aborts the task. `watch` runs it as well.
pub(crate) async fn publish(console: Console, seen: Seen) {
    loop {
        console.publish(&seen);
        time::sleep(PUBLISH_EVERY).await;
    }
}

/// Opens the screen, or says why there is none. Sentences of the node are listed on the screen
/// while it is open, since the terminal belongs to it then. They are printed again as lines once it
/// has ended, for whatever reason.
fn open(seen: &Seen, console: &Console) -> Option<Screen> {
    let none = |why: &dyn Display| {
        console.say(&format!("no screen: {why}; here are the lines"));
        None
    };
    if let Some(why) = tui::unfit() {
        return none(&why);
    }
    let said = Said::default();
    screen::hide(&said);
    let back = console.clone();
    let then = move |ended: io::Result<Ended>| {
        screen::show();
        match ended {
            // The terminal took Ctrl-C for a key, and it means what it always means.
            Ok(Ended::Wished) => os::interrupt(),
            Ok(Ended::Stopped | Ended::Panicked) => {}
            Err(error) => back.say(&format!("the screen has ended: {error}; here are the lines")),
        }
    };
    let frame = Frame { note: "· this node leaves then", said: Some(said) };
    match Screen::open(seen.clone(), frame, then) {
        Ok(screen) => Some(screen),
        Err(error) => {
            screen::show();
            none(&error)
        }
    }
}

/// How often readers get a new picture. More often is more than an eye follows, and each time costs
/// a copy of the picture.
const PUBLISH_EVERY: Duration = Duration::from_millis(250);
