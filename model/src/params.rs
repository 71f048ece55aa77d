//! Copies between the flat parameters, which peers agree on, and the tensors of a device.
//!
//! Canonical order is the order of [`Arch::specs`](crate::arch::Arch::specs), and a tensor holds
//! consecutive parameters. So both directions are copies, tensor after tensor, once per epoch.

use burn_backend::tensor::{Device, FloatTensor};
use burn_backend::{Backend, ExecutionError, TensorData, read_sync};
use thiserror::Error;

/// Why parameters could not be moved. Nothing of it is cured by trying again.
#[derive(Debug, Error)]
pub enum ParamsError {
    /// The slice does not have one number per parameter: the caller's mistake, or the state of
    /// another model.
    #[error("{found} parameters given, the model has {expected}")]
    Length {
        /// How many numbers the caller gave.
        found: usize,
        /// How many parameters the model has.
        expected: usize,
    },
    /// The device failed to return a tensor.
    #[error("cannot read parameters from the device: {0:?}")]
    Device(ExecutionError),
    /// A tensor is not made of f32.
    #[error("the device holds parameters in another format than f32")]
    Format,
}

/// The number of elements of all tensors of these shapes.
#[must_use]
pub fn count(shapes: &[Vec<usize>]) -> usize {
    shapes.iter().map(|shape| shape.iter().product::<usize>()).sum()
}

/// Creates tensors of these shapes from consecutive values of `theta`. Each tensor copies its
/// values, so for a moment they are in memory twice.
///
/// # Errors
/// [`ParamsError::Length`]
pub fn upload<B: Backend>(
    shapes: &[Vec<usize>],
    theta: &[f32],
    device: &Device<B>,
) -> Result<Vec<FloatTensor<B>>, ParamsError> {
    expect_length(theta.len(), count(shapes))?;
    let mut rest = theta;
    let tensors = shapes.iter().map(|shape| {
        let (values, later) = rest.split_at(shape.iter().product());
        rest = later;
        B::float_from_data(TensorData::new(values.to_vec(), shape.clone()), device)
    });
    Ok(tensors.collect())
}

/// Copies the values of `tensors` into `theta`, one tensor after the other.
///
/// # Errors
/// Any of [`ParamsError`]; `theta` may then be partly overwritten.
pub fn download<B: Backend>(
    tensors: &[FloatTensor<B>],
    theta: &mut [f32],
) -> Result<(), ParamsError> {
    let found = theta.len();
    let mut at = 0;
    for tensor in tensors {
        let data = read::<B>(tensor.clone())?;
        let values = data.as_slice::<f32>().map_err(|_| ParamsError::Format)?;
        let expected = at + values.len();
        let place = theta.get_mut(at..expected).ok_or(ParamsError::Length { found, expected })?;
        place.copy_from_slice(values);
        at = expected;
    }
    expect_length(found, at)
}

/// A tensor's values on the host. It waits until the device has computed them.
pub(crate) fn read<B: Backend>(tensor: FloatTensor<B>) -> Result<TensorData, ParamsError> {
    read_sync(B::float_into_data(tensor)).map_err(ParamsError::Device)
}

/// The same values as a list of f32.
pub(crate) fn values<B: Backend>(tensor: FloatTensor<B>) -> Result<Vec<f32>, ParamsError> {
    read::<B>(tensor)?.into_vec().map_err(|_| ParamsError::Format)
}

/// Refuses a host buffer that is not as long as all tensors together.
fn expect_length(found: usize, expected: usize) -> Result<(), ParamsError> {
    if found == expected { Ok(()) } else { Err(ParamsError::Length { found, expected }) }
}

#[cfg(test)]
mod tests {
    use burn_flex::Flex;

    use super::*;

    #[test]
    fn flat_parameters_survive_the_round_trip() {
        let shapes = [vec![3], vec![2, 5], vec![1, 1]];
        let theta: Vec<f32> = (0..14).map(|i| i as f32 - 3.5).collect();
        let tensors = upload::<Flex>(&shapes, &theta, &Default::default()).unwrap();
        let mut back = vec![0.0; 14];
        download::<Flex>(&tensors, &mut back).unwrap();
        assert_eq!(theta, back);
    }

    #[test]
    fn a_slice_of_another_length_is_refused() {
        let shapes = [vec![3], vec![2, 5]];
        let upload = |count: usize| upload::<Flex>(&shapes, &vec![1.0; count], &Default::default());
        for count in [0, 12, 14] {
            assert!(matches!(upload(count), Err(ParamsError::Length { expected: 13, .. })));
        }
        let tensors = upload(13).unwrap();
        for count in [0, 12, 14] {
            let result = download::<Flex>(&tensors, &mut vec![0.0; count]);
            assert!(matches!(result, Err(ParamsError::Length { .. })), "{count}");
        }
    }
}
