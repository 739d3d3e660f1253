//! Requests with different adapters share steps and memory, and each gets the tokens that it gets alone.

use std::sync::Arc;

use cascadia_engine::service::{Job, Service, ServiceOptions, Tenant};
use cascadia_engine::{AdapterHandle, AdapterLimits, AdapterStore, CacheSize, Engine, OpenOptions, Source};
use cascadia_kernels::Pool;
use cascadia_model::CachePages;

use crate::harness::{Leave, Request, Setup, fixture, hear, hold, job, on_session, request, text};

const ADAPTERS: [&str; 4] = ["all", "dora", "embeddings", "other"];

fn folder(name: &str) -> std::path::PathBuf {
    // The name of a file says nothing: `other` is a second adapter of the same kind.
    fixture("adapters").join(format!("llama3-{}", if name == "other" { "all" } else { name }))
}

fn setup(pages: u32) -> Setup {
    // How fast this machine is must not decide what is computed together.
    let options = ServiceOptions { prompt_seconds: 1e9, patience_seconds: 1e9, ..ServiceOptions::default() };
    Setup { options, rows_per_step: 32, ..Setup::new(fixture("llama3"), 96, CachePages::full(pages)) }
}

/// A service with adapters, of which so many fit into memory at a time.
fn start(setup: &Setup, resident: u64) -> (Service, AdapterStore) {
    let engine = setup.engine(CacheSize::Pages(setup.cache));
    let all = engine.adapters(AdapterLimits::new(1));
    let largest = ADAPTERS.map(|name| all.insert(name, &folder(name)).unwrap().bytes).into_iter().max().unwrap();
    let store = engine.adapters(AdapterLimits { bytes: 2 * resident * largest, ..AdapterLimits::new(resident as u32) });
    ADAPTERS.iter().for_each(|name| drop(store.insert(name, &folder(name)).unwrap()));
    let (parallel, adapters) = (resident as u32, Some(store.clone()));
    let options = ServiceOptions { parallel, adapters, ..setup.options.clone() };
    (Service::start(engine, text(), options).unwrap(), store)
}

/// Requests that all begin alike, and what they select.
fn requests() -> Vec<(Request, Option<&'static str>)> {
    let shared: Vec<u32> = (0..64).map(|at| at * 7 % 90).collect();
    let selections =
        [None, Some("all"), Some("dora"), Some("embeddings"), Some("all:0.5+embeddings:0.5"), Some("other")];
    let one = |index: usize| {
        let prompt = [shared.as_slice(), &[index as u32 % 3 + 1]].concat();
        let temperature = if index.is_multiple_of(2) { 0.0 } else { 0.8 };
        (request(prompt, temperature, 12), selections[index % selections.len()])
    };
    (0..24).map(one).collect()
}

/// What a request gives on a model that was opened with its adapters.
fn alone(request: &Request, selection: Option<&str>) -> Vec<u32> {
    let parts = selection.into_iter().flat_map(|selection| selection.split('+'));
    let part = |part: &str| match part.split_once(':') {
        None => (folder(part), 1.0),
        Some((name, weight)) => (folder(name), weight.parse().unwrap()),
    };
    let options = OpenOptions {
        context: Some(96),
        adapters: parts.map(part).collect(),
        kv: setup(8).kv,
        ..OpenOptions::new(Arc::new(Pool::new(1)))
    };
    let mut session = Engine::open(Source::Path(&fixture("llama3")), &options).unwrap().into_session();
    on_session(&mut session, &request.prompt, request.generation()).1.tokens
}

#[test]
fn a_crowd_changes_no_answer() {
    let requests = requests();
    let expected: Vec<_> = requests.iter().map(|(request, selection)| alone(request, *selection)).collect();
    assert!(expected[0] != expected[18] || expected[6] != expected[7], "adapters change answers");
    // Much memory, and so little that sequences and adapters take turns.
    for (pages, resident) in [(64, 4), (5, 2)] {
        let (service, store) = start(&setup(pages), resident);
        let handle = service.handle();
        let before = hold(&handle, &request((1..9).collect(), 0.0, 1), Leave::After(0));
        let submit = |(index, (request, selection)): (usize, &(Request, Option<&str>))| {
            let (plain, updates) = job(request, Leave::Never);
            let adapter = selection.map(|selection| store.select(selection).unwrap());
            handle.submit(Job { adapter, tenant: Tenant(index as u64 % 2), ..plain }).unwrap();
            updates
        };
        let all: Vec<_> = requests.iter().enumerate().map(submit).collect();
        drop(before.release);
        for (index, updates) in all.iter().enumerate() {
            let heard = hear(updates);
            assert!(heard.error.is_none(), "{:?}", heard.error);
            assert!(heard.numbers() == expected[index], "request {index} differs with {resident} adapters in memory");
        }
        service.drain();
    }
}

#[test]
fn a_cached_beginning_is_of_one_adapter() {
    let (service, store) = start(&setup(64), 4);
    let (request, _) = &requests()[0];
    let run = |adapter: Option<AdapterHandle>| {
        let (plain, updates) = job(request, Leave::Never);
        service.handle().submit(Job { adapter, ..plain }).unwrap();
        hear(&updates).started.expect("it starts")
    };
    let select = |name: &str| Some(store.select(name).unwrap());
    assert_eq!([run(None), run(None)], [0, 64]);
    assert_eq!([run(select("all")), run(select("all"))], [0, 64]);
    // The same content under another name is the same adapter.
    assert_eq!([run(select("other")), run(select("dora"))], [64, 0]);
}

#[test]
fn an_answer_keeps_the_weights_that_it_began_with() {
    let (service, store) = start(&setup(64), 4);
    let (request, _) = &requests()[0];
    let [old, new] = ["all", "dora"].map(|name| alone(request, Some(name)));
    assert_ne!(old, new);
    let handle = service.handle();
    let before = hold(&handle, request, Leave::After(0));
    let submit = || {
        let (plain, updates) = job(request, Leave::Never);
        handle.submit(Job { adapter: Some(store.select("all").unwrap()), ..plain }).unwrap();
        updates
    };
    let first = submit();
    store.insert("all", &folder("dora")).unwrap();
    let second = submit();
    assert!(store.remove("all") && !store.remove("all") && store.select("all").is_err());
    drop(before.release);
    assert_eq!([first, second].map(|updates| hear(&updates).numbers()), [old, new]);
}

#[test]
fn adapters_borrow_pages_that_nobody_needs() {
    let setup = setup(64);
    let engine = setup.engine(CacheSize::Pages(setup.cache));
    let all = engine.adapters(AdapterLimits::new(1));
    let largest = ADAPTERS.map(|name| all.insert(name, &folder(name)).unwrap().bytes).into_iter().max().unwrap();
    // Without a loan there is room for one of them.
    let store = engine.adapters(AdapterLimits { bytes: largest, ..AdapterLimits::new(1) });
    ADAPTERS.iter().for_each(|name| drop(store.insert(name, &folder(name)).unwrap()));
    let options = ServiceOptions { parallel: 1, adapters: Some(store.clone()), ..setup.options.clone() };
    let service = Service::start(engine, text(), options).unwrap();
    let (request, _) = &requests()[0];
    // Twice: what is in memory then is what was loaded before.
    for &name in ADAPTERS.iter().chain(&ADAPTERS) {
        let (plain, updates) = job(request, Leave::Never);
        service.handle().submit(Job { adapter: Some(store.select(name).unwrap()), ..plain }).unwrap();
        assert_eq!(hear(&updates).numbers(), alone(request, Some(name)), "{name}");
    }
    let handle = service.handle();
    service.drain();
    assert!(store.list().iter().all(|adapter| adapter.in_memory), "{:?}", store.list());
    assert!(store.borrowed_bytes() > 0 && handle.snapshot().pages_lent > 0);
}

#[test]
fn names_and_sizes_are_limited() {
    let engine = setup(8).engine(CacheSize::Sequences(1));
    let store = engine.adapters(AdapterLimits { bytes: 1 << 20, count: 2, ..AdapterLimits::new(2) });
    let refused = |name: &str, path: &str| store.insert(name, &fixture(path)).expect_err("refused").to_string();
    for name in ["", "a/b", "..", "a:b", "a+b", ".hidden", &"a".repeat(65)] {
        assert!(refused(name, "adapters/llama3-all").contains("is no name"), "{name}");
    }
    assert!(refused("a", "adapters/nothing").contains("nothing"));
    let other = refused("a", "adapters/qwen2-dora");
    assert!(other.contains("lora_"), "it names a tensor: {other}");
    store.insert("a", &folder("all")).unwrap();
    store.insert("b", &folder("dora")).unwrap();
    assert!(refused("c", "adapters/llama3-all").contains("there are 2 already"));
    let small = engine.adapters(AdapterLimits { bytes: 1000, ..AdapterLimits::new(2) });
    assert!(small.insert("a", &folder("all")).expect_err("refused").to_string().contains("in memory"));
    let names: Vec<String> = store.list().into_iter().map(|status| status.name).collect();
    assert_eq!(names, ["a", "b"]);
}
