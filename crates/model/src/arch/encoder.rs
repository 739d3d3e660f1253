//! What encoders have in common: tokens that see their whole text, and rows for texts in place of logits.

use super::Source;
use super::decoder::{each_attention, plain_decoder};
use super::keys::*;
use crate::spec::{
    ClassifierActivation, ClassifierDense, ClassifierSpec, NormKind, PooledRows, PoolingSpec, PositionsSpec,
};
use crate::{ModelError, ModelSpec};

/// An encoder of equal layers with layer norms.
pub(super) fn encoder(source: &Source<'_>) -> Result<ModelSpec, ModelError> {
    let mut spec = plain_decoder(source)?;
    spec.head = None;
    spec.embedding.normed = true;
    spec.norm.kind = NormKind::Layer { bias: source.catalog.has("token_embd_norm.bias") };
    spec.weights = source.catalog.require("blk.0.ffn_up.weight")?.dtype();
    each_attention(&mut spec, |_, attention| attention.sees_later = true);
    if let Some(classifier) = classifier(source) {
        spec.pooling =
            PoolingSpec { rows: PooledRows::First, normalised: false, classifier: Some(classifier), ..spec.pooling };
    }
    Ok(spec)
}

/// The same with a norm after every sum and none before it or at the end, as in BERT.
pub(super) fn encoder_with_norms_after(source: &Source<'_>) -> Result<ModelSpec, ModelError> {
    let mut spec = encoder(source)?;
    spec.final_norm = false;
    let texts = source.catalog.matrix_shape("token_types.weight").0;
    spec.embedding.texts = Some(texts).filter(|texts| *texts > 0);
    for layer in &mut spec.layers {
        (layer.mixer.norm_before, layer.mixer.norm_of_sum) = (None, Some("attn_output_norm"));
        (layer.feed_forward.norm_before, layer.feed_forward.norm_of_sum) = (None, Some("layer_output_norm"));
    }
    Ok(spec)
}

/// Gives tokens learned positions in place of rotated ones; the first token has that in row `first`.
pub(super) fn learn_positions(source: &Source<'_>, spec: &mut ModelSpec, first: usize) -> Result<(), ModelError> {
    source.catalog.require("position_embd.weight")?;
    let rows = source.catalog.matrix_shape("position_embd.weight").0;
    if rows <= first {
        return Err(source.settings.error(CONTEXT, format!("leaves no positions after the first {first}")));
    }
    spec.embedding.positions = Some(PositionsSpec { rows, first });
    spec.context = spec.context.min((rows - first) as u32);
    each_attention(spec, |_, attention| attention.rope = None);
    Ok(())
}

/// What the model says of texts, if it was trained for that: one number for each row of its last matrix.
fn classifier(source: &Source<'_>) -> Option<ClassifierSpec> {
    let catalog = &source.catalog;
    let architecture = source.settings.config()["architectures"][0].as_str().unwrap_or_default();
    let classifies = architecture.ends_with("ForSequenceClassification") && catalog.has("cls.output.weight");
    let dense = ClassifierDense {
        activation: ClassifierActivation::Tanh,
        bias: catalog.has("cls.bias"),
        normed: catalog.has("cls.norm.weight"),
    };
    classifies.then(|| ClassifierSpec {
        outputs: catalog.matrix_shape("cls.output.weight").0,
        bias: catalog.has("cls.output.bias"),
        dense: catalog.has("cls.weight").then_some(dense),
    })
}
