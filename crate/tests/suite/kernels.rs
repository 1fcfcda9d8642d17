//! Every kernel against the reference decoder and `f64` arithmetic on the host.

use super::{fixture, floats, relative_diff};
use burn::tensor::{DType, Device, Int, Tensor, TensorData};
use hearth::format::TensorType;
use hearth::kernels::{self, BlockShape, BlockWeight, CacheShape, KvPrecision, TileVariant, place_in_head};
use hearth::quant::dequantize;

/// How far a sum in `f32` may be from the `f64` one, relative to the largest value.
const TOLERANCE: f32 = 1e-5;

/// Of the norms.
const EPSILON: f64 = 1e-5;

/// A small fixed sequence of well-mixed 32-bit numbers (Steele, Lea and Flood's SplitMix).
pub(super) struct Mix(pub(super) u64);

impl Mix {
    pub(super) fn next(&mut self) -> u32 {
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

    pub(super) fn floats(&mut self, count: usize) -> Vec<f32> {
        (0..count).map(|_| self.float()).collect()
    }
}

/// Random blocks of a type. Their f16 scales are zero, subnormal, negative and large as well as ordinary.
pub(super) fn random_blocks(mix: &mut Mix, ty: TensorType, values: usize) -> Vec<u8> {
    const SCALES: [u16; 8] = [0x0000, 0x8000, 0x0001, 0x83ff, 0x2c00, 0xb812, 0x3c01, 0x5640];
    /// Where a block's f16 scales and minimums are.
    const fn halves(ty: TensorType) -> &'static [usize] {
        match ty {
            TensorType::Q4_1 | TensorType::Q5_1 | TensorType::Q4_K | TensorType::Q5_K => &[0, 2],
            TensorType::Q2_K => &[80, 82],
            TensorType::Q3_K => &[108],
            TensorType::Q6_K => &[208],
            _ => &[0],
        }
    }
    match ty {
        TensorType::F32 => mix.floats(values).into_iter().flat_map(f32::to_le_bytes).collect(),
        // Random mantissas and signs under exponents that keep the value finite, subnormals included.
        TensorType::F16 => (0..values).flat_map(|_| ((mix.next() & 0xcfff) as u16).to_le_bytes()).collect(),
        TensorType::BF16 => {
            mix.floats(values).into_iter().flat_map(|v| ((v.to_bits() >> 16) as u16).to_le_bytes()).collect()
        }
        _ => {
            let blocks = values / ty.block_len();
            (0..blocks)
                .flat_map(|_| {
                    let mut block: Vec<u8> = (0..ty.block_bytes()).map(|_| mix.next() as u8).collect();
                    for at in halves(ty) {
                        block[*at..at + 2].copy_from_slice(&SCALES[mix.next() as usize % 8].to_le_bytes());
                    }
                    block
                })
                .collect()
        }
    }
}

/// A random matrix, and its values as the reference decoder gives them.
fn random_matrix(mix: &mut Mix, ty: TensorType, rows: usize, columns: usize) -> (BlockShape, Vec<u8>, Vec<f32>) {
    let blocks = random_blocks(mix, ty, rows * columns);
    let mut values = vec![0.0; rows * columns];
    dequantize(ty, &blocks, &mut values).expect("valid blocks");
    (BlockShape { ty, rows, columns }, blocks, values)
}

/// An `f32` matrix on a device, and its values.
fn plain_matrix(mix: &mut Mix, rows: usize, columns: usize, device: &Device) -> (BlockWeight, Vec<f32>) {
    let (shape, blocks, values) = random_matrix(mix, TensorType::F32, rows, columns);
    (BlockWeight::from_blocks(shape, &blocks, device).expect("packs"), values)
}

/// `x Wᵀ` in `f64`: `[tokens, rows]`.
fn product(x: &[f64], weights: &[f32], columns: usize) -> Vec<f64> {
    let dot = |x: &[f64], w: &[f32]| x.iter().zip(w).map(|(x, w)| x * f64::from(*w)).sum();
    x.chunks(columns).flat_map(|x| weights.chunks(columns).map(move |w| dot(x, w))).collect()
}

/// RMS normalization over rows of gamma's width, in `f64`.
fn normalized(h: &[f64], gamma: &[f32]) -> Vec<f64> {
    let row = |row: &[f64]| {
        let mean = row.iter().map(|v| v * v).sum::<f64>() / gamma.len() as f64;
        let scale = 1.0 / (mean + EPSILON).sqrt();
        row.iter().zip(gamma).map(|(v, g)| v * scale * f64::from(*g)).collect::<Vec<_>>()
    };
    h.chunks(gamma.len()).flat_map(row).collect()
}

pub(super) fn doubles(values: &[f32]) -> Vec<f64> {
    values.iter().map(|v| f64::from(*v)).collect()
}

pub(super) fn tensor<const D: usize>(values: &[f32], shape: [usize; D], device: &Device) -> Tensor<D> {
    Tensor::from_data(TensorData::new(values.to_vec(), shape), device)
}

pub(super) fn ids<const D: usize>(values: &[u32], shape: [usize; D], device: &Device) -> Tensor<D, Int> {
    Tensor::from_data(TensorData::new(values.to_vec(), shape), (device, DType::U32))
}

pub(super) async fn read<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    tensor.into_data_async().await.expect("the device answers").try_into_vec().expect("f32")
}

pub(super) fn assert_close(actual: &[f32], expected: &[f64], what: &str) {
    let expected: Vec<f32> = expected.iter().map(|value| *value as f32).collect();
    let diff = relative_diff(actual, &expected);
    assert!(diff <= TOLERANCE, "{what}: relative difference {diff:e}");
}

/// `matmul` for one token, for a few and for more than a tile, over rows that do and do not fill a panel.
pub async fn matmul(device: &Device, ty: TensorType) {
    let mut mix = Mix(1 + ty.ggml_id() as u64);
    let width = ty.block_len().max(32);
    for (rows, blocks, tokens) in [(64, 2, 1), (100, 3, 1), (33, 1, 5), (128, 5, 8), (70, 2, 19)] {
        let columns = blocks * width;
        let (shape, blocks, weights) = random_matrix(&mut mix, ty, rows, columns);
        let x = mix.floats(tokens * columns);
        let expected = product(&doubles(&x), &weights, columns);
        let weight = BlockWeight::from_blocks(shape, &blocks, device).expect("packs");
        let y = kernels::matmul(tensor(&x, [1, tokens, columns], device), &weight);
        assert_eq!(y.dims(), [1, tokens, rows]);
        assert_close(&read(y).await, &expected, &format!("{ty} [{rows}, {columns}] x {tokens}"));
    }
}

/// Every tile that may be chosen gives the same products, in every kernel that uses it.
pub async fn tiles(device: &Device) {
    for variant in TileVariant::ONE_TOKEN.into_iter().chain(TileVariant::PROMPT).rev() {
        let mut mix = Mix(300);
        let ty = TensorType::Q6_K;
        let (shape, blocks, weights) = random_matrix(&mut mix, ty, 96, 512);
        let weight = BlockWeight::from_blocks(shape, &blocks, device).expect("packs");
        variant.choose_for(&weight);
        for tokens in [1, 11] {
            let x = mix.floats(tokens * 512);
            let y = kernels::matmul(tensor(&x, [1, tokens, 512], device), &weight);
            assert_close(&read(y).await, &product(&doubles(&x), &weights, 512), &format!("{variant} x {tokens}"));
        }
        let (plain, _) = plain_matrix(&mut mix, 32, 32, device);
        variant.choose_for(&plain);
        stream(device).await;
        qkv(device).await;
    }
}

/// `matmul` for one token and for a few with ggml's own blocks and values.
pub async fn matmul_of_ggml_blocks(device: &Device, ty: TensorType) {
    let fixture: serde_json::Value = serde_json::from_slice(fixture!("dequant_blocks.json")).expect("JSON");
    for case in ["quantized", "random"] {
        let reference = &fixture["types"][ty.name()]["cases"][case];
        let (blocks, values) = (hex(&reference["raw_hex"]), floats(&hex(&reference["f32_hex"])));
        let columns = ty.block_len().max(32);
        let shape = BlockShape { ty, rows: values.len() / columns, columns };
        let weight = BlockWeight::from_blocks(shape, &blocks, device).expect("packs");
        for tokens in [1, 3] {
            let x = Mix(77).floats(tokens * columns);
            let y = kernels::matmul(tensor(&x, [1, tokens, columns], device), &weight);
            assert_close(&read(y).await, &product(&doubles(&x), &values, columns), &format!("{ty} {case} x {tokens}"));
        }
    }
}

fn hex(value: &serde_json::Value) -> Vec<u8> {
    let hex = value.as_str().expect("hexadecimal digits");
    (0..hex.len()).step_by(2).map(|i| u8::from_str_radix(&hex[i..i + 2], 16).expect("a digit")).collect()
}

/// `embed` gives what the reference decoder gives.
pub async fn embedding(device: &Device, ty: TensorType) {
    let mut mix = Mix(100 + ty.ggml_id() as u64);
    let (rows, columns) = (75, 3 * ty.block_len().max(32));
    let (shape, blocks, weights) = random_matrix(&mut mix, ty, rows, columns);
    let tokens = [74u32, 0, 31, 32, 32];
    let exact: Vec<f32> = tokens.iter().flat_map(|t| &weights[*t as usize * columns..][..columns]).copied().collect();
    let weight = BlockWeight::from_blocks(shape, &blocks, device).expect("packs");
    let gamma = Tensor::ones([columns], device);
    let y = read(kernels::embed(ids(&tokens, [1, 5], device), &weight, gamma).hidden()).await;
    // A scale, a code and an offset in another order of rounding may differ in the last bits.
    assert!(relative_diff(&y, &exact) <= 5e-7, "{ty}: {}", relative_diff(&y, &exact));
}

/// A stack of several types, each a part of its own, works as one matrix: in products, in the lookup, and in an addition to the stream.
pub async fn stacks(device: &Device) {
    let mut mix = Mix(200);
    let columns = 256;
    let types = [TensorType::Q4_K, TensorType::Q4_K, TensorType::Q6_K, TensorType::F16];
    let matrices: Vec<_> = types.map(|ty| random_matrix(&mut mix, ty, 64, columns)).into();
    let blocks: Vec<_> = matrices.iter().map(|(shape, blocks, _)| (*shape, blocks.as_slice())).collect();
    let values: Vec<f32> = matrices.iter().flat_map(|(_, _, values)| values.clone()).collect();
    let weight = BlockWeight::stack(&blocks, device).expect("packs");
    assert_eq!((weight.rows(), weight.parts().len()), (256, 3));

    let tokens = [255u32, 0, 130];
    let gamma = mix.floats(columns);
    let stream = kernels::embed(ids(&tokens, [1, 3], device), &weight, tensor(&gamma, [columns], device));
    let hidden: Vec<f32> = tokens.iter().flat_map(|t| &values[*t as usize * columns..][..columns]).copied().collect();
    assert_close(&read(stream.hidden()).await, &doubles(&hidden), "embedding of a stack");

    let y = kernels::project(&stream, &weight, EPSILON as f32);
    let expected = product(&normalized(&doubles(&hidden), &gamma), &values, columns);
    assert_close(&read(y).await, &expected, "projection with a stack");

    let x = mix.floats(3 * columns);
    let sum: Vec<f64> =
        product(&doubles(&x), &values, columns).iter().zip(&hidden).map(|(p, h)| p + f64::from(*h)).collect();
    let stream = kernels::add_projection(
        stream,
        tensor(&x, [1, 3, columns], device),
        &weight,
        tensor(&gamma, [columns], device),
    );
    assert_close(&read(stream.hidden()).await, &sum, "addition of a stack's projection");
    let y = kernels::project(&stream, &weight, EPSILON as f32);
    assert_close(&read(y).await, &product(&normalized(&sum, &gamma), &values, columns), "projection after it");

    // Gate and up projections of different types.
    let y = kernels::gate_up(&stream, &weight, EPSILON as f32);
    assert_close(&read(y).await, &gated(&normalized(&sum, &gamma), &values, columns), "gate and up of a stack");
}

/// `silu(gate) * up` of a stack's two halves.
fn gated(x: &[f64], weights: &[f32], columns: usize) -> Vec<f64> {
    let (gate, up) = weights.split_at(weights.len() / 2);
    let gate = product(x, gate, columns);
    gate.iter().zip(product(x, up, columns)).map(|(g, u)| g / (1.0 + (-g).exp()) * u).collect()
}

/// The stream through all projections that read or write it, for one token and for several, with widths that do and do not fill a tile.
pub async fn stream(device: &Device) {
    let mut mix = Mix(2);
    for (seq, d_model, hidden) in [(1, 96, 64), (1, 576, 160), (5, 96, 64), (18, 160, 96)] {
        let what = format!("{seq} tokens of {d_model}");
        let (table, values) = plain_matrix(&mut mix, 9, d_model, device);
        let (gamma, next_gamma) = (mix.floats(d_model), mix.floats(d_model));
        let tokens: Vec<u32> = (0..seq).map(|i| (i * 5 % 9) as u32).collect();
        let mut h: Vec<f64> =
            tokens.iter().flat_map(|t| &values[*t as usize * d_model..][..d_model]).map(|v| f64::from(*v)).collect();
        let stream = kernels::embed(ids(&tokens, [1, seq], device), &table, tensor(&gamma, [d_model], device));

        let (up, up_values) = plain_matrix(&mut mix, 2 * hidden, d_model, device);
        let y = kernels::gate_up(&stream, &up, EPSILON as f32);
        let gated = gated(&normalized(&h, &gamma), &up_values, d_model);
        assert_close(&read(y.clone()).await, &gated, &format!("gate_up of {what}"));

        let (down, down_values) = plain_matrix(&mut mix, d_model, hidden, device);
        for (h, sum) in h.iter_mut().zip(product(&gated, &down_values, hidden)) {
            *h += sum;
        }
        let stream = kernels::add_projection(stream, y, &down, tensor(&next_gamma, [d_model], device));
        assert_close(&read(stream.hidden()).await, &h, &format!("add_projection of {what}"));

        let (head, head_values) = plain_matrix(&mut mix, 50, d_model, device);
        let expected = product(&normalized(&h, &next_gamma), &head_values, d_model);
        let last = kernels::project(&stream.clone().last(), &head, EPSILON as f32);
        assert_close(&read(last).await, &expected[(seq - 1) * 50..], &format!("the last row's projection of {what}"));
        let y = kernels::project(&stream, &head, EPSILON as f32);
        assert_close(&read(y).await, &expected, &format!("projection of {what}"));
    }
}

/// Gates whose exponential overflows.
pub async fn extreme_gates(device: &Device) {
    // One hidden state of norm 1 times the weights -200 and 200.
    let table = [1.0f32].repeat(32).into_iter().flat_map(f32::to_le_bytes).collect::<Vec<_>>();
    let shape = |rows| BlockShape { ty: TensorType::F32, rows, columns: 32 };
    let table = BlockWeight::from_blocks(shape(1), &table, device).expect("packs");
    let stream = kernels::embed(ids(&[0], [1, 1], device), &table, Tensor::ones([32], device));
    let mut weights = vec![0.0f32; 4 * 32];
    (weights[0], weights[32], weights[64], weights[96]) = (-200.0, 200.0, 3.0, 3.0);
    let bytes: Vec<u8> = weights.iter().flat_map(|w| w.to_le_bytes()).collect();
    let weight = BlockWeight::from_blocks(shape(4), &bytes, device).expect("packs");
    let y = read(kernels::gate_up(&stream, &weight, 0.0)).await;
    assert_close(&y, &[0.0, 600.0], "extreme gates");
}

/// Heads and a cache of `max_seq_len` tokens, in words as the kernels keep them.
struct HostCache {
    shape: CacheShape,
    words: Vec<u32>,
}

impl HostCache {
    fn new(shape: CacheShape, batch: usize) -> Self {
        Self { shape, words: vec![0; shape.dims(batch).iter().product()] }
    }

    /// Where a head's words at a token begin. Keys are 0, values 1.
    fn entry(&self, batch: usize, kind: usize, head: usize, token: usize) -> usize {
        let CacheShape { kv_heads, max_seq_len, head_dim, precision, .. } = self.shape;
        (((batch * 2 + kind) * kv_heads + head) * max_seq_len + token) * precision.words(head_dim)
    }

    fn get(&self, entry: usize, d: usize) -> f64 {
        match self.shape.precision {
            KvPrecision::F16 => half::f16::from_bits((self.words[entry + d / 2] >> (16 * (d % 2))) as u16).to_f64(),
            KvPrecision::F32 => f64::from(f32::from_bits(self.words[entry + place_in_head(d)])),
        }
    }

    fn set(&mut self, entry: usize, d: usize, value: f32) {
        match self.shape.precision {
            KvPrecision::F16 => {
                self.words[entry + d / 2] |= u32::from(half::f16::from_f32(value).to_bits()) << (16 * (d % 2));
            }
            KvPrecision::F32 => self.words[entry + place_in_head(d)] = value.to_bits(),
        }
    }

    fn tensor(&self, batch: usize, device: &Device) -> Tensor<5, Int> {
        ids(&self.words, self.shape.dims(batch), device)
    }
}

async fn read_words<const D: usize>(tensor: Tensor<D, Int>) -> Vec<u32> {
    tensor.into_data_async().await.expect("the device answers").try_into_vec().expect("u32")
}

/// `qkv` for one token and several, two sequences, a head of which only a part rotates, from a position that is not 0: queries and keys are rotated, and keys
/// and values are where the position says, with everything else as it was.
pub async fn qkv(device: &Device) {
    let mut mix = Mix(3);
    let (d_model, max_seq_len, position) = (64, 24, 5);
    for (precision, batch, seq, rotary_pairs) in [
        (KvPrecision::F32, 1, 1, 8),
        (KvPrecision::F16, 1, 1, 8),
        (KvPrecision::F32, 2, 3, 4),
        (KvPrecision::F16, 2, 7, 8),
    ] {
        let shape = CacheShape { heads: 4, kv_heads: 2, head_dim: 16, max_seq_len, precision };
        let what = format!("qkv {precision:?} of {batch} x {seq}");
        let (table, values) = plain_matrix(&mut mix, batch * seq, d_model, device);
        let gamma = mix.floats(d_model);
        let tokens: Vec<u32> = (0..(batch * seq) as u32).collect();
        let stream = kernels::embed(ids(&tokens, [batch, seq], device), &table, tensor(&gamma, [d_model], device));
        let x = normalized(&doubles(&values), &gamma);
        let (weight, weights) = plain_matrix(&mut mix, 8 * 16, d_model, device);
        let angles = mix.floats(max_seq_len * rotary_pairs);
        let rotation: Vec<f32> = angles.iter().flat_map(|a| [a.cos(), a.sin()]).collect();

        let mut expected = product(&x, &weights, d_model);
        for (token, row) in expected.chunks_mut(8 * 16).enumerate() {
            for head in row[..6 * 16].chunks_mut(16) {
                for pair in 0..rotary_pairs {
                    let angle = f64::from(angles[(position + token % seq) * rotary_pairs + pair]);
                    let (a, b) = (head[2 * pair], head[2 * pair + 1]);
                    head[2 * pair] = a * angle.cos() - b * angle.sin();
                    head[2 * pair + 1] = b * angle.cos() + a * angle.sin();
                }
            }
        }

        let mut host = HostCache::new(shape, batch);
        host.words.iter_mut().for_each(|word| *word = mix.next());
        let (q, cache) = kernels::qkv(
            &stream,
            &weight,
            tensor(&rotation, [max_seq_len, rotary_pairs, 2], device),
            ids(&[position as u32], [1], device),
            host.tensor(batch, device),
            shape,
            EPSILON as f32,
        );
        let queries: Vec<f32> = read(q).await.iter().map(|value| value / shape.query_scale()).collect();
        let mut expected_queries = vec![0.0; queries.len()];
        for (token, row) in expected.chunks(8 * 16).enumerate() {
            for (i, value) in row[..64].iter().enumerate() {
                expected_queries[token * 64 + i / 16 * 16 + place_in_head(i % 16)] = *value;
            }
        }
        assert_close(&queries, &expected_queries, &format!("{what}: queries"));

        let written = HostCache { shape, words: read_words(cache).await };
        let (mut actual, mut wanted, mut untouched) = (Vec::new(), Vec::new(), host.words.clone());
        for (token, row) in expected.chunks(8 * 16).enumerate() {
            for (head, values) in row[64..].chunks(16).enumerate() {
                let entry = host.entry(token / seq, head / 2, head % 2, position + token % seq);
                for (d, value) in values.iter().enumerate() {
                    actual.push(written.get(entry, d) as f32);
                    wanted.push(*value);
                }
                let words = precision.words(16);
                untouched[entry..entry + words].copy_from_slice(&written.words[entry..entry + words]);
            }
        }
        match precision {
            KvPrecision::F32 => assert_close(&actual, &wanted, &format!("{what}: cache")),
            // Rounding to half precision is within 2⁻¹¹ of each value, beside what single precision does to it.
            KvPrecision::F16 => {
                for (actual, wanted) in actual.iter().zip(&wanted) {
                    let diff = (f64::from(*actual) - wanted).abs();
                    assert!(diff <= wanted.abs() / 2048.0 + 1e-6, "{what}: {actual} for {wanted}");
                }
            }
        }
        assert_eq!(written.words, untouched, "{what}: the rest of the cache");
    }
}

/// `attention` of one token and of several, over a cache of more than one part, with grouped heads and two sequences, in both precisions and with
/// heads of several widths.
pub async fn attention(device: &Device) {
    let mut mix = Mix(5);
    for (precision, seq, heads, kv_heads, head_dim, max_seq_len, position) in [
        (KvPrecision::F32, 1, 3, 1, 64, 300, 290),
        (KvPrecision::F16, 1, 9, 3, 64, 300, 255),
        (KvPrecision::F16, 1, 4, 2, 16, 40, 0),
        (KvPrecision::F16, 1, 8, 1, 128, 9000, 700),
        (KvPrecision::F32, 1, 2, 2, 96, 130, 128),
        (KvPrecision::F32, 19, 4, 2, 64, 300, 100),
        (KvPrecision::F16, 40, 3, 1, 64, 300, 0),
        (KvPrecision::F16, 3, 4, 4, 16, 40, 30),
        (KvPrecision::F16, 16, 2, 1, 128, 64, 31),
        (KvPrecision::F32, 5, 2, 2, 96, 130, 7),
    ] {
        let batch = 2;
        let shape = CacheShape { heads, kv_heads, head_dim, max_seq_len, precision };
        let mut host = HostCache::new(shape, batch);
        for b in 0..batch {
            for kind in 0..2 {
                for head in 0..kv_heads {
                    for token in 0..position + seq {
                        let entry = host.entry(b, kind, head, token);
                        for d in 0..head_dim {
                            host.set(entry, d, mix.float());
                        }
                    }
                }
            }
        }
        let q: Vec<f32> = mix.floats(batch * seq * heads * head_dim).iter().map(|v| 4.0 * v).collect();
        let mut queries = vec![0.0; q.len()];
        let mut expected = Vec::new();
        for (index, query) in q.chunks(head_dim).enumerate() {
            for (d, value) in query.iter().enumerate() {
                queries[index * head_dim + place_in_head(d)] = value * shape.query_scale();
            }
            let (token, head) = (index / heads, index % heads);
            let (b, kv_head) = (token / seq, head / (heads / kv_heads));
            let visible = position + token % seq + 1;
            let score = |t: usize| {
                let key = host.entry(b, 0, kv_head, t);
                let dot: f64 = query.iter().enumerate().map(|(d, v)| f64::from(*v) * host.get(key, d)).sum();
                dot / (head_dim as f64).sqrt()
            };
            let scores: Vec<f64> = (0..visible).map(score).collect();
            let highest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let weights: Vec<f64> = scores.iter().map(|score| (score - highest).exp()).collect();
            let total: f64 = weights.iter().sum();
            for d in 0..head_dim {
                let value = |t: usize| host.get(host.entry(b, 1, kv_head, t), d);
                expected.push(weights.iter().enumerate().map(|(t, weight)| weight / total * value(t)).sum());
            }
        }
        let y = kernels::attention(
            tensor(&queries, [batch, seq, heads * head_dim], device),
            host.tensor(batch, device),
            ids(&[position as u32], [1], device),
            shape,
        );
        let what =
            format!("attention {precision:?} of {seq} over {position} with {heads}/{kv_heads} heads of {head_dim}");
        assert_close(&read(y).await, &expected, &what);
    }
}
