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
    assert_eq!(keys(&["new", "--name", "ben", "--tenant", "team", "--priority", "low", "--admin"]).code, 0);
    assert_eq!(keys(&["new", "--name", "carl", "--adapters", "pepys,rust"]).code, 0);
    let listed = program::json(&keys(&["list", "--json"]));
    let anna = json!({"name": "anna", "tenant": "anna", "priority": null, "max_requests": 4, "max_tokens": null,
                      "adapters": null, "admin": false});
    let ben = json!({"name": "ben", "tenant": "team", "priority": "low", "max_requests": null, "max_tokens": null,
                     "adapters": null, "admin": true});
    let carl = json!({"name": "carl", "tenant": "carl", "priority": null, "max_requests": null, "max_tokens": null,
                      "adapters": ["pepys", "rust"], "admin": false});
    assert_eq!(listed["keys"], json!([anna, ben, carl]));
    let table = keys(&["list"]).stdout;
    assert!(table.contains("team") && table.contains("pepys,rust") && !table.contains(secret.trim()), "{table}");
    assert_eq!(keys(&["revoke", "anna"]).code, 0);
    assert_eq!(program::json(&keys(&["list", "--json"]))["keys"], json!([ben, carl]));
    let again = keys(&["revoke", "anna"]);
    assert!(again.code == 1 && again.stderr.contains("keys list"), "{}", again.stderr);
}
