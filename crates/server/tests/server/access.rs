//! Who is let in: keys, hosts, origins, addresses.

use std::net::IpAddr;

use cascadia_server::{Access, KeyEntry, ROUTES, Server, ServerError, ServerOptions, new_key, revoke_key};
use serde_json::json;

use crate::harness::{Running, model};

fn entry(name: &str) -> KeyEntry {
    KeyEntry { name: name.to_owned(), ..KeyEntry::default() }
}

#[test]
fn without_a_key_only_open_routes_answer() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("keys.json");
    let key = new_key(&path, KeyEntry { max_tokens: Some(4), admin: true, ..entry("anna") }).unwrap();
    let server = Running::start(ServerOptions { keys: Some(path), ..ServerOptions::default() });
    let (bearer, wrong) = (format!("Bearer {key}"), format!("Bearer {key}0"));
    for route in ROUTES {
        let path = route.path.replace("{id}", "default").replace("{*file}", "app.js").replace("{name}", "nobody");
        let head = format!("{} {path}", route.method);
        let expected = if route.access == Access::Open { 200 } else { 401 };
        for headers in [&[][..], &[("authorization", wrong.as_str())], &[("x-api-key", "csk-")]] {
            assert_eq!(server.request(&head, headers, b"{}").status, expected, "{head} {headers:?}");
        }
        for headers in [[("authorization", bearer.as_str())], [("x-api-key", key.as_str())]] {
            let reply = server.request(&head, &headers, b"{}");
            let known = match route.method {
                "DELETE" => [404, 404],
                // There is no response of this name.
                _ if route.path == "/v1/responses/{id}" => [404, 404],
                _ if route.body.is_some() => [200, 400],
                _ => [200, 200],
            };
            assert!(known.contains(&reply.status), "{head}: {} {}", reply.status, reply.text());
        }
    }
    let open: Vec<&str> = ROUTES.iter().filter(|route| route.access == Access::Open).map(|route| route.path).collect();
    assert_eq!(open, ["/livez", "/", "/page/{*file}"], "a new open route needs a reason");
    for path in
        ["/nothing", "/page/nothing.js", "/page/../status", "/v1", "/livez/", "//livez", "/%6civez", "/v1/../livez"]
    {
        assert_eq!(server.get(path).status, 401, "{path}");
    }
    let ask = |tokens: u32| {
        let body = json!({"prompt": "a", "max_tokens": tokens}).to_string();
        server.request("POST /v1/completions", &[("authorization", bearer.as_str())], body.as_bytes()).status
    };
    assert_eq!((ask(4), ask(5)), (200, 400), "the key's limit holds");
    let shape = server.request("POST /v1/messages", &[], b"{}").json();
    assert_eq!(shape["error"]["type"], "authentication_error");
}

#[test]
fn a_key_has_a_limit_on_requests() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("keys.json");
    let key = new_key(&path, KeyEntry { max_requests: Some(1), ..entry("anna") }).unwrap();
    let other = new_key(&path, entry("ben")).unwrap();
    let (server, _brake) = Running::braked(ServerOptions { keys: Some(path), ..ServerOptions::default() });
    let (bearer, other) = (format!("Bearer {key}"), format!("Bearer {other}"));
    // A stream holds its place until it ends, which this one cannot.
    let body = r#"{"prompt": "a", "max_tokens": 900, "stream": true}"#;
    let mut stream = server.connect();
    let head = format!(
        "POST /v1/completions HTTP/1.1\r\nhost: x\r\nauthorization: {bearer}\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    std::io::Write::write_all(&mut stream, head.as_bytes()).unwrap();
    std::io::Read::read_exact(&mut stream, &mut [0; 64]).unwrap();
    let reply = server.request("GET /health", &[("authorization", bearer.as_str())], b"");
    assert_eq!((reply.status, reply.header("retry-after")), (429, Some("1")), "{}", reply.text());
    assert_eq!(server.request("GET /health", &[("authorization", other.as_str())], b"").status, 200);
    drop(stream);
}

#[test]
fn other_machines_need_keys_over_tls() {
    let host: IpAddr = "0.0.0.0".parse().unwrap();
    let exposed = ServerOptions { host, port: 0, ..ServerOptions::default() };
    assert!(matches!(Server::bind(model(32), &exposed), Err(ServerError::Exposed { .. })));
    assert!(Server::bind(model(32), &ServerOptions { insecure: true, ..exposed.clone() }).is_ok());
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("keys.json");
    let plain = ServerOptions { keys: Some(path.clone()), ..exposed.clone() };
    assert!(matches!(Server::bind(model(32), &plain), Err(ServerError::PlainText { .. })));
    let trusted_network = ServerOptions { insecure: true, ..plain.clone() };
    assert!(matches!(Server::bind(model(32), &trusted_network), Err(ServerError::File { .. })), "no key file yet");
    new_key(&path, entry("anna")).unwrap();
    assert!(matches!(Server::bind(model(32), &plain), Err(ServerError::PlainText { .. })));
    assert!(Server::bind(model(32), &trusted_network).is_ok());
    let local = ServerOptions { host: IpAddr::from([127, 0, 0, 1]), ..plain };
    assert!(Server::bind(model(32), &local).is_ok(), "nobody reads the way from this machine to itself");
}

#[test]
fn other_hosts_and_origins_are_refused() {
    let server = Running::shared();
    for host in ["evil.example", "evil.example:8080", "localhost.evil.example", "192.168.0.1"] {
        assert_eq!(server.request("GET /health", &[("host", host)], b"").status, 403, "{host}");
    }
    for host in ["localhost:8080", "127.0.0.1:1", "[::1]:8080"] {
        assert_eq!(server.request("GET /health", &[("host", host)], b"").status, 200, "{host}");
    }
    for origin in ["https://evil.example", "null", "http://localhost:3000"] {
        let reply = server.request("POST /tokenize", &[("origin", origin)], br#"{"prompt": "a"}"#);
        assert_eq!((reply.status, reply.header("access-control-allow-origin")), (403, None), "{origin}");
    }
    assert_eq!(server.request("POST /tokenize", &[("origin", "http://localhost")], br#"{"prompt": "a"}"#).status, 200);
    let origins = vec!["https://chat.example".to_owned()];
    let open = Running::start(ServerOptions { origins, ..ServerOptions::default() });
    let from = [("origin", "https://chat.example")];
    let reply = open.request("POST /tokenize", &from, br#"{"prompt": "a"}"#);
    assert_eq!((reply.status, reply.header("access-control-allow-origin")), (200, Some("https://chat.example")));
    assert_eq!(open.request("OPTIONS /tokenize", &from, b"").status, 204);
    assert_eq!(open.request("OPTIONS /tokenize", &[("origin", "https://evil.example")], b"").status, 403);
}

#[test]
fn keys_come_and_go_without_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("keys.json");
    let [anna, ben] = ["anna", "ben"].map(|name| format!("Bearer {}", new_key(&path, entry(name)).unwrap()));
    let server = Running::start(ServerOptions { keys: Some(path.clone()), ..ServerOptions::default() });
    let status = |key: &str| server.request("GET /status", &[("authorization", key)], b"").status;
    assert_eq!((status(&anna), status(&ben)), (200, 200));
    revoke_key(&path, "anna").unwrap();
    assert_eq!((status(&anna), status(&ben)), (401, 200));
    let carl = format!("Bearer {}", new_key(&path, entry("carl")).unwrap());
    assert_eq!((status(&anna), status(&carl)), (401, 200));
}
