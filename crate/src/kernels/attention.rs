//! Causal grouped-query attention over the KV cache, with an online softmax: one cube a query and head.
//!
//! The cache is walked in chunks. For each chunk the units score its keys (one key a unit), then every unit updates the output dimensions that it
//! owns with the chunk's values, rescaling what it has by how much the running maximum rose. Workgroup memory holds one chunk's scores and
//! weights, whatever the context's length.
//!
//! Bytes moved for a query at position `p`: `8 · (p + 1) · head_dim` of keys and values (shared by the heads of a group through a cache).

use super::cube::{bind, contiguous, empty_like};
use burn::backend::TensorMetadata;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

/// Units of a cube.
const UNITS: usize = 64;
/// Keys of a chunk.
const CHUNK: usize = 128;
/// Below every score: the running maximum before the first key. (Not -∞, whose differences would be NaN.)
const LOWEST: f32 = -3.0e38;

/// Heads and cache: what a pipeline is compiled for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct AttentionShape {
    heads: usize,
    kv_heads: usize,
    head_dim: usize,
    max_seq_len: usize,
}

#[cube(launch_unchecked)]
fn kernel<N: Size>(
    q: &[Vector<f32, N>],
    k_cache: &[Vector<f32, N>],
    v_cache: &[f32],
    position: &[u32],
    y: &mut [f32],
    scale: f32,
    seq: u32,
    #[comptime] shape: AttentionShape,
) {
    let head_dim = comptime!(shape.head_dim);
    let vectors = comptime!(shape.head_dim / 4);
    let owned = comptime!(shape.head_dim.div_ceil(UNITS));
    let unit = UNIT_POS_X as usize;
    let seq = seq as usize;
    let token = CUBE_POS_X as usize;
    let head = CUBE_POS_Y as usize;
    let kv_head = head / comptime!(shape.heads / shape.kv_heads);
    let visible = min(position[0] as usize + token % seq + 1, comptime!(shape.max_seq_len));
    // The first row of this head's keys and values, and this query's first value.
    let rows = ((token / seq) * comptime!(shape.kv_heads) + kv_head) * comptime!(shape.max_seq_len);
    let query = (token * comptime!(shape.heads) + head) * vectors;

    let mut scores = Shared::<[f32]>::new_slice(CHUNK);
    let mut weights = Shared::<[f32]>::new_slice(CHUNK);
    let mut sums = Array::<f32>::new(owned);
    #[unroll]
    for i in 0..owned {
        sums[i] = 0.0f32;
    }
    let mut maximum = LOWEST.runtime();
    let mut total = 0.0f32;

    let mut start = 0usize.runtime();
    while start < visible {
        let length = min(visible - start, CHUNK);
        #[unroll]
        for i in 0..comptime!(CHUNK / UNITS) {
            let key = i * UNITS + unit;
            if key < length {
                let mut dot = Vector::<f32, N>::new(0.0);
                for d in 0..vectors {
                    dot += q[query + d] * k_cache[(rows + start + key) * vectors + d];
                }
                scores[key] =
                    scale * ((dot.extract(0usize) + dot.extract(1usize)) + (dot.extract(2usize) + dot.extract(3usize)));
            }
        }
        sync_cube();

        let mut highest = maximum;
        for key in 0..length {
            highest = max(highest, scores[key]);
        }
        #[unroll]
        for i in 0..comptime!(CHUNK / UNITS) {
            let key = i * UNITS + unit;
            if key < length {
                weights[key] = (scores[key] - highest).exp();
            }
        }
        let shrink = (maximum - highest).exp();
        maximum = highest;
        total *= shrink;
        #[unroll]
        for i in 0..owned {
            sums[i] *= shrink;
        }
        sync_cube();

        for key in 0..length {
            let weight = weights[key];
            total += weight;
            #[unroll]
            for i in 0..owned {
                // A unit past the head's width reads along with the last one and writes nothing.
                let d = min(i * UNITS + unit, head_dim - 1);
                sums[i] += weight * v_cache[(rows + start + key) * head_dim + d];
            }
        }
        start += CHUNK;
    }

    #[unroll]
    for i in 0..owned {
        let d = i * UNITS + unit;
        if d < head_dim {
            y[query * 4 + d] = sums[i] / total;
        }
    }
}

/// Enqueues the attention of `q`, `[batch, seq, heads, head_dim]`, over caches of `[batch, kv_heads, max_seq_len, head_dim]`.
pub(super) fn launch(
    q: CubeTensor,
    k_cache: CubeTensor,
    v_cache: CubeTensor,
    position: CubeTensor,
    scale: f32,
) -> CubeTensor {
    let q = contiguous(q);
    let dims = q.shape();
    let cache = k_cache.shape();
    let y = empty_like(&q, q.shape());
    let shape = AttentionShape { heads: dims[2], kv_heads: cache[1], head_dim: dims[3], max_seq_len: cache[2] };
    // SAFETY: a query sees at most the cache's rows, and units past the head's width write nothing.
    unsafe {
        kernel::launch_unchecked(
            &q.client,
            CubeCount::Static((dims[0] * dims[1]) as u32, dims[2] as u32, 1),
            CubeDim::new_1d(UNITS as u32),
            4,
            bind(&q, 16),
            bind(&k_cache, 16),
            bind(&v_cache, 4),
            bind(&position, 4),
            bind(&y, 4),
            scale,
            dims[1] as u32,
            shape,
        );
    }
    y
}
