//! The feed-forward network: `w2(silu(gate(x)) * up(x))`.

use crate::error::Result;
use crate::kernels::{self, BlockWeight, ResidualStream};
use crate::models::layers::{BlockLinear, BlockLinearConfig, RmsNorm};
use crate::models::{WeightSource, Zeros};
use burn::config::Config;
use burn::module::Module;
use burn::tensor::{Device, Tensor};

/// The projections that are stacked.
pub(super) const GATE_UP: [&str; 2] = ["ffn_gate.weight", "ffn_up.weight"];

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
    /// The gate's projection (w1, Burn's `linear_inner`), `[hidden_size, d_model]`, and below it the projection that is gated (w3, `linear_outer`), of the
    /// same shape: they read the same activations in one launch.
    pub linear_inner_outer: BlockWeight,
}

impl SwiGlu {
    /// The stream, which `norm` normalizes, to `[batch, seq, hidden_size]`.
    pub fn forward(&self, stream: &ResidualStream, norm: &RmsNorm) -> Tensor<3> {
        kernels::gate_up(stream, &self.linear_inner_outer, norm.epsilon())
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
        let down = BlockLinearConfig::new(self.hidden_size, self.d_model);
        let stack = GATE_UP.map(|name| (format!("{prefix}.{name}"), self.hidden_size));
        Ok(FeedForward {
            swiglu: SwiGlu { linear_inner_outer: weights.stack(&stack, self.d_model)? },
            w2: down.load(weights, &format!("{prefix}.ffn_down.weight"))?,
        })
    }
}

impl FeedForward {
    /// Adds the network's output for the normalized stream to the stream. `norm` normalizes its input, `next` its output.
    pub fn forward(&self, stream: ResidualStream, norm: &RmsNorm, next: &RmsNorm) -> ResidualStream {
        let hidden = self.swiglu.forward(&stream, norm);
        self.w2.add_to(stream, hidden, next)
    }
}
