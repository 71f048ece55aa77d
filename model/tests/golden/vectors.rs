//! A file of vectors: named tensors, and the configuration of the model that made them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use safetensors::{Dtype, SafeTensors};
use serde_json::Value;

/// A file of vectors, read whole: its metadata, and its f32 and int64 tensors by name.
pub(crate) struct Vectors {
    path: PathBuf,
    metadata: BTreeMap<String, String>,
    floats: BTreeMap<String, Tensor<f32>>,
    ints: BTreeMap<String, Tensor<i32>>,
}

/// Values in row-major order, with their shape.
pub(crate) struct Tensor<T> {
    pub(crate) shape: Vec<usize>,
    pub(crate) values: Vec<T>,
}

impl Vectors {
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let bytes = std::fs::read(path)?;
        let (_, metadata) = SafeTensors::read_metadata(&bytes)?;
        let metadata = metadata.metadata().clone().unwrap_or_default().into_iter().collect();
        let (mut floats, mut ints) = (BTreeMap::new(), BTreeMap::new());
        for (name, tensor) in SafeTensors::deserialize(&bytes)?.tensors() {
            let (shape, data) = (tensor.shape().to_vec(), tensor.data());
            match tensor.dtype() {
                Dtype::F32 => {
                    let values =
                        data.as_chunks().0.iter().map(|word| f32::from_le_bytes(*word)).collect();
                    floats.insert(name, Tensor { shape, values });
                }
                Dtype::I64 => {
                    let words = data.as_chunks().0.iter().map(|word| i64::from_le_bytes(*word));
                    let values = words.map(i32::try_from).collect::<Result<_, _>>()?;
                    ints.insert(name, Tensor { shape, values });
                }
                other => anyhow::bail!("{name} is made of {other:?}, not of f32 or int64"),
            }
        }
        Ok(Self { path: path.to_owned(), metadata, floats, ints })
    }

    pub(crate) fn family(&self) -> Result<&str> {
        self.text("family")
    }

    /// The configuration in the format of the program that made the file.
    pub(crate) fn config(&self) -> Result<Value> {
        serde_json::from_str(self.text("config")?).context("the config in the metadata is not JSON")
    }

    pub(crate) fn text(&self, key: &str) -> Result<&str> {
        let text = self.metadata.get(key).with_context(|| format!("no {key} in the metadata"))?;
        Ok(text)
    }

    /// The name of the file without its extension, by which the other files refer to it.
    pub(crate) fn stem(&self) -> String {
        self.path.file_stem().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// The JSON file `name` in the same folder, if it exists.
    pub(crate) fn beside(&self, name: &str) -> Result<Option<Value>> {
        let path = self.path.with_file_name(name);
        if !path.is_file() {
            return Ok(None);
        }
        let text = std::fs::read_to_string(path)?;
        Ok(Some(serde_json::from_str(&text).with_context(|| format!("{name} is not JSON"))?))
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.floats.contains_key(name) || self.ints.contains_key(name)
    }

    pub(crate) fn floats(&self, name: &str) -> Result<&Tensor<f32>> {
        self.floats.get(name).with_context(|| format!("no f32 tensor {name}"))
    }

    pub(crate) fn ints(&self, name: &str) -> Result<&Tensor<i32>> {
        self.ints.get(name).with_context(|| format!("no int64 tensor {name}"))
    }

    /// The names of the f32 tensors that begin with `prefix`, with the prefix removed.
    pub(crate) fn names<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = &'a str> {
        self.floats.keys().filter_map(move |name| name.strip_prefix(prefix))
    }
}

/// A number of a configuration.
pub(crate) fn number(config: &Value, key: &str) -> Result<f64> {
    config[key].as_f64().with_context(|| format!("the config has no number {key}"))
}

/// A size of a configuration; 0 and sizes from 2^31 on are errors.
pub(crate) fn size(config: &Value, key: &str) -> Result<usize> {
    let size = config[key].as_u64().with_context(|| format!("the config has no size {key}"))?;
    ensure!(size > 0 && size < 1 << 31, "the config's {key} is {size}");
    Ok(size as usize)
}
