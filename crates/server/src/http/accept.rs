//! The accept loop: connections with limits on number, time and size, and a graceful shutdown.

use std::convert::Infallible;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::Router;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tower::ServiceExt;

use crate::http::connection_slots::{ConnectionSlot, ConnectionSlots};
use crate::http::held::holding;
use crate::http::write_timeout::WriteTimeout;
use crate::observe::metrics::Metrics;
use crate::options::Limits;

const FULL: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";

/// The most bytes of a connection that wait in its buffers, to be parsed or to be sent; hyper's own limit is 400 KiB.
const BUFFER_BYTES: usize = 64 << 10;

/// Everything a connection needs.
#[derive(Clone)]
pub(crate) struct Acceptor {
    pub(crate) router: Router,
    pub(crate) tls: Option<TlsAcceptor>,
    pub(crate) limits: Limits,
    pub(crate) metrics: Arc<Metrics>,
}

impl Acceptor {
    /// Serves until `stop` becomes true, then waits a limited time for answers in progress.
    pub(crate) async fn run(self, listener: TcpListener, mut stop: watch::Receiver<bool>) -> io::Result<()> {
        let slots = Arc::new(ConnectionSlots::new(self.limits.connections));
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = stopped(&mut stop) => break,
            };
            let Ok((stream, _)) = accepted else {
                // Out of file descriptors, most likely; closing connections frees some.
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
                continue;
            };
            match slots.take().await {
                Some(slot) => drop(tokio::spawn(self.clone().serve(stream, slot, stop.clone()))),
                // The response fits into the socket's buffer; if it does not, it is dropped.
                None => drop(stream.try_write(FULL)),
            }
        }
        drop(listener);
        if timeout(self.limits.drain_time, slots.all_free()).await.is_err() {
            tracing::warn!("cut answers that did not finish in time");
        }
        Ok(())
    }

    async fn serve(self, stream: TcpStream, slot: Arc<ConnectionSlot>, stop: watch::Receiver<bool>) {
        let metrics = Arc::clone(&self.metrics);
        metrics.connections.fetch_add(1, Ordering::Relaxed);
        // Tokens are small and must not wait for each other.
        let _ = stream.set_nodelay(true);
        tokio::select! {
            () = self.encrypt(stream, &slot, stop) => {}
            () = slot.evicted() => tracing::debug!("closed an idle connection to make room for another"),
        }
        metrics.connections.fetch_sub(1, Ordering::Relaxed);
    }

    async fn encrypt(self, stream: TcpStream, slot: &Arc<ConnectionSlot>, stop: watch::Receiver<bool>) {
        match self.tls.clone() {
            None => self.serve_http(stream, slot, stop).await,
            Some(tls) => match timeout(self.limits.header_time, tls.accept(stream)).await {
                Ok(Ok(stream)) => self.serve_http(stream, slot, stop).await,
                Ok(Err(error)) => tracing::debug!(%error, "a TLS handshake failed"),
                Err(_) => tracing::debug!("a TLS handshake timed out"),
            },
        }
    }

    async fn serve_http(
        self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send,
        slot: &Arc<ConnectionSlot>,
        mut stop: watch::Receiver<bool>,
    ) {
        let Limits { header_bytes, header_time, stall_time, .. } = self.limits;
        let mut builder = http1::Builder::new();
        // Without a timer the limit on the time of headers would do nothing.
        builder.timer(TokioTimer::new()).header_read_timeout(header_time).max_header_size(header_bytes);
        builder.max_buf_size(BUFFER_BYTES.max(header_bytes));
        let service = service_fn(|request| {
            let (busy, answered) = (slot.busy(), self.router.clone().oneshot(request));
            async move { Ok::<_, Infallible>(holding(answered.await?, busy)) }
        });
        let connection = builder.serve_connection(TokioIo::new(WriteTimeout::new(stream, stall_time)), service);
        let mut connection = pin!(connection);
        let ended = tokio::select! {
            ended = connection.as_mut() => ended,
            () = stopped(&mut stop) => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        if let Err(error) = ended {
            tracing::debug!(%error, "a connection failed");
        }
    }
}

/// Waits until the server is to stop; a sender that is gone means the same.
async fn stopped(stop: &mut watch::Receiver<bool>) {
    drop(stop.wait_for(|stop| *stop).await);
}
