//! The whole network: embedding, blocks, normalization, output head.

use super::block::TransformerBlock;
use super::cache::{GenerationError, TransformerCache};
use super::rope::RotaryEncoding;
use crate::device::submit;
use crate::kernels::{self, BlockWeight};
use crate::models::layers::{BlockEmbedding, BlockLinear, RmsNorm};
use burn::module::Module;
use burn::tensor::{Int, Tensor};

/// Layers of a prompt that are submitted together.
const SUBMIT_LAYERS: usize = 4;

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
        let [_, seq] = tokens.dims();
        let start = cache.advance(seq)?;
        let position = cache.position(start);
        let last = (logits == Logits::Last && seq > 1).then(|| cache.position(start + seq - 1));
        Ok(self.run(tokens, position, last, cache))
    }

    /// The launches of [`Transformer::forward`]: `position` is a buffer with the number of tokens before these, for which the cache has made room; `last`, where only the
    /// last of several tokens gets logits, one with the number before that.
    pub(crate) fn run(
        &self,
        tokens: Tensor<2, Int>,
        position: Tensor<1, Int>,
        last: Option<Tensor<1, Int>>,
        cache: &mut TransformerCache,
    ) -> Tensor<3> {
        // Each block leaves the stream ready for the norm that comes next.
        let norms = self.layers.iter().skip(1).map(|layer| &layer.attention_norm).chain([&self.norm]);
        let first = self.layers.first().map_or(&self.norm, |layer| &layer.attention_norm);

        let seq = tokens.dims()[1];
        let layers = self.layers.len();
        let device = tokens.device();
        let mut stream = self.tok_embeddings.forward(tokens, first);
        for (index, ((layer, cache), next)) in self.layers.iter().zip(cache.layers_mut()).zip(norms).enumerate() {
            // The last layer keeps the keys and values of all tokens, and computes what is left of it for those that get logits.
            let last = last.clone().filter(|_| index == layers - 1);
            stream = layer.forward(stream, next, cache, &self.rope, position.clone(), last);
            // A token is one submission. A prompt's work is handed over in pieces: a slow GPU must not look as if it hung.
            if seq > 1 && index % SUBMIT_LAYERS == SUBMIT_LAYERS - 1 {
                submit(&device);
            }
        }
        kernels::project(&stream, self.head(), self.norm.epsilon())
    }

    /// Every matrix that a token is multiplied with, in the order in which they are used.
    pub fn weights(&self) -> impl Iterator<Item = &BlockWeight> {
        self.layers
            .iter()
            .flat_map(|layer| {
                let (attention, feed_forward) = (&layer.attention, &layer.feed_forward);
                [
                    &attention.wqkv,
                    &attention.wo.weight,
                    &feed_forward.swiglu.linear_inner_outer,
                    &feed_forward.w2.weight,
                ]
            })
            .chain([self.head()])
    }

    /// Bytes of weights on the device.
    pub fn device_bytes(&self) -> usize {
        let matrices: usize = self.weights().map(BlockWeight::device_bytes).sum();
        // A tied head is the embedding, and counted already.
        let embedding = self.output.as_ref().map_or(0, |_| self.tok_embeddings.weight.device_bytes());
        let norms = 2 * self.layers.len() + 1;
        matrices + embedding + 4 * norms * self.norm.gamma().dims()[0]
    }

    /// Weights, counted one by one.
    pub fn parameters(&self) -> usize {
        let count = |weight: &BlockWeight| weight.rows() * weight.columns();
        let embedding = self.output.as_ref().map_or(0, |_| count(&self.tok_embeddings.weight));
        self.weights().map(count).sum::<usize>() + embedding + (2 * self.layers.len() + 1) * self.norm.gamma().dims()[0]
    }

    /// The output head's weight.
    pub fn head(&self) -> &BlockWeight {
        self.output.as_ref().map_or(&self.tok_embeddings.weight, |output| &output.weight)
    }
}
