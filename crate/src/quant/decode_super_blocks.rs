//! Decoders of the types with two scale levels: super-blocks of 256 values, one plain function each.
//!
//! In the layouts, a number at the left is an offset in bytes. `scale` and `minimum` are those of the super-block; sub-block `s` has a scale `sub_scales[s]` and, in some types, a minimum
//! `sub_minimums[s]`. Where several codes share a byte, values next to each other are in bytes next to each other, at the same bits.

use super::decode::{each_block, f16_at};
use super::decode_blocks::{high_half, iq4_level, low_half};

/// Sub-blocks of 16 values.
///
/// ```text
///  0  sub-blocks  16 x (scale in the low 4 bits, minimum in the high 4)
/// 16  codes       2 x 32 bytes; in each half of the super-block, values 0..32 are in bits 0 and 1
///                 of the 32 bytes, 32..64 in bits 2 and 3, 64..96 in bits 4 and 5, 96..128 in bits 6 and 7
/// 80  scale       f16
/// 82  minimum     f16
/// ```
/// `value = (scale * sub_scale) * code - minimum * sub_minimum`
pub(super) fn q2_k(blocks: &[u8], out: &mut [f32]) {
    for (block, values) in each_block::<84, 256>(blocks, out) {
        let (scale, minimum) = (f16_at(block, 80), f16_at(block, 82));
        for (s, (&sub_block, values)) in block[..16].iter().zip(values.as_chunks_mut::<16>().0).enumerate() {
            let scale = scale * f32::from(low_half(sub_block));
            let minimum = minimum * f32::from(high_half(sub_block));
            let (first, shift) = two_bit_codes(s);
            for (&byte, value) in block[16 + first..][..16].iter().zip(values) {
                *value = scale * f32::from(byte >> shift & 3) - minimum;
            }
        }
    }
}

/// Sub-blocks of 16 values.
///
/// ```text
///   0  third bits  32 bytes; value i has its bit in byte i % 32, at bit i / 32
///  32  codes       2 x 32 bytes, the lower 2 bits as in Q2_K
///  96  sub-scales  16 x 6 bits in 12 bytes, see `q3_k_sub_scales`
/// 108  scale       f16
/// ```
/// `value = (scale * (sub_scale - 32)) * (code - 4)`
pub(super) fn q3_k(blocks: &[u8], out: &mut [f32]) {
    for (block, values) in each_block::<110, 256>(blocks, out) {
        let scale = f16_at(block, 108);
        let sub_scales = q3_k_sub_scales(&block[96..108]);
        for (s, (sub_scale, values)) in sub_scales.into_iter().zip(values.as_chunks_mut::<16>().0).enumerate() {
            let scale = scale * f32::from(sub_scale as i8 - 32);
            let (first, shift) = two_bit_codes(s);
            let third_bits = &block[first % 32..][..16];
            for ((&byte, &third), value) in block[32 + first..][..16].iter().zip(third_bits).zip(values) {
                let code = byte >> shift & 3 | (third >> (s / 2) & 1) << 2;
                *value = scale * f32::from(code as i8 - 4);
            }
        }
    }
}

/// Sub-blocks of 32 values.
///
/// ```text
///   0  scale       f16
///   2  minimum     f16
///   4  sub-blocks  8 x (scale, minimum), 6 bits each in 12 bytes, see `scales_and_minimums`
///  16  codes       4 x 32 bytes; of each 64 values, the first 32 are in the low halves of the bytes, the others in the high halves
/// ```
/// `value = (scale * sub_scale) * code - minimum * sub_minimum`
pub(super) fn q4_k(blocks: &[u8], out: &mut [f32]) {
    for (block, values) in each_block::<144, 256>(blocks, out) {
        let sub_blocks = scales_and_minimums(block);
        for (s, ((scale, minimum), values)) in sub_blocks.into_iter().zip(values.as_chunks_mut::<32>().0).enumerate() {
            let shift = 4 * (s % 2);
            for (&byte, value) in block[16 + 32 * (s / 2)..][..32].iter().zip(values) {
                *value = scale * f32::from(byte >> shift & 15) - minimum;
            }
        }
    }
}

/// Sub-blocks of 32 values.
///
/// ```text
///   0  scale       f16
///   2  minimum     f16
///   4  sub-blocks  as in Q4_K
///  16  fifth bits  32 bytes; value i has its bit in byte i % 32, at bit i / 32
///  48  codes       4 x 32 bytes, the lower 4 bits as in Q4_K
/// ```
/// `value = (scale * sub_scale) * code - minimum * sub_minimum`
pub(super) fn q5_k(blocks: &[u8], out: &mut [f32]) {
    for (block, values) in each_block::<176, 256>(blocks, out) {
        let sub_blocks = scales_and_minimums(block);
        for (s, ((scale, minimum), values)) in sub_blocks.into_iter().zip(values.as_chunks_mut::<32>().0).enumerate() {
            let shift = 4 * (s % 2);
            let codes = &block[48 + 32 * (s / 2)..][..32];
            for ((&byte, &fifth), value) in codes.iter().zip(&block[16..48]).zip(values) {
                let code = byte >> shift & 15 | (fifth >> s & 1) << 4;
                *value = scale * f32::from(code) - minimum;
            }
        }
    }
}

/// Sub-blocks of 16 values.
///
/// ```text
///   0  codes       2 x 64 bytes, the lower 4 bits; in each half of the super-block, values 0..64 are in the low
///                  halves of the 64 bytes, 64..128 in the high halves
/// 128  upper bits  2 x 32 bytes, the upper 2 bits of the codes, laid out as the codes of Q2_K
/// 192  sub-scales  16 x i8
/// 208  scale       f16
/// ```
/// `value = (scale * sub_scale) * (code - 32)`
pub(super) fn q6_k(blocks: &[u8], out: &mut [f32]) {
    for (block, values) in each_block::<210, 256>(blocks, out) {
        let scale = f16_at(block, 208);
        for (s, (&sub_scale, values)) in block[192..208].iter().zip(values.as_chunks_mut::<16>().0).enumerate() {
            let scale = scale * f32::from(sub_scale as i8);
            let shift = s / 4 % 2 * 4;
            let lower = &block[s / 8 * 64 + s % 4 * 16..][..16];
            let (first, upper_shift) = two_bit_codes(s);
            let upper = &block[128 + first..][..16];
            for ((&lower, &upper), value) in lower.iter().zip(upper).zip(values) {
                let code = lower >> shift & 15 | (upper >> upper_shift & 3) << 4;
                *value = scale * f32::from(code as i8 - 32);
            }
        }
    }
}

/// Sub-blocks of 32 values.
///
/// ```text
///  0  scale       f16
///  2  sub-scales  u16, the upper 2 bits of 8 sub-scales, that of sub-block s at bit 2 * s
///  4              4 x 2 x lower 4 bits of the sub-scales, the even ones in the low halves of the bytes
///  8  codes       8 x 16 bytes; of each 32 values, the first 16 are in the low halves of the bytes, the others in the high halves
/// ```
/// `value = (scale * (sub_scale - 32)) * level[code]`
pub(super) fn iq4_xs(blocks: &[u8], out: &mut [f32]) {
    for (block, values) in each_block::<136, 256>(blocks, out) {
        let scale = f16_at(block, 0);
        let upper_bits = u16::from_le_bytes([block[2], block[3]]);
        let sub_blocks = block[8..].as_chunks::<16>().0.iter().zip(values.as_chunks_mut::<32>().0);
        for (s, (codes, values)) in sub_blocks.enumerate() {
            let lower = block[4 + s / 2] >> (4 * (s % 2)) & 15;
            let upper = (upper_bits >> (2 * s)) as u8 & 3;
            let scale = scale * f32::from((lower | upper << 4) as i8 - 32);
            let (low, high) = values.split_at_mut(16);
            for ((&byte, low), high) in codes.iter().zip(low).zip(high) {
                *low = scale * iq4_level(low_half(byte));
                *high = scale * iq4_level(high_half(byte));
            }
        }
    }
}

/// Where the 2-bit codes of 16-value sub-block `s` are: the first of their 16 bytes, and the lower bit.
///
/// A run of 32 bytes holds 128 values, which are 8 sub-blocks.
#[inline]
fn two_bit_codes(s: usize) -> (usize, usize) {
    (s / 8 * 32 + s % 2 * 16, s / 2 % 4 * 2)
}

/// The 16 sub-scales of Q3_K.
///
/// ```text
/// 0  8 bytes  lower 4 bits; sub-scales 0..8 in the low halves, 8..16 in the high halves
/// 8  4 bytes  upper 2 bits; sub-scale s has them in byte s % 4, from bit 2 * (s / 4)
/// ```
#[inline]
fn q3_k_sub_scales(bytes: &[u8]) -> [u8; 16] {
    std::array::from_fn(|s| {
        let lower = bytes[s % 8] >> (s / 8 * 4) & 15;
        let upper = bytes[8 + s % 4] >> (s / 4 * 2) & 3;
        lower | upper << 4
    })
}

/// The scale and the minimum of each of the 8 sub-blocks of Q4_K and Q5_K, each already multiplied with that of the super-block.
///
/// ```text
/// 0  scale    f16
/// 2  minimum  f16
/// 4  4 bytes  sub-scale 0..4 in the lower 6 bits;    upper 2 bits of sub-scale 4..8 above
/// 8  4 bytes  sub-minimum 0..4 in the lower 6 bits;  upper 2 bits of sub-minimum 4..8 above
/// 12 4 bytes  lower 4 bits of sub-scale 4..8;        lower 4 bits of sub-minimum 4..8 above
/// ```
#[inline]
fn scales_and_minimums<const BYTES: usize>(block: &[u8; BYTES]) -> [(f32, f32); 8] {
    let (scale, minimum) = (f16_at(block, 0), f16_at(block, 2));
    let (scales, minimums, lower) = (&block[4..8], &block[8..12], &block[12..16]);
    std::array::from_fn(|s| {
        let (sub_scale, sub_minimum) = match s.checked_sub(4) {
            None => (scales[s] & 63, minimums[s] & 63),
            Some(s) => (low_half(lower[s]) | scales[s] >> 6 << 4, high_half(lower[s]) | minimums[s] >> 6 << 4),
        };
        (scale * f32::from(sub_scale), minimum * f32::from(sub_minimum))
    })
}
