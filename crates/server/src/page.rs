//! The web page: files inside the program, the same for everybody.

use axum::extract::Request;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};

/// Nothing from elsewhere is loaded, run or talked to.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
    connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// One file of the page.
struct Asset {
    bytes: &'static [u8],
    content_type: &'static str,
}

const INDEX: Asset = Asset { bytes: include_bytes!("../web/index.html"), content_type: "text/html; charset=utf-8" };
const SCRIPT: Asset = Asset { bytes: include_bytes!("../web/app.js"), content_type: "text/javascript; charset=utf-8" };
const STYLE: Asset = Asset { bytes: include_bytes!("../web/style.css"), content_type: "text/css; charset=utf-8" };

pub(crate) async fn index(request: Request) -> Response {
    INDEX.respond(&request)
}

pub(crate) async fn script(request: Request) -> Response {
    SCRIPT.respond(&request)
}

pub(crate) async fn style(request: Request) -> Response {
    STYLE.respond(&request)
}

impl Asset {
    fn respond(&self, request: &Request) -> Response {
        let tag = format!("\"{}\"", &blake3::hash(self.bytes).to_hex()[..32]);
        let known =
            request.headers().get(header::IF_NONE_MATCH).is_some_and(|known| known.as_bytes() == tag.as_bytes());
        let mut response = match known {
            true => StatusCode::NOT_MODIFIED.into_response(),
            false => self.bytes.into_response(),
        };
        let headers = response.headers_mut();
        if let Ok(tag) = HeaderValue::from_str(&tag) {
            headers.insert(header::ETAG, tag);
        }
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(self.content_type));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
        headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
        response
    }
}
