//! A hub of one repository on a local port, with faults on demand.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// The commit that every file belongs to.
pub(crate) const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

/// What the server has and how it misbehaves.
#[derive(Clone, Default)]
pub(crate) struct Repository {
    pub(crate) files: BTreeMap<&'static str, Vec<u8>>,
    /// Answer everything with this status.
    pub(crate) status: Option<u16>,
    /// Cut the first whole-file transfers of this file short, each at its number of bytes.
    pub(crate) cuts: Option<(&'static str, Vec<usize>)>,
    /// Answer requests for a part of this file with all of it.
    pub(crate) ignores_range: Option<&'static str>,
    /// Announce this commit in the list of files.
    pub(crate) commit: Option<&'static str>,
    /// Keep the content on the server at this address, under this tag.
    pub(crate) storage: Option<(String, String)>,
    /// Send this instead of the content of every file from there on.
    pub(crate) damage: Option<&'static [u8]>,
    /// Fall silent in the middle of the first transfers of this file, so many times.
    pub(crate) stalls: Option<(&'static str, usize)>,
    /// Redirect everything to itself.
    pub(crate) circles: bool,
    /// What else the server answers, by path.
    pub(crate) answers: Vec<(&'static str, &'static str)>,
}

/// One request, as the server saw it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) range: Option<String>,
    pub(crate) authorization: Option<String>,
}

/// A running server; it ends with the test process.
pub(crate) struct HubServer {
    pub(crate) endpoint: String,
    requests: Arc<Mutex<Vec<Request>>>,
}

impl HubServer {
    pub(crate) fn start(repository: Repository) -> HubServer {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let requests = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&requests);
        std::thread::spawn(move || {
            let mut repository = repository;
            for connection in listener.incoming() {
                // A client that hangs up early is no concern of the server.
                let _ = answer(connection.unwrap(), &mut repository, &seen);
            }
        });
        HubServer { endpoint, requests }
    }

    pub(crate) fn requests(&self) -> Vec<Request> {
        self.requests.lock().unwrap().clone()
    }

    /// The ranges in which `file` was asked for.
    pub(crate) fn ranges_of(&self, file: &str) -> Vec<String> {
        let of_file = |request: &Request| request.path.ends_with(&format!("/{file}"));
        self.requests().into_iter().filter(of_file).filter_map(|request| request.range).collect()
    }
}

fn answer(mut connection: TcpStream, repository: &mut Repository, seen: &Mutex<Vec<Request>>) -> std::io::Result<()> {
    let request = read_request(&connection)?;
    seen.lock().unwrap().push(request.clone());
    let commit = repository.commit.unwrap_or(COMMIT);
    if let Some(status) = repository.status {
        return write!(connection, "HTTP/1.1 {status} No\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
    }
    if repository.circles {
        let place = &request.path;
        return write!(
            connection,
            "HTTP/1.1 307 Go\r\nlocation: {place}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
        );
    }
    let siblings: Vec<_> = repository.files.keys().map(|file| serde_json::json!({ "rfilename": file })).collect();
    let list = serde_json::json!({ "sha": commit, "siblings": siblings }).to_string();
    let answer = repository.answers.iter().find(|(path, _)| *path == request.path).map(|(_, body)| *body);
    if let Some(body) = answer.or_else(|| (request.path == "/api/models/org/name/revision/main").then_some(&list)) {
        let length = body.len();
        return write!(connection, "HTTP/1.1 200 OK\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}");
    }
    let own = request.path.strip_prefix(&format!("/org/name/resolve/{commit}/"));
    let file = own.or(request.path.strip_prefix("/storage/"));
    let Some((&file, content)) = file.and_then(|file| repository.files.get_key_value(file)) else {
        return write!(connection, "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
    };
    if let (Some((storage, tag)), Some(_)) = (&repository.storage, own) {
        let size = content.len();
        return write!(
            connection,
            "HTTP/1.1 302 Found\r\nlocation: {storage}/storage/{file}\r\nx-linked-etag: \"{tag}\"\r\nx-linked-size: {size}\r\nx-repo-commit: {COMMIT}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
        );
    }
    send(connection, &request, file, repository)
}

/// Sends what is asked for of a file, with the faults that were ordered.
fn send(mut connection: TcpStream, request: &Request, file: &str, repository: &mut Repository) -> std::io::Result<()> {
    let content = repository.damage.map_or_else(|| repository.files[file].clone(), <[u8]>::to_vec);
    let total = content.len();
    let (mut start, mut end) = range_of(request, total);
    if repository.ignores_range == Some(file) {
        (start, end) = (0, total);
    }
    let (status, length) = (if request.range.is_some() { "206 Partial Content" } else { "200 OK" }, end - start);
    let last = end.saturating_sub(1);
    write!(
        connection,
        "HTTP/1.1 {status}\r\netag: \"tag-{}\"\r\nx-repo-commit: {COMMIT}\r\ncontent-length: {length}\r\ncontent-range: bytes {start}-{last}/{total}\r\nconnection: close\r\n\r\n",
        file.replace('/', "-"),
    )?;
    if request.method == "HEAD" {
        return Ok(());
    }
    if let Some((name, left @ 1..)) = &mut repository.stalls
        && *name == file
    {
        *left -= 1;
        connection.write_all(&content[start..start + (end - start) / 2])?;
        // Held open by a thread of its own, longer than any test takes.
        std::thread::spawn(move || {
            std::thread::sleep(std::time::Duration::from_secs(600));
            drop(connection);
        });
        return Ok(());
    }
    let cut = match &mut repository.cuts {
        Some((name, cuts)) if *name == file && !cuts.is_empty() => cuts.remove(0),
        _ => usize::MAX,
    };
    connection.write_all(&content[start..end.min(start.saturating_add(cut))])
}

fn range_of(request: &Request, total: usize) -> (usize, usize) {
    let range = request.range.as_deref().and_then(|range| range.strip_prefix("bytes="));
    let (start, end) = range.and_then(|range| range.split_once('-')).unwrap_or(("0", ""));
    (start.parse::<usize>().unwrap().min(total), end.parse().map_or(total, |last: usize| last + 1))
}

fn read_request(connection: &TcpStream) -> std::io::Result<Request> {
    let mut lines = BufReader::new(connection).lines();
    let first = lines.next().unwrap_or(Ok(String::new()))?;
    let mut words = first.split(' ').map(str::to_owned);
    let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let mut request = Request { method, path, ..Request::default() };
    for line in lines {
        let line = line?;
        match line.split_once(": ") {
            Some((name, value)) if name.eq_ignore_ascii_case("range") => request.range = Some(value.to_owned()),
            Some((name, value)) if name.eq_ignore_ascii_case("authorization") => {
                request.authorization = Some(value.to_owned());
            }
            None => break,
            Some(_) => {}
        }
    }
    Ok(request)
}
