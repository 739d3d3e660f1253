//! Adapters: who may use and change them, and what requests with them are told.

use std::fs;
use std::path::Path;

use cascadia_server::{KeyEntry, ServedAdapters, ServerOptions, new_key};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::harness::{MODEL, Reply, Running, adapter_store, model_with_adapters};
use crate::written_adapter::{write, write_with_rows};

/// A folder with the adapters `pepys` and `rust` inside another, which has one of its own.
fn folders() -> TempDir {
    let outer = tempfile::tempdir().unwrap();
    fs::create_dir(outer.path().join("adapters")).unwrap();
    for (name, seed) in [("adapters/pepys", 1), ("adapters/rust", 2), ("outside", 3)] {
        write(&outer.path().join(name), seed);
    }
    outer
}

fn serve(outer: &TempDir, options: ServerOptions) -> Running {
    Running::serve(model_with_adapters(&outer.path().join("adapters")), options)
}

fn named(adapter: &str) -> String {
    format!("{MODEL}:{adapter}")
}

fn delete(server: &Running, name: &str) -> Reply {
    server.request(&format!("DELETE /v1/adapters/{name}"), &[], b"")
}

/// The text that a model continues with.
fn text(server: &Running, model: &str) -> String {
    let body = json!({"model": model, "prompt": "Once", "max_tokens": 8, "temperature": 0});
    let reply = server.post("/v1/completions", &body);
    assert_eq!(reply.status, 200, "{model}: {}", reply.text());
    reply.json()["choices"][0]["text"].as_str().expect("a text").to_owned()
}

/// Routes that use a model, with a body for each.
fn requests(model: &str) -> Vec<(&'static str, Value)> {
    let messages = json!([{"role": "user", "content": "Hello"}]);
    let chat = json!({"model": model, "messages": messages, "max_tokens": 2});
    let lines = json!({"num_predict": 2});
    vec![
        ("/v1/chat/completions", chat.clone()),
        ("/v1/completions", json!({"model": model, "prompt": "Hello", "max_tokens": 2})),
        ("/v1/responses", json!({"model": model, "input": "Hello", "max_output_tokens": 2})),
        ("/v1/embeddings", json!({"model": model, "input": "Hello"})),
        ("/v1/messages", chat.clone()),
        ("/api/chat", json!({"model": model, "messages": messages, "options": lines, "stream": false})),
        ("/api/generate", json!({"model": model, "prompt": "Hello", "options": lines, "stream": false})),
        ("/v1/messages/count_tokens", chat),
        ("/api/show", json!({"model": model})),
        ("/tokenize", json!({"model": model, "prompt": "Hello"})),
        ("/detokenize", json!({"model": model, "tokens": [1]})),
    ]
}

#[test]
fn every_protocol_takes_an_adapter_by_its_name() {
    let outer = folders();
    let server = serve(&outer, ServerOptions::default());
    let texts = [MODEL.to_owned(), named("pepys"), named("rust")].map(|model| text(&server, &model));
    assert!(texts[0] != texts[1] && texts[1] != texts[2] && texts[0] != texts[2], "{texts:?}");
    assert_eq!(text(&server, "default:pepys"), texts[1]);
    assert_eq!(text(&server, "pepys"), texts[1], "as clients of vLLM name it");
    assert_eq!(text(&server, &named("latest")), texts[0], "a tag of Ollama's clients");
    text(&server, &named("pepys:0.5+rust:0.5"));
    for adapter in ["pepys", "pepys:0.7+rust:0.3"] {
        for (path, body) in requests(&named(adapter)) {
            let reply = server.post(path, &body);
            assert_eq!(reply.status, 200, "{path}: {}", reply.text());
            let model = &reply.json()["model"];
            assert!(model.is_null() || *model == named(adapter), "{path}: {model}");
        }
    }
}

#[test]
fn unknown_adapters_are_models_that_are_not_found() {
    let outer = folders();
    let server = serve(&outer, ServerOptions::default());
    for (path, body) in requests(&named("nobody")) {
        assert_eq!(server.post(path, &body).status, 404, "{path}");
    }
    let long = "a".repeat(100_000);
    for adapter in ["nobody", "Pepys", "pepys+nobody", "pepys:much", "pepys/", "../outside", "", "pepys+", &long] {
        let body = json!({"model": named(adapter), "prompt": "a", "max_tokens": 1});
        let reply = server.post("/v1/completions", &body);
        let error = reply.json()["error"].clone();
        let found = (reply.status, &error["code"], &error["param"]);
        assert_eq!(found, (404, &json!("model_not_found"), &json!("model")), "{adapter}: {error}");
        assert!(reply.body.len() < 1024, "{adapter}: a long answer to a wrong question");
    }
    let without = Running::shared().post("/v1/completions", &json!({"model": named("pepys"), "prompt": "a"}));
    assert_eq!((without.status, &without.json()["error"]["code"]), (404, &json!("model_not_found")));
}

#[test]
fn adapters_are_listed_as_children_of_the_model() {
    let outer = folders();
    let server = serve(&outer, ServerOptions::default());
    let list = server.get("/v1/models").json();
    let ids: Vec<&str> = list["data"].as_array().unwrap().iter().filter_map(|model| model["id"].as_str()).collect();
    assert_eq!(ids, [MODEL, &named("pepys"), &named("rust")]);
    assert_eq!((&list["data"][0]["parent"], &list["data"][0]["root"]), (&Value::Null, &json!(MODEL)));
    let pepys = &list["data"][1];
    assert_eq!((&pepys["parent"], &pepys["root"]), (&json!(MODEL), &json!("pepys")));
    assert_eq!(pepys["context_length"], list["data"][0]["context_length"]);
    assert_eq!(server.get(&format!("/v1/models/{}", named("pepys"))).json(), *pepys);
    let mixture = server.get(&format!("/v1/models/{}", named("pepys:0.5+rust"))).json();
    assert_eq!((&mixture["id"], &mixture["parent"]), (&json!(named("pepys:0.5+rust")), &json!(MODEL)));
    let tags = server.get("/api/tags").json();
    assert_eq!(tags["models"][1]["name"], named("pepys"));
    assert_eq!(tags["models"][1]["details"]["parent_model"], MODEL);
    let adapters = server.get("/v1/adapters").json();
    let rust = &adapters["data"][1];
    assert_eq!((&rust["name"], &rust["path"], &rust["rank"]), (&json!("rust"), &json!("rust"), &json!(4)));
    assert_eq!((&rust["kind"], &rust["model"]), (&json!("LoRA"), &json!(named("rust"))));
    assert_eq!(rust["id"].as_str().unwrap().len(), 64);
    assert_ne!(rust["id"], adapters["data"][0]["id"]);
    assert_eq!(Running::shared().get("/v1/adapters").json()["data"], json!([]));
}

#[test]
fn adapters_come_and_go_while_the_server_runs() {
    let outer = folders();
    let server = serve(&outer, ServerOptions::default());
    let [pepys, rust] = ["pepys", "rust"].map(|name| text(&server, &named(name)));
    let added = server.post("/v1/adapters", &json!({"name": "diary", "path": "pepys"}));
    assert_eq!((added.status, &added.json()["name"]), (200, &json!("diary")), "{}", added.text());
    assert_eq!(text(&server, &named("diary")), pepys);
    let replaced = server.post("/v1/adapters", &json!({"name": "diary", "path": "rust"}));
    assert_eq!(replaced.status, 200, "{}", replaced.text());
    assert_eq!(text(&server, &named("diary")), rust);
    let gone = delete(&server, "diary");
    assert_eq!((gone.status, &gone.json()["deleted"]), (200, &json!(true)));
    assert_eq!(delete(&server, "diary").status, 404);
    assert_eq!(server.post("/v1/completions", &json!({"model": named("diary"), "prompt": "a"})).status, 404);
    assert_eq!(text(&server, &named("rust")), rust, "its content is still there under its own name");
    assert_eq!(delete(&server, "pepys").status, 200);
    assert_eq!(server.post("/v1/adapters", &json!({"name": "pepys"})).status, 200, "its path is its name");
    assert_eq!(text(&server, &named("pepys")), pepys);
    let inside = outer.path().join("adapters/rust").canonicalize().unwrap();
    for path in ["pepys", inside.to_str().unwrap()] {
        let loaded = server.post("/v1/load_lora_adapter", &json!({"lora_name": "lora", "lora_path": path}));
        let expected = "Success: LoRA adapter 'lora' added successfully.";
        assert_eq!((loaded.status, loaded.text().as_str()), (200, expected));
    }
    assert_eq!(text(&server, &named("lora")), rust);
    assert_eq!(server.post("/v1/unload_lora_adapter", &json!({"lora_name": "lora"})).status, 200);
    let again = server.post("/v1/unload_lora_adapter", &json!({"lora_name": "lora"}));
    assert_eq!((again.status, &again.json()["error"]["param"]), (404, &json!("lora_name")));
}

#[test]
fn paths_stay_in_the_folder_and_names_are_plain() {
    let outer = folders();
    let server = serve(&outer, ServerOptions::default());
    let outside = outer.path().join("outside");
    let outside = outside.to_str().unwrap();
    #[cfg(unix)]
    std::os::unix::fs::symlink(outside, outer.path().join("adapters/link")).unwrap();
    let wrong = ["", ".", "..", "../outside", "pepys/../../outside", "pepys/..", "./../outside", outside, "/", "link"];
    let files = ["nothing", "pepys\0", "link/adapter_config.json", "pepys/adapter_config.json"];
    for path in wrong.into_iter().chain(files) {
        let reply = server.post("/v1/adapters", &json!({"name": "new", "path": path}));
        let error = reply.json()["error"].clone();
        assert_eq!((reply.status, &error["param"]), (400, &json!("path")), "{path:?}: {error}");
        let loaded = server.post("/v1/load_lora_adapter", &json!({"lora_name": "new", "lora_path": path}));
        assert_eq!((loaded.status, &loaded.json()["error"]["param"]), (400, &json!("lora_path")), "{path:?}");
    }
    for name in ["", ".", "..", ".new", "../outside", "a/b", "a:1", "a+b", "a b", "latest", &"a".repeat(65)] {
        let reply = server.post("/v1/adapters", &json!({"name": name, "path": "pepys"}));
        assert_eq!((reply.status, &reply.json()["error"]["param"]), (400, &json!("name")), "{name:?}");
    }
    assert_eq!(server.get("/v1/adapters").json()["data"].as_array().unwrap().len(), 2);
    let nowhere = Running::shared().post("/v1/adapters", &json!({"name": "new", "path": "pepys"}));
    assert_eq!((nowhere.status, &nowhere.json()["error"]["code"]), (400, &json!("unsupported")));
}

#[test]
fn keys_allow_some_adapters_and_few_change_them() {
    let outer = folders();
    let path = outer.path().join("keys.json");
    let entry = |name: &str| KeyEntry { name: name.to_owned(), ..KeyEntry::default() };
    let add = |entry| format!("Bearer {}", new_key(&path, entry).unwrap());
    let any = add(entry("anna"));
    let one = add(KeyEntry { adapters: Some(vec!["pepys".to_owned()]), ..entry("ben") });
    let none = add(KeyEntry { adapters: Some(Vec::new()), ..entry("carl") });
    let admin = add(KeyEntry { admin: true, ..entry("dora") });
    let server = serve(&outer, ServerOptions { keys: Some(path.clone()), ..ServerOptions::default() });
    let send = |head: &str, key: &str, body: &Value| {
        server.request(head, &[("authorization", key)], body.to_string().as_bytes())
    };
    let statuses = |key: &str| {
        ["pepys", "rust", "pepys:0.5+rust:0.5"].map(|adapter| {
            let body = json!({"model": named(adapter), "prompt": "a", "max_tokens": 1});
            send("POST /v1/completions", key, &body).status
        })
    };
    let listed = |key: &str| {
        let [models, adapters] = ["/v1/models", "/v1/adapters"]
            .map(|path| send(&format!("GET {path}"), key, &Value::Null).json()["data"].as_array().unwrap().len());
        (models, adapters)
    };
    for (key, expected, shown) in [
        (&any, [200, 200, 200], 2),
        (&one, [200, 404, 404], 1),
        (&none, [404, 404, 404], 0),
        (&admin, [200, 200, 200], 2),
    ] {
        assert_eq!(statuses(key), expected);
        assert_eq!(listed(key), (shown + 1, shown));
    }
    let metrics = send("GET /metrics", &one, &Value::Null).text();
    assert!(metrics.contains("{adapter=\"pepys\"}") && !metrics.contains("{adapter=\"rust\"}"), "{metrics}");
    let told = |adapter: &str| {
        let body = json!({"model": named(adapter), "prompt": "a"});
        send("POST /v1/completions", &one, &body).text().replace(adapter, "")
    };
    assert_eq!(told("rust"), told("nobody"), "whether there is one is not told");
    let told_alone = |adapter: &str| {
        let reply = send("POST /v1/completions", &one, &json!({"model": adapter, "prompt": "a", "max_tokens": 1}));
        (reply.status, reply.text().replace(adapter, ""))
    };
    assert_eq!(told_alone("rust"), told_alone("nobody"));
    assert_eq!((told_alone("rust").0, told_alone("pepys").0), (404, 200));
    for (head, body) in [
        ("POST /v1/adapters", json!({"name": "new", "path": "pepys"})),
        ("DELETE /v1/adapters/new", Value::Null),
        ("POST /v1/load_lora_adapter", json!({"lora_name": "new", "lora_path": "pepys"})),
        ("POST /v1/unload_lora_adapter", json!({"lora_name": "new"})),
    ] {
        for key in [&any, &one, &none] {
            assert_eq!(send(head, key, &body).status, 403, "{head}");
        }
        assert_eq!(send(head, &admin, &body).status, 200, "{head}");
    }
}

#[test]
fn numbers_of_adapters_are_shown() {
    let outer = folders();
    let server = serve(&outer, ServerOptions::default());
    (0..3).for_each(|_| drop(text(&server, &named("pepys"))));
    text(&server, &named("pepys:0.5+rust:0.5"));
    let metrics = server.get("/metrics").text();
    for line in [
        "cascadia_adapters 2",
        "cascadia_adapter_bytes_borrowed 0",
        "cascadia_kv_pages_lent 0",
        "cascadia_adapter_requests_total{adapter=\"pepys\"} 4",
        "cascadia_adapter_requests_total{adapter=\"rust\"} 1",
    ] {
        assert!(metrics.lines().any(|found| found == line), "{line} is missing:\n{metrics}");
    }
    let status = server.get("/status").json()["adapters"].clone();
    assert_eq!((&status["count"], &status["most_used"][0]["name"]), (&json!(2), &json!("pepys")), "{status}");
    assert!(status["bytes"].as_u64().unwrap() > 0 && status["borrowed_bytes"] == 0, "{status}");
    assert_eq!(Running::shared().get("/status").json()["adapters"], Value::Null);
    assert!(!Running::shared().get("/metrics").text().contains("adapter"));
    let document = server.get("/openapi.json").json();
    let methods: Vec<&String> = document["paths"]["/v1/adapters"].as_object().unwrap().keys().collect();
    assert_eq!(methods, ["get", "post"]);
}

#[test]
fn a_stream_resumes_on_the_same_content_only() {
    let outer = folders();
    let server = serve(&outer, ServerOptions::default());
    let body = json!({"model": named("pepys"), "prompt": "Once", "max_tokens": 8, "seed": 7, "stream": true});
    let body = body.to_string();
    let send = |last: &str| {
        let headers = [("last-event-id", last)];
        server.request("POST /v1/completions", &headers[..usize::from(!last.is_empty())], body.as_bytes())
    };
    let first = send("");
    let last = first.text().lines().find_map(|line| line.strip_prefix("id: ").map(str::to_owned)).expect("an id");
    assert_eq!(send(&last).status, 200);
    let put = |path: &str| server.post("/v1/adapters", &json!({"name": "pepys", "path": path})).status;
    assert_eq!(put("rust"), 200);
    assert_eq!(send(&last).status, 409, "the name is now that of another");
    assert_eq!(put("pepys"), 200);
    let resumed = send(&last);
    assert_eq!((resumed.status, resumed.events().len()), (200, first.events().len() - 1));
}

#[test]
fn adapters_that_cannot_be_used_are_named_at_the_start() {
    let store = adapter_store();
    let problem = |folder: &Path| ServedAdapters::open(store.clone(), folder).err().map(|error| error.to_string());
    let folder = tempfile::tempdir().unwrap();
    let inside = |name: &str| folder.path().join(name);
    assert!(problem(&inside("nothing")).is_some_and(|problem| problem.contains("nothing")));
    assert_eq!(problem(folder.path()), None, "there may be none yet");
    write_with_rows(&inside("pepys"), 1, 1);
    let found = problem(folder.path()).expect("its matrices do not fit");
    assert!(found.contains("pepys") && found.contains("v_proj.lora_B.weight"), "{found}");
    fs::remove_dir_all(inside("pepys")).unwrap();
    write(&inside("pepys"), 1);
    assert_eq!(problem(folder.path()), None);
    fs::write(inside("pepys.gguf"), "").unwrap();
    assert!(problem(folder.path()).is_some_and(|problem| problem.contains("rename")));
    fs::remove_file(inside("pepys.gguf")).unwrap();
    fs::create_dir(inside("two words")).unwrap();
    assert!(problem(folder.path()).is_some_and(|problem| problem.contains("two words")));
    fs::remove_dir(inside("two words")).unwrap();
    #[cfg(unix)]
    {
        let other = tempfile::tempdir().unwrap();
        write(&other.path().join("rust"), 2);
        std::os::unix::fs::symlink(other.path().join("rust"), inside("rust")).unwrap();
        assert!(problem(folder.path()).is_some_and(|problem| problem.contains("link")));
    }
}
