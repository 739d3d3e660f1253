//! Encoders behind HTTP: embeddings for clients of OpenAI and Ollama, ranks for those of Jina and Cohere.

use cascadia_server::ServerOptions;
use serde_json::{Value, json};

use crate::harness::{Running, encoder};

fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().expect("a list").iter().filter_map(Value::as_f64).collect()
}

fn length(vector: &[f64]) -> f64 {
    vector.iter().map(|number| number * number).sum::<f64>().sqrt()
}

#[test]
fn both_apis_give_the_same_embeddings() {
    let server = Running::serve(encoder("bert"), ServerOptions::default());
    let texts = ["The river came down.", "water", "Where is it?"];
    let openai = server.post("/v1/embeddings", &json!({"input": texts})).json();
    let ollama = server.post("/api/embed", &json!({"model": "default", "input": texts})).json();
    for (index, text) in texts.iter().enumerate() {
        let vector = numbers(&openai["data"][index]["embedding"]);
        let close = |other: &[f64]| vector.iter().zip(other).all(|(one, other)| (one - other).abs() < 1e-6);
        assert_eq!(vector.len(), 36);
        assert!(close(&numbers(&ollama["embeddings"][index])), "{text}");
        let older = server.post("/api/embeddings", &json!({"model": "default", "prompt": text})).json();
        assert!(close(&numbers(&older["embedding"])), "{text}");
    }
    assert_eq!(openai["usage"]["prompt_tokens"], ollama["prompt_eval_count"]);
    let short = server.post("/v1/embeddings", &json!({"input": "water", "dimensions": 8})).json();
    let short = numbers(&short["data"][0]["embedding"]);
    assert!(short.len() == 8 && (length(&short) - 1.0).abs() < 1e-6, "{short:?}");
    let named = server.post("/v1/embeddings", &json!({"input": "water", "prompt_name": "query"})).json();
    assert_ne!(named["data"][0]["embedding"], openai["data"][1]["embedding"]);
}

#[test]
fn embeddings_that_are_not_normalised_stay_so_for_openai_alone() {
    let server = Running::serve(encoder("xlm-r"), ServerOptions::default());
    let openai = server.post("/v1/embeddings", &json!({"input": "water"})).json();
    let ollama = server.post("/api/embed", &json!({"input": "water"})).json();
    assert!((length(&numbers(&openai["data"][0]["embedding"])) - 1.0).abs() > 0.1);
    assert!((length(&numbers(&ollama["embeddings"][0])) - 1.0).abs() < 1e-6);
}

#[test]
fn long_texts_are_refused_or_cut() {
    let server = Running::serve(encoder("bert"), ServerOptions::default());
    let long = "river ".repeat(100);
    let refused = server.post("/v1/embeddings", &json!({"input": long}));
    assert_eq!((refused.status, refused.json()["error"]["code"].clone()), (400, json!("context_length_exceeded")));
    assert_eq!(server.post("/v1/embeddings", &json!({"input": long, "truncate": true})).status, 200);
    assert_eq!(server.post("/api/embed", &json!({"input": long})).status, 200);
    assert_eq!(server.post("/api/embed", &json!({"input": long, "truncate": false})).status, 400);
}

#[test]
fn encoders_write_no_text_and_rank_only_if_trained_to() {
    let server = Running::serve(encoder("bert"), ServerOptions::default());
    for (path, body) in [
        ("/v1/completions", json!({"prompt": "a"})),
        ("/v1/embeddings", json!({"input": "a", "prompt_name": "poem"})),
        ("/v1/rerank", json!({"query": "a", "documents": ["b"]})),
    ] {
        let reply = server.post(path, &body);
        assert_eq!(reply.status, 400, "{path}: {}", reply.text());
    }
    let reranker = Running::serve(encoder("bert-rank"), ServerOptions::default());
    let refused = reranker.post("/v1/embeddings", &json!({"input": "a"}));
    assert!(refused.status == 400 && refused.text().contains("/v1/rerank"), "{}", refused.text());
}

#[test]
fn documents_are_ranked() {
    let server = Running::serve(encoder("bert-rank"), ServerOptions::default());
    let documents = json!(["water", {"text": "The river came down from the mountain in the spring."}, "the the"]);
    let body = json!({"query": "Where is the river?", "documents": documents, "return_documents": true});
    let all = server.post("/v1/rerank", &body).json();
    let results = all["results"].as_array().expect("results");
    let scores: Vec<f64> = results.iter().filter_map(|result| result["relevance_score"].as_f64()).collect();
    assert!(scores.len() == 3 && scores.is_sorted_by(|one, other| one >= other), "{scores:?}");
    assert!(scores.iter().all(|score| (0.0..=1.0).contains(score)));
    for result in results {
        let index = result["index"].as_u64().expect("a number") as usize;
        let text = documents[index].as_str().or(documents[index]["text"].as_str());
        assert_eq!(result["document"]["text"].as_str(), text);
    }
    let mut best = body.clone();
    best["top_n"] = json!(1);
    best["return_documents"] = json!(false);
    let best = server.post("/v1/rerank", &best).json();
    assert_eq!(best["results"].as_array().map(Vec::len), Some(1));
    assert_eq!((&best["results"][0]["index"], &best["results"][0]["document"]), (&results[0]["index"], &Value::Null));
    for wrong in [json!({"query": "a"}), json!({"query": "a", "documents": []}), json!({"documents": ["a"]})] {
        assert_eq!(server.post("/v1/rerank", &wrong).status, 400, "{wrong}");
    }
}
