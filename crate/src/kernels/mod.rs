//! The model's kernels: one file each, with its CubeCL code, its launch, its CPU twin, and what it moves.
//!
//! [`LlamaKernels`] is a Burn backend extension: implemented for the CubeCL backend (WebGPU, Vulkan, Metal) with our own kernels and for the
//! Flex CPU backend with the reference decoders, so that one model definition runs on both. The functions at the foot are its safe surface over
//! [`burn::tensor::Tensor`]; nothing else in the crate launches a kernel.
//!
//! All activations are row-major `f32`. `position` is a device buffer with one `u32`, the number of tokens that are already in the KV cache, so
//! that a sequence of launches can be recorded once and replayed for every token.

mod attention;
mod block_embedding;
mod block_matmul;
#[cfg(not(target_arch = "wasm32"))]
mod cpu;
mod decode;
mod kv_cache;
mod rms_norm;
mod rope;
mod swiglu;
mod weight;

pub use rope::RopeLayout;
pub use weight::{BlockShape, BlockWeight};

use burn::backend::tensor::{FloatTensor, IntTensor};
use burn::backend::{Backend, Dispatch, backend_extension};
use burn::tensor::{Int, Tensor};

/// What a Llama-family forward pass needs beyond Burn's own tensor operations.
///
/// Call the functions of this module rather than these: they check shapes.
#[backend_extension(Cube, Flex: cfg(not(target_arch = "wasm32")))]
pub trait LlamaKernels: Backend {
    /// See [`matmul`].
    fn block_matmul(
        x: FloatTensor<Self>,
        words: IntTensor<Self>,
        scales: IntTensor<Self>,
        shape: BlockShape,
    ) -> FloatTensor<Self>;

    /// See [`embedding`].
    fn block_embedding(
        tokens: IntTensor<Self>,
        words: IntTensor<Self>,
        scales: IntTensor<Self>,
        shape: BlockShape,
    ) -> FloatTensor<Self>;

    /// See [`rms_norm`].
    fn rms_norm(x: FloatTensor<Self>, gamma: FloatTensor<Self>, epsilon: f32) -> FloatTensor<Self>;

    /// See [`rope`].
    fn rope(
        x: FloatTensor<Self>,
        table: FloatTensor<Self>,
        position: IntTensor<Self>,
        layout: RopeLayout,
    ) -> FloatTensor<Self>;

    /// See [`kv_write`].
    fn kv_write(cache: FloatTensor<Self>, x: FloatTensor<Self>, position: IntTensor<Self>) -> FloatTensor<Self>;

    /// See [`attention`].
    fn causal_attention(
        q: FloatTensor<Self>,
        k_cache: FloatTensor<Self>,
        v_cache: FloatTensor<Self>,
        position: IntTensor<Self>,
        scale: f32,
    ) -> FloatTensor<Self>;

    /// See [`swiglu`].
    fn swiglu(gate: FloatTensor<Self>, up: FloatTensor<Self>) -> FloatTensor<Self>;
}

/// `x Wᵀ`: `[batch, seq, columns]` times a weight of `[rows, columns]` gives `[batch, seq, rows]`.
///
/// Reads the weight's device bytes once for one token, and once for every four tokens of a prompt.
pub fn matmul(x: Tensor<3>, weight: &BlockWeight) -> Tensor<3> {
    let [_, _, columns] = x.dims();
    assert_eq!(columns, weight.shape().columns, "the activations' width must be the weight's columns");
    let (words, scales) = weight.parts();
    Tensor::from_dispatch(Dispatch::block_matmul(x.into_dispatch(), words, scales, weight.shape()))
}

/// The rows of `weight` (`[vocabulary, columns]`) that `tokens` (`[batch, seq]`) name, as `[batch, seq, columns]`.
pub fn embedding(tokens: Tensor<2, Int>, weight: &BlockWeight) -> Tensor<3> {
    let (words, scales) = weight.parts();
    Tensor::from_dispatch(Dispatch::block_embedding(tokens.into_dispatch(), words, scales, weight.shape()))
}

/// Root mean square normalization over the last dimension: `x / sqrt(mean(x²) + epsilon) * gamma` (Zhang and Sennrich, 2019).
/// `x` is `[batch, seq, d_model]`, `gamma` `[d_model]`.
pub fn rms_norm(x: Tensor<3>, gamma: Tensor<1>, epsilon: f32) -> Tensor<3> {
    assert_eq!(x.dims()[2], gamma.dims()[0], "gamma must have the activations' width");
    Tensor::from_dispatch(Dispatch::rms_norm(x.into_dispatch(), gamma.into_dispatch(), epsilon))
}

/// Rotary position embedding (Su et al., 2021) of `x`, `[batch, seq, heads, head_dim]`, for tokens at `position, position + 1, …`.
/// `table` is `[max_seq_len, rotary_dim / 2, 2]`: the cosine and the sine of every angle.
pub fn rope(x: Tensor<4>, table: Tensor<3>, position: Tensor<1, Int>, layout: RopeLayout) -> Tensor<4> {
    assert!(2 * table.dims()[1] <= x.dims()[3], "the rotary dimension must fit into the head");
    Tensor::from_dispatch(Dispatch::rope(x.into_dispatch(), table.into_dispatch(), position.into_dispatch(), layout))
}

/// Writes `x`, `[batch, seq, kv_heads, head_dim]`, into `cache`, `[batch, kv_heads, max_seq_len, head_dim]`, at `position` and after, in place.
///
/// The caller gives the cache away and takes the returned tensor for it. On a GPU every clone of the cache sees the write.
pub fn kv_write(cache: Tensor<4>, x: Tensor<4>, position: Tensor<1, Int>) -> Tensor<4> {
    let ([cache_batch, heads, max_seq_len, head_dim], [batch, seq, x_heads, x_dim]) = (cache.dims(), x.dims());
    assert!(batch <= cache_batch && seq <= max_seq_len, "the cache must hold the batch and the sequence");
    assert_eq!([heads, head_dim], [x_heads, x_dim], "the cache and the keys must have the same heads");
    Tensor::from_dispatch(Dispatch::kv_write(cache.into_dispatch(), x.into_dispatch(), position.into_dispatch()))
}

/// Causal grouped-query attention (Ainslie et al., 2023) over the KV cache: query `i` of `q`, `[batch, seq, heads, head_dim]`, sees the first
/// `position + i + 1` entries of the caches, `[batch, kv_heads, max_seq_len, head_dim]`. Gives `[batch, seq, heads, head_dim]`.
///
/// The scores are never stored: an online softmax (Milakov and Gimelshein, 2018) runs over the cache in chunks.
pub fn attention(
    q: Tensor<4>,
    k_cache: Tensor<4>,
    v_cache: Tensor<4>,
    position: Tensor<1, Int>,
    scale: f32,
) -> Tensor<4> {
    let [_, _, heads, head_dim] = q.dims();
    let [_, kv_heads, _, kv_dim] = k_cache.dims();
    assert_eq!(k_cache.dims(), v_cache.dims(), "keys and values must have the same shape");
    assert!(head_dim == kv_dim && heads.is_multiple_of(kv_heads), "query heads must share the key heads evenly");
    Tensor::from_dispatch(Dispatch::causal_attention(
        q.into_dispatch(),
        k_cache.into_dispatch(),
        v_cache.into_dispatch(),
        position.into_dispatch(),
        scale,
    ))
}

/// `silu(gate) * up`, element by element (Shazeer, 2020); both `[batch, seq, hidden]`.
pub fn swiglu(gate: Tensor<3>, up: Tensor<3>) -> Tensor<3> {
    assert_eq!(gate.dims(), up.dims(), "gate and up must have the same shape");
    Tensor::from_dispatch(Dispatch::swiglu(gate.into_dispatch(), up.into_dispatch()))
}

mod cube {
    //! The extension for Burn's CubeCL backend, and what its launches share.

    use super::*;
    use burn::tensor::{DType, Shape};
    use burn_cubecl::CubeBackend;
    use burn_cubecl::kernel::into_contiguous;
    use burn_cubecl::ops::numeric::empty_device_contiguous_dtype;
    use burn_cubecl::tensor::CubeTensor;
    use cubecl::prelude::BufferArg;

    impl LlamaKernels for CubeBackend {
        fn block_matmul(x: CubeTensor, words: CubeTensor, scales: CubeTensor, shape: BlockShape) -> CubeTensor {
            block_matmul::launch(x, words, scales, shape)
        }

        fn block_embedding(tokens: CubeTensor, words: CubeTensor, scales: CubeTensor, shape: BlockShape) -> CubeTensor {
            block_embedding::launch(tokens, words, scales, shape)
        }

        fn rms_norm(x: CubeTensor, gamma: CubeTensor, epsilon: f32) -> CubeTensor {
            rms_norm::launch(x, gamma, epsilon)
        }

        fn rope(x: CubeTensor, table: CubeTensor, position: CubeTensor, layout: RopeLayout) -> CubeTensor {
            rope::launch(x, table, position, layout)
        }

        fn kv_write(cache: CubeTensor, x: CubeTensor, position: CubeTensor) -> CubeTensor {
            kv_cache::launch(cache, x, position)
        }

        fn causal_attention(
            q: CubeTensor,
            k_cache: CubeTensor,
            v_cache: CubeTensor,
            position: CubeTensor,
            scale: f32,
        ) -> CubeTensor {
            attention::launch(q, k_cache, v_cache, position, scale)
        }

        fn swiglu(gate: CubeTensor, up: CubeTensor) -> CubeTensor {
            swiglu::launch(gate, up)
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

    /// Binds a whole tensor as a slice of vectors of `vector_size` elements of `element_bytes` each.
    pub(super) fn bind(tensor: &CubeTensor, bytes_per_item: usize) -> BufferArg {
        let items = tensor.meta.num_elements() * tensor.dtype.size() / bytes_per_item;
        // SAFETY: `items` covers exactly the bytes of this contiguous tensor.
        unsafe { BufferArg::from_raw_parts(tensor.handle.clone(), items) }
    }
}
