//! Load on a server that speaks OpenAI's API: what is sent, how it is sent, and what came of it.

mod chance;
mod client;
mod drive;
mod events;
mod http;
mod plot;
mod record;
mod summary;
mod workload;

pub use client::{Door, Sending};
pub use drive::{Arrivals, Extent, LoadPlan, LoadRun, run_load};
pub use http::Target;
pub use plot::histogram;
pub use record::{Outcome, Record, check_history};
pub use summary::{Quantiles, Summary, TenantSummary, jain};
pub use workload::{Manner, Request, Sizes, Workload};
