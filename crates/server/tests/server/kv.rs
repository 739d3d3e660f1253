//! What `/debug/kv` says of the cache.

use cascadia_server::ServerOptions;

use crate::harness::Running;

#[test]
fn a_cache_that_is_too_small_shows_what_it_gave_up() {
    // Little room, so that every prompt takes the pages of the one before.
    let server = Running::with_context(128, ServerOptions::default());
    let cache = || server.get("/debug/kv").json();
    let before = cache();
    assert_eq!((&before["page_tokens"], &before["windows"]), (&64.into(), &serde_json::Value::Null));
    assert_eq!(before["events"].as_array().map(Vec::len), Some(0), "{before}");
    for number in 0..40 {
        let body = format!(r#"{{"prompt": "{number} {}", "max_tokens": 1}}"#, "a b ".repeat(36));
        let reply = server.request("POST /v1/completions", &[], body.as_bytes());
        assert_eq!(reply.status, 200, "{}", reply.text());
    }
    let after = cache();
    let pages = |name: &str| after["whole_sequences"][name].as_u64().expect("a number");
    assert_eq!(pages("pages"), pages("held") + pages("cached") + pages("free"), "{after}");
    assert!(pages("cached") > 0 && pages("page_bytes") > 0, "{after}");
    let evicted = after["events"].as_array().into_iter().flatten().filter(|event| event["what"] == "pages evicted");
    let counted = evicted.filter_map(|event| event["count"].as_u64()).sum::<u64>();
    let status = server.get("/status").json();
    assert!(counted > 0 && status["service"]["evictions_total"].as_f64() == Some(counted as f64), "{after}");
}
