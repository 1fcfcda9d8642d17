//! Causal grouped-query attention of a prompt's tokens over the KV cache, in tiles (FlashAttention, Dao et al., 2022).
//!
//! A cube has 16 queries of one head and walks the cache in tiles of 32 keys. A unit scores four keys for four queries, then sums a few dimensions of the
//! values for the same four queries, under an online softmax. Of the scores only a tile's exist, in workgroup memory; keys and values are read once for every
//! 16 queries.
//!
//! Bytes moved for `seq` queries after `position` tokens: `4 · head_dim · (position + seq) · seq / 16 · heads` of keys and values in half precision, mostly from a
//! cache.

use super::cube::{bind, contiguous, empty_like};
use super::decode_attention::LOWEST;
use super::kv_cache::{CacheShape, read_eight};
use burn::backend::TensorMetadata;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

/// Units of a cube: 4 teams of 8.
const UNITS: usize = 32;
/// Units of a team, which share four queries.
const PEERS: usize = 8;
/// Queries of a cube.
const QUERIES: usize = 16;
/// Keys of a tile.
const KEYS: usize = 32;
/// Keys of a tile that a unit scores, and whose values are added together.
const RUN: usize = KEYS / PEERS;

/// Groups of eight values of a head that a unit sums.
const fn owned(shape: CacheShape) -> usize {
    shape.eights().div_ceil(PEERS)
}

#[cube(launch_unchecked)]
fn kernel<N: Size>(
    q: &[Vector<f32, N>],
    cache: &[Vector<u32, N>],
    position: &[u32],
    y: &mut [f32],
    seq: u32,
    #[comptime] shape: CacheShape,
) {
    let seq = seq as usize;
    let unit = UNIT_POS_X as usize;
    let (team, peer) = (unit / PEERS, unit % PEERS);
    let head = CUBE_POS_Y as usize;
    let batch = CUBE_POS_Z as usize;
    let before = position[0] as usize;
    let first = CUBE_POS_X as usize * QUERIES;
    let keys = (batch * comptime!(2 * shape.kv_heads) + head / comptime!(shape.group())) * comptime!(shape.max_seq_len);
    let values = keys + comptime!(shape.kv_heads * shape.max_seq_len);
    let visible = min(before + min(first + QUERIES, seq), comptime!(shape.max_seq_len));

    // A query past the end is computed as the last one and never written.
    let mut queries = Sequence::<usize>::new();
    #[unroll]
    for i in 0..4usize {
        let token = min(first + team * 4 + i, seq - 1);
        queries.push(((batch * seq + token) * comptime!(shape.heads) + head) * comptime!(2 * shape.eights()));
    }

    // Lane `i` of these is the team's query `i`.
    let mut weights = Shared::<[Vector<f32, N>]>::new_slice(comptime!(4 * KEYS));
    // A unit's highest scores of its keys, and at last its sum of weights.
    let mut of_units = Shared::<[Vector<f32, N>]>::new_slice(UNITS);
    let mut maximum = Vector::<f32, N>::new(LOWEST);
    // Of the unit's own keys.
    let mut total = Vector::<f32, N>::new(0.0);
    // Of eight values the even ones, then the odd ones, for each query.
    let mut sums = Array::<Vector<f32, N>>::new(comptime!(8 * owned(shape)));
    #[unroll]
    for i in 0..comptime!(8 * owned(shape)) {
        sums[i] = Vector::new(0.0);
    }

    let mut start = 0usize.runtime();
    while start < visible {
        let scores = scores::<N>(q, cache, &queries, keys, start + peer * RUN, visible, shape);
        let mut lanes = Sequence::<Vector<f32, N>>::new();
        #[unroll]
        for k in 0..RUN {
            let key = start + peer * RUN + k;
            let mut lane = Vector::<f32, N>::new(LOWEST);
            #[unroll]
            for i in 0..4usize {
                let is_visible = key <= before + first + team * 4 + i && key < visible;
                lane.insert(i, select(is_visible, scores[comptime!(k * 4 + i)], LOWEST));
            }
            lanes.push(lane);
        }
        let mut highest = lanes[0];
        #[unroll]
        for k in 1..RUN {
            highest = max(highest, lanes[k]);
        }
        of_units[unit] = highest;
        sync_cube();

        let previous = maximum;
        #[unroll]
        for i in 0..PEERS {
            maximum = max(maximum, of_units[team * PEERS + i]);
        }
        let shrink = (previous - maximum).exp();
        total *= shrink;
        #[unroll]
        for i in 0..comptime!(8 * owned(shape)) {
            sums[i] *= Vector::new(shrink.extract(comptime!(i % 4)));
        }
        #[unroll]
        for k in 0..RUN {
            let weight = (lanes[k] - maximum).exp();
            total += weight;
            weights[team * KEYS + peer * RUN + k] = weight * Vector::new(comptime!(shape.precision.read_factor()));
        }
        sync_cube();

        let end = min(visible - start, KEYS);
        let mut key = 0usize.runtime();
        while key < end {
            add_values::<N>(cache, &weights, values, start + key, visible, team * KEYS + key, peer, &mut sums, shape);
            key += RUN;
        }
        start += KEYS;
    }

    of_units[unit] = total;
    sync_cube();
    let mut total = Vector::<f32, N>::new(0.0);
    #[unroll]
    for i in 0..PEERS {
        total += of_units[team * PEERS + i];
    }
    #[unroll]
    for o in 0..comptime!(owned(shape)) {
        let eight = o * PEERS + peer;
        #[unroll]
        for i in 0..4usize {
            let token = first + team * 4 + i;
            if eight < comptime!(shape.eights()) && token < seq {
                let at =
                    ((batch * seq + token) * comptime!(shape.heads) + head) * comptime!(shape.head_dim) + eight * 8;
                let factor = Vector::new(1.0 / total.extract(i));
                let even = sums[comptime!(8 * o + i)] * factor;
                let odd = sums[comptime!(8 * o + 4 + i)] * factor;
                #[unroll]
                for lane in 0..4usize {
                    y[at + comptime!(2 * lane)] = even.extract(lane);
                    y[at + comptime!(2 * lane + 1)] = odd.extract(lane);
                }
            }
        }
    }
}

/// Where in the cache a run's heads begin, from key `first` on. Keys that nobody sees are read as the last one that is seen; their weights are 0.
#[cube]
fn rows_of_run(start: usize, first: usize, visible: usize, #[comptime] shape: CacheShape) -> Sequence<usize> {
    let mut rows = Sequence::<usize>::new();
    #[unroll]
    for k in 0..RUN {
        rows.push((start + min(first + k, visible - 1)) * comptime!(shape.vectors()));
    }
    rows
}

/// The products of a run of keys from `first` on with the team's queries, a key's four together.
#[cube]
fn scores<N: Size>(
    q: &[Vector<f32, N>],
    cache: &[Vector<u32, N>],
    queries: &Sequence<usize>,
    keys: usize,
    first: usize,
    visible: usize,
    #[comptime] shape: CacheShape,
) -> Array<f32> {
    let mut scores = Array::<f32>::new(comptime!(4 * RUN));
    #[unroll]
    for i in 0..comptime!(4 * RUN) {
        scores[i] = 0.0;
    }
    let rows = rows_of_run(keys, first, visible, shape);
    for e in 0..comptime!(shape.eights()) {
        let mut key = Sequence::<Vector<f32, N>>::new();
        #[unroll]
        for k in 0..RUN {
            let (even, odd) = read_eight::<N>(cache, rows[k], e, comptime!(shape.precision));
            key.push(even);
            key.push(odd);
        }
        #[unroll]
        for i in 0..4usize {
            let even = q[queries[i] + 2 * e];
            let odd = q[queries[i] + 2 * e + 1];
            #[unroll]
            for k in 0..RUN {
                scores[comptime!(k * 4 + i)] += key[comptime!(2 * k)].dot(even) + key[comptime!(2 * k + 1)].dot(odd);
            }
        }
    }
    scores
}

/// Adds the weighted values of a run of keys from `first` on, whose weights begin at `weight`, to the unit's sums.
#[cube]
#[allow(clippy::too_many_arguments)]
fn add_values<N: Size>(
    cache: &[Vector<u32, N>],
    weights: &[Vector<f32, N>],
    values: usize,
    first: usize,
    visible: usize,
    weight: usize,
    peer: usize,
    sums: &mut Array<Vector<f32, N>>,
    #[comptime] shape: CacheShape,
) {
    let rows = rows_of_run(values, first, visible, shape);
    let mut run = Sequence::<Vector<f32, N>>::new();
    #[unroll]
    for k in 0..RUN {
        let weight = weights[weight + k];
        run.push(weight);
    }
    #[unroll]
    for o in 0..comptime!(owned(shape)) {
        // A unit past the last dimensions reads along and writes nothing.
        let eight = min(o * PEERS + peer, comptime!(shape.eights() - 1));
        let mut value = Sequence::<Vector<f32, N>>::new();
        #[unroll]
        for k in 0..RUN {
            let (even, odd) = read_eight::<N>(cache, rows[k], eight, comptime!(shape.precision));
            value.push(even);
            value.push(odd);
        }
        #[unroll]
        for i in 0..8usize {
            sums[comptime!(8 * o + i)] += weighted::<N>(&value, &run, comptime!(i / 4), comptime!(i % 4), RUN);
        }
    }
}

/// The sum of the even (`parity` 0) or odd (1) values of the first `count` keys, each times lane `i` of its weight.
#[cube]
fn weighted<N: Size>(
    values: &Sequence<Vector<f32, N>>,
    weights: &Sequence<Vector<f32, N>>,
    #[comptime] parity: usize,
    #[comptime] i: usize,
    #[comptime] count: usize,
) -> Vector<f32, N> {
    let last = comptime!(count - 1);
    let product = values[comptime!(2 * last + parity)] * Vector::new(weights[last].extract(i));
    if comptime!(last == 0) { product } else { weighted::<N>(values, weights, parity, i, last) + product }
}

/// Enqueues the attention of `q`, `[batch, seq, heads · head_dim]` in the cache's order, over `cache`. Gives the same shape, in the usual order.
pub(super) fn launch(q: CubeTensor, cache: CubeTensor, position: CubeTensor, shape: CacheShape) -> CubeTensor {
    let q = contiguous(q);
    let dims = q.shape();
    let y = empty_like(&q, q.shape());
    // SAFETY: a query sees at most the cache's rows; keys and dimensions past the end are clamped to the last ones.
    unsafe {
        kernel::launch_unchecked(
            &q.client,
            CubeCount::Static(dims[1].div_ceil(QUERIES) as u32, shape.heads as u32, dims[0] as u32),
            CubeDim::new_1d(UNITS as u32),
            4,
            bind(&q, 16),
            bind(&cache, 16),
            bind(&position, 4),
            bind(&y, 4),
            dims[1] as u32,
            shape,
        );
    }
    y
}
