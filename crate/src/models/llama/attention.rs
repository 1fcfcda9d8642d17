//! Grouped-query attention with rotary positions over the KV cache.

use super::cache::KeyValueCache;
use super::rope::RotaryEncoding;
use crate::error::Result;
use crate::kernels::{BlockWeight, ResidualStream};
use crate::models::layers::{BlockLinear, BlockLinearConfig, RmsNorm};
use crate::models::{WeightSource, Zeros};
use burn::config::Config;
use burn::module::Module;
use burn::tensor::{Device, Int, Tensor};

/// The projections that are stacked.
pub(super) const QKV: [&str; 3] = ["attn_q.weight", "attn_k.weight", "attn_v.weight"];

/// Configuration of a [`MultiHeadAttention`].
#[derive(Config, Debug)]
pub struct MultiHeadAttentionConfig {
    /// Width of the hidden states.
    pub d_model: usize,
    /// Query heads.
    pub n_heads: usize,
    /// Key and value heads; divides the query heads.
    pub n_heads_kv: usize,
    /// Width of a head.
    pub head_dim: usize,
}

/// Multi-head attention in which groups of query heads share a key and value head (Ainslie et al., 2023).
#[derive(Module, Debug)]
pub struct MultiHeadAttention {
    /// Query projection (wq), `[n_heads * head_dim, d_model]`, and below it those of keys (wk) and values (wv), `[n_heads_kv * head_dim, d_model]` each: they read the
    /// same activations in one launch.
    pub wqkv: BlockWeight,
    /// Output projection, `[d_model, n_heads * head_dim]`.
    pub wo: BlockLinear,
}

impl MultiHeadAttentionConfig {
    /// An attention of zeros on `device`.
    ///
    /// # Errors
    /// `UnsupportedModel` when a width is no multiple of 32.
    pub fn init(&self, device: &Device) -> Result<MultiHeadAttention> {
        self.load(&mut Zeros(device), "blk.0")
    }

    /// An attention with the tensors `{prefix}.attn_*` of `weights`.
    ///
    /// # Errors
    /// As [`WeightSource::matrix`].
    pub fn load(&self, weights: &mut dyn WeightSource, prefix: &str) -> Result<MultiHeadAttention> {
        let (queries, keys) = (self.n_heads * self.head_dim, self.n_heads_kv * self.head_dim);
        let stack = QKV.map(|name| format!("{prefix}.{name}")).into_iter().zip([queries, keys, keys]);
        Ok(MultiHeadAttention {
            wqkv: weights.stack(&stack.collect::<Vec<_>>(), self.d_model)?,
            wo: BlockLinearConfig::new(queries, self.d_model).load(weights, &format!("{prefix}.attn_output.weight"))?,
        })
    }
}

impl MultiHeadAttention {
    /// Adds the attention of the normalized stream to the stream. Its tokens follow the `position` tokens that the cache already holds, and are written to
    /// it. `norm` normalizes this layer's input, `next` its output. With `last`, the position of the last token,
    /// only that token's stream goes on.
    #[allow(clippy::too_many_arguments)]
    pub fn forward(
        &self,
        stream: ResidualStream,
        norm: &RmsNorm,
        next: &RmsNorm,
        cache: &mut KeyValueCache,
        rope: &RotaryEncoding,
        position: Tensor<1, Int>,
        last: Option<Tensor<1, Int>>,
    ) -> ResidualStream {
        let q = cache.append(&stream, &self.wqkv, rope, position.clone(), norm.epsilon());
        let (stream, q, position) = match last {
            None => (stream, q, position),
            Some(last) => {
                let [batch, seq, width] = q.dims();
                (stream.last(), q.slice([0..batch, seq - 1..seq, 0..width]), last)
            }
        };
        let y = cache.attend(q, position);
        self.wo.add_to(stream, y, next)
    }
}
