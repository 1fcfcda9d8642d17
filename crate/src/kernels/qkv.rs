//! Queries, keys and values of the normalized residual stream in one launch: the projection, the rotary embedding of queries and keys, and the keys' and
//! values' way into the cache. A unit computes neighbouring rows, which are the pairs that are rotated together.
//!
//! Bytes moved: those of the products (see `products`), but keys and values are written once, as the cache keeps them, and the table's rows of the
//! positions are read.

use super::BlockShape;
use super::cube::{bind, contiguous};
use super::kv_cache::{CacheShape, write_pair};
use super::products::{Tile, first_row, holds_sums, products, row_of, token_of, token_start};
use super::residual::{StreamShape, inverse_rms};
use burn::backend::TensorMetadata;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

/// What a pipeline is compiled for, beside its tile.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct QkvShape {
    stream: StreamShape,
    cache: CacheShape,
    /// Pairs of a head that rotate.
    rotary_pairs: usize,
}

#[cube(launch_unchecked)]
#[allow(clippy::too_many_arguments)]
fn kernel<N: Size>(
    words: &[Vector<u32, N>],
    scales: &[u32],
    stream: &[Vector<f32, N>],
    table: &[f32],
    position: &[u32],
    q: &mut [f32],
    cache: &mut [u32],
    rows: u32,
    row_offset: u32,
    tokens: u32,
    seq: u32,
    epsilon: f32,
    #[comptime] tile: Tile,
    #[comptime] shape: QkvShape,
) {
    let (rows, tokens, seq) = (rows as usize, tokens as usize, seq as usize);
    let first = first_row(tile);
    let layout = comptime!(shape.stream.activations());
    let mut out = Array::<f32>::new(comptime!(tile.rows * tile.tokens));
    products::<N>(words, scales, stream, first, rows, tokens, &mut out, layout, tile);

    if holds_sums(tile) {
        #[unroll]
        for t in 0..comptime!(tile.tokens) {
            let token = token_of(t, tile);
            let factor =
                inverse_rms::<N>(stream, token_start(t, tokens, layout, tile), epsilon, comptime!(shape.stream));
            #[unroll]
            for p in 0..comptime!(tile.rows / 2) {
                let row = row_of(first, comptime!(2 * p), tile);
                if row < rows && token < tokens {
                    let even = out[comptime!(2 * p * tile.tokens + t)] * factor;
                    let odd = out[comptime!((2 * p + 1) * tile.tokens + t)] * factor;
                    put_pair(table, position, q, cache, row + row_offset as usize, token, seq, even, odd, shape);
                }
            }
        }
    }
}

/// Rotates the values of rows `row` and `row + 1` of all queries, keys and values, and puts them where they belong.
#[cube]
#[allow(clippy::too_many_arguments)]
fn put_pair(
    table: &[f32],
    position: &[u32],
    q: &mut [f32],
    cache: &mut [u32],
    row: usize,
    token: usize,
    seq: usize,
    even: f32,
    odd: f32,
    #[comptime] shape: QkvShape,
) {
    let head_dim = comptime!(shape.cache.head_dim);
    let heads = comptime!(shape.cache.heads);
    let kv_heads = comptime!(shape.cache.kv_heads);
    let max_seq_len = comptime!(shape.cache.max_seq_len);
    let pairs = comptime!(shape.rotary_pairs);
    let head = row / head_dim;
    let pair = row % head_dim / 2;
    let at = position[0] as usize + token % seq;

    let mut a = even;
    let mut b = odd;
    if head < heads + kv_heads && pair < pairs && at < max_seq_len {
        let cos = table[(at * pairs + pair) * 2];
        let sin = table[(at * pairs + pair) * 2 + 1];
        a = even * cos - odd * sin;
        b = odd * cos + even * sin;
    }
    if head < heads {
        let start = (token * heads + head) * head_dim + pair / 4 * 8 + pair % 4;
        q[start] = a * comptime!(shape.cache.query_scale());
        q[start + 4] = b * comptime!(shape.cache.query_scale());
    } else if at < max_seq_len {
        // Keys are the first half of the sequence's cache, values the second.
        let cache_head = token / seq * comptime!(2 * shape.cache.kv_heads) + head - heads;
        let start = (cache_head * max_seq_len + at) * comptime!(shape.cache.precision.words(shape.cache.head_dim));
        write_pair(cache, start, pair, a, b, comptime!(shape.cache.precision));
    }
}

/// Enqueues rows `row_offset..` of the projection. `stream` is `[batch, seq, width]`, `table` `[max_seq_len, rotary_dim / 2, 2]`, `q`
/// `[batch, seq, heads · head_dim]`, and `cache` as its module says.
#[allow(clippy::too_many_arguments)]
pub(super) fn launch(
    stream: &CubeTensor,
    words: CubeTensor,
    scales: CubeTensor,
    shape: BlockShape,
    row_offset: usize,
    table: &CubeTensor,
    position: &CubeTensor,
    q: &CubeTensor,
    cache: &CubeTensor,
    cache_shape: CacheShape,
    epsilon: f32,
) {
    let stream = contiguous(stream.clone());
    let dims = stream.shape();
    let tokens = dims[0] * dims[1];
    let tile = Tile::new(shape, tokens);
    let qkv =
        QkvShape { stream: StreamShape { d_model: shape.columns }, cache: cache_shape, rotary_pairs: table.shape()[1] };
    // SAFETY: every index is below the bound lengths: rows and tokens are clamped to the last one, and a position past the cache is not written.
    unsafe {
        kernel::launch_unchecked(
            &stream.client,
            tile.cubes(shape.rows, tokens),
            CubeDim::new_1d(tile.units as u32),
            4,
            bind(&words, 16),
            bind(&scales, 4),
            bind(&stream, 16),
            bind(table, 4),
            bind(position, 4),
            bind(q, 4),
            bind(cache, 4),
            shape.rows as u32,
            row_offset as u32,
            tokens as u32,
            dims[1] as u32,
            epsilon,
            tile,
            qkv,
        );
    }
}
