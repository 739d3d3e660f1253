//! `cascadia keys`.

use cascadia_server::{KeyEntry, list_keys, new_key, revoke_key};
use clap::ValueEnum;
use serde_json::json;

use crate::flags::{ListKeysFlags, NewKeyFlags, RevokeKeyFlags};
use crate::output::{print, print_json, remark};

/// Makes a key and shows it.
pub(crate) fn new(flags: NewKeyFlags) -> anyhow::Result<()> {
    let priority = flags.priority.as_ref().and_then(ValueEnum::to_possible_value);
    let entry = KeyEntry {
        name: flags.name,
        hash: String::new(),
        tenant: flags.tenant,
        priority: priority.map(|value| value.get_name().to_owned()),
        max_requests: flags.max_requests,
        max_tokens: flags.max_tokens,
        adapters: flags.adapters,
        admin: flags.admin,
    };
    let key = new_key(&flags.file, entry)?;
    remark(&format!("Added to {}. This is the only time the key is shown:", flags.file.display()));
    Ok(print(&format!("{key}\n"))?)
}

/// Shows the keys of a file.
pub(crate) fn list(flags: &ListKeysFlags) -> anyhow::Result<()> {
    let entries = list_keys(&flags.file)?;
    if flags.json {
        let object = |entry: &KeyEntry| {
            let KeyEntry { name, tenant, priority, max_requests, max_tokens, adapters, admin, .. } = entry;
            json!({
                "name": name, "tenant": tenant.as_ref().unwrap_or(name), "priority": priority,
                "max_requests": max_requests, "max_tokens": max_tokens, "adapters": adapters, "admin": admin,
            })
        };
        return Ok(print_json(&json!({ "keys": entries.iter().map(object).collect::<Vec<_>>() }))?);
    }
    let heads = ["name", "tenant", "priority", "requests", "tokens", "adapters"];
    let [name, tenant, priority, requests, tokens, adapters] = heads;
    let mut text = format!("{name:<20} {tenant:<20} {priority:<8} {requests:>8} {tokens:>10}  {adapters}\n");
    for KeyEntry { name, tenant, priority, max_requests, max_tokens, adapters, admin, .. } in &entries {
        let tenant = tenant.as_ref().unwrap_or(name);
        let priority = priority.as_deref().unwrap_or("normal");
        let limit = |most: &Option<u32>| most.map_or_else(|| "any".to_owned(), |most| most.to_string());
        let (requests, tokens) = (limit(max_requests), limit(max_tokens));
        let adapters = adapters.as_ref().map_or_else(|| "any".to_owned(), |names| names.join(","));
        let adapters = if *admin { format!("{adapters} (admin)") } else { adapters };
        text += &format!("{name:<20} {tenant:<20} {priority:<8} {requests:>8} {tokens:>10}  {adapters}\n");
    }
    Ok(print(&text)?)
}

/// Removes a key from a file.
pub(crate) fn revoke(flags: &RevokeKeyFlags) -> anyhow::Result<()> {
    revoke_key(&flags.file, &flags.name)?;
    remark(&format!("The key of {} is revoked; answers that it has begun still end.", flags.name));
    Ok(())
}
