//! From tensors to layers: every shape is checked here once, so that the forward pass need not.

use cascadia_kernels::{Matrix, Shape};

use crate::altup::LayerAltUp;
use crate::catalog::Catalog;
use crate::decoder::{BranchNorms, Layer};
use crate::dense_and_experts::DenseAndExperts;
use crate::experts::{Experts, SharedExpert};
use crate::feed_forward::{Dense, FeedForward};
use crate::latent::LatentAttention;
use crate::laurel::Laurel;
use crate::mixer::{KeysAndValues, Mixer, SelfAttention, attention};
use crate::norm::Norm;
use crate::per_layer::PerLayerBranch;
use crate::projection::{GroupedProjection, Projection};
use crate::router::Router;
use crate::spec::{
    AltUpSpec, AttentionSpec, Branch, CacheSource, DenseAndExpertsSpec, DenseSpec, ExpertsSpec, FeedForwardSpec, Gate,
    HeadNorm, LatentSpec, LaurelSpec, MixerSpec, NormKind, NormSpec, PerLayerSpec, SharedExpertSpec, ValueSource,
};
use crate::{ActivationStats, ModelError, ModelSpec};

/// Builds layer `index` of the model.
pub(crate) fn layer(
    catalog: &Catalog<'_>,
    spec: &ModelSpec,
    index: usize,
    stats: Option<&ActivationStats>,
) -> Result<Layer, ModelError> {
    let layer = &spec.layers[index];
    let parts = Parts { catalog, spec, layer: index, stats };
    let output_scale = || catalog.require_vector(&parts.name("layer_output_scale.weight"), 1);
    let output_scale = layer.output_scaled.then(output_scale).transpose()?;
    Ok(Layer {
        mixer: match &layer.mixer.part {
            MixerSpec::Attention(attention) => Mixer::Attention(parts.attention(attention)?),
            MixerSpec::Latent(latent) => Mixer::Latent(parts.latent(latent)?),
        },
        mixer_norms: parts.norms(&layer.mixer)?,
        laurel: layer.laurel.map(|laurel| parts.laurel(&laurel)).transpose()?,
        feed_forward: match &layer.feed_forward.part {
            FeedForwardSpec::Dense(dense) => FeedForward::Dense(Box::new(parts.dense(dense, "")?)),
            FeedForwardSpec::Experts(experts) => FeedForward::Experts(Box::new(parts.experts(experts)?)),
            FeedForwardSpec::DenseAndExperts(dense_and_experts) => {
                FeedForward::DenseAndExperts(Box::new(parts.dense_and_experts(dense_and_experts)?))
            }
        },
        feed_forward_norms: parts.norms(&layer.feed_forward)?,
        order: layer.order,
        altup: spec.altup.map(|altup| parts.altup(&altup)).transpose()?,
        per_layer: spec.per_layer.map(|inputs| parts.per_layer(&inputs)).transpose()?,
        residual_scale: layer.residual_scale,
        output_scale: output_scale.map(|scale| scale[0]),
    })
}

/// The parts of one layer by their GGUF names.
struct Parts<'a> {
    catalog: &'a Catalog<'a>,
    spec: &'a ModelSpec,
    layer: usize,
    stats: Option<&'a ActivationStats>,
}

impl Parts<'_> {
    fn name(&self, part: &str) -> String {
        format!("blk.{}.{part}", self.layer)
    }

    fn norms<T>(&self, branch: &Branch<T>) -> Result<BranchNorms, ModelError> {
        let norm = |name: &str| Norm::new(self.catalog, &self.name(name), self.spec.width, self.spec.norm);
        Ok(BranchNorms {
            before: branch.norm_before.map(norm).transpose()?,
            after: branch.norm_after.map(norm).transpose()?,
            of_sum: branch.norm_of_sum.map(norm).transpose()?,
        })
    }

    fn attention(&self, spec: &AttentionSpec) -> Result<SelfAttention, ModelError> {
        let AttentionSpec { heads, kv_heads, head, .. } = *spec;
        let (query_rows, kv_rows, width) = (heads * head, kv_heads * head, self.spec.width);
        let projection = |name: &str, rows| self.projection(name, Shape { rows, columns: width }, spec.qkv_bias);
        let (query, cached) = if spec.cache != CacheSource::Own {
            (projection("attn_q", query_rows)?, None)
        } else if self.catalog.has(&self.name("attn_qkv.weight")) {
            let [query, key, value] = self.parts_of("attn_qkv", [query_rows, kv_rows, kv_rows], spec.qkv_bias)?;
            (query, Some((key, Some(value))))
        } else {
            let value = match spec.values {
                ValueSource::Projection => Some(projection("attn_v", kv_rows)?),
                ValueSource::Keys => None,
            };
            (projection("attn_q", query_rows)?, Some((projection("attn_k", kv_rows)?, value)))
        };
        let head_norm = |name: &str, heads: usize| {
            let width = match spec.head_norm? {
                HeadNorm::EachHead => head,
                HeadNorm::AllHeads => heads * head,
            };
            // These divide by the mean square also where a model's other norms do not.
            let norm = NormSpec { kind: NormKind::RootMeanSquare, epsilon: self.spec.norm.epsilon };
            Some(Norm::new(self.catalog, &self.name(name), width, norm))
        };
        let sinks = || self.catalog.require_vector(&self.name("attn_sinks.weight"), heads);
        let output = Shape { rows: width, columns: query_rows };
        let cached = cached.map(|(key, value)| -> Result<KeysAndValues, ModelError> {
            let value_norm = spec.values_normed.then(|| Norm::by_mean_square(vec![1.0; head], self.spec.norm.epsilon));
            Ok(KeysAndValues { key, value, key_norm: head_norm("attn_k_norm", kv_heads).transpose()?, value_norm })
        });
        Ok(SelfAttention {
            query,
            query_norm: head_norm("attn_q_norm", heads).transpose()?,
            cached: cached.transpose()?,
            output: self.projection("attn_output", output, spec.output_bias)?,
            attention: attention(spec, if spec.sinks { Some(sinks()?) } else { None }),
            rope: spec.rope,
            clamp: spec.clamp,
        })
    }

    fn per_layer(&self, spec: &PerLayerSpec) -> Result<(PerLayerBranch, BranchNorms), ModelError> {
        let (width, inner) = (self.spec.width, spec.width);
        let branch = PerLayerBranch {
            gate: self.projection("inp_gate", Shape { rows: inner, columns: width }, false)?,
            output: self.projection("proj", Shape { rows: width, columns: inner }, false)?,
            activation: spec.activation,
            layer: self.layer,
        };
        let after = Norm::new(self.catalog, &self.name("post_norm"), width, self.spec.norm)?;
        Ok((branch, BranchNorms { before: None, after: Some(after), of_sum: None }))
    }

    fn laurel(&self, spec: &LaurelSpec) -> Result<Laurel, ModelError> {
        let (width, rank) = (self.spec.width, spec.rank);
        Ok(Laurel {
            into: self.projection("laurel_l", Shape { rows: rank, columns: width }, false)?,
            out: self.projection("laurel_r", Shape { rows: width, columns: rank }, false)?,
            norm: Norm::new(self.catalog, &self.name("laurel_post_norm"), width, self.spec.norm)?,
            scale: spec.scale,
        })
    }

    fn altup(&self, spec: &AltUpSpec) -> Result<LayerAltUp, ModelError> {
        let AltUpSpec { count, active, scaled } = *spec;
        let width = self.spec.width;
        let among = |name: &str, rows| self.projection(name, Shape { rows, columns: count }, false);
        let scale = || self.catalog.require_vector(&self.name("altup_correct_scale.weight"), width);
        // The router reads normalised rows divided by their width.
        let mut weight = self.catalog.require_vector(&self.name("altup_router_norm.weight"), width)?;
        weight.iter_mut().for_each(|number| *number /= width as f32);
        Ok(LayerAltUp {
            count,
            active,
            router_norm: Norm::by_mean_square(weight, self.spec.norm.epsilon),
            router: self.projection("altup_router", Shape { rows: count, columns: width }, false)?,
            prediction: among("altup_predict_coef", count * count)?,
            correction: among("altup_correct_coef", count)?,
            scale: scaled.then(scale).transpose()?,
        })
    }

    /// A dense part whose names end in `suffix`.
    fn dense(&self, spec: &DenseSpec, suffix: &str) -> Result<Dense, ModelError> {
        let (width, inner) = (self.spec.width, spec.inner);
        let into = Shape { rows: inner, columns: width };
        let [gate, up, down] = ["ffn_gate", "ffn_up", "ffn_down"].map(|name| format!("{name}{suffix}"));
        let (gate, up) = match spec.gate {
            Gate::None => (None, self.projection(&up, into, spec.bias)?),
            Gate::Own => (Some(self.projection(&gate, into, spec.bias)?), self.projection(&up, into, spec.bias)?),
            Gate::WithUp => {
                let [gate, up] = self.parts_of(&up, [inner, inner], spec.bias)?;
                (Some(gate), up)
            }
        };
        let down = self.projection(&down, Shape { rows: width, columns: inner }, spec.bias)?;
        Ok(Dense { gate, up, down, activation: spec.activation, gate_cut: spec.gate_cut })
    }

    fn experts(&self, spec: &ExpertsSpec) -> Result<Experts, ModelError> {
        let (count, width, inner) = (spec.count, self.spec.width, spec.each.inner);
        let projections = |name: &str, shape: Shape| -> Result<GroupedProjection, ModelError> {
            let bias = || self.catalog.expert_vectors(&self.name(&format!("{name}.bias")), count, shape.rows);
            let weight = self.name(&format!("{name}.weight"));
            let matrices = self.catalog.experts(&weight, count, shape)?;
            Ok(GroupedProjection::new(&weight, matrices, spec.each.bias.then(bias).transpose()?, self.stats))
        };
        let (into, out) = (Shape { rows: inner, columns: width }, Shape { rows: width, columns: inner });
        let expert_scales = || self.catalog.require_vector(&self.name("ffn_down_exps.scale"), count);
        let correction = || self.catalog.require_vector(&self.name("exp_probs_b.bias"), count);
        Ok(Experts {
            router: Router {
                projection: self.projection("ffn_gate_inp", Shape { rows: count, ..into }, spec.router.bias)?,
                correction: spec.router.correction.then(correction).transpose()?,
                expert_scales: spec.router.expert_scaled.then(expert_scales).transpose()?,
                spec: spec.router.clone(),
                used: spec.used,
            },
            gate: projections("ffn_gate_exps", into)?,
            up: projections("ffn_up_exps", into)?,
            down: projections("ffn_down_exps", out)?,
            activation: spec.each.activation,
            bounds: spec.bounds,
            shared: spec.shared.as_ref().map(|shared| self.shared_expert(shared)).transpose()?,
            streamed: None,
        })
    }

    fn dense_and_experts(&self, spec: &DenseAndExpertsSpec) -> Result<DenseAndExperts, ModelError> {
        let mut weight = self.catalog.require_vector(&self.name("ffn_gate_inp.scale"), self.spec.width)?;
        weight.iter_mut().for_each(|number| *number *= spec.router_scale);
        Ok(DenseAndExperts {
            dense: self.dense(&spec.dense.part, "")?,
            dense_norms: self.norms(&spec.dense)?,
            router_norm: Norm::by_mean_square(weight, self.spec.norm.epsilon),
            experts: self.experts(&spec.experts.part)?,
            experts_norms: self.norms(&spec.experts)?,
        })
    }

    fn shared_expert(&self, spec: &SharedExpertSpec) -> Result<SharedExpert, ModelError> {
        let name = self.name("ffn_gate_inp_shexp.weight");
        let gate = spec.gated.then(|| self.catalog.row(&name, self.spec.width)).transpose()?;
        Ok(SharedExpert {
            part: self.dense(&spec.part, "_shexp")?,
            gate: gate.map(|matrix| Projection::new(&name, matrix, None)),
        })
    }

    fn latent(&self, spec: &LatentSpec) -> Result<LatentAttention, ModelError> {
        let LatentSpec { heads, plain, rotated, value, rank, query_rank, bias, .. } = *spec;
        let (width, queries) = (self.spec.width, heads * (plain + rotated));
        let norm = |name: &str, width| Norm::new(self.catalog, &self.name(name), width, self.spec.norm);
        let into = |name: &str, rows| self.projection(name, Shape { rows, columns: width }, bias);
        let (query_down, query) = match query_rank {
            None => (None, self.projection("attn_q", Shape { rows: queries, columns: width }, false)?),
            Some(rank) => (
                Some((into("attn_q_a", rank)?, norm("attn_q_a_norm", rank)?)),
                self.projection("attn_q_b", Shape { rows: queries, columns: rank }, false)?,
            ),
        };
        let each_head = |name: &str, shape| -> Result<GroupedProjection, ModelError> {
            let name = self.name(name);
            Ok(GroupedProjection::new(&name, self.catalog.experts(&name, heads, shape)?, None, None))
        };
        Ok(LatentAttention {
            query_down,
            query,
            down: into("attn_kv_a_mqa", rank + rotated)?,
            norm: norm("attn_kv_a_norm", rank)?,
            key_up: each_head("attn_k_b.weight", Shape { rows: rank, columns: plain })?,
            value_up: each_head("attn_v_b.weight", Shape { rows: value, columns: rank })?,
            output: self.projection("attn_output", Shape { rows: width, columns: heads * value }, bias)?,
            heads: (0..heads).collect(),
            spec: *spec,
        })
    }

    fn projection(&self, name: &str, shape: Shape, biased: bool) -> Result<Projection, ModelError> {
        let weight = self.name(&format!("{name}.weight"));
        let matrix = self.catalog.matrix(&weight, shape)?;
        let bias = self.name(&format!("{name}.bias"));
        let bias = if biased { Some(self.catalog.require_vector(&bias, shape.rows)?) } else { None };
        Ok(Projection::new(&weight, matrix, bias).measured(self.stats))
    }

    /// Several projections of the hidden states that the file keeps as one, each with its number of rows.
    fn parts_of<const N: usize>(
        &self,
        name: &str,
        rows: [usize; N],
        biased: bool,
    ) -> Result<[Projection; N], ModelError> {
        let shape = Shape { rows: rows.iter().sum(), columns: self.spec.width };
        Ok(self.projection(name, shape, biased)?.split(rows))
    }
}

/// The embedding or output matrix.
pub(crate) fn vocabulary_matrix(catalog: &Catalog<'_>, name: &str, spec: &ModelSpec) -> Result<Matrix, ModelError> {
    catalog.matrix(name, Shape { rows: spec.vocabulary, columns: spec.width })
}
