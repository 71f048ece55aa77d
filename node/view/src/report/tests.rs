//! A page of made-up reports: what it holds, what it refuses, and what no text of a stranger can do to it.

use serde_json::json;

use super::*;

fn report(seed: u64, losses: &[Option<f64>]) -> Value {
    let row = |(at, loss): (usize, &Option<f64>)| {
        json!({
            "epoch": at + 1, "t_s": at as f64, "attempt": 1, "tokens": 100, "train_loss": loss, "held_out_loss": loss,
            "held_out_error": 0.01, "excess": null, "sync_ms": 40, "state": "ab",
            "peers": [
                { "weight": 60, "train_loss": 2.0, "sent_bytes": 10 },
                { "weight": 40, "train_loss": 3.0, "sent_bytes": 20 },
                { "weight": 0, "train_loss": null, "sent_bytes": null },
            ],
        })
    };
    json!({
        "run": "r", "seed": seed, "version": "1", "commit": "c0ffee", "date": "today", "command": ["sim", "--out", "a b"],
        "machine": { "cpu": "a cpu", "cores": 2 }, "peers": 3, "threads": 1, "links": "loopback", "parameters": 9,
        "wall_s": 1.5, "succeeded": true, "reasons": [], "weights": null, "held_out": { "before": null, "after": null },
        "entropies": { "uniform": 3.0, "unigram": 2.5, "bigram": null, "floor": 1.75 },
        "manifest": { "name": "sim", "seed": seed, "ring": { "codec": "int8" } }, "chaos_rules": null,
        "started_ms": 1_000, "done": [{ "t_ms": 2_500, "what": "kill -9 peer 2" }],
        "table": losses.iter().enumerate().map(row).collect::<Vec<_>>(),
    })
}

fn open(report: &Value) -> Result<Report, ReportError> {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("report.json"), report.to_string()).unwrap();
    Report::open(folder.path())
}

fn data(html: &str) -> Value {
    let (_, rest) = html.split_once(r#"id="data">"#).unwrap();
    serde_json::from_str(rest.split_once("</script>").unwrap().0).unwrap()
}

#[test]
fn a_page_holds_the_columns_of_its_run_and_nothing_from_elsewhere() {
    let html = html(&[open(&report(1, &[Some(3.0), None])).unwrap()]).unwrap();
    let data = data(&html);
    let columns = &data["runs"][0]["columns"];
    assert_eq!(columns["tokens"], json!([100, 200]));
    assert_eq!(columns["sent_bytes"], json!([30, 60]));
    assert_eq!(columns["held_out"], json!([3.0, null]));
    assert_eq!((&columns["train_min"][0], &columns["train_max"][0]), (&json!(2.0), &json!(3.0)));
    assert_eq!(columns["weights"], json!([[60, 60], [40, 40], [null, null]]));
    assert_eq!(columns["members"], json!([2, 2]));
    assert_eq!(data["runs"][0]["marks"], json!([{ "t_s": 1.5, "text": "kill -9 peer 2" }]));
    assert_eq!(data["settings"][1], json!(["ring.codec", "int8"]));
    assert_eq!(data["mean"], Value::Null);
    let facts = data["runs"][0]["facts"].as_array().unwrap();
    assert!(facts.contains(&json!(["commit", "c0ffee"])), "{facts:?}");
    for elsewhere in ["http:", "https:", "src=", "import ", "\nexport ", "/*"] {
        let found =
            html.match_indices(elsewhere).map(|(at, _)| &html[at..(at + 60).min(html.len())]);
        let found: Vec<&str> = found.filter(|part| !allowed(part)).collect();
        assert!(found.is_empty(), "{found:?}");
    }
}

/// A comment, and the name of SVG's space, which nothing fetches.
fn allowed(part: &str) -> bool {
    part.starts_with("/* ")
        || part.starts_with("/**")
        || part.starts_with("http://www.w3.org/2000/svg")
}

#[test]
fn the_mean_of_runs_has_the_error_of_their_spread() {
    let runs = [[Some(1.0), Some(3.0), None], [Some(2.0), Some(3.0), Some(1.0)]];
    let [first, other] = [1, 2].map(|seed| open(&report(seed, &runs[seed as usize - 1])).unwrap());
    let third = open(&report(3, &[Some(6.0), Some(3.0)])).unwrap();
    let data = data(&html(&[first, other, third]).unwrap());
    let mean = &data["mean"];
    assert_eq!(mean["epoch"], json!([1, 2]));
    assert_eq!(mean["held_out"]["mean"], json!([3.0, 3.0]));
    // Values 1, 2, 6: squares 4 + 1 + 9 over 3 · 2.
    let error = mean["held_out"]["error"][0].as_f64().unwrap();
    assert!((error - (14.0_f64 / 6.0).sqrt()).abs() < 1e-12, "{error}");
    assert_eq!(mean["held_out"]["error"][1], json!(0.0));
}

#[test]
fn different_runs_and_foreign_files_are_refused() {
    let first = || open(&report(1, &[Some(1.0)])).unwrap();
    let mut changed = report(2, &[Some(1.0)]);
    changed["manifest"]["ring"]["codec"] = json!("f32");
    let error = html(&[first(), open(&changed).unwrap()]).unwrap_err();
    assert!(
        matches!(&error, ReportError::Different { key, .. } if key == "`ring.codec`"),
        "{error:?}"
    );
    changed["manifest"]["ring"] = json!({});
    assert!(html(&[first(), open(&changed).unwrap()]).is_err());
    let same = html(&[first(), first()]).unwrap_err().to_string();
    assert!(same.contains("have the same seed") && same.contains("--seed"), "{same}");
    // The same seed as well, but what differs is the cause.
    let mut changed = report(1, &[]);
    changed["peers"] = json!(4);
    let error = html(&[first(), open(&changed).unwrap()]).unwrap_err();
    assert!(matches!(error, ReportError::Different { .. }), "{error}");
    for (key, value, said) in [
        ("peers", json!(4), "the number of peers (3 and 4) differs"),
        ("links", json!("switched"), "the kind of links (loopback and switched) differs"),
        ("rate", json!(500), "`--rate` (0 and 500) differs"),
        ("scenario", json!({ "step": [{ "do": "link", "rate": 9 }] }), "the scenario differs"),
    ] {
        let mut changed = report(2, &[]);
        changed[key] = value;
        let error = html(&[first(), open(&changed).unwrap()]).unwrap_err().to_string();
        assert!(error.contains(said) && error.contains("only the seed may"), "{error}");
    }
    assert!(matches!(open(&json!({ "run": "r" })), Err(ReportError::Foreign(..))));
    assert!(matches!(Report::open(Path::new("/nowhere")), Err(ReportError::Read(..))));
}

/// Columns of all peers in all epochs would take far more memory than such a file.
#[test]
fn epochs_of_different_numbers_of_peers_are_refused() {
    let mut uneven = report(1, &[None; 2_000]);
    for row in uneven["table"].as_array_mut().unwrap() {
        row["peers"] = json!([]);
    }
    uneven["table"][0]["peers"] = json!(vec![json!({}); 50_000]);
    for peers in [0, 50_000] {
        uneven["peers"] = json!(peers);
        assert!(matches!(open(&uneven), Err(ReportError::Foreign(..))), "{peers}");
    }
}

#[test]
fn no_text_ends_the_script() {
    let evil = "</script><script>alert(1)</script><!--null/*data*//*script*/";
    let mut hostile = report(1, &[Some(1.0)]);
    hostile["manifest"]["name"] = json!(evil);
    hostile["done"][0]["what"] = json!(evil);
    hostile["machine"]["cpu"] = json!("a\u{202e}b".repeat(40_000));
    let html = html(&[open(&hostile).unwrap()]).unwrap();
    assert!(!html.contains("<script>alert") && html.matches("</script>").count() == 2);
    let data = data(&html);
    assert_eq!(data["runs"][0]["marks"][0]["text"], json!(evil));
    assert!(html.len() < 200_000, "{}", html.len());
}
