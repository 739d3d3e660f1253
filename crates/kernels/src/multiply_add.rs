//! Fused multiply-add, a × b + c rounded once: by an instruction, or computed where code is for CPUs that may lack it.

/// How code that is compiled for several instruction sets multiplies and adds.
pub(crate) trait MultiplyAdd {
    /// a × b + c, rounded once.
    fn fused(a: f32, b: f32, c: f32) -> f32;
}

/// For functions that are compiled for an instruction set which has it; elsewhere it would call the C library.
pub(crate) struct Instruction;

/// For all others.
pub(crate) struct Portable;

impl MultiplyAdd for Instruction {
    #[inline(always)]
    #[expect(clippy::disallowed_methods, reason = "here it is the instruction")]
    fn fused(a: f32, b: f32, c: f32) -> f32 {
        a.mul_add(b, c)
    }
}

impl MultiplyAdd for Portable {
    #[inline(always)]
    fn fused(a: f32, b: f32, c: f32) -> f32 {
        if cfg!(any(target_arch = "aarch64", target_feature = "fma")) {
            Instruction::fused(a, b, c)
        } else {
            computed(a, b, c)
        }
    }
}

/// In doubles, where the product is exact. Their sum is rounded to odd: where bits are lost, the last one that is kept
/// says so. Rounding that to a float then gives what rounding the exact sum would give.
#[inline(always)]
fn computed(a: f32, b: f32, c: f32) -> f32 {
    let (product, c) = (f64::from(a) * f64::from(b), f64::from(c));
    let sum = product + c;
    let added = sum - product;
    let lost = (product - (sum - added)) + (c - added);
    let inexact = lost.abs() > 0.0;
    let rounded_away = (lost < 0.0) == (sum > 0.0);
    let kept = sum.to_bits() - u64::from(inexact && rounded_away);
    f64::from_bits(kept | u64::from(inexact)) as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bits of a, b, c and of the exact result rounded once, from tests/data/functions.py.
    const EXACT: &str = include_str!("../tests/data/multiply_add.txt");

    fn check(bits: [u32; 3], expected: f32) {
        let [a, b, c] = bits.map(f32::from_bits);
        for fused in [computed(a, b, c), Portable::fused(a, b, c)] {
            let same = fused.to_bits() == expected.to_bits() || fused.is_nan() && expected.is_nan();
            assert!(same, "{a:e} × {b:e} + {c:e} is {fused:e}, not {expected:e} ({bits:08x?})");
        }
    }

    #[test]
    fn hard_cases_are_rounded_once() {
        for line in EXACT.lines() {
            let number = |word| u32::from_str_radix(word, 16).expect("eight digits");
            let numbers: Vec<u32> = line.split_ascii_whitespace().map(number).collect();
            let [a, b, c, expected] = numbers[..] else { panic!("four numbers: {line}") };
            check([a, b, c], f32::from_bits(expected));
        }
        assert!(EXACT.lines().count() > 1000);
    }

    #[test]
    fn random_numbers_give_what_the_instruction_gives() {
        let mut state = 1_u64;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 32) as u32
        };
        for _ in 0..1_000_000 {
            // Exponents near each other and far from the smallest: `libm` has the instruction only where the CPU has it.
            let bits = [(); 3].map(|()| next() & 0x87ff_ffff | 0x3c00_0000);
            let [a, b, c] = bits.map(f32::from_bits);
            check(bits, libm::fmaf(a, b, c));
        }
    }
}
