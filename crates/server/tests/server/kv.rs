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
    // Both are taken of one moment: the service may still count what the last request did.
    let evictions = || server.get("/status").json()["service"]["evictions_total"].as_f64();
    let (after, evictions) = loop {
        let (seen, after) = (evictions(), cache());
        if evictions() == seen {
            break (after, seen);
        }
    };
    let pages = |when: &serde_json::Value, name: &str| when["whole_sequences"][name].as_u64().expect("a number");
    assert_eq!(pages(&before, "free"), pages(&before, "pages"), "{before}");
    assert_eq!(pages(&after, "pages"), pages(&before, "pages"), "{after}");
    assert!(pages(&after, "cached") > 0 && pages(&after, "free") < pages(&before, "free"), "{after}");
    assert!(pages(&after, "page_bytes") > 0 && pages(&after, "lent") == 0, "{after}");
    let evicted = after["events"].as_array().into_iter().flatten().filter(|event| event["what"] == "pages evicted");
    let evicted = evicted.inspect(|event| assert_eq!(event["reason"], "requests needed pages", "{after}"));
    let counted = evicted.filter_map(|event| event["count"].as_u64()).sum::<u64>();
    assert!(counted > 0 && evictions == Some(counted as f64), "{after}");
    let newest = after["events"].as_array().and_then(|events| events.last()?["at_seconds"].as_f64());
    assert!(newest <= after["now_seconds"].as_f64(), "{after}");
}
