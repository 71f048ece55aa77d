//! Named settings to begin a manifest with: the files in `node/presets`.
//!
//! A preset is a part of a manifest. Each of its tables replaces that whole table, so that a preset says everything
//! about what it changes; the rest is what `manifest new` proposes. A new preset is a file and a line here.
//!
//! A name says the family of the model and the number of its parameters.

use toml::Table;

/// One preset, as it is built into the program.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Preset {
    /// What the user types behind `--preset`.
    pub(crate) name: &'static str,
    /// The TOML text; empty for the default, which changes nothing.
    pub(crate) text: &'static str,
}

impl Preset {
    /// All presets, the default first.
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

    /// The preset of this name, if there is one.
    pub(crate) fn find(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|preset| preset.name == name)
    }

    /// The names of all presets, for a message.
    pub(crate) fn names() -> String {
        Self::ALL.iter().map(|preset| preset.name).collect::<Vec<_>>().join(", ")
    }

    /// The tables of the preset. An error is one of this program, which a test finds.
    pub(crate) fn table(self) -> Result<Table, toml::de::Error> {
        self.text.parse()
    }
}
