//! Which file of a crate imports which, what a name there means, and the circles among files.

use std::collections::{BTreeMap, BTreeSet};

/// One file as a module: its path, and the paths that its `use` lines name, both from the crate's root.
pub(crate) struct Module {
    path: Vec<String>,
    uses: Vec<Vec<String>>,
}

impl Module {
    /// The module in `file`, named from the crate's `src/`, with that code.
    pub(crate) fn new(file: &str, code: &str) -> Self {
        let path: Vec<String> = match file.trim_end_matches(".rs") {
            "lib" | "main" => Vec::new(),
            inner => inner.split('/').map(str::to_owned).collect(),
        };
        let lines = code.split("use ").skip(1).filter_map(|rest| rest.split_once(';'));
        let trees = lines.map(|(tree, _)| tree.split_whitespace().collect::<Vec<_>>().join(" "));
        let uses = trees.flat_map(|tree| expand(&tree)).map(|names| absolute(&path, &names));
        Self { uses: uses.collect(), path }
    }

    /// Its path from the crate's root.
    pub(crate) fn name(&self) -> String {
        self.path.join("::")
    }

    /// The paths from the crate's root that its `use` lines name.
    pub(crate) fn imports(&self) -> impl Iterator<Item = String> {
        self.uses.iter().map(|path| path.join("::"))
    }
}

/// The path from the crate's root of a type that one of the modules names, through re-exports.
pub(crate) fn resolve(modules: &[Module], from: &Module, name: &str) -> Vec<String> {
    let mut path = absolute(&from.path, name);
    let next = |path: &[String]| {
        let (last, home) = path.split_last()?;
        let module = modules.iter().find(|module| module.path == home)?;
        let imported = module.uses.iter().find(|used| used.last() == Some(last))?;
        (imported != path).then(|| imported.clone())
    };
    for _ in modules {
        let Some(further) = next(&path) else { break };
        path = further;
    }
    path
}

/// Every path that a `use` tree names.
fn expand(tree: &str) -> Vec<String> {
    let Some((prefix, rest)) = tree.split_once('{') else {
        return vec![tree.split(" as ").next().unwrap_or_default().trim().to_owned()];
    };
    let inner = rest.trim_end().strip_suffix('}').unwrap_or(rest);
    let (mut depth, mut part, mut out) = (0, String::new(), Vec::new());
    for c in inner.chars().chain([',']) {
        depth += i32::from(c == '{') - i32::from(c == '}');
        if c == ',' && depth == 0 {
            // After the last comma there is nothing, which is no import of the prefix.
            let paths = if part.trim().is_empty() { Vec::new() } else { expand(part.trim()) };
            out.extend(paths.into_iter().map(|path| format!("{prefix}{path}")));
            part.clear();
        } else {
            part.push(c);
        }
    }
    out
}

/// A path as seen from the crate's root.
fn absolute(module: &[String], path: &str) -> Vec<String> {
    let names: Vec<&str> = path.split("::").collect();
    let up = names.iter().take_while(|name| **name == "super").count();
    let (base, rest) = match names.first() {
        Some(&"crate") => (&module[..0], &names[1..]),
        Some(&"self") => (module, &names[1..]),
        _ => (&module[..module.len().saturating_sub(up)], &names[up..]),
    };
    base.iter().cloned().chain(rest.iter().map(|name| (*name).to_owned())).collect()
}

/// The largest sets of modules that all reach one another, each by name.
pub(crate) fn circles(modules: &[Module]) -> Vec<Vec<String>> {
    let places: BTreeMap<&[String], usize> =
        modules.iter().enumerate().map(|(at, module)| (&module.path[..], at)).collect();
    let home = |path: &[String]| (1..=path.len()).rev().find_map(|n| places.get(&path[..n]));
    let edges: Vec<BTreeSet<usize>> = modules
        .iter()
        .map(|module| module.uses.iter().filter_map(|path| home(path).copied()).collect())
        .collect();
    let name = |at: usize| modules[at].path.join("::");
    knots(&edges).into_iter().map(|knot| knot.into_iter().map(name).collect()).collect()
}

/// The largest sets that all reach one another, by the edges of each.
pub(crate) fn knots(edges: &[BTreeSet<usize>]) -> BTreeSet<Vec<usize>> {
    let reached: Vec<BTreeSet<usize>> = (0..edges.len()).map(|from| reach(edges, from)).collect();
    let knot = |from: usize| {
        let back = |to: &usize| reached[*to].contains(&from);
        reached[from].iter().copied().filter(back).collect()
    };
    (0..edges.len()).map(knot).filter(|knot: &Vec<usize>| !knot.is_empty()).collect()
}

/// Everything that can be reached by one edge or more.
fn reach(edges: &[BTreeSet<usize>], from: usize) -> BTreeSet<usize> {
    let (mut seen, mut left) = (BTreeSet::new(), vec![from]);
    while let Some(at) = left.pop() {
        left.extend(edges[at].iter().filter(|to| seen.insert(**to)));
    }
    seen
}
