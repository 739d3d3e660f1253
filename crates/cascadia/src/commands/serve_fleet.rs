//! `cascadia serve --fleet`: both ends of a model here, its stages on the machines of a fleet.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use cascadia_engine::{Engine, EngineError, OpenOptions};
use cascadia_fleet::{
    Arrival, Digest, Harbour, Listener, MANIFEST_FILE, Manifest, Patience, RemoteStage, StageLimits, seconds_now,
};
use cascadia_model::{Hidden, Stage, StageError, StepPlan};
use cascadia_weights::ModelFiles;

use crate::fleet_home::{FleetHome, FleetStatus};
use crate::output::remark;

/// How often machines are asked for a sign of life.
const HEARTBEAT: Duration = Duration::from_secs(1);

/// Opens a model whose stages run elsewhere, once a machine for each of them has come. Gives its name too.
pub(crate) fn open(fleet: &str, home: Option<&Path>, options: &OpenOptions) -> anyhow::Result<(String, Engine)> {
    let home = FleetHome::find(home)?;
    let settings = home.coordinator()?;
    let (folder, nodes) = match Path::new(fleet).join(MANIFEST_FILE).exists() {
        true => (PathBuf::from(fleet), Vec::new()),
        false => {
            let pushed = settings.pushed.clone();
            let folder = pushed.context("nothing was pushed to this fleet yet; use `cascadia fleet push` first")?;
            let nodes = if fleet == "all" { Vec::new() } else { fleet.split(',').map(str::to_owned).collect() };
            (folder, nodes)
        }
    };
    let manifest = Manifest::read(&folder)?;
    check_nodes(&home, &nodes)?;
    let ends = folder.join(&manifest.token_io.file);
    if Digest::of_file(&ends)? != (manifest.token_io.digest, manifest.token_io.bytes) {
        bail!("{} is not what the manifest describes; export the model again", ends.display());
    }
    let listener = Listener::bind(&settings.listen, &home.coordinator_key()?, home.members())?;
    let files = Arc::new(ModelFiles::open(&ends)?);
    let name = manifest.name.clone();
    let engine = Engine::with_stages::<anyhow::Error>(files, options, |spec, options| {
        let (context, rows_per_step) = (options.context, options.rows_per_step);
        let limits = StageLimits { context, rows_per_step, cache: options.cache_pages(spec) };
        let model = manifest.model;
        let harbour = Harbour::new(manifest, limits, env!("CARGO_PKG_VERSION")).for_members(&home.members());
        let harbour = Arc::new(harbour);
        let waiting = Arc::clone(&harbour);
        listener.run(move |arrival| welcome(&waiting, &nodes, arrival));
        wait_for_all(&harbour);
        let stages = 0..harbour.docks().len();
        let stages: Vec<_> =
            stages.map(|stage| Arc::new(RemoteStage::new(&harbour, stage, Patience::default()))).collect();
        beat(stages.clone(), home, model);
        Ok(stages.into_iter().map(|stage| Box::new(Shared(stage)) as Box<dyn Stage>).collect())
    })?;
    Ok((name, engine))
}

/// An error unless these machines belong to the fleet.
fn check_nodes(home: &FleetHome, nodes: &[String]) -> Result<(), anyhow::Error> {
    let names: Vec<String> = home.members().all()?.into_iter().map(|member| member.name).collect();
    match nodes.iter().find(|node| !names.contains(node)) {
        Some(node) => Err(EngineError::Setting {
            name: "--fleet",
            value: format!("{node}, which is neither a folder with a manifest nor one of {}", names.join(", ")),
            allowed: "the folder that `export` wrote, or names of machines that have joined",
        }
        .into()),
        None => Ok(()),
    }
}

fn welcome(harbour: &Harbour, nodes: &[String], arrival: Arrival) {
    match arrival {
        Arrival::Member { node, link } if nodes.is_empty() || nodes.contains(&node) => {
            match harbour.admit(link, &node) {
                Ok(stage) => remark(&format!("{node} is ready for stage {stage}.")),
                Err(error) => remark(&format!("{node} cannot take part: {error}")),
            }
        }
        Arrival::Member { .. } => {}
        Arrival::Joined { node } => remark(&format!("{node} has joined the fleet.")),
        Arrival::TurnedAway { address, problem } => remark(&format!("{address} was turned away: {problem}")),
    }
}

/// Waits until every stage has a machine.
fn wait_for_all(harbour: &Harbour) {
    let (mut said, mut swept) = (Vec::new(), Instant::now());
    loop {
        let empty = harbour.docks().iter().enumerate().filter(|(_, dock)| dock.count() == 0);
        let missing: Vec<String> = empty.map(|(stage, _)| format!("stage {stage}")).collect();
        if missing.is_empty() {
            return;
        }
        if said != missing {
            remark(&format!("Waiting for a machine for {}.", missing.join(", ")));
            said = missing;
        }
        if swept.elapsed() > HEARTBEAT {
            // Those that came first are asked whether they are still there.
            harbour.docks().iter().for_each(|dock| dock.sweep(HEARTBEAT));
            swept = Instant::now();
        }
        thread::sleep(Duration::from_millis(50));
    }
}

/// Asks all machines for signs of life for as long as the program runs, and writes down how they are.
fn beat(stages: Vec<Arc<RemoteStage>>, home: FleetHome, model: Digest) {
    thread::spawn(move || {
        loop {
            stages.iter().for_each(|stage| stage.check());
            let stages = stages.iter().map(|stage| stage.status()).collect();
            // Those who look see that it is old; serving goes on.
            let _ = home.set_status(&FleetStatus { time: seconds_now(), model, stages });
            thread::sleep(HEARTBEAT);
        }
    });
}

/// A stage that is asked for signs of life while the engine has it.
struct Shared(Arc<RemoteStage>);

impl Stage for Shared {
    fn layers(&self) -> std::ops::Range<u32> {
        self.0.layers()
    }

    fn run(&self, plan: &StepPlan, hidden: &mut Hidden) -> Result<(), StageError> {
        self.0.run(plan, hidden)
    }
}
