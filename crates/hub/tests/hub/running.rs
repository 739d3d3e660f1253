//! What a server says that it has loaded.

use cascadia_hub::{RunningModel, running};

use crate::hub_server::{HubServer, Repository};
use crate::store::{Machine, NOWHERE};

#[test]
fn servers_are_asked_in_the_way_that_they_know() {
    let check = |answers: &[(&'static str, &'static str)], expected: &[RunningModel]| {
        let server = HubServer::start(Repository { answers: answers.to_vec(), ..Repository::default() });
        let options = Machine::new(&server.endpoint).store.hub;
        assert_eq!(running(&options).unwrap(), expected);
    };
    let model = |name: &str| RunningModel { name: name.to_owned(), bytes: None, context: None, expires: None };
    let loaded = r#"{"models": [{"name": "a", "size": 12, "context_length": 4096, "expires_at": "2026-11-19T08:00:00Z"}, {"size": 1}]}"#;
    let expires = Some("2026-11-19T08:00:00Z".to_owned());
    check(&[("/api/ps", loaded)], &[RunningModel { bytes: Some(12), context: Some(4096), expires, ..model("a") }]);
    check(&[("/api/ps", r#"{"models": []}"#)], &[]);
    check(&[("/v1/models", r#"{"data": [{"id": "a"}, {"id": "a:b"}]}"#)], &[model("a"), model("a:b")]);
    check(&[("/v1/models", "3")], &[]);
}

#[test]
fn servers_that_do_not_answer_are_named() {
    let check = |endpoint: &str, part: &str| {
        let message = running(&Machine::new(endpoint).store.hub).unwrap_err().to_string();
        assert!(
            message.contains(endpoint) && message.contains(part) && message.contains("cascadia serve"),
            "{message}"
        );
    };
    check(NOWHERE, "transfer failed");
    check(&HubServer::start(Repository { status: Some(401), ..Repository::default() }).endpoint, "authentication");
    check(&HubServer::start(Repository::default()).endpoint, "404");
}
