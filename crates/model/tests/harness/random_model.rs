//! Models of two layers with random weights in any format.

use std::path::Path;

use cascadia_kernels::quantize::{TARGETS, quantize};
use cascadia_kernels::{Dtype, Layout, interleave};
use cascadia_weights::gguf::write::{Outline, TensorEntry, write_laid_out};
use cascadia_weights::{MetadataValue, WeightsError};

/// Not a whole number of groups of interleaved rows.
pub(crate) const VOCABULARY: u64 = 284;

/// A model of two layers whose matrices hold pseudo-random numbers in one format.
pub(crate) fn write_random_model(path: &Path, dtype: Dtype, layout: Layout) {
    let (width, inner) = (256, 512);
    let counts =
        [("block_count", 2), ("embedding_length", width), ("feed_forward_length", inner), ("attention.head_count", 8)];
    let more = [("attention.head_count_kv", 2), ("context_length", 256)];
    let mut metadata = vec![("general.architecture".to_owned(), MetadataValue::String((*b"llama").into()))];
    let count = |(key, value): (&str, u64)| (format!("llama.{key}"), MetadataValue::U32(value as u32));
    metadata.extend(counts.into_iter().chain(more).map(count));
    metadata.push(("llama.attention.layer_norm_rms_epsilon".to_owned(), MetadataValue::F32(1e-5)));
    let matrix = |name: String, rows: u64, columns: u64| TensorEntry { name, dtype, shape: vec![rows, columns] };
    let norm = |name: String| TensorEntry { name, dtype: Dtype::F32, shape: vec![width] };
    let mut tensors =
        vec![matrix("token_embd.weight".to_owned(), VOCABULARY, width), norm("output_norm.weight".to_owned())];
    for layer in 0..2 {
        let name = |part: &str| format!("blk.{layer}.{part}.weight");
        tensors.extend(["attn_norm", "ffn_norm"].map(|part| norm(name(part))));
        let shapes = [("attn_q", width, width), ("attn_k", width / 4, width), ("attn_v", width / 4, width)];
        let more = [("attn_output", width, width), ("ffn_gate", inner, width), ("ffn_up", inner, width)];
        let all = shapes.into_iter().chain(more).chain([("ffn_down", width, inner)]);
        tensors.extend(all.map(|(part, rows, columns)| matrix(name(part), rows, columns)));
    }
    let mut state = 1_u64;
    let outline = Outline { metadata: &metadata, tensors: &tensors };
    let layout = |tensor: &TensorEntry| if tensor.shape.len() == 2 { layout } else { Layout::Rows };
    write_laid_out::<WeightsError, _>(path, outline, layout, |index, sink| {
        let numbers: u64 = tensors[index].shape.iter().product();
        let mut random = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            state >> 40
        };
        let columns = tensors[index].shape.last().copied().expect("no scalars");
        let row_bytes = tensors[index].dtype.row_bytes(columns).expect("whole blocks");
        let mut bytes = vec![0; (row_bytes * numbers / columns) as usize];
        if TARGETS.contains(&tensors[index].dtype) {
            let values: Vec<f32> = (0..numbers).map(|_| (random() as f32 / (1 << 23) as f32 - 1.0) * 0.1).collect();
            quantize(tensors[index].dtype, &values, None, &mut bytes).expect("finite numbers");
        } else {
            // Without the upper bits, scales are small wherever they lie.
            bytes.fill_with(|| random() as u8 & 31);
        }
        if layout(&tensors[index]) == Layout::Rows {
            return sink.write(&bytes);
        }
        for rows in bytes.chunks(16 * row_bytes as usize) {
            let group = Layout::Interleaved.matrix_bytes(dtype, 1, columns).expect("a format that can be interleaved");
            let mut out = vec![0; group as usize];
            interleave(dtype, row_bytes as usize, rows, &mut out);
            sink.write(&out)?;
        }
        Ok(())
    })
    .expect("the model is written");
}
