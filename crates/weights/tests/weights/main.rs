//! Tests of the public behaviour of `cascadia-weights`, in one binary because linking is slow.

mod advice;
mod counting_allocator;
mod damage;
mod foreign;
mod gguf_hostile;
mod gguf_round_trip;
mod gguf_writer;
mod metadata;
mod opening;
mod quantised;
mod quantised_hostile;
mod raw_gguf;
mod raw_safetensors;
mod safetensors_hostile;
mod safetensors_reading;
mod sample;
mod split;
mod truncation;
