//! Requests to the hub: they time out, and only the hub sees the token.

use std::time::Duration;

use serde_json::Value;
use ureq::http::{Response, StatusCode, header};
use ureq::{Agent, Body};

use crate::HubOptions;
use crate::explain::Failure;

/// Redirects that one request may take.
const MAX_REDIRECTS: usize = 8;

/// How long to wait for a connection at most: beyond it, another source is more likely to answer.
const MAX_CONNECT: Duration = Duration::from_secs(10);

/// Largest answer that is read whole: the list of files of a repository.
const MAX_JSON_LEN: u64 = 16 * 1024 * 1024;

/// A connection to one hub.
pub(crate) struct Client<'a> {
    agent: Agent,
    options: &'a HubOptions,
}

/// What a request is for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum RequestKind {
    /// Everything.
    All,
    /// The content from this byte on.
    From(u64),
    /// What the hub itself says about it: a redirect to somewhere else is an answer.
    Properties,
}

impl<'a> Client<'a> {
    pub(crate) fn new(options: &'a HubOptions) -> Client<'a> {
        let connect = options.timeout.min(MAX_CONNECT);
        let config = Agent::config_builder()
            .user_agent(concat!("cascadia/", env!("CARGO_PKG_VERSION")))
            // Sizes and ranges count bytes of the file, not of a compressed form of it.
            .accept_encoding("identity")
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .timeout_resolve(Some(connect))
            .timeout_connect(Some(connect))
            .timeout_recv_response(Some(options.timeout))
            .timeout_per_read(Some(options.timeout))
            .timeout_per_write(Some(options.timeout))
            .build();
        Client { agent: config.new_agent(), options }
    }

    /// The address of `path` on this hub.
    pub(crate) fn address(&self, path: &str) -> String {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte);
        let mut address = format!("{}/", self.options.endpoint.trim_end_matches('/'));
        for byte in path.bytes() {
            match is_plain(byte) {
                true => address.push(char::from(byte)),
                false => address.push_str(&format!("%{byte:02X}")),
            }
        }
        address
    }

    /// The JSON value at `address`.
    pub(crate) fn json(&self, address: &str) -> Result<Value, Failure> {
        let mut answer = self.send(address, RequestKind::All)?;
        let text = answer.body_mut().with_config().limit(MAX_JSON_LEN).read_to_vec()?;
        serde_json::from_slice(&text).map_err(|error| Failure::Invalid(error.to_string()))
    }

    /// Asks for `address`, and for wherever that leads.
    pub(crate) fn send(&self, address: &str, kind: RequestKind) -> Result<Response<Body>, Failure> {
        let mut address = address.to_owned();
        for _ in 0..=MAX_REDIRECTS {
            let answer = self.send_once(&address, kind)?;
            let status = answer.status();
            if status.is_success() {
                return Ok(answer);
            }
            if !is_redirect(status) {
                return Err(Failure::Status(status.as_u16()));
            }
            let next = answer.headers().get(header::LOCATION).and_then(|place| place.to_str().ok());
            let next = next.and_then(|place| join(&address, place));
            let next = next.ok_or_else(|| Failure::Invalid("it redirects to nowhere".to_owned()))?;
            if kind == RequestKind::Properties && !self.is_own(&next) {
                return Ok(answer);
            }
            if address.starts_with("https://") && !next.starts_with("https://") {
                return Err(Failure::Invalid(format!("it redirects to `{}` without encryption", origin(&next))));
            }
            address = next;
        }
        Err(Failure::Invalid(format!("it redirects more than {MAX_REDIRECTS} times")))
    }

    fn send_once(&self, address: &str, kind: RequestKind) -> Result<Response<Body>, Failure> {
        let mut request = match kind {
            RequestKind::Properties => self.agent.head(address),
            RequestKind::All | RequestKind::From(_) => self.agent.get(address),
        };
        if let RequestKind::From(start) = kind {
            request = request.header(header::RANGE, format!("bytes={start}-"));
        }
        if let Some(token) = self.options.token.as_ref().filter(|_| self.is_own(address)) {
            request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
        }
        Ok(request.call()?)
    }

    /// Whether an address is on the hub itself.
    fn is_own(&self, address: &str) -> bool {
        origin(address).eq_ignore_ascii_case(origin(&self.options.endpoint))
    }
}

fn is_redirect(status: StatusCode) -> bool {
    matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308)
}

/// Scheme, host and port of an address: all before the path.
fn origin(address: &str) -> &str {
    let host = address.find("://").map_or(0, |scheme| scheme + 3);
    let end = address[host..].find(['/', '?', '#']).map_or(address.len(), |length| host + length);
    &address[..end]
}

/// The address that `place` stands for in an answer from `address`.
fn join(address: &str, place: &str) -> Option<String> {
    if place.starts_with("https://") || place.starts_with("http://") {
        return Some(place.to_owned());
    }
    if place.starts_with("//") {
        let (scheme, _) = address.split_once("//")?;
        return Some(format!("{scheme}{place}"));
    }
    place.starts_with('/').then(|| format!("{}{place}", origin(address)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_joined_and_origins_compared() {
        let from = "https://hub.example:8443/org/name?x=/y";
        assert_eq!(origin(from), "https://hub.example:8443");
        assert_eq!(origin("https://hub.example"), "https://hub.example");
        assert_eq!(origin("https://hub.example@evil.example/a"), "https://hub.example@evil.example");
        for (place, expected) in [
            ("/a/b", Some("https://hub.example:8443/a/b")),
            ("//cdn.example/a", Some("https://cdn.example/a")),
            ("http://cdn.example/a", Some("http://cdn.example/a")),
            ("a/b", None),
            ("file:///etc/passwd", None),
            ("", None),
        ] {
            assert_eq!(join(from, place).as_deref(), expected, "{place}");
        }
    }
}
