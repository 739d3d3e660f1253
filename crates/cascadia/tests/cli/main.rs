//! The real program: help, exit codes, messages, JSON, determinism.

mod adapters;
#[cfg(unix)]
mod audit;
mod bad_input;
mod disk;
mod evaluate;
mod fleet;
mod hub;
#[path = "../../../hub/tests/hub/hub_server.rs"]
mod hub_server;
mod kernels;
mod keys;
mod live;
mod measure;
mod on_open;
mod overwrite;
#[cfg(target_os = "linux")]
mod owner;
mod planning;
mod program;
mod replan;
mod resume;
mod run;
mod serve_adapters;
#[cfg(unix)]
mod spill;
mod store;
mod test_fleet;
mod tokenize;

use program::{cascadia, json};

#[test]
fn every_command_has_help_with_an_example() {
    let commands: [&[&str]; 42] = [
        &[],
        &["run"],
        &["pull"],
        &["list"],
        &["show"],
        &["rm"],
        &["ps"],
        &["embed"],
        &["rerank"],
        &["inspect"],
        &["eval", "perplexity"],
        &["eval", "logits"],
        &["eval", "latency"],
        &["eval", "memory"],
        &["eval", "drift"],
        &["eval", "accumulation"],
        &["eval", "compare"],
        &["bench"],
        &["bench", "serve"],
        &["bench", "chaos"],
        &["quantize"],
        &["adapter", "inspect"],
        &["adapter", "merge"],
        &["tokenize"],
        &["serve"],
        &["keys", "new"],
        &["keys", "list"],
        &["keys", "revoke"],
        &["export"],
        &["plan"],
        &["fleet", "init"],
        &["fleet", "push"],
        &["fleet", "status"],
        &["fleet", "revoke"],
        &["join"],
        &["leave"],
        &["worker", "start"],
        &["worker", "head"],
        &["worker", "limits"],
        &["audit", "verify"],
        &["audit", "show"],
        &["help", "run"],
    ];
    for command in commands {
        let mut arguments = command.to_vec();
        if command.first() != Some(&"help") {
            arguments.push("--help");
        }
        let done = cascadia(&arguments);
        assert_eq!(done.code, 0, "{arguments:?}: {}", done.stderr);
        assert!(done.stdout.contains("Example"), "{arguments:?}: {}", done.stdout);
        assert!(done.stdout.contains("cascadia "), "{arguments:?}");
        assert!(done.stderr.is_empty(), "{arguments:?}: {}", done.stderr);
    }
}

/// Commands with flags that scripts of users may rely on.
const FLAGS: [(&[&str], &[&str]); 23] = [
    (&["pull"], &["<MODEL>"]),
    (&["list"], &["--catalogue", "--json"]),
    (&["show"], &["<MODEL>", "--json"]),
    (&["rm"], &["<MODELS>...", "--force"]),
    (&["ps"], &["--url", "--key", "--json"]),
    (
        &["run"],
        &[
            "--prompt",
            "-p",
            "-n",
            "--temp",
            "--top-p",
            "--seed",
            "--system",
            "--raw",
            "--json",
            "--adapter",
            "--offline",
        ],
    ),
    (&["embed"], &["--input", "--out", "--prompt-name", "--truncate", "--dimensions", "--ctx"]),
    (&["rerank"], &["--query", "--input", "--top-n", "--truncate"]),
    (&["inspect"], &["--ctx", "--json"]),
    (&["eval", "perplexity"], &["--text", "--windows", "--window", "--adapter", "--json"]),
    (&["eval", "logits"], &["--tokens", "--out", "--adapter"]),
    (&["eval", "latency"], &["--contexts", "--users", "--kv", "--json", "--out", "--html"]),
    (&["eval", "memory"], &["--context", "--kv", "--json", "--out", "--html"]),
    (&["eval", "drift"], &["--text", "--kv", "--contexts", "--speed", "--json", "--out", "--html"]),
    (&["eval", "accumulation"], &["--text", "--kv", "--refresh", "--json", "--out", "--html"]),
    (&["eval", "compare"], &["--tolerance", "--json", "--out", "--html"]),
    (&["bench"], &["--prompt", "--gen", "--depth", "--threads", "--repeat", "--adapter", "--json"]),
    (&["bench", "serve"], &["--clients", "--rate", "--duration", "--cancel", "--slow-readers", "--tenants", "--json"]),
    (&["quantize"], &["--type"]),
    (&["adapter", "merge"], &["--type", "--force", "--json"]),
    (&["tokenize"], &["--prompt", "--plain", "--no-bos", "--template", "--json"]),
    (
        &["serve"],
        &[
            "--host",
            "--port",
            "--ctx",
            "--memory",
            "--spill",
            "--spill-size",
            "--keep-prefixes",
            "--adapters",
            "--adapter-memory",
            "--queue",
            "--keys",
            "--tls-cert",
            "--tls-key",
            "--config",
        ],
    ),
    (
        &["keys", "new"],
        &["--file", "--name", "--tenant", "--priority", "--max-requests", "--max-tokens", "--adapters", "--admin"],
    ),
];

#[test]
fn the_contract_of_names_is_kept() {
    for (command, names) in FLAGS {
        let help = cascadia(&[command, &["--help"]].concat()).stdout;
        for name in names {
            assert!(help.contains(name), "{command:?} lacks {name}");
        }
    }
}

#[test]
fn the_version_is_that_of_the_package() {
    let done = cascadia(&["--version"]);
    assert_eq!((done.code, done.stdout.trim()), (0, concat!("cascadia ", env!("CARGO_PKG_VERSION"))));
}

#[test]
fn inspect_tells_what_a_model_is() {
    for name in ["llama3", "llama3-gguf/model.gguf", "qwen2"] {
        let path = program::fixture(name);
        let object = json(&cascadia(&["inspect", &path, "--ctx", "100", "--json"]));
        assert_eq!(object["runs_here"], true, "{object}");
        assert_eq!(object["vocabulary"], 288);
        assert_eq!(object["memory"]["context"], 100);
        assert!(object["memory"]["cache_bytes"].as_u64().unwrap() > 0);
        assert_eq!(object["tokenizer"]["bos"], 285);
        assert!(object["formats"].as_object().is_some_and(|formats| !formats.is_empty()));
        let report = cascadia(&["inspect", &path]);
        assert_eq!(report.code, 0);
        assert!(report.stdout.contains("architecture") && report.stdout.contains("288"), "{}", report.stdout);
    }
}

#[test]
fn inspect_reads_files_that_cannot_run_here() {
    let folder = tempfile::tempdir().unwrap();
    let source = std::fs::read(program::fixture("llama3-gguf/model.gguf")).unwrap();
    // The architecture's name, after its key and the type and length of a string, replaced by one of equal length.
    let key = b"general.architecture";
    let at = source.windows(key.len()).position(|window| window == key).unwrap() + key.len() + 4 + 8;
    let mut other = source.clone();
    other[at..at + 5].copy_from_slice(b"alien");
    let path = folder.path().join("alien.gguf");
    std::fs::write(&path, other).unwrap();
    let path = path.to_str().unwrap();
    let object = json(&cascadia(&["inspect", path, "--json"]));
    assert_eq!((&object["architecture"], &object["runs_here"]), (&"alien".into(), &false.into()));
    assert!(object["reason"].as_str().unwrap().contains("alien"));
    let done = cascadia(&["run", path, "-p", "x"]);
    assert_eq!(done.code, 1);
    assert!(done.stderr.contains("alien") && done.stderr.contains("alien.gguf"), "{}", done.stderr);
}
