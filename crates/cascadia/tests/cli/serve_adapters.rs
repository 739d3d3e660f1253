//! A server with a folder of adapters.

use std::fs;

use crate::test_fleet::{Running, Server};

#[test]
fn an_adapter_that_cannot_be_used_is_named_at_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let flags = ["--adapters", folder.path().to_str().expect("a UTF-8 path"), "--adapter-memory", "64M"];
    let server = Server::start(&flags);
    assert!(server.get("/v1/adapters").contains("\"data\":[]"));
    assert!(server.get("/status").contains("\"adapters\":{\"count\":0"));
    drop(server);
    fs::create_dir(folder.path().join("pepys")).unwrap();
    let problem = Running::start(&[&["serve", "--port", "0", "--threads", "1"], &flags[..]].concat()).fails();
    assert!(problem.contains("pepys") && problem.contains("adapter_model.safetensors"), "{problem}");
}
