//! Load on a server that speaks OpenAI's API: what is sent, how it is sent, and what came of it.

mod client;
mod drive;
mod plot;
mod record;
mod sse;
mod summary;
mod target;
mod workload;

pub use client::{ClientOptions, Endpoint};
pub use drive::{Arrivals, Extent, LoadPlan, LoadRun, run_load};
pub use plot::histogram;
pub use record::{Outcome, Record, check_history};
pub use summary::{Quantiles, Summary, TenantSummary, jain};
pub use target::Target;
pub use workload::{Behaviour, Request, Sizes, Workload};
