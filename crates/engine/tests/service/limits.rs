//! Limits and endings: a full queue, deadlines, cancelling and shutting down.

use std::thread;
use std::time::{Duration, Instant};

use cascadia_engine::FinishReason;
use cascadia_engine::service::{Job, ServiceOptions, SubmitError};
use cascadia_model::CachePages;

use crate::harness::{Leave, Request, Setup, hear, hold, job, long, request};

fn setup() -> Setup {
    Setup::new(long("llama3"), 2048, CachePages::full(32))
}

/// An answer that takes a while.
fn endless() -> Request {
    Request { stop_tokens: Vec::new(), ..request(vec![1, 2, 3], 0.8, 2000) }
}

#[test]
fn a_full_queue_says_so_at_once() {
    let options = ServiceOptions { queue: 2, parallel: 1, ..ServiceOptions::default() };
    let service = Setup { options, ..setup() }.start();
    let handle = service.handle();
    let running = hold(&handle, &endless(), Leave::Never);
    let waiting: Vec<_> = (0..2).map(|_| job(&endless(), Leave::After(3))).collect();
    let waiting: Vec<_> = waiting
        .into_iter()
        .map(|(job, updates)| {
            handle.submit(job).unwrap();
            updates
        })
        .collect();
    match handle.submit(job(&endless(), Leave::Never).0) {
        Err(SubmitError::QueueFull { waiting: 2, retry_after }) => assert!(retry_after >= Duration::from_secs(1)),
        other => panic!("{other:?}"),
    }
    assert_eq!((handle.snapshot().waiting, handle.snapshot().refused), (2, 1));
    handle.cancel(running.id);
    drop(running.release);
    waiting.iter().for_each(|updates| assert_eq!(hear(updates).tokens.len(), 3));
    service.drain();
    assert_eq!(handle.snapshot().waiting, 0);
}

#[test]
fn time_that_is_over_ends_jobs_that_run_and_jobs_that_wait() {
    let options = ServiceOptions { parallel: 1, ..ServiceOptions::default() };
    let service = Setup { options, ..setup() }.start();
    let deadline = Some(Instant::now() + Duration::from_millis(30));
    let jobs: Vec<_> = (0..3)
        .map(|_| {
            let (job, updates) = job(&endless(), Leave::Never);
            service.handle().submit(Job { deadline, ..job }).unwrap();
            updates
        })
        .collect();
    for updates in &jobs {
        assert_eq!(hear(updates).outcome.unwrap().finish, FinishReason::Deadline);
    }
    let handle = service.handle();
    service.drain();
    assert_eq!(handle.snapshot().waiting, 0);
}

#[test]
fn draining_finishes_what_was_taken_and_dropping_ends_it() {
    let service = setup().start();
    let handle = service.handle();
    let (first, updates) = job(&request(vec![1, 2, 3], 0.8, 40), Leave::Never);
    handle.submit(first).unwrap();
    service.drain();
    assert_ne!(hear(&updates).outcome.unwrap().finish, FinishReason::Cancelled);
    let (late, _) = job(&endless(), Leave::Never);
    assert!(matches!(handle.submit(late), Err(SubmitError::ShuttingDown)));
    let service = setup().start();
    let handle = service.handle();
    let running = hold(&handle, &endless(), Leave::Never);
    let ending = thread::spawn(move || drop(service));
    // Once it takes nothing any more it has been told to end, and the answer has not one token yet.
    while !matches!(handle.submit(job(&endless(), Leave::Never).0), Err(SubmitError::ShuttingDown)) {
        thread::sleep(Duration::from_millis(1));
    }
    drop(running.release);
    assert_eq!(hear(&running.updates).outcome.unwrap().finish, FinishReason::Cancelled);
    ending.join().unwrap();
}
