//! A matrix of quantized blocks on a device: packed words and scales on a GPU, the file's own bytes on the CPU.

use crate::error::{Error, Result};
use crate::format::TensorType;
use crate::quant::pack::{self, PackedFormat};
use burn::backend::{DispatchDevice, DispatchTensor};
use burn::module::Module;
use burn::tensor::{DType, Device, Int, Tensor, TensorData};

/// Type and shape of a [`BlockWeight`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct BlockShape {
    /// How the values are encoded.
    pub ty: TensorType,
    /// Outputs of a projection, or entries of a vocabulary.
    pub rows: usize,
    /// Inputs of a projection: the contiguous dimension, a multiple of 32.
    pub columns: usize,
}

/// A `[rows, columns]` matrix that stays quantized. It is a constant of the model: it has no gradient and is no parameter of an optimizer.
#[derive(Module, Debug)]
pub struct BlockWeight {
    words: Tensor<1, Int>,
    scales: Tensor<1, Int>,
    #[module(skip)]
    shape: BlockShape,
}

impl BlockWeight {
    /// Puts `blocks`, in the file's layout, onto `device`: persistent memory of about as many bytes as the file's.
    ///
    /// # Errors
    /// `UnsupportedModel` for a type or a shape without a kernel, `InvalidFile` when `blocks` has another length than the shape says,
    /// `OutOfMemory` when it is more than one kernel argument of the device can be.
    pub fn from_blocks(shape: BlockShape, blocks: &[u8], device: &Device) -> Result<Self> {
        let (words, scales, dtype) = match binding_limit(device) {
            // Both devices refuse the same files: packing checks them, so the CPU does too.
            None => {
                pack::check(shape.ty, shape.rows, shape.columns, blocks)?;
                (blocks.to_vec(), vec![0; 4], DType::U8)
            }
            Some(limit) if blocks.len() as u64 > limit => {
                return Err(Error::OutOfMemory(format!(
                    "a matrix of {} bytes, and this device's kernels take at most {limit} bytes each: try a smaller quantization",
                    blocks.len()
                )));
            }
            Some(_) => {
                let packed = pack::pack(shape.ty, shape.rows, shape.columns, blocks)?;
                (packed.words, packed.scales, DType::U32)
            }
        };
        Ok(Self { words: upload(words, dtype, device), scales: upload(scales, dtype, device), shape })
    }

    /// A matrix of zeros, in a type whose zero bytes mean zero.
    ///
    /// # Errors
    /// As [`BlockWeight::from_blocks`].
    pub fn zeros(shape: BlockShape, device: &Device) -> Result<Self> {
        let bytes = shape.ty.bytes_for((shape.rows * shape.columns) as u64).unwrap_or(0);
        Self::from_blocks(shape, &vec![0; bytes as usize], device)
    }

    /// Type and shape.
    pub fn shape(&self) -> BlockShape {
        self.shape
    }

    /// Bytes that the matrix takes on its device.
    pub fn device_bytes(&self) -> usize {
        [&self.words, &self.scales].iter().map(|part| part.dims()[0] * part.dtype().size()).sum()
    }

    /// Words and scales, as an extension call takes them.
    pub(super) fn parts(&self) -> (DispatchTensor, DispatchTensor) {
        (self.words.clone().into_dispatch(), self.scales.clone().into_dispatch())
    }
}

impl BlockShape {
    /// The kernels' view of the type. Only shapes that a [`BlockWeight`] was made with are asked.
    pub(super) fn packed(&self) -> PackedFormat {
        PackedFormat::of(self.ty).unwrap_or(PackedFormat::F32)
    }
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
