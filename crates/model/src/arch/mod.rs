//! Model families: the only files that know their names. Settings in, `ModelSpec` out.

mod bert;
mod bloom;
mod decoder;
mod deepseek;
mod encoder;
mod experts;
mod falcon;
mod gemma;
mod gemma3n;
mod gemma4;
mod glm;
mod gpt2;
mod gpt_oss;
mod granite;
mod keys;
mod llama;
mod modernbert;
mod mpt;
mod neox;
mod nomic;
mod olmo;
mod phi;
mod pooling;
mod positions;
mod qwen;
mod smollm;
mod starcoder;

pub(crate) use self::experts::scores_number;

use cascadia_weights::{FileKind, ModelFiles};

use crate::catalog::Catalog;
use crate::names::Rename;
use crate::rope::RopeStyle;
use crate::settings::Settings;
use crate::{ModelError, ModelSpec};

/// A family: the names it goes by, and how its settings and tensors become a specification.
struct Family {
    /// `model_type` in config.json, or `general.architecture` in GGUF.
    names: &'static [&'static str],
    /// What the files of a folder call its tensors.
    tensors: fn(&Settings<'_>) -> Result<Vec<Rename>, ModelError>,
    spec: fn(&Source<'_>) -> Result<ModelSpec, ModelError>,
    gguf: GgufHabits,
}

/// How a family is written to GGUF.
#[derive(Clone, Copy)]
pub(crate) struct GgufHabits {
    pub(crate) architecture: &'static str,
    /// Which numbers of a head are rotated together there.
    pub(crate) rope: RopeStyle,
}

/// What a specification is read from.
struct Source<'a> {
    settings: Settings<'a>,
    catalog: Catalog<'a>,
    /// Which numbers of a head are rotated together in this file.
    rope_style: RopeStyle,
}

const FAMILIES: &[Family] = &[
    llama::FAMILY,
    qwen::QWEN2,
    qwen::QWEN3,
    qwen::QWEN2_EXPERTS,
    qwen::QWEN3_EXPERTS,
    phi::FAMILY,
    gemma::GEMMA,
    gemma::GEMMA2,
    gemma::GEMMA3,
    gemma3n::FAMILY,
    gemma4::FAMILY,
    falcon::FAMILY,
    neox::FAMILY,
    mpt::FAMILY,
    bloom::FAMILY,
    gpt2::FAMILY,
    starcoder::FAMILY,
    olmo::FAMILY,
    olmo::EXPERTS,
    granite::FAMILY,
    granite::EXPERTS,
    gpt_oss::FAMILY,
    glm::FAMILY,
    deepseek::V2,
    deepseek::V3,
    smollm::FAMILY,
    bert::BERT,
    bert::ROBERTA,
    nomic::FAMILY,
    modernbert::FAMILY,
];

/// Reads the specification of a model of any family.
pub(crate) fn spec(files: &ModelFiles) -> Result<ModelSpec, ModelError> {
    let settings = Settings::read(files)?;
    let family = family(&settings)?;
    let rope_style = match files.kind() {
        FileKind::Gguf => family.gguf.rope,
        FileKind::HuggingFace => RopeStyle::Halves,
    };
    let catalog = Catalog::new(files, (family.tensors)(&settings)?);
    let source = Source { settings, catalog, rope_style };
    let spec = (family.spec)(&source)?;
    decoder::check(&source, &spec)?;
    Ok(spec)
}

/// The tensors of a model of any family.
pub(crate) fn catalog(files: &ModelFiles) -> Result<Catalog<'_>, ModelError> {
    let settings = Settings::read(files)?;
    Ok(Catalog::new(files, (family(&settings)?.tensors)(&settings)?))
}

/// How the model's family is written to GGUF.
pub(crate) fn gguf_habits(files: &ModelFiles) -> Result<GgufHabits, ModelError> {
    Ok(family(&Settings::read(files)?)?.gguf)
}

fn family(settings: &Settings<'_>) -> Result<&'static Family, ModelError> {
    let name = settings.architecture.as_str();
    FAMILIES.iter().find(|family| family.names.contains(&name)).ok_or_else(|| {
        let supported: Vec<&str> = FAMILIES.iter().flat_map(|family| family.names).copied().collect();
        ModelError::Architecture {
            path: settings.files.path().to_owned(),
            name: name.to_owned(),
            supported: supported.join(", "),
        }
    })
}
