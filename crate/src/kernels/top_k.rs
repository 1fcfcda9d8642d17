//! The most likely tokens, without sorting: the host has a few hundred logits to read instead of a whole vocabulary's.
//!
//! One cube works on the groups' maxima of `sampling`. It bisects their keys for the k-th largest, `t`, one bit a round. At least k logits are no
//! smaller than `t`, and all of them are in groups whose maximum is no smaller, so the rest of the vocabulary is out. The logits of those groups
//! that are no smaller than `t` are few more than k as a rule, and go out as they are. Where they are more than fit, their keys are bisected too.
//!
//! Bytes moved for a vocabulary of `v`: what `sampling` moves for the maxima, `256` read for each group that is left and read twice again from a
//! cache, and `8` written for each candidate.

use super::cube::{bind, contiguous};
use super::sampling::{GROUP, LANES, PARTS, SPAN, UNITS, empty_words, groups, maxima, order};
use burn::backend::TensorMetadata;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

/// The largest k.
pub const MAX_TOP_K: usize = 256;
/// The most candidates that [`top_k`](super::top_k) gives.
pub const CANDIDATE_CAPACITY: usize = 510;
/// What [`top_k`](super::top_k) gives: the count, nothing, then for each candidate its token and its logit's bits.
pub const CANDIDATE_WORDS: usize = 2 + 2 * CANDIDATE_CAPACITY;

/// The tokens and logits that [`top_k`](super::top_k) gave.
pub fn candidates(words: &[u32]) -> Vec<(u32, f32)> {
    let count = words.first().map_or(0, |count| *count as usize);
    let pairs = words.get(2..).unwrap_or_default().chunks_exact(2);
    pairs.take(count).map(|pair| (pair[0], f32::from_bits(pair[1]))).collect()
}

#[cube(launch_unchecked)]
fn kernel(logits: &[u32], maxima: &[u32], k: &[u32], candidates: &mut [u32], #[comptime] vocabulary: usize) {
    let groups = comptime!(groups(vocabulary));
    let owned = comptime!(groups.div_ceil(UNITS));
    let unit = UNIT_POS_X as usize;
    let k = clamp(k[0], 1u32, MAX_TOP_K as u32);
    let mut counts = Shared::<[u32]>::new_slice(UNITS);
    let mut parts = Shared::<[u32]>::new_slice(PARTS);
    let mut list = Shared::<[u32]>::new_slice(CANDIDATE_CAPACITY);

    let mut keys = Array::<u32>::new(owned);
    #[unroll]
    for i in 0..owned {
        let group = i * UNITS + unit;
        keys[i] = select(group < groups, maxima[min(group, groups - 1)], 0u32);
    }

    // The largest number that at least k groups reach; 1, which every token that may be chosen reaches, where there are fewer groups.
    let mut least = 0u32.runtime();
    for bit in 0..32u32 {
        let trial = least + (0x8000_0000u32 >> bit);
        let mut count = 0u32.runtime();
        #[unroll]
        for i in 0..owned {
            count += u32::cast_from(keys[i] >= trial);
        }
        least = select(sum(count, &mut counts, &mut parts) >= k, trial, least);
    }
    least = max(least, 1u32);

    // The groups that reach it: those above it, which are fewer than k, and then as many of those that equal it as there is room for.
    let mut above = 0u32.runtime();
    let mut equal = 0u32.runtime();
    #[unroll]
    for i in 0..owned {
        above += u32::cast_from(keys[i] > least);
        equal += u32::cast_from(keys[i] == least);
    }
    let (mut above, mut equal, listed) = places(above, equal, &mut counts, &mut parts);
    #[unroll]
    for i in 0..owned {
        let group = (i * UNITS + unit) as u32;
        if keys[i] > least {
            list[above as usize] = group;
            above += 1;
        }
        if keys[i] == least {
            if equal < CANDIDATE_CAPACITY as u32 {
                list[equal as usize] = group;
            }
            equal += 1;
        }
    }
    sync_cube();

    // Their logits that reach it; if those are too many, the largest number that at least k of them reach.
    let length = min(listed as usize, CANDIDATE_CAPACITY) * GROUP;
    let count = count_from(logits, &list, length, least, vocabulary);
    let too_many = sum(count, &mut counts, &mut parts) > CANDIDATE_CAPACITY as u32;
    let mut kth = 0u32.runtime();
    for bit in 0..32u32 {
        let trial = kth + (0x8000_0000u32 >> bit);
        let mut count = 0u32.runtime();
        if too_many {
            count = count_from(logits, &list, length, trial, vocabulary);
        }
        kth = select(sum(count, &mut counts, &mut parts) >= k, trial, kth);
    }
    least = max(least, kth);

    // Out with them, again those that equal it last.
    let mut above = 0u32.runtime();
    let mut equal = 0u32.runtime();
    let mut at = unit;
    while at < length {
        let (_id, key) = logit(logits, &list, at, vocabulary);
        above += u32::cast_from(key > least);
        equal += u32::cast_from(key == least);
        at += UNITS;
    }
    let (mut above, mut equal, found) = places(above, equal, &mut counts, &mut parts);
    let mut at = unit;
    while at < length {
        let (id, key) = logit(logits, &list, at, vocabulary);
        let place = select(key > least, above, equal) as usize;
        if key >= least && place < CANDIDATE_CAPACITY {
            candidates[2 + 2 * place] = id as u32;
            candidates[3 + 2 * place] = logits[id];
        }
        above += u32::cast_from(key > least);
        equal += u32::cast_from(key == least);
        at += UNITS;
    }
    if unit == 0 {
        candidates[0] = min(found, CANDIDATE_CAPACITY as u32);
        candidates[1] = 0;
    }
}

/// The sum of the units' values, for every unit.
#[cube]
fn sum(value: u32, counts: &mut Shared<[u32]>, parts: &mut Shared<[u32]>) -> u32 {
    gather(value, counts, parts);
    let mut all = 0u32.runtime();
    for part in 0..PARTS {
        all += parts[part];
    }
    all
}

/// Leaves the units' values in `counts` and the sums of [`PARTS`] runs of them in `parts`. What the last call left may still be read until all
/// units have called this again: the first is overwritten before they meet here, the second after.
#[cube]
fn gather(value: u32, counts: &mut Shared<[u32]>, parts: &mut Shared<[u32]>) {
    let unit = UNIT_POS_X as usize;
    counts[unit] = value;
    sync_cube();
    if unit < PARTS {
        let mut part = 0u32.runtime();
        for i in 0..comptime!(UNITS / PARTS) {
            part += counts[unit * comptime!(UNITS / PARTS) + i];
        }
        parts[unit] = part;
    }
    sync_cube();
}

/// Where each unit puts the items that it has above and at a limit, if all above come before all at it, and units in order; and how many there
/// are of all. Both counts fit into 16 bits.
#[cube]
fn places(above: u32, equal: u32, counts: &mut Shared<[u32]>, parts: &mut Shared<[u32]>) -> (u32, u32, u32) {
    let unit = UNIT_POS_X as usize;
    gather(above + (equal << 16), counts, parts);
    let mut before = 0u32.runtime();
    let mut all = 0u32.runtime();
    for part in 0..PARTS {
        before += select(part < unit / comptime!(UNITS / PARTS), parts[part], 0u32);
        all += parts[part];
    }
    for i in 0..unit % comptime!(UNITS / PARTS) {
        before += counts[unit - 1 - i];
    }
    sync_cube();
    let all_above = all & 0xffff;
    (before & 0xffff, all_above + (before >> 16), all_above + (all >> 16))
}

/// The token and the key of logit `at` of the listed groups. Past the vocabulary the key is 0.
#[cube]
fn logit(logits: &[u32], list: &Shared<[u32]>, at: usize, #[comptime] vocabulary: usize) -> (usize, u32) {
    let group = list[at / GROUP] as usize;
    let id = (group / LANES) * SPAN + (at % GROUP) * LANES + group % LANES;
    let last = comptime!(vocabulary - 1);
    (id, select(id <= last, order(logits[min(id, last)]), 0u32))
}

/// How many of the logits that this unit looks after have at least the key `least`.
#[cube]
fn count_from(logits: &[u32], list: &Shared<[u32]>, length: usize, least: u32, #[comptime] vocabulary: usize) -> u32 {
    let mut count = 0u32.runtime();
    let mut at = UNIT_POS_X as usize;
    while at < length {
        let (_id, key) = logit(logits, list, at, vocabulary);
        count += u32::cast_from(key >= least);
        at += UNITS;
    }
    count
}

/// Enqueues the search; `k` is one `u32` on the device.
pub(super) fn launch(logits: CubeTensor, k: CubeTensor) -> CubeTensor {
    let logits = contiguous(logits);
    let vocabulary = logits.shape().num_elements();
    let maxima = maxima(&logits);
    let candidates = empty_words(&logits, CANDIDATE_WORDS);
    // SAFETY: groups and tokens are clamped to the last ones, and places in the list and among the candidates to their room.
    unsafe {
        kernel::launch_unchecked(
            &logits.client,
            CubeCount::Static(1, 1, 1),
            CubeDim::new_1d(UNITS as u32),
            bind(&logits, 4),
            bind(&maxima, 4),
            bind(&k, 4),
            bind(&candidates, 4),
            vocabulary,
        );
    }
    candidates
}
