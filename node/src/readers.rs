//! What shows a running node: the lines on its terminal, its page, and the socket for `status`.
//!
//! Each is a task of its own over the newest picture, and none of them has a handle of the loop, the network or the
//! store: a slow reader waits for itself alone.

use std::time::Duration;

use intellect_view::page;
use intellect_view::stage::Seen;
use tokio::net::UnixListener;
use tokio::task::JoinSet;
use tokio::time;

use crate::config::Local;
use crate::page::Page;
use crate::socket::Socket;
use crate::tell::Console;

/// The readers of one node, which end when this is dropped.
pub(crate) struct Readers {
    _tasks: JoinSet<()>,
    _socket: Option<Socket>,
}

impl Readers {
    /// Starts them, and says where the page is.
    pub(crate) fn start(local: &Local, page: Option<Page>, seen: &Seen, console: &Console) -> Self {
        let mut tasks = JoinSet::new();
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
        let (console, seen) = (console.clone(), seen.clone());
        tasks.spawn(async move {
            loop {
                console.publish(&seen);
                time::sleep(PUBLISH_EVERY).await;
            }
        });
        Self { _tasks: tasks, _socket: socket }
    }
}

/// How often readers get a new picture.
const PUBLISH_EVERY: Duration = Duration::from_millis(250);
