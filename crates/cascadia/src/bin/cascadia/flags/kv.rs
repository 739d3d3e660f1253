//! The flag `--kv`: a policy of the KV cache, by name or from a file.

use std::fs;
use std::path::Path;
use std::str::FromStr;

use anyhow::{Context, anyhow};
use cascadia_model::{CacheFormat, KvFormat, KvFormats, KvPolicy};
use serde::{Deserialize, Serialize};

use crate::failure::WrongUsage;

/// A value of `--kv`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum KvChoice {
    /// A policy that has a name, and that name.
    Named(String, Box<KvPolicy>),
    /// A policy file.
    File(String),
}

impl KvChoice {
    /// As it was written.
    pub(crate) fn name(&self) -> &str {
        match self {
            KvChoice::Named(text, _) | KvChoice::File(text) => text,
        }
    }

    /// What is chosen.
    pub(crate) fn policy(&self) -> anyhow::Result<KvPolicy> {
        match self {
            KvChoice::Named(_, policy) => Ok((**policy).clone()),
            KvChoice::File(path) => {
                let text = fs::read_to_string(path).with_context(|| format!("cannot read the policy {path}"))?;
                parse(&text).map_err(|problem| WrongUsage(format!("{path}: {problem}")).into())
            }
        }
    }
}

impl FromStr for KvChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<KvChoice, String> {
        if let Some(policy) = KvPolicy::named(text) {
            return Ok(KvChoice::Named(text.to_owned(), Box::new(policy)));
        }
        if Path::new(text).extension().is_some_and(|extension| extension == "toml") {
            return Ok(KvChoice::File(text.to_owned()));
        }
        let names = KvPolicy::names().collect::<Vec<_>>().join(", ");
        Err(format!("unknown; write {names}, two formats for keys and values such as int8/int4, or a .toml file"))
    }
}

impl TryFrom<String> for KvChoice {
    type Error = String;

    fn try_from(text: String) -> Result<KvChoice, String> {
        text.parse()
    }
}

impl From<KvChoice> for String {
    fn from(choice: KvChoice) -> String {
        match choice {
            KvChoice::Named(text, _) | KvChoice::File(text) => text,
        }
    }
}

/// A policy as people write it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PolicyFile {
    /// The newest tokens that stay as they were computed.
    #[serde(default = "usual_tail")]
    tail: Positive,
    /// Texts that are shorter stay as they were computed.
    #[serde(default)]
    from: u32,
    /// How older tokens are stored; where two name a layer, the later one counts.
    #[serde(default)]
    layers: Vec<LayerRule>,
}

/// The formats of some layers.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LayerRule {
    /// The first and the last layer; all of them, if nothing is said.
    range: Option<LayerRange>,
    keys: FormatName,
    values: FormatName,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(try_from = "u32")]
struct Positive(u32);

#[derive(Clone, Copy, Deserialize)]
#[serde(try_from = "[u32; 2]")]
struct LayerRange {
    first: u32,
    last: u32,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(try_from = "String")]
struct FormatName(CacheFormat);

/// No model has more layers.
const MOST_LAYERS: u32 = 1024;

fn usual_tail() -> Positive {
    Positive(KvPolicy::TAIL)
}

impl TryFrom<u32> for Positive {
    type Error = &'static str;

    fn try_from(number: u32) -> Result<Positive, &'static str> {
        if number > 0 { Ok(Positive(number)) } else { Err("at least 1 token stays as it was computed") }
    }
}

impl TryFrom<[u32; 2]> for LayerRange {
    type Error = String;

    fn try_from([first, last]: [u32; 2]) -> Result<LayerRange, String> {
        match first <= last && last < MOST_LAYERS {
            true => Ok(LayerRange { first, last }),
            false => Err(format!("{first} to {last} is no range of layers; the first comes first, from 0 on")),
        }
    }
}

impl TryFrom<String> for FormatName {
    type Error = String;

    fn try_from(name: String) -> Result<FormatName, String> {
        let unknown = || {
            let known: Vec<&str> = CacheFormat::ALL.iter().map(|(name, _)| *name).collect();
            format!("unknown format `{name}`; known: {}", known.join(", "))
        };
        CacheFormat::from_name(&name).map(FormatName).ok_or_else(unknown)
    }
}

/// Reads a policy file; an error names line and key.
fn parse(text: &str) -> anyhow::Result<KvPolicy> {
    let file: PolicyFile = toml::from_str(text).map_err(|error| anyhow!("{}", error.to_string().trim_end()))?;
    let mut everywhere = KvFormat::both(CacheFormat::F16);
    let mut layers: Vec<Option<KvFormat>> = Vec::new();
    for LayerRule { range, keys, values } in file.layers {
        let format = KvFormat { keys: keys.0, values: values.0 };
        match range {
            None => {
                everywhere = format;
                layers.clear();
            }
            Some(LayerRange { first, last }) => {
                layers.resize(layers.len().max(last as usize + 1), None);
                layers[first as usize..=last as usize].fill(Some(format));
            }
        }
    }
    let formats = match layers.is_empty() {
        true => KvFormats::Uniform(everywhere),
        false => {
            let layers = layers.into_iter().map(|format| format.unwrap_or(everywhere));
            KvFormats::PerLayer(layers.chain([everywhere]).collect())
        }
    };
    Ok(KvPolicy { formats, tail: file.tail.0, from: file.from })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_is_read_layer_by_layer() {
        let text = r#"
            tail = 32
            from = 512
            [[layers]]
            range = [0, 1]
            keys = "int8"
            values = "int8"
            [[layers]]
            range = [3, 3]
            keys = "int4"
            values = "int2"
        "#;
        let both = KvFormat::both;
        let expected = vec![
            both(CacheFormat::Int8),
            both(CacheFormat::Int8),
            both(CacheFormat::F16),
            KvFormat { keys: CacheFormat::Int4, values: CacheFormat::Int2 },
            both(CacheFormat::F16),
        ];
        let policy = parse(text).unwrap();
        assert_eq!(policy, KvPolicy { formats: KvFormats::PerLayer(expected), tail: 32, from: 512 });
        let everywhere = parse("[[layers]]\nkeys = \"int4\"\nvalues = \"int4\"").unwrap();
        assert_eq!(everywhere, KvPolicy::uniform(CacheFormat::Int4));
    }

    #[test]
    fn a_bad_policy_is_refused_with_line_and_key() {
        let check = |text: &str, line: &str, about: &str| {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains(line) && error.contains(about), "{text}: {error}");
        };
        check("tail = 32\n[[layers]]\nkeys = \"int5\"\nvalues = \"f16\"", "line 3", "int5");
        check("tail = 0", "line 1", "at least 1");
        check("\ntial = 5", "line 2", "tial");
        check("[[layers]]\nrange = [4, 2]\nkeys = \"f16\"\nvalues = \"f16\"", "line 2", "4 to 2");
        check("[[layers]]\nkeys = \"f16\"", "line 1", "values");
        check("[[layers]]\nrange = [0, 4000000000]\nkeys = \"f16\"\nvalues = \"f16\"", "line 2", "range");
    }

    #[test]
    fn names_files_and_mistakes_are_told_apart() {
        let policy =
            |text: &str| text.parse::<KvChoice>().and_then(|choice| choice.policy().map_err(|e| e.to_string()));
        assert_eq!(policy("int8/int4"), policy("balanced"));
        assert_eq!(policy("auto"), Ok(KvPolicy::default()));
        assert!(policy("int5").unwrap_err().contains("int8/int4"));
        assert!(policy("no-such-policy.toml").unwrap_err().contains("no-such-policy.toml"));
    }
}
