//! The memory that all requests and answers together may take, from the first byte read to the last byte sent.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::error::{ApiError, ErrorKind};

/// The bytes that a permit stands for.
const PERMIT_BYTES: usize = 4 << 10;

/// Memory for what clients send and are sent, shared by all connections.
#[derive(Clone)]
pub(crate) struct ClientMemory {
    permits: Arc<Semaphore>,
    total: usize,
}

/// The part of it that something takes, which counts until this is dropped.
pub(crate) struct MemoryShare {
    memory: ClientMemory,
    held: Option<OwnedSemaphorePermit>,
}

impl ClientMemory {
    /// So many bytes.
    pub(crate) fn new(total: usize) -> ClientMemory {
        let permits = total / PERMIT_BYTES + 1;
        ClientMemory { permits: Arc::new(Semaphore::new(permits)), total: permits * PERMIT_BYTES }
    }

    /// A part of it, with nothing in it yet.
    pub(crate) fn share(&self) -> MemoryShare {
        MemoryShare { memory: self.clone(), held: None }
    }
}

impl MemoryShare {
    /// Another part, for something that is kept longer or less long.
    pub(crate) fn another(&self) -> MemoryShare {
        self.memory.share()
    }

    /// The bytes that it counts.
    pub(crate) fn bytes(&self) -> usize {
        self.held.as_ref().map_or(0, OwnedSemaphorePermit::num_permits) * PERMIT_BYTES
    }

    /// Counts so many bytes in all, unless it counts more already; an error where others take them.
    pub(crate) fn reach(&mut self, bytes: usize) -> Result<(), ApiError> {
        let missing = match bytes.checked_sub(self.bytes()) {
            None | Some(0) => return Ok(()),
            Some(missing) => missing.div_ceil(PERMIT_BYTES),
        };
        if bytes > self.memory.total {
            let message = format!(
                "this takes more than the {} bytes of memory that the server has for all requests; send or ask for less, \
                 or stream the answer",
                self.memory.total
            );
            return Err(ApiError::new(ErrorKind::TooLarge, message));
        }
        let more = u32::try_from(missing).ok().and_then(|missing| {
            let permits = Arc::clone(&self.memory.permits);
            permits.try_acquire_many_owned(missing).ok()
        });
        let Some(more) = more else {
            let message = "too many large requests and answers at once; try again in 1 s";
            return Err(ApiError::busy(message, Duration::from_secs(1)));
        };
        match &mut self.held {
            Some(held) => held.merge(more),
            empty => *empty = Some(more),
        }
        Ok(())
    }

    /// JSON, whose bytes are counted before they are written.
    pub(crate) fn json(&mut self, value: &impl Serialize) -> Result<Vec<u8>, ApiError> {
        let mut out = CountedBytes { bytes: Vec::new(), before: self.bytes(), share: self, refused: None };
        let written = serde_json::to_writer(&mut out, value);
        match (written, out.refused) {
            (Ok(()), _) => Ok(out.bytes),
            (Err(_), Some(refused)) => Err(refused),
            (Err(error), None) => Err(ApiError::new(ErrorKind::Internal, format!("the answer is not JSON: {error}"))),
        }
    }
}

/// Bytes in a vector that grows only by what may be counted.
struct CountedBytes<'a> {
    bytes: Vec<u8>,
    /// What the share counted before.
    before: usize,
    share: &'a mut MemoryShare,
    refused: Option<ApiError>,
}

impl io::Write for CountedBytes<'_> {
    fn write(&mut self, more: &[u8]) -> io::Result<usize> {
        let needed = self.bytes.len() + more.len();
        if needed > self.bytes.capacity() {
            let capacity = needed.max(2 * self.bytes.capacity());
            if let Err(error) = self.share.reach(self.before + capacity) {
                self.refused = Some(error);
                return Err(io::ErrorKind::OutOfMemory.into());
            }
            self.bytes.reserve_exact(capacity - self.bytes.len());
        }
        self.bytes.extend_from_slice(more);
        Ok(more.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_counts_until_it_is_dropped() {
        let memory = ClientMemory::new(1 << 20);
        let text = "a".repeat(300 << 10);
        let mut shares: Vec<(Vec<u8>, MemoryShare)> = Vec::new();
        let refused = loop {
            let mut share = memory.share();
            match share.json(&text) {
                Ok(bytes) => shares.push((bytes, share)),
                Err(error) => break error,
            }
        };
        assert_eq!((refused.kind, refused.retry_after), (ErrorKind::Busy, Some(Duration::from_secs(1))));
        let kept: usize = shares.iter().map(|(bytes, _)| bytes.capacity()).sum();
        let counted: usize = shares.iter().map(|(_, share)| share.bytes()).sum();
        assert!(!shares.is_empty() && kept <= counted && counted <= memory.total, "{kept} {counted}");
        drop(shares);
        assert!(memory.share().json(&text).is_ok(), "memory is given back");
    }

    #[test]
    fn what_can_never_fit_is_told_so() {
        let memory = ClientMemory::new(64 << 10);
        assert_eq!(memory.share().json(&"a".repeat(1 << 20)).unwrap_err().kind, ErrorKind::TooLarge);
        let mut share = memory.share();
        assert!(share.reach(64 << 10).is_ok() && share.reach(1).is_ok());
        assert_eq!(share.another().reach(64 << 10).unwrap_err().kind, ErrorKind::Busy);
        assert_eq!(memory.permits.available_permits() * PERMIT_BYTES + share.bytes(), memory.total);
    }
}
