//! The model that is served now, which can be replaced while requests under way keep theirs.

use std::sync::{Arc, PoisonError, RwLock};

use super::frontend::{ModelFrontend, ServedModel};
use crate::observe::metrics::Metrics;
use crate::options::Limits;

/// Where requests find the model. A request looks once and keeps what it finds until its last token.
#[derive(Clone)]
pub struct ModelSlot {
    current: Arc<RwLock<Arc<ModelFrontend>>>,
    /// What clients may call any model here.
    aliases: Arc<[String]>,
    metrics: Arc<Metrics>,
    limits: Limits,
}

/// A model that another has replaced.
pub struct Replaced(Arc<ModelFrontend>);

impl ModelSlot {
    pub(crate) fn new(model: ServedModel, aliases: &[String], metrics: Arc<Metrics>, limits: Limits) -> ModelSlot {
        let aliases: Arc<[String]> = aliases.into();
        let frontend = Arc::new(ModelFrontend::new(model, Arc::clone(&aliases), Arc::clone(&metrics), &limits));
        ModelSlot { current: Arc::new(RwLock::new(frontend)), aliases, metrics, limits }
    }

    /// Whether clients may call any model here by this name.
    pub(crate) fn is_alias(&self, name: &str) -> bool {
        self.aliases.iter().any(|alias| alias == name)
    }

    /// The model that is served now.
    pub(crate) fn current(&self) -> Arc<ModelFrontend> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Gives new requests to another model. The service of the old one must run until no request uses it.
    pub fn replace(&self, model: ServedModel) -> Replaced {
        let (aliases, metrics) = (Arc::clone(&self.aliases), Arc::clone(&self.metrics));
        let frontend = Arc::new(ModelFrontend::new(model, aliases, metrics, &self.limits));
        Replaced(std::mem::replace(&mut *self.current.write().unwrap_or_else(PoisonError::into_inner), frontend))
    }
}

impl Replaced {
    /// Whether a request still uses it: one that is being prepared, or one whose answer is still being sent.
    pub fn is_used(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }
}
