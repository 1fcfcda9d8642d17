//! The twins of `sampling` and `top_k` on Burn's Flex CPU backend.

use super::sampling::{MAX_PENALIZED, NO_TOKEN, Penalty};
use super::top_k::{CANDIDATE_CAPACITY, CANDIDATE_WORDS, MAX_TOP_K};
use burn::tensor::TensorData;
use burn_flex::FlexTensor;
use std::cmp::Ordering;

/// See [`penalize`](super::penalize).
pub(super) fn penalize(logits: FlexTensor, penalties: FlexTensor) -> FlexTensor {
    let (mut logits, penalties) = (logits.to_contiguous(), penalties.to_contiguous());
    let words = penalties.storage::<u32>();
    let values = logits.storage_mut::<f32>();
    for entry in words[1..].chunks_exact(4).take((words[0] as usize).min(MAX_PENALIZED)) {
        let [if_positive, if_negative, subtract] = [entry[1], entry[2], entry[3]].map(f32::from_bits);
        let penalty = Penalty { id: entry[0], if_positive, if_negative, subtract };
        if let Some(logit) = values.get_mut(penalty.id as usize) {
            *logit = penalty.apply(*logit);
        }
    }
    logits
}

/// See [`greedy`](super::greedy).
pub(super) fn greedy(logits: FlexTensor, mut token: FlexTensor, mut position: FlexTensor) -> (FlexTensor, FlexTensor) {
    let logits = logits.to_contiguous();
    let best = possible(&logits).min_by(better);
    token.storage_mut::<u32>()[0] = best.map_or(NO_TOKEN, |(id, _)| id);
    position.storage_mut::<u32>()[0] += 1;
    (token, position)
}

/// See [`top_k`](super::top_k).
pub(super) fn top_k(logits: FlexTensor, k: FlexTensor) -> FlexTensor {
    let logits = logits.to_contiguous();
    let k = (k.storage::<u32>()[0] as usize).clamp(1, MAX_TOP_K);
    let mut candidates: Vec<(u32, f32)> = possible(&logits).collect();
    if candidates.len() > k {
        let (_, &mut (_, kth), _) = candidates.select_nth_unstable_by(k - 1, better);
        candidates.retain(|(_, logit)| logit.total_cmp(&kth).is_ge());
    }
    candidates.sort_unstable_by(better);
    candidates.truncate(CANDIDATE_CAPACITY);
    let mut words = vec![candidates.len() as u32, 0];
    words.extend(candidates.iter().flat_map(|(id, logit)| [*id, logit.to_bits()]));
    words.resize(CANDIDATE_WORDS, 0);
    FlexTensor::from_data(TensorData::new(words, [CANDIDATE_WORDS]))
}

/// The tokens that may be chosen.
fn possible(logits: &FlexTensor) -> impl Iterator<Item = (u32, f32)> {
    (0..).zip(logits.storage::<f32>().iter().copied()).filter(|(_, logit)| *logit > f32::NEG_INFINITY)
}

/// Descending logits, and of equals ascending ids.
fn better(a: &(u32, f32), b: &(u32, f32)) -> Ordering {
    b.1.total_cmp(&a.1).then(a.0.cmp(&b.0))
}
