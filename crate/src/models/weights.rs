//! Where a model's weights come from while it is put together: a file that was loaded, or zeros.

use crate::error::{Error, Result};
use crate::format::TensorType;
use crate::kernels::{BlockShape, BlockWeight};
use crate::quant::dequantize;
use burn::tensor::{Device, Tensor, TensorData};
use std::collections::BTreeMap;

/// Gives a model its tensors by their GGUF names, such as `blk.0.attn_q.weight`.
pub trait WeightSource {
    /// The matrix `name`, `[rows, columns]`.
    ///
    /// # Errors
    /// `InvalidFile` naming the tensor when it is missing or has another shape.
    fn matrix(&mut self, name: &str, rows: usize, columns: usize) -> Result<BlockWeight>;

    /// The vector `name`, `[length]`, as `f32`.
    ///
    /// # Errors
    /// As [`WeightSource::matrix`].
    fn vector(&mut self, name: &str, length: usize) -> Result<Tensor<1>>;

    /// Whether there is a tensor `name`.
    fn contains(&self, name: &str) -> bool;
}

/// A source in which every tensor exists and is zero: what a config's `init` uses.
#[derive(Debug)]
pub struct Zeros<'a>(pub &'a Device);

impl WeightSource for Zeros<'_> {
    fn matrix(&mut self, _name: &str, rows: usize, columns: usize) -> Result<BlockWeight> {
        BlockWeight::zeros(BlockShape { ty: TensorType::F32, rows, columns }, self.0)
    }

    fn vector(&mut self, _name: &str, length: usize) -> Result<Tensor<1>> {
        Ok(Tensor::zeros([length], self.0))
    }

    fn contains(&self, _name: &str) -> bool {
        true
    }
}

/// Tensors that a file held, already on their device; each is given out once.
#[derive(Debug, Default)]
pub struct LoadedWeights {
    matrices: BTreeMap<String, BlockWeight>,
    vectors: BTreeMap<String, Tensor<1>>,
}

impl LoadedWeights {
    /// Puts a matrix, in the file's layout, onto `device`.
    ///
    /// # Errors
    /// As [`BlockWeight::from_blocks`].
    pub fn insert_matrix(&mut self, name: &str, shape: BlockShape, blocks: &[u8], device: &Device) -> Result<()> {
        self.matrices.insert(name.to_owned(), BlockWeight::from_blocks(shape, blocks, device)?);
        Ok(())
    }

    /// Decodes a vector of `length` values to `f32` and puts it onto `device`.
    ///
    /// # Errors
    /// `InvalidFile` when `bytes` has another length than `length` values of type `ty`.
    pub fn insert_vector(
        &mut self,
        name: &str,
        ty: TensorType,
        length: usize,
        bytes: &[u8],
        device: &Device,
    ) -> Result<()> {
        let mut values = vec![0.0; length];
        dequantize(ty, bytes, &mut values)?;
        let data = TensorData::new(values, [length]);
        let vector = device.memory_persistent_allocations(data, |data| Tensor::from_data(data, device));
        self.vectors.insert(name.to_owned(), vector);
        Ok(())
    }

    /// Bytes that the tensors which were not yet given out take on the device.
    pub fn device_bytes(&self) -> usize {
        self.matrices.values().map(BlockWeight::device_bytes).sum::<usize>()
            + self.vectors.values().map(|vector| 4 * vector.dims()[0]).sum::<usize>()
    }
}

impl WeightSource for LoadedWeights {
    fn matrix(&mut self, name: &str, rows: usize, columns: usize) -> Result<BlockWeight> {
        let weight = self.matrices.remove(name).ok_or_else(|| missing(name, "matrix"))?;
        let shape = weight.shape();
        if (shape.rows, shape.columns) != (rows, columns) {
            return Err(Error::InvalidFile {
                format: "GGUF",
                field: format!("tensor {name:?} shape"),
                reason: format!("[{}, {}] where the metadata asks for [{rows}, {columns}]", shape.rows, shape.columns),
            });
        }
        Ok(weight)
    }

    fn vector(&mut self, name: &str, length: usize) -> Result<Tensor<1>> {
        let vector = self.vectors.remove(name).ok_or_else(|| missing(name, "vector"))?;
        if vector.dims() != [length] {
            return Err(Error::InvalidFile {
                format: "GGUF",
                field: format!("tensor {name:?} shape"),
                reason: format!("{} values where the metadata asks for {length}", vector.dims()[0]),
            });
        }
        Ok(vector)
    }

    fn contains(&self, name: &str) -> bool {
        self.matrices.contains_key(name) || self.vectors.contains_key(name)
    }
}

fn missing(name: &str, kind: &str) -> Error {
    Error::InvalidFile {
        format: "GGUF",
        field: format!("tensor {name:?}"),
        reason: format!("the model needs this {kind} and the file has none"),
    }
}
