//! `y = x Wᵀ` over packed blocks, from plain activations or from the residual stream: matrix-vector for one token, matrix-matrix for a prompt.
//!
//! Bytes moved: those of the products (see `products`).

use super::BlockShape;
use super::cube::{bind, contiguous};
use super::products::{Tile, first_row, holds_sums, products, row_of, token_of, token_start};
use super::residual::{StreamShape, inverse_rms};
use burn::backend::TensorMetadata;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

/// Where the activations come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Input {
    /// Rows of as many values as the weight has columns.
    Plain,
    /// The residual stream, to be normalized.
    Stream(StreamShape),
}

#[cube(launch_unchecked)]
#[allow(clippy::too_many_arguments)]
fn kernel<N: Size>(
    words: &[Vector<u32, N>],
    scales: &[u32],
    x: &[Vector<f32, N>],
    y: &mut [f32],
    rows: u32,
    row_offset: u32,
    all_rows: u32,
    tokens: u32,
    epsilon: f32,
    #[comptime] tile: Tile,
    #[comptime] input: Input,
) {
    let (rows, tokens) = (rows as usize, tokens as usize);
    let first = first_row(tile);
    let layout = comptime!(match input {
        Input::Plain => tile.plain_activations(),
        Input::Stream(shape) => shape.activations(),
    });
    let mut out = Array::<f32>::new(comptime!(tile.rows * tile.tokens));
    products::<N>(words, scales, x, first, rows, tokens, &mut out, layout, tile);

    if holds_sums(tile) {
        #[unroll]
        for t in 0..comptime!(tile.tokens) {
            let factor = match comptime!(input) {
                Input::Plain => 1.0f32.runtime(),
                Input::Stream(shape) => inverse_rms::<N>(x, token_start(t, tokens, layout, tile), epsilon, shape),
            };
            #[unroll]
            for r in 0..comptime!(tile.rows) {
                let row = row_of(first, r, tile);
                if row < rows && token_of(t, tile) < tokens {
                    let at = token_of(t, tile) * all_rows as usize + row_offset as usize + row;
                    y[at] = out[comptime!(r * tile.tokens + t)] * factor;
                }
            }
        }
    }
}

/// Enqueues rows `row_offset..` of the product into `y`, `[batch, seq, all rows]`. `x` is `[batch, seq, columns]`, or the residual stream of
/// `d_model` values and the epsilon of its norm.
#[allow(clippy::too_many_arguments)]
pub(super) fn launch(
    x: &CubeTensor,
    words: CubeTensor,
    scales: CubeTensor,
    shape: BlockShape,
    row_offset: usize,
    y: &CubeTensor,
    epsilon: Option<f32>,
) {
    let dims = x.shape();
    let tile = Tile::new(shape, dims[0] * dims[1]);
    launch_tile(x, words, scales, shape, row_offset, y, epsilon, tile);
}

/// As [`launch`], with a tile of the caller's.
#[allow(clippy::too_many_arguments)]
pub(super) fn launch_tile(
    x: &CubeTensor,
    words: CubeTensor,
    scales: CubeTensor,
    shape: BlockShape,
    row_offset: usize,
    y: &CubeTensor,
    epsilon: Option<f32>,
    tile: Tile,
) {
    let x = contiguous(x.clone());
    let dims = x.shape();
    let tokens = dims[0] * dims[1];
    let input = match epsilon {
        None => Input::Plain,
        Some(_) => Input::Stream(StreamShape { d_model: shape.columns }),
    };
    // SAFETY: every index is below the bound lengths: rows and tokens are clamped to the last one, blocks run to the row's end.
    unsafe {
        kernel::launch_unchecked(
            &x.client,
            tile.cubes(shape.rows, tokens),
            CubeDim::new_1d(tile.units as u32),
            4,
            bind(&words, 16),
            bind(&scales, 4),
            bind(&x, 16),
            bind(y, 4),
            shape.rows as u32,
            row_offset as u32,
            y.shape()[2] as u32,
            tokens as u32,
            epsilon.unwrap_or(0.0),
            tile,
            input,
        );
    }
}
