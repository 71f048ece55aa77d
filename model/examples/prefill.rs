//! Measures how a GoldFinch reads long prompts, and how it writes on behind them.
//!
//! ```text
//! cargo run --release -p intellect-model --example prefill -- [WIDTH]
//! ```
//!
//! Reading takes the same time for each token of every prompt. What it keeps grows by 4 + D/8 bytes
//! a token. The peak of each reading, above what the process had before, is printed on Linux, with
//! its growth and what that is at a width of 2,048. No keys are kept while prompts are read. Writing
//! is measured with what `sample` keeps.

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
    let mut peaks = Vec::new();
    for length in [1 << 10, 1 << 12, 1 << 14, 1 << 16] {
        let before = forget_peak();
        let mut reader = model.reader(Keep { expanded_bytes: 0, ..Keep::default() });
        let start = Instant::now();
        reader.read(&text[..length], Scored::Last)?;
        let time = 1e6 * start.elapsed().as_secs_f64() / length as f64;
        let peak = memory("VmHWM:").zip(before).map(|(peak, before)| peak - before);
        println!("{length:>8} {time:>16.1} {:>12}", peak.map_or_else(String::new, megabytes));
        peaks.extend(peak.map(|peak| (length, peak)));
    }
    if let [.., (shorter, low), (longer, high)] = peaks[..] {
        let growth = (high - low) / (longer - shorter) as f64;
        let kept = |width: usize| 4.0 + width as f64 / 8.0;
        let wide = growth * kept(2048) / kept(width);
        println!("growth: {growth:.0} bytes a token, {wide:.0} at a width of 2048");
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

/// Begins a new peak, and returns what the process has now.
fn forget_peak() -> Option<f64> {
    std::fs::write("/proc/self/clear_refs", "5").ok()?;
    memory("VmRSS:")
}

/// Bytes of memory of this process.
fn memory(key: &str) -> Option<f64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(key))?;
    let kilobytes: f64 = line.trim().trim_end_matches(" kB").parse().ok()?;
    Some(1024.0 * kilobytes)
}

fn megabytes(bytes: f64) -> String {
    format!("{:.1}", bytes / 1e6)
}

/// How many tokens are written behind each prompt.
const WRITTEN: usize = 50;
