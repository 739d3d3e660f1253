//! Attention over a small latent row per token, from which every head has its own keys and values.
//!
//! A head's keys are its own linear map of the latent row, so its query can be taken through that map once instead of
//! every key: all heads then attend over the latent rows themselves, and the value map is applied to what they found.
//! The cache holds one latent row and one rotated key per token, and prefill and decoding are the same code.

use cascadia_kernels::{Activations, Attention, RowPlace};

use crate::kv::LayerCache;
use crate::norm::Norm;
use crate::projection::{GroupedProjection, Projection, RowGroups};
use crate::spec::LatentSpec;
use crate::step::Step;
use crate::workspace::Workspace;
use crate::{Kind, LoadOptions, PAGE_TOKENS};

/// Heads that one task attends with: enough to read the cache seldom, few enough that threads share a token's heads.
const MOST_HEADS_PER_TASK: usize = 16;

/// Multi-head latent attention.
pub(crate) struct LatentAttention {
    /// Before the projection of queries, where that is a product of two with a norm between.
    pub(crate) query_down: Option<(Projection, Norm)>,
    pub(crate) query: Projection,
    /// To the latent row and the key that is rotated.
    pub(crate) down: Projection,
    pub(crate) norm: Norm,
    /// Per head, from the plain part of a query to what it seeks in latent rows.
    pub(crate) key_up: GroupedProjection,
    /// Per head, from latent rows to values.
    pub(crate) value_up: GroupedProjection,
    pub(crate) output: Projection,
    /// The numbers of the heads.
    pub(crate) heads: Vec<usize>,
    pub(crate) spec: LatentSpec,
}

/// Buffers of a layer with latent attention.
pub(crate) struct LatentWorkspace {
    /// Queries before they are taken through the map of keys.
    queries: Vec<f32>,
    /// All rows of the first head, then of the second, and so on.
    by_head: Activations,
    /// What the maps of the heads make of those.
    results: Vec<f32>,
    /// The first row of every head there, and the number of rows.
    starts: Vec<usize>,
    /// Of all those rows, the rows of the step.
    sources: Vec<usize>,
}

/// What the attention kernel needs to know: all heads read one cached head, in groups of a size that suits threads.
pub(crate) fn kernel(spec: &LatentSpec) -> Attention {
    let group = (1..=MOST_HEADS_PER_TASK).rev().find(|group| spec.heads.is_multiple_of(*group)).unwrap_or(1);
    Attention {
        heads: spec.heads,
        kv_heads: spec.heads / group,
        head: spec.rank + spec.rotated,
        value_head: spec.rank,
        scale: spec.score_scale,
        soft_cap: None,
        slopes: None,
        sinks: None,
        window: None,
        sees_later: false,
        page_tokens: PAGE_TOKENS as usize,
    }
}

impl LatentWorkspace {
    /// Room for the largest step of any of the layers `specs`.
    pub(crate) fn new<'a>(
        specs: impl Iterator<Item = &'a LatentSpec> + Clone,
        options: &LoadOptions,
    ) -> LatentWorkspace {
        let rows = options.limits.rows_per_step as usize;
        let greatest = |size: fn(&LatentSpec) -> usize| specs.clone().map(size).max().unwrap_or(0);
        let widest = greatest(|spec| spec.heads * spec.plain.max(spec.rank).max(spec.value));
        LatentWorkspace {
            queries: Vec::with_capacity(rows * greatest(|spec| spec.heads * (spec.plain + spec.rotated))),
            by_head: options.activations(rows, widest),
            results: Vec::with_capacity(rows * widest),
            starts: Vec::with_capacity(greatest(|spec| spec.heads) + 1),
            sources: Vec::with_capacity(rows * greatest(|spec| spec.heads)),
        }
    }
}

impl LatentAttention {
    /// Reads `workspace.input`, adds latent rows and rotated keys to the cache, leaves the result in
    /// `workspace.output`.
    pub(crate) fn run(&self, step: &Step<'_>, cache: &mut LayerCache<'_>, workspace: &mut Workspace) {
        let rows = step.rows();
        workspace.latent.starts.clear();
        workspace.latent.starts.extend((0..=self.spec.heads).map(|head| head * rows));
        workspace.latent.sources.clear();
        workspace.latent.sources.extend((0..self.spec.heads).flat_map(|_| 0..rows));
        self.make_queries(step, workspace);
        self.make_keys(step, workspace);
        step.profile.mark(Kind::AttentionInput);
        let Workspace { inner, queries, keys, values, output, latent, scratch, .. } = workspace;
        cache.write(step, keys, values);
        step.profile.mark(Kind::CacheWrite);
        let (cache, kernel, LatentSpec { heads, rank, value, .. }) = (&*cache, kernel(&self.spec), self.spec);
        let page = |row: usize, _: usize, page: usize| {
            let sequence = &step.plan.steps[step.places.sequences[row] as usize];
            cache.page(sequence, step.places.positions[row], page as u32, 0)
        };
        let place = |row: usize| RowPlace::last(step.places.positions[row] as usize);
        let found = inner.reset(rows, heads * rank);
        kernel.run(queries, found, place, page, (step.ops, step.pool, scratch));
        let seen: u64 = (0..rows).map(|row| kernel.seen(place(row)) as u64).sum();
        step.profile.work(seen * cache.token_bytes(), seen * kernel.operations());
        step.profile.mark(Kind::Attention);

        step.pool.chunks(latent.by_head.reset(heads * rows, rank), rank, |_, at, out| {
            out.copy_from_slice(part(found, (at % rows * heads + at / rows) * rank, rank));
        });
        self.map_heads(&self.value_up, latent, step);
        let made = &latent.results;
        step.pool.chunks(inner.reset(rows, heads * value), value, |_, at, out| {
            out.copy_from_slice(part(made, (at % heads * rows + at / heads) * value, value));
        });
        output.resize(rows * self.output.outputs(), 0.0);
        self.output.apply(inner, output, step);
        step.profile.mark(Kind::AttentionOutput);
    }

    /// Leaves in `workspace.queries` what every head seeks in latent rows, and its part that is rotated.
    fn make_queries(&self, step: &Step<'_>, workspace: &mut Workspace) {
        let Workspace { input, inner, queries: sought, spare, latent, .. } = workspace;
        let LatentSpec { heads, plain, rotated, rank, rope, .. } = self.spec;
        let (rows, head) = (step.rows(), plain + rotated);
        latent.queries.resize(rows * heads * head, 0.0);
        if let Some((projection, norm)) = &self.query_down {
            let low = inner.reset(rows, projection.outputs());
            projection.apply(input, low, step);
            norm.apply_in_place(low, spare, step);
            self.query.apply(inner, &mut latent.queries, step);
        } else {
            self.query.apply(input, &mut latent.queries, step);
        }
        let queries = latent.queries.as_slice();
        step.pool.chunks(latent.by_head.reset(heads * rows, plain), plain, |_, at, out| {
            out.copy_from_slice(part(queries, (at % rows * heads + at / rows) * head, plain));
        });
        self.map_heads(&self.key_up, latent, step);
        let table = &step.ropes[rope];
        let (queries, results) = (latent.queries.as_slice(), latent.results.as_slice());
        sought.resize(rows * heads * (rank + rotated), 0.0);
        step.pool.chunks(sought, rank + rotated, |_, at, out| {
            let (row, number) = (at / heads, at % heads);
            out[..rank].copy_from_slice(part(results, (number * rows + row) * rank, rank));
            out[rank..].copy_from_slice(part(queries, at * head + plain, rotated));
            table.rotate(row, &mut out[rank..], rotated);
        });
    }

    /// Leaves latent rows in `workspace.values`, and with the rotated key behind them in `workspace.keys`.
    fn make_keys(&self, step: &Step<'_>, workspace: &mut Workspace) {
        let Workspace { input, keys, values, spare, .. } = workspace;
        let LatentSpec { rotated, rank, rope, .. } = self.spec;
        let rows = step.rows();
        keys.resize(rows * (rank + rotated), 0.0);
        self.down.apply(input, keys, step);
        values.resize(rows * rank, 0.0);
        let unnormed = keys.as_slice();
        step.pool.chunks(values, rank, |_, row, out| {
            out.copy_from_slice(part(unnormed, row * (rank + rotated), rank));
        });
        self.norm.apply_in_place(values, spare, step);
        let (table, values) = (&step.ropes[rope], values.as_slice());
        step.pool.chunks(keys, rank + rotated, |_, row, out| {
            out[..rank].copy_from_slice(part(values, row * rank, rank));
            table.rotate(row, &mut out[rank..], rotated);
        });
    }

    /// Takes the rows of every head through its own map.
    fn map_heads(&self, maps: &GroupedProjection, latent: &mut LatentWorkspace, step: &Step<'_>) {
        let LatentWorkspace { by_head, results, starts, sources, .. } = latent;
        results.resize(by_head.float().count() * maps.outputs(), 0.0);
        maps.apply(RowGroups { members: &self.heads, starts, sources }, by_head, results, step);
    }
}

fn part(numbers: &[f32], start: usize, length: usize) -> &[f32] {
    &numbers[start..start + length]
}
