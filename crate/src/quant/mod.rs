//! Block formats: how quantized values lie in their bytes, and what they mean.
//!
//! [`BlockFormat`] describes a type's layout in the terms that kernels are generic over; [`dequantize`] is the exact decoder of every type. It is the specification that
//! kernels are tested against, and the CPU device computes with it.

mod block_format;
mod codes;
mod decode;
mod decode_blocks;
mod decode_super_blocks;
pub mod pack;

pub use block_format::{BlockFormat, Codes, IQ4_LEVELS, Minimum, SubBlocks};
pub use decode::{dequantize, f16_to_f32};
