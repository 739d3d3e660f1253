//! Sessions: chunks, truncation, reuse and limits, on a tiny model.

mod fixture;

use cascadia_engine::{EngineError, Session};
use fixture::{Limits, open, path};

fn tokens(count: u32) -> Vec<u32> {
    (0..count).map(|index| index * 31 % 285).collect()
}

fn session(limits: Limits) -> Session {
    open(&path("llama3"), limits).into_session()
}

fn bits(logits: &[f32]) -> Vec<u32> {
    logits.iter().map(|logit| logit.to_bits()).collect()
}

/// Logits of every position when the tokens are fed in pieces of `piece`.
fn every_row(limits: Limits, piece: usize) -> Vec<Vec<u32>> {
    let (mut session, mut rows) = (session(limits), Vec::new());
    for piece in tokens(70).chunks(piece) {
        session
            .feed_each(piece, |position, logits| {
                assert_eq!(position as usize, rows.len());
                rows.push(bits(logits));
                Ok::<_, EngineError>(())
            })
            .unwrap();
    }
    rows
}

#[test]
fn pieces_steps_and_threads_do_not_change_a_bit() {
    let whole = every_row(Limits { rows_per_step: 128, ..Limits::default() }, 70);
    assert_eq!(whole.len(), 70);
    let plain = Limits::default();
    for (limits, piece) in [
        (plain, 1),
        (plain, 70),
        (Limits { rows_per_step: 7, ..plain }, 33),
        (Limits { threads: 3, rows_per_step: 64, ..plain }, 70),
    ] {
        assert!(every_row(limits, piece) == whole, "pieces of {piece}");
    }
}

#[test]
fn the_last_row_is_the_same_alone_and_among_all() {
    let rows = every_row(Limits::default(), 70);
    let mut session = session(Limits::default());
    assert_eq!(bits(session.feed(&tokens(33)).unwrap()), rows[32]);
    session.append(&tokens(70)[33..69]).unwrap();
    assert_eq!(bits(session.feed(&tokens(70)[69..]).unwrap()), rows[69]);
    assert_eq!(bits(session.logits()), rows[69]);
}

#[test]
fn truncation_forgets_exactly_what_follows() {
    let rows = every_row(Limits::default(), 70);
    let mut session = session(Limits::default());
    session.feed(&tokens(70)).unwrap();
    for length in [69, 40, 17, 1, 0] {
        session.truncate(length);
        assert_eq!(session.tokens(), tokens(length as u32));
        assert_eq!(session.room(), 128 - length);
        let again = bits(session.feed(&tokens(70)[length..]).unwrap());
        assert_eq!(again, rows[69], "after {length}");
        session.truncate(length);
    }
}

#[test]
fn windows_that_are_gone_are_computed_again() {
    let limits = Limits { context: 256, rows_per_step: 5, threads: 1 };
    let tokens: Vec<u32> = (0..220).map(|at| at * 7 % 200).collect();
    let mut session = open(&path("mistral"), limits).into_session();
    let last = bits(session.feed(&tokens).unwrap());
    for (length, held) in [(215, 215), (200, 200), (60, 0)] {
        assert_eq!(session.truncate(length), held);
        assert_eq!(bits(session.feed(&tokens[held..]).unwrap()), last, "after {length}");
    }
}

#[test]
fn a_shared_prefix_is_kept() {
    let mut session = session(Limits::default());
    session.feed(&[1, 2, 3, 4, 5]).unwrap();
    let cases: [(&[u32], usize); 5] = [(&[1, 2, 3, 9, 9], 3), (&[1, 2, 3], 2), (&[1, 2], 1), (&[1, 5], 1), (&[7], 0)];
    for (prompt, kept) in cases {
        assert_eq!(session.reuse(prompt), kept, "{prompt:?}");
        assert_eq!(session.tokens(), &prompt[..kept]);
    }
}

#[test]
fn what_does_not_fit_is_refused_and_changes_nothing() {
    let mut session = session(Limits { context: 20, ..Limits::default() });
    session.feed(&tokens(15)).unwrap();
    let error = session.feed(&tokens(6)).unwrap_err();
    assert!(matches!(error, EngineError::ContextFull { used: 15, more: 6, context: 20 }), "{error}");
    let error = session.feed(&[1, 288]).unwrap_err();
    assert!(matches!(error, EngineError::UnknownToken { token: 288, vocabulary: 288 }), "{error}");
    assert!(session.feed(&[]).is_err());
    assert_eq!(session.tokens().len(), 15);
    session.feed(&tokens(5)).unwrap();
    assert_eq!(session.room(), 0);
}
