//! One transformer block: `h = x + attention(norm(x))`, `y = h + feed_forward(norm(h))`.

use super::attention::{MultiHeadAttention, MultiHeadAttentionConfig};
use super::cache::KeyValueCache;
use super::feed_forward::{FeedForward, FeedForwardConfig};
use super::rope::RotaryEncoding;
use crate::error::Result;
use crate::kernels::ResidualStream;
use crate::models::layers::{RmsNorm, RmsNormConfig};
use crate::models::{WeightSource, Zeros};
use burn::config::Config;
use burn::module::Module;
use burn::tensor::{Device, Int, Tensor};

/// Configuration of a [`TransformerBlock`].
#[derive(Config, Debug)]
pub struct TransformerBlockConfig {
    /// Width of the hidden states.
    pub d_model: usize,
    /// Width of the feed-forward network.
    pub hidden_size: usize,
    /// Query heads.
    pub n_heads: usize,
    /// Key and value heads.
    pub n_heads_kv: usize,
    /// Width of a head.
    pub head_dim: usize,
    /// Epsilon of both normalizations.
    #[config(default = 1e-5)]
    pub norm_eps: f64,
}

/// A pre-normalized decoder block.
#[derive(Module, Debug)]
pub struct TransformerBlock {
    /// Normalizes the attention's input.
    pub attention_norm: RmsNorm,
    /// Self-attention.
    pub attention: MultiHeadAttention,
    /// Normalizes the feed-forward network's input.
    pub ffn_norm: RmsNorm,
    /// Feed-forward network.
    pub feed_forward: FeedForward,
}

impl TransformerBlockConfig {
    /// A block of zeros on `device`.
    ///
    /// # Errors
    /// `UnsupportedModel` when a width is no multiple of 32.
    pub fn init(&self, device: &Device) -> Result<TransformerBlock> {
        self.load(&mut Zeros(device), 0)
    }

    /// Block `index` with the tensors `blk.{index}.*` of `weights`.
    ///
    /// # Errors
    /// As [`WeightSource::matrix`].
    pub fn load(&self, weights: &mut dyn WeightSource, index: usize) -> Result<TransformerBlock> {
        let prefix = format!("blk.{index}");
        let norm = RmsNormConfig::new(self.d_model).with_epsilon(self.norm_eps);
        let attention = MultiHeadAttentionConfig::new(self.d_model, self.n_heads, self.n_heads_kv, self.head_dim);
        let feed_forward = FeedForwardConfig::new(self.d_model, self.hidden_size);
        Ok(TransformerBlock {
            attention_norm: norm.load(weights, &format!("{prefix}.attn_norm.weight"))?,
            attention: attention.load(weights, &prefix)?,
            ffn_norm: norm.load(weights, &format!("{prefix}.ffn_norm.weight"))?,
            feed_forward: feed_forward.load(weights, &prefix)?,
        })
    }
}

impl TransformerBlock {
    /// The stream after this block, for `next` to normalize; see [`MultiHeadAttention::forward`] for the cache and the positions.
    pub fn forward(
        &self,
        stream: ResidualStream,
        next: &RmsNorm,
        cache: &mut KeyValueCache,
        rope: &RotaryEncoding,
        position: Tensor<1, Int>,
        last: Option<Tensor<1, Int>>,
    ) -> ResidualStream {
        let stream = self.attention.forward(stream, &self.attention_norm, &self.ffn_norm, cache, rope, position, last);
        self.feed_forward.forward(stream, &self.ffn_norm, next)
    }
}
