//! Runs open large language models on CPUs: in your program, behind HTTP, or spread over several machines.
//!
//! The same model gives the same tokens everywhere: with any number of threads, alone or in a batch, on one machine or
//! on a fleet, also when a machine is lost in the middle of an answer.
//!
//! # Generate text
//!
//! [`Model::open`] takes a GGUF file, a safetensors file or a Hugging Face folder. The examples here use the small model
//! inside the crate. A [`Generation`] is an iterator over the text as it is generated.
//!
//! ```
//! # #[cfg(feature = "embedded-model")]
//! # fn main() -> Result<(), cascadia::Error> {
//! use cascadia::{GenerateOptions, Message, Model};
//!
//! let model = Model::embedded()?; // or Model::open("model.gguf")?
//! let messages = [Message { role: "user", content: "What is a glacier?".to_owned() }];
//! let mut answer = String::new();
//! for delta in model.chat_with(&messages, &GenerateOptions::greedy().max_tokens(16))? {
//!     answer += &delta?.text;
//! }
//! assert!(!answer.is_empty());
//! # Ok(())
//! # }
//! # #[cfg(not(feature = "embedded-model"))]
//! # fn main() {}
//! ```
//!
//! # Serve it
//!
//! A [`Server`] speaks the APIs of OpenAI, Anthropic and Ollama, and has a web page.
//!
//! ```
//! # #[cfg(all(feature = "embedded-model", feature = "server"))]
//! # fn main() -> Result<(), cascadia::Error> {
//! use std::net::Ipv4Addr;
//! use cascadia::{Model, Server};
//!
//! let model = Model::builder().context(512).open(cascadia::EMBEDDED_MODEL)?;
//! let server = Server::builder().bind((Ipv4Addr::LOCALHOST, 0)).serve(model)?;
//! assert!(server.url().starts_with("http://127.0.0.1:"));
//! server.stopper().stop(); // from another thread, whenever it should end
//! server.run()?;
//! # Ok(())
//! # }
//! # #[cfg(not(all(feature = "embedded-model", feature = "server")))]
//! # fn main() {}
//! ```
//!
//! # Spread it over machines
//!
//! [`export`] splits a model into shards. A [`Fleet`] invites machines, and a [`Worker`] on each of them runs a shard.
//! If several workers hold the same shard, one takes over when another is lost.
//!
//! ```
//! # #[cfg(all(feature = "embedded-model", feature = "fleet"))]
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use std::time::Duration;
//! use cascadia::{EMBEDDED_MODEL, ExportOptions, Fleet, Model, Worker, export};
//!
//! let folder = tempfile::tempdir()?;
//! let shards = folder.path().join("shards");
//! let manifest = export(EMBEDDED_MODEL, &ExportOptions { stages: 2, ..ExportOptions::default() }, &shards)?;
//! assert_eq!(manifest.stages.len(), 2);
//!
//! // On the coordinator:
//! let fleet = Fleet::builder(folder.path().join("coordinator"))?.listen("127.0.0.1:0").silent().start()?;
//! let invitation = fleet.invite(1, Duration::from_secs(60))?.to_string();
//!
//! // On another machine:
//! let worker = Worker::builder(folder.path().join("worker"))?;
//! assert_eq!(worker.join(&invitation.parse()?, "attic")?, "attic");
//! assert_eq!(fleet.home().member_names()?, ["attic"]);
//! // Then worker.start()? there, and fleet.push(&shards, &[("attic", 0), ("here", 1)])? and fleet.open_pushed(…)? here.
//! # Ok(())
//! # }
//! # #[cfg(not(all(feature = "embedded-model", feature = "fleet")))]
//! # fn main() {}
//! ```
//!
//! Whole programs are in the crate's `examples`: `chat`, `serve`, and `fleet`, which loses a worker on purpose.
//!
//! # Features
//!
//! All of them are on by default.
//!
//! | Feature | What it adds |
//! |---|---|
//! | `server` | [`Server`], [`ServerBuilder`], the crate [`server`] |
//! | `fleet` | [`Fleet`], [`Worker`], [`export`], the crates [`fleet`] and [`coordinator`], and `quantize` |
//! | `quantize` | [`ModelBuilder::quantized`], which quantises a model when it is opened; the crate [`quantize`] |
//! | `hub` | the crate [`hub`], which fetches models from the Hugging Face hub |
//! | `embedded-model` | [`EMBEDDED_MODEL`] and [`Model::embedded`] |
//! | `cli` | the program `cascadia`, with all of the above |
//!
//! # The crates below
//!
//! What this page offers is made of smaller crates, each of which can be used here under its short name: [`kernels`]
//! computes, [`weights`] reads files, [`text`] tokenizes, [`model`] runs layers, [`engine`] schedules and samples.
#![forbid(unsafe_code)]

#[cfg(feature = "fleet")]
mod coordinate;
mod embed;
#[cfg(feature = "embedded-model")]
mod embedded;
mod error;
mod generate;
mod kernel_choice;
#[cfg(all(feature = "fleet", feature = "server"))]
mod live;
mod memory_nodes;
mod open;
mod os;
#[cfg(feature = "server")]
mod serve;
#[cfg(feature = "server")]
mod several;
mod source;
mod threads;
#[cfg(feature = "fleet")]
mod work;

#[cfg(feature = "hub")]
pub use cascadia_hub as hub;
#[cfg(feature = "quantize")]
pub use cascadia_quantize as quantize;
#[cfg(feature = "server")]
pub use cascadia_server as server;
#[cfg(feature = "fleet")]
pub use {cascadia_coordinator as coordinator, cascadia_fleet as fleet};
pub use {
    cascadia_engine as engine, cascadia_kernels as kernels, cascadia_model as model, cascadia_text as text,
    cascadia_weights as weights,
};

pub use cascadia_engine::{FinishReason, Message, Sampling, Stats};
pub use embed::{EmbedOptions, LongTexts};
#[cfg(feature = "embedded-model")]
pub use embedded::EMBEDDED_MODEL;
pub use error::Error;
pub use generate::{Delta, Finished, GenerateOptions, Generation};
pub use kernel_choice::{Kernels, measured_choices};
#[cfg(all(feature = "fleet", feature = "server"))]
pub use live::FleetModel;
pub use memory_nodes::interleave_memory;
pub use open::{Model, ModelBuilder, ModelInfo};
#[cfg(feature = "server")]
pub use serve::{Server, ServerBuilder};
pub use source::ModelSource;
pub use threads::Threads;
#[cfg(feature = "fleet")]
pub use {
    coordinate::{ExportOptions, Fleet, FleetBuilder, export},
    work::{Worker, WorkerBuilder},
};
