//! `y = x Wᵀ` over packed blocks: matrix-vector for one token, matrix-matrix for a prompt.
//!
//! A unit computes `TILE_ROWS` rows for up to eight tokens: it decodes four weights with a shift and a mask, multiplies them with four
//! activations of each token, and keeps four partial sums a token, so that nothing is summed across lanes before the end. Units side by side read
//! words side by side (see `quant::pack`), and the same activations.
//!
//! Bytes moved for `[tokens, columns] × [rows, columns]`: the weight's device bytes `⌈tokens / 8⌉` times, `4 · tokens · columns` of activations
//! for every cube of rows (mostly from a cache), and `4 · tokens · rows` written.

use super::BlockShape;
use super::cube::{bind, contiguous, empty_like};
use super::decode::{scale_and_minimum, values, vector_index};
use crate::quant::pack::{BLOCK_COLUMNS, PANEL_ROWS, PackedFormat};
use burn::backend::TensorMetadata;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

/// Units of a cube.
const UNITS: usize = 64;
/// Tokens that a unit takes at once where there are more than one.
const TILE_TOKENS: usize = 8;
/// Rows that a unit takes at once.
const TILE_ROWS: usize = 1;

/// What a pipeline is compiled for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Tile {
    format: PackedFormat,
    rows: usize,
    tokens: usize,
    row_blocks: usize,
}

#[cube(launch_unchecked)]
fn kernel<N: Size>(
    words: &[Vector<u32, N>],
    scales: &[u32],
    x: &[Vector<f32, N>],
    y: &mut [f32],
    rows: u32,
    tokens: u32,
    #[comptime] tile: Tile,
) {
    let rows = rows as usize;
    let tokens = tokens as usize;
    let first_row = CUBE_POS_X as usize * comptime!(UNITS * tile.rows) + UNIT_POS_X as usize;
    let first_token = CUBE_POS_Y as usize * comptime!(tile.tokens);
    if first_row >= rows {
        terminate!();
    }

    let row_blocks = comptime!(tile.row_blocks);
    let vectors = comptime!(tile.format.vectors());
    let mut sums = Array::<Vector<f32, N>>::new(comptime!(tile.rows * tile.tokens));
    #[unroll]
    for i in 0..comptime!(tile.rows * tile.tokens) {
        sums[i] = Vector::new(0.0);
    }

    for block in 0..row_blocks {
        let mut scale = Array::<f32>::new(comptime!(tile.rows));
        let mut minimum = Array::<f32>::new(comptime!(tile.rows));
        let mut part = Array::<Vector<f32, N>>::new(comptime!(tile.rows * tile.tokens));
        #[unroll]
        for r in 0..comptime!(tile.rows) {
            // A row past the end is computed from the last one's blocks and never written.
            let row = min(first_row + r * UNITS, rows - 1);
            let (d, m) = scale_and_minimum(
                scales,
                (row / PANEL_ROWS) * row_blocks + block,
                row % PANEL_ROWS,
                comptime!(tile.format),
            );
            scale[r] = d;
            minimum[r] = m;
            #[unroll]
            for t in 0..comptime!(tile.tokens) {
                part[r * comptime!(tile.tokens) + t] = Vector::new(0.0);
            }
        }
        #[unroll]
        for j in 0..8usize {
            let mut weights = Array::<Vector<f32, N>>::new(comptime!(tile.rows));
            #[unroll]
            for r in 0..comptime!(tile.rows) {
                let row = min(first_row + r * UNITS, rows - 1);
                let index = (row / PANEL_ROWS) * row_blocks + block;
                let vector = comptime!(vector_index(tile.format, j));
                let word = words[(index * vectors + vector) * PANEL_ROWS + row % PANEL_ROWS];
                let q = values::<N>(word, comptime!(j as u32), comptime!(tile.format));
                if comptime!(tile.format.scale_bytes() == 4) {
                    weights[r] = q * Vector::new(scale[r]) + Vector::new(minimum[r]);
                } else {
                    weights[r] = q;
                }
            }
            #[unroll]
            for t in 0..comptime!(tile.tokens) {
                let token = min(first_token + t, tokens - 1);
                let activations = x[(token * row_blocks + block) * 8 + j];
                #[unroll]
                for r in 0..comptime!(tile.rows) {
                    part[r * comptime!(tile.tokens) + t] += weights[r] * activations;
                }
            }
        }
        #[unroll]
        for r in 0..comptime!(tile.rows) {
            #[unroll]
            for t in 0..comptime!(tile.tokens) {
                let i = r * comptime!(tile.tokens) + t;
                if comptime!(tile.format.scale_bytes() == 2) {
                    sums[i] += part[i] * Vector::new(scale[r]);
                } else {
                    sums[i] += part[i];
                }
            }
        }
    }

    #[unroll]
    for r in 0..comptime!(tile.rows) {
        #[unroll]
        for t in 0..comptime!(tile.tokens) {
            let (row, token) = (first_row + r * UNITS, first_token + t);
            if row < rows && token < tokens {
                let sum = sums[r * comptime!(tile.tokens) + t];
                y[token * rows + row] =
                    (sum.extract(0usize) + sum.extract(1usize)) + (sum.extract(2usize) + sum.extract(3usize));
            }
        }
    }
}

/// Enqueues the product; `x` is `[batch, seq, columns]`.
pub(super) fn launch(x: CubeTensor, words: CubeTensor, scales: CubeTensor, shape: BlockShape) -> CubeTensor {
    let x = contiguous(x);
    let dims = x.shape();
    let tokens = dims[0] * dims[1];
    let y = empty_like(&x, [dims[0], dims[1], shape.rows]);
    let tile = Tile {
        format: shape.packed(),
        rows: TILE_ROWS,
        tokens: if tokens == 1 { 1 } else { TILE_TOKENS },
        row_blocks: shape.columns / BLOCK_COLUMNS,
    };
    let cubes = (shape.rows.div_ceil(UNITS * tile.rows), tokens.div_ceil(tile.tokens));
    // SAFETY: every index is below the bound lengths: rows and tokens are clamped to the last one, blocks run to the row's end.
    unsafe {
        kernel::launch_unchecked(
            &x.client,
            CubeCount::Static(cubes.0 as u32, cubes.1 as u32, 1),
            CubeDim::new_1d(UNITS as u32),
            4,
            bind(&words, 16),
            bind(&scales, 4),
            bind(&x, 16),
            bind(&y, 4),
            shape.rows as u32,
            tokens as u32,
            tile,
        );
    }
    y
}
