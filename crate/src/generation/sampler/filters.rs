//! The links of the sampling chain: each takes candidates away or changes their logits.

use std::collections::BTreeMap;

use super::Logits;
use crate::kernels::Penalty;

/// One link of the chain.
pub trait LogitsFilter: std::fmt::Debug + Send {
    /// Narrows or reshapes the choice. `history` holds the ids so far, the latest last.
    fn filter(&self, logits: &mut Logits, history: &[u32]);
}

/// Makes tokens that occurred lately less likely.
///
/// The repetition penalty is that of [CTRL](https://arxiv.org/abs/1909.05858), section 4.1: a positive logit is divided by it and a negative
/// one multiplied. The others are OpenAI's: `count x frequency + presence` is subtracted.
#[derive(Debug, Clone, PartialEq)]
pub struct Penalties {
    /// Above 0; 1 does nothing.
    pub repetition: f32,
    /// 0 does nothing.
    pub frequency: f32,
    /// 0 does nothing.
    pub presence: f32,
    /// How many of the latest tokens count.
    pub window: usize,
}

impl Penalties {
    /// Whether every logit stays as it is.
    pub(super) fn do_nothing(&self) -> bool {
        self.repetition == 1.0 && self.frequency == 0.0 && self.presence == 0.0 || self.window == 0
    }

    /// What happens to each token that occurred lately, in ascending order of their ids.
    pub fn entries(&self, history: &[u32]) -> Vec<Penalty> {
        let latest = &history[history.len().saturating_sub(self.window)..];
        let mut counts = BTreeMap::new();
        for &id in latest {
            *counts.entry(id).or_insert(0.0) += 1.0;
        }
        // A factor, because a device divides less exactly than it multiplies.
        let if_positive = (1.0 / self.repetition).min(f32::MAX);
        let entry = |(id, count): (u32, f32)| Penalty {
            id,
            if_positive,
            if_negative: self.repetition,
            subtract: (count * self.frequency + self.presence).clamp(f32::MIN, f32::MAX),
        };
        counts.into_iter().map(entry).collect()
    }
}

impl LogitsFilter for Penalties {
    fn filter(&self, logits: &mut Logits, history: &[u32]) {
        for penalty in self.entries(history) {
            logits.update(penalty.id, |logit| penalty.apply(logit));
        }
    }
}

/// Keeps the most likely tokens, this many.
#[derive(Debug, Clone, PartialEq)]
pub struct TopK(pub usize);

impl LogitsFilter for TopK {
    fn filter(&self, logits: &mut Logits, _history: &[u32]) {
        logits.keep_best(self.0);
    }
}

/// Keeps the fewest most likely tokens that have at least this probability together
/// ([nucleus sampling](https://arxiv.org/abs/1904.09751)).
#[derive(Debug, Clone, PartialEq)]
pub struct TopP(pub f32);

impl LogitsFilter for TopP {
    fn filter(&self, logits: &mut Logits, _history: &[u32]) {
        logits.sort();
        let weights = logits.weights();
        let wanted = f64::from(self.0) * weights.iter().sum::<f64>();
        let mut together = 0.0;
        let last = weights.iter().position(|weight| {
            together += weight;
            together >= wanted
        });
        if let Some(last) = last {
            logits.keep_best(last + 1);
        }
    }
}

/// Keeps the tokens that have at least this share of the most likely one's probability ([min-p](https://arxiv.org/abs/2407.01082)).
#[derive(Debug, Clone, PartialEq)]
pub struct MinP(pub f32);

impl LogitsFilter for MinP {
    fn filter(&self, logits: &mut Logits, _history: &[u32]) {
        let enough = |&&weight: &&f64| weight >= f64::from(self.0);
        let count = logits.weights().iter().filter(enough).count();
        logits.keep_best(count);
    }
}

/// Divides the logits: above 1 for more variety, below for less. Not 0.
#[derive(Debug, Clone, PartialEq)]
pub struct Temperature(pub f32);

impl LogitsFilter for Temperature {
    fn filter(&self, logits: &mut Logits, _history: &[u32]) {
        logits.divide(self.0);
    }
}
