//! Tensors in a `.pth` file of PyTorch, the form in which RWKV is released.
//!
//! The file is a zip archive: `NAME/data.pkl` describes the tensors, and the numbers of each storage
//! are a member `NAME/data/KEY` of their own, as they are in memory. To load such a file with Python
//! is to run what it says. Here nothing of it is run, as `pickle` explains, and the numbers are only found, so
//! that they can be read in pieces.

mod archive;
mod pickle;

use std::fs::File;
use std::io;
use std::path::Path;

use safetensors::tensor::TensorInfo;
use thiserror::Error;

use archive::Archive;
use pickle::PickledTensor;

/// Why a file is not a state dict of PyTorch that can be read here.
#[derive(Debug, Error)]
pub enum PthError {
    /// The file has no end of a zip archive.
    #[error(
        "it is no .pth of PyTorch 1.6 or later, which is a zip archive: fetch it again if it was cut off, or \
         load an older one there and save it again; of safetensors, name the folder"
    )]
    NoArchive,
    /// The archive or its pickle contradicts itself.
    #[error("it is damaged, {0}: fetch it again")]
    Damaged(&'static str),
    /// A member is compressed or encrypted, which PyTorch does not do.
    #[error("its member {0:?} is compressed or encrypted: save the model with torch.save")]
    Packed(String),
    /// A member is longer than that of any model.
    #[error(
        "its member {member:?} has {bytes} bytes, of which at most {most} are read: save only the tensors"
    )]
    Long {
        /// The name of the member in the archive.
        member: String,
        /// How many bytes the member has.
        bytes: u64,
        /// How many bytes are read at most.
        most: u64,
    },
    /// The pickle has something else than a state dict has.
    #[error(
        "it holds {0}: a .pth with anything but tensors is not read; save the state dict of the model alone"
    )]
    Foreign(String),
    /// The numbers of a tensor are in another order than its shape says.
    #[error("{0} is a view with gaps or in another order: save the tensor as tensor.contiguous()")]
    View(String),
    /// The machine that saved the file puts the highest byte of a number first.
    #[error("its numbers are big endian: load it with PyTorch on this machine, and save it again")]
    BigEndian,
    /// The operating system refuses to read the file.
    #[error("the system does not read it: {0}")]
    Io(#[from] io::Error),
}

/// Finds the tensors of a `.pth` file by their names in the state dict; their numbers are F32, BF16 or F16, and lie in
/// the file.
pub(crate) fn open(path: &Path) -> Result<(File, Vec<(String, TensorInfo)>), PthError> {
    let archive = Archive::open(File::open(path)?)?;
    let suffix = "/data.pkl";
    let folder = archive.names().find_map(|name| name.strip_suffix(suffix));
    let folder = folder.ok_or(PthError::Damaged("it has no data.pkl"))?.to_owned();
    if let Some(order) = archive.read(&format!("{folder}/byteorder"), ORDER_BYTES_MAX)?
        && order.trim_ascii() != b"little"
    {
        return Err(PthError::BigEndian);
    }
    let pickle = archive.read(&format!("{folder}{suffix}"), PICKLE_BYTES_MAX)?.unwrap_or_default();
    let mut tensors = Vec::new();
    for (name, pickled) in pickle::tensors(&pickle)? {
        let data_offsets = offsets(&archive, &folder, &name, &pickled)?;
        let PickledTensor { dtype, shape, .. } = pickled;
        tensors.push((name, TensorInfo { dtype, shape, data_offsets }));
    }
    Ok((archive.file, tensors))
}

/// Where the numbers of a tensor begin and end in the file.
fn offsets(
    archive: &Archive,
    folder: &str,
    name: &str,
    tensor: &PickledTensor,
) -> Result<(usize, usize), PthError> {
    let PickledTensor { key, dtype, held, first, shape, in_order } = tensor;
    if !in_order {
        return Err(PthError::View(name.to_owned()));
    }
    let place = archive.place(&format!("{folder}/data/{key}"))?;
    let place = place.ok_or(PthError::Damaged("the numbers of a tensor are missing"))?;
    let size = dtype.bitsize() as u64 / 8;
    if held.checked_mul(size) != Some(place.end - place.start) {
        return Err(PthError::Damaged("a storage has another length than the pickle says"));
    }
    // The pickle has put the tensor inside of its storage, whose bytes were counted. The casts are exact: a place in a
    // file has 64 bits.
    let begin = (place.start + first * size) as usize;
    Ok((begin, begin + shape.iter().product::<usize>() * size as usize))
}

/// The longest description of tensors: that of a thousand tensors has 200 kB.
const PICKLE_BYTES_MAX: u64 = 4 << 20;
/// The longest name of an order of bytes.
const ORDER_BYTES_MAX: u64 = 64;

#[cfg(test)]
pub(super) mod tests;
