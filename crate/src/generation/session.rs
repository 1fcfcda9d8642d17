//! A sequence that a model is working on: what is in its cache, and the loop that adds to it.

use super::sampler::Sampler;
use crate::error::{Error, Result};
use crate::models::llama::{LlamaConfig, Logits, Transformer, TransformerCache};
use burn::tensor::{DType, Device, Int, Tensor, TensorData};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Tokens of a prompt that run in one pass: enough to read each weight for many tokens, few enough that stopping stays prompt.
pub const PREFILL_CHUNK: usize = 64;

/// Asks a running generation to stop. Clones share the request.
#[derive(Debug, Clone, Default)]
pub struct CancelToken(Arc<AtomicBool>);

impl CancelToken {
    /// Asks.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Takes the request back.
    pub fn clear(&self) {
        self.0.store(false, Ordering::Relaxed);
    }

    /// Whether it was asked.
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Why a generation ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FinishReason {
    /// The model ended its turn, or a stop string came.
    Stop,
    /// The limit of tokens or of the context was reached.
    Length,
    /// [`CancelToken::cancel`] was called.
    Cancelled,
}

/// A model with its cache, and the tokens that the cache holds.
#[derive(Debug)]
pub struct Session {
    model: Transformer,
    cache: TransformerCache,
    tokens: Vec<u32>,
    device: Device,
}

impl Session {
    /// An empty sequence for `model`, which `config` made and `device` holds.
    pub fn new(model: Transformer, config: &LlamaConfig, device: &Device) -> Self {
        let cache = TransformerCache::new(config, 1, device);
        Self { model, cache, tokens: Vec::new(), device: device.clone() }
    }

    /// The model.
    pub fn model(&self) -> &Transformer {
        &self.model
    }

    /// The tokens whose keys and values are in the cache.
    pub fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// Tokens that the context holds.
    pub fn max_seq_len(&self) -> usize {
        self.cache.max_seq_len()
    }

    /// Forgets the sequence.
    pub fn reset(&mut self) {
        self.truncate(0);
    }

    /// Forgets all but the first `length` tokens.
    pub fn truncate(&mut self, length: usize) {
        self.cache.truncate(length);
        self.tokens.truncate(length);
    }

    /// Keeps the longest prefix that the cache shares with `prompt` (all but its last token, whose logits are wanted) and forgets the rest.
    /// Gives its length.
    pub fn keep_prefix(&mut self, prompt: &[u32]) -> usize {
        let shared = self.tokens.iter().zip(prompt).take_while(|(a, b)| a == b).count();
        let kept = shared.min(prompt.len().saturating_sub(1));
        self.truncate(kept);
        kept
    }

    /// Runs `tokens` in one pass after those in the cache. Gives the logits, `[tokens or 1, vocab_size]`, row after row.
    ///
    /// # Errors
    /// `InvalidParameter` for no tokens, `ContextLengthExceeded` with nothing changed, `Device` when the device fails: the sequence is then as it
    /// was before.
    pub async fn forward(&mut self, tokens: &[u32], logits: Logits) -> Result<Vec<f32>> {
        if tokens.is_empty() {
            return Err(Error::InvalidParameter { name: "tokens", reason: "there must be at least one".into() });
        }
        let before = self.tokens.len();
        let data = TensorData::new(tokens.to_vec(), [1, tokens.len()]);
        let input = Tensor::<2, Int>::from_data(data, (&self.device, DType::U32));
        let output = self.model.forward(input, &mut self.cache, logits)?;
        let read = output.into_data_async().await;
        let values = read
            .map_err(|error| error.to_string())
            .and_then(|data| data.try_into_vec::<f32>().map_err(|error| format!("{error:?}")));
        match values {
            Ok(values) => {
                self.tokens.extend_from_slice(tokens);
                Ok(values)
            }
            Err(error) => {
                self.truncate(before);
                Err(Error::Device(error))
            }
        }
    }

    /// Runs what of `prompt` the cache does not hold, in chunks of [`PREFILL_CHUNK`], and gives the last token's logits, or none when it was
    /// cancelled. `progress` is called before each chunk and at the end, with the tokens that are done and with all of them.
    ///
    /// # Errors
    /// As [`Session::forward`]; `ContextLengthExceeded` before anything runs.
    pub async fn prefill(
        &mut self,
        prompt: &[u32],
        cancel: &CancelToken,
        mut progress: impl FnMut(usize, usize),
    ) -> Result<Option<Vec<f32>>> {
        if prompt.len() > self.max_seq_len() {
            return Err(Error::ContextLengthExceeded { actual: prompt.len(), max: self.max_seq_len() });
        }
        let mut done = self.keep_prefix(prompt);
        let mut logits = Vec::new();
        while done < prompt.len() {
            if cancel.is_cancelled() {
                return Ok(None);
            }
            progress(done, prompt.len());
            let end = prompt.len().min(done + PREFILL_CHUNK);
            logits = self.forward(&prompt[done..end], Logits::Last).await?;
            done = end;
        }
        progress(done, prompt.len());
        Ok(Some(logits))
    }

    /// Samples tokens after the last of `logits` until `on_token` breaks, the context is full, or `cancel` asks to stop. A token in `stop_ids`
    /// ends the generation without being given out.
    ///
    /// # Errors
    /// As [`Session::forward`] and [`Sampler::sample`]; what `on_token` returns.
    pub async fn decode(
        &mut self,
        mut logits: Vec<f32>,
        sampler: &mut Sampler,
        stop_ids: &[u32],
        cancel: &CancelToken,
        mut on_token: impl FnMut(u32) -> Result<ControlFlow<FinishReason>>,
    ) -> Result<FinishReason> {
        loop {
            if cancel.is_cancelled() {
                return Ok(FinishReason::Cancelled);
            }
            let token = sampler.sample(&logits, &self.tokens)?;
            if stop_ids.contains(&token) {
                return Ok(FinishReason::Stop);
            }
            if let ControlFlow::Break(reason) = on_token(token)? {
                return Ok(reason);
            }
            if self.tokens.len() == self.max_seq_len() {
                return Ok(FinishReason::Length);
            }
            logits = self.forward(&[token], Logits::Last).await?;
        }
    }
}
