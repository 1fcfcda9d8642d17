//! Rotary position embedding: one unit a pair. Moves 8 bytes a value, and the table's rows of the positions.

use super::cube::{bind, contiguous, empty_like};
use burn::backend::TensorMetadata;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;
use serde::{Deserialize, Serialize};

/// Units of a cube.
const UNITS: usize = 64;

/// Which two values of a head are rotated together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum RopeLayout {
    /// `(2 i, 2 i + 1)`: the rows of a llama GGUF's query and key projections are permuted for it.
    Interleaved,
    /// `(i, i + rotary_dim / 2)`: Hugging Face checkpoints.
    HalfSplit,
}

impl RopeLayout {
    /// Where the two values of pair `pair` lie in a head of which the first `2 * half` values rotate. Pairs past `half` are neighbours that
    /// pass through.
    #[cfg(not(target_arch = "wasm32"))]
    pub(super) fn pair(self, pair: usize, half: usize) -> (usize, usize) {
        match self {
            Self::HalfSplit if pair < half => (pair, pair + half),
            _ => (2 * pair, 2 * pair + 1),
        }
    }
}

/// Heads, their width, and the table's: what a pipeline is compiled for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct RopeShape {
    heads: usize,
    head_dim: usize,
    half: usize,
    layout: RopeLayout,
}

#[cube(launch_unchecked)]
fn kernel(x: &[f32], table: &[f32], position: &[u32], y: &mut [f32], seq: u32, #[comptime] shape: RopeShape) {
    let unit = CUBE_POS_X as usize * UNITS + UNIT_POS_X as usize;
    if 2 * unit >= x.len() {
        terminate!();
    }
    let pairs = comptime!(shape.head_dim / 2);
    let half = comptime!(shape.half);
    let pair = unit % pairs;
    let head = unit / pairs;
    let token = head / comptime!(shape.heads);
    let start = head * comptime!(shape.head_dim);
    let split = comptime!(shape.layout == RopeLayout::HalfSplit);
    let a = start + select(split.runtime() && pair < half, pair, 2 * pair);
    let b = start + select(split.runtime() && pair < half, pair + half, 2 * pair + 1);
    if pair < half {
        let row = position[0] as usize + token % seq as usize;
        let cos = table[(row * half + pair) * 2];
        let sin = table[(row * half + pair) * 2 + 1];
        y[a] = x[a] * cos - x[b] * sin;
        y[b] = x[b] * cos + x[a] * sin;
    } else {
        y[a] = x[a];
        y[b] = x[b];
    }
}

/// Enqueues the rotation of `x`, `[batch, seq, heads, head_dim]`.
pub(super) fn launch(x: CubeTensor, table: CubeTensor, position: CubeTensor, layout: RopeLayout) -> CubeTensor {
    let (x, table) = (contiguous(x), contiguous(table));
    let dims = x.shape();
    let y = empty_like(&x, x.shape());
    let shape = RopeShape { heads: dims[2], head_dim: dims[3], half: table.shape()[1], layout };
    let pairs = dims.num_elements() / 2;
    // SAFETY: units past the end stop; the cache that bounds the position is no longer than the table.
    unsafe {
        kernel::launch_unchecked(
            &x.client,
            CubeCount::Static(pairs.div_ceil(UNITS) as u32, 1, 1),
            CubeDim::new_1d(UNITS as u32),
            bind(&x, 4),
            bind(&table, 4),
            bind(&position, 4),
            bind(&y, 4),
            dims[1] as u32,
            shape,
        );
    }
    y
}
