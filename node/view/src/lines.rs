//! A picture in words: the verdict, and three lines for a terminal.
//!
//! Both are pure. They say what the events say and no more: where a number is unknown its part is
//! left out. The page, the screen and `/text` all take their sentence from `verdict`, so they never
//! disagree about how a run is.
//!
//! Peers are named by the last six characters of their ids, and large numbers are shortened: people
//! compare runs here, programs read `/status`.

use serde::Serialize;

use crate::{
    picture::{Phase, Picture, Waiting},
    record::Text,
};

/// What is the matter, in one sentence.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Verdict {
    /// How much it should worry a person, which chooses the colour.
    pub(crate) mood: Mood,
    /// A whole sentence, with a capital and a full stop.
    pub(crate) sentence: String,
    /// What a person can do, where there is something; without its full stop.
    pub(crate) cure: Option<String>,
}

/// How much a verdict should worry a person.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Mood {
    /// The epoch goes on, or waits as each epoch does.
    Good,
    /// The node does not get on yet; mostly it passes without help.
    Wait,
    /// A state differs where it must not, or a person has to decide. It does not pass by itself.
    Bad,
    /// The node has stopped, or the file has no more events.
    Ended,
}

/// The verdict on a picture: the worst that holds, else what the node does.
///
/// The order is a rank. Different states come first, since all other numbers are worth nothing
/// then. A wait comes before the phase, since the node names its cause itself.
///
/// A node that has stopped, or a file at its end, waits for nothing: there the phase decides,
/// whatever was said last.
pub(crate) fn verdict(picture: &Picture) -> Verdict {
    let (open, head) = (&picture.open, &picture.head);
    let say = |mood, sentence: String| Verdict { mood, sentence, cure: None };
    if picture.agreement.differing > 0 {
        let sentence = "Equal receipts have given different states: software or memory is broken.";
        return say(Mood::Bad, sentence.to_owned());
    }
    // What was waited for at the end is over too.
    let is_over = open.phase == Phase::Stopped || picture.source.ended;
    if let Some(epoch) = picture.held_fork
        && !is_over
    {
        return held(epoch, picture.waiting.as_ref().filter(|waiting| waiting.is_forked()));
    }
    // How much of a later state has come says more than that it is fetched. Without a fork that is
    // held, a person has decided meanwhile.
    let says = |waiting: &&Waiting| {
        let is_fetched = open.phase == Phase::Fetching && waiting.reason.as_str() == "behind";
        !is_fetched && !waiting.is_forked()
    };
    if let Some(waiting) = picture.waiting.as_ref().filter(says)
        && !is_over
    {
        let said = if waiting.text.as_str().is_empty() { &waiting.reason } else { &waiting.text };
        let mood = if is_ordinary(waiting) { Mood::Good } else { Mood::Wait };
        return Verdict {
            mood,
            sentence: capital(said.as_str()),
            cure: Some(capital(&waiting.cure.to_string())),
        };
    }
    match open.phase {
        Phase::Stopped => {
            say(Mood::Ended, format!("This node has stopped at epoch {}.", head.epoch))
        }
        _ if picture.source.ended => {
            say(Mood::Ended, format!("The events end here, at epoch {}.", head.epoch))
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

/// The verdict on a lineage that is greater from this epoch on, and that only a person may choose: in
/// the node's own words, once it has said them.
fn held(epoch: u64, said: Option<&Waiting>) -> Verdict {
    let sentence = || {
        format!(
            "From epoch {epoch} on another lineage of the run is greater, and a person has to decide."
        )
    };
    let cure = || "the event `fork` has the state for --follow".to_owned();
    Verdict {
        mood: Mood::Bad,
        sentence: said.map_or_else(sentence, |waiting| capital(waiting.text.as_str())),
        cure: Some(capital(&said.map_or_else(cure, |waiting| waiting.cure.to_string()))),
    }
}

/// Three lines of at most `columns` characters: where the run is, how fast it is, and the network.
/// A longer line ends with an ellipsis. Characters are counted, not their widths.
///
/// A part whose number is unknown is left out with its separator. So a line may be only its name.
pub fn lines(picture: &Picture, columns: usize) -> [String; 3] {
    let line = |name: &str, parts: Vec<String>| {
        fitting(format!("{name}{}", parts.join(" · ")).trim_end(), columns)
    };
    [line("", run(picture)), line("pace     ", pace(picture)), line("network  ", network(picture))]
}

/// The verdict, the lines and a table of peers, for people without a browser. The table has the
/// other peers that are here, by their ids.
pub(crate) fn text(picture: &Picture) -> String {
    let Verdict { sentence, cure, .. } = verdict(picture);
    let cure = cure.map_or_else(String::new, |cure| format!(" {cure}"));
    let lines = lines(picture, usize::MAX).join("\n");
    let mut text = format!("{sentence}{cure}\n{lines}\n");
    for (at, (name, peer)) in picture.others().enumerate() {
        if at == 0 {
            text += "\npeer    phase       epoch   round trip      sends  link     tokens since start    loss\n";
        }
        let or_dash = |cell: Option<String>| cell.unwrap_or_else(|| "–".to_owned());
        let word = |text: &Option<Text>| or_dash(text.as_ref().map(Text::to_string));
        text += &format!(
            "{:<7} {:<10} {:>6} {:>12} {:>10}  {:<8} {:>18} {:>7}\n",
            name.short(),
            word(&peer.phase),
            or_dash(peer.head.map(|head| head.to_string())),
            or_dash(peer.rtt_ms.map(|ms| format!("{ms} ms"))),
            or_dash(peer.send_rate.map(|rate| format!("{}B/s", short(rate as f64)))),
            word(&peer.link),
            short(peer.tokens as f64),
            or_dash(peer.loss.map(|loss| format!("{loss:.3}"))),
        );
    }
    text
}

/// Where the run is, and its loss: that of the last steps while the node trains, else that of the
/// last commit.
fn run(picture: &Picture) -> Vec<String> {
    let head = &picture.head;
    let loss = picture.training.and_then(|training| training.loss).or(head.loss);
    let parts = [
        Some(format!("epoch {}", head.epoch)),
        (!picture.ring.is_empty()).then(|| format!("{} in the last ring", picture.ring.len())),
        Some(doing(picture)),
        loss.map(|loss| format!("loss {loss:.3}")),
        Some(format!("{} tokens", short(head.tokens as f64))),
    ];
    parts.into_iter().flatten().collect()
}

/// How far the run is, and how fast it and this machine are.
/// The run's speed counts what all members committed; that of this machine counts the steps of the
/// open epoch.
fn pace(picture: &Picture) -> Vec<String> {
    let here = picture.training.and_then(|training| training.tokens_per_s);
    let left_out = picture.counts.left_out;
    let parts = [
        progress(picture),
        picture.pace.tokens_per_s.map(|rate| format!("run {} tokens/s", short(rate))),
        here.map(|rate| format!("this machine {} tokens/s", short(rate))),
        next_ms(picture).map(|ms| format!("next epoch in {}", span(ms))),
        (left_out > 0).then(|| {
            // An epoch that leaves this peer out is committed too, and said a moment before.
            let all = picture.counts.commits.max(left_out);
            format!("left out of {left_out} of {all} epochs")
        }),
    ];
    parts.into_iter().flatten().collect()
}

/// The share of all tokens that a run with an end has, and how long the others take.
fn progress(picture: &Picture) -> Option<String> {
    let (have, all) = (picture.head.tokens, picture.run.stop_tokens?);
    let left = left_ms(picture).map_or_else(String::new, |ms| format!(", about {} left", span(ms)));
    let (share, have, all) = (percent(have, all), short(have as f64), short(all as f64));
    Some(format!("{have} of {all} tokens ({share} %){left}"))
}

/// The peers that are here, and the way to them. The rates of a ring are means over all of its
/// time, waits included.
fn network(picture: &Picture) -> Vec<String> {
    let (head, own) = (&picture.head, picture.own_ring.as_ref());
    let rate = |bytes: u64, ms: u64| short(1_000.0 * bytes as f64 / ms.max(1) as f64);
    let linked = |kind: &str| {
        let is = |link: &Text| link.as_str() == kind;
        picture.peers.values().filter(|peer| peer.link.as_ref().is_some_and(is)).count()
    };
    let parts = [
        Some(match picture.others().count() {
            1 => "1 other here".to_owned(),
            count => format!("{count} others here"),
        }),
        own.filter(|ring| ring.of > 1).map(|ring| {
            format!(
                "ring {} of {} → {}, {}B/s up, {}B/s down",
                ring.position,
                ring.of,
                ring.to.short(),
                rate(ring.sent_bytes, ring.took_ms),
                rate(ring.received_bytes, ring.took_ms)
            )
        }),
        (own.is_none() && head.epoch > 0 && !picture.node.watches).then(|| {
            format!(
                "{}B up, {}B down an epoch",
                short(head.sent_bytes as f64),
                short(head.received_bytes as f64)
            )
        }),
        (linked("relayed") > 0)
            .then(|| format!("{} direct, {} by a relay", linked("direct"), linked("relayed"))),
        picture.node.path.as_ref().map(|(step, error)| match error {
            Some(error) => format!("{step}: {error}"),
            None => step.to_string(),
        }),
    ];
    parts.into_iter().flatten().collect()
}

/// What the node does, in a word or two.
fn doing(picture: &Picture) -> String {
    let word = match picture.open.phase {
        _ if stands(picture) => "waiting",
        Phase::Unknown => "starting",
        Phase::Training => {
            let share = picture.training.map(|training| (100.0 * training.share).floor());
            return share
                .map_or_else(|| "training".to_owned(), |share| format!("training {share} %"));
        }
        Phase::Ready => "ready, waits for others",
        Phase::Ring => "ring and votes",
        Phase::Fetching => "fetching",
        Phase::Stopped => "stopped",
    };
    word.to_owned()
}

/// Whether an epoch that goes well waits so too, for a short time. Such a wait is no trouble, and
/// is shown as the phase it belongs to.
fn is_ordinary(waiting: &Waiting) -> bool {
    ORDINARY.contains(&waiting.reason.as_str())
}

/// What belongs to an epoch, by the names of docs/FORMATS.md. A reason that is not here makes the
/// verdict a `Wait`.
const ORDINARY: [&str; 9] =
    ["joins", "training", "roster", "left-out", "accepts", "ring", "votes", "update", "finished"];

/// Whether the node waits for something that is no part of an epoch, and so does not train.
/// A reason that this program does not know counts as such: a newer node may have one.
fn stands(picture: &Picture) -> bool {
    let stands = |waiting: &Waiting| !is_ordinary(waiting) && !waiting.is_forked();
    picture.waiting.as_ref().is_some_and(stands) && picture.open.phase != Phase::Stopped
}

/// A sentence of a message: it begins with a capital, and ends with a point.
fn capital(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(char::to_uppercase);
    first.into_iter().flatten().chain(letters).chain(['.']).collect()
}

/// Milliseconds of the file until the next commit, as the last epochs let one expect: one median
/// epoch after the last commit. `None` while the node does not get on, before the pace is known,
/// and once the commit is overdue.
pub(crate) fn next_ms(picture: &Picture) -> Option<u64> {
    if gets_on(picture) { after_commit(picture, picture.pace.epoch_ms?) } else { None }
}

/// Milliseconds of the file until the run has its `stop_tokens`, at the pace of the last epochs.
/// `None` where it has no end or has reached it, and as [`next_ms`] otherwise.
pub(crate) fn left_ms(picture: &Picture) -> Option<u64> {
    let (stop, rate) = (picture.run.stop_tokens?, picture.pace.tokens_per_s?);
    let left = stop.saturating_sub(picture.head.tokens);
    if left == 0 || rate <= 0.0 || !gets_on(picture) {
        return None;
    }
    after_commit(picture, (1_000.0 * left as f64 / rate) as u64)
}

/// Whether epochs follow one another now.
fn gets_on(picture: &Picture) -> bool {
    let runs = matches!(picture.open.phase, Phase::Training | Phase::Ready | Phase::Ring);
    runs && !stands(picture) && !picture.source.ended
}

/// What is left of a time that began with the last commit; `None` once it is over.
fn after_commit(picture: &Picture, ms: u64) -> Option<u64> {
    picture.head.t_ms.saturating_add(ms).checked_sub(picture.now_ms)
}

/// Cuts a text at a number of characters; the last one that stays becomes an ellipsis.
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

/// A number in the unit that leaves one to three digits before the point: 691 k, 1.4 M. The bounds
/// are where rounding would give a fourth digit, or a second one beside a decimal.
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

/// A length of time in one unit, cut and not rounded: seconds up to two minutes, minutes up to two
/// hours, then hours.
pub(crate) fn span(ms: u64) -> String {
    match ms / 1_000 {
        seconds @ 0..=119 => format!("{seconds} s"),
        seconds @ 120..=7_199 => format!("{} min", seconds / 60),
        seconds => format!("{} h", seconds / 3_600),
    }
}

/// A share in per cent from 0 to 100; 0 of nothing.
/// It is cut and not rounded, so 100 means all.
fn percent(part: u64, whole: u64) -> u64 {
    part.saturating_mul(100).checked_div(whole).unwrap_or_default().min(100)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        picture::gauge::{Gauge, Training},
        record::Record,
    };

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
    const WAIT: &str = r#""event":"waiting","reason":"goes-on-alone","text":"alone: what is trained now may be undone","cure":"Wait""#;

    #[test]
    fn the_verdict_is_the_worst_that_holds() {
        let sentence = |lines: &[&str]| verdict(&picture(lines)).sentence;
        assert_eq!(sentence(&[]), "No event has been read yet.");
        assert_eq!(sentence(&[START]), "Training epoch 1.");
        assert_eq!(sentence(&[START, WAIT]), "Alone: what is trained now may be undone.");
        let said = text(&picture(&[START, &WAIT.replace(r#""Wait""#, r#""start it again""#)]));
        assert!(said.starts_with("Alone: what is trained now may be undone. Start it again.\n"));
        let behind = r#""event":"waiting","reason":"behind","text":"waiting: this node fetches","cure":"Wait""#;
        assert_eq!(verdict(&picture(&[START, behind])).mood, Mood::Wait);
        let sync = r#""event":"sync","from_epoch":0,"to_epoch":9,"have_bytes":43,"want_bytes":100,"donors":[],"rate":1.0"#;
        assert_eq!(sentence(&[START, sync, behind]), "Fetching the state of the run: 43 %.");
        let ring =
            r#""event":"waiting","reason":"ring","text":"waiting: the ring runs","cure":"Wait""#;
        assert_eq!(verdict(&picture(&[START, ring])).mood, Mood::Good);
        let diverged = r#""event":"diverged","who":"x","mine":"a","theirs":"b""#;
        assert_eq!(verdict(&picture(&[START, WAIT, diverged])).mood, Mood::Bad);
        let stopped = r#""event":"stopped","code":0"#;
        assert_eq!(sentence(&[START, stopped]), "This node has stopped at epoch 0.");
        assert_eq!(sentence(&[START, WAIT, stopped]), "This node has stopped at epoch 0.");
        assert_eq!(verdict(&picture(&[START, WAIT, stopped])).mood, Mood::Ended);
        assert!(lines(&picture(&[START, WAIT, stopped]), 80)[0].contains("stopped"));
    }

    /// Both are said once, or once a minute, and last for hours.
    #[test]
    fn a_node_that_is_alone_or_on_a_lesser_lineage_is_not_well_because_it_commits() {
        let commit = |members: &str, weights: &str| {
            format!(
                r#""event":"committed","attempt":1,"members":[{members}],"weights":[{weights}],"state":"s","update":"u","tokens":9,"loss":2.5,"sync_ms":1,"sent_bytes":1,"received_bytes":1,"forkable_since":null,"epoch":1"#
            )
        };
        let (alone, two) = (commit(r#""me""#, "9"), commit(r#""me","b""#, "9,9"));
        let roster =
            r#""event":"roster","attempt":1,"members":["me","b"],"adopt":null,"weights":[9,0]"#;
        let found = r#""event":"peer-found","who":"b","direct":true"#;
        let mood = |lines: &[&str]| verdict(&picture(lines)).mood;
        let averaging = verdict(&picture(&[START, roster])).sentence;
        assert!(averaging.ends_with("in a ring of 1."), "b has no position: {averaging}");
        assert_eq!(mood(&[START, WAIT, roster, &alone]), Mood::Wait);
        assert_eq!(mood(&[START, WAIT, &alone, found]), Mood::Good);
        assert_eq!(mood(&[START, WAIT, &alone, &two]), Mood::Good);
        let held =
            r#""event":"fork","first_epoch":1,"mine":"a","theirs":"b","undone":0,"held":true"#;
        assert_eq!(mood(&[START, held, held, &two]), Mood::Bad);
        let forked = r#""event":"waiting","reason":"forked","text":"fork: x","cure":"--follow y""#;
        let own = picture(&[START, held, forked, &two]);
        let said = verdict(&own);
        assert_eq!((said.mood, said.sentence), (Mood::Bad, "Fork: x.".to_owned()));
        assert_eq!(said.cure.as_deref(), Some("--follow y."));
        assert!(lines(&own, 80)[0].contains("training"), "it trains on its own lineage");
        let attested = r#""event":"attested","number":1"#;
        assert_eq!(mood(&[START, held, forked, attested]), Mood::Good, "it is decided");
        assert_eq!(picture(&[START, held, held, &two]).counts.forks, 1);
        assert_eq!(mood(&[START, held, &two, START]), Mood::Good);
    }

    #[test]
    fn a_running_node_says_how_far_it_is_and_who_is_here() {
        let member = r#""event":"member","who":"12D3KooWabcdef","head":0,"phase":"train","ready":0,"rtt_ms":12,"send_rate":1500,"link":"direct","loss":2.5"#;
        let ring = r#""event":"ring","roster":"ab","position":2,"of":4,"to":"12D3KooWabcdef","took_ms":500,"sent_bytes":1000,"received_bytes":2000"#;
        let mut picture = picture(&[START, member, ring]);
        let training =
            Training { tokens: 10, share: 0.626, loss: Some(1.934), tokens_per_s: Some(5e4) };
        picture.measure(Gauge { t_ms: 9, training: Some(training), ..Gauge::default() });
        assert_eq!(
            lines(&picture, 200),
            [
                "epoch 0 · training 62 % · loss 1.934 · 0 tokens",
                "pace     this machine 50 k tokens/s",
                "network  1 other here · ring 2 of 4 → abcdef, 2.0 kB/s up, 4.0 kB/s down",
            ]
        );
        let row = "abcdef  train           0        12 ms   1.5 kB/s  direct                    0   2.500\n";
        let text = text(&picture);
        assert!(text.starts_with("Training epoch 1.\nepoch 0") && text.ends_with(row), "{text}");
    }

    #[test]
    fn a_run_with_an_end_says_how_far_it_is_and_how_long_the_rest_takes() {
        let manifest = |stop: &str| {
            format!(
                r#""event":"manifest","name":"n","organiser":"o","from":"f","parameters":9,"stop_tokens":{stop}"#
            )
        };
        let commit = |epoch: u64| {
            format!(
                r#""event":"committed","attempt":1,"members":["me"],"weights":[9],"state":"s","update":"u","tokens":{epoch}0000,"loss":2.5,"sync_ms":1,"sent_bytes":1,"received_bytes":1,"forkable_since":null,"epoch":{epoch}"#
            )
        };
        let (end, one, two) = (manifest("100000"), commit(1), commit(2));
        let said = |all: &[&str]| lines(&picture(all), 200)[1].clone();
        let goes_on = "run 10 k tokens/s · next epoch in 1 s";
        assert_eq!(said(&[START, &end, &one]), "pace     10 k of 100 k tokens (10 %)");
        let far = format!("pace     20 k of 100 k tokens (20 %), about 8 s left · {goes_on}");
        assert_eq!(said(&[START, &end, &one, &two]), far);
        let endless = manifest("null");
        assert_eq!(said(&[START, &endless, &one, &two]), format!("pace     {goes_on}"));
        // What lies before a start is no pace, and a run that has its tokens needs no time.
        assert!(!said(&[START, &end, &one, &two, START]).contains("left"));
        let short = manifest("20000");
        let full = said(&[START, &short, &one, &two]);
        assert!(full.contains("(100 %) · run 10 k"), "{full}");
        let picture = picture(&[START, &end, &one, &two]);
        let status = crate::page::status_of(&picture).unwrap();
        assert!(status.contains(r#""left_ms":8000"#), "{status}");
        assert!(status.contains(r#""stop_tokens":100000"#), "{status}");
        let metrics = crate::metrics::text(&picture);
        assert!(metrics.contains("intellect_stop_tokens{run=\"\"} 100000\n"), "{metrics}");
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
