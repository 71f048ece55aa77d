//! The picture as Prometheus reads it: text format 0.0.4, from one table.
//!
//! Every name begins with `intellect_` and every sample has the label `run`. Units are those that
//! Prometheus asks for: seconds and bytes, never milliseconds. Counters are counted from the
//! picture, so they begin at 0 with the node and fall when it starts again, as Prometheus expects.
//!
//! The names are a format, since dashboards and alarms of others use them. The values are those of
//! the page at the same moment. They move only when a line or a sample comes in, not with the clock
//! of the scrape.

use std::fmt::Write as _;

use crate::{picture::Picture, record::Text};

/// All metrics of a picture, in the table's order. A metric whose number is unknown is left out
/// with its heading: a 0 would be a measurement.
///
/// The label `run` has the first eight digits of the run's id, and is empty until a run is chosen.
pub(crate) fn text(picture: &Picture) -> String {
    let mut out = String::new();
    let run = picture.run.id.as_ref().map_or("", |run| run.as_str().get(..8).unwrap_or_default());
    for (name, help, samples) in METRICS {
        let samples = samples(picture);
        if samples.is_empty() {
            continue;
        }
        let kind = if name.ends_with("_total") { "counter" } else { "gauge" };
        // Writing to a string cannot fail.
        let _ = writeln!(out, "# HELP intellect_{name} {help}\n# TYPE intellect_{name} {kind}");
        for (labels, value) in samples {
            let labels =
                labels.iter().map(|(name, value)| format!(",{name}=\"{}\"", quoted(value)));
            let labels: String = labels.collect();
            let _ = writeln!(out, "intellect_{name}{{run=\"{}\"{labels}}} {value}", quoted(run));
        }
    }
    out
}

/// A sample of a metric: pairs of label and value, and the number.
type Sample = (Vec<(&'static str, String)>, f64);
/// One metric has several where its labels differ, as one for each peer.
type Samples = Vec<Sample>;
/// Name without prefix, help, and how to read it off the picture. As Prometheus asks for, a counter
/// is named `…_total`, and nothing else is.
type Metric = (&'static str, &'static str, fn(&Picture) -> Samples);

/// A metric's labels must come from a small set. Peers are bounded by the picture's own table,
/// phases of `aborted_attempts_total` too.
const METRICS: &[Metric] = &[
    ("epoch", "Last committed epoch.", |p| one(p.head.epoch as f64)),
    ("tokens", "Committed tokens of the run.", |p| one(p.head.tokens as f64)),
    ("stop_tokens", "Committed tokens at which the run is finished.", |p| {
        some(p.run.stop_tokens.map(|tokens| tokens as f64))
    }),
    ("loss_nats", "Mean training loss in nats per token: of this node, or as members say.", |p| {
        some(p.head.loss)
    }),
    ("held_out_loss_nats", "Loss on held-out data in nats per token.", |p| {
        some(p.held_out.and_then(|held_out| held_out.loss))
    }),
    ("ring_size", "Members of the last ring that decided.", |p| one(p.ring.len() as f64)),
    ("members", "Other peers that count as present.", |p| {
        one(p.peers.values().filter(|peer| peer.here == Some(true)).count() as f64)
    }),
    ("tokens_per_second", "Committed tokens a second over the last epochs.", |p| {
        some(p.pace.tokens_per_s)
    }),
    ("sync_seconds", "From Ready to the commit of the last epoch.", |p| {
        some(p.node.measured(p.head.times.sync).map(|ms| ms as f64 / 1_000.0))
    }),
    ("sent_bytes_total", "Bulk bytes sent.", |p| measured(p, p.counts.sent_bytes)),
    ("received_bytes_total", "Bulk bytes received.", |p| measured(p, p.counts.received_bytes)),
    ("commits_total", "Epochs that this node committed live.", |p| one(p.counts.commits as f64)),
    ("aborted_attempts_total", "Attempts without a decision.", |p| {
        p.counts.aborted.iter().map(|(phase, n)| labelled("phase", phase, *n as f64)).collect()
    }),
    ("left_out_total", "Epochs committed without this node.", |p| measured(p, p.counts.left_out)),
    ("forks_total", "Meetings with another lineage.", |p| one(p.counts.forks as f64)),
    ("undone_epochs_total", "Epochs taken back.", |p| one(p.counts.undone_epochs as f64)),
    ("faults_total", "Peers dropped for what they did.", |p| one(p.counts.faults as f64)),
    ("disk_errors_total", "Files that could not be read or written.", |p| {
        measured(p, p.counts.disk)
    }),
    ("refused_total", "Peers that were not let into the run.", |p| measured(p, p.counts.refused)),
    ("regroups_total", "Regroups that this node joined.", |p| measured(p, p.counts.regroups)),
    ("diverged_total", "States that differ where they must not.", |p| {
        one(p.agreement.differing as f64)
    }),
    ("peer_tokens_total", "Committed tokens of a peer, as seen here.", |p| {
        p.peers.iter().map(|(peer, seen)| labelled("peer", peer, seen.tokens as f64)).collect()
    }),
    ("peer_round_trip_seconds", "Smoothed round trip to a peer.", |p| {
        let timed = p.peers.iter().filter_map(|(peer, seen)| Some((peer, seen.rtt_ms?)));
        timed.map(|(peer, ms)| labelled("peer", peer, ms as f64 / 1_000.0)).collect()
    }),
    ("epoch_part_seconds", "Where the time of the last epoch went.", |p| {
        let times = &p.head.times;
        let parts = [
            ("train", times.train),
            ("wait", times.wait),
            ("retry", times.retry),
            ("ring", times.ring),
            ("vote", times.vote),
            ("apply", times.apply),
        ];
        let timed = parts.into_iter().filter_map(|(part, ms)| Some((part, ms?)));
        timed.map(|(part, ms)| labelled("part", part, ms as f64 / 1_000.0)).collect()
    }),
    ("reachability", "How others reach this node.", |p| {
        p.node.reachability.iter().map(|state| labelled("state", state, 1.0)).collect()
    }),
    ("build_info", "Version and device of the node.", |p| {
        let text = |text: &Option<Text>| text.as_ref().map(Text::to_string).unwrap_or_default();
        vec![(vec![("version", text(&p.node.version)), ("device", text(&p.node.device))], 1.0)]
    }),
];

/// One of several samples of a metric, by what is its own.
fn labelled(label: &'static str, value: impl ToString, number: f64) -> Sample {
    (vec![(label, value.to_string())], number)
}

/// One sample without further labels.
fn one(value: f64) -> Samples {
    vec![(Vec::new(), value)]
}

/// One sample of what a node measures; none of one that only looks at the run.
/// A watcher writes 0 in these fields, which would read as a measurement.
fn measured(picture: &Picture, number: u64) -> Samples {
    some(picture.node.measured(number).map(|number| number as f64))
}

/// One sample, or none where the number is unknown.
fn some(value: Option<f64>) -> Samples {
    value.map(|value| (Vec::new(), value)).into_iter().collect()
}

/// A label's value: the format escapes three characters.
fn quoted(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Record;

    #[test]
    fn every_metric_has_help_and_type_and_labels_are_quoted() {
        let mut picture = Picture::default();
        picture.node.version = Some(Text::new("a\"b\\c"));
        picture.head.loss = Some(2.5);
        let text = text(&picture);
        assert!(text.contains("intellect_loss_nats{run=\"\"} 2.5\n"));
        assert!(text.contains("version=\"a\\\"b\\\\c\",device=\"\"} 1\n"));
        assert!(!text.contains("held_out"));
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let (name, _) = line.split_once('{').unwrap();
            assert!(text.contains(&format!("# TYPE {name} ")), "{line}");
        }
        let names: std::collections::BTreeSet<_> = METRICS.iter().map(|metric| metric.0).collect();
        assert_eq!(names.len(), METRICS.len());
    }

    #[test]
    fn what_an_alarm_asks_for_is_counted() {
        let mut picture = Picture::default();
        for event in [
            r#""event":"disk","error":"no space""#,
            r#""event":"disk","error":"no space""#,
            r#""event":"refused","who":"b","why":"no invite""#,
            r#""event":"regroup","number":1,"proposer":"me","members":["me"],"absent":[]"#,
        ] {
            let line = format!(r#"{{{event},"t_ms":1,"peer":"me","run":"r"}}"#);
            picture.take(&Record::parse(line.as_bytes()).unwrap());
        }
        let text = text(&picture);
        for (name, count) in [("disk_errors", 2), ("refused", 1), ("regroups", 1)] {
            let sample = format!(" counter\nintellect_{name}_total{{run=\"\"}} {count}\n");
            assert!(text.contains(&sample), "{text}");
        }
    }
}
