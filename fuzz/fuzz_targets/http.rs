//! Sends arbitrary bodies to every route that takes one, with a model that accepts no jobs.
#![no_main]

use std::path::Path;
use std::sync::{Arc, OnceLock};

use cascadia_engine::service::{Service, ServiceOptions};
use cascadia_engine::{Engine, OpenOptions, Source};
use cascadia_fuzz::{allow_caught_panics, bounded};
use cascadia_kernels::Pool;
use cascadia_server::fuzzing::Routes;
use cascadia_server::{ModelDetails, ROUTES, ServedModel, ServerOptions};
use libfuzzer_sys::fuzz_target;

fuzz_target!(init: { allow_caught_panics(); routes(); }, |bytes: &[u8]| {
    let Some((choice, body)) = bytes.split_first() else { return };
    let paths: Vec<&str> = ROUTES.iter().filter(|route| route.body.is_some()).map(|route| route.path).collect();
    let path = paths[usize::from(*choice) % paths.len()];
    let routes = routes();
    let (status, answer) = bounded(|| routes.post(path, body)).expect("a request is answered");
    // Those who got so far are told that the service is ending.
    assert!(matches!(status, 200 | 400 | 404 | 413 | 422 | 503), "{path}: {status} {}", String::from_utf8_lossy(&answer));
    assert!(serde_json::from_slice::<serde_json::Value>(&answer).is_ok(), "{path}: an answer that is no JSON");
});

fn routes() -> &'static Routes {
    static ROUTES: OnceLock<Routes> = OnceLock::new();
    ROUTES.get_or_init(|| {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/cascadia/model/rainier-33m-q4_k_m.gguf");
        let options = OpenOptions { context: Some(1024), ..OpenOptions::new(Arc::new(Pool::new(1))) };
        let engine = Engine::open(Source::Path(&path), &options).expect("the model opens");
        let text = Arc::new(engine.text().expect("the model has a tokenizer"));
        let service = Service::start(engine, Arc::clone(&text), ServiceOptions::default()).expect("the service starts");
        let handle = service.handle();
        drop(service);
        let (name, details) = ("model".to_owned(), ModelDetails::default());
        let model = ServedModel { name, text, service: handle, queue: 1, details, adapters: None };
        Routes::new(model, &ServerOptions::default()).expect("the routes are made")
    })
}
