//! Flags of `adapter`, and those of commands that run a model with adapters.

use std::path::PathBuf;
use std::str::FromStr;

use cascadia_engine::OpenOptions;
use clap::{Args, Subcommand};

use super::{OutputFlags, ThreadFlags};

/// What can be done with an adapter.
#[derive(Debug, Subcommand)]
pub enum AdapterCommand {
    /// Show what an adapter is: kind, base, ranks, modules, size.
    Inspect(AdapterInspectFlags),
    /// Write a model as GGUF with an adapter merged into its weights.
    Merge(AdapterMergeFlags),
}

/// Flags of `adapter inspect`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  cascadia adapter inspect my-adapter/ --json")]
pub struct AdapterInspectFlags {
    /// A PEFT folder, its .safetensors file, or a .gguf adapter.
    #[arg(value_name = "ADAPTER")]
    pub path: PathBuf,
    /// Print the result as one JSON object.
    #[arg(long)]
    pub json: bool,
}

/// Flags of `adapter merge`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  cascadia adapter merge model/ my-adapter/ merged.gguf\n  \
    cascadia adapter merge model/ my-adapter/:0.7 merged.gguf --type q4_k_m\n\n\
    Without --type, floats keep their format; quantised weights that the adapter changes become f16.")]
pub struct AdapterMergeFlags {
    /// A model folder, a .safetensors or .gguf file, or org/name on the Hugging Face Hub.
    #[arg(value_name = "BASE")]
    pub model: String,
    /// A PEFT folder, its .safetensors file, or a .gguf adapter; with a weight other than 1 after a colon.
    #[arg(value_name = "ADAPTER")]
    pub adapter: AdapterChoice,
    /// Output GGUF file.
    pub out: PathBuf,
    /// What may be replaced.
    #[command(flatten)]
    pub output: OutputFlags,
    /// Type of the result, see `quantize --help`.
    #[arg(long = "type", value_name = "TYPE")]
    pub kind: Option<String>,
    /// Compute threads.
    #[command(flatten)]
    pub threads: ThreadFlags,
    /// Print a summary of what was written as one JSON object.
    #[arg(long)]
    pub json: bool,
}

/// Adapters that a model is run with.
#[derive(Debug, Clone, Args)]
pub struct AdapterFlags {
    /// Run the model with this adapter: a PEFT folder, its .safetensors file, or a .gguf adapter. May be repeated; each counts
    /// as much as the number after the colon says.
    #[arg(long, value_name = "PATH[:WEIGHT]")]
    pub adapter: Vec<AdapterChoice>,
}

impl AdapterFlags {
    /// The options with these adapters.
    pub(crate) fn apply(&self, options: OpenOptions) -> OpenOptions {
        let adapters = self.adapter.iter().map(|AdapterChoice { path, weight }| (path.clone(), *weight)).collect();
        OpenOptions { adapters, ..options }
    }
}

/// An adapter, and how much it counts.
#[derive(Debug, Clone, PartialEq)]
pub struct AdapterChoice {
    /// Its files.
    pub path: PathBuf,
    /// What its change is multiplied with.
    pub weight: f32,
}

impl FromStr for AdapterChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<AdapterChoice, String> {
        // A colon may belong to the path.
        let weighted = text.rsplit_once(':').and_then(|(path, weight)| Some((path, weight.parse::<f32>().ok()?)));
        let (path, weight) = weighted.unwrap_or((text, 1.0));
        match !path.is_empty() && weight.is_finite() {
            true => Ok(AdapterChoice { path: path.into(), weight }),
            false => Err("give a path, and after a colon a finite number where its weight is not 1".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_weight_comes_after_the_last_colon() {
        let check = |text: &str, expected: Option<(&str, f32)>| {
            let expected = expected.map(|(path, weight)| AdapterChoice { path: path.into(), weight });
            assert_eq!(text.parse::<AdapterChoice>().ok(), expected, "{text}");
        };
        check("pepys", Some(("pepys", 1.0)));
        check("a/pepys:0.7", Some(("a/pepys", 0.7)));
        check("pepys:-1", Some(("pepys", -1.0)));
        check("C:\\adapters\\pepys", Some(("C:\\adapters\\pepys", 1.0)));
        check("C:\\adapters\\pepys:0.5", Some(("C:\\adapters\\pepys", 0.5)));
        check("2024:10:1", Some(("2024:10", 1.0)));
        for wrong in ["", ":0.5", "pepys:nan", "pepys:inf"] {
            check(wrong, None);
        }
    }
}
