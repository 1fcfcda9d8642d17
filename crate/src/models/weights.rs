//! Where a model's weights come from while it is put together: a file that was loaded, or zeros.

use crate::error::{Error, Result};
use crate::format::TensorType;
use crate::kernels::{BlockShape, BlockWeight};
use crate::quant::dequantize;
use burn::tensor::{Device, Tensor, TensorData};
use std::collections::BTreeMap;

/// Gives a model its tensors by their GGUF names, such as `blk.0.attn_q.weight`.
pub trait WeightSource {
    /// Matrices of the same width on top of each other: names and rows from the top to the bottom.
    ///
    /// # Errors
    /// `InvalidFile` naming the tensor when one is missing or has another shape.
    fn stack(&mut self, matrices: &[(String, usize)], columns: usize) -> Result<BlockWeight>;

    /// The matrix `name`, `[rows, columns]`.
    ///
    /// # Errors
    /// As [`WeightSource::stack`].
    fn matrix(&mut self, name: &str, rows: usize, columns: usize) -> Result<BlockWeight> {
        self.stack(&[(name.to_owned(), rows)], columns)
    }

    /// The vector `name`, `[length]`, as `f32`.
    ///
    /// # Errors
    /// As [`WeightSource::stack`].
    fn vector(&mut self, name: &str, length: usize) -> Result<Tensor<1>>;

    /// Whether there is a tensor `name`.
    fn contains(&self, name: &str) -> bool;
}

/// A source in which every tensor exists and is zero: what a config's `init` uses.
#[derive(Debug)]
pub struct Zeros<'a>(pub &'a Device);

impl WeightSource for Zeros<'_> {
    fn stack(&mut self, matrices: &[(String, usize)], columns: usize) -> Result<BlockWeight> {
        let rows = matrices.iter().map(|(_, rows)| rows).sum();
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
///
/// Matrices that a model stacks wait on the host until the last of them has come, then go to the device together.
#[derive(Debug)]
pub struct LoadedWeights {
    /// The names of the matrices that one is stacked with, itself included, from the top to the bottom; a single name where it stands alone.
    stacked_with: fn(&str) -> Vec<String>,
    /// Matrices whose stack is not whole.
    waiting: BTreeMap<String, (BlockShape, Vec<u8>)>,
    /// By the name of the uppermost.
    stacks: BTreeMap<String, Stack>,
    vectors: BTreeMap<String, Tensor<1>>,
}

/// Matrices on top of each other.
#[derive(Debug)]
struct Stack {
    shapes: Vec<BlockShape>,
    weight: BlockWeight,
}

impl LoadedWeights {
    /// No weights yet. `stacked_with` gives the names of the matrices that one is stacked with, itself included, from the top to the bottom.
    pub fn new(stacked_with: fn(&str) -> Vec<String>) -> Self {
        Self { stacked_with, waiting: BTreeMap::new(), stacks: BTreeMap::new(), vectors: BTreeMap::new() }
    }

    /// Takes a matrix, in the file's layout; when its stack is whole, that goes to `device`.
    ///
    /// # Errors
    /// As [`BlockWeight::stack`].
    pub fn insert_matrix(&mut self, name: &str, shape: BlockShape, blocks: Vec<u8>, device: &Device) -> Result<()> {
        let names = (self.stacked_with)(name);
        self.waiting.insert(name.to_owned(), (shape, blocks));
        if names.iter().any(|name| !self.waiting.contains_key(name)) {
            return Ok(());
        }
        let matrices: Vec<_> = names.iter().filter_map(|name| self.waiting.remove(name)).collect();
        let blocks: Vec<_> = matrices.iter().map(|(shape, blocks)| (*shape, blocks.as_slice())).collect();
        let weight = BlockWeight::stack(&blocks, device)?;
        let shapes = matrices.iter().map(|(shape, _)| *shape).collect();
        self.stacks.insert(names[0].clone(), Stack { shapes, weight });
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
}

impl WeightSource for LoadedWeights {
    fn stack(&mut self, matrices: &[(String, usize)], columns: usize) -> Result<BlockWeight> {
        let stack = matrices.first().and_then(|(name, _)| self.stacks.remove(name));
        let Some(Stack { shapes, weight }) = stack else {
            let absent = matrices.iter().find(|(name, _)| !self.waiting.contains_key(name)).or(matrices.first());
            return Err(missing(absent.map_or("", |(name, _)| name), "matrix"));
        };
        for ((name, rows), shape) in matrices.iter().zip(&shapes) {
            if (shape.rows, shape.columns) != (*rows, columns) {
                return Err(Error::InvalidFile {
                    format: "GGUF",
                    field: format!("tensor {name:?} shape"),
                    reason: format!(
                        "[{}, {}] where the metadata asks for [{rows}, {columns}]",
                        shape.rows, shape.columns
                    ),
                });
            }
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
        self.stacks.contains_key(name) || self.vectors.contains_key(name)
    }
}

fn missing(name: &str, kind: &str) -> Error {
    Error::InvalidFile {
        format: "GGUF",
        field: format!("tensor {name:?}"),
        reason: format!("the model needs this {kind} and the file has none"),
    }
}
