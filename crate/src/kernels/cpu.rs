//! The kernels' twins on Burn's Flex CPU backend: plain loops over the reference decoders. They are the oracle of the GPU kernels and run the
//! whole model where there is no GPU; rows and heads are shared among threads.

use super::{BlockShape, LlamaKernels, RopeLayout};
use crate::quant::dequantize;
use burn::backend::{Flex, TensorMetadata};
use burn::tensor::{Shape, TensorData};
use burn_flex::FlexTensor;
use rayon::prelude::*;

/// Weight rows that are decoded and multiplied together: activations are read once for all of them.
const ROWS: usize = 4;
/// Partial sums of a dot product, so that the compiler can keep them in vector registers.
const LANES: usize = 16;

impl LlamaKernels for Flex {
    fn block_matmul(x: FlexTensor, words: FlexTensor, _scales: FlexTensor, shape: BlockShape) -> FlexTensor {
        let x = x.to_contiguous();
        let dims = x.shape();
        let tokens = dims[0] * dims[1];
        let (rows, columns) = (shape.rows, shape.columns);
        let row_bytes = words.bytes().len() / rows;
        let activations: &[f32] = floats(&x);
        // Row by row first: threads then write to runs of their own.
        let mut transposed = vec![0.0f32; rows * tokens];
        transposed.par_chunks_mut(ROWS * tokens).enumerate().for_each_init(
            || vec![0.0f32; ROWS * columns],
            |weights, (group, out)| {
                let count = out.len() / tokens;
                let bytes = &words.bytes()[group * ROWS * row_bytes..][..count * row_bytes];
                decode(shape, bytes, &mut weights[..count * columns]);
                for (token, x) in activations.chunks_exact(columns).enumerate() {
                    let sums = dots(x, weights);
                    for (row, out) in out.chunks_exact_mut(tokens).enumerate() {
                        out[token] = sums[row];
                    }
                }
            },
        );
        let mut y = vec![0.0f32; tokens * rows];
        for (token, out) in y.chunks_exact_mut(rows).enumerate() {
            for (row, out) in out.iter_mut().enumerate() {
                *out = transposed[row * tokens + token];
            }
        }
        tensor(y, [dims[0], dims[1], rows])
    }

    fn block_embedding(tokens: FlexTensor, words: FlexTensor, _scales: FlexTensor, shape: BlockShape) -> FlexTensor {
        let dims = tokens.shape();
        let row_bytes = words.bytes().len() / shape.rows;
        let mut y = vec![0.0f32; dims.num_elements() * shape.columns];
        for (token, out) in indices(&tokens).into_iter().zip(y.chunks_exact_mut(shape.columns)) {
            let row = token.min(shape.rows - 1);
            decode(shape, &words.bytes()[row * row_bytes..][..row_bytes], out);
        }
        tensor(y, [dims[0], dims[1], shape.columns])
    }

    fn rms_norm(x: FlexTensor, gamma: FlexTensor, epsilon: f32) -> FlexTensor {
        let (x, gamma) = (x.to_contiguous(), gamma.to_contiguous());
        let gamma = floats(&gamma);
        let mut y = floats(&x).to_vec();
        for row in y.chunks_exact_mut(gamma.len()) {
            let mean = row.iter().map(|v| v * v).sum::<f32>() / gamma.len() as f32;
            let scale = 1.0 / (mean + epsilon).sqrt();
            for (value, gamma) in row.iter_mut().zip(gamma) {
                *value *= scale * gamma;
            }
        }
        tensor(y, x.shape())
    }

    fn rope(x: FlexTensor, table: FlexTensor, position: FlexTensor, layout: RopeLayout) -> FlexTensor {
        let (x, table) = (x.to_contiguous(), table.to_contiguous());
        let dims = x.shape();
        let (seq, heads, head_dim) = (dims[1], dims[2], dims[3]);
        let half = table.shape()[1];
        let table = floats(&table);
        let start = indices(&position)[0];
        let mut y = floats(&x).to_vec();
        for (token, values) in y.chunks_exact_mut(heads * head_dim).enumerate() {
            let angles = &table[(start + token % seq) * half * 2..][..half * 2];
            for head in values.chunks_exact_mut(head_dim) {
                for (pair, angle) in angles.chunks_exact(2).enumerate() {
                    let (cos, sin) = (angle[0], angle[1]);
                    let (a, b) = layout.pair(pair, half);
                    (head[a], head[b]) = (head[a] * cos - head[b] * sin, head[b] * cos + head[a] * sin);
                }
            }
        }
        tensor(y, dims)
    }

    fn kv_write(mut cache: FlexTensor, x: FlexTensor, position: FlexTensor) -> FlexTensor {
        let x = x.to_contiguous();
        let dims = x.shape();
        let (seq, heads, head_dim) = (dims[1], dims[2], dims[3]);
        let max_seq_len = cache.shape()[2];
        let start = indices(&position)[0];
        let out = cache.storage_mut::<f32>();
        for (index, values) in floats(&x).chunks_exact(head_dim).enumerate() {
            let (token, head) = (index / heads, index % heads);
            let row = start + token % seq;
            if row < max_seq_len {
                out[(((token / seq) * heads + head) * max_seq_len + row) * head_dim..][..head_dim]
                    .copy_from_slice(values);
            }
        }
        cache
    }

    fn causal_attention(
        q: FlexTensor,
        k_cache: FlexTensor,
        v_cache: FlexTensor,
        position: FlexTensor,
        scale: f32,
    ) -> FlexTensor {
        let q = q.to_contiguous();
        let (dims, cache) = (q.shape(), k_cache.shape());
        let (seq, heads, head_dim) = (dims[1], dims[2], dims[3]);
        let (kv_heads, max_seq_len) = (cache[1], cache[2]);
        let start = indices(&position)[0];
        let (queries, keys, values) = (floats(&q), floats(&k_cache), floats(&v_cache));
        let mut y = vec![0.0f32; queries.len()];
        y.par_chunks_exact_mut(head_dim).enumerate().for_each_init(
            || vec![0.0f32; max_seq_len],
            |scores, (index, out)| {
                let (token, head) = (index / heads, index % heads);
                let visible = (start + token % seq + 1).min(max_seq_len);
                let rows = ((token / seq) * kv_heads + head / (heads / kv_heads)) * max_seq_len * head_dim;
                let query = &queries[index * head_dim..][..head_dim];
                let scores = &mut scores[..visible];
                for (score, key) in scores.iter_mut().zip(keys[rows..].chunks_exact(head_dim)) {
                    *score = scale * dot(query, key);
                }
                let highest = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                let mut total = 0.0f32;
                for (score, value) in scores.iter().zip(values[rows..].chunks_exact(head_dim)) {
                    let weight = (score - highest).exp();
                    total += weight;
                    for (out, value) in out.iter_mut().zip(value) {
                        *out += weight * value;
                    }
                }
                for out in out.iter_mut() {
                    *out /= total;
                }
            },
        );
        tensor(y, dims)
    }

    fn swiglu(gate: FlexTensor, up: FlexTensor) -> FlexTensor {
        let (gate, up) = (gate.to_contiguous(), up.to_contiguous());
        let y = floats(&gate).iter().zip(floats(&up)).map(|(g, u)| g / (1.0 + (-g).exp()) * u).collect();
        tensor(y, gate.shape())
    }
}

/// Decodes whole rows. The blocks were checked against the shape when the weight was made, so decoding cannot fail.
fn decode(shape: BlockShape, blocks: &[u8], out: &mut [f32]) {
    if let Err(error) = dequantize(shape.ty, blocks, out) {
        unreachable!("a checked weight does not decode: {error}");
    }
}

/// `x` times each of the first [`ROWS`] rows of `weights`.
fn dots(x: &[f32], weights: &[f32]) -> [f32; ROWS] {
    let mut rows = weights.chunks_exact(x.len());
    let row: [&[f32]; ROWS] = std::array::from_fn(|_| rows.next().unwrap_or(x));
    let mut sums = [[0.0f32; LANES]; ROWS];
    for (chunk, x) in x.chunks_exact(LANES).enumerate() {
        for (sums, row) in sums.iter_mut().zip(row) {
            let weights = &row[chunk * LANES..][..LANES];
            for lane in 0..LANES {
                sums[lane] += x[lane] * weights[lane];
            }
        }
    }
    sums.map(|lanes| lanes.iter().sum())
}

/// The dot product of two vectors of the same length.
fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut sums = [0.0f32; LANES];
    let (chunks_a, chunks_b) = (a.chunks_exact(LANES), b.chunks_exact(LANES));
    let rest: f32 = chunks_a.remainder().iter().zip(chunks_b.remainder()).map(|(a, b)| a * b).sum();
    for (a, b) in chunks_a.zip(chunks_b) {
        for lane in 0..LANES {
            sums[lane] += a[lane] * b[lane];
        }
    }
    rest + sums.iter().sum::<f32>()
}

/// A contiguous tensor's values.
fn floats(tensor: &FlexTensor) -> &[f32] {
    tensor.storage::<f32>()
}

/// An integer tensor's values, whatever its width.
fn indices(tensor: &FlexTensor) -> Vec<usize> {
    tensor.to_contiguous().into_data().iter::<i64>().map(|index| index.max(0) as usize).collect()
}

fn tensor(values: Vec<f32>, shape: impl Into<Shape>) -> FlexTensor {
    FlexTensor::from_data(TensorData::new(values, shape.into()))
}
