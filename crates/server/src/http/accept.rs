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

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::time::Duration;

    use axum::routing::get;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
    use tokio::task::JoinHandle;
    use tokio::time::Instant;

    use super::*;

    /// Bytes that wait between the two ends of a connection.
    const PIPE: usize = 4096;

    /// Counts the answers that are not sent yet.
    #[derive(Clone, Default)]
    struct Unsent(Arc<AtomicUsize>);

    struct Answer(Unsent);

    impl Drop for Answer {
        fn drop(&mut self) {
            self.0.0.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// A connection to a server whose only answer is long.
    fn connect(limits: Limits, unsent: &Unsent) -> (DuplexStream, JoinHandle<()>) {
        let (client, server) = duplex(PIPE);
        let unsent = unsent.clone();
        let answer = move || {
            unsent.0.fetch_add(1, Ordering::Relaxed);
            let answer = Answer(unsent.clone());
            async move { holding(axum::response::Response::new(vec![b'a'; 1 << 20].into()), answer) }
        };
        let router = Router::new().route("/", get(answer));
        let acceptor = Acceptor { router, tls: None, limits, metrics: Arc::default() };
        let (stop, stopped) = watch::channel(false);
        let served = tokio::spawn(async move {
            let slots = Arc::new(ConnectionSlots::new(1));
            let slot = slots.take().await.expect("nobody else is there");
            acceptor.serve_http(server, &slot, stopped).await;
            drop(stop);
        });
        (client, served)
    }

    /// Timers have a resolution of a millisecond.
    fn check_time(begin: Instant, limit: Duration) {
        let taken = begin.elapsed();
        assert!((limit..=limit + Duration::from_millis(2)).contains(&taken), "{taken:?} where {limit:?} are allowed");
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_does_not_finish_its_request_is_cut_after_exactly_its_time() {
        let begin = Instant::now();
        let (mut client, served) = connect(Limits::default(), &Unsent::default());
        client.write_all(b"GET / HTTP/1.1\r\nhost: lo").await.unwrap();
        let mut answer = Vec::new();
        client.read_to_end(&mut answer).await.unwrap();
        served.await.unwrap();
        check_time(begin, Limits::default().header_time);
        assert!(!answer.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&answer));
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_does_not_read_is_cut_after_exactly_its_time_and_holds_nothing() {
        let unsent = Unsent::default();
        let (mut client, served) = connect(Limits::default(), &unsent);
        client.write_all(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
        // It reads a little, after a while that is short enough.
        tokio::time::sleep(Duration::from_secs(20)).await;
        let begin = Instant::now();
        client.read_exact(&mut [0; PIPE]).await.unwrap();
        assert_eq!(unsent.0.load(Ordering::Relaxed), 1, "the answer is not sent yet");
        served.await.unwrap();
        check_time(begin, Limits::default().stall_time);
        assert_eq!(unsent.0.load(Ordering::Relaxed), 0, "what it held is free");
    }
}
