//! A fleet of two workers in one process that loses one during an answer, and continues with the same text:
//! `cargo run --release --example fleet`.

use std::io::{Write, stdout};
use std::sync::mpsc::channel;
use std::time::Duration;

use cascadia::fleet::{FleetEvent, OwnerLimits, stage_file};
use cascadia::{EMBEDDED_MODEL, ExportOptions, Fleet, GenerateOptions, Model, Worker, export};

const PROMPT: &str = "The harbour at night";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    let shards = folder.path().join("shards");
    export(EMBEDDED_MODEL, &ExportOptions::default(), &shards)?;

    let (ready, readied) = channel();
    let fleet = Fleet::builder(folder.path().join("coordinator"))?
        .listen("127.0.0.1:0")
        .silent()
        .on_event(move |event| {
            if let FleetEvent::Ready { .. } = event {
                let _ = ready.send(());
            }
        })
        .start()?;
    let invitation = fleet.invite(2, Duration::from_secs(60))?;
    let mut workers = Vec::new();
    for name in ["anna", "bert"] {
        let worker = Worker::builder(folder.path().join(name))?.threads(1).shard(shards.join(stage_file(0)));
        worker.join(&invitation, name)?;
        workers.push(worker.limits(OwnerLimits { on_battery: true, ..OwnerLimits::default() })?.start()?);
    }
    // One computes, the other is on standby.
    let model = fleet.open(&shards, &Model::builder().threads(1).context(512))?;
    readied.iter().take(workers.len()).for_each(drop);

    let options = GenerateOptions::greedy().max_tokens(64);
    let mut text = String::new();
    for (count, delta) in model.generate_with(PROMPT, &options)?.enumerate() {
        text += &delta?.text;
        if count == 16 {
            let computing = fleet.stages()[0].node.clone().ok_or("nobody computes")?;
            workers.retain(|worker| worker.node() != computing);
            writeln!(stdout(), "{PROMPT}{text} [{computing} is lost]")?;
        }
    }
    writeln!(stdout(), "{PROMPT}{text}")?;
    assert_eq!(workers.len(), 1);
    assert_eq!(text, Model::embedded()?.generate_with(PROMPT, &options)?.text()?, "one machine gives the same text");
    Ok(())
}
