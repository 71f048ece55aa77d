//! Stories over real processes, one module each.
//!
//! Random schedules belong into the simulator of `protocol`; here is what needs processes, files
//! and sockets. All stories are one binary, because each further one would link libp2p and burn
//! again, and they run at the same time.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "helpers of tests are tests; clippy's exception sees #[test] functions only"
)]

mod arrive;
mod attested;
mod churn;
mod doctor;
mod ending;
mod evaluate;
mod evening;
mod goodbye;
mod home;
mod hostile;
mod input;
mod invited;
mod join;
mod merge;
mod package;
mod partition;
mod published;
mod readme;
mod receipts;
mod remember;
mod resume;
mod see;
mod serve;
mod shared;
mod silent;
mod sleep;
mod train;
mod tui;
mod twins;
mod watch;

use e2e::{Programs, Story};

/// Begins a story with the programs that cargo built for the tests.
fn story() -> Story {
    let programs =
        Programs { node: env!("CARGO_BIN_EXE_node"), bootstrap: env!("CARGO_BIN_EXE_bootstrap") };
    Story::begin(programs).unwrap()
}
