//! A loaded model that answers: template, tokens, generation and text in one place.

use crate::chat::{ChatTemplate, Message, RenderOptions};
use crate::error::{Error, Result};
use crate::generation::sampler::SamplerConfig;
use crate::generation::stop::StopStrings;
use crate::generation::{CancelToken, FinishReason, Session};
use crate::models::llama::{LlamaConfig, Logits, Transformer};
use crate::tokenizer::{StreamDecoder, Tokenizer};
use burn::tensor::Device;
use serde::{Deserialize, Serialize};
use std::ops::ControlFlow;
use web_time::Instant;

/// What a file says of its model, and what it takes.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ModelInfo {
    /// The name in the file.
    pub name: String,
    /// `general.architecture`.
    pub architecture: String,
    /// Weights, counted one by one.
    pub parameters: u64,
    /// Tokens that a conversation may have.
    pub context_length: usize,
    /// Bytes of weights on the device.
    pub device_bytes: usize,
}

/// How to answer.
#[derive(Debug, Clone, Deserialize)]
#[serde(default)]
pub struct GenerationOptions {
    /// How tokens are chosen.
    #[serde(flatten)]
    pub sampler: SamplerConfig,
    /// Tokens after which the answer ends.
    pub max_tokens: usize,
    /// Strings at which the answer ends; they are not part of it.
    pub stop: Vec<String>,
}

impl Default for GenerationOptions {
    fn default() -> Self {
        Self { sampler: SamplerConfig::default(), max_tokens: 512, stop: Vec::new() }
    }
}

/// A conversation to be answered.
#[derive(Debug, Clone, Deserialize)]
pub struct ChatPrompt {
    /// Its messages, the user's last.
    pub messages: Vec<Message>,
    /// The local time, in seconds since 1970-01-01 00:00 local time, for templates that state the date.
    #[serde(default)]
    pub now: Option<i64>,
}

/// What happens while an answer is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GenerationEvent<'a> {
    /// So many of the prompt's tokens are in the cache.
    Prefill {
        /// Those that are done.
        done: usize,
        /// All of them.
        total: usize,
    },
    /// A token was generated, or the answer ended with text that was held back.
    Text {
        /// What to append; whole characters only, possibly none.
        text: &'a str,
        /// Tokens of the answer so far.
        tokens: usize,
    },
}

/// Counts of tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Usage {
    /// Of the whole prompt.
    pub prompt_tokens: usize,
    /// Of the answer.
    pub completion_tokens: usize,
    /// Of the prompt, those that were in the cache already.
    pub cached_tokens: usize,
}

/// How long it took.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Timings {
    /// From the call to the first token, in milliseconds; 0 when there was none.
    pub time_to_first_token_ms: f64,
    /// Prompt tokens that were not cached, per second.
    pub prefill_tokens_per_second: f64,
    /// Tokens after the first, per second; 0 when there was at most one.
    pub decode_tokens_per_second: f64,
}

/// An answer, apart from its text, which was streamed.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Completion {
    /// The whole text.
    #[serde(skip)]
    pub text: String,
    /// Why it ended.
    pub finish_reason: FinishReason,
    /// Counts of tokens.
    pub usage: Usage,
    /// How long it took.
    pub timings: Timings,
}

/// A model with its tokenizer, template and conversation.
#[derive(Debug)]
pub struct Llama<T> {
    tokenizer: T,
    template: Option<ChatTemplate>,
    session: Session,
    info: ModelInfo,
    /// The tokens that every conversation begins with, once they were run.
    opening: Vec<u32>,
}

impl<T: Tokenizer> Llama<T> {
    /// Puts the parts together.
    pub fn new(
        model: Transformer,
        config: &LlamaConfig,
        tokenizer: T,
        template: Option<ChatTemplate>,
        info: ModelInfo,
        device: &Device,
    ) -> Self {
        Self { tokenizer, template, session: Session::new(model, config, device), info, opening: Vec::new() }
    }

    /// The model's description.
    pub fn info(&self) -> &ModelInfo {
        &self.info
    }

    /// The tokenizer.
    pub fn tokenizer(&self) -> &T {
        &self.tokenizer
    }

    /// The sequence that the model is working on.
    pub fn session_mut(&mut self) -> &mut Session {
        &mut self.session
    }

    /// The sequence alone.
    pub fn into_session(self) -> Session {
        self.session
    }

    /// Gets the session ready (see [`Session::warm_up`]), and runs what every conversation with the model's own system prompt begins with, so that the first
    /// answer need not wait for it. Forgets the conversation.
    ///
    /// # Errors
    /// As [`Session::forward`].
    pub async fn warm_up(&mut self) -> Result<()> {
        self.session.warm_up(self.tokenizer.bos_id().unwrap_or(0)).await?;
        let opening = self.encode_opening();
        if !opening.is_empty() && opening.len() < self.session.max_seq_len() {
            self.session.prefill(&opening, &CancelToken::default(), |_, _| ()).await?;
            self.opening = opening;
        }
        Ok(())
    }

    /// Forgets the conversation, but for what every conversation begins with.
    pub fn reset(&mut self) {
        let shared = self.session.tokens().iter().zip(&self.opening).take_while(|(a, b)| a == b).count();
        self.session.truncate(shared);
    }

    /// What two conversations have in common that differ from their first character on; nothing where the model has no template for them.
    fn encode_opening(&self) -> Vec<u32> {
        let encode = |text| self.encode_chat(&ChatPrompt { messages: vec![Message::user(text)], now: None });
        match (encode("A"), encode("1")) {
            (Ok(a), Ok(b)) => a.into_iter().zip(b).take_while(|(a, b)| a == b).map(|(token, _)| token).collect(),
            _ => Vec::new(),
        }
    }

    /// The token ids of a conversation, ending where the model's answer begins.
    ///
    /// # Errors
    /// `InvalidTemplate` when the model has no template or it refuses the messages.
    pub fn encode_chat(&self, prompt: &ChatPrompt) -> Result<Vec<u32>> {
        let template = self.template.as_ref().ok_or_else(|| {
            Error::InvalidTemplate("the model has none: it completes text and is not made for chat".into())
        })?;
        let options = RenderOptions { add_generation_prompt: true, now: prompt.now, ..RenderOptions::default() };
        template.encode(&self.tokenizer, &prompt.messages, &options)
    }

    /// Answers a conversation. What of it the cache already holds is not computed again. `on_event` hears how far the prompt is, then of every
    /// token; some tokens bring no text yet.
    ///
    /// # Errors
    /// As [`Llama::encode_chat`] and [`Llama::complete`].
    pub async fn chat(
        &mut self,
        prompt: &ChatPrompt,
        options: &GenerationOptions,
        cancel: &CancelToken,
        on_event: impl FnMut(GenerationEvent<'_>),
    ) -> Result<Completion> {
        let ids = self.encode_chat(prompt)?;
        self.complete(&ids, options, cancel, on_event).await
    }

    /// Generates after `prompt`; see [`Llama::chat`].
    ///
    /// # Errors
    /// `InvalidParameter` for options out of range, `ContextLengthExceeded` for a prompt that is too long, `Device` when the device fails.
    pub async fn complete(
        &mut self,
        prompt: &[u32],
        options: &GenerationOptions,
        cancel: &CancelToken,
        mut on_event: impl FnMut(GenerationEvent<'_>),
    ) -> Result<Completion> {
        if prompt.is_empty() {
            return Err(Error::InvalidParameter { name: "messages", reason: "the prompt has no tokens".into() });
        }
        if options.max_tokens == 0 {
            return Err(Error::InvalidParameter { name: "max_tokens", reason: "it must be at least 1".into() });
        }
        let mut sampler = options.sampler.build()?;
        let mut stop = StopStrings::new(&options.stop)?;
        let mut decoder = StreamDecoder::new(&self.tokenizer);
        let mut text = String::new();
        let mut tokens = 0;

        let begin = Instant::now();
        // The first that is heard of the prompt is how much of it was cached.
        let mut cached_tokens = None;
        let on_prefill = |done, total| {
            cached_tokens.get_or_insert(done);
            on_event(GenerationEvent::Prefill { done, total });
        };
        let logits = self.session.prefill(prompt, cancel, on_prefill).await?;
        let prefill_seconds = begin.elapsed().as_secs_f64();
        let cached_tokens = cached_tokens.unwrap_or(0);
        let mut first_token = begin;

        let finish_reason = match logits {
            None => FinishReason::Cancelled,
            Some(logits) => {
                let on_token = |token| {
                    tokens += 1;
                    if tokens == 1 {
                        first_token = Instant::now();
                    }
                    let piece = stop.push(&decoder.push(token)?);
                    text.push_str(&piece.text);
                    on_event(GenerationEvent::Text { text: &piece.text, tokens });
                    Ok(match (piece.stopped, tokens == options.max_tokens) {
                        (true, _) => ControlFlow::Break(FinishReason::Stop),
                        (_, true) => ControlFlow::Break(FinishReason::Length),
                        _ => ControlFlow::Continue(()),
                    })
                };
                self.session.decode(logits, &mut sampler, self.tokenizer.stop_ids(), cancel, on_token).await?
            }
        };
        // What was held back, because it might have become a stop string or a character, is text after all.
        if !stop.is_stopped() {
            let mut rest = stop.push(&decoder.finish()).text;
            if !stop.is_stopped() {
                rest.push_str(&stop.finish());
            }
            if !rest.is_empty() {
                text.push_str(&rest);
                on_event(GenerationEvent::Text { text: &rest, tokens });
            }
        }

        let per_second =
            |count: usize, seconds: f64| if count > 0 && seconds > 0.0 { count as f64 / seconds } else { 0.0 };
        Ok(Completion {
            text,
            finish_reason,
            usage: Usage { prompt_tokens: prompt.len(), completion_tokens: tokens, cached_tokens },
            timings: Timings {
                time_to_first_token_ms: first_token.duration_since(begin).as_secs_f64() * 1e3,
                prefill_tokens_per_second: per_second(prompt.len() - cached_tokens, prefill_seconds),
                decode_tokens_per_second: per_second(tokens.saturating_sub(1), first_token.elapsed().as_secs_f64()),
            },
        })
    }

    /// The negative log-likelihood, in nats, of each of `tokens` but the first, given those before it. Forgets the conversation.
    ///
    /// # Errors
    /// As [`Session::forward`].
    pub async fn negative_log_likelihood(&mut self, tokens: &[u32]) -> Result<Vec<f64>> {
        self.session.reset();
        let mut losses = Vec::new();
        for (index, chunk) in tokens.chunks(crate::generation::PREFILL_CHUNK).enumerate() {
            let logits = self.session.forward(chunk, Logits::All).await?;
            let next = &tokens[(index * crate::generation::PREFILL_CHUNK + 1).min(tokens.len())..];
            for (row, token) in logits.chunks_exact(logits.len() / chunk.len()).zip(next) {
                let highest = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                let total: f64 = row.iter().map(|logit| f64::from(logit - highest).exp()).sum();
                let Some(logit) = row.get(*token as usize) else {
                    return Err(Error::InvalidParameter { name: "tokens", reason: format!("{token} is no token") });
                };
                losses.push(total.ln() - f64::from(logit - highest));
            }
        }
        Ok(losses)
    }
}
