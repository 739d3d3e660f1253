//! Numbers for people.

/// Significant digits of numbers that are not whole.
const DIGITS: i32 = 5;

/// A number as short as people read it: large ones with separators, tiny ones with an exponent.
pub(super) fn short(value: f64) -> String {
    let size = value.abs();
    match size {
        0.0 => "0".to_owned(),
        _ if !(1e-3..1e15).contains(&size) => format!("{value:.3e}"),
        _ if value.fract() == 0.0 || size >= 10_f64.powi(DIGITS - 1) => grouped(value),
        _ => {
            let before = libm::log10(size).floor() as i32 + 1;
            let digits = (DIGITS - before.max(0)).max(0) as usize;
            format!("{value:.digits$}")
        }
    }
}

/// A whole number with a comma before every three digits.
fn grouped(value: f64) -> String {
    let digits = format!("{:.0}", value.abs());
    let mut text = if value < 0.0 { String::from("-") } else { String::new() };
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_the_digits_that_matter() {
        let cases = [
            (0.0, "0"),
            (3.0, "3"),
            (-256.0, "-256"),
            (1024.0, "1,024"),
            (-1234567.0, "-1,234,567"),
            (12345.678, "12,346"),
            (1234.5678, "1234.6"),
            (20.12345, "20.123"),
            (0.5, "0.50000"),
            (0.0123456, "0.01235"),
            (0.000123, "1.230e-4"),
            (1e300, "1.000e300"),
        ];
        for (value, expected) in cases {
            assert_eq!(short(value), expected, "{value}");
        }
    }
}
