//! Packed words to `f32`, inside a kernel: the device's half of `quant::pack`.
//!
//! Half precision is decoded by bit operations, exactly, because WebGPU has no f16 type without an optional feature: a normal number only needs
//! its exponent moved from bias 15 to bias 127, a subnormal one is its mantissa times 2⁻²⁴. (Bits, not arithmetic on a denormal `f32`, which
//! WGSL lets a device flush to zero.) Infinities and NaN, which no weight file holds, are not reproduced.

use crate::quant::pack::{PANEL_ROWS, PackedFormat};
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
    let small = Vector::<f32, N>::cast_from(magnitude) * Vector::new(SUBNORMAL_UNIT);
    let subnormal = Vector::<u32, N>::reinterpret(small);
    let bits = select_many(magnitude.less_than(&Vector::new(0x400)), subnormal, normal);
    Vector::<f32, N>::reinterpret(bits | sign)
}

/// The four unscaled values for columns `4 j .. 4 j + 4` of a block; `word` is its vector at [`word_index`].
#[cube]
pub(super) fn values<N: Size>(
    word: Vector<u32, N>,
    #[comptime] j: u32,
    #[comptime] format: PackedFormat,
) -> Vector<f32, N> {
    if comptime!(format == PackedFormat::I4) {
        Vector::<f32, N>::cast_from((word >> Vector::new(comptime!(4 * j))) & Vector::new(15)) - Vector::new(8.0)
    } else if comptime!(format == PackedFormat::U4Min) {
        Vector::<f32, N>::cast_from((word >> Vector::new(comptime!(4 * j))) & Vector::new(15))
    } else if comptime!(format == PackedFormat::I8) {
        Vector::<f32, N>::cast_from((word >> Vector::new(comptime!(8 * (j % 4)))) & Vector::new(255))
            - Vector::new(128.0)
    } else if comptime!(format == PackedFormat::F16) {
        halves_to_f32::<N>((word >> Vector::new(comptime!(16 * (j % 2)))) & Vector::new(0xffff))
    } else if comptime!(format == PackedFormat::Bf16) {
        Vector::<f32, N>::reinterpret((word >> Vector::new(comptime!(16 * (j % 2)))) << Vector::new(16))
    } else {
        Vector::<f32, N>::reinterpret(word)
    }
}

/// Where the vector lies that holds the values for columns `4 j .. 4 j + 4` of the block at `index` (panel and block of a row, see
/// `quant::pack`), for row `lane` of its panel.
#[cube]
pub(super) fn word_index(index: usize, lane: usize, #[comptime] j: usize, #[comptime] format: PackedFormat) -> usize {
    (index * comptime!(format.vectors()) + comptime!(j * format.vectors() / 8)) * PANEL_ROWS + lane
}

/// Scale and minimum of the block at `index` (panel and block of a row, see `quant::pack`) for row `lane` of its panel.
/// The minimum is 0 where the format has none, the scale 1 where it has none.
#[cube]
pub(super) fn scale_and_minimum(
    scales: &[u32],
    index: usize,
    lane: usize,
    #[comptime] format: PackedFormat,
) -> (f32, f32) {
    let at = index * PANEL_ROWS + lane;
    if comptime!(format.scale_bytes() == 4) {
        let word = scales[at];
        (half_to_f32(word & 0xffff), half_to_f32(word >> 16))
    } else if comptime!(format.scale_bytes() == 2) {
        let word = scales[at / 2];
        let half = (word >> (16 * (at as u32 % 2))) & 0xffff;
        (half_to_f32(half), 0.0f32.runtime())
    } else {
        (1.0f32.runtime(), 0.0f32.runtime())
    }
}
