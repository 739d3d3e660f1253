//! `cascadia bench machine`: the ceilings of this machine.

use cascadia_eval::{Ceilings, ThreadCeilings, disk_speed, largest_part, plain_memory};
use cascadia_weights::ModelFiles;
use serde_json::{Value, json};

use crate::flags::MachineBenchFlags;
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
    if flags.json {
        print_json(&object(&ceilings, disk))?
    } else {
        print(&table(&ceilings, disk))?
    }
    Ok(())
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
