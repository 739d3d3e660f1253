//! Measures the service: tokens per second of several answers at a time, and what a prompt costs beside them.
//!
//! `streams MODEL [STREAMS] [TOKENS] [PROMPT] [PROMPT_ROWS_BESIDE_ANSWERS]`
#![expect(clippy::print_stdout, reason = "a program that reports")]

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Instant;

use cascadia_engine::service::{Generation, Job, Priority, Service, ServiceOptions, Task, Tenant, Update};
use cascadia_engine::{CacheSize, Engine, Flow, OpenOptions, Sampling, Source};
use cascadia_kernels::Pool;

struct Wanted {
    seed: u32,
    prompt: u32,
    tokens: u32,
}

/// A job of its own, and when each of its tokens came.
fn job(wanted: &Wanted) -> (Job, Receiver<Instant>) {
    let (sender, times) = channel();
    let sink = move |update: Update| {
        if let Update::Token(_) = update {
            // The one who measures waits for all of them.
            let _ = sender.send(Instant::now());
        }
        Flow::Continue
    };
    let generation = Generation::new(Sampling::greedy(), wanted.tokens);
    let job = Job {
        prompt: (0..wanted.prompt).map(|at| 100 + (at * 7919 + wanted.seed * 104_729) % 20_000).collect(),
        task: Task::Generate(generation),
        tenant: Tenant(u64::from(wanted.seed)),
        adapter: None,
        priority: Priority::Normal,
        deadline: None,
        sink: Box::new(sink),
    };
    (job, times)
}

/// Seconds between one time and the next, shortest first.
fn gaps(times: &[Instant]) -> Vec<f64> {
    let gaps = times.windows(2).map(|pair| pair[1].duration_since(pair[0]).as_secs_f64());
    let mut gaps: Vec<f64> = gaps.collect();
    gaps.sort_by(f64::total_cmp);
    gaps
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let model = PathBuf::from(arguments.next().ok_or("which model?")?);
    let mut number = |default: u32| arguments.next().map_or(Ok(default), |text| text.parse());
    let (streams, tokens, prompt, beside) = (number(8)?, number(64)?, number(128)?, number(64)?);
    let options = OpenOptions {
        context: Some(2048),
        cache: CacheSize::Sequences(streams.max(2)),
        ..OpenOptions::new(Arc::new(Pool::new(2)))
    };
    let engine = Engine::open(Source::Path(&model), &options)?;
    let text = Arc::new(engine.text()?);
    let options = ServiceOptions {
        parallel: streams + 1,
        draft_rows: 0,
        prompt_rows_beside_answers: beside,
        ..ServiceOptions::default()
    };
    let service = Service::start(engine, text, options)?;
    let submit = |wanted: Wanted| {
        let (job, times) = job(&wanted);
        service.handle().submit(job).map(|_| times)
    };
    for repeat in 0..4 {
        let all = (0..streams).map(|seed| submit(Wanted { seed: repeat * 100 + seed, prompt, tokens }));
        let all = all.collect::<Result<Vec<_>, _>>()?;
        let times: Vec<Vec<Instant>> = all.iter().map(|times| times.iter().collect()).collect();
        // From the moment that all of them run to the moment that the first one ends.
        let begin = times.iter().filter_map(|times| times.first()).max().ok_or("no tokens")?;
        let end = times.iter().filter_map(|times| times.last()).min().ok_or("no tokens")?;
        let counted = times.iter().flatten().filter(|time| *time > begin && *time <= end).count();
        // The fastest step says what is possible where other programs take time, too.
        let steady: Vec<Instant> = times[0].iter().copied().filter(|time| time >= begin && time <= end).collect();
        let fastest = gaps(&steady).first().map_or(0.0, |gap| f64::from(streams) / gap);
        let rate = counted as f64 / end.duration_since(*begin).as_secs_f64();
        println!("{streams} streams: {rate:.1} tokens/s, {fastest:.1} in the fastest step");
    }
    let stream = submit(Wanted { seed: 1000, prompt, tokens: 200 })?;
    let _warm: Vec<Instant> = stream.iter().take(10).collect();
    let begin = Instant::now();
    let long = submit(Wanted { seed: 1001, prompt: 1000, tokens: 1 })?;
    let first = long.recv()?.duration_since(begin).as_secs_f64();
    let gaps = gaps(&stream.iter().collect::<Vec<Instant>>());
    let (median, worst) = (gaps[gaps.len() / 2], gaps[gaps.len() - 1]);
    println!("1000 tokens beside a stream: first token after {first:.2} s; gaps {median:.3} s, longest {worst:.3} s");
    let snapshot = service.handle().snapshot();
    println!("{} steps, {} rows, {:.1} s", snapshot.steps, snapshot.step_rows, snapshot.step_seconds);
    Ok(())
}
