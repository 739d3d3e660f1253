//! The settings of `serve`: the configuration file with the flags over it, checked as a whole.

use std::fs;
use std::path::Path;

use anyhow::{Context, bail};
use clap::{Args, Command, FromArgMatches};
use serde_json::Value;

use crate::failure::WrongUsage;
use crate::flags::ServeFlags;

/// The settings that the flags and their configuration file give together.
pub(crate) fn merged(flags: ServeFlags) -> anyhow::Result<ServeFlags> {
    let settings = match flags.config.clone() {
        Some(path) => with_file(&flags, &path)?,
        None => flags,
    };
    check(&settings)?;
    Ok(settings)
}

/// An option that depends on others.
#[derive(Clone, Copy)]
struct Setting {
    name: &'static str,
    is_given: fn(&ServeFlags) -> bool,
}

const MODEL: Setting = Setting { name: "MODEL", is_given: |flags| !flags.models.is_empty() };
const SEVERAL: Setting = Setting { name: "several MODELs", is_given: |flags| flags.models.len() > 1 };
const KEEP_ALIVE: Setting = Setting { name: "--keep-alive", is_given: |flags| flags.keep_alive.is_some() };
const DRAFT: Setting = Setting { name: "--draft", is_given: |flags| flags.draft.is_some() };
const TEMPLATE: Setting = Setting { name: "--template", is_given: |flags| flags.template.is_some() };
const TYPE: Setting = Setting { name: "--type", is_given: |flags| flags.kind.is_some() };
const FLEET: Setting = Setting { name: "--fleet", is_given: |flags| flags.fleet.is_some() };
const OWN_STAGE: Setting = Setting { name: "--own-stage", is_given: |flags| !flags.own_stage.is_empty() };
const HOME: Setting = Setting { name: "--home", is_given: |flags| flags.home.is_some() };
const SILENCE: Setting = Setting { name: "--silence-ms", is_given: |flags| flags.silence_ms.is_some() };
const WIRE: Setting = Setting { name: "--wire", is_given: |flags| flags.wire.is_some() };
const QUARANTINE: Setting =
    Setting { name: "--quarantine-minutes", is_given: |flags| flags.quarantine_minutes.is_some() };
const REPLAN: Setting = Setting { name: "--replan-seconds", is_given: |flags| flags.replan_seconds.is_some() };
const NO_SHADOW: Setting = Setting { name: "--no-shadow", is_given: |flags| flags.no_shadow };
const NO_RECHECK: Setting = Setting { name: "--no-recheck", is_given: |flags| flags.no_recheck };
const TLS_CERT: Setting = Setting { name: "--tls-cert", is_given: |flags| flags.tls_cert.is_some() };
const TLS_KEY: Setting = Setting { name: "--tls-key", is_given: |flags| flags.tls_key.is_some() };
const MEMORY: Setting = Setting { name: "--memory", is_given: |flags| flags.memory.is_some() };
const POPULATE: Setting = Setting { name: "--populate", is_given: |flags| flags.populate };
const SPILL: Setting = Setting { name: "--spill", is_given: |flags| flags.spill.is_some() };
const SPILL_SIZE: Setting = Setting { name: "--spill-size", is_given: |flags| flags.spill_size.is_some() };
const KEEP_PREFIXES: Setting = Setting { name: "--keep-prefixes", is_given: |flags| flags.keep_prefixes };
const ADAPTERS: Setting = Setting { name: "--adapters", is_given: |flags| flags.adapters.is_some() };
const ADAPTER_MEMORY: Setting = Setting { name: "--adapter-memory", is_given: |flags| flags.adapter_memory.is_some() };
const PIN_ADAPTERS: Setting = Setting { name: "--pin-adapters", is_given: |flags| !flags.pin_adapters.is_empty() };
const LOCK: Setting = Setting { name: "--lock", is_given: |flags| flags.lock };

/// Options that do nothing, or something else than they say, without another.
const NEEDS: &[(Setting, Setting)] = &[
    (TLS_CERT, TLS_KEY),
    (TLS_KEY, TLS_CERT),
    (OWN_STAGE, FLEET),
    (HOME, FLEET),
    (SILENCE, FLEET),
    (WIRE, FLEET),
    (QUARANTINE, FLEET),
    (REPLAN, FLEET),
    (REPLAN, MODEL),
    (NO_SHADOW, FLEET),
    (NO_RECHECK, FLEET),
    (SPILL_SIZE, SPILL),
    (KEEP_PREFIXES, SPILL),
    (ADAPTER_MEMORY, ADAPTERS),
    (PIN_ADAPTERS, ADAPTERS),
    (KEEP_ALIVE, SEVERAL),
];

/// Options that contradict each other.
const EXCLUDES: &[(Setting, Setting)] = &[
    (TYPE, FLEET),
    (SPILL, FLEET),
    (OWN_STAGE, MODEL),
    (POPULATE, MEMORY),
    (LOCK, MEMORY),
    (FLEET, SEVERAL),
    (ADAPTERS, SEVERAL),
    (DRAFT, SEVERAL),
    (TEMPLATE, SEVERAL),
    (SPILL, SEVERAL),
];

/// Checks every pair of options, wherever each of them was given.
fn check(flags: &ServeFlags) -> Result<(), WrongUsage> {
    let given = |setting: &Setting| (setting.is_given)(flags);
    if let Some((first, second)) = NEEDS.iter().find(|(first, second)| given(first) && !given(second)) {
        let (first, second) = (first.name, second.name);
        return Err(WrongUsage(format!(
            "{first} needs {second}; give both or neither, as flags or in the --config file"
        )));
    }
    if let Some((first, second)) = EXCLUDES.iter().find(|(first, second)| given(first) && given(second)) {
        let (first, second) = (first.name, second.name);
        return Err(WrongUsage(format!("{first} cannot be used with {second}; give one of them")));
    }
    Ok(())
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
    parsed(&settings).with_context(reading)
}

/// Settings read as if each were a flag, so that a file has the limits of the command line.
fn parsed(settings: &Value) -> Result<ServeFlags, WrongUsage> {
    let mut arguments = vec!["serve".to_owned()];
    let mut models = Vec::new();
    for (name, value) in settings.as_object().into_iter().flatten() {
        let values = value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice);
        for value in values {
            match value {
                Value::Null | Value::Bool(false) => {}
                Value::Bool(true) => arguments.push(format!("--{name}")),
                Value::String(text) if name == "model" => models.push(text.clone()),
                Value::String(text) => arguments.push(format!("--{name}={text}")),
                value => arguments.push(format!("--{name}={value}")),
            }
        }
    }
    arguments.push("--".to_owned());
    arguments.extend(models);
    let matches = ServeFlags::augment_args(Command::new("serve")).try_get_matches_from(arguments);
    let parsed = matches.and_then(|matches| ServeFlags::from_arg_matches(&matches));
    parsed.map_err(|error| {
        let text = error.to_string();
        WrongUsage(text.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_win_over_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("serve.json");
        let file = r#"{"model": "-odd.gguf", "port": 9000, "ctx": 512, "memory": "6G", "cors": ["https://a.example", "https://b.example"],
            "kernels": "default", "log": "json", "type": "q8_0", "lock": false, "share-prefixes": true, "tls-key": null}"#;
        fs::write(&path, file).unwrap();
        let flags = ServeFlags { port: Some(7), insecure: true, config: Some(path.clone()), ..ServeFlags::default() };
        let merged = merged(flags.clone()).unwrap();
        assert_eq!((merged.port, merged.ctx, merged.insecure), (Some(7), Some(512), true));
        assert_eq!((merged.models, merged.kind.as_deref()), (vec!["-odd.gguf".to_owned()], Some("q8_0")));
        assert_eq!((merged.memory.as_deref(), merged.lock, merged.share_prefixes), (Some("6G"), false, true));
        assert_eq!(merged.cors, ["https://a.example", "https://b.example"]);
        for wrong in ["", "[]", r#"{"prot": 9000}"#, r#"{"port": 70000}"#, r#"{"port": "x"}"#, r#"{"queue": 0}"#] {
            fs::write(&path, wrong).unwrap();
            let error = format!("{:#}", super::merged(flags.clone()).unwrap_err());
            assert!(error.contains("serve.json"), "{wrong}: {error}");
        }
    }

    #[test]
    fn options_that_belong_together_may_come_from_both() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("serve.json");
        let problem = |file: &str, arguments: &[&str]| {
            fs::write(&path, file).unwrap();
            let config = ["serve", "--config", path.to_str().unwrap()];
            let matches = ServeFlags::augment_args(Command::new("serve"))
                .try_get_matches_from(config.iter().chain(arguments))
                .unwrap();
            merged(ServeFlags::from_arg_matches(&matches).unwrap()).err().map(|error| error.to_string())
        };
        let refused: [(&str, &[&str], &str); 15] = [
            (r#"{"tls-cert": "a.pem"}"#, &[], "--tls-cert needs --tls-key"),
            (r#"{"tls-key": "a.pem"}"#, &[], "--tls-key needs --tls-cert"),
            ("{}", &["--tls-cert", "a.pem"], "--tls-cert needs --tls-key"),
            (r#"{"no-shadow": true}"#, &[], "--no-shadow needs --fleet"),
            (r#"{"fleet": "all", "replan-seconds": 3}"#, &[], "--replan-seconds needs MODEL"),
            (r#"{"fleet": "all"}"#, &["--type", "q8_0"], "--type cannot be used with --fleet"),
            (r#"{"own-stage": [1], "fleet": "all"}"#, &["a.gguf"], "--own-stage cannot be used with MODEL"),
            (r#"{"memory": "1G"}"#, &["--populate"], "--populate cannot be used with --memory"),
            (r#"{"fleet": "all"}"#, &["--spill", "d"], "--spill cannot be used with --fleet"),
            (r#"{"spill-size": "2G"}"#, &[], "--spill-size needs --spill"),
            ("{}", &["--keep-prefixes"], "--keep-prefixes needs --spill"),
            ("{}", &["--adapter-memory", "1G"], "--adapter-memory needs --adapters"),
            (r#"{"model": "a"}"#, &["--keep-alive", "5m"], "--keep-alive needs several MODELs"),
            (r#"{"model": ["a", "b"]}"#, &["--draft", "c"], "--draft cannot be used with several MODELs"),
            ("{}", &["a", "b", "--fleet", "all"], "--fleet cannot be used with several MODELs"),
        ];
        for (file, arguments, words) in refused {
            let problem = problem(file, arguments).unwrap_or_default();
            assert!(problem.contains(words), "{file} {arguments:?}: {problem}");
        }
        assert_eq!(problem(r#"{"tls-cert": "a.pem"}"#, &["--tls-key", "b.pem"]), None);
        assert_eq!(problem(r#"{"fleet": "all"}"#, &["--no-shadow"]), None);
        assert_eq!(problem(r#"{"spill": "d", "spill-size": "2G"}"#, &["--keep-prefixes"]), None);
        assert_eq!(problem(r#"{"model": ["a", "b"], "keep-alive": "-1"}"#, &[]), None);
        assert_eq!(problem(r#"{"adapters": "d"}"#, &["--adapter-memory", "1G"]), None);
    }
}
