//! The model that is served now, which can be replaced while requests under way keep theirs.

use std::sync::{Arc, PoisonError, RwLock};

use super::frontend::{Common, ModelFrontend, ServedModel};

/// Where requests find the model. A request looks once and keeps what it finds until its last token.
#[derive(Clone)]
pub struct ModelSlot {
    current: Arc<RwLock<Arc<ModelFrontend>>>,
    /// For every model that comes here.
    common: Common,
}

/// A model that another has replaced.
pub struct Replaced(Arc<ModelFrontend>);

impl ModelSlot {
    pub(crate) fn new(model: ServedModel, common: Common) -> ModelSlot {
        let frontend = Arc::new(ModelFrontend::new(model, common.clone()));
        ModelSlot { current: Arc::new(RwLock::new(frontend)), common }
    }

    /// Whether clients may call any model here by this name.
    pub(crate) fn is_alias(&self, name: &str) -> bool {
        self.common.aliases.iter().any(|alias| alias == name)
    }

    /// The model that is served now.
    pub(crate) fn current(&self) -> Arc<ModelFrontend> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Gives new requests to another model. The service of the old one must run until no request uses it.
    pub fn replace(&self, model: ServedModel) -> Replaced {
        let frontend = Arc::new(ModelFrontend::new(model, self.common.clone()));
        Replaced(std::mem::replace(&mut *self.current.write().unwrap_or_else(PoisonError::into_inner), frontend))
    }
}

impl Replaced {
    /// Whether a request still uses it: one that is being prepared, or one whose answer is still being sent.
    pub fn is_used(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }
}
