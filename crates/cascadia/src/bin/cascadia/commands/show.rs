//! `cascadia show`.

use std::path::Path;

use cascadia::ModelSource;
use cascadia_engine::ModelText;
use cascadia_hub::{Network, Offer, Store, StoredModel};
use cascadia_model::ModelSpec;
use cascadia_weights::{MetadataValue, ModelFiles};
use serde_json::{Map, Value, json};

use super::inspect::memory;
use crate::flags::ShowFlags;
use crate::hub;
use crate::human::size;
use crate::output::{print, print_json};

/// The context that memory is computed for: the one that models are opened with unless a flag says otherwise.
const USUAL_CONTEXT: u32 = 4096;

/// Prints the essentials of a model, or where it could be fetched from.
pub(crate) fn show(flags: &ShowFlags) -> anyhow::Result<()> {
    let store = hub::store(Network::Offline)?;
    let object = match found(&store, &flags.model)? {
        Some((source, stored)) => essentials(&source, stored.as_ref())?,
        None => offered(store.offer(&flags.model)?),
    };
    if flags.json { Ok(print_json(&object)?) } else { Ok(print(&report(&object))?) }
}

/// A model on this machine.
fn found(store: &Store, name: &str) -> anyhow::Result<Option<(ModelSource, Option<StoredModel>)>> {
    if Path::new(name).exists() {
        return Ok(Some((Path::new(name).into(), None)));
    }
    let stored = store.find(name)?;
    Ok(stored.map(|model| {
        let source = ModelSource::Named { name: model.name.clone(), path: model.path.clone() };
        (source, Some(model))
    }))
}

fn essentials(source: &ModelSource, stored: Option<&StoredModel>) -> anyhow::Result<Value> {
    let files = source.files()?;
    let mut object = Map::new();
    object.insert("name".into(), json!(source.name()));
    object.insert("path".into(), json!(files.path()));
    object.insert("from".into(), json!(stored.map_or_else(|| "this path".to_owned(), |model| model.place.to_string())));
    object.insert("architecture".into(), json!(files.architecture()));
    object.insert("parameters".into(), json!(files.parameters()));
    if let Ok(spec) = ModelSpec::from_files(&files) {
        object.insert("context".into(), json!(spec.context));
        object.insert("memory".into(), memory(&files, &spec, Some(spec.context.min(USUAL_CONTEXT))));
    }
    object.insert("quantisation".into(), json!(files.main_format()));
    object.insert("template".into(), json!(ModelText::read(&files).is_ok_and(|text| text.template().is_some())));
    object.insert("licence".into(), json!(licence(&files).or_else(|| stored?.licence.clone())));
    object.insert("bytes".into(), json!(stored.map_or_else(|| files.weight_bytes(), StoredModel::bytes)));
    Ok(Value::Object(object))
}

/// What the files say about their licence.
fn licence(files: &ModelFiles) -> Option<String> {
    match files.metadata().get("general.license")? {
        MetadataValue::String(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
        _ => None,
    }
}

fn offered(Offer { name, bytes, licence, sources }: Offer) -> Value {
    json!({"name": name, "stored": false, "bytes": bytes, "licence": licence, "sources": sources})
}

/// The same for people, one line per fact.
fn report(object: &Value) -> String {
    let mut text = String::new();
    for (key, value) in object.as_object().into_iter().flatten() {
        let fact = match (key.as_str(), value) {
            ("memory", memory) => {
                format!(
                    "{} with a context of {} tokens",
                    size(memory["total_bytes"].as_u64().unwrap_or_default()),
                    memory["context"]
                )
            }
            ("bytes", bytes) => size(bytes.as_u64().unwrap_or_default()),
            ("parameters", count) => format!("{:.0} million", count.as_f64().unwrap_or_default() / 1e6),
            ("stored", _) => "no; `cascadia pull` fetches it".to_owned(),
            (_, Value::Array(parts)) => parts.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(", "),
            (_, Value::String(text)) => text.clone(),
            (_, Value::Bool(is_so)) => if *is_so { "yes" } else { "no" }.to_owned(),
            (_, Value::Null) => "not known".to_owned(),
            (_, other) => other.to_string(),
        };
        let key = if key == "bytes" { "size" } else { key };
        text.push_str(&format!("{key:<14}{fact}\n"));
    }
    text
}
