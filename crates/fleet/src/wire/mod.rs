//! What crosses the network: frames, messages, step plans and hidden states, over an encrypted link.

pub(crate) mod adapters;
pub(crate) mod codec;
pub(crate) mod compress;
pub mod frame;
pub mod link;
pub(crate) mod message;
pub(crate) mod pages;
pub(crate) mod plan_codec;
pub(crate) mod tcp;
pub(crate) mod tls;
pub mod verbs;

pub use codec::RowFormat;
pub use message::{Hello, Offer, StageLimits};
pub use tcp::TcpLink;
