//! What became of every request: the client's own history, and whether it can be true.

use super::workload::{Behaviour, Request};

/// How a request ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The whole answer came.
    Done,
    /// Its client left on purpose.
    Cancelled,
    /// Something else came, or nothing; a refusal is this too.
    Error(String),
}

/// One request and what became of it; times in seconds.
#[derive(Clone, Debug)]
pub struct Record {
    /// The request's number.
    pub number: u64,
    /// Who sent it.
    pub tenant: usize,
    /// Words of its prompt.
    pub words: u32,
    /// Tokens it asked for.
    pub asked: u32,
    /// How its client behaved.
    pub behaviour: Behaviour,
    /// When it was sent, from the beginning of the run.
    pub start: f64,
    /// The status of the response; 0 when there was none.
    pub status: u16,
    /// Seconds after which the server asked the client to come back.
    pub retry_after: Option<u32>,
    /// How it ended.
    pub outcome: Outcome,
    /// From sending to the first text.
    pub first: Option<f64>,
    /// From text to text.
    pub gaps: Vec<f64>,
    /// From sending to the end.
    pub total: f64,
    /// Tokens of the prompt, as the server counts.
    pub prompt_tokens: Option<u64>,
    /// Tokens of the answer: as the server counts, or pieces of text when it does not say.
    pub tokens: u64,
    /// Whether numbers of events were missing or came twice.
    pub misnumbered: bool,
    /// The answer.
    pub text: String,
}

impl Record {
    /// A request that was never sent, for this reason.
    pub(super) fn not_sent(request: &Request, tenant: usize, reason: &str) -> Record {
        Record {
            number: request.number,
            tenant,
            words: request.words,
            asked: request.answer,
            behaviour: request.behaviour,
            start: 0.0,
            status: 0,
            retry_after: None,
            outcome: Outcome::Error(format!("not sent: {reason}")),
            first: None,
            gaps: Vec::new(),
            total: 0.0,
            prompt_tokens: None,
            tokens: 0,
            misnumbered: false,
            text: String::new(),
        }
    }

    /// When each piece of text came, from the beginning of the run.
    pub(super) fn arrivals(&self) -> impl Iterator<Item = f64> {
        let first = self.first.map(|first| self.start + first);
        first.into_iter().flat_map(|first| {
            let later = self.gaps.iter().scan(first, |time, gap| {
                *time += gap;
                Some(*time)
            });
            std::iter::once(first).chain(later)
        })
    }

    /// Whether the server refused it because it had too much to do.
    pub fn is_refused(&self) -> bool {
        self.status == 429
    }

    /// Whether it ended in a way that nobody wanted.
    pub fn is_failed(&self) -> bool {
        matches!(self.outcome, Outcome::Error(_)) && !self.is_refused()
    }

    /// The word for how it ended.
    pub fn outcome_name(&self) -> &'static str {
        match self.outcome {
            Outcome::Done => "done",
            Outcome::Cancelled => "cancelled",
            Outcome::Error(_) => "error",
        }
    }
}

/// Contradictions in a history of `sent` requests: every one ends exactly once, and what it says of itself fits.
pub fn check_history(records: &[Record], sent: u64) -> Vec<String> {
    let mut problems = Vec::new();
    let mut endings = vec![0u32; usize::try_from(sent).unwrap_or(0)];
    for record in records {
        let number = record.number;
        match usize::try_from(number).ok().and_then(|number| endings.get_mut(number)) {
            Some(count) => *count += 1,
            None => problems.push(format!("request {number} ended and was never sent")),
        }
        let leaves = matches!(record.behaviour, Behaviour::Leaves { .. });
        let wrong = match &record.outcome {
            Outcome::Done if record.status != 200 => Some("is done without a status of 200"),
            Outcome::Done if record.tokens > u64::from(record.asked) => Some("got more tokens than it asked for"),
            Outcome::Cancelled if !leaves => Some("was cancelled although its client stays"),
            _ if record.is_refused() && record.retry_after.is_none() => Some("was refused without a time to come back"),
            _ if record.misnumbered => Some("had events with numbers missing or twice"),
            _ => None,
        };
        problems.extend(wrong.map(|wrong| format!("request {number} {wrong}")));
    }
    for (number, count) in endings.iter().enumerate().filter(|(_, count)| **count != 1) {
        problems.push(format!("request {number} ended {count} times"));
    }
    problems
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(crate) fn record(number: u64) -> Record {
        let request = Request {
            number,
            prompt: String::new(),
            words: 8,
            answer: 16,
            seed: 0,
            temperature: 0.0,
            behaviour: Behaviour::Patient,
        };
        Record {
            start: 1.0,
            status: 200,
            outcome: Outcome::Done,
            first: Some(0.5),
            gaps: vec![0.1, 0.2],
            total: 1.0,
            prompt_tokens: Some(9),
            tokens: 3,
            ..Record::not_sent(&request, 0, "a test")
        }
    }

    #[test]
    fn a_history_must_be_possible() {
        let check = |change: &dyn Fn(&mut Vec<Record>), problem: Option<&str>| {
            let mut records = vec![record(0), record(1)];
            change(&mut records);
            let found = check_history(&records, 2);
            assert_eq!(found.is_empty(), problem.is_none(), "{found:?}");
            assert!(found.iter().any(|found| problem.is_some_and(|p| found.contains(p))) || problem.is_none());
        };
        check(&|_| {}, None);
        check(&|records| records.truncate(1), Some("ended 0 times"));
        check(&|records| records.push(record(1)), Some("ended 2 times"));
        check(&|records| records[1].number = 9, Some("never sent"));
        check(&|records| records[1].status = 500, Some("without a status of 200"));
        check(&|records| records[1].tokens = 17, Some("more tokens"));
        check(&|records| records[1].outcome = Outcome::Cancelled, Some("stays"));
        check(&|records| records[1].misnumbered = true, Some("numbers"));
        let refuse = |records: &mut Vec<Record>| {
            records[1].status = 429;
            records[1].outcome = Outcome::Error("busy".to_owned());
        };
        check(&refuse, Some("come back"));
        check(
            &|records| {
                refuse(records);
                records[1].retry_after = Some(1);
            },
            None,
        );
    }

    #[test]
    fn texts_arrive_one_after_the_other() {
        let arrivals: Vec<f64> = record(0).arrivals().collect();
        let expected = [1.5, 1.6, 1.8];
        assert!(arrivals.iter().zip(expected).all(|(found, expected)| (found - expected).abs() < 1e-9), "{arrivals:?}");
    }
}
