//! A stage: a range of layers that turns hidden states into hidden states.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use cascadia_weights::ModelFiles;

use crate::decoder::Layer;
use crate::kv_pool::KvPool;
use crate::mixer::StepView;
use crate::per_layer::PerLayerInputs;
use crate::plan::{PlanLimits, RowPlaces};
use crate::read_ahead::ReadAhead;
use crate::residency::{MemoryCap, Residency};
use crate::rope::{RopeSpec, Rotation};
use crate::workspace::Workspace;
use crate::{Compute, Kind, LoadOptions, ModelError, ModelSpec, Place, StageError, StepPlan, arch, assemble};

/// Hidden states of one step, one row of `width` numbers per token.
#[derive(Clone, Debug, Default)]
pub struct Hidden {
    /// Row-major values, `rows × width`.
    pub values: Vec<f32>,
    /// Numbers in a row: of all streams, where hidden states have several.
    pub width: usize,
}

/// A range of layers, here or on another machine.
pub trait Stage: Send + Sync {
    /// The layers this stage runs.
    fn layers(&self) -> Range<u32>;
    /// Replaces the rows of `hidden` by what they are after this stage's layers.
    fn run(&self, plan: &StepPlan, hidden: &mut Hidden) -> Result<(), StageError>;
    /// Whether it computes with the threads of both ends of the model, so that it takes turns with them; otherwise
    /// whoever runs it only waits.
    fn is_here(&self) -> bool {
        false
    }
}

/// A stage that others look at too while it runs.
impl<S: Stage + ?Sized> Stage for Arc<S> {
    fn layers(&self) -> Range<u32> {
        (**self).layers()
    }

    fn run(&self, plan: &StepPlan, hidden: &mut Hidden) -> Result<(), StageError> {
        (**self).run(plan, hidden)
    }

    fn is_here(&self) -> bool {
        (**self).is_here()
    }
}

/// Layers that run on this machine.
pub struct LocalStage {
    files: Arc<ModelFiles>,
    first: u32,
    layers: Vec<Layer>,
    per_layer: Option<PerLayerInputs>,
    weights: ReadAhead,
    ropes: Vec<RopeSpec>,
    rotations: Vec<Rotation>,
    width: usize,
    limits: PlanLimits,
    compute: Compute,
    state: Mutex<State>,
}

/// What a step changes.
struct State {
    cache: KvPool,
    workspace: Workspace,
}

impl LocalStage {
    /// Builds the layers `range` of a model with the cache that `options` ask for.
    pub fn new(
        files: &Arc<ModelFiles>,
        spec: &ModelSpec,
        range: Range<u32>,
        options: &LoadOptions,
    ) -> Result<LocalStage, ModelError> {
        let cache_pages = options.limits.cache;
        let limits = PlanLimits {
            rows: options.limits.rows_per_step,
            context: options.limits.context,
            pages: cache_pages.pages,
            window: spec.window().unwrap_or(0),
            window_pages: cache_pages.window,
        };
        let catalog = arch::catalog(files)?;
        let meter = options.meter.as_ref();
        let layers = range.clone().map(|index| assemble::layer(&catalog, spec, index as usize, meter));
        let layers = layers.collect::<Result<_, _>>()?;
        let own = range.start as usize..range.end as usize;
        let per_layer = spec.per_layer.map(|inputs| PerLayerInputs::new(&catalog, spec, inputs, (own.clone(), meter)));
        let compute = options.compute();
        let step = options.step_limits();
        let part = ModelSpec { layers: spec.layers[own.clone()].to_vec(), ..spec.clone() };
        let cap = options.memory.map(|memory| MemoryCap { memory, cache_bytes: cache_pages.bytes(&part) });
        let residency = Residency::new(files, spec, range.clone(), (&step, cap))?;
        let state = State { cache: KvPool::new(spec, own, &limits)?, workspace: Workspace::new(spec, &step) };
        Ok(LocalStage {
            files: Arc::clone(files),
            first: range.start,
            layers,
            per_layer: per_layer.transpose()?,
            weights: ReadAhead::new(residency),
            ropes: spec.ropes.clone(),
            rotations: spec.ropes.iter().map(|rope| rope.rotation(options.limits.context)).collect(),
            width: spec.hidden_width(),
            limits,
            compute,
            state: Mutex::new(state),
        })
    }

    /// Takes rows that have found their places through all layers.
    fn run_layers(
        &self,
        plan: &StepPlan,
        places: &RowPlaces,
        hidden: &mut Hidden,
        State { cache, workspace }: &mut State,
    ) -> Result<(), StageError> {
        for (table, rotation) in workspace.ropes.iter_mut().zip(&self.rotations) {
            table.fill(rotation, &places.positions);
        }
        if let Some(inputs) = &self.per_layer {
            self.compute.profile.begin(Place::Ends);
            inputs.fill(plan, &mut workspace.per_layer, &self.compute)?;
            self.compute.profile.mark(Kind::Embedding);
        }
        let step = StepView { plan, places, ropes: &self.ropes };
        self.weights.begin_step();
        for (index, layer) in self.layers.iter().enumerate() {
            self.compute.profile.begin(Place::Layer(self.first + index as u32));
            let streamed = self.weights.enter(index);
            self.compute.profile.work(streamed, 0);
            self.compute.profile.mark(Kind::WaitForWeights);
            layer.forward(&step, &mut hidden.values, cache.of(index), (workspace, &self.compute));
            self.weights.leave(index);
        }
        Ok(())
    }
}

impl Stage for LocalStage {
    fn layers(&self) -> Range<u32> {
        self.first..self.first + self.layers.len() as u32
    }

    fn is_here(&self) -> bool {
        true
    }

    fn run(&self, plan: &StepPlan, hidden: &mut Hidden) -> Result<(), StageError> {
        if hidden.width != self.width || hidden.values.len() != plan.tokens.len() * self.width {
            let (numbers, rows, width) = (hidden.values.len(), plan.tokens.len(), self.width);
            return Err(StageError::Plan { problem: format!("{numbers} numbers for {rows} rows of {width}") });
        }
        // A step that panicked left only rows that a later step writes again before it reads them.
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let mut places = std::mem::take(&mut state.workspace.places);
        let placed = places.fill(plan, &self.limits);
        let run = placed.and_then(|()| self.run_layers(plan, &places, hidden, &mut state));
        state.workspace.places = places;
        run?;
        Ok(self.files.check_intact()?)
    }
}
