//! Self-attention: what lets a token read the tokens before it.

use cascadia_kernels::Attention;

use crate::kv_pool::LayerCache;
use crate::plan::RowPlaces;
use crate::projection::Projection;
use crate::rope::RopeSpec;
use crate::workspace::Workspace;
use crate::{LayerSpec, Machine, PAGE_TOKENS, StepPlan};

/// Grouped-query attention with rotary positions.
pub(crate) struct SelfAttention {
    pub(crate) query: Projection,
    pub(crate) key: Projection,
    pub(crate) value: Projection,
    pub(crate) output: Projection,
    pub(crate) spec: LayerSpec,
}

/// The step a layer runs in.
pub(crate) struct StepView<'a> {
    pub(crate) plan: &'a StepPlan,
    pub(crate) places: &'a RowPlaces,
    pub(crate) ropes: &'a [RopeSpec],
}

impl SelfAttention {
    /// What the attention kernel needs to know of a layer.
    pub(crate) fn shape(spec: &LayerSpec) -> Attention {
        Attention {
            heads: spec.heads,
            kv_heads: spec.kv_heads,
            head: spec.head,
            scale: spec.score_scale,
            window: spec.window.map(|window| window as usize),
            page_tokens: PAGE_TOKENS as usize,
        }
    }

    /// Reads `workspace.input`, adds keys and values to the cache, leaves the result in `workspace.output`.
    pub(crate) fn run(
        &self,
        step: &StepView<'_>,
        cache: &mut LayerCache,
        workspace: &mut Workspace,
        machine: &Machine,
    ) {
        let Workspace { input, inner, queries, keys, values, output, ropes, scratch, .. } = workspace;
        let rows = step.plan.tokens.len();
        let head = self.spec.head;
        for (projection, out) in [(&self.query, &mut *queries), (&self.key, keys), (&self.value, values)] {
            out.resize(rows * projection.outputs(), 0.0);
            projection.apply(input, out, machine);
        }
        let (table, style) = (&ropes[self.spec.rope], step.ropes[self.spec.rope].style);
        for (projection, out) in [(&self.query, &mut *queries), (&self.key, keys)] {
            machine.pool.chunks(out, projection.outputs(), |row, heads| table.rotate(row, style, heads, head));
        }
        cache.write(step, keys, values, machine);
        let cache = &*cache;
        let attended = inner.reset(rows, self.query.outputs());
        let page = |row: usize, kv_head: usize, page: usize| {
            cache.page(step.plan.steps[step.places.sequences[row] as usize].pages[page], kv_head)
        };
        let position = |row: usize| step.places.positions[row] as usize;
        Self::shape(&self.spec).run(queries, attended, position, page, (machine.ops, &machine.pool, scratch));
        output.resize(rows * self.output.outputs(), 0.0);
        self.output.apply(inner, output, machine);
    }
}
