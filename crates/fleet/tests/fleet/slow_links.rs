//! Links that are slow, lossy, dribbling or stalled: the machine behind them is bypassed, and answers that others wait
//! for come about as quickly as without them.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use cascadia_fleet::link::{ChannelLink, Link, LinkError, fair, timed_pair};
use cascadia_fleet::{Clock, ModelWorkers, RemoteStage, StageStatus, Timeouts, WorkerStage};
use cascadia_model::{Hidden, Placement, Stage, StageError, StageTraits, StepPlan};

use crate::hash_model::{
    Chance, HashStage, LEASE, Sizes, WIDTH, generate_sizes, hello, model_workers, shape, simulated,
};
use crate::standbys::hashes;

/// Requests one after the other, so that the ninety-ninth percentile means something.
const ROUNDS: u64 = 12;
const SIZES: Sizes = Sizes { sequences: 3, tokens: 120 };
/// What a step takes to compute.
const COMPUTING: Duration = Duration::from_millis(5);
/// A row of hashes stands for one of so many numbers.
const NUMBERS: usize = 2048;
const BESIDE_ROWS: usize = 28;
/// What TCP waits for before it sends again.
const RESEND: Duration = Duration::from_millis(200);

/// How a link is.
#[derive(Clone, Copy, Debug)]
struct Shape {
    latency: Duration,
    bytes_per_second: f64,
    /// Of a hundred pieces, how many are lost and sent again.
    lost: u64,
    /// Whether nothing is read any more.
    is_stalled: bool,
}

const GOOD: Shape = Shape { latency: Duration::from_micros(100), bytes_per_second: 125e6, lost: 0, is_stalled: false };

/// What bytes stand for: besides its rows, a frame has about as many as a real one.
fn real_bytes(bytes: usize) -> f64 {
    let rows = bytes.saturating_sub(BESIDE_ROWS);
    (bytes - rows) as f64 + (rows * NUMBERS) as f64 / WIDTH as f64
}

/// One end of a link that is as it should be until it is made bad.
struct Shaped {
    link: ChannelLink,
    bad: Shape,
    is_bad: Arc<AtomicBool>,
    chance: Chance,
    /// When bytes arrive.
    coming: VecDeque<(Instant, Vec<u8>)>,
}

impl Shaped {
    fn shape(&self) -> Shape {
        if self.is_bad.load(Ordering::SeqCst) { self.bad } else { GOOD }
    }

    /// Bytes are on their way after those before them.
    fn came(&mut self, bytes: &[u8]) {
        let (shape, now) = (self.shape(), self.link.clock().now());
        let mut at = self.coming.back().map_or(now, |(at, _)| now.max(*at));
        at += if self.chance.below(100) < shape.lost { RESEND } else { Duration::ZERO };
        // A link that dribbles brings byte for byte.
        for piece in bytes.chunks(shape.bytes_per_second as usize) {
            at += Duration::from_secs_f64(real_bytes(piece.len()) / shape.bytes_per_second);
            self.coming.push_back((at.max(now + shape.latency), piece.to_vec()));
        }
    }
}

impl Link for Shaped {
    fn clock(&self) -> &Clock {
        self.link.clock()
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), LinkError> {
        self.link.write(bytes)
    }

    fn read(&mut self, out: &mut [u8], deadline: Instant) -> Result<usize, LinkError> {
        loop {
            let now = self.clock().now();
            let is_stalled = self.shape().is_stalled;
            if let Some((at, bytes)) = self.coming.front_mut().filter(|_| !is_stalled)
                && *at <= now
            {
                let count = out.len().min(bytes.len());
                out[..count].copy_from_slice(&bytes[..count]);
                bytes.drain(..count);
                if bytes.is_empty() {
                    self.coming.pop_front();
                }
                return Ok(count);
            }
            if now >= deadline {
                return Err(LinkError::TimedOut);
            }
            let until = self.coming.front().filter(|_| !is_stalled).map_or(deadline, |(at, _)| deadline.min(*at));
            let mut bytes = [0; 1 << 16];
            match self.link.read(&mut bytes, until) {
                Ok(count) => self.came(&bytes[..count]),
                Err(LinkError::TimedOut) => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// A stage that takes its time.
struct Computing(HashStage, Clock);

impl Stage for Computing {
    fn layers(&self) -> Range<u32> {
        self.0.layers()
    }

    fn traits(&self) -> StageTraits {
        StageTraits::exact(Placement::Remote)
    }

    fn run(&self, plan: &StepPlan, hidden: &mut Hidden) -> Result<(), StageError> {
        self.1.sleep(COMPUTING);
        self.0.run(plan, hidden)
    }
}

/// Brings a machine behind such a link.
fn bring(model_workers: &ModelWorkers, node: &str, number: usize, (bad, is_bad): (Shape, &Arc<AtomicBool>)) {
    let clock = model_workers.clock().clone();
    let (here, there) = timed_pair(&clock, Duration::ZERO, [fair(), fair()]);
    let end =
        |link, seed| Shaped { link, bad, is_bad: Arc::clone(is_bad), chance: Chance(seed), coming: VecDeque::new() };
    let (here, mut there, own) = (end(here, 1), end(there, 2), clock.clone());
    let load = move |_: &_| Ok(Box::new(Computing(hashes(number as u32), own.clone())) as Box<dyn Stage>);
    let mut worker = WorkerStage::new(hello(number), shape(), LEASE, Box::new(load));
    clock.spawn(move || worker.serve(&mut there));
    assert_eq!(model_workers.admit(Box::new(here), node), Ok(number));
}

/// The ninety-ninth percentile of the time between tokens while the link to one of two machines becomes bad after a
/// while, and how its stage is then.
fn run(clock: &Clock, bad: Shape, from: u64) -> (Duration, StageStatus) {
    let model_workers = model_workers().on_clock(clock);
    let is_bad = [0, 1, 2].map(|_| Arc::new(AtomicBool::new(false)));
    bring(&model_workers, "bad", 0, (bad, &is_bad[0]));
    bring(&model_workers, "good", 0, (GOOD, &is_bad[1]));
    bring(&model_workers, "last", 1, (GOOD, &is_bad[2]));
    let stages = [0, 1].map(|stage| RemoteStage::new(&model_workers, stage, Timeouts::default()));
    let local = [0, 1].map(hashes);
    let (mut times, mut steps) = (Vec::new(), 0);
    for round in 0..ROUNDS {
        let tokens = generate_sizes(&mut Chance(round), SIZES, |plan, hidden| {
            is_bad[0].store(steps >= from, Ordering::SeqCst);
            steps += 1;
            let begin = clock.now();
            let ran = stages.iter().try_for_each(|stage| stage.run(plan, hidden));
            times.push(clock.since(begin));
            ran
        });
        let here = generate_sizes(&mut Chance(round), SIZES, |plan, hidden| {
            local.iter().try_for_each(|stage| stage.run(plan, hidden))
        });
        assert!(tokens == here, "other tokens behind {bad:?}");
    }
    times.sort();
    (times[times.len() * 99 / 100], stages[0].status())
}

#[test]
fn a_bad_link_is_bypassed_and_siblings_do_not_feel_it() {
    let cases = [
        ("10 Mbit/s", Shape { bytes_per_second: 1.25e6, ..GOOD }),
        ("200 ms there and back", Shape { latency: Duration::from_millis(100), ..GOOD }),
        ("a byte in a second", Shape { bytes_per_second: 1.0, ..GOOD }),
        ("a reader that stalls", Shape { is_stalled: true, ..GOOD }),
        ("5 % of packets lost", Shape { lost: 5, ..GOOD }),
    ];
    let (mut usual, mut problems) = (Duration::ZERO, Vec::new());
    simulated(|clock| (usual, _) = run(clock, GOOD, 0));
    for (name, bad) in cases {
        for from in [0, 400] {
            simulated(|clock| {
                let (time, StageStatus { node, bypassed, lost, steps, .. }) = run(clock, bad, from);
                let times = time.as_secs_f64() / usual.as_secs_f64();
                let found =
                    format!("{name} from step {from} of {steps}: {times:.2} times, {bypassed} bypassed, {lost} lost");
                eprintln!("{found}");
                // One that does not even answer at first is never taken.
                if node.as_deref() != Some("good") || times > 1.5 {
                    problems.push(found);
                }
            });
        }
    }
    assert!(problems.is_empty(), "{problems:#?}");
}
