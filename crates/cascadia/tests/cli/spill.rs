//! A server with a disk below its KV cache.

use crate::test_fleet::{Running, Server};

fn counted(server: &Server, name: &str) -> f64 {
    let text = server.get("/metrics");
    let line = text.lines().find_map(|line| line.strip_prefix(&format!("cascadia_{name} ")));
    line.and_then(|number| number.parse().ok()).unwrap_or_else(|| panic!("no {name} in {text}"))
}

#[test]
fn a_prompt_is_not_computed_again_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("spill");
    let flags = ["--spill", path.to_str().expect("a UTF-8 path"), "--spill-size", "64M", "--keep-prefixes"];
    let prompt = "A ship left the bay at night, and the wind was from the west. ".repeat(20);
    let expected = Server::start(&[]).complete(&prompt, 8);
    let first = Server::start(&flags);
    assert_eq!(first.complete(&prompt, 8), expected);
    assert_eq!(counted(&first, "spill_restored_total"), 0.0);
    let other = Running::start(&[&["serve", "--port", "0", "--threads", "1"], &flags[..]].concat()).fails();
    assert!(other.contains("another server uses it"), "{other}");
    first.running.signal("TERM");
    first.running.succeeds();
    let second = Server::start(&flags);
    assert_eq!(second.complete(&prompt, 8), expected);
    assert!(counted(&second, "spill_restored_total") > 0.0);
    assert!(counted(&second, "prefix_tokens_total") >= 64.0);
    assert_eq!(counted(&second, "spill_on"), 1.0);
    assert!(second.get("/status").contains("\"spill_damaged_total\":0"));
}
