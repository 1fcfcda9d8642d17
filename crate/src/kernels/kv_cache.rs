//! How keys and values lie in the cache, and how a kernel reads and writes them.
//!
//! A layer's cache is one buffer of 32-bit words, `[batch, 2, kv_heads, max_seq_len, words of a head]`: keys first, then values. The values of a head are
//! kept in pairs `(2 i, 2 i + 1)`, which are also what rotary embedding rotates together. In half precision a word holds a pair; in single
//! precision the even members of four pairs come first and then their odd ones. So in both a kernel gets eight values as two vectors, the even and the odd
//! ones; queries lie in the order of the latter.
//!
//! Half precision is read by bit operations: the sign, exponent and mantissa of a half, moved to their places in an `f32`, are the number times 2⁻¹¹², so
//! that what it is multiplied with carries the 2¹¹²: queries do, and the weights of values. (A subnormal half, below 0.00006, may become 0 on the way.)

use cubecl::prelude::*;
use serde::{Deserialize, Serialize};

/// The precision of cached keys and values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum KvPrecision {
    /// Half precision: 2 bytes a value.
    #[default]
    F16,
    /// Single precision: 4 bytes a value.
    F32,
}

impl KvPrecision {
    /// 32-bit words for a head of `head_dim` values.
    pub const fn words(self, head_dim: usize) -> usize {
        match self {
            Self::F16 => head_dim / 2,
            Self::F32 => head_dim,
        }
    }

    /// What values that were read must still be multiplied with.
    pub(super) const fn read_factor(self) -> f32 {
        match self {
            // 2¹¹²
            Self::F16 => f32::from_bits((127 + 112) << 23),
            Self::F32 => 1.0,
        }
    }

    /// Vectors of words that hold eight values.
    pub(super) const fn vectors(self) -> usize {
        match self {
            Self::F16 => 1,
            Self::F32 => 2,
        }
    }
}

/// The inner dimensions of a cache, and the heads that read it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CacheShape {
    /// Query heads.
    pub heads: usize,
    /// Key and value heads.
    pub kv_heads: usize,
    /// Values of a head, a multiple of 8.
    pub head_dim: usize,
    /// Tokens that the cache holds.
    pub max_seq_len: usize,
    /// How they are kept.
    pub precision: KvPrecision,
}

impl CacheShape {
    /// Whether attention's working memory fits into the 16 KiB that every device gives a workgroup.
    pub fn fits_workgroup(self) -> bool {
        self.head_dim <= 256 && super::decode_attention::workgroup_bytes(self) <= 16384
    }

    /// Groups of eight values in a head.
    pub(super) const fn eights(self) -> usize {
        self.head_dim / 8
    }

    /// Vectors of words in a head.
    pub(super) const fn vectors(self) -> usize {
        self.eights() * self.precision.vectors()
    }

    /// Query heads that share a key head.
    pub(super) const fn group(self) -> usize {
        self.heads / self.kv_heads
    }

    /// What queries are multiplied with, so that their products with cached keys are the scores: `1 / √head_dim`, and what reading leaves out.
    pub fn query_scale(self) -> f32 {
        self.precision.read_factor() / (self.head_dim as f32).sqrt()
    }

    /// The shape of a cache for `batch` sequences.
    pub fn dims(self, batch: usize) -> [usize; 5] {
        [batch, 2, self.kv_heads, self.max_seq_len, self.precision.words(self.head_dim)]
    }
}

/// Where value `d` of a head lies in a row of queries, and of keys and values in single precision.
pub const fn place_in_head(d: usize) -> usize {
    d / 8 * 8 + d % 2 * 4 + d % 8 / 2
}

/// The even and the odd ones of the `eight`-th eight values of the head whose words begin at vector `start`, still to be
/// multiplied with the precision's `read_factor`.
#[cube]
pub(super) fn read_eight<N: Size>(
    cache: &[Vector<u32, N>],
    start: usize,
    eight: usize,
    #[comptime] precision: KvPrecision,
) -> (Vector<f32, N>, Vector<f32, N>) {
    if comptime!(precision == KvPrecision::F16) {
        let word = cache[start + eight];
        (halves::<N>(word << Vector::new(16)), halves::<N>(word))
    } else {
        (
            Vector::<f32, N>::reinterpret(cache[start + 2 * eight]),
            Vector::<f32, N>::reinterpret(cache[start + 2 * eight + 1]),
        )
    }
}

/// The halves in the upper 16 bits of each lane, times 2⁻¹¹². The arithmetic shift copies the sign into the three bits that the wider exponent
/// has more; the mask clears the copies.
#[cube]
fn halves<N: Size>(word: Vector<u32, N>) -> Vector<f32, N> {
    let moved = Vector::<i32, N>::cast_from(word) >> Vector::new(3i32);
    Vector::<f32, N>::reinterpret(Vector::<u32, N>::cast_from(moved) & Vector::new(0x8fff_e000))
}

/// Puts the pair `pair` of a head whose words begin at `start` into the cache.
#[cube]
pub(super) fn write_pair(
    cache: &mut [u32],
    start: usize,
    pair: usize,
    even: f32,
    odd: f32,
    #[comptime] precision: KvPrecision,
) {
    if comptime!(precision == KvPrecision::F16) {
        cache[start + pair] = f32_to_half(even) | (f32_to_half(odd) << 16);
    } else {
        let at = start + pair / 4 * 8 + pair % 4;
        cache[at] = u32::reinterpret(even);
        cache[at + 4] = u32::reinterpret(odd);
    }
}

/// The nearest half, ties to even; numbers that are too large become the largest.
#[cube]
fn f32_to_half(value: f32) -> u32 {
    let bits = u32::reinterpret(value);
    let magnitude = bits & 0x7fff_ffff;
    let rounded = magnitude + 0xfff + ((magnitude >> 13) & 1);
    let normal = min((rounded - (112u32 << 23)) >> 13, 0x7bff);
    // In units of 2⁻²⁴, the last bit of a subnormal half.
    let subnormal = u32::cast_from((f32::reinterpret(magnitude) * 16_777_216.0f32).round());
    select(magnitude < 0x3880_0000, subnormal, normal) | ((bits >> 16) & 0x8000)
}
