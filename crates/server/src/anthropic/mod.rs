//! The doors that Anthropic's clients use.

pub(crate) mod blocks;
pub(crate) mod messages;
