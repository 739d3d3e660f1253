//! Exports small models, runs their shards on threads, and asks for tokens.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use cascadia_engine::{CacheSize, Engine, EngineError, OpenOptions, Session, Source};
use cascadia_fleet::link::{LinkFaults, channel_pair};
use cascadia_fleet::{
    Digest, MANIFEST_VERSION, Manifest, ModelWorkers, Numerics, RemoteStage, RowFormat, Sandbox, Shard, ShardOptions,
    StageLimits, StageSplit, TOKEN_IO_FILE, Timeouts, WorkerStage, holds_ends, open_shard, stage_file, tells_stage,
};
use cascadia_kernels::{ActivationPrecision, OpsSlot, Pool};
use cascadia_model::{KvPolicy, LoadOptions, ModelSpec, Stage};
use cascadia_quantize::{QuantizeJob, Recipe, ShardJob, quantize, write_shard};
use cascadia_weights::{ModelFiles, WeightPages};

use crate::hash_model::LEASE;

pub(crate) const PROGRAM: &str = "test";
/// As many tokens as most fixtures were made for; with a short tail, several pages of a cache are sealed within it.
pub(crate) const CONTEXT: u32 = 256;
/// Machines that are lost here are cut off, which shows at once; one under load is not taken for one that hangs.
pub(crate) const PATIENCE: Timeouts = Timeouts {
    step: Duration::from_secs(60),
    row: Duration::ZERO,
    worker: Duration::from_secs(60),
    silence: Duration::from_secs(60),
};

pub(crate) fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures").join(name)
}

/// Which tensors and which metadata a shard gets.
type Choice<'a> = (&'a dyn Fn(&str) -> bool, &'a dyn Fn(&str) -> bool);

/// Where small models become files.
pub(crate) struct Workshop {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) source: ModelFiles,
    pub(crate) precision: Option<&'static str>,
    pub(crate) wire: RowFormat,
    pub(crate) activations: ActivationPrecision,
    pub(crate) kv: KvPolicy,
}

impl Workshop {
    pub(crate) fn new(model: &str, precision: Option<&'static str>) -> Workshop {
        let source = ModelFiles::open(&fixture(model)).expect("the fixture opens");
        let (folder, wire) = (tempfile::tempdir().expect("a folder"), RowFormat::F32);
        let (activations, kv) = (ActivationPrecision::Int8, KvPolicy::default());
        Workshop { folder, source, precision, wire, activations, kv }
    }

    fn recipe(&self) -> Option<Recipe> {
        self.precision.map(|precision| precision.parse().expect("a known mix"))
    }

    /// The model in one file of the same precision.
    pub(crate) fn whole(&self) -> PathBuf {
        let out = self.folder.path().join("whole.gguf");
        let Some(recipe) = self.recipe() else {
            self.shard("whole.gguf", 0..0, (&|_| true, &|_| true));
            return out;
        };
        let job = QuantizeJob { files: &self.source, out: &out, recipe, importance: None, pool: &Pool::new(1) };
        quantize(&job, |_| {}).expect("it can be quantised");
        out
    }

    /// The model in stages that begin at these layers.
    pub(crate) fn export(&self, starts: &[u32]) -> Manifest {
        let spec = ModelSpec::from_files(&self.source).expect("a known architecture");
        let split = StageSplit::at(&spec, starts).expect("it can be cut there");
        let token_io = self.shard(TOKEN_IO_FILE, 0..0, (&holds_ends, &|_| true));
        let stage = |(stage, layers): (usize, &Range<u32>)| {
            self.shard(&stage_file(stage), layers.clone(), (&|name| split.holds(stage, name), &tells_stage))
        };
        let stages: Vec<Shard> = split.stages().iter().enumerate().map(stage).collect();
        let written = ModelFiles::open(&self.folder.path().join(TOKEN_IO_FILE)).expect("it was written");
        let manifest = Manifest {
            version: MANIFEST_VERSION,
            model: Manifest::model_digest(&token_io, &stages),
            name: "small".to_owned(),
            precision: self.precision.unwrap_or("keep").to_owned(),
            numerics: Numerics::of(&ModelSpec::from_files(&written).expect("a shard tells the architecture")),
            token_io,
            stages,
        };
        manifest.write(self.folder.path()).expect("it can be written");
        assert_eq!(Manifest::read(self.folder.path()).expect("it can be read"), manifest);
        manifest
    }

    fn shard(&self, file: &str, layers: Range<u32>, (holds, tells): Choice<'_>) -> Shard {
        let (out, recipe) = (self.folder.path().join(file), self.recipe());
        let job = ShardJob {
            files: &self.source,
            out: &out,
            recipe: recipe.as_ref(),
            holds_tensor: holds,
            keeps_metadata: tells,
            pool: &Pool::new(1),
        };
        let entries = write_shard(&job, |_| {}).expect("the shard can be written");
        let (digest, bytes) = Digest::of_file(&out).expect("it was written");
        let tensors = entries.iter().map(|entry| entry.name.clone()).collect();
        Shard { file: file.to_owned(), digest, bytes, layers: [layers.start, layers.end], tensors }
    }

    /// How the model is loaded, whole or in stages.
    pub(crate) fn options(&self) -> OpenOptions {
        let longest = ModelSpec::from_files(&self.source).expect("a model").context;
        let context = Some(longest.min(CONTEXT));
        OpenOptions { context, activations: self.activations, kv: self.kv.clone(), ..options() }
    }

    /// The model in one piece in this process.
    pub(crate) fn open_whole(&self) -> Engine {
        Engine::open(Source::Path(&self.whole()), &self.options()).expect("the model loads")
    }

    /// A worker for a stage of the export.
    pub(crate) fn worker(&self, manifest: &Manifest, stage: usize) -> WorkerStage {
        let options = ShardOptions {
            program: PROGRAM.to_owned(),
            pool: Arc::new(Pool::new(1)),
            ops: OpsSlot::default(),
            memory: None,
            pages: WeightPages::default(),
            sandbox: Sandbox::None,
        };
        let worker = open_shard(&self.folder.path().join(&manifest.stages[stage].file), options);
        let worker = worker.expect("it was written").with_lease(LEASE);
        assert_eq!(worker.hello.shard, Some(manifest.stages[stage].digest));
        worker
    }

    /// The model on one worker for each stage, over links in this process; and what passes on all of them.
    pub(crate) fn fleet(&self, manifest: &Manifest) -> (Engine, Traffic) {
        let traffic = Traffic::default();
        let engine = self.open(manifest, |model_workers, stage, _| {
            self.admit_worker(model_workers, stage, [0, 1].map(|_| counted(&traffic)));
            Box::new(RemoteStage::new(model_workers, stage, PATIENCE))
        });
        (engine, traffic)
    }

    /// Brings a worker for a stage, over a link in this process.
    pub(crate) fn admit_worker(&self, model_workers: &ModelWorkers, stage: usize, faults: [LinkFaults; 2]) {
        let (here, mut there) = channel_pair(faults);
        let mut worker = self.worker(model_workers.manifest(), stage);
        thread::spawn(move || worker.serve(&mut there));
        // A machine has one place, so that each is another one.
        let node = format!("worker-{}", model_workers.stages()[stage].count());
        model_workers.admit(Box::new(here), &node).expect("the worker is let in");
    }

    /// The model with stages that `stage` makes.
    pub(crate) fn open(
        &self,
        manifest: &Manifest,
        mut stage: impl FnMut(&ModelWorkers, usize, &LoadOptions) -> Box<dyn Stage>,
    ) -> Engine {
        let files = ModelFiles::open(&self.folder.path().join(TOKEN_IO_FILE)).expect("it was written");
        let open = Engine::with_stages(Arc::new(files), &self.options(), |_, options| {
            let limits = StageLimits { model: options.limits.clone(), wire: self.wire };
            let model_workers = ModelWorkers::new(manifest.clone(), limits, PROGRAM);
            let stages = (0..manifest.stages.len()).map(|index| stage(&model_workers, index, options));
            Ok::<_, EngineError>(stages.collect())
        });
        open.expect("the shards load")
    }
}

/// The bytes of every piece that was sent.
pub(crate) type Traffic = Arc<Mutex<Vec<usize>>>;

/// No faults, and a count.
pub(crate) fn counted(traffic: &Traffic) -> LinkFaults {
    let traffic = Arc::clone(traffic);
    Box::new(move |piece| {
        traffic.lock().unwrap().push(piece.len());
        Some(vec![piece])
    })
}

pub(crate) fn options() -> OpenOptions {
    // Two threads notice it if anything shares them without taking turns.
    let pool = Arc::new(Pool::new(2));
    let cache = CacheSize::Sequences(4);
    OpenOptions { context: Some(CONTEXT), cache, rows_per_step: 16, ..OpenOptions::new(pool) }
}

/// Feeds a prompt and continues with the likeliest tokens; gives the bits of all logits on the way.
pub(crate) fn continuation(session: &mut Session, prompt: &[u32], count: usize) -> (Vec<u32>, Vec<u32>) {
    session.truncate(0);
    let (mut tokens, mut bits) = (Vec::new(), Vec::new());
    let mut next = prompt.to_vec();
    for _ in 0..count {
        let logits = session.feed(&next).expect("the step runs");
        bits.extend(logits.iter().map(|logit| logit.to_bits()));
        let best = (0..logits.len()).max_by(|&one, &other| logits[one].total_cmp(&logits[other]));
        let token = best.expect("there are tokens") as u32;
        tokens.push(token);
        next = vec![token];
    }
    (tokens, bits)
}

pub(crate) fn prompt(length: u32) -> Vec<u32> {
    (0..length).map(|at| at * 37 % 96).collect()
}
