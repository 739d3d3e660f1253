//! `cascadia inspect`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use cascadia::measured_choices;
use cascadia_engine::ModelText;
use cascadia_model::{KvLayout, KvPolicy, ModelSpec, remembered_readings};
use cascadia_weights::{FileKind, MetadataValue, ModelFiles};
use serde_json::{Map, Value, json};

use crate::flags::InspectFlags;
use crate::human::size;
use crate::machine::choices_folder;
use crate::output::{print, print_json};
use crate::source::find;

/// Prints what a model's files say. Works for files that cannot be run here, too.
pub(crate) fn inspect(flags: &InspectFlags) -> anyhow::Result<()> {
    let files = find(&flags.model)?.files()?;
    let object = describe(&files, flags.ctx);
    if flags.json {
        print_json(&object)?;
    } else {
        print(&if flags.verbose { report(&object) } else { summary(&object) })?;
    }
    Ok(())
}

fn describe(files: &ModelFiles, context: Option<u32>) -> Value {
    let mut object = Map::new();
    object.insert("path".into(), json!(files.path()));
    object.insert("kind".into(), json!(kind(files)));
    match ModelSpec::from_files(files) {
        Ok(spec) => {
            object.insert("architecture".into(), json!(spec.architecture));
            object.insert("runs_here".into(), json!(true));
            object.insert("layers".into(), json!(spec.layers.len()));
            object.insert("width".into(), json!(spec.width));
            object.insert("vocabulary".into(), json!(spec.vocabulary));
            object.insert("context".into(), json!(spec.context));
            object.insert("memory".into(), memory(files, &spec, context));
        }
        Err(error) => {
            object.insert("architecture".into(), json!(files.architecture()));
            object.insert("runs_here".into(), json!(false));
            object.insert("reason".into(), json!(error.to_string()));
        }
    }
    object.insert("parameters".into(), json!(files.parameters()));
    object.insert("tensors".into(), json!(files.tensors().len()));
    object.insert("weight_bytes".into(), json!(files.weight_bytes()));
    object.insert("formats".into(), formats(files));
    object.insert("kernels".into(), kernels(files));
    insert_text(&mut object, files);
    object.insert("says".into(), says(files));
    object.insert("shapes".into(), shapes(files));
    Value::Object(object)
}

fn kind(files: &ModelFiles) -> &'static str {
    match files.kind() {
        FileKind::Gguf => "GGUF",
        _ => "Hugging Face",
    }
}

/// The memory that a model needs with a context of this length, or of the longest.
pub(crate) fn memory(files: &ModelFiles, spec: &ModelSpec, context: Option<u32>) -> Value {
    let context = context.unwrap_or(spec.context);
    let (weights, cache) = (files.weight_bytes(), KvLayout::whole(spec, &KvPolicy::default()).sequence_bytes(context));
    json!({
        "context": context,
        "weights_bytes": weights,
        "cache_bytes": cache,
        "total_bytes": weights.saturating_add(cache),
    })
}

fn formats(files: &ModelFiles) -> Value {
    let mut formats: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    for tensor in files.tensors() {
        let entry = formats.entry(tensor.dtype().name()).or_default();
        entry.0 += 1;
        entry.1 += tensor.byte_len();
    }
    let describe = |(name, (tensors, bytes))| (String::from(name), json!({"tensors": tensors, "bytes": bytes}));
    Value::Object(formats.into_iter().map(describe).collect())
}

/// How kernels read each kind of matrix that is worth a measurement, for every number of threads that it was measured
/// with on this machine.
fn kernels(files: &ModelFiles) -> Value {
    let choices = choices_folder().map(|folder| measured_choices(&folder)).unwrap_or_default();
    let mut kinds: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    // A file that does not exist knows none of them.
    for (threads, file) in choices.into_iter().chain([(0, PathBuf::new())]) {
        for (kind, timed) in remembered_readings(files, &file) {
            let measured = kinds.entry(kind.to_string()).or_default();
            measured.extend(timed.map(
                |timed| json!({"threads": threads, "reading": timed.reading.to_string(), "gb_s": timed.speed / 1e9}),
            ));
        }
    }
    json!(kinds)
}

fn insert_text(object: &mut Map<String, Value>, files: &ModelFiles) {
    let (tokenizer, template) = match ModelText::read(files) {
        Ok(text) => {
            let special = text.special();
            let tokenizer = json!({
                "kind": text.tokenizer().kind(),
                "tokens": text.tokenizer().vocabulary_size(),
                "bos": special.bos,
                "eos": special.eos,
                "stop": special.stop,
                "add_bos": special.add_bos,
            });
            (tokenizer, json!(text.template()))
        }
        Err(error) => (json!({"missing": error.to_string()}), Value::Null),
    };
    object.insert("tokenizer".into(), tokenizer);
    object.insert("chat_template".into(), template);
}

/// What the file says about itself, apart from its vocabulary.
fn says(files: &ModelFiles) -> Value {
    if files.kind() != FileKind::Gguf {
        return files.json("config.json").ok().flatten().unwrap_or(Value::Null);
    }
    let entries = files.metadata().entries().iter().filter(|(key, _)| !key.starts_with("tokenizer."));
    Value::Object(entries.map(|(key, value)| (key.clone(), plain(value))).collect())
}

fn plain(value: &MetadataValue) -> Value {
    match value {
        MetadataValue::F32(number) => json!(number),
        MetadataValue::F64(number) => json!(number),
        MetadataValue::Bool(flag) => json!(flag),
        MetadataValue::String(bytes) => json!(String::from_utf8_lossy(bytes)),
        other => match other.as_integer().and_then(|integer| i64::try_from(integer).ok()) {
            Some(integer) => json!(integer),
            None => json!(other.to_string()),
        },
    }
}

fn shapes(files: &ModelFiles) -> Value {
    let describe = |tensor: &cascadia_weights::Tensor| json!({"name": tensor.name(), "dtype": tensor.dtype().name(), "shape": tensor.shape()});
    files.tensors().iter().map(describe).collect()
}

/// What most people want to know, in about ten lines.
fn summary(object: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or("unknown").to_owned();
    let number = |value: &Value| value.as_u64().unwrap_or_default();
    let mut lines = vec![("file", text(&object["path"])), ("kind", text(&object["kind"]))];
    let mut architecture = text(&object["architecture"]);
    if object["runs_here"] == true {
        let [layers, width, vocabulary] = ["layers", "width", "vocabulary"].map(|name| grouped(number(&object[name])));
        architecture += &format!(", {layers} layers of width {width}, vocabulary of {vocabulary}");
    }
    lines.push(("architecture", architecture));
    let formats = object["formats"].as_object().into_iter().flatten();
    let formats = formats.map(|(name, format)| format!("{name} ({})", size(number(&format["bytes"]))));
    let formats = formats.collect::<Vec<_>>().join(", ");
    lines.push(("parameters", format!("{} in {formats}", count(number(&object["parameters"])))));
    if object["runs_here"] == true {
        let memory = &object["memory"];
        let context = grouped(number(&memory["context"]));
        let [weights, cache] = ["weights_bytes", "cache_bytes"].map(|name| size(number(&memory[name])));
        lines.push(("context", format!("{} tokens", grouped(number(&object["context"])))));
        lines.push(("memory", format!("{weights} for weights, {cache} for the KV cache of {context} tokens")));
    }
    let tokenizer = &object["tokenizer"];
    let missing = || format!("none: {}", text(&tokenizer["missing"]));
    lines.push(("tokenizer", tokenizer["kind"].as_str().map_or_else(missing, str::to_owned)));
    let template = if object["chat_template"].is_string() { "yes" } else { "no: it continues texts" };
    lines.push(("chat template", template.to_owned()));
    let runs = if object["runs_here"] == true { "yes".to_owned() } else { format!("no: {}", text(&object["reason"])) };
    lines.push(("runs here", runs));
    let line = |(name, fact): &(&str, String)| format!("{name:<14} {fact}\n");
    lines.iter().map(line).chain(["Everything, and every tensor: --verbose\n".to_owned()]).collect()
}

/// A number with a comma between thousands.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A number of parameters as people say it.
fn count(parameters: u64) -> String {
    match parameters as f64 {
        number if number >= 1e9 => format!("{:.1} billion", number / 1e9),
        number if number >= 1e6 => format!("{:.0} million", number / 1e6),
        _ => grouped(parameters),
    }
}

/// Everything for people: one line per fact, nested facts indented.
fn report(object: &Value) -> String {
    let mut text = String::new();
    for (key, value) in object.as_object().into_iter().flatten() {
        match value {
            Value::Object(facts) => {
                text.push_str(&format!("{key}\n"));
                for (name, fact) in facts {
                    text.push_str(&format!("  {name:<34} {}\n", short(name, fact)));
                }
            }
            Value::Array(shapes) => {
                text.push_str(&format!("{key}\n"));
                for tensor in shapes {
                    let name = tensor["name"].as_str().unwrap_or_default();
                    let dtype = tensor["dtype"].as_str().unwrap_or_default();
                    text.push_str(&format!("  {name:<34} {dtype:<6} {}\n", tensor["shape"]));
                }
            }
            fact => text.push_str(&format!("{key:<36} {}\n", short(key, fact))),
        }
    }
    text
}

fn short(name: &str, fact: &Value) -> String {
    match fact {
        Value::Null => "none".into(),
        Value::String(text) => text.clone(),
        Value::Array(measured) if measured.is_empty() => "not measured on this machine yet".into(),
        Value::Array(measured) if measured.iter().all(|measured| measured["reading"].is_string()) => {
            let one = |measured: &Value| {
                let (reading, speed) = (measured["reading"].as_str(), measured["gb_s"].as_f64());
                let (reading, speed) = (reading.unwrap_or_default(), speed.unwrap_or_default());
                format!("{reading} ({} threads, {speed:.1} GB/s)", measured["threads"])
            };
            measured.iter().map(one).collect::<Vec<_>>().join(", ")
        }
        Value::Number(bytes) if name.ends_with("bytes") => {
            format!("{bytes} ({:.1} MB)", bytes.as_f64().unwrap_or_default() / 1e6)
        }
        other => other.to_string(),
    }
}
