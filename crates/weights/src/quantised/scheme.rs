//! What `quantization_config` of a config.json says about how the weights are stored.

use std::path::Path;

use serde_json::Value;

use super::compressed::Compressed;
use super::gptq::Gptq;
use crate::WeightsError;

/// The ways of storing quantised weights that can be read, by their `quant_method`.
const METHODS: [(&str, Parse); 5] =
    [("gptq", gptq), ("awq", awq), ("compressed-tensors", compressed), ("fp8", fp8), ("mxfp4", |_| Ok(Scheme::Mxfp4))];

/// Reads the settings of one method; the error is a sentence about them.
type Parse = fn(&Value) -> Result<Scheme, String>;

/// A way of storing quantised weights, with its settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Scheme {
    Gptq(Gptq),
    Awq {
        /// Inputs that share a scale; −1 for all.
        group_size: i64,
    },
    Compressed(Compressed),
    /// 8-bit floats, scaled per weight, per row or per block of this many rows and columns.
    Fp8 {
        block: Option<[usize; 2]>,
    },
    Mxfp4,
}

impl Scheme {
    /// Reads the value of `quantization_config` in the file at `path`.
    pub(super) fn parse(path: &Path, config: &Value) -> Result<Scheme, WeightsError> {
        let unsupported = |problem: String| WeightsError::unsupported(path, "quantization_config", problem);
        let method = config["quant_method"].as_str().unwrap_or("(none)");
        let Some((_, parse)) = METHODS.iter().find(|(name, _)| *name == method) else {
            let names: Vec<&str> = METHODS.iter().map(|(name, _)| *name).collect();
            return Err(unsupported(format!(
                "quant_method is `{method}`, which this version does not read; it reads {}: use one of these or the model as it was before quantisation",
                names.join(", ")
            )));
        };
        parse(config).map_err(unsupported)
    }
}

fn gptq(config: &Value) -> Result<Scheme, String> {
    let bits = integer(config, "bits")?.unwrap_or(4);
    let bits = u32::try_from(bits).ok().filter(|bits| [4, 8].contains(bits));
    let bits = bits.ok_or_else(|| only("bits", &config["bits"], "4 and 8 bits"))?;
    // The first version of the format stores zero points less one.
    let zero_offset = match config["checkpoint_format"].as_str().unwrap_or("gptq") {
        "gptq" => 1,
        "gptq_v2" => 0,
        _ => return Err(only("checkpoint_format", &config["checkpoint_format"], "`gptq` and `gptq_v2`")),
    };
    let group_size = integer(config, "group_size")?.unwrap_or(128);
    Ok(Scheme::Gptq(Gptq { bits, zero_offset, group_size }))
}

fn awq(config: &Value) -> Result<Scheme, String> {
    let bits = integer(config, "bits")?.or(integer(config, "w_bit")?).unwrap_or(4);
    if bits != 4 {
        return Err(only("bits", &bits.into(), "4"));
    }
    let version = config["version"].as_str().unwrap_or("gemm");
    if !version.eq_ignore_ascii_case("gemm") {
        return Err(only("version", &version.into(), "`gemm`"));
    }
    let group_size = integer(config, "group_size")?.or(integer(config, "q_group_size")?).unwrap_or(128);
    Ok(Scheme::Awq { group_size })
}

fn compressed(config: &Value) -> Result<Scheme, String> {
    const FORMATS: [&str; 6] =
        ["pack-quantized", "int-quantized", "float-quantized", "naive-quantized", "mixed-precision", "dense"];
    const FORMATS_SAID: &str = "`pack-quantized`, `int-quantized` and `float-quantized`";
    let groups = config["config_groups"].as_object().map(|groups| groups.values().collect::<Vec<_>>());
    let groups = groups.unwrap_or_default();
    let formats = [config].into_iter().chain(groups.iter().copied()).filter_map(|part| part.get("format"));
    if let Some(other) = formats.filter(|format| !format.is_null()).find(|format| !is_one_of(format, &FORMATS)) {
        return Err(only("format", other, FORMATS_SAID));
    }
    let sparsity = &config["sparsity_config"]["format"];
    if !sparsity.is_null() && sparsity != "dense" {
        return Err(only("sparsity_config.format", sparsity, "`dense`"));
    }
    let mut blocks = groups.iter().map(|group| &group["weights"]["block_structure"]).filter(|block| !block.is_null());
    let block = blocks.next();
    if let Some(other) = blocks.find(|other| Some(*other) != block) {
        return Err(only("block_structure", other, "one block structure for all weights"));
    }
    Ok(Scheme::Compressed(Compressed { block: block.map(|block| pair("block_structure", block)).transpose()? }))
}

fn fp8(config: &Value) -> Result<Scheme, String> {
    let format = &config["fmt"];
    if !format.is_null() && !is_one_of(format, &["e4m3", "float8_e4m3fn"]) {
        return Err(only("fmt", format, "`e4m3`"));
    }
    let block = config.get("weight_block_size").filter(|block| !block.is_null());
    Ok(Scheme::Fp8 { block: block.map(|block| pair("weight_block_size", block)).transpose()? })
}

fn is_one_of(value: &Value, names: &[&str]) -> bool {
    value.as_str().is_some_and(|value| names.contains(&value))
}

fn only(key: &str, found: &Value, supported: &str) -> String {
    format!("`{key}` is {found}; this version reads {supported} only")
}

fn integer(config: &Value, key: &str) -> Result<Option<i64>, String> {
    match &config[key] {
        Value::Null => Ok(None),
        value => value.as_i64().map(Some).ok_or_else(|| format!("`{key}` should be a whole number but is {value}")),
    }
}

/// Two numbers above zero.
fn pair(key: &str, value: &Value) -> Result<[usize; 2], String> {
    let number = |value: &Value| value.as_u64().and_then(|number| usize::try_from(number).ok()).filter(|&n| n > 0);
    let numbers = value.as_array().map(|numbers| numbers.iter().map(number).collect::<Option<Vec<usize>>>());
    let numbers = numbers.flatten().and_then(|numbers| <[usize; 2]>::try_from(numbers).ok());
    numbers.ok_or_else(|| format!("`{key}` should be two whole numbers above 0 but is {value}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(config: &Value, expected: Result<Scheme, &[&str]>) {
        let found = Scheme::parse(Path::new("config.json"), config).map_err(|error| error.to_string());
        match (found, expected) {
            (Ok(found), Ok(expected)) => assert_eq!(found, expected, "{config}"),
            (Err(message), Err(parts)) => {
                assert!(message.starts_with("config.json: quantization_config: "), "{message}");
                parts.iter().for_each(|part| assert!(message.contains(part), "{part:?} is not in: {message}"));
            }
            (found, expected) => panic!("{config}: {found:?} instead of {expected:?}"),
        }
    }

    #[test]
    fn settings_are_read_and_defaults_filled_in() {
        let gptq = |bits, zero_offset, group_size| Ok(Scheme::Gptq(Gptq { bits, zero_offset, group_size }));
        let compressed = |block| Ok(Scheme::Compressed(Compressed { block }));
        check(&json!({"quant_method": "gptq"}), gptq(4, 1, 128));
        let second = json!({"quant_method": "gptq", "bits": 8, "group_size": -1, "checkpoint_format": "gptq_v2"});
        check(&second, gptq(8, 0, -1));
        check(&json!({"quant_method": "awq", "version": "GEMM", "group_size": 64}), Ok(Scheme::Awq { group_size: 64 }));
        check(&json!({"quant_method": "awq", "w_bit": 4, "q_group_size": 32}), Ok(Scheme::Awq { group_size: 32 }));
        check(&json!({"quant_method": "compressed-tensors", "format": "pack-quantized"}), compressed(None));
        let blocks = json!({"quant_method": "compressed-tensors", "format": "float-quantized",
            "config_groups": {"group_0": {"weights": {"block_structure": [128, 64]}}}});
        check(&blocks, compressed(Some([128, 64])));
        check(&json!({"quant_method": "fp8", "weight_block_size": null}), Ok(Scheme::Fp8 { block: None }));
        check(&json!({"quant_method": "mxfp4"}), Ok(Scheme::Mxfp4));
    }

    #[test]
    fn what_cannot_be_read_is_said() {
        let reads = "reads gptq, awq, compressed-tensors, fp8, mxfp4";
        check(&json!({"quant_method": "bitsandbytes"}), Err(&["quant_method is `bitsandbytes`", reads]));
        check(&json!({"quant_method": "quip"}), Err(&["quant_method is `quip`", reads]));
        check(&json!({}), Err(&["quant_method is `(none)`", reads]));
        check(&json!({"quant_method": "gptq", "bits": 3}), Err(&["`bits` is 3", "4 and 8 bits only"]));
        check(&json!({"quant_method": "gptq", "bits": "4"}), Err(&["`bits` should be a whole number"]));
        let marlin = json!({"quant_method": "gptq", "checkpoint_format": "marlin"});
        check(&marlin, Err(&["`checkpoint_format` is \"marlin\"", "`gptq_v2`"]));
        check(&json!({"quant_method": "awq", "version": "gemv"}), Err(&["`version` is \"gemv\"", "`gemm` only"]));
        check(&json!({"quant_method": "awq", "bits": 8}), Err(&["`bits` is 8", "4 only"]));
        let sparse = json!({"quant_method": "compressed-tensors", "sparsity_config": {"format": "sparse-bitmask"}});
        check(&sparse, Err(&["`sparsity_config.format` is \"sparse-bitmask\""]));
        let marlin = json!({"quant_method": "compressed-tensors", "format": "marlin-24"});
        check(&marlin, Err(&["`format` is \"marlin-24\"", "`pack-quantized`"]));
        check(&json!({"quant_method": "fp8", "fmt": "e5m2"}), Err(&["`fmt` is \"e5m2\""]));
        let block = json!({"quant_method": "fp8", "weight_block_size": [128, 0]});
        check(&block, Err(&["`weight_block_size` should be two whole numbers above 0 but is [128,0]"]));
    }
}
