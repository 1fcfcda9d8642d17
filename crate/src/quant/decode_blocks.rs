//! Decoders of the types with one scale level: blocks of 32 values, one plain function each.
//!
//! In the layouts, a number at the left is an offset in bytes. 4-bit codes come in pairs, value `i` in the low and value `i + 16` in the high half of byte `i`.

use super::block_format::IQ4_LEVELS;
use super::decode::{each_block, f16_at};

/// ```text
///  0  scale   f16
///  2  codes   16 x 2 x 4 bits
/// ```
/// `value = (code - 8) * scale`
pub(super) fn q4_0(blocks: &[u8], out: &mut [f32]) {
    for (block, values) in each_block::<18, 32>(blocks, out) {
        let scale = f16_at(block, 0);
        let (low, high) = values.split_at_mut(16);
        for ((&byte, low), high) in block[2..18].iter().zip(low).zip(high) {
            *low = f32::from(low_half(byte) as i8 - 8) * scale;
            *high = f32::from(high_half(byte) as i8 - 8) * scale;
        }
    }
}

/// ```text
///  0  scale   f16
///  2  minimum f16
///  4  codes   16 x 2 x 4 bits
/// ```
/// `value = code * scale + minimum`
pub(super) fn q4_1(blocks: &[u8], out: &mut [f32]) {
    for (block, values) in each_block::<20, 32>(blocks, out) {
        let (scale, minimum) = (f16_at(block, 0), f16_at(block, 2));
        let (low, high) = values.split_at_mut(16);
        for ((&byte, low), high) in block[4..20].iter().zip(low).zip(high) {
            *low = f32::from(low_half(byte)) * scale + minimum;
            *high = f32::from(high_half(byte)) * scale + minimum;
        }
    }
}

/// ```text
///  0  scale      f16
///  2  fifth bits u32, bit i belongs to value i
///  6  codes      16 x 2 x lower 4 bits
/// ```
/// `value = (code - 16) * scale`
pub(super) fn q5_0(blocks: &[u8], out: &mut [f32]) {
    for (block, values) in each_block::<22, 32>(blocks, out) {
        let scale = f16_at(block, 0);
        let fifth_bits = u32_at(block, 2);
        let (low, high) = values.split_at_mut(16);
        for (i, ((&byte, low), high)) in block[6..22].iter().zip(low).zip(high).enumerate() {
            *low = f32::from((low_half(byte) | fifth_bit(fifth_bits, i)) as i8 - 16) * scale;
            *high = f32::from((high_half(byte) | fifth_bit(fifth_bits, i + 16)) as i8 - 16) * scale;
        }
    }
}

/// ```text
///  0  scale      f16
///  2  minimum    f16
///  4  fifth bits u32, bit i belongs to value i
///  8  codes      16 x 2 x lower 4 bits
/// ```
/// `value = code * scale + minimum`
pub(super) fn q5_1(blocks: &[u8], out: &mut [f32]) {
    for (block, values) in each_block::<24, 32>(blocks, out) {
        let (scale, minimum) = (f16_at(block, 0), f16_at(block, 2));
        let fifth_bits = u32_at(block, 4);
        let (low, high) = values.split_at_mut(16);
        for (i, ((&byte, low), high)) in block[8..24].iter().zip(low).zip(high).enumerate() {
            *low = f32::from(low_half(byte) | fifth_bit(fifth_bits, i)) * scale + minimum;
            *high = f32::from(high_half(byte) | fifth_bit(fifth_bits, i + 16)) * scale + minimum;
        }
    }
}

/// ```text
///  0  scale   f16
///  2  codes   32 x i8
/// ```
/// `value = code * scale`
pub(super) fn q8_0(blocks: &[u8], out: &mut [f32]) {
    for (block, values) in each_block::<34, 32>(blocks, out) {
        let scale = f16_at(block, 0);
        for (&byte, value) in block[2..34].iter().zip(values) {
            *value = f32::from(byte as i8) * scale;
        }
    }
}

/// ```text
///  0  scale   f16
///  2  codes   16 x 2 x 4 bits
/// ```
/// `value = scale * level[code]`
pub(super) fn iq4_nl(blocks: &[u8], out: &mut [f32]) {
    for (block, values) in each_block::<18, 32>(blocks, out) {
        let scale = f16_at(block, 0);
        let (low, high) = values.split_at_mut(16);
        for ((&byte, low), high) in block[2..18].iter().zip(low).zip(high) {
            *low = scale * iq4_level(low_half(byte));
            *high = scale * iq4_level(high_half(byte));
        }
    }
}

#[inline]
pub(super) fn low_half(byte: u8) -> u8 {
    byte & 15
}

#[inline]
pub(super) fn high_half(byte: u8) -> u8 {
    byte >> 4
}

/// The number that a code of `IQ4_NL` or `IQ4_XS` stands for.
#[inline]
pub(super) fn iq4_level(code: u8) -> f32 {
    f32::from(IQ4_LEVELS[usize::from(code & 15)])
}

/// The fifth bit of code `i`, in its place.
#[inline]
fn fifth_bit(bits: u32, i: usize) -> u8 {
    ((bits >> i) as u8 & 1) << 4
}

#[inline]
fn u32_at<const BYTES: usize>(block: &[u8; BYTES], offset: usize) -> u32 {
    u32::from_le_bytes([block[offset], block[offset + 1], block[offset + 2], block[offset + 3]])
}
