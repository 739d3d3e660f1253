//! Requests from prompt to text, on a tiny model.

mod fixture;

use cascadia_engine::service::Generation;
use cascadia_engine::{Event, FinishReason, Flow, ModelText, Outcome, Request, Sampling, Session, generate};
use fixture::{Limits, open, path};

fn session(limits: Limits) -> (Session, ModelText) {
    let engine = open(&path("llama3"), limits);
    let text = engine.text().unwrap();
    (engine.into_session(), text)
}

fn generation() -> Generation {
    Generation::new(Sampling { seed: 11, ..Sampling::default() }, 24)
}

fn request(prompt: &[u32]) -> Request {
    Request { prompt: prompt.to_vec(), generation: generation(), draft_tokens: 8 }
}

fn request_with(generation: Generation) -> Request {
    Request { prompt: PROMPT.to_vec(), generation, draft_tokens: 8 }
}

const PROMPT: [u32; 40] = {
    let mut tokens = [0; 40];
    let mut index = 0;
    while index < 40 {
        tokens[index] = (index as u32 * 17) % 285;
        index += 1;
    }
    tokens
};

fn run(session: &mut Session, text: &ModelText, request: &Request) -> (String, Outcome) {
    let mut shown = String::new();
    let outcome = generate(text.tokenizer(), session, request, &mut |event| {
        shown.push_str(event.text());
        Flow::Continue
    });
    (shown, outcome.unwrap())
}

#[test]
fn the_same_request_gives_the_same_tokens_however_it_is_computed() {
    let (mut first, text) = session(Limits::default());
    let (shown, outcome) = run(&mut first, &text, &request(&PROMPT));
    assert_eq!(outcome.finish, FinishReason::Length);
    assert_eq!(outcome.tokens.len(), 24);
    assert_eq!(outcome.stats.prompt_tokens, 40);
    assert_eq!(outcome.stats.decoded_tokens, 23);
    assert_eq!(shown, String::from_utf8_lossy(&text.tokenizer().decode(&outcome.tokens)));
    let plain = Limits::default();
    for limits in
        [Limits { threads: 2, ..plain }, Limits { rows_per_step: 1, ..plain }, Limits { context: 256, ..plain }]
    {
        let (mut other, text) = session(limits);
        assert_eq!(run(&mut other, &text, &request(&PROMPT)).1.tokens, outcome.tokens);
    }
}

#[test]
fn a_longer_conversation_reuses_the_cache_and_gives_the_same_tokens() {
    let (mut session_one, text) = session(Limits::default());
    let (_, first) = run(&mut session_one, &text, &request(&PROMPT));
    let mut longer = PROMPT.to_vec();
    longer.extend(&first.tokens);
    longer.extend([5, 6, 7]);
    let (shown, second) = run(&mut session_one, &text, &request(&longer));
    assert_eq!(second.stats.reused_tokens, 40 + 23);
    let (mut fresh, text) = session(Limits::default());
    let (fresh_shown, fresh_outcome) = run(&mut fresh, &text, &request(&longer));
    assert_eq!(fresh_outcome.stats.reused_tokens, 0);
    assert_eq!((shown, second.tokens), (fresh_shown, fresh_outcome.tokens));
}

/// A text of a few tokens that repeats itself, so that there is much to propose, and some of it wrong.
#[test]
fn draft_tokens_change_no_token() {
    let (_, text) = session(Limits::default());
    for model in ["llama3", "gemma3"] {
        let mut session = open(&path(model), Limits::default()).into_session();
        for temperature in [0.0, 0.8] {
            let bias = (7..12).map(|token| (token, 40.0)).collect();
            let sampling = Sampling { seed: 3, temperature, logit_bias: bias, ..Sampling::default() };
            let prompt = PROMPT.map(|token| token % 90);
            let plain = Request { prompt: prompt.to_vec(), ..request_with(Generation::new(sampling, 60)) };
            let answers = [0, 1, 16].map(|draft_tokens| {
                session.truncate(0);
                run(&mut session, &text, &Request { draft_tokens, ..plain.clone() })
            });
            let tokens = answers.each_ref().map(|(_, outcome)| (&outcome.tokens, outcome.stats.decoded_tokens));
            assert!(tokens[1] == tokens[0] && tokens[2] == tokens[0], "{model}: {tokens:?}");
            // The next prompt finds what the answer left.
            let longer = [&prompt[..], tokens[0].0, &[5]].concat();
            assert_eq!(run(&mut session, &text, &request(&longer)).1.stats.reused_tokens, 40 + 59);
        }
    }
}

#[test]
fn another_seed_gives_another_answer() {
    let (mut session, text) = session(Limits::default());
    let one = run(&mut session, &text, &request(&PROMPT)).1.tokens;
    let mut other = request(&PROMPT);
    other.generation.sampling.seed = 12;
    assert_ne!(run(&mut session, &text, &other).1.tokens, one);
}

#[test]
fn answers_end_for_the_right_reason() {
    let (mut session, text) = session(Limits { context: 50, ..Limits::default() });
    let (whole, outcome) = run(&mut session, &text, &request_with(Generation { max_tokens: 8, ..generation() }));
    assert_eq!(outcome.finish, FinishReason::Length);

    let stop_tokens = vec![outcome.tokens[4]];
    let first = outcome.tokens.iter().position(|token| *token == stop_tokens[0]).unwrap();
    let (_, stopped) = run(&mut session, &text, &request_with(Generation { stop_tokens, ..generation() }));
    assert_eq!((stopped.finish, stopped.tokens.len()), (FinishReason::Stop, first));

    let middle: String = whole.chars().skip(3).take(2).collect();
    let before = whole.split(&middle).next().unwrap();
    let stop = vec![middle.clone()];
    let (shown, stopped) = run(&mut session, &text, &request_with(Generation { stop, ..generation() }));
    assert_eq!((stopped.finish, shown.as_str()), (FinishReason::Stop, before));

    let (_, full) = run(&mut session, &text, &request_with(Generation { max_tokens: 1000, ..generation() }));
    assert_eq!((full.finish, full.tokens.len()), (FinishReason::Length, 11));

    let (_, nothing) = run(&mut session, &text, &request_with(Generation { max_tokens: 0, ..generation() }));
    assert_eq!((nothing.finish, nothing.tokens.len()), (FinishReason::Length, 0));
}

#[test]
fn a_receiver_can_stop_the_prompt_and_the_answer() {
    let (mut session, text) = session(Limits::default());
    let mut stop_after = |wanted: usize, want_text: fn(&Event<'_>) -> bool| {
        let mut count = 0;
        let outcome = generate(text.tokenizer(), &mut session, &request(&PROMPT), &mut |event| {
            count += usize::from(want_text(&event));
            if count >= wanted { Flow::Stop } else { Flow::Continue }
        });
        session.truncate(0);
        outcome.unwrap()
    };
    let during_prompt = stop_after(2, |event| matches!(event, Event::Prompt { .. }));
    assert_eq!((during_prompt.finish, during_prompt.tokens.len()), (FinishReason::Cancelled, 0));
    let during_answer = stop_after(3, |event| matches!(event, Event::Token(_)));
    assert_eq!((during_answer.finish, during_answer.tokens.len()), (FinishReason::Cancelled, 3));
}

#[test]
fn special_tokens_and_plain_prompts_follow_the_files() {
    let (_, text) = session(Limits::default());
    assert_eq!(text.special().bos, Some(285));
    assert_eq!(text.special().stop, [286, 287]);
    let gguf = open(&path("llama3-gguf/model.gguf"), Limits::default()).text().unwrap();
    assert_eq!(gguf.special().bos, Some(285));
    assert!(gguf.special().stop.contains(&286));
    let words = "Hello <|end|> world";
    assert_eq!(text.plain_prompt(words).unwrap(), gguf.plain_prompt(words).unwrap());
    assert!(text.plain_prompt(words).unwrap().contains(&286));
}
