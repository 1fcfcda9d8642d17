//! What a program uses: a file becomes a [`Llama`], a [`Llama`] answers.

mod llama;
mod loader;

pub use llama::{ChatPrompt, Completion, GenerationEvent, GenerationOptions, Llama, ModelInfo, Timings, Usage};
pub use loader::{LoadOptions, ModelLoader};
