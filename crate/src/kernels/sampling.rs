//! Choosing a token where the logits are: penalties, the largest logit, and the order that both it and `top_k` go by.
//!
//! Logits are compared as integers. [`order`] gives each a key that is larger the larger the logit is, and 0 where it can never be chosen, so that
//! nothing here depends on how a device compares NaN or treats infinities. The vocabulary is cut into groups of [`GROUP`] logits whose maxima are
//! found first: 64 units side by side read logits side by side, each for a group of its own.
//!
//! Bytes moved for a vocabulary of `v`: `4 · v` read for the maxima, and `v / 8` written and read again. Penalties touch what they name.

use super::cube::{bind, contiguous};
use burn::backend::TensorMetadata;
use burn::tensor::DType;
use burn_cubecl::ops::numeric::empty_device_contiguous_dtype;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

/// Penalties that one call of [`penalize`](super::penalize) takes.
pub const MAX_PENALIZED: usize = 256;
/// What [`greedy`](super::greedy) gives where no logit is above -∞.
pub const NO_TOKEN: u32 = u32::MAX;

/// Logits of a group.
pub(super) const GROUP: usize = 64;
/// Groups of a cube that finds maxima: one a unit. The cube's logit `i · LANES + lane` belongs to the group of that lane.
pub(super) const LANES: usize = 64;
/// Logits of such a cube.
pub(super) const SPAN: usize = GROUP * LANES;
/// Units of a cube that works alone.
pub(super) const UNITS: usize = 256;
/// What such a cube's units are gathered in, so that no unit reads all of them.
pub(super) const PARTS: usize = 16;

/// How one token's logit changes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Penalty {
    /// The token.
    pub id: u32,
    /// What a positive logit is multiplied by.
    pub if_positive: f32,
    /// What any other logit is multiplied by.
    pub if_negative: f32,
    /// What is subtracted afterwards.
    pub subtract: f32,
}

impl Penalty {
    /// The changed logit. It is kept finite; one that is not finite stays as it is. (So there is never an infinity less an infinity.)
    pub fn apply(self, logit: f32) -> f32 {
        if !logit.is_finite() {
            return logit;
        }
        let factor = if logit > 0.0 { self.if_positive } else { self.if_negative };
        ((logit * factor).clamp(f32::MIN, f32::MAX) - self.subtract).clamp(f32::MIN, f32::MAX)
    }
}

/// What [`penalize`](super::penalize) reads: the count, then for each penalty its token and the bits of its three numbers; zeros to the end.
/// `None` for more than [`MAX_PENALIZED`]: such logits are for the host to change.
pub fn penalty_words(penalties: &[Penalty]) -> Option<Vec<u32>> {
    if penalties.len() > MAX_PENALIZED {
        return None;
    }
    let mut words = vec![penalties.len() as u32];
    for penalty in penalties {
        let numbers = [penalty.if_positive, penalty.if_negative, penalty.subtract];
        words.push(penalty.id);
        words.extend(numbers.map(f32::to_bits));
    }
    words.resize(1 + 4 * MAX_PENALIZED, 0);
    Some(words)
}

/// A number that is larger the larger the logit with these bits is, -0 below 0 (IEEE 754's total order), and 0 for -∞ and NaN.
#[cube]
pub(super) fn order(bits: u32) -> u32 {
    let key = select(bits >= 0x8000_0000u32, 0xffff_ffffu32 - bits, bits + 0x8000_0000u32);
    let is_nan = (bits & 0x7fff_ffff) > 0x7f80_0000u32;
    select(is_nan || bits == 0xff80_0000u32, 0u32, key)
}

#[cube(launch_unchecked)]
fn penalize_kernel(penalties: &[u32], logits: &mut [f32], #[comptime] vocabulary: usize) {
    let unit = UNIT_POS_X as usize;
    if unit < min(penalties[0] as usize, MAX_PENALIZED) {
        let id = penalties[1 + 4 * unit] as usize;
        if id < vocabulary {
            let logit = logits[id];
            let is_finite = (u32::reinterpret(logit) & 0x7f80_0000) != 0x7f80_0000u32;
            if is_finite {
                let if_positive = f32::reinterpret(penalties[2 + 4 * unit]);
                let if_negative = f32::reinterpret(penalties[3 + 4 * unit]);
                let scaled = clamp(logit * select(logit > 0.0f32, if_positive, if_negative), f32::MIN, f32::MAX);
                logits[id] = clamp(scaled - f32::reinterpret(penalties[4 + 4 * unit]), f32::MIN, f32::MAX);
            }
        }
    }
}

/// Enqueues the penalties and returns the logits.
pub(super) fn penalize(logits: CubeTensor, penalties: CubeTensor) -> CubeTensor {
    let logits = contiguous(logits);
    let vocabulary = logits.shape().num_elements();
    // SAFETY: an entry is one of those that the table holds, and a token past the vocabulary is passed over.
    unsafe {
        penalize_kernel::launch_unchecked(
            &logits.client,
            CubeCount::Static(1, 1, 1),
            CubeDim::new_1d(MAX_PENALIZED as u32),
            bind(&penalties, 4),
            bind(&logits, 4),
            vocabulary,
        );
    }
    logits
}

#[cube(launch_unchecked)]
fn maxima_kernel(logits: &[u32], maxima: &mut [u32], #[comptime] vocabulary: usize) {
    let group = CUBE_POS_X as usize * LANES + UNIT_POS_X as usize;
    let start = CUBE_POS_X as usize * SPAN + UNIT_POS_X as usize;
    let mut largest = 0u32.runtime();
    let mut token = NO_TOKEN.runtime();
    for i in 0..GROUP {
        let id = start + i * LANES;
        // Past the end the last logit is read along and does not count.
        let key = order(logits[min(id, comptime!(vocabulary - 1))]);
        if id < vocabulary && key > largest {
            largest = key;
            token = id as u32;
        }
    }
    maxima[group] = largest;
    maxima[comptime!(groups(vocabulary)) + group] = token;
}

/// Groups of a vocabulary, among them empty ones after its end.
pub(super) fn groups(vocabulary: usize) -> usize {
    vocabulary.div_ceil(SPAN) * LANES
}

/// Enqueues the search for the largest key of each group: first all the keys, then all the tokens that have them.
pub(super) fn maxima(logits: &CubeTensor) -> CubeTensor {
    let vocabulary = logits.shape().num_elements();
    let maxima = empty_words(logits, 2 * groups(vocabulary));
    // SAFETY: indices of logits are clamped to the last one, and every cube has its own groups.
    unsafe {
        maxima_kernel::launch_unchecked(
            &logits.client,
            CubeCount::Static(vocabulary.div_ceil(SPAN) as u32, 1, 1),
            CubeDim::new_1d(LANES as u32),
            bind(logits, 4),
            bind(&maxima, 4),
            vocabulary,
        );
    }
    maxima
}

#[cube(launch_unchecked)]
fn greedy_kernel(maxima: &[u32], token: &mut [u32], position: &mut [u32], #[comptime] groups: usize) {
    let unit = UNIT_POS_X as usize;
    let mut keys = Shared::<[u32]>::new_slice(UNITS);
    let mut ids = Shared::<[u32]>::new_slice(UNITS);
    let mut part_keys = Shared::<[u32]>::new_slice(PARTS);
    let mut part_ids = Shared::<[u32]>::new_slice(PARTS);

    let mut key = 0u32.runtime();
    let mut id = NO_TOKEN.runtime();
    let mut group = unit;
    while group < groups {
        let (other_key, other_id) = (maxima[group], maxima[groups + group]);
        let better = is_better(other_key, other_id, key, id);
        key = select(better, other_key, key);
        id = select(better, other_id, id);
        group += UNITS;
    }
    keys[unit] = key;
    ids[unit] = id;
    sync_cube();
    if unit < PARTS {
        for i in 1..comptime!(UNITS / PARTS) {
            let (other_key, other_id) = (keys[i * PARTS + unit], ids[i * PARTS + unit]);
            let better = is_better(other_key, other_id, key, id);
            key = select(better, other_key, key);
            id = select(better, other_id, id);
        }
        part_keys[unit] = key;
        part_ids[unit] = id;
    }
    sync_cube();
    if unit == 0 {
        for i in 1..PARTS {
            let better = is_better(part_keys[i], part_ids[i], key, id);
            key = select(better, part_keys[i], key);
            id = select(better, part_ids[i], id);
        }
        token[0] = id;
        position[0] += 1;
    }
}

/// Whether the first token comes before the second: the larger key, of equals the lower id.
#[cube]
fn is_better(key: u32, id: u32, than_key: u32, than_id: u32) -> bool {
    key > than_key || (key == than_key && id < than_id)
}

/// Enqueues the choice of the largest logit, and returns the token and the position after it.
pub(super) fn greedy(logits: CubeTensor, token: CubeTensor, position: CubeTensor) -> (CubeTensor, CubeTensor) {
    let logits = contiguous(logits);
    let maxima = maxima(&logits);
    // SAFETY: units stay below the groups, and one unit writes to tensors of one element.
    unsafe {
        greedy_kernel::launch_unchecked(
            &logits.client,
            CubeCount::Static(1, 1, 1),
            CubeDim::new_1d(UNITS as u32),
            bind(&maxima, 4),
            bind(&token, 4),
            bind(&position, 4),
            groups(logits.shape().num_elements()),
        );
    }
    (token, position)
}

/// A new, uninitialized `u32` tensor of one dimension beside `like`.
pub(super) fn empty_words(like: &CubeTensor, length: usize) -> CubeTensor {
    empty_device_contiguous_dtype(like.client.clone(), like.device.clone(), [length].into(), DType::U32)
}
