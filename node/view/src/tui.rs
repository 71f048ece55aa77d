//! A screen for a terminal: the picture drawn anew as it changes, until a key or the caller ends
//! it.
//!
//! It draws on the alternate screen in raw mode, where Ctrl-C is a key like others. However it
//! ends, by a key, an error, a panic of any thread or the caller, the terminal is as it was before.
//! It only reads, so a slow terminal delays nobody.
//!
//! [`run`] is the loop, on a thread of its own; `draw` is pure, and `said` is the list of sentences
//! that a program with a screen cannot print.

mod draw;
pub mod said;

use std::{
    env,
    io::{self, IsTerminal as _},
    os::fd::AsFd,
    panic,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, TryRecvError},
    },
    thread,
    time::{Duration, Instant},
};

use ratatui::crossterm::{
    event::{self, Event, KeyCode, KeyEventKind, KeyModifiers},
    terminal::disable_raw_mode,
};
use ratatui::layout::Size;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::stage::Seen;
use draw::{Axis, View};
use said::Said;

/// Why this terminal cannot have a screen, as the end of a sentence; `None` if it can. Callers ask
/// before [`run`], and print lines instead.
pub fn unfit() -> Option<&'static str> {
    let terminal = io::stdout().is_terminal() && io::stdin().is_terminal();
    why_unfit(terminal, env::var_os("TERM").as_deref().and_then(|term| term.to_str()))
}

/// The same for given facts: whether both input and output are a terminal, and `TERM`.
fn why_unfit(terminal: bool, term: Option<&str>) -> Option<&'static str> {
    match term {
        _ if !terminal => Some("input and output are no terminal"),
        None | Some("" | "dumb") => Some("TERM says that this terminal cannot move its cursor"),
        Some(_) => None,
    }
}

/// Why a screen has ended, where no error ended it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The person at the terminal pressed a key for it.
    Wished,
    /// The caller ended it, by dropping its sender.
    Stopped,
    /// A thread has panicked, and what it said is on the terminal.
    Panicked,
}

/// Draws until q or Ctrl-C is pressed, or the sender of `stop` is dropped. `note` stands at
/// the foot. What is `said` is listed in place of the events.
///
/// It looks for keys and for a newer picture every `DRAW_EVERY`, and blocks its thread meanwhile.
/// One screen at a time may run in a process.
///
/// # Errors
/// If the terminal cannot be written to or read from; it is restored before.
pub fn run(seen: Seen, stop: &Receiver<()>, note: &str, said: Option<&Said>) -> io::Result<Ended> {
    let mut terminal = ratatui::try_init()?;
    let _restored = Restored;
    end_at_a_panic();
    let mut axis = Axis::Tokens;
    let mut picture = Arc::clone(&seen.picture.borrow());
    let (mut stale, mut listed, mut drawn) = (true, 0, Size::default());
    while !PANICKED.load(Ordering::Relaxed) {
        if stop.try_recv() == Err(TryRecvError::Disconnected) {
            return Ok(Ended::Stopped);
        }
        let count = said.map_or(0, Said::count);
        // The size is asked for too: crossterm hears of no change before it has waited for a key.
        let size = terminal.size()?;
        // The last picture counts too: `has_changed` tells of none whose writer has ended.
        let newest = Arc::clone(&seen.picture.borrow());
        let is_old = stale || !Arc::ptr_eq(&newest, &picture);
        if is_old || (count, size) != (listed, drawn) {
            (picture, listed, drawn) = (newest, count, size);
            // A character of a chart has two points side by side.
            let past = seen.past.lock().columns(0, u64::MAX, 2 * usize::from(size.width));
            let view = View { picture: &picture, past: &past, axis, note, said };
            let drawing = DRAWING.lock();
            // A panic that came meanwhile has the terminal by now.
            if PANICKED.load(Ordering::Relaxed) {
                break;
            }
            terminal.draw(|frame| view.draw(frame))?;
            drop(drawing);
            stale = false;
        }
        let mut waiting = await_input(&io::stdin())?;
        while event::poll(Duration::ZERO)? {
            waiting = false;
            match wish(&event::read()?) {
                Wish::End => return Ok(Ended::Wished),
                Wish::NextAxis => axis = axis.next(),
                Wish::Nothing => continue,
                Wish::Draw => {}
            }
            stale = true;
        }
        if waiting {
            // crossterm reads the rest of a long paste with the next key only.
            thread::sleep(DRAW_EVERY);
        }
    }
    // Else the program could end before the panic has said anything.
    wait_until(|| TOLD.load(Ordering::Relaxed));
    Ok(Ended::Panicked)
}

/// Waits for a key for at most [`DRAW_EVERY`], and returns whether there is any input; a resize may end the wait earlier.
///
/// # Errors
/// The terminal is gone. crossterm would read from it again and again, and hardly ever return.
fn await_input(terminal: &impl AsFd) -> io::Result<bool> {
    let mut asked = [PollFd::new(terminal, PollFlags::IN)];
    // A signal ends the wait, and that is no error.
    let _ = poll(&mut asked, Timespec::try_from(DRAW_EVERY).ok().as_ref());
    if asked[0].revents().intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL) {
        return Err(io::Error::new(io::ErrorKind::NotConnected, "the terminal is gone"));
    }
    Ok(asked[0].revents().contains(PollFlags::IN))
}

/// Gives back what can be given back of a terminal that takes nothing more: it shows what is typed
/// again. For a screen whose thread hangs in a write.
pub fn give_up() {
    // There is nothing else that could be tried.
    let _ = disable_raw_mode();
}

/// What a key or a resize asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wish {
    /// The screen is to end; it was asked for.
    End,
    /// The loss is drawn against something else.
    NextAxis,
    /// Everything is to be drawn anew.
    Draw,
    Nothing,
}

/// What an event of the terminal asks for. Releases and repetitions of keys ask for nothing.
fn wish(event: &Event) -> Wish {
    let key = match event {
        Event::Key(key) if key.kind == KeyEventKind::Press => key,
        Event::Resize(..) => return Wish::Draw,
        _ => return Wish::Nothing,
    };
    let control = key.modifiers.contains(KeyModifiers::CONTROL);
    match key.code {
        KeyCode::Char('c' | 'd') if control => Wish::End,
        KeyCode::Char('l') if control => Wish::Draw,
        KeyCode::Char('q') => Wish::End,
        KeyCode::Char('t') => Wish::NextAxis,
        _ => Wish::Nothing,
    }
}

/// A panic of any thread ends the screen. The hook that ratatui sets restores the terminal first, and what the panic says
/// would else be drawn over.
fn end_at_a_panic() {
    TOLD.store(false, Ordering::Relaxed);
    let next = panic::take_hook();
    panic::set_hook(Box::new(move |panicked| {
        PANICKED.store(true, Ordering::Relaxed);
        // A drawing that has begun goes on the screen that is left next. The thread that draws may be the one that panics:
        // then nobody waits for long.
        wait_until(|| DRAWING.try_lock().is_ok());
        next(panicked);
        TOLD.store(true, Ordering::Relaxed);
    }));
}

/// Waits until a condition holds, for at most [`PANIC_MAX`].
fn wait_until(holds: impl Fn() -> bool) {
    let patience = Instant::now() + PANIC_MAX;
    while !holds() && Instant::now() < patience {
        thread::sleep(Duration::from_millis(5));
    }
}

/// Gives the terminal back when it is dropped. A panic does it earlier, by the hook that ratatui sets. A second time
/// would move the cursor back to where the screen began, and what the panic said would be written over.
struct Restored;

impl Drop for Restored {
    fn drop(&mut self) {
        if !TOLD.load(Ordering::Relaxed) {
            // A terminal that is gone needs nothing.
            let _ = ratatui::try_restore();
        }
    }
}

/// Whether any thread has panicked since a screen was opened.
static PANICKED: AtomicBool = AtomicBool::new(false);
/// Whether the terminal of this screen was given back at a panic, and has what the panic said.
static TOLD: AtomicBool = AtomicBool::new(false);
/// It is locked while something is drawn.
static DRAWING: Mutex<()> = Mutex::new(());
/// A panic waits so long for a drawing to end, and the screen for what a panic says.
const PANIC_MAX: Duration = Duration::from_millis(500);
/// The longest wait for a key, after which the picture is looked at again.
const DRAW_EVERY: Duration = Duration::from_millis(250);

#[cfg(test)]
mod tests;
