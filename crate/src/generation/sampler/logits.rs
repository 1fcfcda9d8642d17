//! The tokens that can still be chosen, with their logits.

use super::exp::exp;
use crate::error::{Error, Result};

/// A token that can be chosen.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Candidate {
    /// The token's id.
    pub id: u32,
    /// Its logit: the logarithm of its probability, up to a constant that all share.
    pub logit: f32,
}

/// The candidates for the next token. There is always at least one with a finite logit.
#[derive(Debug, Clone, PartialEq)]
pub struct Logits {
    candidates: Vec<Candidate>,
    /// Whether they stand in descending order of their logits, those of equals in ascending order of their ids. If not, every id is
    /// there and at its own index.
    is_sorted: bool,
}

impl Logits {
    /// From one logit for each id.
    ///
    /// # Errors
    /// [`Error::InvalidParameter`] if a logit is NaN or positive infinity, or if none is finite.
    pub fn new(logits: &[f32]) -> Result<Self> {
        let candidate = |(id, &logit)| Candidate { id, logit };
        Logits { candidates: (0..).zip(logits).map(candidate).collect(), is_sorted: false }.checked()
    }

    /// From the tokens that are left of a vocabulary, in any order, none twice.
    ///
    /// # Errors
    /// As [`Logits::new`].
    pub fn from_candidates(candidates: impl IntoIterator<Item = (u32, f32)>) -> Result<Self> {
        let candidates = candidates.into_iter().map(|(id, logit)| Candidate { id, logit }).collect();
        let mut logits = Logits { candidates, is_sorted: false }.checked()?;
        logits.sort();
        Ok(logits)
    }

    /// Itself, if one can choose from it.
    fn checked(self) -> Result<Self> {
        let invalid = |reason: String| Error::InvalidParameter { name: "logits", reason };
        let bad = |candidate: &&Candidate| candidate.logit.is_nan() || candidate.logit == f32::INFINITY;
        if let Some(Candidate { id, logit }) = self.candidates.iter().find(bad) {
            return Err(invalid(format!("that of token {id} is {logit}")));
        }
        if !self.candidates.iter().any(|candidate| candidate.logit.is_finite()) {
            return Err(invalid(format!("none of the {} is finite", self.candidates.len())));
        }
        Ok(self)
    }

    /// The candidates.
    pub fn candidates(&self) -> &[Candidate] {
        &self.candidates
    }

    /// The candidate with the highest logit, of equals the one with the lowest id.
    pub fn best(&self) -> Candidate {
        let nothing = Candidate { id: 0, logit: f32::NEG_INFINITY };
        (self.candidates.iter().copied()).fold(nothing, |best, candidate| match better(&candidate, &best).is_lt() {
            true => candidate,
            false => best,
        })
    }

    /// Changes the logit of token `id`, if it is a candidate and not forbidden. The result is kept finite.
    pub fn update(&mut self, id: u32, change: impl FnOnce(f32) -> f32) {
        let found = match self.is_sorted {
            false => self.candidates.get_mut(id as usize),
            true => self.candidates.iter_mut().find(|candidate| candidate.id == id),
        };
        let Some(candidate) = found.filter(|candidate| candidate.logit.is_finite()) else {
            return;
        };
        let changed = change(candidate.logit);
        candidate.logit = match changed.is_nan() {
            true => f32::MIN,
            false => changed.clamp(f32::MIN, f32::MAX),
        };
        if self.is_sorted {
            self.candidates.sort_unstable_by(better);
        }
    }

    /// Divides every logit, which keeps their order.
    pub fn divide(&mut self, divisor: f32) {
        // Only differences count, and from the best one they cannot overflow upwards.
        let best = self.best().logit;
        for candidate in &mut self.candidates {
            candidate.logit = (candidate.logit - best) / divisor;
        }
    }

    /// Keeps the `count` best candidates, at least one.
    pub fn keep_best(&mut self, count: usize) {
        let count = count.max(1);
        if !self.is_sorted && count < self.candidates.len() {
            self.candidates.select_nth_unstable_by(count - 1, better);
            self.candidates.truncate(count);
        }
        self.sort();
        self.candidates.truncate(count);
    }

    /// Puts the candidates in descending order of their logits.
    pub fn sort(&mut self) {
        if !self.is_sorted {
            self.candidates.sort_unstable_by(better);
            self.is_sorted = true;
        }
    }

    /// For each candidate its probability as a multiple of the best one's: from 0 to 1.
    pub fn weights(&self) -> Vec<f64> {
        let best = f64::from(self.best().logit);
        (self.candidates.iter()).map(|candidate| exp(f64::from(candidate.logit) - best)).collect()
    }
}

/// The order of descending logits and ascending ids, which leaves nothing to chance.
fn better(a: &Candidate, b: &Candidate) -> std::cmp::Ordering {
    b.logit.total_cmp(&a.logit).then(a.id.cmp(&b.id))
}
