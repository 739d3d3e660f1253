//! The sampler against a slow reference in double precision.

use cascadia_engine::{EngineError, Sampler, Sampling};
use proptest::prelude::*;

/// Tokens that the settings keep, with their probabilities, by the plainest code that can say it.
fn reference(logits: &[f32], settings: &Sampling) -> Vec<(u32, f64)> {
    let mut ranked: Vec<(u32, f32)> = (0u32..).zip(logits.iter().copied()).collect();
    ranked.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    if settings.top_k > 0 {
        ranked.truncate(settings.top_k as usize);
    }
    let best = f64::from(ranked[0].1);
    let weight = |logit: f32| libm::exp((f64::from(logit) - best) / f64::from(settings.temperature));
    let total: f64 = ranked.iter().map(|token| weight(token.1)).sum();
    let (mut kept, mut sum) = (Vec::new(), 0.0);
    for &(id, logit) in &ranked {
        kept.push((id, weight(logit)));
        sum += weight(logit);
        if settings.top_p < 1.0 && sum >= total * f64::from(settings.top_p) {
            break;
        }
    }
    kept.retain(|token| token.1 >= f64::from(settings.min_p));
    let total: f64 = kept.iter().map(|token| token.1).sum();
    kept.into_iter().map(|(id, weight)| (id, weight / total)).collect()
}

fn settings() -> impl Strategy<Value = Sampling> {
    let top_k = prop_oneof![Just(0u32), 1u32..40, Just(100_000)];
    let top_p = prop_oneof![Just(1.0f32), 0.01f32..0.999];
    let min_p = prop_oneof![Just(0.0f32), 0.001f32..0.5];
    (0.05f32..3.0, top_k, top_p, min_p, any::<u64>()).prop_map(|(temperature, top_k, top_p, min_p, seed)| Sampling {
        temperature,
        top_k,
        top_p,
        min_p,
        seed,
        ..Sampling::default()
    })
}

proptest! {
    #[test]
    fn only_kept_tokens_are_drawn_and_as_often_as_they_should(
        logits in prop::collection::vec(-12.0f32..12.0, 1..400),
        settings in settings(),
    ) {
        let kept = reference(&logits, &settings);
        let mut sampler = Sampler::new(settings).unwrap();
        let mut counts = std::collections::HashMap::new();
        let samples = 600;
        for position in 0..samples {
            *counts.entry(sampler.sample(&logits, position).unwrap()).or_insert(0u32) += 1;
        }
        for id in counts.keys() {
            prop_assert!(kept.iter().any(|token| token.0 == *id), "token {id} is not among the kept");
        }
        for (id, probability) in kept {
            let share = f64::from(*counts.get(&id).unwrap_or(&0)) / f64::from(samples);
            let deviation = (probability * (1.0 - probability) / f64::from(samples)).sqrt();
            prop_assert!((share - probability).abs() < 6.0 * deviation + 0.01, "{id}: {share} for {probability}");
        }
    }

    #[test]
    fn greedy_takes_the_first_of_the_best(logits in prop::collection::vec(-3i8..3, 1..200)) {
        let logits: Vec<f32> = logits.into_iter().map(f32::from).collect();
        let best = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let expected = logits.iter().position(|logit| *logit == best).unwrap() as u32;
        prop_assert_eq!(Sampler::new(Sampling::greedy()).unwrap().sample(&logits, 0).unwrap(), expected);
    }

    #[test]
    fn a_draw_depends_on_seed_and_position_only(
        logits in prop::collection::vec(-2.0f32..2.0, 2..100),
        settings in settings(),
        position in any::<u32>(),
    ) {
        let mut fresh = Sampler::new(settings.clone()).unwrap();
        let mut used = Sampler::new(settings).unwrap();
        for other in 0..5 {
            used.sample(&logits, other).unwrap();
        }
        prop_assert_eq!(fresh.sample(&logits, position).unwrap(), used.sample(&logits, position).unwrap());
    }
}

/// Known samples: a change of the generator, the order of the filters or the walk would show here.
#[test]
fn draws_are_pinned() {
    let logits: Vec<f32> = (0..50).map(|id| ((id * 37 % 50) as f32) / 10.0).collect();
    let cases = [
        (Sampling::default(), PINNED_PLAIN),
        (Sampling { temperature: 0.7, top_k: 10, top_p: 0.9, seed: 42, ..Sampling::default() }, PINNED_FILTERED),
    ];
    for (settings, expected) in cases {
        let mut sampler = Sampler::new(settings).unwrap();
        let sampled: Vec<u32> = (0..8).map(|position| sampler.sample(&logits, position).unwrap()).collect();
        assert_eq!(sampled, expected);
    }
}

const PINNED_PLAIN: [u32; 8] = [40, 16, 13, 20, 31, 1, 36, 4];
const PINNED_FILTERED: [u32; 8] = [27, 12, 31, 31, 35, 12, 31, 16];

#[test]
fn penalties_and_bias_move_the_choice() {
    let logits = [2.0, 1.9, -1.0, 0.0];
    let greedy = Sampling::greedy();
    let choose = |settings: Sampling, prompt: &[u32], output: &[u32]| {
        let mut sampler = Sampler::new(settings).unwrap();
        sampler.see_prompt(prompt);
        output.iter().for_each(|&token| sampler.see_output(token));
        sampler.sample(&logits, 0).unwrap()
    };
    assert_eq!(choose(greedy.clone(), &[0], &[0]), 0);
    let repetition = Sampling { repetition_penalty: 1.3, ..greedy.clone() };
    assert_eq!(choose(repetition.clone(), &[0], &[]), 1);
    assert_eq!(choose(repetition.clone(), &[], &[0]), 1);
    assert_eq!(choose(repetition, &[0, 1, 2], &[]), 0);
    let presence = Sampling { presence_penalty: 0.2, ..greedy.clone() };
    assert_eq!(choose(presence.clone(), &[0], &[]), 0);
    assert_eq!(choose(presence.clone(), &[], &[0, 0, 0]), 1);
    assert_eq!(choose(presence, &[], &[0, 1, 1]), 0);
    let frequency = Sampling { frequency_penalty: 0.06, ..greedy.clone() };
    assert_eq!(choose(frequency.clone(), &[], &[0]), 0);
    assert_eq!(choose(frequency, &[], &[0, 0]), 1);
    let bias = Sampling { logit_bias: vec![(3, 5.0), (99, 5.0)], ..greedy };
    assert_eq!(choose(bias, &[], &[]), 3);
}

#[test]
fn broken_logits_are_an_error() {
    let masked = f32::NEG_INFINITY;
    for logits in [&[0.0, f32::NAN][..], &[f32::INFINITY, 0.0], &[masked, masked], &[]] {
        for settings in [Sampling::default(), Sampling::greedy()] {
            let sampled = Sampler::new(settings).unwrap().sample(logits, 0);
            assert!(matches!(sampled, Err(EngineError::BrokenLogits { .. })), "{logits:?}");
        }
    }
    let mut sampler = Sampler::new(Sampling { top_k: 2, ..Sampling::default() }).unwrap();
    assert_eq!(sampler.sample(&[masked, 1.0, masked], 5).unwrap(), 1);
}

#[test]
fn settings_outside_their_range_are_named() {
    let plain = Sampling::default();
    let cases = [
        ("temperature", Sampling { temperature: -0.1, ..plain.clone() }),
        ("temperature", Sampling { temperature: f32::NAN, ..plain.clone() }),
        ("temperature", Sampling { temperature: f32::INFINITY, ..plain.clone() }),
        ("top_p", Sampling { top_p: 0.0, ..plain.clone() }),
        ("top_p", Sampling { top_p: 1.1, ..plain.clone() }),
        ("min_p", Sampling { min_p: -0.5, ..plain.clone() }),
        ("repetition_penalty", Sampling { repetition_penalty: 0.0, ..plain.clone() }),
        ("presence_penalty", Sampling { presence_penalty: f32::NAN, ..plain.clone() }),
        ("frequency_penalty", Sampling { frequency_penalty: f32::INFINITY, ..plain.clone() }),
        ("logit_bias", Sampling { logit_bias: vec![(1, f32::NAN)], ..plain }),
    ];
    for (name, settings) in cases {
        let message = Sampler::new(settings).unwrap_err().to_string();
        assert!(message.starts_with(name), "{message}");
    }
}
