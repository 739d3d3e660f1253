//! Requests from prompt to text, on a tiny model.

mod fixture;

use cascadia_engine::{Engine, Event, FinishReason, Flow, ModelText, Outcome, Request, Sampling, generate};
use fixture::{Limits, open, path};

fn engine(limits: Limits) -> (Engine, ModelText) {
    let engine = open(&path("llama3"), limits);
    let text = engine.text().unwrap();
    (engine, text)
}

fn request(prompt: &[u32]) -> Request {
    Request {
        prompt: prompt.to_vec(),
        sampling: Sampling { seed: 11, ..Sampling::default() },
        max_tokens: 24,
        stop: Vec::new(),
        stop_tokens: Vec::new(),
    }
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

fn run(engine: &mut Engine, text: &ModelText, request: &Request) -> (String, Outcome) {
    let mut shown = String::new();
    let outcome = generate(text.tokenizer(), &mut engine.session, request, &mut |event| {
        if let Event::Text(piece) = event {
            shown.push_str(piece);
        }
        Flow::Continue
    });
    (shown, outcome.unwrap())
}

#[test]
fn the_same_request_gives_the_same_tokens_however_it_is_computed() {
    let (mut first, text) = engine(Limits::default());
    let (shown, outcome) = run(&mut first, &text, &request(&PROMPT));
    assert_eq!(outcome.finish, FinishReason::Length);
    assert_eq!(outcome.tokens.len(), 24);
    assert_eq!(outcome.stats.prompt_tokens, 40);
    assert_eq!(outcome.stats.decode_steps, 23);
    assert_eq!(shown, String::from_utf8_lossy(&text.tokenizer().decode(&outcome.tokens)));
    let plain = Limits::default();
    for limits in
        [Limits { threads: 2, ..plain }, Limits { rows_per_step: 1, ..plain }, Limits { context: 256, ..plain }]
    {
        let (mut other, text) = engine(limits);
        assert_eq!(run(&mut other, &text, &request(&PROMPT)).1.tokens, outcome.tokens);
    }
}

#[test]
fn a_longer_conversation_reuses_the_cache_and_gives_the_same_tokens() {
    let (mut engine_one, text) = engine(Limits::default());
    let (_, first) = run(&mut engine_one, &text, &request(&PROMPT));
    let mut longer = PROMPT.to_vec();
    longer.extend(&first.tokens);
    longer.extend([5, 6, 7]);
    let (shown, second) = run(&mut engine_one, &text, &request(&longer));
    assert_eq!(second.stats.reused_tokens, 40 + 23);
    let (mut fresh, text) = engine(Limits::default());
    let (fresh_shown, fresh_outcome) = run(&mut fresh, &text, &request(&longer));
    assert_eq!(fresh_outcome.stats.reused_tokens, 0);
    assert_eq!((shown, second.tokens), (fresh_shown, fresh_outcome.tokens));
}

#[test]
fn another_seed_gives_another_answer() {
    let (mut engine, text) = engine(Limits::default());
    let one = run(&mut engine, &text, &request(&PROMPT)).1.tokens;
    let mut other = request(&PROMPT);
    other.sampling.seed = 12;
    assert_ne!(run(&mut engine, &text, &other).1.tokens, one);
}

#[test]
fn answers_end_for_the_right_reason() {
    let (mut engine, text) = engine(Limits { context: 50, ..Limits::default() });
    let (whole, outcome) = run(&mut engine, &text, &Request { max_tokens: 8, ..request(&PROMPT) });
    assert_eq!(outcome.finish, FinishReason::Length);

    let stop_tokens = vec![outcome.tokens[4]];
    let first = outcome.tokens.iter().position(|token| *token == stop_tokens[0]).unwrap();
    let (_, stopped) = run(&mut engine, &text, &Request { stop_tokens, ..request(&PROMPT) });
    assert_eq!((stopped.finish, stopped.tokens.len()), (FinishReason::Stop, first));

    let middle: String = whole.chars().skip(3).take(2).collect();
    let before = whole.split(&middle).next().unwrap();
    let (shown, stopped) = run(&mut engine, &text, &Request { stop: vec![middle.clone()], ..request(&PROMPT) });
    assert_eq!((stopped.finish, shown.as_str()), (FinishReason::Stop, before));

    let (_, full) = run(&mut engine, &text, &Request { max_tokens: 1000, ..request(&PROMPT) });
    assert_eq!((full.finish, full.tokens.len()), (FinishReason::ContextFull, 11));

    let (_, nothing) = run(&mut engine, &text, &Request { max_tokens: 0, ..request(&PROMPT) });
    assert_eq!((nothing.finish, nothing.tokens.len()), (FinishReason::Length, 0));
}

#[test]
fn a_receiver_can_stop_the_prompt_and_the_answer() {
    let (mut engine, text) = engine(Limits::default());
    let mut stop_after = |wanted: usize, want_text: fn(&Event<'_>) -> bool| {
        let mut count = 0;
        let outcome = generate(text.tokenizer(), &mut engine.session, &request(&PROMPT), &mut |event| {
            count += usize::from(want_text(&event));
            if count >= wanted { Flow::Stop } else { Flow::Continue }
        });
        engine.session.truncate(0);
        outcome.unwrap()
    };
    let during_prompt = stop_after(2, |event| matches!(event, Event::Prompt { .. }));
    assert_eq!((during_prompt.finish, during_prompt.tokens.len()), (FinishReason::Cancelled, 0));
    let during_answer = stop_after(3, |event| matches!(event, Event::Text(_)));
    assert_eq!((during_answer.finish, during_answer.tokens.len()), (FinishReason::Cancelled, 3));
}

#[test]
fn special_tokens_and_plain_prompts_follow_the_files() {
    let (_, text) = engine(Limits::default());
    assert_eq!(text.special().bos, Some(285));
    assert_eq!(text.special().stop, [286, 287]);
    let gguf = open(&path("llama3-gguf/model.gguf"), Limits::default()).text().unwrap();
    assert_eq!(gguf.special().bos, Some(285));
    assert!(gguf.special().stop.contains(&286));
    let words = "Hello <|end|> world";
    assert_eq!(text.plain_prompt(words).unwrap(), gguf.plain_prompt(words).unwrap());
    assert!(text.plain_prompt(words).unwrap().contains(&286));
}
