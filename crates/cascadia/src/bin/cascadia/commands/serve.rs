//! `cascadia serve`.

use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, bail};
use cascadia_engine::service::schedule::Sharing;
use cascadia_engine::service::{Service, ServiceOptions};
use cascadia_engine::{CacheSize, Engine, OpenOptions};
use cascadia_fleet::{Digest, RowFormat, Timeouts};
use cascadia_server::{
    Limits, LogFormat, ModelDetails, ResumeLogOptions, ServedModel, Server, ServerOptions, TlsFiles, start_logs,
};
use cascadia_weights::ModelFiles;
use serde_json::Value;

use super::inspect::{architecture, main_format, parameters, weight_bytes};
use super::serve_fleet::{self, Fleet, FleetChoice};
use super::serve_live::LiveReplacement;
use super::serve_model::ModelChoice;
use crate::flags::{LogChoice, ServeFlags, ThreadFlags, WireChoice, parse_bytes};
use crate::output::remark;
use crate::source::Located;
use crate::threads::pool;

/// Requests that may wait unless the flags say otherwise.
const QUEUE: u32 = 64;

/// Requests that are computed at a time unless the flags say otherwise.
const PARALLEL: u32 = 8;

/// How long a machine that was lost too often is held back unless the flags say otherwise.
const QUARANTINE_MINUTES: u64 = 5;

/// Serves a model until it is told to end.
pub(crate) fn serve(flags: ServeFlags) -> anyhow::Result<()> {
    let flags = match flags.config.clone() {
        Some(path) => with_file(&flags, &path)?,
        None => flags,
    };
    let format = match flags.log.unwrap_or_default() {
        LogChoice::Text => LogFormat::Text,
        LogChoice::Json => LogFormat::Json,
    };
    start_logs(format, flags.log_level.as_deref().unwrap_or("info")).context("cannot start logging")?;
    let Preparation { options, draft } = Preparation::new(&flags)?;
    let mut fleet = None;
    let (name, engine) = match (&flags.fleet, &flags.model) {
        (Some(nodes), _) => {
            let (home, own_stages) = (flags.home.as_deref(), flags.own_stage.as_slice());
            let (model, patience, wire) = (ModelChoice::of(&flags), patience(&flags), wire(&flags));
            let quarantine = Duration::from_secs(60 * flags.quarantine_minutes.unwrap_or(QUARANTINE_MINUTES));
            let no_shadow = flags.no_shadow;
            let choice = FleetChoice { fleet: nodes, home, own_stages, model, patience, wire, quarantine, no_shadow };
            let (started, beginning) = Fleet::start(&choice)?;
            fleet.insert(started).begin(beginning, &options)?
        }
        (None, model) => {
            let located = model.as_ref().map_or(Ok(Located::Embedded), |model| Located::find(model))?;
            (located.name(), Engine::from_files(located.files()?, &options)?)
        }
    };
    let (service, model) = start_service(&flags, (name.clone(), engine, fleet.as_ref().and_then(Fleet::model)), draft)?;
    let board = fleet.as_ref().map(|fleet| fleet.board.clone());
    let server = Server::bind(model, &ServerOptions { fleet: board, ..server_options(&flags) })?;
    remark(&format!("Serving {name}: the page is at {url}/, the API at {url}/v1", url = server.url()));
    let service = Arc::new(Mutex::new(Some(service)));
    let auditor = fleet.as_ref().map(|fleet| Arc::clone(&fleet.auditor));
    if let Some(fleet) = fleet {
        LiveReplacement { fleet, slot: server.model(), flags, service: Arc::clone(&service) }.watch();
    }
    server.run()?;
    let service = service.lock().unwrap_or_else(PoisonError::into_inner).take();
    service.into_iter().for_each(Service::drain);
    auditor.map_or(Ok(()), |auditor| serve_fleet::ended(&auditor))
}

/// What a model is opened with.
pub(super) struct Preparation {
    pub(super) options: OpenOptions,
    /// The small model that guesses for it.
    pub(super) draft: Option<Engine>,
}

impl Preparation {
    pub(super) fn new(flags: &ServeFlags) -> anyhow::Result<Preparation> {
        let mut options = open_options(flags)?;
        let draft = flags.draft.as_deref().map(|draft| open_draft(draft, &options)).transpose()?;
        if let (Some(draft), Some(memory)) = (&draft, &mut options.memory) {
            *memory = memory.saturating_sub(draft.memory_bytes());
        }
        Ok(Preparation { options, draft })
    }
}

/// Starts the service of a model with this name.
pub(super) fn start_service(
    flags: &ServeFlags,
    (name, engine, digest): (String, Engine, Option<Digest>),
    draft: Option<Engine>,
) -> anyhow::Result<(Service, ServedModel)> {
    // What is rounded on its way is another model to whoever counts on the same answer.
    let digest = digest.map(|digest| match wire(flags) {
        RowFormat::F32 => digest,
        wire => Digest::of(format!("{digest} {}", wire.name()).as_bytes()),
    });
    let (mut text, details) = (engine.text()?, details(engine.files(), digest));
    if let Some(path) = &flags.template {
        let source = fs::read_to_string(path);
        text = text.with_template(source.with_context(|| format!("cannot read the template {}", path.display()))?);
    }
    let text = Arc::new(text);
    let queue = flags.queue.unwrap_or(QUEUE) as usize;
    let usual = ServiceOptions::default();
    let draft_rows = flags.draft_tokens.unwrap_or(usual.draft_rows);
    let sharing = if flags.share_prefixes { Sharing::Everyone } else { Sharing::WithinTenant };
    let options = ServiceOptions { queue, parallel: parallel(flags), draft_rows, sharing, ..usual };
    let service = match draft {
        None => Service::start(engine, Arc::clone(&text), options)?,
        Some(draft) => Service::start_with_draft(engine, draft, Arc::clone(&text), options)?,
    };
    let model = ServedModel { name, text, service: service.handle(), queue, details };
    Ok((service, model))
}

/// The settings of a file, with those of the command line in place of theirs.
fn with_file(flags: &ServeFlags, path: &Path) -> anyhow::Result<ServeFlags> {
    let reading = || format!("cannot read the settings in {}", path.display());
    let text = fs::read_to_string(path).with_context(reading)?;
    // Read once by itself, so that a message names a line of the file.
    serde_json::from_str::<ServeFlags>(&text).with_context(reading)?;
    let mut settings: Value = serde_json::from_str(&text).with_context(reading)?;
    // A list of the fields' values would be a valid way to write the settings, and nobody means it.
    if !settings.is_object() {
        bail!("the settings in {} are no JSON object; write {{\"port\": 9000}} and so on", path.display());
    }
    let given = serde_json::to_value(flags).with_context(reading)?;
    for (name, value) in given.as_object().into_iter().flatten() {
        let is_given = !(value.is_null() || *value == Value::Bool(false) || *value == Value::Array(Vec::new()));
        if is_given {
            settings[name] = value.clone();
        }
    }
    serde_json::from_value(settings).with_context(reading)
}

pub(super) fn open_options(flags: &ServeFlags) -> anyhow::Result<OpenOptions> {
    let threads = ThreadFlags { threads: flags.threads, pin: flags.pin };
    let memory = flags.memory.as_deref().map(parse_bytes).transpose();
    let memory = memory.map_err(|problem| anyhow::anyhow!("memory: {problem}"))?;
    let cache = CacheSize::Rest(parallel(flags));
    Ok(OpenOptions { context: flags.ctx, memory, cache, ..OpenOptions::new(pool(&threads)) })
}

/// A small model that is always whole in memory: streaming it would make its guesses worthless.
fn open_draft(draft: &str, options: &OpenOptions) -> anyhow::Result<Engine> {
    let files = Located::find(draft)?.files()?;
    Engine::from_files(files, &OpenOptions { memory: None, ..options.clone() })
        .with_context(|| format!("cannot open the draft model {draft}"))
}

/// How hidden states are sent to machines of a fleet.
fn wire(flags: &ServeFlags) -> RowFormat {
    match flags.wire.unwrap_or_default() {
        WireChoice::F32 => RowFormat::F32,
        WireChoice::F16 => RowFormat::F16,
        WireChoice::Int8 => RowFormat::Int8,
    }
}

/// How long to wait for machines of a fleet.
fn patience(flags: &ServeFlags) -> Timeouts {
    let usual = Timeouts::default();
    Timeouts { silence: flags.silence_ms.map_or(usual.silence, Duration::from_millis), ..usual }
}

pub(super) fn parallel(flags: &ServeFlags) -> u32 {
    flags.parallel.unwrap_or(PARALLEL)
}

fn server_options(flags: &ServeFlags) -> ServerOptions {
    let usual = ServerOptions::default();
    let tls = flags.tls_cert.clone().zip(flags.tls_key.clone());
    let answer_time = flags.answer_seconds.map(|seconds| Duration::from_secs(seconds.into()));
    ServerOptions {
        host: flags.host.unwrap_or(usual.host),
        port: flags.port.unwrap_or(usual.port),
        keys: flags.keys.clone(),
        tls: tls.map(|(certificate, key)| TlsFiles { certificate, key }),
        insecure: flags.insecure,
        origins: flags.cors.clone(),
        collector: flags.otlp.clone(),
        fleet: None,
        resume_log: flags.resume_log.clone().map(ResumeLogOptions::new),
        limits: Limits { answer_time: answer_time.unwrap_or(usual.limits.answer_time), ..usual.limits },
    }
}

fn details(files: &ModelFiles, digest: Option<Digest>) -> ModelDetails {
    ModelDetails {
        family: architecture(files).unwrap_or_default(),
        bytes: weight_bytes(files),
        parameters: parameters(files),
        format: main_format(files).unwrap_or_default().to_owned(),
        digest: digest.unwrap_or_else(|| fingerprint(files)).to_string(),
    }
}

/// Tells files from others without reading all of them: by their tensors, and by when they were written.
fn fingerprint(files: &ModelFiles) -> Digest {
    let mut facts = String::new();
    let mut last = Path::new("");
    for tensor in files.tensors() {
        facts += &format!("{} {} {:?}\n", tensor.name(), tensor.dtype().name(), tensor.shape());
        if tensor.file() != last {
            last = tensor.file();
            let written = last.metadata().and_then(|metadata| metadata.modified());
            facts += &format!("{} {written:?}\n", last.display());
        }
    }
    Digest::of(facts.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_win_over_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("serve.json");
        fs::write(&path, r#"{"port": 9000, "ctx": 512, "memory": "6G", "cors": ["https://a.example"]}"#).unwrap();
        let flags = ServeFlags { port: Some(7), insecure: true, ..ServeFlags::default() };
        let merged = with_file(&flags, &path).unwrap();
        assert_eq!((merged.port, merged.ctx, merged.insecure), (Some(7), Some(512), true));
        assert_eq!(open_options(&merged).unwrap().memory, Some(6_000_000_000));
        assert_eq!(patience(&merged).silence, Duration::from_millis(250));
        assert_eq!(
            patience(&ServeFlags { silence_ms: Some(900), ..merged.clone() }).silence,
            Duration::from_millis(900)
        );
        assert_eq!(merged.cors, ["https://a.example"]);
        for wrong in ["", "[]", r#"{"prot": 9000}"#, r#"{"port": 70000}"#, r#"{"port": "x"}"#] {
            fs::write(&path, wrong).unwrap();
            let error = format!("{:#}", with_file(&flags, &path).unwrap_err());
            assert!(error.contains("serve.json"), "{wrong}: {error}");
        }
    }
}
