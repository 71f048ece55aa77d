//! Where the methods of a type stand, and which file calls methods of another file on `self`.
//!
//! It reads an `impl` in rustfmt's layout: from margin to margin, its functions four columns in.

use std::collections::{BTreeMap, BTreeSet};

use super::graph::{Module, knots, resolve};
use super::read::{File, code, function, is_identifier, is_test, name, rust, source};

/// The inherent methods of a crate, and their calls.
pub(super) struct Methods<'a> {
    /// The files by their paths from the crate's `src/`.
    files: Vec<&'a str>,
    impls: Vec<Impl>,
}

/// One `impl` block, with what it defines and calls.
struct Impl {
    /// The file, by its index in the list.
    file: usize,
    /// The type, by its path from the crate's root.
    of: String,
    /// Whether it implements no trait.
    inherent: bool,
    defines: BTreeSet<String>,
    /// The names that it calls on `self`.
    calls: BTreeSet<String>,
}

impl<'a> Methods<'a> {
    /// The crate whose sources begin with this path; `None` if there are no sources.
    pub(super) fn of(krate: &str, files: &'a [File]) -> Option<Self> {
        let ours = rust(files).filter(|f| f.path.starts_with(krate) && !is_test(&f.path));
        let (files, codes): (Vec<&str>, Vec<String>) =
            ours.map(|f| (&f.path[krate.len()..], code(&source(f)))).unzip();
        let modules: Vec<Module> =
            files.iter().zip(&codes).map(|(file, code)| Module::new(file, code)).collect();
        let impls = codes.iter().enumerate().flat_map(|(file, code)| impls(file, code, &modules));
        let impls = impls.collect();
        (!files.is_empty()).then_some(Self { files, impls })
    }

    /// In how many files the inherent methods of each type stand.
    pub(super) fn spread(&self) -> BTreeMap<&str, usize> {
        let inherent = self.impls.iter().filter(|block| block.inherent);
        let homes: BTreeSet<(&str, usize)> = inherent.map(|b| (&b.of[..], b.file)).collect();
        let mut out = BTreeMap::new();
        homes.into_iter().for_each(|(of, _)| *out.entry(of).or_default() += 1);
        out
    }

    /// The largest sets of files that all reach one another by calls of inherent methods on `self`.
    pub(super) fn circles(&self) -> Vec<Vec<&str>> {
        let mut edges = vec![BTreeSet::new(); self.files.len()];
        for from in &self.impls {
            let others = self.impls.iter().filter(|to| to.inherent && to.of == from.of);
            let called = others.filter(|to| !to.defines.is_disjoint(&from.calls));
            edges[from.file].extend(called.map(|to| to.file).filter(|to| *to != from.file));
        }
        let named = |knot: Vec<usize>| knot.into_iter().map(|at| self.files[at]).collect();
        knots(&edges).into_iter().map(named).collect()
    }
}

/// Every `impl` at the margin of a file.
fn impls(file: usize, code: &str, modules: &[Module]) -> Vec<Impl> {
    let mut out = Vec::new();
    for block in format!("\n{code}").split("\nimpl").skip(1) {
        let Some((head, rest)) = block.split_once('{') else { continue };
        let body = format!("\n{rest}").split("\n}").next().unwrap_or_default().to_owned();
        let (of, inherent) = subject(head);
        let defines = body.lines().filter(|l| l.len() - l.trim_start().len() == 4);
        out.push(Impl {
            file,
            of: resolve(modules, &modules[file], of).join("::"),
            inherent,
            defines: defines.filter_map(function).map(str::to_owned).collect(),
            calls: calls(&body),
        });
    }
    out
}

/// The type of an `impl` by the text from that word to the brace, and whether there is no trait.
fn subject(head: &str) -> (&str, bool) {
    let mut depth = 0;
    let parameters = head.char_indices().find(|(at, c)| {
        let closes = *c == '>' && !head[..*at].ends_with('-');
        depth += i32::from(*c == '<') - i32::from(closes);
        depth == 0
    });
    let rest = parameters.map_or("", |(at, _)| &head[at + 1..]);
    let (of, inherent) = rest.split_once(" for ").map_or((rest, true), |(_, of)| (of, false));
    let of = of.trim_start();
    (&of[..of.find(|c| !is_identifier(c) && c != ':').unwrap_or(of.len())], inherent)
}

/// The names of the functions that the code calls on `self`, also where a
/// chain goes on in the next line.
fn calls(body: &str) -> BTreeSet<String> {
    let called = body.match_indices("self").filter_map(|(at, word)| {
        let rest = body[at + word.len()..].trim_start().strip_prefix('.')?;
        let (whole, name) = (!body[..at].ends_with(is_identifier), name(rest));
        (whole && rest[name.len()..].starts_with(['(', ':'])).then(|| name.to_owned())
    });
    called.collect()
}
