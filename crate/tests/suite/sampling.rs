//! Choosing tokens on the device, against plain loops on the host and the host's own sampler.

use super::kernels::{Mix, ids, read, tensor};
use burn::tensor::{Device, Int, Tensor};
use hearth::generation::sampler::{Logits, LogitsFilter, Penalties, SamplerConfig};
use hearth::kernels::{self, CANDIDATE_CAPACITY, CANDIDATE_WORDS, NO_TOKEN, Penalty};
use std::collections::HashSet;

/// Vocabularies of models, and such as fill no group, no cube, and one more than a cube.
const VOCABULARIES: [usize; 5] = [49152, 128256, 1, 63, 4097];

async fn words<const D: usize>(tensor: Tensor<D, Int>) -> Vec<u32> {
    tensor.into_data_async().await.expect("the device answers").try_into_vec().expect("u32")
}

fn logits(values: &[f32], device: &Device) -> Tensor<3> {
    tensor(values, [1, 1, values.len()], device)
}

/// Every id with its logit, the largest first, of equals the lowest id; without NaN and -∞.
fn ranked(values: &[f32]) -> Vec<(u32, f32)> {
    let mut all: Vec<(u32, f32)> = (0..).zip(values.iter().copied()).filter(|(_, v)| *v > f32::NEG_INFINITY).collect();
    all.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    all
}

/// Logits that are hard to choose from, with a name each.
fn hard_logits() -> Vec<(&'static str, Vec<f32>)> {
    const V: usize = 49152;
    let mut mix = Mix(40);
    let with = |base: Vec<f32>, changes: &mut dyn FnMut(&mut Vec<f32>)| {
        let mut values = base;
        changes(&mut values);
        values
    };
    let random = mix.floats(V);
    vec![
        ("ascending", (0..V).map(|i| i as f32).collect()),
        ("descending", (0..V).map(|i| -(i as f32)).collect()),
        ("all equal", vec![-2.5; V]),
        (
            "the largest 64 in one group",
            with(random.clone(), &mut |v| {
                (0..64).for_each(|i| v[2 * 4096 + 5 + 64 * i] = 3.0 + ((i * 37) % 64) as f32);
            }),
        ),
        (
            "the largest 4096 in one cube",
            with(random.clone(), &mut |v| {
                (0..4096).for_each(|i| v[3 * 4096 + i] += 2.0);
            }),
        ),
        (
            "the largest 2560 in forty groups",
            with(random.clone(), &mut |v| {
                (0..4096).filter(|i| i % 64 < 40).for_each(|i| v[4096 + i] += 2.0);
            }),
        ),
        (
            "the last ones of the vocabulary",
            with(random[..4096 * 3 + 7].to_vec(), &mut |v| {
                (1..=7).for_each(|i| v[4096 * 3 + 7 - i] = 1.0 + i as f32);
            }),
        ),
        (
            "1000 equal maxima",
            with(random.clone(), &mut |v| {
                (0..1000).for_each(|i| v[i * 49] = 4.0);
            }),
        ),
        (
            "1000 equal ones below 20 larger ones",
            with(random.clone(), &mut |v| {
                (0..1000).for_each(|i| v[i * 49] = 4.0);
                (0..20).for_each(|i| v[i * 2000 + 1] = 5.0 + i as f32);
            }),
        ),
        (
            "300 equal maxima",
            with(random.clone(), &mut |v| {
                (0..300).for_each(|i| v[i * 150] = 4.0);
            }),
        ),
        ("few values", (0..V).map(|_| (mix.next() % 7) as f32 - 3.0).collect()),
        ("-∞ but one", with(vec![f32::NEG_INFINITY; V], &mut |v| v[31_000] = -1e30)),
        (
            "-∞ but 100",
            with(vec![f32::NEG_INFINITY; V], &mut |v| {
                (0..100).for_each(|i| v[i * 401] = -(i as f32));
            }),
        ),
        ("nothing but -∞", vec![f32::NEG_INFINITY; V]),
        ("zeros of both signs", (0..V).map(|i| if i == 40_000 { 0.0 } else { -0.0 }).collect()),
        (
            "NaN of both signs among them",
            with(random, &mut |v| {
                v.iter_mut().step_by(3).for_each(|v| *v = f32::NAN);
                v.iter_mut().skip(1).step_by(97).for_each(|v| *v = -f32::NAN);
            }),
        ),
        ("nothing but NaN", vec![f32::NAN; V]),
        (
            "extremes",
            with(mix.floats(V), &mut |v| {
                (v[7], v[8], v[9], v[10]) = (f32::MAX, f32::MIN, f32::MIN_POSITIVE, 1e-40);
                (v[11], v[12]) = (f32::INFINITY, f32::from_bits(1));
            }),
        ),
    ]
}

/// Random logits for each vocabulary, and the hard ones.
fn all_logits() -> Vec<(String, Vec<f32>)> {
    let mut mix = Mix(41);
    let random = VOCABULARIES.map(|v| (format!("{v} random ones"), mix.floats(v).iter().map(|v| v * 20.0).collect()));
    let hard = hard_logits().into_iter().map(|(name, values)| (name.to_owned(), values));
    random.into_iter().chain(hard).collect()
}

/// `greedy` gives the largest logit's id, of equals the lowest, and the next position. Both are written in place.
pub async fn greedy(device: &Device) {
    let (mut token, mut position) = (ids(&[77], [1, 1], device), ids(&[40], [1], device));
    for (step, (name, values)) in all_logits().into_iter().enumerate() {
        (token, position) = kernels::greedy(logits(&values, device), token, position);
        let expected = ranked(&values).first().map_or(NO_TOKEN, |(id, _)| *id);
        assert_eq!(words(token.clone()).await, [expected], "{name}");
        assert_eq!(words(position.clone()).await, [41 + step as u32], "{name}");
    }
}

/// `top_k` gives the k largest logits, with those that equal the k-th as long as there is room, each once and with its own bits.
pub async fn top_k(device: &Device) {
    for (name, values) in all_logits() {
        let ranked = ranked(&values);
        for k in [1, 2, 40, 256] {
            let what = format!("{k} of {name}");
            let found = words(kernels::top_k(logits(&values, device), ids(&[k], [1], device))).await;
            assert_eq!(found.len(), CANDIDATE_WORDS);
            assert!(found[0] as usize <= CANDIDATE_CAPACITY, "{what}: {}", found[0]);
            let found = kernels::candidates(&found);
            for (id, logit) in &found {
                assert_eq!(logit.to_bits(), values[*id as usize].to_bits(), "{what}: token {id}");
                assert!(*logit > f32::NEG_INFINITY, "{what}: token {id}");
            }
            let distinct: HashSet<u32> = found.iter().map(|(id, _)| *id).collect();
            assert_eq!(distinct.len(), found.len(), "{what}: a token twice");

            let enough = ranked.len().min(k as usize);
            assert!(found.len() >= enough, "{what}: only {}", found.len());
            let Some((_, kth)) = enough.checked_sub(1).map(|last| ranked[last]) else { continue };
            let larger = ranked.iter().take_while(|(_, logit)| logit.total_cmp(&kth).is_gt()).count();
            let needed = ranked.iter().take_while(|(_, logit)| logit.total_cmp(&kth).is_ge()).count();
            let needed = if needed <= CANDIDATE_CAPACITY { needed } else { larger };
            for (id, logit) in &ranked[..needed] {
                assert!(distinct.contains(id), "{what}: without token {id} of {logit}");
            }
        }
    }
}

/// Tokens of a history: some of them often, some outside the vocabulary.
fn history(mix: &mut Mix, length: usize, vocabulary: usize) -> Vec<u32> {
    (0..length).map(|i| if i % 3 == 0 { mix.next() % 20 } else { mix.next() % (vocabulary as u32 + 40) }).collect()
}

/// `penalize` changes the logits as the host's filter does, to the last bit but one, and leaves the others alone.
pub async fn penalize(device: &Device) {
    let mut mix = Mix(42);
    let settings = [(1.3, 0.2, 0.1, 64), (0.7, -0.3, 0.0, 64), (1.1, 0.0, -2.0, 300), (8.0, 1.0, 1.0, 0)];
    for vocabulary in VOCABULARIES {
        for (repetition, frequency, presence, window) in settings {
            let penalties = Penalties { repetition, frequency, presence, window };
            let mut values: Vec<f32> = mix.floats(vocabulary).iter().map(|v| v * 20.0).collect();
            for (id, extreme) in [f32::NEG_INFINITY, f32::MAX, f32::MIN, 0.0, -0.0].into_iter().enumerate() {
                if id + 1 < vocabulary {
                    values[id] = extreme;
                }
            }
            let history = history(&mut mix, 250, vocabulary);
            let entries = penalties.entries(&history);
            let table = kernels::penalty_words(&entries).expect("few enough");
            let changed = kernels::penalize(logits(&values, device), ids(&table, [table.len()], device));
            let changed = read(changed).await;

            let mut expected = Logits::new(&values).expect("logits");
            penalties.filter(&mut expected, &history);
            let named: HashSet<u32> = entries.iter().map(|penalty| penalty.id).collect();
            for ((candidate, changed), before) in expected.candidates().iter().zip(&changed).zip(&values) {
                let apart = changed.to_bits().abs_diff(candidate.logit.to_bits());
                let same = apart <= 1 && changed.is_finite() == candidate.logit.is_finite();
                assert!(same, "{penalties:?}: token {} has {changed}, not {}", candidate.id, candidate.logit);
                if !named.contains(&candidate.id) {
                    assert_eq!(changed.to_bits(), before.to_bits(), "{penalties:?}: token {}", candidate.id);
                }
            }
        }
    }

    // As many penalties as there may be, and one more.
    let entry = |id| Penalty { id, if_positive: 0.5, if_negative: 2.0, subtract: 1.0 };
    let most: Vec<Penalty> = (0..256).map(|i| entry(i * 7)).collect();
    let table = kernels::penalty_words(&most).expect("there is room for 256");
    let changed = read(kernels::penalize(logits(&[4.0; 4097], device), ids(&table, [table.len()], device))).await;
    let expected = |id: usize| if id.is_multiple_of(7) && id < 256 * 7 { 1.0 } else { 4.0 };
    assert!(changed.iter().enumerate().all(|(id, logit)| *logit == expected(id)));
    assert_eq!(kernels::penalty_words(&vec![entry(0); 257]), None);
}

/// Drawing from the device's candidates gives the token that drawing from all logits gives, for 200 seeds, with and without penalties.
pub async fn draws(device: &Device) {
    let mut mix = Mix(43);
    let vocabulary = 49152;
    let values: Vec<f32> = mix.floats(vocabulary).iter().map(|v| (v * 60.0).round() / 8.0).collect();
    let history = history(&mut mix, 250, vocabulary);
    let plain = SamplerConfig { temperature: 1.2, top_p: 0.9, min_p: 0.1, ..Default::default() };
    let penalized = SamplerConfig { repetition_penalty: 1.2, frequency_penalty: 0.1, penalty_window: 200, ..plain };
    let mut tokens = HashSet::new();
    for config in [plain.clone(), penalized] {
        for top_k in [1, 2, 40, 256] {
            let config = SamplerConfig { top_k, ..config.clone() };
            let k = config.device_top_k().expect("few enough") as u32;
            let penalties = config.build().expect("settings").penalties(&history);
            let table = kernels::penalty_words(&penalties).expect("few enough");
            let logits = kernels::penalize(logits(&values, device), ids(&table, [table.len()], device));
            let found = kernels::candidates(&words(kernels::top_k(logits, ids(&[k], [1], device))).await);
            for seed in 0..200 {
                let config = SamplerConfig { seed, ..config.clone() };
                let (mut ours, mut theirs) = (config.build().expect("settings"), config.build().expect("settings"));
                for draw in 0..2 {
                    let token = ours.sample_candidates(&found).expect("a token");
                    let expected = theirs.sample(&values, &history).expect("a token");
                    assert_eq!(token, expected, "top-k {top_k}, seed {seed}, draw {draw}");
                    tokens.insert(token);
                }
            }
        }
    }
    assert!(tokens.len() > 100, "the draws must differ: {}", tokens.len());
}
