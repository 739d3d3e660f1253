//! The numbers and names that GGUF files use for storage formats.

use cascadia_kernels::{Dtype, Layout};

/// Every number ever assigned, with its name. Withdrawn ones are kept so that old files get an explanation.
///
/// Those from 10000 on are our own (`docs/format.md`), far above what llama.cpp and its forks use.
const NAMES: [(u32, &str); 47] = [
    (0, "F32"),
    (1, "F16"),
    (2, "Q4_0"),
    (3, "Q4_1"),
    (4, "Q4_2"),
    (5, "Q4_3"),
    (6, "Q5_0"),
    (7, "Q5_1"),
    (8, "Q8_0"),
    (9, "Q8_1"),
    (10, "Q2_K"),
    (11, "Q3_K"),
    (12, "Q4_K"),
    (13, "Q5_K"),
    (14, "Q6_K"),
    (15, "Q8_K"),
    (16, "IQ2_XXS"),
    (17, "IQ2_XS"),
    (18, "IQ3_XXS"),
    (19, "IQ1_S"),
    (20, "IQ4_NL"),
    (21, "IQ3_S"),
    (22, "IQ2_S"),
    (23, "IQ4_XS"),
    (24, "I8"),
    (25, "I16"),
    (26, "I32"),
    (27, "I64"),
    (28, "F64"),
    (29, "IQ1_M"),
    (30, "BF16"),
    (31, "Q4_0_4_4"),
    (32, "Q4_0_4_8"),
    (33, "Q4_0_8_8"),
    (34, "TQ1_0"),
    (35, "TQ2_0"),
    (36, "IQ4_NL_4_4"),
    (37, "IQ4_NL_4_8"),
    (38, "IQ4_NL_8_8"),
    (39, "MXFP4"),
    (40, "NVFP4"),
    (41, "Q1_0"),
    (42, "Q2_0"),
    (10001, "F8_E4M3"),
    (10002, "NF4"),
    (10003, "INT4_G128"),
    (10004, "INT4_Z32"),
];

/// The name of a type number, whether or not we can compute with it.
pub fn name(id: u32) -> Option<&'static str> {
    NAMES.iter().find(|(number, _)| *number == id).map(|(_, name)| *name)
}

/// The format behind a type number; `None` when we cannot compute with it.
pub fn dtype(id: u32) -> Option<Dtype> {
    let name = name(id)?;
    Dtype::ALL.into_iter().find(|dtype| dtype.name() == name)
}

/// What is added to the number of a format where the rows of a matrix are interleaved.
const INTERLEAVED: u32 = 20_000;

/// Format and layout behind a type number; `None` when we cannot compute with it.
pub fn stored(id: u32) -> Option<(Dtype, Layout)> {
    let interleaved = || dtype(id.checked_sub(INTERLEAVED)?).filter(|&dtype| Layout::Interleaved.holds(dtype));
    dtype(id).map(|dtype| (dtype, Layout::Rows)).or_else(|| Some((interleaved()?, Layout::Interleaved)))
}

/// The type number of a format in a layout.
pub fn stored_id(dtype: Dtype, layout: Layout) -> u32 {
    match layout {
        Layout::Rows => id(dtype),
        Layout::Interleaved => INTERLEAVED + id(dtype),
    }
}

/// The type number of a format.
pub fn id(dtype: Dtype) -> u32 {
    let entry = NAMES.iter().find(|(_, name)| *name == dtype.name());
    entry.expect("every Dtype carries its GGUF name").0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_format_has_a_number_and_every_number_its_own_place() {
        Dtype::ALL.into_iter().for_each(|format| assert_eq!(dtype(id(format)), Some(format)));
        let upstream = NAMES.iter().filter(|(number, _)| *number < 10_000);
        upstream.enumerate().for_each(|(place, (number, _))| assert_eq!(place, *number as usize));
        assert!(NAMES.is_sorted_by(|left, right| left.0 < right.0), "one name per number");
        assert_eq!((id(Dtype::BF16), id(Dtype::Q4_K), id(Dtype::Q6_K)), (30, 12, 14));
        assert_eq!((dtype(23), dtype(10003)), (Some(Dtype::IQ4_XS), Some(Dtype::Int4Group128)));
        let interleaved = (Dtype::Q4_K, Layout::Interleaved);
        assert_eq!((stored(20_012), stored_id(interleaved.0, interleaved.1)), (Some(interleaved), 20_012));
        assert_eq!((stored(12), stored(20_000)), (Some((Dtype::Q4_K, Layout::Rows)), None));
        assert_eq!((name(9), dtype(9), name(1000)), (Some("Q8_1"), None, None));
    }
}
