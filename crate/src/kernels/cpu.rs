//! The kernels' twins on Burn's Flex CPU backend: plain loops over the reference decoders. They are the oracle of the GPU kernels and run the
//! whole model where there is no GPU; rows and heads are shared among threads.

use super::kv_cache::{CacheShape, KvPrecision, place_in_head};
use super::residual::{PART, StreamShape};
use super::{BlockShape, LlamaKernels, cpu_sampling};
use crate::quant::dequantize;
use burn::backend::{Flex, TensorMetadata};
use burn::tensor::{Shape, TensorData};
use burn_flex::FlexTensor;
use half::f16;
use rayon::prelude::*;

/// Weight rows that are decoded and multiplied together: activations are read once for all of them.
const ROWS: usize = 4;
/// Partial sums of a dot product, so that the compiler can keep them in vector registers.
const LANES: usize = 16;

impl LlamaKernels for Flex {
    fn block_matmul(
        x: FlexTensor,
        words: FlexTensor,
        _scales: FlexTensor,
        shape: BlockShape,
        row_offset: usize,
        epsilon: Option<f32>,
        mut y: FlexTensor,
    ) -> FlexTensor {
        let x = match epsilon {
            None => floats(&x.to_contiguous()).to_vec(),
            Some(epsilon) => normalized(&x, shape.columns, epsilon),
        };
        let width = y.shape()[2];
        let product = products(&x, &words, shape);
        for (row, out) in product.chunks_exact(shape.rows).zip(y.storage_mut::<f32>().chunks_exact_mut(width)) {
            out[row_offset..][..shape.rows].copy_from_slice(row);
        }
        y
    }

    fn block_embedding(
        tokens: FlexTensor,
        words: FlexTensor,
        _scales: FlexTensor,
        shape: BlockShape,
        row_offset: usize,
        vocabulary: usize,
        gamma: FlexTensor,
        mut stream: FlexTensor,
    ) -> FlexTensor {
        let row_bytes = words.bytes().len() / shape.rows;
        let stream_shape = StreamShape { d_model: shape.columns };
        let gamma = floats(&gamma);
        let rows = stream.storage_mut::<f32>().chunks_exact_mut(stream_shape.width());
        for (token, out) in indices(&tokens).into_iter().zip(rows) {
            let row = token.min(vocabulary - 1).wrapping_sub(row_offset);
            if row < shape.rows {
                decode(shape, &words.bytes()[row * row_bytes..][..row_bytes], &mut out[..shape.columns]);
                complete(out, gamma);
            }
        }
        stream
    }

    fn qkv(
        stream: FlexTensor,
        words: FlexTensor,
        _scales: FlexTensor,
        shape: BlockShape,
        row_offset: usize,
        table: FlexTensor,
        position: FlexTensor,
        mut q: FlexTensor,
        mut cache: FlexTensor,
        cache_shape: CacheShape,
        epsilon: f32,
    ) -> (FlexTensor, FlexTensor) {
        let CacheShape { heads, kv_heads, head_dim, max_seq_len, precision } = cache_shape;
        let seq = stream.shape()[1];
        let half = table.shape()[1];
        let table = table.to_contiguous();
        let table = floats(&table);
        let start = indices(&position)[0];
        let product = products(&normalized(&stream, shape.columns, epsilon), &words, shape);
        let (queries, words) = (q.storage_mut::<f32>(), cache.storage_mut::<u32>());
        for (token, values) in product.chunks_exact(shape.rows).enumerate() {
            let at = start + token % seq;
            for (index, pair) in values.as_chunks::<2>().0.iter().enumerate() {
                let row = row_offset + 2 * index;
                let (head, pair_index) = (row / head_dim, row % head_dim / 2);
                let [mut a, mut b] = *pair;
                if head < heads + kv_heads && pair_index < half && at < max_seq_len {
                    let angle = (at * half + pair_index) * 2;
                    let (cos, sin) = (table[angle], table[angle + 1]);
                    (a, b) = (a * cos - b * sin, b * cos + a * sin);
                }
                if head < heads {
                    let query = &mut queries[(token * heads + head) * head_dim..][..head_dim];
                    query[place_in_head(2 * pair_index)] = a * cache_shape.query_scale();
                    query[place_in_head(2 * pair_index + 1)] = b * cache_shape.query_scale();
                } else if at < max_seq_len {
                    let cache_head = token / seq * 2 * kv_heads + head - heads;
                    let entry = (cache_head * max_seq_len + at) * precision.words(head_dim);
                    let entry = &mut words[entry..][..precision.words(head_dim)];
                    match precision {
                        KvPrecision::F16 => {
                            let halves = [a, b].map(|value| u32::from(f16::from_f32(value).to_bits()));
                            entry[pair_index] = halves[0] | halves[1] << 16;
                        }
                        KvPrecision::F32 => {
                            entry[place_in_head(2 * pair_index)] = a.to_bits();
                            entry[place_in_head(2 * pair_index + 1)] = b.to_bits();
                        }
                    }
                }
            }
        }
        (q, cache)
    }

    fn causal_attention(q: FlexTensor, cache: FlexTensor, position: FlexTensor, shape: CacheShape) -> FlexTensor {
        let q = q.to_contiguous();
        let dims = q.shape();
        let seq = dims[1];
        let CacheShape { heads, kv_heads, head_dim, max_seq_len, precision } = shape;
        let start = indices(&position)[0];
        let (queries, cache) = (floats(&q), cache.storage::<u32>());
        let entry_words = precision.words(head_dim);
        // What the queries' scale holds beside the usual one.
        let factor = 1.0 / precision.read_factor();
        let mut y = vec![0.0f32; queries.len()];
        y.par_chunks_exact_mut(head_dim).enumerate().for_each_init(
            || (vec![0.0f32; max_seq_len], vec![0.0f32; head_dim]),
            |(scores, entry), (index, out)| {
                let (token, head) = (index / heads, index % heads);
                let visible = (start + token % seq + 1).min(max_seq_len);
                let keys = (token / seq * 2 * kv_heads + head / (heads / kv_heads)) * max_seq_len * entry_words;
                let values = keys + kv_heads * max_seq_len * entry_words;
                let query = &queries[index * head_dim..][..head_dim];
                let scores = &mut scores[..visible];
                for (score, words) in scores.iter_mut().zip(cache[keys..].chunks_exact(entry_words)) {
                    read_entry(words, precision, entry);
                    *score = factor * dot(query, entry);
                }
                let highest = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                let mut total = 0.0f32;
                let mut sums = vec![0.0f32; head_dim];
                for (score, words) in scores.iter().zip(cache[values..].chunks_exact(entry_words)) {
                    let weight = (score - highest).exp();
                    total += weight;
                    read_entry(words, precision, entry);
                    for (sum, value) in sums.iter_mut().zip(entry.iter()) {
                        *sum += weight * value;
                    }
                }
                for (d, out) in out.iter_mut().enumerate() {
                    *out = sums[place_in_head(d)] / total;
                }
            },
        );
        tensor(y, dims)
    }

    fn add_projection(
        x: FlexTensor,
        words: FlexTensor,
        _scales: FlexTensor,
        shape: BlockShape,
        row_offset: usize,
        gamma: FlexTensor,
        stream: FlexTensor,
    ) -> FlexTensor {
        let x = x.to_contiguous();
        // The stream of the last token alone is a view of everybody's.
        let mut stream = contiguous(stream);
        let gamma = floats(&gamma);
        let product = products(floats(&x), &words, shape);
        let width = StreamShape { d_model: gamma.len() }.width();
        for (row, out) in product.chunks_exact(shape.rows).zip(stream.storage_mut::<f32>().chunks_exact_mut(width)) {
            for (out, value) in out[row_offset..].iter_mut().zip(row) {
                *out += value;
            }
            complete(out, gamma);
        }
        stream
    }

    fn gate_up(
        stream: FlexTensor,
        words: FlexTensor,
        _scales: FlexTensor,
        shape: BlockShape,
        epsilon: f32,
    ) -> FlexTensor {
        let dims = stream.shape();
        let product = products(&normalized(&stream, shape.columns, epsilon), &words, shape);
        let hidden = shape.rows / 2;
        let rows = product.chunks_exact(shape.rows);
        let y = rows.flat_map(|row| row[..hidden].iter().zip(&row[hidden..]).map(|(g, u)| silu(*g) * u)).collect();
        tensor(y, [dims[0], dims[1], hidden])
    }

    fn swiglu(gate: FlexTensor, up: FlexTensor) -> FlexTensor {
        let (gate, up) = (gate.to_contiguous(), up.to_contiguous());
        let y = floats(&gate).iter().zip(floats(&up)).map(|(g, u)| silu(*g) * u).collect();
        tensor(y, gate.shape())
    }

    fn penalize(logits: FlexTensor, penalties: FlexTensor) -> FlexTensor {
        cpu_sampling::penalize(logits, penalties)
    }

    fn greedy(logits: FlexTensor, token: FlexTensor, position: FlexTensor) -> (FlexTensor, FlexTensor) {
        cpu_sampling::greedy(logits, token, position)
    }

    fn top_k(logits: FlexTensor, k: FlexTensor) -> FlexTensor {
        cpu_sampling::top_k(logits, k)
    }
}

fn silu(x: f32) -> f32 {
    x / (1.0 + (-x).exp())
}

/// Every row of `x` times every row of a weight: `[tokens, rows]`.
fn products(x: &[f32], words: &FlexTensor, shape: BlockShape) -> Vec<f32> {
    let (rows, columns) = (shape.rows, shape.columns);
    let tokens = x.len() / columns;
    let row_bytes = words.bytes().len() / rows;
    // Row by row first: threads then write to runs of their own.
    let mut transposed = vec![0.0f32; rows * tokens];
    transposed.par_chunks_mut(ROWS * tokens).enumerate().for_each_init(
        || vec![0.0f32; ROWS * columns],
        |weights, (group, out)| {
            let count = out.len() / tokens;
            let bytes = &words.bytes()[group * ROWS * row_bytes..][..count * row_bytes];
            decode(shape, bytes, &mut weights[..count * columns]);
            for (token, x) in x.chunks_exact(columns).enumerate() {
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
    y
}

/// The normalized hidden states of a residual stream, row after row.
fn normalized(stream: &FlexTensor, d_model: usize, epsilon: f32) -> Vec<f32> {
    let shape = StreamShape { d_model };
    let stream = stream.to_contiguous();
    let mut x = Vec::with_capacity(floats(&stream).len() / 2);
    for row in floats(&stream).chunks_exact(shape.width()) {
        let sum: f32 = row[2 * d_model..][..shape.parts()].iter().sum();
        let factor = 1.0 / (sum / d_model as f32 + epsilon).sqrt();
        x.extend(row[d_model..2 * d_model].iter().map(|value| value * factor));
    }
    x
}

/// Fills the rest of a residual stream's row from its hidden states.
fn complete(row: &mut [f32], gamma: &[f32]) {
    let (hidden, rest) = row.split_at_mut(gamma.len());
    let (scaled, sums) = rest.split_at_mut(gamma.len());
    for ((scaled, hidden), gamma) in scaled.iter_mut().zip(hidden.iter()).zip(gamma) {
        *scaled = hidden * gamma;
    }
    sums.fill(0.0);
    for (sum, part) in sums.iter_mut().zip(hidden.chunks(PART)) {
        *sum = part.iter().map(|value| value * value).sum();
    }
}

/// A key or value of the cache, in the cache's order.
fn read_entry(words: &[u32], precision: KvPrecision, out: &mut [f32]) {
    match precision {
        KvPrecision::F32 => {
            for (out, word) in out.iter_mut().zip(words) {
                *out = f32::from_bits(*word);
            }
        }
        KvPrecision::F16 => {
            for (pair, word) in words.iter().enumerate() {
                out[place_in_head(2 * pair)] = f16::from_bits(*word as u16).to_f32();
                out[place_in_head(2 * pair + 1)] = f16::from_bits((*word >> 16) as u16).to_f32();
            }
        }
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

/// The tensor with its values in order, and without a second owner where it was so already: what is changed in place then is not copied.
fn contiguous(tensor: FlexTensor) -> FlexTensor {
    tensor.to_contiguous()
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
