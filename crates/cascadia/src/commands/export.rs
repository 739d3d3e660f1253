//! `cascadia export`.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use cascadia_engine::{Recipe, ShardJob, write_shard};
use cascadia_fleet::{
    Digest, MANIFEST_VERSION, Manifest, Numerics, Shard, StageSplit, TOKEN_IO_FILE, holds_ends, stage_file, tells_stage,
};
use cascadia_kernels::Pool;
use cascadia_model::ModelSpec;
use cascadia_weights::ModelFiles;
use serde_json::{Value, json};

use crate::flags::ExportFlags;
use crate::output::{print, print_json};
use crate::progress::Progress;
use crate::source::Located;
use crate::threads::pool;

/// Keeps the numbers of the source.
const KEEP: &str = "keep";
/// What is finished so far, for an export that was interrupted.
const PROGRESS_FILE: &str = "export.json";

/// Writes a model as one shard for both ends, one for every stage, and a manifest.
pub(crate) fn export(flags: &ExportFlags) -> anyhow::Result<()> {
    let located = Located::find(&flags.model)?;
    let files = located.files()?;
    let spec = ModelSpec::from_files(&files)?;
    let split = match flags.stages {
        Some(count) => StageSplit::even(&spec, count)?,
        None => StageSplit::at(&spec, &flags.splits)?,
    };
    let recipe = (flags.precision != KEEP).then(|| flags.precision.parse::<Recipe>()).transpose()?;
    fs::create_dir_all(&flags.out).with_context(|| format!("cannot make the folder {}", flags.out.display()))?;
    let finished = Finished::read(&flags.out, job_key(flags, &files));
    let mut export = Export { flags, files: &files, recipe, pool: pool(&flags.threads), finished };
    let token_io = export.shard(TOKEN_IO_FILE, [0, 0], (&holds_ends, &|_| true))?;
    let mut stages = Vec::new();
    for (stage, layers) in split.stages().iter().enumerate() {
        let holds = |name: &str| split.holds(stage, name);
        stages.push(export.shard(&stage_file(stage), [layers.start, layers.end], (&holds, &tells_stage))?);
    }
    // Formats decide how keys and values are cached, so the result is asked and not the source.
    let written = ModelFiles::open(&flags.out.join(TOKEN_IO_FILE))?;
    let manifest = Manifest {
        version: MANIFEST_VERSION,
        model: Manifest::model_digest(&token_io, &stages),
        name: located.name(),
        precision: flags.precision.clone(),
        numerics: Numerics::of(&ModelSpec::from_files(&written)?),
        token_io,
        stages,
    };
    manifest.write(&flags.out)?;
    // Without it, the next export begins afresh: the manifest says all there is to say.
    let _ = fs::remove_file(flags.out.join(PROGRESS_FILE));
    report(flags, &manifest)
}

/// An export under way.
struct Export<'a> {
    flags: &'a ExportFlags,
    files: &'a ModelFiles,
    recipe: Option<Recipe>,
    pool: Arc<Pool>,
    finished: Finished,
}

/// Which tensors and which metadata a shard gets.
type Choice<'a> = (&'a dyn Fn(&str) -> bool, &'a dyn Fn(&str) -> bool);

impl Export<'_> {
    /// Writes a shard unless it is there already.
    fn shard(&mut self, file: &str, layers: [u32; 2], (holds, tells): Choice<'_>) -> anyhow::Result<Shard> {
        let path = self.flags.out.join(file);
        if let Some(shard) = self.finished.find(file, layers)
            && Digest::of_file(&path).ok() == Some((shard.digest, shard.bytes))
        {
            return Ok(shard);
        }
        let bar = Progress::new(file);
        let job =
            ShardJob { files: self.files, out: &path, recipe: self.recipe.as_ref(), holds, tells, pool: &self.pool };
        let entries = write_shard(&job, |step| {
            bar.label(&format!("{file}: {}", step.tensor));
            bar.set(step.done, step.total);
        })?;
        let (digest, bytes) = Digest::of_file(&path)?;
        let tensors = entries.iter().map(|entry| format!("{} {:?} {}", entry.dtype, entry.shape, entry.name)).collect();
        let shard = Shard { file: file.to_owned(), digest, bytes, layers, tensors };
        self.finished.add(&self.flags.out, shard.clone())?;
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
        let text = serde_json::to_vec(&json!({ "job": self.job, "shards": self.shards }))?;
        let path = folder.join(PROGRESS_FILE);
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
    }
}

/// What tells one export from another: the settings, and the files with their lengths and times.
fn job_key(flags: &ExportFlags, files: &ModelFiles) -> String {
    let mut sources: Vec<&Path> = files.tensors().iter().map(|tensor| tensor.file()).collect();
    sources.sort_unstable();
    sources.dedup();
    let state = |path: &&Path| match fs::metadata(path) {
        Ok(metadata) => format!("{} {} {:?}", path.display(), metadata.len(), metadata.modified().ok()),
        Err(_) => path.display().to_string(),
    };
    let sources: Vec<String> = sources.iter().map(state).collect();
    let version = env!("CARGO_PKG_VERSION");
    let settings = format!("{version} {} {:?} {:?} {sources:?}", flags.precision, flags.stages, flags.splits);
    Digest::of(settings.as_bytes()).to_string()
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
