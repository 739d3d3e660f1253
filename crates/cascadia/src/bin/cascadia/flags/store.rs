//! Flags of the commands for stored models: `pull`, `list`, `show`, `rm` and `ps`.

use cascadia_hub::Network;
use clap::Args;

/// Whether models may be fetched.
#[derive(Debug, Clone, Copy, Args)]
pub struct NetworkFlags {
    /// Use stored models only, never the network. HF_HUB_OFFLINE=1 does the same for all commands.
    #[arg(long)]
    pub offline: bool,
}

impl NetworkFlags {
    /// What the flag means.
    pub(crate) fn network(self) -> Network {
        if self.offline { Network::Offline } else { Network::Online }
    }
}

/// Flags of `pull`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  cascadia pull smollm2\n  cascadia pull llama3.2:3b-q4_k_m\n  \
    cascadia pull Qwen/Qwen3-4B-GGUF:Q4_K_M\n\nA pull that was interrupted continues when it is run again.")]
pub struct PullFlags {
    /// A short name (smollm2, qwen3:4b, llama3.2:3b-q4_k_m), or org/name[:QUANTISATION] on the Hugging Face Hub.
    pub model: String,
}

/// Flags of `list`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  cascadia list\n  cascadia list --catalogue\n\n\
    ~/.config/cascadia/models.toml adds names to the catalogue, see docs/store.md.")]
pub struct ListFlags {
    /// List the short names of models that can be fetched instead, in the quantisation that fits this machine.
    #[arg(long)]
    pub catalogue: bool,
    /// Print the result as one JSON object.
    #[arg(long)]
    pub json: bool,
}

/// Flags of `show`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  cascadia show smollm2\n\n`cascadia inspect` shows everything that the files say.")]
pub struct ShowFlags {
    /// A stored model, a name of the catalogue, a .gguf file or a model folder. Nothing is fetched.
    pub model: String,
    /// Print the result as one JSON object.
    #[arg(long)]
    pub json: bool,
}

/// Flags of `rm`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  cascadia rm smollm2:135m-q4_1\n  cascadia rm Qwen/Qwen3-4B-GGUF:Q4_K_M --force\n\n\
    Models of Ollama are never deleted."
)]
pub struct RmFlags {
    /// Stored models, as `cascadia list` names them.
    #[arg(required = true)]
    pub models: Vec<String>,
    /// Do not ask before deleting from the cache that other Hugging Face tools use, too.
    #[arg(long)]
    pub force: bool,
}

/// Flags of `ps`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  cascadia ps --url http://127.0.0.1:8080")]
pub struct PsFlags {
    /// The server to ask.
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8080")]
    pub url: String,
    /// API key, for a server that needs one.
    #[arg(long, value_name = "KEY")]
    pub key: Option<String>,
    /// Print the result as one JSON object.
    #[arg(long)]
    pub json: bool,
}
