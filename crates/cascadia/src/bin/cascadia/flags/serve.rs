//! Flags of `serve` and `keys`.

use std::net::IpAddr;
use std::path::PathBuf;

use cascadia_server::KeepAlive;
use clap::{Args, Subcommand, ValueEnum};
use serde::{Deserialize, Deserializer, Serialize};

use super::{ActivationChoice, KernelChoice, KvChoice, NumaChoice, parse_bytes};

/// Flags of `serve`. A configuration file uses the same names; flags take precedence over it. Which of them need or exclude
/// each other is checked after both are merged, in `commands/serve_settings.rs`.
#[derive(Debug, Clone, Default, Args, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
#[command(after_help = "Examples:\n  cascadia serve qwen3:4b\n  cascadia serve model.gguf --port 9000 --ctx 8192\n  \
    cascadia serve qwen3:4b smollm2 --memory 5G --keep-alive 10m\n  \
    cascadia keys new --file keys.json --name anna\n  \
    cascadia serve model.gguf --host 0.0.0.0 --keys keys.json --tls-cert cert.pem --tls-key key.pem\n\n\
    A configuration file is a JSON object with the flag names as keys: {\"model\": \"model.gguf\", \"port\": 9000}.")]
pub struct ServeFlags {
    /// A short name (smollm2, qwen3:4b, see `cascadia list --catalogue`), org/name[:Q4_K_M] on the Hugging Face Hub, a .gguf
    /// file or a model folder [default: the built-in model]. With several, each is loaded when a request names it, the first
    /// at once; they share --memory.
    #[serde(rename = "model", deserialize_with = "one_or_several")]
    #[arg(value_name = "MODEL")]
    pub models: Vec<String>,
    /// With several models: how long one stays in memory after its last request, such as 30s, 5m or forever [default: 5m].
    #[arg(long, value_name = "TIME", value_parser = checked_time, allow_hyphen_values = true)]
    pub keep_alive: Option<String>,
    /// Use stored models only, never the network. HF_HUB_OFFLINE=1 does the same for all commands.
    #[arg(long)]
    pub offline: bool,
    /// Quantise the model to this type first, see `quantize --help`. Done once: the result is kept in
    /// ~/.cache/cascadia/quantised.
    #[arg(long = "type", value_name = "TYPE")]
    #[serde(rename = "type")]
    pub kind: Option<String>,
    /// Serve from a fleet: `all`, or a comma-separated list of nodes; `here` is this process. With MODEL, the model is
    /// planned, split and sent to the workers first. Without MODEL, serve what `fleet push` sent; DIR is a folder that
    /// `export` wrote, whose shards the workers already have.
    #[arg(long, value_name = "DIR|NODES", help_heading = "Fleet")]
    pub fleet: Option<String>,
    /// Run this stage in the server process. May be repeated.
    #[arg(long, value_name = "N", help_heading = "Fleet")]
    pub own_stage: Vec<u32>,
    /// Folder for the fleet's keys [default: ~/.cascadia].
    #[arg(long, value_name = "DIR", help_heading = "Fleet")]
    pub home: Option<PathBuf>,
    /// Treat a busy worker as lost after this many milliseconds without a heartbeat [default: 250]. Use more on
    /// networks with pauses, such as Wi-Fi.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(100..=60_000), help_heading = "Fleet")]
    pub silence_ms: Option<u64>,
    /// Format of hidden states on the network [default: f32]. f32 gives exactly the tokens of one machine. f16 and int8
    /// send a half and about a quarter of the bytes, but round: tokens then depend on where the model is split.
    #[arg(long, value_name = "FORMAT", help_heading = "Fleet")]
    pub wire: Option<WireChoice>,
    /// Quarantine a worker for this many minutes after it was lost three times within a minute [default: 5]. The time
    /// doubles with every repetition. 0 turns quarantine off.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(..=60), help_heading = "Fleet")]
    pub quarantine_minutes: Option<u64>,
    /// If a stage has had no worker for this many seconds, plan, split and send the model again over the connected
    /// workers [default: 15]. 0 turns this off. Needs MODEL.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(..=86_400), help_heading = "Fleet")]
    pub replan_seconds: Option<u64>,
    /// Keep standby workers idle. By default one standby per stage computes every step in lockstep: it takes over
    /// without recomputing, and wrong results are detected.
    #[arg(long, help_heading = "Fleet")]
    pub no_shadow: bool,
    /// Do not recompute anything here. By default, if a stage has no standby in lockstep and its shard is on this machine,
    /// one sequence at a time is recomputed in the background, so that wrong results are detected. --memory turns it off too.
    #[arg(long, help_heading = "Fleet")]
    pub no_recheck: bool,
    /// Address to listen on [default: 127.0.0.1, reachable from this machine only].
    #[arg(long, value_name = "ADDRESS")]
    pub host: Option<IpAddr>,
    /// Port to listen on [default: 8080]. 0 picks a free one.
    #[arg(long, value_name = "N")]
    pub port: Option<u16>,
    /// Maximum number of queued requests [default: 64]. Further requests get status 429 at once.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65536))]
    pub queue: Option<u32>,
    /// Maximum number of requests in one batch [default: 8].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub parallel: Option<u32>,
    /// Speculative decoding: maximum draft tokens per step, all requests together [default: 32]. There are as many
    /// as pay by the measured time of a step. 0 turns it off. Answers do not change.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(..=64))]
    pub draft_tokens: Option<u32>,
    /// Draft model for speculative decoding: a small model with the same vocabulary. Answers do not change.
    #[arg(long, value_name = "MODEL")]
    pub draft: Option<String>,
    /// Share the prefix cache between tenants. Response times can then reveal other tenants' prompts.
    #[arg(long)]
    pub share_prefixes: bool,
    /// Another name under which clients may ask for the model, such as gpt-4o. May be repeated.
    #[arg(long, value_name = "NAME")]
    pub alias: Vec<String>,
    /// Chat template to use instead of the model's.
    #[arg(long, value_name = "FILE")]
    pub template: Option<PathBuf>,
    /// Serve the model with LoRA adapters too: each sub-folder (PEFT) and .gguf file of this folder is one. A request names it
    /// after the model, as in `model:adapter`, or several with weights: `model:one:0.7+other:0.3`.
    #[arg(long, value_name = "DIR", help_heading = "Adapters")]
    pub adapters: Option<PathBuf>,
    /// Memory for adapters, such as 1G [default: 512MiB]; beyond it they use that of cached prefixes which were used longer
    /// ago. Those that do not fit are read again when a request needs them.
    #[arg(long, value_name = "SIZE", value_parser = checked_bytes, help_heading = "Adapters")]
    pub adapter_memory: Option<String>,
    /// Adapters that stay in memory, by name.
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', help_heading = "Adapters")]
    pub pin_adapters: Vec<String>,
    /// File of API keys, see `cascadia keys new`. Without it, no key is needed.
    #[arg(long, value_name = "FILE", help_heading = "Access")]
    pub keys: Option<PathBuf>,
    /// TLS certificate (PEM). Turns on HTTPS.
    #[arg(long, value_name = "FILE", help_heading = "Access")]
    pub tls_cert: Option<PathBuf>,
    /// Private key of the TLS certificate (PEM).
    #[arg(long, value_name = "FILE", help_heading = "Access")]
    pub tls_key: Option<PathBuf>,
    /// Allow other machines to connect without API keys, or to send keys and prompts without TLS.
    #[arg(long, help_heading = "Access")]
    pub insecure: bool,
    /// Allow web pages of this origin (CORS), such as `https://chat.example`. May be repeated.
    #[arg(long, value_name = "ORIGIN", help_heading = "Access")]
    pub cors: Vec<String>,
    /// Write the tokens of running streams to this folder, so that a stream resumes quickly after a server crash.
    /// Answers are then on disk until 30 seconds after a stream ends, or for an hour if it broke off; 64 MiB at most.
    #[arg(long, value_name = "DIR")]
    pub resume_log: Option<PathBuf>,
    /// Send one trace span per request to this OpenTelemetry collector, such as `http://localhost:4318`.
    #[arg(long, value_name = "URL")]
    pub otlp: Option<String>,
    /// Time limit per answer in seconds, including time in the queue [default: 600].
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..=86400))]
    pub answer_seconds: Option<u32>,
    /// Log format on standard error [default: text].
    #[arg(long, value_name = "FORMAT")]
    pub log: Option<LogChoice>,
    /// Log level: error, warn, info or debug [default: info].
    #[arg(long, value_name = "LEVEL")]
    pub log_level: Option<String>,
    /// Configuration file (JSON).
    #[arg(long, value_name = "FILE")]
    #[serde(skip)]
    pub config: Option<PathBuf>,
    /// Compute threads [default: one per core this process may use, chosen by a short measurement].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024), help_heading = "Machine")]
    pub threads: Option<u32>,
    /// Pin each compute thread to its own core (Linux only). Use it on dedicated machines.
    #[arg(long, help_heading = "Machine")]
    pub pin: bool,
    /// How kernels read weights: auto, default, or a fixed way such as far:l2:4096. Changes speed only, never tokens
    /// [default: auto].
    #[arg(long, value_name = "WAY", help_heading = "Machine")]
    pub kernels: Option<KernelChoice>,
    /// Precision of activations where they meet quantised weights [default: int8]. int16 computes what the weights say, at
    /// about two thirds of the speed; prompts take up to twice as long. On a fleet, all machines compute with it.
    #[arg(long, value_name = "PRECISION", help_heading = "Machine")]
    pub activations: Option<ActivationChoice>,
    /// How the KV cache stores all but the newest tokens, as for `run` [default: auto]. On a fleet, all machines cache like
    /// that.
    #[arg(long, value_name = "POLICY", help_heading = "Machine")]
    pub kv: Option<KvChoice>,
    /// Context length: prompt and answer together, in tokens [default: the model's limit, at most 4096].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), help_heading = "Machine")]
    pub ctx: Option<u32>,
    /// Memory limit for the process, such as 6G or 800MiB. Weights come first, the rest is KV cache. Layers that do not
    /// fit beside the KV cache of one request are read from disk at every step.
    #[arg(long, value_name = "SIZE", value_parser = checked_bytes, help_heading = "Machine")]
    pub memory: Option<String>,
    /// Write pages of the KV cache that memory has no room for to this folder, encrypted, and read them back when a prompt
    /// continues their text. Answers do not change. Not with --fleet.
    #[arg(long, value_name = "DIR", help_heading = "Machine")]
    pub spill: Option<PathBuf>,
    /// Most bytes in the --spill folder, such as 20G [default: 8G].
    #[arg(long, value_name = "SIZE", value_parser = checked_bytes, help_heading = "Machine")]
    pub spill_size: Option<String>,
    /// Keep the --spill folder across restarts, with its key, and write cached prompts to it at shutdown, so that they need
    /// not be computed again.
    #[arg(long, help_heading = "Machine")]
    pub keep_prefixes: bool,
    /// Read all weights into memory before the first request.
    #[arg(long, help_heading = "Machine")]
    pub populate: bool,
    /// Lock the weights in memory (mlock), so that the system never drops them. Needs a limit on locked memory
    /// (`ulimit -l`) above their size.
    #[arg(long, help_heading = "Machine")]
    pub lock: bool,
    /// On machines with several memory nodes (Linux): interleave spreads weights and KV cache evenly over all of them.
    /// Weights that are in the system's file cache already stay where they are.
    #[arg(long, value_name = "POLICY", help_heading = "Machine")]
    pub numa: Option<NumaChoice>,
}

/// Format of log lines.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LogChoice {
    /// Plain text.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

/// Format of hidden states on the network.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WireChoice {
    /// 32-bit floats: exact.
    #[default]
    F32,
    /// 16-bit floats.
    F16,
    /// 8-bit integers with a 2-byte scale per 32 numbers.
    Int8,
}

/// Commands for API keys.
#[derive(Debug, Subcommand)]
pub enum KeysCommand {
    /// Create a key, add its hash to the key file, and print it. The key is shown only once.
    New(NewKeyFlags),
    /// Show the keys of a file: names, tenants and limits. The keys themselves are not stored.
    List(ListKeysFlags),
    /// Remove a key. Servers that use the file refuse it from the next request on, without a restart.
    Revoke(RevokeKeyFlags),
}

/// Flags of `keys list`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  cascadia keys list --file keys.json")]
pub struct ListKeysFlags {
    /// Key file.
    #[arg(long, value_name = "FILE", default_value = "keys.json")]
    pub file: PathBuf,
    /// Print the result as one JSON object.
    #[arg(long)]
    pub json: bool,
}

/// Flags of `keys revoke`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  cascadia keys revoke anna --file keys.json")]
pub struct RevokeKeyFlags {
    /// Name of the key's owner, as `keys list` shows it.
    pub name: String,
    /// Key file.
    #[arg(long, value_name = "FILE", default_value = "keys.json")]
    pub file: PathBuf,
}

/// Flags of `keys new`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  cascadia keys new --file keys.json --name anna --tenant team-a --max-requests 4\n  \
    cascadia keys new --file keys.json --name ben --adapters pepys,rust\n  \
    cascadia keys new --file keys.json --name carla --admin"
)]
pub struct NewKeyFlags {
    /// Key file; created if missing.
    #[arg(long, value_name = "FILE", default_value = "keys.json")]
    pub file: PathBuf,
    /// Name of the key's owner.
    #[arg(long)]
    pub name: String,
    /// Tenant that the key's requests are counted for. Keys of one tenant share the prefix cache [default: the name].
    #[arg(long)]
    pub tenant: Option<String>,
    /// Priority of its requests.
    #[arg(long)]
    pub priority: Option<PriorityChoice>,
    /// Maximum number of concurrent requests.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub max_requests: Option<u32>,
    /// Maximum tokens per answer.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub max_tokens: Option<u32>,
    /// Adapters it may use, comma-separated [default: all].
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    pub adapters: Option<Vec<String>>,
    /// Allow it to add, replace and remove adapters.
    #[arg(long)]
    pub admin: bool,
}

/// Priority of requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum PriorityChoice {
    /// Served when nothing else waits.
    Low,
    /// Served in order.
    Normal,
    /// Served first.
    High,
}

/// The text of a time, once it is known to be one.
fn checked_time(text: &str) -> Result<String, String> {
    let wrong = || "use a time such as 30s, 5m, 1h, or forever".to_owned();
    KeepAlive::parse(text).map(|_| text.to_owned()).ok_or_else(wrong)
}

/// A text of a configuration file, or a list of them.
fn one_or_several<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum OneOrSeveral {
        One(String),
        Several(Vec<String>),
    }
    Ok(match OneOrSeveral::deserialize(deserializer)? {
        OneOrSeveral::One(text) => vec![text],
        OneOrSeveral::Several(texts) => texts,
    })
}

/// The text of a size, once it is known to be one.
fn checked_bytes(text: &str) -> Result<String, String> {
    parse_bytes(text).map(|_| text.to_owned())
}
