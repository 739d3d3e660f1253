//! `cascadia export`.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use cascadia_fleet::{
    Digest, MANIFEST_VERSION, Manifest, Numerics, Shard, StageSplit, TOKEN_IO_FILE, holds_ends, stage_file,
    tells_stage, write_json,
};
use cascadia_kernels::Pool;
use cascadia_model::ModelSpec;
use cascadia_quantize::{Recipe, ShardJob, write_shard};
use cascadia_weights::ModelFiles;
use serde_json::{Value, json};

use super::plan::{self, Wanted};
use crate::flags::{ExportFlags, StageCount};
use crate::fleet_home::FleetHome;
use crate::output::{print, print_json, remark};
use crate::progress::Progress;
use crate::source::Located;
use crate::threads::pool;

/// Keeps the numbers of the source.
pub(crate) const KEEP: &str = "keep";
/// What is finished so far, for an export that was interrupted.
const PROGRESS_FILE: &str = "export.json";

/// Writes a model as one shard for both ends, one for every stage, and a manifest.
pub(crate) fn export(flags: &ExportFlags) -> anyhow::Result<()> {
    let located = Located::find(&flags.model)?;
    let files = located.files()?;
    let spec = ModelSpec::from_files(&files)?;
    let pool = pool(&flags.threads);
    let split = match flags.stages {
        Some(StageCount::Count(count)) => StageSplit::even(&spec, count)?,
        Some(StageCount::Auto) => {
            let home = FleetHome::find(flags.home.home.as_deref())?;
            let wanted = Wanted { precision: &flags.precision, context: None, users: plan::USERS };
            let found = plan::for_known_machines(&home, &files, (&wanted, &pool))?;
            remark(plan::table(&found, &[]).trim_end());
            plan::split(&spec, &found)?
        }
        None => StageSplit::at(&spec, &flags.splits)?,
    };
    let job = ExportJob {
        name: located.name(),
        files: &files,
        split: &split,
        precision: &flags.precision,
        out: &flags.out,
        pool: Arc::clone(&pool),
    };
    report(flags, &job.write()?)
}

/// A model that is to be cut.
pub(crate) struct ExportJob<'a> {
    /// What people call it.
    pub(crate) name: String,
    /// Its files.
    pub(crate) files: &'a ModelFiles,
    /// Where it is cut.
    pub(crate) split: &'a StageSplit,
    /// The formats of the result.
    pub(crate) precision: &'a str,
    /// The folder to write to.
    pub(crate) out: &'a Path,
    /// The threads to compute with.
    pub(crate) pool: Arc<Pool>,
}

impl ExportJob<'_> {
    /// Writes what is not there yet.
    pub(crate) fn write(&self) -> anyhow::Result<Manifest> {
        let recipe = recipe(self.precision)?;
        fs::create_dir_all(self.out).with_context(|| format!("cannot make the folder {}", self.out.display()))?;
        let finished = Finished::read(self.out, self.key());
        let mut export = Export { job: self, recipe, finished };
        let token_io = export.shard(TOKEN_IO_FILE, [0, 0], (&holds_ends, &|_| true))?;
        let mut stages = Vec::new();
        for (stage, layers) in self.split.stages().iter().enumerate() {
            let holds = |name: &str| self.split.holds(stage, name);
            stages.push(export.shard(&stage_file(stage), [layers.start, layers.end], (&holds, &tells_stage))?);
        }
        // Formats decide how keys and values are cached, so the result is asked and not the source.
        let written = ModelFiles::open(&self.out.join(TOKEN_IO_FILE))?;
        let manifest = Manifest {
            version: MANIFEST_VERSION,
            model: Manifest::model_digest(&token_io, &stages),
            name: self.name.clone(),
            precision: self.precision.to_owned(),
            numerics: Numerics::of(&ModelSpec::from_files(&written)?),
            token_io,
            stages,
        };
        manifest.write(self.out)?;
        // Without it, the next export begins afresh: the manifest says all there is to say.
        let _ = fs::remove_file(self.out.join(PROGRESS_FILE));
        Ok(manifest)
    }

    /// What tells one export from another: the settings, and the files with their lengths and times.
    pub(crate) fn key(&self) -> String {
        let mut sources: Vec<&Path> = self.files.tensors().iter().map(|tensor| tensor.file()).collect();
        sources.sort_unstable();
        sources.dedup();
        let state = |path: &&Path| match fs::metadata(path) {
            Ok(metadata) => format!("{} {} {:?}", path.display(), metadata.len(), metadata.modified().ok()),
            Err(_) => path.display().to_string(),
        };
        let sources: Vec<String> = sources.iter().map(state).collect();
        let version = env!("CARGO_PKG_VERSION");
        let settings = format!("{version} {} {:?} {sources:?}", self.precision, self.split.stages());
        Digest::of(settings.as_bytes()).to_string()
    }
}

/// The mix of formats that is called this; none to keep those of the source.
pub(crate) fn recipe(precision: &str) -> anyhow::Result<Option<Recipe>> {
    Ok((precision != KEEP).then(|| precision.parse::<Recipe>()).transpose()?)
}

/// An export under way.
struct Export<'a> {
    job: &'a ExportJob<'a>,
    recipe: Option<Recipe>,
    finished: Finished,
}

/// Which tensors and which metadata a shard gets.
type Choice<'a> = (&'a dyn Fn(&str) -> bool, &'a dyn Fn(&str) -> bool);

impl Export<'_> {
    /// Writes a shard unless it is there already.
    fn shard(&mut self, file: &str, layers: [u32; 2], (holds, tells): Choice<'_>) -> anyhow::Result<Shard> {
        let ExportJob { files, out, pool, .. } = self.job;
        let path = out.join(file);
        if let Some(shard) = self.finished.find(file, layers)
            && Digest::of_file(&path).ok() == Some((shard.digest, shard.bytes))
        {
            return Ok(shard);
        }
        let bar = Progress::new(file);
        let job = ShardJob { files, out: &path, recipe: self.recipe.as_ref(), holds, tells, pool };
        let entries = write_shard(&job, |step| {
            bar.label(&format!("{file}: {}", step.tensor));
            bar.set(step.done, step.total);
        })?;
        let (digest, bytes) = Digest::of_file(&path)?;
        let tensors = entries.iter().map(|entry| format!("{} {:?} {}", entry.dtype, entry.shape, entry.name)).collect();
        let shard = Shard { file: file.to_owned(), digest, bytes, layers, tensors };
        self.finished.add(out, shard.clone())?;
        Ok(shard)
    }
}

/// Shards that an export of the same model with the same settings has finished.
struct Finished {
    job: String,
    shards: Vec<Shard>,
}

impl Finished {
    fn read(folder: &Path, job: String) -> Finished {
        let stored = fs::read(folder.join(PROGRESS_FILE)).ok();
        let stored: Option<Value> = stored.and_then(|text| serde_json::from_slice(&text).ok());
        let mine = stored.filter(|stored| stored["job"] == job.as_str());
        let shards = mine.and_then(|stored| serde_json::from_value(stored["shards"].clone()).ok());
        Finished { job, shards: shards.unwrap_or_default() }
    }

    fn find(&self, file: &str, layers: [u32; 2]) -> Option<Shard> {
        self.shards.iter().find(|shard| shard.file == file && shard.layers == layers).cloned()
    }

    fn add(&mut self, folder: &Path, shard: Shard) -> anyhow::Result<()> {
        self.shards.retain(|other| other.file != shard.file);
        self.shards.push(shard);
        let progress = json!({ "job": self.job, "shards": self.shards });
        Ok(write_json(&folder.join(PROGRESS_FILE), &progress)?)
    }
}

fn report(flags: &ExportFlags, manifest: &Manifest) -> anyhow::Result<()> {
    if flags.json {
        return Ok(print_json(&json!({
            "out": flags.out,
            "model": manifest.model,
            "precision": manifest.precision,
            "shards": std::iter::once(&manifest.token_io).chain(&manifest.stages).map(|shard| json!({
                "file": shard.file, "digest": shard.digest, "bytes": shard.bytes, "layers": shard.layers,
            })).collect::<Vec<_>>(),
        }))?);
    }
    let mut text = format!("{} in {}:\n", manifest.name, flags.out.display());
    for shard in std::iter::once(&manifest.token_io).chain(&manifest.stages) {
        let [first, end] = shard.layers;
        let layers = if end == 0 { "both ends".to_owned() } else { format!("layers {first} to {}", end - 1) };
        text += &format!(
            "  {:<16} {layers:<18} {:>9.1} MB  {}\n",
            shard.file,
            shard.bytes as f64 / 1e6,
            shard.digest.short()
        );
    }
    Ok(print(&text)?)
}
