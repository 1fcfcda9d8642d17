//! What the chain promises, link by link and as a whole.

use super::*;
use crate::error::Error;

/// Everything off: draws from the model's own distribution.
fn plain() -> SamplerConfig {
    SamplerConfig { temperature: 1.0, top_k: 0, top_p: 1.0, min_p: 0.0, ..Default::default() }
}

fn logits(probabilities: &[f64]) -> Vec<f32> {
    probabilities.iter().map(|probability| probability.ln() as f32).collect()
}

/// The ids that remain after `filter`, the best first.
fn kept(filter: impl LogitsFilter, probabilities: &[f64]) -> Vec<u32> {
    let mut logits = Logits::new(&logits(probabilities)).unwrap();
    filter.filter(&mut logits, &[]);
    logits.sort();
    logits.candidates().iter().map(|candidate| candidate.id).collect()
}

/// Draws often and compares the counts with the expected probabilities by Pearson's chi-squared test: with at most seven degrees of freedom
/// a right sampler exceeds 24.3 once in a thousand seeds, and the seed is fixed.
fn assert_distribution(config: &SamplerConfig, logits: &[f32], history: &[u32], expected: &[f64]) {
    const DRAWS: u32 = 20_000;
    let mut sampler = config.build().unwrap();
    let mut counts = vec![0u32; logits.len()];
    for _ in 0..DRAWS {
        counts[sampler.sample(logits, history).unwrap() as usize] += 1;
    }
    let total: f64 = expected.iter().sum();
    let mut chi_squared = 0.0;
    for (&count, &probability) in counts.iter().zip(expected) {
        let mean = f64::from(DRAWS) * probability / total;
        match probability == 0.0 {
            true => assert_eq!(count, 0, "{counts:?}"),
            false => chi_squared += (f64::from(count) - mean).powi(2) / mean,
        }
    }
    assert!(chi_squared < 24.3, "chi-squared {chi_squared} of {counts:?}");
}

#[test]
fn each_filter_keeps_what_it_says() {
    let probabilities = [0.1, 0.4, 0.2, 0.3];
    assert_eq!(kept(TopK(2), &probabilities), [1, 3]);
    assert_eq!(kept(TopK(9), &probabilities), [1, 3, 2, 0]);
    assert_eq!(kept(TopK(0), &probabilities), [1], "one always stays");
    assert_eq!(kept(TopP(0.35), &probabilities), [1]);
    assert_eq!(kept(TopP(0.45), &probabilities), [1, 3]);
    assert_eq!(kept(TopP(0.95), &probabilities), [1, 3, 2, 0]);
    assert_eq!(kept(TopP(1e-9), &probabilities), [1], "one always stays");
    assert_eq!(kept(MinP(0.7), &probabilities), [1, 3]);
    assert_eq!(kept(MinP(0.2), &probabilities), [1, 3, 2, 0]);
    assert_eq!(kept(MinP(1.0), &probabilities), [1]);
    assert_eq!(kept(Temperature(5.0), &probabilities), [1, 3, 2, 0]);
}

#[test]
fn of_equal_tokens_those_with_lower_ids_stay() {
    assert_eq!(kept(TopK(2), &[0.2, 0.2, 0.2, 0.2, 0.2]), [0, 1]);
    assert_eq!(kept(TopP(0.5), &[0.25, 0.25, 0.25, 0.25]), [0, 1]);
}

#[test]
fn penalties_change_the_logits_of_the_latest_tokens() {
    let penalties = Penalties { repetition: 2.0, frequency: 0.5, presence: 0.25, window: 4 };
    let mut logits = Logits::new(&[4.0, -1.0, 3.0, 2.0, f32::NEG_INFINITY]).unwrap();
    // Token 2 is outside the window, and 99 is no token.
    penalties.filter(&mut logits, &[2, 0, 1, 0, 4]);
    penalties.filter(&mut logits, &[99]);
    let values: Vec<f32> = logits.candidates().iter().map(|candidate| candidate.logit).collect();
    assert_eq!(values, [0.75, -2.75, 3.0, 2.0, f32::NEG_INFINITY]);
}

#[test]
fn penalties_apply_after_other_filters_as_well() {
    let mut logits = Logits::new(&[1.0, 4.0, 3.0]).unwrap();
    TopK(2).filter(&mut logits, &[]);
    let penalties = Penalties { repetition: 4.0, frequency: 0.0, presence: 0.0, window: 64 };
    penalties.filter(&mut logits, &[1, 0]);
    assert_eq!(logits.candidates(), [Candidate { id: 2, logit: 3.0 }, Candidate { id: 1, logit: 1.0 }]);
}

#[test]
fn penalties_are_listed_once_a_token_for_a_device() {
    let config = SamplerConfig { repetition_penalty: 2.0, frequency_penalty: 0.5, presence_penalty: 0.25, ..plain() };
    let entry = |id, subtract| Penalty { id, if_positive: 0.5, if_negative: 2.0, subtract };
    let sampler = SamplerConfig { penalty_window: 4, ..config.clone() }.build().unwrap();
    assert_eq!(sampler.penalties(&[9, 7, 3, 7, 7]), [entry(3, 0.75), entry(7, 1.75)]);
    assert_eq!(SamplerConfig { penalty_window: 0, ..config }.build().unwrap().penalties(&[1, 2]), []);
    assert_eq!(plain().build().unwrap().penalties(&[1, 2]), []);
}

#[test]
fn the_largest_candidates_draw_what_all_logits_draw() {
    let logits: Vec<f32> = (0..1000).map(|id| ((id * 7919) % 1000) as f32 / 250.0).collect();
    let config = SamplerConfig { top_k: 40, temperature: 1.5, min_p: 0.0, ..plain() };
    // More of them than needed, and in another order.
    let mut largest: Vec<(u32, f32)> = (0..).zip(logits.iter().copied()).filter(|(_, logit)| *logit > 3.5).collect();
    largest.reverse();
    for seed in 0..50 {
        let config = SamplerConfig { seed, ..config.clone() };
        let (mut few, mut all) = (config.build().unwrap(), config.build().unwrap());
        for _ in 0..4 {
            assert_eq!(few.sample_candidates(&largest).unwrap(), all.sample(&logits, &[]).unwrap());
        }
    }
    let mut greedy = SamplerConfig { temperature: 0.0, ..config }.build().unwrap();
    assert_eq!(greedy.sample_candidates(&[(4, 1.0), (9, 3.0), (7, 3.0)]).unwrap(), 7);
    for candidates in [&[][..], &[(3, f32::NEG_INFINITY)], &[(3, 1.0), (5, f32::INFINITY)], &[(3, f32::NAN)]] {
        assert!(matches!(greedy.sample_candidates(candidates), Err(Error::InvalidParameter { name: "logits", .. })));
    }
}

#[test]
fn a_device_finds_the_largest_where_they_are_few_and_the_choice_is_random() {
    let top_k = |temperature, top_k| SamplerConfig { temperature, top_k, ..plain() };
    assert_eq!(top_k(0.8, 40).device_top_k(), Some(40));
    assert_eq!(top_k(0.8, 256).device_top_k(), Some(256));
    assert_eq!(top_k(0.8, 257).device_top_k(), None);
    assert_eq!(top_k(0.8, 0).device_top_k(), None);
    assert_eq!(top_k(0.0, 40).device_top_k(), None);
    assert!(top_k(0.0, 40).build().unwrap().is_greedy());
    assert!(!top_k(0.8, 40).build().unwrap().is_greedy());
}

#[test]
fn draws_have_the_models_probabilities() {
    let probabilities = [0.02, 0.3, 0.08, 0.25, 0.15, 0.2];
    assert_distribution(&plain(), &logits(&probabilities), &[], &probabilities);
}

#[test]
fn temperature_raises_probabilities_to_its_inverse() {
    let probabilities = [0.1, 0.4, 0.2, 0.3];
    for temperature in [0.5, 2.0] {
        let config = SamplerConfig { temperature, ..plain() };
        let expected = probabilities.map(|probability: f64| probability.powf(1.0 / f64::from(temperature)));
        assert_distribution(&config, &logits(&probabilities), &[], &expected);
    }
}

#[test]
fn the_filters_work_in_their_documented_order() {
    let probabilities = [0.4, 0.25, 0.2, 0.1, 0.05];
    // Of the best four, 0.8 of 0.95 is reached by three; min-p at 0.55 then leaves two; the temperature comes last.
    let config = SamplerConfig { temperature: 2.0, top_k: 4, top_p: 0.8, min_p: 0.55, ..plain() };
    let expected = [0.4f64.sqrt(), 0.25f64.sqrt(), 0.0, 0.0, 0.0];
    assert_distribution(&config, &logits(&probabilities), &[], &expected);

    // Top-p before top-k would keep two of the best three: 0.65 is above 0.6 of 1 but 0.65 / 0.85 is below 0.77.
    let config = SamplerConfig { top_k: 3, top_p: 0.77, ..plain() };
    assert_distribution(&config, &logits(&probabilities), &[], &[0.4, 0.25, 0.2, 0.0, 0.0]);

    // A penalty comes first, so that top-k does not keep the token.
    let config = SamplerConfig { top_k: 2, presence_penalty: 10.0, ..plain() };
    assert_distribution(&config, &logits(&probabilities), &[0], &[0.0, 0.25, 0.2, 0.0, 0.0]);
}

#[test]
fn temperature_zero_takes_the_best_penalized_token() {
    let config = SamplerConfig { temperature: 0.0, ..Default::default() };
    let sample = |config: &SamplerConfig, logits: &[f32], history: &[u32]| {
        config.build().unwrap().sample(logits, history).unwrap()
    };
    assert_eq!(sample(&config, &[1.0, 3.0, 3.0], &[]), 1, "of equals the lowest id");
    assert_eq!(sample(&config, &[f32::NEG_INFINITY, -7.0], &[]), 1);
    let penalized = SamplerConfig { repetition_penalty: 1.5, ..config };
    assert_eq!(sample(&penalized, &[2.5, 3.0, 1.0], &[1]), 0);
}

#[test]
fn the_same_seed_gives_the_same_ids() {
    let logits: Vec<f32> = (0..1000).map(|id| ((id * 7919) % 1000) as f32 / 250.0).collect();
    let draw = |seed| {
        let mut sampler = SamplerConfig { seed, ..plain() }.build().unwrap();
        let draw = |_| sampler.sample(&logits, &[]).unwrap();
        (0..8).map(draw).collect::<Vec<u32>>()
    };
    // What a ChaCha8 written in Python draws from rand's seed expansion.
    assert_eq!(draw(1), [400, 80, 595, 223, 284, 707, 459, 153]);
    assert_ne!(draw(1), draw(2));
}

#[test]
fn logits_that_are_not_numbers_are_errors() {
    for logits in [&[1.0, f32::NAN][..], &[f32::INFINITY, 1.0], &[f32::NEG_INFINITY, f32::NEG_INFINITY], &[]] {
        for temperature in [0.0, 1.0] {
            let mut sampler = SamplerConfig { temperature, ..plain() }.build().unwrap();
            match sampler.sample(logits, &[]) {
                Err(Error::InvalidParameter { name, .. }) => assert_eq!(name, "logits"),
                other => panic!("{logits:?}: {other:?}"),
            }
        }
    }
}

#[test]
fn extreme_but_finite_settings_still_choose_a_token() {
    let logits = [f32::MAX, f32::MIN, 0.0, f32::NEG_INFINITY];
    let extreme = [
        SamplerConfig { temperature: f32::MIN_POSITIVE, ..plain() },
        SamplerConfig { temperature: f32::MAX, ..plain() },
        SamplerConfig { repetition_penalty: f32::MIN_POSITIVE, frequency_penalty: f32::MAX, ..plain() },
        SamplerConfig { repetition_penalty: f32::MAX, presence_penalty: f32::MIN, ..plain() },
        SamplerConfig { top_k: usize::MAX, penalty_window: usize::MAX, presence_penalty: 1.0, ..plain() },
    ];
    for config in extreme {
        let mut sampler = config.build().unwrap();
        for _ in 0..20 {
            assert_ne!(sampler.sample(&logits, &[0, 1, 2, 3, 0]).unwrap(), 3, "{config:?}");
        }
    }
}

#[test]
fn settings_out_of_range_are_errors_that_name_them() {
    let cases = [
        ("temperature", SamplerConfig { temperature: -0.1, ..plain() }),
        ("temperature", SamplerConfig { temperature: f32::NAN, ..plain() }),
        ("temperature", SamplerConfig { temperature: f32::INFINITY, ..plain() }),
        ("top_p", SamplerConfig { top_p: 0.0, ..plain() }),
        ("top_p", SamplerConfig { top_p: 1.1, ..plain() }),
        ("min_p", SamplerConfig { min_p: -0.1, ..plain() }),
        ("min_p", SamplerConfig { min_p: 1.1, ..plain() }),
        ("repetition_penalty", SamplerConfig { repetition_penalty: 0.0, ..plain() }),
        ("frequency_penalty", SamplerConfig { frequency_penalty: f32::NAN, ..plain() }),
        ("presence_penalty", SamplerConfig { presence_penalty: f32::INFINITY, ..plain() }),
    ];
    for (expected, config) in cases {
        match config.build() {
            Err(Error::InvalidParameter { name, .. }) => assert_eq!(name, expected),
            other => panic!("{expected}: {other:?}"),
        }
    }
}

#[test]
fn settings_that_are_left_out_have_their_defaults() {
    let config: SamplerConfig = serde_json::from_str(r#"{"temperature": 0, "seed": 7}"#).unwrap();
    assert_eq!(config, SamplerConfig { temperature: 0.0, seed: 7, ..Default::default() });
}
