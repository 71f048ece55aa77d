//! Wrong input of people: a clear message with cause and remedy, the right exit code, and
//! nothing started or overwritten.

use std::{
    fs::{self, File, Permissions},
    os::unix::fs::PermissionsExt as _,
    time::Duration,
};

use rustix::process::Signal;

use crate::story;

const PEER: &str = "12D3KooWDpJ7As7BWAwRMfu1VU2WCqNjvq387JEYKDBj4kx6nXTN";

fn entry() -> String {
    format!("/ip4/127.0.0.1/tcp/1/p2p/{PEER}")
}

#[test]
fn wrong_flags_are_usage_errors_that_name_the_remedy() {
    let story = story();
    let entry = entry();
    let cut = entry[..entry.len() - 28].to_owned();
    for (arguments, words) in [
        (vec!["--bootstrap", "/ip4/127.0.0.1/tcp/4001"], vec!["/p2p/"]),
        (vec!["--bootstrap", "example.org:4001"], vec!["/ip4/"]),
        (vec![], vec!["--bootstrap", "intellect-node sim"]),
        (vec!["--data-dir", "s1"], vec!["/s1 remembers none", "--data-dir", "--bootstrap"]),
        (vec!["--bootstrap", &entry, "--device", "tpu"], vec!["cuda:N", "gpu:N"]),
        (vec!["--bootstrap", &entry, "--run", "xyz"], vec!["--run", "hex"]),
        (vec!["--bootstrap", &entry, "--listen", "4001"], vec!["--listen"]),
        (vec!["--bootstrap", &entry, "--log", "in=fo=?"], vec!["--log", "debug"]),
        (vec!["--bootstrap", &entry, "--epochs", "0"], vec!["--epochs"]),
        (vec!["--boot", &entry], vec!["--bootstrap"]),
        (vec!["--device", "tpu"], vec!["cuda:N", "gpu:N"]),
        (vec!["--bootstrap", &entry, "--log", "nonsense"], vec!["--log", "debug"]),
        (vec!["--bootstrap", &entry, "--threads", "100000000"], vec!["--threads", "cores"]),
        (vec!["--bootstrap", &entry, "--threads", "0"], vec!["--threads", "1 or more"]),
        (vec!["--bootstrap", &entry, "--rate", "fast"], vec!["--rate", "10M"]),
        (vec!["--bootstrap", &entry, "--external", &entry], vec!["--external", "leave /p2p/"]),
        (vec!["sim", "--peers", "0"], vec!["--peers", "1 to 256"]),
        (vec!["sim", "--peers", "1000000"], vec!["--peers", "1 to 256"]),
        (vec!["join", &entry], vec!["intellect-node --bootstrap /ip4/"]),
        (vec!["--bootstrap", &cut], vec!["is cut off", "52 characters, this one 24"]),
        (vec![&cut], vec!["--bootstrap", "is cut off"]),
        (vec![&entry, "--device", "tpu"], vec!["cuda:N"]),
        (vec!["--bootstrap", &entry, "--external", "/ip4/0.0.0.0/tcp/1"], vec!["others can dial"]),
        (vec!["--bootstrap", &entry, "--threads", "-1"], vec!["--threads", "1 or more"]),
        (vec!["--bootstrap", &entry, "--rate", "-5"], vec!["--rate", "10M"]),
        (vec!["sim", "--seed", "-1"], vec!["--seed", "0 or more"]),
        (vec!["sim", "--virtual", "--faults", "storm"], vec!["evening", "half", "invited"]),
        (vec!["manifest", "new", "--out", "x", "--preset", "huge"], vec!["llama-10b"]),
        (vec!["manifest", "new", "--out", "x", "--from-hf", "absent"], vec!["absent: there is no"]),
    ] {
        let done = story.node(&arguments).unwrap();
        done.expect_failure(2, &words).unwrap_or_else(|error| panic!("{arguments:?}: {error}"));
    }
    assert!(!story.path("x").exists() && !story.path("home/intellect-node/runs").exists());
}

#[test]
fn a_gpu_in_a_build_without_it_says_how_to_get_it() {
    let story = story();
    let gpus = [("cuda:0", "--features cuda"), ("cuda", "cuda:0"), ("gpu", "--features wgpu")];
    for (device, words) in gpus {
        let done = story.node(&["--bootstrap", &entry(), "--device", device]).unwrap();
        done.expect_failure(2, &[words]).unwrap();
    }
}

#[test]
fn manifest_keys_are_checked_by_name() {
    let story = story();
    story.node(&["keygen", "--out", &story.text("k")]).unwrap().expect_success().unwrap();
    let (out, key) = (story.text("run.toml"), story.text("k"));
    for (setting, words) in [
        ("model.layer=3", vec!["model.layer", "model.layers"]),
        ("outer.momentun=0.5", vec!["outer.momentum"]),
        ("model.layers=0", vec!["1 to 512"]),
        ("train.lr=fast", vec!["train.lr", "number"]),
        ("ring.codec=int3", vec!["int8"]),
        ("data.bytes=5", vec!["remove it"]),
        ("epoch.overlap_steps=3", vec!["not supported yet"]),
        ("members.quorum=majority", vec!["keygen", "--set 'members.founders=["]),
        ("nonsense", vec!["key=value"]),
    ] {
        let arguments = ["manifest", "new", "--out", &out, "--key", &key, "--set", setting];
        story.node(&arguments).unwrap().expect_failure(2, &words).unwrap();
        assert!(!story.path("run.toml").exists(), "{setting}");
    }
}

#[test]
fn a_manifest_that_was_changed_or_is_none_is_refused() {
    let story = story();
    let path = story.manifest("run.toml", &[]).unwrap();
    let good = fs::read_to_string(&path).unwrap();
    let show = |text: &str| {
        fs::write(story.path("other.toml"), text).unwrap();
        story.node(&["manifest", "show", &story.text("other.toml")]).unwrap()
    };
    show(&good).expect_success().unwrap();
    let changed = good.replace("amount = 10", "amount = 11");
    assert_ne!(changed, good);
    show(&changed).expect_failure(1, &["signature", "organiser"]).unwrap();
    show(&good.replace("layers", "layer")).expect_failure(1, &["model.layers"]).unwrap();
    show(&good.replace("format = 1", "format = 2")).expect_failure(1, &["update"]).unwrap();
    show("not toml at all").expect_failure(1, &["TOML"]).unwrap();
    show(&"#".repeat(70_000)).expect_failure(1, &["more than 65536 bytes"]).unwrap();
    let absent = story.node(&["manifest", "show", "/absent"]).unwrap();
    absent.expect_failure(1, &["/absent"]).unwrap();
}

/// A bootstrap hands its files to every peer. It accepts only manifests that every peer accepts,
/// and does nothing before it has checked them.
#[test]
fn a_bootstrap_hands_out_what_its_organiser_signed_and_nothing_else() {
    let story = story();
    let path = story.manifest("run.toml", &[]).unwrap();
    let good = fs::read_to_string(&path).unwrap();
    fs::write(story.path("edited.toml"), good.replace("amount = 10", "amount = 11")).unwrap();
    let (good, data) = (story.text("run.toml"), story.text("bootstrap"));
    for (name, words) in [
        ("run.toml.key", "is a key, not a manifest"),
        ("edited.toml", "signature"),
        ("/etc/passwd", "/etc/passwd"),
    ] {
        let bad = story.text(name);
        let listen = ["--listen", "/ip4/127.0.0.1/tcp/0", "--data-dir", &data];
        let done = story.bootstrap(&[&["--manifest", &good, &bad], &listen[..]].concat()).unwrap();
        let done = done.expect_failure(1, &[words]).unwrap();
        assert!(done.out.is_empty() && !story.path("bootstrap").exists(), "{}", done.out);
    }
    let usage = story.bootstrap(&["--manifest", &good, "--listen", "0.0.0.0:4001"]).unwrap();
    usage.expect_failure(2, &["--listen", "/ip4/"]).unwrap();
    story.bootstrap(&[]).unwrap().expect_failure(2, &["--manifest"]).unwrap();
}

#[test]
fn a_bootstrap_ends_well_and_comes_back_as_the_same_peer() {
    let story = story();
    let manifest = story.manifest("run.toml", &[]).unwrap();
    let mut peers = Vec::new();
    for signal in [Signal::INT, Signal::TERM] {
        let (process, entry) = story.start_bootstrap(std::slice::from_ref(&manifest)).unwrap();
        peers.push(entry.rsplit('/').next().unwrap().to_owned());
        process.signal(signal).unwrap();
        process.wait(Duration::from_secs(10)).unwrap().expect_success().unwrap();
        fs::remove_file(story.path("bootstrap/out.txt")).unwrap();
    }
    assert_eq!(peers[0], peers[1]);
}

#[test]
fn keys_and_manifests_are_never_overwritten() {
    let story = story();
    let path = story.manifest("run.toml", &[]).unwrap();
    let before = fs::read(&path).unwrap();
    let (out, key) = (story.text("run.toml"), story.text("run.toml.key"));
    let again = story.node(&["manifest", "new", "--out", &out, "--key", &key]).unwrap();
    again.expect_failure(1, &["exists"]).unwrap();
    story.node(&["keygen", "--out", &key]).unwrap().expect_failure(1, &["exists"]).unwrap();
    assert_eq!(fs::read(&path).unwrap(), before);
}

/// A manifest would hand the key to every peer; and nobody shall delete a manifest that was named as a key.
#[test]
fn a_key_and_a_manifest_in_each_others_place_are_told_apart() {
    let story = story();
    let run = story.manifest("run.toml", &[]).unwrap().to_str().unwrap().to_owned();
    let (key, out) = (story.text("run.toml.key"), story.text("other.toml"));
    let new = ["manifest", "new", "--out", &out];
    let data = story.node(&[&new[..], &["--key", &key, "--data", &key]].concat()).unwrap();
    data.expect_failure(2, &["run.toml.key", "a secret key", "name a text"]).unwrap();
    let swapped = story.node(&[&new[..], &["--key", &run]].concat()).unwrap();
    let words = ["run.toml is a manifest, not a key", "`intellect-node keygen`"];
    let swapped = swapped.expect_failure(1, &words).unwrap();
    assert!(!swapped.err.contains("delete"), "{}", swapped.err);
    assert!(!story.path("other.toml").exists() && story.path("run.toml").exists());
}

#[test]
fn a_key_that_others_can_read_is_refused() {
    let story = story();
    let data = story.path("data");
    fs::create_dir(&data).unwrap();
    let key = data.join("identity.key");
    story.node(&["keygen", "--out", key.to_str().unwrap()]).unwrap().expect_success().unwrap();
    fs::set_permissions(&key, Permissions::from_mode(0o644)).unwrap();
    let done = story.node(&["--bootstrap", &entry(), "--data-dir", data.to_str().unwrap()]);
    done.unwrap().expect_failure(1, &["chmod 600", key.to_str().unwrap()]).unwrap();
}

#[test]
fn a_simulated_key_is_refused_on_a_network() {
    let story = story();
    let data = story.path("data");
    fs::create_dir(&data).unwrap();
    let key = data.join("identity.key");
    let text = format!(
        "simulated = true\nseed = \"{}\"\nlog_id = \"{}\"\n",
        "01".repeat(32),
        "02".repeat(16)
    );
    fs::write(&key, text).unwrap();
    fs::set_permissions(&key, Permissions::from_mode(0o600)).unwrap();
    let done = story.node(&["--bootstrap", &entry(), "--data-dir", data.to_str().unwrap()]);
    done.unwrap().expect_failure(1, &["simulated", "--data-dir"]).unwrap();
}

#[test]
fn one_folder_has_one_node() {
    let story = story();
    let data = story.path("data");
    fs::create_dir(&data).unwrap();
    let lock = File::create(data.join("lock")).unwrap();
    lock.lock().unwrap();
    let done = story.node(&["--bootstrap", &entry(), "--data-dir", data.to_str().unwrap()]);
    done.unwrap().expect_failure(1, &["another intellect-node", "--data-dir"]).unwrap();
    // The folder of a node that runs has the organiser's key.
    let usual = story.path("home/intellect-node");
    fs::create_dir_all(&usual).unwrap();
    let lock = File::create(usual.join("lock")).unwrap();
    lock.lock().unwrap();
    let made = story.node(&["manifest", "new", "--out", &story.text("run.toml")]).unwrap();
    made.expect_success().unwrap();
}

#[test]
fn a_folder_that_cannot_be_made_is_named() {
    let story = story();
    fs::write(story.path("file"), "").unwrap();
    let inside = story.text("file/data");
    let done = story.node(&["--bootstrap", &entry(), "--data-dir", &inside]).unwrap();
    done.expect_failure(1, &[&inside, "--data-dir"]).unwrap();
    let file = story.text("file");
    let words = format!("{file} is a file: name a folder");
    let done = story.node(&["--bootstrap", &entry(), "--data-dir", &file]).unwrap();
    done.expect_failure(1, &[&words]).unwrap();
    story.node(&["sim", "--out", &file]).unwrap().expect_failure(1, &[&words]).unwrap();
}

/// The resolver's own words for it were those of a program.
#[test]
fn a_name_that_nobody_knows_is_called_so() {
    let story = story();
    let unknown = format!("/dns4/no.such.host.invalid/tcp/4001/p2p/{PEER}");
    let words = "no.such.host.invalid has no address: a typing error, or no internet here";
    let node = story.start_node("one", &unknown, &[]).unwrap();
    let start = std::time::Instant::now();
    while !node.said().contains("no bootstrap could be reached") {
        assert!(start.elapsed() < Duration::from_secs(30), "{}", node.said());
        std::thread::sleep(Duration::from_millis(50));
    }
    // A machine without a resolver has other words, which name the resolver.
    let said = node.said();
    assert!(said.contains(words) || !said.contains("no records found"), "{said}");
}

#[test]
fn what_a_run_cannot_take_is_refused_or_said() {
    let story = story();
    let manifest = story.manifest("run.toml", &["members.min_peers=1"]).unwrap();
    let (_bootstrap, entry) = story.start_bootstrap(&[manifest]).unwrap();
    let too_much = story.start_node("much", &entry, &["--micro-batch", "99999"]).unwrap();
    let done = too_much.wait(Duration::from_secs(30)).unwrap();
    done.expect_failure(1, &["--micro-batch 99999", "sequences: choose 1 to "]).unwrap();
    let state = "ab".repeat(32);
    let line = ["--rate", "1", "--follow", &state, "--epochs", "1"];
    let done = story.start_node("slow", &entry, &line).unwrap().wait(Duration::from_secs(60));
    let said = done.unwrap().expect_success().unwrap().out;
    for words in
        ["--rate: at 1 B/s an update of this run", "--follow: looking for a peer", "abababab"]
    {
        assert!(said.contains(words), "no {words:?} in {said}");
    }
    let clocked = |line: &str| {
        let (clock, rest) = line.split_at_checked(9).unwrap_or_default();
        clock.matches(':').count() == 2 && !rest.is_empty()
    };
    assert!(said.lines().all(clocked), "a line without a time of day: {said}");
}

#[test]
fn an_organiser_is_told_what_to_type_for_whom() {
    let story = story();
    let (key, run) = (story.text("k"), story.text("run.toml"));
    story.node(&["keygen", "--out", &key]).unwrap().expect_success().unwrap();
    let line = ["manifest", "new", "--invited", "--key", &key, "--out", &run];
    story.node(&line).unwrap().expect_success().unwrap();
    let new = ["invite", "new", "--key", &key, "--manifest", &run];
    let made = story.node(&new).unwrap().expect_success().unwrap().out;
    assert!(made.contains("MULTIADDR in the next line is to be replaced"), "{made}");
    let made = story.node(&[&new[..], &["--bootstrap", &entry()]].concat()).unwrap();
    assert!(!made.expect_success().unwrap().out.contains("MULTIADDR"));
    let (bootstrap, _) = story.start_bootstrap(&[run.into()]).unwrap();
    let said = bootstrap.said();
    assert!(
        said.contains("invited peers only; for each of them: intellect-node invite new"),
        "{said}"
    );
}

#[test]
fn what_no_machine_can_train_is_warned_of() {
    let story = story();
    let (key, run) = (story.text("k"), story.text("run.toml"));
    story.node(&["keygen", "--out", &key]).unwrap().expect_success().unwrap();
    let line = ["manifest", "new", "--key", &key, "--out", &run, "--preset", "llama-10b"];
    let made = story.node(&line).unwrap().expect_success().unwrap().out;
    for words in ["of memory even with --micro-batch 1, and few machines", "name the run's data"] {
        assert!(made.contains(words), "no {words:?} in {made}");
    }
}

#[test]
fn the_options_of_a_node_have_headings() {
    let help = story().node(&["--help"]).unwrap().expect_success().unwrap().out;
    for heading in ["Joining a run:", "This machine:", "Files:", "Output:", "For experts:"] {
        assert!(help.contains(&format!("\n{heading}\n")), "no {heading} in {help}");
    }
}

#[test]
fn a_virtual_run_leaves_its_counts() {
    let story = story();
    let out = story.text("out");
    let line = ["sim", "--virtual", "--peers", "3", "--seeds", "0..2", "--faults", "clean"];
    let done = story.node(&[&line[..], &["--out", &out]].concat()).unwrap();
    let said = done.expect_success().unwrap().out;
    assert!(said.contains("1 class in "), "{said}");
    let counts = fs::read(story.path("out/virtual.json")).unwrap();
    let counts: serde_json::Value = serde_json::from_slice(&counts).unwrap();
    assert_eq!(counts["classes"][0]["held"], 2);
    let table = fs::read_to_string(story.path("out/virtual.csv")).unwrap();
    assert!(table.starts_with("class,held,") && table.contains("\nclean,2,"), "{table}");
}

/// No data folder is made, so a mistyped name leaves nothing behind.
#[test]
fn an_events_file_that_cannot_be_made_is_named() {
    let story = story();
    let (data, events) = (story.text("data"), story.text("absent/events.jsonl"));
    let line = ["--bootstrap", &entry(), "--data-dir", &data, "--events", &events];
    story.node(&line).unwrap().expect_failure(1, &[&events, "--events"]).unwrap();
    assert!(!story.path("data").exists());
}

#[test]
fn a_simulation_is_checked_before_anything_starts() {
    let story = story();
    let scenario = story.text("s.toml");
    for (text, words) in [
        ("[[step]]\ndo = \"kill\"\npeer = 9\nepoch = 1\n", "0 to 3"),
        ("[[step]]\ndo = \"kill\"\npeer = 1\n", "exactly one of"),
        ("[[step]]\ndo = \"melt\"\npeer = 1\nepoch = 1\n", "melt"),
        ("[[steps]]\n", "steps"),
    ] {
        fs::write(&scenario, text).unwrap();
        let done = story.node(&["sim", "--scenario", &scenario]).unwrap();
        done.expect_failure(1, &[words]).unwrap();
    }
    story.node(&["sim", "--scenario", "/absent"]).unwrap().expect_failure(1, &["/absent"]).unwrap();
    let many = story.manifest("many.toml", &["members.min_peers=5"]).unwrap();
    let done = story.node(&["sim", "--manifest", many.to_str().unwrap()]).unwrap();
    done.expect_failure(2, &["--peers 5"]).unwrap();
    fs::create_dir(story.path("full")).unwrap();
    fs::write(story.path("full/x"), "").unwrap();
    let done = story.node(&["sim", "--out", &story.text("full")]).unwrap();
    done.expect_failure(1, &["not empty"]).unwrap();
    let slow = "[[step]]\ndo = \"link\"\npeer = 1\nsecond = 0\nrate = 100000\n";
    fs::write(&scenario, slow).unwrap();
    let (out, wrong) = (story.text("out"), ["--devices", "nonsense"]);
    let line = ["sim", "--out", &out, "--links", "shaped", "--scenario", &scenario];
    let done = story.node(&[&line[..], &wrong].concat()).unwrap();
    done.expect_failure(2, &["nonsense"]).unwrap();
    assert_eq!(fs::read_dir(&out).unwrap().count(), 0, "the corrected line can be typed");
    let done = story.node(&["sim", "--data", "/absent"]).unwrap();
    done.expect_failure(1, &["/absent"]).unwrap();
}

#[test]
fn a_text_must_be_readable_and_long_enough() {
    let story = story();
    fs::write(story.path("short"), "x".repeat(100)).unwrap();
    let done = story.node(&["sim", "--data", &story.text("short")]).unwrap();
    done.expect_failure(1, &["too small"]).unwrap();
    fs::write(story.path("a"), "a".repeat(5_000)).unwrap();
    fs::write(story.path("b"), "b".repeat(5_000)).unwrap();
    let (out, a, b) = (story.text("run.toml"), story.text("a"), story.text("b"));
    story.node(&["keygen", "--out", &story.text("k")]).unwrap().expect_success().unwrap();
    let key = story.text("k");
    let made = story.node(&["manifest", "new", "--out", &out, "--key", &key, "--data", &a]);
    made.unwrap().expect_success().unwrap();
    let done = story.node(&["sim", "--manifest", &out, "--data", &b]).unwrap();
    done.expect_failure(1, &["not this run's file"]).unwrap();
    let done = story.node(&["sim", "--manifest", &out]).unwrap();
    done.expect_failure(1, &["--data"]).unwrap();
}

#[test]
fn damaged_documents_make_no_token_file() {
    let story = story();
    fs::write(story.path("a.jsonl"), "{\"text\": \"good\"}\nbad\n").unwrap();
    fs::write(story.path("a.parquet"), "PAR1").unwrap();
    fs::write(story.path("a.bin"), [0, 1, 2]).unwrap();
    let words = r#"{"type": "WordLevel", "unk_token": "u", "vocab": {"u": 0, "x": 1}}"#;
    let nameless = format!(r#"{{"version": "1.0", "model": {words}}}"#);
    fs::write(story.path("nameless.json"), nameless).unwrap();
    let (out, tokenizer) = (story.text("out"), story.text("nameless.json"));
    for (name, arguments, told) in [
        ("a.jsonl", vec!["--strict"], "a.jsonl, line 2: it is not a JSON object"),
        ("a.parquet", vec![], "is not a complete Parquet file"),
        ("a.bin", vec!["--format", "u16"], "holds no tokens of 2 bytes"),
        ("a.bin", vec![], "what kind of file is"),
        ("a.jsonl", vec!["--tokenizer", &tokenizer], "begins a document: name it with --bos TOKEN"),
        ("nofile", vec![], "No such file"),
    ] {
        let file = story.text(name);
        let line = [vec!["data", "tokenize", &file, "--out", &out], arguments].concat();
        story.node(&line).unwrap().expect_failure(1, &[told]).unwrap();
        assert!(!story.path("out").exists());
    }
    let done = story.node(&["data", "tokenize", "--out", &out]).unwrap();
    done.expect_failure(2, &["<FILE>"]).unwrap();
    let done = story.node(&["data", "show", &story.text("a.bin")]).unwrap();
    done.expect_failure(1, &["it is not a token file"]).unwrap();
}

#[test]
fn a_state_that_is_damaged_or_missing_is_named() {
    let story = story();
    let (none, out) = (story.text("none"), story.text("out"));
    for line in [
        vec!["eval", "--data-dir", &none],
        vec!["export", "--data-dir", &none, "--to", &out],
        vec!["manifest", "new", "--from-run", &none, "--out", &out],
    ] {
        let empty = story.node(&line).unwrap();
        let empty = empty.expect_failure(1, &["none does not exist: name another folder"]).unwrap();
        assert!(!empty.err.contains("--run"), "{}", empty.err);
        assert!(!story.path("out").exists() && !story.path("home/intellect-node").exists());
    }
    fs::write(story.path("9.ckpt"), [7; 500]).unwrap();
    let manifest = story.manifest("run.toml", &[]).unwrap();
    let checkpoint = story.text("9.ckpt");
    let done = story.node(&[
        "eval",
        "--checkpoint",
        &checkpoint,
        "--manifest",
        manifest.to_str().unwrap(),
    ]);
    done.unwrap().expect_failure(1, &[&checkpoint]).unwrap();
    let manifest = manifest.to_str().unwrap();
    let json = br#"{"a":{"dtype":"F32","shape":[64],"data_offsets":[0,256]}}"#;
    let tensors = [&(json.len() as u64).to_le_bytes()[..], json, &[0; 256]].concat();
    let foreign = "no checkpoint of this program";
    let mut files = vec![(manifest.to_owned(), foreign), ("/tmp".to_owned(), ".ckpt")];
    for (name, length) in [("empty", 0), ("tiny", 70), ("whole", tensors.len())] {
        let file = story.text(&format!("{name}.safetensors"));
        fs::write(&file, &tensors[..length]).unwrap();
        files.push((file, foreign));
    }
    for (file, words) in files {
        let done = story.node(&["eval", "--checkpoint", &file, "--manifest", manifest]);
        done.unwrap().expect_failure(1, &[&file, words]).unwrap();
    }
}

/// `/dev/full` accepts no byte: the command must report that and not pretend success.
#[test]
fn standard_output_on_a_full_disk_is_an_error() {
    if !std::path::Path::new("/dev/full").exists() {
        println!("skipped: this system has no /dev/full");
        return;
    }
    let story = story();
    let manifest = story.manifest("run.toml", &[]).unwrap();
    let shown = std::process::Command::new(env!("CARGO_BIN_EXE_node"))
        .args(["manifest", "show", manifest.to_str().unwrap()])
        .stdout(File::options().write(true).open("/dev/full").unwrap())
        .output()
        .unwrap();
    assert_eq!(shown.status.code(), Some(1));
    let text = String::from_utf8(shown.stderr).unwrap();
    assert!(text.contains("standard output"), "{text}");
}
