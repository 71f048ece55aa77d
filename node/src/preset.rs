//! Settings to begin with, by name: the files in `node/presets`.
//!
//! A preset is part of a manifest. Each table that it has replaces that table whole, so that a
//! preset says everything about what it touches; the rest stays as `manifest new` proposes it. So a
//! preset is data: a new one is a file and a line here.

use toml::Table;

/// A preset of `manifest new`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Preset {
    pub(crate) name: &'static str,
    pub(crate) text: &'static str,
}

impl Preset {
    /// All of them, the default first.
    pub(crate) const ALL: &[Self] = &[
        Self { name: "small", text: "" },
        Self { name: "llama-1m", text: include_str!("../presets/llama-1m.toml") },
        Self { name: "llama-150m", text: include_str!("../presets/llama-150m.toml") },
        Self { name: "llama-1b", text: include_str!("../presets/llama-1b.toml") },
        Self { name: "llama-10b", text: include_str!("../presets/llama-10b.toml") },
        Self { name: "eagle-1m", text: include_str!("../presets/eagle-1m.toml") },
        Self { name: "finch-1m", text: include_str!("../presets/finch-1m.toml") },
        Self { name: "goldfinch-1m", text: include_str!("../presets/goldfinch-1m.toml") },
        Self { name: "eagle-400m", text: include_str!("../presets/eagle-400m.toml") },
        Self { name: "eagle-1b5", text: include_str!("../presets/eagle-1b5.toml") },
        Self { name: "finch-1b6", text: include_str!("../presets/finch-1b6.toml") },
        Self { name: "goldfinch-1b5", text: include_str!("../presets/goldfinch-1b5.toml") },
    ];

    /// The preset of this name.
    pub(crate) fn find(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|preset| preset.name == name)
    }

    /// Their names, for a person.
    pub(crate) fn names() -> String {
        Self::ALL.iter().map(|preset| preset.name).collect::<Vec<_>>().join(", ")
    }

    /// What it sets.
    pub(crate) fn table(self) -> Result<Table, toml::de::Error> {
        self.text.parse()
    }
}
