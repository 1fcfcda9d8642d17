//! A Llama's dimensions, from code or from a GGUF's metadata.

use super::attention::QKV;
use super::block::TransformerBlockConfig;
use super::feed_forward::GATE_UP;
use super::rope::RotaryEncodingConfig;
use super::transformer::Transformer;
use crate::error::{Error, Result};
use crate::format::gguf::{Header, Metadata};
use crate::kernels::{CacheShape, KvPrecision};
use crate::models::layers::{BlockEmbeddingConfig, BlockLinearConfig, RmsNormConfig};
use crate::models::{WeightSource, Zeros};
use burn::config::Config;
use burn::tensor::Device;

/// The GGUF tensor that an untied output head is stored in.
const OUTPUT: &str = "output.weight";

/// Configuration of a Llama model.
#[derive(Config, Debug)]
pub struct LlamaConfig {
    /// Width of the hidden states.
    pub d_model: usize,
    /// Width of the feed-forward network.
    pub hidden_size: usize,
    /// Transformer blocks.
    pub num_hidden_layers: usize,
    /// Query heads.
    pub num_attention_heads: usize,
    /// Key and value heads; as many as query heads when absent.
    pub num_key_value_heads: Option<usize>,
    /// Width of a head; `d_model / num_attention_heads` when absent.
    pub head_dim: Option<usize>,
    /// Entries of the vocabulary.
    pub vocab_size: usize,
    /// Whether the embedding is the output head too.
    #[config(default = false)]
    pub tied_embeddings: bool,
    /// Epsilon of the normalizations.
    #[config(default = 1e-5)]
    pub norm_eps: f64,
    /// Rotary positions.
    #[config(default = "RopeConfig::new()")]
    pub rope: RopeConfig,
    /// Tokens that a sequence may have.
    #[config(default = 128)]
    pub max_seq_len: usize,
    /// How keys and values are kept.
    #[config(default = "KvPrecision::F16")]
    pub kv_precision: KvPrecision,
}

/// Configuration of the rotary positions.
#[derive(Config, Debug)]
pub struct RopeConfig {
    /// Base of the frequencies.
    #[config(default = 10000.0)]
    pub theta: f64,
    /// Values of a head that rotate; all when absent.
    pub rotary_dim: Option<usize>,
    /// Llama 3's frequency scaling, as `config.json` states it.
    pub scaled: Option<RopeFrequencyScaling>,
    /// Divisors of the frequencies, as a GGUF's `rope_freqs.weight` states the same scaling; none when empty.
    #[config(default = "Vec::new()")]
    pub factors: Vec<f32>,
}

/// Llama 3's rotary frequency scaling.
#[derive(Config, Debug)]
pub struct RopeFrequencyScaling {
    /// How much longer the context became.
    #[config(default = 8.0)]
    pub scale_factor: f64,
    /// Wavelengths longer than the old context over this are scaled whole.
    #[config(default = 1.0)]
    pub low_freq_factor: f64,
    /// Wavelengths shorter than the old context over this are not scaled.
    #[config(default = 4.0)]
    pub high_freq_factor: f64,
    /// Context that the model was trained with before it was scaled.
    #[config(default = 8192)]
    pub old_context_len: usize,
}

impl LlamaConfig {
    /// The configuration that a GGUF file states, for sequences of up to `max_seq_len` tokens (less when the model was made for less).
    ///
    /// `rope_freqs.weight` is a tensor and not known yet: set `rope.factors` when it has arrived.
    ///
    /// # Errors
    /// `UnsupportedModel` for another architecture or a rope scaling that is not implemented; `InvalidFile`, naming the key, for values that make
    /// no model.
    pub fn from_gguf(header: &Header, max_seq_len: usize) -> Result<Self> {
        let metadata = &header.metadata;
        let architecture = metadata.require_str("general.architecture")?;
        if architecture != "llama" {
            return Err(Error::UnsupportedModel {
                what: format!("general.architecture = {architecture:?}"),
                reason: "this release runs the \"llama\" architecture (Llama 2 and 3, TinyLlama, SmolLM2)".into(),
            });
        }
        let n_heads = positive(metadata, "llama.attention.head_count")?;
        let n_heads_kv = optional(metadata, "llama.attention.head_count_kv")?.unwrap_or(n_heads);
        let d_model = positive(metadata, "llama.embedding_length")?;
        let head_dim = match optional(metadata, "llama.attention.key_length")? {
            Some(length) => length,
            None => d_model / n_heads,
        };
        let rotary_dim = optional(metadata, "llama.rope.dimension_count")?.unwrap_or(head_dim);
        let context = positive(metadata, "llama.context_length")?;
        let vocab_size = header
            .tensors
            .iter()
            .find(|tensor| tensor.name == "token_embd.weight")
            .map(|tensor| tensor.rows() as usize)
            .ok_or_else(|| invalid("tensor \"token_embd.weight\"", "missing".into()))?;

        if n_heads_kv > n_heads || !n_heads.is_multiple_of(n_heads_kv) {
            return Err(invalid(
                "llama.attention.head_count_kv",
                format!("{n_heads_kv} heads cannot be shared evenly by {n_heads} query heads"),
            ));
        }
        let rotates = rotary_dim > 0 && rotary_dim <= head_dim && rotary_dim.is_multiple_of(2);
        if head_dim == 0 || !head_dim.is_multiple_of(8) || !rotates {
            return Err(invalid(
                "llama.attention.key_length",
                format!("a head of {head_dim} values of which {rotary_dim} rotate"),
            ));
        }
        if let Some(length) = optional(metadata, "llama.attention.value_length")?
            && length != head_dim
        {
            return Err(unsupported("llama.attention.value_length", "it must equal the key length"));
        }
        if optional(metadata, "llama.expert_count")?.is_some_and(|count| count > 0) {
            return Err(unsupported("llama.expert_count", "mixtures of experts are not implemented"));
        }
        match metadata.str("llama.rope.scaling.type")? {
            None | Some("none") => {}
            Some(other) => {
                return Err(unsupported(&format!("llama.rope.scaling.type = {other:?}"), "it is not implemented"));
            }
        }

        let shape = CacheShape {
            heads: n_heads,
            kv_heads: n_heads_kv,
            head_dim,
            max_seq_len: context,
            precision: KvPrecision::default(),
        };
        if !shape.fits_workgroup() {
            return Err(unsupported(
                &format!("{n_heads} heads of {head_dim} values that share {n_heads_kv}"),
                "attention's kernel has no room for so wide a group of heads",
            ));
        }

        let rope = RopeConfig::new()
            .with_theta(f64::from(metadata.f32("llama.rope.freq_base")?.unwrap_or(10000.0)))
            .with_rotary_dim(Some(rotary_dim));
        let epsilon = metadata.require_f32("llama.attention.layer_norm_rms_epsilon")?;
        Ok(Self::new(
            d_model,
            positive(metadata, "llama.feed_forward_length")?,
            positive(metadata, "llama.block_count")?,
            n_heads,
            vocab_size,
        )
        .with_num_key_value_heads(Some(n_heads_kv))
        .with_head_dim(Some(head_dim))
        .with_tied_embeddings(!header.tensors.iter().any(|tensor| tensor.name == OUTPUT))
        .with_norm_eps(f64::from(epsilon))
        .with_rope(rope)
        .with_max_seq_len(max_seq_len.min(context).max(1)))
    }

    /// A model of zeros on `device`.
    ///
    /// # Errors
    /// `UnsupportedModel` when a width is no multiple of 32.
    pub fn init(&self, device: &Device) -> Result<Transformer> {
        self.load(&mut Zeros(device), device)
    }

    /// A model with the tensors of `weights`, which are on `device`.
    ///
    /// # Errors
    /// As [`WeightSource::matrix`], for the first tensor that is missing or has another shape.
    pub fn load(&self, weights: &mut dyn WeightSource, device: &Device) -> Result<Transformer> {
        let block = TransformerBlockConfig::new(
            self.d_model,
            self.hidden_size,
            self.num_attention_heads,
            self.kv_heads(),
            self.head_dim(),
        )
        .with_norm_eps(self.norm_eps);
        let rotary_dim = self.rope.rotary_dim.unwrap_or(self.head_dim());
        Ok(Transformer {
            tok_embeddings: BlockEmbeddingConfig::new(self.vocab_size, self.d_model)
                .load(weights, "token_embd.weight")?,
            layers: (0..self.num_hidden_layers).map(|index| block.load(weights, index)).collect::<Result<_>>()?,
            norm: RmsNormConfig::new(self.d_model).with_epsilon(self.norm_eps).load(weights, "output_norm.weight")?,
            output: match self.tied_embeddings {
                true => None,
                false => Some(BlockLinearConfig::new(self.d_model, self.vocab_size).load(weights, OUTPUT)?),
            },
            rope: RotaryEncodingConfig::new(self.max_seq_len, rotary_dim, self.rope.clone()).init(device)?,
        })
    }

    /// The matrices that are stacked with the matrix `name`, itself included, from the top to the bottom; `name` alone where it is not stacked.
    pub fn stacked_with(name: &str) -> Vec<String> {
        let stack = |names: &[&str]| {
            let prefix = names.iter().find_map(|suffix| name.strip_suffix(suffix))?;
            Some(names.iter().map(|suffix| format!("{prefix}{suffix}")).collect())
        };
        stack(&QKV).or_else(|| stack(&GATE_UP)).unwrap_or_else(|| vec![name.to_owned()])
    }

    /// Key and value heads.
    pub fn kv_heads(&self) -> usize {
        self.num_key_value_heads.unwrap_or(self.num_attention_heads)
    }

    /// Width of a head.
    pub fn head_dim(&self) -> usize {
        self.head_dim.unwrap_or(self.d_model / self.num_attention_heads.max(1))
    }
}

fn optional(metadata: &Metadata, key: &str) -> Result<Option<usize>> {
    Ok(metadata.u32(key)?.map(|value| value as usize))
}

fn positive(metadata: &Metadata, key: &str) -> Result<usize> {
    match metadata.require_u32(key)? {
        0 => Err(invalid(key, "0".into())),
        value => Ok(value as usize),
    }
}

fn invalid(field: &str, reason: String) -> Error {
    Error::InvalidFile { format: "GGUF", field: field.into(), reason }
}

fn unsupported(what: &str, reason: &str) -> Error {
    Error::UnsupportedModel { what: what.into(), reason: reason.into() }
}
