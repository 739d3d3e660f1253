//! `cascadia bench machine`: the ceilings of this machine.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use cascadia_eval::{Ceilings, ThreadCeilings, disk_speed, largest_part, plain_memory};
use cascadia_weights::ModelFiles;
use serde_json::{Value, json};

use crate::flags::{KernelChoice, MachineBenchFlags};
use crate::output::{print, print_json};
use crate::progress::Progress;

/// Measures and prints the ceilings.
pub(crate) fn machine(flags: &MachineBenchFlags) -> anyhow::Result<()> {
    let bar = Progress::new("measurements");
    let threads = flags.threads.pool().threads();
    let progress = |done, total| bar.set(done as u64, total as u64);
    let (ceilings, disk) = match &flags.model {
        Some(path) => {
            let disk = disk_speed(path)?;
            let files = ModelFiles::open(path)?;
            (Ceilings::measure(threads, largest_part(&files).as_ref(), progress), Some(disk))
        }
        None => (Ceilings::measure(threads, &plain_memory(), progress), None),
    };
    drop(bar);
    let chosen = remembered(KernelChoice::Auto.kernels().slot(threads).choices());
    if flags.json {
        let mut object = object(&ceilings, disk);
        object["kernels"] = json!(chosen);
        print_json(&object)?
    } else {
        print(&(table(&ceilings, disk) + &choices(&chosen)))?
    }
    Ok(())
}

/// How kernels read each kind of matrix that so many threads have met on this machine.
fn remembered(file: Option<PathBuf>) -> BTreeMap<String, Value> {
    let text = file.and_then(|file| fs::read_to_string(file).ok()).unwrap_or_default();
    serde_json::from_str(&text).unwrap_or_default()
}

fn choices(chosen: &BTreeMap<String, Value>) -> String {
    let line = |(kind, choice): (&String, &Value)| {
        let (reading, speed) = (choice["reading"].as_str().unwrap_or("?"), choice["gb_s"].as_f64().unwrap_or(0.0));
        format!("{kind:<32} {reading:<14} {speed:6.1} GB/s\n")
    };
    match chosen.is_empty() {
        true => "no way of reading weights is known here yet: it is measured when a large model is loaded\n".to_owned(),
        false => {
            format!("ways of reading weights that were measured here\n{}", chosen.iter().map(line).collect::<String>())
        }
    }
}

/// The ceilings as one object.
pub(super) fn object(ceilings: &Ceilings, disk: Option<f64>) -> Value {
    let by_threads = |row: &ThreadCeilings| {
        json!({
            "threads": row.threads,
            "read_gb_s": row.read / 1e9,
            "int8_gop_s": row.int8 / 1e9,
            "float_gop_s": row.float / 1e9,
        })
    };
    json!({
        "instructions": ceilings.instructions,
        "by_threads": ceilings.by_threads.iter().map(by_threads).collect::<Vec<_>>(),
        "barrier_us": ceilings.barrier_us,
        "disk_gb_s": disk.map(|speed| speed / 1e9),
    })
}

fn table(ceilings: &Ceilings, disk: Option<f64>) -> String {
    let mut text =
        format!("instructions  {}\n threads   read GB/s   int8 Gop/s   float Gop/s\n", ceilings.instructions);
    for row in &ceilings.by_threads {
        let (read, int8, float) = (row.read / 1e9, row.int8 / 1e9, row.float / 1e9);
        text.push_str(&format!("{:8} {read:11.2} {int8:12.0} {float:13.0}\n", row.threads));
    }
    text.push_str(&format!("barrier of all threads  {:.2} µs\n", ceilings.barrier_us));
    if let Some(speed) = disk {
        text.push_str(&format!("disk  {:.2} GB/s\n", speed / 1e9));
    }
    text
}
