//! Trains a small Llama on a page of text, then prints text that the model generates.
//!
//! ```text
//! cargo run --release -p intellect-model --example tiny_text [FILE [STEPS]]
//! ```
//!
//! One peer, no outer step and no network: the public interface of the crate on one screen. Without
//! FILE it reads the README of the repository.

#![expect(clippy::print_stdout, reason = "an example prints for the person who runs it")]

use std::error::Error;
use std::io::{self, Write};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;

use intellect_model::config::Work;
use intellect_model::data::{Dataset, Stream, text};
use intellect_model::eval::{self, evaluate};
use intellect_model::sample::{self, sample};
use intellect_model::tokenizer::Tokenizer;
use intellect_model::{Device, arch, genesis, trainer};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let readme = || concat!(env!("CARGO_MANIFEST_DIR"), "/../README.md").to_owned();
    let path = PathBuf::from(arguments.next().unwrap_or_else(readme));
    let steps = arguments.next().map_or(Ok(300), |steps| steps.parse())?;

    let seed = 1;
    let page = text::describe(&path)?;
    let work = Work::text(page);
    let source = Arc::new(Dataset::open(&work, seed, &[path])?);
    let mut trainer = trainer(&work, Arc::clone(&source), Device::Auto, None)?;
    trainer.model().load(&genesis::weights(seed, &arch::specs(&work.model)))?;
    println!("{} parameters, {} bytes of text", work.model.parameter_count(), page.bytes);

    let stream = Stream { seed: [0; 32], committed: 0 };
    let mut tokens = 0;
    for step in 0..steps {
        let done = trainer.step(&stream, step, tokens)?;
        tokens += done.tokens;
        if (step + 1) % 50 == 0 {
            let held_out = evaluate(trainer.model(), &source, &work, eval::GLANCE_TOKENS)?;
            println!("step {:4}  loss {:.3}  held out {:.3}", step + 1, done.loss, held_out.loss);
        }
    }

    let tokenizer = Tokenizer::of(&work.data, None)?;
    let mut decoder = tokenizer.decoder();
    let settings = sample::Sampling {
        temperature: 0.7,
        top_p: 1.0,
        seed,
        tokens: 300,
        ending: sample::Ending::Document,
        keep: arch::Keep::default(),
    };
    sample(trainer.model(), &work, &tokenizer.encode("The ")?, settings, &mut |token| {
        print!("{}", decoder.push(token));
        match io::stdout().flush() {
            Ok(()) => ControlFlow::Continue(()),
            Err(_) => ControlFlow::Break(()),
        }
    })?;
    println!("{}", decoder.finish());
    Ok(())
}
