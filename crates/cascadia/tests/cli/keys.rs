//! API keys are made, listed and revoked.

use serde_json::json;

use crate::program::{self, cascadia};

#[test]
fn keys_are_listed_by_name_until_they_are_revoked() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("keys.json");
    let file = file.to_str().unwrap();
    let keys = |arguments: &[&str]| cascadia(&[&["keys"], arguments, &["--file", file]].concat());
    let secret = keys(&["new", "--name", "anna", "--max-requests", "4"]).stdout;
    assert_eq!(keys(&["new", "--name", "ben", "--tenant", "team", "--priority", "low"]).code, 0);
    let listed = program::json(&keys(&["list", "--json"]));
    let anna = json!({"name": "anna", "tenant": "anna", "priority": null, "max_requests": 4, "max_tokens": null});
    let ben = json!({"name": "ben", "tenant": "team", "priority": "low", "max_requests": null, "max_tokens": null});
    assert_eq!(listed["keys"], json!([anna, ben]));
    let table = keys(&["list"]).stdout;
    assert!(table.contains("team") && !table.contains(secret.trim()), "{table}");
    assert_eq!(keys(&["revoke", "anna"]).code, 0);
    assert_eq!(program::json(&keys(&["list", "--json"]))["keys"], json!([ben]));
    let again = keys(&["revoke", "anna"]);
    assert!(again.code == 1 && again.stderr.contains("keys list"), "{}", again.stderr);
}
