//! The server: bind, run, stop.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::app::App;
use crate::error::ServerError;
use crate::http::accept::Acceptor;
use crate::http::keys::KeyRing;
use crate::http::tls;
use crate::model::Models;
use crate::model::on_demand::OnDemand;
use crate::model::slot::ModelSlot;
use crate::observe::metrics::Metrics;
use crate::observe::recent::Recent;
use crate::observe::traces::{self, Collector, Exporter};
use crate::options::{Limits, ServerOptions};
use crate::{os, routes};

/// Threads that serve connections; the model has its own.
const THREADS: usize = 2;

/// A server that is bound to its address.
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    acceptor: Acceptor,
    limits: Limits,
    exporter: Option<Exporter>,
    stop: watch::Sender<bool>,
    is_encrypted: bool,
    model: ModelSlot,
    on_demand: Option<Arc<OnDemand>>,
    metrics: Arc<Metrics>,
    recent: Arc<Recent>,
}

/// Stops a running server.
#[derive(Clone)]
pub struct ServerStop {
    stop: watch::Sender<bool>,
}

impl ServerStop {
    /// Accepts no more connections and lets answers finish.
    pub fn stop(&self) {
        self.stop.send_replace(true);
    }
}

impl Server {
    /// Checks the options and binds the address; connections are accepted once it runs.
    pub fn bind(models: impl Into<Models>, options: &ServerOptions) -> Result<Server, ServerError> {
        options.check_exposure()?;
        let address = SocketAddr::new(options.host, options.port);
        let keys = options.keys.as_deref().map(KeyRing::read).transpose()?;
        let tls = options.tls.as_ref().map(tls::acceptor).transpose()?;
        let bind = || {
            let listener = TcpListener::bind(address)?;
            listener.set_nonblocking(true)?;
            Ok((listener.local_addr()?, listener))
        };
        let (address, listener) =
            bind().map_err(|source| ServerError::Bind { address: address.to_string(), source })?;
        let collector = options.collector.as_deref().map(Collector::parse).transpose()?;
        let (spans, exporter) = collector.map(traces::traces).unzip();
        let app = Arc::new(App::new(models.into(), options, keys, spans)?);
        let (metrics, limits, is_encrypted) = (Arc::clone(&app.metrics), options.limits.clone(), tls.is_some());
        let (model, on_demand, recent) = (app.model.clone(), app.on_demand.clone(), Arc::clone(&app.recent));
        let router = routes::router(app);
        let acceptor = Acceptor { router, tls, limits: limits.clone(), metrics: Arc::clone(&metrics) };
        let stop = watch::Sender::new(false);
        Ok(Server {
            listener,
            address,
            acceptor,
            limits,
            exporter,
            stop,
            is_encrypted,
            model,
            on_demand,
            metrics,
            recent,
        })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where the web page is.
    pub fn url(&self) -> String {
        format!("{}://{}", if self.is_encrypted { "https" } else { "http" }, self.address)
    }

    /// Where the model can be replaced.
    pub fn model(&self) -> ModelSlot {
        self.model.clone()
    }

    /// A handle that stops it.
    pub fn stopper(&self) -> ServerStop {
        ServerStop { stop: self.stop.clone() }
    }

    /// Serves until it is stopped by a handle or a signal.
    pub fn run(self) -> Result<(), ServerError> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(THREADS)
            .max_blocking_threads(self.limits.workers + 2)
            .thread_name("cascadia-http")
            .enable_all()
            .build()?;
        let Server { listener, acceptor, exporter, stop, on_demand, model, metrics, recent, .. } = self;
        let served = runtime.block_on(async move {
            let listener = tokio::net::TcpListener::from_std(listener)?;
            let stopped = stop.subscribe();
            tokio::spawn(async move {
                os::shutdown_signal().await;
                tracing::info!("shutting down; waiting for answers in progress");
                stop.send_replace(true);
            });
            let sampling = tokio::spawn(recent.run(model, metrics));
            let loading = on_demand.map(|models| tokio::spawn(models.run()));
            let exporting = exporter.map(|exporter| tokio::spawn(exporter.run()));
            let served = acceptor.run(listener, stopped).await;
            sampling.abort();
            loading.iter().for_each(JoinHandle::abort);
            if let Some(exporting) = exporting {
                // The last spans are sent too, if the collector is quick.
                let _ = tokio::time::timeout(Duration::from_secs(2), exporting).await;
            }
            served
        });
        runtime.shutdown_timeout(Duration::from_secs(1));
        Ok(served?)
    }
}
