//! How exactly cached keys and values are stored.

use cascadia_kernels::Dtype;

use crate::ModelSpec;

/// The storage format of cached keys or values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheFormat {
    /// Four bytes a number.
    F32,
    /// Two bytes a number.
    F16,
}

/// The formats of one layer's cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KvFormat {
    /// How keys are stored.
    pub keys: CacheFormat,
    /// How values are stored.
    pub values: CacheFormat,
}

/// The formats of a model's cache, chosen when it is loaded. All stages of a model must be loaded with the same ones:
/// tokens depend on them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum KvFormats {
    /// Follows the weights: float weights keep f32, so that results stay those of the authors' code; quantised weights
    /// have lost more than f16 takes away.
    #[default]
    Auto,
    /// The same in every layer.
    Uniform(KvFormat),
    /// One for each layer of the model, counted from the first.
    PerLayer(Vec<KvFormat>),
}

impl CacheFormat {
    /// All formats by their names.
    pub const ALL: [(&'static str, CacheFormat); 2] = [("f32", CacheFormat::F32), ("f16", CacheFormat::F16)];

    /// What people and files call it.
    pub fn name(self) -> &'static str {
        CacheFormat::ALL.iter().find(|(_, format)| *format == self).map_or("", |(name, _)| name)
    }

    /// The format that goes by this name.
    pub fn from_name(name: &str) -> Option<CacheFormat> {
        CacheFormat::ALL.iter().find(|(known, _)| *known == name).map(|(_, format)| *format)
    }

    /// Bytes that `tokens` cached rows of `numbers` numbers take.
    pub(crate) fn bytes(self, tokens: u64, numbers: u64) -> u64 {
        let number = match self {
            CacheFormat::F32 => 4,
            CacheFormat::F16 => 2,
        };
        tokens.saturating_mul(numbers).saturating_mul(number)
    }
}

impl KvFormat {
    /// Keys and values alike.
    pub const fn both(format: CacheFormat) -> KvFormat {
        KvFormat { keys: format, values: format }
    }

    /// The format that suits weights of `dtype`.
    fn for_weights(dtype: Dtype) -> KvFormat {
        KvFormat::both(if dtype.is_float() { CacheFormat::F32 } else { CacheFormat::F16 })
    }
}

impl KvFormats {
    /// The format of one layer of a model.
    pub fn of(&self, spec: &ModelSpec, layer: usize) -> KvFormat {
        match self {
            KvFormats::Auto => KvFormat::for_weights(spec.weights),
            KvFormats::Uniform(format) => *format,
            KvFormats::PerLayer(formats) => {
                formats.get(layer).copied().unwrap_or_else(|| KvFormat::for_weights(spec.weights))
            }
        }
    }

    /// The formats as one word: `f16`, `f16/f32` for keys and values, or one such word per layer, joined by commas.
    /// What depends on the cache's bits (a manifest, a resume token) includes it.
    pub fn describe(&self, spec: &ModelSpec) -> String {
        let word = |format: KvFormat| match format {
            KvFormat { keys, values } if keys == values => keys.name().to_owned(),
            KvFormat { keys, values } => format!("{}/{}", keys.name(), values.name()),
        };
        let formats: Vec<KvFormat> = (0..spec.layers.len()).map(|layer| self.of(spec, layer)).collect();
        match formats.split_first() {
            Some((first, rest)) if rest.iter().all(|format| format == first) => word(*first),
            _ => formats.into_iter().map(word).collect::<Vec<_>>().join(","),
        }
    }
}
