//! `cascadia rm`.

use std::io::{self, BufRead, IsTerminal, Write};

use anyhow::{Context, bail};
use cascadia_hub::{Network, Place, StoredModel};

use crate::failure::WrongUsage;
use crate::flags::RmFlags;
use crate::hub;
use crate::human::size;
use crate::output::remark;

/// Deletes stored models. All are found before the first is deleted.
pub(crate) fn rm(flags: &RmFlags) -> anyhow::Result<()> {
    let store = hub::store(Network::Offline)?;
    let mut models = Vec::new();
    for name in &flags.models {
        match store.find(name)? {
            Some(model) => models.push(model),
            None => bail!("`{name}` is not stored; `cascadia list` shows what is"),
        }
    }
    for model in models {
        let is_shared = matches!(model.place, Place::HubCache(_));
        if is_shared && !flags.force && !confirmed(&model)? {
            remark(&format!("{} was kept.", model.name));
            continue;
        }
        let size = size(model.bytes());
        store.remove(&model)?;
        remark(&format!("{} ({size}) was deleted.", model.name));
    }
    Ok(())
}

/// Asks whoever sits at the terminal.
fn confirmed(model: &StoredModel) -> anyhow::Result<bool> {
    let about = format!("{} ({}) is in the cache of all Hugging Face tools", model.name, size(model.bytes()));
    if !io::stdin().is_terminal() {
        bail!(WrongUsage(format!("{about}; pass --force to delete it there without a question")));
    }
    write!(io::stderr(), "{about}. Delete it there? [y/N] ").context("cannot ask")?;
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer).context("cannot read the answer")?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}
