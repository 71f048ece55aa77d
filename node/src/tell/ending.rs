//! Sentences towards the end of a node, and of a run.
//!
//! None of them has an event of its own: programs see `leaving` and `stopped`, and the epoch of the
//! last commit. What is here is what a person wants to know then: what was contributed, how to
//! continue, and how to use the model.

use intellect_protocol::message::Head;
use intellect_view::picture::Source;

use super::Console;
use crate::config;
use crate::figures::{count, number_of};

/// The held-out loss of a run at its end, in nats per token.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct HeldOut {
    /// That of the first weights, where they are drawn from the run's seed.
    pub(crate) first: Option<f64>,
    /// The loss of the last state, in nats per token.
    pub(crate) last: f64,
}

impl Console {
    /// Nothing more is reported, though the run may go on. Views say so, instead of waiting for the
    /// next event.
    pub(crate) fn ended(&self) {
        if let Some(stage) = self.sink().stage() {
            stage.note(Source { ended: true, ..Source::default() });
        }
    }

    /// Says that peers are behind, and that this node stays for them as long as they make progress.
    pub(crate) fn lingering(&self, epoch: u64, behind: usize) {
        let peers = number_of(behind, "peer");
        self.say(&format!(
            "epoch {epoch} was the last one: serving {peers} still behind, as long as there is progress \
             (Ctrl-C leaves)"
        ));
    }

    /// Says that a node that was started after the last epoch waits for peers that lack it.
    pub(crate) fn handing_out(&self, epoch: u64) {
        self.say(&format!(
            "epoch {epoch} was the last one: waiting half a minute for peers that lack it (Ctrl-C leaves)"
        ));
    }

    /// Says that leaving has begun, and how to cut it short.
    pub(crate) fn leaving(&self) {
        self.say("leaving: finishing open work, 5 s at most (Ctrl-C again ends at once)");
    }

    /// The last sentence: where the run is, what this start contributed, how to continue. Its first word is `what`:
    /// "left", or "done" at the epoch after which the user wanted to stop.
    pub(crate) fn last_word(&self, what: &str) {
        let command = config::command_for(&self.data_dir);
        self.say(&self.contributed.last_word(what, self.epoch, &command));
    }

    /// An attestation led this node back to an epoch in which it may have signed something before.
    pub(crate) fn led_back(&self) {
        self.say(
            "led back to an epoch that this node had left for another lineage: starting again, bound \
             by what it signed there",
        );
    }

    /// The last epoch is reached: `last` if the user set it, else the end that the manifest sets.
    /// The run may be past `last` already when this node learns of it.
    pub(crate) fn reached(&self, epoch: u64, last: Option<u64>) {
        self.say(&match last {
            Some(last) if last < epoch => {
                format!("the run is already past epoch {last}: it is at epoch {epoch}")
            }
            _ => format!("epoch {epoch} is the last one: waiting for the others"),
        });
    }

    /// All peers that were waited for have the last epoch, and its state is still being written.
    pub(crate) fn writes_the_last(&self, epoch: u64) {
        self.say(&format!(
            "writing the state of epoch {epoch} to the disk (Ctrl-C ends without it)"
        ));
    }

    /// The run has its last state, reached `before` this start or in it. Names the held-out loss
    /// and the commands that use the model, if it is `stored`. They name the data folder as it was
    /// typed, so that they can be copied.
    pub(crate) fn complete(
        &self,
        head: Head,
        before: bool,
        held_out: Option<HeldOut>,
        stored: bool,
    ) {
        self.say(&complete(head, before, held_out));
        if !stored {
            self.say(
                "the last state is not on the disk, so that only an older one can be used: free some disk space, and \
                 start this node again until it is written",
            );
            return;
        }
        let command = |verb: &str| config::command_of(verb, &self.data_dir);
        self.say(&format!(
            "try it: `{}`; for other programs: `{} --to model/`",
            command("sample"),
            command("export")
        ));
    }
}

/// The sentence at the end of a run.
fn complete(head: Head, before: bool, held_out: Option<HeldOut>) -> String {
    let what = if before { "this run has ended" } else { "the run is complete" };
    let (epochs, tokens) = (number_of(head.epoch, "epoch"), count(head.tokens));
    let held_out = match held_out {
        Some(HeldOut { first: Some(first), last }) => {
            format!(", held-out loss {first:.3} → {last:.3}")
        }
        Some(HeldOut { first: None, last }) => format!(", held-out loss {last:.3}"),
        None => String::new(),
    };
    format!("{what}: {epochs}, {tokens} tokens{held_out}")
}

#[cfg(test)]
mod tests {
    use intellect_protocol::base::id::Digest;

    use super::*;

    #[test]
    fn the_end_of_a_run_says_what_is_known_of_it() {
        let head = Head { epoch: 4, tokens: 30_720, state: Digest::ZERO };
        let said = |before, held_out| complete(head, before, held_out);
        let both = HeldOut { first: Some(3.1196), last: 2.4711 };
        assert_eq!(
            said(false, Some(both)),
            "the run is complete: 4 epochs, 30 720 tokens, held-out loss 3.120 → 2.471"
        );
        let last = HeldOut { first: None, ..both };
        assert_eq!(
            said(true, Some(last)),
            "this run has ended: 4 epochs, 30 720 tokens, held-out loss 2.471"
        );
        assert_eq!(said(true, None), "this run has ended: 4 epochs, 30 720 tokens");
    }
}
