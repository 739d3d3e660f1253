//! Exports the model of a folder and writes it as a GGUF file.

use std::path::Path;

use cascadia_kernels::Dtype;
use cascadia_model::{ModelSpec, gguf_export};
use cascadia_weights::gguf::write::{Outline, TensorEntry, write};
use cascadia_weights::{MetadataValue, ModelFiles, WeightsError};

/// What goes into the file.
pub(crate) struct Exported {
    pub(crate) spec: ModelSpec,
    pub(crate) settings: Vec<(String, MetadataValue)>,
    pub(crate) tensors: Vec<ExportedTensor>,
}

/// One tensor of it.
pub(crate) struct ExportedTensor {
    pub(crate) name: String,
    pub(crate) dtype: Dtype,
    pub(crate) shape: Vec<u64>,
    pub(crate) bytes: Vec<u8>,
}

/// Exports the model in `folder`.
pub(crate) fn export(folder: &Path) -> Exported {
    let files = ModelFiles::open(folder).expect("the fixture opens");
    let spec = ModelSpec::from_files(&files).expect("the fixture has settings");
    let export = gguf_export(&files, &spec).expect("the fixture can be exported");
    let tensors = export.tensors.iter().map(|tensor| {
        let (dtype, bytes) = export.read(tensor).expect("its tensors can be read");
        let bytes = (*bytes).as_ref().to_vec();
        ExportedTensor { name: tensor.name.clone(), dtype, shape: tensor.shape.clone(), bytes }
    });
    let tensors = tensors.collect();
    Exported { spec, settings: export.settings, tensors }
}

/// Writes an export to a GGUF file.
pub(crate) fn write_gguf(path: &Path, exported: &Exported) {
    let entry = |tensor: &ExportedTensor| TensorEntry {
        name: tensor.name.clone(),
        dtype: tensor.dtype,
        shape: tensor.shape.clone(),
    };
    let tensors: Vec<TensorEntry> = exported.tensors.iter().map(entry).collect();
    let outline = Outline { metadata: &exported.settings, tensors: &tensors };
    let written = write::<WeightsError, _>(path, outline, |index, sink| sink.write(&exported.tensors[index].bytes));
    written.expect("the file is written");
}
