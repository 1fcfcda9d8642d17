//! Grouped-query attention with rotary positions over the KV cache.

use super::cache::KeyValueCache;
use super::rope::RotaryEncoding;
use crate::error::Result;
use crate::kernels;
use crate::models::layers::{BlockLinear, BlockLinearConfig};
use crate::models::{WeightSource, Zeros};
use burn::config::Config;
use burn::module::Module;
use burn::tensor::{Device, Int, Tensor};

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
    /// Query projection, `[n_heads * head_dim, d_model]`.
    pub wq: BlockLinear,
    /// Key projection, `[n_heads_kv * head_dim, d_model]`.
    pub wk: BlockLinear,
    /// Value projection, `[n_heads_kv * head_dim, d_model]`.
    pub wv: BlockLinear,
    /// Output projection, `[d_model, n_heads * head_dim]`.
    pub wo: BlockLinear,
    n_heads: usize,
    n_heads_kv: usize,
    head_dim: usize,
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
        let mut linear = |d_input, d_output, name: &str| {
            BlockLinearConfig::new(d_input, d_output).load(weights, &format!("{prefix}.{name}.weight"))
        };
        Ok(MultiHeadAttention {
            wq: linear(self.d_model, queries, "attn_q")?,
            wk: linear(self.d_model, keys, "attn_k")?,
            wv: linear(self.d_model, keys, "attn_v")?,
            wo: linear(queries, self.d_model, "attn_output")?,
            n_heads: self.n_heads,
            n_heads_kv: self.n_heads_kv,
            head_dim: self.head_dim,
        })
    }
}

impl MultiHeadAttention {
    /// `x` is `[batch, seq, d_model]`; its tokens follow the `position` tokens that the cache already holds, and are written to it.
    pub fn forward(
        &self,
        x: Tensor<3>,
        cache: &mut KeyValueCache,
        rope: &RotaryEncoding,
        position: Tensor<1, Int>,
    ) -> Tensor<3> {
        let [batch, seq, _] = x.dims();
        let heads = |x: Tensor<3>, n_heads| x.reshape([batch, seq, n_heads, self.head_dim]);

        let q = heads(self.wq.forward(x.clone()), self.n_heads);
        let k = heads(self.wk.forward(x.clone()), self.n_heads_kv);
        let v = heads(self.wv.forward(x), self.n_heads_kv);

        let q = rope.forward(q, position.clone());
        let k = rope.forward(k, position.clone());

        let (k, v) = cache.append(k, v, position.clone());
        let scale = 1.0 / (self.head_dim as f32).sqrt();
        let y = kernels::attention(q, k, v, position, scale);

        self.wo.forward(y.reshape([batch, seq, self.n_heads * self.head_dim]))
    }
}
