//! `y = x Wᵀ` over packed blocks: matrix-vector for one token, matrix-matrix for a prompt.
//!
//! A unit computes a tile of rows and tokens: it decodes four weights with a shift and a mask, multiplies them with four activations of each
//! token, and keeps four partial sums for each of its products, so that nothing is summed across lanes before the end. Units side by side read
//! words side by side (see `quant::pack`), and the same activations.
//!
//! Bytes moved for `[tokens, columns] × [rows, columns]`: the weight's device bytes once for one token and `⌈tokens / 4⌉` times for a prompt,
//! `4 · tokens · columns` of activations for every tile of rows (mostly from a cache), and `4 · tokens · rows` written.

use super::BlockShape;
use super::cube::{bind, contiguous, empty_like};
use super::decode::{scale_and_minimum, values, word_index};
use crate::quant::pack::{BLOCK_COLUMNS, PANEL_ROWS, PackedFormat};
use burn::backend::TensorMetadata;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

/// What a pipeline is compiled for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Tile {
    format: PackedFormat,
    /// Units of a cube.
    units: usize,
    /// Rows that a unit computes.
    rows: usize,
    /// Tokens that a unit computes.
    tokens: usize,
    /// Blocks of a row.
    row_blocks: usize,
}

impl Tile {
    /// One row a unit for one token, so that as many units as possible work on it. For a prompt four rows by four tokens: every activation that is
    /// loaded serves four products, and the sums still fit into registers.
    fn new(shape: BlockShape, tokens: usize) -> Self {
        let (units, rows, tokens) = if tokens == 1 { (64, 1, 1) } else { (32, 4, 4) };
        Self { format: shape.packed(), units, rows, tokens, row_blocks: shape.columns / BLOCK_COLUMNS }
    }

    /// Whether weights are scaled one by one: cheaper than scaling the sums where several tokens share them, and the only way with a minimum.
    fn scales_weights(self) -> bool {
        self.tokens > 1 || self.format.scale_bytes() != 2
    }
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
    let first_row = CUBE_POS_X as usize * comptime!(tile.units * tile.rows) + UNIT_POS_X as usize;
    let first_token = CUBE_POS_Y as usize * comptime!(tile.tokens);
    if first_row >= rows {
        terminate!();
    }

    // Where each row's blocks and each token's activations begin. A row or token past the end is computed from the last one's and never written.
    let mut panels = Array::<usize>::new(comptime!(tile.rows));
    let mut lanes = Array::<usize>::new(comptime!(tile.rows));
    #[unroll]
    for r in 0..comptime!(tile.rows) {
        let row = min(first_row + r * comptime!(tile.units), rows - 1);
        panels[r] = (row / PANEL_ROWS) * comptime!(tile.row_blocks);
        lanes[r] = row % PANEL_ROWS;
    }
    let mut activations = Array::<usize>::new(comptime!(tile.tokens));
    #[unroll]
    for t in 0..comptime!(tile.tokens) {
        activations[t] = min(first_token + t, tokens - 1) * comptime!(tile.row_blocks * 8);
    }

    let mut sums = Array::<Vector<f32, N>>::new(comptime!(tile.rows * tile.tokens));
    #[unroll]
    for i in 0..comptime!(tile.rows * tile.tokens) {
        sums[i] = Vector::new(0.0);
    }

    for block in 0..comptime!(tile.row_blocks) {
        if comptime!(tile.scales_weights()) {
            add_scaled::<N>(words, scales, x, &panels, &lanes, &activations, &mut sums, block, tile);
        } else {
            add_unscaled::<N>(words, scales, x, &panels, &lanes, &activations, &mut sums, block, tile);
        }
    }

    #[unroll]
    for r in 0..comptime!(tile.rows) {
        #[unroll]
        for t in 0..comptime!(tile.tokens) {
            let (row, token) = (first_row + r * comptime!(tile.units), first_token + t);
            if row < rows && token < tokens {
                let sum = sums[r * comptime!(tile.tokens) + t];
                y[token * rows + row] =
                    (sum.extract(0usize) + sum.extract(1usize)) + (sum.extract(2usize) + sum.extract(3usize));
            }
        }
    }
}

/// Adds one block's products, every weight scaled as it is decoded: one multiplication a weight, none a token.
#[cube]
fn add_scaled<N: Size>(
    words: &[Vector<u32, N>],
    scales: &[u32],
    x: &[Vector<f32, N>],
    panels: &Array<usize>,
    lanes: &Array<usize>,
    activations: &Array<usize>,
    sums: &mut Array<Vector<f32, N>>,
    block: usize,
    #[comptime] tile: Tile,
) {
    let mut scale = Array::<f32>::new(comptime!(tile.rows));
    let mut minimum = Array::<f32>::new(comptime!(tile.rows));
    #[unroll]
    for r in 0..comptime!(tile.rows) {
        let (d, m) = scale_and_minimum(scales, panels[r] + block, lanes[r], comptime!(tile.format));
        scale[r] = d;
        minimum[r] = m;
    }
    #[unroll]
    for j in 0..8usize {
        let mut weights = Array::<Vector<f32, N>>::new(comptime!(tile.rows));
        #[unroll]
        for r in 0..comptime!(tile.rows) {
            let word = words[word_index(panels[r] + block, lanes[r], j, comptime!(tile.format))];
            let q = values::<N>(word, comptime!(j as u32), comptime!(tile.format));
            if comptime!(tile.format.scale_bytes() == 4) {
                weights[r] = q * Vector::new(scale[r]) + Vector::new(minimum[r]);
            } else if comptime!(tile.format.scale_bytes() == 2) {
                weights[r] = q * Vector::new(scale[r]);
            } else {
                weights[r] = q;
            }
        }
        #[unroll]
        for t in 0..comptime!(tile.tokens) {
            let activation = x[activations[t] + block * 8 + j];
            #[unroll]
            for r in 0..comptime!(tile.rows) {
                sums[r * comptime!(tile.tokens) + t] += weights[r] * activation;
            }
        }
    }
}

/// Adds one block's products, scaled when they are summed: one multiplication a token and block, none a weight.
#[cube]
fn add_unscaled<N: Size>(
    words: &[Vector<u32, N>],
    scales: &[u32],
    x: &[Vector<f32, N>],
    panels: &Array<usize>,
    lanes: &Array<usize>,
    activations: &Array<usize>,
    sums: &mut Array<Vector<f32, N>>,
    block: usize,
    #[comptime] tile: Tile,
) {
    let mut part = Array::<Vector<f32, N>>::new(comptime!(tile.rows * tile.tokens));
    #[unroll]
    for i in 0..comptime!(tile.rows * tile.tokens) {
        part[i] = Vector::new(0.0);
    }
    #[unroll]
    for j in 0..8usize {
        #[unroll]
        for r in 0..comptime!(tile.rows) {
            let word = words[word_index(panels[r] + block, lanes[r], j, comptime!(tile.format))];
            let q = values::<N>(word, comptime!(j as u32), comptime!(tile.format));
            #[unroll]
            for t in 0..comptime!(tile.tokens) {
                part[r * comptime!(tile.tokens) + t] += q * x[activations[t] + block * 8 + j];
            }
        }
    }
    #[unroll]
    for r in 0..comptime!(tile.rows) {
        let (scale, _minimum) = scale_and_minimum(scales, panels[r] + block, lanes[r], comptime!(tile.format));
        #[unroll]
        for t in 0..comptime!(tile.tokens) {
            sums[r * comptime!(tile.tokens) + t] += part[r * comptime!(tile.tokens) + t] * Vector::new(scale);
        }
    }
}

/// Enqueues the product; `x` is `[batch, seq, columns]`.
pub(super) fn launch(x: CubeTensor, words: CubeTensor, scales: CubeTensor, shape: BlockShape) -> CubeTensor {
    let x = contiguous(x);
    let dims = x.shape();
    let tokens = dims[0] * dims[1];
    let y = empty_like(&x, [dims[0], dims[1], shape.rows]);
    let tile = Tile::new(shape, tokens);
    let cubes = (shape.rows.div_ceil(tile.units * tile.rows), tokens.div_ceil(tile.tokens));
    // SAFETY: every index is below the bound lengths: rows and tokens are clamped to the last one, blocks run to the row's end.
    unsafe {
        kernel::launch_unchecked(
            &x.client,
            CubeCount::Static(cubes.0 as u32, cubes.1 as u32, 1),
            CubeDim::new_1d(tile.units as u32),
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
