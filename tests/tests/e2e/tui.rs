//! The screen in a real terminal, which tmux plays: it follows the size, and however it ends the terminal is as it was.
//!
//! Each story has a server of tmux of its own, whose socket lies in its folder. Without tmux they
//! are skipped with a line, but not in CI.

use std::{env, fs, process::Command, thread, time::Duration};

use e2e::Story;

use crate::{see::until, story};

/// A terminal with a shell that runs one program, and writes the settings of the terminal down
/// before and after it. Then `cat` answers.
struct Terminal<'a>(&'a Story);

impl Drop for Terminal<'_> {
    fn drop(&mut self) {
        // A server that does not run needs no end.
        let _ = server(self.0).arg("kill-server").output();
    }
}

/// The start of each command to the server of a story.
fn server(story: &Story) -> Command {
    let mut command = Command::new("tmux");
    // The person who runs the tests may sit in a terminal of tmux too.
    command.env_remove("TMUX").args(["-u", "-S", &story.text("tmux"), "-f", "/dev/null"]);
    command
}

/// Runs a command of tmux, and returns what it prints.
fn tmux(story: &Story, words: &[&str]) -> String {
    let done = server(story).args(words).output().unwrap();
    assert!(done.status.success(), "{words:?}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).unwrap()
}

impl<'a> Terminal<'a> {
    /// Starts the program in a terminal of 80 columns and 24 rows.
    fn start(story: &'a Story, program: &[&str]) -> Self {
        let script = "stty -g >before; \"$@\"; echo $? >code; stty -g >after; exec cat";
        let place = ["new-session", "-d", "-x", "80", "-y", "24", "-c", &story.text("")];
        tmux(story, &[&place[..], &["sh", "-c", script, "sh"], program].concat());
        Self(story)
    }

    /// What stands on the terminal.
    fn shown(&self) -> String {
        tmux(self.0, &["capture-pane", "-p"])
    }

    /// Waits until a screen fills the terminal: its last line is the lowest row, and its longest
    /// one ends at the right edge.
    fn wait_for_screen(&self, columns: usize, rows: usize) {
        let fills = |shown: &String| {
            let widest = shown.lines().map(|line| line.chars().count()).max();
            let last = shown.lines().position(|line| line.contains("q ends"));
            (widest, last) == (Some(columns), Some(rows - 1))
        };
        until(|| self.shown(), fills);
        self.wait_for_flags("0 1\n");
    }

    /// Waits until the cursor is visible or not, and the alternate screen is shown or not.
    fn wait_for_flags(&self, awaited: &str) {
        let flags = "#{cursor_flag} #{alternate_on}";
        until(|| tmux(self.0, &["display-message", "-p", flags]), |flags| flags == awaited);
    }

    /// Waits until the program has ended well, and checks that the terminal can be used: it has its
    /// settings, its cursor and its main screen, and shows what is typed below what was `said`.
    fn expect_whole(&self, said: &str) {
        let read = |name: &str| fs::read_to_string(self.0.path(name)).unwrap_or_default();
        let after = until(|| read("after"), |after| after.ends_with('\n'));
        assert_eq!((after, read("code").as_str()), (read("before"), "0\n"));
        self.wait_for_flags("1 0\n");
        tmux(self.0, &["send-keys", "typed", "Enter"]);
        let shown = until(|| self.shown(), |shown| shown.contains("\ntyped\ntyped\n"));
        let (before, _) = shown.split_once("\ntyped\ntyped\n").unwrap();
        assert!(before.contains(said), "{shown}");
    }
}

/// Whether there is no tmux here, which is said then.
fn is_missing() -> bool {
    if Command::new("tmux").arg("-V").output().is_ok() {
        return false;
    }
    println!("skipped: no tmux, so no screen was looked at in a terminal");
    assert!(env::var_os("CI").is_none_or(|ci| ci.is_empty()), "CI needs tmux");
    true
}

/// The events of a node that commits five epochs with another one.
fn events() -> String {
    let line = |t_ms: u64, event: &str| {
        format!(r#"{{{event},"t_ms":{t_ms},"peer":"12D3KooWaaaaMe","run":"0123456789"}}"#) + "\n"
    };
    let mut lines = line(
        1_000,
        r#""event":"started","version":"1","device":"cpu","micro_batch":8,"parameters":9"#,
    );
    lines += &line(1_100, r#""event":"peer-found","who":"12D3KooWaaaYou","direct":true"#);
    for epoch in 1..=5 {
        lines += &line(
            10_000 * epoch,
            &format!(
                r#""event":"committed","attempt":1,"members":["12D3KooWaaaaMe","12D3KooWaaaYou"],"weights":[512,256],"state":"ab","update":"u","tokens":{},"loss":{}.5,"sync_ms":2000,"sent_bytes":9,"received_bytes":8,"forkable_since":null,"epoch":{epoch}"#,
                768 * epoch,
                9 - epoch,
            ),
        );
    }
    lines
}

#[test]
fn a_screen_follows_the_size_of_its_terminal_and_a_key_gives_the_terminal_back() {
    if is_missing() {
        return;
    }
    for key in ["q", "C-c"] {
        let story = story();
        fs::write(story.path("events.jsonl"), events()).unwrap();
        let node = env!("CARGO_BIN_EXE_node");
        // The file ends after the screen has opened, and before it looks for a newer picture again.
        let replay = [node, "replay", "events.jsonl", "--speed", "500", "--tui"];
        let terminal = Terminal::start(&story, &replay);
        terminal.wait_for_screen(80, 24);
        until(|| terminal.shown(), |shown| shown.contains("The events end here, at epoch 5."));
        for (columns, rows) in [(200, 60), (80, 24)] {
            let (x, y) = (columns.to_string(), rows.to_string());
            tmux(&story, &["resize-window", "-x", &x, "-y", &y]);
            terminal.wait_for_screen(columns, rows);
        }
        // crossterm loses a key that comes in the same moment as a change of the size.
        thread::sleep(Duration::from_millis(500));
        tmux(&story, &["send-keys", key]);
        terminal.expect_whole("the end: 7 events");
    }
}

#[test]
fn a_panic_gives_the_terminal_back_and_can_be_read() {
    if is_missing() {
        return;
    }
    let story = story();
    let terminal = Terminal::start(&story, &[env!("CARGO_BIN_EXE_panicking"), "go"]);
    terminal.wait_for_screen(80, 24);
    fs::write(story.path("go"), "").unwrap();
    terminal.expect_whole("it was asked to");
}
