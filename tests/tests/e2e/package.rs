//! What packages rely on: one program with two names, which says when it is ready.

use std::{
    fs,
    os::unix::{fs::symlink, net::UnixDatagram},
    path::Path,
    process::Command,
    time::Duration,
};

use e2e::{Programs, Story};

use crate::story;

const PATIENCE: Duration = Duration::from_secs(60);

/// A service manager that waits at the socket of this name.
fn manager(story: &Story, name: &str) -> (UnixDatagram, String) {
    let socket = UnixDatagram::bind(story.path(name)).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    (socket, format!("NOTIFY_SOCKET={}", story.text(name)))
}

fn heard(manager: &UnixDatagram) -> String {
    let mut bytes = [0; 64];
    let length = manager.recv(&mut bytes).unwrap();
    String::from_utf8(bytes[..length].to_vec()).unwrap()
}

/// Services are ready when the entry point listens, and when the node trains.
#[test]
fn a_link_to_the_node_is_the_entry_point_and_both_say_when_they_are_ready() {
    let folder = tempfile::tempdir().unwrap();
    let link = folder.path().join("intellect-bootstrap");
    symlink(env!("CARGO_BIN_EXE_node"), &link).unwrap();
    let bootstrap: &'static str = Box::leak(link.to_str().unwrap().into());
    let story = Story::begin(Programs { node: env!("CARGO_BIN_EXE_node"), bootstrap }).unwrap();
    let version = story.bootstrap(&["--version"]).unwrap().expect_success().unwrap().out;
    assert!(version.starts_with("intellect-bootstrap "), "{version}");
    story.bootstrap(&["sim"]).unwrap().expect_failure(2, &["--manifest"]).unwrap();

    let manifest = story.manifest("run.toml", &["members.min_peers=1"]).unwrap();
    let (entry_manager, entry_socket) = manager(&story, "a");
    let (_bootstrap, entry) =
        story.start_bootstrap_under(&["env", &entry_socket], &[manifest]).unwrap();
    assert_eq!(heard(&entry_manager), "READY=1\n");
    let (node_manager, node_socket) = manager(&story, "b");
    let line = ["--bootstrap", &entry, "--epochs", "1"];
    let mut node = story.start_node_under("node", &["env", &node_socket], &line).unwrap();
    assert_eq!(heard(&node_manager), "READY=1\n");
    node.wait_until_it_said("ready to train", PATIENCE).unwrap();
    node.wait(PATIENCE).unwrap().expect_success().unwrap();
}

/// The files of a package that `generate` makes.
#[test]
fn a_folder_that_cannot_be_written_gets_no_completions() {
    let story = story();
    fs::write(story.path("file"), "").unwrap();
    let inside = story.text("file/inside");
    story.node(&["generate", &inside]).unwrap().expect_failure(1, &[&inside]).unwrap();
    story.node(&["generate", &story.text("made")]).unwrap().expect_success().unwrap();
    for name in ["completions/intellect-node.bash", "man/intellect-node-receipts-verify.1"] {
        assert!(story.path("made").join(name).is_file(), "{name}");
    }
}

/// Each service can be loaded, and is exposed to at most 3.0 by systemd's own measure.
#[test]
fn the_services_are_sound_and_hardened() {
    if Command::new("systemd-analyze").arg("--version").output().is_err() {
        println!("skipped: there is no systemd-analyze here");
        return;
    }
    let story = story();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../node/packaging");
    for (name, last) in [("intellect-node", "2 4"), ("intellect-bootstrap", "2")] {
        let text = fs::read_to_string(folder.join(format!("{name}.service"))).unwrap();
        let installed = format!("ExecStart=/usr/bin/{name} ");
        let last = format!("RestartPreventExitStatus={last}\n");
        assert!(text.contains(&installed) && text.contains(&last), "{name}");
        // The program that is to be started has to be there.
        let here = format!("ExecStart={} ", env!("CARGO_BIN_EXE_node"));
        let unit = story.text(&format!("{name}.service"));
        fs::write(&unit, text.replace(&installed, &here)).unwrap();
        for arguments in [&["verify"][..], &["security", "--offline=true", "--threshold=30"]] {
            let done = Command::new("systemd-analyze").args(arguments).arg(&unit).output().unwrap();
            let said = String::from_utf8_lossy(&[done.stdout, done.stderr].concat()).into_owned();
            assert!(done.status.success(), "{arguments:?}: {said}");
            assert!(arguments[0] != "verify" || said.is_empty(), "{said}");
        }
    }
}
