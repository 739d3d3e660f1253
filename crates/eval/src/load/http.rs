//! As much HTTP/1.1 as a client that reads a stream needs.

use crate::EvalError;

/// The longest head of a response, and the longest size of a chunk with what may follow it.
const MAX_HEAD: usize = 64 << 10;
const MAX_CHUNK_LINE: usize = 1 << 10;

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
        let rest = match url.split_once("://") {
            None => url,
            Some(("http", rest)) => rest,
            Some(("https", _)) => return Err(wrong("it is encrypted; measure a port without TLS")),
            Some(_) => return Err(wrong("it is not one of HTTP")),
        };
        let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
        if host.is_empty() || host.contains(|c: char| c.is_whitespace() || c.is_control() || c == '@') {
            return Err(wrong("it names no server"));
        }
        if path.contains(|c: char| c.is_whitespace() || c.is_control()) {
            return Err(wrong("its path has characters that a path cannot have"));
        }
        let has_port = host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        let address = if has_port { host.to_owned() } else { format!("{host}:80") };
        let path = path.trim_end_matches('/');
        let path = path.strip_suffix("v1").unwrap_or(path).trim_end_matches('/');
        let prefix = if path.is_empty() { String::new() } else { format!("/{path}") };
        Ok(Target { address, prefix })
    }

    /// A request that is the only one on its connection.
    pub(super) fn post(&self, path: &str, key: Option<&str>, body: &str) -> String {
        let key = key.map(|key| format!("authorization: Bearer {key}\r\n")).unwrap_or_default();
        format!(
            "POST {}{path} HTTP/1.1\r\nhost: {}\r\n{key}content-type: application/json\r\nconnection: close\r\n\
             content-length: {}\r\n\r\n{body}",
            self.prefix,
            self.address,
            body.len()
        )
    }
}

/// Takes a response apart as it arrives, however it is cut into pieces.
#[derive(Debug, Default)]
pub(super) struct ResponseReader {
    /// 0 until the head is complete.
    pub(super) status: u16,
    /// Seconds after which the server asks the client to come back.
    pub(super) retry_after: Option<u32>,
    /// Bytes that could not be understood yet.
    pending: Vec<u8>,
    body: Body,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Body {
    /// The head is not complete.
    #[default]
    NotYet,
    /// The rest of the connection.
    UntilClose,
    /// So many more bytes.
    Length(usize),
    /// The line with the size of a chunk comes next.
    ChunkSize,
    /// So many more bytes of a chunk and of the line end after it.
    Chunk(usize),
    Over,
}

/// Bytes that were understood, and how many of them, from the first on, belong to the body.
struct Understood {
    bytes: usize,
    body: usize,
}

impl ResponseReader {
    /// Takes bytes in and hands out those of the body; `Err` says what is no HTTP about them.
    pub(super) fn feed(&mut self, bytes: &[u8], mut body: impl FnMut(&[u8])) -> Result<(), String> {
        self.pending.extend_from_slice(bytes);
        let mut at = 0;
        while let Some(Understood { bytes, body: of_body }) = self.understand(at)? {
            body(&self.pending[at..at + of_body]);
            at += bytes;
        }
        self.pending.drain(..at);
        Ok(())
    }

    /// Understands a little more of what is pending; `None` when that takes more bytes.
    fn understand(&mut self, at: usize) -> Result<Option<Understood>, String> {
        let rest = &self.pending[at..];
        if rest.is_empty() {
            return Ok(None);
        }
        let understood = match self.body {
            Body::NotYet => {
                let Some(end) = find(rest, b"\r\n\r\n", MAX_HEAD)? else { return Ok(None) };
                let head = String::from_utf8_lossy(&rest[..end]).into_owned();
                self.read_head(&head)?;
                Understood { bytes: end + 4, body: 0 }
            }
            Body::UntilClose => Understood { bytes: rest.len(), body: rest.len() },
            Body::Length(left) => {
                let taken = left.min(rest.len());
                self.body = if taken == left { Body::Over } else { Body::Length(left - taken) };
                Understood { bytes: taken, body: taken }
            }
            Body::ChunkSize => {
                let Some(end) = find(rest, b"\r\n", MAX_CHUNK_LINE)? else { return Ok(None) };
                self.body = chunk(&rest[..end])?;
                Understood { bytes: end + 2, body: 0 }
            }
            Body::Chunk(left) => {
                let taken = left.min(rest.len());
                self.body = if taken == left { Body::ChunkSize } else { Body::Chunk(left - taken) };
                Understood { bytes: taken, body: taken.min(left.saturating_sub(2)) }
            }
            // What follows the last chunk says nothing about the answer.
            Body::Over => Understood { bytes: rest.len(), body: 0 },
        };
        Ok(Some(understood))
    }

    /// Whether the body is complete; one without a length is when the connection is.
    pub(super) fn is_over(&self, closed: bool) -> bool {
        self.body == Body::Over || closed && self.body == Body::UntilClose
    }

    fn read_head(&mut self, head: &str) -> Result<(), String> {
        let mut lines = head.split("\r\n");
        let status = lines.next().filter(|line| line.starts_with("HTTP/1.")).and_then(|line| line.split(' ').nth(1));
        self.status = status.and_then(|status| status.parse().ok()).ok_or("the server does not speak HTTP/1.1")?;
        self.body = Body::UntilClose;
        for (name, value) in lines.filter_map(|line| line.split_once(':')) {
            let value = value.trim();
            match name.to_ascii_lowercase().as_str() {
                "retry-after" => self.retry_after = value.parse().ok(),
                "transfer-encoding" if value.eq_ignore_ascii_case("chunked") => self.body = Body::ChunkSize,
                "content-length" if self.body == Body::UntilClose => {
                    let length = value.parse().map_err(|_| "the response has a length that is no number")?;
                    self.body = if length == 0 { Body::Over } else { Body::Length(length) };
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// Where a mark begins; an error when it should have come by now.
fn find(bytes: &[u8], mark: &[u8], limit: usize) -> Result<Option<usize>, String> {
    match bytes.windows(mark.len()).position(|window| window == mark) {
        None if bytes.len() > limit => Err("the response has a line without an end".to_owned()),
        found => Ok(found),
    }
}

/// What follows the line with the size of a chunk.
fn chunk(line: &[u8]) -> Result<Body, String> {
    let line = String::from_utf8_lossy(line);
    let size = line.split(';').next().unwrap_or_default().trim();
    let size = usize::from_str_radix(size, 16).ok().and_then(|size| Some((size, size.checked_add(2)?)));
    match size {
        Some((0, _)) => Ok(Body::Over),
        Some((_, with_end)) => Ok(Body::Chunk(with_end)),
        None => Err(format!("`{line}` is no size of a chunk")),
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

    #[test]
    fn responses_are_read_in_any_pieces() {
        let check = |response: &str, status: u16, expected: &str, over: bool| {
            for size in [1, 2, 3, 7, response.len()] {
                let (mut reader, mut body) = (ResponseReader::default(), Vec::new());
                for piece in response.as_bytes().chunks(size) {
                    reader.feed(piece, |bytes| body.extend_from_slice(bytes)).unwrap();
                }
                assert_eq!(String::from_utf8_lossy(&body), expected, "{response:?} by {size}");
                assert_eq!((reader.status, reader.is_over(false)), (status, over), "{response:?} by {size}");
            }
        };
        let head = "HTTP/1.1 200 OK\r\n";
        check(
            &format!("{head}Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;x\r\nde\r\n0\r\n\r\n"),
            200,
            "abcde",
            true,
        );
        check(&format!("{head}transfer-encoding: chunked\r\n\r\n5\r\nab"), 200, "ab", false);
        check(&format!("{head}content-length: 3\r\n\r\nabc"), 200, "abc", true);
        check(&format!("{head}content-length: 4\r\n\r\nabc"), 200, "abc", false);
        check("HTTP/1.0 503 Busy\r\n\r\nabc", 503, "abc", false);
        check("HTTP/1.1 204 None\r\ncontent-length: 0\r\n\r\n", 204, "", true);
        check("HTTP/1.1 200", 0, "", false);
        let mut reader = ResponseReader::default();
        reader.feed(b"HTTP/1.1 429 Busy\r\nRetry-After: 7\r\ncontent-length: 0\r\n\r\n", |_| {}).unwrap();
        assert_eq!((reader.status, reader.retry_after), (429, Some(7)));
        for wrong in ["SSH-2.0\r\n\r\n", "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n"] {
            assert!(ResponseReader::default().feed(wrong.as_bytes(), |_| {}).is_err(), "{wrong:?}");
        }
    }
}
