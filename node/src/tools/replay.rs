//! `replay`: a look at a run from the events that a node wrote, while it runs or long after.
//!
//! It takes no part in the run and needs no network: it reads files, and `intellect_view` shows
//! them.
//!
//! The player runs on a thread of its own, since it sleeps between events, and feeds a stage.
//! Everything that shows the run reads that stage: the page, the screen and the lines. So a replay
//! looks as the run did to its node, but for what is not in the events.

mod screen;
mod table;

use std::{
    fmt,
    io::{self, Write},
    sync::mpsc,
    time::Duration,
};

use intellect_view::{
    lines,
    picture::Source,
    replay::{self, Player, Speed, Tally},
    stage::{Seen, Stage},
};
use tokio::{sync::oneshot, time};

use crate::{
    cli::replay::ReplayArgs,
    figures::{count, number_of},
    os,
    page::{Page, PageError},
    tell::screen::can_draw,
};

/// Why a run is not shown, or no longer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReplayError {
    /// A file cannot be read, or is no events file.
    #[error(transparent)]
    Files(#[from] replay::ReplayError),
    /// There is no place for its page.
    #[error(transparent)]
    Page(#[from] PageError),
    /// The terminal has gone, or refuses what a screen needs.
    #[error("the screen has ended: try --lines")]
    Screen(#[source] io::Error),
    /// The system refused threads or signals.
    #[error("cannot start")]
    Runtime(#[source] io::Error),
    /// Standard output is gone or full.
    #[error("cannot write to standard output")]
    Output(#[from] io::Error),
}

/// Shows a run until its files end, or with a page, a screen or `--follow` until Ctrl-C. A table is
/// written without a pause.
///
/// # Errors
/// Files and the address of the page are checked before anything is shown.
pub(crate) fn run(args: &ReplayArgs, out: &mut dyn Write) -> Result<(), ReplayError> {
    if args.csv {
        return table::write(args, out);
    }
    let player = Player::open(&args.files, args.follow)?;
    let runtime = os::runtime().map_err(ReplayError::Runtime)?;
    runtime.block_on(show(args, player, out))
}

/// Shows the run on the page, on the screen or in lines, as was asked for. A terminal that can have
/// no screen gets the lines instead, after a sentence.
async fn show(args: &ReplayArgs, player: Player, out: &mut dyn Write) -> Result<(), ReplayError> {
    let mut interrupts = os::Interrupts::new().map_err(ReplayError::Runtime)?;
    let speed = Speed { times: if args.follow { 0.0 } else { args.speed }, follow: args.follow };
    let source = Source { live: args.follow, speed: speed.times, ended: false };
    let (mut stage, seen) = Stage::new(source);
    // Another node may have written the earliest line.
    if let Some(peer) = player.first_writer() {
        stage.seen_by(peer.clone());
    }
    let page = Page::open(&args.page)?;
    if let Some(page) = &page {
        print(out, format_args!("{}\n", page.sentence()))?;
    }
    let page = page.map(|page| tokio::spawn(page.serve(seen.clone())));
    let screen = args.tui && screen::is_fit(out)?;
    let (stop, played) = start(player, stage, speed)?;
    let lines = args.lines || page.is_none() || (args.tui && !screen);
    let ended = tokio::select! {
        ended = watch(seen, screen, lines, played, out) => ended?,
        () = interrupts.next() => None,
    };
    if let Some(ended) = ended {
        print(out, format_args!("{}\n", said(ended)))?;
        if page.is_some() && !screen {
            print(out, format_args!("the page stays until Ctrl-C\n"))?;
            interrupts.next().await;
        }
    }
    drop(stop);
    if let Some(page) = page {
        page.abort();
    }
    Ok(())
}

/// How the thread that plays reports its end.
type Played = oneshot::Receiver<Result<Tally, replay::ReplayError>>;

/// Plays in a thread of its own, which ends once the sender is dropped. The thread is not waited
/// for.
fn start(
    player: Player,
    mut stage: Stage,
    speed: Speed,
) -> Result<(mpsc::Sender<()>, Played), ReplayError> {
    let (stop, stopped) = mpsc::channel();
    let (done, played) = oneshot::channel();
    let play = move || {
        // Without a receiver the command has ended.
        let _ = done.send(player.play(&mut stage, speed, &stopped));
    };
    std::thread::Builder::new().name("replay".into()).spawn(play).map_err(ReplayError::Runtime)?;
    Ok((stop, played))
}

/// Shows the run on a screen until a key ends it, or in lines until the files end. Returns what was
/// in the files, if they have ended.
async fn watch(
    seen: Seen,
    screen: bool,
    lines: bool,
    mut played: Played,
    out: &mut dyn Write,
) -> Result<Option<Tally>, ReplayError> {
    if !screen {
        return draw(seen, lines, played, out).await.map(Some);
    }
    screen::show(seen).await?;
    Ok(played.try_recv().ok().transpose()?)
}

/// Draws the lines while the files are played: over one another on a terminal, else one for each
/// epoch. Without `lines` it only waits for the end. At most four pictures are drawn in a second,
/// however fast events come.
async fn draw(
    mut seen: Seen,
    lines: bool,
    mut played: Played,
    out: &mut dyn Write,
) -> Result<Tally, ReplayError> {
    let terminal = can_draw();
    let mut before: Option<[String; 3]> = None;
    loop {
        let ended = tokio::select! {
            ended = &mut played => Some(ended),
            Ok(()) = seen.picture.changed() => None,
        };
        if lines {
            let columns = if terminal { os::columns().unwrap_or(COLUMNS) } else { usize::MAX };
            let drawn = lines::lines(&seen.picture.borrow_and_update(), columns.saturating_sub(1));
            let up = if before.is_some() { "\r\x1b[3A\x1b[J" } else { "" };
            let text = match &before {
                _ if terminal => format!("{up}{}\n", drawn.join("\n")),
                Some(before) if before[0] == drawn[0] => String::new(),
                _ => format!("{}\n", drawn[0]),
            };
            print(out, format_args!("{text}"))?;
            before = Some(drawn);
        }
        match ended {
            Some(Ok(ended)) => return Ok(ended?),
            // A thread that ends without a word has been stopped.
            Some(Err(_)) => return Ok(Tally::default()),
            None => time::sleep(DRAW_EVERY).await,
        }
    }
}

/// Prints a text, of which nothing stays in a buffer.
fn print(out: &mut dyn Write, text: fmt::Arguments<'_>) -> io::Result<()> {
    out.write_fmt(text)?;
    out.flush()
}

/// What was in the files, in a sentence.
fn said(tally: Tally) -> String {
    let mut text = format!("the end: {}", number_of(tally.events, "event"));
    if tally.skipped > 0 {
        let lines = if tally.skipped == 1 { "line is" } else { "lines are" };
        text += &format!("; {} {lines} no event, and skipped", count(tally.skipped));
    }
    if tally.cut > 0 {
        text += "; the last line is cut, and skipped";
    }
    text
}

/// Width of a terminal that does not say its own.
const COLUMNS: usize = 80;
/// Time between two drawings, as for the readers of a node.
const DRAW_EVERY: Duration = Duration::from_millis(250);

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::{
        cli::{Cli, Verb},
        tools::tests::{Folder, verb},
    };

    const EVENT: &str = r#"{"event":"started","version":"1","device":"cpu","micro_batch":8,"parameters":9,"t_ms":1,"peer":"me","run":"r"}"#;

    /// What `replay` prints with these arguments, or its error.
    fn typed(arguments: &[&str]) -> Result<String, String> {
        let Verb::Replay(args) = verb(&[&["replay"], arguments].concat()) else { panic!() };
        let mut out = Vec::new();
        run(&args, &mut out).map_err(|error| error.to_string())?;
        Ok(String::from_utf8(out).unwrap())
    }

    fn replay(text: &str, more: &[&str]) -> Result<String, String> {
        let folder = Folder::new();
        typed(&[&[folder.file("events", text).as_str()], more].concat())
    }

    #[test]
    fn a_file_is_played_to_its_end() {
        let out = replay(&format!("{EVENT}\nnoise\n{}", &EVENT[..30]), &["--speed", "0"]).unwrap();
        let end = "the end: 1 event; 1 line is no event, and skipped; the last line is cut, and skipped\n";
        assert!(out.starts_with("epoch 0") && out.ends_with(end), "{out}");
    }

    /// The second file begins earlier.
    #[test]
    fn the_first_file_is_the_node_that_is_seen() {
        let folder = Folder::new();
        let file = |name: &str, peer: &str, t_ms: u64| {
            let start = EVENT.replace("\"me\"", &format!("\"{peer}\""));
            let commit = r#"{"event":"committed","attempt":1,"members":[],"weights":[],"state":"s","update":"u","tokens":TOKENS,"loss":1.5,"sync_ms":1,"sent_bytes":0,"received_bytes":0,"forkable_since":null,"peer":"PEER","run":"r","epoch":1,"t_ms":9}"#;
            let commit = commit.replace("PEER", peer).replace("TOKENS", &t_ms.to_string());
            let start = start.replace("\"t_ms\":1", &format!("\"t_ms\":{t_ms}"));
            folder.file(name, format!("{start}\n{commit}\n"))
        };
        let (first, second) = (file("a", "one", 5), file("b", "two", 3));
        let out = typed(&[&first, &second, "--speed", "0"]).unwrap();
        assert!(out.contains("5 tokens") && !out.contains("3 tokens"), "{out}");
    }

    #[test]
    fn a_table_has_a_row_for_each_event() {
        let table = replay(&format!("{EVENT}\nnoise\n{EVENT}\n"), &["--csv"]).unwrap();
        let rows: Vec<&str> = table.lines().collect();
        assert_eq!(rows[0], "t_ms,event,epoch,peer,run,device,micro_batch,parameters,version");
        assert_eq!(rows[1..], ["1,started,,me,r,cpu,8,9,1"; 2]);
        assert!(Cli::try_parse_from(["x", "replay", "f", "--csv", "--page"]).is_err());
    }

    #[test]
    fn what_cannot_be_shown_is_a_sentence() {
        assert!(replay("", &[]).unwrap_err().contains("has no events yet: with --follow"));
        assert!(replay("GET / HTTP/1.1\n", &[]).unwrap_err().contains("is no events file"));
        let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let at = taken.local_addr().unwrap().to_string();
        let error = replay(&format!("{EVENT}\n"), &["--page", &at]).unwrap_err();
        assert!(error.contains("name another address"), "{error}");
        assert!(Cli::try_parse_from(["x", "replay", "f", "--speed", "-1"]).is_err());
        assert!(Cli::try_parse_from(["x", "replay"]).is_err());
        assert!(Cli::try_parse_from(["x", "replay", "f", "--follow", "--page"]).is_ok());
        let wrong = Cli::try_parse_from(["x", "replay", "--page", "f"]).unwrap_err().to_string();
        assert!(wrong.contains("write files before it"), "{wrong}");
    }
}
