//! A relay between a worker and the coordinator that can be cut, delayed or silenced.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// How often it is looked whether something may pass again.
const PAUSE: Duration = Duration::from_millis(5);

/// What becomes of bytes on the way.
#[derive(Clone, Copy)]
pub(super) struct Traffic {
    /// Whether anything passes to the worker, and from it.
    pub(super) passes: [bool; 2],
    /// How long a piece takes.
    pub(super) delay: Duration,
    /// The most bytes of one.
    pub(super) piece: usize,
}

impl Default for Traffic {
    /// Everything passes at once.
    fn default() -> Traffic {
        Traffic { passes: [true, true], delay: Duration::ZERO, piece: 64 << 10 }
    }
}

/// A port that leads to another.
pub(super) struct Relay {
    pub(super) address: SocketAddr,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    traffic: Mutex<Traffic>,
    /// Both ends of what is connected now.
    open: Mutex<Vec<TcpStream>>,
}

impl Relay {
    /// A relay to an address, for as long as the program runs.
    pub(super) fn to(coordinator: SocketAddr) -> io::Result<Relay> {
        let listener = TcpListener::bind(("127.0.0.1", 0))?;
        let (address, state) = (listener.local_addr()?, Arc::<State>::default());
        let shared = Arc::clone(&state);
        thread::spawn(move || {
            for socket in listener.incoming().map_while(Result::ok) {
                // A worker that cannot be connected tries again.
                let _ = shared.connect(socket, coordinator);
            }
        });
        Ok(Relay { address, state })
    }

    /// Ends every connection.
    pub(super) fn cut(&self) {
        for socket in self.state.open().drain(..) {
            let _ = socket.shutdown(Shutdown::Both);
        }
    }

    /// Changes what becomes of bytes.
    pub(super) fn set(&self, traffic: Traffic) {
        *self.state.traffic() = traffic;
    }
}

impl State {
    fn traffic(&self) -> MutexGuard<'_, Traffic> {
        self.traffic.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn open(&self) -> MutexGuard<'_, Vec<TcpStream>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn connect(self: &Arc<State>, worker: TcpStream, coordinator: SocketAddr) -> io::Result<()> {
        let coordinator = TcpStream::connect(coordinator)?;
        for socket in [&worker, &coordinator] {
            socket.set_nodelay(true)?;
        }
        let ends = [worker.try_clone()?, coordinator.try_clone()?];
        // A worker has several: one that waits for shards, and one for each that it holds.
        let mut open = self.open();
        open.retain(|socket| socket.peer_addr().is_ok());
        open.extend(ends);
        drop(open);
        let ways = [(coordinator.try_clone()?, worker.try_clone()?), (worker, coordinator)];
        for (way, (from, to)) in ways.into_iter().enumerate() {
            let state = Arc::clone(self);
            thread::spawn(move || state.copy(way, from, to));
        }
        Ok(())
    }

    /// Passes on what comes one way until an end is gone; then the other is closed too.
    fn copy(&self, way: usize, mut from: TcpStream, mut to: TcpStream) {
        let mut buffer = vec![0; Traffic::default().piece];
        while let Ok(count @ 1..) = from.read(&mut buffer) {
            if self.pass(way, &buffer[..count], &mut to).is_err() {
                break;
            }
        }
        for socket in [from, to] {
            let _ = socket.shutdown(Shutdown::Both);
        }
    }

    /// Passes on bytes as the settings allow.
    fn pass(&self, way: usize, mut bytes: &[u8], to: &mut TcpStream) -> io::Result<()> {
        while !bytes.is_empty() {
            let Traffic { passes, delay, piece } = *self.traffic();
            if !passes[way] {
                thread::sleep(PAUSE);
                continue;
            }
            thread::sleep(delay);
            let (now, later) = bytes.split_at(piece.min(bytes.len()));
            to.write_all(now)?;
            bytes = later;
        }
        Ok(())
    }
}
