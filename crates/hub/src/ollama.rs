//! Models that Ollama has stored, which are read where they are and never changed.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::cache::entries;
use crate::digest::is_sha256;
use crate::{Place, StoredModel};

/// The registry and the namespace that names leave out.
const USUAL_HOST: &str = "registry.ollama.ai";
const USUAL_NAMESPACE: &str = "library";

/// The layer of a model that is a GGUF file.
const MODEL_LAYER: &str = "application/vnd.ollama.image.model";

/// The longest manifest that is read.
const MAX_MANIFEST: u64 = 1 << 20;

/// All models below `folder`, which is `~/.ollama/models` as a rule.
pub(crate) fn stored(folder: &Path) -> Vec<StoredModel> {
    let mut models = Vec::new();
    for (host, path) in entries(&folder.join("manifests")) {
        for (namespace, path) in entries(&path) {
            for (name, path) in entries(&path) {
                let tags = entries(&path).into_iter();
                let model = |(tag, manifest): (String, PathBuf)| {
                    let blob = model_blob(folder, &manifest)?;
                    let name = format!("{}{name}:{tag}", prefix(&host, &namespace));
                    Some(StoredModel {
                        name,
                        files: vec![blob.clone()],
                        path: blob,
                        place: Place::Ollama,
                        licence: None,
                        sha256: None,
                    })
                };
                models.extend(tags.filter_map(model));
            }
        }
    }
    models
}

/// The model that Ollama knows by this name.
pub(crate) fn find(folder: &Path, name: &str) -> Option<StoredModel> {
    let last = name.rsplit('/').next().unwrap_or(name);
    let name = if last.contains(':') { name.to_owned() } else { format!("{name}:latest") };
    stored(folder).into_iter().find(|model| model.name.eq_ignore_ascii_case(&name))
}

/// What comes before the name of a model.
fn prefix(host: &str, namespace: &str) -> String {
    match (host, namespace) {
        (USUAL_HOST, USUAL_NAMESPACE) => String::new(),
        (USUAL_HOST, _) => format!("{namespace}/"),
        _ => format!("{host}/{namespace}/"),
    }
}

/// The GGUF file that a manifest leads to, if it is there.
fn model_blob(folder: &Path, manifest: &Path) -> Option<PathBuf> {
    let mut text = Vec::new();
    File::open(manifest).ok()?.take(MAX_MANIFEST).read_to_end(&mut text).ok()?;
    let manifest: Value = serde_json::from_slice(&text).ok()?;
    let layer = manifest["layers"].as_array()?.iter().find(|layer| layer["mediaType"] == MODEL_LAYER)?;
    let digest = layer["digest"].as_str()?.strip_prefix("sha256:").filter(|digest| is_sha256(digest))?;
    let blob = folder.join("blobs").join(format!("sha256-{digest}"));
    blob.is_file().then_some(blob)
}
