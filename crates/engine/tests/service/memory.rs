//! Memory that the service shares with others: what it does when they use it up.

use cascadia_engine::service::SubmitError;
use cascadia_model::CachePages;

use crate::harness::{Leave, Setup, hear, job, long, request};

#[test]
fn what_does_not_compute_is_released_and_no_job_is_taken_until_there_is_memory() {
    let service = Setup::new(long("llama3"), 512, CachePages::full(40)).start();
    let (handle, asked) = (service.handle(), request((0..200).collect(), 0.0, 8));
    let ask = || {
        let (job, updates) = job(&asked, Leave::Never);
        handle.submit(job).map(|_| hear(&updates))
    };
    let first = ask().expect("there is memory");
    let again = ask().expect("there is memory");
    assert!(
        again.started > Some(128) && first.numbers() == again.numbers(),
        "its prefix is cached: {:?}",
        again.started
    );
    handle.update_memory(Some(0.93));
    let without = ask().expect("it is short, not full");
    assert_eq!(without.started, Some(0), "the cached prefix was released");
    assert_eq!(without.numbers(), first.numbers());
    handle.update_memory(Some(0.96));
    match ask() {
        Err(SubmitError::MemoryFull { percent: 96, retry_after }) => assert!(retry_after.as_secs() > 0),
        other => panic!("{:?}", other.map(|heard| heard.numbers())),
    }
    assert!(handle.snapshot().memory_full);
    handle.update_memory(Some(0.94));
    assert!(ask().is_err(), "not before there is enough again");
    handle.update_memory(Some(0.5));
    assert_eq!(ask().expect("there is memory").numbers(), first.numbers(), "pages without memory are used again");
    assert_eq!((handle.snapshot().memory_percent, handle.snapshot().memory_full), (50, false));
    service.drain();
    assert_eq!(handle.snapshot().pages_held, 0);
}
