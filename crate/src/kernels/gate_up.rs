//! `silu(gate) * up` of two projections of the normalized residual stream, in one launch: a unit computes a row of each.
//!
//! Bytes moved: those of the products with both weights (see `products`), but only `4 · tokens · hidden` written.

use super::BlockShape;
use super::cube::{bind, contiguous};
use super::products::{Tile, first_row, holds_sums, products, row_of, token_of, token_start};
use super::residual::{StreamShape, inverse_rms};
use burn::backend::TensorMetadata;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

#[cube(launch_unchecked)]
#[allow(clippy::too_many_arguments)]
fn kernel<N: Size>(
    words: &[Vector<u32, N>],
    scales: &[u32],
    stream: &[Vector<f32, N>],
    y: &mut [f32],
    hidden: u32,
    tokens: u32,
    epsilon: f32,
    #[comptime] tile: Tile,
    #[comptime] shape: StreamShape,
) {
    let (hidden, tokens) = (hidden as usize, tokens as usize);
    let first = first_row(tile);
    let mut out = Array::<f32>::new(comptime!(tile.rows * tile.tokens));
    products::<N>(words, scales, stream, first, 2 * hidden, tokens, &mut out, comptime!(shape.activations()), tile);

    if holds_sums(tile) {
        #[unroll]
        for t in 0..comptime!(tile.tokens) {
            let factor =
                inverse_rms::<N>(stream, token_start(t, tokens, comptime!(shape.activations()), tile), epsilon, shape);
            #[unroll]
            for r in 0..comptime!(tile.rows / 2) {
                let row = row_of(first, r, tile);
                if row < hidden && token_of(t, tile) < tokens {
                    let gate = out[comptime!(r * tile.tokens + t)] * factor;
                    let up = out[comptime!((r + tile.rows / 2) * tile.tokens + t)] * factor;
                    // `exp` overflows to infinity for a very negative gate, and the quotient is then the 0 that it should be.
                    y[token_of(t, tile) * hidden + row] = gate / (1.0f32 + (-gate).exp()) * up;
                }
            }
        }
    }
}

/// Enqueues the product into `y`, `[batch, seq, hidden]`. The weight's first `hidden` rows are the gate's, the others the up projection's;
/// `stream` is the residual stream.
pub(super) fn launch(
    stream: &CubeTensor,
    words: CubeTensor,
    scales: CubeTensor,
    shape: BlockShape,
    y: &CubeTensor,
    epsilon: f32,
) {
    let stream = contiguous(stream.clone());
    let dims = stream.shape();
    let tokens = dims[0] * dims[1];
    let hidden = shape.rows / 2;
    let tile = Tile::new(shape, tokens).with_second_half(hidden);
    // SAFETY: every index is below the bound lengths: rows and tokens are clamped to the last one, blocks run to the row's end.
    unsafe {
        kernel::launch_unchecked(
            &stream.client,
            tile.cubes(hidden, tokens),
            CubeDim::new_1d(tile.units as u32),
            4,
            bind(&words, 16),
            bind(&scales, 4),
            bind(&stream, 16),
            bind(y, 4),
            hidden as u32,
            tokens as u32,
            epsilon,
            tile,
            StreamShape { d_model: shape.columns },
        );
    }
}
