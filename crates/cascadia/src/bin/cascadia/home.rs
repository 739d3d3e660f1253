//! The folder of a fleet as the flags name it, with events told to people.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context;
use cascadia_fleet::{FleetEvent, FleetHome, Notify};

use crate::commands::plan_table;
use crate::output::remark;
use crate::progress::Progress;

/// The folder that was asked for, or the usual one.
pub(crate) fn home(asked: Option<&Path>) -> anyhow::Result<FleetHome> {
    let folder = match asked {
        Some(folder) => folder.to_owned(),
        None => std::env::home_dir().context("there is no home folder; give one with --home")?.join(".cascadia"),
    };
    Ok(FleetHome::open(folder)?.with_notify(reporter()))
}

/// Writes events to standard error, progress as a bar.
pub(crate) fn reporter() -> Notify {
    let bar: Mutex<Option<Progress>> = Mutex::default();
    Arc::new(move |event| {
        let mut bar = bar.lock().unwrap_or_else(PoisonError::into_inner);
        let (done, total) = match event {
            FleetEvent::WritingShard { file, tensor, done, total } => {
                bar.get_or_insert_with(|| Progress::new(file)).label(&format!("{file}: {tensor}"));
                (*done, *total)
            }
            FleetEvent::SendingShards { done, total } => {
                bar.get_or_insert_with(|| Progress::bytes("shards"));
                (*done, *total)
            }
            FleetEvent::Planned(plan) => {
                *bar = None;
                return remark(plan_table(plan, &[]).trim_end());
            }
            event => {
                *bar = None;
                return remark(&event.to_string());
            }
        };
        bar.iter().for_each(|bar| bar.set(done, total));
        if done >= total {
            *bar = None;
        }
    })
}
