//! The command line as types: every command, its flags and its help.

use std::path::PathBuf;
use std::str::FromStr;

use cascadia_engine::OpenOptions;
use cascadia_kernels::{ActivationPrecision, Reading, ReadingError};
use clap::{Args, Parser, Subcommand, ValueEnum};
use serde::{Deserialize, Serialize};

mod adapter;
mod audit;
mod chaos;
mod embed;
mod eval;
mod fleet;
mod kv;
mod load;
mod output;
mod pages;
mod plan;
mod quantize;
mod serve;
mod store;

pub use adapter::{AdapterChoice, AdapterCommand, AdapterFlags, AdapterInspectFlags, AdapterMergeFlags};
pub use audit::{AuditCommand, AuditShowFlags, AuditVerifyFlags};
pub use chaos::{ChaosFlags, Fault};
pub use embed::{EmbedFlags, RerankFlags};
pub use eval::{
    AccumulationFlags, CompareFlags, DriftFlags, EvalCommand, LatencyFlags, LogitsFlags, MeasuredModelFlags,
    MemoryFlags, PerplexityFlags, ReportFlags,
};
pub use fleet::{
    ExportFlags, FleetCommand, FleetDecisionFlags, FleetInitFlags, FleetInviteFlags, FleetPushFlags, FleetRevokeFlags,
    FleetRotateFlags, FleetStatusFlags, FleetTrustFlags, HomeFlags, JoinFlags, LeaveFlags, Priority, StageCount,
    WorkerCommand, WorkerFlags, WorkerHeadFlags, WorkerLimitsFlags, WorkerRunFlags,
};
pub use kv::KvChoice;
pub use load::LoadFlags;
pub use output::OutputFlags;
pub use pages::{NumaChoice, PageFlags};
pub use plan::{Imagined, PlanFlags};
pub use quantize::QuantizeFlags;
pub use serve::{
    KeysCommand, ListKeysFlags, LogChoice, NewKeyFlags, PriorityChoice, RevokeKeyFlags, ServeFlags, WireChoice,
};
pub use store::{ListFlags, NetworkFlags, PsFlags, PullFlags, RmFlags, ShowFlags};

/// Run open large language models on CPUs: on one machine, or split across several.
#[derive(Debug, Parser)]
#[command(name = "cascadia", version, propagate_version = true, arg_required_else_help = true)]
#[command(after_help = "Examples:\n  cascadia run smollm2 \"Why is the sky blue?\"\n  \
    cascadia serve Qwen/Qwen2.5-0.5B-Instruct\n\nDocumentation: docs/README.md")]
pub struct Flags {
    /// The command to run.
    #[command(subcommand)]
    pub command: Command,
}

/// One of the program's commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Answer one prompt, or start a chat if no prompt is given.
    Run(RunFlags),
    /// Show or write the embeddings of texts.
    Embed(EmbedFlags),
    /// Rank documents by how well they answer a query.
    Rerank(RerankFlags),
    /// Serve a model over HTTP: OpenAI, Anthropic and Ollama APIs, and a web page.
    Serve(Box<ServeFlags>),
    /// Fetch a model, or check that a stored one is whole.
    Pull(PullFlags),
    /// List the models of this machine, or those that can be fetched by a short name.
    List(ListFlags),
    /// Show the essentials of a model in ten lines.
    Show(ShowFlags),
    /// Delete stored models.
    Rm(RmFlags),
    /// Show which models a running server has loaded.
    Ps(PsFlags),
    /// Create, list and revoke API keys of a server.
    #[command(subcommand)]
    Keys(KeysCommand),
    /// Show a model's architecture, tensor formats, tokenizer and memory needs.
    Inspect(InspectFlags),
    /// Measure quality, latency and memory of a model, and compare reports.
    #[command(subcommand)]
    Eval(EvalCommand),
    /// Measure speed: prefill and decode, a machine, a server, or failover of a fleet.
    Bench(BenchFlags),
    /// Convert a model to GGUF in a smaller format.
    Quantize(QuantizeFlags),
    /// Show an adapter (LoRA), or merge it into a model.
    #[command(subcommand)]
    Adapter(AdapterCommand),
    /// Split a model into shards, one per pipeline stage.
    Export(ExportFlags),
    /// Show how a model would be split across machines, and the expected speed.
    Plan(PlanFlags),
    /// Manage a fleet from its coordinator: invite, push shards, show status, revoke.
    #[command(subcommand)]
    Fleet(FleetCommand),
    /// Show and verify the fleet's tamper-evident audit log.
    #[command(subcommand)]
    Audit(AuditCommand),
    /// Join a fleet as a worker.
    Join(JoinFlags),
    /// Leave the fleet: delete this machine's key and shards.
    Leave(LeaveFlags),
    /// Run a shard for the fleet that this machine has joined, and set its limits.
    #[command(subcommand)]
    Worker(WorkerCommand),
    /// Show the tokens of a text or a conversation.
    Tokenize(TokenizeFlags),
    /// Print a script that lets a shell complete commands and flags.
    Completions(CompletionsFlags),
    /// Write the manual pages.
    Man(ManFlags),
}

/// Flags of `run`.
#[derive(Debug, Clone, Args)]
#[command(after_help = "Examples:\n  cascadia run smollm2 \"Why is the sky blue?\"\n  cascadia run qwen3:4b\n  \
    cascadia run org/name:Q4_K_M -p \"Describe a lighthouse at night.\" --seed 7\n  \
    cascadia run model.gguf --raw -p \"Once upon a time\" -n 64 --temp 0\n  echo \"Hello\" | cascadia run org/name --json\n  \
    cascadia run model-folder/ --type q4_k_m")]
pub struct RunFlags {
    /// A short name (smollm2, qwen3:4b, see `cascadia list --catalogue`), org/name[:Q4_K_M] on the Hugging Face Hub, a
    /// .gguf file or a model folder [default: the built-in model].
    pub model: Option<String>,
    /// The prompt.
    #[arg(value_name = "PROMPT", conflicts_with = "prompt")]
    pub words: Vec<String>,
    /// Whether models may be fetched.
    #[command(flatten)]
    pub network: NetworkFlags,
    /// Quantise the model to this type first, see `quantize --help`. Done once: the result is kept in
    /// ~/.cache/cascadia/quantised.
    #[arg(long = "type", value_name = "TYPE")]
    pub kind: Option<String>,
    /// The prompt, where it begins with a dash or there is no MODEL [default: a chat, or standard input if that is not a
    /// terminal].
    #[arg(short, long, value_name = "TEXT")]
    pub prompt: Option<String>,
    /// Maximum number of tokens to generate.
    #[arg(short = 'n', long = "max-tokens", value_name = "N", default_value_t = 512)]
    pub max_tokens: u32,
    /// System prompt.
    #[arg(long, value_name = "TEXT")]
    pub system: Option<String>,
    /// Continue the prompt as plain text, without the chat template.
    #[arg(long, conflicts_with = "system")]
    pub raw: bool,
    /// Stop when this text appears. May be repeated.
    #[arg(long, value_name = "TEXT")]
    pub stop: Vec<String>,
    /// Speculative decoding: maximum draft tokens per step, taken from the text itself; 0 is off. Answers do not change.
    /// Faster where an answer repeats its prompt.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(..=64))]
    pub draft_tokens: u32,
    /// Print one JSON object with the answer and its timings.
    #[arg(long)]
    pub json: bool,
    /// Adapters.
    #[command(flatten)]
    pub adapter: AdapterFlags,
    /// Sampling parameters.
    #[command(flatten)]
    pub sampling: SamplingFlags,
    /// Memory and threads.
    #[command(flatten)]
    pub machine: MachineFlags,
}

/// Flags for sampling.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Sampling")]
pub struct SamplingFlags {
    /// Temperature. 0 always picks the most likely token (greedy) [default: the model's, or 0.8].
    #[arg(long = "temp", value_name = "T", allow_negative_numbers = true)]
    pub temperature: Option<f32>,
    /// Nucleus sampling: sample from the smallest set of tokens with this total probability. 1 is off
    /// [default: the model's, or 0.95].
    #[arg(long, value_name = "P", allow_negative_numbers = true)]
    pub top_p: Option<f32>,
    /// Sample from the K most likely tokens only. 0 is off [default: the model's, or 40].
    #[arg(long, value_name = "K")]
    pub top_k: Option<u32>,
    /// Drop tokens less likely than this fraction of the most likely one. 0 is off [default: the model's, or 0.05].
    #[arg(long, value_name = "P", allow_negative_numbers = true)]
    pub min_p: Option<f32>,
    /// Penalise tokens that occur in the prompt or the answer. 1 is off [default: the model's, or 1].
    #[arg(long, value_name = "X", allow_negative_numbers = true)]
    pub repeat_penalty: Option<f32>,
    /// Penalise tokens that occur in the answer, once each. 0 is off.
    #[arg(long, value_name = "X", default_value_t = 0.0, allow_negative_numbers = true)]
    pub presence_penalty: f32,
    /// Penalise tokens that occur in the answer, for each occurrence. 0 is off.
    #[arg(long, value_name = "X", default_value_t = 0.0, allow_negative_numbers = true)]
    pub frequency_penalty: f32,
    /// Random seed. The same seed gives the same text [default: random, and printed].
    #[arg(long, value_name = "S")]
    pub seed: Option<u64>,
}

/// Flags for compute threads.
#[derive(Debug, Clone, Args)]
pub struct ThreadFlags {
    /// Compute threads [default: one per core this process may use, chosen by a short measurement].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub threads: Option<u32>,
    /// Pin each compute thread to its own core (Linux only). Use it on dedicated machines.
    #[arg(long)]
    pub pin: bool,
}

/// Flags for what computes a model.
#[derive(Debug, Clone, Args)]
pub struct ComputeFlags {
    /// Compute threads.
    #[command(flatten)]
    pub threads: ThreadFlags,
    /// How kernels read weights: auto, default, or a fixed way such as far:l2:4096. Changes speed only, never tokens.
    /// auto measures each kind of matrix the first time it is loaded, and remembers the fastest way.
    #[arg(long, value_name = "WAY", default_value = "auto")]
    pub kernels: KernelChoice,
}

/// A value of `--kernels`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum KernelChoice {
    /// What is fastest here.
    Auto,
    /// What is good on most machines.
    Default,
    /// Always like this.
    Fixed(Reading),
}

impl TryFrom<String> for KernelChoice {
    type Error = ReadingError;

    fn try_from(text: String) -> Result<KernelChoice, ReadingError> {
        text.parse()
    }
}

impl From<KernelChoice> for String {
    fn from(choice: KernelChoice) -> String {
        match choice {
            KernelChoice::Auto => "auto".to_owned(),
            KernelChoice::Default => "default".to_owned(),
            KernelChoice::Fixed(reading) => reading.to_string(),
        }
    }
}

impl FromStr for KernelChoice {
    type Err = ReadingError;

    fn from_str(text: &str) -> Result<KernelChoice, ReadingError> {
        match text {
            "auto" => Ok(KernelChoice::Auto),
            "default" => Ok(KernelChoice::Default),
            _ => Ok(KernelChoice::Fixed(text.parse()?)),
        }
    }
}

/// Flags for what tokens depend on besides the model.
#[derive(Debug, Clone, Args)]
pub struct NumericsFlags {
    /// Precision of activations where they meet quantised weights. int8 is fast. int16 computes what the weights say, at
    /// about two thirds of the speed; prompts take up to twice as long.
    #[arg(long, value_name = "PRECISION", default_value = "int8")]
    pub activations: ActivationChoice,
    /// How the KV cache stores all but the newest tokens: auto, exact, quality, balanced, max, a format (f32, f16, bf16,
    /// fp8, int8, int4, int3, int2), formats of keys and values (int8/int4), or a policy file (.toml).
    #[arg(long, value_name = "POLICY", default_value = "auto")]
    pub kv: KvChoice,
}

impl NumericsFlags {
    /// The options with what these flags say.
    pub(crate) fn apply(&self, options: OpenOptions) -> anyhow::Result<OpenOptions> {
        Ok(OpenOptions { activations: self.activations.into(), kv: self.kv.policy()?, ..options })
    }
}

/// A value of `--activations`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ActivationChoice {
    /// Bytes with a scale per block.
    #[default]
    Int8,
    /// About sixteen bits: bytes, and bytes of what these lack.
    Int16,
}

impl From<ActivationChoice> for ActivationPrecision {
    fn from(choice: ActivationChoice) -> ActivationPrecision {
        match choice {
            ActivationChoice::Int8 => ActivationPrecision::Int8,
            ActivationChoice::Int16 => ActivationPrecision::Int16,
        }
    }
}

/// Flags for threads, context and memory.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Machine")]
pub struct MachineFlags {
    /// Compute threads and kernels.
    #[command(flatten)]
    pub compute: ComputeFlags,
    /// Context length: prompt and answer together, in tokens [default: the model's limit, at most 4096].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub ctx: Option<u32>,
    /// Memory limit for the process, such as 6G or 800MiB. Layers that do not fit are read from disk at every step.
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    pub memory: Option<u64>,
    /// Numerics.
    #[command(flatten)]
    pub numerics: NumericsFlags,
    /// Where weights lie in memory.
    #[command(flatten)]
    pub pages: PageFlags,
}

/// Flags of `inspect`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  cascadia inspect model.gguf --ctx 8192\n  cascadia inspect qwen3:4b --verbose")]
pub struct InspectFlags {
    /// A short name (qwen3:4b), org/name on the Hugging Face Hub, a .gguf file or a model folder.
    pub model: String,
    /// Context length to compute the memory for [default: the model's limit].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub ctx: Option<u32>,
    /// Print everything that the files say, and every tensor.
    #[arg(short, long)]
    pub verbose: bool,
    /// Print all of it as one JSON object.
    #[arg(long)]
    pub json: bool,
}

/// Flags of `completions`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  cascadia completions bash > ~/.local/share/bash-completion/completions/cascadia\n  \
    cascadia completions zsh > \"${fpath[1]}/_cascadia\"\n  cascadia completions fish > ~/.config/fish/completions/cascadia.fish"
)]
pub struct CompletionsFlags {
    /// The shell.
    pub shell: clap_complete::Shell,
}

/// Flags of `man`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  cascadia man ~/.local/share/man/man1")]
pub struct ManFlags {
    /// The folder for the pages; it is made if need be.
    pub folder: PathBuf,
}

/// Flags of `bench`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
#[command(after_help = "Examples:\n  cascadia bench model.gguf --depth 0,1024 --threads 2 --json\n  \
    cascadia bench model.gguf --batch 4,8\n  cascadia bench model.gguf --profile --trace trace.json\n  \
    cascadia bench machine model.gguf\n  cascadia bench serve http://127.0.0.1:8080 --clients 8")]
pub struct BenchFlags {
    /// What to measure, if not a model.
    #[command(subcommand)]
    pub command: Option<BenchCommand>,
    /// A short name (qwen3:4b), org/name on the Hugging Face Hub, a .gguf file or a model folder.
    #[arg(required = true)]
    pub model: Option<String>,
    /// Quantise the model to this type first, see `quantize --help`. Done once: the result is kept in
    /// ~/.cache/cascadia/quantised.
    #[arg(long = "type", value_name = "TYPE")]
    pub kind: Option<String>,
    /// Prompt length for the prefill measurement, in tokens.
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = clap::value_parser!(u32).range(1..))]
    pub prompt: u32,
    /// Number of tokens to decode.
    #[arg(long = "gen", value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..))]
    pub generate: u32,
    /// Tokens already in the context, comma-separated; one run for each.
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "0")]
    pub depth: Vec<u32>,
    /// Measure batched decode instead: this many sequences at once, each with its own prompt; one run for each.
    #[arg(long, value_name = "N,…", value_delimiter = ',', conflicts_with_all = ["depth", "profile", "adapter"])]
    pub batch: Vec<u32>,
    /// Measure what adapters cost batched decode: this many different ones of random numbers.
    #[arg(long, value_name = "N", requires = "batch", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub adapters: Option<u32>,
    /// Rank of those adapters.
    #[arg(long, value_name = "R", requires = "adapters", default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=256))]
    pub rank: u32,
    /// What those adapters change.
    #[arg(long, requires = "adapters", value_enum, default_value = "attention")]
    pub targets: TargetsFlag,
    /// Profile instead: time per operation and per layer, next to the machine's limits.
    #[arg(long)]
    pub profile: bool,
    /// Also write a trace file for chrome://tracing or Perfetto.
    #[arg(long, value_name = "FILE", requires = "profile")]
    pub trace: Option<PathBuf>,
    /// Compute threads and kernels.
    #[command(flatten)]
    pub compute: ComputeFlags,
    /// Numerics.
    #[command(flatten)]
    pub numerics: NumericsFlags,
    /// Memory limit for the process, such as 6G or 800MiB. Layers that do not fit are read from disk at every step.
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    pub memory: Option<u64>,
    /// Where weights lie in memory.
    #[command(flatten)]
    pub pages: PageFlags,
    /// Adapters.
    #[command(flatten)]
    pub adapter: AdapterFlags,
    /// Repetitions of each measurement.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    pub repeat: u32,
    /// Print the result as one JSON object.
    #[arg(long)]
    pub json: bool,
}

/// Matrices that adapters of `bench` change.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum TargetsFlag {
    /// Those before and after attention.
    Attention,
    /// Those of the feed-forward part too.
    All,
}

/// What else `bench` can measure.
#[derive(Debug, Subcommand)]
pub enum BenchCommand {
    /// Measure this machine's limits: memory bandwidth, arithmetic, thread barrier, disk.
    Machine(MachineBenchFlags),
    /// Load-test a server: any server with an OpenAI-compatible API.
    Serve(LoadFlags),
    /// Start a fleet on this machine, kill its workers while it answers, and compare every token.
    Chaos(ChaosFlags),
}

/// Flags of `bench machine`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  cascadia bench machine model.gguf --json")]
pub struct MachineBenchFlags {
    /// Model file. Memory bandwidth is then measured on its mapped weights, and its disk is measured too.
    pub model: Option<PathBuf>,
    /// Compute threads.
    #[command(flatten)]
    pub threads: ThreadFlags,
    /// Print the result as one JSON object.
    #[arg(long)]
    pub json: bool,
}

/// Flags of `tokenize`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  cascadia tokenize model.gguf -p \"It is raining.\"\n  \
    echo '[{\"role\": \"user\", \"content\": \"Hi\"}]' | cascadia tokenize org/name --json\n\n\
    With --json, each line of standard input is one JSON value. A string is a text. A list of messages is a \
    conversation; so is an object with `messages`, optional `tools` and other template variables (`now` sets the \
    template's clock, in seconds since 1970). Each output line is an object with `ids` and `text`, or with `error`.")]
pub struct TokenizeFlags {
    /// A short name (qwen3:4b), org/name on the Hugging Face Hub, a .gguf file, a model folder or a tokenizer.json.
    pub model: String,
    /// The text [default: standard input].
    #[arg(short, long, value_name = "TEXT", conflicts_with = "json")]
    pub prompt: Option<String>,
    /// Treat the names of special tokens as ordinary text.
    #[arg(long)]
    pub plain: bool,
    /// Do not add the beginning-of-text token (BOS).
    #[arg(long)]
    pub no_bos: bool,
    /// Chat template to use instead of the model's.
    #[arg(long, value_name = "FILE")]
    pub template: Option<PathBuf>,
    /// Read and write JSON Lines: one JSON value per line.
    #[arg(long)]
    pub json: bool,
}

/// A size such as `6G`, `1.5GB` (powers of 1000) or `800MiB` (powers of 1024).
pub(crate) fn parse_bytes(text: &str) -> Result<u64, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let unit = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 1.0,
        "k" | "kb" => 1e3,
        "m" | "mb" => 1e6,
        "g" | "gb" => 1e9,
        "t" | "tb" => 1e12,
        "kib" => 1024.0,
        "mib" => 1024.0 * 1024.0,
        "gib" => 1024.0 * 1024.0 * 1024.0,
        _ => return Err(format!("unknown unit `{unit}`; use K, M, G, KiB, MiB or GiB")),
    };
    match number.parse::<f64>() {
        Ok(number) if number > 0.0 => Ok((number * unit) as u64),
        _ => Err("give a size such as 6G or 800MiB".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units() {
        let check = |text: &str, bytes: Option<u64>| assert_eq!(parse_bytes(text).ok(), bytes, "{text}");
        check("3G", Some(3_000_000_000));
        check("1.5gb", Some(1_500_000_000));
        check("800MiB", Some(800 << 20));
        check("12", Some(12));
        for wrong in ["", "G", "-1G", "0", "3 G", "3X", "1e9", "..", "3GiBs"] {
            check(wrong, None);
        }
    }
}
