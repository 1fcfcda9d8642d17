//! From logits to a finished answer: the sampler chain, stop conditions, and the loop around a model and its cache.

pub mod sampler;
mod session;
pub mod stop;

pub use session::{CancelToken, FinishReason, PREFILL_CHUNK, Session};
