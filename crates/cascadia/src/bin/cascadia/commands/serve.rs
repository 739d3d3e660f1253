//! `cascadia serve`.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use cascadia::{FleetBuilder, FleetModel, Model, ModelBuilder, Server, ServerBuilder, Threads};
use cascadia_coordinator::{CoordinatorOptions, Deployment, FirstModel, Machines};
use cascadia_fleet::{MANIFEST_FILE, RowFormat, Timeouts};
use cascadia_hub::Network;
use cascadia_server::{KeepAlive, Limits, LogFormat, ResumeLogOptions, ServerOptions, TlsFiles, start_logs};

use super::serve_settings::merged;
use crate::flags::{KernelChoice, LogChoice, PageFlags, ServeFlags, WireChoice, parse_bytes};
use crate::home::home;
use crate::machine::warn_of_threads;
use crate::output::remark;
use crate::source::{find, find_or_embedded_by, in_format};

/// How long a worker that was lost too often is not used unless the flags say otherwise.
const QUARANTINE_MINUTES: u64 = 5;

/// The most bytes that are spilled unless the flags say otherwise.
const SPILL_BYTES: u64 = 8_000_000_000;

/// What adapters may take unless the flags say otherwise.
const ADAPTER_BYTES: u64 = 512 << 20;

/// How long one of several models stays in memory unless the flags say otherwise.
const KEEP_ALIVE: KeepAlive = KeepAlive(Some(Duration::from_secs(300)));

/// How long a stage may be without a worker unless the flags say otherwise: one that is restarted is back by then.
const REPLAN_SECONDS: u64 = 15;

/// Serves a model until it is told to end.
pub(crate) fn serve(flags: ServeFlags) -> anyhow::Result<()> {
    let flags = merged(flags)?;
    let format = match flags.log.unwrap_or_default() {
        LogChoice::Text => LogFormat::Text,
        LogChoice::Json => LogFormat::Json,
    };
    start_logs(format, flags.log_level.as_deref().unwrap_or("info")).context("cannot start logging")?;
    let options = server_options(&flags)?;
    let model = model_builder(&flags)?.reserve(options.limits.memory_bytes());
    let mut server = ServerBuilder::from_options(options);
    if let Some(folder) = &flags.adapters {
        server = flags.pin_adapters.iter().fold(server.adapters(folder), ServerBuilder::pin_adapter);
    }
    let server = match &flags.fleet {
        Some(fleet) => serve_fleet(&flags, fleet, (model, &server))?,
        None => serve_here(&flags, (&model, &server))?,
    };
    let (name, url) = (server.model_name(), server.url());
    let more = match flags.models.len() {
        0 | 1 => String::new(),
        count => format!(" and {} more", count - 1),
    };
    remark(&format!("Serving {name}{more}: the page is at {url}/, the API at {url}/v1"));
    Ok(server.run()?)
}

/// Opens the model, or the first of several, in this process.
fn serve_here(flags: &ServeFlags, (builder, server): (&ModelBuilder, &ServerBuilder)) -> anyhow::Result<Server> {
    let network = if flags.offline { Network::Offline } else { Network::Online };
    let threads = Threads { count: flags.threads, pin: flags.pin };
    let find = |name| in_format(find_or_embedded_by(name, network)?, flags.kind.as_deref(), threads);
    match flags.models.as_slice() {
        [] => Ok(server.serve(builder.open(find(None)?)?)?),
        [model] => Ok(server.serve(builder.open(find(Some(model))?)?)?),
        models => {
            let sources = models.iter().map(|model| find(Some(model))).collect::<anyhow::Result<_>>()?;
            let keep_alive = flags.keep_alive.as_deref().and_then(KeepAlive::parse).unwrap_or(KEEP_ALIVE);
            Ok(server.serve_several(sources, builder, keep_alive)?)
        }
    }
}

/// Opens the model on a fleet.
fn serve_fleet(
    flags: &ServeFlags,
    fleet: &str,
    (builder, server): (ModelBuilder, &ServerBuilder),
) -> anyhow::Result<Server> {
    let led = FleetBuilder::from_home(home(flags.home.as_deref())?).options(coordinator_options(flags)).resume()?;
    let first = match flags.models.first() {
        Some(model) => builder.planned(find(model)?, Machines::parse(fleet)),
        None if Path::new(fleet).join(MANIFEST_FILE).exists() => {
            FirstModel::Exported(Deployment { folder: fleet.into(), own_stages: flags.own_stage.clone(), plan: None })
        }
        None => FirstModel::Pushed { machines: Machines::parse(fleet), own_stages: flags.own_stage.clone() },
    };
    let seconds = flags.replan_seconds.unwrap_or(REPLAN_SECONDS);
    let replan_after = (seconds > 0).then(|| Duration::from_secs(seconds));
    Ok(server.serve_fleet(led, FleetModel { first, builder, replan_after })?)
}

/// How models are opened.
fn model_builder(flags: &ServeFlags) -> anyhow::Result<ModelBuilder> {
    warn_of_threads(flags.threads);
    let threads = Threads { count: flags.threads, pin: flags.pin };
    let kernels = flags.kernels.unwrap_or(KernelChoice::Auto).kernels();
    let activations = flags.activations.unwrap_or_default().into();
    let pages = PageFlags { populate: flags.populate, lock: flags.lock, numa: flags.numa }.prepare()?;
    let mut builder = Model::builder().threads(threads).kernels(kernels).activations(activations).pages(pages);
    if let Some(kv) = &flags.kv {
        builder = builder.kv_policy(kv.policy()?);
    }
    if let Some(context) = flags.ctx {
        builder = builder.context(context);
    }
    if let Some(memory) = memory(flags)? {
        builder = builder.memory(memory);
    }
    if let Some(parallel) = flags.parallel {
        builder = builder.parallel(parallel);
    }
    if let Some(queue) = flags.queue {
        builder = builder.queue(queue);
    }
    if let Some(tokens) = flags.draft_tokens {
        builder = builder.draft_tokens(tokens);
    }
    if let Some(draft) = &flags.draft {
        builder = builder.draft(find(draft)?);
    }
    if flags.share_prefixes {
        builder = builder.share_prefixes();
    }
    if let Some(folder) = &flags.spill {
        builder = builder.spill(folder, bytes("spill-size", flags.spill_size.as_deref())?.unwrap_or(SPILL_BYTES));
    }
    if flags.keep_prefixes {
        builder = builder.keep_prefixes();
    }
    if flags.adapters.is_some() {
        let memory = bytes("adapter-memory", flags.adapter_memory.as_deref())?;
        builder = builder.adapter_memory(memory.unwrap_or(ADAPTER_BYTES));
    }
    if let Some(path) = &flags.template {
        let source = fs::read_to_string(path);
        builder = builder.template(source.with_context(|| format!("cannot read the template {}", path.display()))?);
    }
    Ok(builder)
}

fn memory(flags: &ServeFlags) -> anyhow::Result<Option<u64>> {
    bytes("memory", flags.memory.as_deref())
}

/// The size that a flag gives.
fn bytes(flag: &str, size: Option<&str>) -> anyhow::Result<Option<u64>> {
    size.map(parse_bytes).transpose().map_err(|problem| anyhow::anyhow!("{flag}: {problem}"))
}

/// How the workers of a fleet are treated.
fn coordinator_options(flags: &ServeFlags) -> CoordinatorOptions {
    CoordinatorOptions {
        timeouts: timeouts(flags),
        wire: match flags.wire.unwrap_or_default() {
            WireChoice::F32 => RowFormat::F32,
            WireChoice::F16 => RowFormat::F16,
            WireChoice::Int8 => RowFormat::Int8,
        },
        quarantine: Duration::from_secs(60 * flags.quarantine_minutes.unwrap_or(QUARANTINE_MINUTES)),
        no_shadow: flags.no_shadow,
        no_recheck: flags.no_recheck,
    }
}

/// How long to wait for workers.
fn timeouts(flags: &ServeFlags) -> Timeouts {
    let usual = Timeouts::default();
    Timeouts { silence: flags.silence_ms.map_or(usual.silence, Duration::from_millis), ..usual }
}

fn server_options(flags: &ServeFlags) -> anyhow::Result<ServerOptions> {
    let usual = ServerOptions::default();
    let tls = flags.tls_cert.clone().zip(flags.tls_key.clone());
    let answer_time = flags.answer_seconds.map(|seconds| Duration::from_secs(seconds.into()));
    let mut limits = Limits { answer_time: answer_time.unwrap_or(usual.limits.answer_time), ..usual.limits };
    if let Some(memory) = memory(flags)? {
        limits = limits.within(memory);
    }
    Ok(ServerOptions {
        host: flags.host.unwrap_or(usual.host),
        port: flags.port.unwrap_or(usual.port),
        keys: flags.keys.clone(),
        tls: tls.map(|(certificate, key)| TlsFiles { certificate, key }),
        insecure: flags.insecure,
        origins: flags.cors.clone(),
        collector: flags.otlp.clone(),
        fleet: None,
        resume_log: flags.resume_log.clone().map(ResumeLogOptions::new),
        aliases: flags.alias.clone(),
        limits,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_become_values() {
        let flags = ServeFlags { memory: Some("6G".to_owned()), ..ServeFlags::default() };
        assert_eq!(memory(&flags).unwrap(), Some(6_000_000_000));
        assert_eq!(timeouts(&flags).silence, Duration::from_millis(250));
        let patient = ServeFlags { silence_ms: Some(900), ..flags };
        assert_eq!(timeouts(&patient).silence, Duration::from_millis(900));
    }
}
