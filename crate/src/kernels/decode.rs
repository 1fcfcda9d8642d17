//! Packed words to `f32`, inside a kernel: the device's half of `quant::pack`.
//!
//! Half precision is decoded by bit operations, exactly, because WebGPU has no f16 type without an optional feature. (No `f32` on the way is denormal, which
//! WGSL lets a device flush to zero.) Infinities and NaN, which no weight file holds, are not reproduced.

use crate::quant::pack::{PANEL_ROWS, PackedCodes, PackedFormat, PackedScales};
use cubecl::prelude::*;

/// What to add to a half's shifted exponent: `(127 - 15) << 23`.
const EXPONENT_SHIFT: u32 = 112 << 23;
/// The smallest half that is not subnormal: 2⁻¹⁴.
const SMALLEST_NORMAL: f32 = 1.0 / 16_384.0;

/// One half, in the low 16 bits of `half`, as `f32`; see [`halves_to_f32`].
#[cube]
pub(super) fn half_to_f32(half: u32) -> f32 {
    let normal = ((half & 0x7fff) << 13) + EXPONENT_SHIFT;
    let value = f32::reinterpret(normal);
    let subnormal = u32::reinterpret(value + value - SMALLEST_NORMAL);
    f32::reinterpret(min(normal, subnormal) | ((half & 0x8000) << 16))
}

/// The halves in the low (`part` 0) or the high (1) 16 bits of each lane, as `f32`.
///
/// Moved to its place with the exponent's bias changed, a normal half is right, and a subnormal one of mantissa `m` is `f = 2⁻¹⁵ + m 2⁻²⁵` where it should be
/// `m 2⁻²⁴ = 2 f - 2⁻¹⁴`. Of these two the smaller is right in both cases; neither is negative, so that their bits are in the same order, and the smaller of two
/// integers costs less where that of two floats has to look for NaN, and that of signed ones less than that of unsigned ones.
#[cube]
fn halves_to_f32<N: Size>(word: Vector<u32, N>, #[comptime] part: u32) -> Vector<f32, N> {
    let magnitude = if comptime!(part == 0) { word << Vector::new(13) } else { word >> Vector::new(3) };
    let sign = if comptime!(part == 0) { word << Vector::new(16) } else { word };
    let normal = (magnitude & Vector::new(0x0fff_e000)) + Vector::new(EXPONENT_SHIFT);
    let value = Vector::<f32, N>::reinterpret(normal);
    let subnormal = Vector::<i32, N>::reinterpret(value + value - Vector::new(SMALLEST_NORMAL));
    let smaller = Vector::<u32, N>::reinterpret(min(Vector::<i32, N>::reinterpret(normal), subnormal));
    Vector::<f32, N>::reinterpret(smaller | (sign & Vector::new(0x8000_0000)))
}

/// Small integers as `f32`. They go through `i32`, whose conversion is one instruction where that of `u32` is several.
#[cube]
fn to_f32<N: Size>(codes: Vector<u32, N>) -> Vector<f32, N> {
    Vector::<f32, N>::cast_from(Vector::<i32, N>::cast_from(codes))
}

/// Whether codes are put together from planes.
const fn has_bytes(format: PackedFormat) -> bool {
    format.has_pair_plane() || format.has_bit_plane()
}

/// `field` in every byte.
const fn bytes(field: u32) -> u32 {
    field * 0x0101_0101
}

/// The codes of block `block` of the row `lane` of panel `panel`: the vectors that hold them, or two with a byte a code, those of even `j` and those of odd
/// ones, where they are put together from planes.
#[cube]
pub(super) fn load_codes<N: Size>(
    words: &[Vector<u32, N>],
    scales: &[u32],
    panel: usize,
    lane: usize,
    block: usize,
    #[comptime] format: PackedFormat,
    #[comptime] row_blocks: usize,
) -> Sequence<Vector<u32, N>> {
    let layout = comptime!(format.layout(row_blocks));
    let count = comptime!(format.code_vectors());
    let start = panel * comptime!(layout.words) + lane;
    let mut codes = Sequence::<Vector<u32, N>>::new();
    if comptime!(!has_bytes(format)) {
        #[unroll]
        for v in 0..count {
            let word = words[start + (block * count + v) * PANEL_ROWS];
            codes.push(word);
        }
    } else {
        let mut even = Vector::<u32, N>::new(0);
        let mut odd = Vector::<u32, N>::new(0);
        if comptime!(count == 1) {
            let word = words[start + block * PANEL_ROWS];
            even = word & Vector::new(comptime!(bytes(15)));
            odd = (word >> Vector::new(4)) & Vector::new(comptime!(bytes(15)));
        }
        if comptime!(format.has_pair_plane()) {
            let word = words[start + comptime!(layout.pair_plane) + block / 2 * PANEL_ROWS];
            let word = word >> Vector::new(4 * (block as u32 % 2));
            if comptime!(count == 1) {
                even |= (word << Vector::new(4)) & Vector::new(comptime!(bytes(3 << 4)));
                odd |= (word << Vector::new(2)) & Vector::new(comptime!(bytes(3 << 4)));
            } else {
                even = word & Vector::new(comptime!(bytes(3)));
                odd = (word >> Vector::new(2)) & Vector::new(comptime!(bytes(3)));
            }
        }
        if comptime!(format.has_bit_plane()) {
            let at = panel * comptime!(layout.scales) + comptime!(layout.bit_plane) + block * PANEL_ROWS + lane;
            let word = scales[at];
            // Lane `i` begins with the bit of column `i`: every other nibble begins with the bit of an even `j`, those between with that of an odd one.
            let mut lanes = Vector::<u32, N>::new(word);
            #[unroll]
            for i in 1..4usize {
                lanes.insert(i, word >> comptime!(i as u32));
            }
            let bit = comptime!(bytes(1 << (format.bits - 1)));
            if comptime!(format.bits == 5) {
                even |= (lanes << Vector::new(4)) & Vector::new(bit);
                odd |= lanes & Vector::new(bit);
            } else {
                even |= (lanes << Vector::new(2)) & Vector::new(bit);
                odd |= (lanes >> Vector::new(2)) & Vector::new(bit);
            }
        }
        codes.push(even);
        codes.push(odd);
    }
    codes
}

/// The numbers that the codes of columns `4 j .. 4 j + 4` of a block stand for, offsets not yet subtracted.
#[cube]
pub(super) fn numbers<N: Size>(
    codes: &Sequence<Vector<u32, N>>,
    #[comptime] j: usize,
    #[comptime] format: PackedFormat,
) -> Vector<f32, N> {
    if comptime!(format.codes == PackedCodes::F32) {
        Vector::<f32, N>::reinterpret(codes[j])
    } else if comptime!(format.codes == PackedCodes::Bf16) {
        let word = codes[comptime!(j / 2)];
        if comptime!(j % 2 == 0) {
            Vector::<f32, N>::reinterpret(word << Vector::new(16))
        } else {
            Vector::<f32, N>::reinterpret(word & Vector::new(0xffff_0000))
        }
    } else if comptime!(format.codes == PackedCodes::F16) {
        halves_to_f32::<N>(codes[comptime!(j / 2)], comptime!(j as u32 % 2))
    } else if comptime!(has_bytes(format)) {
        field::<N>(codes[comptime!(j % 2)], comptime!(8 * (j as u32 / 2)), 8u32)
    } else if comptime!(format.bits == 8) {
        field::<N>(codes[comptime!(j / 4)], comptime!(8 * (j as u32 % 4)), 8u32)
    } else {
        let code = field::<N>(codes[0], comptime!(4 * j as u32), 4u32);
        if comptime!(format.codes == PackedCodes::Levels) { levels::<N>(code) } else { code }
    }
}

/// A field of `bits` bits of every lane, as `f32`.
#[cube]
fn field<N: Size>(word: Vector<u32, N>, #[comptime] from: u32, #[comptime] bits: u32) -> Vector<f32, N> {
    let mask = Vector::new(comptime!((1u32 << bits) - 1));
    if comptime!(from == 0) {
        to_f32::<N>(word & mask)
    } else if comptime!(from + bits == 32) {
        // Nothing lies above it.
        to_f32::<N>(word >> Vector::new(from))
    } else {
        to_f32::<N>((word >> Vector::new(from)) & mask)
    }
}

/// Coefficients, highest first, of a polynomial whose value at each code is less than 0.45 away from the level plus one half.
const LEVELS: [f32; 5] = [0.0015860428, 0.031_086_44, -1.371927, 24.17383, -126.06701];

/// The levels of `IQ4_NL`: integers, so that a rounded polynomial gives them exactly and no table has to be looked up.
#[cube]
#[allow(clippy::needless_range_loop)]
fn levels<N: Size>(codes: Vector<f32, N>) -> Vector<f32, N> {
    let mut sum = Vector::new(comptime!(LEVELS[0]));
    #[unroll]
    for power in 1..5usize {
        sum = sum * codes + Vector::new(comptime!(LEVELS[power]));
    }
    sum.floor()
}

/// The scale (and the minimum, or 0) of a block or super-block of the row `lane` of panel `panel`: 1 and 0 where there is none.
#[cube]
pub(super) fn block_scale(
    scales: &[u32],
    panel: usize,
    lane: usize,
    index: usize,
    #[comptime] format: PackedFormat,
    #[comptime] row_blocks: usize,
) -> (f32, f32) {
    let start = panel * comptime!(format.layout(row_blocks).scales);
    let at = index * PANEL_ROWS + lane;
    if comptime!(has_stored_minimum(format)) {
        let word = scales[start + at];
        (half_to_f32(word & 0xffff), half_to_f32(word >> 16))
    } else if comptime!(format.has_scales()) {
        let word = scales[start + at / 2];
        (half_to_f32((word >> (16 * (at as u32 % 2))) & 0xffff), 0.0f32.runtime())
    } else {
        (1.0f32.runtime(), 0.0f32.runtime())
    }
}

const fn has_stored_minimum(format: PackedFormat) -> bool {
    matches!(format.scales, PackedScales::One { minimum: true } | PackedScales::Two { minimum: true, .. })
}

/// The word with the sub-scales of block `block`, moved down to its lowest bits; 0 where there are none.
#[cube]
pub(super) fn sub_scales(
    scales: &[u32],
    panel: usize,
    lane: usize,
    block: usize,
    #[comptime] format: PackedFormat,
    #[comptime] row_blocks: usize,
) -> u32 {
    let blocks = comptime!(format.sub_scale_blocks());
    if comptime!(blocks == 0) {
        0u32.runtime()
    } else {
        let layout = comptime!(format.layout(row_blocks));
        let start = panel * comptime!(layout.scales) + comptime!(layout.sub_scales);
        scales[start + block / blocks * PANEL_ROWS + lane]
            >> (comptime!(32 / blocks as u32) * (block as u32 % blocks as u32))
    }
}

/// What to multiply the numbers of the `group`-th run of equally scaled columns of a block with, and what to add then, given the block's or
/// super-block's `scale` and `minimum` and the block's `sub_scales`.
#[cube]
pub(super) fn scale_and_bias(
    scale: f32,
    minimum: f32,
    sub_scales: u32,
    #[comptime] group: u32,
    #[comptime] format: PackedFormat,
) -> (f32, f32) {
    let byte = sub_scales >> comptime!(8 * group);
    if comptime!(format.scales == PackedScales::Two { len: 32, minimum: true }) {
        (scale * f32::cast_from(byte & 255), -(minimum * f32::cast_from((byte >> 8) & 255)))
    } else if comptime!(format.scales == PackedScales::Two { len: 16, minimum: true }) {
        (scale * f32::cast_from(byte & 15), -(minimum * f32::cast_from((byte >> 4) & 15)))
    } else if comptime!(format.sub_scale_blocks() > 0) {
        // A signed byte.
        let scale = scale * f32::cast_from(i32::cast_from(byte << 24) >> 24);
        (scale, scale * comptime!(-offset(format)))
    } else if comptime!(has_stored_minimum(format)) {
        (scale, minimum)
    } else {
        (scale, scale * comptime!(-offset(format)))
    }
}

/// The code that stands for 0.
const fn offset(format: PackedFormat) -> f32 {
    match format.codes {
        PackedCodes::Unsigned { offset } => offset as f32,
        _ => 0.0,
    }
}
