//! `cascadia serve --fleet`: both ends of a model here, its stages on the machines of a fleet, of which this is one.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use cascadia_engine::{Engine, EngineError, OpenOptions};
use cascadia_fleet::{
    Arrival, Auditor, Digest, Entry, FleetError, FleetPlan, HERE, Harbour, MANIFEST_FILE, Manifest, OwnStage, Patience,
    RemoteStage, Shard, StageLimits, StageStatus, Verb, seconds_now,
};
use cascadia_model::{Hidden, LoadOptions, Stage, StageError, StepPlan};
use cascadia_weights::ModelFiles;

use super::serve_model::{ModelChoice, Prepared, prepare};
use crate::fleet_home::{CoordinatorSettings, FleetHome, FleetStatus};
use crate::output::remark;

/// How often machines are asked for a sign of life.
const HEARTBEAT: Duration = Duration::from_secs(1);

/// Which fleet serves, as it was asked for.
pub(crate) struct FleetChoice<'a> {
    /// The folder of an export, `all`, or names of machines.
    pub(crate) fleet: &'a str,
    /// The folder with the fleet's keys.
    pub(crate) home: Option<&'a Path>,
    /// Stages that run in this process, besides those that were pushed here.
    pub(crate) own_stages: &'a [u32],
    /// A model that the machines do not have yet.
    pub(crate) model: Option<&'a str>,
    /// Users at a time.
    pub(crate) users: u32,
    /// How long to wait for machines.
    pub(crate) patience: Patience,
}

/// Opens a model whose stages run elsewhere, once a machine for each of them has come. Gives its name too.
pub(crate) fn open(choice: &FleetChoice<'_>, options: &OpenOptions) -> anyhow::Result<(String, Engine)> {
    let home = FleetHome::find(choice.home)?;
    let settings = home.coordinator()?;
    let arrivals = home.arrivals(&settings)?;
    let Cast { folder, nodes, own, plan } = match choice.model {
        None => Cast::find(choice, &settings)?,
        Some(model) => {
            let FleetChoice { fleet, users, .. } = *choice;
            let choice = ModelChoice { model, fleet, context: options.context, users, pool: &options.pool };
            let Prepared { folder, nodes, own_stages, plan } = prepare(&home, &settings, &choice, &arrivals)?;
            Cast { folder, nodes: Some(nodes), own: own_stages, plan: Some(plan) }
        }
    };
    let manifest = Manifest::read(&folder)?;
    check_nodes(&home, nodes.as_deref().unwrap_or_default())?;
    check_stages(&own, &manifest)?;
    let ends = folder.join(&manifest.token_io.file);
    if Digest::of_file(&ends)? != (manifest.token_io.digest, manifest.token_io.bytes) {
        bail!("{} is not what the manifest describes; export the model again", ends.display());
    }
    let auditor = home.auditor()?;
    let named = nodes.clone().unwrap_or_default();
    auditor.record(Entry { digest: Some(manifest.model), nodes: named, ..Entry::admin(Verb::ServeStart) })?;
    let files = Arc::new(ModelFiles::open(&ends)?);
    let name = manifest.name.clone();
    let engine = Engine::with_stages::<anyhow::Error>(files, options, |spec, options| {
        let (context, rows_per_step) = (options.context, options.rows_per_step);
        let limits = StageLimits { context, rows_per_step, cache: options.cache_pages(spec) };
        let model = manifest.model;
        let harbour = Harbour::new(manifest, limits, env!("CARGO_PKG_VERSION")).for_members(&home.members());
        let harbour = Arc::new(harbour.audited(&auditor));
        receive(arrivals, &harbour, nodes, auditor);
        let memory = options.memory.map(|memory| memory.saturating_sub(harbour.manifest().token_io.bytes));
        let options = LoadOptions { memory, ..options.clone() };
        let stage = |(stage, shard): (usize, &Shard)| match own.contains(&(stage as u32)) {
            true => Ok(Served::Here(Arc::new(OwnStage::open(&folder, shard, &options)?))),
            false => Ok(Served::There(Arc::new(RemoteStage::new(&harbour, stage, choice.patience)))),
        };
        let stages: Vec<Served> =
            harbour.manifest().stages.iter().enumerate().map(stage).collect::<Result<_, FleetError>>()?;
        wait_for_all(&harbour, &own);
        beat(Beat { stages: stages.clone(), harbour, home, model, plan });
        Ok(stages.into_iter().map(|stage| Box::new(stage) as Box<dyn Stage>).collect())
    })?;
    Ok((name, engine))
}

/// Writes down that the fleet serves no more.
pub(crate) fn ended(home: Option<&Path>) -> anyhow::Result<()> {
    FleetHome::find(home)?.audit_log().append(Entry::admin(Verb::ServeStop))?;
    Ok(())
}

/// Who runs what.
struct Cast {
    folder: PathBuf,
    /// The machines that may take part; all of the fleet if none are named.
    nodes: Option<Vec<String>>,
    /// The stages that run in this process.
    own: Vec<u32>,
    /// What is expected of them.
    plan: Option<FleetPlan>,
}

impl Cast {
    fn find(choice: &FleetChoice<'_>, settings: &CoordinatorSettings) -> anyhow::Result<Cast> {
        let mut own = choice.own_stages.to_vec();
        if Path::new(choice.fleet).join(MANIFEST_FILE).exists() {
            return Ok(Cast { folder: PathBuf::from(choice.fleet), nodes: None, own, plan: None });
        }
        let pushed = settings.pushed.clone();
        let folder = pushed.context("nothing was pushed to this fleet yet; use `cascadia fleet push` first")?;
        if choice.fleet == "all" {
            own.extend_from_slice(&settings.own_stages);
            return Ok(Cast { folder, nodes: None, own, plan: None });
        }
        let (here, nodes): (Vec<_>, Vec<_>) = choice.fleet.split(',').map(str::to_owned).partition(|node| node == HERE);
        if !here.is_empty() {
            own.extend_from_slice(&settings.own_stages);
            if own.is_empty() {
                let folder = folder.display();
                bail!(
                    "no stage was kept here; push again with one of them, `cascadia fleet push {folder} here:stage-0 …`"
                );
            }
        }
        Ok(Cast { folder, nodes: Some(nodes), own, plan: None })
    }
}

/// An error unless these machines belong to the fleet.
fn check_nodes(home: &FleetHome, nodes: &[String]) -> Result<(), anyhow::Error> {
    let names: Vec<String> = home.members().all()?.into_iter().map(|member| member.name).collect();
    match nodes.iter().find(|node| !names.contains(node)) {
        Some(node) => Err(EngineError::Setting {
            name: "--fleet",
            value: format!("{node}, which is neither a folder with a manifest nor one of {}", names.join(", ")),
            allowed: "the folder that `export` wrote, or names of machines that have joined, and `here`",
        }
        .into()),
        None => Ok(()),
    }
}

/// An error unless the model has these stages.
fn check_stages(own: &[u32], manifest: &Manifest) -> anyhow::Result<()> {
    match own.iter().find(|stage| **stage as usize >= manifest.stages.len()) {
        Some(stage) => bail!("there is no stage {stage} to run here; the export has {}", manifest.stages.len()),
        None => Ok(()),
    }
}

/// Lets machines in for as long as the program runs, each on a thread of its own because it takes its time to load.
fn receive(arrivals: Receiver<Arrival>, harbour: &Arc<Harbour>, nodes: Option<Vec<String>>, auditor: Arc<Auditor>) {
    let (harbour, nodes) = (Arc::clone(harbour), Arc::new(nodes));
    thread::spawn(move || {
        for arrival in arrivals {
            let (harbour, nodes, auditor) = (Arc::clone(&harbour), Arc::clone(&nodes), Arc::clone(&auditor));
            thread::spawn(move || welcome(&harbour, (*nodes).as_deref(), &auditor, arrival));
        }
    });
}

fn welcome(harbour: &Harbour, nodes: Option<&[String]>, auditor: &Auditor, arrival: Arrival) {
    match arrival {
        Arrival::Member { node, link } if nodes.is_none_or(|nodes| nodes.contains(&node)) => {
            match harbour.admit(link, &node) {
                Ok(stage) => remark(&format!("{node} is ready for stage {stage}.")),
                Err(error) => {
                    auditor.refused(&node, &error.to_string());
                    remark(&format!("{node} cannot take part: {error}"));
                }
            }
        }
        Arrival::Member { .. } => {}
        Arrival::Joined { node } => remark(&format!("{node} has joined the fleet.")),
        Arrival::TurnedAway { address, problem } => remark(&format!("{address} was turned away: {problem}")),
    }
}

/// Waits until every stage that is not run here has a machine.
fn wait_for_all(harbour: &Harbour, own: &[u32]) {
    let (mut said, mut swept) = (Vec::new(), Instant::now());
    loop {
        let docks = harbour.docks().iter().enumerate().filter(|(stage, _)| !own.contains(&(*stage as u32)));
        let empty = docks.filter(|(_, dock)| dock.count() == 0);
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

/// What is looked after while a fleet serves.
struct Beat {
    stages: Vec<Served>,
    harbour: Arc<Harbour>,
    home: FleetHome,
    model: Digest,
    plan: Option<FleetPlan>,
}

/// Asks all machines for signs of life for as long as the program runs, and writes down how they are.
fn beat(Beat { stages, harbour, home, model, plan }: Beat) {
    thread::spawn(move || {
        loop {
            for (stage, dock) in stages.iter().zip(harbour.docks()) {
                match stage {
                    Served::There(stage) => stage.check(),
                    // Who holds a stage that runs here waits in vain, but may.
                    Served::Here(_) => dock.sweep(HEARTBEAT),
                }
            }
            let stages = stages.iter().map(Served::status).collect();
            // Those who look see that it is old; serving goes on.
            let _ = home.set_status(&FleetStatus { time: seconds_now(), model, stages, plan: plan.clone() });
            thread::sleep(HEARTBEAT);
        }
    });
}

/// A stage that is looked after while the engine has it.
#[derive(Clone)]
enum Served {
    Here(Arc<OwnStage>),
    There(Arc<RemoteStage>),
}

impl Served {
    fn stage(&self) -> &dyn Stage {
        match self {
            Served::Here(stage) => &**stage,
            Served::There(stage) => &**stage,
        }
    }

    fn status(&self) -> StageStatus {
        match self {
            Served::Here(stage) => stage.status(),
            Served::There(stage) => stage.status(),
        }
    }
}

impl Stage for Served {
    fn layers(&self) -> std::ops::Range<u32> {
        self.stage().layers()
    }

    fn run(&self, plan: &StepPlan, hidden: &mut Hidden) -> Result<(), StageError> {
        self.stage().run(plan, hidden)
    }

    fn is_here(&self) -> bool {
        self.stage().is_here()
    }
}
