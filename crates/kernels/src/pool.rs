//! Fork-join threads: one job at a time, split into tasks that threads claim.
//!
//! Which thread runs a task never changes its result, because a task owns the part of the output it writes.
//! A thread that is slow to wake (its core is busy with other work) is not waited for: the job is closed as soon as
//! every task is claimed, and only threads that have entered it are awaited.
#![expect(unsafe_code, reason = "a job borrows the caller's stack, and tasks write disjoint parts of one slice")]

use std::cell::UnsafeCell;
use std::hint::spin_loop;
use std::marker::PhantomData;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};

use crate::runs::{FourRuns, STREAMS, Tiling};
use crate::share::{Share, TilePlace};

/// How often an idle thread looks for work before it sleeps: long enough to bridge the gap between two operations.
const SPINS_BEFORE_SLEEP: u32 = 2_000;
/// How often the caller looks for the last threads before it offers its core to them.
const SPINS_BEFORE_YIELD: u32 = 5_000;

/// `state` is the job's number, then whether it may still be entered, then how many threads are inside.
const INSIDE_MASK: u64 = (1 << 15) - 1;
const OPEN: u64 = 1 << 15;
const NUMBER_SHIFT: u32 = 16;
const MAX_THREADS: usize = 1024;

/// A thread of a pool, counted from 0, which is the one that called it. Loops get it to find what is kept per thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Worker(pub usize);

type Job<'a> = dyn Fn(Worker, Task) + Sync + 'a;

/// A task of a job: the thread whose part it belongs to, and its number among the tasks of that part.
#[derive(Clone, Copy)]
struct Task {
    part: usize,
    number: usize,
}

/// A fixed set of threads that run one job together.
pub struct Pool {
    shared: Arc<Shared>,
    helpers: Vec<JoinHandle<()>>,
}

struct Shared {
    state: AtomicU64,
    /// The tasks of the job that each thread begins with.
    parts: Vec<Part>,
    job: UnsafeCell<Option<*const Job<'static>>>,
    asleep: Vec<AtomicBool>,
    panicked: AtomicBool,
    running: AtomicBool,
    quit: AtomicBool,
}

/// The next unclaimed task of one part and how many it has, in a cache line of its own (two, as they are fetched in pairs).
#[derive(Default)]
#[repr(align(128))]
struct Part {
    next: AtomicUsize,
    tasks: AtomicUsize,
}

// SAFETY: `job` is written only by the caller of `run` while no thread is inside, and read only by threads that have
// entered the job, which the state's acquire/release pairs order after the write.
unsafe impl Sync for Shared {}
// SAFETY: the pointer inside `job` is only followed while `run` keeps its target alive.
unsafe impl Send for Shared {}

impl Pool {
    /// Starts a pool of `threads` threads, counting the one that calls `run`.
    pub fn new(threads: usize) -> Pool {
        Pool::with_start(threads, |_| {})
    }

    /// Like `new`; every helper thread begins with `start(worker)`, where workers count from 1.
    pub fn with_start(threads: usize, start: impl Fn(usize) + Send + Sync + 'static) -> Pool {
        let start = Arc::new(start);
        let threads = threads.clamp(1, MAX_THREADS);
        let shared = Arc::new(Shared {
            state: AtomicU64::new(0),
            parts: (0..threads).map(|_| Part::default()).collect(),
            job: UnsafeCell::new(None),
            asleep: (1..threads).map(|_| AtomicBool::new(false)).collect(),
            panicked: AtomicBool::new(false),
            running: AtomicBool::new(false),
            quit: AtomicBool::new(false),
        });
        let helpers = (1..threads)
            .map(|worker| {
                let (shared, start) = (Arc::clone(&shared), Arc::clone(&start));
                let serve = move || {
                    start(worker);
                    shared.serve(worker);
                };
                thread::Builder::new()
                    .name(format!("cascadia-{worker}"))
                    .spawn(serve)
                    .expect("the system refuses another thread")
            })
            .collect();
        Pool { shared, helpers }
    }

    /// Threads of the pool, counting the caller's.
    pub fn threads(&self) -> usize {
        self.helpers.len() + 1
    }

    /// Runs `job(worker, task)` once for every task in `0..tasks`; returns when all are done.
    pub fn run(&self, tasks: usize, job: &(dyn Fn(Worker, usize) + Sync)) {
        let share = Share::new(tasks, self.threads());
        self.run_parts(|part| share.of(part).len(), &|worker, task| {
            job(worker, share.of(task.part).start + task.number)
        });
    }

    /// Runs every task of every thread's part once; returns when all are done.
    fn run_parts(&self, tasks_of: impl Fn(usize) -> usize, job: &Job<'_>) {
        let tasks = (0..self.threads()).map(&tasks_of).sum::<usize>();
        if self.helpers.is_empty() || tasks <= 1 {
            let all = (0..self.threads()).flat_map(|part| (0..tasks_of(part)).map(move |number| Task { part, number }));
            all.for_each(|task| job(Worker(0), task));
            return;
        }
        let shared = &*self.shared;
        assert!(!shared.running.swap(true, Ordering::Acquire), "a pool runs one job at a time");
        // SAFETY: nobody is inside a job now (see `running` and the wait below), so the cell is ours; the lifetime is
        // erased, and this function does not return before the last thread that could follow the pointer has left.
        unsafe { *shared.job.get() = Some(std::mem::transmute::<*const Job<'_>, *const Job<'static>>(job)) };
        for (number, part) in shared.parts.iter().enumerate() {
            part.next.store(0, Ordering::Relaxed);
            part.tasks.store(tasks_of(number), Ordering::Relaxed);
        }
        let number =
            (shared.state.load(Ordering::Relaxed) >> NUMBER_SHIFT).wrapping_add(1) & (u64::MAX >> NUMBER_SHIFT);
        // Sequentially consistent against the sleeper's own store-then-look: one of the two sees the other.
        shared.state.store((number << NUMBER_SHIFT) | OPEN, Ordering::SeqCst);
        for (asleep, helper) in shared.asleep.iter().zip(&self.helpers) {
            if asleep.load(Ordering::SeqCst) {
                helper.thread().unpark();
            }
        }
        let own = catch_unwind(AssertUnwindSafe(|| shared.claim_tasks(job, 0)));
        shared.state.fetch_and(!OPEN, Ordering::AcqRel);
        let mut spins = 0;
        while shared.state.load(Ordering::Acquire) & INSIDE_MASK != 0 {
            spins += 1;
            if spins < SPINS_BEFORE_YIELD { spin_loop() } else { thread::yield_now() }
        }
        shared.running.store(false, Ordering::Release);
        assert!(own.is_ok() && !shared.panicked.swap(false, Ordering::Relaxed), "a task of the pool panicked");
    }

    /// Runs `work(worker, index, chunk)` on every chunk of `length` values of `out`.
    pub fn chunks<T: Send>(&self, out: &mut [T], length: usize, work: impl Fn(Worker, usize, &mut [T]) + Sync) {
        let total = out.len();
        let out = Parts::new(out);
        self.run(total.div_ceil(length), &|worker, task| {
            // SAFETY: a task runs once, and its range overlaps no other task's.
            work(worker, task, unsafe { out.slice(task * length..total.min((task + 1) * length)) });
        });
    }

    /// Like `chunks`, and lends each thread its own scratch value.
    pub fn chunks_with<T: Send, S: Send>(
        &self,
        out: &mut [T],
        length: usize,
        scratch: &mut [S],
        work: impl Fn(Worker, usize, &mut [T], &mut S) + Sync,
    ) {
        assert!(scratch.len() >= self.threads(), "one scratch value per thread");
        let total = out.len();
        let (out, scratch) = (Parts::new(out), Parts::new(scratch));
        self.run(total.div_ceil(length), &|worker, task| {
            // SAFETY: as in `chunks`; and a worker runs one task at a time, so its scratch value is its own.
            let (part, own) = unsafe {
                (out.slice(task * length..total.min((task + 1) * length)), scratch.slice(worker.0..worker.0 + 1))
            };
            work(worker, task, part, &mut own[0]);
        });
    }

    /// A matrix for [`Self::tiles`] whose group `g` has the rows from `starts[g]` up to `starts[g + 1]`.
    pub fn tiled<'a>(&self, out: &'a mut [f32], tiling: Tiling, starts: &'a [usize]) -> TiledRows<'a> {
        let rows = starts.last().copied().filter(|_| starts.is_sorted());
        assert!(rows.is_some_and(|rows| rows * tiling.rows() == out.len()), "whole rows");
        let tiles = tiling.tasks();
        let share = Share::new((starts.len() - 1) * tiles, self.threads());
        TiledRows { out: Parts::new(out), tiling, starts, tiles, share }
    }

    /// Splits groups of rows of row-major matrices into tiles, in one job. `work` hears where a tile is. Of every matrix each
    /// thread begins with its own share of the tiles, in the order of the matrices. Each thread is lent its own scratch value.
    pub fn tiles<S: Send>(
        &self,
        matrices: &[&TiledRows<'_>],
        scratch: &mut [S],
        work: impl Fn(TilePlace, TileMut<'_>, &mut S) + Sync,
    ) {
        assert!(scratch.len() >= self.threads(), "one scratch value per thread");
        let scratch = Parts::new(scratch);
        self.run_parts(|part| tiles_of_part(matrices, part), &|worker, Task { part, number }| {
            let mut tile = number;
            for (matrix, rows) in matrices.iter().enumerate() {
                let own = rows.share.of(part);
                if tile >= own.len() {
                    tile -= own.len();
                    continue;
                }
                let TiledRows { out, tiling, starts, tiles, .. } = *rows;
                let (group, columns) = ((own.start + tile) / tiles, tiling.task((own.start + tile) % tiles));
                if columns.fours() > 0 {
                    let rows = starts[group]..starts[group + 1];
                    let tile = TileMut { out, rows, width: tiling.rows(), columns, places: columns, worker };
                    // SAFETY: a worker runs one task at a time, so its scratch value is its own.
                    let own = unsafe { scratch.slice(worker.0..worker.0 + 1) };
                    work(TilePlace { matrix, group }, tile, &mut own[0]);
                }
                break;
            }
        });
    }
}

/// How many tiles of some matrices a thread begins with.
fn tiles_of_part(matrices: &[&TiledRows<'_>], part: usize) -> usize {
    matrices.iter().map(|rows| rows.share.of(part).len()).sum()
}

/// A row-major matrix in groups of rows, and how their columns, which are the rows of a weight matrix, are divided.
pub struct TiledRows<'a> {
    out: Parts<'a, f32>,
    tiling: Tiling,
    starts: &'a [usize],
    /// Tiles of each group.
    tiles: usize,
    share: Share,
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.quit.store(true, Ordering::SeqCst);
        for helper in self.helpers.drain(..) {
            helper.thread().unpark();
            // A helper cannot panic outside a task, and a task's panic was already reported by `run`.
            let _ = helper.join();
        }
    }
}

impl Shared {
    fn serve(&self, worker: usize) {
        let mut served = 0;
        while let Some(number) = self.wait_for_job(served, worker) {
            served = number;
            if self.enter(number) {
                // SAFETY: we are inside the job, so `run` is still waiting and the closure it borrowed is alive.
                let job = unsafe { (*self.job.get()).map(|job| &*job) };
                let outcome = catch_unwind(AssertUnwindSafe(|| job.map(|job| self.claim_tasks(job, worker))));
                if outcome.is_err() {
                    self.panicked.store(true, Ordering::Relaxed);
                }
                self.state.fetch_sub(1, Ordering::Release);
            }
        }
    }

    /// Waits for a job other than `served`; `None` when the pool is dropped.
    fn wait_for_job(&self, served: u64, worker: usize) -> Option<u64> {
        let mut spins = 0;
        loop {
            if self.quit.load(Ordering::Relaxed) {
                return None;
            }
            let number = self.state.load(Ordering::Acquire) >> NUMBER_SHIFT;
            if number != served {
                return Some(number);
            }
            spins += 1;
            if spins < SPINS_BEFORE_SLEEP {
                spin_loop();
                continue;
            }
            let asleep = &self.asleep[worker - 1];
            asleep.store(true, Ordering::SeqCst);
            if self.state.load(Ordering::SeqCst) >> NUMBER_SHIFT == served && !self.quit.load(Ordering::SeqCst) {
                thread::park();
            }
            asleep.store(false, Ordering::SeqCst);
            spins = 0;
        }
    }

    /// Enters job `number` unless it is closed already.
    fn enter(&self, number: u64) -> bool {
        let enterable = |state: u64| (state >> NUMBER_SHIFT == number && state & OPEN != 0).then_some(state + 1);
        self.state.fetch_update(Ordering::AcqRel, Ordering::Acquire, enterable).is_ok()
    }

    /// Runs tasks until none is left: first those of the thread's own part, which lie one behind the other, so that
    /// memory is read in long streams and by the same thread every time; then what other threads have not begun.
    fn claim_tasks(&self, job: &Job<'_>, worker: usize) {
        for (number, part) in self.parts.iter().enumerate().cycle().skip(worker).take(self.parts.len()) {
            let tasks = part.tasks.load(Ordering::Relaxed);
            let claim = || Some(part.next.fetch_add(1, Ordering::Relaxed)).filter(|task| *task < tasks);
            while let Some(task) = claim() {
                job(Worker(worker), Task { part: number, number: task });
            }
        }
    }
}

/// A slice that tasks share by writing disjoint parts of it.
struct Parts<'a, T> {
    start: *mut T,
    length: usize,
    owner: PhantomData<&'a mut [T]>,
}

// SAFETY: a part is handed to one thread at a time (the contract of `slice`), which is what `&mut [T]: Send` allows.
unsafe impl<T: Send> Sync for Parts<'_, T> {}

impl<'a, T> Parts<'a, T> {
    fn new(slice: &'a mut [T]) -> Self {
        Parts { start: slice.as_mut_ptr(), length: slice.len(), owner: PhantomData }
    }

    /// # Safety
    /// While the result lives, no other part that overlaps `range` may exist.
    #[expect(clippy::mut_from_ref, reason = "exclusivity is the caller's promise, per range")]
    unsafe fn slice(&self, range: Range<usize>) -> &mut [T] {
        assert!(range.start <= range.end && range.end <= self.length, "a part lies inside its slice");
        // SAFETY: in bounds by the assertion, exclusive by the caller's promise, alive by `owner`.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(range.start), range.len()) }
    }
}

/// Some columns of some rows of an output matrix, owned by one task.
pub struct TileMut<'a> {
    out: &'a Parts<'a, f32>,
    rows: Range<usize>,
    width: usize,
    columns: FourRuns,
    /// Where in a row the columns lie.
    places: FourRuns,
    worker: Worker,
}

impl TileMut<'_> {
    /// The thread that runs the task.
    pub fn worker(&self) -> Worker {
        self.worker
    }

    /// How many rows.
    pub fn rows(&self) -> usize {
        self.rows.len()
    }

    /// The columns this task owns.
    pub fn columns(&self) -> FourRuns {
        self.columns
    }

    /// How many columns, where they are neighbours.
    pub fn width(&self) -> usize {
        self.neighbours().len()
    }

    /// The owned part of one row, where the columns are neighbours.
    pub fn row(&mut self, row: usize) -> &mut [f32] {
        assert!(row < self.rows());
        let (start, columns) = ((self.rows.start + row) * self.width, self.neighbours());
        // SAFETY: only this tile owns these columns of its rows, and it lends one row at a time.
        unsafe { self.out.slice(start + columns.start..start + columns.end) }
    }

    /// Gives every row the sum of two products: `multiply` hears some rows, and writes both products of each to
    /// neighbouring rows of a tile with the same columns that lies in `scratch`.
    pub fn add_pairs(&mut self, scratch: &mut [f32], mut multiply: impl FnMut(Range<usize>, &mut TileMut<'_>)) {
        let (columns, places) = (self.columns, self.columns.compact());
        let width = columns.most();
        let most = scratch.len() / (2 * width);
        assert!(most > 0, "room for the products of a row");
        // The last rows are about as many as those before, since few are slower than many.
        let count = self.rows().div_ceil(self.rows().div_ceil(most).max(1)).max(1);
        for first in (0..self.rows()).step_by(count) {
            let rows = first..self.rows().min(first + count);
            let products = Parts::new(&mut scratch[..2 * rows.len() * width]);
            let (pairs, worker) = (0..2 * rows.len(), self.worker);
            multiply(rows.clone(), &mut TileMut { out: &products, rows: pairs, width, columns, places, worker });
            for (row, pair) in rows.zip(scratch.chunks_exact(2 * width)) {
                let (a, b) = pair.split_at(width);
                match columns.as_range() {
                    Some(_) => self.row(row).iter_mut().zip(a).zip(b).for_each(|((out, a), b)| *out = a + b),
                    None => (0..columns.fours())
                        .for_each(|at| self.put4(row, at, places.four(at).map(|place| a[place] + b[place]))),
                }
            }
        }
    }

    /// Adds to every row the sum of its `terms` products, one or two: `multiply` hears some rows, and writes the products of each
    /// to neighbouring rows of a tile with the same columns that lies in `scratch`. The columns are neighbours.
    pub fn add_products(
        &mut self,
        terms: usize,
        scratch: &mut [f32],
        mut multiply: impl FnMut(Range<usize>, &mut TileMut<'_>),
    ) {
        let columns = self.columns;
        let width = columns.most();
        let most = scratch.len() / (terms * width);
        assert!(most > 0 && (1..=2).contains(&terms), "room for the products of a row");
        for first in (0..self.rows()).step_by(most) {
            let rows = first..self.rows().min(first + most);
            let products = Parts::new(&mut scratch[..terms * rows.len() * width]);
            let (places, worker) = (columns.compact(), self.worker);
            let own = 0..terms * rows.len();
            multiply(rows.clone(), &mut TileMut { out: &products, rows: own, width, columns, places, worker });
            for (row, products) in rows.zip(scratch.chunks_exact(terms * width)) {
                let (a, b) = products.split_at(width);
                let out = self.row(row).iter_mut().zip(a);
                match terms {
                    1 => out.for_each(|(out, a)| *out += a),
                    _ => out.zip(b).for_each(|((out, a), b)| *out += a + b),
                }
            }
        }
    }

    /// Writes column `at` of each run of one row; where a run has no such column, its value is dropped.
    #[inline]
    pub fn put4(&mut self, row: usize, at: usize, values: [f32; STREAMS]) {
        assert!(row < self.rows() && at < self.columns.fours());
        let start = (self.rows.start + row) * self.width;
        for (run, value) in values.into_iter().enumerate() {
            if let Some(column) = self.places.row(at, run) {
                // SAFETY: only this tile owns this column of its rows, and the borrow ends here.
                let place = unsafe { self.out.slice(start + column..start + column + 1) };
                place[0] = value;
            }
        }
    }

    fn neighbours(&self) -> Range<usize> {
        self.places.as_range().expect("a kernel for many columns gets neighbouring rows")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_task_runs_once_whatever_the_threads() {
        for threads in [1, 2, 3, 8] {
            let pool = Pool::new(threads);
            for tasks in [0, 1, 2, 7, 100] {
                let counts: Vec<AtomicUsize> = (0..tasks).map(|_| AtomicUsize::new(0)).collect();
                for _ in 0..50 {
                    pool.run(tasks, &|worker, task| {
                        assert!(worker.0 < threads);
                        counts[task].fetch_add(1, Ordering::Relaxed);
                    });
                }
                assert!(
                    counts.iter().all(|count| count.load(Ordering::Relaxed) == 50),
                    "{threads} threads, {tasks} tasks"
                );
            }
        }
    }

    #[test]
    fn sleeping_helpers_wake_up() {
        let pool = Pool::new(2);
        for pause_ms in [0, 1, 20] {
            thread::sleep(std::time::Duration::from_millis(pause_ms));
            let mut out = vec![0.0; 1000];
            pool.chunks_with(&mut out, 10, &mut [0, 0], |_, task, part, count| {
                *count += 1;
                part.fill(task as f32);
            });
            assert!(out.iter().enumerate().all(|(at, &value)| value == (at / 10) as f32));
        }
    }

    #[test]
    fn tiles_cover_all_rows() {
        let pool = Pool::new(2);
        let mut out = vec![0.0; 3 * 10];
        let tiled = pool.tiled(&mut out, Tiling::neighbours(10, 4), &[0, 3]);
        pool.tiles(&[&tiled], &mut [(); 2], |_, mut tile, ()| {
            for row in 0..tile.rows() {
                let columns = tile.columns().as_range().expect("neighbours");
                tile.row(row).iter_mut().zip(columns).for_each(|(out, column)| *out = (row * 100 + column) as f32);
            }
        });
        assert!(out.iter().enumerate().all(|(at, &value)| value == (at / 10 * 100 + at % 10) as f32));
    }

    #[test]
    fn tiles_of_a_group_stay_in_it() {
        let pool = Pool::new(2);
        let mut out = vec![0.0; 5 * 10];
        let tiled = pool.tiled(&mut out, Tiling::neighbours(10, 4), &[0, 2, 2, 5]);
        pool.tiles(&[&tiled], &mut [(); 2], |place, mut tile, ()| {
            for row in 0..tile.rows() {
                tile.row(row).iter_mut().for_each(|out| *out += (place.group * 10 + row) as f32);
            }
        });
        let rows: Vec<f32> = out.chunks(10).map(|row| row.iter().sum::<f32>() / 10.0).collect();
        assert_eq!(rows, [0.0, 1.0, 20.0, 21.0, 22.0]);
    }

    #[test]
    fn tiles_of_streams_write_every_column_once() {
        let pool = Pool::new(3);
        for width in [1, 5, 31, 64, 67, 130] {
            let mut out = vec![0.0; 2 * width];
            let tiled = pool.tiled(&mut out, Tiling::streams(width, 3), &[0, 2]);
            pool.tiles(&[&tiled], &mut [(); 3], |_, mut tile, ()| {
                for at in 0..tile.columns().fours() {
                    let columns = tile.columns().four(at);
                    (0..2).for_each(|row| tile.put4(row, at, columns.map(|column| (100 * row + column + 1) as f32)));
                }
            });
            assert!(out.iter().enumerate().all(|(at, &value)| value == (at / width * 100 + at % width + 1) as f32));
        }
    }

    #[test]
    fn every_tile_of_every_matrix_is_computed_once() {
        let pool = Pool::new(2);
        let (mut large, mut none, mut small) = ([0.0; 64], [0.0; 0], [0.0; 6]);
        let matrices = [
            pool.tiled(&mut large, Tiling::neighbours(32, 4), &[0, 1, 2]),
            pool.tiled(&mut none, Tiling::neighbours(0, 4), &[0]),
            pool.tiled(&mut small, Tiling::neighbours(2, 4), &[0, 1, 2, 3]),
        ];
        pool.tiles(&matrices.each_ref(), &mut [(); 2], |place, mut tile, ()| {
            let value = (10 * place.matrix + place.group + 1) as f32;
            (0..tile.rows()).for_each(|row| tile.row(row).iter_mut().for_each(|out| *out += value));
        });
        assert_eq!((large[..32].to_vec(), large[32..].to_vec()), (vec![1.0; 32], vec![2.0; 32]));
        assert_eq!(small, [21.0, 21.0, 22.0, 22.0, 23.0, 23.0]);
    }

    #[test]
    fn pairs_of_rows_are_added() {
        let pool = Pool::new(3);
        for (width, rows, room) in [(1, 1, 600), (67, 1, 600), (130, 2, 600), (64, 9, 100), (75, 40, 600)] {
            for tiling in [Tiling::streams(width, 3), Tiling::neighbours(width, 10)] {
                let mut out = vec![0.0; rows * width];
                let starts = [0, rows];
                let tiled = pool.tiled(&mut out, tiling, &starts);
                pool.tiles(&[&tiled], &mut vec![vec![0.0; room]; 3], |_, mut tile, scratch| {
                    tile.add_pairs(scratch, |rows, products| {
                        let columns = products.columns();
                        for (row, at) in rows.clone().flat_map(|row| (0..columns.fours()).map(move |at| (row, at))) {
                            let pair = 2 * (row - rows.start);
                            products.put4(pair, at, columns.four(at).map(|column| (1000 * row) as f32 + column as f32));
                            products.put4(pair + 1, at, [0.5; STREAMS]);
                        }
                    });
                });
                let expected = |at: usize| (at / width * 1000 + at % width) as f32 + 0.5;
                assert!(
                    out.iter().enumerate().all(|(at, &value)| value == expected(at)),
                    "{width} × {rows} {tiling:?}"
                );
            }
        }
    }

    #[test]
    fn a_panic_in_a_task_reaches_the_caller_and_the_pool_lives_on() {
        let pool = Pool::new(2);
        for bad in [0, 99] {
            let outcome = catch_unwind(AssertUnwindSafe(|| pool.run(100, &|_, task| assert!(task != bad))));
            assert!(outcome.is_err());
            pool.run(10, &|_, _| ());
        }
    }
}
