//! A sequence that a model is working on: what is in its cache, and the loop that adds to it.

use super::decode_step::DecodeStep;
use super::sampler::Sampler;
use super::token_source::Source;
use crate::device::sync;
use crate::error::{Error, Result};
use crate::kernels::tune;
use crate::models::llama::{LlamaConfig, Logits, Transformer, TransformerCache};
use burn::tensor::{DType, Device, Int, Tensor, TensorData};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use web_time::Duration;

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
    pub(super) model: Transformer,
    pub(super) cache: TransformerCache,
    pub(super) tokens: Vec<u32>,
    device: Device,
    pub(super) step: Step,
    replay: bool,
}

/// What decodes on the device.
#[derive(Debug)]
pub(super) enum Step {
    /// Nothing was decoded yet.
    New,
    /// The device is no GPU.
    Host,
    Device(Box<DecodeStep>),
}

/// The logits of the token that the cache holds last, still on their device.
#[derive(Debug)]
pub struct NextLogits(Tensor<3>);

impl NextLogits {
    /// Reads them: one for each entry of the vocabulary.
    ///
    /// # Errors
    /// `Device` when the device fails.
    pub async fn read(&self) -> Result<Vec<f32>> {
        read(self.0.clone()).await
    }

    pub(super) fn into_tensor(self) -> Tensor<3> {
        self.0
    }
}

impl Session {
    /// An empty sequence for `model`, which `config` made and `device` holds.
    pub fn new(model: Transformer, config: &LlamaConfig, device: &Device) -> Self {
        let cache = TransformerCache::new(config, 1, device);
        Self { model, cache, tokens: Vec::new(), device: device.clone(), step: Step::New, replay: true }
    }

    /// Whether decoding replays recorded launches, as it does unless told otherwise, or enqueues them anew for every token. The tokens are the same.
    pub fn set_replay(&mut self, replay: bool) {
        self.replay = replay;
        self.step = Step::New;
    }

    /// Bytes that the cache takes on its device.
    pub fn cache_bytes(&self) -> usize {
        self.cache.device_bytes()
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
        let before = self.tokens.len();
        let output = self.enqueue(tokens, logits)?;
        let values = read(output).await;
        if values.is_err() {
            self.truncate(before);
        }
        values
    }

    /// Enqueues what [`Session::forward`] runs, and counts the tokens as done.
    pub(super) fn enqueue(&mut self, tokens: &[u32], logits: Logits) -> Result<Tensor<3>> {
        if tokens.is_empty() {
            return Err(Error::InvalidParameter { name: "tokens", reason: "there must be at least one".into() });
        }
        let data = TensorData::new(tokens.to_vec(), [1, tokens.len()]);
        let input = Tensor::<2, Int>::from_data(data, (&self.device, DType::U32));
        let output = self.model.forward(input, &mut self.cache, logits)?;
        self.tokens.extend_from_slice(tokens);
        Ok(output)
    }

    /// Keeps what the cache shares with `prompt` (see [`Session::keep_prefix`]) and runs the rest, in chunks of [`PREFILL_CHUNK`]. Gives the last token's logits, or none
    /// when it was cancelled. `progress` is called before each chunk and at the end, with the tokens that are done and with all of them.
    ///
    /// # Errors
    /// As [`Session::forward`]; `ContextLengthExceeded` before anything runs.
    pub async fn prefill(
        &mut self,
        prompt: &[u32],
        cancel: &CancelToken,
        mut progress: impl FnMut(usize, usize),
    ) -> Result<Option<NextLogits>> {
        if prompt.len() > self.max_seq_len() {
            return Err(Error::ContextLengthExceeded { actual: prompt.len(), max: self.max_seq_len() });
        }
        let mut done = self.keep_prefix(prompt);
        let mut logits = None;
        while done < prompt.len() {
            if cancel.is_cancelled() {
                return Ok(None);
            }
            progress(done, prompt.len());
            let end = prompt.len().min(done + PREFILL_CHUNK);
            let output = self.enqueue(&prompt[done..end], Logits::Last)?;
            if let Err(error) = sync(&self.device).await {
                self.truncate(done);
                return Err(error);
            }
            logits = Some(NextLogits(output));
            done = end;
        }
        progress(done, prompt.len());
        logits
            .map(Some)
            .ok_or_else(|| Error::InvalidParameter { name: "tokens", reason: "there must be at least one".into() })
    }

    /// Lets the device choose how it computes fastest, where it can measure that: with the model's largest matrix in its blocks, for all of them. (Each type on its own
    /// would be a little better, and take pipelines that a software adapter compiles for seconds.)
    async fn tune(&mut self) {
        let blocks = self.model.layers.iter().map(|layer| &layer.feed_forward.swiglu.linear_inner_outer);
        let Some(largest) = blocks.max_by_key(|weight| weight.device_bytes()) else { return };
        for variant in tune(largest).await {
            self.model.weights().for_each(|weight| variant.choose_for(weight));
        }
        self.step = Step::New;
    }

    /// Lets the device choose its fastest kernels and compiles every pipeline that generation uses: those of a prompt by running `token` twice in one pass, the
    /// others by preparing to decode. Forgets the sequence.
    ///
    /// # Errors
    /// As [`Session::forward`].
    pub async fn warm_up(&mut self, token: u32) -> Result<()> {
        self.tune().await;
        self.reset();
        self.forward(&[token; 2], Logits::Last).await?;
        self.reset();
        self.prepare_decode().await
    }

    /// Makes what decoding needs, once: buffers, pipelines, and on a GPU the record of a step.
    ///
    /// # Errors
    /// `Device` when the device fails.
    pub async fn prepare_decode(&mut self) -> Result<()> {
        if matches!(self.step, Step::New) && self.tokens.len() < self.max_seq_len() {
            let step = DecodeStep::new(&self.model, &mut self.cache, &self.device, self.replay).await?;
            self.step = step.map_or(Step::Host, |step| Step::Device(Box::new(step)));
        }
        Ok(())
    }

    /// How long the host is busy with enqueueing one step, on a GPU with room for a token; the step changes nothing.
    ///
    /// # Errors
    /// `Device` when the device fails.
    pub async fn enqueue_time(&mut self) -> Result<Option<Duration>> {
        self.prepare_decode().await?;
        let Step::Device(step) = &self.step else { return Ok(None) };
        if self.tokens.len() == self.max_seq_len() {
            return Ok(None);
        }
        sync(&self.device).await?;
        Ok(Some(step.time(&self.model, &mut self.cache).await?.enqueue))
    }

    /// Samples tokens after the last of the cache, whose logits `prefill` gave, until `on_token` breaks, the context is full, or `cancel` asks to stop. A token in
    /// `stop_ids` ends the generation without being given out.
    ///
    /// # Errors
    /// As [`Session::forward`] and [`Sampler::sample`]; what `on_token` returns.
    pub async fn decode(
        &mut self,
        logits: NextLogits,
        sampler: &mut Sampler,
        stop_ids: &[u32],
        cancel: &CancelToken,
        mut on_token: impl FnMut(u32) -> Result<ControlFlow<FinishReason>>,
    ) -> Result<FinishReason> {
        self.prepare_decode().await?;
        let mut source = Source::new(self, logits, sampler)?;
        let reason = self.decode_from(&mut source, sampler, stop_ids, cancel, &mut on_token).await;
        source.end().await;
        reason
    }

    async fn decode_from(
        &mut self,
        source: &mut Source,
        sampler: &mut Sampler,
        stop_ids: &[u32],
        cancel: &CancelToken,
        on_token: &mut impl FnMut(u32) -> Result<ControlFlow<FinishReason>>,
    ) -> Result<FinishReason> {
        loop {
            if cancel.is_cancelled() {
                return Ok(FinishReason::Cancelled);
            }
            let token = source.next(self, sampler).await?;
            if stop_ids.contains(&token) {
                return Ok(FinishReason::Stop);
            }
            if let ControlFlow::Break(reason) = on_token(token)? {
                return Ok(reason);
            }
            if self.tokens.len() == self.max_seq_len() {
                return Ok(FinishReason::Length);
            }
            source.accept(self, token)?;
        }
    }
}

/// Reads a tensor's values.
pub(super) async fn read(tensor: Tensor<3>) -> Result<Vec<f32>> {
    let data = tensor.into_data_async().await.map_err(|error| Error::Device(error.to_string()))?;
    data.try_into_vec::<f32>().map_err(|error| Error::Device(format!("{error:?}")))
}
