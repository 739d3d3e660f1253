//! Prompts whose tokens are scored, repeated, and sent many at a time.

use serde_json::{Value, json};

use crate::harness::Running;

const PROMPT: &str = "The harbour was quiet at night";

fn choices(server: &Running, body: &Value) -> Vec<Value> {
    let reply = server.post("/v1/completions", body);
    assert_eq!(reply.status, 200, "{body}: {}", reply.text());
    reply.json()["choices"].as_array().unwrap().clone()
}

fn numbers(list: &Value) -> Vec<Option<f64>> {
    list.as_array().unwrap_or_else(|| panic!("{list}")).iter().map(Value::as_f64).collect()
}

#[test]
fn a_prompt_is_repeated_with_its_log_probabilities() {
    let server = Running::shared();
    let tokens = server.post("/tokenize", &json!({"prompt": PROMPT})).json()["tokens"].clone();
    let body = json!({"prompt": PROMPT, "echo": true, "logprobs": 1, "max_tokens": 6, "temperature": 0, "seed": 1});
    let whole = choices(server, &body).remove(0);
    let chosen = numbers(&whole["logprobs"]["token_logprobs"]);
    assert_eq!(chosen.len(), tokens.as_array().unwrap().len() + 6, "{whole}");
    assert!(chosen[0].is_none() && chosen[1..].iter().all(|number| number.is_some_and(|number| number <= 0.0)));
    assert!(whole["text"].as_str().unwrap().starts_with(PROMPT), "{whole}");
    let last = whole["logprobs"]["top_logprobs"].as_array().unwrap().last().unwrap();
    assert_eq!(last.as_object().unwrap().len(), 1, "the most likely token was taken");
    // What a model generates is as likely when it is read: the same bits.
    let alone = json!({"prompt": PROMPT, "logprobs": 1, "max_tokens": 6, "temperature": 0});
    let generated = numbers(&choices(server, &alone)[0]["logprobs"]["token_logprobs"]);
    assert_eq!(generated, chosen[chosen.len() - 6..]);
    let text = server.post("/tokenize", &json!({"prompt": whole["text"]})).json();
    let read = json!({"prompt": text["tokens"], "echo": true, "logprobs": 1, "max_tokens": 0});
    let read = choices(server, &read).remove(0);
    assert_eq!((&read["finish_reason"], &read["logprobs"]["tokens"]), (&json!("length"), &whole["logprobs"]["tokens"]));
    assert_eq!(numbers(&read["logprobs"]["token_logprobs"]), chosen);
}

#[test]
fn a_stream_repeats_the_prompt_too() {
    let server = Running::shared();
    let body = json!({"prompt": [PROMPT, "One"], "echo": true, "max_tokens": 4, "temperature": 0, "n": 2});
    for logprobs in [Value::Null, json!(2)] {
        let mut body = body.clone();
        body["logprobs"] = logprobs;
        let whole = choices(server, &body);
        assert_eq!(whole.len(), 4);
        body["stream"] = true.into();
        let events = server.post("/v1/completions", &body).events();
        let events: Vec<Value> = events.iter().filter_map(|event| event.parse().ok()).collect();
        for (index, choice) in whole.iter().enumerate() {
            let of_choice =
                || events.iter().map(|event| &event["choices"][0]).filter(|choice| choice["index"] == index);
            let text: String = of_choice().filter_map(|choice| choice["text"].as_str()).collect();
            assert_eq!(choice["text"], text);
            let lists = of_choice().filter_map(|choice| choice["logprobs"]["token_logprobs"].as_array());
            let streamed: Vec<Value> = lists.flatten().cloned().collect();
            let expected = choice["logprobs"]["token_logprobs"].as_array().cloned().unwrap_or_default();
            assert_eq!(streamed, expected);
        }
    }
}

#[test]
fn many_prompts_take_turns() {
    // More than the queue of the service holds.
    let server = Running::shared();
    let prompts: Vec<String> = (0..100).map(|number| format!("{number} ships")).collect();
    let found = choices(server, &json!({"prompt": prompts, "max_tokens": 1, "temperature": 0, "echo": true}));
    assert_eq!(found.len(), 100);
    for (prompt, choice) in prompts.iter().zip(&found) {
        assert!(choice["text"].as_str().unwrap().starts_with(prompt.as_str()), "{prompt}: {choice}");
    }
    let alone = choices(server, &json!({"prompt": prompts[99], "max_tokens": 1, "temperature": 0, "echo": true}));
    assert_eq!(alone[0]["text"], found[99]["text"]);
    let too_many = server.post("/v1/completions", &json!({"prompt": vec!["a"; 257], "max_tokens": 1}));
    let param = too_many.json()["error"]["param"].as_str().unwrap_or_default().to_owned();
    assert!(too_many.status == 400 && param.starts_with("prompt"), "{}", too_many.text());
    let too_many = server.post("/v1/completions", &json!({"prompt": vec!["a"; 200], "n": 2, "max_tokens": 1}));
    assert_eq!((too_many.status, &too_many.json()["error"]["param"]), (400, &json!("n")));
    // What is said of the prompts has a limit too.
    let long = json!({"prompt": vec!["word ".repeat(500); 32], "echo": true, "logprobs": 20, "max_tokens": 0});
    let reply = server.post("/v1/completions", &long);
    assert_eq!((reply.status, &reply.json()["error"]["param"]), (400, &json!("logprobs")));
}

#[test]
fn the_best_of_several_answers_is_chosen() {
    let server = Running::shared();
    let body = json!({"prompt": PROMPT, "max_tokens": 8, "temperature": 1, "seed": 3, "logprobs": 0, "n": 6});
    let mean = |choice: &Value| {
        let all = numbers(&choice["logprobs"]["token_logprobs"]);
        all.iter().flatten().sum::<f64>() / all.len() as f64
    };
    let mut all = choices(server, &body);
    all.sort_by(|one, other| mean(other).total_cmp(&mean(one)));
    let chosen = json!({"prompt": PROMPT, "max_tokens": 8, "temperature": 1, "seed": 3, "n": 2, "best_of": 6});
    let reply = server.post("/v1/completions", &chosen).json();
    let texts = |choices: &[Value]| choices.iter().map(|choice| choice["text"].clone()).collect::<Vec<_>>();
    assert_eq!(texts(reply["choices"].as_array().unwrap()), texts(&all[..2]));
    assert!(reply["usage"]["completion_tokens"].as_u64().unwrap() > 16, "all candidates cost: {reply}");
    for wrong in [json!({"n": 3, "best_of": 2}), json!({"best_of": 2, "stream": true}), json!({"best_of": 9})] {
        let mut body = json!({"prompt": "a", "max_tokens": 1});
        body.as_object_mut().unwrap().extend(wrong.as_object().unwrap().clone());
        let error = server.post("/v1/completions", &body);
        assert_eq!((error.status, &error.json()["error"]["param"]), (400, &json!("best_of")), "{wrong}");
    }
}
