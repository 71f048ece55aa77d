//! `report.html`: one file with the plots of a simulation, or of several over one another.
//!
//! All that it shows is in `report.json` of each folder. Scripts, style and data stand in the file
//! itself, so it opens from a disk without any network. Every text goes in as data: a `<` is
//! written `\u003c`, so none can end the script.
//!
//! The keys that are read here are those of docs/FORMATS.md. A report may come from another person,
//! so its size and its texts are bounded as those of events are.

mod columns;
mod mean;
mod settings;

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, Read as _},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize, de::Error as _};
use serde_json::Value;

use crate::record::{List, Text};
use columns::{Curves, Row};
use mean::Mean;

/// What `report.json` of one simulation says, as far as it is shown.
#[derive(Debug)]
pub struct Report {
    /// Where it was read; the last part is the run's name on the page.
    folder: PathBuf,
    /// What was simulated, which is compared with other reports.
    setup: Conditions,
    /// Where the numbers come from.
    origin: Provenance,
    /// The curves, and how the run was judged.
    results: Results,
}

/// What was simulated, and how.
#[derive(Debug, Deserialize)]
struct Conditions {
    run: Text,
    /// The seed of the simulation. Runs that differ in it alone are repetitions.
    seed: u64,
    peers: u64,
    /// Compute threads of each process.
    threads: u64,
    /// How the processes were joined, in words.
    links: Text,
    /// Most bulk bytes that each process sent in a second; 0 for no limit.
    #[serde(default)]
    rate: u64,
    /// The scenario file as an object; `null` without one.
    #[serde(default)]
    scenario: Value,
    parameters: u64,
    /// The manifest as an object of tables.
    manifest: Value,
    /// The rules of chaos as a list; `null` without chaos.
    chaos_rules: Value,
}

/// By which program, when and on what machine.
#[derive(Debug, Deserialize)]
struct Provenance {
    version: Text,
    /// The commit of its sources; `None` unless the build has named it.
    commit: Option<Text>,
    date: Text,
    /// What was typed, word by word.
    command: List<Text>,
    machine: Machine,
    /// The length of the simulation in seconds.
    wall_s: f64,
}

/// What came out of the simulation.
#[derive(Debug, Deserialize)]
struct Results {
    /// The judgement. If it is false, `reasons` say why.
    succeeded: bool,
    reasons: List<Text>,
    /// The digest of the last parameters.
    weights: Option<Text>,
    held_out: HeldOut,
    entropies: Entropies,
    /// The start in Unix milliseconds; all times of the page are seconds since then.
    started_ms: u64,
    /// What scenario and chaos did, which the page marks in its charts.
    done: Vec<Step>,
    /// The epochs of the lineage that the run kept.
    table: Vec<Row>,
}

/// The machine on which it ran.
#[derive(Debug, Deserialize)]
struct Machine {
    /// The name of the processor's model.
    cpu: Text,
    /// Cores that the simulation was allowed to use.
    cores: u64,
}

/// The held-out loss at both ends.
#[derive(Debug, Deserialize)]
struct HeldOut {
    /// That of the weights that the run began with; `None` if it was not measured.
    before: Option<Evaluation>,
    /// That of the weights that were committed last; `None` if it was not measured.
    after: Option<Evaluation>,
}

/// A loss in nats per token, its standard error, and the tokens it was measured on.
#[derive(Debug, Deserialize)]
struct Evaluation {
    loss: f64,
    error: Option<f64>,
    tokens: u64,
}

/// What guesses without a model cost, in nats per token: lines for comparison in the chart of
/// losses.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
struct Entropies {
    /// The entropy of a guess that looks at no token before.
    unigram: Option<f64>,
    /// The entropy of a guess that looks at one token before.
    bigram: Option<f64>,
    /// The entropy of the source, which no model goes below; only a synthetic one has it.
    floor: Option<f64>,
}

/// Something that scenario or chaos did.
#[derive(Debug, Deserialize)]
struct Step {
    /// When it was done, in Unix milliseconds.
    t_ms: u64,
    /// What was done, as a sentence for people.
    what: Text,
}

/// Why there is no report to show. Each names the folder, so that of several the right one is
/// mended.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// There is no `report.json` in a folder, or it cannot be read.
    #[error("{} has no report.json: name a folder that `sim --out` has written", .0.display())]
    Read(PathBuf, #[source] io::Error),
    /// The file is no report of this program, or of an older one that lacks a key.
    #[error("the report.json of {} is not one of this program: simulate anew with `sim --out`", .0.display())]
    Foreign(PathBuf, #[source] serde_json::Error),
    /// The file is too long to be shown.
    #[error("the report.json of {} is longer than {} MB: it is not shown", .0.display(), REPORT_BYTES / 1_000_000)]
    Long(PathBuf),
    /// Two reports have the same seed. Their mean would count one run twice.
    #[error(
        "{} and {} have the same seed, so their mean would count one run twice: name one of them, or simulate \
         one anew with another --seed",
        first.display(), other.display()
    )]
    Twice {
        /// The folder that was named first.
        first: PathBuf,
        /// The folder with the same seed.
        other: PathBuf,
    },
    /// Two folders hold different runs: the setting that differs.
    #[error(
        "{} is of another run than {}: {key} differs; only the seed may, so make a page of each",
        other.display(), first.display()
    )]
    Different {
        /// The folder that was named first.
        first: PathBuf,
        /// The folder that does not fit it.
        other: PathBuf,
        /// What differs: a key of the manifest, the scenario, or the peers, links or rate with both
        /// values.
        key: String,
    },
}

/// One run, as the script of the page reads it: `assets/report.js` has the same names.
#[derive(Serialize)]
struct Shown<'a> {
    name: String,
    /// Rows of the table above the charts: what, and its value. Empty values are left out.
    facts: Vec<(&'static str, String)>,
    columns: Curves,
    entropies: Entropies,
    /// Moments at which something was done to the run.
    marks: Vec<Mark<'a>>,
}

/// A line across the charts, so many seconds after the start.
#[derive(Serialize)]
struct Mark<'a> {
    t_s: f64,
    text: &'a Text,
}

/// Everything that the script gets, as one JSON object.
#[derive(Serialize)]
struct Page<'a> {
    runs: Vec<Shown<'a>>,
    /// The mean over runs; `None` for one run.
    mean: Option<Mean>,
    /// The manifest of the first run, which stands for all.
    settings: Vec<(String, String)>,
}

impl Conditions {
    /// The first thing beside the seed in which another simulation differs.
    fn difference(&self, other: &Self) -> Option<String> {
        if self.peers != other.peers {
            return Some(format!("the number of peers ({} and {})", self.peers, other.peers));
        }
        if self.links != other.links {
            return Some(format!("the kind of links ({} and {})", self.links, other.links));
        }
        if self.rate != other.rate {
            return Some(format!("`--rate` ({} and {})", self.rate, other.rate));
        }
        if self.scenario != other.scenario {
            return Some("the scenario".to_owned());
        }
        let key = settings::difference(&self.manifest, &other.manifest)?;
        Some(format!("`{key}`"))
    }
}

impl Report {
    /// Reads `report.json` of a folder.
    ///
    /// # Errors
    /// If there is none, or it is no report of this program.
    pub fn open(folder: &Path) -> Result<Self, ReportError> {
        let path = folder.join("report.json");
        let read = || {
            let mut text = Vec::new();
            File::open(&path)?.take(REPORT_BYTES + 1).read_to_end(&mut text)?;
            Ok(text)
        };
        let text = read().map_err(|cause| ReportError::Read(folder.to_owned(), cause))?;
        if text.len() as u64 > REPORT_BYTES {
            return Err(ReportError::Long(folder.to_owned()));
        }
        // Each part passes over the keys of the others.
        let parts = || {
            let setup: Conditions = serde_json::from_slice(&text)?;
            let origin = serde_json::from_slice(&text)?;
            let results: Results = serde_json::from_slice(&text)?;
            // The columns have room for each peer in each epoch, however few of them the file has.
            if !results.table.iter().all(|row| row.peers() as u64 == setup.peers) {
                return Err(serde_json::Error::custom("an epoch has not one entry for each peer"));
            }
            Ok(Self { folder: folder.to_owned(), setup, origin, results })
        };
        parts().map_err(|cause| ReportError::Foreign(folder.to_owned(), cause))
    }

    /// What a reader has to know to repeat the run, and how it ended.
    fn facts(&self) -> Vec<(&'static str, String)> {
        let Self { setup, origin, results, .. } = self;
        let state = results.table.last().and_then(|row| row.state.as_ref());
        let loss = |end: &Option<Evaluation>| {
            let Some(end) = end else { return "not measured".to_owned() };
            let error = end.error.map_or_else(String::new, |se| format!(" ± {se:.4}"));
            format!("{:.4}{error} over {} tokens", end.loss, end.tokens)
        };
        let commands: Vec<&str> = origin.command.0.iter().map(Text::as_str).collect();
        let mut facts = vec![
            ("run", setup.run.to_string()),
            ("seed", setup.seed.to_string()),
            ("peers", format!("{} (compute threads of each: {})", setup.peers, setup.threads)),
            ("parameters", setup.parameters.to_string()),
            ("links", setup.links.to_string()),
            ("held-out loss before", loss(&results.held_out.before)),
            ("held-out loss after", loss(&results.held_out.after)),
            ("last state", state.map_or_else(String::new, Text::to_string)),
            ("last weights", results.weights.as_ref().map_or_else(String::new, Text::to_string)),
            ("version", origin.version.to_string()),
            ("commit", origin.commit.as_ref().map_or_else(String::new, Text::to_string)),
            ("command", commands.join(" ")),
            ("machine", format!("{}, {} cores", origin.machine.cpu, origin.machine.cores)),
            ("date", origin.date.to_string()),
            ("time", format!("{:.1} s", origin.wall_s)),
        ];
        if !setup.chaos_rules.is_null() {
            facts.push(("chaos", Text::new(&setup.chaos_rules.to_string()).to_string()));
        }
        if !results.succeeded {
            let reasons: Vec<&str> = results.reasons.0.iter().map(Text::as_str).collect();
            facts.push(("failed", reasons.join("; ")));
        }
        facts.retain(|(_, value)| !value.is_empty());
        facts
    }

    /// The run as the page gets it, with times in seconds since the start.
    fn shown(&self) -> Shown<'_> {
        let results = &self.results;
        let marks = results.done.iter().map(|step| Mark {
            t_s: step.t_ms.saturating_sub(results.started_ms) as f64 / 1_000.0,
            text: &step.what,
        });
        let name = self.folder.file_name().unwrap_or(self.folder.as_os_str());
        Shown {
            name: Text::new(&name.to_string_lossy()).to_string(),
            facts: self.facts(),
            columns: Curves::of(&results.table),
            entropies: results.entropies,
            marks: marks.collect(),
        }
    }
}

/// The page of one run, or of several runs of equal settings with their mean and its standard
/// error.
///
/// Numbers of peers, links, rates, scenarios and manifests are compared, but for what follows from
/// the seed. Chaos and machines are not: they stand among the facts, where a reader sees them.
///
/// # Errors
/// If two reports have one seed, or differ in something else that is compared.
pub fn html(reports: &[Report]) -> Result<String, ReportError> {
    if let Some((first, others)) = reports.split_first() {
        let mut seeds = BTreeMap::from([(first.setup.seed, first)]);
        for other in others {
            if let Some(key) = first.setup.difference(&other.setup) {
                let (first, other) = (first.folder.clone(), other.folder.clone());
                return Err(ReportError::Different { first, other, key });
            }
            if let Some(first) = seeds.insert(other.setup.seed, other) {
                let (first, other) = (first.folder.clone(), other.folder.clone());
                return Err(ReportError::Twice { first, other });
            }
        }
    }
    let runs: Vec<Shown<'_>> = reports.iter().map(Report::shown).collect();
    let mean = (runs.len() > 1).then(|| Mean::of(runs.iter().map(|run| &run.columns)));
    let settings =
        reports.first().map_or_else(Vec::new, |first| settings::list(&first.setup.manifest));
    let page = Page { runs, mean, settings };
    // These types have no key and no number that JSON lacks.
    let data = serde_json::to_string(&page).unwrap_or_default().replace('<', "\\u003c");
    let script = format!("{}\n{}", CHART.replace("\nexport ", "\n"), SCRIPT);
    let parts = [
        ("/*style*/", STYLE),
        ("/*more*/", MORE),
        ("null/*data*/", &*data),
        ("/*script*/", &script),
    ];
    let mut rest = TEMPLATE;
    let mut html = String::new();
    // Each part is put in once, from the beginning to the end: no text of a part is looked at again.
    for (mark, part) in parts {
        let (before, after) = rest.split_once(mark).unwrap_or((rest, ""));
        html.push_str(before);
        html.push_str(part);
        rest = after;
    }
    html.push_str(rest);
    Ok(html)
}

/// The longest `report.json`: 10,000 epochs of 100 peers have about 150 MB.
const REPORT_BYTES: u64 = 256 << 20;
/// The page, with a mark for each part that `html` puts in.
const TEMPLATE: &str = include_str!("../assets/report.html");
const STYLE: &str = include_str!("../assets/page.css");
const MORE: &str = include_str!("../assets/report.css");
const CHART: &str = include_str!("../assets/chart.js");
const SCRIPT: &str = include_str!("../assets/report.js");

#[cfg(test)]
mod tests;
