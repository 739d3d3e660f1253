//! Several models behind one server.

use cascadia_server::{KeepAlive, OnDemandModel, OnDemandModels, ServerOptions};
use serde_json::{Value, json};

use crate::harness::{Running, loaded, until};

/// Two models that are in memory together, or one at a time.
fn start(together: bool) -> Running {
    start_named(&["large", "small"], together)
}

fn start_named(names: &[&str], together: bool) -> Running {
    let model = |name: &str| {
        let own = name.to_owned();
        let (details, load) = (Default::default(), Box::new(move || Ok(loaded(&own))));
        OnDemandModel { name: name.to_owned(), details, load }
    };
    let models = names.iter().map(|name| model(name)).collect();
    Running::serve(OnDemandModels { models, together, keep_alive: KeepAlive(None) }, ServerOptions::default())
}

fn names(list: &Value, key: &str, name: &str) -> Vec<String> {
    let names = list[key].as_array().into_iter().flatten().filter_map(|model| model[name].as_str());
    names.map(str::to_owned).collect()
}

#[test]
fn requests_are_answered_by_the_model_that_they_name() {
    for together in [true, false] {
        let server = start(together);
        let listed = server.get("/v1/models").json();
        assert_eq!(names(&listed, "data", "id"), ["large", "small"]);
        assert_eq!(json!([listed["data"][0]["loaded"], listed["data"][1]["loaded"]]), json!([true, false]));
        assert_eq!(server.get("/v1/models/small").json()["loaded"], false, "looking at it does not load it");
        let expected = server.post("/v1/completions", &json!({"prompt": "Snow", "max_tokens": 3})).json();
        assert_eq!(expected["model"], "large", "the first answers where none is named");
        for model in ["small", "large", "small:latest", "default"] {
            let body = json!({"model": model, "prompt": "Snow", "max_tokens": 3, "temperature": 0, "stream": false});
            let answer = server.post("/v1/completions", &body).json();
            let answered = if model.starts_with("small") { "small" } else { "large" };
            assert_eq!(answer["model"], answered);
            assert_eq!(server.post("/api/generate", &body).json()["done"], true);
            assert_eq!(server.post("/v1/embeddings", &json!({"model": model, "input": "Snow"})).status, 200);
            assert_eq!(server.post("/tokenize", &json!({"model": model, "prompt": "Snow"})).status, 200);
            assert_eq!(server.post("/api/show", &json!({"model": model})).json()["capabilities"][0], "completion");
        }
        let loaded = names(&server.get("/api/ps").json(), "models", "name");
        assert_eq!(loaded.len(), if together { 2 } else { 1 }, "{loaded:?}");
        assert_eq!(names(&server.get("/api/tags").json(), "models", "name"), ["large:latest", "small:latest"]);
        let unknown = server.post("/v1/completions", &json!({"model": "other", "prompt": "Snow"}));
        assert_eq!(unknown.status, 404);
        assert!(unknown.text().contains("this server has `large`, `small`"), "{}", unknown.text());
    }
}

#[test]
fn short_names_mean_the_model_that_has_them() {
    let server = start_named(&["qwen3:4b-q4_k_m", "qwen3:8b-q4_k_m", "smol:135m-q8_0"], false);
    let ask = |name: &str| {
        let reply = server.post("/v1/completions", &json!({"model": name, "prompt": "Snow", "max_tokens": 1})).json();
        reply["model"].as_str().map(str::to_owned).ok_or(reply["error"]["code"].clone())
    };
    for (name, model) in
        [("smol", "smol:135m-q8_0"), ("qwen3:8b", "qwen3:8b-q4_k_m"), ("smol:latest", "smol:135m-q8_0")]
    {
        assert_eq!(ask(name), Ok(model.to_owned()), "{name}");
    }
    assert_eq!(ask("qwen3"), Err(json!("model_not_found")), "two have this name");
}

#[test]
fn numbers_name_the_model() {
    let server = start(true);
    let status = |server: &Running| server.get("/status").json()["models"].clone();
    assert_eq!(status(&server)[1], json!({"name": "small", "loaded": false}));
    assert_eq!(
        server.post("/v1/completions", &json!({"model": "small", "prompt": "Snow", "max_tokens": 2})).status,
        200
    );
    assert_eq!(status(&server)[1]["loaded"], true);
    let generated = |model: &str, tokens: u32| {
        let line = format!("cascadia_generated_tokens_total{{model=\"{model}\"}} {tokens}");
        server.get("/metrics").text().lines().any(|found| found == line)
    };
    // An answer is sent before its step is counted.
    until("both tokens are counted", || generated("small", 2));
    assert!(generated("large", 0));
    let metrics = server.get("/metrics").text();
    assert_eq!(metrics.matches("# TYPE cascadia_running ").count(), 1);
    for path in ["/health", "/readyz", "/livez", "/props", "/slots", "/debug/kv"] {
        assert_eq!(server.get(path).status, 200, "{path}");
    }
}

#[test]
fn a_client_tells_how_long_a_model_stays() {
    let server = start(true);
    let ask = |keep_alive: Value| {
        server.post("/api/generate", &json!({"model": "small", "keep_alive": keep_alive, "stream": false}))
    };
    assert_eq!(ask(json!("5m")).json()["done_reason"], "load");
    let until = server.get("/api/ps").json()["models"][1]["expires_at"].clone();
    assert!(until.as_str().is_some_and(|until| !until.starts_with("9999")), "{until}");
    assert_eq!(ask(json!(-1)).json()["done_reason"], "load");
    let until = server.get("/api/ps").json()["models"][1]["expires_at"].clone();
    assert!(until.as_str().is_some_and(|until| until.starts_with("9999")), "{until}");
    assert_eq!(ask(json!(0)).json()["done_reason"], "unload");
    assert_eq!(ask(json!("soon")).status, 400);
}
