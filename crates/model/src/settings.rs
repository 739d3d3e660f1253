//! Settings of a model, by one key whether they come from config.json or from GGUF metadata.

use cascadia_weights::{FileKind, MetadataValue, ModelFiles};
use serde_json::Value;

use crate::ModelError;

/// The same setting under its names, most usual first; GGUF names get the architecture as prefix.
#[derive(Clone, Copy)]
pub(crate) struct Key {
    pub(crate) json: &'static [&'static str],
    pub(crate) gguf: &'static [&'static str],
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
                let mut config = files.json("config.json")?.unwrap_or(Value::Null);
                // Models that also see or hear keep what concerns text apart.
                if config["text_config"].is_object() {
                    config = config["text_config"].take();
                }
                (config["model_type"].as_str().unwrap_or_default().to_owned(), config)
            }
        };
        Ok(Settings { files, architecture, config })
    }

    /// The whole of config.json; null for GGUF.
    pub(crate) fn config(&self) -> &Value {
        &self.config
    }

    /// What this file calls the setting, or would usually call it.
    pub(crate) fn name(&self, key: Key) -> String {
        match self.files.kind() {
            FileKind::Gguf => {
                let names = key.gguf.iter().map(|name| format!("{}.{name}", self.architecture));
                let known = |name: &String| self.files.metadata().get(name).is_some();
                names.clone().find(known).or_else(|| names.clone().next()).unwrap_or_default()
            }
            FileKind::HuggingFace => self.json_name(key).to_owned(),
        }
    }

    fn json_name(&self, key: Key) -> &'static str {
        let known = key.json.iter().find(|name| !self.config[**name].is_null());
        known.or(key.json.first()).copied().unwrap_or_default()
    }

    /// Whether the file says anything of the setting.
    pub(crate) fn has(&self, key: Key) -> bool {
        match self.files.kind() {
            FileKind::Gguf => self.files.metadata().get(&self.name(key)).is_some(),
            FileKind::HuggingFace => !self.config[self.json_name(key)].is_null(),
        }
    }

    pub(crate) fn error(&self, key: Key, problem: impl Into<String>) -> ModelError {
        ModelError::Setting { path: self.files.path().to_owned(), key: self.name(key), problem: problem.into() }
    }

    /// A whole number between 1 and `greatest`.
    pub(crate) fn count(&self, key: Key, greatest: u32) -> Result<Option<usize>, ModelError> {
        self.number(key)?.map(|number| self.within(key, number, greatest)).transpose()
    }

    /// Like `count`, where zero stands for none.
    pub(crate) fn count_or_none(&self, key: Key, greatest: u32) -> Result<Option<usize>, ModelError> {
        let number = self.number(key)?.filter(|number| *number != 0);
        number.map(|number| self.within(key, number, greatest)).transpose()
    }

    /// A whole number between 1 and `greatest` for each of `layers` layers; a single one counts for all.
    pub(crate) fn each(&self, key: Key, greatest: u32, layers: usize) -> Result<Option<Vec<usize>>, ModelError> {
        let name = self.name(key);
        let listed: Option<Vec<u64>> = match self.files.kind() {
            FileKind::Gguf => match self.files.metadata().get(&name) {
                Some(MetadataValue::Array(_)) => {
                    Some(self.files.metadata().require::<Vec<u32>>(&name)?.into_iter().map(u64::from).collect())
                }
                _ => None,
            },
            FileKind::HuggingFace => match &self.config[self.json_name(key)] {
                Value::Array(numbers) => {
                    let whole = numbers.iter().map(Value::as_u64).collect::<Option<_>>();
                    Some(whole.ok_or_else(|| self.error(key, "is no list of whole numbers"))?)
                }
                _ => None,
            },
        };
        let Some(listed) = listed else { return Ok(self.count(key, greatest)?.map(|count| vec![count; layers])) };
        if listed.len() < layers {
            return Err(self.error(key, format!("lists {} layers of {layers}", listed.len())));
        }
        let numbers = listed.into_iter().take(layers).map(|number| self.within(key, number, greatest));
        numbers.collect::<Result<_, _>>().map(Some)
    }

    fn number(&self, key: Key) -> Result<Option<u64>, ModelError> {
        match self.files.kind() {
            FileKind::Gguf => Ok(self.files.metadata().value::<u64>(&self.name(key))?),
            FileKind::HuggingFace => match &self.config[self.json_name(key)] {
                Value::Null => Ok(None),
                value => {
                    let number =
                        value.as_u64().ok_or_else(|| self.error(key, format!("is {value}, not a whole number")));
                    number.map(Some)
                }
            },
        }
    }

    fn within(&self, key: Key, number: u64, greatest: u32) -> Result<usize, ModelError> {
        if number == 0 || number > u64::from(greatest) {
            return Err(self.error(key, format!("is {number}, outside 1..={greatest}")));
        }
        Ok(number as usize)
    }

    /// Like `count`, for settings that must be there.
    pub(crate) fn require_count(&self, key: Key, greatest: u32) -> Result<usize, ModelError> {
        self.count(key, greatest)?.ok_or_else(|| self.error(key, "is missing"))
    }

    /// A finite number above zero.
    pub(crate) fn positive(&self, key: Key) -> Result<Option<f32>, ModelError> {
        let number = match self.files.kind() {
            FileKind::Gguf => self.files.metadata().value::<f32>(&self.name(key))?,
            FileKind::HuggingFace => {
                json_float(&self.config[self.json_name(key)]).map_err(|problem| self.error(key, problem))?
            }
        };
        match number {
            Some(number) if !(number.is_finite() && number > 0.0) => {
                Err(self.error(key, format!("is {number}, which should be finite and above zero")))
            }
            number => Ok(number),
        }
    }

    /// A yes or no.
    pub(crate) fn flag(&self, key: Key) -> Result<Option<bool>, ModelError> {
        match self.files.kind() {
            FileKind::Gguf => Ok(self.files.metadata().value::<bool>(&self.name(key))?),
            FileKind::HuggingFace => match &self.config[self.json_name(key)] {
                Value::Null => Ok(None),
                Value::Bool(flag) => Ok(Some(*flag)),
                other => Err(self.error(key, format!("is {other}, neither true nor false"))),
            },
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
