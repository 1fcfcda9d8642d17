//! Layers over quantized weights: linear, embedding; and RMS normalization.

use crate::error::Result;
use crate::kernels::{self, BlockWeight, ResidualStream};
use crate::models::{WeightSource, Zeros};
use burn::config::Config;
use burn::module::{Module, Param};
use burn::tensor::{Device, Int, Tensor};

/// Configuration of a [`BlockLinear`].
#[derive(Config, Debug)]
pub struct BlockLinearConfig {
    /// Input features, a multiple of 32.
    pub d_input: usize,
    /// Output features.
    pub d_output: usize,
}

/// A linear layer without bias over a weight that stays quantized: `y = x Wᵀ`.
#[derive(Module, Debug)]
pub struct BlockLinear {
    /// `[d_output, d_input]`.
    pub weight: BlockWeight,
}

impl BlockLinearConfig {
    /// A layer of zeros on `device`.
    ///
    /// # Errors
    /// `UnsupportedModel` when `d_input` is no multiple of 32.
    pub fn init(&self, device: &Device) -> Result<BlockLinear> {
        self.load(&mut Zeros(device), "")
    }

    /// A layer with the matrix `name` of `weights`.
    ///
    /// # Errors
    /// As [`WeightSource::matrix`].
    pub fn load(&self, weights: &mut dyn WeightSource, name: &str) -> Result<BlockLinear> {
        Ok(BlockLinear { weight: weights.matrix(name, self.d_output, self.d_input)? })
    }
}

impl BlockLinear {
    /// `[batch, seq, d_input]` to `[batch, seq, d_output]`.
    pub fn forward(&self, x: Tensor<3>) -> Tensor<3> {
        kernels::matmul(x, &self.weight)
    }

    /// `stream + x Wᵀ`, for `next` to normalize; `x` is `[batch, seq, d_input]`.
    pub fn add_to(&self, stream: ResidualStream, x: Tensor<3>, next: &RmsNorm) -> ResidualStream {
        kernels::add_projection(stream, x, &self.weight, next.gamma())
    }
}

/// Configuration of a [`BlockEmbedding`].
#[derive(Config, Debug)]
pub struct BlockEmbeddingConfig {
    /// Entries of the vocabulary.
    pub n_embedding: usize,
    /// Width of an entry, a multiple of 32.
    pub d_model: usize,
}

/// A token embedding whose table stays quantized.
#[derive(Module, Debug)]
pub struct BlockEmbedding {
    /// `[n_embedding, d_model]`.
    pub weight: BlockWeight,
}

impl BlockEmbeddingConfig {
    /// A table of zeros on `device`.
    ///
    /// # Errors
    /// `UnsupportedModel` when `d_model` is no multiple of 32.
    pub fn init(&self, device: &Device) -> Result<BlockEmbedding> {
        self.load(&mut Zeros(device), "")
    }

    /// A table with the matrix `name` of `weights`.
    ///
    /// # Errors
    /// As [`WeightSource::matrix`].
    pub fn load(&self, weights: &mut dyn WeightSource, name: &str) -> Result<BlockEmbedding> {
        Ok(BlockEmbedding { weight: weights.matrix(name, self.n_embedding, self.d_model)? })
    }
}

impl BlockEmbedding {
    /// Token ids, `[batch, seq]`, to the beginning of a residual stream that `next` normalizes.
    pub fn forward(&self, tokens: Tensor<2, Int>, next: &RmsNorm) -> ResidualStream {
        kernels::embed(tokens, &self.weight, next.gamma())
    }
}

/// Configuration of an [`RmsNorm`].
#[derive(Config, Debug)]
pub struct RmsNormConfig {
    /// Width of the normalized dimension.
    pub d_model: usize,
    /// Added to the mean square.
    #[config(default = 1e-5)]
    pub epsilon: f64,
}

/// Root mean square normalization (Zhang and Sennrich, 2019): `x / sqrt(mean(x²) + epsilon) * gamma`. It is no pass of its own: the kernel that writes the hidden
/// states applies gamma, the projection that reads them the rest (see [`ResidualStream`]).
#[derive(Module, Debug)]
pub struct RmsNorm {
    /// The learned scale, `[d_model]`.
    pub gamma: Param<Tensor<1>>,
    epsilon: f64,
}

impl RmsNormConfig {
    /// A normalization with a scale of ones on `device`.
    pub fn init(&self, device: &Device) -> RmsNorm {
        RmsNorm { gamma: Param::from_tensor(Tensor::ones([self.d_model], device)), epsilon: self.epsilon }
    }

    /// A normalization with the scale `name` of `weights`.
    ///
    /// # Errors
    /// As [`WeightSource::vector`].
    pub fn load(&self, weights: &mut dyn WeightSource, name: &str) -> Result<RmsNorm> {
        let gamma = weights.vector(name, self.d_model)?;
        Ok(RmsNorm { gamma: Param::from_tensor(gamma), epsilon: self.epsilon })
    }
}

impl RmsNorm {
    /// The learned scale, as kernels take it.
    pub fn gamma(&self) -> Tensor<1> {
        self.gamma.val()
    }

    /// Added to the mean square.
    pub fn epsilon(&self) -> f32 {
        self.epsilon as f32
    }
}
