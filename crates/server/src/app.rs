//! What all requests share.

use std::sync::Arc;

use crate::answer::resume_log::ResumeLog;
use crate::error::ServerError;
use crate::http::body::Bodies;
use crate::http::keys::KeyRing;
use crate::http::turns::Turns;
use crate::model::Models;
use crate::model::frontend::{Common, ModelFrontend, ServedModel};
use crate::model::keep_alive::KeepAlive;
use crate::model::on_demand::{OfferedModel, OnDemand};
use crate::model::slot::ModelSlot;
use crate::observe::fleet_board::FleetBoard;
use crate::observe::metrics::Metrics;
use crate::observe::recent::Recent;
use crate::observe::traces::Traces;
use crate::options::ServerOptions;
use crate::protocols::openai::responses::store::ResponseStore;

/// The state behind every handler.
pub(crate) struct App {
    /// The model that is served; where there are several, the one that was loaded last.
    pub(crate) model: ModelSlot,
    /// Where there are several models, all of them.
    pub(crate) on_demand: Option<Arc<OnDemand>>,
    pub(crate) metrics: Arc<Metrics>,
    /// What charts begin with.
    pub(crate) recent: Arc<Recent>,
    pub(crate) bodies: Bodies,
    /// How many requests may be rendered and tokenised at once.
    pub(crate) workers: Arc<Turns>,
    pub(crate) keys: Option<KeyRing>,
    /// Pages of other origins that may use the server.
    pub(crate) origins: Vec<String>,
    /// Whether only names of this machine are accepted in `Host`.
    pub(crate) local_only: bool,
    pub(crate) traces: Option<Traces>,
    /// The state of a fleet, if one computes.
    pub(crate) fleet: Option<FleetBoard>,
    /// The tokens of streams that clients may resume.
    pub(crate) resume_log: Option<ResumeLog>,
    /// Responses that are kept for later requests.
    pub(crate) responses: Arc<ResponseStore>,
}

impl App {
    /// The models that requests may name.
    pub(crate) fn offered(&self) -> Vec<OfferedModel<'_>> {
        match &self.on_demand {
            Some(models) => models.all(),
            None => vec![OfferedModel::InMemory(self.model.current(), KeepAlive(None))],
        }
    }

    /// The models in memory.
    pub(crate) fn in_memory(&self) -> Vec<Arc<ModelFrontend>> {
        match &self.on_demand {
            Some(models) => models.in_memory(),
            None => vec![self.model.current()],
        }
    }

    pub(crate) fn new(
        models: Models,
        options: &ServerOptions,
        keys: Option<KeyRing>,
        traces: Option<Traces>,
    ) -> Result<App, ServerError> {
        let metrics = Arc::new(Metrics::default());
        let limits = &options.limits;
        // Without keys all requests are one tenant's; with keys, one tenant never has all turns.
        let most_each = limits.workers - usize::from(options.keys.is_some() && limits.workers > 1);
        let count = match &models {
            Models::One(_) => 1,
            Models::Several(several) => several.models.len(),
        };
        let common = Common::new(&options.aliases, Arc::clone(&metrics), limits, count);
        let slot = |model: ServedModel| ModelSlot::new(model, common);
        let (model, on_demand) = match models {
            Models::One(model) => (slot(*model), None),
            Models::Several(models) => {
                let models = OnDemand::start(models, slot, limits.answer_time)?;
                (models.slot().clone(), Some(Arc::new(models)))
            }
        };
        Ok(App {
            model,
            on_demand,
            metrics,
            bodies: Bodies::new(limits.body_bytes, limits.bodies_bytes, limits.body_time),
            workers: Turns::new(limits.workers, most_each),
            local_only: keys.is_none() && options.is_loopback(),
            keys,
            origins: options.origins.clone(),
            traces,
            recent: Arc::default(),
            fleet: options.fleet.clone(),
            responses: Arc::new(ResponseStore::new(limits.responses_bytes)),
            resume_log: options.resume_log.clone().map(ResumeLog::start).transpose()?,
        })
    }
}
