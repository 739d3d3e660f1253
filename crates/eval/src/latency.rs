//! How long a user waits for the first token and for each further one, by context and number of users.

use std::time::Instant;

use cascadia_engine::Pipeline;

use crate::EvalError;
use crate::batch::Batch;
use crate::load::Quantiles;
use crate::report::{Axis, Metric, Quantity, Scale};
use crate::speed::synthetic_tokens;

/// What to measure.
#[derive(Clone, Debug)]
pub struct LatencyPlan {
    /// Tokens of each user's prompt; one run for each.
    pub contexts: Vec<usize>,
    /// Decode steps that are timed.
    pub steps: usize,
}

/// Times of all users so far.
pub struct Latency {
    plan: LatencyPlan,
    /// Percentiles of a decode step.
    step: [Metric; 3],
    /// Percentiles of the first token.
    first: [Metric; 3],
}

impl LatencyPlan {
    /// The plan with prompts that leave room for all steps in a context: longer ones are shortened, and each length is
    /// measured once.
    pub fn within(mut self, context: usize) -> LatencyPlan {
        self.contexts.iter_mut().for_each(|length| *length = (*length).min(context.saturating_sub(self.steps)));
        self.contexts.sort_unstable();
        self.contexts.dedup();
        self
    }

    /// The context that a model needs.
    pub fn context(&self) -> usize {
        self.contexts.iter().max().map_or(0, |longest| longest + self.steps)
    }
}

impl Latency {
    /// Nothing measured yet.
    pub fn new(plan: LatencyPlan) -> Result<Latency, EvalError> {
        let shortest = plan.contexts.iter().copied().min().unwrap_or(0);
        for (name, value) in [("contexts", shortest), ("steps", plan.steps)] {
            if value == 0 {
                return Err(EvalError::Option { name, value, allowed: "at least 1, within the model's context" });
            }
        }
        let along = |name: &str| Quantity::lower(name, "ms").along(Axis::tokens("context", Scale::Logarithmic));
        let step = ["decode step, p50", "decode step, p95", "decode step, p99"].map(along);
        let first = ["first token, p50", "first token, p95", "first token, p99"].map(along);
        Ok(Latency { plan, step, first })
    }

    /// Measures so many users on a model whose cache has room for all of them. Their prompts come at the same time and
    /// are computed one after the other; then all of them decode together. `progress` hears (contexts done, contexts in
    /// all).
    pub fn add(
        &mut self,
        users: usize,
        pipeline: Pipeline,
        mut progress: impl FnMut(usize, usize),
    ) -> Result<(), EvalError> {
        let most = pipeline.limits().rows_per_step as usize;
        if users == 0 || users > most {
            let allowed = "at least 1 and at most what one step computes";
            return Err(EvalError::Option { name: "users", value: users, allowed });
        }
        let name = if users == 1 { "1 user".to_owned() } else { format!("{users} users") };
        let tokens = synthetic_tokens(pipeline.spec().vocabulary, self.plan.context().max(users));
        let mut batch = Batch::new(pipeline);
        // Weights are in memory and kernels are warm from here on.
        batch.prefill(0, &tokens[..1])?;
        for (done, &context) in self.plan.contexts.iter().enumerate() {
            progress(done, self.plan.contexts.len());
            let begin = Instant::now();
            let mut firsts = Vec::with_capacity(users);
            for user in 0..users {
                batch.prefill(user, &tokens[..context])?;
                firsts.push(begin.elapsed().as_secs_f64() * 1e3);
            }
            let mut steps = Vec::with_capacity(self.plan.steps);
            for step in 0..self.plan.steps {
                let begin = Instant::now();
                batch.decode(context + step, &tokens[..users])?;
                steps.push(begin.elapsed().as_secs_f64() * 1e3);
            }
            for (metrics, times) in [(&mut self.step, steps), (&mut self.first, firsts)] {
                let Quantiles { p50, p95, p99, .. } = Quantiles::of(times);
                metrics.iter_mut().zip([p50, p95, p99]).for_each(|(metric, value)| metric.add(&name, context, value));
            }
        }
        progress(self.plan.contexts.len(), self.plan.contexts.len());
        Ok(())
    }

    /// Everything that was measured.
    pub fn into_metrics(self) -> Vec<Metric> {
        self.step.into_iter().chain(self.first).collect()
    }
}

#[cfg(test)]
mod tests {
    use cascadia_engine::{CacheSize, Engine, OpenOptions};
    use cascadia_model::KvPolicy;

    use super::*;
    use crate::fixture::{files, options};

    #[test]
    fn every_number_of_users_is_timed_at_every_context() {
        let plan = LatencyPlan { contexts: vec![9999, 10, 70], steps: 5 }.within(100);
        assert_eq!((&plan.contexts[..], plan.context()), (&[10, 70, 95][..], 100));
        let mut latency = Latency::new(plan).unwrap();
        for users in [1, 3] {
            let cache = CacheSize::Sequences(users);
            let options = OpenOptions { context: Some(100), cache, ..options(KvPolicy::default()) };
            let pipeline = Engine::from_files(files(), &options).unwrap().into_pipeline();
            latency.add(users as usize, pipeline, |_, _| ()).unwrap();
        }
        let metrics = latency.into_metrics();
        assert_eq!(metrics.len(), 6);
        for metric in &metrics {
            let names: Vec<&str> = metric.series.iter().map(|series| series.name.as_str()).collect();
            assert_eq!(names, ["1 user", "3 users"]);
            assert!(metric.series.iter().flat_map(|series| &series.points).all(|point| point.1 > 0.0));
        }
        for (lower, higher) in [(0, 1), (1, 2), (3, 4), (4, 5)] {
            let points = |metric: usize| metrics[metric].series.iter().flat_map(|series| series.points.clone());
            assert!(points(lower).zip(points(higher)).all(|(lower, higher)| lower.1 <= higher.1));
        }
    }

    #[test]
    fn plans_without_room_are_refused() {
        for plan in [
            LatencyPlan { contexts: vec![10], steps: 0 },
            LatencyPlan { contexts: vec![10], steps: 100 }.within(100),
            LatencyPlan { contexts: vec![], steps: 1 },
        ] {
            assert!(Latency::new(plan).is_err());
        }
    }
}
