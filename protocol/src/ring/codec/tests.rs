//! Rounding error, golden bytes and decoding faults of the codecs.

use super::*;
use crate::base::rng::Rng;

fn gaussian(rng: &mut Rng) -> f64 {
    (-2.0 * (1.0 - rng.unit()).ln()).sqrt() * (std::f64::consts::TAU * rng.unit()).cos()
}

fn student(rng: &mut Rng) -> f64 {
    let chi: f64 = (0..3).map(|_| gaussian(rng).powi(2)).sum();
    gaussian(rng) / (chi / 3.0).sqrt()
}

fn encoded(codec: Codec, values: &[f32]) -> Vec<u8> {
    let mut bytes = vec![0xee; codec.encoded_bytes(values.len())];
    codec.encode(values, &mut bytes).unwrap();
    bytes
}

fn decoded(codec: Codec, bytes: &[u8], elements: usize) -> Vec<f32> {
    let mut values = vec![7.0; elements];
    codec.decode(bytes, &mut values).unwrap();
    values
}

/// ‖decode(encode(x)) − x‖ / ‖x‖.
fn relative_error(values: &[f32]) -> f64 {
    let back = decoded(Codec::Int8, &encoded(Codec::Int8, values), values.len());
    let square = |x: f64| x * x;
    let error: f64 = values.iter().zip(&back).map(|(x, y)| square(f64::from(x - y))).sum();
    let norm: f64 = values.iter().map(|x| square(f64::from(*x))).sum();
    (error / norm).sqrt()
}

/// The targets of the project for one pass through the codec.
#[test]
fn int8_error_is_within_its_targets() {
    let mut rng = Rng::new(1);
    let gaussian: Vec<f32> = (0..1 << 20).map(|_| gaussian(&mut rng) as f32 * 1e-3).collect();
    let student: Vec<f32> = (0..1 << 20).map(|_| student(&mut rng) as f32 * 1e-3).collect();
    let errors = (relative_error(&gaussian), relative_error(&student));
    println!(
        "relative L2 error: Gaussian {:.4} %, t(3) {:.4} %",
        100.0 * errors.0,
        100.0 * errors.1
    );
    assert!((0.005..=0.0075).contains(&errors.0), "{errors:?}");
    assert!((0.005..=0.02).contains(&errors.1), "{errors:?}");
}

/// Computed with CPython: `struct` for the roundings to f32, `round` (half to even) for q.
#[test]
fn int8_bytes_are_golden() {
    let hex = |values: &[f32]| -> String {
        encoded(Codec::Int8, values).iter().map(|byte| format!("{byte:02x}")).collect()
    };
    let ordinary = [1.0, -1.0, 0.5, -0.25, 0.0, 0.004, -0.003_937_008, 0.3];
    let ties = [127.0, 0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 126.5];
    assert_eq!(hex(&ordinary), "0402013c7f8140e000010026");
    assert_eq!(hex(&ties), "0000803f7f00020200fefe7e");
    assert_eq!(hex(&[1e-31, -9.9e-31, 0.0, -0.0]), "0000000000000000");
}

#[test]
fn f32_bytes_are_little_endian() {
    assert_eq!(encoded(Codec::F32, &[1.0, -2.5]), [0, 0, 0x80, 0x3f, 0, 0, 0x20, 0xc0]);
}

#[test]
fn sizes_count_one_scale_for_each_begun_block() {
    assert_eq!(Codec::Int8.encoded_bytes(0), 0);
    assert_eq!(Codec::Int8.encoded_bytes(1), 5);
    assert_eq!(Codec::Int8.encoded_bytes(256), 260);
    assert_eq!(Codec::Int8.encoded_bytes(257), 265);
    assert_eq!(Codec::F32.encoded_bytes(257), 1028);
}

/// The extremes of f32: both codecs accept every finite value and stay finite.
#[test]
fn extremes_survive() {
    let values = [f32::MAX, f32::MIN, f32::MIN_POSITIVE, 1e-45, 0.0, -0.0, 1e30];
    assert_eq!(decoded(Codec::F32, &encoded(Codec::F32, &values), 7), values);
    let back = decoded(Codec::Int8, &encoded(Codec::Int8, &values), 7);
    assert!(back.iter().all(|value| value.is_finite()), "{back:?}");
    assert!((back[0] / f32::MAX - 1.0).abs() < 1e-6 && back[1] == -back[0], "{back:?}");
}

#[test]
fn what_is_not_finite_is_an_error_with_its_index() {
    for codec in [Codec::F32, Codec::Int8] {
        for bad in [f32::NAN, -f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            for index in [0, 1, 17, 255, 256, 511, 520, 599] {
                let mut values = vec![0.25; 600];
                values[index] = bad;
                let mut bytes = vec![0; codec.encoded_bytes(600)];
                let result = codec.encode(&values, &mut bytes);
                assert_eq!(result, Err(EncodeError { index }), "{codec:?} {bad}");
            }
        }
    }
}

#[test]
fn f32_that_is_not_finite_is_a_fault() {
    for bad in [f32::NAN, f32::INFINITY] {
        let mut values = vec![1.0; 300];
        let mut bytes = encoded(Codec::F32, &values);
        bytes[4 * 299..].copy_from_slice(&bad.to_le_bytes());
        let result = Codec::F32.decode_add(&bytes, &mut values);
        assert_eq!(result, Err(DecodeError::NonFinite { index: 299 }));
    }
}

#[test]
fn bytes_that_no_encoder_writes_are_faults() {
    let fault_of = |scale: f32, byte: u8| {
        let mut bytes = vec![1; Codec::Int8.encoded_bytes(300)];
        bytes[..4].copy_from_slice(&1.0_f32.to_le_bytes());
        bytes[260..264].copy_from_slice(&scale.to_le_bytes());
        bytes[290] = byte;
        Codec::Int8.decode(&bytes, &mut [0.0; 300])
    };
    assert_eq!(fault_of(1.0, 0x81), Ok(()));
    assert_eq!(fault_of(0.0, 5), Ok(()));
    assert_eq!(fault_of(f32::MIN_POSITIVE, 5), Ok(()));
    assert_eq!(fault_of(1.0, 0x80), Err(DecodeError::Byte { block: 1 }));
    let subnormal = f32::MIN_POSITIVE / 2.0;
    for scale in [-1.0, -0.0, subnormal, f32::INFINITY, f32::NAN, f32::MAX, f32::MAX / 127.0] {
        assert_eq!(fault_of(scale, 5), Err(DecodeError::Scale { block: 1 }), "{scale}");
    }
}

#[test]
fn a_wrong_length_is_a_fault() {
    for found in [0, 259, 261, 520] {
        let result = Codec::Int8.decode(&vec![0; found], &mut [0.0; 256]);
        assert_eq!(result, Err(DecodeError::Length { expected: 260, found }));
    }
}

#[test]
fn decode_add_adds_what_decode_gives() {
    let mut rng = Rng::new(2);
    for codec in [Codec::F32, Codec::Int8] {
        let values: Vec<f32> = (0..777).map(|_| gaussian(&mut rng) as f32).collect();
        let base: Vec<f32> = (0..777).map(|_| gaussian(&mut rng) as f32).collect();
        let bytes = encoded(codec, &values);
        let mut sum = base.clone();
        codec.decode_add(&bytes, &mut sum).unwrap();
        let expected: Vec<f32> =
            base.iter().zip(decoded(codec, &bytes, 777)).map(|(x, y)| x + y).collect();
        assert_eq!(sum, expected);
    }
}

/// What a voter checks before it votes: a long range, with the index counted through all of it.
#[test]
fn validate_finds_what_decode_would() {
    for codec in [Codec::F32, Codec::Int8] {
        let values = vec![0.5; 2 * SCRATCH + 300];
        let mut bytes = encoded(codec, &values);
        assert_eq!(codec.validate(&bytes, values.len()), Ok(()));
        assert!(codec.validate(&bytes[1..], values.len()).is_err());
        let last = bytes.len() - 4;
        match codec {
            Codec::F32 => bytes[last..].copy_from_slice(&f32::NAN.to_le_bytes()),
            Codec::Int8 => bytes[last] = 0x80,
        }
        let expected = codec.decode(&bytes, &mut vec![0.0; values.len()]);
        assert!(expected.is_err());
        assert_eq!(codec.validate(&bytes, values.len()), expected);
    }
}
