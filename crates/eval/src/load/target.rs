//! The address of a server, as people write it.

use ureq::http::Uri;

use crate::EvalError;

/// A server, and where its API begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Name and port, as a socket wants them.
    pub address: String,
    /// The path before `/v1`, without a slash at its end.
    pub prefix: String,
}

impl Target {
    /// Reads an address such as `http://127.0.0.1:8080`, with or without `/v1` at its end.
    pub fn parse(url: &str) -> Result<Target, EvalError> {
        let wrong = |problem: &str| EvalError::Url { url: url.to_owned(), problem: problem.to_owned() };
        let with_scheme = if url.contains("://") { url.to_owned() } else { format!("http://{url}") };
        let uri: Uri = with_scheme.parse().map_err(|error| wrong(&format!("it is no URL ({error})")))?;
        match uri.scheme_str() {
            Some("http") => {}
            Some("https") => return Err(wrong("it is encrypted; measure a port without TLS")),
            _ => return Err(wrong("it is not one of HTTP")),
        }
        let host = uri.host().filter(|host| !host.is_empty()).ok_or_else(|| wrong("it names no server"))?;
        let address = format!("{host}:{}", uri.port_u16().unwrap_or(80));
        let path = uri.path().trim_end_matches('/');
        let path = path.strip_suffix("/v1").unwrap_or(path).trim_end_matches('/');
        Ok(Target { address, prefix: path.to_owned() })
    }

    /// The URL of a path of the API.
    pub(super) fn url(&self, path: &str) -> String {
        format!("http://{}{}{path}", self.address, self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_understood() {
        let check = |url: &str, expected: Option<(&str, &str)>| {
            let found = Target::parse(url).ok();
            let found = found.as_ref().map(|target| (target.address.as_str(), target.prefix.as_str()));
            assert_eq!(found, expected, "{url}");
        };
        check("http://127.0.0.1:8080", Some(("127.0.0.1:8080", "")));
        check("http://127.0.0.1:8080/v1/", Some(("127.0.0.1:8080", "")));
        check("localhost:9000/api/v1", Some(("localhost:9000", "/api")));
        check("http://box", Some(("box:80", "")));
        check("http://[::1]:8080/", Some(("[::1]:8080", "")));
        for wrong in ["", "https://a", "ftp://a", "http://", "http://a b", "http://a/b\r\nx: y"] {
            check(wrong, None);
        }
    }
}
