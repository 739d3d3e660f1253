//! Functions of the libm crate: next to the exact values, and the same bits on every system.

/// A name, the bits of the arguments as doubles, and of the exact value rounded once, from data/functions.py.
const EXACT: &str = include_str!("data/functions.txt");

/// Digests of what the functions give all over the range that models use, as found on x86-64 with Linux.
const DIGESTS: [(&str, u64); 9] = [
    ("exp", 0x319c_60ed_453b_127f),
    ("exp2", 0x434a_587e_3ac0_facc),
    ("log", 0x8b27_203f_4dbb_b2a1),
    ("pow", 0xa97f_5f58_1db8_b871),
    ("sin", 0x23d5_45f7_d147_8e57),
    ("cos", 0x2a77_f416_c0ef_2330),
    ("erfc", 0x4311_92c6_39b4_1d35),
    ("logf", 0xc41b_233c_09e6_83b5),
    ("tanhf", 0xff8e_62bb_eeed_0fee),
];

/// The bits of what a function gives; those of one argument ignore the second.
fn apply(name: &str, x: f64, y: f64) -> u64 {
    match name {
        "exp" => libm::exp(x).to_bits(),
        "exp2" => libm::exp2(x).to_bits(),
        "log" => libm::log(x).to_bits(),
        "pow" => libm::pow(x, y).to_bits(),
        "sin" => libm::sin(x).to_bits(),
        "cos" => libm::cos(x).to_bits(),
        "erfc" => libm::erfc(x).to_bits(),
        "logf" => libm::logf(x as f32).to_bits().into(),
        "tanhf" => libm::tanhf(x as f32).to_bits().into(),
        _ => unreachable!("a function of the list: {name}"),
    }
}

#[test]
fn functions_are_within_a_unit_of_the_exact_value() {
    for line in EXACT.lines() {
        let (name, numbers) = line.split_once(' ').expect("a name and numbers");
        let number = |digits| u64::from_str_radix(digits, 16).expect("hexadecimal digits");
        let numbers: Vec<u64> = numbers.split(' ').map(number).collect();
        let (&expected, arguments) = numbers.split_last().expect("a result");
        let found = apply(name, f64::from_bits(arguments[0]), f64::from_bits(*arguments.last().expect("an argument")));
        assert!(found.abs_diff(expected) <= 1, "{line}: found {found:x}");
    }
    assert!(EXACT.lines().count() >= 900);
}

#[test]
fn functions_give_the_same_bits_on_every_system() {
    let digest = |name| {
        let bits = (1..20_000).map(|step| {
            let step = f64::from(step);
            match name {
                "exp" => apply(name, -step / 30.0, 0.0),
                "exp2" | "erfc" => apply(name, step / 2000.0 - 5.0, 0.0),
                "pow" => apply(name, step * 100.0, step / 20_000.0),
                "sin" | "cos" => apply(name, step * step / 1000.0, 0.0),
                _ => apply(name, step / 1000.0, 0.0),
            }
        });
        bits.fold(0xcbf2_9ce4_8422_2325_u64, |digest, bits| (digest ^ bits).wrapping_mul(0x0100_0000_01b3))
    };
    assert_eq!(DIGESTS.map(|(name, _)| (name, digest(name))), DIGESTS);
}
