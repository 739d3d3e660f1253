//! What an exported model consists of: shards by digest, and the numbers all its stages agree on.

use std::fs;
use std::path::Path;

use cascadia_model::{KvPolicy, ModelSpec};
use serde::{Deserialize, Serialize};

use crate::json_file::write_json;
use crate::{Digest, FleetError, layer_names};

/// The version of the manifest that this program writes and reads.
pub const MANIFEST_VERSION: u32 = 1;
/// What the manifest is called in the folder of an export.
pub const MANIFEST_FILE: &str = "manifest.json";
/// What the shard of both ends is called there.
pub const TOKEN_IO_FILE: &str = "token-io.gguf";

/// An exported model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// The version of this description.
    pub version: u32,
    /// What names the model: the digest of all shard digests.
    pub model: Digest,
    /// The model's name, for people.
    pub name: String,
    /// The formats asked for.
    pub precision: String,
    /// What all stages must agree on.
    pub numerics: Numerics,
    /// Both ends; it stays with the coordinator.
    pub token_io: Shard,
    /// The stages in order.
    pub stages: Vec<Shard>,
}

/// Numbers that shapes on the wire are derived from, and that decide which bits come out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Numerics {
    /// How keys and values are cached unless the coordinator asks for other formats.
    pub cache: String,
    /// Numbers in a row of hidden states.
    pub hidden_width: u32,
    /// Layers in all.
    pub layers: u32,
    /// Tokens that the model was made for.
    pub context: u32,
    /// Positions that layers with a window read; 0 where there are none.
    pub window: u32,
    /// Whether stages need the tokens of a step as well as hidden states.
    pub stages_need_tokens: bool,
}

/// One file of an exported model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Shard {
    /// Its name in the folder of the export.
    pub file: String,
    /// BLAKE3 of the file.
    pub digest: Digest,
    /// Its length.
    pub bytes: u64,
    /// Its first layer and the one after its last; both 0 for the ends.
    pub layers: [u32; 2],
    /// Its tensors: format, shape, name.
    pub tensors: Vec<String>,
}

/// What the shard of a stage is called in the folder of an export.
pub fn stage_file(stage: usize) -> String {
    format!("stage-{stage}.gguf")
}

impl Numerics {
    /// The numbers of a model.
    pub fn of(spec: &ModelSpec) -> Numerics {
        Numerics {
            cache: KvPolicy::default().describe(spec),
            hidden_width: spec.hidden_width() as u32,
            layers: spec.layers.len() as u32,
            context: spec.context,
            window: spec.window().unwrap_or(0),
            stages_need_tokens: spec.per_layer.is_some(),
        }
    }
}

impl Manifest {
    /// The digest that names a model of these shards.
    pub fn model_digest(token_io: &Shard, stages: &[Shard]) -> Digest {
        let all: Vec<Digest> = std::iter::once(token_io).chain(stages).map(|shard| shard.digest).collect();
        Manifest::digest_of(&all)
    }

    /// The same from the digests of all shards, the ends first.
    pub(crate) fn digest_of(shards: &[Digest]) -> Digest {
        Digest::of(&shards.iter().flat_map(|shard| shard.0).collect::<Vec<u8>>())
    }

    /// Reads the manifest of an export, and checks that it makes sense.
    pub fn read(folder: &Path) -> Result<Manifest, FleetError> {
        let path = folder.join(MANIFEST_FILE);
        let text = fs::read(&path).map_err(FleetError::io("read", &path))?;
        let manifest: Manifest = serde_json::from_slice(&text)
            .map_err(|error| FleetError::file(&path, format!("{error}; export the model again")))?;
        manifest.check().map_err(|problem| FleetError::file(&path, format!("{problem}; export the model again")))?;
        Ok(manifest)
    }

    fn check(&self) -> Result<(), String> {
        if self.version != MANIFEST_VERSION {
            return Err(format!("it has version {}, this program reads {MANIFEST_VERSION}", self.version));
        }
        let mut next = 0;
        for (index, stage) in self.stages.iter().enumerate() {
            let [start, end] = stage.layers;
            if start != next || end <= start || stage.file != stage_file(index) {
                let layers = layer_names(&(start..end));
                return Err(format!("stage {index} is {} with {layers}, where layer {next} comes next", stage.file));
            }
            next = end;
        }
        if next != self.numerics.layers || self.token_io.file != TOKEN_IO_FILE {
            return Err(format!("its stages have {next} layers of {}", self.numerics.layers));
        }
        if self.model != Manifest::model_digest(&self.token_io, &self.stages) {
            return Err("its digests do not make the model's".to_owned());
        }
        Ok(())
    }

    /// Writes the manifest into the folder of an export, at once or not at all.
    pub fn write(&self, folder: &Path) -> Result<(), FleetError> {
        write_json(&folder.join(MANIFEST_FILE), self)
    }
}
