//! The parts of a file's block, taken apart: codes one a byte, the block's own scale and minimum, and the sub-blocks' ones. What packing puts together again in a GPU's order.
//!
//! Where the parts lie in a block is drawn beside the reference decoders (`decode_blocks`, `decode_super_blocks`).

use crate::format::TensorType;

/// A block's parts. Only what its type has is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Parts {
    /// A value's code, up to 8 bits; of 8-bit ones in two's complement, with 128 added.
    pub codes: [u8; 256],
    /// The f16 scale, and the f16 minimum, little-endian.
    pub scale: [u8; 4],
    /// For each 32 values, what scales them besides: see [`super::pack::PackedScales`].
    pub sub_scales: [u16; 8],
}

impl Default for Parts {
    fn default() -> Self {
        Self { codes: [0; 256], scale: [0; 4], sub_scales: [0; 8] }
    }
}

impl Parts {
    /// Takes a block of a quantized type apart; `block` has the type's length.
    pub fn read(&mut self, ty: TensorType, block: &[u8]) {
        match ty {
            TensorType::Q4_0 | TensorType::IQ4_NL => {
                self.scale[..2].copy_from_slice(&block[..2]);
                halves(&block[2..18], &mut self.codes);
            }
            TensorType::Q4_1 => {
                self.scale.copy_from_slice(&block[..4]);
                halves(&block[4..20], &mut self.codes);
            }
            TensorType::Q5_0 => {
                self.scale[..2].copy_from_slice(&block[..2]);
                halves(&block[6..22], &mut self.codes);
                fifth_bits(&block[2..6], &mut self.codes);
            }
            TensorType::Q5_1 => {
                self.scale.copy_from_slice(&block[..4]);
                halves(&block[8..24], &mut self.codes);
                fifth_bits(&block[4..8], &mut self.codes);
            }
            TensorType::Q8_0 => {
                self.scale[..2].copy_from_slice(&block[..2]);
                for (code, byte) in self.codes.iter_mut().zip(&block[2..34]) {
                    *code = byte ^ 0x80;
                }
            }
            TensorType::Q2_K => {
                self.scale.copy_from_slice(&block[80..84]);
                self.sub_scales = std::array::from_fn(|b| u16::from_le_bytes([block[2 * b], block[2 * b + 1]]));
                pairs(&block[16..80], &mut self.codes, |code, bits| *code = bits);
            }
            TensorType::Q3_K => {
                self.scale[..2].copy_from_slice(&block[108..110]);
                let scales = q3_k_sub_scales(&block[96..108]);
                self.sub_scales = std::array::from_fn(|b| u16::from_le_bytes([scales[2 * b], scales[2 * b + 1]]));
                pairs(&block[32..96], &mut self.codes, |code, bits| *code = bits);
                bit_planes(&block[..32], &mut self.codes, 2);
            }
            TensorType::Q4_K | TensorType::Q5_K => {
                self.scale.copy_from_slice(&block[..4]);
                self.sub_scales = scales_and_minimums(&block[4..16]);
                let codes = if ty == TensorType::Q4_K { &block[16..144] } else { &block[48..176] };
                for (bytes, out) in codes.chunks_exact(32).zip(self.codes.chunks_exact_mut(64)) {
                    let (low, high) = out.split_at_mut(32);
                    for ((byte, low), high) in bytes.iter().zip(low).zip(high) {
                        (*low, *high) = (byte & 15, byte >> 4);
                    }
                }
                if ty == TensorType::Q5_K {
                    bit_planes(&block[16..48], &mut self.codes, 4);
                }
            }
            TensorType::Q6_K => {
                self.scale[..2].copy_from_slice(&block[208..210]);
                self.sub_scales = std::array::from_fn(|b| u16::from_le_bytes([block[192 + 2 * b], block[193 + 2 * b]]));
                for (bytes, out) in block[..128].chunks_exact(64).zip(self.codes.chunks_exact_mut(128)) {
                    let (low, high) = out.split_at_mut(64);
                    for ((byte, low), high) in bytes.iter().zip(low).zip(high) {
                        (*low, *high) = (byte & 15, byte >> 4);
                    }
                }
                pairs(&block[128..192], &mut self.codes, |code, bits| *code |= bits << 4);
            }
            TensorType::IQ4_XS => {
                self.scale[..2].copy_from_slice(&block[..2]);
                let upper = u16::from_le_bytes([block[2], block[3]]);
                self.sub_scales = std::array::from_fn(|b| {
                    let lower = block[4 + b / 2] >> (4 * (b % 2)) & 15;
                    let code = lower | ((upper >> (2 * b)) as u8 & 3) << 4;
                    u16::from(code.wrapping_sub(32))
                });
                for (bytes, out) in block[8..].chunks_exact(16).zip(self.codes.chunks_exact_mut(32)) {
                    halves(bytes, out);
                }
            }
            TensorType::F32 | TensorType::F16 | TensorType::BF16 => {}
        }
    }
}

/// Values 0..16 are the low halves of 16 bytes, values 16..32 the high ones.
fn halves(bytes: &[u8], codes: &mut [u8]) {
    let (low, high) = codes.split_at_mut(16);
    for ((byte, low), high) in bytes.iter().zip(low).zip(high) {
        (*low, *high) = (byte & 15, byte >> 4);
    }
}

/// Bit `i` of a u32 is the fifth bit of value `i`.
fn fifth_bits(bytes: &[u8], codes: &mut [u8]) {
    for (i, code) in codes[..32].iter_mut().enumerate() {
        *code |= (bytes[i / 8] >> (i % 8) & 1) << 4;
    }
}

/// Two bits of each value: those of values 0..32, 32..64, 64..96 and 96..128 are bits 0, 2, 4 and 6 of the first 32 bytes; the other half
/// of the super-block likewise.
fn pairs(bytes: &[u8], codes: &mut [u8; 256], put: impl Fn(&mut u8, u8)) {
    for (bytes, codes) in bytes.chunks_exact(32).zip(codes.chunks_exact_mut(128)) {
        for (quarter, codes) in codes.chunks_exact_mut(32).enumerate() {
            for (byte, code) in bytes.iter().zip(codes) {
                put(code, byte >> (2 * quarter) & 3);
            }
        }
    }
}

/// One bit of each value: value `i` has it in byte `i % 32`, at bit `i / 32`.
fn bit_planes(bytes: &[u8], codes: &mut [u8; 256], shift: u32) {
    for (plane, codes) in codes.chunks_exact_mut(32).enumerate() {
        for (byte, code) in bytes.iter().zip(codes) {
            *code |= (byte >> plane & 1) << shift;
        }
    }
}

/// The 16 sub-scales of Q3_K, as signed bytes.
fn q3_k_sub_scales(bytes: &[u8]) -> [u8; 16] {
    std::array::from_fn(|s| {
        let lower = bytes[s % 8] >> (s / 8 * 4) & 15;
        let upper = bytes[8 + s % 4] >> (s / 4 * 2) & 3;
        (lower | upper << 4).wrapping_sub(32)
    })
}

/// The 8 sub-scales (low bytes) and sub-minimums (high bytes) of Q4_K and Q5_K.
fn scales_and_minimums(bytes: &[u8]) -> [u16; 8] {
    let (scales, minimums, lower) = (&bytes[..4], &bytes[4..8], &bytes[8..12]);
    std::array::from_fn(|s| {
        let (scale, minimum) = match s.checked_sub(4) {
            None => (scales[s] & 63, minimums[s] & 63),
            Some(s) => (lower[s] & 15 | scales[s] >> 6 << 4, lower[s] >> 4 | minimums[s] >> 6 << 4),
        };
        u16::from_le_bytes([scale, minimum])
    })
}
