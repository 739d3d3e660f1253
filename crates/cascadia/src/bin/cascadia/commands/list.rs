//! `cascadia list`.

use std::time::{SystemTime, UNIX_EPOCH};

use cascadia_hub::{Network, Offer, Store, StoredModel};
use cascadia_weights::{FileKind, ModelFiles};
use serde_json::{Value, json};

use crate::flags::ListFlags;
use crate::hub;
use crate::human::{age, size, table};
use crate::output::{print, print_json, remark};

/// Lists the models of this machine, or those of the catalogue.
pub(crate) fn list(flags: &ListFlags) -> anyhow::Result<()> {
    let store = hub::store(Network::Offline)?;
    if flags.catalogue { catalogue(&store, flags) } else { stored(&store, flags) }
}

fn stored(store: &Store, flags: &ListFlags) -> anyhow::Result<()> {
    let models = store.list();
    if flags.json {
        let models: Vec<Value> = models.iter().map(described).collect();
        return Ok(print_json(&json!({ "models": models }))?);
    }
    if models.is_empty() {
        remark("No models are stored. `cascadia list --catalogue` shows what can be fetched: cascadia pull smollm2");
        return Ok(());
    }
    let now = SystemTime::now();
    let row = |model: &StoredModel| {
        let modified = model.modified().map(|time| age(time, now)).unwrap_or_default();
        [model.name.clone(), size(model.bytes()), format(model), model.place.to_string(), modified]
    };
    Ok(print(&table(["NAME", "SIZE", "FORMAT", "FROM", "MODIFIED"], models.iter().map(row).collect()))?)
}

fn catalogue(store: &Store, flags: &ListFlags) -> anyhow::Result<()> {
    let offers = store.offers();
    if flags.json {
        let describe = |offer: &Offer| json!({"name": offer.name, "bytes": offer.bytes, "licence": offer.licence, "sources": offer.sources});
        let offers: Vec<Value> = offers.iter().map(describe).collect();
        return Ok(print_json(&json!({ "models": offers }))?);
    }
    let row = |offer: &Offer| {
        let sources = offer.sources.join(", ");
        let licence = offer.licence.clone().unwrap_or_default();
        [offer.name.clone(), offer.bytes.map(size).unwrap_or_default(), licence, sources]
    };
    Ok(print(&table(["NAME", "SIZE", "LICENCE", "FROM"], offers.iter().map(row).collect()))?)
}

fn described(model: &StoredModel) -> Value {
    let modified = model.modified().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    json!({
        "name": model.name,
        "path": model.path,
        "bytes": model.bytes(),
        "format": format(model),
        "from": model.place.to_string(),
        "modified": modified.map(|time| time.as_secs()),
    })
}

/// What the files themselves say, so that damaged ones are seen.
fn format(model: &StoredModel) -> String {
    let Ok(files) = ModelFiles::open(&model.path) else { return "damaged".to_owned() };
    let kind = match files.kind() {
        FileKind::Gguf => "GGUF",
        _ => "safetensors",
    };
    files.main_format().map_or_else(|| kind.to_owned(), |format| format!("{kind} {format}"))
}
