//! What a user can set about sampling, and its ranges.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use serde::{Deserialize, Serialize};

use super::{LogitsFilter, MinP, Penalties, Sampler, Temperature, TopK, TopP};
use crate::error::{Error, Result};
use crate::kernels::MAX_TOP_K;

/// How tokens are chosen. The defaults are llama.cpp's.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SamplerConfig {
    /// What the logits are divided by. 0 is greedy: always the most likely token. At least 0; default 0.8.
    pub temperature: f32,
    /// How many of the most likely tokens stay. 0 is all; default 40.
    pub top_k: usize,
    /// The probability that the most likely tokens which stay have together. Above 0 and at most 1, which is all; default 0.95.
    pub top_p: f32,
    /// The probability that a token must have to stay, as a share of the most likely one's. 0 to 1, where 0 is all; default 0.05.
    pub min_p: f32,
    /// What the logit of a token that occurred is divided by, or multiplied by if it is negative. Above 0; default 1, which is none.
    pub repetition_penalty: f32,
    /// What is subtracted from the logit of a token each time it occurred. Default 0.
    pub frequency_penalty: f32,
    /// What is subtracted from the logit of a token that occurred. Default 0.
    pub presence_penalty: f32,
    /// How many of the latest tokens the penalties look at. Default 64.
    pub penalty_window: usize,
    /// Where the random numbers start. The same seed gives the same text. Default 0.
    pub seed: u64,
}

impl Default for SamplerConfig {
    fn default() -> Self {
        SamplerConfig {
            temperature: 0.8,
            top_k: 40,
            top_p: 0.95,
            min_p: 0.05,
            repetition_penalty: 1.0,
            frequency_penalty: 0.0,
            presence_penalty: 0.0,
            penalty_window: 64,
            seed: 0,
        }
    }
}

impl SamplerConfig {
    /// Checks every field.
    ///
    /// # Errors
    /// [`Error::InvalidParameter`] that names the first field which is out of its range.
    pub fn validate(&self) -> Result<()> {
        let fields = [
            ("temperature", self.temperature, self.temperature >= 0.0, "a finite number of at least 0"),
            ("top_p", self.top_p, self.top_p > 0.0 && self.top_p <= 1.0, "a number above 0 and at most 1"),
            ("min_p", self.min_p, (0.0..=1.0).contains(&self.min_p), "a number from 0 to 1"),
            ("repetition_penalty", self.repetition_penalty, self.repetition_penalty > 0.0, "a finite number above 0"),
            ("frequency_penalty", self.frequency_penalty, true, "a finite number"),
            ("presence_penalty", self.presence_penalty, true, "a finite number"),
        ];
        for (name, value, in_range, range) in fields {
            if !value.is_finite() || !in_range {
                return Err(Error::InvalidParameter { name, reason: format!("{value} is not {range}") });
            }
        }
        Ok(())
    }

    /// A sampler with the filters that this turns on.
    ///
    /// # Errors
    /// Those of [`validate`](Self::validate).
    pub fn build(&self) -> Result<Sampler> {
        self.validate()?;
        let is_greedy = self.temperature == 0.0;
        let mut filters: Vec<Box<dyn LogitsFilter>> = Vec::new();
        if !is_greedy {
            if self.top_k > 0 {
                filters.push(Box::new(TopK(self.top_k)));
            }
            if self.top_p < 1.0 {
                filters.push(Box::new(TopP(self.top_p)));
            }
            if self.min_p > 0.0 {
                filters.push(Box::new(MinP(self.min_p)));
            }
            if self.temperature != 1.0 {
                filters.push(Box::new(Temperature(self.temperature)));
            }
        }
        Ok(Sampler {
            penalties: self.penalties(),
            filters,
            is_greedy,
            device_top_k: self.device_top_k(),
            random: ChaCha8Rng::seed_from_u64(self.seed),
        })
    }

    /// How many of the largest logits [`Sampler::sample_candidates`] needs, if a device can find that many; `None` where the choice is greedy or
    /// among more.
    pub fn device_top_k(&self) -> Option<usize> {
        (self.temperature > 0.0 && (1..=MAX_TOP_K).contains(&self.top_k)).then_some(self.top_k)
    }

    /// The penalties, if there are any.
    fn penalties(&self) -> Option<Penalties> {
        let penalties = Penalties {
            repetition: self.repetition_penalty,
            frequency: self.frequency_penalty,
            presence: self.presence_penalty,
            window: self.penalty_window,
        };
        (!penalties.do_nothing()).then_some(penalties)
    }
}
