//! Flags of `eval`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::load::part;
use super::{ActivationChoice, AdapterFlags, ComputeFlags, KvChoice, NumericsFlags};

/// Measurements of `eval`.
#[derive(Debug, Subcommand)]
pub enum EvalCommand {
    /// Perplexity of a text: windows of equal length, each starting with BOS, every token scored.
    Perplexity(PerplexityFlags),
    /// Write the logits of every position to a float32 .npy file, to compare with another implementation.
    Logits(LogitsFlags),
    /// Time of a decode step and of the first token, by context length and number of users.
    Latency(LatencyFlags),
    /// Memory of the KV cache as a sequence grows, measured and by arithmetic.
    Memory(MemoryFlags),
    /// How formats of the KV cache change predictions, and what is found in a long context.
    Drift(DriftFlags),
    /// Whether errors of a KV cache accumulate over a long text.
    Accumulation(AccumulationFlags),
    /// Compare two JSON reports of the same measurement. The exit code is 1 if the second is worse.
    Compare(CompareFlags),
}

/// Flags of `eval perplexity`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  cascadia eval perplexity model.gguf --text books.txt --windows 16\n  \
    cascadia eval perplexity q4_k_m.gguf q5_k_m.gguf --text books.txt --against model.gguf")]
pub struct PerplexityFlags {
    /// A short name (qwen3:4b), org/name on the Hugging Face Hub, a .gguf file or a model folder. Several are compared.
    #[arg(value_name = "MODEL", required = true)]
    pub models: Vec<String>,
    /// Text file to score.
    #[arg(long, value_name = "FILE")]
    pub text: PathBuf,
    /// Reference model, such as the unquantised one. Adds the Kullback-Leibler divergence from it. With --adapter, it has the
    /// adapters too.
    #[arg(long, value_name = "MODEL")]
    pub against: Option<String>,
    /// Maximum number of windows to score.
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..))]
    pub windows: u32,
    /// Tokens per window.
    #[arg(long, value_name = "N", default_value_t = 1023, value_parser = clap::value_parser!(u32).range(1..))]
    pub window: u32,
    /// Adapters.
    #[command(flatten)]
    pub adapter: AdapterFlags,
    /// Compute threads and kernels.
    #[command(flatten)]
    pub compute: ComputeFlags,
    /// Numerics.
    #[command(flatten)]
    pub numerics: NumericsFlags,
    /// Print the result as one JSON object.
    #[arg(long)]
    pub json: bool,
}

/// Flags of `eval logits`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  cascadia eval logits model/ --tokens 1,15,7 --out logits.npy")]
pub struct LogitsFlags {
    /// A short name (qwen3:4b), org/name on the Hugging Face Hub, a .gguf file or a model folder. No tokenizer is needed.
    pub model: String,
    /// Token ids, comma-separated.
    #[arg(long, value_name = "IDS", value_delimiter = ',', required = true)]
    pub tokens: Vec<u32>,
    /// Output file, of shape (positions, vocabulary).
    #[arg(long, value_name = "FILE.npy")]
    pub out: PathBuf,
    /// Maximum tokens per step. The result does not depend on it.
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = clap::value_parser!(u32).range(1..))]
    pub chunk: u32,
    /// Adapters.
    #[command(flatten)]
    pub adapter: AdapterFlags,
    /// Compute threads and kernels.
    #[command(flatten)]
    pub compute: ComputeFlags,
    /// Numerics.
    #[command(flatten)]
    pub numerics: NumericsFlags,
    /// Print a summary of what was written as one JSON object.
    #[arg(long)]
    pub json: bool,
}

/// The model of a measurement, and what computes it.
#[derive(Debug, Args)]
pub struct MeasuredModelFlags {
    /// A short name (qwen3:4b), org/name on the Hugging Face Hub, a .gguf file or a model folder [default: the built-in model].
    pub model: Option<String>,
    /// Compute threads and kernels.
    #[command(flatten)]
    pub compute: ComputeFlags,
    /// Precision of activations where they meet quantised weights.
    #[arg(long, value_name = "PRECISION", default_value = "int8")]
    pub activations: ActivationChoice,
}

/// Where a report goes.
#[derive(Debug, Args)]
#[command(next_help_heading = "Report")]
pub struct ReportFlags {
    /// Print the report as one JSON object.
    #[arg(long)]
    pub json: bool,
    /// Write the report as JSON, for `eval compare`.
    #[arg(long, value_name = "FILE.json")]
    pub out: Option<PathBuf>,
    /// Write the report as one HTML page with plots.
    #[arg(long, value_name = "FILE.html")]
    pub html: Option<PathBuf>,
}

/// Flags of `eval latency`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  cascadia eval latency model.gguf --contexts 256,1024,4096 --users 1,4,8\n  \
    cascadia eval latency model.gguf --kv int8 --out int8.json --html int8.html")]
pub struct LatencyFlags {
    /// Model.
    #[command(flatten)]
    pub model: MeasuredModelFlags,
    /// Tokens of each user's prompt, comma-separated; one run for each. Longer ones than the model has are shortened.
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "256,1024,4096")]
    pub contexts: Vec<u32>,
    /// Users that decode together, comma-separated; one run for each.
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "1,4,8",
        value_parser = clap::value_parser!(u32).range(1..=512))]
    pub users: Vec<u32>,
    /// Decode steps that are timed.
    #[arg(long, value_name = "N", default_value_t = 128, value_parser = clap::value_parser!(u32).range(1..))]
    pub steps: u32,
    /// How the KV cache stores all but the newest tokens.
    #[arg(long, value_name = "POLICY", default_value = "auto")]
    pub kv: KvChoice,
    /// Report.
    #[command(flatten)]
    pub report: ReportFlags,
}

/// Flags of `eval memory`.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  cascadia eval memory model.gguf --kv f16,int8,int4 --context 8192 --html memory.html"
)]
pub struct MemoryFlags {
    /// Model.
    #[command(flatten)]
    pub model: MeasuredModelFlags,
    /// Tokens of the sequence at its end [default: the model's limit, at most 32768].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..))]
    pub context: Option<u32>,
    /// Policies of the KV cache, comma-separated.
    #[arg(long, value_name = "POLICY,…", value_delimiter = ',', default_value = "auto")]
    pub kv: Vec<KvChoice>,
    /// Report.
    #[command(flatten)]
    pub report: ReportFlags,
}

/// Flags of `eval drift`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  cascadia eval drift model.gguf --text book.txt --kv f16,int8,int4 --html drift.html\n  \
    cascadia eval drift model.gguf --kv int4 --contexts 1024 --json"
)]
pub struct DriftFlags {
    /// Model.
    #[command(flatten)]
    pub model: MeasuredModelFlags,
    /// Text file to score. Without one, only the probes are run: a random passage that is repeated, and values that are
    /// asked for by key.
    #[arg(long, value_name = "FILE")]
    pub text: Option<PathBuf>,
    /// Policies of the KV cache, comma-separated. Each is compared with f32.
    #[arg(long, value_name = "POLICY,…", value_delimiter = ',', default_value = "f16,int8,auto,int4")]
    pub kv: Vec<KvChoice>,
    /// Lengths of the context in tokens, comma-separated. Longer ones than the model has are shortened.
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "256,512,1024,2048,4096")]
    pub contexts: Vec<u32>,
    /// Maximum number of windows of the text, each as long as the longest context.
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..))]
    pub windows: u32,
    /// Times the decoding of so many tokens at the end of each context too.
    #[arg(long, value_name = "TOKENS", default_value_t = 0)]
    pub speed: u32,
    /// Seed of the random tokens of the probes.
    #[arg(long, value_name = "S", default_value_t = 1)]
    pub seed: u64,
    /// Report.
    #[command(flatten)]
    pub report: ReportFlags,
}

/// Flags of `eval accumulation`.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  cascadia eval accumulation model.gguf --text book.txt --kv int4 --refresh 1024 --html int4.html"
)]
pub struct AccumulationFlags {
    /// Model.
    #[command(flatten)]
    pub model: MeasuredModelFlags,
    /// Text file to score as one sequence.
    #[arg(long, value_name = "FILE")]
    pub text: PathBuf,
    /// Policy of the KV cache. It is compared with f32.
    #[arg(long, value_name = "POLICY", default_value = "int4")]
    pub kv: KvChoice,
    /// Tokens after which the sequence is computed anew with the f32 cache, and quantised again.
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..))]
    pub refresh: u32,
    /// Tokens of the sequence [default: the model's limit, at most 4096].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub tokens: Option<u32>,
    /// Tokens whose results are averaged.
    #[arg(long, value_name = "N", default_value_t = 128, value_parser = clap::value_parser!(u32).range(1..))]
    pub block: u32,
    /// Report.
    #[command(flatten)]
    pub report: ReportFlags,
}

/// Flags of `eval compare`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  cascadia eval compare before.json after.json --tolerance 2%")]
pub struct CompareFlags {
    /// Report of the earlier measurement.
    #[arg(value_name = "A.json")]
    pub before: PathBuf,
    /// Report of the later measurement.
    #[arg(value_name = "B.json")]
    pub after: PathBuf,
    /// By which share of its earlier value a metric may be worse.
    #[arg(long, value_name = "SHARE", default_value = "1%", value_parser = part)]
    pub tolerance: f64,
    /// Report.
    #[command(flatten)]
    pub report: ReportFlags,
}
