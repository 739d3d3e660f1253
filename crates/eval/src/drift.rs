//! What formats of the KV cache cost and save: how they change what a model predicts, their bytes, and the speed of decoding, at
//! several lengths of the context.

use cascadia_engine::Session;
use cascadia_model::{CacheFormat, KvLayout, KvPolicy};

use crate::probes::Probes;
use crate::report::{Axis, Metric, Quantity, Scale};
use crate::{EvalError, Reference, SpeedPlan, TextWindows, measure_speed};

/// What a series of the reference is called.
const REFERENCE: &str = "f32 (reference)";
/// The shortest context: two records of the retrieval probe and a question fit.
const LEAST_CONTEXT: usize = 16;

/// Times that decoding is measured; the median counts.
const REPEAT: usize = 3;

/// The cache that others are compared with.
pub fn full_precision() -> KvPolicy {
    KvPolicy::uniform(CacheFormat::F32)
}

/// What to measure.
#[derive(Clone, Debug)]
pub struct DriftPlan {
    /// Lengths of the context, in tokens.
    pub contexts: Vec<usize>,
    /// Windows of the text, as long as the longest context; fewer where it is shorter.
    pub windows: usize,
    /// Tokens at the end of each context whose decoding is timed; without any, speed is not measured.
    pub timed: usize,
    /// The token put before the text and before each probe.
    pub bos: u32,
    /// What the random tokens of the probes depend on.
    pub seed: u64,
}

/// A reference, and what was found beside it so far.
pub struct Drift {
    plan: DriftPlan,
    reference: Option<Reference>,
    metrics: DriftMetrics,
}

struct DriftMetrics {
    perplexity: Metric,
    same_top: Metric,
    divergence: Metric,
    copied: Metric,
    retrieved: Metric,
    bytes: Metric,
    speed: Metric,
}

impl DriftPlan {
    /// The plan with contexts that a model has: longer ones become its longest, and each is measured once.
    pub fn within(mut self, context: usize) -> DriftPlan {
        self.contexts.iter_mut().for_each(|length| *length = (*length).min(context));
        self.contexts.sort_unstable();
        self.contexts.dedup();
        self
    }

    /// The context that sessions need.
    pub fn context(&self) -> usize {
        self.contexts.iter().copied().max().unwrap_or(0)
    }

    fn check(&self) -> Result<(), EvalError> {
        let least = self.contexts.iter().copied().min().unwrap_or(0);
        if least < LEAST_CONTEXT {
            return Err(EvalError::Option { name: "contexts", value: least, allowed: "at least 16 tokens each" });
        }
        if self.timed >= least {
            let allowed = "fewer tokens than the shortest context";
            return Err(EvalError::Option { name: "speed", value: self.timed, allowed });
        }
        Ok(())
    }
}

impl Drift {
    /// Runs a session with the full-precision cache over a text, if there is one, and over the probes. `progress` hears
    /// (parts done, parts in all).
    pub fn new(
        plan: DriftPlan,
        session: &mut Session,
        text: Option<&[u32]>,
        mut progress: impl FnMut(usize, usize),
    ) -> Result<Drift, EvalError> {
        plan.check()?;
        let cut = TextWindows { windows: plan.windows, window: plan.context(), bos: plan.bos };
        let reference = text.map(|text| Reference::record(session, text, cut, &mut progress)).transpose()?;
        let mut drift = Drift { plan, reference, metrics: DriftMetrics::new() };
        drift.measure((REFERENCE, &full_precision()), session, progress)?;
        Ok(drift)
    }

    /// Adds a session with the cache `kv`. `progress` hears (parts done, parts in all).
    pub fn add(
        &mut self,
        (name, kv): (&str, &KvPolicy),
        session: &mut Session,
        mut progress: impl FnMut(usize, usize),
    ) -> Result<(), EvalError> {
        if let Some(reference) = &self.reference {
            let found = reference.compare_beginnings(session, &self.plan.contexts, &mut progress)?;
            let metrics = &mut self.metrics;
            let is_first = metrics.perplexity.series.is_empty();
            for (&context, found) in self.plan.contexts.iter().zip(&found) {
                if is_first {
                    metrics.perplexity.add(REFERENCE, context, found.reference.perplexity);
                }
                metrics.perplexity.add(name, context, found.score.perplexity);
                metrics.same_top.add(name, context, 100.0 * found.same_top);
                metrics.divergence.add(name, context, found.divergence);
            }
        }
        self.measure((name, kv), session, progress)
    }

    /// Everything that was found; of the text only if there was one, and speed only if it was wanted.
    pub fn into_metrics(self) -> Vec<Metric> {
        let DriftMetrics { perplexity, same_top, divergence, copied, retrieved, bytes, speed } = self.metrics;
        let all = [divergence, same_top, perplexity, copied, retrieved, bytes, speed];
        all.into_iter().filter(|metric| !metric.series.is_empty()).collect()
    }

    /// What needs no text: probes, bytes and speed.
    fn measure(
        &mut self,
        (name, kv): (&str, &KvPolicy),
        session: &mut Session,
        mut progress: impl FnMut(usize, usize),
    ) -> Result<(), EvalError> {
        let probes = Probes { bos: self.plan.bos, seed: self.plan.seed };
        let layout = KvLayout::whole(session.spec(), kv);
        for (done, &context) in self.plan.contexts.iter().enumerate() {
            progress(done, self.plan.contexts.len());
            self.metrics.copied.add(name, context, 100.0 * probes.copied(session, context)?);
            self.metrics.retrieved.add(name, context, 100.0 * probes.retrieved(session, context)?);
            self.metrics.bytes.add(name, context, layout.sequence_bytes(context as u32) as f64 / context as f64);
        }
        if self.plan.timed > 0 {
            let depths = self.plan.contexts.iter().map(|context| context - self.plan.timed).collect();
            let plan = SpeedPlan { prompt: 1, generate: self.plan.timed, depths, repeat: REPEAT };
            let runs = measure_speed(session, &plan, progress)?;
            for (&context, run) in self.plan.contexts.iter().zip(runs) {
                self.metrics.speed.add(name, context, run.decode_tok_s.median);
            }
        }
        Ok(())
    }
}

impl DriftMetrics {
    fn new() -> DriftMetrics {
        let axis = || Axis::tokens("context", Scale::Logarithmic);
        DriftMetrics {
            perplexity: Quantity::lower("perplexity", "").along(axis()),
            same_top: Quantity::higher("top-1 agreement", "%").along(axis()),
            divergence: Quantity::lower("KL divergence", "nats").along(axis()),
            copied: Quantity::higher("long copy: tokens predicted", "%").along(axis()),
            retrieved: Quantity::higher("retrieval: values found", "%").along(axis()),
            bytes: Quantity::lower("KV cache per token", "bytes").along(axis()),
            speed: Quantity::higher("decode speed", "tokens/s").along(axis()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{session, tokens};

    /// What is found on a random text, and with random probes.
    fn drift(seed: u64, formats: &[(&str, KvPolicy)]) -> Vec<Metric> {
        let plan = DriftPlan { contexts: vec![64, 9999, 240], windows: 2, timed: 0, bos: 1, seed }.within(256);
        let text = tokens(seed, 512);
        let mut drift = Drift::new(plan, &mut session(full_precision(), 256), Some(&text), |_, _| ()).unwrap();
        for (name, formats) in formats {
            drift.add((name, formats), &mut session(formats.clone(), 256), |_, _| ()).unwrap();
        }
        drift.into_metrics()
    }

    fn values(metric: &Metric, series: &str) -> Vec<f64> {
        let series = metric.series.iter().find(|known| known.name == series).unwrap();
        series.points.iter().map(|point| point.1).collect()
    }

    #[test]
    fn the_reference_does_not_drift_from_itself() {
        for seed in 0..4 {
            let metrics = drift(seed, &[("f32", full_precision())]);
            assert_eq!(metrics.len(), 6);
            assert_eq!(values(&metrics[0], "f32"), [0.0; 3], "seed {seed}");
            assert_eq!(values(&metrics[1], "f32"), [100.0; 3], "seed {seed}");
            for metric in &metrics[2..] {
                let name = &metric.quantity.name;
                assert_eq!(values(metric, "f32"), values(metric, REFERENCE), "seed {seed}, {name}");
            }
        }
    }

    #[test]
    fn quantised_caches_drift_once_pages_are_sealed() {
        let int4 = KvPolicy::uniform(CacheFormat::Int4);
        let metrics = drift(11, &[("int4", int4)]);
        let found = values(&metrics[0], "int4");
        // The newest 128 tokens are not quantised.
        assert_eq!(found[0], 0.0);
        assert!(found[1] > 0.0 && found[2] > found[1], "{found:?}");
        assert_eq!(metrics[0].series[0].points.iter().map(|point| point.0).collect::<Vec<_>>(), [64.0, 240.0, 256.0]);
    }

    #[test]
    fn beginnings_are_windows_of_their_length() {
        let (text, bos) = (tokens(11, 512), 1);
        let cut = TextWindows { windows: 1, window: 240, bos };
        let reference = Reference::record(&mut session(full_precision(), 256), &text, cut, |_, _| ()).unwrap();
        let mut int4 = session(KvPolicy::uniform(CacheFormat::Int4), 256);
        let found = reference.compare_beginnings(&mut int4, &[200, 240], |_, _| ()).unwrap();
        let shorter = TextWindows { window: 200, ..cut };
        assert_eq!(found[0].score, crate::perplexity(&mut int4, &text, shorter, |_, _| ()).unwrap());
        assert_eq!(found[1], reference.compare(&mut int4, 1, |_, _| ()).unwrap());
    }

    #[test]
    fn bytes_are_those_of_whole_pages_and_speed_is_measured_if_it_is_wanted() {
        let plan = DriftPlan { contexts: vec![64, 256], windows: 1, timed: 4, bos: 1, seed: 3 };
        let mut drift = Drift::new(plan, &mut session(full_precision(), 256), None, |_, _| ()).unwrap();
        let f16 = KvPolicy::uniform(CacheFormat::F16);
        drift.add(("f16", &f16), &mut session(f16.clone(), 256), |_, _| ()).unwrap();
        let metrics = drift.into_metrics();
        let [bytes, speed] = &metrics[2..] else { panic!("{} metrics", metrics.len()) };
        let exact = values(bytes, REFERENCE);
        assert!(exact[0] > 0.0 && exact[0] == exact[1], "{exact:?}");
        assert_eq!(values(bytes, "f16"), exact.iter().map(|bytes| bytes / 2.0).collect::<Vec<_>>());
        assert!(speed.series.len() == 2 && values(speed, "f16").iter().all(|speed| *speed > 0.0));
    }

    #[test]
    fn impossible_contexts_are_refused() {
        for (context, timed, problem) in [(8, 0, "at least 16"), (64, 64, "shortest context")] {
            let plan = DriftPlan { contexts: vec![context], windows: 1, timed, bos: 1, seed: 7 };
            let found = Drift::new(plan, &mut session(full_precision(), 256), None, |_, _| ()).err().unwrap();
            assert!(found.to_string().contains(problem), "{found}");
        }
    }
}
