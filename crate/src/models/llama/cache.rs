//! The keys and values of every token so far.

use super::config::LlamaConfig;
use super::rope::RotaryEncoding;
use crate::error::Error;
use crate::kernels::{self, BlockWeight, CacheShape, ResidualStream};
use burn::tensor::{Bool, DType, Device, Int, Tensor, TensorData};
use thiserror::Error as ThisError;

/// Why generation cannot go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ThisError)]
pub enum GenerationError {
    /// The sequence would be longer than the cache.
    #[error("the sequence of {actual} tokens exceeds the maximum of {max}")]
    MaxSequenceLengthExceeded {
        /// Length that was asked for.
        actual: usize,
        /// Length that fits.
        max: usize,
    },
}

impl From<GenerationError> for Error {
    fn from(error: GenerationError) -> Self {
        match error {
            GenerationError::MaxSequenceLengthExceeded { actual, max } => Error::ContextLengthExceeded { actual, max },
        }
    }
}

/// The keys and values of one block.
#[derive(Debug)]
pub struct KeyValueCache {
    /// `[max_batch_size, 2, kv_heads, max_seq_len, words of a head]` (see the `kv_cache` kernel); absent only while the kernel has it that writes in place.
    words: Option<Tensor<5, Int>>,
    shape: CacheShape,
}

impl KeyValueCache {
    fn new(shape: CacheShape, max_batch_size: usize, device: &Device) -> Self {
        Self { words: Some(Tensor::zeros(shape.dims(max_batch_size), (device, DType::U32))), shape }
    }

    /// Writes the keys and values of the normalized stream at `position` and after; gives its queries. See [`kernels::qkv`].
    pub(super) fn append(
        &mut self,
        stream: &ResidualStream,
        wqkv: &BlockWeight,
        rope: &RotaryEncoding,
        position: Tensor<1, Int>,
        epsilon: f32,
    ) -> Tensor<3> {
        let Some(words) = self.words.take() else {
            unreachable!("the tensor is put back below before anything can fail")
        };
        let (q, words) = kernels::qkv(stream, wqkv, rope.table(), position, words, self.shape, epsilon);
        self.words = Some(words);
        q
    }

    /// The attention of queries that [`KeyValueCache::append`] gave, over what the cache holds up to them.
    pub(super) fn attend(&self, q: Tensor<3>, position: Tensor<1, Int>) -> Tensor<3> {
        let Some(words) = self.words.clone() else { unreachable!("the tensor is only absent inside of append") };
        kernels::attention(q, words, position, self.shape)
    }

    fn device_bytes(&self) -> usize {
        self.words.as_ref().map_or(0, |words| 4 * words.dims().iter().product::<usize>())
    }
}

/// The Key-Value states of all layers, and how many tokens they hold.
#[derive(Debug)]
pub struct TransformerCache {
    layers: Vec<KeyValueCache>,
    max_seq_len: usize,
    curr_seq_len: usize,
    device: Device,
}

impl TransformerCache {
    /// An empty cache for `max_batch_size` sequences of up to `config.max_seq_len` tokens:
    /// `4 · layers · kv_heads · head_dim` bytes a token and sequence in half precision.
    pub fn new(config: &LlamaConfig, max_batch_size: usize, device: &Device) -> Self {
        let shape = CacheShape {
            heads: config.num_attention_heads,
            kv_heads: config.kv_heads(),
            head_dim: config.head_dim(),
            max_seq_len: config.max_seq_len,
            precision: config.kv_precision,
        };
        Self {
            layers: (0..config.num_hidden_layers).map(|_| KeyValueCache::new(shape, max_batch_size, device)).collect(),
            max_seq_len: config.max_seq_len,
            curr_seq_len: 0,
            device: device.clone(),
        }
    }

    /// Makes room for `seq_len` more tokens and counts them. Returns their causal mask, `[1, 1, seq_len, curr_seq_len]` and true where a token
    /// may not look (as `mask_fill` wants it), or none for `seq_len <= 1`. The model's own attention masks by position and needs no mask; it is
    /// for callers that bring another.
    ///
    /// # Errors
    /// `MaxSequenceLengthExceeded`, with nothing counted, when they do not fit.
    pub fn prepare(&mut self, seq_len: usize) -> Result<Option<Tensor<4, Bool>>, GenerationError> {
        let start = self.advance(seq_len)?;
        if seq_len <= 1 {
            return Ok(None);
        }
        let mask = Tensor::<2, Bool>::tril_mask([seq_len, self.curr_seq_len], start as i64, &self.device);
        Ok(Some(mask.unsqueeze()))
    }

    /// As [`TransformerCache::prepare`], without building a mask. Returns the position of the first of the new tokens.
    pub(crate) fn advance(&mut self, seq_len: usize) -> Result<usize, GenerationError> {
        let actual = self.curr_seq_len + seq_len;
        if actual > self.max_seq_len {
            return Err(GenerationError::MaxSequenceLengthExceeded { actual, max: self.max_seq_len });
        }
        Ok(std::mem::replace(&mut self.curr_seq_len, actual))
    }

    /// Clears all states and sets the length to 0. (The memory stays: what lies past the length is never read.)
    pub fn reset(&mut self) {
        self.truncate(0);
    }

    /// Forgets all but the first `length` tokens.
    pub fn truncate(&mut self, length: usize) {
        self.curr_seq_len = self.curr_seq_len.min(length);
    }

    /// Tokens in the cache.
    pub fn len(&self) -> usize {
        self.curr_seq_len
    }

    /// Whether the cache holds no token.
    pub fn is_empty(&self) -> bool {
        self.curr_seq_len == 0
    }

    /// Tokens that fit.
    pub fn max_seq_len(&self) -> usize {
        self.max_seq_len
    }

    /// Bytes that the cache takes on its device.
    pub fn device_bytes(&self) -> usize {
        self.layers.iter().map(KeyValueCache::device_bytes).sum()
    }

    /// The blocks' caches, in order.
    pub(super) fn layers_mut(&mut self) -> &mut [KeyValueCache] {
        &mut self.layers
    }

    /// A device buffer with one `u32`: `position`.
    pub(super) fn position(&self, position: usize) -> Tensor<1, Int> {
        Tensor::from_data(TensorData::new(vec![position as u32], [1]), (&self.device, DType::U32))
    }
}

#[cfg(all(test, not(target_arch = "wasm32")))]
mod tests {
    use super::*;

    fn cache() -> TransformerCache {
        let config = LlamaConfig::new(32, 32, 2, 2, 32).with_max_seq_len(5);
        TransformerCache::new(&config, 1, &crate::device::cpu())
    }

    #[test]
    fn prepare_counts_tokens_and_masks_only_those_that_come_together() {
        let mut cache = cache();
        assert!(cache.prepare(1).unwrap().is_none());
        let mask = cache.prepare(3).unwrap().unwrap();
        assert_eq!(mask.dims(), [1, 1, 3, 4]);
        let hidden: Vec<bool> = mask.into_data().try_into_vec().unwrap();
        #[rustfmt::skip]
        assert_eq!(hidden, [
            false, false, true, true,
            false, false, false, true,
            false, false, false, false,
        ]);
        assert_eq!(cache.len(), 4);
    }

    #[test]
    fn prepare_refuses_what_does_not_fit_and_changes_nothing() {
        let mut cache = cache();
        cache.prepare(4).unwrap();
        let error = cache.prepare(2).unwrap_err();
        assert_eq!(error, GenerationError::MaxSequenceLengthExceeded { actual: 6, max: 5 });
        assert_eq!(cache.len(), 4);
        cache.prepare(1).unwrap();
    }

    #[test]
    fn reset_empties_the_cache() {
        let mut cache = cache();
        cache.prepare(5).unwrap();
        cache.reset();
        assert!(cache.is_empty());
        cache.prepare(5).unwrap();
    }
}
