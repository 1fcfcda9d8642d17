//! Choosing the next token from a model's logits.
//!
//! A [`Sampler`] is a chain of small [`LogitsFilter`]s and a draw at its end. The order is llama.cpp's:
//!
//! ```text
//! repetition, frequency and presence penalties -> top-k -> top-p -> min-p -> temperature -> draw
//! ```
//!
//! So top-p and min-p see the model's own probabilities, and a high temperature does not let more tokens in. (`transformers` scales by the
//! temperature before top-k.) At temperature 0 the choice is greedy: the token with the highest penalized logit, and of equals the one
//! with the lowest id.
//!
//! The same seed, logits and history give the same ids on every platform: the random numbers are ChaCha8's, and nothing here depends
//! on a system's math library.

mod config;
mod exp;
mod filters;
mod logits;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::RngCore;

pub use config::SamplerConfig;
pub use filters::{LogitsFilter, MinP, Penalties, Temperature, TopK, TopP};
pub use logits::{Candidate, Logits};

use crate::error::Result;
use crate::kernels::Penalty;

/// Chooses token ids. Made by [`SamplerConfig::build`].
///
/// ```
/// # use hearth::generation::sampler::SamplerConfig;
/// let mut sampler = SamplerConfig { temperature: 0.0, ..Default::default() }.build()?;
/// assert_eq!(sampler.sample(&[0.5, 2.0, 1.0], &[])?, 1);
/// # Ok::<(), hearth::error::Error>(())
/// ```
#[derive(Debug)]
pub struct Sampler {
    penalties: Option<Penalties>,
    /// What narrows the choice and shapes it, in order; nothing where the choice is greedy.
    filters: Vec<Box<dyn LogitsFilter>>,
    is_greedy: bool,
    device_top_k: Option<usize>,
    random: ChaCha8Rng,
}

impl Sampler {
    /// The id of the next token. `logits` holds one logit for each id of the vocabulary; `history` the ids so far, the latest last, prompt
    /// included, for the penalties.
    ///
    /// # Errors
    /// [`Error::InvalidParameter`](crate::error::Error::InvalidParameter) if there is no logit, if one is NaN or positive infinity,
    /// or if all are negative infinity. Negative infinity alone forbids a token.
    pub fn sample(&mut self, logits: &[f32], history: &[u32]) -> Result<u32> {
        let mut logits = Logits::new(logits)?;
        if let Some(penalties) = &self.penalties {
            penalties.filter(&mut logits, history);
        }
        Ok(self.choose(logits, history))
    }

    /// The id of the next token, like [`sample`](Self::sample), from tokens and logits that are penalized already (see
    /// [`penalties`](Self::penalties)), in any order. They must be all that [`sample`](Self::sample) would choose among: with
    /// [`device_top_k`](SamplerConfig::device_top_k) at least the k largest logits and those that equal the k-th; or at least the largest,
    /// if this [is greedy](Self::is_greedy).
    ///
    /// # Errors
    /// As [`sample`](Self::sample).
    pub fn sample_candidates(&mut self, candidates: &[(u32, f32)]) -> Result<u32> {
        let logits = Logits::from_candidates(candidates.iter().copied())?;
        Ok(self.choose(logits, &[]))
    }

    /// Whether the token with the highest penalized logit is always taken.
    pub fn is_greedy(&self) -> bool {
        self.is_greedy
    }

    /// Whether logits change before a token is chosen.
    pub fn has_penalties(&self) -> bool {
        self.penalties.is_some()
    }

    /// See [`SamplerConfig::device_top_k`].
    pub fn device_top_k(&self) -> Option<usize> {
        self.device_top_k
    }

    /// How the logits change after `history`, for a device to do it: each token once. None are for no penalties.
    pub fn penalties(&self, history: &[u32]) -> Vec<Penalty> {
        self.penalties.as_ref().map_or_else(Vec::new, |penalties| penalties.entries(history))
    }

    /// Chooses among penalized logits.
    fn choose(&mut self, mut logits: Logits, history: &[u32]) -> u32 {
        if self.is_greedy {
            return logits.best().id;
        }
        for filter in &self.filters {
            filter.filter(&mut logits, history);
        }
        self.draw(&logits)
    }

    /// Draws a candidate with the probability that its logit gives it.
    fn draw(&mut self, logits: &Logits) -> u32 {
        let weights = logits.weights();
        let total: f64 = weights.iter().sum();
        // 53 random bits are a number in [0, 1) that a f64 holds exactly.
        let uniform = (self.random.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
        let mut rest = uniform * total;
        for (candidate, weight) in logits.candidates().iter().zip(&weights) {
            rest -= weight;
            if rest < 0.0 {
                return candidate.id;
            }
        }
        // Rounding may leave a rest after the last one.
        logits.best().id
    }
}

#[cfg(test)]
mod tests;
