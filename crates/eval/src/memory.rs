//! How much memory a KV cache takes as a sequence grows, measured and by arithmetic.

use cascadia_engine::Session;
use cascadia_model::{CacheDemand, CachePages, KvLayout, KvPolicy, PAGE_TOKENS};

use crate::EvalError;
use crate::report::{Axis, Metric, Quantity, Scale};
use crate::speed::synthetic_tokens;

/// Places at which memory is measured.
const PLACES: usize = 16;

/// What to measure.
#[derive(Clone, Copy, Debug)]
pub struct MemoryPlan {
    /// Tokens of the sequence at its end.
    pub context: usize,
}

/// The memory of several caches so far.
pub struct KvMemory {
    plan: MemoryPlan,
    growth: Metric,
    per_token: Metric,
}

impl MemoryPlan {
    /// Tokens of one step: what the first of them takes is not counted, because it is also the first to use weights and
    /// buffers.
    pub fn rows_per_step(&self) -> usize {
        (self.context / 4).clamp(1, 2 * PAGE_TOKENS as usize)
    }

    /// Ends of pages at which memory is measured, and the end of the sequence.
    fn places(&self, first: usize) -> Vec<usize> {
        let place = |part: usize| (self.context * part / PLACES).next_multiple_of(PAGE_TOKENS as usize);
        let mut places: Vec<usize> = (1..=PLACES).map(|part| place(part).min(self.context)).collect();
        places.retain(|place| *place > first);
        places.dedup();
        places
    }
}

impl KvMemory {
    /// Nothing measured yet.
    pub fn new(plan: MemoryPlan) -> Result<KvMemory, EvalError> {
        if plan.context < 2 {
            return Err(EvalError::Option { name: "context", value: plan.context, allowed: "at least 2" });
        }
        let axis = || Axis::tokens("context", Scale::Linear);
        let growth = Quantity::lower("growth of the KV cache", "MB").along(axis());
        let per_token = Quantity::lower("KV cache per token", "bytes").along(axis());
        Ok(KvMemory { plan, growth, per_token })
    }

    /// Measures an empty session with the cache `kv`. `held` says how much memory the process holds; `progress`
    /// hears (tokens done, tokens in all).
    pub fn add(
        &mut self,
        (name, kv): (&str, &KvPolicy),
        session: &mut Session,
        mut held: impl FnMut() -> Option<u64>,
        mut progress: impl FnMut(usize, usize),
    ) -> Result<(), EvalError> {
        let layout = KvLayout::whole(session.spec(), kv);
        let rows_per_step = session.rows_per_step() as u32;
        let theory = |tokens: usize| {
            let demand = CacheDemand { context: tokens as u32, rows_per_step, sequences: 1 };
            CachePages::whole(&layout, &demand).bytes(&layout)
        };
        let tokens = synthetic_tokens(session.spec().vocabulary, self.plan.context);
        let first = self.plan.rows_per_step().min(rows_per_step as usize);
        session.truncate(0);
        session.append(&tokens[..first])?;
        let (held_first, theory_first) = (held(), theory(first));
        for place in self.plan.places(first) {
            progress(session.tokens().len(), self.plan.context);
            let appended = session.tokens().len();
            session.append(&tokens[appended..place])?;
            let measured = held().zip(held_first).map(|(now, first)| now as f64 - first as f64);
            let grown = [("theory", Some(theory(place) as f64 - theory_first as f64)), ("measured", measured)];
            for (kind, bytes) in grown {
                let Some(bytes) = bytes else { continue };
                let series = format!("{name}, {kind}");
                self.growth.add(&series, place, bytes / 1e6);
                self.per_token.add(&series, place, bytes / (place - first) as f64);
            }
        }
        progress(self.plan.context, self.plan.context);
        Ok(())
    }

    /// Everything that was measured.
    pub fn into_metrics(self) -> Vec<Metric> {
        vec![self.per_token, self.growth]
    }
}

#[cfg(test)]
mod tests {
    use cascadia_model::{CacheFormat, MixerSpec};

    use super::*;
    use crate::fixture::session;

    #[test]
    fn growth_is_measured_beside_theory() {
        let kv = KvPolicy::uniform(CacheFormat::F16);
        let mut memory = KvMemory::new(MemoryPlan { context: 256 }).unwrap();
        let mut held = [1_000_000, 1_064_000, 1_128_000, 1_000_000].into_iter().map(Some);
        let mut session = session(kv.clone(), 256);
        let spec = session.spec().clone();
        memory.add(("f16", &kv), &mut session, || held.next().flatten(), |_, _| ()).unwrap();
        let metrics = memory.into_metrics();
        let series = |metric: usize, name: &str| {
            let series = metrics[metric].series.iter().find(|series| series.name == name).unwrap();
            series.points.clone()
        };
        assert_eq!(series(0, "f16, measured"), [(128.0, 1000.0), (192.0, 1000.0), (256.0, 0.0)]);
        assert_eq!(series(1, "f16, measured"), [(128.0, 0.064), (192.0, 0.128), (256.0, 0.0)]);
        // Two bytes for each number of keys and values of every layer.
        let numbers: usize = spec.layers.iter().map(|layer| cached_numbers(&layer.mixer.part)).sum();
        assert_eq!(series(0, "f16, theory"), [128.0, 192.0, 256.0].map(|place| (place, 2.0 * numbers as f64)));
    }

    fn cached_numbers(mixer: &MixerSpec) -> usize {
        match mixer {
            MixerSpec::Attention(attention) => 2 * attention.kv_heads * attention.head,
            MixerSpec::Latent(_) => panic!("the fixture has plain attention"),
        }
    }

    #[test]
    fn a_system_that_does_not_say_gives_theory_only() {
        let mut memory = KvMemory::new(MemoryPlan { context: 200 }).unwrap();
        let kv = KvPolicy::default();
        memory.add(("auto", &kv), &mut session(kv.clone(), 256), || None, |_, _| ()).unwrap();
        let metrics = memory.into_metrics();
        assert!(metrics.iter().all(|metric| metric.series.len() == 1));
        assert_eq!(metrics[0].series[0].points.last().map(|point| point.0), Some(200.0));
    }
}
