//! Tests of reading, changing and explaining manifests.

use std::fs;

use intellect_table::Description;

use super::*;

fn organiser() -> Keypair {
    Keypair::from_seed(&[1; 32])
}

fn draft() -> Draft {
    Draft::new(&Run::new(organiser().peer(), 7), &Work::synthetic()).unwrap()
}

fn with(assignments: &[&str]) -> Result<Manifest, DraftError> {
    let mut draft = draft();
    for assignment in assignments {
        draft.set(assignment)?;
    }
    draft.sign(&organiser())
}

#[test]
fn a_signed_draft_reads_back_as_it_was_written() {
    let manifest = with(&[]).unwrap();
    assert_eq!(manifest.run, Run::new(organiser().peer(), 7));
    assert_eq!(manifest.work, Work::synthetic());
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.toml");
    fs::write(&path, &manifest.text).unwrap();
    assert_eq!(Manifest::load(&path).unwrap().id, manifest.id);
    assert!(matches!(Manifest::load(folder.path()), Err(LoadError::Io(_))));
}

#[test]
fn any_field_can_be_set_and_changes_the_id() {
    let ids: Vec<_> = [
        &[][..],
        &["model.layers=3"],
        &["outer.lr=1"],
        &["outer.momentum = 0.0"],
        &["ring.codec=f32"],
        &["ring.codec=\"f32\"", "name=x"],
        &["train.lr=1e-3"],
        &["seed=8"],
    ]
    .iter()
    .map(|set| with(set).unwrap().id)
    .collect();
    let distinct: std::collections::BTreeSet<_> = ids.iter().collect();
    assert_eq!(distinct.len(), ids.len());
    assert_eq!(with(&["outer.lr=1"]).unwrap().run.outer.lr, 1.0);
}

#[test]
fn what_does_not_fit_is_named() {
    for (set, words) in [
        ("model.layer=3", "unknown key model.layer: did you mean model.layers?"),
        ("layers=3", "unknown key layers: did you mean model.layers?"),
        ("members.hartbeat_ms=500", "did you mean members.heartbeat_ms?"),
        ("ring.lr=1", "unknown key ring.lr: did you mean train.lr?"),
        ("nothing=3", "unknown key nothing: `manifest new` writes every key"),
        ("model.layers=99999999999999999999", "99999999999999999999: choose 1 to 512"),
        ("model.layers=0", "1 to 512"),
        ("model.layers=many", "whole number"),
        ("rings.codec=f32", "ring"),
        ("ring.codec=f16", "f32"),
        ("name.first=x", "no keys below"),
        (
            "members.quorum=majority",
            "members.founders is missing: every field that applies must be written out (1 to 256 of",
        ),
        ("layers", "key=value"),
        ("=3", "key=value"),
        ("model.=3", "key=value"),
        ("epoch.fragments=2", "not supported yet"),
        ("data.bytes=3", "remove it"),
        ("format=2", "update"),
    ] {
        let error = with(&[set]).unwrap_err().to_string();
        assert!(error.contains(words), "{set}: {error}");
    }
}

#[test]
fn a_line_that_is_no_toml_is_named_by_its_number() {
    let text = with(&[]).unwrap().text.replace("layers = 2", "layers = 2x");
    let line = 1 + text.lines().position(|line| line == "layers = 2x").unwrap();
    let error = Manifest::parse(&text).unwrap_err().to_string();
    assert!(error.starts_with(&format!("line {line} of the manifest is not TOML: ")), "{error}");
}

/// `UPDATE_DOCS=1 cargo test --release -p intellect-node formats` writes the table.
#[test]
fn formats_md_has_every_key_of_a_manifest() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/FORMATS.md");
    let text = fs::read_to_string(&path).unwrap();
    let (before, rest) = text.split_once(BEGIN).unwrap();
    let (_, after) = rest.split_once(END).unwrap();
    let lines = table_of_keys();
    let current = format!("{before}{BEGIN}{lines}{END}{after}");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(&path, &current).unwrap();
    }
    assert!(text == current || std::env::var_os("UPDATE_DOCS").is_some(), "{lines}");
}

/// A line for each key, those above all tables first.
fn table_of_keys() -> String {
    let keys = [manifest::keys(), Work::keys()].concat();
    let mut lines = String::new();
    for table in [""].into_iter().chain(manifest::TABLES) {
        if !table.is_empty() {
            lines += &format!("| **`[{table}]`** | | | |\n");
        }
        for Description { key, value, bounds, meaning } in &keys {
            let (of, key) = key.split_once('.').unwrap_or(("", key));
            let value = match key {
                "organiser" => "from the key",
                "seed" => "random",
                _ => value,
            };
            if of == table {
                lines += &format!("| `{key}` | {value} | {bounds} | {meaning} |\n");
            }
        }
    }
    lines
}

/// Around the lines that are made from the tables.
const BEGIN: &str = "| key | `manifest new` writes | values | meaning |\n|---|---|---|---|\n";
const END: &str = "\n`RunId = ";

#[test]
fn only_its_organiser_signs_a_manifest() {
    let other = Keypair::from_seed(&[2; 32]);
    assert!(matches!(draft().sign(&other), Err(DraftError::Organiser { .. })));
}

#[test]
fn a_changed_manifest_is_refused() {
    let text = with(&[]).unwrap().text;
    for (old, new) in [("seed = 7", "seed = 8"), ("layers = 2", "layers = 3")] {
        assert!(text.contains(old), "{text}");
        let error = Manifest::parse(&text.replace(old, new)).unwrap_err();
        assert!(matches!(error, ReadError::Run(ManifestError::Signature)), "{error}");
    }
    let unsigned = text.lines().filter(|line| !line.starts_with("signature"));
    let unsigned = unsigned.collect::<Vec<_>>().join("\n");
    let error = Manifest::parse(&unsigned).unwrap_err();
    assert!(matches!(error, ReadError::Run(ManifestError::Unsigned)), "{error}");
}

#[test]
fn a_huge_file_is_not_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.toml");
    File::create(&path).unwrap().set_len(1 << 40).unwrap();
    for path in [&path, Path::new("/dev/zero")] {
        let error = Manifest::load(path).unwrap_err().to_string();
        assert!(error.contains("more than 65536 bytes"), "{error}");
    }
}

/// A key lies beside the manifest, and completion of a name may choose it.
#[test]
fn what_is_no_manifest_is_named_and_a_key_is_not_quoted() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    let secret = "ab".repeat(32);
    let key = format!("# note\nseed = \"{secret}\"\nlog_id = \"{}\"\n", "cd".repeat(16));
    let cut_off = &key[..key.len() - 9];
    for (text, words) in [
        (key.as_str(), "is a key, not a manifest"),
        (cut_off, "is a key, not a manifest"),
        (&format!("{secret}\n"), "is a key, not a manifest"),
        ("", "it is empty"),
        ("root:x:0:0:root:/root:/bin/sh\n", "not TOML"),
        ("seed = 5", "format is missing"),
    ] {
        fs::write(&path, text).unwrap();
        let error = Manifest::load(&path).unwrap_err().to_string();
        assert!(error.contains(words) && error.starts_with(path.to_str().unwrap()), "{error}");
        assert!(!error.contains("abab"), "{error}");
    }
    fs::write(&path, [0xff; 9]).unwrap();
    let error = Manifest::load(&path).unwrap_err().to_string();
    assert!(error.contains("it is no text"), "{error}");
}
