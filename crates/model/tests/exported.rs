//! The GGUF file that a folder is exported to gives the same logits as the folder, whatever form its tensors take there.

mod harness;

use std::path::Path;

use cascadia_kernels::{Dtype, SharedBytes};
use cascadia_model::{ExportedTensor, ModelSpec, gguf_export};
use cascadia_weights::gguf::write::{Outline, TensorEntry, write};
use cascadia_weights::{ModelFiles, WeightsError};

use harness::check_against;

#[test]
fn exported_models_give_the_reference() {
    // Not `llama-yarn-exact`: GGUF has no word for a ramp that starts inside a pair.
    let fixtures = ["llama3", "llama-yarn", "llama-dynamic", "qwen2-yarn", "phi3-short", "phi3-long", "phi4-long"];
    let scratch = tempfile::tempdir().expect("a temporary folder");
    for fixture in fixtures {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures").join(fixture);
        let path = scratch.path().join(format!("{fixture}.gguf"));
        let context = export(&folder, &path).context;
        let exported = ModelFiles::open(&path).expect("the exported file opens");
        let spec = ModelSpec::from_files(&exported).expect("the exported file has settings");
        assert_eq!(spec.context, context, "{fixture}");
        check_against(&folder, &path);
    }
}

/// Writes the model in `folder` to a GGUF file.
fn export(folder: &Path, path: &Path) -> ModelSpec {
    let files = ModelFiles::open(folder).expect("the fixture opens");
    let spec = ModelSpec::from_files(&files).expect("the fixture has settings");
    let export = gguf_export(&files, &spec).expect("the fixture can be exported");
    let read = export.tensors.iter().map(|tensor| export.read(tensor).expect("its tensors can be read"));
    let read: Vec<(Dtype, SharedBytes)> = read.collect();
    let entry = |(tensor, (dtype, _)): (&ExportedTensor, &(Dtype, SharedBytes))| TensorEntry {
        name: tensor.name.clone(),
        dtype: *dtype,
        shape: tensor.shape.clone(),
    };
    let tensors: Vec<TensorEntry> = export.tensors.iter().zip(&read).map(entry).collect();
    write::<WeightsError, _>(path, Outline { metadata: &export.settings, tensors: &tensors }, |index, sink| {
        sink.write((*read[index].1).as_ref())
    })
    .expect("the file is written");
    spec
}
