//! Runs the whole outer loop in one process: the peers train in turn, then one outer step applies
//! the exact mean of their deltas. Use it to choose the sizes and rates of a run before real nodes
//! spend time on them.
//!
//! ```text
//! cargo run --release -p intellect-model --example diloco -- peers=4 epochs=10 amount=15
//!     [file=TEXT] [seed=1] [outer.lr=0.7 outer.momentum=0.6 outer.ramp=10] [model.width=64]…
//! ```
//!
//! Any key of `[model]`, `[data]` and `[train]` may be set. Deltas are summed in f32 and in order
//! like in a ring, but without the int8 codec.

#![expect(clippy::print_stdout, reason = "an example prints for the person who runs it")]

use std::error::Error;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use intellect_model::config::Work;
use intellect_model::data::{Dataset, Stream, text};
use intellect_model::eval::{self, evaluate};
use intellect_model::outer::Outer;
use intellect_model::state::State;
use intellect_model::train::Trainer;
use intellect_model::{Device, arch, genesis, trainer};

/// The settings from the command line.
struct Settings {
    work: toml::Table,
    file: Option<PathBuf>,
    seed: u64,
    peers: usize,
    epochs: u64,
    amount: u64,
    outer: Outer,
}

fn main() -> Result<(), Box<dyn Error>> {
    let settings = Settings::read(std::env::args().skip(1))?;
    let work = Work::parse(&settings.work)?;
    let source = Arc::new(Dataset::open(&work, settings.seed, settings.file.as_slice())?);
    println!("{} parameters, {:?}", work.model.parameter_count(), source.entropies());
    if let Some(yardsticks) = source.entropies().yardsticks() {
        println!("excess {yardsticks:?}");
    }

    let theta = genesis::weights(settings.seed, &arch::specs(&work.model));
    let mut state = State::genesis(theta);
    let new = |_| trainer(&work, Arc::clone(&source), Device::Cpu, None);
    let mut peers = (0..settings.peers).map(new).collect::<Result<Vec<_>, _>>()?;
    let (mut committed, mut training) = (0, Duration::ZERO);
    for epoch in 1..=settings.epochs {
        let start = Instant::now();
        let mut sum = vec![0.0; state.theta().len()];
        let mut loss = 0.0;
        for (index, peer) in peers.iter_mut().enumerate() {
            let seed = blake3::derive_key("diloco example", format!("{epoch} {index}").as_bytes());
            let stream = Stream { seed, committed };
            loss += learn(peer.as_mut(), &state, &stream, committed, settings.amount, &mut sum)?;
        }
        let mean: Vec<_> = sum.iter().map(|sum| sum / settings.peers as f32).collect();
        state.step(&settings.outer, epoch, &mean);
        committed += settings.peers as u64 * settings.amount * work.tokens_per_step();
        training += start.elapsed();

        let last = epoch == settings.epochs;
        let tokens = if last { 1 << 16 } else { eval::GLANCE_TOKENS };
        peers[0].model().load(state.theta())?;
        let held_out = evaluate(peers[0].model(), &source, &work, tokens)?;
        println!(
            "epoch {epoch:3}  train {:.4}  held out {:.4}  excess {}  {:.1} s, {:.0} tokens/s",
            loss / settings.peers as f64,
            held_out.loss,
            held_out.excess.map_or_else(|| "-".to_owned(), |excess| format!("{excess:.4}")),
            training.as_secs_f64(),
            committed as f64 / training.as_secs_f64(),
        );
    }
    Ok(())
}

/// Takes the inner steps of one peer, adds its delta to `sum` and returns its mean loss.
fn learn(
    peer: &mut dyn Trainer,
    state: &State,
    stream: &Stream,
    committed: u64,
    amount: u64,
    sum: &mut [f32],
) -> Result<f64, Box<dyn Error>> {
    peer.model().load(state.theta())?;
    let (mut loss, mut tokens) = (0.0, committed);
    for step in 0..amount {
        let done = peer.step(stream, step, tokens)?;
        tokens += done.tokens;
        loss += done.loss;
    }
    let mut local = vec![0.0; sum.len()];
    peer.model().store(&mut local)?;
    for ((sum, theta), local) in sum.iter_mut().zip(state.theta()).zip(local) {
        *sum += theta - local;
    }
    Ok(loss / amount as f64)
}

impl Settings {
    fn read(arguments: impl Iterator<Item = String>) -> Result<Self, Box<dyn Error>> {
        let outer = Outer { lr: 0.7, momentum: 0.6, momentum_ramp_epochs: 10 };
        let work = Work::synthetic().to_toml();
        let mut settings =
            Self { work, file: None, seed: 1, peers: 4, epochs: 10, amount: 15, outer };
        for argument in arguments {
            let (key, value) = argument.split_once('=').ok_or("every argument is key=value")?;
            settings.set(key, value)?;
        }
        Ok(settings)
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), Box<dyn Error>> {
        match key {
            "file" => {
                let path = PathBuf::from(value);
                self.work = Work::text(text::describe(&path)?).to_toml();
                self.file = Some(path);
            }
            "seed" => self.seed = value.parse()?,
            "peers" => self.peers = value.parse()?,
            "epochs" => self.epochs = value.parse()?,
            "amount" => self.amount = value.parse()?,
            "outer.lr" => self.outer.lr = value.parse()?,
            "outer.momentum" => self.outer.momentum = value.parse()?,
            "outer.ramp" => self.outer.momentum_ramp_epochs = value.parse()?,
            _ => {
                let (table, key) = key.split_once('.').ok_or("unknown setting")?;
                let table = self.work.get_mut(table).and_then(toml::Value::as_table_mut);
                let value = format!("value = {value}").parse::<toml::Table>()?["value"].clone();
                table.ok_or("unknown table")?.insert(key.to_owned(), value);
            }
        }
        Ok(())
    }
}
