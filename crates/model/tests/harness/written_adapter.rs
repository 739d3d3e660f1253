//! Adapters written by a test, with whatever tensors and settings it wants.

use std::fs;
use std::path::Path;

use serde_json::{Map, Value, json};

/// A PEFT folder that is going to be written.
#[derive(Clone)]
pub(crate) struct WrittenAdapter {
    /// The content of adapter_config.json.
    pub(crate) config: Value,
    pub(crate) tensors: Vec<WrittenTensor>,
}

/// One tensor of it.
#[derive(Clone)]
pub(crate) struct WrittenTensor {
    pub(crate) name: String,
    /// As safetensors calls it.
    pub(crate) dtype: &'static str,
    pub(crate) shape: Vec<usize>,
    pub(crate) bytes: Vec<u8>,
}

/// A matrix of a model, by the name that a Hugging Face folder has for its module.
#[derive(Clone, Copy)]
pub(crate) struct Module<'a> {
    pub(crate) name: &'a str,
    pub(crate) rows: usize,
    pub(crate) columns: usize,
}

impl WrittenTensor {
    /// Small pseudo-random floats.
    pub(crate) fn random(name: &str, shape: &[usize]) -> WrittenTensor {
        let mut state = name.bytes().fold(1_u64, |state, byte| state.wrapping_mul(31).wrapping_add(u64::from(byte)));
        let mut value = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            ((state >> 40) as f32 / (1 << 23) as f32 - 1.0) * 0.1
        };
        let bytes = (0..shape.iter().product::<usize>()).flat_map(|_| value().to_le_bytes()).collect();
        WrittenTensor { name: name.to_owned(), dtype: "F32", shape: shape.to_vec(), bytes }
    }

    /// The same with another shape, and as many floats as that holds.
    pub(crate) fn reshape(&mut self, shape: &[usize]) {
        *self = WrittenTensor::random(&self.name, shape);
    }

    /// Puts a float in the place of another.
    pub(crate) fn set(&mut self, place: usize, value: f32) {
        self.bytes[4 * place..4 * place + 4].copy_from_slice(&value.to_le_bytes());
    }
}

impl WrittenAdapter {
    /// Updates of one rank for some modules.
    pub(crate) fn random(modules: &[Module<'_>], rank: usize) -> WrittenAdapter {
        let pair = |Module { name, rows, columns }: &Module<'_>| {
            let tensor = |half: &str, shape: &[usize]| {
                WrittenTensor::random(&format!("base_model.model.{name}.lora_{half}.weight"), shape)
            };
            [tensor("A", &[rank, *columns]), tensor("B", &[*rows, rank])]
        };
        WrittenAdapter {
            config: json!({"peft_type": "LORA", "r": rank, "lora_alpha": 2 * rank, "bias": "none"}),
            tensors: modules.iter().flat_map(pair).collect(),
        }
    }

    /// The first tensor with this piece in its name.
    pub(crate) fn tensor(&mut self, piece: &str) -> &mut WrittenTensor {
        self.tensors.iter_mut().find(|tensor| tensor.name.contains(piece)).expect("a tensor of this name")
    }

    /// Leaves out tensors with this piece in their names.
    pub(crate) fn remove(&mut self, piece: &str) {
        self.tensors.retain(|tensor| !tensor.name.contains(piece));
    }

    /// Writes both files into a folder.
    pub(crate) fn write(&self, folder: &Path) {
        fs::write(folder.join("adapter_config.json"), self.config.to_string()).expect("the settings are written");
        let (mut header, mut data) = (Map::new(), Vec::new());
        for WrittenTensor { name, dtype, shape, bytes } in &self.tensors {
            let offsets = [data.len(), data.len() + bytes.len()];
            header.insert(name.clone(), json!({"dtype": dtype, "shape": shape, "data_offsets": offsets}));
            data.extend_from_slice(bytes);
        }
        let header = Value::Object(header).to_string();
        let length = (header.len() as u64).to_le_bytes();
        let whole = [&length, header.as_bytes(), &data].concat();
        fs::write(folder.join("adapter_model.safetensors"), whole).expect("the weights are written");
    }
}
