//! What a request selects: an adapter, or several with weights.

use std::fmt;
use std::sync::Arc;

use cascadia_model::{Adapter, AdapterFiles, AdapterId, AdapterPart};

use super::AdapterStore;
use crate::EngineError;

/// The most adapters that are used together.
const MOST_TOGETHER: usize = 8;

/// An adapter that a request uses, in the version that it had when it was selected.
#[derive(Clone)]
pub struct AdapterHandle {
    name: Arc<str>,
    id: AdapterId,
    chosen: Arc<[Chosen]>,
    bytes: u64,
    store: AdapterStore,
}

/// One of the adapters of a selection.
pub(super) struct Chosen {
    pub(super) name: String,
    pub(super) files: Arc<AdapterFiles>,
    pub(super) weight: f32,
}

impl AdapterHandle {
    pub(super) fn new(name: &str, chosen: Vec<Chosen>, (bytes, store): (u64, AdapterStore)) -> AdapterHandle {
        let id = AdapterId::of(&parts(&chosen));
        AdapterHandle { name: name.into(), id, chosen: chosen.into(), bytes, store }
    }

    /// Names the content: tokens depend on it.
    pub fn id(&self) -> AdapterId {
        self.id
    }

    /// What was asked for.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The adapters in it, more than one for a mixture.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.chosen.iter().map(|chosen| chosen.name.as_str())
    }

    /// Its weights, which are read unless they are in memory. They stay there if nothing has to leave for them.
    pub fn activate(&self) -> Result<Arc<Adapter>, EngineError> {
        if let Some(adapter) = self.store.find(self.id) {
            return Ok(adapter);
        }
        let adapter = Arc::new(self.store.load(&parts(&self.chosen))?);
        Ok(self.store.keep(adapter))
    }

    /// Lets its weights stay in memory for others too. Where they do not fit, `lend` may give more memory; then adapters leave
    /// that nobody uses. Returns the weights to use: another thread may have been faster.
    pub(crate) fn keep(&self, weights: Arc<Adapter>, lend: impl FnOnce(u64)) -> Arc<Adapter> {
        let resident = self.store.resident();
        if !resident.has(self.id) {
            lend(weights.bytes());
            resident.make_room(weights.bytes());
        }
        self.store.keep(weights)
    }

    /// Its weights are used.
    pub(crate) fn touch(&self) {
        self.store.resident().touch(self.id);
    }

    /// Reads its weights into memory for a request that waits, if nothing has to leave for them.
    pub fn prefetch(&self) {
        let resident = self.store.resident();
        if !resident.has(self.id) && resident.fits(self.bytes) {
            // If this fails, it fails again when the weights are needed, and is reported then.
            let _ = self.activate();
        }
    }
}

impl fmt::Debug for AdapterHandle {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "AdapterHandle({}, {})", self.name, self.id)
    }
}

fn parts(chosen: &[Chosen]) -> Vec<AdapterPart<'_>> {
    chosen.iter().map(|chosen| AdapterPart { files: &chosen.files, weight: chosen.weight }).collect()
}

/// Names and weights of a selection such as `pepys:0.7+rust:0.3`.
pub(super) fn parse(selection: &str) -> Result<Vec<(&str, f32)>, EngineError> {
    let refuse = |problem: &str| {
        let name = selection.chars().take(256).collect();
        Err(EngineError::Adapter { name, problem: problem.to_owned() })
    };
    let one = |part| {
        let (name, weight) = match str::rsplit_once(part, ':') {
            None => return Some((part, 1.0)),
            Some(parts) => parts,
        };
        let weight = weight.parse::<f32>().ok().filter(|weight| weight.is_finite() && weight.abs() <= 100.0)?;
        Some((name, weight))
    };
    match selection.split('+').map(one).collect::<Option<Vec<(&str, f32)>>>() {
        Some(parts) if parts.len() <= MOST_TOGETHER => Ok(parts),
        Some(_) => refuse("are too many adapters at once: up to 8 are possible"),
        None => refuse("is no selection: write `name`, or `name:0.7+other:0.3`"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selections_are_names_with_weights() {
        assert_eq!(parse("pepys").unwrap(), [("pepys", 1.0)]);
        assert_eq!(parse("pepys:0.7+rust:-0.3+x").unwrap(), [("pepys", 0.7), ("rust", -0.3), ("x", 1.0)]);
        for wrong in ["a:b", "a:inf", "a:NaN", "a:", "a:1e9", "a+a+a+a+a+a+a+a+a"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
