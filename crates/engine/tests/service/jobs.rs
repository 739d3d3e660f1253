//! What jobs report: text, log probabilities, embeddings, reuse, and errors that stay with the job that caused them.

use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex};

use cascadia_engine::service::{Job, Score, Service, Task, TokenLogprobs, Update};
use cascadia_engine::{EngineError, FinishReason, Flow, Sampling};
use cascadia_model::CachePages;

use crate::harness::{Held, Leave, Request, Setup, fixture, hear, hold, job, long, request, text};

fn setup() -> Setup {
    Setup::new(long("llama3"), 512, CachePages::full(40))
}

fn prompt(length: u32) -> Vec<u32> {
    (0..length).map(|at| at * 31 % 200 + at / 200).collect()
}

#[test]
fn text_is_whole_and_ends_before_stop_texts() {
    let service = setup().start();
    let submit = |stop: Vec<String>| {
        let (job, updates) = job(&Request { stop, ..request(prompt(20), 0.0, 60) }, Leave::Never);
        service.handle().submit(job).unwrap();
        hear(&updates)
    };
    let whole = submit(Vec::new());
    let outcome = whole.outcome.as_ref().unwrap();
    let said = |heard: &crate::harness::Heard| {
        let parts: String = heard.tokens.iter().map(|token| token.text.as_str()).collect();
        parts + &heard.outcome.as_ref().unwrap().text
    };
    let bytes = text().tokenizer().decode(&whole.numbers());
    assert_eq!(said(&whole), String::from_utf8_lossy(&bytes));
    assert_eq!((outcome.prompt_tokens, outcome.tokens), (20, whole.tokens.len()));
    // Any two characters of the answer end it where they first occur.
    let letters: Vec<char> = said(&whole).chars().collect();
    let stop: String = letters[letters.len() / 2..letters.len() / 2 + 2].iter().collect();
    let stopped = submit(vec!["no such text".into(), stop.clone()]);
    let outcome = stopped.outcome.as_ref().unwrap();
    assert_eq!((outcome.finish, outcome.stop), (FinishReason::Stop, Some(1)));
    assert_eq!(said(&stopped), said(&whole).split(&stop).next().unwrap());
}

#[test]
fn log_probabilities_are_those_of_the_model() {
    let service = setup().start();
    let (mut job, updates) = job(&request(prompt(20), 0.8, 8), Leave::Never);
    if let Task::Generate(wanted) = &mut job.task {
        wanted.alternatives = Some(3);
    }
    service.handle().submit(job).unwrap();
    for token in hear(&updates).tokens {
        let logprobs = token.logprobs.expect("it was asked for");
        assert_eq!(logprobs.alternatives.len(), 3);
        assert!(logprobs.alternatives.is_sorted_by(|one, other| one.log_probability >= other.log_probability));
        assert!(logprobs.log_probability <= logprobs.alternatives[0].log_probability);
        let known = logprobs.alternatives.iter().find(|alternative| alternative.token == token.token);
        assert!(known.is_none_or(|known| known.log_probability == logprobs.log_probability));
    }
}

#[test]
fn a_prompt_has_the_same_scores_in_any_steps_and_company() {
    let score = |setup: &Setup, crowd: usize, max_tokens: u32| {
        let service = setup.start();
        // The same prompt before it, so that all of it is in the prefix cache.
        let others: Vec<_> = (0..crowd)
            .map(|_| {
                let (job, updates) = job(&request(prompt(170), 0.0, 40), Leave::Never);
                service.handle().submit(job).unwrap();
                updates
            })
            .collect();
        let wanted = request(prompt(170), 0.0, max_tokens);
        let (plain, updates) = job(&wanted, Leave::Never);
        let task = Task::Score(Score { alternatives: 2, generation: wanted.generation() });
        service.handle().submit(Job { task, ..plain }).unwrap();
        let heard = hear(&updates);
        others.iter().for_each(|updates| drop(hear(updates)));
        assert_eq!(heard.outcome.as_ref().unwrap().tokens, heard.tokens.len());
        (heard.scores.clone().expect("it was asked for"), heard.numbers())
    };
    let (whole, nothing) = score(&Setup { rows_per_step: 256, ..setup() }, 0, 0);
    assert_eq!((whole.len(), nothing.len()), (169, 0));
    // What a session says of the same rows.
    let (prompt, mut session) = (prompt(170), setup().session());
    let mut worst = 0f64;
    let each = |position: u32, logits: &[f32]| {
        let Some(&token) = prompt.get(position as usize + 1) else { return Ok(()) };
        let total: f64 = logits.iter().map(|logit| libm::exp(f64::from(*logit))).sum();
        let expected = f64::from(logits[token as usize]) - libm::log(total);
        let TokenLogprobs { log_probability, alternatives } = &whole[position as usize];
        worst = worst.max((f64::from(*log_probability) - expected).abs());
        let best = (0..logits.len()).max_by(|one, other| logits[*one].total_cmp(&logits[*other])).unwrap();
        assert_eq!((alternatives.len(), alternatives[0].token as usize), (2, best));
        Ok::<(), EngineError>(())
    };
    session.feed_each(&prompt, each).unwrap();
    assert!(worst < 1e-5, "{worst}");
    let answer = setup().alone(&[request(prompt.clone(), 0.0, 12)]).remove(0);
    for (rows_per_step, crowd) in [(256, 0), (64, 1), (48, 4), (33, 9)] {
        let (scores, tokens) = score(&Setup { rows_per_step, ..setup() }, crowd, 12);
        assert!(scores == whole, "{rows_per_step} rows per step, {crowd} others");
        assert_eq!(tokens, answer, "{rows_per_step} rows per step, {crowd} others");
    }
    // Too few pages for all, so that some are preempted and computed again.
    let scarce = Setup { cache: CachePages::full(16), ..setup() };
    assert!(score(&scarce, 3, 12) == (whole, answer));
}

#[test]
fn an_embedding_does_not_depend_on_steps_or_company() {
    let embed = |setup: &Setup, crowd: usize| {
        let service = setup.start();
        let company: Vec<_> = (0..crowd).map(|_| job(&request(prompt(150), 0.0, 40), Leave::Never)).collect();
        let (plain, updates) = job(&request(prompt(170), 0.0, 1), Leave::Never);
        let mut company = company.into_iter();
        let before: Vec<_> = company.by_ref().take(crowd / 2).collect();
        let submit = |(job, updates)| {
            service.handle().submit(job).unwrap();
            updates
        };
        let mut others: Vec<_> = before.into_iter().map(submit).collect();
        service.handle().submit(Job { task: Task::Embed { second_text: None }, ..plain }).unwrap();
        others.extend(company.map(submit));
        let embedding = hear(&updates).embedding.expect("it was asked for");
        others.iter().for_each(|updates| drop(hear(updates)));
        embedding
    };
    let whole = embed(&Setup { rows_per_step: 256, ..setup() }, 0);
    assert_eq!(whole.len(), 64);
    assert!((whole.iter().map(|number| number * number).sum::<f32>() - 1.0).abs() < 1e-5);
    assert_eq!(embed(&Setup { rows_per_step: 7, threads: 1, ..setup() }, 0), whole);
    let tight = Setup { cache: CachePages::full(8), rows_per_step: 20, ..setup() };
    assert_eq!(embed(&tight, 6), whole);
}

#[test]
fn the_next_turn_reuses_the_last_one() {
    let service = setup().start();
    let run = |tokens: Vec<u32>| {
        let (job, updates) = job(&request(tokens, 0.8, 50), Leave::Never);
        service.handle().submit(job).unwrap();
        hear(&updates)
    };
    let first = run(prompt(100));
    assert_eq!(first.started, Some(0));
    let second = [prompt(100), first.numbers(), prompt(30)].concat();
    let reused = (100 + first.tokens.len() - 1) / 64 * 64;
    let again = run(second.clone());
    assert_eq!((again.started, again.outcome.as_ref().unwrap().reused_tokens), (Some(reused), reused));
    assert_eq!(vec![again.numbers()], setup().alone(&[request(second, 0.8, 50)]));
}

#[test]
fn a_job_that_cannot_be_done_is_refused_and_harms_nobody() {
    let service = setup().start();
    let good = request(prompt(40), 0.8, 30);
    let (running, updates) = job(&good, Leave::Never);
    service.handle().submit(running).unwrap();
    let refused = |request: Request| {
        let error = service.handle().submit(job(&request, Leave::Never).0).expect_err("it cannot be done");
        error.to_string()
    };
    assert!(refused(Request { prompt: Vec::new(), ..good.clone() }).contains("at least one token"));
    assert!(refused(Request { prompt: vec![288], ..good.clone() }).contains("vocabulary of 288"));
    assert!(refused(Request { prompt: prompt(513), ..good.clone() }).contains("do not fit into 512"));
    assert!(refused(Request { stop: vec![String::new()], ..good.clone() }).contains("empty"));
    let sampling = Sampling { top_p: 0.0, ..Sampling::default() };
    assert!(refused(Request { sampling, ..good.clone() }).contains("top_p"));
    // Logits that cannot be ranked end one job, in the middle of a step with others.
    let sampling = Sampling { logit_bias: vec![(1, f32::MAX), (1, f32::MAX)], ..Sampling::default() };
    let (broken, broken_updates) = job(&Request { sampling, ..good.clone() }, Leave::Never);
    service.handle().submit(broken).unwrap();
    assert!(matches!(hear(&broken_updates).error, Some(EngineError::BrokenLogits { .. })));
    assert_eq!(vec![hear(&updates).numbers()], setup().alone(&[good]));
    let handle = service.handle();
    service.drain();
    assert_eq!(handle.snapshot().failed, 1);
}

#[test]
fn a_full_context_ends_the_answer() {
    let setup = Setup::new(fixture("llama3"), 128, CachePages::full(2));
    let requests = [request(prompt(128), 0.0, 50), request(prompt(100), 0.0, 500)];
    let alone = setup.alone(&requests);
    let service = setup.start();
    for (request, alone) in requests.iter().zip(alone) {
        let (job, updates) = job(&Request { stop_tokens: Vec::new(), ..request.clone() }, Leave::Never);
        service.handle().submit(job).unwrap();
        let heard = hear(&updates);
        assert!(heard.numbers().starts_with(&alone));
        assert_eq!(heard.outcome.unwrap().finish, FinishReason::Length);
        assert_eq!(heard.tokens.len(), 129 - request.prompt.len());
    }
}

/// A prompt of five pages that is continued until its reader leaves.
fn long_job() -> (Job, Receiver<Update>) {
    job(&Request { stop_tokens: Vec::new(), ..request(prompt(300), 0.0, 200) }, Leave::Never)
}

/// Runs a job of one page, and calls `at_token` with the pages that were held before each of its tokens.
/// It begins in one step with what was submitted while `held` held the service.
fn observe(service: &Service, held: Held, at_token: impl FnMut(u64) + Send + 'static) {
    let (own, updates) = job(&Request { stop_tokens: Vec::new(), ..request(prompt(20), 0.0, 30) }, Leave::Never);
    let (mut sink, mut at_token, handle) = (own.sink, at_token, service.handle());
    let observing = move |update: Update| {
        if matches!(update, Update::Token(_)) {
            at_token(handle.snapshot().pages_held);
        }
        sink(update)
    };
    service.handle().submit(Job { sink: Box::new(observing), ..own }).unwrap();
    drop(held.release);
    hear(&updates);
}

/// Holds a service with a job that ends in its first step.
fn hold_service(service: &Service) -> Held {
    hold(&service.handle(), &request(prompt(1), 0.0, 1), Leave::Never)
}

#[test]
fn a_reader_that_is_gone_holds_no_page_after_the_next_step() {
    let service = setup().start();
    let hold = hold_service(&service);
    let (long, updates) = long_job();
    let (handle, id) = (service.handle(), service.handle().submit(long).unwrap());
    let held = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&held);
    observe(&service, hold, move |pages| {
        let mut seen = seen.lock().unwrap();
        seen.push(pages);
        if seen.len() == 10 {
            handle.cancel(id);
        }
    });
    // The tenth token came in the step before, the eleventh in the step before which it is cancelled.
    let held = held.lock().unwrap().clone();
    assert!(held[9] > 5 && held[10] > 5, "{held:?}");
    assert_eq!(held[11..], vec![1; held.len() - 11], "{held:?}");
    drop(updates);
}

#[test]
fn a_reader_that_stops_holds_no_page_after_that_step() {
    let service = setup().start();
    let hold = hold_service(&service);
    let (long, updates) = long_job();
    let (held, left) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Mutex::new(None)));
    let (mut sink, mut tokens, seen, leaves) = (long.sink, 0, Arc::clone(&held), Arc::clone(&left));
    let stopping = move |update: Update| {
        tokens += usize::from(matches!(update, Update::Token(_)));
        if tokens == 8 {
            leaves.lock().unwrap().get_or_insert(seen.lock().unwrap().len());
            return Flow::Stop;
        }
        sink(update)
    };
    service.handle().submit(Job { sink: Box::new(stopping), ..long }).unwrap();
    let seen = Arc::clone(&held);
    observe(&service, hold, move |pages| seen.lock().unwrap().push(pages));
    let (held, left) = (held.lock().unwrap().clone(), left.lock().unwrap().expect("it left"));
    assert!(left > 0 && left + 2 < held.len() && held[left - 1] > 5, "left after {left} of {held:?}");
    // The next token may be one of the same step.
    assert_eq!(held[left + 1..], vec![1; held.len() - left - 1], "left after {left} of {held:?}");
    drop(updates);
}
