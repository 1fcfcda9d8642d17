//! A matrix of quantized blocks on a device: packed words and scales on a GPU, the file's own bytes on the CPU.

use crate::error::Result;
use crate::format::TensorType;
use crate::quant::pack::{self, BLOCK_COLUMNS, PANEL_ROWS, PackedFormat};
use burn::backend::{DispatchDevice, DispatchTensor};
use burn::module::Module;
use burn::tensor::{DType, Device, Int, Tensor, TensorData};

/// Type and shape of a matrix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct BlockShape {
    /// How the values are encoded.
    pub ty: TensorType,
    /// Outputs of a projection, or entries of a vocabulary.
    pub rows: usize,
    /// Inputs of a projection: the contiguous dimension, a multiple of 32 and of the type's block.
    pub columns: usize,
}

impl BlockShape {
    /// The kernels' view of the type.
    pub(super) fn packed(&self) -> PackedFormat {
        PackedFormat::of(self.ty)
    }

    fn row_bytes(&self) -> usize {
        self.columns / self.ty.block_len() * self.ty.block_bytes()
    }
}

/// A `[rows, columns]` matrix that stays quantized. It is a constant of the model: it has no gradient and is no parameter of an optimizer.
///
/// It may be several matrices of one width on top of each other, as the projections that read the same activations are, in several types; and a part that is
/// larger than a kernel argument may be on the device lies there in several.
#[derive(Module, Debug)]
pub struct BlockWeight {
    parts: Vec<BlockPart>,
}

/// Rows of a [`BlockWeight`] that a kernel takes in one launch.
#[derive(Module, Debug)]
pub struct BlockPart {
    words: Tensor<1, Int>,
    scales: Tensor<1, Int>,
    #[module(skip)]
    shape: BlockShape,
    /// The part's first row in the whole matrix.
    row_offset: usize,
}

impl BlockWeight {
    /// Puts `blocks`, in the file's layout, onto `device`: persistent memory of about as many bytes as the file's.
    ///
    /// # Errors
    /// `UnsupportedModel` for a width without a kernel, `InvalidFile` when `blocks` has another length than the shape says.
    pub fn from_blocks(shape: BlockShape, blocks: &[u8], device: &Device) -> Result<Self> {
        Self::stack(&[(shape, blocks)], device)
    }

    /// Puts several matrices of the same width on top of each other. Neighbours of the same type become one part.
    ///
    /// # Errors
    /// As [`BlockWeight::from_blocks`].
    pub fn stack(matrices: &[(BlockShape, &[u8])], device: &Device) -> Result<Self> {
        let mut parts = Vec::new();
        let mut row_offset = 0;
        for run in matrices.chunk_by(|(a, _), (b, _)| a.ty == b.ty && a.columns == b.columns) {
            let shape = BlockShape { rows: run.iter().map(|(shape, _)| shape.rows).sum(), ..run[0].0 };
            let blocks: Vec<&[u8]> = run.iter().map(|(_, blocks)| *blocks).collect();
            let joined;
            let blocks = match blocks.as_slice() {
                [one] => *one,
                several => {
                    joined = several.concat();
                    &joined
                }
            };
            pack::check(shape.ty, shape.rows, shape.columns, blocks)?;
            let rows = rows_of_a_part(shape, device);
            for (index, blocks) in blocks.chunks(rows * shape.row_bytes()).enumerate() {
                let shape = BlockShape { rows: blocks.len() / shape.row_bytes(), ..shape };
                parts.push(BlockPart::new(shape, row_offset + index * rows, blocks, device)?);
            }
            row_offset += shape.rows;
        }
        Ok(Self { parts })
    }

    /// A matrix of zeros, in a type whose zero bytes mean zero.
    ///
    /// # Errors
    /// As [`BlockWeight::from_blocks`].
    pub fn zeros(shape: BlockShape, device: &Device) -> Result<Self> {
        let bytes = shape.ty.bytes_for((shape.rows * shape.columns) as u64).unwrap_or(0);
        Self::from_blocks(shape, &vec![0; bytes as usize], device)
    }

    /// Rows of all parts.
    pub fn rows(&self) -> usize {
        self.parts.iter().map(|part| part.shape.rows).sum()
    }

    /// The contiguous dimension.
    pub fn columns(&self) -> usize {
        self.parts.first().map_or(0, |part| part.shape.columns)
    }

    /// The parts, from the first row to the last.
    pub fn parts(&self) -> &[BlockPart] {
        &self.parts
    }

    /// Bytes that the matrix takes on its device.
    pub fn device_bytes(&self) -> usize {
        self.parts.iter().map(BlockPart::device_bytes).sum()
    }
}

impl BlockPart {
    fn new(shape: BlockShape, row_offset: usize, blocks: &[u8], device: &Device) -> Result<Self> {
        let (words, scales, dtype) = match binding_limit(device) {
            None => (blocks.to_vec(), vec![0; 4], DType::U8),
            Some(_) => {
                let packed = pack::pack(shape.ty, shape.rows, shape.columns, blocks)?;
                (packed.words, packed.scales, DType::U32)
            }
        };
        Ok(Self { words: upload(words, dtype, device), scales: upload(scales, dtype, device), shape, row_offset })
    }

    /// Type and shape.
    pub fn shape(&self) -> BlockShape {
        self.shape
    }

    /// The part's first row in the whole matrix.
    pub(super) fn row_offset(&self) -> usize {
        self.row_offset
    }

    /// The packed codes, or the file's bytes.
    pub(super) fn words(&self) -> Tensor<1, Int> {
        self.words.clone()
    }

    /// The packed scales.
    pub(super) fn scales(&self) -> Tensor<1, Int> {
        self.scales.clone()
    }

    /// Words and scales, as an extension call takes them.
    pub(super) fn tensors(&self) -> (DispatchTensor, DispatchTensor) {
        (self.words.clone().into_dispatch(), self.scales.clone().into_dispatch())
    }

    fn device_bytes(&self) -> usize {
        [&self.words, &self.scales].iter().map(|part| part.dims()[0] * part.dtype().size()).sum()
    }
}

/// The rows, in whole panels, whose words a kernel can take at once on `device`.
fn rows_of_a_part(shape: BlockShape, device: &Device) -> usize {
    let Some(limit) = binding_limit(device) else { return shape.rows };
    let layout = shape.packed().layout(shape.columns / BLOCK_COLUMNS);
    let panel_bytes = (layout.words * 16).max(layout.scales * 4) as u64;
    (limit / panel_bytes).max(1) as usize * PANEL_ROWS
}

/// The bytes that one kernel argument may have on a GPU; none on the CPU, whose twins work on the file's own layout.
fn binding_limit(device: &Device) -> Option<u64> {
    match device.as_dispatch() {
        DispatchDevice::Cube(device) => Some(device.client().properties().memory.max_page_size),
        #[cfg(not(target_arch = "wasm32"))]
        _ => None,
    }
}

fn upload(bytes: Vec<u8>, dtype: DType, device: &Device) -> Tensor<1, Int> {
    let length = bytes.len() / dtype.size();
    let data = TensorData::from_bytes_vec(bytes, [length], dtype);
    device.memory_persistent_allocations(data, |data| Tensor::from_data(data, (device, dtype)))
}
