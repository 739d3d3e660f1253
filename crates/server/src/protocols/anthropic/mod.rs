//! Anthropic's protocol.

pub(crate) mod blocks;
pub(crate) mod messages;
