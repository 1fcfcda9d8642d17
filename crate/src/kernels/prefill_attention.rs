//! Causal grouped-query attention of a prompt's tokens over the KV cache, in tiles (FlashAttention, Dao et al., 2022).
//!
//! A cube has 16 queries of one head and walks the cache in tiles of 32 keys. A unit scores two keys for four queries, then sums a few dimensions of the
//! values for the same four queries, under an online softmax. Of the scores only a tile's exist, in workgroup memory; keys and values are read once for every
//! 16 queries.
//!
//! Bytes moved for `seq` queries after `position` tokens: `4 · head_dim · (position + seq) · seq / 16 · heads` of keys and values in half precision, mostly from a
//! cache.

use super::cube::{bind, contiguous, empty_like};
use super::decode_attention::LOWEST;
use super::kv_cache::{CacheShape, read_eight, read_four};
use burn::backend::TensorMetadata;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

/// Units of a cube: 4 groups of queries by 16.
const UNITS: usize = 64;
/// Units that share four queries.
const PEERS: usize = 16;
/// Queries of a cube.
const QUERIES: usize = 16;
/// Keys of a tile.
const KEYS: usize = 32;

/// Vectors of four values of a head that a unit sums.
const fn owned(shape: CacheShape) -> usize {
    (2 * shape.eights()).div_ceil(PEERS)
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
    let eights = comptime!(shape.eights());
    let head = CUBE_POS_Y as usize;
    let batch = CUBE_POS_Z as usize;
    let before = position[0] as usize;
    let first = CUBE_POS_X as usize * QUERIES;
    let keys = (batch * comptime!(2 * shape.kv_heads) + head / comptime!(shape.group())) * comptime!(shape.max_seq_len);
    let values = keys + comptime!(shape.kv_heads * shape.max_seq_len);
    let visible = min(before + min(first + QUERIES, seq), comptime!(shape.max_seq_len));

    // A query past the end is computed as the last one and never written.
    let mut queries = Array::<usize>::new(4usize);
    #[unroll]
    for i in 0..4usize {
        let token = min(first + team * 4 + i, seq - 1);
        queries[i] = ((batch * seq + token) * comptime!(shape.heads) + head) * comptime!(2 * shape.eights());
    }

    // Lane `i` of a vector of scores is the team's query `i`.
    let mut scores = Shared::<[Vector<f32, N>]>::new_slice(comptime!(4 * KEYS));
    let mut weights = Shared::<[Vector<f32, N>]>::new_slice(comptime!(4 * KEYS));
    let mut maximum = Vector::<f32, N>::new(LOWEST);
    let mut total = Vector::<f32, N>::new(0.0);
    let mut sums = Array::<Vector<f32, N>>::new(comptime!(4 * owned(shape)));
    #[unroll]
    for i in 0..comptime!(4 * owned(shape)) {
        sums[i] = Vector::new(0.0);
    }

    let mut start = 0usize.runtime();
    while start < visible {
        let mut dots = Array::<Vector<f32, N>>::new(8usize);
        #[unroll]
        for i in 0..8usize {
            dots[i] = Vector::new(0.0);
        }
        let row = keys + min(start + 2 * peer, visible - 1);
        let next = keys + min(start + 2 * peer + 1, visible - 1);
        for e in 0..eights {
            let (a_even, a_odd) =
                read_eight::<N>(cache, row * comptime!(shape.vectors()), e, comptime!(shape.precision));
            let (b_even, b_odd) =
                read_eight::<N>(cache, next * comptime!(shape.vectors()), e, comptime!(shape.precision));
            #[unroll]
            for i in 0..4usize {
                let even = q[queries[i] + 2 * e];
                let odd = q[queries[i] + 2 * e + 1];
                dots[i] += even * a_even + odd * a_odd;
                dots[comptime!(4 + i)] += even * b_even + odd * b_odd;
            }
        }
        let mut mine = Array::<Vector<f32, N>>::new(2usize);
        #[unroll]
        for k in 0..2usize {
            let key = start + 2 * peer + k;
            let mut lanes = Vector::<f32, N>::new(LOWEST);
            #[unroll]
            for i in 0..4usize {
                let dot = dots[comptime!(4 * k + i)];
                let score = (dot.extract(0usize) + dot.extract(1usize)) + (dot.extract(2usize) + dot.extract(3usize));
                let is_visible = key <= before + first + team * 4 + i && key < visible;
                lanes.insert(i, select(is_visible, score, LOWEST));
            }
            mine[k] = lanes;
            scores[team * KEYS + 2 * peer + k] = lanes;
        }
        sync_cube();

        let mut highest = maximum;
        for key in 0..KEYS {
            highest = max(highest, scores[team * KEYS + key]);
        }
        let shrink = (maximum - highest).exp();
        maximum = highest;
        total *= shrink;
        #[unroll]
        for i in 0..comptime!(4 * owned(shape)) {
            sums[i] *= Vector::new(shrink.extract(comptime!(i % 4)));
        }
        #[unroll]
        for k in 0..2usize {
            weights[team * KEYS + 2 * peer + k] = (mine[k] - highest).exp();
        }
        sync_cube();

        let length = min(visible - start, KEYS);
        for key in 0..length {
            let weight = weights[team * KEYS + key];
            total += weight;
            let weight = weight * Vector::new(comptime!(shape.precision.read_factor()));
            let row = (values + start + key) * comptime!(shape.vectors());
            #[unroll]
            for o in 0..comptime!(owned(shape)) {
                // A unit past the last dimensions reads along and writes nothing.
                let four = min(o * PEERS + peer, comptime!(2 * shape.eights() - 1));
                let value = read_four::<N>(cache, row, four / 2, four % 2, comptime!(shape.precision));
                #[unroll]
                for i in 0..4usize {
                    sums[comptime!(4 * o + i)] += value * Vector::new(weight.extract(i));
                }
            }
        }
        start += KEYS;
    }

    #[unroll]
    for o in 0..comptime!(owned(shape)) {
        let four = o * PEERS + peer;
        #[unroll]
        for i in 0..4usize {
            let token = first + team * 4 + i;
            if four < comptime!(2 * shape.eights()) && token < seq {
                let sum = sums[comptime!(4 * o + i)] / Vector::new(total.extract(i));
                let at = ((batch * seq + token) * comptime!(shape.heads) + head) * comptime!(shape.head_dim)
                    + four / 2 * 8
                    + four % 2;
                #[unroll]
                for lane in 0..4usize {
                    y[at + comptime!(2 * lane)] = sum.extract(lane);
                }
            }
        }
    }
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
