//! How fast every format's matrix-vector product is, against a bare kernel over 4-bit weights in the same run: what the device's arithmetic allows.

use super::bare::{Bare, WIDTH};
use super::say;
use burn::tensor::{Device, Tensor};
use hearth::format::TensorType;
use hearth::kernels::{self, BlockShape, BlockWeight};
use hearth::quant::BlockFormat;
use web_time::Instant;

/// Launches that are timed together.
const LAUNCHES: usize = 8;
/// Times that each kernel is timed; the best counts, since everything else on the machine only slows it down.
const ROUNDS: usize = 5;

/// Seconds of one launch of the bare kernel.
async fn time_bare(bare: &Bare) -> f64 {
    let begin = Instant::now();
    for _ in 0..LAUNCHES {
        bare.launch();
    }
    bare.client.read_async(vec![bare.output.clone()]).await.expect("the device answers");
    begin.elapsed().as_secs_f64() / LAUNCHES as f64
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
        let (ours, theirs) = (time(device, &weight).await, time_bare(bare).await);
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
