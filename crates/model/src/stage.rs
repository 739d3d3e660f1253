//! A stage: a range of layers that turns hidden states into hidden states.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cascadia_kernels::ActivationPrecision;
use cascadia_weights::ModelFiles;

use crate::adapter::AdapterRows;
use crate::decoder::Layer;
use crate::kv::{KvLayout, KvPool};
use crate::per_layer::PerLayerInputs;
use crate::plan::{PlanLimits, RowPlaces};
use crate::read_ahead::ReadAhead;
use crate::residency::{MemoryCap, Residency};
use crate::rope::{RopeTable, Rotation};
use crate::step::Step;
use crate::streamed_experts::ExpertPlaces;
use crate::workspace::Workspace;
use crate::{
    Adapter, Compute, Kind, LoadOptions, ModelError, ModelSpec, PageBytes, PageClass, PageId, PageRows, Place,
    StageError, StepPlan, arch, assemble,
};

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
    /// What it is, for those who plan around it.
    fn traits(&self) -> StageTraits;
    /// Replaces the rows of `hidden` by what they are after this stage's layers.
    fn run(&self, plan: &StepPlan, hidden: &mut Hidden) -> Result<(), StageError>;
    /// How many layers it has computed, of all steps together: it grows while a step is computed. None where that is not
    /// known.
    fn progress(&self) -> Option<u64> {
        None
    }
    /// No step of this sequence follows; what is kept for it alone may go. Pages are not: their owner numbers them.
    fn end_sequence(&self, _id: u64) {}
    /// What its pages hold, to be kept elsewhere and put back between steps. None where they are not in this process.
    fn pages(&self) -> Option<&dyn PageBytes> {
        None
    }
    /// The same by tokens, to be copied to another machine while sequences run. None where it cannot be.
    fn page_rows(&self) -> Option<&dyn PageRows> {
        None
    }
    /// An adapter for its layers, from what [`Adapter::part`] wrote for them; or what is wrong with it.
    fn adapter(&self, _part: &[u8]) -> Result<Arc<Adapter>, String> {
        Err("this stage takes no adapters".to_owned())
    }
}

/// What a stage is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StageTraits {
    /// How it keeps keys and values.
    pub cache: StageCache,
    /// Which other stages give the same bits.
    pub numerics: NumericsClass,
    /// Where it computes.
    pub placement: Placement,
}

impl StageTraits {
    /// A stage that computes with the kernels of this program on paged caches, and with activations as bytes.
    pub const fn exact(placement: Placement) -> StageTraits {
        StageTraits { cache: StageCache::Paged, numerics: NumericsClass::EXACT, placement }
    }

    /// The same with activations of this precision.
    pub const fn with_activations(self, precision: ActivationPrecision) -> StageTraits {
        StageTraits { numerics: NumericsClass::of(precision), ..self }
    }
}

/// How a stage keeps what it has computed of a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StageCache {
    /// In pages that plans name: prefixes are shared, and going back to an earlier position costs nothing.
    Paged,
    /// In a state of its own for each sequence, which only grows: prefixes cannot be shared, nor guesses taken back.
    PerSequence,
}

/// Stages of one class give the same bits for the same plan, so that their rows may be compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NumericsClass(pub &'static str);

impl NumericsClass {
    /// The kernels of this program, which give the same bits on every CPU, with activations as bytes.
    pub const EXACT: NumericsClass = NumericsClass("exact");
    /// The same with activations of sixteen bits.
    pub const EXACT_INT16: NumericsClass = NumericsClass("exact int16");

    /// The class of the kernels of this program with activations of this precision.
    pub const fn of(precision: ActivationPrecision) -> NumericsClass {
        match precision {
            ActivationPrecision::Int8 => NumericsClass::EXACT,
            ActivationPrecision::Int16 => NumericsClass::EXACT_INT16,
        }
    }
}

/// Where a stage computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// With the threads of both ends of the model, so that it takes turns with them.
    Local,
    /// Elsewhere: whoever runs it only waits.
    Remote,
}

/// A stage that others look at too while it runs.
impl<S: Stage + ?Sized> Stage for Arc<S> {
    fn layers(&self) -> Range<u32> {
        (**self).layers()
    }

    fn traits(&self) -> StageTraits {
        (**self).traits()
    }

    fn run(&self, plan: &StepPlan, hidden: &mut Hidden) -> Result<(), StageError> {
        (**self).run(plan, hidden)
    }

    fn progress(&self) -> Option<u64> {
        (**self).progress()
    }

    fn end_sequence(&self, id: u64) {
        (**self).end_sequence(id);
    }

    fn pages(&self) -> Option<&dyn PageBytes> {
        (**self).pages()
    }

    fn page_rows(&self) -> Option<&dyn PageRows> {
        (**self).page_rows()
    }

    fn adapter(&self, part: &[u8]) -> Result<Arc<Adapter>, String> {
        (**self).adapter(part)
    }
}

/// Layers that run on this machine.
pub struct LocalStage {
    files: Arc<ModelFiles>,
    first: u32,
    layers: Vec<Layer>,
    per_layer: Option<PerLayerInputs>,
    weights: ReadAhead,
    rotations: Vec<Rotation>,
    width: usize,
    limits: PlanLimits,
    compute: Compute,
    /// Layers computed so far.
    progress: AtomicU64,
    state: Mutex<State>,
}

/// What a step changes.
struct State {
    cache: KvPool,
    workspace: Workspace,
    rows: StepRows,
}

/// Where the rows of a step are; apart from the workspace, because layers read it while they write to that.
struct StepRows {
    places: RowPlaces,
    ropes: Vec<RopeTable>,
    adapters: AdapterRows,
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
        let spans = options.limits.kv_layout(spec).spans();
        let limits = PlanLimits { model: options.limits.clone(), spans, whole_texts: spec.sees_later() };
        let catalog = arch::catalog(files)?;
        let stats = options.stats.as_ref();
        let layers = range.clone().map(|index| assemble::layer(&catalog, spec, index as usize, stats));
        let layers = layers.collect::<Result<Vec<Layer>, _>>()?;
        let own = range.start as usize..range.end as usize;
        let per_layer = spec.per_layer.map(|inputs| PerLayerInputs::new(&catalog, spec, inputs, (own.clone(), stats)));
        let compute = options.compute();
        let layout = KvLayout::new(spec, own, &options.limits.kv)?;
        let cap = options.memory.map(|memory| MemoryCap { memory, cache_bytes: cache_pages.bytes(&layout) });
        let places = |layer: &Layer| layer.feed_forward.experts().map(|experts| ExpertPlaces::new(experts, files));
        let places: Vec<_> = layers.iter().map(places).collect();
        let residency = Residency::new(files, spec, (range.clone(), &places), (options, cap))?;
        let streamed = |(index, (layer, places)): (usize, (Layer, Option<ExpertPlaces>))| {
            layer.streaming(places.filter(|_| residency.streamed.experts.contains(&index)))
        };
        let layers = layers.into_iter().zip(places).enumerate().map(streamed).collect();
        let most = options.limits.rows_per_step as usize;
        let ropes = spec.ropes.iter().map(|rope| RopeTable::with_capacity(most, rope)).collect();
        let state = State {
            cache: KvPool::new(layout, cache_pages, options.pool.threads())?,
            workspace: Workspace::new(spec, options),
            rows: StepRows { places: RowPlaces::with_capacity(most), ropes, adapters: options.adapter_rows() },
        };
        Ok(LocalStage {
            files: Arc::clone(files),
            first: range.start,
            layers,
            per_layer: per_layer.transpose()?,
            weights: ReadAhead::new(residency),
            rotations: spec.ropes.iter().map(|rope| rope.rotation(options.limits.context)).collect(),
            width: spec.hidden_width(),
            limits,
            compute,
            progress: AtomicU64::new(0),
            state: Mutex::new(state),
        })
    }

    /// Whether all weights stay in memory.
    pub(crate) fn keeps_all_weights(&self) -> bool {
        self.weights.keeps_all()
    }

    /// Takes rows that have found their places through all layers.
    fn run_layers(
        &self,
        step: &Step<'_>,
        hidden: &mut Hidden,
        (cache, workspace): (&mut KvPool, &mut Workspace),
    ) -> Result<(), StageError> {
        if let Some(inputs) = &self.per_layer {
            step.profile.begin(Place::Ends);
            inputs.fill(step, &mut workspace.per_layer)?;
            step.profile.mark(Kind::Embedding);
        }
        self.weights.begin_step();
        for (index, layer) in self.layers.iter().enumerate() {
            step.profile.begin(Place::Layer(self.first + index as u32));
            let streamed = self.weights.enter(index);
            step.profile.work(streamed, 0);
            step.profile.mark(Kind::WaitForWeights);
            layer.forward(step, &mut hidden.values, &mut cache.of(index), workspace);
            self.weights.leave(index);
            self.progress.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Shows adapters the matrices of these layers, where they were loaded without them.
    fn complete(&self, adapters: &AdapterRows) -> Result<(), StageError> {
        let layers = self.layers();
        for adapter in adapters.all().iter().filter(|adapter| !adapter.is_complete_in(&layers)) {
            let seen = arch::catalog(&self.files).and_then(|catalog| adapter.see(&catalog));
            seen.map_err(|error| StageError::Plan { problem: error.to_string() })?;
        }
        Ok(())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A step that panicked left only rows that a later step writes again before it reads them.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Stage for LocalStage {
    fn layers(&self) -> Range<u32> {
        self.first..self.first + self.layers.len() as u32
    }

    fn traits(&self) -> StageTraits {
        StageTraits::exact(Placement::Local).with_activations(self.limits.model.activations)
    }

    fn progress(&self) -> Option<u64> {
        Some(self.progress.load(Ordering::Relaxed))
    }

    fn pages(&self) -> Option<&dyn PageBytes> {
        Some(self)
    }

    fn page_rows(&self) -> Option<&dyn PageRows> {
        Some(self)
    }

    fn adapter(&self, part: &[u8]) -> Result<Arc<Adapter>, String> {
        let catalog = arch::catalog(&self.files).map_err(|error| error.to_string())?;
        let own = |name: &str| catalog.has(name).then(|| catalog.matrix_shape(name));
        let adapter = Adapter::from_part(part, own)?;
        adapter.see(&catalog).map_err(|error| error.to_string())?;
        Ok(Arc::new(adapter))
    }

    fn run(&self, plan: &StepPlan, hidden: &mut Hidden) -> Result<(), StageError> {
        if hidden.width != self.width || hidden.values.len() != plan.tokens.len() * self.width {
            let (numbers, rows, width) = (hidden.values.len(), plan.tokens.len(), self.width);
            return Err(StageError::Plan { problem: format!("{numbers} numbers for {rows} rows of {width}") });
        }
        let State { cache, workspace, rows: StepRows { places, ropes, adapters } } = &mut *self.state();
        places.fill(plan, &self.limits)?;
        adapters.fill(plan, places);
        self.complete(adapters)?;
        ropes.iter_mut().zip(&self.rotations).for_each(|(rope, rotation)| rope.fill(rotation, &places.positions));
        let ran = self.run_layers(&self.compute.step(plan, (places, ropes, adapters)), hidden, (cache, workspace));
        adapters.release();
        ran?;
        Ok(self.files.check_intact()?)
    }
}

impl PageBytes for LocalStage {
    fn page_bytes(&self, class: PageClass) -> usize {
        self.state().cache.page(class, 0).len()
    }

    fn copy_page(&self, class: PageClass, page: PageId) -> Vec<u8> {
        self.state().cache.page(class, page).to_vec()
    }

    fn fill_page(&self, class: PageClass, page: PageId, bytes: &[u8]) -> Result<(), StageError> {
        let mut state = self.state();
        let room = state.cache.page_mut(class, page);
        if room.len() != bytes.len() {
            let (held, length) = (bytes.len(), room.len());
            return Err(StageError::Plan { problem: format!("{held} bytes for {class:?} page {page} of {length}") });
        }
        room.copy_from_slice(bytes);
        Ok(())
    }

    fn give_back_page(&self, class: PageClass, page: PageId) -> Result<(), StageError> {
        let given = self.state().cache.give_back(class, page);
        given.map_err(|error| StageError::Plan { problem: error.to_string() })
    }
}

impl PageRows for LocalStage {
    fn row_bytes(&self, class: PageClass, tokens: &Range<u32>) -> usize {
        self.state().cache.tokens(class, tokens).map(|range| range.len()).sum()
    }

    fn copy_rows(&self, class: PageClass, page: PageId, tokens: &Range<u32>) -> Result<Vec<u8>, StageError> {
        let state = self.state();
        let bytes = state.cache.page(class, page);
        let mut copy = Vec::new();
        for range in state.cache.tokens(class, tokens) {
            copy.extend_from_slice(bytes.get(range).ok_or_else(|| no_such(class, page, tokens))?);
        }
        Ok(copy)
    }

    fn fill_rows(&self, class: PageClass, page: PageId, tokens: &Range<u32>, bytes: &[u8]) -> Result<(), StageError> {
        let mut state = self.state();
        let ranges: Vec<Range<usize>> = state.cache.tokens(class, tokens).collect();
        let (room, mut rest) = (state.cache.page_mut(class, page), bytes);
        if ranges.iter().map(|range| range.len()).sum::<usize>() != bytes.len() {
            let held = bytes.len();
            return Err(StageError::Plan {
                problem: format!("{held} bytes for tokens {tokens:?} of a {class:?} page"),
            });
        }
        for range in ranges {
            let (own, after) = rest.split_at(range.len());
            room.get_mut(range).ok_or_else(|| no_such(class, page, tokens))?.copy_from_slice(own);
            rest = after;
        }
        Ok(())
    }
}

fn no_such(class: PageClass, page: PageId, tokens: &Range<u32>) -> StageError {
    StageError::Plan { problem: format!("there are no tokens {tokens:?} in {class:?} page {page}") }
}
