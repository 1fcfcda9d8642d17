//! From logits to a finished answer: the sampler chain, stop conditions, and the loop around a model and its cache.

mod decode_step;
pub mod sampler;
mod session;
pub mod stop;
mod token_source;

pub use session::{CancelToken, FinishReason, NextLogits, PREFILL_CHUNK, Session};
