//! `/debug/kv`: how the KV cache is stored, who holds it, and what happened to it lately.

use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use cascadia_engine::service::CacheEvent;
use serde_json::{Value, json};

use super::status::own_share;
use crate::app::App;
use crate::model::frontend::Caller;
use crate::protocols::json;

/// Everything about the cache, for those who look after the server. Where there are keys, others learn how it is stored and
/// what they have of it: numbers of all tenants together would tell them what the others do.
pub(crate) async fn show(State(app): State<Arc<App>>, Extension(caller): Extension<Caller>) -> Response {
    let frontend = app.model.current();
    let service = &frontend.model.service;
    let (layout, now) = (service.cache_layout(), service.snapshot());
    let sees_all = caller.is_admin || app.keys.is_none();
    let pages = |page_bytes, counts| sees_all.then(|| pages(page_bytes, counts)).flatten();
    let events = if sees_all { service.cache_events() } else { Vec::new() };
    json(&json!({
        "policy": layout.policy,
        "page_tokens": layout.page_tokens,
        "whole_sequences": pages(layout.page_bytes, [now.pages, now.pages_held, now.pages_cached, now.pages_lent]),
        "windows": pages(
            layout.window_page_bytes,
            [now.window_pages, now.window_pages_held, now.window_pages_cached, 0],
        ),
        "tails": pages(layout.tail_page_bytes, [now.tail_pages, now.tail_pages_held, now.tail_pages_cached, 0]),
        "now_seconds": service.seconds(),
        "tenants": own_share(&now.tenants, caller.tenant),
        "events": events.iter().map(event).collect::<Vec<Value>>(),
    }))
}

/// The pages of one class; nothing where the model has none.
fn pages(page_bytes: u64, [pages, held, cached, lent]: [u64; 4]) -> Option<Value> {
    let free = pages.saturating_sub(held + cached + lent);
    (pages > 0 && page_bytes > 0).then(|| {
        json!({"page_bytes": page_bytes, "pages": pages, "held": held, "cached": cached, "lent": lent, "free": free})
    })
}

fn event(event: &CacheEvent) -> Value {
    let CacheEvent { at, change, count } = event;
    json!({"at_seconds": at, "what": change.name(), "count": count, "reason": change.reason()})
}
