//! Root mean square normalization: one cube a token, its units sum the squares through workgroup memory.
//!
//! Bytes moved for `[tokens, d_model]`: `4 · d_model` read and written a token (and read again, from a cache), and gamma.

use super::cube::{bind, contiguous, empty_like};
use burn::backend::TensorMetadata;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

/// Units of a cube: a power of two.
const UNITS: usize = 64;

#[cube(launch_unchecked)]
fn kernel(x: &[f32], gamma: &[f32], y: &mut [f32], epsilon: f32, #[comptime] width: usize) {
    let start = CUBE_POS_X as usize * width;
    let unit = UNIT_POS_X as usize;
    let mut partial = Shared::<[f32]>::new_slice(UNITS);

    let mut sum = 0.0f32;
    let mut i = unit;
    while i < width {
        let value = x[start + i];
        sum += value * value;
        i += UNITS;
    }
    partial[unit] = sum;
    sync_cube();
    let mut half = (UNITS / 2).runtime();
    while half > 0 {
        if unit < half {
            partial[unit] += partial[unit + half];
        }
        sync_cube();
        half /= 2;
    }

    let scale = (partial[0] / comptime!(width as f32) + epsilon).inverse_sqrt();
    let mut i = unit;
    while i < width {
        y[start + i] = x[start + i] * scale * gamma[i];
        i += UNITS;
    }
}

/// Enqueues the normalization over the last dimension of `x`.
pub(super) fn launch(x: CubeTensor, gamma: CubeTensor, epsilon: f32) -> CubeTensor {
    let (x, gamma) = (contiguous(x), contiguous(gamma));
    let y = empty_like(&x, x.shape());
    let width = gamma.shape()[0];
    let tokens = x.shape().num_elements() / width;
    // SAFETY: cubes count tokens and units stay below the width.
    unsafe {
        kernel::launch_unchecked(
            &x.client,
            CubeCount::Static(tokens as u32, 1, 1),
            CubeDim::new_1d(UNITS as u32),
            bind(&x, 4),
            bind(&gamma, 4),
            bind(&y, 4),
            epsilon,
            width,
        );
    }
    y
}
