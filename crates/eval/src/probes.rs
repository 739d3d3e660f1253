//! Two probes of what a model finds in its context: a passage that is repeated, and values that are asked for by key.

use cascadia_engine::Session;

use crate::EvalError;
use crate::perplexity::likeliest;
use crate::random::Random;

/// Keys that are asked for at most.
const QUESTIONS: usize = 32;
/// Tokens of a key; its value is one more.
const KEY: usize = 4;
/// Tokens are from this part of the vocabulary: most vocabularies begin with frequent ones, which models know better.
const FREQUENT: usize = 8;
/// Small vocabularies are used up to here at least.
const LEAST_VOCABULARY: usize = 256;

/// Random tokens behind a first token.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Probes {
    pub(crate) bos: u32,
    pub(crate) seed: u64,
}

impl Probes {
    /// A passage and its repetition in so many tokens, at least 4: the share of the repetition, after its first token, that
    /// is predicted as the likeliest.
    pub(crate) fn copied(&self, session: &mut Session, context: usize) -> Result<f64, EvalError> {
        let passage = self.tokens(session, &mut self.random(context), context / 2);
        let repeated = &passage[..passage.len().saturating_sub(1)];
        let mut hits = 0;
        self.ask(session, &passage, repeated, |index, top| hits += usize::from(passage.get(index + 1) == Some(&top)))?;
        Ok(hits as f64 / repeated.len().max(1) as f64)
    }

    /// So many tokens, at least 16, of keys with their values, and at the end the first of these again in another order: the
    /// share of values that are predicted as the likeliest after their keys.
    pub(crate) fn retrieved(&self, session: &mut Session, context: usize) -> Result<f64, EvalError> {
        let records = context.saturating_sub(1) / (KEY + 1);
        let questions = (records / 3).clamp(1, QUESTIONS);
        let mut random = self.random(context);
        let tokens = self.tokens(session, &mut random, records.saturating_sub(questions) * (KEY + 1));
        let mut asked: Vec<&[u32]> = tokens.chunks_exact(KEY + 1).take(questions).collect();
        for index in (1..asked.len()).rev() {
            asked.swap(index, random.below(index as u64 + 1) as usize);
        }
        let (asked, mut hits) = (asked.concat(), 0);
        self.ask(session, &tokens, &asked, |index, top| {
            hits += usize::from(index % (KEY + 1) == KEY - 1 && asked[index + 1] == top);
        })?;
        Ok(hits as f64 / questions as f64)
    }

    /// Runs an emptied session over a context and questions; `each` hears the likeliest token after each of the questions.
    fn ask(
        &self,
        session: &mut Session,
        context: &[u32],
        questions: &[u32],
        mut each: impl FnMut(usize, u32),
    ) -> Result<(), EvalError> {
        session.truncate(0);
        session.append(&[&[self.bos], context].concat())?;
        let first = session.tokens().len();
        session.feed_each(questions, |position, logits| {
            each(position as usize - first, likeliest(logits)?.0);
            Ok(())
        })
    }

    /// Numbers that are the same for the same seed and context.
    fn random(&self, context: usize) -> Random {
        Random::new(self.seed, context as u64)
    }

    fn tokens(&self, session: &Session, random: &mut Random, count: usize) -> Vec<u32> {
        let vocabulary = session.spec().vocabulary;
        let frequent = (vocabulary / FREQUENT).max(LEAST_VOCABULARY).min(vocabulary) as u64;
        (0..count).map(|_| random.below(frequent) as u32).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{fixture::session, full_precision};

    #[test]
    fn the_questions_are_the_first_records_in_another_order() {
        let (mut session, probes) = (session(full_precision(), 256), Probes { bos: 1, seed: 5 });
        let share = probes.retrieved(&mut session, 256).unwrap();
        assert!((0.0..=1.0).contains(&share));
        // 51 records fit; a third of them, 17, are questions.
        let tokens = session.tokens();
        assert_eq!((tokens.len(), tokens[0]), (1 + 51 * 5, 1));
        let (known, asked) = tokens[1..].split_at(34 * 5);
        let sorted = |tokens: &[u32]| {
            let mut records: Vec<Vec<u32>> = tokens.chunks(5).map(<[u32]>::to_vec).collect();
            records.sort();
            records
        };
        assert_eq!(sorted(asked), sorted(&known[..17 * 5]));
        assert!(*asked != known[..17 * 5]);
    }

    #[test]
    fn a_passage_is_repeated_but_for_its_last_token() {
        let (mut session, probes) = (session(full_precision(), 256), Probes { bos: 1, seed: 5 });
        let share = probes.copied(&mut session, 200).unwrap();
        let tokens = session.tokens().to_vec();
        assert_eq!(tokens.len(), 200);
        assert_eq!(tokens[1..100], tokens[101..200]);
        // Counted again, one token after the other.
        session.truncate(0);
        session.append(&tokens[..101]).unwrap();
        let repeated = (101..200).filter(|&at| {
            let expected = tokens.get(at - 99).copied();
            likeliest(session.feed(&tokens[at..at + 1]).unwrap()).ok().map(|top| top.0) == expected
        });
        assert_eq!(share, repeated.count() as f64 / 99.0);
    }
}
