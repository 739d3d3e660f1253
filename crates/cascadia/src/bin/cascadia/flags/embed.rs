//! Flags of `embed` and `rerank`.

use std::path::PathBuf;

use clap::Args;

use super::MachineFlags;

/// Flags of `embed`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  cascadia embed sentence-transformers/all-MiniLM-L6-v2 \"A lighthouse at night.\"\n  \
    cascadia embed model-folder/ --input lines.txt --out vectors.npy\n  \
    cascadia embed model-folder/ --prompt-name query \"Who keeps the light?\"\n\n\
    Prints one JSON object per text, with its index and embedding, unless --out is given."
)]
pub struct EmbedFlags {
    /// A .gguf file, a model folder, or org/name on the Hugging Face Hub.
    pub model: String,
    /// The texts [default: lines of standard input].
    pub texts: Vec<String>,
    /// Read the texts from this file, one in each line.
    #[arg(short, long, value_name = "FILE", conflicts_with = "texts")]
    pub input: Option<PathBuf>,
    /// Write a float32 matrix of numpy (.npy) with a row for each text.
    #[arg(short, long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Put one of the model's own prompts before each text, such as query or document.
    #[arg(long, value_name = "NAME")]
    pub prompt_name: Option<String>,
    /// Cut texts that have more tokens than the model reads, instead of stopping with an error.
    #[arg(long)]
    pub truncate: bool,
    /// Keep so many of the first numbers and make them one long again, for models that were trained for it.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub dimensions: Option<u32>,
    /// Memory and threads.
    #[command(flatten)]
    pub machine: MachineFlags,
}

/// Flags of `rerank`.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  cascadia rerank BAAI/bge-reranker-base --query \"Who keeps the light?\" \"A boat.\" \
    \"The keeper.\"\n\nPrints one JSON object per document, the best first, with its index and a score between 0 and 1."
)]
pub struct RerankFlags {
    /// A .gguf file, a model folder, or org/name on the Hugging Face Hub.
    pub model: String,
    /// What is sought.
    #[arg(short, long, value_name = "TEXT")]
    pub query: String,
    /// The documents [default: lines of standard input].
    pub documents: Vec<String>,
    /// Read the documents from this file, one in each line.
    #[arg(short, long, value_name = "FILE", conflicts_with = "documents")]
    pub input: Option<PathBuf>,
    /// Print so many of the best.
    #[arg(long, value_name = "N")]
    pub top_n: Option<usize>,
    /// Cut texts that have more tokens than the model reads, instead of stopping with an error.
    #[arg(long)]
    pub truncate: bool,
    /// Memory and threads.
    #[command(flatten)]
    pub machine: MachineFlags,
}
