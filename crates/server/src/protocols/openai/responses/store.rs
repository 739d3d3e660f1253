//! Responses that are kept for a while: to be read again, and to be continued by later requests. They are in memory only.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cascadia_engine::service::Tenant;
use serde_json::Value;

/// The most responses of one tenant.
const MOST_EACH: usize = 1024;
/// Bytes of a value in memory for one byte of its text, about.
const BYTES_PER_CHARACTER: usize = 4;

/// Keeps the newest responses of every tenant. Where they take too much together, the oldest goes of the tenant whose take
/// the most: nobody pushes out what others keep by keeping more.
pub(crate) struct ResponseStore {
    most_bytes: usize,
    tenants: Mutex<HashMap<Tenant, Kept>>,
}

/// A response and the conversation that led to it.
#[derive(Debug)]
pub(crate) struct StoredResponse {
    pub(crate) response: Value,
    /// The messages that templates read, its answer included, without instructions.
    pub(crate) messages: Vec<Value>,
}

/// The responses of one tenant, the oldest first.
#[derive(Default)]
struct Kept {
    responses: VecDeque<(String, usize, Arc<StoredResponse>)>,
    bytes: usize,
}

impl Kept {
    fn remove(&mut self, id: &str) -> Option<Arc<StoredResponse>> {
        let at = self.responses.iter().position(|(known, ..)| known == id)?;
        let (_, bytes, response) = self.responses.remove(at)?;
        self.bytes -= bytes;
        Some(response)
    }

    fn drop_oldest(&mut self) {
        if let Some((_, bytes, _)) = self.responses.pop_front() {
            self.bytes -= bytes;
        }
    }
}

impl ResponseStore {
    /// With room for so many bytes.
    pub(crate) fn new(most_bytes: usize) -> ResponseStore {
        ResponseStore { most_bytes, tenants: Mutex::default() }
    }

    /// Keeps a response, unless it is so large that it would leave room for few others.
    pub(crate) fn keep(&self, tenant: Tenant, id: &str, stored: StoredResponse) {
        let text =
            stored.response.to_string().len() + stored.messages.iter().map(|m| m.to_string().len()).sum::<usize>();
        let bytes = text * BYTES_PER_CHARACTER;
        if bytes > self.most_bytes / 4 {
            tracing::info!(bytes, "a response is too large to be kept");
            return;
        }
        let mut tenants = self.tenants();
        let kept = tenants.entry(tenant).or_default();
        kept.remove(id);
        kept.responses.push_back((id.to_owned(), bytes, Arc::new(stored)));
        kept.bytes += bytes;
        if kept.responses.len() > MOST_EACH {
            kept.drop_oldest();
        }
        while tenants.values().map(|kept| kept.bytes).sum::<usize>() > self.most_bytes {
            let Some(largest) = tenants.values_mut().max_by_key(|kept| kept.bytes) else { break };
            largest.drop_oldest();
        }
        tenants.retain(|_, kept| !kept.responses.is_empty());
    }

    /// A response of this tenant.
    pub(crate) fn find(&self, tenant: Tenant, id: &str) -> Option<Arc<StoredResponse>> {
        let tenants = self.tenants();
        let found = tenants.get(&tenant)?.responses.iter().find(|(known, ..)| known == id)?;
        Some(Arc::clone(&found.2))
    }

    /// Forgets a response of this tenant; `None` if there is none.
    pub(crate) fn remove(&self, tenant: Tenant, id: &str) -> Option<Arc<StoredResponse>> {
        self.tenants().get_mut(&tenant)?.remove(id)
    }

    fn tenants(&self) -> MutexGuard<'_, HashMap<Tenant, Kept>> {
        self.tenants.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn stored(length: usize) -> StoredResponse {
        StoredResponse { response: json!("x".repeat(length)), messages: Vec::new() }
    }

    #[test]
    fn the_oldest_goes_of_who_keeps_most() {
        let store = ResponseStore::new(4000);
        store.keep(Tenant(1), "a", stored(98));
        (0..20).for_each(|number| store.keep(Tenant(2), &format!("b{number}"), stored(98)));
        let count = (0..20).filter(|number| store.find(Tenant(2), &format!("b{number}")).is_some()).count();
        assert!(store.find(Tenant(1), "a").is_some(), "it is less than the other's");
        assert_eq!(count, 9);
        assert!(store.find(Tenant(2), "b19").is_some() && store.find(Tenant(2), "b0").is_none());
        assert!(store.find(Tenant(1), "b19").is_none(), "it is another's");
        assert!(store.remove(Tenant(1), "b19").is_none() && store.remove(Tenant(2), "b19").is_some());
        assert!(store.find(Tenant(2), "b19").is_none());
        store.keep(Tenant(3), "large", stored(2000));
        assert!(store.find(Tenant(3), "large").is_none());
        store.keep(Tenant(1), "a", stored(8));
        assert_eq!(store.tenants()[&Tenant(1)].bytes, 40, "kept once");
        let roomy = ResponseStore::new(1 << 20);
        (0..2000).for_each(|number| roomy.keep(Tenant(4), &number.to_string(), stored(1)));
        assert_eq!(roomy.tenants()[&Tenant(4)].responses.len(), MOST_EACH);
    }
}
