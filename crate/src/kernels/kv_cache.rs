//! Copies new keys or values into the cache, in place. Moves 8 bytes a value.

use super::cube::{bind, contiguous};
use burn::backend::TensorMetadata;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

/// Units of a cube.
const UNITS: usize = 64;

/// The cache's inner dimensions: what a pipeline is compiled for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct CacheShape {
    heads: usize,
    head_dim: usize,
    max_seq_len: usize,
}

#[cube(launch_unchecked)]
fn kernel(x: &[f32], position: &[u32], cache: &mut [f32], seq: u32, #[comptime] shape: CacheShape) {
    let unit = CUBE_POS_X as usize * UNITS + UNIT_POS_X as usize;
    if unit >= x.len() {
        terminate!();
    }
    let heads = comptime!(shape.heads);
    let head_dim = comptime!(shape.head_dim);
    let max_seq_len = comptime!(shape.max_seq_len);
    let seq = seq as usize;
    let d = unit % head_dim;
    let head = (unit / head_dim) % heads;
    let token = unit / comptime!(shape.head_dim * shape.heads);
    let row = position[0] as usize + token % seq;
    if row < max_seq_len {
        cache[(((token / seq) * heads + head) * max_seq_len + row) * head_dim + d] = x[unit];
    }
}

/// Enqueues the copy of `x`, `[batch, seq, heads, head_dim]`, into `cache`, `[batch, heads, max_seq_len, head_dim]`, and returns the cache.
pub(super) fn launch(cache: CubeTensor, x: CubeTensor, position: CubeTensor) -> CubeTensor {
    let x = contiguous(x);
    let dims = x.shape();
    let shape = CacheShape { heads: dims[2], head_dim: dims[3], max_seq_len: cache.shape()[2] };
    let units = dims.num_elements();
    // SAFETY: units past the end stop, and rows past the cache are not written.
    unsafe {
        kernel::launch_unchecked(
            &x.client,
            CubeCount::Static(units.div_ceil(UNITS) as u32, 1, 1),
            CubeDim::new_1d(UNITS as u32),
            bind(&x, 4),
            bind(&position, 4),
            bind(&cache, 4),
            dims[1] as u32,
            shape,
        );
    }
    cache
}
