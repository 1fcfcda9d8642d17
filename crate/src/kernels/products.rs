//! What all projections share: the products of a tile of weight rows and a tile of tokens.
//!
//! A unit computes a few rows for a few tokens. It decodes four weights with a shift and a mask, multiplies them with four activations of each
//! token, and keeps four partial sums for each of its products, so that nothing is summed across lanes before the end. Units side by side read
//! words side by side (see `quant::pack`), and the same activations. Several units may share a row, each with every n-th block of it; their sums
//! are added through workgroup memory.
//!
//! Bytes moved for `[tokens, columns] × [rows, columns]`: the weight's device bytes once for every tile of tokens,
//! `4 · tokens · columns` of activations for every tile of rows (mostly from a cache), and `4 · tokens · rows` written.

use super::BlockShape;
use super::TileVariant;
use super::decode::{block_scale, load_codes, numbers, scale_and_bias, sub_scales, vectors};
use crate::quant::pack::{BLOCK_COLUMNS, PANEL_ROWS, PackedFormat, SUPER_BLOCKS};
use cubecl::prelude::*;

/// Rows below which a unit computes fewer of them.
const FEW_ROWS: usize = 1024;

/// What a projection's pipeline is compiled for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Tile {
    /// How the weight is encoded.
    pub format: PackedFormat,
    /// Blocks of a row.
    pub row_blocks: usize,
    /// Units of a cube.
    pub units: usize,
    /// Units that share a row.
    pub splits: usize,
    /// Rows that a unit computes.
    pub rows: usize,
    /// Where the second half of a unit's rows begins, counted from the first half; 0 when its rows are neighbours.
    pub second_half: usize,
    /// Tokens that a unit computes.
    pub tokens: usize,
}

impl Tile {
    /// The tile for a weight and a number of tokens.
    pub fn new(shape: BlockShape, tokens: usize) -> Self {
        let variant = TileVariant::of(shape.packed(), tokens);
        // Where a matrix has few rows, units have fewer, so that there are cubes for everybody.
        match (tokens, variant.rows, shape.rows) {
            (1, 8, ..FEW_ROWS) => Self::of(shape, TileVariant { rows: 4, ..variant }),
            _ => Self::of(shape, variant),
        }
    }

    /// The tile for a weight that is `variant`.
    pub fn of(shape: BlockShape, variant: TileVariant) -> Self {
        let TileVariant { units, splits, rows, tokens } = variant;
        let row_blocks = shape.columns / BLOCK_COLUMNS;
        Self { format: shape.packed(), row_blocks, units, splits, rows, second_half: 0, tokens }
    }

    /// The same tile where half of a unit's rows lie `distance` rows further: pairs that are combined.
    pub fn with_second_half(self, distance: usize) -> Self {
        Self { second_half: distance, ..self }
    }

    /// Units that work on rows of their own.
    pub const fn row_units(self) -> usize {
        self.units / self.splits
    }

    /// Neighbouring rows of a unit.
    pub const fn step(self) -> usize {
        if self.second_half == 0 { self.rows } else { self.rows / 2 }
    }

    /// Cubes for `rows` rows (of the first half) and `tokens` tokens.
    pub fn cubes(self, rows: usize, tokens: usize) -> CubeCount {
        let rows = rows.div_ceil(self.row_units() * self.step());
        CubeCount::Static(rows as u32, tokens.div_ceil(self.tokens) as u32, 1)
    }

    /// Vectors that hold the codes of a block.
    const fn vectors(self) -> usize {
        vectors(self.format)
    }

    /// Blocks whose scale is decoded together.
    const fn run(self) -> usize {
        if self.format.sub_scale_blocks() > 0 { SUPER_BLOCKS } else { 1 }
    }

    /// Whether weights are scaled one by one: cheaper than scaling the sums where several tokens share them.
    const fn scales_weights(self) -> bool {
        self.tokens > 1
    }
}

/// The row that is the unit's first.
#[cube]
pub(super) fn first_row(#[comptime] tile: Tile) -> usize {
    let unit = UNIT_POS_X as usize % comptime!(tile.row_units());
    (CUBE_POS_X as usize * comptime!(tile.row_units()) + unit) * comptime!(tile.step())
}

/// Row `r` of a unit.
#[cube]
pub(super) fn row_of(first: usize, #[comptime] r: usize, #[comptime] tile: Tile) -> usize {
    first + comptime!(r % tile.step() + r / tile.step() * tile.second_half)
}

/// Whether this unit holds the sums of its rows.
#[cube]
pub(super) fn holds_sums(#[comptime] tile: Tile) -> bool {
    (UNIT_POS_X as usize) < comptime!(tile.row_units())
}

/// Where the activations of each of the cube's tokens begin in a buffer of `stride` vectors a token, `before` of them before the activations. A token past the end
/// is computed as the last one; nobody may use it.
#[cube]
pub(super) fn token_starts(
    starts: &mut Array<usize>,
    tokens: usize,
    #[comptime] stride: usize,
    #[comptime] before: usize,
    #[comptime] tile: Tile,
) {
    #[unroll]
    for t in 0..comptime!(tile.tokens) {
        starts[t] = min(token_of(t, tile), tokens - 1) * stride + before;
    }
}

/// The products of the unit's rows with its tokens, into `out[row · tokens + token]`, for the units that [`holds_sums`] tells.
///
/// `starts` says where each token's activations begin in `x`. Rows past the end are computed from the last one; nobody may use them.
/// Every unit of a cube must call this.
#[cube]
#[allow(clippy::too_many_arguments)]
pub(super) fn products<N: Size>(
    words: &[Vector<u32, N>],
    scales: &[u32],
    x: &[Vector<f32, N>],
    starts: &Array<usize>,
    first: usize,
    rows: usize,
    out: &mut Array<f32>,
    #[comptime] tile: Tile,
) {
    let mut panels = Array::<usize>::new(comptime!(tile.rows));
    let mut lanes = Array::<usize>::new(comptime!(tile.rows));
    #[unroll]
    for r in 0..comptime!(tile.rows) {
        let row = min(row_of(first, r, tile), rows - 1);
        panels[r] = row / PANEL_ROWS;
        lanes[r] = row % PANEL_ROWS;
    }
    let mut sums = Array::<Vector<f32, N>>::new(comptime!(tile.rows * tile.tokens));
    #[unroll]
    for i in 0..comptime!(tile.rows * tile.tokens) {
        sums[i] = Vector::new(0.0);
    }

    let mut run = UNIT_POS_X as usize / comptime!(tile.row_units());
    let mut scale = Array::<f32>::new(comptime!(tile.rows));
    let mut minimum = Array::<f32>::new(comptime!(tile.rows));
    while run < comptime!(tile.row_blocks / tile.run()) {
        #[unroll]
        for r in 0..comptime!(tile.rows) {
            let (d, m) =
                block_scale(scales, panels[r], lanes[r], run, comptime!(tile.format), comptime!(tile.row_blocks));
            scale[r] = d;
            minimum[r] = m;
        }
        for b in 0..comptime!(tile.run()) {
            let block = run * comptime!(tile.run()) + b;
            add_block::<N>(words, scales, x, starts, &panels, &lanes, &scale, &minimum, block, &mut sums, tile);
        }
        run += comptime!(tile.splits);
    }

    #[unroll]
    for i in 0..comptime!(tile.rows * tile.tokens) {
        let sum = sums[i];
        out[i] = (sum.extract(0usize) + sum.extract(1usize)) + (sum.extract(2usize) + sum.extract(3usize));
    }
    if comptime!(tile.splits > 1) {
        add_splits(out, tile);
    }
}

/// Adds one block's products.
#[cube]
#[allow(clippy::too_many_arguments)]
fn add_block<N: Size>(
    words: &[Vector<u32, N>],
    scales: &[u32],
    x: &[Vector<f32, N>],
    starts: &Array<usize>,
    panels: &Array<usize>,
    lanes: &Array<usize>,
    scale: &Array<f32>,
    minimum: &Array<f32>,
    block: usize,
    sums: &mut Array<Vector<f32, N>>,
    #[comptime] tile: Tile,
) {
    let format = comptime!(tile.format);
    let row_blocks = comptime!(tile.row_blocks);
    let mut codes = Array::<Vector<u32, N>>::new(comptime!(tile.rows * tile.vectors()));
    let mut small = Array::<u32>::new(comptime!(tile.rows));
    #[unroll]
    for r in 0..comptime!(tile.rows) {
        load_codes::<N>(
            words,
            scales,
            panels[r],
            lanes[r],
            block,
            &mut codes,
            comptime!(r * tile.vectors()),
            format,
            row_blocks,
        );
        small[r] = sub_scales(scales, panels[r], lanes[r], block, format, row_blocks);
    }

    // Columns that share their scales; four of them are one step.
    let steps = comptime!(format.scale_len() / 4);
    #[unroll]
    for group in 0..comptime!(BLOCK_COLUMNS / format.scale_len()) {
        let mut factor = Array::<f32>::new(comptime!(tile.rows));
        let mut bias = Array::<f32>::new(comptime!(tile.rows));
        #[unroll]
        for r in 0..comptime!(tile.rows) {
            let (f, b) = scale_and_bias(scale[r], minimum[r], small[r], comptime!(group as u32), format);
            factor[r] = f;
            bias[r] = b;
        }
        if comptime!(tile.scales_weights()) {
            #[unroll]
            for step in 0..steps {
                let j = comptime!(group * steps + step);
                let mut weights = Array::<Vector<f32, N>>::new(comptime!(tile.rows));
                #[unroll]
                for r in 0..comptime!(tile.rows) {
                    let q = numbers::<N>(&codes, comptime!(r * tile.vectors()), j, format);
                    if comptime!(format.has_bias()) {
                        weights[r] = q * Vector::new(factor[r]) + Vector::new(bias[r]);
                    } else if comptime!(format.has_scales()) {
                        weights[r] = q * Vector::new(factor[r]);
                    } else {
                        weights[r] = q;
                    }
                }
                #[unroll]
                for t in 0..comptime!(tile.tokens) {
                    let activation = x[starts[t] + block * 8 + j];
                    #[unroll]
                    for r in 0..comptime!(tile.rows) {
                        sums[comptime!(r * tile.tokens + t)] += weights[r] * activation;
                    }
                }
            }
        } else {
            // One token: the codes' products and the activations are summed on their own, and scaled once.
            let mut parts = Array::<Vector<f32, N>>::new(comptime!(tile.rows));
            #[unroll]
            for r in 0..comptime!(tile.rows) {
                parts[r] = Vector::new(0.0);
            }
            let mut activations = Vector::<f32, N>::new(0.0);
            #[unroll]
            for step in 0..steps {
                let j = comptime!(group * steps + step);
                let activation = x[starts[0] + block * 8 + j];
                if comptime!(format.has_bias()) {
                    activations += activation;
                }
                #[unroll]
                for r in 0..comptime!(tile.rows) {
                    parts[r] =
                        fma(numbers::<N>(&codes, comptime!(r * tile.vectors()), j, format), activation, parts[r]);
                }
            }
            #[unroll]
            for r in 0..comptime!(tile.rows) {
                if comptime!(format.has_bias()) {
                    sums[r] += parts[r] * Vector::new(factor[r]) + activations * Vector::new(bias[r]);
                } else if comptime!(format.has_scales()) {
                    sums[r] += parts[r] * Vector::new(factor[r]);
                } else {
                    sums[r] += parts[r];
                }
            }
        }
    }
}

/// Adds the sums of the units that share rows.
#[cube]
fn add_splits(out: &mut Array<f32>, #[comptime] tile: Tile) {
    let unit = UNIT_POS_X as usize;
    let mut shared = Shared::<[f32]>::new_slice(comptime!(tile.units * tile.rows * tile.tokens));
    #[unroll]
    for i in 0..comptime!(tile.rows * tile.tokens) {
        shared[i * comptime!(tile.units) + unit] = out[i];
    }
    sync_cube();
    if unit < comptime!(tile.row_units()) {
        #[unroll]
        for i in 0..comptime!(tile.rows * tile.tokens) {
            let mut sum = out[i];
            #[unroll]
            for split in 1..comptime!(tile.splits) {
                sum += shared[i * comptime!(tile.units) + split * comptime!(tile.row_units()) + unit];
            }
            out[i] = sum;
        }
    }
}

/// The tokens of this cube.
#[cube]
pub(super) fn token_of(#[comptime] t: usize, #[comptime] tile: Tile) -> usize {
    CUBE_POS_Y as usize * comptime!(tile.tokens) + t
}
