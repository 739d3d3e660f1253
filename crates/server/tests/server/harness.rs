//! A real server on a real port, and a client that sends exactly the bytes a test wants.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::thread::{JoinHandle, sleep};
use std::time::{Duration, Instant};

use cascadia_engine::service::{Service, ServiceOptions};
use cascadia_engine::{AdapterLimits, AdapterStore, Engine, ModelText, OpenOptions, Source};
use cascadia_kernels::Pool;
use cascadia_server::{
    LoadedModel, ModelDetails, Models, ServedAdapters, ServedModel, Server, ServerOptions, ServerStop,
};
use serde_json::Value;

use crate::brake::Brake;

/// The name under which the model is served.
pub(crate) const MODEL: &str = "rainier-33m-q4_k_m";
/// Tokens of prompt and answer together.
pub(crate) const CONTEXT: u32 = 1024;
/// What the embedded model was made for.
pub(crate) const LONGEST_CONTEXT: u32 = 4096;
/// No answer of a test takes this long.
const PATIENCE: Duration = Duration::from_secs(60);

/// A server that runs until it is dropped.
pub(crate) struct Running {
    pub(crate) address: SocketAddr,
    /// Tokens that end answers.
    pub(crate) end_tokens: Vec<u32>,
    stop: ServerStop,
    thread: Option<JoinHandle<()>>,
}

impl Running {
    /// Serves the embedded model.
    pub(crate) fn start(options: ServerOptions) -> Running {
        Running::with_context(CONTEXT, options)
    }

    /// The same with room for more or fewer tokens.
    pub(crate) fn with_context(context: u32, options: ServerOptions) -> Running {
        Running::serve(model(context), options)
    }

    /// Serves the embedded model, which computes nothing until the brake lets it.
    pub(crate) fn braked(options: ServerOptions) -> (Running, Brake) {
        let model = model(CONTEXT);
        let brake = Brake::new(model.service.clone());
        (Running::serve(model, options), brake)
    }

    /// Serves any model, or several.
    pub(crate) fn serve(models: impl Into<Models>, options: ServerOptions) -> Running {
        let models = models.into();
        let end_tokens = match &models {
            Models::One(model) => model.text.special().stop.clone(),
            Models::Several(_) => Vec::new(),
        };
        let server = Server::bind(models, &ServerOptions { port: 0, ..options }).expect("the server starts");
        let (address, stop) = (server.address(), server.stopper());
        let thread = std::thread::spawn(move || server.run().expect("the server ends in peace"));
        Running { address, end_tokens, stop, thread: Some(thread) }
    }

    /// The server that most tests share.
    pub(crate) fn shared() -> &'static Running {
        static SHARED: OnceLock<Running> = OnceLock::new();
        SHARED.get_or_init(|| Running::start(ServerOptions::default()))
    }

    /// Tells it to end, and waits until it has.
    pub(crate) fn stop(&mut self) {
        self.stop.stop();
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the server did not panic");
        }
    }

    /// Tells it to end.
    pub(crate) fn ask_to_stop(&self) {
        self.stop.stop();
    }

    pub(crate) fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).expect("the server listens");
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    /// Sends bytes and reads all that comes back.
    pub(crate) fn raw(&self, bytes: &[u8]) -> Reply {
        let mut stream = self.connect();
        // The server may close before it has read everything, which is what some tests are about.
        let _ = stream.write_all(bytes);
        read_reply(&mut stream)
    }

    /// One request with more headers.
    pub(crate) fn request(&self, head: &str, headers: &[(&str, &str)], body: &[u8]) -> Reply {
        let more: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        let host = if headers.iter().any(|(name, _)| *name == "host") { "" } else { "host: localhost\r\n" };
        let length = body.len();
        let mut bytes = format!("{head} HTTP/1.1\r\n{host}{more}connection: close\r\ncontent-length: {length}\r\n\r\n")
            .into_bytes();
        bytes.extend_from_slice(body);
        self.raw(&bytes)
    }

    pub(crate) fn get(&self, path: &str) -> Reply {
        self.request(&format!("GET {path}"), &[], b"")
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> Reply {
        self.request(&format!("POST {path}"), &[], body.to_string().as_bytes())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.stop();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The model inside the program, on a service of its own.
pub(crate) fn model(context: u32) -> ServedModel {
    open(context).0
}

/// The same with the adapters of a folder.
pub(crate) fn model_with_adapters(folder: &Path) -> ServedModel {
    let (model, store) = open(CONTEXT);
    let adapters = ServedAdapters::open(store, folder).expect("the adapters open");
    ServedModel { adapters: Some(adapters), ..model }
}

/// An empty store for adapters of the model.
pub(crate) fn adapter_store() -> AdapterStore {
    open(32).1
}

/// Rows and columns of a matrix of every layer of the model.
pub(crate) fn shapes(matrix: &str) -> Vec<[usize; 2]> {
    let files = Source::Path(&path()).files().expect("the model opens");
    let tensors = (0..).map_while(|layer| files.tensor(&format!("blk.{layer}.{matrix}.weight")));
    tensors.map(|tensor| [0, 1].map(|side| tensor.shape()[side] as usize)).collect()
}

/// A tiny encoder of this name, under the same name as the embedded model.
pub(crate) fn encoder(fixture: &str) -> ServedModel {
    serve_files(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/encoders").join(fixture), None).0
}

fn open(context: u32) -> (ServedModel, AdapterStore) {
    serve_files(&path(), Some(context))
}

fn serve_files(path: &Path, context: Option<u32>) -> (ServedModel, AdapterStore) {
    let options = OpenOptions { context, ..OpenOptions::new(Arc::new(Pool::new(1))) };
    let engine = Engine::open(Source::Path(path), &options).expect("the model opens");
    let store = engine.adapters(AdapterLimits::new(4));
    let (model, service) = on_service(engine, MODEL);
    // Tests end with the process, and so may the service.
    std::mem::forget(service);
    (model, store)
}

/// The model inside the program under another name, to be served for as long as its service is there.
pub(crate) fn loaded(name: &str) -> LoadedModel {
    let options = OpenOptions { context: Some(CONTEXT), ..OpenOptions::new(Arc::new(Pool::new(1))) };
    on_service(Engine::open(Source::Path(&path()), &options).expect("the model opens"), name)
}

fn on_service(engine: Engine, name: &str) -> LoadedModel {
    let text = Arc::new(engine.text().expect("the model has a tokenizer"));
    let service = Service::start(engine, Arc::clone(&text), ServiceOptions::default()).expect("the service starts");
    let (name, details) = (name.to_owned(), ModelDetails::default());
    (ServedModel { name, text, service: service.handle(), queue: 64, details, adapters: None }, service)
}

/// The same with another chat template.
pub(crate) fn model_with_template(template: &str) -> ServedModel {
    let model = model(CONTEXT);
    let files = Source::Path(&path()).files().expect("the model opens");
    let text = ModelText::read(&files).expect("the model has a tokenizer").with_template(template.to_owned());
    ServedModel { text: Arc::new(text), ..model }
}

fn path() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../cascadia/model").join(format!("{MODEL}.gguf"))
}

/// What came back.
#[derive(Debug)]
pub(crate) struct Reply {
    /// 0 when nothing came.
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Reply {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (found, value) = line.split_once(": ")?;
            found.eq_ignore_ascii_case(name).then_some(value)
        })
    }

    /// The data of every event.
    pub(crate) fn events(&self) -> Vec<String> {
        self.text().lines().filter_map(|line| line.strip_prefix("data: ").map(str::to_owned)).collect()
    }
}

/// Waits until something is so.
pub(crate) fn until(what: &str, mut reached: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !reached() {
        assert!(begin.elapsed() < PATIENCE, "not so: {what}");
        sleep(Duration::from_millis(10));
    }
}

/// Reads until the server closes.
pub(crate) fn read_reply(stream: &mut TcpStream) -> Reply {
    let mut bytes = Vec::new();
    if let Err(error) = stream.read_to_end(&mut bytes) {
        let cut = [io::ErrorKind::ConnectionReset, io::ErrorKind::BrokenPipe].contains(&error.kind());
        assert!(cut, "the server neither answered nor closed: {error}");
    }
    let _ = stream.shutdown(Shutdown::Both);
    parse_reply(&bytes)
}

fn parse_reply(bytes: &[u8]) -> Reply {
    let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") else {
        return Reply { status: 0, head: String::from_utf8_lossy(bytes).into_owned(), body: Vec::new() };
    };
    let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    let reply = Reply { status, head, body: Vec::new() };
    let body = &bytes[end + 4..];
    let chunked = reply.header("transfer-encoding") == Some("chunked");
    Reply { body: if chunked { joined(body) } else { body.to_vec() }, ..reply }
}

/// The body without the lengths of its chunks; stops where the stream was cut.
fn joined(mut chunks: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    while let Some(end) = chunks.windows(2).position(|window| window == b"\r\n") {
        let size = String::from_utf8_lossy(&chunks[..end]);
        let size = usize::from_str_radix(&size, 16).expect("a chunk begins with its size");
        let data = &chunks[end + 2..];
        if size == 0 || data.len() < size + 2 {
            break;
        }
        body.extend_from_slice(&data[..size]);
        chunks = &data[size + 2..];
    }
    body
}
