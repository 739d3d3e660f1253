//! What programs that use the library rely on, with the model inside the crate.

use std::path::Path;
use std::thread;
use std::time::Duration;

use cascadia::fleet::{FleetKey, OwnerLimits, Rotation};
use cascadia::{
    EMBEDDED_MODEL, Error, ExportOptions, FinishReason, Fleet, GenerateOptions, Message, Model, Worker, export,
};

const PROMPTS: [&str; 3] = ["The sea", "A long road", "In the morning"];

fn options() -> GenerateOptions {
    GenerateOptions::greedy().max_tokens(24)
}

fn model() -> Model {
    Model::builder().threads(1).context(256).open(EMBEDDED_MODEL).expect("the model opens")
}

fn answer(model: &Model, prompt: &str) -> String {
    model.generate_with(prompt, &options()).expect("it is accepted").text().expect("it is answered")
}

#[test]
fn answers_do_not_depend_on_what_else_is_generated() {
    let model = model();
    let alone = PROMPTS.map(|prompt| answer(&model, prompt));
    let together = thread::scope(|scope| {
        let running = PROMPTS.map(|prompt| scope.spawn(|| answer(&model, prompt)));
        running.map(|running| running.join().expect("it ends"))
    });
    assert_eq!(alone, together);
}

#[test]
fn a_generation_says_how_it_ended() {
    let model = model();
    let mut generation = model.generate_with(PROMPTS[0], &options()).expect("it is accepted");
    assert!(generation.finished().is_none());
    let deltas: Vec<_> = generation.by_ref().map(|delta| delta.expect("it is answered")).collect();
    let finished = generation.finished().expect("it has ended");
    assert_eq!(finished.reason, FinishReason::Length);
    assert_eq!((finished.tokens, deltas.iter().filter(|delta| delta.token.is_some()).count()), (24, 24));
    assert_eq!(finished.stats.decoded_tokens, 23);
    assert!(generation.next().is_none());
}

#[test]
fn a_generation_that_is_dropped_makes_room_for_others() {
    let model = Model::builder().threads(1).context(256).parallel(1).queue(1).open(EMBEDDED_MODEL).expect("it opens");
    for _ in 0..4 {
        let mut generation = model.generate_with(PROMPTS[0], &options().max_tokens(200)).expect("it is accepted");
        assert!(generation.next().is_some());
    }
    assert!(!answer(&model, PROMPTS[1]).is_empty());
}

#[test]
fn a_conversation_is_rendered_by_the_template() {
    let model = model();
    let messages = [Message { role: "user", content: PROMPTS[0].to_owned() }];
    let chat = model.chat_with(&messages, &options()).expect("it is accepted").text().expect("it is answered");
    assert_ne!(chat, answer(&model, PROMPTS[0]));
    assert_eq!((model.name(), model.context()), ("rainier-33m-q4_k_m", 256));
}

#[test]
fn a_model_with_an_adapter_is_another_model() {
    let fixture = |name: &str| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures").join(name);
    let builder = Model::builder().threads(1).context(128);
    let plain = builder.open(fixture("llama3")).expect("it opens");
    let adapted = builder.clone().adapter(fixture("adapters/llama3-all"), 1.0);
    let adapted = adapted.open(fixture("llama3")).expect("it opens with its adapter");
    assert_ne!(answer(&plain, PROMPTS[0]), answer(&adapted, PROMPTS[0]));
    assert_ne!(plain.info().digest, adapted.info().digest);
    let alien = builder.adapter(fixture("adapters/mistral-rslora"), 1.0).open(fixture("llama3")).err();
    assert!(matches!(alien, Some(Error::Engine(_))), "{alien:?}");
}

#[test]
fn errors_have_types() {
    let missing = Model::open("no/such/model.gguf").err();
    assert!(matches!(missing, Some(Error::Weights(_))), "{missing:?}");
    let too_long = Model::builder().context(1 << 30).open(EMBEDDED_MODEL).err();
    assert!(matches!(too_long, Some(Error::Engine(_))), "{too_long:?}");
    let refused = model().generate("word ".repeat(1000).as_str()).err();
    assert!(matches!(refused, Some(Error::Submit(_))), "{refused:?}");
    let never_led = tempfile::tempdir().expect("a folder");
    let resumed = Fleet::builder(never_led.path()).expect("a folder").resume().err();
    assert!(matches!(resumed, Some(Error::Fleet(_) | Error::Coordinator(_))), "{resumed:?}");
}

#[test]
fn a_pushed_model_runs_here_and_on_a_worker() {
    let folder = tempfile::tempdir().expect("a folder");
    let shards = folder.path().join("shards");
    let stages = ExportOptions { stages: 2, ..ExportOptions::default() };
    export(EMBEDDED_MODEL, &stages, &shards).expect("it is exported");
    let fleet = Fleet::builder(folder.path().join("coordinator")).expect("a folder").listen("127.0.0.1:0").silent();
    let fleet = fleet.start().expect("it listens");
    let invitation = fleet.invite(1, Duration::from_secs(60)).expect("an invitation");
    let worker = Worker::builder(folder.path().join("worker")).expect("a folder").threads(1);
    worker.join(&invitation, "attic").expect("it joins");
    assert!(worker.join(&invitation, "cellar").is_err(), "it belongs to a fleet already");
    let lent = OwnerLimits { on_battery: true, ..OwnerLimits::default() };
    let _worker = worker.limits(lent).expect("they are kept").start().expect("it starts");
    fleet.push(&shards, &[("attic", 0), ("here", 1)]).expect("it takes its shard");
    let opened = fleet.open_pushed(&Model::builder().threads(1).context(256)).expect("it opens");
    assert_eq!(answer(&opened, PROMPTS[0]), answer(&model(), PROMPTS[0]));
    let nodes: Vec<_> = fleet.stages().into_iter().filter_map(|stage| stage.node).collect();
    assert_eq!(nodes, ["attic", "here"]);
    // Both keys of the fleet are replaced in the middle of an answer.
    let long = options().max_tokens(200);
    let mut generation = opened.generate_with(PROMPTS[1], &long).expect("it is accepted");
    let begin = generation.by_ref().take(4).map(|delta| delta.expect("it is answered").text).collect::<String>();
    let rotation = Rotation { which: &FleetKey::ALL, grace: Duration::ZERO, who: "admin" };
    let number = fleet.home().keys().rotate(rotation).expect("it is written").newest().number;
    let rest = generation.text().expect("it is answered");
    let expected = model().generate_with(PROMPTS[1], &long).expect("it is accepted").text().expect("it is answered");
    assert_eq!((number, begin + &rest), (1, expected));
}
