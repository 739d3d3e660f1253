//! The public crate: every primitive of `cascadia` under one name.
#![forbid(unsafe_code)]

pub use cascadia_engine as engine;
pub use cascadia_eval as eval;
pub use cascadia_fleet as fleet;
pub use cascadia_hub as hub;
pub use cascadia_kernels as kernels;
pub use cascadia_model as model;
pub use cascadia_quantize as quantize;
pub use cascadia_server as server;
pub use cascadia_text as text;
pub use cascadia_weights as weights;
