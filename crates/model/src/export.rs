//! A model's settings and tensors as GGUF writes them, whatever file they come from.

use cascadia_weights::{FileKind, MetadataValue, ModelFiles};

use crate::names::gguf_name;
use crate::rope::{RopeSpec, RopeStyle, frequencies};
use crate::{ModelError, ModelSpec, arch};

/// What goes into a GGUF file of a model besides its tokenizer.
pub struct GgufExport {
    /// The architecture's own settings.
    pub settings: Vec<(String, MetadataValue)>,
    /// Tensors in the order of the source.
    pub tensors: Vec<ExportedTensor>,
}

/// One tensor of the export.
pub struct ExportedTensor {
    /// Its GGUF name.
    pub name: String,
    /// Where its numbers come from.
    pub source: ExportSource,
}

/// Where the numbers of an exported tensor come from.
pub enum ExportSource {
    /// A tensor of the source, as it is.
    Tensor(String),
    /// A tensor of the source with the rows of every head reordered: `heads` runs of rows, first halves interleaved
    /// with second halves.
    InterleavedRows {
        /// Name in the source.
        tensor: String,
        /// How many heads its rows form.
        heads: usize,
    },
    /// Numbers that the source keeps in its settings.
    Values(Vec<f32>),
}

impl ExportSource {
    /// For every row of the exported matrix, the row of the source it is.
    pub fn row_order(&self, rows: usize) -> Vec<usize> {
        let ExportSource::InterleavedRows { heads, .. } = self else { return (0..rows).collect() };
        let head = rows / heads;
        (0..rows).map(|row| row / head * head + row % head % 2 * (head / 2) + row % head / 2).collect()
    }
}

/// Plans the export of a model read from a Hugging Face folder.
pub fn gguf_export(files: &ModelFiles, spec: &ModelSpec) -> Result<GgufExport, ModelError> {
    assert_eq!(files.kind(), FileKind::HuggingFace, "a GGUF file is copied, not exported");
    let habits = arch::gguf_habits(files, &spec.architecture)?;
    let mut tensors = Vec::new();
    for tensor in files.tensors() {
        let Some(name) = gguf_name(tensor.name()) else { continue };
        if spec.tied_output && name == "output.weight" {
            continue;
        }
        let heads = match name.rsplit('.').nth(1) {
            Some("attn_q") => Some(spec.layers[0].heads),
            Some("attn_k") => Some(spec.layers[0].kv_heads),
            _ => None,
        };
        let tensor = tensor.name().to_owned();
        let source = match heads {
            Some(heads) if habits.rope == RopeStyle::Interleaved => ExportSource::InterleavedRows { tensor, heads },
            _ => ExportSource::Tensor(tensor),
        };
        tensors.push(ExportedTensor { name, source });
    }
    if let Some(divisors) = rope_divisors(&spec.ropes[0]) {
        tensors.push(ExportedTensor { name: "rope_freqs.weight".into(), source: ExportSource::Values(divisors) });
    }
    Ok(GgufExport { settings: settings(spec, habits.architecture), tensors })
}

fn settings(spec: &ModelSpec, architecture: &str) -> Vec<(String, MetadataValue)> {
    let layer = &spec.layers[0];
    let count = |value: usize| MetadataValue::U32(value as u32);
    let window = layer.window.map(|window| ("attention.sliding_window", MetadataValue::U32(window)));
    let own = [
        ("block_count", count(spec.layers.len())),
        ("context_length", MetadataValue::U32(spec.context)),
        ("embedding_length", count(spec.width)),
        ("feed_forward_length", count(layer.feed_forward)),
        ("attention.head_count", count(layer.heads)),
        ("attention.head_count_kv", count(layer.kv_heads)),
        ("attention.key_length", count(layer.head)),
        ("attention.value_length", count(layer.head)),
        ("attention.layer_norm_rms_epsilon", MetadataValue::F32(spec.epsilon)),
        ("rope.dimension_count", count(2 * spec.ropes[0].frequencies.len())),
        ("rope.freq_base", MetadataValue::F32(spec.ropes[0].base)),
        ("vocab_size", count(spec.vocabulary)),
    ];
    let general = ("general.architecture".to_owned(), MetadataValue::String(architecture.as_bytes().into()));
    let own = own.into_iter().chain(window).map(|(key, value)| (format!("{architecture}.{key}"), value));
    std::iter::once(general).chain(own).collect()
}

/// Where frequencies are scaled, what each is divided by.
fn rope_divisors(rope: &RopeSpec) -> Option<Vec<f32>> {
    let plain = frequencies(rope.base, 2 * rope.frequencies.len());
    let divisors: Vec<f32> = plain.iter().zip(&rope.frequencies).map(|(plain, scaled)| plain / scaled).collect();
    divisors.iter().any(|&divisor| divisor != 1.0).then_some(divisors)
}
