//! Starts the program and collects what it says.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

/// How a run ended.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// Runs the program with nothing on its standard input.
pub(crate) fn cascadia(arguments: &[&str]) -> Done {
    run(Command::new(env!("CARGO_BIN_EXE_cascadia")).args(arguments), "")
}

/// Runs a prepared command with text on its standard input.
pub(crate) fn run(command: &mut Command, input: &str) -> Done {
    let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the program starts");
    // A program that does not read its input may be gone already.
    let _ = child.stdin.take().expect("a pipe").write_all(input.as_bytes());
    let output = child.wait_with_output().expect("the program ends");
    Done {
        code: output.status.code().expect("an exit code, not a signal"),
        stdout: String::from_utf8(output.stdout).expect("UTF-8 on standard output"),
        stderr: String::from_utf8(output.stderr).expect("UTF-8 on standard error"),
    }
}

/// The one JSON object that a successful run printed.
pub(crate) fn json(done: &Done) -> Value {
    assert_eq!(done.code, 0, "{}", done.stderr);
    let value: Value = serde_json::from_str(&done.stdout).expect("one JSON object and nothing else");
    assert!(value.is_object());
    value
}

/// The path of one of the repository's tiny models.
pub(crate) fn fixture(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures").join(name);
    path.to_str().expect("a UTF-8 path").to_owned()
}
