//! Reads the bodies of requests within limits on size, time and memory.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, HttpBody};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use crate::error::{ApiError, ErrorKind};

/// The bytes that a permit stands for.
const PERMIT_BYTES: usize = 4 << 10;

/// Memory for bodies, shared by all connections.
pub(crate) struct Bodies {
    memory: Arc<Semaphore>,
    limit: usize,
    time: Duration,
}

/// A body that has arrived.
pub(crate) struct Received {
    bytes: Vec<u8>,
    memory: BodyMemory,
}

/// The memory of a body, which counts until this is dropped: also for what was made of it.
pub(crate) type BodyMemory = Option<OwnedSemaphorePermit>;

impl Received {
    /// Drops the bytes; what was made of them counts on.
    pub(crate) fn into_memory(self) -> BodyMemory {
        self.memory
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

impl Bodies {
    /// Bodies of at most `limit` bytes each and `total` bytes together, each arriving within `time`.
    pub(crate) fn new(limit: usize, total: usize, time: Duration) -> Bodies {
        Bodies { memory: Arc::new(Semaphore::new(total.max(2 * limit) / PERMIT_BYTES + 1)), limit, time }
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
    pub(crate) fn reserve(&self, bytes: usize) -> Result<BodyMemory, ApiError> {
        if bytes > self.limit {
            return Err(self.report_too_large(bytes));
        }
        let permits = bytes.div_ceil(PERMIT_BYTES) as u32;
        let memory = Arc::clone(&self.memory).try_acquire_many_owned(permits).map_err(|_| too_many())?;
        Ok((permits > 0).then_some(memory))
    }

    async fn receive(&self, body: Body) -> Result<Received, ApiError> {
        let mut body = pin!(body);
        let mut received = Received { bytes: Vec::new(), memory: None };
        let mut counted = 0;
        while let Some(frame) = poll_fn(|context| body.as_mut().poll_frame(context)).await {
            let frame =
                frame.map_err(|error| ApiError::new(ErrorKind::Invalid, format!("the body is incomplete: {error}")))?;
            let Ok(data) = frame.into_data() else { continue };
            if received.bytes.len() + data.len() > self.limit {
                return Err(self.too_large());
            }
            received.bytes.extend_from_slice(&data);
            // A vector may take twice what it holds.
            let due = received.bytes.capacity() / PERMIT_BYTES + 1;
            if due > counted {
                let more =
                    Arc::clone(&self.memory).try_acquire_many_owned((due - counted) as u32).map_err(|_| too_many())?;
                match &mut received.memory {
                    Some(memory) => memory.merge(more),
                    empty => *empty = Some(more),
                }
                counted = due;
            }
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

fn too_many() -> ApiError {
    ApiError::busy("too many large requests at once; try again in 1 s", Duration::from_secs(1))
}
