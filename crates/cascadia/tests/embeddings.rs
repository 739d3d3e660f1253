//! Embeddings and ranks of tiny encoders against those of `sentence-transformers` (see `fixtures/encoders.py`).

use std::path::PathBuf;

use cascadia::{EmbedOptions, GenerateOptions, LongTexts, Model, Threads};
use cascadia_model::{CacheFormat, KvPolicy};
use serde_json::Value;

/// Largest difference of a number, where vectors are about one long.
const TOLERANCE: f32 = 2e-5;

fn folder(fixture: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/encoders").join(fixture)
}

fn open(fixture: &str, threads: u32) -> Model {
    let threads = Threads { count: Some(threads), pin: false };
    Model::builder()
        .threads(threads)
        .open(folder(fixture).as_path())
        .unwrap_or_else(|error| panic!("{fixture}: {error}"))
}

/// The texts of a fixture, or the texts of its pairs one after the other.
fn texts(fixture: &str) -> Vec<String> {
    let json = std::fs::read(folder(fixture).join("texts.json")).expect("the fixture");
    let listed: Vec<Value> = serde_json::from_slice(&json).expect("a list");
    let flat = listed.into_iter().flat_map(|one| match one {
        Value::Array(pair) => pair,
        text => vec![text],
    });
    flat.map(|text| text.as_str().expect("a text").to_owned()).collect()
}

/// The rows of a two-dimensional float32 array in numpy's format 1.0.
fn expected(fixture: &str) -> Vec<Vec<f32>> {
    let bytes = std::fs::read(folder(fixture).join("expected.npy")).expect("the fixture");
    let start = 10 + usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
    let header = std::str::from_utf8(&bytes[10..start]).expect("text");
    let columns = header.split(['(', ')', ',']).filter_map(|part| part.trim().parse::<usize>().ok()).nth(1);
    let (numbers, _) = bytes[start..].as_chunks::<4>();
    let values: Vec<f32> = numbers.iter().map(|number| f32::from_le_bytes(*number)).collect();
    values.chunks_exact(columns.expect("two sizes")).map(<[f32]>::to_vec).collect()
}

fn check_close(what: &str, ours: &[Vec<f32>], theirs: &[Vec<f32>]) {
    assert_eq!(ours.len(), theirs.len(), "{what}");
    for (index, (ours, theirs)) in ours.iter().zip(theirs).enumerate() {
        assert_eq!(ours.len(), theirs.len(), "{what}");
        let largest = theirs.iter().fold(1.0_f32, |largest, number| largest.max(number.abs()));
        let worst = ours.iter().zip(theirs).map(|(ours, theirs)| (ours - theirs).abs()).fold(0.0, f32::max);
        assert!(worst <= TOLERANCE * largest, "{what}, text {index}: off by {worst:e} of {largest}");
    }
}

fn bits(vectors: &[Vec<f32>]) -> Vec<Vec<u32>> {
    vectors.iter().map(|vector| vector.iter().map(|number| number.to_bits()).collect()).collect()
}

/// All texts at once, where short ones share steps, and one after the other with another number of threads.
fn check(fixture: &str) {
    let texts = texts(fixture);
    let options = |prompt: Option<&str>| EmbedOptions { prompt: prompt.map(str::to_owned), long: LongTexts::Cut };
    let model = open(fixture, 1);
    let together = model.embed(&texts, &options(None)).expect("vectors");
    check_close(fixture, &together, &expected(fixture));
    let alone = open(fixture, 2);
    let one_by_one = texts.iter().flat_map(|text| alone.embed(&[text], &options(None)).expect("a vector"));
    assert_eq!(
        bits(&together),
        bits(&one_by_one.collect::<Vec<_>>()),
        "{fixture}: bits depend on others or on threads"
    );
    // The last two texts are the first two after this prompt.
    let prompted = model.embed(&texts[..2], &options(Some("query"))).expect("vectors");
    assert_eq!(bits(&prompted), bits(&together[texts.len() - 2..]), "{fixture}");
    assert!(model.embed(&texts[..1], &options(Some("poem"))).unwrap_err().to_string().contains("`poem`"));
}

#[test]
fn bert_makes_the_embeddings_of_sentence_transformers() {
    check("bert");
}

#[test]
fn xlm_roberta_makes_the_embeddings_of_sentence_transformers() {
    check("xlm-r");
}

#[test]
fn nomic_makes_the_embeddings_of_sentence_transformers() {
    check("nomic");
}

#[test]
fn modernbert_makes_the_embeddings_of_sentence_transformers() {
    check("modernbert");
}

#[test]
fn pairs_are_ranked_as_sentence_transformers_ranks_them() {
    for fixture in ["bert-rank", "xlm-r-rank", "modernbert-rank"] {
        let texts = texts(fixture);
        let documents: Vec<&str> = texts.iter().skip(1).step_by(2).map(String::as_str).collect();
        let logits = open(fixture, 2).rank(&texts[0], &documents, LongTexts::Cut).expect("logits");
        let alone = open(fixture, 1);
        let one_by_one = documents.iter().flat_map(|one| alone.rank(&texts[0], &[one], LongTexts::Cut).expect("one"));
        assert_eq!(logits, one_by_one.collect::<Vec<_>>(), "{fixture}");
        check_close(fixture, &logits.into_iter().map(|logit| vec![logit]).collect::<Vec<_>>(), &expected(fixture));
    }
}

#[test]
fn what_an_encoder_cannot_do_is_said_clearly() {
    let model = open("bert", 1);
    let long = "river ".repeat(100);
    let refused = model.embed(&[long.as_str()], &EmbedOptions::default()).unwrap_err().to_string();
    assert!(refused.contains("do not fit into 48"), "{refused}");
    let text = model.generate_with("The river", &GenerateOptions::greedy()).err().unwrap().to_string();
    assert!(text.contains("has no output matrix; it is an encoder"), "{text}");
    let ranks = model.rank("a", &["b"], LongTexts::Refuse).unwrap_err().to_string();
    assert!(ranks.contains("has no ranking"), "{ranks}");
    let embeds = open("bert-rank", 1).embed(&["a"], &EmbedOptions::default()).unwrap_err().to_string();
    assert!(embeds.contains("cascadia rerank"), "{embeds}");
    let rounded = Model::builder().kv_policy(KvPolicy::uniform(CacheFormat::Int8)).open(folder("bert").as_path());
    assert!(rounded.err().unwrap().to_string().contains("auto or exact"));
}
