//! The web page: files embedded in the program, the same for everybody.

use axum::extract::Request;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};

/// Nothing from elsewhere is loaded, run or talked to.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
    font-src 'self'; worker-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Every file of the page: its path and what it holds.
const FILES: &[(&str, &[u8])] = &[
    ("/", include_bytes!("../web/index.html")),
    ("/page/api.js", include_bytes!("../web/api.js")),
    ("/page/app.js", include_bytes!("../web/app.js")),
    ("/page/branches.js", include_bytes!("../web/branches.js")),
    ("/page/charts.js", include_bytes!("../web/charts.js")),
    ("/page/chat.css", include_bytes!("../web/chat.css")),
    ("/page/controls.css", include_bytes!("../web/controls.css")),
    ("/page/dashboard.css", include_bytes!("../web/dashboard.css")),
    ("/page/dashboard.js", include_bytes!("../web/dashboard.js")),
    ("/page/dialogs.js", include_bytes!("../web/dialogs.js")),
    ("/page/elements.js", include_bytes!("../web/elements.js")),
    ("/page/files.js", include_bytes!("../web/files.js")),
    ("/page/fleet.css", include_bytes!("../web/fleet.css")),
    ("/page/fleet.js", include_bytes!("../web/fleet.js")),
    ("/page/frame.js", include_bytes!("../web/frame.js")),
    ("/page/history.js", include_bytes!("../web/history.js")),
    ("/page/inline.js", include_bytes!("../web/inline.js")),
    ("/page/markdown.css", include_bytes!("../web/markdown.css")),
    ("/page/markdown.js", include_bytes!("../web/markdown.js")),
    ("/page/math.js", include_bytes!("../web/math.js")),
    ("/page/message.js", include_bytes!("../web/message.js")),
    ("/page/pdf.js", include_bytes!("../web/pdf.js")),
    ("/page/run.js", include_bytes!("../web/run.js")),
    ("/page/settings.js", include_bytes!("../web/settings.js")),
    ("/page/sidebar.js", include_bytes!("../web/sidebar.js")),
    ("/page/store.js", include_bytes!("../web/store.js")),
    ("/page/style.css", include_bytes!("../web/style.css")),
    ("/page/syntax.js", include_bytes!("../web/syntax.js")),
    ("/page/theme.css", include_bytes!("../web/theme.css")),
    ("/page/theme.js", include_bytes!("../web/theme.js")),
    ("/page/transcript.js", include_bytes!("../web/transcript.js")),
];

/// KaTeX, which draws formulas, and PDF.js, which finds the text of a PDF: other people's files, as they come.
const LIBRARIES: &[(&str, &[u8])] = &[
    ("/page/katex/katex.min.css", include_bytes!("../third-party/katex/katex.min.css")),
    ("/page/katex/katex.min.js", include_bytes!("../third-party/katex/katex.min.js")),
    ("/page/katex/fonts/KaTeX_AMS-Regular.woff2", include_bytes!("../third-party/katex/fonts/KaTeX_AMS-Regular.woff2")),
    (
        "/page/katex/fonts/KaTeX_Caligraphic-Bold.woff2",
        include_bytes!("../third-party/katex/fonts/KaTeX_Caligraphic-Bold.woff2"),
    ),
    (
        "/page/katex/fonts/KaTeX_Caligraphic-Regular.woff2",
        include_bytes!("../third-party/katex/fonts/KaTeX_Caligraphic-Regular.woff2"),
    ),
    (
        "/page/katex/fonts/KaTeX_Fraktur-Bold.woff2",
        include_bytes!("../third-party/katex/fonts/KaTeX_Fraktur-Bold.woff2"),
    ),
    (
        "/page/katex/fonts/KaTeX_Fraktur-Regular.woff2",
        include_bytes!("../third-party/katex/fonts/KaTeX_Fraktur-Regular.woff2"),
    ),
    ("/page/katex/fonts/KaTeX_Main-Bold.woff2", include_bytes!("../third-party/katex/fonts/KaTeX_Main-Bold.woff2")),
    (
        "/page/katex/fonts/KaTeX_Main-BoldItalic.woff2",
        include_bytes!("../third-party/katex/fonts/KaTeX_Main-BoldItalic.woff2"),
    ),
    ("/page/katex/fonts/KaTeX_Main-Italic.woff2", include_bytes!("../third-party/katex/fonts/KaTeX_Main-Italic.woff2")),
    (
        "/page/katex/fonts/KaTeX_Main-Regular.woff2",
        include_bytes!("../third-party/katex/fonts/KaTeX_Main-Regular.woff2"),
    ),
    (
        "/page/katex/fonts/KaTeX_Math-BoldItalic.woff2",
        include_bytes!("../third-party/katex/fonts/KaTeX_Math-BoldItalic.woff2"),
    ),
    ("/page/katex/fonts/KaTeX_Math-Italic.woff2", include_bytes!("../third-party/katex/fonts/KaTeX_Math-Italic.woff2")),
    (
        "/page/katex/fonts/KaTeX_SansSerif-Bold.woff2",
        include_bytes!("../third-party/katex/fonts/KaTeX_SansSerif-Bold.woff2"),
    ),
    (
        "/page/katex/fonts/KaTeX_SansSerif-Italic.woff2",
        include_bytes!("../third-party/katex/fonts/KaTeX_SansSerif-Italic.woff2"),
    ),
    (
        "/page/katex/fonts/KaTeX_SansSerif-Regular.woff2",
        include_bytes!("../third-party/katex/fonts/KaTeX_SansSerif-Regular.woff2"),
    ),
    (
        "/page/katex/fonts/KaTeX_Script-Regular.woff2",
        include_bytes!("../third-party/katex/fonts/KaTeX_Script-Regular.woff2"),
    ),
    (
        "/page/katex/fonts/KaTeX_Size1-Regular.woff2",
        include_bytes!("../third-party/katex/fonts/KaTeX_Size1-Regular.woff2"),
    ),
    (
        "/page/katex/fonts/KaTeX_Size2-Regular.woff2",
        include_bytes!("../third-party/katex/fonts/KaTeX_Size2-Regular.woff2"),
    ),
    (
        "/page/katex/fonts/KaTeX_Size3-Regular.woff2",
        include_bytes!("../third-party/katex/fonts/KaTeX_Size3-Regular.woff2"),
    ),
    (
        "/page/katex/fonts/KaTeX_Size4-Regular.woff2",
        include_bytes!("../third-party/katex/fonts/KaTeX_Size4-Regular.woff2"),
    ),
    (
        "/page/katex/fonts/KaTeX_Typewriter-Regular.woff2",
        include_bytes!("../third-party/katex/fonts/KaTeX_Typewriter-Regular.woff2"),
    ),
    ("/page/pdfjs/pdf.min.mjs", include_bytes!("../third-party/pdfjs/pdf.min.mjs")),
    ("/page/pdfjs/pdf.worker.min.mjs", include_bytes!("../third-party/pdfjs/pdf.worker.min.mjs")),
];

/// The file of this path.
fn find(path: &str) -> Option<&'static [u8]> {
    FILES.iter().chain(LIBRARIES).find(|(known, _)| *known == path).map(|(_, bytes)| *bytes)
}

/// Whether a file of the page has this path.
pub(crate) fn has(path: &str) -> bool {
    find(path).is_some()
}

/// The file that the path of the request names.
pub(crate) async fn file(request: Request) -> Response {
    let path = request.uri().path();
    let Some(bytes) = find(path) else {
        return crate::routes::no_route().await.into_response();
    };
    let tag = format!("\"{}\"", &blake3::hash(bytes).to_hex()[..32]);
    let known = request.headers().get(header::IF_NONE_MATCH).is_some_and(|known| known.as_bytes() == tag.as_bytes());
    let mut response = match known {
        true => StatusCode::NOT_MODIFIED.into_response(),
        false => bytes.into_response(),
    };
    let headers = response.headers_mut();
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        headers.insert(header::ETAG, tag);
    }
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type(path)));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    response
}

fn content_type(path: &str) -> &'static str {
    match path.rsplit_once('.') {
        Some((_, "js" | "mjs")) => "text/javascript; charset=utf-8",
        Some((_, "css")) => "text/css; charset=utf-8",
        Some((_, "woff2")) => "font/woff2",
        _ => "text/html; charset=utf-8",
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_page_promises_nothing_before_it_has_asked() {
        let page = include_str!("../web/index.html");
        let line = page.lines().find(|line| line.contains("id=\"privacy\"")).expect("where it is computed");
        assert!(!line.contains("stays") && !line.contains("machine"), "{line}");
    }
}
