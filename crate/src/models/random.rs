//! Random weights: for measuring what a model of some size takes where no file of it is at hand.

use super::WeightSource;
use crate::error::Result;
use crate::format::TensorType;
use crate::kernels::{BlockShape, BlockWeight};
use burn::tensor::{Device, Tensor};

/// A source in which every tensor exists. Matrices are random blocks of one type with scales that keep their values small, vectors are ones.
#[derive(Debug)]
pub struct RandomWeights<'a> {
    device: &'a Device,
    ty: TensorType,
    state: u64,
}

impl<'a> RandomWeights<'a> {
    /// Weights of type `ty` for `device`, the same each time.
    pub fn new(ty: TensorType, device: &'a Device) -> Self {
        Self { device, ty, state: 1 }
    }

    /// SplitMix64 (Steele, Lea and Flood, 2014).
    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn blocks(&mut self, rows: usize, columns: usize) -> Vec<u8> {
        let block_bytes = self.ty.block_bytes();
        let mut bytes = vec![0u8; rows * (columns / self.ty.block_len()) * block_bytes];
        for chunk in bytes.chunks_mut(8) {
            let random = self.next().to_le_bytes();
            chunk.copy_from_slice(&random[..chunk.len()]);
        }
        for block in bytes.chunks_exact_mut(block_bytes) {
            tame(self.ty, block);
        }
        bytes
    }
}

/// Makes the floats of a block small and finite.
fn tame(ty: TensorType, block: &mut [u8]) {
    /// 2⁻¹⁴, as f16: a value is at most a few thousand times as large.
    const SCALE: [u8; 2] = [0x00, 0x04];
    let halves: &[usize] = match ty {
        // Exponents of 2⁻⁶ and less.
        TensorType::F32 | TensorType::BF16 => {
            let last = block.len() - 1;
            block[last] = block[last] & 0x80 | 0x3c;
            return;
        }
        TensorType::F16 => {
            block[1] = block[1] & 0x83 | 0x24;
            return;
        }
        TensorType::Q4_1 | TensorType::Q5_1 | TensorType::Q4_K | TensorType::Q5_K => &[0, 2],
        TensorType::Q2_K => &[80, 82],
        TensorType::Q3_K => &[108],
        TensorType::Q6_K => &[208],
        TensorType::Q4_0 | TensorType::Q5_0 | TensorType::Q8_0 | TensorType::IQ4_NL | TensorType::IQ4_XS => &[0],
    };
    for at in halves {
        block[*at..at + 2].copy_from_slice(&SCALE);
    }
}

impl WeightSource for RandomWeights<'_> {
    fn stack(&mut self, matrices: &[(String, usize)], columns: usize) -> Result<BlockWeight> {
        let rows = matrices.iter().map(|(_, rows)| rows).sum();
        let blocks = self.blocks(rows, columns);
        BlockWeight::from_blocks(BlockShape { ty: self.ty, rows, columns }, &blocks, self.device)
    }

    fn vector(&mut self, _name: &str, length: usize) -> Result<Tensor<1>> {
        Ok(Tensor::ones([length], self.device))
    }

    fn contains(&self, _name: &str) -> bool {
        true
    }
}
