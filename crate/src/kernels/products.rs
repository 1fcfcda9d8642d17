//! What all projections share: the products of a tile of weight rows and a tile of tokens.
//!
//! A unit computes a few rows for a few tokens. It decodes four weights with a shift and a mask, multiplies them with four activations of each
//! token, and adds the sum of the four products. Units side by side read
//! words side by side (see `quant::pack`), and the same activations. Several units may share a row, each with every n-th block of it; their sums
//! are added through workgroup memory.
//!
//! Bytes moved for `[tokens, columns] × [rows, columns]`: the weight's device bytes once for every tile of tokens,
//! `4 · tokens · columns` of activations for every tile of rows (mostly from a cache), and `4 · tokens · rows` written.

use super::BlockShape;
use super::TileVariant;
use super::decode::{block_scale, load_codes, numbers, scale_and_bias, sub_scales};
use crate::quant::pack::{BLOCK_COLUMNS, PANEL_ROWS, PackedFormat, SUPER_BLOCKS};
use cubecl::prelude::*;

/// Rows below which a unit computes fewer of them.
const FEW_ROWS: usize = 1024;

/// Steps of four columns whose weights are decoded together for several tokens; their columns share scales in every format.
const STEPS: usize = 2;

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

    /// Where activations lie that are nothing but activations.
    pub const fn plain_activations(self) -> ActivationLayout {
        ActivationLayout { stride: self.row_blocks * 8, before: 0 }
    }

    /// Blocks whose scale is decoded together.
    const fn run(self) -> usize {
        if self.format.sub_scale_blocks() > 0 { SUPER_BLOCKS } else { 1 }
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

/// Where a buffer has its activations, in vectors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct ActivationLayout {
    /// From a token to the next.
    pub stride: usize,
    /// Before a token's activations.
    pub before: usize,
}

/// Where the `t`-th of the cube's tokens begins in the buffer. A token past the end is computed as the last one; nobody may use it.
#[cube]
pub(super) fn token_start(
    t: usize,
    tokens: usize,
    #[comptime] layout: ActivationLayout,
    #[comptime] tile: Tile,
) -> usize {
    min(CUBE_POS_Y as usize * comptime!(tile.tokens) + t, tokens - 1) * comptime!(layout.stride)
}

/// Where a unit's rows and tokens are.
#[derive(CubeType)]
struct Places {
    /// Of each row.
    panels: Sequence<usize>,
    lanes: Sequence<usize>,
    /// Of each token's activations.
    starts: Sequence<usize>,
}

/// What is loaded of a unit's rows for one block, a value for each row.
#[derive(CubeType)]
struct RowBlocks<N: Size> {
    /// The block's number in the row.
    index: usize,
    codes: Sequence<Sequence<Vector<u32, N>>>,
    sub_scales: Sequence<u32>,
    /// Of the block or super-block.
    scale: Sequence<f32>,
    minimum: Sequence<f32>,
}

/// The products of the unit's rows with its tokens, into `out[row · tokens + token]`, for the units that [`holds_sums`] tells.
///
/// Rows past the end are computed from the last one; nobody may use them. Every unit of a cube must call this.
///
/// What is computed once is kept as a value, and only sums in an array: a software adapter does a masked store for every change of an array. It shifts by constants in one
/// instruction, and by anything else in sixteen, so that everything within a block is unrolled.
#[cube]
#[allow(clippy::too_many_arguments)]
pub(super) fn products<N: Size>(
    words: &[Vector<u32, N>],
    scales: &[u32],
    x: &[Vector<f32, N>],
    first: usize,
    rows: usize,
    tokens: usize,
    out: &mut Array<f32>,
    #[comptime] layout: ActivationLayout,
    #[comptime] tile: Tile,
) {
    let mut places =
        Places { panels: Sequence::<usize>::new(), lanes: Sequence::<usize>::new(), starts: Sequence::<usize>::new() };
    #[unroll]
    for r in 0..comptime!(tile.rows) {
        let row = min(row_of(first, r, tile), rows - 1);
        places.panels.push(row / PANEL_ROWS);
        places.lanes.push(row % PANEL_ROWS);
    }
    #[unroll]
    for t in 0..comptime!(tile.tokens) {
        places.starts.push(token_start(t, tokens, layout, tile) + comptime!(layout.before));
    }
    #[unroll]
    for i in 0..comptime!(tile.rows * tile.tokens) {
        out[i] = 0.0;
    }

    // Where no units share a row, the loop is the same for all: a compiler that sees it loads activations once for all of them.
    let mut run =
        if comptime!(tile.splits == 1) { 0usize.runtime() } else { UNIT_POS_X as usize / comptime!(tile.row_units()) };
    while run < comptime!(tile.row_blocks / tile.run()) {
        let mut scale = Sequence::<f32>::new();
        let mut minimum = Sequence::<f32>::new();
        #[unroll]
        for r in 0..comptime!(tile.rows) {
            let (panel, lane) = (places.panels[r], places.lanes[r]);
            let (d, m) = block_scale(scales, panel, lane, run, comptime!(tile.format), comptime!(tile.row_blocks));
            scale.push(d);
            minimum.push(m);
        }
        for b in 0..comptime!(tile.run()) {
            let block = load_rows::<N>(words, scales, &places, run * comptime!(tile.run()) + b, &scale, &minimum, tile);
            if comptime!(tile.tokens == 1) {
                add_for_one::<N>(x, &places, &block, out, tile);
            } else {
                add_for_many::<N>(x, &places, &block, out, tile);
            }
        }
        run += comptime!(tile.splits);
    }
    if comptime!(tile.splits > 1) {
        add_splits(out, tile);
    }
}

/// Loads block `index` of the unit's rows, whose scales are known.
#[cube]
fn load_rows<N: Size>(
    words: &[Vector<u32, N>],
    scales: &[u32],
    places: &Places,
    index: usize,
    scale: &Sequence<f32>,
    minimum: &Sequence<f32>,
    #[comptime] tile: Tile,
) -> RowBlocks<N> {
    let format = comptime!(tile.format);
    let row_blocks = comptime!(tile.row_blocks);
    let mut codes = Sequence::<Sequence<Vector<u32, N>>>::new();
    let mut small = Sequence::<u32>::new();
    #[unroll]
    for r in 0..comptime!(tile.rows) {
        let (panel, lane) = (places.panels[r], places.lanes[r]);
        codes.push(load_codes::<N>(words, scales, panel, lane, index, format, row_blocks));
        small.push(sub_scales(scales, panel, lane, index, format, row_blocks));
    }
    RowBlocks::<N> { index, codes, sub_scales: small, scale: scale.clone(), minimum: minimum.clone() }
}

/// Adds a block's products for one token: the codes' products and the activations are summed on their own, and scaled once.
#[cube]
fn add_for_one<N: Size>(
    x: &[Vector<f32, N>],
    places: &Places,
    block: &RowBlocks<N>,
    out: &mut Array<f32>,
    #[comptime] tile: Tile,
) {
    let format = comptime!(tile.format);
    // Columns that share their scales; four of them are one step.
    let steps = comptime!(format.scale_len() / 4);
    #[unroll]
    for group in 0..comptime!(8 / steps) {
        let activations = activations::<N>(x, places.starts[0], block.index, comptime!(group * steps), steps);
        let total = if comptime!(format.has_bias()) { total::<N>(&activations, steps) } else { 0.0f32.runtime() };
        #[unroll]
        for r in 0..comptime!(tile.rows) {
            let mut weights = Sequence::<Vector<f32, N>>::new();
            #[unroll]
            for step in 0..steps {
                weights.push(numbers::<N>(&block.codes[r], comptime!(group * steps + step), format));
            }
            let product = dot::<N>(&weights, 0usize, &activations, steps);
            let (factor, bias) = factor_and_bias::<N>(block, r, group, format);
            let product = if comptime!(format.has_bias()) {
                product * factor + total * bias
            } else if comptime!(format.has_scales()) {
                product * factor
            } else {
                product
            };
            out[r] += product;
        }
    }
}

/// Adds a block's products for several tokens, which share the weights: these are scaled one by one, a few columns at a time.
#[cube]
fn add_for_many<N: Size>(
    x: &[Vector<f32, N>],
    places: &Places,
    block: &RowBlocks<N>,
    out: &mut Array<f32>,
    #[comptime] tile: Tile,
) {
    let format = comptime!(tile.format);
    #[unroll]
    for part in 0..comptime!(8 / STEPS) {
        let mut weights = Sequence::<Vector<f32, N>>::new();
        #[unroll]
        for r in 0..comptime!(tile.rows) {
            let (factor, bias) =
                factor_and_bias::<N>(block, r, comptime!(part * STEPS * 4 / format.scale_len()), format);
            #[unroll]
            for step in 0..STEPS {
                let number = numbers::<N>(&block.codes[r], comptime!(part * STEPS + step), format);
                if comptime!(format.has_bias()) {
                    weights.push(number * Vector::new(factor) + Vector::new(bias));
                } else if comptime!(format.has_scales()) {
                    weights.push(number * Vector::new(factor));
                } else {
                    weights.push(number);
                }
            }
        }
        #[unroll]
        for t in 0..comptime!(tile.tokens) {
            let activations = activations::<N>(x, places.starts[t], block.index, comptime!(part * STEPS), STEPS);
            #[unroll]
            for r in 0..comptime!(tile.rows) {
                out[comptime!(r * tile.tokens + t)] += dot::<N>(&weights, comptime!(r * STEPS), &activations, STEPS);
            }
        }
    }
}

/// What the numbers of row `r` are multiplied with and what is added then, in the block's `group`-th run of equally scaled columns.
#[cube]
fn factor_and_bias<N: Size>(
    block: &RowBlocks<N>,
    #[comptime] r: usize,
    #[comptime] group: usize,
    #[comptime] format: PackedFormat,
) -> (f32, f32) {
    scale_and_bias(block.scale[r], block.minimum[r], block.sub_scales[r], comptime!(group as u32), format)
}

/// The activations of `count` steps of block `block` from step `first` on, of the token that begins at `start`.
#[cube]
fn activations<N: Size>(
    x: &[Vector<f32, N>],
    start: usize,
    block: usize,
    #[comptime] first: usize,
    #[comptime] count: usize,
) -> Sequence<Vector<f32, N>> {
    let mut activations = Sequence::<Vector<f32, N>>::new();
    #[unroll]
    for step in 0..count {
        let activation = x[start + block * 8 + comptime!(first + step)];
        activations.push(activation);
    }
    activations
}

/// The sum of the products of `count` vectors of weights, from `first` on, with as many of activations.
#[cube]
fn dot<N: Size>(
    weights: &Sequence<Vector<f32, N>>,
    #[comptime] first: usize,
    activations: &Sequence<Vector<f32, N>>,
    #[comptime] count: usize,
) -> f32 {
    let last = comptime!(count - 1);
    let product = weights[comptime!(first + last)].dot(activations[last]);
    if comptime!(last == 0) { product } else { dot::<N>(weights, first, activations, last) + product }
}

/// The sum of `count` vectors.
#[cube]
fn total<N: Size>(vectors: &Sequence<Vector<f32, N>>, #[comptime] count: usize) -> f32 {
    let last = comptime!(count - 1);
    let vector = vectors[last];
    let sum = (vector.extract(0usize) + vector.extract(1usize)) + (vector.extract(2usize) + vector.extract(3usize));
    if comptime!(last == 0) { sum } else { total::<N>(vectors, last) + sum }
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
