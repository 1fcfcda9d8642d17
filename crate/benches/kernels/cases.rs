//! The kernels: what each is given, how much it computes, and how much it must move.

use crate::model::Model;
use burn::tensor::Tensor;
use hearth::Result;
use hearth::format::TensorType;
use hearth::generation::sampler::SamplerConfig;
use hearth::kernels::{self, BlockWeight, MAX_PENALIZED, Penalty, penalty_words};

/// A kernel, and the sizes that it is timed for.
pub struct Kernel {
    pub name: &'static str,
    /// What the sizes count.
    pub unit: &'static str,
    pub sizes: &'static [usize],
    /// Puts its buffers onto the device.
    pub prepare: fn(&Model<'_>, usize) -> Result<Case>,
}

/// Every kernel, in the order in which a token meets them.
pub const KERNELS: [Kernel; 11] = [
    Kernel { name: "embedding", unit: "tokens", sizes: &[1, 64], prepare: embedding },
    Kernel { name: "qkv", unit: "tokens", sizes: &[1, 64], prepare: qkv },
    Kernel { name: "decode attention", unit: "context", sizes: &[128, 2048], prepare: decode_attention },
    Kernel { name: "prefill attention", unit: "tokens", sizes: &[512], prepare: prefill_attention },
    Kernel { name: "output", unit: "tokens", sizes: &[1, 64], prepare: output },
    Kernel { name: "gate and up", unit: "tokens", sizes: &[1, 64], prepare: gate_up },
    Kernel { name: "down", unit: "tokens", sizes: &[1, 64], prepare: down },
    Kernel { name: "head", unit: "tokens", sizes: &[1, 64], prepare: head },
    Kernel { name: "argmax", unit: "tokens", sizes: &[1], prepare: argmax },
    Kernel { name: "top-k", unit: "tokens", sizes: &[1], prepare: top_k },
    Kernel { name: "penalize", unit: "tokens", sizes: &[1], prepare: penalize },
];

/// What one launch does.
#[derive(Clone, Copy)]
pub struct Work {
    /// How the weights are encoded, where there are some.
    pub ty: Option<TensorType>,
    pub multiply_adds: usize,
    /// Bytes that must be moved: everything that is needed read once, every result written once.
    pub bytes: usize,
}

/// A kernel with its buffers.
pub struct Case {
    pub work: Work,
    /// Enqueues it. Weights and caches are taken in turn, by the number of the launch.
    pub launch: Box<dyn Fn(usize)>,
}

impl Case {
    fn new(work: Work, launch: impl Fn(usize) + 'static) -> Self {
        Self { work, launch: Box::new(launch) }
    }

    /// A product of `weights` with `tokens` rows of activations; `bytes` are moved for the results.
    fn product(
        weights: Vec<BlockWeight>,
        tokens: usize,
        bytes: usize,
        launch: impl Fn(&BlockWeight, usize) + 'static,
    ) -> Self {
        let weight = &weights[0];
        let work = Work {
            ty: Some(type_of(weight)),
            multiply_adds: weight.rows() * weight.columns() * tokens,
            bytes: weight.device_bytes() + 4 * tokens * weight.columns() + bytes,
        };
        Self::new(work, move |index| launch(&weights[index % weights.len()], index))
    }
}

fn embedding(model: &Model<'_>, tokens: usize) -> Result<Case> {
    let (d_model, vocabulary) = (model.config.d_model, model.config.vocab_size);
    let weights = model.weights(vocabulary, d_model)?;
    // From all over the vocabulary.
    let ids = model.words((0..tokens).map(|i| (i * 7919 % vocabulary) as u32).collect(), [1, tokens]);
    let gamma = model.gamma();
    let weight = &weights[0];
    let bytes = weight.device_bytes() / vocabulary * tokens + 8 * tokens * d_model;
    Ok(Case::new(Work { ty: Some(type_of(weight)), multiply_adds: 0, bytes }, move |index| {
        drop(kernels::embed(ids.clone(), &weights[index % weights.len()], gamma.clone()));
    }))
}

fn qkv(model: &Model<'_>, tokens: usize) -> Result<Case> {
    let shape = model.cache_shape();
    let (queries, keys) = (shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim);
    let weights = model.weights(queries + 2 * keys, model.config.d_model)?;
    let (stream, table, position) = (model.stream(tokens)?, model.rotations()?, model.position(0));
    let (caches, epsilon) = (model.caches(), model.epsilon());
    // Keys and values in half precision.
    let bytes = 4 * tokens * queries + 4 * tokens * keys;
    Ok(Case::product(weights, tokens, bytes, move |weight, index| {
        let cache = caches[index % caches.len()].clone();
        drop(kernels::qkv(&stream, weight, table.clone(), position.clone(), cache, shape, epsilon));
    }))
}

/// One token, which sees `context` tokens, itself included.
fn decode_attention(model: &Model<'_>, context: usize) -> Result<Case> {
    Ok(attention(model, 1, context - 1))
}

/// A prompt from the first token on.
fn prefill_attention(model: &Model<'_>, tokens: usize) -> Result<Case> {
    Ok(attention(model, tokens, 0))
}

fn attention(model: &Model<'_>, tokens: usize, before: usize) -> Case {
    let shape = model.cache_shape();
    let (queries, keys) = (shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim);
    // Token `i` sees `before + i + 1`, and each has a product with its key and one with its value.
    let seen = tokens * before + tokens * (tokens + 1) / 2;
    let bytes = 4 * (before + tokens) * keys + 8 * tokens * queries;
    let (q, caches, position) = (model.queries(tokens), model.caches(), model.position(before));
    Case::new(Work { ty: None, multiply_adds: 2 * seen * queries, bytes }, move |index| {
        let cache = caches[index % caches.len()].clone();
        drop(kernels::attention(q.clone(), cache, position.clone(), shape));
    })
}

fn output(model: &Model<'_>, tokens: usize) -> Result<Case> {
    let shape = model.cache_shape();
    add_projection(model, tokens, shape.heads * shape.head_dim)
}

fn down(model: &Model<'_>, tokens: usize) -> Result<Case> {
    add_projection(model, tokens, model.config.hidden_size)
}

fn add_projection(model: &Model<'_>, tokens: usize, columns: usize) -> Result<Case> {
    let d_model = model.config.d_model;
    let weights = model.weights(d_model, columns)?;
    let (stream, gamma) = (model.stream(tokens)?, model.gamma());
    let x = Tensor::<3>::ones([1, tokens, columns], model.device);
    Ok(Case::product(weights, tokens, 12 * tokens * d_model, move |weight, _| {
        drop(kernels::add_projection(stream.clone(), x.clone(), weight, gamma.clone()));
    }))
}

fn gate_up(model: &Model<'_>, tokens: usize) -> Result<Case> {
    let hidden = model.config.hidden_size;
    let weights = model.weights(2 * hidden, model.config.d_model)?;
    let (stream, epsilon) = (model.stream(tokens)?, model.epsilon());
    Ok(Case::product(weights, tokens, 4 * tokens * hidden, move |weight, _| {
        drop(kernels::gate_up(&stream, weight, epsilon));
    }))
}

fn head(model: &Model<'_>, tokens: usize) -> Result<Case> {
    let vocabulary = model.config.vocab_size;
    let weights = model.weights(vocabulary, model.config.d_model)?;
    let (stream, epsilon) = (model.stream(tokens)?, model.epsilon());
    Ok(Case::product(weights, tokens, 4 * tokens * vocabulary, move |weight, _| {
        drop(kernels::project(&stream, weight, epsilon));
    }))
}

fn argmax(model: &Model<'_>, _tokens: usize) -> Result<Case> {
    let (logits, token, position) = (model.logits(), model.words(vec![0], [1, 1]), model.position(0));
    Ok(Case::new(logits_read(model), move |_| {
        drop(kernels::greedy(logits.clone(), token.clone(), position.clone()));
    }))
}

fn top_k(model: &Model<'_>, _tokens: usize) -> Result<Case> {
    let (logits, k) = (model.logits(), model.words(vec![SamplerConfig::default().top_k as u32], [1]));
    Ok(Case::new(logits_read(model), move |_| drop(kernels::top_k(logits.clone(), k.clone()))))
}

/// As many penalties as there may be; they leave the logits as they are.
fn penalize(model: &Model<'_>, _tokens: usize) -> Result<Case> {
    let none = Penalty { id: 0, if_positive: 1.0, if_negative: 1.0, subtract: 0.0 };
    let penalties: Vec<_> = (0..MAX_PENALIZED as u32).map(|i| Penalty { id: 101 * i, ..none }).collect();
    let words = penalty_words(&penalties).unwrap_or_default();
    let length = words.len();
    let (logits, words) = (model.logits(), model.words(words, [length]));
    let work = Work { ty: None, multiply_adds: 0, bytes: 24 * MAX_PENALIZED };
    Ok(Case::new(work, move |_| drop(kernels::penalize(logits.clone(), words.clone()))))
}

/// The work of reading all logits once.
fn logits_read(model: &Model<'_>) -> Work {
    Work { ty: None, multiply_adds: 0, bytes: 4 * model.config.vocab_size }
}

/// How a matrix of one type is encoded.
fn type_of(weight: &BlockWeight) -> TensorType {
    weight.parts()[0].shape().ty
}
