//! Self-attention: what lets a token read the other tokens of its sequence.

use cascadia_kernels::{Attention, RowPlace};

use crate::kv::LayerCache;
use crate::latent::{self, LatentAttention};
use crate::norm::Norm;
use crate::projection::Projection;
use crate::spec::{AlibiSpec, AttentionSpec, MixerSpec};
use crate::step::Step;
use crate::workspace::Workspace;
use crate::{Kind, PAGE_TOKENS};

/// What lets a token read the tokens before it.
pub(crate) enum Mixer {
    /// Keys and values of some heads are cached.
    Attention(SelfAttention),
    /// One small row is cached, from which all heads have their keys and values.
    Latent(LatentAttention),
}

/// Grouped-query attention with rotary positions.
pub(crate) struct SelfAttention {
    pub(crate) query: Projection,
    pub(crate) query_norm: Option<Norm>,
    /// What is added to the cache; nothing where that of another layer is read.
    pub(crate) cached: Option<KeysAndValues>,
    pub(crate) output: Projection,
    pub(crate) attention: Attention,
    pub(crate) rope: Option<usize>,
    pub(crate) clamp: Option<f32>,
}

/// What makes the keys and values of a layer.
pub(crate) struct KeysAndValues {
    pub(crate) key: Projection,
    /// `None` where values are what the projection of keys makes.
    pub(crate) value: Option<Projection>,
    pub(crate) key_norm: Option<Norm>,
    pub(crate) value_norm: Option<Norm>,
}

impl Mixer {
    /// Reads `workspace.input`, adds to the cache, leaves the result in `workspace.output`.
    pub(crate) fn run(&self, step: &Step<'_>, cache: &mut LayerCache<'_>, workspace: &mut Workspace) {
        match self {
            Mixer::Attention(attention) => attention.run(step, cache, workspace),
            Mixer::Latent(attention) => attention.run(step, cache, workspace),
        }
    }
}

/// What the attention kernel needs to know of a layer.
pub(crate) fn kernel(spec: &MixerSpec) -> Attention {
    match spec {
        MixerSpec::Attention(spec) => attention(spec, None),
        MixerSpec::Latent(spec) => latent::kernel(spec),
    }
}

/// What the attention kernel needs to know of a layer whose heads have these sinks.
pub(crate) fn attention(spec: &AttentionSpec, sinks: Option<Vec<f32>>) -> Attention {
    Attention {
        heads: spec.heads,
        kv_heads: spec.kv_heads,
        head: spec.head,
        value_head: spec.head,
        scale: spec.score_scale,
        soft_cap: spec.soft_cap,
        slopes: spec.alibi.map(|alibi| slopes(&alibi, spec.heads)),
        sinks,
        window: spec.window.map(|window| window as usize),
        sees_later: spec.sees_later,
        page_tokens: PAGE_TOKENS as usize,
    }
}

/// Slopes of all heads: a geometric series over the next smaller power of two, then every other member of the series
/// that is twice as fine.
fn slopes(alibi: &AlibiSpec, heads: usize) -> Vec<f32> {
    let whole = if heads.is_power_of_two() { heads } else { heads.next_power_of_two() / 2 };
    let slope = |step: f64| (libm::exp2(-f64::from(alibi.steepest) * step / whole as f64) as f32) * alibi.scale;
    let first = (1..=whole).map(|head| slope(head as f64));
    first.chain((0..heads - whole).map(|extra| slope(extra as f64 + 0.5))).collect()
}

impl SelfAttention {
    fn run(&self, step: &Step<'_>, cache: &mut LayerCache<'_>, workspace: &mut Workspace) {
        let Workspace { input, inner, queries, keys, values, output, spare, scratch, .. } = workspace;
        let (rows, head) = (step.rows(), self.attention.head);
        let rotate = |out: &mut [f32]| {
            if let Some(rope) = self.rope {
                let (table, width) = (&step.ropes[rope], out.len() / rows);
                step.pool.chunks(out, width, |_, row, heads| table.rotate(row, heads, head));
            }
        };
        let mut normalise = |norm: &Option<Norm>, out: &mut [f32]| {
            norm.iter().for_each(|norm| norm.apply_in_place(out, spare, step));
        };
        let query = &self.query;
        queries.resize(rows * query.outputs(), 0.0);
        if let Some(KeysAndValues { key, value, .. }) = &self.cached {
            keys.resize(rows * key.outputs(), 0.0);
            if let Some(value) = value {
                values.resize(rows * value.outputs(), 0.0);
                Projection::apply_all([query, key, value], input, [queries, keys, values], step);
            } else {
                Projection::apply_all([query, key], input, [queries, keys], step);
                values.clone_from(keys);
            }
        } else {
            query.apply(input, queries, step);
        }
        if let Some(most) = self.clamp {
            let all = queries.iter_mut().chain(&mut *keys).chain(&mut *values);
            all.for_each(|number| *number = number.clamp(-most, most));
        }
        step.profile.mark(Kind::AttentionInput);
        normalise(&self.query_norm, queries);
        rotate(queries);
        if let Some(KeysAndValues { key_norm, value_norm, .. }) = &self.cached {
            normalise(key_norm, keys);
            normalise(value_norm, values);
            rotate(keys);
        }
        step.profile.mark(Kind::Rope);
        if self.cached.is_some() {
            cache.write(step, keys, values);
            step.profile.mark(Kind::CacheWrite);
        }
        let cache = &*cache;
        let attended = inner.reset(rows, self.attention.heads * self.attention.value_head);
        let page = |row: usize, kv_head: usize, page: usize| {
            let sequence = &step.plan.steps[step.places.sequences[row] as usize];
            cache.page(sequence, step.places.positions[row], page as u32, kv_head)
        };
        let place = |row: usize| {
            let sequence = &step.plan.steps[step.places.sequences[row] as usize];
            RowPlace { position: step.places.positions[row] as usize, end: sequence.end() as usize }
        };
        self.attention.run(queries, attended, place, page, (step.ops, step.pool, scratch));
        let seen: u64 = (0..rows).map(|row| self.attention.seen(place(row)) as u64).sum();
        step.profile.work(seen * cache.token_bytes(), seen * self.attention.operations());
        step.profile.mark(Kind::Attention);
        output.resize(rows * self.output.outputs(), 0.0);
        self.output.apply(inner, output, step);
        step.profile.mark(Kind::AttentionOutput);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slopes_of_any_number_of_heads() {
        let alibi = AlibiSpec { steepest: 8.0, scale: 1.0 };
        assert_eq!(slopes(&alibi, 4), [0.25, 0.0625, 0.015_625, 0.003_906_25]);
        assert_eq!(slopes(&alibi, 6), [0.25, 0.0625, 0.015_625, 0.003_906_25, 0.5, 0.125]);
    }
}
