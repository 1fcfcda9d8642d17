//! Causal grouped-query attention of one new token over the KV cache, split over the sequence (flash-decoding, Dao et al., 2023).
//!
//! The first launch has a cube for every part of the cache and every key head: it scores the part's keys for all query heads that share the key head, and sums
//! the values under an online softmax (Milakov and Gimelshein, 2018). Keys and values are read once for a whole group. The second launch has a cube for
//! every query head and puts the parts together. Scores are never stored.
//!
//! Bytes moved for a query at position `p`: `4 · (p + 1) · head_dim · kv_heads` of keys and values in half precision, and
//! `8 · (head_dim + 4) · heads` a part.

use super::cube::{bind, contiguous, empty_like};
use super::kv_cache::{CacheShape, read_eight};
use burn::backend::TensorMetadata;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

/// Units of a cube. Few, since a software adapter pays for every unit that may wait at a barrier.
const UNITS: usize = 32;
/// Keys that are scored at a time.
const CHUNK: usize = 128;
/// Units that look for the highest score of a head, each in its share of a chunk.
const SEEKERS: usize = 8;
/// Parts that a cache is split into at most, so that putting them together stays short.
const MAX_PARTS: usize = 8;
/// Keys of a part at least: a cube whose part holds no token yet costs as much as one with work for a few microseconds.
const MIN_PART: usize = 512;
/// Below every score: the running maximum before the first key. (Not -∞, whose differences would be NaN.)
pub(super) const LOWEST: f32 = -3.0e38;

/// Keys of a part.
const fn part_len(max_seq_len: usize) -> usize {
    let len = max_seq_len.div_ceil(MAX_PARTS).next_multiple_of(CHUNK);
    if len < MIN_PART { MIN_PART } else { len }
}

/// Parts of a cache.
const fn parts(max_seq_len: usize) -> usize {
    max_seq_len.div_ceil(part_len(max_seq_len))
}

/// Values that a part has for a head: the unfinished output, and the highest score and the sum of weights in a vector of their own.
const fn part_width(head_dim: usize) -> usize {
    head_dim + 4
}

/// Bytes of workgroup memory that scoring takes: queries, scores, highest scores, and the sums of the units.
pub(super) const fn workgroup_bytes(shape: CacheShape) -> usize {
    4 * (shape.group() * (shape.head_dim + CHUNK + SEEKERS) + 9 * UNITS)
}

#[cube(launch_unchecked)]
fn score_parts<N: Size>(
    q: &[f32],
    cache: &[Vector<u32, N>],
    position: &[u32],
    y: &mut [f32],
    #[comptime] shape: CacheShape,
) {
    let unit = UNIT_POS_X as usize;
    let eights = comptime!(shape.eights());
    let group = comptime!(shape.group());
    let part = CUBE_POS_X as usize;
    let kv_head = CUBE_POS_Y as usize;
    let batch = CUBE_POS_Z as usize;
    let visible = min(position[0] as usize + 1, comptime!(shape.max_seq_len));
    let begin = part * comptime!(part_len(shape.max_seq_len));
    let end = min(begin + comptime!(part_len(shape.max_seq_len)), visible);
    // The same for all units of the cube, so none waits for another.
    if begin >= visible {
        terminate!();
    }
    let keys = (batch * comptime!(2 * shape.kv_heads) + kv_head) * comptime!(shape.max_seq_len);
    let values = keys + comptime!(shape.kv_heads * shape.max_seq_len);
    let first_head = batch * comptime!(shape.heads) + kv_head * group;

    // The group's queries: read by every unit for every key.
    let mut queries = Shared::<[Vector<f32, N>]>::new_slice(comptime!(shape.group() * 2 * shape.eights()));
    let mut i = unit;
    while i < comptime!(shape.group() * 2 * shape.eights()) {
        let mut query = Vector::<f32, N>::new(0.0);
        let start = first_head * comptime!(shape.head_dim) + i * 4;
        #[unroll]
        for lane in 0..4usize {
            query.insert(lane, q[start + lane]);
        }
        queries[i] = query;
        i += UNITS;
    }

    let mut scores = Shared::<[f32]>::new_slice(comptime!(shape.group() * CHUNK));
    let mut highest = Shared::<[f32]>::new_slice(comptime!(shape.group() * SEEKERS));
    let mut maximum = Array::<f32>::new(comptime!(shape.group()));
    let mut total = Array::<f32>::new(comptime!(shape.group()));
    // What this unit sums: eight dimensions of the values of every `strides`-th key.
    let strides = comptime!(UNITS / shape.eights());
    let eight = unit % eights;
    let stride = unit / eights;
    let mut even = Array::<Vector<f32, N>>::new(comptime!(shape.group()));
    let mut odd = Array::<Vector<f32, N>>::new(comptime!(shape.group()));
    #[unroll]
    for g in 0..comptime!(shape.group()) {
        maximum[g] = LOWEST.runtime();
        total[g] = 0.0f32;
        even[g] = Vector::new(0.0);
        odd[g] = Vector::new(0.0);
    }

    let mut start = begin;
    while start < end {
        // Also: nobody reads the last chunk's weights any more.
        sync_cube();
        #[unroll]
        for i in 0..comptime!(CHUNK / UNITS) {
            let key = i * UNITS + unit;
            let mut dots = Array::<Vector<f32, N>>::new(comptime!(shape.group()));
            #[unroll]
            for g in 0..comptime!(shape.group()) {
                dots[g] = Vector::new(0.0);
            }
            let is_visible = start + key < end;
            if is_visible {
                let row = (keys + start + key) * comptime!(shape.vectors());
                for e in 0..eights {
                    let (k_even, k_odd) = read_eight::<N>(cache, row, e, comptime!(shape.precision));
                    #[unroll]
                    for g in 0..comptime!(shape.group()) {
                        let query = (comptime!(g * shape.eights()) + e) * 2;
                        dots[g] += queries[query] * k_even + queries[query + 1] * k_odd;
                    }
                }
            }
            #[unroll]
            for g in 0..comptime!(shape.group()) {
                let dot = dots[g];
                let score = (dot.extract(0usize) + dot.extract(1usize)) + (dot.extract(2usize) + dot.extract(3usize));
                scores[g * CHUNK + key] = select(is_visible, score, LOWEST);
            }
        }
        sync_cube();

        let mut i = unit;
        while i < comptime!(shape.group() * SEEKERS) {
            let mut found = LOWEST.runtime();
            for key in 0..comptime!(CHUNK / SEEKERS) {
                found = max(found, scores[i * comptime!(CHUNK / SEEKERS) + key]);
            }
            highest[i] = found;
            i += UNITS;
        }
        sync_cube();

        #[unroll]
        for g in 0..comptime!(shape.group()) {
            let before = maximum[g];
            let mut found = before;
            #[unroll]
            for i in 0..SEEKERS {
                found = max(found, highest[g * SEEKERS + i]);
            }
            let shrink = (before - found).exp();
            maximum[g] = found;
            total[g] *= shrink;
            even[g] *= Vector::new(shrink);
            odd[g] *= Vector::new(shrink);
            // A unit replaces the scores that it made, and nobody else looks at them before the next barrier.
            #[unroll]
            for i in 0..comptime!(CHUNK / UNITS) {
                let at = g * CHUNK + i * UNITS + unit;
                scores[at] = (scores[at] - found).exp();
            }
        }
        sync_cube();

        let mut key = stride;
        // Units past the last whole stride have nothing to do.
        let length = select(stride < strides, min(end - start, CHUNK), 0);
        while key < length {
            let row = (values + start + key) * comptime!(shape.vectors());
            let (v_even, v_odd) = read_eight::<N>(cache, row, eight, comptime!(shape.precision));
            #[unroll]
            for g in 0..comptime!(shape.group()) {
                let weight = scores[g * CHUNK + key];
                total[g] += weight;
                let weight = Vector::new(weight * comptime!(shape.precision.read_factor()));
                even[g] += weight * v_even;
                odd[g] += weight * v_odd;
            }
            key += strides;
        }
        start += CHUNK;
    }

    // The units with the same dimensions put their sums together.
    let mut sums = Shared::<[Vector<f32, N>]>::new_slice(comptime!(2 * UNITS));
    let mut totals = Shared::<[f32]>::new_slice(UNITS);
    #[unroll]
    for g in 0..comptime!(shape.group()) {
        sync_cube();
        sums[unit] = even[g];
        sums[UNITS + unit] = odd[g];
        totals[unit] = total[g];
        sync_cube();
        if unit < eights {
            let mut all = totals[unit];
            let mut even = sums[unit];
            let mut odd = sums[UNITS + unit];
            for i in 1..strides {
                all += totals[i * eights + unit];
                even += sums[i * eights + unit];
                odd += sums[UNITS + i * eights + unit];
            }
            let row =
                ((first_head + g) * comptime!(parts(shape.max_seq_len)) + part) * comptime!(part_width(shape.head_dim));
            #[unroll]
            for lane in 0..4usize {
                y[row + unit * 8 + comptime!(2 * lane)] = even.extract(lane);
                y[row + unit * 8 + comptime!(2 * lane + 1)] = odd.extract(lane);
            }
            if unit == 0 {
                y[row + comptime!(shape.head_dim)] = maximum[g];
                y[row + comptime!(shape.head_dim + 1)] = all;
            }
        }
    }
}

#[cube(launch_unchecked)]
fn join_parts(partial: &[f32], position: &[u32], y: &mut [f32], #[comptime] shape: CacheShape) {
    let head_dim = comptime!(shape.head_dim);
    let width = comptime!(part_width(shape.head_dim));
    let head = CUBE_POS_X as usize;
    let visible = min(position[0] as usize + 1, comptime!(shape.max_seq_len));
    let used = visible.div_ceil(comptime!(part_len(shape.max_seq_len)));
    let start = head * comptime!(parts(shape.max_seq_len) * part_width(shape.head_dim));

    let mut highest = LOWEST.runtime();
    for part in 0..used {
        highest = max(highest, partial[start + part * width + head_dim]);
    }
    let mut d = UNIT_POS_X as usize;
    while d < head_dim {
        let mut total = 0.0f32;
        let mut sum = 0.0f32;
        for part in 0..used {
            let row = start + part * width;
            let weight = (partial[row + head_dim] - highest).exp();
            total += weight * partial[row + head_dim + 1];
            sum += weight * partial[row + d];
        }
        y[head * head_dim + d] = sum / total;
        d += UNITS;
    }
}

/// Enqueues the attention of `q`, `[batch, 1, heads · head_dim]` in the cache's order, over `cache`. Gives the same shape, in the usual order.
pub(super) fn launch(q: CubeTensor, cache: CubeTensor, position: CubeTensor, shape: CacheShape) -> CubeTensor {
    let q = contiguous(q);
    let batch = q.shape()[0];
    let parts = parts(shape.max_seq_len);
    let partial = empty_like(&q, [batch * shape.heads, parts, part_width(shape.head_dim)]);
    let y = empty_like(&q, q.shape());
    // SAFETY: a part ends with the cache, and units past the last dimensions write nothing.
    unsafe {
        score_parts::launch_unchecked(
            &q.client,
            CubeCount::Static(parts as u32, shape.kv_heads as u32, batch as u32),
            CubeDim::new_1d(UNITS as u32),
            4,
            bind(&q, 4),
            bind(&cache, 16),
            bind(&position, 4),
            bind(&partial, 4),
            shape,
        );
        join_parts::launch_unchecked(
            &q.client,
            CubeCount::Static((batch * shape.heads) as u32, 1, 1),
            CubeDim::new_1d(UNITS as u32),
            bind(&partial, 4),
            bind(&position, 4),
            bind(&y, 4),
            shape,
        );
    }
    y
}
