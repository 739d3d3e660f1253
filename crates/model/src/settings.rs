//! Settings of a model, by one key whether they come from config.json or from GGUF metadata.

use cascadia_weights::{FileKind, ModelFiles};
use serde_json::Value;

use crate::ModelError;

/// The same setting under its two names; GGUF names get the architecture as prefix.
#[derive(Clone, Copy)]
pub(crate) struct Key {
    pub(crate) json: &'static str,
    pub(crate) gguf: &'static str,
}

/// Settings of one model.
pub(crate) struct Settings<'a> {
    pub(crate) files: &'a ModelFiles,
    pub(crate) architecture: String,
    config: Value,
}

impl<'a> Settings<'a> {
    pub(crate) fn read(files: &'a ModelFiles) -> Result<Settings<'a>, ModelError> {
        let (architecture, config) = match files.kind() {
            FileKind::Gguf => (files.metadata().require::<&str>("general.architecture")?.to_owned(), Value::Null),
            FileKind::HuggingFace => {
                let config = files.json("config.json")?.unwrap_or(Value::Null);
                (config["model_type"].as_str().unwrap_or_default().to_owned(), config)
            }
        };
        Ok(Settings { files, architecture, config })
    }

    /// The whole of config.json; null for GGUF.
    pub(crate) fn config(&self) -> &Value {
        &self.config
    }

    /// What this kind of file calls the setting, for messages.
    pub(crate) fn name(&self, key: Key) -> String {
        match self.files.kind() {
            FileKind::Gguf => format!("{}.{}", self.architecture, key.gguf),
            FileKind::HuggingFace => key.json.to_owned(),
        }
    }

    pub(crate) fn error(&self, key: Key, problem: impl Into<String>) -> ModelError {
        ModelError::Setting { path: self.files.path().to_owned(), key: self.name(key), problem: problem.into() }
    }

    /// A whole number between 1 and `greatest`.
    pub(crate) fn count(&self, key: Key, greatest: u32) -> Result<Option<usize>, ModelError> {
        let number = match self.files.kind() {
            FileKind::Gguf => self.files.metadata().value::<u64>(&self.name(key))?,
            FileKind::HuggingFace => match &self.config[key.json] {
                Value::Null => None,
                value => {
                    Some(value.as_u64().ok_or_else(|| self.error(key, format!("is {value}, not a whole number")))?)
                }
            },
        };
        match number {
            Some(number) if number == 0 || number > u64::from(greatest) => {
                Err(self.error(key, format!("is {number}, outside 1..={greatest}")))
            }
            number => Ok(number.map(|number| number as usize)),
        }
    }

    /// Like `count`, for settings that must be there.
    pub(crate) fn require_count(&self, key: Key, greatest: u32) -> Result<usize, ModelError> {
        self.count(key, greatest)?.ok_or_else(|| self.error(key, "is missing"))
    }

    /// A finite number above zero.
    pub(crate) fn positive(&self, key: Key) -> Result<Option<f32>, ModelError> {
        let number = match self.files.kind() {
            FileKind::Gguf => self.files.metadata().value::<f32>(&self.name(key))?,
            FileKind::HuggingFace => json_float(&self.config[key.json]).map_err(|problem| self.error(key, problem))?,
        };
        match number {
            Some(number) if !(number.is_finite() && number > 0.0) => {
                Err(self.error(key, format!("is {number}, which should be finite and above zero")))
            }
            number => Ok(number),
        }
    }
}

/// A JSON number as f32; absent or null is `None`.
pub(crate) fn json_float(value: &Value) -> Result<Option<f32>, String> {
    match value {
        Value::Null => Ok(None),
        value => value.as_f64().map(|number| Some(number as f32)).ok_or_else(|| format!("is {value}, not a number")),
    }
}
