//! The models that are served, as requests see them: their text side, their constraints, and their services.

pub(crate) mod adapters;
mod constraints;
pub(crate) mod frontend;
pub(crate) mod keep_alive;
pub(crate) mod on_demand;
mod reply_format;
mod short_name;
pub(crate) mod slot;

use frontend::ServedModel;
use on_demand::OnDemandModels;

/// What a server begins with.
pub enum Models {
    /// One model, which stays in memory.
    One(Box<ServedModel>),
    /// Several, which are loaded when requests name them.
    Several(OnDemandModels),
}

impl From<ServedModel> for Models {
    fn from(model: ServedModel) -> Models {
        Models::One(Box::new(model))
    }
}

impl From<OnDemandModels> for Models {
    fn from(models: OnDemandModels) -> Models {
        Models::Several(models)
    }
}
