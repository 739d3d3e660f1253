//! Connections and what every request passes on its way in: limits, encryption, keys, the shape of errors.

pub(crate) mod accept;
pub(crate) mod body;
pub(crate) mod client_memory;
mod connection_slots;
pub(crate) mod guard;
pub(crate) mod held;
pub(crate) mod key_file;
pub(crate) mod keys;
pub(crate) mod tls;
pub(crate) mod turns;
mod write_timeout;
