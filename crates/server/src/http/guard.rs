//! The outermost layer: request ids, keys, hosts, origins, the shape of errors, the request log.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use cascadia_engine::service::{Priority, Tenant};
use tokio::sync::OwnedSemaphorePermit;

use crate::answer::jobs::JobNumbers;
use crate::app::App;
use crate::error::{ApiError, ErrorKind, ErrorShape};
use crate::http::held::holding;
use crate::model::frontend::Caller;
use crate::observe::traces::{Parent, Span};
use crate::routes;

const REQUEST_ID: &str = "x-request-id";

/// Any client, where there are no keys.
const ANYBODY: Caller = Caller {
    tenant: Tenant(0),
    priority: Priority::Normal,
    may_raise: true,
    max_tokens: None,
    adapters: None,
    is_admin: false,
};

/// Admits or refuses a request, and finishes its response.
pub(crate) async fn guard(State(app): State<Arc<App>>, mut request: Request, next: Next) -> Response {
    let mut log = Log::begin(&app, &request);
    let origin = request.headers().get(header::ORIGIN).cloned();
    let admitted = admit(&app, &request);
    let is_in = admitted.is_ok();
    let mut response = match admitted {
        Err(error) => error.into_response(),
        // A browser's preflight request.
        Ok(_) if *request.method() == Method::OPTIONS && origin.is_some() => preflight_response(),
        Ok(admitted) => {
            request.extensions_mut().insert(admitted.caller);
            (log.name, log.permit) = (admitted.name, admitted.permit);
            next.run(request).await
        }
    };
    if let Some(error) = response.extensions_mut().remove::<ApiError>() {
        let extra = std::mem::take(response.headers_mut());
        response = error.respond(ErrorShape::of_path(&log.path));
        response.headers_mut().extend(extra);
    }
    log.jobs = response.extensions_mut().remove();
    let headers = response.headers_mut();
    if let Ok(id) = HeaderValue::from_str(&log.id) {
        headers.insert(REQUEST_ID, id);
    }
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    if let Some(origin) = origin.filter(|_| is_in && !app.origins.is_empty()) {
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        headers.insert(header::VARY, HeaderValue::from_static("origin"));
    }
    app.metrics.responded(response.status());
    log.status = Some(response.status());
    holding(response, log)
}

/// Whose request was admitted.
struct Admitted {
    caller: Caller,
    name: String,
    permit: Option<OwnedSemaphorePermit>,
}

fn admit(app: &App, request: &Request) -> Result<Admitted, ApiError> {
    let headers = request.headers();
    if app.local_only {
        check_host(headers)?;
    }
    check_origin(headers, &app.origins)?;
    // Without keys, whoever is on this machine may change what it serves, and nobody else.
    let caller = Caller { is_admin: app.local_only, ..ANYBODY };
    let anybody = || Ok(Admitted { caller, name: String::new(), permit: None });
    let Some(keys) = &app.keys else { return anybody() };
    // A preflight request has no key.
    if routes::is_open(request.uri().path()) || request.method() == Method::OPTIONS {
        return anybody();
    }
    let Some(key) = shown_key(headers).and_then(|shown| keys.find(shown)) else {
        let message = "this server needs a key; send it as `Authorization: Bearer …` or `x-api-key`";
        return Err(ApiError::new(ErrorKind::NoKey, message));
    };
    let permit = match &key.requests {
        None => None,
        Some(left) => Some(Arc::clone(left).try_acquire_owned().map_err(|_| {
            let message =
                format!("the key `{}` has reached its limit of concurrent requests; try again in 1 s", key.name);
            ApiError::busy(message, Duration::from_secs(1))
        })?),
    };
    Ok(Admitted { caller: key.caller.clone(), name: key.name.clone(), permit })
}

fn shown_key(headers: &HeaderMap) -> Option<&[u8]> {
    let bearer = headers.get(header::AUTHORIZATION).map(HeaderValue::as_bytes).and_then(|value| {
        let (scheme, key) = value.split_at_checked(b"Bearer ".len())?;
        scheme.eq_ignore_ascii_case(b"Bearer ").then_some(key.trim_ascii())
    });
    bearer.or_else(|| headers.get("x-api-key").map(HeaderValue::as_bytes))
}

/// Guards against DNS rebinding: a page whose own name was made to point here sends that name.
fn check_host(headers: &HeaderMap) -> Result<(), ApiError> {
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let local = name.eq_ignore_ascii_case("localhost")
        || name.trim_matches(['[', ']']).parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback());
    match local {
        true => Ok(()),
        false => {
            let message = "this server accepts only localhost as host; use --keys and --host to serve other names";
            Err(ApiError::new(ErrorKind::Forbidden, message))
        }
    }
}

/// Pages of other origins are refused unless they are listed.
fn check_origin(headers: &HeaderMap, allowed: &[String]) -> Result<(), ApiError> {
    let Some(origin) = headers.get(header::ORIGIN) else { return Ok(()) };
    let origin = origin.to_str().unwrap_or_default();
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let same = origin.split_once("://").is_some_and(|(_, name)| !host.is_empty() && name.eq_ignore_ascii_case(host));
    match same || allowed.iter().any(|allowed| allowed == origin || allowed == "*") {
        true => Ok(()),
        false => {
            let message = "this origin is not allowed; allow it with --cors ORIGIN";
            Err(ApiError::new(ErrorKind::Forbidden, message))
        }
    }
}

fn preflight_response() -> Response {
    let headers = [
        (header::ACCESS_CONTROL_ALLOW_METHODS, "GET, POST, DELETE"),
        (header::ACCESS_CONTROL_ALLOW_HEADERS, "*, authorization, content-type, last-event-id, x-api-key"),
        (header::ACCESS_CONTROL_MAX_AGE, "600"),
    ];
    (StatusCode::NO_CONTENT, headers).into_response()
}

/// The client's own id for the request, if it is safe to log.
fn request_id(headers: &HeaderMap) -> Option<String> {
    let id = headers.get(REQUEST_ID)?.to_str().ok()?;
    let fits =
        (1..=64).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
    fits.then(|| id.to_owned())
}

/// Writes the log line of a request when its response is complete, and releases what the request held.
struct Log {
    app: Arc<App>,
    id: String,
    method: Method,
    path: String,
    /// Of the key.
    name: String,
    /// Counts among the requests of the key.
    permit: Option<OwnedSemaphorePermit>,
    /// None while there is no response.
    status: Option<StatusCode>,
    begin: Instant,
    /// The jobs that were made of it.
    jobs: Option<JobNumbers>,
    /// The trace that the request belongs to.
    parent: Option<Parent>,
}

impl Log {
    fn begin(app: &Arc<App>, request: &Request) -> Log {
        app.metrics.in_flight.fetch_add(1, Ordering::Relaxed);
        Log {
            app: Arc::clone(app),
            id: request_id(request.headers()).unwrap_or_else(|| app.model.current().random_id("req_")),
            method: request.method().clone(),
            path: request.uri().path().to_owned(),
            name: String::new(),
            permit: None,
            status: None,
            begin: Instant::now(),
            jobs: None,
            parent: request.headers().get("traceparent").and_then(|value| Parent::parse(value.to_str().ok()?)),
        }
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        self.app.metrics.in_flight.fetch_sub(1, Ordering::Relaxed);
        tracing::info!(
            request_id = self.id,
            method = %self.method,
            path = self.path,
            key = self.name,
            jobs = self.jobs.as_ref().map(|jobs| jobs.0.as_str()),
            status = self.status.map(|status| status.as_u16()),
            milliseconds = self.begin.elapsed().as_millis() as u64,
            "request"
        );
        if let Some(traces) = self.app.traces.as_ref().filter(|_| routes::takes_body(&self.method, &self.path)) {
            traces.ended(Span {
                parent: self.parent,
                random: std::array::from_fn(|_| self.app.model.current().random()),
                name: format!("{} {}", self.method, self.path),
                elapsed: self.begin.elapsed(),
                request_id: std::mem::take(&mut self.id),
                status: self.status.map(|status| status.as_u16()),
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.parse().unwrap(), HeaderValue::from_static(value))).collect()
    }

    fn entries(name: &'static str, value: &'static str) -> HeaderMap {
        headers(&[(name, value)])
    }

    #[test]
    fn only_names_of_this_machine_are_hosts() {
        for host in ["localhost", "LOCALHOST:8080", "127.0.0.1", "127.0.0.1:80", "[::1]:8080", "[::1]", "127.1.2.3"] {
            assert!(check_host(&entries("host", host)).is_ok(), "{host}");
        }
        for host in ["", "evil.example", "evil.example:8080", "localhost.evil.example", "10.0.0.1", "127.0.0.1.evil"] {
            assert!(check_host(&entries("host", host)).is_err(), "{host}");
        }
        assert!(check_host(&HeaderMap::new()).is_err());
    }

    #[test]
    fn foreign_origins_must_be_listed() {
        let listed = ["https://chat.example".to_owned()];
        let check = |origin: &'static str, allowed: &[String]| {
            check_origin(&headers(&[("origin", origin), ("host", "localhost:8080")]), allowed).is_ok()
        };
        assert!(check("http://localhost:8080", &[]));
        for origin in ["http://localhost:3000", "https://chat.example", "null", "http://localhost:8080.evil", ""] {
            assert!(!check(origin, &[]), "{origin}");
        }
        assert!(check("https://chat.example", &listed));
        assert!(!check("https://other.example", &listed));
    }

    #[test]
    fn a_key_is_shown_in_two_ways() {
        assert_eq!(shown_key(&entries("authorization", "bearer  a")), Some(&b"a"[..]));
        assert_eq!(shown_key(&entries("x-api-key", "a")), Some(&b"a"[..]));
        assert_eq!(shown_key(&entries("authorization", "Basic a")), None);
        assert_eq!(shown_key(&entries("authorization", "B")), None);
    }

    #[test]
    fn request_ids_are_short_words() {
        assert_eq!(request_id(&entries(REQUEST_ID, "abc-1_2.3")).as_deref(), Some("abc-1_2.3"));
        for wrong in ["", "a b", "a\"b", "0123456789012345678901234567890123456789012345678901234567890123x"] {
            assert_eq!(request_id(&entries(REQUEST_ID, wrong)), None, "{wrong}");
        }
    }
}
