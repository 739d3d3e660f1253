//! Attention of query rows over cached keys and values, page by page in a fixed order.

use std::ops::Range;

use crate::Pool;
use crate::cached_rows::{CachedRows, Stored};
use crate::kv_codes::{QueryCodes, rotate};
use crate::ops::{Ops, Queries, Softmax};
use crate::scalar::float::LANES;

/// Shape of one attention layer and how far a query looks back.
#[derive(Clone, Debug)]
pub struct Attention {
    /// Query heads.
    pub heads: usize,
    /// Key/value heads; each serves `heads / kv_heads` query heads.
    pub kv_heads: usize,
    /// Numbers in a query or key head.
    pub head: usize,
    /// Numbers in a value head.
    pub value_head: usize,
    /// What scores are multiplied with.
    pub scale: f32,
    /// Scores are bent to stay within this much of zero.
    pub soft_cap: Option<f32>,
    /// Per query head, what a score loses for every token of distance.
    pub slopes: Option<Vec<f32>>,
    /// Per query head, a score that takes part in the softmax and has no value.
    pub sinks: Option<Vec<f32>>,
    /// Newest positions a query sees, itself included; `None` sees all.
    pub window: Option<usize>,
    /// Whether a query sees the positions after its own too: all, or as many as it sees before.
    pub sees_later: bool,
    /// Tokens in a page of the cache, a multiple of sixteen.
    pub page_tokens: usize,
}

/// Where a query row stands.
#[derive(Clone, Copy, Debug)]
pub struct RowPlace {
    /// Its position in its sequence.
    pub position: usize,
    /// Positions of the sequence whose keys and values are cached.
    pub end: usize,
}

impl RowPlace {
    /// The last row of a sequence.
    pub fn last(position: usize) -> RowPlace {
        RowPlace { position, end: position + 1 }
    }
}

/// Keys and values of one head in one page, `page_tokens` times a key or value head each. Where they share rows
/// ([`CachedRows::in_shared_rows`]), both are the same numbers.
pub struct KvPage<'a> {
    /// Keys; where they lie alone, a column per token: first number 0 of every token, then number 1, and so on.
    pub keys: CachedRows<'a>,
    /// Values, a row per token.
    pub values: CachedRows<'a>,
}

/// What one thread needs besides its output: scaled queries, scores and softmaxes of one group of heads.
pub struct AttentionScratch {
    queries: Vec<f32>,
    scores: Vec<f32>,
    context: usize,
    codes: QueryCodes,
    softmaxes: Vec<Softmax>,
}

impl AttentionScratch {
    /// Room for one group of query heads over `context` positions.
    pub fn new(shape: &Attention, context: usize) -> AttentionScratch {
        let group = shape.heads / shape.kv_heads;
        AttentionScratch {
            queries: vec![0.0; group * shape.head],
            scores: vec![0.0; group * context],
            context,
            codes: QueryCodes::with_capacity(group, shape.head),
            softmaxes: Vec::with_capacity(group),
        }
    }
}

impl Attention {
    /// Attends every query row: `queries` has rows of `heads × head` numbers and `out` of `heads × value_head`,
    /// `place(row)` is where the row stands, and `page(row, kv_head, page)` finds the cache of its sequence.
    pub fn run<'a>(
        &self,
        queries: &[f32],
        out: &mut [f32],
        place: impl Fn(usize) -> RowPlace + Sync,
        page: impl Fn(usize, usize, usize) -> KvPage<'a> + Sync,
        (ops, pool, scratch): (&Ops, &Pool, &mut [AttentionScratch]),
    ) {
        let rows = out.len() / (self.heads * self.value_head);
        let heads = self.heads_per_task(rows, pool.threads());
        let tasks_per_row = self.heads / heads;
        pool.chunks_with(out, heads * self.value_head, scratch, |_, task, out, scratch| {
            let (row, first) = (task / tasks_per_row, task % tasks_per_row * heads);
            let kv_head = first * self.kv_heads / self.heads;
            let query = Group {
                numbers: &queries[task * heads * self.head..(task + 1) * heads * self.head],
                heads: first..first + heads,
                visible: self.visible(place(row)),
            };
            self.attend(&query, out, |number| page(row, kv_head, number), (ops, scratch));
        });
    }

    /// Query heads that one task attends. A whole group reads its cache once; where there are fewer groups than threads,
    /// groups are cut, and threads that read the same cache share it in the CPU's. Heads know nothing of each other,
    /// so the bits are the same.
    fn heads_per_task(&self, rows: usize, threads: usize) -> usize {
        let (group, groups) = (self.heads / self.kv_heads, rows * self.kv_heads);
        let parts = threads.div_ceil(groups.max(1));
        (1..=group).rev().find(|heads| group.is_multiple_of(*heads) && group / heads >= parts).unwrap_or(1)
    }

    /// How many positions a query sees.
    pub fn seen(&self, place: RowPlace) -> usize {
        self.visible(place).len()
    }

    /// Multiplications and additions of all heads of one query row for one position it sees.
    pub fn operations(&self) -> u64 {
        2 * (self.heads * (self.head + self.value_head)) as u64
    }

    /// Positions that a query sees.
    fn visible(&self, RowPlace { position, end }: RowPlace) -> Range<usize> {
        let start = self.window.map_or(0, |window| (position + 1).saturating_sub(window));
        let last = match (self.sees_later, self.window) {
            (false, _) => position,
            (true, None) => end - 1,
            (true, Some(window)) => (position + window - 1).min(end - 1),
        };
        start..last + 1
    }

    /// One group of query heads against the visible positions of their key/value head.
    fn attend<'a>(
        &self,
        query: &Group<'_>,
        out: &mut [f32],
        page: impl Fn(usize) -> KvPage<'a>,
        (ops, scratch): (&Ops, &mut AttentionScratch),
    ) {
        let AttentionScratch { queries: scaled, scores, context, codes, softmaxes } = scratch;
        let scaled = &mut scaled[..query.numbers.len()];
        scaled.iter_mut().zip(query.numbers).for_each(|(scaled, number)| *scaled = number * self.scale);
        let [first, last] = [query.visible.start, query.visible.end - 1].map(|position| position / self.page_tokens);
        codes.clear();
        let mut rows = page(first).keys;
        for part in self.pages(&query.visible) {
            if let Stored::Codes(_) = rows.stored() {
                codes.fill_once(scaled, self.head);
            }
            // After the last keys come the first values.
            let next = if part.page == last { page(first).values } else { page(part.page + 1).keys };
            ops.attention.scores(
                &Queries { numbers: scaled, codes },
                (rows, rows.distance_to(next)),
                part.tokens,
                (&mut scores[part.offset..], *context),
            );
            rows = next;
        }
        let seen = query.visible.len();
        softmaxes.clear();
        for (head, scores) in query.heads.clone().zip(scores.chunks_mut(*context)) {
            softmaxes.push(self.softmax(head, &mut scores[..seen], ops));
        }
        out.fill(0.0);
        let (mut rotated, mut weighed) = (false, 0);
        for part in self.pages(&query.visible) {
            // Page by page, because exponentials are computed while the values come from memory.
            let wanted = (part.offset + part.tokens.len()).next_multiple_of(LANES).min(seen);
            for (softmax, scores) in softmaxes.iter_mut().zip(scores.chunks_mut(*context)) {
                ops.attention.weigh(softmax, &mut scores[weighed..wanted]);
            }
            weighed = wanted;
            let is_rotated = matches!(rows.stored(), Stored::Codes(_));
            if rotated && !is_rotated {
                self.rotate_back(out);
            }
            rotated = is_rotated;
            let next = if part.page == last { rows } else { page(part.page + 1).values };
            let ahead = rows.distance_to(next);
            ops.attention.mix_page((&scores[part.offset..], *context), (rows, ahead), part.tokens, out);
            rows = next;
        }
        if rotated {
            self.rotate_back(out);
        }
        for (head, softmax) in out.chunks_mut(self.value_head).zip(softmaxes) {
            let sum = softmax.sum();
            head.iter_mut().for_each(|value| *value /= sum);
        }
    }

    /// Turns what pages of codes were mixed to into values. Such pages are the oldest, so nothing else is in it yet.
    fn rotate_back(&self, out: &mut [f32]) {
        out.chunks_exact_mut(self.value_head).for_each(rotate);
    }

    /// Bends the scores of one query head, oldest first, as this layer does; returns how they become weights.
    fn softmax(&self, head: usize, scores: &mut [f32], ops: &Ops) -> Softmax {
        if let Some(cap) = self.soft_cap {
            ops.rows.soft_cap(cap, scores);
        }
        if let Some(slopes) = &self.slopes {
            let distances = (0..scores.len()).rev();
            scores.iter_mut().zip(distances).for_each(|(score, distance)| *score -= slopes[head] * distance as f32);
        }
        ops.attention.softmax(scores, self.sinks.as_ref().map_or(f32::NEG_INFINITY, |sinks| sinks[head]))
    }

    /// The pages that hold `visible`, oldest first.
    fn pages(&self, visible: &Range<usize>) -> impl Iterator<Item = PagePart> {
        let (tokens, visible) = (self.page_tokens, visible.clone());
        (visible.start / tokens..visible.end.div_ceil(tokens)).map(move |page| {
            let first = visible.start.max(page * tokens);
            let last = visible.end.min((page + 1) * tokens);
            PagePart { page, tokens: first - page * tokens..last - page * tokens, offset: first - visible.start }
        })
    }
}

/// The query heads of one row that share a key/value head.
struct Group<'a> {
    numbers: &'a [f32],
    heads: Range<usize>,
    visible: Range<usize>,
}

/// The visible tokens of one page, and where their scores lie.
struct PagePart {
    page: usize,
    tokens: Range<usize>,
    offset: usize,
}
