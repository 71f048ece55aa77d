//! Tests of `identity`, on key files in a folder.

use std::os::unix::fs::PermissionsExt as _;

use super::*;

fn chmod(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn the_first_use_makes_a_private_key_and_the_second_finds_it() {
    let folder = tempfile::tempdir().unwrap();
    let first = Identity::load_or_create(folder.path(), Origin::Random).unwrap();
    let mode = fs::metadata(folder.path().join(FILE_NAME)).unwrap().mode() & 0o777;
    assert_eq!(mode, 0o600);
    assert_eq!(Identity::load_or_create(folder.path(), Origin::Random).unwrap(), first);
    let other = tempfile::tempdir().unwrap();
    assert_ne!(Identity::load_or_create(other.path(), Origin::Random).unwrap(), first);
}

#[test]
fn a_key_that_others_can_read_is_refused_with_the_command_to_type() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(FILE_NAME);
    Identity::random().unwrap().create(&path).unwrap();
    for mode in [0o640, 0o604, 0o644, 0o620] {
        chmod(&path, mode);
        let error = Identity::load(&path).unwrap_err();
        assert!(matches!(error, IdentityError::Exposed { .. }), "{error}");
        assert!(error.to_string().contains(&format!("chmod 600 {}", path.display())), "{error}");
    }
    chmod(&path, 0o600);
    Identity::load(&path).unwrap();
}

/// Two arguments were swapped: no error may advise to delete the manifest, whatever its mode is.
#[test]
fn a_manifest_that_is_named_as_a_key_is_called_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.toml");
    fs::write(&path, "name = \"demo\"\norganiser = \"00\"\n[model]\n").unwrap();
    for mode in [0o644, 0o600] {
        chmod(&path, mode);
        let error = Identity::load(&path).unwrap_err().to_string();
        assert!(error.contains("run.toml is a manifest, not a key"), "{error}");
        assert!(!error.contains("delete"), "{error}");
    }
}

#[test]
fn a_key_is_never_overwritten() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mine.key");
    let identity = Identity::random().unwrap();
    identity.create(&path).unwrap();
    let error = Identity::random().unwrap().create(&path).unwrap_err();
    assert!(matches!(error, IdentityError::Exists { .. }), "{error}");
    assert_eq!(Identity::load(&path).unwrap(), identity);
}

#[test]
fn what_is_no_key_is_named_and_kept() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(FILE_NAME);
    let seed = "00".repeat(32);
    for text in [
        String::new(),
        "seed = 3".to_owned(),
        format!("seed = \"{seed}\""),
        format!("seed = \"{seed}\"\nlog_id = \"123\""),
        format!("seed = \"{}\"\nlog_id = \"{}\"", "zz".repeat(32), "00".repeat(16)),
        format!("seed = \"{seed}\"\nlog_id = \"{}\"\nextra = 1", "00".repeat(16)),
        "\u{0}".repeat(10_000),
    ] {
        let _ = fs::remove_file(&path);
        fs::write(&path, &text).unwrap();
        chmod(&path, 0o600);
        let error = Identity::load_or_create(folder.path(), Origin::Random).unwrap_err();
        assert!(matches!(error, IdentityError::Malformed { .. }), "{text}: {error}");
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
    }
    fs::write(&path, [0xff; 40]).unwrap();
    let error = Identity::load(&path).unwrap_err();
    assert!(matches!(error, IdentityError::Malformed { .. }), "{error}");
}

#[test]
fn simulated_keys_follow_from_the_seed_and_work_only_in_a_simulation() {
    assert_eq!(Identity::simulated(1, 2), Identity::simulated(1, 2));
    assert_ne!(Identity::simulated(1, 2).peer(), Identity::simulated(1, 3).peer());
    assert_ne!(Identity::simulated(1, 2).peer(), Identity::simulated(2, 2).peer());

    let folder = tempfile::tempdir().unwrap();
    let simulated = Identity::simulated(1, 2);
    simulated.create(&folder.path().join(FILE_NAME)).unwrap();
    let error = Identity::load_or_create(folder.path(), Origin::Random).unwrap_err();
    assert!(matches!(error, IdentityError::Simulated { .. }), "{error}");
    assert_eq!(Identity::load_or_create(folder.path(), Origin::Simulated).unwrap(), simulated);
}

#[test]
fn a_debug_line_does_not_betray_the_seed() {
    let identity = Identity::random().unwrap();
    let text = format!("{identity:?}");
    assert!(!text.contains(blake3::Hash::from_bytes(identity.seed).to_hex().as_str()), "{text}");
    assert!(text.contains("12D3KooW"), "{text}");
}
