//! Exports a model: one shard with embeddings and output matrix, one for every stage, and a manifest.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cascadia_fleet::{
    Digest, FleetEvent, MANIFEST_FILE, MANIFEST_VERSION, Manifest, Numerics, Shard, StageSplit, TOKEN_IO_FILE,
    holds_ends, stage_file, tells_stage, write_json,
};
use cascadia_kernels::Pool;
use cascadia_model::ModelSpec;
use cascadia_quantize::{Recipe, ShardJob, write_shard};
use cascadia_weights::ModelFiles;
use serde_json::{Value, json};

use crate::CoordinatorError;

/// Keeps the numbers of the source.
pub const KEEP: &str = "keep";
/// What is finished of which export: one that was interrupted continues, and one that is made again has nothing to do.
const PROGRESS_FILE: &str = "export.json";

/// A model that is to be split into shards.
pub struct ExportJob<'a> {
    /// What people call it.
    pub name: String,
    /// Its files.
    pub files: &'a ModelFiles,
    /// Where it is split.
    pub split: &'a StageSplit,
    /// The formats of the result.
    pub precision: &'a str,
    /// The folder to write to.
    pub out: &'a Path,
    /// The threads to compute with.
    pub pool: Arc<Pool>,
    /// Hears of every tensor that is written.
    pub notify: &'a (dyn Fn(&FleetEvent) + Sync),
}

impl ExportJob<'_> {
    /// Writes what is not there yet.
    pub fn write(&self) -> Result<Manifest, CoordinatorError> {
        let recipe = recipe(self.precision)?;
        fs::create_dir_all(self.out).map_err(CoordinatorError::io("make the folder", self.out))?;
        let finished = Finished::read(self.out, self.key());
        finished.write(self.out)?;
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
        Ok(manifest)
    }

    /// The files that it writes.
    pub fn outputs(&self) -> Vec<PathBuf> {
        let stages = (0..self.split.stages().len()).map(stage_file);
        let names = [TOKEN_IO_FILE.to_owned()].into_iter().chain(stages).chain([MANIFEST_FILE.to_owned()]);
        names.map(|name| self.out.join(name)).collect()
    }

    /// A file of another export that would be replaced; none where this one continues or is made again.
    pub fn replaced(&self) -> Option<PathBuf> {
        let continues = Finished::stored(self.out).is_some_and(|stored| stored["job"] == self.key().as_str());
        self.outputs().into_iter().find(|path| !continues && path.exists())
    }

    /// What tells one export from another: the settings, and the files with their lengths and times.
    pub fn key(&self) -> String {
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
pub fn recipe(precision: &str) -> Result<Option<Recipe>, CoordinatorError> {
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
    fn shard(
        &mut self,
        file: &str,
        layers: [u32; 2],
        (holds_tensor, keeps_metadata): Choice<'_>,
    ) -> Result<Shard, CoordinatorError> {
        let ExportJob { files, out, pool, notify, .. } = self.job;
        let path = out.join(file);
        if let Some(shard) = self.finished.find(file, layers)
            && Digest::of_file(&path).ok() == Some((shard.digest, shard.bytes))
        {
            return Ok(shard);
        }
        let job = ShardJob { files, out: &path, recipe: self.recipe.as_ref(), holds_tensor, keeps_metadata, pool };
        let entries = write_shard(&job, |step| {
            let (file, tensor) = (file.to_owned(), step.tensor.to_owned());
            notify(&FleetEvent::WritingShard { file, tensor, done: step.done, total: step.total });
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
        let stored = Finished::stored(folder);
        let mine = stored.filter(|stored| stored["job"] == job.as_str());
        let shards = mine.and_then(|stored| serde_json::from_value(stored["shards"].clone()).ok());
        Finished { job, shards: shards.unwrap_or_default() }
    }

    /// What the last export into a folder has left there.
    fn stored(folder: &Path) -> Option<Value> {
        let stored = fs::read(folder.join(PROGRESS_FILE)).ok()?;
        serde_json::from_slice(&stored).ok()
    }

    fn find(&self, file: &str, layers: [u32; 2]) -> Option<Shard> {
        self.shards.iter().find(|shard| shard.file == file && shard.layers == layers).cloned()
    }

    fn add(&mut self, folder: &Path, shard: Shard) -> Result<(), CoordinatorError> {
        self.shards.retain(|other| other.file != shard.file);
        self.shards.push(shard);
        self.write(folder)
    }

    fn write(&self, folder: &Path) -> Result<(), CoordinatorError> {
        let progress = json!({ "job": self.job, "shards": self.shards });
        Ok(write_json(&folder.join(PROGRESS_FILE), &progress)?)
    }
}
