//! Measures how a GoldFinch reads long prompts, and how it writes on behind them.
//!
//! ```text
//! cargo run --release -p intellect-model --example prefill -- [WIDTH]
//! ```
//!
//! Reading takes the same time for each token of every prompt. What it keeps grows by 4 + D/8 bytes
//! a token, besides the prompt itself. The peak is that of the heap above the weights, so that what
//! loading them has freed hides nothing. No keys are kept while prompts are read. Writing is
//! measured with what `sample` keeps.

#![expect(clippy::print_stdout, reason = "an example prints for the person who runs it")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::error::Error;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
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
    println!("{:>8} {:>16} {:>12}", "tokens", "reading us/token", "peak kB");
    // The first prompt also makes what stays: threads and their buffers.
    model.reader(Keep::default()).read(&text[..LENGTHS[0]], Scored::Last)?;
    let mut peaks = Vec::new();
    for length in LENGTHS {
        let before = HEAP.forget_peak();
        let mut reader = model.reader(Keep { expanded_bytes: 0, ..Keep::default() });
        let start = Instant::now();
        reader.read(&text[..length], Scored::Last)?;
        let time = 1e6 * start.elapsed().as_secs_f64() / length as f64;
        let peak = HEAP.peak() - before;
        peaks.push(peak as f64);
        println!("{length:>8} {time:>16.1} {:>12.1}", peak as f64 / 1e3);
    }
    let growth =
        (peaks[LENGTHS.len() - 1] - peaks[0]) / (LENGTHS[LENGTHS.len() - 1] - LENGTHS[0]) as f64;
    let formula = |width: usize| (4 + width / 8) as f64;
    println!(
        "growth {growth:.1} B a token, of which the cache has {:.0} by its formula",
        formula(width)
    );
    println!(
        "at width 2048: {:.1}, scaled by the formula",
        growth * formula(2048) / formula(width)
    );
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

/// Counts the bytes that are in use, and the most that were.
struct Counter {
    used: AtomicUsize,
    peak: AtomicUsize,
}

impl Counter {
    /// Begins a new peak at the bytes in use, which it returns.
    fn forget_peak(&self) -> usize {
        let used = self.used.load(Relaxed);
        self.peak.store(used, Relaxed);
        used
    }

    fn peak(&self) -> usize {
        self.peak.load(Relaxed)
    }
}

#[expect(unsafe_code, reason = "an allocator is unsafe by its nature")]
// SAFETY: all memory is that of the system's allocator; this one only counts.
unsafe impl GlobalAlloc for Counter {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let used = self.used.fetch_add(layout.size(), Relaxed) + layout.size();
        self.peak.fetch_max(used, Relaxed);
        // SAFETY: the caller keeps to the rules of the system's allocator.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        self.used.fetch_sub(layout.size(), Relaxed);
        // SAFETY: the memory came from `alloc`, and thus from the system's allocator.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static HEAP: Counter = Counter { used: AtomicUsize::new(0), peak: AtomicUsize::new(0) };

/// How many tokens the prompts have.
const LENGTHS: [usize; 4] = [1 << 10, 1 << 12, 1 << 14, 1 << 16];

/// How many tokens are written behind each prompt.
const WRITTEN: usize = 50;
