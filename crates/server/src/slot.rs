//! The model that is served now: another may take its place while requests under way keep theirs.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use crate::metrics::Metrics;
use crate::model_frontend::{ModelFrontend, ServedModel};

/// Where requests find the model. A request asks once and keeps what it gets until its last token.
#[derive(Clone)]
pub struct ModelSlot {
    desk: Arc<RwLock<Arc<ModelFrontend>>>,
    metrics: Arc<Metrics>,
    answer_time: Duration,
}

/// A model whose place was taken.
pub struct Replaced(Arc<ModelFrontend>);

impl ModelSlot {
    pub(crate) fn new(model: ServedModel, metrics: Arc<Metrics>, answer_time: Duration) -> ModelSlot {
        let desk = Arc::new(ModelFrontend::new(model, Arc::clone(&metrics), answer_time));
        ModelSlot { desk: Arc::new(RwLock::new(desk)), metrics, answer_time }
    }

    /// The desk of the model that is served now.
    pub(crate) fn desk(&self) -> Arc<ModelFrontend> {
        Arc::clone(&self.desk.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Gives requests from now on to another model. The old one's service has to go on until no request has it.
    pub fn replace(&self, model: ServedModel) -> Replaced {
        let desk = Arc::new(ModelFrontend::new(model, Arc::clone(&self.metrics), self.answer_time));
        Replaced(std::mem::replace(&mut *self.desk.write().unwrap_or_else(PoisonError::into_inner), desk))
    }
}

impl Replaced {
    /// Whether a request still has it: one that is being prepared, or one whose answer is still told.
    pub fn is_used(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }
}
