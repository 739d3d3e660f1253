//! What operators see of the server: health, numbers, traces and logs.

pub(crate) mod adapters;
pub(crate) mod fleet_board;
pub(crate) mod health;
pub(crate) mod kv;
pub(crate) mod logs;
pub(crate) mod metrics;
pub(crate) mod recent;
pub(crate) mod status;
pub(crate) mod traces;
