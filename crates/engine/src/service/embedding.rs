//! The embedding of a prompt: what is made of its final hidden states, as the model's authors made it.

use cascadia_model::PooledRows;

/// Sums up the rows that count in the order of their positions, so that it does not matter how a prompt is cut into steps.
pub(super) struct Embedding {
    pooled: PooledRows,
    sum: Vec<f64>,
    /// Rows that came, whether they count or not.
    rows: usize,
}

impl Embedding {
    /// Nothing yet.
    pub(super) fn new(pooled: PooledRows) -> Embedding {
        Embedding { pooled, sum: Vec::new(), rows: 0 }
    }

    /// Forgets all rows; they will come again.
    pub(super) fn restart(&mut self) {
        self.sum.clear();
        self.rows = 0;
    }

    /// Adds a row.
    pub(super) fn add(&mut self, row: &[f32]) {
        self.rows += 1;
        match self.pooled {
            PooledRows::First if self.rows > 1 => return,
            PooledRows::Last => self.sum.clear(),
            PooledRows::First | PooledRows::Mean => {}
        }
        self.sum.resize(row.len(), 0.0);
        self.sum.iter_mut().zip(row).for_each(|(sum, number)| *sum += f64::from(*number));
    }

    /// The one row that they become.
    pub(super) fn row(&self) -> Vec<f32> {
        let count = if self.pooled == PooledRows::Mean { self.rows.max(1) } else { 1 };
        self.sum.iter().map(|number| (number / count as f64) as f32).collect()
    }

    /// Its direction, one number long.
    pub(super) fn direction(&self) -> Vec<f32> {
        let length = self.sum.iter().map(|number| number * number).sum::<f64>().sqrt();
        let scale = if length > 0.0 { 1.0 / length } else { 0.0 };
        self.sum.iter().map(|number| (number * scale) as f32).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_row_counts_alone() {
        for (pooled, expected) in [(PooledRows::First, [1.0, 2.0]), (PooledRows::Last, [5.0, 6.0])] {
            let mut embedding = Embedding::new(pooled);
            [[9.0, 9.0], [1.0, 1.0]].iter().for_each(|row| embedding.add(row));
            embedding.restart();
            [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]].iter().for_each(|row| embedding.add(row));
            assert_eq!(embedding.row(), expected);
        }
    }

    #[test]
    fn the_mean_has_length_one() {
        let mut embedding = Embedding::new(PooledRows::Mean);
        [[9.0, 9.0], [1.0, 2.0]].iter().for_each(|row| embedding.add(row));
        embedding.restart();
        [[1.0, 2.0], [5.0, 6.0]].iter().for_each(|row| embedding.add(row));
        assert_eq!((embedding.direction(), embedding.row()), (vec![0.6, 0.8], vec![3.0, 4.0]));
        let mut nothing = Embedding::new(PooledRows::Mean);
        nothing.add(&[0.0, 0.0]);
        assert_eq!(nothing.direction(), [0.0, 0.0]);
    }
}
