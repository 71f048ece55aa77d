//! Where the numbers of a report come from: program, command, machine and date.

use std::fs;

use intellect_protocol::base::time::utc;
use serde_json::{Value, json};

use crate::{os, tell::events::unix_ms};

use crate::sim::{plan::Plan, scenario::Scenario};

/// What a reader needs to repeat the simulation, as far as the plan does not say it.
#[derive(Debug)]
pub(in crate::sim) struct Origin {
    /// The command line as it was typed.
    command: Vec<String>,
    /// Unix milliseconds of the start.
    began_ms: u64,
    /// The scenario file as data; null if there is none.
    scenario: Value,
}

impl Origin {
    /// The origin of a simulation that begins now.
    pub(in crate::sim) fn now(scenario: &Scenario) -> Self {
        let typed = std::env::args_os().map(|word| word.to_string_lossy().into_owned());
        Self { command: typed.collect(), began_ms: unix_ms(), scenario: scenario.told() }
    }

    /// The origin and the plan as keys of the report.
    pub(super) fn told(&self, plan: &Plan) -> Value {
        // The text was written from the manifest or has been verified, so it is TOML.
        let manifest: Option<Value> = toml::from_str(&plan.manifest.text).ok();
        json!({
            "version": env!("CARGO_PKG_VERSION"),
            // Only a build of a release names it.
            "commit": option_env!("INTELLECT_COMMIT"),
            "command": self.command,
            "date": utc(self.began_ms / 1_000),
            "machine": { "cpu": cpu(), "cores": os::cores(), "system": std::env::consts::OS },
            "devices": plan.devices.iter().map(ToString::to_string).collect::<Vec<_>>(),
            "rate": plan.rate,
            "scenario": self.scenario,
            "chaos_rules": plan.chaos.as_ref().map(super::super::chaos::ChaosRules::told),
            "manifest": manifest,
        })
    }
}

/// The processor's name, or its architecture where the system does not say it.
fn cpu() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = text.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    name.map_or_else(|| std::env::consts::ARCH.to_owned(), |(_, name)| name.trim().to_owned())
}
