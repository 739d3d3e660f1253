//! A model over HTTP.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use cascadia_engine::service::Service;
use cascadia_server::{
    FleetBoard, ModelDetails, ResumeLogOptions, ServedAdapters, ServedModel, Server as HttpServer, ServerOptions,
    ServerStop, TlsFiles,
};

use crate::{Error, Model, ModelInfo};

/// A server that listens already; connections are answered once it runs.
pub struct Server {
    pub(crate) http: HttpServer,
    pub(crate) name: String,
    /// The service of the model that is served; nothing once the server has ended, or where it has several models.
    pub(crate) service: Arc<Mutex<Option<Service>>>,
    /// What is left to do after the last answer.
    pub(crate) conclude: Conclude,
}

/// Called once, after the last answer.
pub(crate) type Conclude = Box<dyn FnOnce() -> Result<(), Error> + Send>;

/// How a model is served.
#[derive(Clone, Debug, Default)]
pub struct ServerBuilder {
    pub(crate) options: ServerOptions,
    /// The folder of the adapters.
    pub(crate) adapters: Option<PathBuf>,
    /// Those that stay in memory.
    pub(crate) pinned: Vec<String>,
}

impl Server {
    /// Settings other than the usual ones: port 8080, for this machine only.
    pub fn builder() -> ServerBuilder {
        ServerBuilder::default()
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.http.address()
    }

    /// Where its web page is; the API is below it at `/v1`.
    pub fn url(&self) -> String {
        self.http.url()
    }

    /// The model that it serves at first.
    pub fn model_name(&self) -> &str {
        &self.name
    }

    /// What ends it from elsewhere.
    pub fn stopper(&self) -> ServerStop {
        self.http.stopper()
    }

    /// Serves until it is stopped, by a stopper or by a signal, and lets answers end.
    pub fn run(self) -> Result<(), Error> {
        self.http.run()?;
        let service = self.service.lock().unwrap_or_else(PoisonError::into_inner).take();
        service.into_iter().for_each(Service::drain);
        (self.conclude)()
    }
}

impl ServerBuilder {
    /// Settings as values, for those that have no method here.
    pub fn from_options(options: ServerOptions) -> ServerBuilder {
        ServerBuilder { options, adapters: None, pinned: Vec::new() }
    }

    /// Listens at this address; port 0 takes a free one.
    pub fn bind(mut self, address: impl Into<SocketAddr>) -> ServerBuilder {
        let address = address.into();
        (self.options.host, self.options.port) = (address.ip(), address.port());
        self
    }

    /// Admits only clients with a key of this file; see `cascadia_server::new_key`.
    pub fn api_keys(mut self, file: impl AsRef<Path>) -> ServerBuilder {
        self.options.keys = Some(file.as_ref().to_owned());
        self
    }

    /// Admits other machines without keys, or without TLS.
    pub fn insecure(mut self) -> ServerBuilder {
        self.options.insecure = true;
        self
    }

    /// Encrypts connections with this certificate and private key, both PEM.
    pub fn tls(mut self, certificate: impl AsRef<Path>, key: impl AsRef<Path>) -> ServerBuilder {
        let (certificate, key) = (certificate.as_ref().to_owned(), key.as_ref().to_owned());
        self.options.tls = Some(TlsFiles { certificate, key });
        self
    }

    /// Lets web pages of this origin use the server.
    pub fn origin(mut self, origin: impl Into<String>) -> ServerBuilder {
        self.options.origins.push(origin.into());
        self
    }

    /// Keeps the tokens of streams in this folder for a while, so that a client can resume after the server was killed.
    pub fn resume_log(mut self, folder: impl AsRef<Path>) -> ServerBuilder {
        self.options.resume_log = Some(ResumeLogOptions::new(folder.as_ref().to_owned()));
        self
    }

    /// Serves the model with the adapters of this folder too: each of its sub-folders and `.gguf` files is one, and requests
    /// name it after the model, `model:adapter`. Keys with `admin` add and remove some while it runs.
    pub fn adapters(mut self, folder: impl AsRef<Path>) -> ServerBuilder {
        self.adapters = Some(folder.as_ref().to_owned());
        self
    }

    /// Keeps an adapter of that folder in memory, by its name.
    pub fn pin_adapter(mut self, name: impl Into<String>) -> ServerBuilder {
        self.pinned.push(name.into());
        self
    }

    /// Another name under which clients may ask for the model.
    pub fn alias(mut self, name: impl Into<String>) -> ServerBuilder {
        self.options.aliases.push(name.into());
        self
    }

    /// The longest an answer may take, waiting included; ten minutes by default.
    pub fn answer_time(mut self, time: Duration) -> ServerBuilder {
        self.options.limits.answer_time = time;
        self
    }

    /// Listens, and serves this model once it runs.
    pub fn serve(&self, model: Model) -> Result<Server, Error> {
        self.listen(model, None)
    }

    pub(crate) fn listen(&self, model: Model, fleet: Option<FleetBoard>) -> Result<Server, Error> {
        let options = ServerOptions { fleet, ..self.options.clone() };
        let (name, (service, model)) = (model.name.clone(), served(model, (self.adapters.as_deref(), &self.pinned))?);
        let http = HttpServer::bind(model, &options)?;
        let (service, conclude) = (Arc::new(Mutex::new(Some(service))), Box::new(|| Ok(())));
        Ok(Server { http, name, service, conclude })
    }
}

/// A model as the server wants it, with the adapters of a folder, some of which stay in memory, and the service that has to
/// outlive it.
pub(crate) fn served(
    model: Model,
    (adapters, pinned): (Option<&Path>, &[String]),
) -> Result<(Service, ServedModel), Error> {
    let Model { name, text, service, info, queue, adapters: store, .. } = model;
    let adapters = adapters.map(|folder| ServedAdapters::open(store.clone(), folder)).transpose()?;
    pinned.iter().try_for_each(|name| store.pin(name))?;
    let details = details(info);
    // Requests of strangers are refused before the system ends the process for lack of memory.
    service.handle().watch_memory();
    let model = ServedModel { name, text, service: service.handle(), queue, details, adapters };
    Ok((service, model))
}

/// What clients are told of a model's files.
pub(crate) fn details(info: ModelInfo) -> ModelDetails {
    let ModelInfo { architecture: family, bytes, parameters, format, digest } = info;
    ModelDetails { family, bytes, parameters, format, digest }
}
