//! Whether reading pages takes less time than computing them, by what both took lately.

use cascadia_model::{PageClass, PerClass};

/// How long reading that was too slow is not tried again.
const RETRY_SECONDS: f64 = 30.0;

/// What reading and computing take; nothing is known at zero.
#[derive(Debug, Default)]
pub(super) struct ReadCosts {
    page_seconds: PerClass<f64>,
    row_seconds: f64,
    /// When reading that was too slow is measured again.
    retry_at: Option<f64>,
}

impl ReadCosts {
    /// A page of a class was read in so many seconds.
    pub(super) fn learn(&mut self, class: PageClass, seconds: f64) {
        let before = self.page_seconds[class];
        self.page_seconds[class] = if before == 0.0 { seconds } else { 0.8 * before + 0.2 * seconds };
    }

    /// A row of a prompt takes so many seconds.
    pub(super) fn set_row_seconds(&mut self, seconds: f64) {
        self.row_seconds = seconds;
    }

    /// Whether reading so many pages of each class is faster than computing so many tokens. What is not known is tried, and
    /// what was too slow now and then.
    pub(super) fn pays(&mut self, pages: &PerClass<usize>, tokens: usize, now: f64) -> bool {
        let reading: f64 = pages.iter().map(|(class, count)| *count as f64 * self.page_seconds[class]).sum();
        if self.row_seconds == 0.0 || reading < self.row_seconds * tokens as f64 {
            return true;
        }
        let again = self.retry_at.is_some_and(|at| now >= at);
        if again || self.retry_at.is_none() {
            self.retry_at = Some(now + RETRY_SECONDS);
        }
        again
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_cheaper_is_done() {
        let pages = |full, window| PerClass::new(|class| if class == PageClass::Full { full } else { window });
        let mut costs = ReadCosts::default();
        assert!(costs.pays(&pages(1000, 0), 64, 0.0), "nothing is known");
        costs.set_row_seconds(0.01);
        costs.learn(PageClass::Full, 0.1);
        assert!(costs.pays(&pages(6, 0), 64, 0.0), "0.6 s against 0.64 s");
        assert!(!costs.pays(&pages(7, 0), 64, 100.0), "0.7 s against 0.64 s");
        assert!(costs.pays(&pages(7, 0), 128, 101.0), "0.7 s against 1.28 s");
        assert!(!costs.pays(&pages(7, 0), 64, 129.9));
        assert!(costs.pays(&pages(7, 0), 64, 130.0), "measured once more");
        assert!(!costs.pays(&pages(7, 0), 64, 130.1));
        (0..30).for_each(|_| costs.learn(PageClass::Full, 0.001));
        assert!(costs.pays(&pages(7, 0), 64, 131.0), "the disk has become faster");
        costs.learn(PageClass::Window, 0.5);
        assert!(!costs.pays(&pages(1, 2), 64, 131.0), "all classes count");
    }
}
