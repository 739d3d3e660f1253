//! The embedding of a prompt: the mean of its final hidden states, one number long.

/// Sums up rows in the order of their positions, so that it does not matter how a prompt is cut into steps.
#[derive(Default)]
pub(super) struct Embedding {
    sum: Vec<f64>,
}

impl Embedding {
    /// Forgets all rows; they will come again.
    pub(super) fn restart(&mut self) {
        self.sum.clear();
    }

    /// Adds a row.
    pub(super) fn add(&mut self, row: &[f32]) {
        self.sum.resize(row.len(), 0.0);
        self.sum.iter_mut().zip(row).for_each(|(sum, number)| *sum += f64::from(*number));
    }

    /// The direction of the mean; it has no length of its own, so the number of rows does not matter.
    pub(super) fn finish(self) -> Vec<f32> {
        let length = self.sum.iter().map(|number| number * number).sum::<f64>().sqrt();
        let scale = if length > 0.0 { 1.0 / length } else { 0.0 };
        self.sum.into_iter().map(|number| (number * scale) as f32).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_has_length_one() {
        let mut embedding = Embedding::default();
        [[9.0, 9.0], [1.0, 2.0]].iter().for_each(|row| embedding.add(row));
        embedding.restart();
        [[1.0, 2.0], [5.0, 6.0]].iter().for_each(|row| embedding.add(row));
        assert_eq!(embedding.finish(), [0.6, 0.8]);
        let mut nothing = Embedding::default();
        nothing.add(&[0.0, 0.0]);
        assert_eq!(nothing.finish(), [0.0, 0.0]);
    }
}
