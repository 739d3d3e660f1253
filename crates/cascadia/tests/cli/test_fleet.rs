//! Machines of a fleet: the real program as coordinator, workers and servers, each with a home of its own.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::program::cascadia;

/// Longer than anything takes here, also where other programs have the processors: the whole of a long answer, or a
/// worker that was refused a few times and comes again after half a minute.
const PATIENCE: Duration = Duration::from_secs(180);

/// Flags of servers for which no machine hangs: one that gets no processor for some seconds is not dead.
pub(crate) const PATIENT: [&str; 2] = ["--silence-ms", "10000"];

/// What `look` finds, once it finds something.
pub(crate) fn until<T>(mut look: impl FnMut() -> Option<T>) -> T {
    let begin = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(begin.elapsed() < PATIENCE, "it was waited for in vain");
        thread::sleep(Duration::from_millis(50));
    }
}

/// A program that is ended with the test, and what it has said so far.
pub(crate) struct Running {
    child: Child,
    said: Arc<Mutex<String>>,
    /// They end once all of it is there.
    readers: Vec<JoinHandle<()>>,
}

impl Running {
    pub(crate) fn start(arguments: &[&str]) -> Running {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cascadia"));
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the program starts");
        let said: Arc<Mutex<String>> = Arc::default();
        let (out, err) = (child.stdout.take().expect("a pipe"), child.stderr.take().expect("a pipe"));
        let read = |pipe: Box<dyn Read + Send>| {
            let said = Arc::clone(&said);
            thread::spawn(move || {
                for line in BufReader::new(pipe).lines().map_while(Result::ok) {
                    *said.lock().unwrap() += &format!("{line}\n");
                }
            })
        };
        let readers = vec![read(Box::new(out)), read(Box::new(err))];
        Running { child, said, readers }
    }

    /// The first line with `text` in it, once it is there.
    pub(crate) fn line(&self, text: &str) -> String {
        let begin = Instant::now();
        loop {
            let said = self.said.lock().unwrap().clone();
            // A line that has not ended may still grow.
            let whole = &said[..said.rfind('\n').map_or(0, |end| end + 1)];
            if let Some(line) = whole.lines().find(|line| line.contains(text)) {
                return line.to_owned();
            }
            assert!(begin.elapsed() < PATIENCE, "`{text}` was not said, but:\n{said}");
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// What it has said so far.
    pub(crate) fn said(&self) -> String {
        self.said.lock().unwrap().clone()
    }

    /// Waits for its end.
    pub(crate) fn succeeds(mut self) {
        let status = self.child.wait().expect("it ends");
        assert!(status.success(), "{}", self.said.lock().unwrap());
    }

    /// Its number.
    #[cfg(target_os = "linux")]
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits for its end, and says whether it went well.
    pub(crate) fn ends(mut self) -> bool {
        self.child.wait().expect("it ends").success()
    }

    /// Waits for it to fail; gives what it said.
    pub(crate) fn fails(mut self) -> String {
        let status = self.child.wait().expect("it ends");
        // Its last words may still be on the way, and have several lines.
        self.readers.drain(..).for_each(|reader| reader.join().expect("it reads"));
        let said = self.said();
        assert!(!status.success() && said.contains("error:"), "{said}");
        said
    }

    /// Sends a signal by its name.
    #[cfg(unix)]
    pub(crate) fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([&format!("-{name}"), &self.child.id().to_string()]).status();
        assert!(sent.expect("there is a kill").success());
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if thread::panicking() {
            eprintln!("It said:\n{}", self.said());
        }
    }
}

/// A coordinator and the machines that have joined it, which are called node-00, node-01 and so on.
pub(crate) struct TestFleet {
    folder: tempfile::TempDir,
}

impl TestFleet {
    pub(crate) fn with_machines(count: usize) -> TestFleet {
        let (test_fleet, address) = (TestFleet { folder: tempfile::tempdir().unwrap() }, own_address());
        for number in 0..count {
            let home = test_fleet.at("coordinator");
            // The port that is free for the first is kept.
            let listen = ["--listen", address.as_str()];
            let listen = if number == 0 { &listen[..] } else { &[] };
            let init = Running::start(&[&["fleet", "init", "--invitation", "--home", &home], listen].concat());
            let line = init.line("cas1-");
            let name = format!("node-{number:02}");
            let done = cascadia(&["join", line.trim(), "--home", &test_fleet.home(number), "--name", &name]);
            assert_eq!(done.code, 0, "{}", done.stderr);
            init.succeeds();
        }
        test_fleet
    }

    pub(crate) fn at(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().expect("a UTF-8 path").to_owned()
    }

    pub(crate) fn home(&self, number: usize) -> String {
        self.at(&format!("machine-{number}"))
    }

    /// Starts a machine's worker. Other programs do not go first, so that tests under load take no longer.
    pub(crate) fn worker(&self, number: usize) -> Running {
        Running::start(&["worker", "start", "--home", &self.home(number), "--threads", "1", "--priority", "normal"])
    }

    /// Begins to push shards; workers may come before or after.
    pub(crate) fn push(&self, shards: &str, targets: &[&str]) -> Running {
        assert!(Path::new(shards).exists());
        Running::start(&[&["fleet", "push", shards, "--home", &self.at("coordinator")], targets].concat())
    }

    /// Serves with the machines of the fleet, none of which hangs.
    pub(crate) fn serve(&self, nodes: &str) -> Server {
        Server::start(&[&["--fleet", nodes, "--home", &self.at("coordinator")], &PATIENT[..]].concat())
    }
}

/// Any port at an address that no other test uses, where this machine has one: while no program of a fleet listens,
/// its port is taken by none of another.
fn own_address() -> String {
    static OFFICES: AtomicUsize = AtomicUsize::new(0);
    let (process, test_fleet) = (std::process::id(), OFFICES.fetch_add(1, Ordering::Relaxed));
    let own = format!("127.{}.{}.{}:0", 1 + process / 256 % 250, process % 256, 1 + test_fleet % 250);
    if TcpListener::bind(&own).is_ok() { own } else { "127.0.0.1:0".to_owned() }
}

/// A server at a port of its own.
pub(crate) struct Server {
    pub(crate) running: Running,
    port: u16,
}

impl Server {
    pub(crate) fn start(arguments: &[&str]) -> Server {
        let fixed = ["serve", "--port", "0", "--threads", "1"];
        let level: &[&str] = if arguments.contains(&"--log-level") { &[] } else { &["--log-level", "error"] };
        let running = Running::start(&[&fixed[..], level, arguments].concat());
        let line = running.line("the page is at");
        let port = line.rsplit("http://").next().and_then(|url| url.split([':', '/']).nth(1));
        let port = port.and_then(|port| port.parse().ok()).unwrap_or_else(|| panic!("no port in {line}"));
        Server { running, port }
    }

    /// What the likeliest tokens after a prompt say.
    pub(crate) fn complete(&self, prompt: &str, tokens: u32) -> String {
        let mut answer = String::new();
        self.ask(prompt, tokens, "false").read_to_string(&mut answer).expect("an answer");
        text(&answer[answer.find('{').expect("a body")..=answer.rfind('}').expect("a body")])
    }

    /// The same as a stream; `hears` is told how many parts have come.
    pub(crate) fn stream(&self, prompt: &str, tokens: u32, mut hears: impl FnMut(usize)) -> String {
        let (mut whole, mut parts) = (String::new(), 0);
        for line in BufReader::new(self.ask(prompt, tokens, "true")).lines() {
            let line = line.expect("the stream goes on");
            match line.strip_prefix("data: ") {
                Some("[DONE]") => return whole,
                Some(part) => {
                    whole += &text(part);
                    parts += 1;
                    hears(parts);
                }
                None => {}
            }
        }
        panic!("the stream broke off after {whole}");
    }

    /// The status line, headers and body of the answer to a prompt.
    pub(crate) fn answer(&self, prompt: &str) -> String {
        let mut answer = String::new();
        self.ask(prompt, 4, "false").read_to_string(&mut answer).expect("an answer");
        answer
    }

    fn ask(&self, prompt: &str, tokens: u32, stream: &str) -> TcpStream {
        let stream: Value = stream.parse().expect("JSON");
        let body =
            json!({"model": "default", "prompt": prompt, "max_tokens": tokens, "temperature": 0, "stream": stream});
        self.send(&body, "")
    }

    /// What is at a path.
    pub(crate) fn get(&self, path: &str) -> String {
        let mut socket = TcpStream::connect(("127.0.0.1", self.port)).expect("it listens");
        socket.set_read_timeout(Some(PATIENCE)).expect("a socket");
        write!(socket, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").expect("it is sent");
        let mut answer = String::new();
        socket.read_to_string(&mut answer).expect("an answer");
        answer
    }

    /// Sends any body, with a line of headers.
    pub(crate) fn send(&self, body: &Value, header: &str) -> TcpStream {
        let body = body.to_string();
        let head = format!("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n{header}");
        let mut socket = TcpStream::connect(("127.0.0.1", self.port)).expect("it listens");
        socket.set_read_timeout(Some(PATIENCE)).expect("a socket");
        write!(socket, "{head}Connection: close\r\nContent-Length: {}\r\n\r\n{body}", body.len()).expect("it is sent");
        socket
    }
}

/// The text of an answer or of a part of one.
fn text(body: &str) -> String {
    let value: Value = serde_json::from_str(body).unwrap_or_else(|error| panic!("{error} in {body}"));
    value["choices"][0]["text"].as_str().unwrap_or_else(|| panic!("no text in {body}")).to_owned()
}
