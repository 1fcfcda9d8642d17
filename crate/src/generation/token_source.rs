//! Where the tokens of an answer come from: the choices of a decode step on a GPU, or logits that are read and sampled on the host.

use super::decode_step::{Choice, StepLogits};
use super::sampler::Sampler;
use super::session::{NextLogits, Session, Step, read};
use crate::error::{Error, Result};
use crate::kernels::{self, NO_TOKEN};
use crate::models::llama::Logits;
use std::pin::Pin;
use web_time::Duration;

/// A step that takes less than this is followed by the next before its token has arrived. A slower device gains nothing by it, and what it has begun when an answer
/// ends keeps it busy.
const RUN_AHEAD_BELOW: Duration = Duration::from_millis(50);

/// A choice that was submitted.
type Chosen = Pin<Box<dyn Future<Output = Result<Vec<u32>>>>>;

/// The tokens after those in a session's cache.
pub(super) struct Source {
    choice: Choice,
    logits: StepLogits,
    /// The next token's choice, where the device ran ahead.
    ahead: Option<Chosen>,
    /// Whether the device may be ahead.
    runs_ahead: bool,
}

impl Source {
    /// The tokens that follow `logits`.
    pub fn new(session: &Session, logits: NextLogits, sampler: &Sampler) -> Result<Self> {
        let choice = Choice::of(sampler);
        let mut runs_ahead = false;
        if let Step::Device(step) = &session.step {
            step.begin(choice, session.tokens.len())?;
            runs_ahead = choice == Choice::Greedy && step.pace() < RUN_AHEAD_BELOW;
        }
        Ok(Self { choice, logits: StepLogits::of(logits.into_tensor()), ahead: None, runs_ahead })
    }

    /// Chooses the next token.
    pub async fn next(&mut self, session: &mut Session, sampler: &mut Sampler) -> Result<u32> {
        let chosen = match self.ahead.take() {
            Some(chosen) => Some(chosen),
            None => self.submit(session, sampler)?,
        };
        match chosen {
            Some(chosen) => self.await_token(chosen, session, sampler).await,
            None => {
                let logits = read(self.logits.tensor()).await?;
                let token = sampler.sample(&logits, &session.tokens)?;
                if let Step::Device(step) = &session.step {
                    step.place(token, session.tokens.len())?;
                }
                Ok(token)
            }
        }
    }

    /// Enqueues the forward pass of the token that was chosen.
    pub fn accept(&mut self, session: &mut Session, token: u32) -> Result<()> {
        match &session.step {
            Step::Device(step) => {
                session.cache.advance(1)?;
                session.tokens.push(token);
                // Running ahead has done it.
                if self.ahead.is_none() {
                    self.logits = step.forward(&session.model, &mut session.cache)?;
                }
            }
            Step::New | Step::Host => self.logits = StepLogits::of(session.enqueue(&[token], Logits::Last)?),
        }
        Ok(())
    }

    /// Waits for what the device was ahead: a read-back that nobody waits for would leave its buffer mapped.
    pub async fn end(mut self) {
        if let Some(chosen) = self.ahead.take() {
            // Nobody wants the token, nor why there is none.
            let _ = chosen.await;
        }
    }

    /// Submits a choice among the current logits; none where the host has to make it.
    fn submit(&self, session: &Session, sampler: &Sampler) -> Result<Option<Chosen>> {
        let Step::Device(step) = &session.step else { return Ok(None) };
        if self.choice == Choice::All {
            return Ok(None);
        }
        if sampler.has_penalties() {
            match kernels::penalty_words(&sampler.penalties(&session.tokens)) {
                Some(words) => step.penalize(&words)?,
                None => return Ok(None),
            }
        }
        Ok(Some(Box::pin(step.choose(self.choice, &self.logits)?)))
    }

    /// Waits for a choice. Where steps are fast and the next one needs nothing from the host, that is submitted first.
    async fn await_token(&mut self, chosen: Chosen, session: &mut Session, sampler: &mut Sampler) -> Result<u32> {
        if let Step::Device(step) = &session.step
            && self.runs_ahead
            && session.tokens.len() < session.cache.max_seq_len()
        {
            self.logits = step.forward(&session.model, &mut session.cache)?;
            self.ahead = self.submit(session, sampler)?;
        }
        let words = chosen.await?;
        match (self.choice, &session.step) {
            (Choice::TopK(_), Step::Device(step)) => {
                let token = sampler.sample_candidates(&kernels::candidates(&words))?;
                step.place(token, session.tokens.len())?;
                Ok(token)
            }
            _ => match words.first() {
                Some(&token) if token != NO_TOKEN => Ok(token),
                _ => Err(Error::InvalidParameter { name: "logits", reason: "none of them is finite".into() }),
            },
        }
    }
}
