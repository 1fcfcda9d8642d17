//! The whole network: embedding, blocks, normalization, output head.

use super::block::TransformerBlock;
use super::cache::{GenerationError, TransformerCache};
use super::rope::RotaryEncoding;
use crate::models::layers::{BlockEmbedding, BlockLinear, RmsNorm};
use burn::module::Module;
use burn::tensor::{Int, Tensor};

/// For which tokens logits are computed: the output head is the largest matrix of a small model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Logits {
    /// Every token.
    All,
    /// The last token.
    Last,
}

/// A Llama decoder. Made by [`super::LlamaConfig`].
#[derive(Module, Debug)]
pub struct Transformer {
    /// Token embedding, `[vocab_size, d_model]`.
    pub tok_embeddings: BlockEmbedding,
    /// Blocks, first to last.
    pub layers: Vec<TransformerBlock>,
    /// Normalizes the last block's output.
    pub norm: RmsNorm,
    /// Output head, `[vocab_size, d_model]`; the embedding serves as one when absent.
    pub output: Option<BlockLinear>,
    /// Rotary positions, shared by all blocks.
    pub(super) rope: RotaryEncoding,
}

impl Transformer {
    /// Runs `tokens`, `[batch, seq]`, after those that the cache already holds, and adds them to it. Gives logits, `[batch, seq, vocab_size]`
    /// or `[batch, 1, vocab_size]`. A prompt in one call, in pieces or token by token gives the same.
    ///
    /// # Errors
    /// `MaxSequenceLengthExceeded`, with the cache unchanged, when the tokens do not fit.
    pub fn forward(
        &self,
        tokens: Tensor<2, Int>,
        cache: &mut TransformerCache,
        logits: Logits,
    ) -> Result<Tensor<3>, GenerationError> {
        let [batch, seq] = tokens.dims();
        let start = cache.advance(seq)?;
        let position = cache.position(start);

        let mut x = self.tok_embeddings.forward(tokens);
        for (layer, cache) in self.layers.iter().zip(cache.layers_mut()) {
            x = layer.forward(x, cache, &self.rope, position.clone());
        }
        if logits == Logits::Last {
            let [_, _, d_model] = x.dims();
            x = x.slice([0..batch, seq - 1..seq, 0..d_model]);
        }
        let x = self.norm.forward(x);

        Ok(match &self.output {
            Some(output) => output.forward(x),
            None => self.tok_embeddings.as_output(x),
        })
    }
}
