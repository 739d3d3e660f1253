//! What operators see of adapters: their requests, and how much of them is in memory.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::{Mutex, PoisonError};

use cascadia_engine::AdapterStatus;
use serde_json::{Value, json};

use super::status::{MetricKind, number};
use crate::model::adapters::ServedAdapters;
use crate::model::frontend::Caller;

/// Adapters that have a number of their own in `/metrics`.
const MOST_NAMED: usize = 100;
/// What all others are called there.
const OTHER: &str = "other";
/// Adapters that `/status` names.
const MOST_SHOWN: usize = 20;

/// Counts requests by adapter. The first so many adapters have a count of their own, all others share one: so counts only
/// grow, and there are never many.
#[derive(Default)]
pub(crate) struct AdapterRequests(Mutex<BTreeMap<String, u64>>);

impl AdapterRequests {
    /// Counts a request for each of the adapters that it uses.
    pub(crate) fn count<'a>(&self, names: impl Iterator<Item = &'a str>) {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for name in names {
            let is_named = counts.contains_key(name) || counts.len() < MOST_NAMED;
            let counted = if is_named { name } else { OTHER };
            *counts.entry(counted.to_owned()).or_default() += 1;
        }
    }

    /// The counts that a caller may see by name, and the sum of the rest.
    fn visible(&self, caller: &Caller) -> BTreeMap<String, u64> {
        let counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut visible: BTreeMap<String, u64> = BTreeMap::new();
        for (name, count) in counts.iter() {
            let name = if caller.may_use(name) { name.as_str() } else { OTHER };
            *visible.entry(name.to_owned()).or_default() += count;
        }
        visible
    }
}

/// How many of them are in memory.
fn in_memory(adapters: &[AdapterStatus]) -> usize {
    adapters.iter().filter(|adapter| adapter.in_memory).count()
}

/// Adds the numbers of adapters in Prometheus' text format.
pub(crate) fn prometheus(out: &mut String, adapters: &ServedAdapters, requests: &AdapterRequests, caller: &Caller) {
    let list = adapters.store().list();
    let bytes = "Bytes of adapters in memory, mixtures included.";
    let borrowed = "Of those, bytes in memory of the KV cache.";
    number(out, ("adapters", MetricKind::Gauge, "Adapters that can be used."), list.len() as f64);
    number(out, ("adapters_in_memory", MetricKind::Gauge, "Of those, adapters in memory."), in_memory(&list) as f64);
    number(out, ("adapter_bytes", MetricKind::Gauge, bytes), adapters.store().bytes() as f64);
    number(out, ("adapter_bytes_borrowed", MetricKind::Gauge, borrowed), adapters.store().borrowed_bytes() as f64);
    // Writing to a string cannot fail.
    let _ = writeln!(out, "# HELP cascadia_adapter_requests_total Requests by adapter.");
    let _ = writeln!(out, "# TYPE cascadia_adapter_requests_total counter");
    for (name, count) in requests.visible(caller) {
        let _ = writeln!(out, "cascadia_adapter_requests_total{{adapter=\"{name}\"}} {count}");
    }
}

/// A short summary: totals, and those that are used most.
pub(crate) fn summary(adapters: &ServedAdapters, caller: &Caller) -> Value {
    let mut list = adapters.store().list();
    let (count, in_memory) = (list.len(), in_memory(&list));
    let (bytes, borrowed) = (adapters.store().bytes(), adapters.store().borrowed_bytes());
    list.retain(|adapter| caller.may_use(&adapter.name));
    list.sort_by_key(|adapter| Reverse(adapter.requests));
    let shown = list
        .iter()
        .take(MOST_SHOWN)
        .map(|adapter| json!({"name": adapter.name, "requests": adapter.requests, "in_memory": adapter.in_memory}));
    let most_used = shown.collect::<Vec<Value>>();
    json!({
        "count": count,
        "in_memory": in_memory,
        "bytes": bytes,
        "borrowed_bytes": borrowed,
        "most_used": most_used,
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use cascadia_engine::service::{Priority, Tenant};

    use super::*;

    fn caller(adapters: Option<&[&str]>) -> Caller {
        let adapters: Option<Vec<String>> = adapters.map(|names| names.iter().map(|name| (*name).to_owned()).collect());
        Caller {
            tenant: Tenant(0),
            priority: Priority::Normal,
            may_raise: false,
            max_tokens: None,
            adapters: adapters.map(Arc::from),
            is_admin: false,
        }
    }

    #[test]
    fn only_so_many_adapters_are_counted_by_name() {
        let requests = AdapterRequests::default();
        let names: Vec<String> = (0..MOST_NAMED + 5).map(|number| format!("a{number:03}")).collect();
        for _ in 0..2 {
            requests.count(names.iter().map(String::as_str));
        }
        let visible = requests.visible(&caller(None));
        assert_eq!((visible.len(), visible["a000"], visible[OTHER]), (MOST_NAMED + 1, 2, 10));
        let visible = requests.visible(&caller(Some(&["a007"])));
        let expected = [("a007", 2), (OTHER, 2 * (MOST_NAMED as u64 + 4))];
        assert_eq!(visible, BTreeMap::from(expected.map(|(name, count)| (name.to_owned(), count))));
    }
}
