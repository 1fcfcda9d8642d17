//! Every kernel against the reference decoder and `f64` arithmetic on the host.

use super::relative_diff;
use burn::tensor::{DType, Device, Int, Tensor, TensorData};
use hearth::format::TensorType;
use hearth::kernels::{self, BlockShape, BlockWeight, RopeLayout};
use hearth::quant::dequantize;

/// How far a sum in `f32` may be from the `f64` one, relative to the largest value.
const TOLERANCE: f32 = 1e-5;

/// The tensor types that have a kernel.
pub const TYPES: [TensorType; 6] =
    [TensorType::F32, TensorType::F16, TensorType::BF16, TensorType::Q8_0, TensorType::Q4_0, TensorType::Q4_1];

/// A small fixed sequence of well-mixed 32-bit numbers (Steele, Lea and Flood's SplitMix).
struct Mix(u64);

impl Mix {
    fn next(&mut self) -> u32 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z >> 32) as u32
    }

    /// In -1..1.
    fn float(&mut self) -> f32 {
        (self.next() >> 8) as f32 / (1 << 23) as f32 - 1.0
    }

    fn floats(&mut self, count: usize) -> Vec<f32> {
        (0..count).map(|_| self.float()).collect()
    }
}

/// Random blocks of a type. Their f16 scales are zero, subnormal, negative and large as well as ordinary.
fn random_blocks(mix: &mut Mix, ty: TensorType, values: usize) -> Vec<u8> {
    const SCALES: [u16; 8] = [0x0000, 0x8000, 0x0001, 0x83ff, 0x2c00, 0xb812, 0x3c01, 0x5640];
    match ty {
        TensorType::F32 => mix.floats(values).into_iter().flat_map(f32::to_le_bytes).collect(),
        // Random mantissas and signs under exponents that keep the value finite, subnormals included.
        TensorType::F16 => (0..values).flat_map(|_| ((mix.next() & 0xcfff) as u16).to_le_bytes()).collect(),
        TensorType::BF16 => {
            mix.floats(values).into_iter().flat_map(|v| ((v.to_bits() >> 16) as u16).to_le_bytes()).collect()
        }
        _ => {
            let scales = if ty == TensorType::Q4_1 { 2 } else { 1 };
            let blocks = values / ty.block_len();
            (0..blocks)
                .flat_map(|_| {
                    let mut block: Vec<u8> = (0..ty.block_bytes()).map(|_| mix.next() as u8).collect();
                    for scale in 0..scales {
                        block[2 * scale..2 * scale + 2].copy_from_slice(&SCALES[mix.next() as usize % 8].to_le_bytes());
                    }
                    block
                })
                .collect()
        }
    }
}

fn tensor<const D: usize>(values: &[f32], shape: [usize; D], device: &Device) -> Tensor<D> {
    Tensor::from_data(TensorData::new(values.to_vec(), shape), device)
}

fn ids<const D: usize>(values: &[u32], shape: [usize; D], device: &Device) -> Tensor<D, Int> {
    Tensor::from_data(TensorData::new(values.to_vec(), shape), (device, DType::U32))
}

async fn read<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    tensor.into_data_async().await.expect("the device answers").try_into_vec().expect("f32")
}

fn assert_close(actual: &[f32], expected: &[f64], what: &str) {
    let expected: Vec<f32> = expected.iter().map(|value| *value as f32).collect();
    let diff = relative_diff(actual, &expected);
    assert!(diff <= TOLERANCE, "{what}: relative difference {diff:e}");
}

/// `block_matmul` for one token, for a few and for more than a tile, over rows that do and do not fill a panel.
pub async fn matmul(device: &Device, ty: TensorType) {
    let mut mix = Mix(1 + ty.ggml_id() as u64);
    for (rows, columns, tokens) in [(64, 64, 1), (100, 96, 1), (33, 32, 5), (128, 160, 8), (70, 64, 19)] {
        let blocks = random_blocks(&mut mix, ty, rows * columns);
        let mut weights = vec![0.0; rows * columns];
        dequantize(ty, &blocks, &mut weights).expect("valid blocks");
        let x = mix.floats(tokens * columns);
        let expected: Vec<f64> = (0..tokens * rows)
            .map(|i| {
                let (x, w) = (&x[i / rows * columns..][..columns], &weights[i % rows * columns..][..columns]);
                x.iter().zip(w).map(|(x, w)| f64::from(*x) * f64::from(*w)).sum()
            })
            .collect();
        let weight = BlockWeight::from_blocks(BlockShape { ty, rows, columns }, &blocks, device).expect("packs");
        let y = kernels::matmul(tensor(&x, [1, tokens, columns], device), &weight);
        assert_eq!(y.dims(), [1, tokens, rows]);
        assert_close(&read(y).await, &expected, &format!("{} [{rows}, {columns}] x {tokens}", ty.name()));
    }
}

/// `block_embedding` gives exactly what the reference decoder gives.
pub async fn embedding(device: &Device, ty: TensorType) {
    let mut mix = Mix(100 + ty.ggml_id() as u64);
    let (rows, columns) = (75, 96);
    let blocks = random_blocks(&mut mix, ty, rows * columns);
    let mut weights = vec![0.0; rows * columns];
    dequantize(ty, &blocks, &mut weights).expect("valid blocks");
    let tokens = [74u32, 0, 31, 32, 32];
    let expected: Vec<f64> =
        tokens.iter().flat_map(|t| &weights[*t as usize * columns..][..columns]).map(|v| f64::from(*v)).collect();
    let weight = BlockWeight::from_blocks(BlockShape { ty, rows, columns }, &blocks, device).expect("packs");
    let y = read(kernels::embedding(ids(&tokens, [1, 5], device), &weight)).await;
    let exact: Vec<f32> = expected.iter().map(|v| *v as f32).collect();
    // A multiplication and an addition in one rounding (fma) may differ from two in the last bit.
    assert!(relative_diff(&y, &exact) <= 2e-7, "{}", ty.name());
}

/// `rms_norm` over widths that do and do not fill the cube.
pub async fn rms_norm(device: &Device) {
    let mut mix = Mix(2);
    for (tokens, width) in [(1, 576), (3, 100), (2, 32)] {
        let (x, gamma) = (mix.floats(tokens * width), mix.floats(width));
        let expected: Vec<f64> = x
            .chunks(width)
            .flat_map(|row| {
                let mean = row.iter().map(|v| f64::from(*v).powi(2)).sum::<f64>() / width as f64;
                let scale = 1.0 / (mean + 1e-5).sqrt();
                row.iter().zip(&gamma).map(move |(v, g)| f64::from(*v) * scale * f64::from(*g)).collect::<Vec<_>>()
            })
            .collect();
        let y = kernels::rms_norm(tensor(&x, [1, tokens, width], device), tensor(&gamma, [width], device), 1e-5);
        assert_close(&read(y).await, &expected, &format!("rms_norm [{tokens}, {width}]"));
    }
}

/// `rope` in both layouts, from a position that is not 0, with a head of which only a part rotates.
pub async fn rope(device: &Device) {
    let mut mix = Mix(3);
    let (seq, heads, head_dim, position) = (3, 2, 16, 5);
    for (layout, half) in [(RopeLayout::Interleaved, 8), (RopeLayout::HalfSplit, 8), (RopeLayout::HalfSplit, 4)] {
        let x = mix.floats(seq * heads * head_dim);
        let angles = mix.floats(16 * half);
        let table: Vec<f32> = angles.iter().flat_map(|a| [a.cos(), a.sin()]).collect();
        let mut expected: Vec<f64> = x.iter().map(|v| f64::from(*v)).collect();
        for (index, head) in expected.chunks_mut(head_dim).enumerate() {
            for i in 0..half {
                let angle = f64::from(angles[(position + index / heads) * half + i]);
                let (a, b) = match layout {
                    RopeLayout::Interleaved => (2 * i, 2 * i + 1),
                    RopeLayout::HalfSplit => (i, i + half),
                };
                let (u, v) = (head[a], head[b]);
                head[a] = u * angle.cos() - v * angle.sin();
                head[b] = v * angle.cos() + u * angle.sin();
            }
        }
        let y = kernels::rope(
            tensor(&x, [1, seq, heads, head_dim], device),
            tensor(&table, [16, half, 2], device),
            ids(&[position as u32], [1], device),
            layout,
        );
        assert_close(&read(y).await, &expected, &format!("rope {layout:?} of {}", 2 * half));
    }
}

/// `kv_write` puts the rows of two sequences where the position says and leaves the others alone.
pub async fn kv_write(device: &Device) {
    let mut mix = Mix(4);
    let (batch, seq, heads, head_dim, max, position) = (2, 3, 2, 8, 7, 2);
    let (before, x) = (mix.floats(batch * heads * max * head_dim), mix.floats(batch * seq * heads * head_dim));
    let mut expected = before.clone();
    for b in 0..batch {
        for s in 0..seq {
            for h in 0..heads {
                for d in 0..head_dim {
                    expected[((b * heads + h) * max + position + s) * head_dim + d] =
                        x[((b * seq + s) * heads + h) * head_dim + d];
                }
            }
        }
    }
    let cache = kernels::kv_write(
        tensor(&before, [batch, heads, max, head_dim], device),
        tensor(&x, [batch, seq, heads, head_dim], device),
        ids(&[position as u32], [1], device),
    );
    assert_eq!(read(cache).await, expected);
}

/// `attention` over a cache longer than two chunks, with grouped heads, two sequences, and a head wider than the cube.
pub async fn attention(device: &Device) {
    let mut mix = Mix(5);
    for (batch, seq, heads, kv_heads, head_dim, max, position) in
        [(2, 3, 4, 2, 16, 300, 290), (1, 1, 3, 1, 64, 40, 0), (1, 5, 2, 2, 80, 140, 126)]
    {
        let q = mix.floats(batch * seq * heads * head_dim);
        let (k, v) = (mix.floats(batch * kv_heads * max * head_dim), mix.floats(batch * kv_heads * max * head_dim));
        let scale = 3.0;
        let mut expected = Vec::new();
        for query in 0..batch * seq * heads {
            let (token, head) = (query / heads, query % heads);
            let rows = ((token / seq) * kv_heads + head / (heads / kv_heads)) * max;
            let row = |t: usize, of: &[f32]| -> Vec<f64> {
                of[(rows + t) * head_dim..][..head_dim].iter().map(|v| f64::from(*v)).collect()
            };
            let q = &q[query * head_dim..][..head_dim];
            let weights: Vec<f64> = (0..position + token % seq + 1)
                .map(|t| scale * row(t, &k).iter().zip(q).map(|(k, q)| k * f64::from(*q)).sum::<f64>())
                .map(f64::exp)
                .collect();
            let total: f64 = weights.iter().sum();
            for d in 0..head_dim {
                expected.push(weights.iter().enumerate().map(|(t, w)| w / total * row(t, &v)[d]).sum::<f64>());
            }
        }
        let y = kernels::attention(
            tensor(&q, [batch, seq, heads, head_dim], device),
            tensor(&k, [batch, kv_heads, max, head_dim], device),
            tensor(&v, [batch, kv_heads, max, head_dim], device),
            ids(&[position as u32], [1], device),
            scale as f32,
        );
        assert_close(&read(y).await, &expected, &format!("attention over {max} with heads of {head_dim}"));
    }
}

/// `swiglu`, with gates whose exponential overflows.
pub async fn swiglu(device: &Device) {
    let mut mix = Mix(6);
    let mut gate: Vec<f32> = mix.floats(96).iter().map(|v| v * 8.0).collect();
    (gate[0], gate[1]) = (-200.0, 200.0);
    let up = mix.floats(96);
    let expected: Vec<f64> =
        gate.iter().zip(&up).map(|(g, u)| f64::from(*g) / (1.0 + (-f64::from(*g)).exp()) * f64::from(*u)).collect();
    let y = kernels::swiglu(tensor(&gate, [1, 3, 32], device), tensor(&up, [1, 3, 32], device));
    assert_close(&read(y).await, &expected, "swiglu");
}
