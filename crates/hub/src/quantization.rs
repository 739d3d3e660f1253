//! What the names of files say about how their weights are stored.

/// The quantisation that the name of a GGUF file has in it: `Q4_K_M` of `model-Q4_K_M.gguf`.
pub(crate) fn quantization_of(file: &str) -> Option<&str> {
    file.split(['/', '-', '.']).rev().find(|word| bits(word).is_some())
}

/// About how many bits a weight takes on average; `None` for what is no name of a quantisation, in any case of its letters.
pub(crate) fn bits(quantization: &str) -> Option<f64> {
    let name = quantization.to_ascii_uppercase();
    match name.as_str() {
        "F32" => return Some(32.0),
        "F16" | "BF16" => return Some(16.0),
        "MXFP4" => return Some(4.6),
        _ => {}
    }
    let digits = name.strip_prefix("IQ").or_else(|| name.strip_prefix("TQ")).or_else(|| name.strip_prefix('Q'))?;
    let (digit, rest) = digits.split_at_checked(1)?;
    let digit: f64 = digit.parse().ok()?;
    // Scales, and the matrices that are kept in a larger format.
    rest.starts_with('_').then_some(digit + 0.8)
}

#[cfg(test)]
mod tests {
    use super::quantization_of;

    #[test]
    fn names_of_files_are_read() {
        for (file, expected) in [
            ("SmolLM2-135M-Instruct.Q4_1.gguf", Some("Q4_1")),
            ("qwen2.5-0.5b-instruct-q4_k_m.gguf", Some("q4_k_m")),
            ("m-Q2_K-00001-of-00002.gguf", Some("Q2_K")),
            ("Q6_K/m-00001-of-00002.gguf", Some("Q6_K")),
            ("gpt-oss-20b-mxfp4.gguf", Some("mxfp4")),
            ("m-UD-IQ1_S.gguf", Some("IQ1_S")),
            ("m-BF16.gguf", Some("BF16")),
            ("Qwen3-8B.gguf", None),
            ("q.gguf", None),
            ("", None),
        ] {
            assert_eq!(quantization_of(file), expected, "{file}");
        }
    }
}
