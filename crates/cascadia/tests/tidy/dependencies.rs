//! Rules about what the crates depend on: layers, banned crates, licences, sources.

use std::collections::HashMap;
use std::process::Command;

use crate::source::{SourceFile, root};

/// Which crates of the workspace each crate may use; ARCHITECTURE.md has the same table with the reasons.
const LAYERS: [(&str, &[&str]); 12] = [
    ("kernels", &[]),
    ("text", &[]),
    ("weights", &["kernels"]),
    ("hub", &["weights"]),
    ("model", &["kernels", "weights"]),
    ("engine", &["kernels", "weights", "model", "text"]),
    ("fleet", &["kernels", "weights", "model"]),
    ("quantize", &["kernels", "weights", "model", "engine", "text"]),
    ("eval", &["kernels", "weights", "model", "engine", "text"]),
    ("server", &["engine", "text"]),
    ("coordinator", &["kernels", "weights", "model", "engine", "quantize", "fleet"]),
    (
        "cascadia",
        &["kernels", "weights", "hub", "model", "text", "engine", "fleet", "coordinator", "quantize", "eval", "server"],
    ),
];

/// External crates that only the named crates may use directly.
const CONFINED: [(&str, &[&str]); 4] = [
    ("anyhow", &["cascadia"]),
    ("clap", &["cascadia"]),
    ("memmap2", &["weights", "model"]),
    ("ureq", &["hub", "eval"]),
];

/// A crate uses only crates of the layers below it.
pub(crate) fn layers(files: &[SourceFile]) -> Vec<String> {
    let mut problems = Vec::new();
    for file in files.iter().filter(|file| file.path.starts_with("crates/") && file.path.ends_with("/Cargo.toml")) {
        let folder = file.path.split('/').nth(1).expect("a manifest lies in a crate");
        let Some((_, allowed)) = LAYERS.iter().find(|(name, _)| *name == folder) else {
            problems.push(format!("{}: crate is missing from the table of layers in this test", file.path));
            continue;
        };
        for used in direct_dependencies(&file.text) {
            if let Some(used) = used.strip_prefix("cascadia-").filter(|used| !allowed.contains(used)) {
                problems.push(format!("{}: may not use {used}; it may use {allowed:?}", file.path));
            }
            if CONFINED.iter().any(|(name, crates)| *name == used && !crates.contains(&folder)) {
                problems.push(format!("{}: {used} belongs to another crate, see CONFINED in this test", file.path));
            }
        }
    }
    problems
}

/// Names under every `[…dependencies]` heading that is not for tests.
fn direct_dependencies(manifest: &str) -> Vec<&str> {
    let (mut names, mut wanted) = (Vec::new(), false);
    for line in manifest.lines() {
        if line.starts_with('[') {
            wanted = line.ends_with("dependencies]") && !line.contains("dev-dependencies");
        } else if wanted && line.starts_with(|c: char| c.is_alphabetic()) {
            names.extend(line.split(['.', ' ', '=']).next());
        }
    }
    names
}

/// Features and examples of the library, each of which `check.sh` must build or run.
pub(crate) fn features(files: &[SourceFile]) -> Vec<String> {
    let text = |path: &str| &files.iter().find(|file| file.path == path).expect("the file is there").text;
    let (manifest, script) = (text("crates/cascadia/Cargo.toml"), text("check.sh"));
    let loop_over = |variable: &str| {
        let line = script.lines().find(|line| line.trim_start().starts_with(&format!("for {variable} in ")));
        let words = line.unwrap_or_default().split_whitespace().skip(3);
        words.map(|word| word.trim_matches(';')).collect::<Vec<&str>>()
    };
    let section = manifest.lines().skip_while(|line| *line != "[features]").skip(1);
    let section = section.take_while(|line| !line.starts_with('['));
    let declared = section.filter(|line| line.starts_with(|c: char| c.is_alphabetic()));
    let declared = declared.filter_map(|line| line.split_once(" = ")).map(|(name, _)| name);
    let examples = files.iter().filter_map(|file| file.path.strip_prefix("crates/cascadia/examples/"));
    let examples = examples.filter_map(|file| file.strip_suffix(".rs"));
    let (checked, run) = (loop_over("feature"), loop_over("example"));
    let unchecked = declared.filter(|name| *name != "default" && !checked.contains(name));
    let unchecked = unchecked.map(|name| format!("feature {name} is not in the loop of check.sh"));
    let not_run = examples.filter(|name| !run.contains(name));
    unchecked.chain(not_run.map(|name| format!("example {name} is not in the loop of check.sh"))).collect()
}

/// What `cargo deny check licenses bans sources` says, for machines without that tool: both read `deny.toml`.
pub(crate) fn packages() -> Vec<String> {
    let policy = std::fs::read_to_string(root().join("deny.toml")).expect("deny.toml can be read");
    let licences: Vec<&str> = list(&policy, "allow = [").into_iter().flatten().collect();
    let (exceptions, banned) = (list(&policy, "exceptions = ["), list(&policy, "deny = ["));
    assert!(!licences.is_empty() && !banned.is_empty(), "deny.toml has no allow or no deny list");
    let metadata = metadata();
    let mut problems = Vec::new();
    for package in metadata["packages"].as_array().expect("cargo metadata lists packages") {
        let name = package["name"].as_str().expect("a package has a name");
        let licence = package["license"].as_str().unwrap_or("none");
        let exception =
            exceptions.iter().filter(|exception| exception[0] == name).flat_map(|exception| &exception[1..]);
        if !is_allowed(licence, &licences.iter().chain(exception).copied().collect::<Vec<&str>>()) {
            problems.push(format!("{name}: licence {licence} is not in deny.toml"));
        }
        let source = package["source"].as_str();
        if source.is_some_and(|source| source != "registry+https://github.com/rust-lang/crates.io-index") {
            problems.push(format!("{name}: comes from {}, not from crates.io", source.unwrap_or_default()));
        }
    }
    for (user, used) in edges(&metadata) {
        // An entry is the name, the wrappers that may use it, and the reason.
        let entry = banned.iter().find(|entry| entry[0] == used);
        if entry.is_some_and(|entry| !entry[1..entry.len() - 1].contains(&user)) {
            problems.push(format!("{used}: banned by deny.toml and used by {user}"));
        }
    }
    problems
}

/// Who uses whom, by name, over the whole lock file.
fn edges(metadata: &serde_json::Value) -> Vec<(&str, &str)> {
    let packages = metadata["packages"].as_array().into_iter().flatten();
    let names: HashMap<&str, &str> = packages.filter_map(|p| Some((p["id"].as_str()?, p["name"].as_str()?))).collect();
    let mut edges = Vec::new();
    for node in metadata["resolve"]["nodes"].as_array().expect("cargo metadata resolves the graph") {
        let user = names[node["id"].as_str().expect("a node has an id")];
        let used = node["dependencies"].as_array().expect("a node lists what it uses").iter();
        edges.extend(used.filter_map(|id| Some((user, names[id.as_str()?]))));
    }
    edges
}

fn metadata() -> serde_json::Value {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--locked", "--format-version", "1"])
        .current_dir(root())
        .output()
        .expect("cargo can be started");
    assert!(output.status.success(), "cargo metadata failed: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("cargo metadata prints JSON")
}

/// The strings of each line of a TOML list that is written one entry per line.
fn list<'a>(policy: &'a str, opening: &str) -> Vec<Vec<&'a str>> {
    let lines = policy.lines().skip_while(|line| *line != opening).skip(1).take_while(|line| *line != "]");
    lines.map(|line| line.split('"').skip(1).step_by(2).collect()).collect()
}

/// Every part joined by AND needs one allowed alternative.
fn is_allowed(expression: &str, licences: &[&str]) -> bool {
    let expression = expression.replace(['(', ')'], "").replace('/', " OR ");
    let mut parts = expression.split(" AND ");
    parts.all(|part| part.split(" OR ").any(|licence| licences.contains(&licence.trim())))
}

#[test]
fn licence_expressions() {
    let check = |expression: &str, expected: bool| {
        assert_eq!(is_allowed(expression, &["MIT", "Unicode-3.0"]), expected, "{expression}");
    };
    check("MIT", true);
    check("MIT/Apache-2.0", true);
    check("GPL-3.0 OR MIT", true);
    check("(MIT OR Apache-2.0) AND Unicode-3.0", true);
    check("MIT AND GPL-3.0", false);
    check("GPL-3.0", false);
    check("none", false);
}
