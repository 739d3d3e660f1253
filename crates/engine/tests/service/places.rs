//! Places: an answer that was put back for another tenant continues with the same tokens, and the other need not wait.

use std::sync::mpsc::{Receiver, channel};

use cascadia_engine::service::{Job, Service, ServiceOptions, Tenant, Update};
use cascadia_model::CachePages;

use crate::harness::{Leave, Request, Setup, hear, hold, job, long, request};

fn setup() -> Setup {
    let options = ServiceOptions { parallel: 8, draft_rows: 0, ..ServiceOptions::default() };
    Setup { options, ..Setup::new(long("llama3"), 1024, CachePages::full(200)) }
}

/// The answers of one request with `n=8`.
fn flood() -> Vec<Request> {
    let answer = |seed: u32| Request { stop_tokens: Vec::new(), ..request(vec![7, 8, 9], 0.8, 300 + seed) };
    (0..8).map(answer).collect()
}

/// Submits a flood, and another tenant's job of one token when the first answer of the flood has `after` tokens. Returns
/// what arrives of the flood, of the other, and how many steps the other waited.
fn beside_a_flood(service: &Service, after: usize) -> (Vec<Receiver<Update>>, Receiver<Update>, Receiver<u64>) {
    let handle = service.handle();
    // Nothing is computed before everything is submitted.
    let held = hold(&handle, &request(vec![1], 0.0, 1), Leave::Never);
    let (short, short_updates) = job(&request(vec![1, 2, 3, 4], 0.0, 1), Leave::Never);
    let (send_steps, steps) = channel();
    let mut late = Some((short, handle.clone(), send_steps));
    let submit = |(number, request): (usize, &Request)| {
        let (plain, updates) = job(request, Leave::Never);
        let (mut sink, mut tokens) = (plain.sink, 0);
        let mut late = late.take().filter(|_| number == 0);
        let sink = move |update: Update| {
            tokens += usize::from(matches!(update, Update::Token(_)));
            if let Some((short, handle, steps)) = late.take_if(|_| tokens == after) {
                // This runs on the service's own thread, so that the steps from here on can be counted.
                let (begin, mut sink) = (handle.snapshot().steps, short.sink);
                let counting = handle.clone();
                let counted = move |update: Update| {
                    if matches!(update, Update::Token(_)) {
                        let _ = steps.send(counting.snapshot().steps - begin);
                    }
                    sink(update)
                };
                handle.submit(Job { tenant: Tenant(1), sink: Box::new(counted), ..short }).unwrap();
            }
            sink(update)
        };
        handle.submit(Job { sink: Box::new(sink), ..plain }).unwrap();
        updates
    };
    let flood = flood().iter().enumerate().map(submit).collect();
    drop(held.release);
    (flood, short_updates, steps)
}

#[test]
fn a_flood_makes_way_within_two_steps_and_keeps_its_tokens() {
    let alone = setup().alone(&flood());
    let service = setup().start();
    let (flood, short, steps) = beside_a_flood(&service, 100);
    assert_eq!(hear(&short).tokens.len(), 1);
    let steps = steps.recv().expect("it was counted");
    assert!(steps <= 2, "{steps} steps");
    for (updates, alone) in flood.iter().zip(alone) {
        assert!(hear(updates).numbers() == alone);
    }
    let handle = service.handle();
    service.drain();
    let snapshot = handle.snapshot();
    assert!(snapshot.preemptions >= 1 && snapshot.recomputed_tokens < 64, "{snapshot:?}");
    assert_eq!((snapshot.failed, snapshot.pages_held), (0, 0));
}
