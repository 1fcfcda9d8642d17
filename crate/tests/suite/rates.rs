//! How fast every format's matrix-vector product is, against a bare kernel over 4-bit weights in the same run: what the device's arithmetic allows.

use super::say;
use burn::tensor::{Device, Tensor};
use cubecl::prelude::*;
use hearth::format::TensorType;
use hearth::kernels::{self, BlockShape, BlockWeight};
use hearth::quant::BlockFormat;
use web_time::Instant;

/// Rows and columns of the matrices.
const WIDTH: usize = 2048;
/// Launches that are timed together.
const LAUNCHES: usize = 8;
/// Times that each kernel is timed; the best counts, since everything else on the machine only slows it down.
const ROUNDS: usize = 5;

/// `y = W x` with `W` `[n, k]` of 4-bit codes in blocks of 32, an `f32` scale each, a row a unit: nothing is packed, fused or shared.
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
struct Bare {
    client: Client,
    buffers: [cubecl::server::Handle; 4],
}

impl Bare {
    fn new() -> Self {
        let client = burn_cubecl::CubeDevice::Wgpu(Default::default()).client();
        let buffers = [
            client.create_from_slice(u32::as_bytes(&vec![0x1234_5678u32; WIDTH * WIDTH / 8])),
            client.create_from_slice(f32::as_bytes(&vec![0.5f32; WIDTH * WIDTH / 32])),
            client.create_from_slice(f32::as_bytes(&vec![0.25f32; WIDTH])),
            client.create_from_slice(f32::as_bytes(&vec![0.0f32; WIDTH])),
        ];
        Self { client, buffers }
    }

    /// Seconds of one launch.
    async fn time(&self) -> f64 {
        let [w, s, x, y] = &self.buffers;
        let begin = Instant::now();
        for _ in 0..LAUNCHES {
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
                    BufferArg::from_raw_parts(y.clone(), WIDTH),
                    WIDTH,
                );
            }
        }
        self.client.read_async(vec![y.clone()]).await.expect("the device answers");
        begin.elapsed().as_secs_f64() / LAUNCHES as f64
    }
}

/// Seconds of one matrix-vector product with `weight`.
async fn time(device: &Device, weight: &BlockWeight) -> f64 {
    let x = Tensor::<3>::ones([1, 1, WIDTH], device);
    let begin = Instant::now();
    let mut y = kernels::matmul(x.clone(), weight);
    for _ in 1..LAUNCHES {
        y = kernels::matmul(x.clone(), weight);
    }
    let data = y.slice([0..1, 0..1, 0..1]).into_data_async().await.expect("the device answers");
    data.try_into_vec::<f32>().expect("f32");
    begin.elapsed().as_secs_f64() / LAUNCHES as f64
}

fn random_weight(device: &Device, ty: TensorType) -> BlockWeight {
    let bytes = WIDTH * WIDTH / ty.block_len() * ty.block_bytes();
    // Floats of an ordinary size: what a CPU takes for a denormal is not what is measured.
    let blocks: Vec<u8> = match ty {
        TensorType::F32 => (0..bytes / 4).flat_map(|i| (0.5 + (i % 61) as f32).to_le_bytes()).collect(),
        TensorType::F16 | TensorType::BF16 => (0..bytes / 2).flat_map(|i| [(i % 251) as u8, 0x3c]).collect(),
        _ => (0..bytes).map(|i| (i * 37 % 61) as u8).collect(),
    };
    BlockWeight::from_blocks(BlockShape { ty, rows: WIDTH, columns: WIDTH }, &blocks, device).expect("packs")
}

/// How many times the bare kernel's rate the matrix-vector product with `ty` has: both are timed in turn, and the best of each counts, since everything else on the machine
/// only slows them down.
async fn share(device: &Device, bare: &Bare, ty: TensorType) -> f64 {
    let weight = random_weight(device, ty);
    let mut best = (f64::INFINITY, f64::INFINITY);
    for round in 0..=ROUNDS {
        let (ours, theirs) = (time(device, &weight).await, bare.time().await);
        if round > 0 {
            best = (best.0.min(ours), best.1.min(theirs));
        }
    }
    best.1 / best.0
}

/// Prints every type's rate as a share of the bare kernel's, and gives those that are below what they should reach: 80%, and 60% with two levels of scales.
pub async fn slow_types(device: &Device) -> Vec<String> {
    let bare = Bare::new();
    let mut slow = Vec::new();
    for ty in TensorType::ALL {
        let share = share(device, &bare, ty).await;
        say!("matrix-vector product with {ty}: {:.0}% of the bare q4 kernel's rate", 100.0 * share);
        let wanted = if BlockFormat::of(ty).scale_levels() == 2 { 0.6 } else { 0.8 };
        if share < wanted {
            slow.push(format!("{ty} reaches {:.0}%", 100.0 * share));
        }
    }
    slow
}
