//! `cascadia ps`.

use cascadia_hub::{HubOptions, Network, RunningModel, running};
use serde_json::{Value, json};

use crate::flags::PsFlags;
use crate::hub;
use crate::human::{size, table};
use crate::output::{print, print_json};

/// Shows what a server has loaded.
pub(crate) fn ps(flags: &PsFlags) -> anyhow::Result<()> {
    let hub = hub::store(Network::Online)?.hub;
    let models = running(&HubOptions { endpoint: flags.url.clone(), token: flags.key.clone(), ..hub })?;
    if flags.json {
        let describe = |model: &RunningModel| json!({"name": model.name, "bytes": model.bytes, "context": model.context, "until": model.expires});
        let models: Vec<Value> = models.iter().map(describe).collect();
        return Ok(print_json(&json!({ "models": models }))?);
    }
    let row = |model: RunningModel| {
        let context = model.context.map(|tokens| tokens.to_string()).unwrap_or_default();
        [model.name, model.bytes.map(size).unwrap_or_default(), context, model.expires.unwrap_or_default()]
    };
    Ok(print(&table(["NAME", "SIZE", "CONTEXT", "UNTIL"], models.into_iter().map(row).collect()))?)
}
