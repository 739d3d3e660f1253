//! Flags of `quantize`.

use std::path::PathBuf;

use clap::Args;

use super::{OutputFlags, ThreadFlags};

/// Flags of `quantize`.
#[derive(Debug, Args)]
#[command(after_help = "\
Types, widest first:
  f32 f16 bf16            unquantised floats
  q8_0 q6_k               almost lossless
  q5_k_m q5_k_s q5_0      5 bits; _m gives sensitive matrices more
  q4_k_m q4_k_s q4_0      4 bits; q4_k_m is the usual choice
  iq4_nl iq4_xs           4 bits, non-linear levels; iq4_xs is smaller than q4_k_s
  q3_k_l q3_k_m q3_k_s    3 bits; use --calibrate
  q2_k q2_k_s             2 bits; use --calibrate
  nf4 int4                4 bits in blocks of 64 and 128; readable by cascadia only

Examples:
  cascadia quantize model-folder/ model-q4_k_m.gguf --type q4_k_m
  cascadia quantize model-q4_k_m.gguf model-packed.gguf --packed
  cascadia quantize model-folder/ small.gguf --type q3_k_m --calibrate text.txt --keep output=q6_k
  cascadia quantize model-folder/ best.gguf --target-loss 0.3% --calibrate text.txt")]
pub struct QuantizeFlags {
    /// A model folder, a .safetensors or .gguf file, or org/name on the Hugging Face Hub.
    #[arg(value_name = "IN")]
    pub model: String,
    /// Output GGUF file.
    pub out: PathBuf,
    /// What may be replaced.
    #[command(flatten)]
    pub output: OutputFlags,
    /// Target type: a format or a mix of formats, see below.
    #[arg(long = "type", value_name = "TYPE", required_unless_present_any = ["target_loss", "packed"])]
    pub kind: Option<String>,
    /// Interleave matrix rows for faster kernels. Without --type, a GGUF file keeps its formats and values.
    #[arg(long)]
    pub packed: bool,
    /// Store matching tensors in another type, for example output=q6_k or blk.0.*=q8_0. May be repeated.
    #[arg(long, value_name = "PATTERN=TYPE")]
    pub keep: Vec<String>,
    /// Run the model on this text first, and give columns with large activations more weight in the error.
    #[arg(long, value_name = "TEXT", conflicts_with = "imatrix")]
    pub calibrate: Option<PathBuf>,
    /// Read column importance from an imatrix file of llama.cpp.
    #[arg(long, value_name = "FILE")]
    pub imatrix: Option<PathBuf>,
    /// Find the smallest mix whose perplexity, top-1 accuracy and divergence stay within this loss, for example 0.3%.
    #[arg(long, value_name = "PERCENT", conflicts_with_all = ["kind", "keep"])]
    pub target_loss: Option<String>,
    /// Text to measure the loss on [default: the one of --calibrate].
    #[arg(long, value_name = "TEXT", requires = "target_loss")]
    pub on: Option<PathBuf>,
    /// Maximum number of windows of each text.
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..))]
    pub windows: u32,
    /// Tokens per window.
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = clap::value_parser!(u32).range(1..))]
    pub window: u32,
    /// Compute threads.
    #[command(flatten)]
    pub threads: ThreadFlags,
    /// Print a summary of what was written as one JSON object.
    #[arg(long)]
    pub json: bool,
}
