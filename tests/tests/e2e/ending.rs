//! How a node reports that it is done: at the end of its run, or at the
//! epoch that its user asked for.

use std::time::Duration;

use e2e::{Done, Story};

use crate::story;

const PATIENCE: Duration = Duration::from_secs(60);

/// A run of one peer that ends after four epochs, and its entry address.
fn begin(story: &Story, settings: &[&str]) -> (e2e::Process, String) {
    let settings = [&["members.min_peers=1"], settings].concat();
    let manifest = story.manifest("run.toml", &settings).unwrap();
    story.start_bootstrap(&[manifest]).unwrap()
}

/// The first sentence that begins so, without the time of day before it.
fn line<'a>(done: &'a Done, begin: &str) -> &'a str {
    let found = done.out.lines().find_map(|line| Some(&line[line.find(begin)?..]));
    found.unwrap_or_else(|| panic!("no {begin:?} in {}{}", done.out, done.err))
}

/// The numbers after "held-out loss".
fn losses(line: &str) -> Vec<f64> {
    let (_, losses) = line.split_once("held-out loss ").unwrap();
    losses.split(" → ").map(|number| number.parse().unwrap()).collect()
}

/// The last lines report the end of the run, and the commands they propose
/// work; a restart says the same.
#[test]
fn the_end_of_a_run_is_told_as_one() {
    let story = story();
    let (_bootstrap, entry) = begin(&story, &["stop_tokens=2000"]);
    let one = story.start_node("one", &entry, &[]).unwrap();
    let done = one.wait(PATIENCE).unwrap().expect_success().unwrap();
    let said = line(&done, "the run is complete: ");
    assert!(said.contains("4 epochs, 2 560 tokens, held-out loss "), "{said}");
    for wrong in ["left at", "leaving", "Ctrl-C again"] {
        assert!(!done.out.contains(wrong), "{wrong}: {}", done.out);
    }
    let losses_at_end = losses(said);
    assert!(losses_at_end.len() == 2 && losses_at_end[1] < losses_at_end[0], "{said}");

    let hints = line(&done, "try it: ");
    let commands: Vec<&str> = hints.split('`').skip(1).step_by(2).collect();
    for command in &commands {
        let mut words: Vec<&str> = command.split(' ').skip(1).collect();
        if words[0] == "sample" {
            words.extend(["--tokens", "8"]);
        }
        story.node(&words).unwrap().expect_success().unwrap();
    }
    assert!(story.path("model/config.json").exists(), "{commands:?}");
    let data = story.text("one/data");
    let measured = story.node(&["eval", "--data-dir", &data]).unwrap().expect_success().unwrap();
    let measured_loss: f64 =
        line(&measured, "held-out loss").split_whitespace().nth(2).unwrap().parse().unwrap();
    assert!((measured_loss - losses_at_end[1]).abs() < 0.001, "{said}: {}", measured.out);

    let again = story.resume_node("one", &["--bootstrap", &entry]).unwrap();
    let again = again.wait(PATIENCE).unwrap().expect_success().unwrap();
    let once_more = line(&again, "this run has ended: 4 epochs, 2 560 tokens, held-out loss ");
    assert_eq!(losses(once_more), losses_at_end);
    assert!(again.out.ends_with(&format!("{hints}\n")), "{}", again.out);
}

#[test]
fn who_wanted_so_many_epochs_is_done_and_nobody_pressed_a_key() {
    let story = story();
    let (_bootstrap, entry) = begin(&story, &[]);
    let one = story.start_node("one", &entry, &["--epochs", "2"]).unwrap();
    let done = one.wait(PATIENCE).unwrap().expect_success().unwrap();
    assert!(line(&done, "done at epoch 2: took part in 2 epochs").contains("continue with"));
    for wrong in ["left at", "leaving", "Ctrl-C", "complete"] {
        assert!(!done.out.contains(wrong), "{wrong}: {}", done.out);
    }
}
