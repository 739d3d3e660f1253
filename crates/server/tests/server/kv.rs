//! What `/debug/kv` says of the cache.

use cascadia_server::{KeyEntry, ServerOptions, new_key};

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

#[test]
fn a_tenant_does_not_see_what_others_do() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("keys.json");
    let key = |name: &str, admin| {
        let entry = KeyEntry { name: name.to_owned(), admin, ..KeyEntry::default() };
        format!("Bearer {}", new_key(&path, entry).expect("a key"))
    };
    let (admin, other) = (key("anna", true), key("ben", false));
    let server = Running::with_context(128, ServerOptions { keys: Some(path), ..ServerOptions::default() });
    for number in 0..10 {
        let body = format!(r#"{{"prompt": "{number} {}", "max_tokens": 1}}"#, "a b ".repeat(36));
        let reply = server.request("POST /v1/completions", &[("authorization", &admin)], body.as_bytes());
        assert_eq!(reply.status, 200, "{}", reply.text());
    }
    let seen = |key: &str| server.request("GET /debug/kv", &[("authorization", key)], b"").json();
    let (all, own) = (seen(&admin), seen(&other));
    assert!(all["whole_sequences"]["cached"].as_u64() > Some(0) && all["events"][0].is_object(), "{all}");
    assert_eq!((&own["policy"], &own["page_tokens"]), (&all["policy"], &all["page_tokens"]));
    let hidden = ["whole_sequences", "windows", "tails"].map(|name| own[name].is_null());
    assert!(hidden == [true; 3] && own["events"].as_array().is_some_and(Vec::is_empty), "{own}");
}
