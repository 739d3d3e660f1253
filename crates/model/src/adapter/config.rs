//! The settings of an adapter: adapter_config.json, or the metadata of a GGUF file.

use cascadia_weights::{FileKind, ModelFiles};
use serde_json::Value;

use super::files::error;
use crate::ModelError;

/// The file that PEFT keeps settings in.
pub(super) const CONFIG_FILE: &str = "adapter_config.json";

/// Ways to begin a training that change the base's weights, which the saved adapter then counts on.
const CHANGED_BASES: [&str; 4] = ["pissa", "olora", "corda", "loftq"];

/// Settings that would change what is computed, and are not supported unless they are absent, false or empty.
const UNSUPPORTED: [&str; 11] = [
    "modules_to_save",
    "layer_replication",
    "megatron_config",
    "alora_invocation_tokens",
    "arrow_config",
    "kasa_config",
    "monteclora_config",
    "use_bdlora",
    "use_qalora",
    "velora_config",
    "trainable_token_indices",
];

/// What the settings say.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct AdapterConfig {
    /// The model that it was trained on, as its author calls it.
    pub(super) base: Option<String>,
    pub(super) alpha: f32,
    /// Modules with another one, by the end of their names.
    pub(super) alphas: Vec<(String, f32)>,
    /// Whether updates are divided by the root of the rank (rsLoRA).
    pub(super) by_root: bool,
    /// Whether rows are scaled to learned magnitudes (DoRA).
    pub(super) magnitudes: bool,
    /// The rank, unless updates have others.
    pub(super) rank: Option<usize>,
    /// Parameters that it changes where those of several matrices are one, by the ends of their names.
    pub(super) parameters: Vec<String>,
}

impl AdapterConfig {
    /// Reads and checks the settings of an adapter.
    pub(super) fn read(files: &ModelFiles) -> Result<AdapterConfig, ModelError> {
        match files.kind() {
            FileKind::Gguf => from_metadata(files),
            FileKind::HuggingFace => from_json(files),
        }
    }

    /// What the update of a module of this rank is multiplied with.
    pub(super) fn scale(&self, module: &str, rank: usize) -> f32 {
        let is_for = |name: &str| module.strip_suffix(name).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'));
        let own = self.alphas.iter().find(|(name, _)| is_for(name));
        let alpha = own.map_or(self.alpha, |(_, alpha)| *alpha);
        let rank = rank as f64;
        (f64::from(alpha) / if self.by_root { rank.sqrt() } else { rank }) as f32
    }
}

fn from_metadata(files: &ModelFiles) -> Result<AdapterConfig, ModelError> {
    let metadata = files.metadata();
    for (key, wanted) in [("general.type", "adapter"), ("adapter.type", "lora")] {
        let found = metadata.value::<&str>(key)?;
        if found != Some(wanted) {
            return Err(error(files, key, format!("is {found:?} where an adapter has {wanted:?}")));
        }
    }
    let alpha = metadata.require::<f32>("adapter.lora.alpha")?;
    check_alpha(files, "adapter.lora.alpha", f64::from(alpha))?;
    let base = metadata.value::<&str>("general.base_model.0.name")?.map(str::to_owned);
    Ok(AdapterConfig { base, alpha, ..AdapterConfig::default() })
}

fn from_json(files: &ModelFiles) -> Result<AdapterConfig, ModelError> {
    let Some(config) = files.json(CONFIG_FILE)? else {
        return Err(error(files, CONFIG_FILE, "is not beside the weights; it says how much they count"));
    };
    let refuse = |key: &str, problem: String| Err(error(files, key, problem));
    if config["peft_type"] != "LORA" {
        return refuse("peft_type", format!("is {}; only \"LORA\" is supported", config["peft_type"]));
    }
    if let Some(key) = UNSUPPORTED.into_iter().find(|key| is_set(&config[*key])) {
        return refuse(key, format!("is {}, which is not supported; merge the adapter with `peft`", config[key]));
    }
    if let Some(start) = config["init_lora_weights"].as_str()
        && CHANGED_BASES.iter().any(|changed| start.starts_with(changed))
    {
        let advice = "save it with path_initial_model_for_weight_conversion, or merge it with `peft`";
        return refuse("init_lora_weights", format!("is \"{start}\", which counts on a changed base; {advice}"));
    }
    match config["r"].as_u64() {
        None if config["r"].is_null() => {}
        Some(1..=super::pairs::MOST_RANK) => {}
        _ => return refuse("r", format!("is {}; ranks of 1 to {} are possible", config["r"], super::pairs::MOST_RANK)),
    }
    let alpha = config["lora_alpha"].as_f64();
    let Some(alpha) = alpha else { return refuse("lora_alpha", format!("is {}", config["lora_alpha"])) };
    check_alpha(files, "lora_alpha", alpha)?;
    Ok(AdapterConfig {
        base: config["base_model_name_or_path"].as_str().map(str::to_owned),
        alpha: alpha as f32,
        alphas: alphas(files, &config["alpha_pattern"])?,
        by_root: config["use_rslora"] == true,
        magnitudes: config["use_dora"] == true,
        rank: config["r"].as_u64().map(|rank| rank as usize),
        parameters: parameters(files, &config["target_parameters"])?,
    })
}

/// The ends of the names of parameters.
fn parameters(files: &ModelFiles, names: &Value) -> Result<Vec<String>, ModelError> {
    let refuse = || error(files, "target_parameters", format!("is {names}; a list of names is expected"));
    let name = |name: &Value| name.as_str().map(str::to_owned).ok_or_else(refuse);
    match names {
        Value::Null => Ok(Vec::new()),
        Value::Array(names) => names.iter().map(name).collect(),
        _ => Err(refuse()),
    }
}

/// Modules with an alpha of their own.
fn alphas(files: &ModelFiles, pattern: &Value) -> Result<Vec<(String, f32)>, ModelError> {
    let Some(pattern) = pattern.as_object() else { return Ok(Vec::new()) };
    let one = |(name, alpha): (&String, &Value)| {
        if name.contains(['*', '+', '?', '[', '(', '{', '|', '^', '$', '\\']) {
            return Err(error(files, "alpha_pattern", format!("has `{name}`; only plain names are supported")));
        }
        let alpha = alpha.as_f64().unwrap_or(f64::NAN);
        check_alpha(files, "alpha_pattern", alpha)?;
        Ok((name.clone(), alpha as f32))
    };
    pattern.iter().map(one).collect()
}

fn check_alpha(files: &ModelFiles, key: &str, alpha: f64) -> Result<(), ModelError> {
    if alpha.is_finite() && alpha.abs() <= 1e6 { Ok(()) } else { Err(error(files, key, format!("is {alpha}"))) }
}

fn is_set(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => false,
        Value::Array(items) => !items.is_empty(),
        Value::Object(items) => !items.is_empty(),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_depend_on_rank_and_module() {
        let alphas = vec![("self_attn.q_proj".to_owned(), 8.0)];
        let config = AdapterConfig { alpha: 16.0, alphas, ..AdapterConfig::default() };
        assert_eq!(config.scale("model.layers.0.self_attn.k_proj", 8), 2.0);
        assert_eq!(config.scale("model.layers.0.self_attn.q_proj", 8), 1.0);
        assert_eq!(config.scale("model.layers.0.other_self_attn.q_proj", 8), 2.0);
        let rooted = AdapterConfig { by_root: true, ..config };
        assert_eq!(rooted.scale("model.layers.0.self_attn.k_proj", 16), 4.0);
    }
}
