//! Flags of `serve` and `keys`.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use serde::{Deserialize, Serialize};

use super::parse_bytes;

/// Flags of `serve`. A configuration file has the same names; what is given here wins over it.
#[derive(Debug, Clone, Default, Args, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
#[command(after_help = "Examples:\n  cascadia serve\n  cascadia serve model.gguf --port 9000 --ctx 8192\n  \
    cascadia keys new --file keys.json --name anna\n  \
    cascadia serve model.gguf --host 0.0.0.0 --keys keys.json --tls-cert cert.pem --tls-key key.pem\n\n\
    A configuration file is a JSON object with the same names: {\"model\": \"model.gguf\", \"port\": 9000}.")]
pub struct ServeFlags {
    /// A .gguf file, a model folder, or org/name on the Hugging Face hub; without it the model inside the program.
    pub model: Option<String>,
    /// Run the model on machines of a fleet (`all` for whichever come, `here` for this process). With MODEL, it is
    /// planned, exported and sent to them first; without, it is the one that `fleet push` sent, or that lies in the
    /// folder that `export` wrote.
    #[arg(long, value_name = "DIR|NODES")]
    pub fleet: Option<String>,
    /// Run this stage in this process; may be given several times.
    #[arg(long, value_name = "N", requires = "fleet", conflicts_with = "model")]
    pub own_stage: Vec<u32>,
    /// The folder for the fleet's keys; .cascadia in your home folder by default.
    #[arg(long, value_name = "DIR", requires = "fleet")]
    pub home: Option<PathBuf>,
    /// Milliseconds without a sign of life after which a machine that computes counts as lost; 250 by default, more where
    /// the network pauses, as Wi-Fi does.
    #[arg(long, value_name = "N", requires = "fleet", value_parser = clap::value_parser!(u64).range(100..=60_000))]
    pub silence_ms: Option<u64>,
    /// How hidden states are sent to other machines; f32 by default, with the tokens of one machine. The others take a
    /// half and about a quarter of the bytes, and round: answers also depend on where the model is cut.
    #[arg(long, value_name = "FORMAT", requires = "fleet")]
    pub wire: Option<WireChoice>,
    /// Minutes for which a machine that was lost three times within a minute is not used; 5 by default, twice as long
    /// every further time. 0 holds none back.
    #[arg(long, value_name = "N", requires = "fleet", value_parser = clap::value_parser!(u64).range(..=60))]
    pub quarantine_minutes: Option<u64>,
    /// Seconds without any machine for a stage after which the model is planned again over the machines that are there,
    /// cut and sent; 15 by default, 0 never. Only with MODEL.
    #[arg(long, value_name = "N", requires = "fleet", value_parser = clap::value_parser!(u64).range(..=86_400))]
    pub replan_seconds: Option<u64>,
    /// Let spares only wait. Otherwise one for each stage computes along: it takes over without a pause, and wrong rows
    /// are noticed.
    #[arg(long, requires = "fleet")]
    pub no_shadow: bool,
    /// The address to listen on; 127.0.0.1 by default, so that only this machine can connect.
    #[arg(long, value_name = "ADDRESS")]
    pub host: Option<IpAddr>,
    /// The port to listen on; 8080 by default, 0 takes a free one.
    #[arg(long, value_name = "N")]
    pub port: Option<u16>,
    /// Requests that may wait; more are answered with status 429 at once. 64 by default.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65536))]
    pub queue: Option<u32>,
    /// Requests that are computed at a time; 8 by default.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub parallel: Option<u32>,
    /// Tokens guessed ahead in one step, of all answers together; 0 guesses none, 8 is the default. Answers are the same.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(..=64))]
    pub draft_tokens: Option<u32>,
    /// A small model with the same vocabulary that guesses ahead; answers are the same, and faster where it guesses well.
    #[arg(long, value_name = "MODEL")]
    pub draft: Option<String>,
    /// Let tenants use each other's cached prefixes; only where they may know of each other's prompts.
    #[arg(long)]
    pub share_prefixes: bool,
    /// Render conversations with this template instead of the model's own.
    #[arg(long, value_name = "FILE")]
    pub template: Option<PathBuf>,
    /// The file of keys, see `cascadia keys new`; without it everybody who can connect is let in.
    #[arg(long, value_name = "FILE")]
    pub keys: Option<PathBuf>,
    /// The server's certificate (PEM): connections are then encrypted.
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,
    /// The private key of the certificate (PEM).
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,
    /// Let other machines in without keys.
    #[arg(long)]
    pub insecure: bool,
    /// Let web pages of this origin use the server, such as `https://chat.example`; may be given several times.
    #[arg(long, value_name = "ORIGIN")]
    pub cors: Vec<String>,
    /// Keep the tokens of streams in this folder until half a minute after their end, an hour and 64 MiB at most: one that
    /// goes on after the server was killed is then not drawn again. What people are told is on disk for so long.
    #[arg(long, value_name = "DIR")]
    pub resume_log: Option<PathBuf>,
    /// Send a span of every request to this OpenTelemetry collector, such as `http://localhost:4318`.
    #[arg(long, value_name = "URL")]
    pub otlp: Option<String>,
    /// The most seconds an answer may take, waiting included; 600 by default.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..=86400))]
    pub answer_seconds: Option<u32>,
    /// How log lines are written to standard error; text by default.
    #[arg(long, value_name = "FORMAT")]
    pub log: Option<LogChoice>,
    /// What is logged: error, warn, info or debug; info by default.
    #[arg(long, value_name = "LEVEL")]
    pub log_level: Option<String>,
    /// A file with these settings.
    #[arg(long, value_name = "FILE")]
    #[serde(skip)]
    pub config: Option<PathBuf>,
    /// Threads to compute with; by default one per core that this process may use, found by a short measurement.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024), help_heading = "Machine")]
    pub threads: Option<u32>,
    /// Keep every helper thread on a core of its own (Linux); worth it on machines that do nothing else.
    #[arg(long, help_heading = "Machine")]
    pub pin: bool,
    /// The most tokens of prompt and answer together; the model's own limit, up to 4096, by default.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), help_heading = "Machine")]
    pub ctx: Option<u32>,
    /// The most memory to take, such as 6G or 800MiB: weights first, the rest caches what was read and said. Layers
    /// that do not fit beside the cache of one conversation are read from disk for every step.
    #[arg(long, value_name = "SIZE", value_parser = checked_bytes, help_heading = "Machine")]
    pub memory: Option<String>,
}

/// How log lines are written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LogChoice {
    /// For people.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

/// How hidden states are sent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WireChoice {
    /// Four bytes a number.
    #[default]
    F32,
    /// Two bytes a number.
    F16,
    /// A byte a number, and two for the scale of 32.
    Int8,
}

/// What can be done with keys.
#[derive(Debug, Subcommand)]
pub enum KeysCommand {
    /// Make a key, add its hash to a file, and print the key: it is shown this once.
    New(NewKeyFlags),
}

/// Flags of `keys new`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  cascadia keys new --file keys.json --name anna --tenant team-a --max-requests 4")]
pub struct NewKeyFlags {
    /// The file of keys; it is made if it is not there.
    #[arg(long, value_name = "FILE", default_value = "keys.json")]
    pub file: PathBuf,
    /// Whose key it is.
    #[arg(long)]
    pub name: String,
    /// Whom its requests count for; keys of one tenant share cached prefixes. The name by default.
    #[arg(long)]
    pub tenant: Option<String>,
    /// How urgent its requests are.
    #[arg(long)]
    pub priority: Option<PriorityChoice>,
    /// The most requests at once.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub max_requests: Option<u32>,
    /// The most tokens of one answer.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub max_tokens: Option<u32>,
}

/// How urgent requests are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum PriorityChoice {
    /// When nothing else waits.
    Low,
    /// In their turn.
    Normal,
    /// Before others.
    High,
}

/// The text of a size, once it is known to be one.
fn checked_bytes(text: &str) -> Result<String, String> {
    parse_bytes(text).map(|_| text.to_owned())
}
