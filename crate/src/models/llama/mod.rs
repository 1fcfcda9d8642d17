//! Llama (Touvron et al., 2023), as TinyLlama, Llama 3.x and SmolLM2 are built: pre-normalized blocks of grouped-query attention with rotary
//! positions and a SwiGLU feed-forward. Names follow Burn-LM.

mod attention;
mod block;
mod cache;
mod config;
mod feed_forward;
mod rope;
mod shapes;
mod transformer;

pub use attention::{MultiHeadAttention, MultiHeadAttentionConfig};
pub use block::{TransformerBlock, TransformerBlockConfig};
pub use cache::{GenerationError, KeyValueCache, TransformerCache};
pub use config::{LlamaConfig, RopeConfig, RopeFrequencyScaling};
pub use feed_forward::{FeedForward, FeedForwardConfig, SwiGlu};
pub use rope::{RotaryEncoding, RotaryEncodingConfig};
pub use transformer::{Logits, Transformer};
