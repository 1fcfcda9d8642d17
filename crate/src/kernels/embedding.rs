//! Rows of a packed matrix by index, as the beginning of a residual stream: the embedding lookup. A block a unit.
//!
//! Bytes moved: the device bytes of the rows that are asked for, and `8 · tokens · columns` written.

use super::BlockShape;
use super::cube::{bind, contiguous};
use super::decode::{block_scale, load_codes, numbers, scale_and_bias, sub_scales};
use super::residual::StreamShape;
use crate::quant::pack::{BLOCK_COLUMNS, PANEL_ROWS, PackedFormat, SUPER_BLOCKS};
use burn::backend::TensorMetadata;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

/// Units of a cube.
const UNITS: usize = 64;

#[cube(launch_unchecked)]
#[allow(clippy::too_many_arguments)]
fn kernel<N: Size>(
    tokens: &[u32],
    words: &[Vector<u32, N>],
    scales: &[u32],
    gamma: &[Vector<f32, N>],
    stream: &mut [f32],
    rows: u32,
    row_offset: u32,
    last: u32,
    #[comptime] row_blocks: usize,
    #[comptime] format: PackedFormat,
    #[comptime] shape: StreamShape,
) {
    let unit = CUBE_POS_X as usize * UNITS + UNIT_POS_X as usize;
    if unit >= tokens.len() * row_blocks {
        terminate!();
    }
    let token = unit / row_blocks;
    let block = unit % row_blocks;
    // Another launch has the rows of the other parts.
    let row = min(tokens[token], last);
    if row < row_offset || row >= row_offset + rows {
        terminate!();
    }
    let row = (row - row_offset) as usize;
    let (panel, lane) = (row / PANEL_ROWS, row % PANEL_ROWS);

    let run = comptime!(if format.sub_scale_blocks() > 0 { SUPER_BLOCKS } else { 1 });
    let (scale, minimum) = block_scale(scales, panel, lane, block / run, format, row_blocks);
    let small = sub_scales(scales, panel, lane, block, format, row_blocks);
    let codes = load_codes::<N>(words, scales, panel, lane, block, format, row_blocks);

    let start = token * comptime!(shape.width());
    let parts = start + comptime!(2 * shape.d_model);
    let steps = comptime!(format.scale_len() / 4);
    #[unroll]
    for half in 0..2usize {
        let mut sum = Vector::<f32, N>::new(0.0);
        #[unroll]
        for step in 0..4usize {
            let j = comptime!(4 * half + step);
            let (factor, bias) = scale_and_bias(scale, minimum, small, comptime!((j / steps) as u32), format);
            let q = numbers::<N>(&codes, j, format);
            let hidden = q * Vector::new(factor) + Vector::new(bias);
            let scaled = hidden * gamma[block * 8 + j];
            let at = start + block * BLOCK_COLUMNS + comptime!(4 * j);
            #[unroll]
            for i in 0..4usize {
                stream[at + i] = hidden.extract(i);
                stream[at + comptime!(shape.d_model + i)] = scaled.extract(i);
            }
            sum += hidden * hidden;
        }
        // A part of the stream is 16 hidden states: half a block.
        stream[parts + 2 * block + half] =
            (sum.extract(0usize) + sum.extract(1usize)) + (sum.extract(2usize) + sum.extract(3usize));
    }
    if block == row_blocks - 1 {
        #[unroll]
        for i in comptime!(2 * shape.d_model + shape.parts())..comptime!(shape.width()) {
            stream[start + i] = 0.0f32;
        }
    }
}

/// Enqueues the lookup of the tokens whose rows are `row_offset..` of all `vocabulary`; `tokens` is `[batch, seq]`, `stream` `[batch, seq, width]`. An index
/// past the last row reads the last row.
#[allow(clippy::too_many_arguments)]
pub(super) fn launch(
    tokens: &CubeTensor,
    words: CubeTensor,
    scales: CubeTensor,
    shape: BlockShape,
    row_offset: usize,
    vocabulary: usize,
    gamma: &CubeTensor,
    stream: &CubeTensor,
) {
    let tokens = contiguous(tokens.clone());
    let row_blocks = shape.columns / BLOCK_COLUMNS;
    let units = tokens.shape().num_elements() * row_blocks;
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
            bind(gamma, 16),
            bind(stream, 4),
            shape.rows as u32,
            row_offset as u32,
            vocabulary as u32 - 1,
            row_blocks,
            shape.packed(),
            StreamShape { d_model: shape.columns },
        );
    }
}
