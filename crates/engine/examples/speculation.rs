//! Measures what speculation is worth: one answer that repeats much of its prompt, and one that does not.
//!
//! `speculation MODEL [DRAFT]`
#![expect(clippy::print_stdout, reason = "a program that reports")]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Instant;

use cascadia_engine::service::{Generation, Job, Priority, Service, ServiceOptions, Task, Tenant, Update};
use cascadia_engine::{CacheSize, Engine, Flow, OpenOptions, Sampling, Source};
use cascadia_kernels::Pool;

const EDIT: &str = "The mountain rises above the river. In spring the snow melts, and the water fills the valley. \
    People walk along the river and look at the mountain.\n\nCopy:\nThe mountain rises above the river. In spring \
    the snow melts, and the water fills the valley. People walk along the river and look at the mountain.\n\nCopy:\n\
    The mountain rises above the river.";
const STORY: &str = "Once upon a time there was a girl who lived near the sea. One day";

fn open(path: &Path, sequences: u32) -> Result<Engine, Box<dyn std::error::Error>> {
    let options = OpenOptions {
        context: Some(1024),
        cache: CacheSize::Sequences(sequences),
        ..OpenOptions::new(Arc::new(Pool::new(2)))
    };
    Ok(Engine::open(Source::Path(path), &options)?)
}

/// Tokens per second of one answer after its first token.
fn speed(service: &Service, prompt: Vec<u32>, temperature: f32) -> Result<f64, Box<dyn std::error::Error>> {
    let (sender, times) = channel();
    let sink = move |update: Update| {
        if let Update::Token(_) = update {
            // The one who measures waits for all of them.
            let _ = sender.send(Instant::now());
        }
        Flow::Continue
    };
    let generation = Generation::new(Sampling { temperature, seed: 7, ..Sampling::default() }, 160);
    let (task, priority) = (Task::Generate(generation), Priority::Normal);
    let job = Job { prompt, task, tenant: Tenant(0), adapter: None, priority, deadline: None, sink: Box::new(sink) };
    service.handle().submit(job)?;
    let times: Vec<Instant> = times.iter().collect();
    let seconds = times[times.len() - 1].duration_since(times[0]).as_secs_f64();
    Ok((times.len() - 1) as f64 / seconds)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1).map(PathBuf::from);
    let model = arguments.next().ok_or("which model?")?;
    let draft = arguments.next();
    let text = Arc::new(open(&model, 1)?.text()?);
    let mut ways = vec![("plain", 0, None), ("lookup", 16, None)];
    ways.extend(draft.map(|draft| ("draft", 16, Some(draft))));
    for (name, draft_rows, draft) in ways {
        let options = ServiceOptions { draft_rows, ..ServiceOptions::default() };
        let service = match draft {
            Some(draft) => Service::start_with_draft(open(&model, 2)?, open(&draft, 8)?, Arc::clone(&text), options)?,
            None => Service::start(open(&model, 2)?, Arc::clone(&text), options)?,
        };
        for (what, prompt, temperature) in
            [("edit", EDIT, 0.0), ("edit", EDIT, 0.8), ("story", STORY, 0.0), ("story", STORY, 0.8)]
        {
            let before = service.handle().snapshot();
            let mut speeds = Vec::new();
            for _ in 0..3 {
                speeds.push(speed(&service, text.plain_prompt(prompt)?, temperature)?);
            }
            let after = service.handle().snapshot();
            let best = speeds.iter().copied().fold(0.0, f64::max);
            let drafted = after.drafted_tokens - before.drafted_tokens;
            let accepted = after.accepted_tokens - before.accepted_tokens;
            println!(
                "{name:6} {what:5} temperature {temperature}: {best:7.1} tokens/s, {accepted} of {drafted} accepted"
            );
        }
    }
    Ok(())
}
