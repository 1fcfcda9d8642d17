//! The shapes of well-known models.

use super::LlamaConfig;

impl LlamaConfig {
    /// Names that [`LlamaConfig::of_shape`] knows.
    pub const SHAPES: [&'static str; 4] = ["smollm2-135m", "tinyllama-1.1b", "llama-3.2-1b", "llama-3.2-3b"];

    /// The shape of the model `name`, one of [`LlamaConfig::SHAPES`].
    pub fn of_shape(name: &str) -> Option<Self> {
        let (d_model, hidden, layers, heads, kv_heads, vocabulary, tied) = match name {
            "smollm2-135m" => (576, 1536, 30, 9, 3, 49152, true),
            "tinyllama-1.1b" => (2048, 5632, 22, 32, 4, 32000, false),
            "llama-3.2-1b" => (2048, 8192, 16, 32, 8, 128_256, true),
            "llama-3.2-3b" => (3072, 8192, 28, 24, 8, 128_256, true),
            _ => return None,
        };
        Some(
            Self::new(d_model, hidden, layers, heads, vocabulary)
                .with_num_key_value_heads(Some(kv_heads))
                .with_tied_embeddings(tied),
        )
    }
}
