//! One step of decoding on a GPU: the forward pass of one token and the choice of the next, as recorded launches over buffers.

use super::sampler::Sampler;
use crate::device::{Recording, Words, read_words};
use crate::error::Result;
use crate::kernels::{self, MAX_PENALIZED};
use crate::models::llama::{Transformer, TransformerCache};
use burn::tensor::{Device, Int, Tensor};
use web_time::{Duration, Instant};

/// How the next token is chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Choice {
    /// The largest logit: the device gives a token.
    Greedy,
    /// The largest logit after penalties: the device gives a token.
    PenalizedGreedy,
    /// At random, among the k largest after penalties: the device gives these.
    TopK(usize),
    /// At random, among more than the device sorts out: it gives all logits.
    All,
}

impl Choice {
    /// The choice that `sampler` asks for.
    pub fn of(sampler: &Sampler) -> Self {
        match (sampler.is_greedy(), sampler.has_penalties(), sampler.device_top_k()) {
            (true, false, _) => Self::Greedy,
            (true, true, _) => Self::PenalizedGreedy,
            (false, _, Some(k)) => Self::TopK(k),
            (false, _, None) => Self::All,
        }
    }
}

/// The buffers of a step, and its launches.
///
/// The token and its position lie on the device; a greedy choice changes them there, so that the next step may follow at once.
#[derive(Debug)]
pub(super) struct DecodeStep {
    buffers: Buffers,
    recorded: Option<Recorded>,
    /// How long a step took when this was made.
    pace: Duration,
}

/// How long a step takes.
#[derive(Debug, Clone, Copy)]
pub(super) struct StepTime {
    /// Until the host has enqueued it.
    pub enqueue: Duration,
    /// Until its token has arrived.
    pub whole: Duration,
}

#[derive(Debug, Clone)]
struct Buffers {
    token: Words<2>,
    position: Words<1>,
    penalties: Words<1>,
    k: Words<1>,
}

#[derive(Debug)]
struct Recorded {
    forward: Recording,
    logits: Tensor<3>,
    greedy: Recording,
    penalized_greedy: Recording,
    top_k: Recording,
    candidates: Tensor<1, Int>,
}

/// The logits of a token, on the device.
#[derive(Debug)]
pub(super) struct StepLogits {
    tensor: Tensor<3>,
    /// Whether they lie where the recorded choices look for them.
    recorded: bool,
}

impl StepLogits {
    /// Logits of a pass that was not recorded.
    pub fn of(tensor: Tensor<3>) -> Self {
        Self { tensor, recorded: false }
    }

    /// The logits themselves.
    pub fn tensor(&self) -> Tensor<3> {
        self.tensor.clone()
    }
}

impl DecodeStep {
    /// The step of `model`, recorded where `device` can and `record` says so. `cache` holds fewer tokens than it may; what it holds stays as it is. None
    /// where `device` is no GPU.
    ///
    /// # Errors
    /// `Device` when the device fails.
    pub async fn new(
        model: &Transformer,
        cache: &mut TransformerCache,
        device: &Device,
        record: bool,
    ) -> Result<Option<Self>> {
        let buffers = Buffers {
            token: Words::zeros([1, 1], device),
            position: Words::zeros([1], device),
            penalties: Words::zeros([1 + 4 * MAX_PENALIZED], device),
            k: Words::zeros([1], device),
        };
        // The pass that warms up writes keys and values behind those that count.
        if buffers.place(0, cache.len()).is_err() || buffers.k.write(&[1]).is_err() {
            return Ok(None);
        }
        let recorded = if record { buffers.record(model, cache, device).await? } else { None };
        let mut step = Self { buffers, recorded, pace: Duration::ZERO };
        step.pace = step.time(model, cache).await?.whole;
        Ok(Some(step))
    }

    /// How long a step took when this was made.
    pub fn pace(&self) -> Duration {
        self.pace
    }

    /// Runs a greedy step behind what `cache` holds, which stays as it is, and says how long it took. The cache has room for a token.
    ///
    /// # Errors
    /// `Device` when the device fails.
    pub async fn time(&self, model: &Transformer, cache: &mut TransformerCache) -> Result<StepTime> {
        let begin = Instant::now();
        self.place(0, cache.len())?;
        let logits = self.forward(model, cache)?;
        let chosen = self.choose(Choice::Greedy, &logits)?;
        let enqueue = begin.elapsed();
        chosen.await?;
        Ok(StepTime { enqueue, whole: begin.elapsed() })
    }

    /// Gets ready to choose from the logits of the last of `position` tokens.
    ///
    /// # Errors
    /// `Device` when the device refuses.
    pub fn begin(&self, choice: Choice, position: usize) -> Result<()> {
        // A greedy choice adds one.
        self.buffers.place(0, position.saturating_sub(1))?;
        self.buffers.penalties.write(&[0; 1 + 4 * MAX_PENALIZED])?;
        match choice {
            Choice::TopK(k) => self.buffers.k.write(&[k as u32]),
            _ => Ok(()),
        }
    }

    /// Says which token comes next, after `position` others.
    ///
    /// # Errors
    /// `Device` when the device refuses.
    pub fn place(&self, token: u32, position: usize) -> Result<()> {
        self.buffers.place(token, position)
    }

    /// Sets the penalties, as [`kernels::penalty_words`] gives them, for the next choice.
    ///
    /// # Errors
    /// `Device` when the device refuses.
    pub fn penalize(&self, words: &[u32]) -> Result<()> {
        self.buffers.penalties.write(words)
    }

    /// Enqueues the forward pass of the token that was placed or chosen last. `cache` has made room for it.
    ///
    /// # Errors
    /// `Device` when the device refuses.
    pub fn forward(&self, model: &Transformer, cache: &mut TransformerCache) -> Result<StepLogits> {
        match &self.recorded {
            Some(recorded) => {
                recorded.forward.replay()?;
                Ok(StepLogits { tensor: recorded.logits.clone(), recorded: true })
            }
            None => Ok(StepLogits::of(self.buffers.forward(model, cache))),
        }
    }

    /// Enqueues and submits a choice other than [`Choice::All`] among `logits`. The future gives the token, or the candidates as
    /// [`kernels::candidates`] reads them.
    ///
    /// # Errors
    /// `Device` when the device refuses; the future's, when it fails.
    pub fn choose(
        &self,
        choice: Choice,
        logits: &StepLogits,
    ) -> Result<impl Future<Output = Result<Vec<u32>>> + use<>> {
        let buffers = &self.buffers;
        let recorded = self.recorded.as_ref().filter(|_| logits.recorded);
        let output = match (choice, recorded) {
            (Choice::Greedy, Some(recorded)) => {
                recorded.greedy.replay()?;
                None
            }
            (Choice::PenalizedGreedy, Some(recorded)) => {
                recorded.penalized_greedy.replay()?;
                None
            }
            (Choice::TopK(_) | Choice::All, Some(recorded)) => {
                recorded.top_k.replay()?;
                Some(recorded.candidates.clone())
            }
            (Choice::Greedy, None) => {
                buffers.greedy(&logits.tensor);
                None
            }
            (Choice::PenalizedGreedy, None) => {
                buffers.penalized_greedy(&logits.tensor);
                None
            }
            (Choice::TopK(_) | Choice::All, None) => Some(buffers.top_k(&logits.tensor)),
        };
        match output {
            Some(candidates) => read_words(candidates),
            None => read_words(buffers.token.tensor().reshape([1])),
        }
    }
}

impl Buffers {
    fn place(&self, token: u32, position: usize) -> Result<()> {
        self.token.write(&[token])?;
        self.position.write(&[position as u32])
    }

    /// Records the pass and every choice.
    async fn record(
        &self,
        model: &Transformer,
        cache: &mut TransformerCache,
        device: &Device,
    ) -> Result<Option<Recorded>> {
        let Some((forward, logits)) = Recording::of(device, || self.forward(model, cache)).await? else {
            return Ok(None);
        };
        let greedy = Recording::of(device, || self.greedy(&logits)).await?;
        let penalized_greedy = Recording::of(device, || self.penalized_greedy(&logits)).await?;
        let top_k = Recording::of(device, || self.top_k(&logits)).await?;
        let (Some((greedy, ())), Some((penalized_greedy, ())), Some((top_k, candidates))) =
            (greedy, penalized_greedy, top_k)
        else {
            return Ok(None);
        };
        Ok(Some(Recorded { forward, logits, greedy, penalized_greedy, top_k, candidates }))
    }

    fn forward(&self, model: &Transformer, cache: &mut TransformerCache) -> Tensor<3> {
        model.run(self.token.tensor(), self.position.tensor(), None, cache)
    }

    fn greedy(&self, logits: &Tensor<3>) {
        kernels::greedy(logits.clone(), self.token.tensor(), self.position.tensor());
    }

    fn penalized_greedy(&self, logits: &Tensor<3>) {
        self.greedy(&kernels::penalize(logits.clone(), self.penalties.tensor()));
    }

    fn top_k(&self, logits: &Tensor<3>) -> Tensor<1, Int> {
        kernels::top_k(kernels::penalize(logits.clone(), self.penalties.tensor()), self.k.tensor())
    }
}
