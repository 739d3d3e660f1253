//! One sequence on one pipeline: feed tokens, read logits, go back to an earlier position.

use cascadia_model::{
    CachePages, KvLayout, ModelSpec, PAGE_TOKENS, PageClass, ReservedPages, Span, StageCache, StageError, StepPlan,
};

use crate::service::StepCosts;
use crate::service::speculate::MeasuredCosts;
use crate::token_limits::TokenLimits;
use crate::{EngineError, Pipeline};

/// Logits held in memory at once when every row is wanted (16 MiB of them).
pub(crate) const LOGITS_AT_ONCE: usize = 4 << 20;

/// A sequence of tokens with its cache.
pub struct Session {
    pipeline: Pipeline,
    tokens: Vec<u32>,
    /// What its pages hold.
    layout: KvLayout,
    /// Pages that it uses; where they hold the newest tokens only, in turn.
    pages: CachePages,
    /// The most tokens it has held since it was empty, which says what such pages still hold.
    computed: usize,
    plan: StepPlan,
    rows: Vec<u32>,
    logits: Vec<f32>,
    /// What steps of a few rows have taken.
    pub(crate) costs: MeasuredCosts,
}

impl Session {
    /// An empty sequence that has the pipeline and the beginning of its cache for itself.
    pub fn new(pipeline: Pipeline) -> Session {
        let limits = pipeline.limits();
        let layout = limits.kv_layout(pipeline.spec());
        Session {
            pages: ReservedPages::per_sequence(&layout, limits.context, limits.rows_per_step),
            layout,
            computed: 0,
            pipeline,
            tokens: Vec::new(),
            plan: StepPlan::default(),
            rows: Vec::new(),
            logits: Vec::new(),
            costs: MeasuredCosts::new(StepCosts::Measured),
        }
    }

    /// The model's description.
    pub fn spec(&self) -> &ModelSpec {
        self.pipeline.spec()
    }

    /// The tokens whose cache is held.
    pub fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// The most tokens the sequence may hold.
    pub fn context(&self) -> u32 {
        self.pipeline.limits().context
    }

    /// The most tokens computed in one step.
    pub fn rows_per_step(&self) -> usize {
        self.pipeline.limits().rows_per_step as usize
    }

    /// Tokens that still fit.
    pub fn room(&self) -> usize {
        (self.context() as usize).saturating_sub(self.tokens.len())
    }

    /// Forgets everything after the first `length` tokens; returns how many it still holds. That is none if pages
    /// of the newest tokens no longer hold what the next token would read.
    pub fn truncate(&mut self, length: usize) -> usize {
        let length = if PageClass::ALL.into_iter().all(|class| self.holds_newest(class, length)) { length } else { 0 };
        self.tokens.truncate(length);
        if self.tokens.is_empty() {
            self.computed = 0;
        }
        self.tokens.len()
    }

    /// Whether the pages of a class still hold what a token after the first `length` reads.
    fn holds_newest(&self, class: PageClass, length: usize) -> bool {
        let span @ Span::Newest(_) = self.layout.span(class) else { return true };
        let pages = self.pages.of(class) as usize;
        let oldest_page = self.computed.div_ceil(PAGE_TOKENS as usize).saturating_sub(pages);
        oldest_page * PAGE_TOKENS as usize <= span.oldest(length as u32) as usize
    }

    /// Keeps the longest prefix shared with `prompt`, less one token so that feeding the rest yields logits;
    /// returns how many tokens need not be fed again.
    pub fn reuse(&mut self, prompt: &[u32]) -> usize {
        let shared = self.tokens.iter().zip(prompt).take_while(|(held, asked)| held == asked).count();
        self.truncate(shared.min(prompt.len().saturating_sub(1)))
    }

    /// Appends tokens and returns the logits of the last one.
    /// After an error the sequence holds what was computed before the failing step; nothing, if a stage was lost.
    pub fn feed(&mut self, tokens: &[u32]) -> Result<&[f32], EngineError> {
        self.append(tokens)?;
        let last_row = (tokens.len() - 1) % self.rows_per_step();
        self.pipeline.logits(&self.plan, &[last_row as u32], &mut self.logits)?;
        Ok(&self.logits)
    }

    /// Appends tokens in one step and keeps the logits of each, see [`Self::most_rows`] and [`Self::row_logits`].
    pub(crate) fn feed_rows(&mut self, tokens: &[u32]) -> Result<(), EngineError> {
        self.check(tokens)?;
        self.step(tokens)?;
        self.rows.clear();
        self.rows.extend(0..tokens.len() as u32);
        Ok(self.pipeline.logits(&self.plan, &self.rows, &mut self.logits)?)
    }

    /// The most tokens of [`Self::feed_rows`]: one where what was computed cannot be taken back.
    pub(crate) fn most_rows(&self) -> usize {
        match self.pipeline.cache() {
            StageCache::Paged => self.rows_per_step().min(LOGITS_AT_ONCE / self.spec().vocabulary.max(1)).max(1),
            StageCache::PerSequence => 1,
        }
    }

    /// The logits of one of the tokens that were fed last.
    pub(crate) fn row_logits(&self, row: usize) -> &[f32] {
        let vocabulary = self.spec().vocabulary;
        &self.logits[row * vocabulary..][..vocabulary]
    }

    /// Appends tokens without computing logits.
    pub fn append(&mut self, tokens: &[u32]) -> Result<(), EngineError> {
        self.check(tokens)?;
        tokens.chunks(self.rows_per_step()).try_for_each(|chunk| self.step(chunk))
    }

    /// The logits that `feed` returned last.
    pub fn logits(&self) -> &[f32] {
        &self.logits
    }

    /// Appends tokens and passes the logits of each, with its position, to `each`.
    pub fn feed_each<E: From<EngineError>>(
        &mut self,
        tokens: &[u32],
        mut each: impl FnMut(u32, &[f32]) -> Result<(), E>,
    ) -> Result<(), E> {
        self.check(tokens)?;
        for chunk in tokens.chunks(self.rows_per_step()) {
            self.step(chunk)?;
            self.each_row(chunk.len(), &mut each)?;
        }
        Ok(())
    }

    /// An error unless these tokens belong to the vocabulary and still fit.
    pub fn check(&self, tokens: &[u32]) -> Result<(), EngineError> {
        self.token_limits().check(tokens, self.tokens.len())
    }

    pub(crate) fn token_limits(&self) -> TokenLimits {
        TokenLimits { context: self.context(), vocabulary: self.spec().vocabulary }
    }

    fn step(&mut self, chunk: &[u32]) -> Result<(), EngineError> {
        let start = self.tokens.len();
        let runs = ReservedPages::new(0, self.pages).runs((start + chunk.len()) as u32);
        self.plan = StepPlan::new(self.plan.generation);
        self.plan.add(0, start as u32, chunk.iter().copied(), runs);
        self.plan.adapt(self.pipeline.adapter().cloned());
        if let Err(error) = self.pipeline.run(&self.plan) {
            if matches!(error, StageError::Lost { .. } | StageError::Wrong { .. }) {
                // What was cached is gone with it, or of no use.
                self.plan.generation += 1;
                self.truncate(0);
            }
            return Err(error.into());
        }
        self.tokens.extend_from_slice(chunk);
        self.computed = self.computed.max(self.tokens.len());
        Ok(())
    }

    fn each_row<E: From<EngineError>>(
        &mut self,
        rows: usize,
        each: &mut impl FnMut(u32, &[f32]) -> Result<(), E>,
    ) -> Result<(), E> {
        let vocabulary = self.spec().vocabulary.max(1);
        let first = self.tokens.len() - rows;
        let at_once = (LOGITS_AT_ONCE / vocabulary).clamp(1, rows);
        for start in (0..rows).step_by(at_once) {
            let piece = start..rows.min(start + at_once);
            self.rows.clear();
            self.rows.extend(piece.clone().map(|row| row as u32));
            self.pipeline.logits(&self.plan, &self.rows, &mut self.logits).map_err(EngineError::from)?;
            for (row, logits) in piece.zip(self.logits.chunks_exact(vocabulary)) {
                each((first + row) as u32, logits)?;
            }
        }
        Ok(())
    }
}
