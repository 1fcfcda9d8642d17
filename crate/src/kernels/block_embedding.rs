//! Rows of a packed matrix by index: the embedding lookup. Four values a unit.
//!
//! Bytes moved: the device bytes of the rows that are asked for, and `4 · tokens · columns` written.

use super::BlockShape;
use super::cube::{bind, contiguous, empty_like};
use super::decode::{scale_and_minimum, values, word_index};
use crate::quant::pack::{BLOCK_COLUMNS, PANEL_ROWS, PackedFormat};
use burn::backend::TensorMetadata;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

/// Units of a cube.
const UNITS: usize = 64;

#[cube(launch_unchecked)]
fn kernel<N: Size>(
    tokens: &[u32],
    words: &[Vector<u32, N>],
    scales: &[u32],
    y: &mut [Vector<f32, N>],
    rows: u32,
    #[comptime] row_blocks: usize,
    #[comptime] format: PackedFormat,
) {
    // One unit a block: it decodes the block's eight vectors.
    let unit = CUBE_POS_X as usize * UNITS + UNIT_POS_X as usize;
    if unit >= tokens.len() * row_blocks {
        terminate!();
    }
    let row = min(tokens[unit / row_blocks], rows - 1) as usize;
    let index = (row / PANEL_ROWS) * row_blocks + unit % row_blocks;
    let lane = row % PANEL_ROWS;
    let (scale, minimum) = scale_and_minimum(scales, index, lane, format);
    #[unroll]
    for j in 0..8usize {
        let word = words[word_index(index, lane, j, format)];
        let q = values::<N>(word, comptime!(j as u32), format);
        y[unit * 8 + j] = q * Vector::new(scale) + Vector::new(minimum);
    }
}

/// Enqueues the lookup; `tokens` is `[batch, seq]`, an index past the last row reads the last row.
pub(super) fn launch(tokens: CubeTensor, words: CubeTensor, scales: CubeTensor, shape: BlockShape) -> CubeTensor {
    let tokens = contiguous(tokens);
    let dims = tokens.shape();
    let y = empty_like(&tokens, [dims[0], dims[1], shape.columns]);
    let row_blocks = shape.columns / BLOCK_COLUMNS;
    let units = dims[0] * dims[1] * row_blocks;
    // SAFETY: units past the end stop, and a token's row is clamped to the last one.
    unsafe {
        kernel::launch_unchecked(
            &tokens.client,
            CubeCount::Static(units.div_ceil(UNITS) as u32, 1, 1),
            CubeDim::new_1d(UNITS as u32),
            4,
            bind(&tokens, 4),
            bind(&words, 16),
            bind(&scales, 4),
            bind(&y, 16),
            shape.rows as u32,
            row_blocks,
            shape.packed(),
        );
    }
    y
}
