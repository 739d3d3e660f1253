//! `cascadia leave` and `cascadia worker start`.

use std::fs;

use anyhow::bail;
use cascadia::{Kernels, WorkerBuilder};
use cascadia_fleet::{FleetHome, Sandbox, WorkerProcess, lower_priority};

use crate::flags::{ComputeFlags, LeaveFlags, Priority, WorkerFlags, WorkerRunFlags};
use crate::home::home;
use crate::output::remark;

/// Leaves the fleet: nothing of it stays on this machine.
pub(crate) fn leave(flags: &LeaveFlags) -> anyhow::Result<()> {
    let home = home(flags.home.home.as_deref())?;
    let node = home.worker()?.node;
    drop(home.lock_worker()?);
    home.remove_worker()?;
    remark(&format!("This machine has left; on the coordinator, run:  cascadia fleet revoke {node}"));
    Ok(())
}

/// Works for the coordinator until it is told to end; connects again whenever the connection is lost.
pub(crate) fn start(flags: &WorkerFlags) -> anyhow::Result<()> {
    run(&flags.run, flags.coordinator.as_deref())
}

/// The same for a coordinator that may have moved.
pub(super) fn run(flags: &WorkerRunFlags, coordinator: Option<&str>) -> anyhow::Result<()> {
    let home = home(flags.home.home.as_deref())?;
    // Before any thread is started, so that all of them have it.
    if flags.priority == Priority::Low && !lower_priority() {
        remark("This system offers no lower priority; other programs may feel this one.");
    }
    let pages = flags.pages.prepare()?;
    let ComputeFlags { threads, kernels } = &flags.compute;
    let kernels = kernels.kernels();
    let sandbox = enter_sandbox(flags, &home, &kernels)?;
    let mut worker = WorkerBuilder::from_home(home).threads(threads.threads()).kernels(kernels).pages(pages);
    worker = worker.sandbox(sandbox);
    if let Some(shard) = &flags.shard {
        worker = worker.shard(shard);
    }
    if let Some(coordinator) = coordinator {
        worker = worker.coordinator(coordinator);
    }
    if let Some(disk) = flags.disk {
        worker = worker.disk(disk);
    }
    if let Some(memory) = flags.memory {
        worker = worker.memory(memory);
    }
    Ok(worker.start()?.wait()?)
}

/// Gives up what a worker does not need, before it talks to anyone; says how much of that this system enforces.
fn enter_sandbox(flags: &WorkerRunFlags, home: &FleetHome, kernels: &Kernels) -> anyhow::Result<Sandbox> {
    // Only the folder of a machine that belongs to a fleet is there.
    home.worker()?;
    let mut places = WorkerProcess::places(home, flags.shard.as_deref());
    // Where it cannot be made, the fastest way is measured anew with every start.
    if let Kernels::Measured(folder) = kernels
        && fs::create_dir_all(folder).is_ok()
    {
        places.writes.push(folder.clone());
    }
    let (sandbox, problems) = Sandbox::enter(&places);
    let problems = problems.join("; ");
    if flags.require_sandbox && sandbox != Sandbox::Full {
        bail!("the sandbox is {sandbox}, and --require-sandbox was given: {problems}");
    }
    let why = if problems.is_empty() { String::new() } else { format!(" ({problems})") };
    remark(&format!("sandbox: {sandbox}{why}"));
    Ok(sandbox)
}
