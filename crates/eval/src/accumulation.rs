//! Whether errors of a KV cache accumulate over a long text, and what recomputing it in full precision gains.

use crate::divergence::{Expected, Sums};
use crate::report::{Axis, Metric, Quantity, Scale};
use crate::two_caches::CacheUse;
use crate::{EvalError, TextWindows, TwoCaches};

/// What to measure.
#[derive(Clone, Copy, Debug)]
pub struct AccumulationPlan {
    /// Tokens of the text.
    pub tokens: usize,
    /// Tokens whose results are averaged.
    pub block: usize,
    /// Tokens after which the cache is computed anew in full precision, and then quantised again.
    pub refresh: usize,
    /// The token put before the text.
    pub bos: u32,
}

/// Runs a text through one long sequence, once as it is and once with refreshes, beside the cache in full precision.
/// `progress` hears (tokens done, tokens in all).
pub fn measure_accumulation(
    model: &mut TwoCaches,
    text: &[u32],
    plan: &AccumulationPlan,
    mut progress: impl FnMut(usize, usize),
) -> Result<Vec<Metric>, EvalError> {
    for (name, value) in [("block", plan.block), ("refresh", plan.refresh)] {
        if value == 0 {
            return Err(EvalError::Option { name, value, allowed: "at least 1" });
        }
    }
    let windows = TextWindows { windows: 1, window: plan.tokens, bos: plan.bos }.cut(text)?;
    let (input, targets) = (&windows[0].input[..], windows[0].targets);
    model.check(targets)?;
    let (mut done, all) = (0, 3 * input.len());
    let mut expected = Vec::with_capacity(input.len());
    model.predict(CacheUse::FullPrecision, (0, input), |position, logits| {
        progress(position, all);
        expected.push(Expected::of(logits, targets[position])?);
        Ok(())
    })?;
    let axis = || Axis::tokens("position", Scale::Linear);
    let mut divergence = Quantity::lower("KL divergence", "nats").along(axis());
    let mut same_top = Quantity::higher("top-1 agreement", "%").along(axis());
    let mut mean = Quantity::lower("KL divergence of all tokens", "nats").along(axis());
    for (name, refresh) in [("plain", input.len()), (&*format!("refreshed every {}", plan.refresh), plan.refresh)] {
        done += input.len();
        let (mut blocks, mut whole) = (vec![], Sums::default());
        blocks.resize_with(input.len().div_ceil(plan.block), Sums::default);
        for start in (0..input.len()).step_by(refresh) {
            if start > 0 {
                // Before this part, the caches hold what earlier refreshes have left there.
                let part = start - refresh;
                model.compute(CacheUse::Refresh, (part, &input[part..start]))?;
            }
            let part = &input[start..input.len().min(start.saturating_add(refresh))];
            model.predict(CacheUse::Tested, (start, part), |position, logits| {
                progress(done + position, all);
                let compared = expected[position].compare(logits, targets[position])?;
                blocks[position / plan.block].count(&compared);
                whole.count(&compared);
                Ok(())
            })?;
        }
        for (index, block) in blocks.iter().enumerate() {
            let (end, found) = (input.len().min((index + 1) * plan.block), block.finish());
            divergence.add(name, end, found.divergence);
            same_top.add(name, end, 100.0 * found.same_top);
        }
        mean.add(name, input.len(), whole.finish().divergence);
    }
    progress(all, all);
    Ok(vec![divergence, same_top, mean])
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use cascadia_engine::OpenOptions;
    use cascadia_model::{CacheFormat, KvPolicy};

    use super::*;
    use crate::fixture::{files, options, session, tokens};
    use crate::{Reference, full_precision};

    const PLAN: AccumulationPlan = AccumulationPlan { tokens: 250, block: 50, refresh: 70, bos: 1 };

    fn measure(kv: KvPolicy, plan: &AccumulationPlan) -> Vec<Metric> {
        let options = OpenOptions { context: Some(256), ..options(kv) };
        let mut model = TwoCaches::open(Arc::new(files()), &options).unwrap();
        measure_accumulation(&mut model, &tokens(11, 250), plan, |_, _| ()).unwrap()
    }

    fn int4() -> KvPolicy {
        KvPolicy::uniform(CacheFormat::Int4)
    }

    #[test]
    fn the_cache_in_full_precision_has_no_error_to_accumulate() {
        let metrics = measure(full_precision(), &PLAN);
        for (metric, value) in metrics.iter().zip([0.0, 100.0, 0.0]) {
            let values = metric.series.iter().flat_map(|series| &series.points);
            assert!(values.clone().count() > 0 && values.clone().all(|point| point.1 == value), "{metric:?}");
        }
    }

    #[test]
    fn without_refreshes_it_is_the_divergence_of_a_session() {
        let metrics = measure(int4(), &PLAN);
        let cut = TextWindows { windows: 1, window: 250, bos: 1 };
        let reference =
            Reference::record(&mut session(full_precision(), 256), &tokens(11, 250), cut, |_, _| ()).unwrap();
        let found = reference.compare(&mut session(int4(), 256), 1, |_, _| ()).unwrap();
        assert!(found.divergence > 0.0);
        assert_eq!(metrics[2].series[0].points, [(250.0, found.divergence)]);
        // Blocks are averaged over their own tokens: together they are the whole.
        let blocks = &metrics[0].series[0].points;
        assert_eq!(blocks.iter().map(|point| point.0).collect::<Vec<_>>(), [50.0, 100.0, 150.0, 200.0, 250.0]);
        let mean: f64 = blocks.iter().map(|point| point.1).sum::<f64>() / 5.0;
        assert!((mean / found.divergence - 1.0).abs() < 1e-9, "{mean} instead of {}", found.divergence);
    }

    #[test]
    fn refreshes_change_what_follows_them_only() {
        let never = measure(int4(), &AccumulationPlan { refresh: 250, ..PLAN });
        for metric in &never {
            assert_eq!(metric.series[0].points, metric.series[1].points, "{metric:?}");
        }
        // Pages are read sealed from position 191 on. Until then, tokens know of no rounding that a refresh could undo.
        let metrics = measure(int4(), &AccumulationPlan { refresh: 220, ..PLAN });
        let [plain, refreshed] = &metrics[0].series[..] else { panic!("two series") };
        assert_eq!(plain.points[..4], refreshed.points[..4]);
        assert!(plain.points[4] != refreshed.points[4], "{metrics:?}");
    }
}
