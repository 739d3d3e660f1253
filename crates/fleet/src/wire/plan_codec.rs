//! The plan of a step on the wire: only what has changed since the last step of the same sequence.
//!
//! Both ends remember the identity and the pages of some sequences in numbered slots. A sequence that continues in its
//! own pages costs three or four bytes a step.

use std::collections::HashMap;
use std::ops::Range;

use cascadia_model::{PAGE_TOKENS, PageClass, PageId, PageRun, PerClass, SequenceStep, StepPlan};

use crate::wire::adapters::{AdapterReceiver, AdapterSender};
use crate::wire::link::LinkError;

/// Sequences that both ends remember.
const SLOTS: usize = 1024;

/// Sequences whose end is told with one step; more wait for the next.
pub(crate) const MOST_ENDED: usize = 64;

/// The slot forgets what it held; the identity of its new sequence follows.
const FRESH: u8 = 1;
/// The sequence has other than one row.
const ROWS: u8 = 2;
/// It does not begin where its last step ended.
const START: u8 = 4;
/// Its pages of the first class changed; each class has the next higher bit.
const PAGES: u8 = 8;
/// It has another adapter than before, or none any more.
const ADAPTER: u8 = PAGES << PageClass::ALL.len();
/// All bits that have a meaning.
const KNOWN: u8 = FRESH | ROWS | START | (PAGES * ((1 << PageClass::ALL.len()) - 1)) | ADAPTER;

/// What both ends know of a sequence.
#[derive(Clone, Debug, Default)]
struct Slot {
    id: Option<u64>,
    next: u32,
    runs: PerClass<Run>,
    /// The number of its adapter.
    adapter: u32,
}

/// What both ends know of its pages of one class.
#[derive(Clone, Debug, Default)]
struct Run {
    first: u32,
    pages: Vec<PageId>,
}

/// The sending end.
pub(crate) struct PlanEncoder {
    slots: Vec<Slot>,
    /// The sequence in each slot, and the step that used it last.
    used: Vec<(u64, u64)>,
    by_sequence: HashMap<u64, usize>,
    /// Slots whose sequences have ended.
    free: Vec<usize>,
    steps: u64,
    sends_tokens: bool,
    /// Which adapters the other end has.
    pub(crate) adapters: AdapterSender,
}

/// The receiving end.
pub(crate) struct PlanDecoder {
    slots: Vec<Slot>,
    sends_tokens: bool,
    /// The most pages of one sequence.
    pages: usize,
    /// Adapters that have come.
    pub(crate) adapters: AdapterReceiver,
}

impl PlanEncoder {
    /// Nothing is known yet. Tokens are sent only to stages that cannot do without, adapters for these layers alone.
    pub(crate) fn new(sends_tokens: bool, layers: Range<u32>) -> PlanEncoder {
        let (slots, used, by_sequence, free) = Default::default();
        PlanEncoder { slots, used, by_sequence, free, steps: 0, sends_tokens, adapters: AdapterSender::new(layers) }
    }

    /// Appends the plan to `out`, after the sequences that have ended, of which there are at most [`MOST_ENDED`]; `None`
    /// if it has more sequences than there are slots, or an adapter that the other end was not told of.
    pub(crate) fn write(&mut self, plan: &StepPlan, ended: &[u64], out: &mut Vec<u8>) -> Option<()> {
        self.steps += 1;
        put(ended.len() as u64, out);
        for id in ended {
            put(*id, out);
            self.free.extend(self.by_sequence.remove(id));
        }
        put(plan.steps.len() as u64, out);
        for step in &plan.steps {
            let (slot, fresh) = self.slot(step.id)?;
            put(slot as u32, out);
            if fresh {
                self.slots[slot] = Slot::default();
            }
            let adapter = self.adapters.number(step.adapter.as_ref())?;
            self.slots[slot].write((step, adapter), if fresh { FRESH } else { 0 }, out);
        }
        if self.sends_tokens {
            out.extend(plan.tokens.iter().flat_map(|token| token.to_le_bytes()));
        }
        Some(())
    }

    /// The slot of a sequence, and whether it is new there.
    fn slot(&mut self, sequence: u64) -> Option<(usize, bool)> {
        if let Some(&slot) = self.by_sequence.get(&sequence) {
            // A sequence that is twice in a step would have to be in two states at once.
            (self.used[slot].1 < self.steps).then_some(())?;
            self.used[slot].1 = self.steps;
            return Some((slot, false));
        }
        let slot = if let Some(slot) = self.free.pop() {
            slot
        } else if self.slots.len() < SLOTS {
            self.slots.push(Slot::default());
            self.used.push((sequence, 0));
            self.slots.len() - 1
        } else {
            let oldest = (0..SLOTS).min_by_key(|&slot| self.used[slot].1)?;
            (self.used[oldest].1 < self.steps).then_some(())?;
            self.by_sequence.remove(&self.used[oldest].0);
            oldest
        };
        self.used[slot] = (sequence, self.steps);
        self.by_sequence.insert(sequence, slot);
        Some((slot, true))
    }
}

impl Slot {
    fn write(&mut self, (step, adapter): (&SequenceStep, u32), fresh: u8, out: &mut Vec<u8>) {
        let flags_at = out.len();
        out.push(0);
        let mut flags = fresh;
        if fresh != 0 {
            self.id = Some(step.id);
            put(step.id, out);
        }
        if step.rows.len() != 1 {
            flags |= ROWS;
            put(step.rows.len() as u32, out);
        }
        if step.start != self.next {
            flags |= START;
            put(step.start, out);
        }
        if adapter != self.adapter {
            flags |= ADAPTER;
            put(adapter, out);
            self.adapter = adapter;
        }
        for class in PageClass::ALL {
            let known = &mut self.runs[class];
            let (first, pages) = step.run(class).map_or((0, &[][..]), |run| (run.first, &run.pages));
            if first != known.first || pages != known.pages {
                flags |= PAGES << class as u8;
                put(first, out);
                put_list(known.from(first), pages, out);
                *known = Run { first, pages: pages.to_vec() };
            }
        }
        self.next = step.start.saturating_add(step.rows.len() as u32);
        out[flags_at] = flags;
    }

    /// Reads what changed, and gives the sequence's part of a step that begins at row `first`.
    fn read(
        &mut self,
        first: u32,
        input: &mut Input<'_>,
        (most, adapters): (usize, &AdapterReceiver),
    ) -> Option<SequenceStep> {
        let flags = input.byte()?;
        (flags & !KNOWN == 0).then_some(())?;
        if flags & FRESH != 0 {
            *self = Slot { id: Some(input.long_number()?), ..Slot::default() };
        }
        let id = self.id?;
        let rows = if flags & ROWS != 0 { input.number()? } else { 1 };
        let start = if flags & START != 0 { input.number()? } else { self.next };
        if flags & ADAPTER != 0 {
            self.adapter = input.number()?;
        }
        let adapter = adapters.numbered(self.adapter)?;
        for class in PageClass::ALL {
            if flags & (PAGES << class as u8) != 0 {
                let first = input.number()?;
                let pages = input.list(self.runs[class].from(first), most)?;
                self.runs[class] = Run { first, pages };
            }
        }
        self.next = start.checked_add(rows)?;
        let rows = first..first.checked_add(rows)?;
        let held = self.runs.iter().filter(|(_, run)| !run.pages.is_empty());
        let runs = held.map(|(class, Run { first, pages })| PageRun { class, first: *first, pages: pages.clone() });
        Some(SequenceStep { id, rows, start, runs: runs.collect(), adapter, second_text: None })
    }
}

impl Run {
    /// What is known from page `first` of the sequence on.
    fn from(&self, first: u32) -> &[PageId] {
        let passed = first.checked_sub(self.first).unwrap_or(u32::MAX) as usize;
        self.pages.get(passed..).unwrap_or_default()
    }
}

impl PlanDecoder {
    /// Nothing is known yet; no sequence is longer than `context`.
    pub(crate) fn new(sends_tokens: bool, context: u32) -> PlanDecoder {
        let pages = context.div_ceil(PAGE_TOKENS) as usize + 1;
        PlanDecoder { slots: Vec::new(), sends_tokens, pages, adapters: AdapterReceiver::default() }
    }

    /// The longest table of a step of `rows` rows.
    pub(crate) fn most_bytes(&self, rows: u32) -> u32 {
        // A list of pages for each class, and all other numbers of a sequence; five bytes are the longest number.
        // Identities are twice as long.
        let sequence = 5 * (PageClass::ALL.len() as u64 * (self.pages as u64 + 3) + 7);
        let sequences = u64::from(rows).min(SLOTS as u64);
        let ended = 5 + 10 * MOST_ENDED as u64;
        u32::try_from(5 + ended + sequences * sequence + 4 * u64::from(rows)).unwrap_or(u32::MAX)
    }

    /// The plan of a step of `rows` rows, and the sequences that have ended before it.
    pub(crate) fn read(&mut self, table: &[u8], rows: u16) -> Result<(StepPlan, Vec<u64>), LinkError> {
        self.parse(table, u32::from(rows)).ok_or_else(|| LinkError::Broken("it sent a plan that makes no sense".into()))
    }

    /// The sequences that have not ended.
    pub(crate) fn sequences(&self) -> impl Iterator<Item = u64> {
        self.slots.iter().filter_map(|slot| slot.id)
    }

    fn parse(&mut self, table: &[u8], rows: u32) -> Option<(StepPlan, Vec<u64>)> {
        let mut input = Input(table);
        let ended = input.number()? as usize;
        (ended <= MOST_ENDED).then_some(())?;
        let ended = (0..ended).map(|_| input.long_number()).collect::<Option<Vec<u64>>>()?;
        for slot in self.slots.iter_mut().filter(|slot| slot.id.is_some_and(|id| ended.contains(&id))) {
            *slot = Slot::default();
        }
        let count = input.number()?;
        (count <= rows).then_some(())?;
        let mut plan = StepPlan::default();
        let mut next = 0;
        for _ in 0..count {
            let slot = input.number()? as usize;
            (slot < SLOTS && slot <= self.slots.len()).then_some(())?;
            if slot == self.slots.len() {
                self.slots.push(Slot::default());
            }
            let step = self.slots[slot].read(next, &mut input, (self.pages, &self.adapters))?;
            next = step.rows.end;
            (next <= rows).then_some(())?;
            plan.steps.push(step);
        }
        plan.tokens = match self.sends_tokens {
            true => input.words(rows as usize)?,
            false => vec![0; rows as usize],
        };
        (next == rows && input.0.is_empty()).then_some((plan, ended))
    }
}

/// Appends a number: seven bits a byte, least first.
fn put(number: impl Into<u64>, out: &mut Vec<u8>) {
    let mut number = number.into();
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Appends a list as what it shares with a known one and what follows that.
fn put_list(known: &[u32], list: &[u32], out: &mut Vec<u8>) {
    let same = known.iter().zip(list).take_while(|(one, other)| one == other).count();
    put(same as u32, out);
    put((list.len() - same) as u32, out);
    list[same..].iter().for_each(|number| put(*number, out));
}

/// Hands out what was put.
struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn byte(&mut self) -> Option<u8> {
        let (byte, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*byte)
    }

    fn number(&mut self) -> Option<u32> {
        self.long_number().and_then(|number| u32::try_from(number).ok())
    }

    fn long_number(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..u64::BITS).step_by(7) {
            let byte = self.byte()?;
            let part = u64::from(byte & 0x7f);
            // Nothing may be lost at the upper end.
            (part << shift >> shift == part).then_some(())?;
            number |= part << shift;
            if byte < 0x80 {
                return Some(number);
            }
        }
        None
    }

    fn list(&mut self, known: &[u32], most: usize) -> Option<Vec<u32>> {
        let (same, more) = (self.number()? as usize, self.number()? as usize);
        (same.checked_add(more)? <= most).then_some(())?;
        let mut list = known.get(..same)?.to_vec();
        for _ in 0..more {
            list.push(self.number()?);
        }
        Some(list)
    }

    fn words(&mut self, count: usize) -> Option<Vec<u32>> {
        let (bytes, rest) = self.0.split_at_checked(count.checked_mul(4)?)?;
        self.0 = rest;
        Some(bytes.as_chunks::<4>().0.iter().map(|word| u32::from_le_bytes(*word)).collect())
    }
}

#[cfg(test)]
#[path = "plan_codec_tests.rs"]
mod tests;
