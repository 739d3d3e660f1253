//! From tensors to layers: every shape is checked here once, so that the forward pass need not.

use std::sync::Arc;

use cascadia_kernels::{Matrix, Shape, decode_row};
use cascadia_weights::{ModelFiles, Tensor};

use crate::decoder::Layer;
use crate::feed_forward::FeedForward;
use crate::mixer::SelfAttention;
use crate::names::in_file;
use crate::norm::Norm;
use crate::projection::Projection;
use crate::{LayerSpec, ModelError, ModelSpec};

/// Builds layer `index` of the model.
pub(crate) fn layer(files: &ModelFiles, spec: &ModelSpec, index: usize) -> Result<Layer, ModelError> {
    let layer = &spec.layers[index];
    let parts = Parts { files, layer: index };
    let LayerSpec { heads, kv_heads, head, feed_forward, .. } = *layer;
    let width = spec.width;
    Ok(Layer {
        attention_norm: parts.norm("attn_norm", spec)?,
        attention: SelfAttention {
            query: parts.projection("attn_q", Shape { rows: heads * head, columns: width }, layer.qkv_bias)?,
            key: parts.projection("attn_k", Shape { rows: kv_heads * head, columns: width }, layer.qkv_bias)?,
            value: parts.projection("attn_v", Shape { rows: kv_heads * head, columns: width }, layer.qkv_bias)?,
            output: parts.projection("attn_output", Shape { rows: width, columns: heads * head }, layer.output_bias)?,
            spec: layer.clone(),
        },
        feed_forward_norm: parts.norm("ffn_norm", spec)?,
        feed_forward: FeedForward {
            gate: parts.projection(
                "ffn_gate",
                Shape { rows: feed_forward, columns: width },
                layer.feed_forward_bias,
            )?,
            up: parts.projection("ffn_up", Shape { rows: feed_forward, columns: width }, layer.feed_forward_bias)?,
            down: parts.projection(
                "ffn_down",
                Shape { rows: width, columns: feed_forward },
                layer.feed_forward_bias,
            )?,
        },
    })
}

/// The parts of one layer by their GGUF names.
struct Parts<'a> {
    files: &'a ModelFiles,
    layer: usize,
}

impl Parts<'_> {
    fn norm(&self, name: &str, spec: &ModelSpec) -> Result<Norm, ModelError> {
        norm(self.files, &format!("blk.{}.{name}.weight", self.layer), spec)
    }

    fn projection(&self, name: &str, shape: Shape, biased: bool) -> Result<Projection, ModelError> {
        let matrix = matrix(self.files, &format!("blk.{}.{name}.weight", self.layer), shape)?;
        let bias = format!("blk.{}.{name}.bias", self.layer);
        let bias = if biased { Some(require_vector(self.files, &bias, shape.rows)?) } else { None };
        Ok(Projection { matrix, bias })
    }
}

/// A norm with its weight.
pub(crate) fn norm(files: &ModelFiles, gguf_name: &str, spec: &ModelSpec) -> Result<Norm, ModelError> {
    Ok(Norm { weight: require_vector(files, gguf_name, spec.width)?, epsilon: spec.epsilon })
}

/// A matrix of exactly this shape.
pub(crate) fn matrix(files: &ModelFiles, gguf_name: &str, shape: Shape) -> Result<Matrix, ModelError> {
    let tensor = files.require(&in_file(files.kind(), gguf_name))?;
    check_shape(files, tensor, &[shape.rows, shape.columns])?;
    Matrix::new(Arc::new(tensor.bytes()), tensor.dtype(), shape)
        .map_err(|_| shape_error(files, tensor, &[shape.rows, shape.columns]))
}

/// A vector of exactly this length, as floats; `None` when the file has none.
pub(crate) fn vector(files: &ModelFiles, gguf_name: &str, length: usize) -> Result<Option<Vec<f32>>, ModelError> {
    let Some(tensor) = files.tensor(&in_file(files.kind(), gguf_name)) else { return Ok(None) };
    check_shape(files, tensor, &[length])?;
    let bytes = tensor.bytes();
    if tensor.dtype().row_bytes(length as u64) != Some(bytes.as_ref().len() as u64) {
        return Err(shape_error(files, tensor, &[length]));
    }
    let mut values = vec![0.0; length];
    decode_row(tensor.dtype(), bytes.as_ref(), &mut values);
    Ok(Some(values))
}

fn require_vector(files: &ModelFiles, gguf_name: &str, length: usize) -> Result<Vec<f32>, ModelError> {
    match vector(files, gguf_name, length)? {
        Some(values) => Ok(values),
        None => Err(files.require(&in_file(files.kind(), gguf_name)).map(|_| ()).expect_err("it was not found").into()),
    }
}

fn check_shape(files: &ModelFiles, tensor: &Tensor, expected: &[usize]) -> Result<(), ModelError> {
    let same = tensor.shape().iter().copied().eq(expected.iter().map(|&length| length as u64));
    if same { Ok(()) } else { Err(shape_error(files, tensor, expected)) }
}

fn shape_error(files: &ModelFiles, tensor: &Tensor, expected: &[usize]) -> ModelError {
    ModelError::Shape {
        path: files.path().to_owned(),
        name: tensor.name().to_owned(),
        expected: expected.to_vec(),
        found: tensor.shape().to_vec(),
    }
}
