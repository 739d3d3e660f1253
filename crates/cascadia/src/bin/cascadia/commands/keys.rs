//! `cascadia keys`.

use cascadia_server::{KeyEntry, new_key};
use clap::ValueEnum;

use crate::flags::NewKeyFlags;
use crate::output::{print, remark};

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
    };
    let key = new_key(&flags.file, entry)?;
    remark(&format!("Added to {}. This is the only time the key is shown:", flags.file.display()));
    Ok(print(&format!("{key}\n"))?)
}
