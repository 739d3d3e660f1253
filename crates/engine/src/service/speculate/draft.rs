//! Draft tokens from a small model that has the same vocabulary.

use std::time::Instant;

use cascadia_model::{CachePages, PageClass, ReservedPages, StageError, StepPlan};

use crate::service::JobId;
use crate::{Engine, EngineError, ModelText, Pipeline};

/// A small model with a fixed place in its cache for each of some sequences.
pub(in crate::service) struct DraftModel {
    pipeline: Pipeline,
    slots: Vec<Slot>,
    per_slot: CachePages,
    logits: Vec<f32>,
    clock: u64,
    /// What a step of one token for each sequence took lately; zero before the first.
    token_seconds: f64,
}

/// The sequence whose keys and values lie in one place.
#[derive(Clone, Debug, Default)]
struct Slot {
    owner: Option<JobId>,
    computed: Vec<u32>,
    used: u64,
}

/// A sequence that wants draft tokens.
pub(in crate::service) struct DraftRequest<'a> {
    pub(in crate::service) id: JobId,
    pub(in crate::service) tokens: &'a [u32],
    pub(in crate::service) depth: usize,
}

/// A request while it is being computed.
struct Draft {
    slot: usize,
    pending: Vec<u32>,
    tokens: Vec<u32>,
    depth: usize,
}

impl DraftModel {
    /// An error unless both models mean the same by every token.
    pub(in crate::service) fn new(draft: Engine, target: &ModelText, size: usize) -> Result<DraftModel, EngineError> {
        let text = draft.text()?;
        let pipeline = draft.into_pipeline();
        let same = |id: u32| text.tokenizer().token_bytes(id) == target.tokenizer().token_bytes(id);
        if pipeline.spec().vocabulary != size || !(0..size as u32).all(same) {
            return Err(EngineError::Setting {
                name: "draft",
                value: format!("a model with another vocabulary of {}", pipeline.spec().vocabulary),
                allowed: "a small model of the same family, with the same tokens",
            });
        }
        let limits = pipeline.limits();
        let per_slot =
            ReservedPages::per_sequence(&limits.kv_layout(pipeline.spec()), limits.context, limits.rows_per_step);
        let fitting = |class: PageClass| limits.cache.of(class).checked_div(per_slot.of(class));
        let slots = PageClass::ALL.into_iter().filter_map(fitting).min().unwrap_or(0);
        Ok(DraftModel {
            pipeline,
            slots: vec![Slot::default(); slots as usize],
            per_slot,
            logits: Vec::new(),
            clock: 0,
            token_seconds: 0.0,
        })
    }

    /// About how long it takes to propose one token.
    pub(in crate::service) fn token_seconds(&self) -> f64 {
        self.token_seconds
    }

    /// Draft tokens for all requests together, in their order; `choose` picks from logits as the sequence itself would.
    /// Sequences whose text is not computed yet get some of it computed and no draft tokens.
    pub(in crate::service) fn propose(
        &mut self,
        requests: &[DraftRequest<'_>],
        mut choose: impl FnMut(JobId, &[f32], u32) -> Option<u32>,
    ) -> Result<Vec<Vec<u32>>, StageError> {
        self.clock += 1;
        let mut drafts: Vec<Option<Draft>> = requests.iter().map(|request| self.draft(request)).collect();
        for _ in 0..requests.iter().map(|request| request.depth).max().unwrap_or(0) {
            let ready = self.step(&mut drafts)?;
            if ready.is_empty() {
                break;
            }
            let vocabulary = self.pipeline.spec().vocabulary;
            for (index, logits) in ready.into_iter().zip(self.logits.chunks_exact(vocabulary)) {
                let Some(draft) = &mut drafts[index] else { continue };
                let position = self.slots[draft.slot].computed.len() as u32;
                match choose(requests[index].id, logits, position) {
                    Some(token) => {
                        draft.tokens.push(token);
                        draft.pending.push(token);
                    }
                    None => draft.depth = 0,
                }
            }
        }
        Ok(drafts.into_iter().map(|draft| draft.map_or(Vec::new(), |draft| draft.tokens)).collect())
    }

    /// Finds a place for a request; none if its text is too long or all places are taken by other requests.
    fn draft(&mut self, request: &DraftRequest<'_>) -> Option<Draft> {
        let limits = self.pipeline.limits();
        if request.depth == 0 || request.tokens.len() + request.depth > limits.context as usize {
            return None;
        }
        let own = self.slots.iter().position(|slot| slot.owner == Some(request.id));
        let oldest = || {
            let old = self.slots.iter().enumerate().filter(|(_, slot)| slot.used < self.clock);
            old.min_by_key(|(_, slot)| slot.used).map(|(index, _)| index)
        };
        let index = own.or_else(oldest)?;
        let slot = &mut self.slots[index];
        if slot.owner != Some(request.id) {
            *slot = Slot { owner: Some(request.id), ..Slot::default() };
        }
        slot.used = self.clock;
        // Rejected draft tokens are forgotten; what was chosen instead is computed now.
        let same = slot.computed.iter().zip(request.tokens).take_while(|(one, other)| one == other).count();
        slot.computed.truncate(same.min(request.tokens.len() - 1));
        let pending = request.tokens[slot.computed.len()..].to_vec();
        Some(Draft { slot: index, pending, tokens: Vec::new(), depth: request.depth })
    }

    /// Computes what is pending, as far as it fits into a step; leaves the logits of those that have nothing left.
    fn step(&mut self, drafts: &mut [Option<Draft>]) -> Result<Vec<usize>, StageError> {
        let (mut plan, mut wanted, mut ready) = (StepPlan::default(), Vec::new(), Vec::new());
        for (index, draft) in drafts.iter_mut().enumerate() {
            let Some(draft) = draft.as_mut().filter(|draft| draft.tokens.len() < draft.depth) else { continue };
            let room = self.pipeline.limits().rows_per_step as usize - plan.tokens.len();
            let chunk: Vec<u32> = draft.pending.drain(..draft.pending.len().min(room)).collect();
            if chunk.is_empty() {
                continue;
            }
            let start = self.slots[draft.slot].computed.len();
            let pages = ReservedPages::new(draft.slot as u32, self.per_slot);
            let runs = pages.runs((start + chunk.len()) as u32);
            let rows = plan.add(draft.slot as u64, start as u32, chunk.iter().copied(), runs);
            if draft.pending.is_empty() {
                wanted.push(rows.end - 1);
                ready.push(index);
            } else {
                // The rest of its text has to wait for the next time.
                draft.depth = 0;
            }
            self.slots[draft.slot].computed.extend(chunk);
        }
        if plan.tokens.is_empty() {
            return Ok(ready);
        }
        let begin = Instant::now();
        let ran = self.pipeline.run(&plan);
        let ran = ran.and_then(|()| {
            if wanted.is_empty() { Ok(()) } else { self.pipeline.logits(&plan, &wanted, &mut self.logits) }
        });
        if let Err(error) = ran {
            self.slots.iter_mut().for_each(|slot| *slot = Slot::default());
            return Err(error);
        }
        if plan.tokens.len() == ready.len() {
            self.learn_seconds(begin.elapsed().as_secs_f64());
        }
        Ok(ready)
    }

    fn learn_seconds(&mut self, seconds: f64) {
        let latest = if self.token_seconds == 0.0 { 1.0 } else { 0.25 };
        self.token_seconds += latest * (seconds - self.token_seconds);
    }
}
