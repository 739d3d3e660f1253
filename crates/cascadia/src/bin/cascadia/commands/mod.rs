//! One file per command.

mod adapter;
mod audit;
mod bench;
mod chat;
mod documents;
mod embed;
mod eval;
mod export;
mod fleet;
mod fleet_init;
mod fleet_status;
mod inspect;
mod join;
mod keys;
mod list;
mod plan;
mod ps;
mod pull;
mod quantize;
mod rm;
mod run;
mod serve;
mod serve_settings;
mod show;
mod tokenize;
mod worker;
mod worker_limits;

pub(crate) use plan::plan_table;

use crate::flags::{AdapterCommand, AuditCommand, Command, Flags, FleetCommand, KeysCommand, WorkerCommand};

/// Runs the command that the flags ask for.
pub(crate) fn execute(flags: Flags) -> anyhow::Result<()> {
    match flags.command {
        Command::Run(flags) => run::run(&flags),
        Command::Serve(flags) => serve::serve(*flags),
        Command::Pull(flags) => pull::pull(&flags),
        Command::List(flags) => list::list(&flags),
        Command::Show(flags) => show::show(&flags),
        Command::Rm(flags) => rm::rm(&flags),
        Command::Ps(flags) => ps::ps(&flags),
        Command::Embed(flags) => embed::embed(&flags),
        Command::Rerank(flags) => embed::rerank(&flags),
        Command::Keys(KeysCommand::New(flags)) => keys::new(flags),
        Command::Keys(KeysCommand::List(flags)) => keys::list(&flags),
        Command::Keys(KeysCommand::Revoke(flags)) => keys::revoke(&flags),
        Command::Inspect(flags) => inspect::inspect(&flags),
        Command::Eval(command) => eval::eval(&command),
        Command::Bench(flags) => bench::bench(&flags),
        Command::Quantize(flags) => quantize::quantize(&flags),
        Command::Adapter(AdapterCommand::Inspect(flags)) => adapter::inspect(&flags),
        Command::Adapter(AdapterCommand::Merge(flags)) => adapter::merge(&flags),
        Command::Export(flags) => export::export(&flags),
        Command::Plan(flags) => plan::plan(&flags),
        Command::Fleet(FleetCommand::Init(flags)) => fleet_init::init(&flags),
        Command::Fleet(FleetCommand::Invite(flags)) => fleet::invite(&flags),
        Command::Fleet(FleetCommand::Approve(flags)) => fleet::approve(&flags),
        Command::Fleet(FleetCommand::Reject(flags)) => fleet::reject(&flags),
        Command::Fleet(FleetCommand::Push(flags)) => fleet::push(&flags),
        Command::Fleet(FleetCommand::Status(flags)) => fleet_status::status(&flags),
        Command::Fleet(FleetCommand::Revoke(flags)) => fleet::revoke(&flags),
        Command::Fleet(FleetCommand::Trust(flags)) => fleet::trust(&flags),
        Command::Fleet(FleetCommand::Rotate(flags)) => fleet::rotate(&flags),
        Command::Audit(AuditCommand::Verify(flags)) => audit::verify(&flags),
        Command::Audit(AuditCommand::Show(flags)) => audit::show(&flags),
        Command::Leave(flags) => worker::leave(&flags),
        Command::Join(flags) => join::join(&flags),
        Command::Worker(WorkerCommand::Start(flags)) => worker::start(&flags),
        Command::Worker(WorkerCommand::Head(flags)) => audit::worker_head(&flags),
        Command::Worker(WorkerCommand::Limits(flags)) => worker_limits::limits(&flags),
        Command::Tokenize(flags) => tokenize::tokenize(&flags),
        Command::Completions(flags) => documents::completions(&flags),
        Command::Man(flags) => documents::man(&flags),
    }
}
