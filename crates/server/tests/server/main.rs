//! The server over a real port: what it answers, what it refuses, and how it ends.

mod access;
mod brake;
mod doors;
mod harness;
mod hostile;
mod numbers;
mod parts;
mod resume;
mod streams;
mod traces;
