//! Reads the bodies of requests within limits on size, time and memory.

use std::future::poll_fn;
use std::pin::pin;
use std::time::Duration;

use axum::body::{Body, HttpBody};
use tokio::time::timeout;

use crate::error::{ApiError, ErrorKind};
use crate::http::client_memory::{ClientMemory, MemoryShare};

/// Receives bodies.
pub(crate) struct Bodies {
    memory: ClientMemory,
    limit: usize,
    time: Duration,
}

/// A body that has arrived.
pub(crate) struct Received {
    bytes: Vec<u8>,
    memory: MemoryShare,
}

impl Received {
    /// Drops the bytes; what was made of them counts on.
    pub(crate) fn into_memory(self) -> MemoryShare {
        self.memory
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Room beside it for something that is kept longer or less long.
    pub(crate) fn another_share(&self) -> MemoryShare {
        self.memory.another()
    }
}

impl Bodies {
    /// Bodies of at most `limit` bytes each, each arriving within `time`. They count as soon as they arrive, and two of the
    /// largest fit into `total` bytes.
    pub(crate) fn new(limit: usize, total: usize, time: Duration) -> Bodies {
        Bodies { memory: ClientMemory::new(total.max(2 * limit)), limit, time }
    }

    /// The most bytes of one.
    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    /// The whole body.
    pub(crate) async fn read(&self, body: Body) -> Result<Received, ApiError> {
        if body.size_hint().lower() > self.limit as u64 {
            return Err(self.too_large());
        }
        match timeout(self.time, self.receive(body)).await {
            Ok(result) => result,
            Err(_) => {
                let message = format!("the body did not arrive within {} s; send it faster", self.time.as_secs());
                Err(ApiError::new(ErrorKind::Slow, message))
            }
        }
    }

    /// Memory for what is made of a body besides; an error if it is more than a body may have, or than there is now.
    pub(crate) fn reserve(&self, bytes: usize) -> Result<MemoryShare, ApiError> {
        if bytes > self.limit {
            return Err(self.report_too_large(bytes));
        }
        let mut share = self.memory.share();
        share.reach(bytes)?;
        Ok(share)
    }

    async fn receive(&self, body: Body) -> Result<Received, ApiError> {
        let mut body = pin!(body);
        let mut received = Received { bytes: Vec::new(), memory: self.memory.share() };
        while let Some(frame) = poll_fn(|context| body.as_mut().poll_frame(context)).await {
            let frame =
                frame.map_err(|error| ApiError::new(ErrorKind::Invalid, format!("the body is incomplete: {error}")))?;
            let Ok(data) = frame.into_data() else { continue };
            if received.bytes.len() + data.len() > self.limit {
                return Err(self.too_large());
            }
            received.bytes.extend_from_slice(&data);
            // A vector may take twice what it holds.
            received.memory.reach(received.bytes.capacity())?;
        }
        Ok(received)
    }

    fn report_too_large(&self, bytes: usize) -> ApiError {
        let limit = self.limit;
        let message = format!(
            "the log-probabilities of the prompts would take {bytes} bytes, more than {limit}; send fewer or shorter \
             prompts, or ask for fewer alternatives"
        );
        ApiError::invalid("logprobs", message)
    }

    fn too_large(&self) -> ApiError {
        ApiError::new(ErrorKind::TooLarge, format!("the body is larger than {} bytes; send less", self.limit))
    }
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use axum::body::Bytes;
    use hyper::body::Frame;

    use super::*;

    /// A body that never ends, with a byte from time to time.
    struct Dribbling(Pin<Box<tokio::time::Sleep>>);

    const PAUSE: Duration = Duration::from_secs(7);

    impl HttpBody for Dribbling {
        type Data = Bytes;
        type Error = axum::Error;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            context: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
            std::task::ready!(self.0.as_mut().poll(context));
            self.0 = Box::pin(tokio::time::sleep(PAUSE));
            Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(b" ")))))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_has_its_time_in_all() {
        let (limit, begin) = (Duration::from_secs(30), tokio::time::Instant::now());
        let bodies = Bodies::new(1 << 20, 2 << 20, limit);
        let body = Body::new(Dribbling(Box::pin(tokio::time::sleep(PAUSE))));
        let error = bodies.read(body).await.err().expect("it never ends");
        assert_eq!((error.kind, begin.elapsed()), (ErrorKind::Slow, limit));
    }
}
