//! The model's kernels: one file each, with its CubeCL code, its launch, and what it moves; their CPU twins are in `cpu`.
//!
//! [`LlamaKernels`] is a Burn backend extension: implemented for the CubeCL backend (WebGPU, Vulkan, Metal) with our own kernels and for the
//! Flex CPU backend with the reference decoders, so that one model definition runs on both. The functions at the foot are its safe surface over
//! [`burn::tensor::Tensor`]; nothing else in the crate launches a kernel.
//!
//! A block of the model is six launches: queries, keys and values; attention, which is two for a single token; the output projection with its residual addition; gate
//! and up projection; down projection with its residual addition. All activations are row-major `f32`. `position` is a device buffer with one `u32`, the
//! number of tokens that are already in the KV cache, so that a sequence of launches can be recorded once and replayed for every token.
//!
//! What a kernel changes in place is given away by the caller and comes back as its result. On a GPU every clone of it sees the change.

// Kernel code is compiled for devices, which have no such method.
#![allow(clippy::manual_is_multiple_of)]

mod block_matmul;
#[cfg(not(target_arch = "wasm32"))]
mod cpu;
#[cfg(not(target_arch = "wasm32"))]
mod cpu_sampling;
mod decode;
mod decode_attention;
mod embedding;
mod gate_up;
mod kv_cache;
mod prefill_attention;
mod products;
mod qkv;
mod residual;
mod sampling;
mod swiglu;
mod top_k;
mod tuning;
mod weight;

pub use kv_cache::{CacheShape, KvPrecision, place_in_head};
pub use sampling::{MAX_PENALIZED, NO_TOKEN, Penalty, penalty_words};
pub use top_k::{CANDIDATE_CAPACITY, CANDIDATE_WORDS, MAX_TOP_K, candidates};
pub use tuning::{TileVariant, tune};
pub use weight::{BlockPart, BlockShape, BlockWeight};

use burn::backend::tensor::{FloatTensor, IntTensor};
use burn::backend::{Backend, Dispatch, backend_extension};
use burn::tensor::{DType, Int, Tensor};
use residual::StreamShape;

/// What a Llama-family forward pass needs beyond Burn's own tensor operations.
///
/// Call the functions of this module rather than these: they check shapes.
#[backend_extension(Cube, Flex: cfg(not(target_arch = "wasm32")))]
#[allow(clippy::too_many_arguments)]
pub trait LlamaKernels: Backend {
    /// Rows `row_offset..` of [`matmul`], or with an epsilon of [`project`], into `y`.
    fn block_matmul(
        x: FloatTensor<Self>,
        words: IntTensor<Self>,
        scales: IntTensor<Self>,
        shape: BlockShape,
        row_offset: usize,
        epsilon: Option<f32>,
        y: FloatTensor<Self>,
    ) -> FloatTensor<Self>;

    /// See [`embed`]: the tokens in rows `row_offset..` of all `vocabulary`, into `stream`.
    fn block_embedding(
        tokens: IntTensor<Self>,
        words: IntTensor<Self>,
        scales: IntTensor<Self>,
        shape: BlockShape,
        row_offset: usize,
        vocabulary: usize,
        gamma: FloatTensor<Self>,
        stream: FloatTensor<Self>,
    ) -> FloatTensor<Self>;

    /// Rows `row_offset..` of [`qkv`]: queries into `q`, keys and values into `cache`.
    fn qkv(
        stream: FloatTensor<Self>,
        words: IntTensor<Self>,
        scales: IntTensor<Self>,
        shape: BlockShape,
        row_offset: usize,
        table: FloatTensor<Self>,
        position: IntTensor<Self>,
        q: FloatTensor<Self>,
        cache: IntTensor<Self>,
        cache_shape: CacheShape,
        epsilon: f32,
    ) -> (FloatTensor<Self>, IntTensor<Self>);

    /// See [`attention`].
    fn causal_attention(
        q: FloatTensor<Self>,
        cache: IntTensor<Self>,
        position: IntTensor<Self>,
        shape: CacheShape,
    ) -> FloatTensor<Self>;

    /// Rows `row_offset..` of [`add_projection`].
    fn add_projection(
        x: FloatTensor<Self>,
        words: IntTensor<Self>,
        scales: IntTensor<Self>,
        shape: BlockShape,
        row_offset: usize,
        gamma: FloatTensor<Self>,
        stream: FloatTensor<Self>,
    ) -> FloatTensor<Self>;

    /// See [`gate_up`]; the weight is one part.
    fn gate_up(
        stream: FloatTensor<Self>,
        words: IntTensor<Self>,
        scales: IntTensor<Self>,
        shape: BlockShape,
        epsilon: f32,
    ) -> FloatTensor<Self>;

    /// `silu(gate) * up`, element by element.
    fn swiglu(gate: FloatTensor<Self>, up: FloatTensor<Self>) -> FloatTensor<Self>;

    /// See [`penalize`].
    fn penalize(logits: FloatTensor<Self>, penalties: IntTensor<Self>) -> FloatTensor<Self>;

    /// See [`greedy`].
    fn greedy(
        logits: FloatTensor<Self>,
        token: IntTensor<Self>,
        position: IntTensor<Self>,
    ) -> (IntTensor<Self>, IntTensor<Self>);

    /// See [`top_k`].
    fn top_k(logits: FloatTensor<Self>, k: IntTensor<Self>) -> IntTensor<Self>;
}

/// The hidden states of some tokens, `[batch, seq, d_model]`, with what the norm that follows makes of them (see the `residual` kernel).
#[derive(Debug, Clone)]
pub struct ResidualStream {
    rows: Tensor<3>,
    shape: StreamShape,
}

impl ResidualStream {
    /// The hidden states themselves.
    pub fn hidden(&self) -> Tensor<3> {
        let [batch, seq, _] = self.rows.dims();
        self.rows.clone().slice([0..batch, 0..seq, 0..self.shape.d_model])
    }

    /// The stream of the last token alone.
    pub fn last(self) -> Self {
        let [batch, seq, width] = self.rows.dims();
        match seq {
            1 => self,
            _ => Self { rows: self.rows.slice([0..batch, seq - 1..seq, 0..width]), shape: self.shape },
        }
    }

    fn empty(batch: usize, seq: usize, d_model: usize, like: &Tensor<1>) -> Self {
        let shape = StreamShape { d_model };
        Self { rows: Tensor::empty([batch, seq, shape.width()], &like.device()), shape }
    }
}

/// `x Wᵀ`: `[batch, seq, columns]` times a weight of `[rows, columns]` gives `[batch, seq, rows]`.
///
/// Reads the weight's device bytes once for one token, and once for every tile of tokens of a prompt (see [`TileVariant`]).
pub fn matmul(x: Tensor<3>, weight: &BlockWeight) -> Tensor<3> {
    assert_eq!(x.dims()[2], weight.columns(), "the activations' width must be the weight's columns");
    product(x, weight, None)
}

/// `W norm(h)` of the stream's hidden states `h`, `[batch, seq, rows]`. The norm's gamma is already in the stream.
pub fn project(stream: &ResidualStream, weight: &BlockWeight, epsilon: f32) -> Tensor<3> {
    assert_eq!(stream.shape.d_model, weight.columns(), "the stream's width must be the weight's columns");
    product(stream.rows.clone(), weight, Some(epsilon))
}

fn product(x: Tensor<3>, weight: &BlockWeight, epsilon: Option<f32>) -> Tensor<3> {
    let [batch, seq, _] = x.dims();
    let mut y = Tensor::empty([batch, seq, weight.rows()], &x.device());
    for part in weight.parts() {
        let (words, scales) = part.tensors();
        let (x, into) = (x.clone().into_dispatch(), y.into_dispatch());
        let (shape, row_offset) = (part.shape(), part.row_offset());
        y = Tensor::from_dispatch(Dispatch::block_matmul(x, words, scales, shape, row_offset, epsilon, into));
    }
    y
}

/// The rows of `weight` (`[vocabulary, d_model]`) that `tokens` (`[batch, seq]`) name, as a stream for a norm with `gamma`.
pub fn embed(tokens: Tensor<2, Int>, weight: &BlockWeight, gamma: Tensor<1>) -> ResidualStream {
    assert_eq!(gamma.dims(), [weight.columns()], "gamma must have the embedding's width");
    let [batch, seq] = tokens.dims();
    let mut stream = ResidualStream::empty(batch, seq, weight.columns(), &gamma);
    for part in weight.parts() {
        let (words, scales) = part.tensors();
        stream.rows = Tensor::from_dispatch(Dispatch::block_embedding(
            tokens.clone().into_dispatch(),
            words,
            scales,
            part.shape(),
            part.row_offset(),
            weight.rows(),
            gamma.clone().into_dispatch(),
            stream.rows.into_dispatch(),
        ));
    }
    stream
}

/// Queries, keys and values of the normalized stream. `weight` has the rows of all query heads, then all key heads, then all value heads. Queries and keys are
/// rotated (Su et al., 2021) in pairs `(2 i, 2 i + 1)` for tokens at `position, position + 1, …`; `table` is `[max_seq_len, rotary_dim / 2, 2]`, the cosine
/// and the sine of every angle. Keys and values go into `cache` at these positions.
///
/// Gives the queries, `[batch, seq, heads · head_dim]` in the cache's order and scaled (see the `kv_cache` kernel), and the cache.
#[allow(clippy::too_many_arguments)]
pub fn qkv(
    stream: &ResidualStream,
    weight: &BlockWeight,
    table: Tensor<3>,
    position: Tensor<1, Int>,
    cache: Tensor<5, Int>,
    shape: CacheShape,
    epsilon: f32,
) -> (Tensor<3>, Tensor<5, Int>) {
    let [batch, seq, _] = stream.rows.dims();
    assert_eq!(stream.shape.d_model, weight.columns(), "the stream's width must be the weight's columns");
    assert_eq!(weight.rows(), (shape.heads + 2 * shape.kv_heads) * shape.head_dim, "queries, keys and values");
    assert!(2 * table.dims()[1] <= shape.head_dim, "the rotary dimension must fit into the head");
    check_cache(&cache, batch, shape);
    let mut q = Tensor::<3>::empty([batch, seq, shape.heads * shape.head_dim], &stream.rows.device()).into_dispatch();
    let mut cache = cache.into_dispatch();
    for part in weight.parts() {
        let (words, scales) = part.tensors();
        (q, cache) = Dispatch::qkv(
            stream.rows.clone().into_dispatch(),
            words,
            scales,
            part.shape(),
            part.row_offset(),
            table.clone().into_dispatch(),
            position.clone().into_dispatch(),
            q,
            cache,
            shape,
            epsilon,
        );
    }
    (Tensor::from_dispatch(q), Tensor::from_dispatch(cache))
}

/// Causal grouped-query attention (Ainslie et al., 2023) over the KV cache: query `i` of `q`, as [`qkv`] gives them, sees the first
/// `position + i + 1` entries. Gives `[batch, seq, heads · head_dim]`.
///
/// The scores are never stored: an online softmax (Milakov and Gimelshein, 2018) runs over the cache in parts.
pub fn attention(q: Tensor<3>, cache: Tensor<5, Int>, position: Tensor<1, Int>, shape: CacheShape) -> Tensor<3> {
    let [batch, _, width] = q.dims();
    assert_eq!(width, shape.heads * shape.head_dim, "the queries of all heads");
    check_cache(&cache, batch, shape);
    let (q, cache, position) = (q.into_dispatch(), cache.into_dispatch(), position.into_dispatch());
    Tensor::from_dispatch(Dispatch::causal_attention(q, cache, position, shape))
}

fn check_cache(cache: &Tensor<5, Int>, batch: usize, shape: CacheShape) {
    assert!(shape.heads.is_multiple_of(shape.kv_heads), "query heads must share the key heads evenly");
    assert!(batch <= cache.dims()[0], "the cache must hold the batch");
    assert_eq!(cache.dims(), shape.dims(cache.dims()[0]), "the cache must have its shape");
}

/// `h + x Wᵀ` for the stream's hidden states `h`; `x` is `[batch, seq, columns]`, `weight` `[d_model, columns]`. The stream becomes one for a norm with `gamma`.
pub fn add_projection(stream: ResidualStream, x: Tensor<3>, weight: &BlockWeight, gamma: Tensor<1>) -> ResidualStream {
    let d_model = stream.shape.d_model;
    assert_eq!([weight.rows(), weight.columns()], [d_model, x.dims()[2]], "the weight must fit stream and input");
    assert_eq!(gamma.dims(), [d_model], "gamma must have the stream's width");
    let mut rows = stream.rows;
    for part in weight.parts() {
        let (words, scales) = part.tensors();
        rows = Tensor::from_dispatch(Dispatch::add_projection(
            x.clone().into_dispatch(),
            words,
            scales,
            part.shape(),
            part.row_offset(),
            gamma.clone().into_dispatch(),
            rows.into_dispatch(),
        ));
    }
    ResidualStream { rows, shape: stream.shape }
}

/// `silu(gate(norm(h))) * up(norm(h))` of the stream's hidden states `h` (Shazeer, 2020): `[batch, seq, hidden]`. The first half of the weight's rows are the
/// gate's, the second the up projection's.
pub fn gate_up(stream: &ResidualStream, weight: &BlockWeight, epsilon: f32) -> Tensor<3> {
    if let [part] = weight.parts() {
        let (words, scales) = part.tensors();
        let rows = stream.rows.clone().into_dispatch();
        return Tensor::from_dispatch(Dispatch::gate_up(rows, words, scales, part.shape(), epsilon));
    }
    // Two types, or more than one kernel argument holds.
    let y = project(stream, weight, epsilon);
    let [batch, seq, rows] = y.dims();
    let half = |range| y.clone().slice([0..batch, 0..seq, range]).into_dispatch();
    Tensor::from_dispatch(Dispatch::swiglu(half(0..rows / 2), half(rows / 2..rows)))
}

/// Changes the logits, `[1, 1, vocabulary]`, of the tokens that `penalties` names, in place. `penalties` holds [`penalty_words`], each token at
/// most once; a token outside the vocabulary is passed over. See [`Penalty::apply`] for the change.
///
/// The caller gives the logits away and takes the returned tensor for them. On a GPU every clone of the logits sees the change.
pub fn penalize(logits: Tensor<3>, penalties: Tensor<1, Int>) -> Tensor<3> {
    assert_one_row(&logits);
    assert_words(&penalties, 1 + 4 * MAX_PENALIZED);
    Tensor::from_dispatch(Dispatch::penalize(logits.into_dispatch(), penalties.into_dispatch()))
}

/// Chooses the largest of `logits`, `[1, 1, vocabulary]`, of equals the one with the lowest id: it is written to `token`, `[1, 1]`, and one is
/// added to `position`, `[1]`, both in place. -0 is below 0, and NaN and -∞ are never chosen; where there is nothing else the token is [`NO_TOKEN`].
///
/// The caller gives token and position away and takes the returned tensors for them. On a GPU their clones see the change.
pub fn greedy(logits: Tensor<3>, token: Tensor<2, Int>, position: Tensor<1, Int>) -> (Tensor<2, Int>, Tensor<1, Int>) {
    assert_one_row(&logits);
    assert_words(&token, 1);
    assert_words(&position, 1);
    let (token, position) = Dispatch::greedy(logits.into_dispatch(), token.into_dispatch(), position.into_dispatch());
    (Tensor::from_dispatch(token), Tensor::from_dispatch(position))
}

/// The k largest of `logits`, `[1, 1, vocabulary]`, in no order, as [`CANDIDATE_WORDS`] words that [`candidates`] reads. `k`, `[1]`, is from 1 to
/// [`MAX_TOP_K`].
///
/// There may be more than k, because those that equal the k-th come along and because it is often cheaper, but not more than
/// [`CANDIDATE_CAPACITY`]: of too many equals some are left out, never one that is larger than the k-th. NaN and -∞ are not among them.
pub fn top_k(logits: Tensor<3>, k: Tensor<1, Int>) -> Tensor<1, Int> {
    assert_one_row(&logits);
    assert_words(&k, 1);
    Tensor::from_dispatch(Dispatch::top_k(logits.into_dispatch(), k.into_dispatch()))
}

/// Checks that there are the logits of one token.
fn assert_one_row(logits: &Tensor<3>) {
    let [batch, seq, vocabulary] = logits.dims();
    assert!(batch == 1 && seq == 1 && vocabulary > 0, "there must be the logits of one token");
}

/// Checks that a tensor is a buffer of so many `u32`.
fn assert_words<const D: usize>(tensor: &Tensor<D, Int>, length: usize) {
    assert_eq!((tensor.dtype(), tensor.shape().num_elements()), (DType::U32, length), "the type and the length");
}

mod cube {
    //! The extension for Burn's CubeCL backend, and what its launches share.

    use super::*;
    use burn::backend::TensorMetadata;
    use burn::tensor::Shape;
    use burn_cubecl::CubeBackend;
    use burn_cubecl::kernel::into_contiguous;
    use burn_cubecl::ops::numeric::empty_device_contiguous_dtype;
    use burn_cubecl::tensor::CubeTensor;
    use cubecl::prelude::BufferArg;

    impl LlamaKernels for CubeBackend {
        fn block_matmul(
            x: CubeTensor,
            words: CubeTensor,
            scales: CubeTensor,
            shape: BlockShape,
            row_offset: usize,
            epsilon: Option<f32>,
            y: CubeTensor,
        ) -> CubeTensor {
            block_matmul::launch(&x, words, scales, shape, row_offset, &y, epsilon);
            y
        }

        fn block_embedding(
            tokens: CubeTensor,
            words: CubeTensor,
            scales: CubeTensor,
            shape: BlockShape,
            row_offset: usize,
            vocabulary: usize,
            gamma: CubeTensor,
            stream: CubeTensor,
        ) -> CubeTensor {
            embedding::launch(&tokens, words, scales, shape, row_offset, vocabulary, &gamma, &stream);
            stream
        }

        fn qkv(
            stream: CubeTensor,
            words: CubeTensor,
            scales: CubeTensor,
            shape: BlockShape,
            row_offset: usize,
            table: CubeTensor,
            position: CubeTensor,
            q: CubeTensor,
            cache: CubeTensor,
            cache_shape: CacheShape,
            epsilon: f32,
        ) -> (CubeTensor, CubeTensor) {
            qkv::launch(&stream, words, scales, shape, row_offset, &table, &position, &q, &cache, cache_shape, epsilon);
            (q, cache)
        }

        fn causal_attention(q: CubeTensor, cache: CubeTensor, position: CubeTensor, shape: CacheShape) -> CubeTensor {
            match q.shape()[1] {
                1 => decode_attention::launch(q, cache, position, shape),
                _ => prefill_attention::launch(q, cache, position, shape),
            }
        }

        fn add_projection(
            x: CubeTensor,
            words: CubeTensor,
            scales: CubeTensor,
            shape: BlockShape,
            row_offset: usize,
            gamma: CubeTensor,
            stream: CubeTensor,
        ) -> CubeTensor {
            residual::launch(&x, words, scales, shape, row_offset, &stream, &gamma);
            stream
        }

        fn gate_up(
            stream: CubeTensor,
            words: CubeTensor,
            scales: CubeTensor,
            shape: BlockShape,
            epsilon: f32,
        ) -> CubeTensor {
            let dims = stream.shape();
            let y = empty_like(&stream, [dims[0], dims[1], shape.rows / 2]);
            gate_up::launch(&stream, words, scales, shape, &y, epsilon);
            y
        }

        fn swiglu(gate: CubeTensor, up: CubeTensor) -> CubeTensor {
            swiglu::launch(gate, up)
        }

        fn penalize(logits: CubeTensor, penalties: CubeTensor) -> CubeTensor {
            sampling::penalize(logits, penalties)
        }

        fn greedy(logits: CubeTensor, token: CubeTensor, position: CubeTensor) -> (CubeTensor, CubeTensor) {
            sampling::greedy(logits, token, position)
        }

        fn top_k(logits: CubeTensor, k: CubeTensor) -> CubeTensor {
            top_k::launch(logits, k)
        }
    }

    /// A new, uninitialized, contiguous `f32` tensor beside `like`.
    pub(super) fn empty_like(like: &CubeTensor, shape: impl Into<Shape>) -> CubeTensor {
        empty_device_contiguous_dtype(like.client.clone(), like.device.clone(), shape.into(), DType::F32)
    }

    /// `tensor` in row-major order.
    pub(super) fn contiguous(tensor: CubeTensor) -> CubeTensor {
        into_contiguous(tensor)
    }

    /// Binds a whole tensor as a slice of items of `bytes_per_item` bytes each.
    pub(super) fn bind(tensor: &CubeTensor, bytes_per_item: usize) -> BufferArg {
        let items = tensor.meta.num_elements() * tensor.dtype.size() / bytes_per_item;
        // SAFETY: `items` covers exactly the bytes of this contiguous tensor.
        unsafe { BufferArg::from_raw_parts(tensor.handle.clone(), items) }
    }
}
