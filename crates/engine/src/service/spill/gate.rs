//! Whether a disk is used: after a failure it is left alone for a while, then tried again.

/// How long a disk that failed is left alone.
pub(super) const RETRY_SECONDS: f64 = 5.0;

/// Open unless what it leads to has failed lately.
#[derive(Debug, Default)]
pub(super) struct Gate {
    closed: Option<Closed>,
}

#[derive(Debug)]
struct Closed {
    problem: String,
    until: f64,
}

impl Gate {
    /// Whether it may be tried now.
    pub(super) fn is_open(&self, now: f64) -> bool {
        self.closed.as_ref().is_none_or(|closed| now >= closed.until)
    }

    /// It failed; `true` if it worked before.
    pub(super) fn close(&mut self, problem: String, now: f64) -> bool {
        let until = now + RETRY_SECONDS;
        self.closed.replace(Closed { problem, until }).is_none()
    }

    /// It worked; `true` if it failed before.
    pub(super) fn open(&mut self) -> bool {
        self.closed.take().is_some()
    }

    /// Why it is not used; nothing once it works again.
    pub(super) fn problem(&self) -> Option<&str> {
        self.closed.as_ref().map(|closed| closed.problem.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_news_once_until_it_works_again() {
        let mut gate = Gate::default();
        assert!(gate.is_open(0.0) && !gate.open() && gate.problem().is_none());
        assert!(gate.close("full".to_owned(), 10.0));
        assert!(!gate.is_open(10.0) && !gate.is_open(14.9) && gate.is_open(15.0));
        assert!(!gate.close("full again".to_owned(), 15.0), "no news");
        assert!(!gate.is_open(19.9) && gate.is_open(20.0));
        assert_eq!(gate.problem(), Some("full again"));
        assert!(gate.open() && gate.problem().is_none());
        assert!(gate.close("gone".to_owned(), 20.0), "news again");
    }
}
