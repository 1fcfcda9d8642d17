//! The feed-forward network: `w2(silu(gate(x)) * up(x))`.

use crate::error::Result;
use crate::kernels;
use crate::models::layers::{BlockLinear, BlockLinearConfig};
use crate::models::{WeightSource, Zeros};
use burn::config::Config;
use burn::module::Module;
use burn::tensor::{Device, Tensor};

/// Configuration of a [`FeedForward`].
#[derive(Config, Debug)]
pub struct FeedForwardConfig {
    /// Width of the hidden states.
    pub d_model: usize,
    /// Width between the projections.
    pub hidden_size: usize,
}

/// The gated linear unit with a SiLU gate (Shazeer, 2020).
#[derive(Module, Debug)]
pub struct SwiGlu {
    /// The gate's projection (w1), `[hidden_size, d_model]`.
    pub linear_inner: BlockLinear,
    /// The projection that is gated (w3), `[hidden_size, d_model]`.
    pub linear_outer: BlockLinear,
}

impl SwiGlu {
    /// `[batch, seq, d_model]` to `[batch, seq, hidden_size]`.
    pub fn forward(&self, x: Tensor<3>) -> Tensor<3> {
        kernels::swiglu(self.linear_inner.forward(x.clone()), self.linear_outer.forward(x))
    }
}

/// Feed-forward transformation network.
#[derive(Module, Debug)]
pub struct FeedForward {
    /// The gated projection up.
    pub swiglu: SwiGlu,
    /// The projection down, `[d_model, hidden_size]`.
    pub w2: BlockLinear,
}

impl FeedForwardConfig {
    /// A network of zeros on `device`.
    ///
    /// # Errors
    /// `UnsupportedModel` when a width is no multiple of 32.
    pub fn init(&self, device: &Device) -> Result<FeedForward> {
        self.load(&mut Zeros(device), "blk.0")
    }

    /// A network with the tensors `{prefix}.ffn_*` of `weights`.
    ///
    /// # Errors
    /// As [`WeightSource::matrix`].
    pub fn load(&self, weights: &mut dyn WeightSource, prefix: &str) -> Result<FeedForward> {
        let up = BlockLinearConfig::new(self.d_model, self.hidden_size);
        let down = BlockLinearConfig::new(self.hidden_size, self.d_model);
        Ok(FeedForward {
            swiglu: SwiGlu {
                linear_inner: up.load(weights, &format!("{prefix}.ffn_gate.weight"))?,
                linear_outer: up.load(weights, &format!("{prefix}.ffn_up.weight"))?,
            },
            w2: down.load(weights, &format!("{prefix}.ffn_down.weight"))?,
        })
    }
}

impl FeedForward {
    /// `[batch, seq, d_model]` to the same shape.
    pub fn forward(&self, x: Tensor<3>) -> Tensor<3> {
        self.w2.forward(self.swiglu.forward(x))
    }
}
