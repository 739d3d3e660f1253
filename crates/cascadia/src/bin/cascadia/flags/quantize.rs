//! Flags of `quantize`.

use std::path::PathBuf;

use clap::Args;

use super::ThreadFlags;

/// Flags of `quantize`.
#[derive(Debug, Args)]
#[command(after_help = "\
Types, widest first:
  f32 f16 bf16            plain floats
  q8_0 q6_k               nearly no loss
  q5_k_m q5_k_s q5_0      5 bits; _m gives sensitive matrices more
  q4_k_m q4_k_s q4_0      4 bits; q4_k_m is the usual choice
  iq4_nl iq4_xs           4 bits on uneven levels, smaller than q4_k_s
  q3_k_l q3_k_m q3_k_s    3 bits; use --calibrate
  q2_k q2_k_s             2 bits; use --calibrate
  nf4 int4                4 bits in blocks of 64 and 128; only for this program

Examples:
  cascadia quantize model-folder/ model-q4_k_m.gguf --type q4_k_m
  cascadia quantize model-q4_k_m.gguf model-packed.gguf --packed
  cascadia quantize model-folder/ small.gguf --type q3_k_m --calibrate text.txt --keep output=q6_k
  cascadia quantize model-folder/ best.gguf --target-loss 0.3% --calibrate text.txt")]
pub struct QuantizeFlags {
    /// A model folder, a .safetensors or .gguf file, or org/name on the Hugging Face hub.
    #[arg(value_name = "IN")]
    pub model: String,
    /// The GGUF file to write.
    pub out: PathBuf,
    /// The number format, or mix of formats, of the result; see below.
    #[arg(long = "type", value_name = "TYPE", required_unless_present_any = ["target_loss", "packed"])]
    pub kind: Option<String>,
    /// Interleave the rows of matrices for faster kernels; without --type, a GGUF file keeps its numbers.
    #[arg(long)]
    pub packed: bool,
    /// Store some tensors in another type, for example output=q6_k or blk.0.*=q8_0; may be given several times.
    #[arg(long, value_name = "PATTERN=TYPE")]
    pub keep: Vec<String>,
    /// Run the model over this text first, and keep the columns that its activations use most closest.
    #[arg(long, value_name = "TEXT", conflicts_with = "imatrix")]
    pub calibrate: Option<PathBuf>,
    /// Read the importance of columns from a file of llama.cpp's llama-imatrix.
    #[arg(long, value_name = "FILE")]
    pub imatrix: Option<PathBuf>,
    /// Search the smallest mix that loses no more than this of perplexity and of top-1 accuracy, for example 0.3%.
    #[arg(long, value_name = "PERCENT", conflicts_with_all = ["kind", "keep"])]
    pub target_loss: Option<String>,
    /// The text on which the loss is measured; the one of --calibrate by default.
    #[arg(long, value_name = "TEXT", requires = "target_loss")]
    pub on: Option<PathBuf>,
    /// The most windows of each text to run.
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..))]
    pub windows: u32,
    /// Tokens of one window.
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = clap::value_parser!(u32).range(1..))]
    pub window: u32,
    /// Threads to compute with.
    #[command(flatten)]
    pub threads: ThreadFlags,
    /// Print one JSON object that says what was written.
    #[arg(long)]
    pub json: bool,
}
