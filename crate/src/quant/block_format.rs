//! What the block types have in common, and where they differ, as data.
//!
//! A block is a run of values of one row that are stored together. Each value is a code of a few bits, which stands for a small number `n`:
//!
//! ```text
//! one scale level          value = scale * n  (+ minimum)
//! two: a super-block       value = (scale * sub_scale) * n  (- minimum * sub_minimum)
//! ```
//!
//! Scales and minimums of a block are f16; a super-block has further ones, of few bits, for each of its sub-blocks.

use crate::format::TensorType;

/// The 16 numbers that the codes of `IQ4_NL` and `IQ4_XS` stand for: denser near zero, as weights are.
pub const IQ4_LEVELS: [i8; 16] = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];

/// What number a code stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Codes {
    /// There are no codes: the value itself is stored, as a float.
    Float,
    /// The code as an unsigned integer, less `offset`.
    Unsigned {
        /// The code that stands for 0.
        offset: u8,
    },
    /// The code as an integer in two's complement.
    Signed,
    /// The code is an index into these levels.
    Levels(&'static [i8; 16]),
}

/// Whether values have a minimum, which lets the codes cover a range that does not lie around 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Minimum {
    /// A value is scale times number.
    None,
    /// The stored minimum is added.
    Added,
    /// The stored minimum, in effect its negative, is subtracted.
    Subtracted,
}

/// The sub-blocks of a super-block, each of which has a scale of its own, and a minimum where the format has minimums.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SubBlocks {
    /// Values in a sub-block.
    pub len: usize,
    /// Bits of a sub-block's scale, and as many of its minimum.
    pub scale_bits: u32,
    /// What number the bits of the scale stand for. Those of a minimum are always unsigned, with the offset 0.
    pub scale_codes: Codes,
}

/// How the blocks of a tensor type are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct BlockFormat {
    /// The type that this describes.
    pub ty: TensorType,
    /// Bits of a value's code.
    pub bits: u32,
    /// What number a code stands for.
    pub codes: Codes,
    /// Values in a block: those that share an f16 scale. 1 for floats.
    pub block_len: usize,
    /// Bytes of a block.
    pub block_bytes: usize,
    /// Whether, and how, a minimum takes part.
    pub minimum: Minimum,
    /// The second level of scales, in a super-block.
    pub sub_blocks: Option<SubBlocks>,
}

impl BlockFormat {
    /// The format of a tensor type.
    pub const fn of(ty: TensorType) -> BlockFormat {
        use Minimum::{Added, None as NoMinimum, Subtracted};
        const fn sub_blocks(len: usize, scale_bits: u32, scale_codes: Codes) -> Option<SubBlocks> {
            Some(SubBlocks { len, scale_bits, scale_codes })
        }
        const fn less(offset: u8) -> Codes {
            Codes::Unsigned { offset }
        }
        let levels = Codes::Levels(&IQ4_LEVELS);
        let (bits, codes, minimum, sub_blocks) = match ty {
            TensorType::F32 => (32, Codes::Float, NoMinimum, None),
            TensorType::F16 | TensorType::BF16 => (16, Codes::Float, NoMinimum, None),
            TensorType::Q4_0 => (4, less(8), NoMinimum, None),
            TensorType::Q4_1 => (4, less(0), Added, None),
            TensorType::Q5_0 => (5, less(16), NoMinimum, None),
            TensorType::Q5_1 => (5, less(0), Added, None),
            TensorType::Q8_0 => (8, Codes::Signed, NoMinimum, None),
            TensorType::Q2_K => (2, less(0), Subtracted, sub_blocks(16, 4, less(0))),
            TensorType::Q3_K => (3, less(4), NoMinimum, sub_blocks(16, 6, less(32))),
            TensorType::Q4_K => (4, less(0), Subtracted, sub_blocks(32, 6, less(0))),
            TensorType::Q5_K => (5, less(0), Subtracted, sub_blocks(32, 6, less(0))),
            TensorType::Q6_K => (6, less(32), NoMinimum, sub_blocks(16, 8, Codes::Signed)),
            TensorType::IQ4_NL => (4, levels, NoMinimum, None),
            TensorType::IQ4_XS => (4, levels, NoMinimum, sub_blocks(32, 6, less(32))),
        };
        let (block_len, block_bytes) = (ty.block_len(), ty.block_bytes());
        BlockFormat { ty, bits, codes, block_len, block_bytes, minimum, sub_blocks }
    }

    /// How many scales a number is multiplied by: 0 for floats, 1, or 2 in a super-block.
    pub const fn scale_levels(&self) -> u32 {
        match (self.codes, self.sub_blocks) {
            (Codes::Float, _) => 0,
            (_, None) => 1,
            (_, Some(_)) => 2,
        }
    }

    /// Whether values have a minimum.
    pub const fn has_minimum(&self) -> bool {
        !matches!(self.minimum, Minimum::None)
    }

    /// Values that share all their scales: a sub-block, or a block where there are none.
    pub const fn scale_len(&self) -> usize {
        match self.sub_blocks {
            Some(sub_blocks) => sub_blocks.len,
            None => self.block_len,
        }
    }

    /// Bits that a value takes in all, its share of the scales included.
    pub fn bits_per_value(&self) -> f32 {
        (self.block_bytes * 8) as f32 / self.block_len as f32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_scales_and_minimums_fill_the_block() {
        for format in TensorType::ALL.map(BlockFormat::of) {
            let scales = if format.scale_levels() == 0 { 0 } else { 16 };
            let sub_scales = match format.sub_blocks {
                Some(sub_blocks) => format.block_len / sub_blocks.len * sub_blocks.scale_bits as usize,
                None => 0,
            };
            let scale_bits = (scales + sub_scales) * if format.has_minimum() { 2 } else { 1 };
            let bits = format.block_len * format.bits as usize + scale_bits;
            assert_eq!(bits, format.block_bytes * 8, "{}", format.ty);
        }
    }

    #[test]
    fn bits_per_value_are_those_that_the_types_are_known_for() {
        let bits = |ty| BlockFormat::of(ty).bits_per_value();
        assert_eq!(bits(TensorType::F32), 32.0);
        assert_eq!(bits(TensorType::Q8_0), 8.5);
        assert_eq!(bits(TensorType::Q6_K), 6.5625);
        assert_eq!(bits(TensorType::Q4_1), 5.0);
        assert_eq!(bits(TensorType::Q4_K), 4.5);
        assert_eq!(bits(TensorType::IQ4_XS), 4.25);
        assert_eq!(bits(TensorType::Q2_K), 2.625);
    }
}
