//! The command line as types: every command, its flags and its help.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

mod audit;
mod chaos;
mod fleet;
mod load;
mod plan;
mod quantize;
mod serve;

pub use audit::{AuditCommand, AuditShowFlags, AuditVerifyFlags};
pub use chaos::{ChaosFlags, Fault};
pub use fleet::{
    ExportFlags, FleetCommand, FleetInitFlags, FleetPushFlags, FleetRevokeFlags, FleetStatusFlags, FleetTrustFlags,
    HomeFlags, JoinFlags, LeaveFlags, Priority, StageCount, WorkerCommand, WorkerFlags, WorkerHeadFlags,
    WorkerLimitsFlags,
};
pub use load::LoadFlags;
pub use plan::{Imagined, PlanFlags};
pub use quantize::QuantizeFlags;
pub use serve::{KeysCommand, LogChoice, NewKeyFlags, PriorityChoice, ServeFlags, WireChoice};

/// Runs open large language models on the CPUs people already own.
#[derive(Debug, Parser)]
#[command(name = "cascadia", version, propagate_version = true, arg_required_else_help = true)]
#[command(after_help = "Example:\n  cascadia run -p \"Tell me about a harbour at night.\"")]
pub struct Flags {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// One of the program's commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Answer a prompt, or chat when no prompt is given.
    Run(RunFlags),
    /// Serve a model over HTTP: the APIs of OpenAI, Anthropic and Ollama, and a web page.
    Serve(ServeFlags),
    /// Make keys for a server.
    #[command(subcommand)]
    Keys(KeysCommand),
    /// Show what a model file holds and how much memory it needs.
    Inspect(InspectFlags),
    /// Measure the quality of a model.
    #[command(subcommand)]
    Eval(EvalCommand),
    /// Measure prefill and decode speed.
    Bench(BenchFlags),
    /// Convert a model to GGUF in another number format.
    Quantize(QuantizeFlags),
    /// Cut a model into shards, one for each machine that will run a part of it.
    Export(ExportFlags),
    /// Show how a model would be spread over machines, and how fast that would be.
    Plan(PlanFlags),
    /// Lead a fleet of machines that run a model together.
    #[command(subcommand)]
    Fleet(FleetCommand),
    /// Look at what was done with the fleet, and check that nobody changed the record of it.
    #[command(subcommand)]
    Audit(AuditCommand),
    /// Join the fleet of a coordinator.
    Join(JoinFlags),
    /// Leave it: remove the key and the shards from this machine.
    Leave(LeaveFlags),
    /// Run a part of a model for the fleet that this machine has joined.
    #[command(subcommand)]
    Worker(WorkerCommand),
    /// Show the tokens of a text, or of a conversation.
    Tokenize(TokenizeFlags),
}

/// Flags of `run`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  cascadia run\n  cascadia run -p \"Describe a model_workers at night.\" --seed 7\n  \
    cascadia run model.gguf --raw -p \"Once upon a time\" -n 64 --temp 0\n  echo \"Hello\" | cascadia run org/name --json"
)]
pub struct RunFlags {
    /// A .gguf file, a model folder, or org/name on the Hugging Face hub; without it the model inside the program.
    pub model: Option<String>,
    /// The prompt; without it an interactive chat, or standard input when that is not a terminal.
    #[arg(short, long, value_name = "TEXT")]
    pub prompt: Option<String>,
    /// The most tokens to generate.
    #[arg(short = 'n', long = "max-tokens", value_name = "N", default_value_t = 512)]
    pub max_tokens: u32,
    /// What the model is told before the conversation.
    #[arg(long, value_name = "TEXT")]
    pub system: Option<String>,
    /// Use the prompt as it stands, without the model's chat template.
    #[arg(long, conflicts_with = "system")]
    pub raw: bool,
    /// Stop at this text; may be given several times.
    #[arg(long, value_name = "TEXT")]
    pub stop: Vec<String>,
    /// Print one JSON object with the answer and the speeds.
    #[arg(long)]
    pub json: bool,
    /// How tokens are chosen.
    #[command(flatten)]
    pub sampling: SamplingFlags,
    /// Memory and threads.
    #[command(flatten)]
    pub machine: MachineFlags,
}

/// Flags that say how tokens are chosen.
#[derive(Debug, Args)]
#[command(next_help_heading = "Sampling")]
pub struct SamplingFlags {
    /// Temperature; 0 always takes the most likely token.
    #[arg(long = "temp", value_name = "T", default_value_t = 0.8, allow_negative_numbers = true)]
    pub temperature: f32,
    /// Keep the most likely tokens up to this probability.
    #[arg(long, value_name = "P", default_value_t = 0.95, allow_negative_numbers = true)]
    pub top_p: f32,
    /// Keep this many of the most likely tokens; 0 keeps all.
    #[arg(long, value_name = "K", default_value_t = 40)]
    pub top_k: u32,
    /// Keep tokens at least this likely relative to the most likely one.
    #[arg(long, value_name = "P", default_value_t = 0.05, allow_negative_numbers = true)]
    pub min_p: f32,
    /// Make tokens of the prompt and the answer less likely; 1 is off.
    #[arg(long, value_name = "X", default_value_t = 1.0, allow_negative_numbers = true)]
    pub repeat_penalty: f32,
    /// Make tokens of the answer less likely, however often they occur.
    #[arg(long, value_name = "X", default_value_t = 0.0, allow_negative_numbers = true)]
    pub presence_penalty: f32,
    /// Make tokens of the answer less likely each time they occur.
    #[arg(long, value_name = "X", default_value_t = 0.0, allow_negative_numbers = true)]
    pub frequency_penalty: f32,
    /// Same seed, same text; without it one is made up and reported.
    #[arg(long, value_name = "S")]
    pub seed: Option<u64>,
}

/// Flags that say which threads compute.
#[derive(Debug, Clone, Args)]
pub struct ThreadFlags {
    /// Threads to compute with; by default one per core that this process may use, found by a short measurement.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub threads: Option<u32>,
    /// Keep every helper thread on a core of its own (Linux); worth it on machines that do nothing else.
    #[arg(long)]
    pub pin: bool,
}

/// Flags that say how much of the machine to use.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Machine")]
pub struct MachineFlags {
    /// Threads to compute with.
    #[command(flatten)]
    pub threads: ThreadFlags,
    /// The most tokens of prompt and answer together; the model's own limit, up to 4096, by default.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub ctx: Option<u32>,
    /// The most memory to take, such as 6G or 800MiB; layers that do not fit are read from disk for every step.
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    pub memory: Option<u64>,
}

/// Flags of `inspect`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  cascadia inspect model.gguf --ctx 8192")]
pub struct InspectFlags {
    /// A .gguf file, a model folder, or org/name on the Hugging Face hub.
    pub model: String,
    /// The context for which memory is computed; the model's own limit by default.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub ctx: Option<u32>,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
}

/// What `eval` can measure.
#[derive(Debug, Subcommand)]
pub enum EvalCommand {
    /// Perplexity of a text: windows of equal length, each after BOS, every token scored.
    Perplexity(PerplexityFlags),
    /// Logits of every position as a float32 .npy file, for comparison with another implementation.
    Logits(LogitsFlags),
}

/// Flags of `eval perplexity`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  cascadia eval perplexity model.gguf --text books.txt --windows 16\n  \
    cascadia eval perplexity q4_k_m.gguf q5_k_m.gguf --text books.txt --against model.gguf")]
pub struct PerplexityFlags {
    /// A .gguf file, a model folder, or org/name on the Hugging Face hub; or several to be compared.
    #[arg(value_name = "MODEL", required = true)]
    pub models: Vec<String>,
    /// The text to score.
    #[arg(long, value_name = "FILE")]
    pub text: PathBuf,
    /// A model to compare with, such as the one this was quantised from: adds the Kullback-Leibler divergence.
    #[arg(long, value_name = "MODEL")]
    pub against: Option<String>,
    /// The most windows to score.
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..))]
    pub windows: u32,
    /// Tokens of one window.
    #[arg(long, value_name = "N", default_value_t = 1023, value_parser = clap::value_parser!(u32).range(1..))]
    pub window: u32,
    /// Threads to compute with.
    #[command(flatten)]
    pub threads: ThreadFlags,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
}

/// Flags of `eval logits`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  cascadia eval logits model/ --tokens 1,15,7 --out logits.npy")]
pub struct LogitsFlags {
    /// A .gguf file, a model folder, or org/name on the Hugging Face hub; needs no tokenizer.
    pub model: String,
    /// Token ids, separated by commas.
    #[arg(long, value_name = "IDS", value_delimiter = ',', required = true)]
    pub tokens: Vec<u32>,
    /// The file to write: shape (positions, vocabulary).
    #[arg(long, value_name = "FILE.npy")]
    pub out: PathBuf,
    /// The most tokens computed in one step; the result is the same for every number.
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = clap::value_parser!(u32).range(1..))]
    pub chunk: u32,
    /// Threads to compute with.
    #[command(flatten)]
    pub threads: ThreadFlags,
    /// Print one JSON object that says what was written.
    #[arg(long)]
    pub json: bool,
}

/// Flags of `bench`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
#[command(after_help = "Examples:\n  cascadia bench model.gguf --depth 0,1024 --threads 2 --json\n  \
    cascadia bench model.gguf --batch 4,8\n  cascadia bench model.gguf --profile --trace trace.json\n  \
    cascadia bench machine model.gguf\n  cascadia bench serve http://127.0.0.1:8080 --clients 8")]
pub struct BenchFlags {
    /// Something else to measure.
    #[command(subcommand)]
    pub command: Option<BenchCommand>,
    /// A .gguf file, a model folder, or org/name on the Hugging Face hub.
    #[arg(required = true)]
    pub model: Option<String>,
    /// Tokens of the prompt whose prefill is timed.
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = clap::value_parser!(u32).range(1..))]
    pub prompt: u32,
    /// Tokens whose decoding is timed.
    #[arg(long = "gen", value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..))]
    pub generate: u32,
    /// Tokens already in the context, separated by commas; one run for each.
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "0")]
    pub depth: Vec<u32>,
    /// Instead: decode this many sequences at once, each after a prompt of its own; one run for each.
    #[arg(long, value_name = "N,…", value_delimiter = ',', conflicts_with_all = ["depth", "profile"])]
    pub batch: Vec<u32>,
    /// Instead: show where the time goes, by kind of operation and by layer, beside what the machine could do.
    #[arg(long)]
    pub profile: bool,
    /// Also write every operation to a file that chrome://tracing and Perfetto show.
    #[arg(long, value_name = "FILE", requires = "profile")]
    pub trace: Option<PathBuf>,
    /// Threads to compute with.
    #[command(flatten)]
    pub threads: ThreadFlags,
    /// The most memory to take, such as 6G or 800MiB; layers that do not fit are read from disk for every step.
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    pub memory: Option<u64>,
    /// Times each measurement is repeated.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    pub repeat: u32,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
}

/// What `bench` can measure besides a model.
#[derive(Debug, Subcommand)]
pub enum BenchCommand {
    /// What this machine can do at best: reading memory, arithmetic, joining threads, reading a file.
    Machine(MachineBenchFlags),
    /// How a server behaves under load: any server that speaks OpenAI's API.
    Serve(LoadFlags),
    /// Whether a fleet drops or changes an answer while its machines are killed: starts one here and does so.
    Chaos(ChaosFlags),
}

/// Flags of `bench machine`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  cascadia bench machine model.gguf --json")]
pub struct MachineBenchFlags {
    /// A model file: memory is then measured by reading its weights as they are mapped, and its disk is measured too.
    pub model: Option<PathBuf>,
    /// Threads to compute with.
    #[command(flatten)]
    pub threads: ThreadFlags,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
}

/// Flags of `tokenize`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  cascadia tokenize model.gguf -p \"It is raining.\"\n  \
    echo '[{\"role\": \"user\", \"content\": \"Hi\"}]' | cascadia tokenize org/name --json\n\n\
    With --json, each line of standard input is one JSON value: a string is a text; a list of messages, or an object \
    with `messages` and perhaps `tools` and other variables of the template, is a conversation (`now` sets its clock, \
    in seconds since 1970). Each line of output is an object with `ids` and `text`, or with `error`.")]
pub struct TokenizeFlags {
    /// A .gguf file, a model folder, a tokenizer.json, or org/name on the Hugging Face hub.
    pub model: String,
    /// The text; without it standard input.
    #[arg(short, long, value_name = "TEXT", conflicts_with = "json")]
    pub prompt: Option<String>,
    /// Read names of special tokens as ordinary text.
    #[arg(long)]
    pub plain: bool,
    /// Leave out the token that begins a text.
    #[arg(long)]
    pub no_bos: bool,
    /// Render conversations with this template instead of the model's own.
    #[arg(long, value_name = "FILE")]
    pub template: Option<PathBuf>,
    /// Read and write one JSON value per line.
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
        _ => return Err(format!("`{unit}` is no unit of memory; use K, M, G, KiB, MiB or GiB")),
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
