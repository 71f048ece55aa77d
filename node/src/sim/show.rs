//! A look at a simulation while it runs: a page for browsers, or a screen in the terminal.
//!
//! Both show what `replay --follow` shows of the same files: the run as one peer sees it, what the other peers
//! committed, and the held-out loss of `sim.jsonl`. They read files, so that neither can delay the simulation.

use std::{
    fs::File,
    io::{self, Write},
    sync::mpsc,
    thread,
};

use intellect_view::{
    picture::Source,
    record::Text,
    replay::{Player, ReplayError, Speed},
    stage::{Seen, Stage},
    tui::{
        self, Ended,
        said::{Kind, Said},
    },
};
use tokio::runtime::Runtime;

use super::{error::SimError, plan::Plan, scenario::Scenario};
use crate::{
    cli::SimArgs,
    identity::Identity,
    name::PeerName,
    os::{self, cannot},
    page::Page,
    tui::{Frame, Screen},
};

/// What is wanted, and can be had.
pub(super) struct Outlook {
    /// The page, whose address is taken already.
    page: Option<Page>,
    /// Whether a screen is wanted and the terminal can have one.
    screen: bool,
}

/// What shows the simulation until this is dropped. It gets what the simulation prints, and passes it on.
pub(super) struct Shown<'a> {
    /// Where the simulation prints, once no screen has the terminal.
    out: &'a mut dyn Write,
    /// It stops the thread that reads.
    stop: Option<mpsc::Sender<()>>,
    /// It serves the page, if there is one.
    runtime: Option<Runtime>,
    /// The screen, until it leaves the terminal.
    screen: Option<Screen>,
    /// The lines that the screen lists, while it has the terminal.
    said: Option<Said>,
    /// What was printed meanwhile, and how much of it is listed.
    kept: Vec<u8>,
    listed: usize,
}

impl Outlook {
    /// Takes the page's address, and says where the page is, or why there is no screen. It comes
    /// before the data are read, so that an address that is taken is reported at once. A terminal
    /// that can have no screen is no error.
    pub(super) fn check(args: &SimArgs, out: &mut dyn Write) -> Result<Self, SimError> {
        let page = Page::open(&args.page)?;
        if let Some(page) = &page {
            writeln!(out, "{}", page.sentence())?;
        }
        let unfit = args.tui.then(tui::unfit).flatten();
        if let Some(why) = unfit {
            writeln!(out, "no screen: {why}; here are the lines")?;
        }
        out.flush()?;
        Ok(Self { page, screen: args.tui && unfit.is_none() })
    }

    /// Shows the simulation of this plan, whose folders are there. What is printed goes to `out` in the end.
    pub(super) fn start<'a>(
        self,
        plan: &Plan,
        seer: usize,
        out: &'a mut dyn Write,
    ) -> Result<Shown<'a>, SimError> {
        let mut shown = Shown::plain(out);
        if self.page.is_none() && !self.screen {
            return Ok(shown);
        }
        let (stop, seen) = follow(plan, seer)?;
        shown.stop = Some(stop);
        if let Some(page) = self.page {
            let runtime = os::runtime().map_err(SimError::Show)?;
            // The task ends with the runtime.
            drop(runtime.spawn(page.serve(seen.clone())));
            shown.runtime = Some(runtime);
        }
        if self.screen {
            let said = Said::default();
            let then = |ended| {
                // The terminal took Ctrl-C for a key, and it means what it always means.
                if matches!(ended, Ok(Ended::Wished)) {
                    os::interrupt();
                }
            };
            let frame = Frame { note: "· the simulation ends then", said: Some(said.clone()) };
            shown.screen = Some(Screen::open(seen, frame, then).map_err(SimError::Show)?);
            shown.said = Some(said);
        }
        Ok(shown)
    }
}

/// The peer whose sight of the run is shown: the first that no scenario disturbs, else one that is
/// there to the end. The chaos hurts anybody, and is not asked.
pub(super) fn seer(scenario: &Scenario, peers: usize) -> usize {
    let first = |suits: &dyn Fn(usize) -> bool| (0..peers).find(|peer| suits(*peer));
    first(&|peer| !scenario.concerns(peer))
        .or_else(|| first(&|peer| scenario.survives(peer) && !scenario.starts_later(peer)))
        .unwrap_or_default()
}

/// The error of files that this simulation writes itself.
fn unreadable(error: ReplayError) -> SimError {
    SimError::Show(match error {
        ReplayError::Read { cause, .. } => cause,
        ReplayError::Foreign(path) | ReplayError::Empty(path) => {
            let why = format!("{} is no events file", path.display());
            io::Error::new(io::ErrorKind::InvalidData, why)
        }
    })
}

/// Reads the events in a thread of its own, until the sender is dropped. All files are there then,
/// also of peers that start later, because a player knows its files from the beginning.
fn follow(plan: &Plan, seer: usize) -> Result<(mpsc::Sender<()>, Seen), SimError> {
    let peers = (0..plan.peers).map(|peer| plan.folder.join(format!("peer-{peer}/events.jsonl")));
    let files: Vec<_> = peers.chain([plan.folder.join("sim.jsonl")]).collect();
    for path in &files {
        // A peer that has not started has no file yet.
        File::options().create(true).append(true).open(path).map_err(cannot("create", path))?;
    }
    let player = Player::open(&files, true).map_err(unreadable)?;
    let (mut stage, seen) = Stage::new(Source { live: true, ..Source::default() });
    let seer = Identity::simulated(plan.seed, seer as u64).keypair().peer();
    stage.seen_by(Text::new(PeerName::from(seer).as_str()));
    let (stop, stopped) = mpsc::channel();
    let play = move || {
        let speed = Speed { times: 0.0, follow: true };
        if let Err(error) = player.play(&mut stage, speed, &stopped) {
            tracing::error!(?error, "what is shown of the simulation stands still");
        }
    };
    thread::Builder::new().name("show".into()).spawn(play).map_err(SimError::Show)?;
    Ok((stop, seen))
}

impl<'a> Shown<'a> {
    /// Neither a page nor a screen.
    fn plain(out: &'a mut dyn Write) -> Self {
        let (kept, listed) = (Vec::new(), 0);
        Self { out, stop: None, runtime: None, screen: None, said: None, kept, listed }
    }

    /// Whether a page is served, which then stays until Ctrl-C.
    pub(super) fn has_page(&self) -> bool {
        self.runtime.is_some()
    }

    /// Gives the terminal back, and prints there what was said meanwhile. Without a screen it does
    /// nothing but flush.
    pub(super) fn leave_screen(&mut self) -> io::Result<()> {
        drop(self.screen.take());
        self.said = None;
        self.out.write_all(&std::mem::take(&mut self.kept))?;
        self.out.flush()
    }
}

impl Write for Shown<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Some(said) = &self.said else { return self.out.write(bytes) };
        self.kept.extend_from_slice(bytes);
        while let Some(end) = self.kept[self.listed..].iter().position(|byte| *byte == b'\n') {
            let line = &self.kept[self.listed..self.listed + end];
            said.push(Kind::News, &String::from_utf8_lossy(line));
            self.listed += end + 1;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.said.is_some() { Ok(()) } else { self.out.flush() }
    }
}

impl Drop for Shown<'_> {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
        // An error has its own way to standard error, which must find the terminal whole.
        let _ = self.leave_screen();
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn what_is_printed_under_a_screen_is_listed_by_lines_and_printed_when_it_has_gone() {
        let (mut out, said) = (Vec::<u8>::new(), Said::default());
        let mut shown = Shown::plain(&mut out);
        shown.write_all(b"before\n").unwrap();
        shown.said = Some(said.clone());
        for part in ["epoch ", "1\nepoch 2", "\n", "the e"] {
            shown.write_all(part.as_bytes()).unwrap();
        }
        assert_eq!(said.last(9), ["epoch 1", "epoch 2"]);
        shown.leave_screen().unwrap();
        shown.write_all(b"nd\n").unwrap();
        drop(shown);
        assert_eq!(String::from_utf8(out).unwrap(), "before\nepoch 1\nepoch 2\nthe end\n");
        assert_eq!(said.last(9).len(), 2);
    }

    /// An error ends the simulation without `leave_screen`.
    #[test]
    fn nothing_that_was_printed_is_lost_by_an_error() {
        let mut out = Vec::<u8>::new();
        let mut shown = Shown::plain(&mut out);
        shown.said = Some(Said::default());
        shown.write_all(b"epoch 1\n").unwrap();
        drop(shown);
        assert_eq!(out, b"epoch 1\n");
    }

    #[test]
    fn the_peer_that_is_shown_is_one_that_nothing_disturbs_or_that_lasts() {
        let folder = tempfile::tempdir().unwrap();
        let seen_by = |steps: &[(&str, usize)], peers| {
            let step = |(what, peer): &(&str, usize)| {
                format!("[[step]]\ndo = \"{what}\"\npeer = {peer}\nepoch = 3\n")
            };
            let path = folder.path().join("scenario.toml");
            fs::write(&path, steps.iter().map(step).collect::<String>()).unwrap();
            seer(&Scenario::load(&path, peers).unwrap(), peers)
        };
        assert_eq!(seen_by(&[], 3), 0);
        assert_eq!(seen_by(&[("kill", 0)], 3), 1);
        assert_eq!(seen_by(&[("kill", 0), ("stop", 1), ("continue", 1)], 3), 2);
        assert_eq!(seen_by(&[("kill", 0), ("stop", 1), ("continue", 1)], 2), 1);
        assert_eq!(seen_by(&[("start", 0), ("stop", 1), ("continue", 1)], 2), 1);
        assert_eq!(seen_by(&[("start", 0), ("start", 1)], 2), 0, "there has to be one");
    }
}
