//! An axis of a plot: where values lie, and which are marked.

use super::Scale;

/// The most marks of an axis.
const MARKS: f64 = 6.0;

/// Maps a range of values to a range of pixels.
pub(super) struct Ruler {
    scale: Scale,
    values: (f64, f64),
    pixels: (f64, f64),
}

impl Ruler {
    /// Exactly the range of these values, which are not empty. A range with values that have no logarithm is linear.
    pub(super) fn exact(scale: Scale, values: &[f64], pixels: (f64, f64)) -> Ruler {
        let (least, most) = range(values);
        let scale = if least > 0.0 { scale } else { Scale::Linear };
        Ruler { scale, values: (least, most), pixels }
    }

    /// A linear range that begins and ends with a mark; it has 0 where most of it would be below the values otherwise.
    pub(super) fn round(values: &[f64], pixels: (f64, f64)) -> Ruler {
        let (least, most) = match range(values) {
            (least, most) if least >= 0.0 && least <= most / 2.0 => (0.0, most),
            other => other,
        };
        let most = if most > least { most } else { least + least.abs().max(1.0) / 10.0 };
        let step = step(most - least);
        Ruler {
            scale: Scale::Linear,
            // Quotients are rounded: what is hardly beyond a mark ends with it.
            values: ((least / step + 1e-9).floor() * step, (most / step - 1e-9).ceil() * step),
            pixels,
        }
    }

    /// Where a value lies.
    pub(super) fn at(&self, value: f64) -> f64 {
        let bend = |value: f64| match self.scale {
            Scale::Linear => value,
            Scale::Logarithmic => libm::log(value),
        };
        let (first, last) = (bend(self.values.0), bend(self.values.1));
        let part = if last > first { (bend(value) - first) / (last - first) } else { 0.5 };
        self.pixels.0 + part * (self.pixels.1 - self.pixels.0)
    }

    /// Round numbers within the range, equally far from each other.
    pub(super) fn marks(&self) -> Vec<f64> {
        let (least, most) = self.values;
        let step = step(most - least);
        let first = (least / step).ceil();
        // A little beyond the end, because sums of steps are rounded.
        let marks = (0..=2 * MARKS as u32).map(|index| (first + f64::from(index)) * step);
        marks.take_while(|mark| *mark <= most + step * 1e-6).collect()
    }
}

/// The distance between marks: 1, 2 or 5 times a power of ten.
fn step(length: f64) -> f64 {
    let least = length.max(f64::MIN_POSITIVE) / MARKS;
    let power = libm::pow(10.0, libm::log10(least).floor());
    let times = [1.0, 2.0, 5.0].into_iter().find(|times| times * power >= least * 0.999_999);
    times.unwrap_or(10.0) * power
}

fn range(values: &[f64]) -> (f64, f64) {
    values.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(least, most), &value| (least.min(value), most.max(value)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_end_with_marks() {
        let cases: [(&[f64], &[f64]); 5] = [
            (&[0.01, 0.03, 0.05], &[0.0, 0.01, 0.02, 0.03, 0.04, 0.05]),
            (&[20.1, 20.9], &[20.0, 20.2, 20.4, 20.6, 20.8, 21.0]),
            (&[0.0, 0.0], &[0.0, 0.02, 0.04, 0.06, 0.08, 0.1]),
            (&[100.0], &[100.0, 102.0, 104.0, 106.0, 108.0, 110.0]),
            (&[-3.0, 3.0], &[-3.0, -2.0, -1.0, 0.0, 1.0, 2.0, 3.0]),
        ];
        for (values, expected) in cases {
            let ruler = Ruler::round(values, (0.0, 100.0));
            let marks = ruler.marks();
            assert_eq!(marks.len(), expected.len(), "{values:?}: {marks:?}");
            assert!(marks.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-9), "{values:?}: {marks:?}");
            let ends = (ruler.at(expected[0]), ruler.at(expected[expected.len() - 1]));
            assert!(ends.0.abs() < 1e-6 && (ends.1 - 100.0).abs() < 1e-6, "{values:?}: {ends:?}");
        }
    }

    #[test]
    fn factors_are_equally_long_on_a_logarithmic_scale() {
        let ruler = Ruler::exact(Scale::Logarithmic, &[256.0, 512.0, 1024.0], (10.0, 30.0));
        assert!((ruler.at(512.0) - 20.0).abs() < 1e-9);
        let linear = Ruler::exact(Scale::Logarithmic, &[0.0, 1.0, 4.0], (0.0, 4.0));
        assert_eq!(linear.at(1.0), 1.0);
    }

    #[test]
    fn extreme_values_have_few_marks() {
        for values in [&[-1e300, 1e300][..], &[1e-300, 2e-300], &[7.0]] {
            assert!(Ruler::round(values, (0.0, 1.0)).marks().len() <= 13, "{values:?}");
            assert!(Ruler::exact(Scale::Linear, values, (0.0, 1.0)).marks().len() <= 13, "{values:?}");
        }
    }
}
