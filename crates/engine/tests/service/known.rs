//! A job with known tokens from an earlier run gives the answer that it gives without.

use cascadia_engine::FinishReason;
use cascadia_engine::service::{Generation, NewToken, Service, Task};
use cascadia_model::CachePages;
use cascadia_text::{GrammarCompiler, OutputFormat};

use crate::harness::{Heard, Leave, Request, Setup, hear, job, long, on_session, request, text};

/// What a test does to how an answer is generated.
type Change<'a> = &'a dyn Fn(&mut Generation);

fn setup() -> Setup {
    Setup::new(long("llama3"), 128, CachePages::full(8))
}

fn prompt() -> Vec<u32> {
    (0..70).map(|at| at * 31 % 200).collect()
}

/// The answer to a request, with these tokens known and with what `change` does to how it is generated.
fn ask(service: &Service, request: &Request, known: &[u32], change: Change<'_>) -> Heard {
    let (mut job, updates) = job(request, Leave::Never);
    if let Task::Generate(wanted) = &mut job.task {
        wanted.known = known.to_vec();
        change(wanted);
    }
    service.handle().submit(job).unwrap();
    hear(&updates)
}

/// All of an answer that a client gets to see.
fn seen(heard: &Heard) -> (&[NewToken], FinishReason, &str, Option<usize>, [usize; 2]) {
    let outcome = heard.outcome.as_ref().expect("it has an answer");
    (&heard.tokens, outcome.finish, &outcome.text, outcome.stop, [outcome.prompt_tokens, outcome.tokens])
}

/// Asks with every number of known tokens; returns the answer.
fn check(name: &str, request: &Request, change: Change<'_>) -> Heard {
    let service = setup().start();
    let whole = ask(&service, request, &[], change);
    let numbers = whole.numbers();
    assert!(numbers.len() > 8, "{name}: an answer of {} tokens shows little", numbers.len());
    for count in 1..=numbers.len() {
        let heard = ask(&service, request, &numbers[..count], change);
        assert_eq!(seen(&heard), seen(&whole), "{name} with {count} known tokens");
        assert_eq!(heard.known, count, "{name}");
    }
    let mut session = setup().session();
    for count in [0, numbers.len() / 2, numbers.len()] {
        let mut generation = Generation { known: numbers[..count].to_vec(), ..request.generation() };
        change(&mut generation);
        let (shown, outcome) = on_session(&mut session, &request.prompt, generation);
        let said: String = whole.tokens.iter().map(|token| token.text.as_str()).collect();
        let ended = whole.outcome.as_ref().expect("it has an answer");
        assert_eq!((shown, outcome.finish), (said + &ended.text, ended.finish), "{name} on a session");
        assert_eq!(outcome.tokens, numbers, "{name} on a session");
    }
    let handle = service.handle();
    service.drain();
    let (sampled_tokens, asked) = (handle.snapshot().generated_tokens as usize, numbers.len());
    assert_eq!(sampled_tokens, (0..=asked).sum::<usize>(), "{name}: what is known is not sampled again");
    whole
}

#[test]
fn known_tokens_change_nothing() {
    let plain = |_: &mut Generation| {};
    let sampled = Request { stop_tokens: Vec::new(), ..request(prompt(), 0.9, 30) };
    check("greedy", &Request { stop_tokens: Vec::new(), ..request(prompt(), 0.0, 30) }, &plain);
    let answer = check("sampled", &sampled, &plain);
    assert_eq!(answer.outcome.unwrap().finish, FinishReason::Length);
    let mut penalties = sampled.clone();
    penalties.sampling.repetition_penalty = 1.3;
    penalties.sampling.frequency_penalty = 0.4;
    penalties.sampling.presence_penalty = 0.2;
    check("penalties", &penalties, &plain);
    let full = Request { max_tokens: 500, ..sampled.clone() };
    assert_eq!(check("context", &full, &plain).tokens.len(), 129 - prompt().len());
    // A token of the answer ends it.
    let end = Request { stop_tokens: vec![answer.tokens[20].token], ..sampled.clone() };
    assert_eq!(check("end token", &end, &plain).outcome.unwrap().finish, FinishReason::Stop);
    // So does a text that parts of two tokens make.
    let said: String = answer.tokens.iter().map(|token| token.text.as_str()).collect();
    let letters: Vec<char> = said.chars().collect();
    let stop = vec![letters[letters.len() * 2 / 3..][..2].iter().collect()];
    let outcome = check("stop text", &Request { stop, ..sampled.clone() }, &plain).outcome.unwrap();
    assert_eq!((outcome.finish, outcome.stop), (FinishReason::Stop, Some(0)));
    let compiler = GrammarCompiler::new(text().tokenizer(), &[5]).unwrap();
    let format = OutputFormat::Regex("(ab|cde){3}[xyz]{4,9}(end)".to_owned());
    let grammar = compiler.compile(&format).unwrap();
    let constrained = |wanted: &mut Generation| wanted.constraint = Some(Box::new(grammar.clone()));
    check("grammar", &Request { stop_tokens: vec![5], ..sampled }, &constrained);
}

#[test]
fn tokens_that_cannot_be_of_the_answer_are_not_believed() {
    let service = setup().start();
    let request = Request { stop_tokens: vec![5], ..request(prompt(), 0.9, 12) };
    let plain = |_: &mut Generation| {};
    let whole = ask(&service, &request, &[], &plain);
    let numbers = whole.numbers();
    let compiler = GrammarCompiler::new(text().tokenizer(), &[5]).unwrap();
    let grammar = compiler.compile(&OutputFormat::Regex("[xyz]{9}".to_owned())).unwrap();
    let constrained = |wanted: &mut Generation| wanted.constraint = Some(Box::new(grammar.clone()));
    let form = ask(&service, &request, &[], &constrained);
    let with = |token: u32| [&numbers[..4], &[token]].concat();
    let cases: [(&str, Vec<u32>, &Heard, Change<'_>); 4] = [
        ("no token of the model", with(288), &whole, &plain),
        ("a token that ends answers", with(5), &whole, &plain),
        ("more than were asked for", [numbers.clone(), numbers.clone()].concat(), &whole, &plain),
        ("not of the form", numbers.clone(), &form, &constrained),
    ];
    for (name, known, expected, change) in cases {
        let heard = ask(&service, &request, &known, change);
        assert_eq!((seen(&heard), heard.known), (seen(expected), 0), "{name}");
    }
    let logprobs = |wanted: &mut Generation| wanted.alternatives = Some(2);
    let (one, other) = (ask(&service, &request, &[], &logprobs), ask(&service, &request, &numbers, &logprobs));
    assert_eq!((seen(&other), other.known), (seen(&one), 0), "log probabilities need logits");
}
