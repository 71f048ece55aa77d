//! `bench codec`: how fast one core encodes and decodes, and what int8 loses.
//!
//! Speeds are bytes of `f32` per second, printed beside this core's own copy of as many bytes, which no codec that
//! touches memory can beat by much. The error is ‖decoded − x‖ / ‖x‖ of one pass, on Gaussian data and on Student's t
//! with three degrees of freedom, whose rare large values are hard for a scale per block.
//!
//! One pass is one hop of a ring: each member decodes the sum of its predecessor, adds its own part
//! and encodes the new sum. So both speeds together bound what a ring can do with one core.

use std::{convert::Infallible, hint::black_box, io::Write};

use intellect_protocol::{base::rng::Rng, ring::codec::Codec};
use serde::Serialize;
use serde_json::json;

use super::{BenchError, median};
use crate::manifest::codec_name;

/// The figures of one codec, by their names in JSON.
#[derive(Clone, Copy, Debug, Serialize)]
struct Figures {
    /// The codec that they are of, which JSON has as the key.
    #[serde(skip)]
    codec: Codec,
    /// Speed of encoding, in GB/s of f32 that are read.
    encode_gb_per_s: f64,
    /// Speed of decoding, in GB/s of f32 that are written.
    decode_gb_per_s: f64,
    /// Speed of decoding onto a sum, in GB/s of f32.
    decode_add_gb_per_s: f64,
    /// Relative L2 error on Gaussian data.
    error_gaussian: f64,
    /// Relative L2 error on Student's t.
    error_student_t3: f64,
}

/// Measures both codecs, and prints a table or one JSON object.
///
/// # Errors
/// Standard output is closed, or a codec refuses these data, which is a mistake of this program.
pub(crate) fn run(as_json: bool, out: &mut dyn Write) -> Result<(), BenchError> {
    let mut rng = Rng::new(SEED);
    let gaussian: Vec<f32> = (0..ELEMENTS).map(|_| gauss(&mut rng) as f32).collect();
    let student: Vec<f32> = (0..SAMPLES).map(|_| student_t3(&mut rng) as f32).collect();
    let copy = copy_speed(&gaussian);
    let measure = |codec| measure(codec, &gaussian, &student);
    let figures = [measure(Codec::F32)?, measure(Codec::Int8)?];
    if as_json {
        let named = |f: &Figures| (codec_name(f.codec).to_owned(), json!(f));
        let codecs: serde_json::Map<_, _> = figures.iter().map(named).collect();
        writeln!(out, "{}", json!({ "copy_gb_per_s": copy, "codecs": codecs }))?;
        return Ok(());
    }
    writeln!(out, "one core, {} MiB of f32, median of {RUNS} runs", (4 * ELEMENTS) >> 20)?;
    writeln!(out, "copy    {copy:>6.2} GB/s")?;
    writeln!(
        out,
        "codec   encode  decode  decode+add (GB/s of f32)   error: Gaussian  Student t3"
    )?;
    for f in &figures {
        writeln!(
            out,
            "{:<6}  {:>6.2}  {:>6.2}  {:>10.2}  {:>31.4} %  {:>8.4} %",
            codec_name(f.codec),
            f.encode_gb_per_s,
            f.decode_gb_per_s,
            f.decode_add_gb_per_s,
            100.0 * f.error_gaussian,
            100.0 * f.error_student_t3
        )?;
    }
    Ok(())
}

/// Measures one codec. Speeds are of `values`; both errors are of as many numbers each.
fn measure(codec: Codec, values: &[f32], student: &[f32]) -> Result<Figures, BenchError> {
    let mut bytes = vec![0; codec.encoded_bytes(values.len())];
    let mut decoded = vec![0.0; values.len()];
    let encode = median(RUNS, || codec.encode(black_box(values), &mut bytes)).map_err(refused)?;
    let decode = median(RUNS, || codec.decode(black_box(&bytes), &mut decoded)).map_err(refused)?;
    let decode_add =
        median(RUNS, || codec.decode_add(black_box(&bytes), &mut decoded)).map_err(refused)?;
    let speed = |time: std::time::Duration| speed(values.len(), time);
    Ok(Figures {
        codec,
        encode_gb_per_s: speed(encode),
        decode_gb_per_s: speed(decode),
        decode_add_gb_per_s: speed(decode_add),
        error_gaussian: error(codec, &values[..SAMPLES])?,
        error_student_t3: error(codec, student)?,
    })
}

/// Speed of copying `values`, in GB/s of what is read. What is written is not counted a second
/// time, as for a codec.
fn copy_speed(values: &[f32]) -> f64 {
    let mut target = vec![0.0; values.len()];
    let time = median(RUNS, || {
        target.copy_from_slice(black_box(values));
        black_box(&mut target);
        Ok::<(), Infallible>(())
    });
    speed(values.len(), time.unwrap_or_default())
}

/// ‖decoded − x‖₂ / ‖x‖₂ of one pass through the codec.
fn error(codec: Codec, values: &[f32]) -> Result<f64, BenchError> {
    let mut bytes = vec![0; codec.encoded_bytes(values.len())];
    let mut decoded = vec![0.0; values.len()];
    codec.encode(values, &mut bytes).map_err(refused)?;
    codec.decode(&bytes, &mut decoded).map_err(refused)?;
    let square = |x: f32| f64::from(x) * f64::from(x);
    let norm: f64 = values.iter().map(|x| square(*x)).sum();
    let lost: f64 = values.iter().zip(&decoded).map(|(x, y)| square(x - y)).sum();
    Ok((lost / norm).sqrt())
}

/// Bytes of `elements` f32 per second, in GB/s.
fn speed(elements: usize, time: std::time::Duration) -> f64 {
    4.0 * elements as f64 / time.as_secs_f64() / 1e9
}

/// The error of a codec that refuses data of our own. Encoding and decoding fail by two types,
/// which people need not tell apart here.
fn refused(error: impl std::error::Error + Send + Sync + 'static) -> BenchError {
    BenchError::Codec(Box::new(error))
}

/// A normal random number by Box–Muller.
fn gauss(rng: &mut Rng) -> f64 {
    // 1 − u, because u may be 0, whose logarithm is infinite.
    (-2.0 * (1.0 - rng.unit()).ln()).sqrt() * (std::f64::consts::TAU * rng.unit()).cos()
}

/// Student's t with three degrees of freedom: z / √(χ²₃ / 3), where χ²₃ is the sum of three squares
/// of normal numbers.
fn student_t3(rng: &mut Rng) -> f64 {
    let chi: f64 = (0..3).map(|_| gauss(rng).powi(2)).sum();
    gauss(rng) / (chi / 3.0).sqrt()
}

/// 16 MiB: larger than a core's own caches, as an update is.
const ELEMENTS: usize = 1 << 22;
/// How many numbers each error is measured on: so many that rare large values are among them.
const SAMPLES: usize = 1 << 20;
/// Number of runs behind a median.
const RUNS: usize = 21;
/// The seed of the numbers; any other would do.
const SEED: u64 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_data_has_the_shapes_that_the_table_names() {
        let mut rng = Rng::new(SEED);
        let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
        let fourth = |draw: fn(&mut Rng) -> f64, rng: &mut Rng| {
            let values: Vec<f64> = (0..100_000).map(|_| draw(rng)).collect();
            let square: Vec<f64> = values.iter().map(|x| x * x).collect();
            let quad: Vec<f64> = square.iter().map(|x| x * x).collect();
            (mean(&values), mean(&square), mean(&quad) / mean(&square).powi(2))
        };
        let (centre, variance, kurtosis) = fourth(gauss, &mut rng);
        assert!(centre.abs() < 0.02 && (variance - 1.0).abs() < 0.03, "{centre} {variance}");
        assert!((kurtosis - 3.0).abs() < 0.2, "{kurtosis}");
        let (centre, variance, kurtosis) = fourth(student_t3, &mut rng);
        // Its variance is 3, its kurtosis infinite.
        assert!(centre.abs() < 0.05 && (1.5..6.0).contains(&variance), "{centre} {variance}");
        assert!(kurtosis > 10.0, "{kurtosis}");
    }

    #[test]
    fn f32_loses_nothing_and_int8_little() {
        let mut rng = Rng::new(SEED);
        let values: Vec<f32> = (0..10_000).map(|_| gauss(&mut rng) as f32).collect();
        assert_eq!(error(Codec::F32, &values).unwrap(), 0.0);
        let lost = error(Codec::Int8, &values).unwrap();
        assert!((1e-4..0.0075).contains(&lost), "{lost}");
    }
}
