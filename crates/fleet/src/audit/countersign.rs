//! A worker's answer to heads of the audit log: remembered on a thread of its own, because a disk may take longer than
//! a heartbeat.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use crate::audit::{Countersignature, SignedHead, Witnesses};

/// Heads that wait to be remembered; the coordinator shows newer ones later.
const MOST_WAITING: usize = 4;

/// Where heads are handed in, and testimonies out.
pub(crate) struct Countersigner {
    heads: SyncSender<SignedHead>,
    countersignatures: Receiver<Countersignature>,
}

impl Countersigner {
    /// Remembers heads until this is dropped.
    pub(crate) fn start(witnesses: Arc<Witnesses>) -> Countersigner {
        let (heads, shown) = sync_channel(MOST_WAITING);
        let (given, countersignatures) = sync_channel(MOST_WAITING);
        thread::spawn(move || {
            for head in shown {
                if given.send(witnesses.see(head)).is_err() {
                    return;
                }
            }
        });
        Countersigner { heads, countersignatures }
    }

    /// Hands in a head; one too many is left out.
    pub(crate) fn show(&self, head: SignedHead) {
        let _ = self.heads.try_send(head);
    }

    /// A testimony that has not been sent.
    pub(crate) fn next(&self) -> Option<Countersignature> {
        self.countersignatures.try_recv().ok()
    }
}
