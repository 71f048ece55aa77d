//! Words of `--help` that several commands share.

use crate::preset::Preset;

/// The headings of `--help` for the options of a node.
pub(super) const JOINING: &str = "Joining a run";
pub(super) const THIS_MACHINE: &str = "This machine";
pub(super) const FILES: &str = "Files";
pub(super) const OUTPUT: &str = "Output";
pub(super) const EXPERTS: &str = "For experts";

pub(super) fn preset_help() -> String {
    format!("Settings to begin with: {}", Preset::names())
}
