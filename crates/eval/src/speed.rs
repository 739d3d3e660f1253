//! Prefill and decode speed of a session at chosen depths.

use std::time::Instant;

use cascadia_engine::Session;

use crate::{EvalError, peak_memory_bytes};

/// What to measure.
#[derive(Clone, Debug)]
pub struct SpeedPlan {
    /// Tokens of the prompt whose prefill is timed.
    pub prompt: usize,
    /// Tokens whose decoding is timed, one step each.
    pub generate: usize,
    /// Tokens already in the context before either; one run for each.
    pub depths: Vec<usize>,
    /// Times each measurement is repeated.
    pub repeat: usize,
}

/// Median, least and greatest of repeated measurements.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// The middle value.
    pub median: f64,
    /// The least value.
    pub min: f64,
    /// The greatest value.
    pub max: f64,
}

/// The speed at one depth.
#[derive(Clone, Debug)]
pub struct SpeedRun {
    /// Tokens in the context before the measurement.
    pub depth: usize,
    /// Prompt tokens per second.
    pub prefill_tok_s: Spread,
    /// Generated tokens per second.
    pub decode_tok_s: Spread,
    /// Median time from the prompt to its first token, in milliseconds.
    pub ttft_ms: f64,
    /// The most memory the process has used so far; `None` when the system does not say.
    pub rss_bytes: Option<u64>,
}

impl SpeedPlan {
    /// The context a session needs for this plan.
    pub fn context(&self) -> usize {
        let deepest = self.depths.iter().copied().max().unwrap_or(0);
        deepest.saturating_add(self.prompt.max(self.generate))
    }

    fn check(&self) -> Result<(), EvalError> {
        for (name, value) in [("prompt", self.prompt), ("gen", self.generate), ("repeat", self.repeat)] {
            if value == 0 {
                return Err(EvalError::Option { name, value, allowed: "at least 1" });
            }
        }
        Ok(())
    }
}

impl Spread {
    /// The spread of at least one value.
    pub fn of(mut values: Vec<f64>) -> Spread {
        assert!(!values.is_empty(), "a spread of nothing");
        values.sort_by(f64::total_cmp);
        let middle = values.len() / 2;
        let median =
            if values.len().is_multiple_of(2) { (values[middle - 1] + values[middle]) / 2.0 } else { values[middle] };
        Spread { median, min: values[0], max: values[values.len() - 1] }
    }
}

/// Runs the plan on synthetic tokens. The first decode of the process warms the weights and is not counted.
/// `progress` hears (measurements done, measurements in all).
pub fn measure_speed(
    session: &mut Session,
    plan: &SpeedPlan,
    mut progress: impl FnMut(usize, usize),
) -> Result<Vec<SpeedRun>, EvalError> {
    plan.check()?;
    let total = plan.depths.len() * plan.repeat;
    let tokens = synthetic_tokens(session.spec().vocabulary, plan.context());
    session.truncate(0);
    session.feed(&tokens[..1])?;
    let mut runs = Vec::new();
    for &depth in &plan.depths {
        return_to(session, &tokens[..depth])?;
        let (mut prefill, mut decode, mut first_token_ms) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..plan.repeat {
            progress(runs.len() * plan.repeat + decode.len(), total);
            return_to(session, &tokens[..depth])?;
            let seconds = timed(|| prefill_once(session, &tokens[depth..depth + plan.prompt]))?;
            prefill.push(plan.prompt as f64 / seconds);
            first_token_ms.push(seconds * 1e3);
            return_to(session, &tokens[..depth])?;
            let seconds = timed(|| decode_all(session, &tokens[depth..depth + plan.generate]))?;
            decode.push(plan.generate as f64 / seconds);
        }
        runs.push(SpeedRun {
            depth,
            prefill_tok_s: Spread::of(prefill),
            decode_tok_s: Spread::of(decode),
            ttft_ms: Spread::of(first_token_ms).median,
            rss_bytes: peak_memory_bytes(),
        });
    }
    progress(total, total);
    Ok(runs)
}

/// Makes the sequence these tokens, which it is a continuation of.
fn return_to(session: &mut Session, tokens: &[u32]) -> Result<(), EvalError> {
    let held = session.truncate(tokens.len());
    if held < tokens.len() {
        session.append(&tokens[held..])?;
    }
    Ok(())
}

fn prefill_once(session: &mut Session, tokens: &[u32]) -> Result<(), EvalError> {
    session.feed(tokens)?;
    Ok(())
}

fn decode_all(session: &mut Session, tokens: &[u32]) -> Result<(), EvalError> {
    for token in tokens.chunks(1) {
        session.feed(token)?;
    }
    Ok(())
}

/// Seconds a piece of work took; never 0, so that a rate can be formed.
fn timed(work: impl FnOnce() -> Result<(), EvalError>) -> Result<f64, EvalError> {
    let begin = Instant::now();
    work()?;
    Ok(begin.elapsed().as_secs_f64().max(1e-9))
}

/// Token ids spread over the vocabulary, so that embedding rows are not all in one page of memory.
pub(crate) fn synthetic_tokens(vocabulary: usize, count: usize) -> Vec<u32> {
    (0..count as u64).map(|index| (index.wrapping_mul(7919) % vocabulary.max(1) as u64) as u32).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_has_the_middle_value() {
        let cases =
            [(vec![2.0], (2.0, 2.0, 2.0)), (vec![3.0, 1.0], (2.0, 1.0, 3.0)), (vec![9.0, 1.0, 2.0], (2.0, 1.0, 9.0))];
        for (values, (median, min, max)) in cases {
            assert_eq!(Spread::of(values), Spread { median, min, max });
        }
    }
}
