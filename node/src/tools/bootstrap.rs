//! `intellect-bootstrap`, and `intellect-node bootstrap`, which a simulation starts: the public
//! entry point of runs. `intellect_bootstrap::server` does the work.
//!
//! What it hands out goes to everyone who connects, and the server does not look into it. So every
//! file is verified here before a key is read or a socket is opened. A secret that was named by
//! mistake must not get out, and every contributor would refuse a manifest that was changed after
//! signing.
//!
//! Standard output names the runs, and gets a line for each address and run, ready to be pasted.

use std::{
    io::{self, Write},
    path::PathBuf,
};

use intellect_bootstrap::{
    address::Scope,
    discovery::Gateway,
    key::{self, KeyError},
    manifest::FILES_MAX,
    server::{self, ServerError, Way},
};
use intellect_protocol::access::admit::Level;

use crate::{
    cli::BootstrapArgs,
    config::{self, FETCH_DATA_BYTES, LocalError, shell_word},
    enter::choose::SURE_DIGITS,
    figures::count,
    manifest::{LoadError, Manifest},
    net::address::{self, Address},
    os,
};

/// Why the entry point does not run. Nothing has been handed out. All but `Serve` come before a
/// socket is open.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BootstrapError {
    /// The command line makes no sense.
    #[error(transparent)]
    Usage(#[from] LocalError),
    /// A file that was named is no manifest that can be handed out.
    #[error(transparent)]
    Manifest(#[from] LoadError),
    /// More manifests were named than one answer can hold. A node asks for all of them at once.
    #[error(
        "{count} manifests, but at most {FILES_MAX} can be handed out: start a second bootstrap \
         for the rest"
    )]
    TooMany { count: usize },
    /// The key of this entry point cannot be read or made.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The server cannot listen at an address.
    #[error(transparent)]
    Serve(#[from] ServerError),
    /// The system refused to create threads or to handle signals.
    #[error("cannot start")]
    Runtime(#[from] io::Error),
}

/// Serves until Ctrl-C or another signal that asks it to stop.
///
/// Lines for people are written by `report`, as the server learns its addresses. A service manager
/// hears that it is ready with the first address, so what is started after it can dial it. That the
/// router forwards no port is said only while no address is known that can be handed out to
/// somebody with IPv4.
///
/// # Errors
/// See [`BootstrapError`]. What a peer does ends nothing.
pub(crate) fn run(args: &BootstrapArgs, out: &mut dyn Write) -> Result<(), BootstrapError> {
    let offers = load(&args.manifests)?;
    let listen = config::addresses("listen", &args.listen, address::parse_listen)?;
    let external = config::addresses("external", &args.external, address::parse_external)?;
    let default = || config::default_folder("intellect-bootstrap");
    let key = key::load_or_create(&args.data_dir.clone().map_or_else(default, Ok)?)?;
    let config = server::Config {
        key: key.pair.clone(),
        listen,
        external,
        offers: offers.iter().map(Offer::served).collect(),
        unlisted: args.unlisted,
        measure_rate: u32::try_from(args.measure_rate).unwrap_or(u32::MAX),
        line: args.line.clone(),
    };
    os::runtime()?.block_on(async {
        let mut interrupts = os::Interrupts::new()?;
        // The runs are printed once, before the first sentence.
        let mut runs = Some(offers.iter().map(Offer::describe).collect::<String>());
        let mut known = false;
        let report = |event: server::Event| {
            let text = match &event {
                server::Event::Address { address, way } => {
                    os::notify_ready();
                    known |= is_known(address, *way);
                    format!("{}\n{}", heading(*way), join_lines(&offers, args.unlisted, address))
                }
                server::Event::Gateway(_) if known => return,
                event => news(event),
            };
            let text = runs.take().unwrap_or_default() + &text;
            // If the pipe is closed, nobody reads it; the server goes on.
            let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
        };
        server::serve(config, report, interrupts.next()).await?;
        Ok(())
    })
}

/// A manifest that is handed out, and the path of its file.
struct Offer {
    path: PathBuf,
    manifest: Manifest,
}

impl Offer {
    /// What the server hands out: the manifest, and the organiser's notices beside it. The manifest
    /// is in memory from the start, and the notices are read from the file for each request: the
    /// organiser replaces it while this runs.
    fn served(&self) -> server::Offer {
        server::Offer {
            run: self.manifest.id.0,
            manifest: self.manifest.text.as_bytes().into(),
            notices: self.path.with_extension("notices"),
        }
    }

    /// The run in words, on a line of its own.
    fn describe(&self) -> String {
        let Manifest { run, work, id, .. } = &self.manifest;
        let parameters = count(work.model.parameter_count());
        let genesis = run.genesis.map_or_else(String::new, |_| {
            let weights = self.path.with_extension("ckpt");
            format!("; its first node also needs --genesis {}", weights.display())
        });
        let url = work.data.hints.url.as_ref();
        let data = url.map_or_else(String::new, |url| format!("; its data is at {url}"));
        format!("run {id} {}: {parameters} parameters{data}{genesis}\n", run.name)
    }
}

/// Reads and verifies every file. One that is wrong ends the start, since an organiser who misses a
/// run among the lines would look for the mistake elsewhere.
fn load(paths: &[PathBuf]) -> Result<Vec<Offer>, BootstrapError> {
    if paths.len() > FILES_MAX {
        return Err(BootstrapError::TooMany { count: paths.len() });
    }
    let load = |path: &PathBuf| Ok(Offer { path: path.clone(), manifest: Manifest::load(path)? });
    paths.iter().map(load).collect()
}

/// The line above those for an address, which says who can use them.
fn heading(way: Way) -> &'static str {
    match way {
        Way::Own(Scope::Loopback) => "only on this machine:",
        Way::Own(Scope::Private) => "only in this network:",
        Way::Own(Scope::Public) => "to hand out, unless a firewall is in the way:",
        Way::Named => "to hand out, as --external says:",
        Way::Mapped => "to hand out, by a port that the router forwards to this machine:",
    }
}

/// Whether an address can be handed out to somebody who has only IPv4.
fn is_known(address: &Address, way: Way) -> bool {
    let far = matches!(way, Way::Own(Scope::Public) | Way::Named | Way::Mapped);
    far && !address.to_string().starts_with("/ip6/")
}

/// A sentence about how this entry point can be reached. An address is no such sentence, for it
/// gets lines of its own.
fn news(event: &server::Event) -> String {
    match event {
        server::Event::Address { .. } => String::new(),
        server::Event::Unmapped(address) => {
            format!("network: the router no longer forwards a port to {address}\n")
        }
        server::Event::Gateway(gateway) => {
            let remedy = match gateway {
                Gateway::Silent => {
                    "switch on UPnP there, or forward the port of --listen to this machine and name \
                     the router's address with --external; or start this program on a machine with \
                     an address of the internet"
                }
                Gateway::Nested => {
                    "start this program on a machine with an address of the internet, such as a \
                     small server; or listen on IPv6 too, with --listen /ip6/::/tcp/4001"
                }
            };
            format!(
                "network: over IPv4 only this network reaches it: {gateway}. Remedy: {remedy}\n"
            )
        }
        server::Event::Reached(reached) => format!("network: {reached}\n"),
    }
}

/// The lines that a contributor types to join each run at `address`. Nobody joins a run of invited
/// peers without an invite, so for such a run its organiser gets the line that makes one.
///
/// A node takes the only run that is offered without a name. If there are several, [`SURE_DIGITS`]
/// of the id are enough; an unlisted run is handed out only for the whole id.
fn join_lines(offers: &[Offer], unlisted: bool, address: &Address) -> String {
    let line = |Offer { manifest, path }: &Offer| {
        if manifest.run.trust.level == Level::Invited {
            let path = path.display();
            return format!(
                "invited peers only; for each of them: intellect-node invite new --key KEY --manifest {path} \
                 --bootstrap {address}\n"
            );
        }
        let run = match (unlisted, offers.len()) {
            (true, _) => format!(" --run {}", manifest.id.hex()),
            (false, 1) => String::new(),
            // Where several organisers offer runs, a node takes no shorter name.
            (false, _) => format!(" --run {}", &manifest.id.hex()[..SURE_DIGITS]),
        };
        format!("intellect-node --bootstrap {address}{run}{}\n", data_flag(manifest))
    };
    offers.iter().map(line).collect()
}

/// The part of that line about the run's files, with a space before it. It is empty for a run
/// without files, and where a node that lacks them fetches them by itself: they may be fetched, and
/// are no more than it fetches unasked.
pub(super) fn data_flag(Manifest { work, .. }: &Manifest) -> String {
    let bytes: u64 = work.data.source.files().iter().map(|file| file.bytes).sum();
    match work.data.hints.names.as_slice() {
        _ if work.data.source.file_count() == 0 => String::new(),
        // A node that lacks the files fetches them.
        _ if work.data.is_fetched() && bytes <= FETCH_DATA_BYTES => String::new(),
        [] => " --data FILE".to_owned(),
        names => names.iter().fold(" --data".to_owned(), |all, name| all + " " + &shell_word(name)),
    }
}

#[cfg(test)]
mod tests;
