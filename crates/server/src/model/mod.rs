//! The model that is served, as requests see it: its text side, its constraints, and its service.

pub(crate) mod adapters;
mod constraints;
pub(crate) mod frontend;
mod reply_format;
pub(crate) mod slot;
