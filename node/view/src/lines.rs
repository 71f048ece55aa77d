//! A picture in words: the verdict, and three lines for a terminal.
//!
//! Both are pure. They say what the events say and no more: where a number is unknown its part is left out.

use serde::Serialize;

use crate::picture::{Phase, Picture};

/// What is the matter, in one sentence.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Verdict {
    pub(crate) mood: Mood,
    pub(crate) sentence: String,
    /// What a person can do, where there is something.
    pub(crate) cure: Option<String>,
}

/// How much a verdict should worry a person.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Mood {
    Good,
    Wait,
    Bad,
    Ended,
}

/// The verdict on a picture: the worst that holds, else what the node does.
pub(crate) fn verdict(picture: &Picture) -> Verdict {
    let (open, head) = (&picture.open, &picture.head);
    let say = |mood, sentence: String| Verdict { mood, sentence, cure: None };
    if picture.agreement.differing > 0 {
        let sentence = "Equal receipts have given different states: software or memory is broken.";
        return say(Mood::Bad, sentence.to_owned());
    }
    if let Some(waiting) = &picture.waiting {
        let sentence = format!("Waiting: {}.", waiting.reason.as_str().replace('-', " "));
        return Verdict { mood: Mood::Wait, sentence, cure: Some(waiting.cure.to_string()) };
    }
    match open.phase {
        Phase::Stopped => {
            say(Mood::Ended, format!("This node has stopped at epoch {}.", head.epoch))
        }
        _ if picture.source.ended => {
            say(Mood::Ended, format!("The file ends here, at epoch {}.", head.epoch))
        }
        Phase::Unknown if picture.now_ms == 0 => {
            say(Mood::Wait, "No event has been read yet.".to_owned())
        }
        Phase::Unknown => say(Mood::Wait, "The node starts.".to_owned()),
        Phase::Fetching => {
            let share = picture.fetch.as_ref().map_or_else(String::new, |fetch| {
                format!(": {} %", percent(fetch.have_bytes, fetch.want_bytes))
            });
            say(Mood::Wait, format!("Fetching the state of the run{share}."))
        }
        Phase::Training => say(Mood::Good, format!("Training epoch {}.", open.epoch)),
        Phase::Ready => say(
            Mood::Good,
            format!("Its work for epoch {} is ready, and it waits for the others.", open.epoch),
        ),
        Phase::Ring => say(
            Mood::Good,
            format!("Averaging epoch {} in a ring of {}.", open.epoch, open.roster.len()),
        ),
    }
}

/// Three lines of at most `columns` characters.
pub fn lines(picture: &Picture, columns: usize) -> [String; 3] {
    let (head, pace) = (&picture.head, &picture.pace);
    let first = [
        Some(format!("epoch {}", head.epoch)),
        (!picture.ring.is_empty()).then(|| format!("{} in the last ring", picture.ring.len())),
        Some(doing(picture)),
        head.loss.map(|loss| format!("loss {loss:.3}")),
        Some(format!("{} tokens", short(head.tokens as f64))),
    ];
    let left_out = picture.counts.left_out;
    let second = [
        pace.tokens_per_s.map(|rate| format!("run {} tokens/s", short(rate))),
        next_ms(picture).map(|ms| format!("next epoch in {}", span(ms))),
        (left_out > 0).then(|| {
            let all = left_out.saturating_add(picture.counts.commits);
            format!("left out of {left_out} of {all} epochs")
        }),
    ];
    let here = picture.peers.values().filter(|peer| peer.here == Some(true));
    let third = [
        Some(format!("{} others here", here.count())),
        (head.epoch > 0).then(|| {
            format!(
                "{}B up, {}B down an epoch",
                short(head.sent_bytes as f64),
                short(head.received_bytes as f64)
            )
        }),
        picture.node.path.as_ref().map(|(step, error)| match error {
            Some(error) => format!("{step}: {error}"),
            None => step.to_string(),
        }),
    ];
    let line =
        |name: &str, parts: Vec<String>| fitting(&format!("{name}{}", parts.join(" · ")), columns);
    [
        line("", first.into_iter().flatten().collect()),
        line("pace     ", second.into_iter().flatten().collect()),
        line("network  ", third.into_iter().flatten().collect()),
    ]
}

/// What the node does, in a word or two.
fn doing(picture: &Picture) -> String {
    let word = match picture.open.phase {
        _ if picture.waiting.is_some() => "waiting",
        Phase::Unknown => "starting",
        Phase::Training => "training",
        Phase::Ready => "ready, waits for others",
        Phase::Ring => "ring and votes",
        Phase::Fetching => "fetching",
        Phase::Stopped => "stopped",
    };
    word.to_owned()
}

/// Milliseconds of the file until the next commit, as the last epochs let one expect.
pub(crate) fn next_ms(picture: &Picture) -> Option<u64> {
    let runs = matches!(picture.open.phase, Phase::Training | Phase::Ready | Phase::Ring);
    if !runs || picture.waiting.is_some() || picture.source.ended {
        return None;
    }
    let expected = picture.head.t_ms.saturating_add(picture.pace.epoch_ms?);
    expected.checked_sub(picture.now_ms)
}

/// Cuts a text at a number of characters.
fn fitting(text: &str, columns: usize) -> String {
    if text.chars().count() <= columns {
        return text.to_owned();
    }
    let mut cut: String = text.chars().take(columns.saturating_sub(1)).collect();
    if columns > 0 {
        cut.push('…');
    }
    cut
}

/// A number in the unit that leaves one to three digits before the point: 691 k, 1.4 M.
pub(crate) fn short(number: f64) -> String {
    let mut value = number;
    for unit in ["", "k", "M", "G"] {
        if value < 999.5 {
            let digits = usize::from(value < 9.95 && !unit.is_empty());
            return format!("{value:.digits$} {unit}").trim_end().to_owned();
        }
        value /= 1_000.0;
    }
    format!("{value:.1} T")
}

pub(crate) fn span(ms: u64) -> String {
    match ms / 1_000 {
        seconds @ 0..=119 => format!("{seconds} s"),
        seconds @ 120..=7_199 => format!("{} min", seconds / 60),
        seconds => format!("{} h", seconds / 3_600),
    }
}

fn percent(part: u64, whole: u64) -> u64 {
    part.saturating_mul(100).checked_div(whole).unwrap_or_default().min(100)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Record;

    fn picture(lines: &[&str]) -> Picture {
        let mut picture = Picture::default();
        for (at, line) in lines.iter().enumerate() {
            let line = format!(r#"{{{line},"t_ms":{},"peer":"me","run":"r"}}"#, 1_000 * at + 1);
            picture.take(&Record::parse(line.as_bytes()).expect("a record"));
        }
        picture
    }

    const START: &str =
        r#""event":"started","version":"0.1.0","device":"cpu","micro_batch":8,"parameters":9"#;
    const WAIT: &str = r#""event":"waiting","reason":"goes-on-alone","cure":"Wait.""#;

    #[test]
    fn the_verdict_is_the_worst_that_holds() {
        let sentence = |lines: &[&str]| verdict(&picture(lines)).sentence;
        assert_eq!(sentence(&[]), "No event has been read yet.");
        assert_eq!(sentence(&[START]), "Training epoch 1.");
        assert_eq!(sentence(&[START, WAIT]), "Waiting: goes on alone.");
        let diverged = r#""event":"diverged","who":"x","mine":"a","theirs":"b""#;
        assert_eq!(verdict(&picture(&[START, WAIT, diverged])).mood, Mood::Bad);
        let stopped = r#""event":"stopped","code":0"#;
        assert_eq!(sentence(&[START, stopped]), "This node has stopped at epoch 0.");
    }

    #[test]
    fn lines_fit_every_terminal() {
        let mut picture = picture(&[START, WAIT]);
        picture.head.tokens = 691_200;
        for columns in 0..120 {
            assert!(lines(&picture, columns).iter().all(|line| line.chars().count() <= columns));
        }
        assert_eq!(lines(&picture, 120)[0], "epoch 0 · waiting · 691 k tokens");
        assert_eq!(
            (short(0.0), short(1_440.0), short(81e6)),
            ("0".into(), "1.4 k".into(), "81 M".into())
        );
    }
}
