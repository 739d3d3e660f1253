//! What clients of other servers send: honoured where it has a meaning here, refused by name where it has none.

use cascadia_engine::ModelText;
use cascadia_server::{ServedModel, ServerOptions};
use serde_json::{Value, json};

use crate::harness::{CONTEXT, MODEL, Running, model, model_with_template};

/// A template with everything: functions, reasoning that can be switched, and calls as JSON between tags.
const TEMPLATE: &str = r#"{%- if tools %}<tools>{% for tool in tools %}{{ tool | tojson }}{% endfor %}</tools>
For each call return a json object within <tool_call></tool_call> tags.
{% endif %}{%- for message in messages %}{{ message.role }}: {{ message.content }}
{% for call in message.tool_calls or [] %}<tool_call>{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}</tool_call>
{% endfor %}{%- endfor %}{% if add_generation_prompt %}assistant: {% if enable_thinking is defined and enable_thinking == false %}quiet {% endif %}{% if reasoning_effort %}{{ reasoning_effort }} {% endif %}{% endif %}"#;

fn hello() -> Value {
    json!([{"role": "user", "content": "Hello"}])
}

fn function(name: &str) -> Value {
    json!({"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": {}, "additionalProperties": false}}})
}

/// A body with more fields.
fn with(mut body: Value, more: Value) -> Value {
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

fn prompt(server: &Running, body: &Value) -> String {
    let reply = server.post("/apply-template", body);
    assert_eq!(reply.status, 200, "{}", reply.text());
    reply.json()["prompt"].as_str().unwrap().to_owned()
}

#[test]
fn fields_without_a_meaning_here_are_refused_by_name() {
    let server = Running::shared();
    let chat = json!({"messages": hello(), "max_tokens": 1});
    let text = json!({"prompt": "a", "max_tokens": 1});
    let responses = json!({"input": "a", "max_output_tokens": 1});
    let messages = json!({"messages": hello(), "max_tokens": 1});
    let cases = [
        ("/v1/chat/completions", &chat, json!({"use_beam_search": true}), "use_beam_search"),
        ("/v1/chat/completions", &chat, json!({"prompt_logprobs": 1}), "prompt_logprobs"),
        ("/v1/chat/completions", &chat, json!({"modalities": ["audio"]}), "modalities"),
        ("/v1/chat/completions", &chat, json!({"tools": [function("f")]}), "tools"),
        ("/v1/chat/completions", &chat, json!({"functions": [{"name": "f"}]}), "tools"),
        ("/v1/chat/completions", &chat, json!({"reasoning_effort": "huge"}), "reasoning_effort"),
        ("/v1/chat/completions", &chat, json!({"continue_final_message": true}), "continue_final_message"),
        ("/v1/chat/completions", &chat, json!({"grammar": "root ::= \"a\""}), "grammar"),
        ("/v1/chat/completions", &chat, json!({"regex": "a", "guided_json": {}}), "guided_json"),
        ("/v1/chat/completions", &chat, json!({"ignore_eos": true, "regex": "a"}), "ignore_eos"),
        ("/v1/chat/completions", &chat, json!({"stop_token_ids": [999_999_999]}), "stop_token_ids"),
        ("/v1/chat/completions", &chat, json!({"structured_outputs": {"structural_tag": "x"}}), "structured_outputs"),
        ("/v1/completions", &text, json!({"suffix": "x"}), "suffix"),
        ("/v1/completions", &text, json!({"suffix": "x", "echo": true}), "suffix"),
        ("/v1/completions", &text, json!({"mirostat": 2}), "mirostat"),
        ("/v1/responses", &responses, json!({"truncation": "auto"}), "truncation"),
        ("/v1/responses", &responses, json!({"conversation": "c"}), "conversation"),
        ("/v1/responses", &responses, json!({"include": ["never"]}), "include"),
        ("/v1/responses", &responses, json!({"top_logprobs": 2}), "top_logprobs"),
        ("/v1/responses", &responses, json!({"previous_response_id": "resp_0"}), "previous_response_id"),
    ];
    for (path, body, more, param) in cases {
        let reply = server.post(path, &with(body.clone(), more.clone()));
        assert_eq!(
            (reply.status, &reply.json()["error"]["param"]),
            (400, &json!(param)),
            "{path} {more}: {}",
            reply.text()
        );
    }
    // Other protocols have no place for the name of the field but the message.
    let ollama = json!({"messages": hello(), "stream": false, "options": {"num_predict": 1}});
    let images = json!({"messages": [{"role": "user", "content": "x", "images": ["aGk="]}]});
    let anthropic = [
        ("/v1/messages", &messages, json!({"mcp_servers": [{"type": "url"}]}), "mcp_servers"),
        ("/v1/messages", &messages, json!({"thinking": {"type": "enabled", "budget_tokens": 1024}}), "reason"),
        ("/v1/messages", &messages, json!({"output_config": {"format": {"type": "poem"}}}), "output_config.format"),
        ("/v1/messages", &messages, json!({"tools": [{"name": "f", "input_schema": {}}]}), "tools"),
        ("/api/chat", &ollama, json!({"think": true}), "think"),
        ("/api/chat", &ollama, images, "images"),
        ("/api/chat", &ollama, json!({"top_logprobs": 2}), "top_logprobs"),
        ("/api/chat", &ollama, json!({"tools": [function("f")]}), "tools"),
        ("/api/chat", &ollama, json!({"options": {"mirostat": 1}}), "mirostat"),
        ("/api/generate", &json!({"prompt": "x"}), json!({"images": ["aGk="]}), "images"),
        ("/api/generate", &json!({"prompt": "x"}), json!({"context": [1, 2]}), "context"),
        ("/api/generate", &json!({"prompt": "x"}), json!({"suffix": "y"}), "fill in the middle"),
        ("/infill", &json!({"input_prefix": "a", "input_suffix": "b"}), json!({}), "fill in the middle"),
    ];
    for (path, body, more, named) in anthropic {
        let reply = server.post(path, &with(body.clone(), more.clone()));
        assert!(reply.status == 400 && reply.text().contains(named), "{path} {more}: {}", reply.text());
    }
}

#[test]
fn fields_that_ask_for_nothing_are_accepted() {
    let server = Running::shared();
    let cases = [
        (
            "/v1/chat/completions",
            json!({"messages": hello(), "max_tokens": 1, "use_beam_search": false, "mirostat": 0,
            "bad_words": [], "regex": "", "ignore_eos": false, "reasoning_effort": "none", "min_tokens": null}),
        ),
        ("/v1/chat/completions", json!({"messages": hello(), "max_tokens": 1, "tools": [{"type": "web_search"}]})),
        (
            "/v1/responses",
            json!({"input": "a", "max_output_tokens": 1, "tools": [{"type": "web_search"},
            {"type": "namespace", "name": "x", "tools": []}, {"type": "custom", "name": "apply_patch"}],
            "include": ["reasoning.encrypted_content"], "truncation": "disabled", "parallel_tool_calls": false}),
        ),
        (
            "/v1/messages",
            json!({"messages": hello(), "max_tokens": 1, "thinking": {"type": "disabled"},
            "tools": [{"type": "web_search_20250305", "name": "web_search"}]}),
        ),
        (
            "/api/chat",
            json!({"messages": hello(), "stream": false, "think": false, "options": {"num_predict": 1, "mirostat": 0}}),
        ),
    ];
    for (path, body) in cases {
        let reply = server.post(path, &body);
        assert_eq!(reply.status, 200, "{path} {body}: {}", reply.text());
    }
}

#[test]
fn formats_of_other_servers_are_kept() {
    let server = Running::shared();
    let schema = json!({"type": "object", "properties": {"a": {"enum": [1, 2]}}, "required": ["a"], "additionalProperties": false});
    let cases = [
        (json!({"structured_outputs": {"choice": ["red", "green"]}}), "choice"),
        (json!({"guided_choice": ["red", "green"]}), "choice"),
        (json!({"guided_regex": "red|green"}), "choice"),
        (json!({"regex": "red|green"}), "choice"),
        (json!({"grammar": "start: \"red\" | \"green\""}), "choice"),
        (json!({"guided_json": schema}), "json"),
        (json!({"json_schema": schema}), "json"),
        (json!({"structured_outputs": {"json": schema.to_string()}}), "json"),
        (json!({"response_format": {"type": "json_object", "schema": schema}}), "json"),
    ];
    for (format, kind) in cases {
        let chat = with(json!({"messages": hello(), "max_tokens": 40, "seed": 1}), format.clone());
        let said = server.post("/v1/chat/completions", &chat).json();
        let mut said = vec![said["choices"][0]["message"]["content"].clone()];
        if format.get("response_format").is_none() {
            let text = with(json!({"prompt": "Say", "max_tokens": 40, "seed": 1}), format.clone());
            said.push(server.post("/v1/completions", &text).json()["choices"][0]["text"].clone());
        }
        for said in said.iter().map(|said| said.as_str().unwrap_or_default()) {
            let fits = match kind {
                "choice" => ["red", "green"].contains(&said),
                _ => said.parse::<Value>().is_ok_and(|value| value == json!({"a": 1}) || value == json!({"a": 2})),
            };
            assert!(fits, "{format}: {said}");
        }
    }
    let body = json!({"messages": hello(), "max_tokens": 40, "output_config": {"format": {"type": "json_schema", "schema": schema}}});
    let said = server.post("/v1/messages", &body).json();
    assert!(said["content"][0]["text"].as_str().unwrap().parse::<Value>().unwrap()["a"].is_number(), "{said}");
}

#[test]
fn answers_end_where_they_are_asked_to() {
    let server = Running::shared();
    // What comes first, taken as the token that ends the answer.
    let first = json!({"prompt": "Once upon a", "max_tokens": 6, "temperature": 0, "logprobs": 0});
    let text = server.post("/v1/completions", &first).json()["choices"][0]["text"].as_str().unwrap().to_owned();
    let tokens = server.post("/tokenize", &json!({"prompt": format!("Once upon a{text}")})).json();
    let tokens: Vec<u64> = tokens["tokens"].as_array().unwrap().iter().filter_map(Value::as_u64).collect();
    let third = tokens[tokens.len() - 4];
    let ask = |more: Value| {
        let body = with(json!({"prompt": "Once upon a", "max_tokens": 6, "temperature": 0, "logprobs": 0}), more);
        let reply = server.post("/v1/completions", &body).json();
        (reply["usage"]["completion_tokens"].as_u64().unwrap(), reply["choices"][0].clone())
    };
    let (count, choice) = ask(json!({"stop_token_ids": [third]}));
    assert!(count < 6 && choice["finish_reason"] == "stop", "{choice}");
    // The token that ended it is the last of those with log-probabilities.
    assert_eq!(choice["logprobs"]["tokens"].as_array().unwrap().len() as u64, count + 1, "{choice}");
    let (count, choice) = ask(json!({"stop_token_ids": [third], "min_tokens": 5}));
    assert!(count >= 5, "{choice}");
    // Nothing but the end is likely, and it is not to end.
    let bias: serde_json::Map<String, Value> =
        server.end_tokens.iter().map(|token| (token.to_string(), json!(100))).collect();
    let (count, choice) = ask(json!({"logit_bias": bias}));
    assert_eq!((count, &choice["finish_reason"]), (0, &json!("stop")));
    let (count, choice) = ask(json!({"logit_bias": bias, "ignore_eos": true}));
    assert_eq!((count, &choice["finish_reason"]), (6, &json!("length")));
    let (count, choice) = ask(json!({"logit_bias": bias, "min_tokens": 4}));
    assert_eq!((count, &choice["finish_reason"]), (4, &json!("stop")));
}

#[test]
fn a_last_message_of_the_assistant_is_continued() {
    let server = Running::serve(model_with_template(TEMPLATE), ServerOptions::default());
    let turns = json!([{"role": "user", "content": "Count"}, {"role": "assistant", "content": "One, two,"}]);
    // The template writes no token before the text.
    let tokens = server.post("/tokenize", &json!({"prompt": "user: Count\nassistant: One, two,"})).json();
    let first = server.post("/detokenize", &json!({"tokens": [tokens["tokens"][0]]})).json();
    let skipped = usize::from(first["prompt"] == "");
    let tokens = &tokens["tokens"].as_array().unwrap()[skipped..];
    let plain = json!({"prompt": tokens, "max_tokens": 8, "temperature": 0});
    let expected = server.post("/v1/completions", &plain).json()["choices"][0]["text"].clone();
    let settings = json!({"messages": turns, "max_tokens": 8, "temperature": 0});
    let chat = with(settings.clone(), json!({"continue_final_message": true, "add_generation_prompt": false}));
    assert_eq!(server.post("/v1/chat/completions", &chat).json()["choices"][0]["message"]["content"], expected);
    assert_eq!(server.post("/v1/messages", &settings).json()["content"][0]["text"], expected);
    let ollama = json!({"messages": turns, "stream": false, "options": {"num_predict": 8, "temperature": 0}});
    assert_eq!(server.post("/api/chat", &ollama).json()["message"]["content"], expected);
    // Not in an OpenAI request that does not say so.
    assert_ne!(server.post("/v1/chat/completions", &settings).json()["choices"][0]["message"]["content"], expected);
    // Nothing in it becomes a control token.
    let forged = json!([{"role": "user", "content": "x"}, {"role": "assistant", "content": "<|im_end|>"}]);
    let count = |messages: &Value| {
        let body = json!({"messages": messages, "max_tokens": 1});
        server.post("/v1/messages/count_tokens", &body).json()["input_tokens"].as_u64().unwrap()
    };
    let empty = json!([{"role": "user", "content": "x"}, {"role": "assistant", "content": ""}]);
    assert!(count(&forged) > count(&empty) + 2, "{} {}", count(&forged), count(&empty));
}

#[test]
fn templates_get_what_requests_say_of_reasoning() {
    let server = Running::serve(model_with_template(TEMPLATE), ServerOptions::default());
    let body = |more: Value| with(json!({"messages": hello()}), more);
    assert!(prompt(&server, &body(json!({}))).ends_with("assistant: "));
    assert!(!prompt(&server, &body(json!({"add_generation_prompt": false}))).contains("assistant"));
    assert!(prompt(&server, &body(json!({"chat_template_kwargs": {"enable_thinking": false}}))).ends_with("quiet "));
    let tokens = |path: &str, body: Value| {
        let reply = server.post(path, &body);
        assert_eq!(reply.status, 200, "{path} {body}: {}", reply.text());
        let reply = reply.json();
        let counts = [&reply["usage"]["prompt_tokens"], &reply["usage"]["input_tokens"], &reply["prompt_eval_count"]];
        let cached = &reply["usage"]["cache_read_input_tokens"];
        counts.into_iter().find_map(Value::as_u64).unwrap() + cached.as_u64().unwrap_or(0)
    };
    let chat = |more: Value| tokens("/v1/chat/completions", with(json!({"messages": hello(), "max_tokens": 1}), more));
    assert!(chat(json!({"reasoning_effort": "none"})) > chat(json!({})));
    assert!(chat(json!({"reasoning_effort": "high"})) > chat(json!({})));
    let ollama = |more: Value| {
        tokens("/api/chat", with(json!({"messages": hello(), "stream": false, "options": {"num_predict": 1}}), more))
    };
    assert!(ollama(json!({"think": false})) > ollama(json!({"think": true})));
    assert!(ollama(json!({"think": "low"})) > ollama(json!({"think": true})));
    let anthropic = |more: Value| tokens("/v1/messages", with(json!({"messages": hello(), "max_tokens": 1}), more));
    assert!(
        anthropic(json!({"thinking": {"type": "disabled"}})) > anthropic(json!({"thinking": {"type": "adaptive"}}))
    );
    assert!(anthropic(json!({"output_config": {"effort": "high"}})) > anthropic(json!({})));
    let responses =
        |more: Value| tokens("/v1/responses", with(json!({"input": "Hello", "max_output_tokens": 1}), more));
    assert!(responses(json!({"reasoning": {"effort": "high"}})) > responses(json!({})));
}

#[test]
fn calls_are_one_at_a_time_where_clients_ask_for_that() {
    let server = Running::serve(model_with_template(TEMPLATE), ServerOptions::default());
    let tools = json!([function("f"), function("g")]);
    let chat =
        json!({"messages": hello(), "tools": tools, "tool_choice": "required", "max_tokens": 400, "temperature": 1});
    let calls = |body: &Value| {
        let reply = server.post("/v1/chat/completions", body);
        assert_eq!(reply.status, 200, "{}", reply.text());
        let choice = reply.json()["choices"][0].clone();
        assert_eq!(choice["finish_reason"], "tool_calls", "{choice}");
        choice["message"]["tool_calls"].as_array().unwrap().len()
    };
    // A seed with which there are several.
    let many = (0..40).map(|seed| with(chat.clone(), json!({"seed": seed}))).find(|body| calls(body) > 1);
    let many = many.expect("some answer has several calls");
    let one = with(many.clone(), json!({"parallel_tool_calls": false}));
    assert_eq!(calls(&one), 1);
    let events = server.post("/v1/chat/completions", &with(one, json!({"stream": true}))).events();
    let events: Vec<Value> = events.iter().filter_map(|event| event.parse().ok()).collect();
    let names =
        events.iter().filter(|event| event["choices"][0]["delta"]["tool_calls"][0]["function"]["name"].is_string());
    assert_eq!(names.count(), 1);
    assert_eq!(events.last().unwrap()["choices"][0]["finish_reason"], "tool_calls");
    // Older clients have one call by another name.
    let mut legacy = with(many, json!({"functions": [function("f")["function"], function("g")["function"]]}));
    legacy.as_object_mut().unwrap().remove("tools");
    legacy.as_object_mut().unwrap().remove("tool_choice");
    legacy["function_call"] = json!({"name": "g"});
    let choice = server.post("/v1/chat/completions", &legacy).json()["choices"][0].clone();
    assert_eq!(
        (&choice["finish_reason"], &choice["message"]["function_call"]["name"]),
        (&json!("function_call"), &json!("g"))
    );
    let turns =
        json!([{"role": "user", "content": "x"}, choice["message"], {"role": "function", "name": "g", "content": "7"}]);
    let next = with(legacy, json!({"messages": turns, "function_call": "none", "max_tokens": 2}));
    assert_eq!(server.post("/v1/chat/completions", &next).status, 200);
}

#[test]
fn a_call_that_was_cut_off_can_be_sent_again() {
    let server = Running::serve(model_with_template(TEMPLATE), ServerOptions::default());
    let long = json!({"type": "function", "function": {"name": "f", "parameters": {"type": "object",
        "properties": {"text": {"type": "string", "minLength": 400}}, "required": ["text"]}}});
    let body = json!({"messages": hello(), "tools": [long], "tool_choice": "required", "temperature": 0});
    for max_tokens in 1..24 {
        let reply = server.post("/v1/chat/completions", &with(body.clone(), json!({"max_tokens": max_tokens}))).json();
        let (message, reason) = (&reply["choices"][0]["message"], &reply["choices"][0]["finish_reason"]);
        assert_eq!(reason, "length", "{reply}");
        let content = message["content"].as_str().unwrap_or_default();
        assert!(!content.contains("tool_call") && !content.contains('{'), "{max_tokens}: {content}");
        let turns = json!([{"role": "user", "content": "x"}, message, {"role": "user", "content": "Go on"}]);
        let again = json!({"messages": turns, "tools": [function("f")], "max_tokens": 1});
        let reply = server.post("/v1/chat/completions", &again);
        assert_eq!(reply.status, 200, "{message}: {}", reply.text());
    }
}

#[test]
fn responses_are_kept_for_their_tenant() {
    let server = Running::shared();
    let ask = |body: Value| {
        let reply = server.post("/v1/responses", &body);
        assert_eq!(reply.status, 200, "{}", reply.text());
        reply.json()
    };
    let settings = json!({"max_output_tokens": 6, "temperature": 0});
    let first = ask(with(settings.clone(), json!({"input": "Hello", "instructions": "Be brief."})));
    let id = first["id"].as_str().unwrap();
    assert_eq!(server.get(&format!("/v1/responses/{id}")).json(), first);
    let next = with(settings.clone(), json!({"input": "And?", "previous_response_id": id}));
    let second = ask(next.clone());
    assert_eq!(second["previous_response_id"], id);
    let text = &first["output"][0]["content"][0]["text"];
    let whole = json!([{"role": "user", "content": "Hello"}, {"role": "assistant", "content": text}, {"role": "user", "content": "And?"}]);
    let by_hand = ask(with(settings.clone(), json!({"input": whole, "store": false})));
    assert_eq!(second["output"][0]["content"], by_hand["output"][0]["content"]);
    assert_eq!(second["usage"]["input_tokens"], by_hand["usage"]["input_tokens"]);
    assert_eq!(
        (&by_hand["store"], server.get(&format!("/v1/responses/{}", by_hand["id"].as_str().unwrap())).status),
        (&json!(false), 404)
    );
    // A stream is kept too, and continues what was kept.
    let stream = with(next.clone(), json!({"stream": true}));
    let events: Vec<Value> =
        server.post("/v1/responses", &stream).events().iter().map(|event| event.parse().unwrap()).collect();
    let last = &events.last().unwrap()["response"];
    assert_eq!(server.get(&format!("/v1/responses/{}", last["id"].as_str().unwrap())).json(), *last);
    assert_eq!(last["output"][0]["content"], second["output"][0]["content"]);
    let removed = server.request(&format!("DELETE /v1/responses/{id}"), &[], b"");
    assert_eq!((removed.status, &removed.json()["deleted"]), (200, &json!(true)));
    assert_eq!(server.get(&format!("/v1/responses/{id}")).status, 404);
    assert_eq!(server.post("/v1/responses", &next).status, 400);
}

#[test]
fn responses_include_log_probabilities() {
    let server = Running::shared();
    let body = json!({"input": "Hello", "max_output_tokens": 5, "temperature": 0, "top_logprobs": 2,
        "include": ["message.output_text.logprobs"]});
    let whole = server.post("/v1/responses", &body).json();
    let logprobs = whole["output"][0]["content"][0]["logprobs"].as_array().unwrap().clone();
    assert_eq!((logprobs.len(), logprobs[0]["top_logprobs"].as_array().unwrap().len()), (5, 2), "{whole}");
    let events = server.post("/v1/responses", &with(body, json!({"stream": true}))).events();
    let events: Vec<Value> = events.iter().map(|event| event.parse().unwrap()).collect();
    let done = events.iter().find(|event| event["type"] == "response.output_text.done").unwrap();
    assert_eq!(done["logprobs"], json!(logprobs));
}

#[test]
fn ollama_requests_without_text_generate_nothing() {
    let server = Running::shared();
    let before = server.get("/status").json()["service"]["tokens_generated_total"].clone();
    let cases = [
        ("/api/generate", json!({"model": MODEL}), "load"),
        ("/api/generate", json!({"model": MODEL, "prompt": "", "keep_alive": 0}), "unload"),
        ("/api/generate", json!({"model": MODEL, "keep_alive": "5m"}), "load"),
        ("/api/chat", json!({"model": MODEL, "messages": []}), "load"),
        ("/api/chat", json!({"model": MODEL, "messages": [], "keep_alive": "0s"}), "unload"),
        ("/api/chat", json!({"model": MODEL, "keep_alive": -1}), "load"),
    ];
    for (path, body, reason) in cases {
        let reply = server.post(path, &body);
        let object = reply.json();
        assert_eq!(
            (reply.status, &object["done"], &object["done_reason"]),
            (200, &json!(true), &json!(reason)),
            "{body}"
        );
    }
    assert_eq!(server.post("/api/generate", &json!({"model": "other"})).status, 404);
    let _ = before;
}

#[test]
fn ollama_clients_see_what_they_look_for() {
    let server = Running::shared();
    let version = server.get("/api/version").json()["version"].as_str().unwrap().to_owned();
    let parts: Vec<u32> = version.split('.').map(|part| part.parse().unwrap()).collect();
    assert!(parts >= vec![0, 6, 4], "editors ask for at least 0.6.4: {version}");
    let running = server.get("/api/ps").json()["models"][0].clone();
    assert_eq!((&running["model"], &running["context_length"]), (&json!(format!("{MODEL}:latest")), &json!(CONTEXT)));
    let shown = server.post("/api/show", &json!({"model": MODEL})).json();
    let family = shown["model_info"]["general.architecture"].as_str().unwrap();
    assert_eq!(shown["model_info"][format!("{family}.context_length")], CONTEXT);
    assert!(shown["capabilities"].as_array().unwrap().contains(&json!("completion")));
    let body = json!({"messages": hello(), "stream": false, "logprobs": true, "top_logprobs": 2,
        "options": {"num_predict": 6, "temperature": 0}});
    let answer = server.post("/api/chat", &body).json();
    assert_eq!(answer["logprobs"].as_array().unwrap().len(), 6, "{answer}");
    assert_eq!(answer["logprobs"][0]["top_logprobs"].as_array().unwrap().len(), 2);
    let lines = server.post("/api/chat", &with(body.clone(), json!({"stream": true}))).text();
    let lines: Vec<Value> = lines.lines().map(|line| line.parse().unwrap()).collect();
    let streamed: Vec<Value> = lines.iter().filter_map(|line| line["logprobs"].as_array().cloned()).flatten().collect();
    assert_eq!(json!(streamed), answer["logprobs"]);
    let durations = |object: &Value| {
        ["total", "load", "prompt_eval", "eval"].map(|name| object[format!("{name}_duration")].as_u64().unwrap())
    };
    for object in [&answer, lines.last().unwrap()] {
        let [total, load, prompt, eval] = durations(object);
        assert!(eval > 0 && prompt > 0 && load + prompt + eval <= total && eval < total, "{object}");
    }
}

#[test]
fn models_have_other_names() {
    let aliases = vec!["gpt-4o".to_owned(), "llama3:8b".to_owned()];
    let server = Running::start(ServerOptions { aliases, ..ServerOptions::default() });
    for name in ["gpt-4o", "gpt-4o:latest", "llama3:8b", MODEL, "default"] {
        let reply = server.post("/v1/chat/completions", &json!({"model": name, "messages": hello(), "max_tokens": 1}));
        assert_eq!((reply.status, &reply.json()["model"]), (200, &json!(MODEL)), "{name}");
    }
    assert_eq!(server.post("/api/show", &json!({"model": "llama3:8b"})).status, 200);
    assert_eq!(server.get("/v1/models/gpt-4o").status, 200);
    assert_eq!(server.get("/v1/models/gpt-4").status, 404);
}

#[test]
fn a_model_says_how_its_tokens_are_chosen() {
    let folder = tempfile::tempdir().unwrap();
    let fixture = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/llama3");
    for file in std::fs::read_dir(fixture).unwrap() {
        let file = file.unwrap();
        std::fs::copy(file.path(), folder.path().join(file.file_name())).unwrap();
    }
    let suggested = json!({"temperature": 0.25, "top_k": 1, "top_p": 0.5, "do_sample": true});
    std::fs::write(folder.path().join("generation_config.json"), suggested.to_string()).unwrap();
    let files = cascadia_engine::Source::Path(folder.path()).files().unwrap();
    let text = ModelText::read(&files).unwrap();
    let model = ServedModel { text: std::sync::Arc::new(text), ..model(CONTEXT) };
    let server = Running::serve(model, ServerOptions::default());
    let shown = server.get("/v1/models").json()["data"][0]["default_sampling"].clone();
    assert_eq!(shown, json!({"temperature": 0.25, "top_k": 1.0, "top_p": 0.5}));
    assert_eq!(server.get("/props").json()["default_generation_settings"]["params"]["top_k"], 1);
    assert!(server.post("/api/show", &json!({})).json()["parameters"].as_str().unwrap().contains("top_p"));
    // The most likely token always, whatever the seed; unless a request says otherwise.
    let ask = |more: Value| {
        let body = with(json!({"prompt": [3, 4, 5, 6], "max_tokens": 12, "ignore_eos": true, "logprobs": 1}), more);
        let choice = server.post("/v1/completions", &body).json()["choices"][0].clone();
        choice["logprobs"]["token_logprobs"].clone()
    };
    let greedy = ask(json!({"temperature": 0}));
    assert_eq!((ask(json!({"seed": 1})), ask(json!({"seed": 2}))), (greedy.clone(), greedy.clone()));
    assert_ne!(ask(json!({"seed": 1, "top_k": 0, "top_p": 1, "temperature": 2})), greedy);
    let response = json!({"input": "x", "max_output_tokens": 1});
    let _ = response;
}

#[test]
fn the_state_is_shown_as_other_servers_show_it() {
    let server = Running::shared();
    let props = server.get("/props").json();
    assert_eq!(props["default_generation_settings"]["n_ctx"], CONTEXT);
    let slots = server.get("/slots").json();
    assert_eq!(props["total_slots"], slots.as_array().unwrap().len());
    assert!(server.get("/version").json()["version"].is_string());
    let long = json!({"messages": [{"role": "user", "content": "word ".repeat(200_000)}]});
    let reply = server.post("/v1/chat/completions", &long);
    assert_eq!(
        (reply.status, &reply.json()["error"]["code"]),
        (400, &json!("context_length_exceeded")),
        "{}",
        reply.text()
    );
}
