//! The bare kernel over 4-bit weights that every rate is measured against: what the device's arithmetic allows, with nothing packed, fused or shared.

use cubecl::prelude::*;
use cubecl::server::Handle;

/// Rows and columns of its matrix.
pub const WIDTH: usize = 2048;

/// `y = W x` with `W` `[n, k]` of 4-bit codes in blocks of 32, an `f32` scale each, a row a unit.
#[cube(launch_unchecked)]
fn bare_q4<N: Size>(w: &[Vector<u32, N>], s: &[f32], x: &[Vector<f32, N>], y: &mut [f32], #[comptime] k: usize) {
    let row = ABSOLUTE_POS;
    let blocks = comptime!(k / 32);
    let mut sum = 0.0f32;
    for b in 0..blocks {
        let q = w[row * blocks + b];
        let mut part = Vector::<f32, N>::new(0.0);
        #[unroll]
        for j in 0..8u32 {
            let v = (q >> Vector::new(j * 4)) & Vector::new(15u32);
            part += Vector::<f32, N>::cast_from(v) * x[b * 8 + j as usize];
        }
        sum += s[row * blocks + b]
            * (part.extract(0usize) + part.extract(1usize) + part.extract(2usize) + part.extract(3usize));
    }
    y[row] = sum;
}

/// The bare kernel and its buffers.
pub struct Bare {
    /// Of the GPU that is open.
    pub client: Client,
    /// `y`.
    pub output: Handle,
    inputs: [Handle; 3],
}

impl Bare {
    pub fn new() -> Self {
        let client = burn_cubecl::CubeDevice::Wgpu(Default::default()).client();
        let inputs = [
            client.create_from_slice(u32::as_bytes(&vec![0x1234_5678u32; WIDTH * WIDTH / 8])),
            client.create_from_slice(f32::as_bytes(&vec![0.5f32; WIDTH * WIDTH / 32])),
            client.create_from_slice(f32::as_bytes(&vec![0.25f32; WIDTH])),
        ];
        let output = client.create_from_slice(f32::as_bytes(&vec![0.0f32; WIDTH]));
        Self { client, output, inputs }
    }

    /// Enqueues one product, `WIDTH * WIDTH` multiply-adds.
    pub fn launch(&self) {
        let [w, s, x] = &self.inputs;
        // SAFETY: the buffers have the lengths that are said here.
        unsafe {
            bare_q4::launch_unchecked(
                &self.client,
                CubeCount::Static((WIDTH / 64) as u32, 1, 1),
                CubeDim::new_1d(64),
                4,
                BufferArg::from_raw_parts(w.clone(), WIDTH * WIDTH / 32),
                BufferArg::from_raw_parts(s.clone(), WIDTH * WIDTH / 32),
                BufferArg::from_raw_parts(x.clone(), WIDTH / 4),
                BufferArg::from_raw_parts(self.output.clone(), WIDTH),
                WIDTH,
            );
        }
    }
}
