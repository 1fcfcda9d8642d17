//! Packed words to `f32`, inside a kernel: the device's half of `quant::pack`.
//!
//! Half precision is decoded by bit operations, exactly, because WebGPU has no f16 type without an optional feature: a normal number only needs
//! its exponent moved from bias 15 to bias 127, a subnormal one is its mantissa times 2⁻²⁴. (Bits, not arithmetic on a denormal `f32`, which
//! WGSL lets a device flush to zero.) Infinities and NaN, which no weight file holds, are not reproduced.

use crate::quant::pack::{PANEL_ROWS, PackedCodes, PackedFormat, PackedScales};
use cubecl::prelude::*;

/// What to add to a half's shifted exponent: `(127 - 15) << 23`.
const EXPONENT_SHIFT: u32 = 112 << 23;
/// The value of a half's last mantissa bit where it is subnormal: 2⁻²⁴.
const SUBNORMAL_UNIT: f32 = 1.0 / 16_777_216.0;

/// One half, in the low 16 bits of `half`, as `f32`.
#[cube]
pub(super) fn half_to_f32(half: u32) -> f32 {
    let magnitude = half & 0x7fff;
    let sign = (half & 0x8000) << 16;
    let normal = (magnitude << 13) + EXPONENT_SHIFT;
    let subnormal = u32::reinterpret(f32::cast_from(magnitude) * SUBNORMAL_UNIT);
    f32::reinterpret(select(magnitude < 0x400, subnormal, normal) | sign)
}

/// A vector of halves, in the low 16 bits of each lane, as `f32`.
#[cube]
fn halves_to_f32<N: Size>(halves: Vector<u32, N>) -> Vector<f32, N> {
    let magnitude = halves & Vector::new(0x7fff);
    let sign = (halves & Vector::new(0x8000)) << Vector::new(16);
    let normal = (magnitude << Vector::new(13)) + Vector::new(EXPONENT_SHIFT);
    let small = to_f32::<N>(magnitude) * Vector::new(SUBNORMAL_UNIT);
    let subnormal = Vector::<u32, N>::reinterpret(small);
    let bits = select_many(magnitude.less_than(&Vector::new(0x400)), subnormal, normal);
    Vector::<f32, N>::reinterpret(bits | sign)
}

/// Small integers as `f32`. They go through `i32`, whose conversion is one instruction where that of `u32` is several.
#[cube]
fn to_f32<N: Size>(codes: Vector<u32, N>) -> Vector<f32, N> {
    Vector::<f32, N>::cast_from(Vector::<i32, N>::cast_from(codes))
}

/// Vectors that hold the codes of one block of a row: one for each plane.
pub(super) const fn planes(format: PackedFormat) -> usize {
    format.code_vectors() + format.has_pair_plane() as usize + format.has_bit_plane() as usize
}

/// Loads the planes of block `block` of the row `lane` of panel `panel` into `planes[first..]`.
#[cube]
#[allow(clippy::too_many_arguments)]
pub(super) fn load_planes<N: Size>(
    words: &[Vector<u32, N>],
    scales: &[u32],
    panel: usize,
    lane: usize,
    block: usize,
    planes: &mut Array<Vector<u32, N>>,
    #[comptime] first: usize,
    #[comptime] format: PackedFormat,
    #[comptime] row_blocks: usize,
) {
    let layout = comptime!(format.layout(row_blocks));
    let vectors = comptime!(format.code_vectors());
    let start = panel * comptime!(layout.words) + lane;
    #[unroll]
    for v in 0..vectors {
        planes[comptime!(first + v)] = words[start + (block * vectors + v) * PANEL_ROWS];
    }
    if comptime!(format.has_pair_plane()) {
        let word = words[start + comptime!(layout.pair_plane) + block / 2 * PANEL_ROWS];
        // The block's half of each lane is moved down.
        planes[comptime!(first + vectors)] = word >> Vector::new(16 * (block as u32 % 2));
    }
    if comptime!(format.has_bit_plane()) {
        let word = scales[panel * comptime!(layout.scales) + comptime!(layout.bit_plane) + block * PANEL_ROWS + lane];
        // Lane `i` begins with the bit of column `i`.
        let mut lanes = Vector::<u32, N>::new(word);
        #[unroll]
        for i in 1..4usize {
            lanes.insert(i, word >> comptime!(i as u32));
        }
        planes[comptime!(first + vectors + format.has_pair_plane() as usize)] = lanes;
    }
}

/// The numbers that the codes of columns `4 j .. 4 j + 4` stand for, offsets not yet subtracted, from the planes at `planes[first..]`.
#[cube]
pub(super) fn numbers<N: Size>(
    planes: &Array<Vector<u32, N>>,
    #[comptime] first: usize,
    #[comptime] j: usize,
    #[comptime] format: PackedFormat,
) -> Vector<f32, N> {
    let bits = comptime!(format.bits);
    if comptime!(format.codes == PackedCodes::F32) {
        Vector::<f32, N>::reinterpret(planes[comptime!(first + j)])
    } else if comptime!(format.codes == PackedCodes::Bf16) {
        let word = planes[comptime!(first + j / 2)];
        if comptime!(j % 2 == 0) {
            Vector::<f32, N>::reinterpret(word << Vector::new(16))
        } else {
            Vector::<f32, N>::reinterpret(word & Vector::new(0xffff_0000))
        }
    } else if comptime!(format.codes == PackedCodes::F16) {
        halves_to_f32::<N>(planes[comptime!(first + j / 2)] >> Vector::new(comptime!(16 * (j as u32 % 2))))
    } else if comptime!(bits == 8) {
        let word = planes[comptime!(first + j / 4)];
        to_f32::<N>((word >> Vector::new(comptime!(8 * (j as u32 % 4)))) & Vector::new(255))
    } else {
        let pairs = comptime!(first + format.code_vectors());
        let bit = comptime!(pairs + format.has_pair_plane() as usize);
        let mut codes = if comptime!(format.code_vectors() == 1) {
            (planes[first] >> Vector::new(comptime!(4 * j as u32))) & Vector::new(15)
        } else {
            (planes[pairs] >> Vector::new(comptime!(2 * j as u32))) & Vector::new(3)
        };
        if comptime!(bits == 6) {
            codes |= shifted_field::<N>(planes[pairs], comptime!(2 * j as u32), 4u32, 3u32);
        }
        if comptime!(format.has_bit_plane()) {
            codes |= shifted_field::<N>(planes[bit], comptime!(4 * j as u32), comptime!(bits - 1), 1u32);
        }
        let codes = to_f32::<N>(codes);
        if comptime!(format.codes == PackedCodes::Levels) { levels::<N>(codes) } else { codes }
    }
}

/// The field `mask` at bit `from`, moved to bit `to`, with one shift and one mask.
#[cube]
fn shifted_field<N: Size>(
    word: Vector<u32, N>,
    #[comptime] from: u32,
    #[comptime] to: u32,
    #[comptime] mask: u32,
) -> Vector<u32, N> {
    let field = Vector::new(comptime!(mask << to));
    if comptime!(from < to) {
        (word << Vector::new(comptime!(to - from))) & field
    } else {
        (word >> Vector::new(comptime!(from - to))) & field
    }
}

/// Coefficients, highest first, of a polynomial that is within 0.45 of every level of `IQ4_NL`.
const LEVELS: [f32; 5] = [0.0015860428, 0.031086439, -1.371927, 24.17383, -126.56701];

/// The levels of `IQ4_NL`: integers, so that rounding a polynomial gives them exactly and no table has to be looked up.
#[cube]
fn levels<N: Size>(codes: Vector<f32, N>) -> Vector<f32, N> {
    let mut sum = Vector::new(comptime!(LEVELS[0]));
    #[unroll]
    for i in 1..5usize {
        sum = sum * codes + Vector::new(comptime!(LEVELS[i]));
    }
    sum.round()
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
