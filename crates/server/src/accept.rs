//! The accept loop: connections with limits on their number, on time and on size, and an orderly end.

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

use crate::connection_slots::{ConnectionSlot, ConnectionSlots};
use crate::held::holding;
use crate::metrics::Metrics;
use crate::options::Limits;
use crate::write_timeout::WriteTimeout;

const FULL: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";

/// Everything a connection needs.
#[derive(Clone)]
pub(crate) struct Acceptor {
    pub(crate) router: Router,
    pub(crate) tls: Option<TlsAcceptor>,
    pub(crate) limits: Limits,
    pub(crate) metrics: Arc<Metrics>,
}

impl Acceptor {
    /// Serves until `stop` becomes true, then lets the answers under way end, for a limited time.
    pub(crate) async fn run(self, listener: TcpListener, mut stop: watch::Receiver<bool>) -> io::Result<()> {
        let places = Arc::new(ConnectionSlots::new(self.limits.connections));
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = stopped(&mut stop) => break,
            };
            let Ok((stream, _)) = accepted else {
                // Out of file descriptors, most likely; connections that end give some back.
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
                continue;
            };
            match places.take() {
                Some(place) => drop(tokio::spawn(self.clone().serve(stream, place, stop.clone()))),
                // The answer fits into the socket's buffer; where it does not, nobody waits for that.
                None => drop(stream.try_write(FULL)),
            }
        }
        drop(listener);
        if timeout(self.limits.drain_time, places.all_free()).await.is_err() {
            tracing::warn!("answers that had not ended in time were cut");
        }
        Ok(())
    }

    async fn serve(self, stream: TcpStream, place: Arc<ConnectionSlot>, stop: watch::Receiver<bool>) {
        let metrics = Arc::clone(&self.metrics);
        metrics.connections.fetch_add(1, Ordering::Relaxed);
        // Tokens are small and should not wait for each other.
        let _ = stream.set_nodelay(true);
        tokio::select! {
            () = self.connect(stream, &place, stop) => {}
            () = place.told_to_leave() => tracing::debug!("a connection without a request made room for another"),
        }
        metrics.connections.fetch_sub(1, Ordering::Relaxed);
    }

    async fn connect(self, stream: TcpStream, place: &Arc<ConnectionSlot>, stop: watch::Receiver<bool>) {
        match self.tls.clone() {
            None => self.talk(stream, place, stop).await,
            Some(tls) => match timeout(self.limits.header_time, tls.accept(stream)).await {
                Ok(Ok(stream)) => self.talk(stream, place, stop).await,
                Ok(Err(error)) => tracing::debug!(%error, "a connection could not be encrypted"),
                Err(_) => tracing::debug!("a connection did not become encrypted in time"),
            },
        }
    }

    async fn talk(
        self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send,
        place: &Arc<ConnectionSlot>,
        mut stop: watch::Receiver<bool>,
    ) {
        let Limits { header_bytes, header_time, stall_time, .. } = self.limits;
        let mut builder = http1::Builder::new();
        // Without a timer the limit on the time of headers would do nothing.
        builder.timer(TokioTimer::new()).header_read_timeout(header_time).max_header_size(header_bytes);
        let service = service_fn(|request| {
            let (busy, answered) = (place.busy(), self.router.clone().oneshot(request));
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
            tracing::debug!(%error, "a connection broke");
        }
    }
}

/// Waits until the server is to end; a sender that is gone means the same.
async fn stopped(stop: &mut watch::Receiver<bool>) {
    drop(stop.wait_for(|stop| *stop).await);
}
