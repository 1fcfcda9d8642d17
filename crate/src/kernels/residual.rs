//! The residual stream, and the projection that adds to it.
//!
//! A token's row holds three things, so that no pass over the hidden states is needed for the normalization that comes next:
//!
//! ```text
//! [ hidden states: d_model | the same times the next norm's gamma: d_model | sums of the squares of 16 hidden states each: d_model / 16, and zeros up to a multiple of 4 ]
//! ```
//!
//! RMS normalization multiplies a row by one number, and a projection is linear: `W (h γ / rms(h)) = (W (h γ)) / rms(h)`. So a projection that reads the
//! stream reads the second part, and multiplies its sums by what it makes of the third.
//!
//! Bytes moved for `[tokens, columns] × [d_model, columns]`: those of the products, and `12 · tokens · d_model`.

use super::BlockShape;
use super::cube::{bind, contiguous};
use super::products::{ActivationLayout, Tile, first_row, holds_sums, products, row_of, token_of};
use burn::backend::TensorMetadata;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

/// Hidden states whose squares are summed together.
pub(super) const PART: usize = 16;

/// The residual stream's row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct StreamShape {
    /// Hidden states.
    pub d_model: usize,
}

impl StreamShape {
    /// Values of a row.
    pub const fn width(self) -> usize {
        2 * self.d_model + self.parts().next_multiple_of(4)
    }

    /// Where a row has the activations of the projection that comes next.
    pub const fn activations(self) -> ActivationLayout {
        ActivationLayout { stride: self.width() / 4, before: self.d_model / 4 }
    }

    /// Sums of squares in a row.
    pub const fn parts(self) -> usize {
        self.d_model / PART
    }
}

/// `1 / rms` of the hidden states in the row that begins at vector `start`: what the projection of the normalized row is multiplied with.
#[cube]
pub(super) fn inverse_rms<N: Size>(
    stream: &[Vector<f32, N>],
    start: usize,
    epsilon: f32,
    #[comptime] shape: StreamShape,
) -> f32 {
    let mut sum = Vector::<f32, N>::new(0.0);
    for i in 0..comptime!(shape.parts().div_ceil(4)) {
        sum += stream[start + comptime!(shape.d_model / 2) + i];
    }
    let sum = (sum.extract(0usize) + sum.extract(1usize)) + (sum.extract(2usize) + sum.extract(3usize));
    (sum / comptime!(shape.d_model as f32) + epsilon).inverse_sqrt()
}

#[cube(launch_unchecked)]
#[allow(clippy::too_many_arguments)]
fn kernel<N: Size>(
    words: &[Vector<u32, N>],
    scales: &[u32],
    x: &[Vector<f32, N>],
    gamma: &[f32],
    stream: &mut [f32],
    rows: u32,
    row_offset: u32,
    tokens: u32,
    #[comptime] tile: Tile,
    #[comptime] shape: StreamShape,
) {
    let (rows, tokens) = (rows as usize, tokens as usize);
    let first = first_row(tile);
    let mut out = Array::<f32>::new(comptime!(tile.rows * tile.tokens));
    products::<N>(words, scales, x, first, rows, tokens, &mut out, comptime!(tile.plain_activations()), tile);

    // Sums of the squares of runs of rows, token after token, in the order of the rows.
    let run = comptime!(run(tile));
    let unit_runs = comptime!(tile.rows / run);
    let sums = comptime!(tile.row_units() * unit_runs);
    let mut squares = Shared::<[f32]>::new_slice(comptime!(sums * tile.tokens));
    let unit = UNIT_POS_X as usize;
    if holds_sums(tile) {
        #[unroll]
        for t in 0..comptime!(tile.tokens) {
            let token = token_of(t, tile);
            let start = token * comptime!(shape.width());
            #[unroll]
            for i in 0..unit_runs {
                let row = row_of(first, comptime!(i * run), tile);
                let mut sum = 0.0f32;
                if token < tokens && row < rows {
                    #[unroll]
                    for r in 0..run {
                        let row = row + row_offset as usize + r;
                        let hidden = stream[start + row] + out[comptime!((i * run + r) * tile.tokens + t)];
                        stream[start + row] = hidden;
                        stream[start + comptime!(shape.d_model) + row] = hidden * gamma[row];
                        sum += hidden * hidden;
                    }
                }
                squares[t * sums + unit * unit_runs + i] = sum;
            }
        }
    }
    sync_cube();

    let part_runs = comptime!(PART / run);
    let row = CUBE_POS_X as usize * comptime!(tile.row_units() * tile.rows) + unit * PART;
    if unit < comptime!(tile.row_units() * tile.rows / PART) && row < rows {
        #[unroll]
        for t in 0..comptime!(tile.tokens) {
            let token = token_of(t, tile);
            if token < tokens {
                let mut sum = 0.0f32;
                #[unroll]
                for i in 0..part_runs {
                    sum += squares[t * sums + unit * part_runs + i];
                }
                let start = token * comptime!(shape.width()) + comptime!(2 * shape.d_model);
                stream[start + (row + row_offset as usize) / PART] = sum;
            }
        }
    }
}

/// Neighbouring rows of a unit that belong to one part: a power of two, since all parts begin at multiples of [`PART`].
const fn run(tile: Tile) -> usize {
    let most = 1 << tile.rows.trailing_zeros();
    if most < PART { most } else { PART }
}

/// Enqueues `stream += x Wᵀ` in place, for rows `row_offset..` of the stream, and what the next norm needs.
/// `x` is `[batch, seq, columns]`, `stream` `[batch, seq, width]`, `gamma` `[d_model]`.
pub(super) fn launch(
    x: &CubeTensor,
    words: CubeTensor,
    scales: CubeTensor,
    shape: BlockShape,
    row_offset: usize,
    stream: &CubeTensor,
    gamma: &CubeTensor,
) {
    let x = contiguous(x.clone());
    let dims = x.shape();
    let tokens = dims[0] * dims[1];
    let tile = Tile::new(shape, tokens);
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
            bind(gamma, 4),
            bind(stream, 4),
            shape.rows as u32,
            row_offset as u32,
            tokens as u32,
            tile,
            StreamShape { d_model: gamma.shape()[0] },
        );
    }
}
