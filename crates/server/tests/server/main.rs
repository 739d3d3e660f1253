//! The server over a real port: what it answers, what it refuses, and how it ends.

mod access;
mod adapters;
mod brake;
mod compatibility;
mod harness;
mod hostile;
mod kv;
mod numbers;
mod protocols;
mod reasoning;
mod resume;
mod scoring;
mod several;
mod streams;
mod traces;
mod vectors;
mod written_adapter;
