//! One worker under test: a process behind a relay.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, ensure};

use super::relay::{Relay, Traffic};
use crate::flags::Fault;

/// A worker for one stage.
pub(super) struct Worker {
    pub(super) stage: usize,
    pub(super) node: String,
    pub(super) home: PathBuf,
    pub(super) shard: PathBuf,
    pub(super) relay: Relay,
    pub(super) process: Option<Child>,
}

/// This very program with these arguments, saying nothing.
pub(super) fn program(arguments: &[&str]) -> anyhow::Result<Command> {
    let mut command = Command::new(std::env::current_exe().context("cannot find this program")?);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    Ok(command)
}

impl Worker {
    /// Starts its worker.
    pub(super) fn start(&mut self) -> anyhow::Result<()> {
        let mut command = program(&["worker", "start", "--threads", "1", "--priority", "normal", "--coordinator"])?;
        command.arg(self.relay.address.to_string());
        command.arg("--home").arg(&self.home).arg("--shard").arg(&self.shard);
        self.process = Some(command.spawn().context("cannot start a worker")?);
        Ok(())
    }

    /// Injects a fault.
    pub(super) fn inject(&mut self, fault: Fault) -> anyhow::Result<()> {
        match fault {
            Fault::Kill => self.kill(),
            Fault::Hang => self.signal("STOP")?,
            Fault::Cut => self.relay.cut(),
            _ => self.relay.set(fault.traffic().unwrap_or_default()),
        }
        Ok(())
    }

    /// Repairs it.
    pub(super) fn recover(&mut self, fault: Fault) -> anyhow::Result<()> {
        match fault {
            Fault::Kill => self.start(),
            Fault::Hang => self.signal("CONT"),
            _ => {
                self.relay.set(Traffic::default());
                Ok(())
            }
        }
    }

    fn signal(&self, name: &str) -> anyhow::Result<()> {
        let process = self.process.as_ref().context("the worker is not running")?;
        let mut kill = Command::new("kill");
        let sent = kill.args([&format!("-{name}"), &process.id().to_string()]).status().context("cannot run `kill`")?;
        ensure!(sent.success(), "the worker of {} has ended by itself", self.node);
        Ok(())
    }

    fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.kill();
    }
}
