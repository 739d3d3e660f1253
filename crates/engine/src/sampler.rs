//! Picks the next token from logits.
//!
//! The order is that of `transformers` and vLLM: logit bias, repetition penalty, frequency and presence penalty,
//! temperature, top-k, top-p, min-p, random choice. (llama.cpp applies the temperature after the filters; without a
//! temperature the two orders keep the same tokens.) Among equal logits the lower token id counts as more likely.
//! The choice walks the kept tokens in the order of their ids, so it depends on which tokens are kept and on nothing else.

use std::cmp::Ordering;
use std::collections::HashMap;

use crate::exponential::exp;
use crate::random::uniform;
use crate::{EngineError, Sampling};

/// A token this many nats below the best one weighs less than the rounding of the sum it would be added to.
const NEGLIGIBLE: f64 = -60.0;

/// Nats by which a bound is lowered so that rounding cannot make it exclude what it should not.
const ROUNDING: f64 = 1e-3;

/// Chooses tokens by one request's settings; remembers which tokens were seen, for the penalties.
#[derive(Debug)]
pub struct Sampler {
    settings: Sampling,
    seen: HashMap<u32, Seen>,
    adjusted: Vec<f32>,
    candidates: Vec<Candidate>,
    weights: Vec<f64>,
    weighted: Vec<(f64, u32)>,
}

/// Where a token occurred so far.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    in_output: u32,
}

/// A token in the order of likelihood: higher logit first, then lower id.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Candidate {
    logit: f32,
    id: u32,
}

impl Candidate {
    fn order(&self, other: &Candidate) -> Ordering {
        other.logit.total_cmp(&self.logit).then(self.id.cmp(&other.id))
    }
}

impl Sampler {
    /// A sampler for one request; an error when a setting is outside its range.
    pub fn new(settings: Sampling) -> Result<Sampler, EngineError> {
        settings.check()?;
        Ok(Sampler {
            settings,
            seen: HashMap::new(),
            adjusted: Vec::new(),
            candidates: Vec::new(),
            weights: Vec::new(),
            weighted: Vec::new(),
        })
    }

    /// Tells the sampler about tokens of the prompt; the repetition penalty counts them.
    pub fn see_prompt(&mut self, tokens: &[u32]) {
        if self.settings.repetition_penalty != 1.0 {
            for &token in tokens {
                self.seen.entry(token).or_default();
            }
        }
    }

    /// Tells the sampler about a token of the output; every penalty counts it.
    pub fn see_output(&mut self, token: u32) {
        if self.has_penalties() {
            let seen = self.seen.entry(token).or_default();
            seen.in_output = seen.in_output.saturating_add(1);
        }
    }

    /// The token at `position` of the sequence. Same logits, settings and seen tokens: same token.
    pub fn sample(&mut self, logits: &[f32], position: u32) -> Result<u32, EngineError> {
        let best_before = most_likely(logits)?;
        if !self.has_penalties() && self.settings.logit_bias.is_empty() {
            return self.choose(logits, best_before, position);
        }
        let mut adjusted = std::mem::take(&mut self.adjusted);
        adjusted.clear();
        adjusted.extend_from_slice(logits);
        self.adjust(&mut adjusted);
        let chosen = most_likely(&adjusted).and_then(|best| self.choose(&adjusted, best, position));
        self.adjusted = adjusted;
        chosen
    }

    fn has_penalties(&self) -> bool {
        let settings = &self.settings;
        settings.repetition_penalty != 1.0 || settings.presence_penalty != 0.0 || settings.frequency_penalty != 0.0
    }

    fn adjust(&self, logits: &mut [f32]) {
        for &(token, bias) in &self.settings.logit_bias {
            if let Some(logit) = logits.get_mut(token as usize) {
                *logit += bias;
            }
        }
        let Sampling { repetition_penalty, presence_penalty, frequency_penalty, .. } = self.settings;
        for (&token, seen) in &self.seen {
            let Some(logit) = logits.get_mut(token as usize) else { continue };
            if *logit > 0.0 {
                *logit /= repetition_penalty;
            } else {
                *logit *= repetition_penalty;
            }
            if seen.in_output > 0 {
                *logit -= presence_penalty + frequency_penalty * seen.in_output as f32;
            }
        }
    }

    fn choose(&mut self, logits: &[f32], best: Candidate, position: u32) -> Result<u32, EngineError> {
        if self.settings.temperature == 0.0 || self.settings.top_k == 1 {
            return Ok(best.id);
        }
        let scale = Scale { best: f64::from(best.logit), temperature: f64::from(self.settings.temperature) };
        let floor = f64::from(self.settings.min_p);
        let top_k = match self.settings.top_k as usize {
            0 => logits.len(),
            count => count.min(logits.len()),
        };
        self.weighted.clear();
        if top_k == logits.len() && self.settings.top_p >= 1.0 {
            // No ranking is needed: the ids are already in order. All weights first, in a loop of nothing else.
            self.weights.clear();
            self.weights.extend(logits.iter().map(|&logit| scale.weight(logit)));
            self.weighted.extend(self.weights.iter().copied().zip(0u32..).filter(|(weight, _)| *weight >= floor));
        } else {
            self.collect_top_k(logits, &scale, top_k);
            self.keep_top_p(&scale);
            self.candidates.sort_unstable_by_key(|candidate| candidate.id);
            let kept = self.candidates.iter().map(|kept| (scale.weight(kept.logit), kept.id));
            self.weighted.extend(kept.filter(|(weight, _)| *weight >= floor));
        }
        let share = uniform(self.settings.seed, u64::from(position));
        Ok(walk(&self.weighted, share).unwrap_or(best.id))
    }

    /// The `count` most likely candidates, less those that weigh nothing. The floor rises with what is already held,
    /// so that nearly all of a large vocabulary is passed over with one comparison.
    fn collect_top_k(&mut self, logits: &[f32], scale: &Scale, count: usize) {
        let held = &mut self.candidates;
        held.clear();
        let mut floor = scale.logit(NEGLIGIBLE).next_down();
        let room = count.saturating_mul(2).max(256);
        for (&logit, id) in logits.iter().zip(0u32..) {
            // An equal logit of a later id ranks behind those that are held.
            if logit <= floor {
                continue;
            }
            held.push(Candidate { logit, id });
            if held.len() == room {
                floor = keep_first(held, count);
            }
        }
        if count < held.len() {
            keep_first(held, count);
        }
    }

    /// Sorts only as many of the most likely candidates as the wanted probability needs.
    fn keep_top_p(&mut self, scale: &Scale) {
        if self.settings.top_p >= 1.0 {
            return;
        }
        let total: f64 = self.candidates.iter().map(|kept| scale.weight(kept.logit)).sum();
        let wanted = total * f64::from(self.settings.top_p);
        // Tokens below an equal share of what may be left out are left out all together, so they need no ranking.
        let share = (total - wanted) / self.candidates.len() as f64;
        let floor = scale.logit(libm::log(share) - ROUNDING);
        self.candidates.retain(|candidate| candidate.logit >= floor);
        let (mut reached, mut sorted, mut head) = (0.0, 0, 64);
        while sorted < self.candidates.len() {
            let end = head.min(self.candidates.len());
            if end < self.candidates.len() {
                self.candidates[sorted..].select_nth_unstable_by(end - sorted - 1, Candidate::order);
            }
            self.candidates[sorted..end].sort_unstable_by(Candidate::order);
            for index in sorted..end {
                reached += scale.weight(self.candidates[index].logit);
                if reached >= wanted {
                    self.candidates.truncate(index + 1);
                    return;
                }
            }
            sorted = end;
            head = end.saturating_mul(4);
        }
    }
}

/// Keeps the `count` most likely candidates, in any order; returns the least logit among them.
fn keep_first(candidates: &mut Vec<Candidate>, count: usize) -> f32 {
    let (_, last, _) = candidates.select_nth_unstable_by(count - 1, Candidate::order);
    let least = last.logit;
    candidates.truncate(count);
    least
}

/// Turns logits into weights relative to the best one, which weighs 1.
struct Scale {
    best: f64,
    temperature: f64,
}

impl Scale {
    /// The logit that lies this many nats from the best one.
    fn logit(&self, nats: f64) -> f32 {
        (self.best + nats * self.temperature) as f32
    }

    fn weight(&self, logit: f32) -> f64 {
        let exponent = (f64::from(logit) - self.best) / self.temperature;
        if exponent < NEGLIGIBLE { 0.0 } else { exp(exponent) }
    }
}

/// The id at which the running sum of weights passes `share` of the total.
fn walk(weighted: &[(f64, u32)], share: f64) -> Option<u32> {
    let total: f64 = weighted.iter().map(|(weight, _)| weight).sum();
    let target = total * share;
    let (mut sum, mut last) = (0.0, None);
    for &(weight, id) in weighted.iter().filter(|(weight, _)| *weight > 0.0) {
        sum += weight;
        last = Some(id);
        if sum > target {
            break;
        }
    }
    last
}

/// The best token; an error when the logits cannot be ranked.
fn most_likely(logits: &[f32]) -> Result<Candidate, EngineError> {
    let mut best = Candidate { logit: f32::NEG_INFINITY, id: 0 };
    let mut broken = false;
    for (&logit, id) in logits.iter().zip(0u32..) {
        broken |= logit.is_nan() || logit == f32::INFINITY;
        if logit > best.logit {
            best = Candidate { logit, id };
        }
    }
    if broken || best.logit == f32::NEG_INFINITY {
        let bad = logits.iter().position(|logit| logit.is_nan() || *logit == f32::INFINITY);
        return Err(EngineError::BrokenLogits { token: bad.unwrap_or(0) });
    }
    Ok(best)
}
