//! What an earlier start of this folder left for this one beside the run itself: what was typed, where peers
//! were reached, where this node listened.

use intellect_protocol::base::id::RunId;

use crate::config::Local;
use crate::config::options::{Kept, Options};
use crate::figures;
use crate::net::address::Address;
use crate::net::ports;
use crate::store::{self, Store, contacts};
use crate::tell::Teller;

/// What the run's folder kept, as far as it is known before the network starts which run is meant.
#[derive(Debug, Default)]
pub(super) struct Earlier {
    /// The one run of the folder that fits what was typed.
    pub(super) run: Option<RunId>,
    /// What its file says.
    pub(super) kept: Kept,
}

impl Earlier {
    /// Reads it; where several runs fit, nothing is known yet.
    pub(super) fn read(local: &Local, tell: &Teller) -> Self {
        // A folder that cannot be read is told of where the run is chosen.
        let runs = store::runs(&local.data_dir).unwrap_or_default();
        let fits = |run: &RunId| local.run.as_ref().is_none_or(|prefix| prefix.matches(run));
        let mut fitting = runs.into_iter().filter(fits);
        match (fitting.next(), fitting.next()) {
            (Some(run), None) => Self { run: Some(run), kept: read(local, run, tell) },
            _ => Self::default(),
        }
    }

    /// What the folder of `run` kept, now that it is chosen.
    pub(super) fn of(self, local: &Local, run: RunId, tell: &Teller) -> Kept {
        if self.run == Some(run) {
            return self.kept;
        }
        let kept = read(local, run, tell);
        let Options { rate, listen, .. } = &kept.options;
        let late = rate.is_some() && local.options.rate.is_none()
            || !listen.is_empty() && local.options.listen.is_empty();
        if late {
            let run = &run.hex()[..8];
            tell.say(&format!(
                "what is kept of --listen and --rate counts where the run is known from the start: type --run {run}"
            ));
        }
        kept
    }
}

fn read(local: &Local, run: RunId, tell: &Teller) -> Kept {
    let kept = Kept::read(&store::run_folder(&local.data_dir, run));
    kept.ignored.iter().for_each(|sentence| tell.say(sentence));
    kept
}

/// Keeps what was typed for the next start.
pub(super) fn remember(typed: &Options, kept: &Kept, store: &Store, tell: &Teller) {
    if let Err(error) = kept.keep(typed, store) {
        tell.disk(&error);
    }
}

/// Where to listen: where the last start did, wherever any port would do.
pub(super) fn listen(local: &Local, tell: &Teller) -> Vec<Address> {
    let asked = local.options.listen();
    let last = contacts::read_ports(&local.data_dir).unwrap_or_default();
    ports::at_ports(&asked, &last.addresses).unwrap_or_else(|taken| {
        tell.say(&format!(
            "port {taken} of the last start is taken by another program: listening at new ports; peers find \
             this node by an entry point, or once it has found them"
        ));
        asked
    })
}

/// The addresses of the peers that an earlier start has met. They are no secret and prove nothing;
/// without them the node has only its entry points.
pub(super) fn known_peers(local: &Local, tell: &Teller) -> Vec<Address> {
    match contacts::read(&local.data_dir) {
        Ok(contacts) => {
            if contacts.ignored > 0 {
                let lines = figures::number_of(contacts.ignored, "line");
                tell.say(&format!("ignored: {lines} of the file of peers that hold no address"));
            }
            contacts.addresses
        }
        Err(error) => {
            tell.say(&format!("the file of peers cannot be read ({error}): doing without"));
            Vec::new()
        }
    }
}
