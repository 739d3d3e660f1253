//! Which tokens of a model's cache are quantised, and how.

use super::{CacheFormat, KvFormat};
use crate::spec::MixerSpec;
use crate::{ModelSpec, PAGE_TOKENS};

/// How a model's cache is stored, chosen when it is loaded. All stages of a model must be loaded with the same policy: tokens
/// depend on it. What a token sees is a function of its position and of this alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KvPolicy {
    /// The formats of tokens that are older than the tail.
    pub formats: KvFormats,
    /// The newest tokens, which stay as they were computed where older ones are quantised; at least so many.
    pub tail: u32,
    /// The first position whose token sees quantised ones: before it, everything stays as it was computed.
    pub from: u32,
}

/// The formats of a model's layers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum KvFormats {
    /// Keys as bytes and values of four bits where weights are quantised too. Weights that are not, layers that read a short
    /// window and latent caches, which are small as they are, have exact ones.
    #[default]
    Auto,
    /// All tokens as exactly as the weights suggest: f16 where they are quantised, f32 where not.
    Exact,
    /// The same in every layer.
    Uniform(KvFormat),
    /// One for each layer of the model, counted from the first; layers beyond the last have that one's.
    PerLayer(Vec<KvFormat>),
}

/// The newest tokens of layers whose older ones are quantised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tail {
    /// How many there are at least.
    pub(crate) tokens: u32,
    /// The first position whose token sees less than everything in it.
    pub(crate) from: u32,
    /// How they are stored.
    pub(crate) format: KvFormat,
}

/// Policies by name, besides those that have the name of a format.
const NAMED: [(&str, KvFormats); 5] = [
    ("auto", KvFormats::Auto),
    ("exact", KvFormats::Exact),
    ("quality", KvFormats::Uniform(KvFormat::both(CacheFormat::Int8))),
    ("balanced", KvFormats::Uniform(KvFormat { keys: CacheFormat::Int8, values: CacheFormat::Int4 })),
    ("max", KvFormats::Uniform(KvFormat::both(CacheFormat::Int4))),
];

impl Default for KvPolicy {
    fn default() -> KvPolicy {
        KvPolicy::new(KvFormats::default())
    }
}

impl KvPolicy {
    /// Tokens of the tail, unless a policy says otherwise.
    pub const TAIL: u32 = 128;

    /// These formats, with the usual tail.
    pub const fn new(formats: KvFormats) -> KvPolicy {
        KvPolicy { formats, tail: KvPolicy::TAIL, from: 0 }
    }

    /// Keys and values alike in every layer.
    pub const fn uniform(format: CacheFormat) -> KvPolicy {
        KvPolicy::new(KvFormats::Uniform(KvFormat::both(format)))
    }

    /// The policy that goes by a name: `auto`, `exact`, `quality`, `balanced`, `max`, a format such as `int8`, or two for keys
    /// and values, such as `int8/int4`.
    pub fn named(name: &str) -> Option<KvPolicy> {
        let named = NAMED.into_iter().find(|(known, _)| *known == name).map(|(_, formats)| formats);
        named.or_else(|| KvFormat::from_name(name).map(KvFormats::Uniform)).map(KvPolicy::new)
    }

    /// All names of policies, those of pairs left out.
    pub fn names() -> impl Iterator<Item = &'static str> {
        let formats = CacheFormat::ALL.into_iter().map(|(name, _)| name);
        NAMED.into_iter().map(|(name, _)| name).chain(formats)
    }

    /// The format of one layer of a model.
    pub fn of(&self, spec: &ModelSpec, layer: usize) -> KvFormat {
        let exact = KvFormat::for_weights(spec.weights);
        match &self.formats {
            KvFormats::Auto if spec.weights.is_float() => exact,
            KvFormats::Auto => match &spec.layers[layer].mixer.part {
                MixerSpec::Latent(_) => exact,
                MixerSpec::Attention(attention) if attention.sees_later => exact,
                mixer if mixer.cache().window.is_some_and(|window| window <= SHORT_WINDOW) => exact,
                MixerSpec::Attention(_) => KvFormat { keys: CacheFormat::Int8, values: CacheFormat::Int4 },
            },
            KvFormats::Exact => exact,
            KvFormats::Uniform(format) => *format,
            KvFormats::PerLayer(formats) => formats.get(layer).or(formats.last()).copied().unwrap_or(exact),
        }
    }

    /// What is left as it was computed where older tokens are quantised.
    pub(crate) fn tail(&self, spec: &ModelSpec) -> Tail {
        Tail { tokens: self.tail, from: self.from, format: KvFormat::for_weights(spec.weights) }
    }

    /// The policy as one text: `f16`, `int8/int4` for keys and values, or one such word per layer, joined by commas; then what
    /// differs from the usual. What depends on the cache's bits (a manifest, a resume token) includes it.
    pub fn describe(&self, spec: &ModelSpec) -> String {
        let formats: Vec<KvFormat> = (0..spec.layers.len()).map(|layer| self.of(spec, layer)).collect();
        let mut text = match formats.split_first() {
            Some((first, rest)) if rest.iter().all(|format| format == first) => first.name(),
            _ => formats.iter().map(|format| format.name()).collect::<Vec<_>>().join(","),
        };
        if formats.iter().any(|format| format.is_quantised()) {
            for (what, number, usual) in [("tail", self.tail, KvPolicy::TAIL), ("from", self.from, 0)] {
                if number != usual {
                    text += &format!(" {what} {number}");
                }
            }
        }
        text
    }
}

/// Windows up to this have caches so small that quantising them saves little.
const SHORT_WINDOW: u32 = 1024;

impl Tail {
    /// How many of the newest positions its pages hold.
    pub(crate) fn span(self) -> u32 {
        self.tokens.max(self.from)
    }

    /// The first page that a token at `position` sees as it was computed.
    pub(crate) fn first_page(self, position: u32) -> u32 {
        match position < self.from {
            true => 0,
            false => position.saturating_add(1).saturating_sub(self.tokens) / PAGE_TOKENS,
        }
    }
}
