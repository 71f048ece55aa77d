//! What people see of a run. The lines of an events file are folded into one [`picture::Picture`], and
//! everything that shows a run reads that picture: lines on a terminal, a page, metrics.
//!
//! A stored file, a growing file and a running node therefore cannot show different things. This crate
//! knows neither the protocol nor the model: it reads the documented lines of docs/FORMATS.md, and what
//! they do not say is left out. Names and reasons come from other peers, so every text and every
//! collection has a bound, and marks that would move a cursor or turn text around are replaced.
//!
//! The way of a line: [`record`] parses it, [`picture`] and [`history`] fold it, [`stage`]
//! publishes both, and [`page`], [`tui`], [`folder`] and [`lines`] read what was published.
//! [`replay`] feeds lines from files, and a running node feeds its own. Readers never call back.

pub mod record;
pub mod picture;
pub mod history;
pub mod lines;
mod metrics;
pub mod stage;
pub mod page;
pub mod patient;
pub mod folder;
pub mod replay;
pub mod csv;
pub mod report;
pub mod tui;
