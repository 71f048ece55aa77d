//! Measures how a GoldFinch reads long prompts, and how it writes on behind them.
//!
//! ```text
//! cargo run --release -p intellect-model --example prefill -- [WIDTH]
//! ```
//!
//! Reading takes the same time for each token of every prompt. What it keeps grows by 4 + D/8 bytes
//! a token, besides the prompt itself; the peak of the process is printed where the system says it.
//! No keys are kept while prompts are read. Writing is measured with what `sample` keeps.

#![expect(clippy::print_stdout, reason = "an example prints for the person who runs it")]

use std::error::Error;
use std::time::Instant;

use intellect_model::arch::{Keep, Scored, specs};
use intellect_model::config::{Family, Model, Work};
use intellect_model::{Device, genesis};

fn main() -> Result<(), Box<dyn Error>> {
    let width: usize = std::env::args().nth(1).map_or(Ok(256), |width| width.parse())?;
    let bench = Family::GoldFinch.bench_model();
    let model = Model { width, heads: width / 64, ffn: 7 * width / 2, context: 1024, ..bench };
    let work = Work { model, ..Work::synthetic() };
    let mut model = intellect_model::model(&work, Device::Cpu)?;
    model.load(&genesis::weights(1, &specs(&work.model)))?;
    let text: Vec<i32> = (0..1 << 16).map(|i| i * 37 % work.model.vocab as i32).collect();
    println!("width {width}, {} threads", intellect_model::threads());
    println!("{:>8} {:>16} {:>12}", "tokens", "reading us/token", "peak MB");
    for length in [1 << 10, 1 << 12, 1 << 14, 1 << 16] {
        let mut reader = model.reader(Keep { expanded_bytes: 0, ..Keep::default() });
        let start = Instant::now();
        reader.read(&text[..length], Scored::Last)?;
        let time = 1e6 * start.elapsed().as_secs_f64() / length as f64;
        let peak = peak_bytes().map_or_else(String::new, |peak| format!("{:.1}", peak / 1e6));
        println!("{length:>8} {time:>16.1} {peak:>12}");
    }
    println!("{:>8} {:>16}", "tokens", "writing ms/token");
    for length in [64, 1 << 12] {
        let mut reader = model.reader(Keep::default());
        reader.read(&text[..length], Scored::Last)?;
        let start = Instant::now();
        for token in &text[length..length + WRITTEN] {
            reader.read(&[*token], Scored::Last)?;
        }
        let time = 1e3 * start.elapsed().as_secs_f64() / WRITTEN as f64;
        println!("{length:>8} {time:>16.2}");
    }
    Ok(())
}

/// The most memory that the process has had.
fn peak_bytes() -> Option<f64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kilobytes: f64 = line.trim().trim_end_matches(" kB").parse().ok()?;
    Some(1024.0 * kilobytes)
}

/// How many tokens are written behind each prompt.
const WRITTEN: usize = 50;
