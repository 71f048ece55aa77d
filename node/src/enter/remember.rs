//! What an earlier start of this folder left for this one apart from the run itself: what was typed, where peers
//! were reached, where this node listened.
//!
//! All of it is a convenience. A file that is missing or damaged costs a sentence, and the node
//! starts as for the first time.

use intellect_protocol::base::id::RunId;

use crate::config::Local;
use crate::config::options::{Options, StoredOptions};
use crate::figures;
use crate::net::address::Address;
use crate::net::ports;
use crate::store::{self, contacts};
use crate::tell::Console;

/// What an earlier start stored, as far as it is known which run is meant before the network starts.
#[derive(Debug, Default)]
pub(super) struct Earlier {
    /// The only run of the folder that fits what was typed.
    pub(super) run: Option<RunId>,
    /// The contents of that run's `node.toml`.
    pub(super) stored: StoredOptions,
}

impl Earlier {
    /// Reads it. Where several runs fit, nothing is known yet.
    /// The options are needed before the run is chosen, as the entry points are among them. That is
    /// a circle only where a folder has several runs.
    pub(super) fn read(local: &Local, console: &Console) -> Self {
        // If the folder cannot be read, the choice of the run reports it.
        let runs = store::runs(&local.data_dir).unwrap_or_default();
        let fits = |run: &RunId| local.run.as_ref().is_none_or(|prefix| prefix.matches(run));
        let mut fitting = runs.into_iter().filter(fits);
        match (fitting.next(), fitting.next()) {
            (Some(run), None) => Self { run: Some(run), stored: read(local, run, console) },
            _ => Self::default(),
        }
    }

    /// The stored options of `run`, now that it is chosen.
    /// Where they could not be read before, two of them come too late, since the network listens
    /// already. The user hears that, and how to avoid it.
    pub(super) fn of(self, local: &Local, run: RunId, console: &Console) -> StoredOptions {
        if self.run == Some(run) {
            return self.stored;
        }
        let stored = read(local, run, console);
        let Options { rate, listen, .. } = &stored.options;
        let late = rate.is_some() && local.options.rate.is_none()
            || !listen.is_empty() && local.options.listen.is_empty();
        if late {
            let run = &run.hex()[..8];
            console.say(&format!(
                "the stored --listen and --rate come too late for this start, since several runs are in this folder: to use \
                 them, type --run {run}"
            ));
        }
        stored
    }
}

/// Reads the options of one run, and reports each entry that is ignored.
fn read(local: &Local, run: RunId, console: &Console) -> StoredOptions {
    let stored = StoredOptions::read(&store::run_folder(&local.data_dir, run));
    for sentence in &stored.ignored {
        console.say(sentence);
    }
    stored
}

/// The addresses to listen at: with the ports of the last start, where any port would do.
/// Ports that were typed are taken as they are.
pub(super) fn listen(local: &Local, console: &Console) -> Vec<Address> {
    let asked = local.options.listen();
    let last = contacts::read_ports(&local.data_dir).unwrap_or_default();
    ports::at_ports(&asked, &last.addresses).unwrap_or_else(|taken| {
        console.say(&format!(
            "port {taken} of the last start is taken by another program: listening at new ports; peers find \
             this node by an entry point, or once it has found them"
        ));
        asked
    })
}

/// The addresses of the peers that an earlier start has met. They are neither secret nor trusted; without them the
/// node has only its entry points.
pub(super) fn known_peers(local: &Local, console: &Console) -> Vec<Address> {
    match contacts::read(&local.data_dir) {
        Ok(contacts) => {
            if contacts.ignored > 0 {
                let lines = figures::number_of(contacts.ignored, "line");
                console.say(&format!(
                    "ignored: {lines} without an address in the file of known peers"
                ));
            }
            contacts.addresses
        }
        Err(error) => {
            console.say(&format!(
                "the file of known peers cannot be read ({error}): going on without it"
            ));
            Vec::new()
        }
    }
}
