//! Requests in the one form into which every protocol translates its own.

pub(crate) mod bounded;
pub(crate) mod output_format;
pub(crate) mod prompts;
pub(crate) mod reasoning;
pub(crate) mod sampling;
pub(crate) mod tools;
pub(crate) mod validate;
