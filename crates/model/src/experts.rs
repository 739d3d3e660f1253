//! A mixture of experts: many feed-forward parts, of which only those are computed that a token uses.
//!
//! The rows of a step are sorted by expert, so that the weights of an expert are read once for all rows that use it.
//! A row's results are then added in the order of its own choices, which no other row can change.

use cascadia_kernels::{Activation, Activations, CachedRows, Stored};

use crate::feed_forward::Dense;
use crate::projection::{GroupedProjection, Projection, RowGroups};
use crate::router::{Choice, Router, RouterScratch};
use crate::spec::{ExpertsSpec, GateBounds};
use crate::step::Step;
use crate::streamed_experts::ExpertPlaces;
use crate::workspace::Workspace;
use crate::{Kind, LoadOptions};

/// A router and its experts.
pub(crate) struct Experts {
    pub(crate) router: Router,
    pub(crate) gate: GroupedProjection,
    pub(crate) up: GroupedProjection,
    pub(crate) down: GroupedProjection,
    pub(crate) activation: Activation,
    pub(crate) bounds: Option<GateBounds>,
    pub(crate) shared: Option<SharedExpert>,
    /// Where they are read from in every step, if they do not stay in memory.
    pub(crate) streamed: Option<ExpertPlaces>,
}

/// What every row uses.
pub(crate) struct SharedExpert {
    pub(crate) part: Dense,
    /// To one number per row, whose sigmoid the result is multiplied with.
    pub(crate) gate: Option<Projection>,
}

/// Buffers of a layer with experts.
pub(crate) struct ExpertsWorkspace {
    /// What the router, or the gate of the shared expert, makes of every row.
    outputs: Vec<f32>,
    scratch: Vec<RouterScratch>,
    routing: Routing,
    /// The rows of the step, sorted by expert.
    input: Activations,
    inner: Activations,
    gate: Vec<f32>,
    /// What experts make of the sorted rows.
    results: Vec<f32>,
}

/// Which sorted row belongs to whom.
#[derive(Default)]
struct Routing {
    /// The experts of every row of the step.
    choices: Vec<Choice>,
    /// Of every choice, its sorted row.
    places: Vec<usize>,
    /// Of every sorted row, its row of the step.
    sources: Vec<usize>,
    /// Of every expert, the sorted row that comes next.
    next: Vec<usize>,
    /// The experts in use.
    members: Vec<usize>,
    /// The first sorted row of each of them, and the number of rows.
    starts: Vec<usize>,
}

impl ExpertsWorkspace {
    /// Room for the largest step of any of the layers `specs`, whose rows have `width` numbers.
    pub(crate) fn new<'a>(
        specs: impl Iterator<Item = &'a ExpertsSpec> + Clone,
        width: usize,
        options: &LoadOptions,
    ) -> ExpertsWorkspace {
        let (rows, threads) = (options.limits.rows_per_step as usize, options.pool.threads());
        let greatest = |size: fn(&ExpertsSpec) -> usize| specs.clone().map(size).max().unwrap_or(0);
        let (count, inner) = (greatest(|spec| spec.count), greatest(|spec| spec.each.inner));
        let sorted = rows * greatest(|spec| spec.used);
        ExpertsWorkspace {
            outputs: Vec::with_capacity(rows * count),
            scratch: (0..threads).map(|_| RouterScratch::new(count)).collect(),
            routing: Routing {
                choices: Vec::with_capacity(sorted),
                places: Vec::with_capacity(sorted),
                sources: Vec::with_capacity(sorted),
                next: Vec::with_capacity(count),
                members: Vec::with_capacity(count),
                starts: Vec::with_capacity(count + 1),
            },
            input: options.activations(sorted, width),
            inner: options.activations(sorted, inner),
            gate: Vec::with_capacity(sorted * inner),
            results: Vec::with_capacity(sorted * width),
        }
    }
}

impl Experts {
    /// Reads `workspace.input`, leaves the result in `workspace.output`.
    pub(crate) fn run(&self, step: &Step<'_>, workspace: &mut Workspace) {
        self.run_shared(step, workspace);
        self.route(step, workspace);
        self.run_routed(step, workspace);
    }

    /// Finds the experts of the rows of `workspace.input`.
    pub(crate) fn route(&self, step: &Step<'_>, workspace: &mut Workspace) {
        let rows = step.rows();
        let Workspace { input, experts: ExpertsWorkspace { outputs, scratch, routing, .. }, .. } = workspace;
        outputs.resize(rows * self.router.projection.outputs(), 0.0);
        self.router.projection.apply(input, outputs, step);
        routing.choices.resize(rows * self.router.used, Choice::default());
        self.router.choose(outputs, &mut routing.choices, scratch, step);
        routing.sort(self.router.projection.outputs(), self.router.used);
        step.profile.mark(Kind::Router);
    }

    /// Adds to `workspace.output` what the experts make of the rows of `workspace.input`, for which they were found.
    pub(crate) fn run_routed(&self, step: &Step<'_>, workspace: &mut Workspace) {
        let Workspace { input, output, experts, width, .. } = workspace;
        let (width, inner) = (*width, self.up.outputs());
        let ExpertsWorkspace { routing, input: sorted, inner: between, gate, results, .. } = experts;
        let count = routing.sources.len();
        let (source, routing) = (input.float(), &*routing);
        if let Some(places) = &self.streamed {
            step.profile.work(places.fetch(&routing.members), 0);
            step.profile.mark(Kind::WaitForWeights);
        }
        step.pool.chunks(sorted.reset(count, width), width, |_, row, out| {
            out.copy_from_slice(source.row(routing.sources[row]));
        });
        gate.resize(count * inner, 0.0);
        self.gate.apply(routing.groups(), sorted, gate, step);
        let up = between.reset(count, inner);
        self.up.apply(routing.groups(), sorted, up, step);
        step.profile.mark(Kind::FeedForwardInput);
        let gate = gate.as_mut_slice();
        if let Some(bounds) = self.bounds {
            step.pool.chunks(gate, inner, |_, _, row| row.iter_mut().for_each(|gate| *gate = gate.min(bounds.limit)));
        }
        step.pool.chunks(up, inner, |_, row, up| {
            if let Some(GateBounds { limit, offset }) = self.bounds {
                up.iter_mut().for_each(|number| *number = number.clamp(-limit, limit) + offset);
            }
            step.ops.rows.activate_multiply(self.activation, &gate[row * inner..(row + 1) * inner], up);
        });
        step.profile.mark(Kind::Activation);
        results.resize(count * width, 0.0);
        self.down.apply(routing.groups(), between, results, step);
        if let Some(places) = &self.streamed {
            places.release(&routing.members);
        }
        step.pool.chunks(output, width, |_, row, out| {
            let choices = row * self.router.used..(row + 1) * self.router.used;
            for (choice, &place) in routing.choices[choices.clone()].iter().zip(&routing.places[choices]) {
                let result = CachedRows::new(Stored::F32(&results[place * width..(place + 1) * width]), width);
                step.ops.attention.mix(&[choice.weight], 1, result, out);
            }
        });
        step.profile.mark(Kind::FeedForwardOutput);
    }

    /// Leaves the result of what every row uses in `workspace.output`, zeros where there is no such thing.
    fn run_shared(&self, step: &Step<'_>, workspace: &mut Workspace) {
        let rows = step.rows();
        let Some(shared) = &self.shared else {
            workspace.output.clear();
            workspace.output.resize(rows * workspace.width, 0.0);
            return;
        };
        shared.part.run(step, workspace);
        if let Some(gate) = &shared.gate {
            let Workspace { input, output, experts, width, .. } = workspace;
            let weights = &mut experts.outputs;
            weights.resize(rows, 0.0);
            gate.apply(input, weights, step);
            step.ops.rows.activate(Activation::Sigmoid, weights);
            step.pool.chunks(output, *width, |_, row, out| out.iter_mut().for_each(|number| *number *= weights[row]));
        }
    }
}

impl Routing {
    /// The sorted rows by expert.
    fn groups(&self) -> RowGroups<'_> {
        RowGroups { members: &self.members, starts: &self.starts, sources: &self.sources }
    }

    /// Sorts the choices by expert; those of one expert keep the order of their rows.
    fn sort(&mut self, experts: usize, used: usize) {
        let Routing { choices, places, sources, next, members, starts } = self;
        next.clear();
        next.resize(experts, 0);
        choices.iter().for_each(|choice| next[choice.expert] += 1);
        members.clear();
        starts.clear();
        let mut start = 0;
        for (expert, next) in next.iter_mut().enumerate().filter(|(_, count)| **count > 0) {
            members.push(expert);
            starts.push(start);
            start += std::mem::replace(next, start);
        }
        starts.push(start);
        places.clear();
        sources.resize(choices.len(), 0);
        for (at, choice) in choices.iter().enumerate() {
            let place = next[choice.expert];
            next[choice.expert] += 1;
            places.push(place);
            sources[place] = at / used;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_are_sorted_by_expert() {
        let choices = [3, 1, 1, 0, 3, 0].map(|expert| Choice { expert, weight: 0.0 }).to_vec();
        let mut routing = Routing { choices, ..Routing::default() };
        routing.sort(5, 2);
        assert_eq!(routing.members, [0, 1, 3]);
        assert_eq!(routing.starts, [0, 2, 4, 6]);
        assert_eq!(routing.places, [4, 2, 3, 0, 5, 1]);
        assert_eq!(routing.sources, [1, 2, 0, 1, 0, 2]);
    }
}
