//! Tests of fetching models, in one binary because linking is slow.

mod fetching;
mod hub_server;
mod outline;
#[cfg(unix)]
mod packages;
#[path = "../../../weights/tests/weights/raw_gguf.rs"]
#[expect(dead_code, reason = "the tests of the weights use more of it")]
mod raw_gguf;
#[path = "../../../weights/tests/weights/raw_safetensors.rs"]
#[expect(dead_code, reason = "the tests of the weights use more of it")]
mod raw_safetensors;
mod running;
mod store;
mod transfer;
